"""Plans and outcomes of microservices as plain data, by the names of a round."""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.instances.columns import Names
from apportion.instances.errors import InstanceError
from apportion.instances.files import shown
from apportion.instances.microservices.allocation import Allocation, Outcome
from apportion.instances.microservices.round import MicroserviceRound
from apportion.instances.plain_data import (
    codes,
    column_by_name,
    finite_or_null,
    known_keys,
    plain_list,
)

ALLOCATION_KEYS = ("containers", "guaranteed", "rank", "placement")
OUTCOME_KEYS = (
    "start_s", "end_s", "assumed", "class_requests", "violations", "unmodelled_requests",
    "latency_tail_ms", "serving",
)  # fmt: skip


def allocation_to_dict(round_: MicroserviceRound, allocation: Allocation) -> dict[str, Any]:
    """Turn a plan into plain data for JSON.

    Returns
    -------
    dict
        ``containers``: by microservice; ``guaranteed``: the services whose SLA the plan claims to
        keep; ``rank``: by class, where microservices serve classes in an order; ``placement``:
        containers by microservice and node, where they are placed. Nodes with none are left out.

    Raises
    ------
    InstanceError
        Where the plan is not of the size of the round.
    """
    ids, services = round_.microservices.id, round_.services.id
    shape = (ids.size,)
    _require_shape(allocation.containers, shape, "containers")
    _require_shape(allocation.guaranteed, (services.size,), "guaranteed")
    out: dict[str, Any] = {
        "containers": dict(zip(ids.tolist(), allocation.containers.tolist(), strict=True)),
        "guaranteed": services[allocation.guaranteed].tolist(),
    }
    if allocation.rank is not None:
        classes = round_.classes.id
        _require_shape(allocation.rank, (classes.size,), "rank")
        out["rank"] = dict(zip(classes.tolist(), allocation.rank.tolist(), strict=True))
    if allocation.placement is not None:
        nodes = _nodes(round_)
        _require_shape(allocation.placement, (ids.size, nodes.size), "placement")
        out["placement"] = {
            str(ids[m]): {str(nodes[j]): int(row[j]) for j in np.flatnonzero(row)}
            for m, row in enumerate(allocation.placement)
            if row.any()
        }
    return out


def _require_shape(column: Any, shape: tuple[int, ...], name: str) -> None:
    if column.shape != shape:
        raise InstanceError(f"allocation.{name} has shape {column.shape}, expected {shape}")


def _nodes(round_: MicroserviceRound) -> Names:
    if round_.nodes is None:
        raise InstanceError("allocation.placement: the round has no nodes")
    return round_.nodes.id


def allocation_from_dict(round_: MicroserviceRound, data: object) -> Allocation:
    """Read a plan from plain data; the inverse of ``allocation_to_dict``.

    Parameters
    ----------
    round_
        The round it answers.
    data
        ``containers`` must name every microservice; the other keys may be left out.

    Raises
    ------
    InstanceError
        On unknown keys and names, with the nearest known one, and on microservices left out.
        Whether the plan obeys the round is the checker's question.
    """
    section = known_keys(data, ALLOCATION_KEYS, "allocation")
    if "containers" not in section:
        raise InstanceError("allocation.containers is missing")
    ids, services = round_.microservices.id, round_.services.id
    containers = column_by_name(section["containers"], ids, "int", "allocation.containers")
    where = "allocation.guaranteed"
    sure = np.zeros(services.size, dtype=np.bool_)
    kept = plain_list(section.get("guaranteed", []), "name", where)
    sure[codes(kept, services, where, "service")] = True
    rank = placement = None
    if section.get("rank") is not None:
        rank = column_by_name(section["rank"], round_.classes.id, "int", "allocation.rank")
    if section.get("placement") is not None:
        placement = _placement(section["placement"], ids, _nodes(round_))
    return Allocation.of(containers, sure, rank=rank, placement=placement)


def _placement(data: object, ids: Names, nodes: Names) -> Any:
    where = "allocation.placement"
    out = np.zeros((ids.size, nodes.size))
    rows = known_keys(data, tuple(ids.tolist()), where)
    for name, row in zip(codes(list(rows), ids, where, "microservice"), rows.items(), strict=True):
        at = f"{where}.{row[0]}"
        held = known_keys(row[1], tuple(nodes.tolist()), at)
        out[name, codes(list(held), nodes, at, "node")] = plain_list(list(held.values()), "int", at)
    return out  # that its numbers are whole is checked with the plan


def outcome_to_dict(round_: MicroserviceRound, outcome: Outcome) -> dict[str, Any]:
    """Turn an outcome into plain data for JSON; a latency of null is infinite."""
    out: dict[str, Any] = {"start_s": float(outcome.start_s), "end_s": float(outcome.end_s)}
    if outcome.assumed:
        out["assumed"] = True
    for name, ids in _outcome_columns(round_):
        column = getattr(outcome, name)
        if column.shape != ids.shape:
            raise InstanceError(f"outcome.{name} has shape {column.shape}, expected {ids.shape}")
        out[name] = dict(zip(ids.tolist(), finite_or_null(column), strict=True))
    return out


def _outcome_columns(round_: MicroserviceRound) -> tuple[tuple[str, Names], ...]:
    services = round_.services.id
    return (
        ("class_requests", round_.classes.id),
        ("violations", services),
        ("unmodelled_requests", services),
        ("latency_tail_ms", services),
        ("serving", round_.microservices.id),
    )


def outcome_from_dict(round_: MicroserviceRound, data: object) -> Outcome:
    """Read an outcome from plain data.

    Parameters
    ----------
    round_
        The round whose plan was carried out.
    data
        ``start_s``, ``end_s``, and by name ``class_requests``, ``violations``,
        ``unmodelled_requests``, ``latency_tail_ms`` (null: infinite) and ``serving``. Classes
        that are not named were not seen; ``unmodelled_requests`` may be left out.

    Raises
    ------
    InstanceError
        On unknown keys and names, names left out, and values of the wrong kind or below 0.
    """
    section = known_keys(data, OUTCOME_KEYS, "outcome")
    for name in ("start_s", "end_s"):
        if name not in section:
            raise InstanceError(f"outcome.{name} is missing")
    start, end = plain_list([section["start_s"], section["end_s"]], "float", "outcome.start_s")
    if not start < end:
        raise InstanceError(f"outcome.end_s = {end}: must lie after start_s = {start}")
    assumed = section.get("assumed", False)
    if not isinstance(assumed, bool):
        raise InstanceError(f"outcome.assumed = {shown(assumed)}: must be true or false")
    zero = {"class_requests": 0.0, "unmodelled_requests": 0.0}
    columns: dict[str, Any] = {}
    for name, ids in _outcome_columns(round_):
        where = f"outcome.{name}"
        given = section.get(name, {} if name == "unmodelled_requests" else None)
        if given is None:
            raise InstanceError(f"{where} is missing")
        null = np.inf if name == "latency_tail_ms" else None
        columns[name] = column_by_name(
            given, ids, "float", where, default=zero.get(name), least=0.0, null=null
        )
    return Outcome.of(float(start), float(end), **columns, assumed=assumed)
