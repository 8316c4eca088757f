"""The columns of a round's tables in files: kinds, ranges and defaults, said once.

Reader, writer and published schema are all made from these descriptions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from apportion.instances.errors import InstanceError
from apportion.instances.microservices.microservices import MOST_CONTAINERS
from apportion.instances.plain_data import finite_or_null, known_keys, plain_list


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Parameters
    ----------
    about
        What it means, for the published schema.
    kind
        Kind of its values.
    least, most, above
        Range; ``above`` excludes the least value, ``below`` the largest.
    default
        What every row has where the column is left out; None: it must be given.
    infinite
        Whether null stands for infinity.
    """

    about: str
    kind: Literal["float", "int", "bool", "name"] = "float"
    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    below: bool = False
    default: float | None = None
    infinite: bool = False


Columns = Mapping[str, Column]

_CPU = Column("CPU cores", least=0)
_MIB = Column("memory, MiB", least=0)

MICROSERVICES: Columns = {
    "id": Column("names, unique", "name"),
    "rate_at_rest_per_ms": Column("rate of a call's time at zero load", least=0, above=True),
    "rate_slope_per_ms": Column(
        "change of the rate by each call per second on a container", most=0, below=True
    ),
    "shift_ms": Column("least latency of a call", least=0, default=0.0),
    "least_rate_per_ms": Column(
        "rate down to which the straight line is trusted", least=0, default=0.0
    ),
    "least_load_per_s": Column("lighter loads count as this one", least=0, default=0.0),
    "cost": Column("what a container costs", least=0, above=True, default=1.0),
    "cpu_cores": Column("cores a container asks for", least=0, default=0.2),
    "memory_mib": Column("memory a container asks for, MiB", least=0, default=1024.0),
    "least_containers": Column("fewest containers", "int", least=0, default=0),
    "most_containers": Column(
        "most containers", "int", least=0, most=MOST_CONTAINERS, default=MOST_CONTAINERS
    ),
}
SERVICES: Columns = {
    "id": Column("names, unique", "name"),
    "rate_per_s": Column("requests per second", least=0),
    "target_ms": Column("latency that a request should not exceed", least=0, above=True),
    "violation_budget": Column(
        "share of the requests that may exceed it: 0.05 is a P95",
        least=0, most=1, above=True, below=True, default=0.05,
    ),
    "unmodelled_share": Column(
        "share of the requests that follow no class; they count as violated",
        least=0, most=1, default=0.0,
    ),
}  # fmt: skip
NODES: Columns = {
    "id": Column("names, unique", "name"),
    "cpu_cores": _CPU,
    "memory_mib": _MIB,
    "cpu_used": Column("cores that others use", least=0, default=0.0),
    "memory_used_mib": Column("memory that others use, MiB", least=0, default=0.0),
}
LINEAR: Columns = {
    "slope_before_ms": Column("ms per call per second, light load", least=0),
    "intercept_before_ms": Column("ms at no load, light load"),
    "slope_after_ms": Column("ms per call per second, heavy load", least=0),
    "intercept_after_ms": Column("ms, heavy load; may be negative"),
    "inflection_per_s": Column(
        "load at which heavy begins; null: never", least=0, infinite=True
    ),
}  # fmt: skip
OBSERVED_MICROSERVICES: Columns = {
    "load_per_s": Column("calls per second on one container", least=0, infinite=True),
    "latency_p50_ms": Column("median of a call; null: overloaded", least=0, infinite=True),
    "latency_p95_ms": Column("P95 of a call; null: overloaded", least=0, infinite=True),
}
OBSERVED_SERVICES: Columns = {
    "rate_per_s": Column("requests per second that were seen", least=0, infinite=True),
    "latency_tail_ms": Column(
        "latency at the percentile of the SLA; null: overloaded", least=0, infinite=True
    ),
    "violated": Column("whether the SLA was missed", "bool"),
}


def columns_to_dict(of: object, columns: Columns) -> dict[str, list[Any]]:
    """List the columns of an object; those at their default are left out."""
    out: dict[str, list[Any]] = {}
    for name, column in columns.items():
        values = getattr(of, name)
        if column.default is not None and (values == column.default).all():
            continue
        out[name] = finite_or_null(values) if column.infinite else values.tolist()
    return out


def columns_from_dict(
    data: object, columns: Columns, where: str, extra: Sequence[str] = ()
) -> dict[str, Any]:
    """Read columns of equal length; those that may be left out come back filled.

    Parameters
    ----------
    data
        Lists by name.
    columns
        What there may be; the first one says how many rows there are.
    where
        Name of the table, for errors.
    extra
        Further keys that the table may have, which the caller reads.

    Raises
    ------
    InstanceError
        Naming column, index and value; for an unknown key also the nearest known one.
    """
    section = known_keys(data, (*columns, *extra), where)
    for name, column in columns.items():
        if name not in section and column.default is None:
            raise InstanceError(f"{where}.{name} is missing")
    out: dict[str, Any] = {}
    count: int | None = None
    for name, column in columns.items():
        if name not in section:
            out[name] = np.full(count or 0, column.default)
            continue
        null = np.inf if column.infinite else None
        values = plain_list(section[name], column.kind, f"{where}.{name}", null=null)
        count = len(values) if count is None else count
        if len(values) != count:
            first = next(iter(columns))
            raise InstanceError(
                f"{where}.{name} has {len(values)} values, {where}.{first} has {count}"
            )
        out[name] = values
    return out
