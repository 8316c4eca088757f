"""Files of jobs, arrivals in the future included: ``"schema": "apportion/jobs/1"``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Floats, Ints, Names, names
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, read_json, shown, write_json
from apportion.instances.plain_data import codes, known_keys, plain_list
from apportion.instances.training.curves import FAMILIES, NO_CURVE
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.jobs_json import JOB_KEYS, jobs_from_dict, jobs_to_dict
from apportion.instances.training.true_curves import NOISE, TrueCurves
from apportion.instances.versions import Migration, migrated, schema_name

VERSION = 1
MIGRATIONS: Mapping[int, Migration] = {}
"""For each older version of the format, the step to the next one."""

JOBS_FILE_KEYS = (
    "schema", "family", "types", "jobs", "true_work", "true_throughput_per_s", "true_curves",
)  # fmt: skip


@dataclass(frozen=True)
class JobsFile:
    """What a file of jobs holds.

    Parameters
    ----------
    types
        GPU types of the throughputs, in their order.
    tenants
        Names of the tenants.
    jobs
        The jobs as reported.
    true_work, true_throughput_per_s
        What really happens where that differs; None: as reported.
    true_curves
        How the metrics of the jobs really develop; None: not known.
    """

    types: Names
    tenants: Names
    jobs: Jobs
    true_work: Floats | None = None
    true_throughput_per_s: Floats | None = None
    true_curves: TrueCurves | None = None


def write_jobs(content: JobsFile, path: PathLike) -> None:
    """Write jobs to a JSON file, packed where its name ends in ``.gz``."""
    jobs = jobs_to_dict(content.jobs, content.types, content.tenants)
    if content.tenants.size > 1 and "tenant" not in jobs:
        jobs["tenant"] = content.tenants[content.jobs.tenant].tolist()
    out: dict[str, Any] = {
        "schema": schema_name("jobs", VERSION),
        "family": "training",
        "types": content.types.tolist(),
        "jobs": jobs,
    }
    if content.true_work is not None:
        out["true_work"] = content.true_work.tolist()
    if content.true_throughput_per_s is not None:
        out["true_throughput_per_s"] = content.true_throughput_per_s.tolist()
    if content.true_curves is not None:
        out["true_curves"] = _curves_to_dict(content.true_curves)
    write_json(path, out)


def read_jobs(path: PathLike, tenants: Names | None = None) -> JobsFile:
    """Read a file of jobs.

    Parameters
    ----------
    path
        The file.
    tenants
        Names of the tenants; None: those the jobs name, in order of their first job.

    Raises
    ------
    InstanceError
        In one line: file, object, field, index, value, and the nearest known spelling.
    """
    data = read_json(path)
    with naming(path):
        section = known_keys(migrated(data, "jobs", VERSION, MIGRATIONS), JOBS_FILE_KEYS, "file")
        if section.get("family") != "training":
            raise InstanceError(f"family = {shown(section.get('family'))}: expected 'training'")
        for name in ("types", "jobs"):
            if name not in section:
                raise InstanceError(f"{name} is missing")
        types = names(plain_list(section["types"], "name", "types"), "types")
        content = known_keys(section["jobs"], JOB_KEYS, "jobs")
        if tenants is None:
            named = plain_list(content.get("tenant", ["default"]), "name", "jobs.tenant")
            tenants = np.array(list(dict.fromkeys(named)) or ["default"], dtype=np.str_)
        jobs = jobs_from_dict(content, types, tenants)
        truth = _truth(section, len(jobs), types.size)
        curves = _curves(section["true_curves"], len(jobs)) if "true_curves" in section else None
        return JobsFile(types, tenants, jobs, **truth, true_curves=curves)


def _truth(section: dict[str, Any], n: int, k: int) -> dict[str, Floats]:
    out: dict[str, Floats] = {}
    if "true_work" in section:
        values = plain_list(section["true_work"], "float", "true_work")
        out["true_work"] = np.array(values, dtype=np.float64)
    if "true_throughput_per_s" in section:
        where = "true_throughput_per_s"
        rows = section[where]
        if not isinstance(rows, list) or len(cast(list[Any], rows)) != n:
            raise InstanceError(f"{where}: expected {n} rows, one for each job")
        for index, row in enumerate(cast(list[Any], rows)):
            if len(plain_list(row, "float", f"{where}[{index}]")) != k:
                raise InstanceError(f"{where}[{index}]: expected {k} values, one for each type")
        out[where] = np.array(rows, dtype=np.float64).reshape(n, k)
    return out


_NONE = "none"
"""Name of the family of a job that has no curve."""


def _curves_to_dict(curves: TrueCurves) -> dict[str, Any]:
    given: list[int] = curves.family.tolist()
    family = [_NONE if code == NO_CURVE else FAMILIES[code] for code in given]
    columns = {name: getattr(curves, name).tolist() for name in "abc"}
    return {"family": family, **columns, "noise": curves.noise}


def _curves(data: object, n: int) -> TrueCurves:
    where = "true_curves"
    section = known_keys(data, ("family", "a", "b", "c", "noise"), where)
    columns: dict[str, list[Any]] = {}
    for name in ("family", "a", "b", "c"):
        if name not in section:
            raise InstanceError(f"{where}.{name} is missing")
        kind = "name" if name == "family" else "float"
        columns[name] = plain_list(section[name], kind, f"{where}.{name}")
        if len(columns[name]) != n:
            raise InstanceError(f"{where}.{name}: expected {n} values, one for each job")
    known = np.array([*FAMILIES, _NONE])
    family = codes(columns["family"], known, f"{where}.family", "family of curves")
    noise = plain_list([section.get("noise", NOISE)], "float", f"{where}.noise")[0]
    family = np.where(family == len(FAMILIES), NO_CURVE, family)
    a, b, c = (np.array(columns[name], dtype=np.float64) for name in "abc")
    return TrueCurves(family, a, b, c, float(noise))


def on_types(content: JobsFile, types: Names) -> JobsFile:
    """Rearrange jobs for the GPU types of a cluster.

    Raises
    ------
    InstanceError
        On a type that the file has no throughputs for.
    """
    if np.array_equal(content.types, types):
        return content
    own = content.types.tolist()
    for name in types.tolist():
        if name not in own:
            raise InstanceError(
                f"the cluster's GPU type {name!r} has no throughput there{nearest(name, own)}"
            )
    order = np.array([own.index(name) for name in types.tolist()], dtype=np.int64)
    true_rates = content.true_throughput_per_s
    return replace(
        content,
        types=types,
        jobs=_moved(content.jobs, order, len(own)),
        true_throughput_per_s=None if true_rates is None else true_rates[:, order],
    )


def _moved(jobs: Jobs, order: Ints, count: int) -> Jobs:
    """Put the columns of the types in a new order; configurations on dropped types go."""
    place = np.full(count + 1, -1, dtype=np.int64)  # the last entry keeps -1, never ran
    place[order] = np.arange(order.size)
    kind = place[jobs.config_type.astype(np.int64)]
    kept = kind >= 0
    cuts = np.concatenate(([0], np.cumsum(kept)))[jobs.config_offsets]
    return replace(
        jobs,
        throughput_per_s=jobs.throughput_per_s[:, order],
        previous_type=place[jobs.previous_type],
        config_offsets=cuts,
        config_gpus=jobs.config_gpus[kept],
        config_type=kind[kept].astype(np.float64),
        config_throughput_per_s=jobs.config_throughput_per_s[kept],
    )
