"""Public traces become scenarios of our own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from apportion.instances import InstanceError
from apportion.instances.errors import nearest
from apportion.instances.training import Cluster, Scenario
from apportion.instances.training.gavel import read_gavel
from apportion.instances.training.philly import read_philly
from apportion.instances.training.scenario_files import TOML_NAME, write_scenario

KINDS = ("gavel", "philly")


def import_trace(
    kind: str,
    files: Sequence[Path],
    out: Path,
    *,
    throughputs: Path | None = None,
    timezone: str | None = None,
    gpus: str | None = None,
    missing: str = "error",
    limit: int | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Read a trace and write a scenario folder.

    Parameters
    ----------
    kind
        ``gavel`` or ``philly``.
    files
        Trace files; several Gavel traces are several tenants.
    out
        Folder that receives ``scenario.toml`` and the jobs.
    throughputs
        Gavel's throughput table.
    timezone
        Zone of a trace that states none.
    gpus
        ``"v100=8,p100=16"``; default: the trace's own simulated cluster.
    missing
        What to do with Gavel jobs that have no throughput: ``error`` or ``skip``.
    limit
        Keep the first jobs only.
    force
        Replace a scenario that is there already.

    Returns
    -------
    dict
        ``scenario`` (path) and ``jobs`` (count).

    Raises
    ------
    InstanceError
        On an unknown kind, files that are something else, options that do not belong, or a folder
        that holds a scenario already.
    """
    if kind not in KINDS:
        raise InstanceError(f"import: {kind!r} is not a kind of trace{nearest(kind, KINDS)}")
    if limit is not None and limit < 1:
        raise InstanceError(f"import: --limit {limit}: must be at least 1")
    there = out / TOML_NAME
    if there.exists() and not force:
        raise InstanceError(f"import: {there} is there already; --force replaces it")
    read = _gavel if kind == "gavel" else _philly
    given = {"throughputs": throughputs, "timezone": timezone, "gpus": gpus}
    scenario = read(files, given, missing, limit)
    path = write_scenario(scenario, out)
    return {"scenario": str(path), "jobs": len(scenario.jobs)}


def _gavel(
    files: Sequence[Path], given: dict[str, Any], missing: str, limit: int | None
) -> Scenario:
    if given["throughputs"] is None:
        raise InstanceError("import gavel: --throughputs names the table of throughputs")
    if given["timezone"] is not None:
        raise InstanceError("import gavel: times are relative, --timezone does not apply")
    if missing not in ("error", "skip"):
        raise InstanceError(f"import gavel: --missing {missing!r}: error or skip")
    cluster = None if given["gpus"] is None else Cluster.uniform(_counts(given["gpus"]))
    scenario = read_gavel(list(files), given["throughputs"], cluster, missing=missing)
    return (
        scenario
        if limit is None
        else replace(scenario, jobs=scenario.jobs.take(np.arange(min(limit, len(scenario.jobs)))))
    )


def _philly(
    files: Sequence[Path], given: dict[str, Any], missing: str, limit: int | None
) -> Scenario:
    if len(files) != 1:
        raise InstanceError(f"import philly: one table, not {len(files)} files")
    if given["timezone"] is None:
        raise InstanceError("import philly: the table states no time zone; give --timezone")
    for name in ("throughputs", "gpus"):
        if given[name] is not None:
            raise InstanceError(f"import philly: --{name} does not apply")
    if missing != "error":
        raise InstanceError("import philly: --missing does not apply")
    return read_philly(files[0], timezone=given["timezone"], limit=limit)


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
