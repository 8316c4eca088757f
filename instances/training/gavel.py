"""Gavel's traces and tables of measured throughputs (Narayanan et al., OSDI 2020)."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints, Names
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, read_json, shown
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.scenario import Scenario
from apportion.instances.training.tenants import Tenants
from apportion.instances.training.trace_csv import Trace

_log = logging.getLogger("apportion.instances.gavel")

SPREAD = "_unconsolidated"
"""Ending of the accelerators whose rates hold for gangs spread over servers."""

IDEAL = "v100"
"""Accelerator on which Gavel counts a job's duration."""


def simulated_cluster() -> Cluster:
    """Build the cluster of Gavel's simulations: 36 GPUs of each type.

    How many share a server is our choice, 4: the experiments guide does not fix it.
    """
    return Cluster.uniform({"k80": 36, "p100": 36, "v100": 36}, gpus_per_node=4)


def read_gavel(
    traces: PathLike | Sequence[PathLike],
    throughputs: PathLike,
    cluster: Cluster | None = None,
    *,
    missing: Literal["error", "skip"] = "error",
    spread: bool = True,
    name: str = "gavel",
) -> Scenario:
    """Read Gavel's traces with their throughputs.

    Parameters
    ----------
    traces
        CSV files with ``job_type,total_steps,scale_factor,arrival_time_s`` and, in the physical
        ones, ``priority_weight,slo``. Each is a tenant, named by its virtual cluster or file.
    throughputs
        JSON: accelerator -> ``"('ResNet-18 (batch size 16)', 1)"`` -> ``{"null": steps/s}`` of
        the whole job.
    cluster
        Its GPU types are found in the table by name, in any case. Default:
        ``simulated_cluster()``.
    missing
        What to do with jobs that the table does not hold, such as gangs of 16: ``"error"``, or
        ``"skip"`` them, which is logged with their number.
    spread
        Whether to read the rates of gangs that are spread over servers.
    name
        Name of the scenario.

    Returns
    -------
    Scenario
        Jobs in order of arrival; ``work`` in steps.

    Raises
    ------
    InstanceError
        Naming file, line, column and value; accelerators and job types with the nearest known.

    Notes
    -----
    A job's table of spread holds one speed for all GPU types, the measured ones differ by type:
    the geometric mean over the cluster's types where both rates are known and positive is
    taken, because it treats a type that doubles and one that halves alike.

    Gavel's scheduler sets a deadline ``slo`` durations after the arrival and counts durations
    on a V100; ``slo = -1`` (or 0) means none. A job that keeps its deadline has value 1.
    """
    cluster = simulated_cluster() if cluster is None else cluster
    table = _Table(throughputs, cluster.types.tolist())
    paths = [traces] if isinstance(traces, (str, Path)) else list(cast(Sequence[Any], traces))
    if not paths:
        raise InstanceError("traces: no file is given")
    tenants = [_tenant(path) for path in paths]
    parts = [_read(path, table, missing) for path in paths]
    return Scenario(
        name=name,
        cluster=cluster,
        jobs=_joined(parts, tenants, table, spread),
        tenants=Tenants.named(*tenants),
    )


def _tenant(path: PathLike) -> str:
    stem = Path(path).name.split(".")[0]
    match = re.search(r"vc_([0-9a-z]+)$", stem)
    return match[1] if match else stem


class _Table:
    """The isolated rates of the cluster's types, one row a key."""

    def __init__(self, path: PathLike, types: list[str]) -> None:
        self.path = path
        data = read_json(path)
        with naming(path):
            if not isinstance(data, dict) or not all(
                isinstance(entries, dict) for entries in cast(dict[str, Any], data).values()
            ):
                raise InstanceError("not a Gavel table: expected accelerator -> job -> rates")
            rates = cast(dict[str, dict[str, Any]], data)
            together = [name for name in rates if not name.endswith(SPREAD)]
            chosen = [_accelerator(name, together) for name in types]
            self.row = {key: row for row, key in enumerate(_keys(rates, together))}
            self.rate = self._read(rates, chosen)
            self.spread_rate = self._read(rates, [name + SPREAD for name in chosen])
            ideal = IDEAL if IDEAL in rates else chosen[-1]
            self.ideal_rate = self._read(rates, [ideal])[:, 0]

    def _read(self, rates: dict[str, dict[str, Any]], accelerators: list[str]) -> Floats:
        out = np.zeros((len(self.row), len(accelerators)))
        for column, name in enumerate(accelerators):
            for key, entry in rates.get(name, {}).items():
                value = cast(Any, entry).get("null") if isinstance(entry, dict) else None
                if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                    raise InstanceError(
                        f"{name}[{key!r}]['null'] = {shown(value)}: must be a rate, steps a second"
                    )
                if key in self.row:
                    out[self.row[key], column] = value
        return out


def _keys(rates: dict[str, dict[str, Any]], accelerators: list[str]) -> list[str]:
    keys = list(dict.fromkeys(key for name in accelerators for key in rates[name]))
    if not any(re.fullmatch(r"\('.*', [0-9]+\)", key) for key in keys):
        first = shown(keys[0]) if keys else "none"
        raise InstanceError(
            f"not a table by job and gang: keys are \"('ResNet-18 (batch size 16)', 1)\", found"
            f" {first}"
        )
    return keys


def _accelerator(name: str, known: list[str]) -> str:
    for own in known:
        if own.lower() == name.lower():
            return own
    raise InstanceError(f"no throughputs for the GPU type {name!r}{nearest(name.lower(), known)}")


@dataclass(frozen=True)
class _Part:
    """The jobs of one trace that the table holds."""

    row: Ints  # of the table
    line: Ints
    model: list[str]
    gang: Ints
    work: Floats
    weight: Floats
    slo: Floats
    arrival_s: Floats

    @classmethod
    def joined(cls, parts: list[_Part]) -> _Part:
        def column(name: str) -> Any:
            return np.concatenate([getattr(part, name) for part in parts])

        models: list[str] = [model for part in parts for model in part.model]
        others = ("row", "line", "gang", "work", "weight", "slo", "arrival_s")
        return cls(model=models, **{name: column(name) for name in others})


def _read(path: PathLike, table: _Table, missing: str) -> _Part:
    trace = Trace(path, "a Gavel trace")
    models = trace.text("job_type")
    gang = trace.numbers("scale_factor", positive=True, whole=True).astype(np.int64)
    n = len(trace)
    weight, slo = np.ones(n), np.full(n, -1.0)
    if "priority_weight" in trace:
        weight = trace.numbers("priority_weight", positive=True)
    if "slo" in trace:
        slo = trace.numbers("slo")
    keys = [str((model, size)) for model, size in zip(models, gang.tolist(), strict=True)]
    row = np.array([table.row.get(key, -1) for key in keys], dtype=np.int64)
    kept = _kept(trace, table, row, keys, missing)
    return _Part(
        row=row[kept],
        line=trace.line[kept],
        model=[models[index] for index in np.flatnonzero(kept).tolist()],
        gang=gang[kept],
        work=trace.numbers("total_steps", positive=True)[kept],
        weight=weight[kept],
        slo=slo[kept],
        arrival_s=trace.numbers("arrival_time_s")[kept],
    )


def _kept(trace: Trace, table: _Table, row: Ints, keys: list[str], missing: str) -> Bools:
    kept = row >= 0
    kept[kept] = (table.rate[row[kept]] > 0).any(axis=1)  # 0 everywhere: measured nowhere
    lost = np.flatnonzero(~kept)
    if lost.size and missing == "error":
        first = int(lost[0])
        hint = nearest(keys[first], table.row) if row[first] < 0 else ""
        raise InstanceError(
            f"{trace.path}: line {trace.line[first]}: {table.path} has no throughput for"
            f" {keys[first]}{hint} ({lost.size} of {len(trace)} jobs; they can be skipped)"
        )
    if lost.size:
        _log.warning(
            "%s: skipped %d of %d jobs without a throughput, first %s in line %d",
            trace.path, lost.size, len(trace), keys[int(lost[0])], trace.line[lost[0]],
        )  # fmt: skip
    return kept


def _joined(parts: list[_Part], tenants: list[str], table: _Table, spread: bool) -> Jobs:
    whole = _Part.joined(parts)
    tenant = np.repeat(np.arange(len(parts)), [part.row.size for part in parts])
    order: Ints = np.argsort(whole.arrival_s, kind="stable")
    row = whole.row[order]
    ids = [f"{tenants[t]}-{line - 2}" for t, line in zip(tenant, whole.line, strict=True)]
    models = [_model(whole.model[index]) for index in cast(list[int], order.tolist())]
    due = _deadlines(whole, table)[order]
    wanted = np.isfinite(due)
    return Jobs(
        id=np.array(ids, dtype=np.str_)[order],
        gang=whole.gang[order],
        work=whole.work[order],
        throughput_per_s=table.rate[row],
        tenant=tenant[order],
        arrival_s=whole.arrival_s[order],
        weight=whole.weight[order],
        model=cast(Names, [model for model, _ in models]),
        global_batch=cast(Any, [batch for _, batch in models]),
        slo=wanted,
        deadline_offsets=np.concatenate(([0], np.cumsum(wanted))),
        deadline_s=due[wanted],
        deadline_value=np.ones(int(wanted.sum())),
        **(_spread(table, row, whole.gang[order]) if spread else {}),
    )


def _deadlines(whole: _Part, table: _Table) -> Floats:
    """Give each job its deadline, infinite where there is none."""
    due = np.full(whole.row.size, np.inf)
    rate = table.ideal_rate[whole.row]
    has = (whole.slo > 0) & (rate > 0)
    due[has] = whole.arrival_s[has] + whole.slo[has] * whole.work[has] / rate[has]
    return due


def _model(job_type: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*) \(batch size ([0-9]+)\)", job_type)
    return (match[1], int(match[2])) if match else (job_type, 0)


def _spread(table: _Table, row: Ints, gang: Ints) -> dict[str, Any]:
    together, apart = table.rate[row], table.spread_rate[row]
    known = (together > 0) & (apart > 0) & (gang > 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(known, np.log(apart / together), 0.0)
    count = known.sum(axis=1)
    has = count > 0
    return {
        "spread_offsets": np.concatenate(([0], np.cumsum(has))),
        "spread_hosts": np.full(int(has.sum()), 2.0),
        "spread_speed": np.exp(logs.sum(axis=1)[has] / count[has]),
    }
