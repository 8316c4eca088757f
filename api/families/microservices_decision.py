"""A decision about microservices, for people and for files."""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.executor.microservices import ViolationBounds, violation_bounds
from apportion.families.own_columns import own_columns, shown_value
from apportion.instances import Decision
from apportion.instances.columns import Floats
from apportion.instances.microservices import Allocation, MicroserviceRound
from apportion.instances.microservices.laws import loads
from apportion.results import Column, Table


def facts(round_: MicroserviceRound, allocation: Allocation) -> dict[str, Any]:
    """Bound the share of requests above their target, as the checker finds it.

    Returns
    -------
    dict
        ``services`` and ``classes``, columns by name: ``violation_least`` and
        ``violation_most``, None for classes that do not occur.
    """
    found = violation_bounds(round_, allocation.containers, allocation.rank)
    return {
        "services": {
            "id": round_.services.id.tolist(),
            "kept": allocation.guaranteed.tolist(),
            "violation_least": _or_none(found.low),
            "violation_most": _or_none(found.high),
        },
        "classes": {
            "id": round_.classes.id.tolist(),
            "violation_least": _or_none(found.class_low),
            "violation_most": _or_none(found.class_high),
        },
    }


def _or_none(column: Floats) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in column.tolist()]


def summary(round_: MicroserviceRound, allocation: Allocation) -> str:
    """Count containers, and the services whose SLA is claimed to be kept."""
    called = round_.services.rate_per_s > 0
    kept = int((allocation.guaranteed & called).sum())
    return (
        f"{int(allocation.containers.sum())} containers of {len(round_.microservices)}"
        f" microservices, {kept} of {int(called.sum())} SLAs kept"
    )


def decision_tables(
    policy: str, round_: MicroserviceRound, decision: Decision
) -> tuple[Table, ...]:
    """Show the containers of every microservice, and what services and classes get by them."""
    plan: Allocation = decision.allocation
    found = violation_bounds(round_, plan.containers, plan.rank)
    return (
        _containers(policy, round_, decision),
        _services(round_, plan, found),
        _classes(round_, plan, found),
    )


def _containers(policy: str, round_: MicroserviceRound, decision: Decision) -> Table:
    plan: Allocation = decision.allocation
    shown = {name: np.asarray(column) for name, column in decision.per_job.items()}
    columns = [
        Column("microservice", "microservice"), Column("before", "before", "count"),
        Column("containers", "containers", "count"), Column("load", "calls/s of each", "ratio"),
        Column("nodes", "nodes"), *own_columns(shown),
    ]  # fmt: skip
    load = loads(round_, plan.containers).max(axis=1, initial=0.0)
    rows: list[list[str | int | float | None]] = []
    for row, name in enumerate(round_.microservices.id.tolist()):
        before = None if round_.containers is None else int(round_.containers[row])
        own = [shown_value(column[row]) for column in shown.values()]
        light = float(load[row]) if np.isfinite(load[row]) else None
        rows.append(
            [name, before, int(plan.containers[row]), light, _nodes(round_, plan, row), *own]
        )
    title = f"{policy}: {summary(round_, plan)}"
    return Table(title, columns, rows, list(decision.notes))


def _nodes(round_: MicroserviceRound, plan: Allocation, row: int) -> str:
    if plan.placement is None or round_.nodes is None:
        return ""
    counts = plan.placement[row]
    return ", ".join(f"{round_.nodes.id[node]} x{counts[node]}" for node in np.flatnonzero(counts))


def _services(round_: MicroserviceRound, plan: Allocation, found: ViolationBounds) -> Table:
    services = round_.services
    columns = [
        Column("service", "service"), Column("rate", "requests/s", "ratio"),
        Column("target_ms", "target (ms)", "ratio"), Column("budget", "may exceed it", "fraction"),
        Column("violation", "exceed it", "fraction"), Column("kept", "SLA"),
    ]  # fmt: skip
    rows: list[list[str | int | float | None]] = []
    for row, name in enumerate(services.id.tolist()):
        called = services.rate_per_s[row] > 0
        verdict = "kept" if plan.guaranteed[row] else "not claimed"
        rows.append([
            name, float(services.rate_per_s[row]), float(services.target_ms[row]),
            float(services.violation_budget[row]), float(found.middle[row]) if called else None,
            verdict if called else "nobody calls",
        ])  # fmt: skip
    return Table("Services", columns, rows)


def _classes(round_: MicroserviceRound, plan: Allocation, found: ViolationBounds) -> Table:
    classes = round_.classes
    columns = [
        Column("class", "class"), Column("service", "service"),
        Column("share", "share", "fraction"), Column("in_time", "in time", "fraction"),
    ]  # fmt: skip
    if plan.rank is not None:
        columns.append(Column("rank", "turn", "count"))
    rows: list[list[str | int | float | None]] = []
    for row, name in enumerate(classes.id.tolist()):
        late = float(found.class_middle[row])
        turn = [] if plan.rank is None else [int(plan.rank[row])]
        rows.append([
            name, str(round_.services.id[classes.service[row]]), float(classes.share[row]),
            None if np.isnan(late) else 1.0 - late, *turn,
        ])  # fmt: skip
    return Table("Classes of requests", columns, rows)
