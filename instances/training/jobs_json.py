"""Job columns as plain data: names instead of codes, null instead of infinity."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from apportion.instances.columns import Ints, Names
from apportion.instances.errors import InstanceError
from apportion.instances.files import shown
from apportion.instances.plain_data import codes, finite_or_null, known_keys, plain_list
from apportion.instances.training.jobs import COLUMNS, INFINITE, RAGGED, Jobs, default_column

REQUIRED = ("id", "gang", "work", "throughput_per_s")
JOB_KEYS: tuple[str, ...] = (
    "id", "gang", "work", "throughput_per_s",
    *(name for name in COLUMNS if name not in REQUIRED),
    *(part for parts in RAGGED.values() for part in parts),
)  # fmt: skip
"""The keys of the section ``jobs``, in the order in which they are written."""


def jobs_to_dict(jobs: Jobs, types: Names, tenants: Names) -> dict[str, Any]:
    """Turn jobs into plain data for JSON.

    Parameters
    ----------
    jobs
        n jobs on k types.
    types, tenants
        Names of the GPU types and of the tenants.

    Returns
    -------
    dict
        Columns by name, ragged ones as one list a job; columns at their default are left out.
    """
    n = len(jobs)
    out: dict[str, Any] = {
        "id": jobs.id.tolist(),
        "gang": jobs.gang.tolist(),
        "work": jobs.work.tolist(),
        "throughput_per_s": jobs.throughput_per_s.tolist(),
    }
    for name in COLUMNS:
        values = getattr(jobs, name)
        if name in REQUIRED or np.array_equal(values, default_column(name, jobs.gang, n)):
            continue
        out[name] = _named(name, values, types, tenants)
    for name, parts in RAGGED.items():
        cuts = cast(Ints, getattr(jobs, f"{name}_offsets")).tolist()
        if cuts[-1] == 0:
            continue
        for part in parts:
            flat = _named(part, getattr(jobs, part), types, tenants)
            out[part] = [flat[cuts[row] : cuts[row + 1]] for row in range(n)]
    return out


def _named(name: str, values: Any, types: Names, tenants: Names) -> list[Any]:
    """List a column as it stands in a file."""
    match name:
        case "tenant":
            return tenants[values].tolist()
        case "config_type":
            return types[values.astype(np.int64)].tolist()
        case "previous_type":
            kinds = [*types.tolist(), None]  # -1, never ran, finds the last entry
            return [kinds[code] for code in values.tolist()]
        case _ if name in INFINITE:
            return finite_or_null(values)
        case _:
            return values.tolist()


def jobs_from_dict(data: object, types: Names, tenants: Names, where: str = "jobs") -> Jobs:
    """Read jobs from plain data; the inverse of ``jobs_to_dict``.

    Raises
    ------
    InstanceError
        On unknown keys, wrong values and unknown names, naming column, index, value, and the
        nearest known spelling.
    """
    section = known_keys(data, JOB_KEYS, where)
    for name in REQUIRED:
        if name not in section:
            raise InstanceError(f"{where}.{name} is missing")
    columns: dict[str, Any] = {"id": plain_list(section["id"], "name", f"{where}.id")}
    n = len(columns["id"])
    columns["throughput_per_s"] = _table(section["throughput_per_s"], n, types, where)
    for name in COLUMNS:
        if name in section:
            columns[name] = _column(name, section[name], types, tenants, f"{where}.{name}")
    for name, parts in RAGGED.items():
        if any(part in section for part in parts):
            columns.update(_ragged(name, parts, section, n, types, where))
    return Jobs(**columns)


def _table(data: object, n: int, types: Names, where: str) -> Any:
    where = f"{where}.throughput_per_s"
    if not isinstance(data, list):
        raise InstanceError(f"{where}: expected a list of rows, got {shown(data)}")
    rows = cast(list[Any], data)
    if len(rows) != n:
        raise InstanceError(f"{where} has {len(rows)} rows, expected {n}: one for each job")
    k = types.size
    for index, row in enumerate(rows):
        values = plain_list(row, "float", f"{where}[{index}]")
        if len(values) != k:
            raise InstanceError(
                f"{where}[{index}] has {len(values)} values, expected {k}:"
                f" one for each GPU type ({', '.join(types.tolist())})"
            )
    return np.array(rows, dtype=np.float64).reshape(n, k)


def _column(name: str, data: object, types: Names, tenants: Names, where: str) -> Any:
    match name:
        case "tenant":
            return codes(plain_list(data, "name", where), tenants, where, "tenant")
        case "previous_type":
            known = np.append(types, "")  # the name of no type stands for null
            found = codes(plain_list(data, "name", where, null=""), known, where, "GPU type")
            return np.where(found == types.size, -1, found)
        case _:
            null = np.inf if name in INFINITE else None
            return plain_list(data, COLUMNS[name].kind, where, null=null)


def _ragged(
    name: str, parts: tuple[str, ...], section: dict[str, Any], n: int, types: Names, where: str
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    first = next(part for part in parts if part in section)
    lengths: list[int] = []
    for part in parts:
        if part not in section:
            raise InstanceError(f"{where}.{part} is missing: {where}.{first} is given")
        rows = section[part]
        if not isinstance(rows, list) or len(cast(list[Any], rows)) != n:
            raise InstanceError(f"{where}.{part}: expected a list of {n} lists, one for each job")
        flat: list[Any] = []
        for index, row in enumerate(cast(list[Any], rows)):
            at = f"{where}.{part}[{index}]"
            values = plain_list(row, "name" if part == "config_type" else "float", at)
            if part == parts[0]:
                lengths.append(len(values))
            elif len(values) != lengths[index]:
                raise InstanceError(
                    f"{at} has {len(values)} values, {where}.{parts[0]}[{index}] has"
                    f" {lengths[index]}"
                )
            flat += (
                codes(values, types, at, "GPU type").tolist() if part == "config_type" else values
            )
        out[part] = flat
    out[f"{name}_offsets"] = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    return out
