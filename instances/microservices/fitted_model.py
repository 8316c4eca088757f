"""A fitted model of an application: laws, how well they fit, sizes, and what the services did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np

from apportion.instances.columns import (
    Bools,
    Floats,
    Ints,
    Names,
    bools,
    equal_columns,
    floats,
    ints,
    names,
)
from apportion.instances.errors import InstanceError
from apportion.instances.files import PathLike, naming, read_json, write_json
from apportion.instances.microservices.fit import LawFit
from apportion.instances.microservices.linear_latency import LinearLatency
from apportion.instances.microservices.microservices import Microservices
from apportion.instances.microservices.round_columns import (
    LINEAR,
    MICROSERVICES,
    Column,
    columns_from_dict,
    columns_to_dict,
)
from apportion.instances.plain_data import known_keys, plain_list
from apportion.instances.versions import Migration, migrated, schema_name

KIND = "microservice-model"
VERSION = 1
MIGRATIONS: Mapping[int, Migration] = {}
"""For each older version of the format, the step to the next one."""

_KEYS = (
    "microservices", "containers", "fits", "linear", "linear_measured", "services", "refused",
    "warnings",
)  # fmt: skip
_WHOLE = ("samples", "levels")
_FITS = {
    part.name: Column("", "int" if part.name in _WHOLE else "float")
    for part in fields(LawFit)
    if part.name != "warnings"
}
_SERVICES = {
    "id": Column("", "name"), "requests": Column("", "int", least=0),
    "rate_per_s": Column("", least=0), "failed": Column("", "int", least=0),
    "latency_p50_ms": Column(""), "latency_p95_ms": Column(""), "latency_p99_ms": Column(""),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ServiceTable:
    """What was seen of the services, one row each.

    Parameters
    ----------
    id
        Names, shape (S,).
    requests
        Requests traced.
    rate_per_s
        Requests per second while traces were taken, those that were not traced included.
    failed
        Traced requests with an error in them.
    latency_p50_ms, latency_p95_ms, latency_p99_ms
        Percentiles of their latency.
    """

    id: Names
    requests: Ints
    rate_per_s: Floats
    failed: Ints
    latency_p50_ms: Floats
    latency_p95_ms: Floats
    latency_p99_ms: Floats

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("id", names(self.id, "services.id"))
        for name, column in _SERVICES.items():
            if name != "id":
                read: Any = ints if column.kind == "int" else floats
                put(name, read(getattr(self, name), f"services.{name}", (self.id.size,)))

    def __len__(self) -> int:
        return self.id.size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServiceTable) and equal_columns(self, other, tuple(_SERVICES))

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed


@dataclass(frozen=True, eq=False)
class FittedModel:
    """Laws fitted to traces.

    Parameters
    ----------
    microservices
        Laws, sizes and bounds of those that could be fitted, M rows.
    fits
        How well each fits.
    linear
        Erms' lines, from the tails of windows, else derived from the law.
    linear_measured
        Which rows of ``linear`` were measured, shape (M,).
    services
        What was seen of the services.
    containers
        Containers that run now, shape (M,); None: not known.
    refused
        Why the other microservices have no law, by name.
    warnings
        What to be wary of in the traces.
    """

    microservices: Microservices
    fits: tuple[LawFit, ...]
    linear: LinearLatency
    linear_measured: Bools
    services: ServiceTable
    containers: Ints | None = None
    refused: Mapping[str, str] | None = None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        count = len(self.microservices)
        if len(self.fits) != count or len(self.linear) != count:
            raise InstanceError(f"model.fits and model.linear need {count} rows")
        put("linear_measured", bools(self.linear_measured, "model.linear_measured", (count,)))
        if self.containers is not None:
            put("containers", ints(self.containers, "model.containers", (count,)))
        put("refused", dict(self.refused or {}))

    def table(self) -> list[dict[str, Any]]:
        """List one row a microservice: its name, law, goodness of fit and warnings."""
        return [
            {
                "microservice": str(name),
                **{part.name: getattr(fit, part.name) for part in fields(LawFit)},
            }
            for name, fit in zip(self.microservices.id, self.fits, strict=True)
        ]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FittedModel):
            return False
        same = all(
            getattr(self, name) == getattr(other, name)
            for name in ("microservices", "fits", "linear", "services", "refused", "warnings")
        )
        counts = (self.containers, other.containers)
        known = counts[0] is counts[1] if None in map(_none, counts) else np.array_equal(
            cast(Ints, counts[0]), cast(Ints, counts[1])
        )  # fmt: skip
        return same and known and np.array_equal(self.linear_measured, other.linear_measured)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed


def _none(value: object) -> object:
    return None if value is None else True


def model_to_dict(model: FittedModel) -> dict[str, Any]:
    """Turn a model into plain data for JSON."""
    fits: dict[str, Any] = {name: [getattr(fit, name) for fit in model.fits] for name in _FITS}
    fits["warnings"] = [list(fit.warnings) for fit in model.fits]
    return {
        "schema": schema_name(KIND, VERSION),
        "microservices": columns_to_dict(model.microservices, MICROSERVICES),
        "containers": None if model.containers is None else model.containers.tolist(),
        "fits": fits,
        "linear": columns_to_dict(model.linear, LINEAR),
        "linear_measured": model.linear_measured.tolist(),
        "services": columns_to_dict(model.services, _SERVICES),
        "refused": dict(model.refused or {}),
        "warnings": list(model.warnings),
    }


def model_from_dict(data: object) -> FittedModel:
    """Read a model from plain data; the inverse of ``model_to_dict``.

    Raises
    ------
    InstanceError
        Naming key, index and value; for an unknown key the nearest known one.
    """
    content = known_keys(migrated(data, KIND, VERSION, MIGRATIONS), _KEYS, "model")
    for name in _KEYS:
        if name not in content:
            raise InstanceError(f"model.{name} is missing")
    columns = columns_from_dict(content["fits"], _FITS, "fits", extra=("warnings",))
    count = len(columns["samples"])
    told = cast("list[Any]", content["fits"].get("warnings", [[]] * count))
    if not isinstance(cast(Any, told), list) or len(told) != count:
        raise InstanceError(f"fits.warnings: expected {count} lists")
    refused = content["refused"]
    if not isinstance(refused, dict):
        raise InstanceError("model.refused: expected reasons by name")
    containers = content["containers"]
    return FittedModel(
        microservices=Microservices(
            **columns_from_dict(content["microservices"], MICROSERVICES, "microservices")
        ),
        fits=tuple(
            LawFit(
                **{name: column[at] for name, column in columns.items()},
                warnings=tuple(plain_list(told[at], "name", f"fits.warnings[{at}]")),
            )
            for at in range(count)
        ),
        linear=LinearLatency(**columns_from_dict(content["linear"], LINEAR, "linear")),
        linear_measured=cast(
            Bools, plain_list(content["linear_measured"], "bool", "model.linear_measured")
        ),
        services=ServiceTable(**columns_from_dict(content["services"], _SERVICES, "services")),
        containers=None
        if containers is None
        else cast(Ints, plain_list(containers, "int", "model.containers")),
        refused=cast("Mapping[str, str]", refused),
        warnings=tuple(plain_list(content["warnings"], "name", "model.warnings")),
    )


def write_model(path: PathLike, model: FittedModel) -> None:
    """Write a model to a JSON file, whole or not at all."""
    write_json(path, model_to_dict(model))


def read_model(path: PathLike) -> FittedModel:
    """Read a model from a JSON file.

    Raises
    ------
    InstanceError
        In one line: file, key, index, value, and the nearest known spelling.
    """
    data = read_json(path)
    with naming(path):
        return model_from_dict(data)
