"""Public traces become scenarios of our own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from apportion.importing_microservices import KINDS, Application, import_application
from apportion.instances import InstanceError
from apportion.instances.errors import nearest
from apportion.instances.training import Cluster, Scenario
from apportion.instances.training.chronus_trace import counted_chronus
from apportion.instances.training.elasticflow_trace import read_elasticflow
from apportion.instances.training.gavel import read_gavel
from apportion.instances.training.philly import read_philly
from apportion.instances.training.scenario_files import TOML_NAME, write_scenario

Given: TypeAlias = dict[str, Any]
"""What the options hold, None where one is not given."""

Read: TypeAlias = tuple[Scenario, int | None]
"""The scenario, and the rows that were dropped where the kind knows such."""


def import_trace(
    kind: str,
    files: Sequence[Path],
    out: Path,
    *,
    throughputs: Path | None = None,
    timezone: str | None = None,
    gpus: str | None = None,
    missing: str = "error",
    model_info: Path | None = None,
    limit: int | None = None,
    application: Application | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Read a trace and write a scenario folder.

    Parameters
    ----------
    kind
        ``gavel``, ``philly``, ``chronus`` or ``elasticflow`` for jobs; ``alibaba``, ``jaeger`` (and
        OpenTelemetry) or ``kubernetes`` for microservices.
    files
        Trace files; several Gavel traces are several tenants.
    out
        Folder that receives ``scenario.toml`` and the jobs or the application; for ``kubernetes``
        a round file.
    throughputs
        Gavel's throughput table.
    timezone
        Zone of a trace that states none.
    gpus
        ``"v100=8,p100=16"``; default: the trace's own simulated cluster.
    missing
        What to do with Gavel jobs that have no throughput, or microservices without a law or a
        workload: ``error`` or ``skip``.
    model_info
        Chronus' table of relative speeds of spread gangs.
    limit
        Keep the first jobs only.
    application
        What traces of microservices do not say.
    force
        Replace a scenario that is there already.

    Returns
    -------
    dict
        ``scenario`` (path) and ``jobs`` (count); for Chronus also ``dropped``, the number of rows
        with 0 GPUs, which are no jobs. For microservices see ``import_application``.

    Raises
    ------
    InstanceError
        On an unknown kind, files that are something else, options that do not belong, or a folder
        that holds a scenario already.
    """
    known = (*_READERS, *KINDS)
    if kind not in known:
        raise InstanceError(f"import: {kind!r} is not a kind of trace{nearest(kind, known)}")
    besides = application or Application()
    if kind in KINDS:
        own: Given = {
            "throughputs": throughputs, "timezone": timezone, "gpus": gpus,
            "model_info": model_info, "limit": limit,
        }  # fmt: skip
        _none(own, kind, *own)
        return import_application(kind, files, out, besides, missing=missing, force=force)
    besides.none(kind)
    if limit is not None and limit < 1:
        raise InstanceError(f"import: --limit {limit}: must be at least 1")
    there = out / TOML_NAME
    if there.exists() and not force:
        raise InstanceError(f"import: {there} is there already; --force replaces it")
    given: Given = {
        "throughputs": throughputs, "timezone": timezone, "gpus": gpus,
        "missing": None if missing == "error" else missing, "model_info": model_info,
    }  # fmt: skip
    scenario, dropped = _READERS[kind](files, given, limit)
    path = write_scenario(scenario, out)
    told: dict[str, Any] = {"scenario": str(path), "jobs": len(scenario.jobs)}
    return told if dropped is None else {**told, "dropped": dropped}


def _gavel(files: Sequence[Path], given: Given, limit: int | None) -> Read:
    if given["throughputs"] is None:
        raise InstanceError("import gavel: --throughputs names the table of throughputs")
    if given["timezone"] is not None:
        raise InstanceError("import gavel: times are relative, --timezone does not apply")
    _none(given, "gavel", "model_info")
    missing = given["missing"] or "error"
    if missing not in ("error", "skip"):
        raise InstanceError(f"import gavel: --missing {missing!r}: error or skip")
    cluster = None if given["gpus"] is None else Cluster.uniform(_counts(given["gpus"]))
    read = read_gavel(list(files), given["throughputs"], cluster, missing=missing)
    return _limited(read, limit), None


def _philly(files: Sequence[Path], given: Given, limit: int | None) -> Read:
    table = _one(files, "philly", "table")
    if given["timezone"] is None:
        raise InstanceError("import philly: the table states no time zone; give --timezone")
    _none(given, "philly", "throughputs", "gpus", "missing", "model_info")
    return read_philly(table, timezone=given["timezone"], limit=limit), None


def _chronus(files: Sequence[Path], given: Given, limit: int | None) -> Read:
    trace = _one(files, "chronus", "trace")
    _none(given, "chronus", "throughputs", "timezone", "gpus", "missing")
    read, dropped = counted_chronus(trace, given["model_info"])
    return _limited(read, limit), dropped


def _elasticflow(files: Sequence[Path], given: Given, limit: int | None) -> Read:
    trace = _one(files, "elasticflow", "trace")
    _none(given, "elasticflow", "throughputs", "timezone", "gpus", "missing", "model_info")
    return _limited(read_elasticflow(trace), limit), None


_READERS: Mapping[str, Callable[[Sequence[Path], Given, int | None], Read]] = {
    "gavel": _gavel,
    "philly": _philly,
    "chronus": _chronus,
    "elasticflow": _elasticflow,
}


def _one(files: Sequence[Path], kind: str, what: str) -> Path:
    if len(files) != 1:
        raise InstanceError(f"import {kind}: one {what}, not {len(files)} files")
    return files[0]


def _none(given: Given, kind: str, *names: str) -> None:
    for name in names:
        if given[name] is not None:
            raise InstanceError(f"import {kind}: --{name.replace('_', '-')} does not apply")


def _limited(scenario: Scenario, limit: int | None) -> Scenario:
    """Keep the first jobs; they stand by arrival."""
    if limit is None:
        return scenario
    rows = np.arange(min(limit, len(scenario.jobs)))
    return replace(scenario, jobs=scenario.jobs.take(rows))


def _counts(text: str) -> dict[str, int]:
    out: dict[str, int] = {}
    for part in text.split(","):
        name, sign, count = part.partition("=")
        if sign and name.strip() and re.fullmatch(r"-[0-9]+", count.strip()):
            raise InstanceError(
                f"--gpus {text!r}: {name.strip()} = {count.strip()}: must not be negative"
            )
        if not sign or not count.strip().isdecimal() or not name.strip():
            raise InstanceError(f"--gpus {text!r}: expected TYPE=COUNT with commas")
        if name.strip() in out:
            raise InstanceError(f"--gpus {text!r}: {name.strip()!r} is given twice")
        out[name.strip()] = int(count)
    return out
