"""Rounds as pandas tables: one row a job."""

from __future__ import annotations

import re
from typing import Any, cast

import numpy as np
import pandas as pd

from apportion.instances.columns import Ints, Names, names
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.plain_data import codes
from apportion.instances.policy import Reason
from apportion.instances.training.allocation import Commitments, Placement
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.jobs import COLUMNS, Jobs
from apportion.instances.training.round import TrainingRound
from apportion.instances.training.tenants import Tenants

PLAIN = ("id", *COLUMNS)
"""The plain columns of a table of jobs, beside ``throughput_per_s[TYPE]``."""


def to_frame(round_: TrainingRound) -> pd.DataFrame:
    """Turn the jobs of a round into a pandas table.

    Returns
    -------
    DataFrame
        One row a job; every plain column under its own name, tenants and previous types by name
        (missing where a job never ran), throughputs as ``throughput_per_s[TYPE]``. Ragged columns
        (configurations, deadlines, observations, spread) have no place in it.
    """
    jobs, types = round_.jobs, round_.cluster.types.tolist()
    kinds = [*types, None]  # -1, never ran, finds the last entry
    columns: dict[str, Any] = {"id": jobs.id.tolist()}
    for name in COLUMNS:
        columns[name] = getattr(jobs, name)
    columns["tenant"] = round_.tenants.id[jobs.tenant].tolist()
    columns["model"] = jobs.model.tolist()
    previous = [kinds[code] for code in jobs.previous_type.tolist()]
    columns["previous_type"] = np.array(previous, dtype=object)
    for index, name in enumerate(types):
        columns[f"throughput_per_s[{name}]"] = jobs.throughput_per_s[:, index]
    return pd.DataFrame(columns)


def from_frame(
    df: pd.DataFrame,
    cluster: Cluster,
    *,
    now_s: float = 0.0,
    duration_s: float = 300.0,
    tenants: Tenants | None = None,
    reasons: tuple[Reason, ...] = ("boundary",),
    commitments: Commitments | None = None,
    placement: Placement | None = None,
    node_up: object = None,
    index: int = 0,
) -> TrainingRound:
    """Build a round from a pandas table of jobs.

    Parameters
    ----------
    df
        One row a job. Required: ``id`` (or the index, if it has that name), ``gang``, ``work``
        and ``throughput_per_s[TYPE]`` for each GPU type; every other plain column is optional.
        ``tenant`` and ``previous_type`` hold names.
    cluster
        The GPUs there are.
    tenants
        Owners of the jobs; None: those the table names, in order of their first job.
    now_s, duration_s, reasons, commitments, placement, node_up, index
        As in ``TrainingRound``.

    Raises
    ------
    InstanceError
        On unknown or missing columns, with the nearest known spelling, and on wrong values.
    """
    if "id" not in df.columns and df.index.name == "id":
        df = df.reset_index()
    types = cluster.types.tolist()
    rates = [f"throughput_per_s[{name}]" for name in types]
    _check_columns([str(name) for name in df.columns], rates)
    columns: dict[str, Any] = {name: _values(df, name) for name in PLAIN if name in df.columns}
    if tenants is None:
        named = names(columns.get("tenant", ["default"]), "jobs.tenant", unique=False)
        tenants = Tenants.named(*(dict.fromkeys(named.tolist()) or {"default": None}))
    _encode(columns, "tenant", tenants.id, "tenant")
    _encode_previous(columns, cluster.types)
    table = [np.asarray(_values(df, name)) for name in rates]
    columns["throughput_per_s"] = np.stack(table, axis=1) if table else np.zeros((len(df), 0))
    return TrainingRound(
        cluster=cluster,
        jobs=Jobs(**columns),
        now_s=now_s,
        duration_s=duration_s,
        tenants=tenants,
        reasons=reasons,
        commitments=commitments or Commitments(),
        placement=placement or Placement(),
        node_up=cast(Any, node_up),
        index=index,
    )


def _check_columns(found: list[str], rates: list[str]) -> None:
    known = [*PLAIN, *rates]
    for name in found:
        if name not in known:
            match = re.fullmatch(r"throughput_per_s\[(.*)\]", name)
            hint = nearest(name, rates if match else known)
            raise InstanceError(f"frame: unknown column {name!r}{hint}")
    for name in ("id", "gang", "work", *rates):
        if name not in found:
            raise InstanceError(f"frame: the column {name!r} is missing")


def _values(df: pd.DataFrame, name: str) -> Any:
    column = df[name]
    if isinstance(column, pd.DataFrame):
        raise InstanceError(f"frame: the column {name!r} appears twice")
    kind = COLUMNS[name].kind if name in COLUMNS else ""
    if name in ("id", "tenant", "previous_type") or kind == "name":
        return column.to_list()
    if bool(column.isna().any()):
        at = int(np.flatnonzero(column.isna().to_numpy())[0])
        raise InstanceError(f"frame: {name}[{at}] is missing or NaN")
    return column.to_numpy()


def _encode(columns: dict[str, Any], name: str, known: Names, what: str) -> None:
    if name in columns:
        where = f"jobs.{name}"
        given = names(columns[name], where, unique=False).tolist()
        columns[name] = codes(given, known, where, what)


def _encode_previous(columns: dict[str, Any], types: Names) -> None:
    if "previous_type" not in columns:
        return
    given = ["" if pd.isna(name) else name for name in columns["previous_type"]]
    columns["previous_type"] = given
    _encode(columns, "previous_type", np.append(types, ""), "GPU type")
    found = cast(Ints, columns["previous_type"])
    columns["previous_type"] = np.where(found == types.size, -1, found)
