"""The back ends by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from apportion.solver.backend import Backend
from apportion.solver.cbc import Cbc
from apportion.solver.cpsat import CpSat
from apportion.solver.errors import ModelError
from apportion.solver.glop import Glop
from apportion.solver.highs import Highs
from apportion.solver.pdlp import Pdlp
from apportion.solver.scip import Scip

BACKENDS: Mapping[str, Callable[[], Backend]] = MappingProxyType(
    {
        "glop": Glop,
        "glop-dual": partial(Glop, dual=True),
        "highs": Highs,
        "highs-ipm": partial(Highs, algorithm="ipm"),
        "highs-simplex": partial(Highs, algorithm="simplex"),
        "scip": Scip,
        "cpsat": CpSat,
        "cbc": Cbc,
        "pdlp": Pdlp,
    }
)
"""A factory per name."""


def backend(name: str) -> Backend:
    """Make the back end of this name.

    Raises
    ------
    ModelError
        If there is none of this name.
    """
    if name not in BACKENDS:
        raise ModelError(f"back end {name!r}: known are {', '.join(BACKENDS)}")
    return BACKENDS[name]()


def available_backends() -> tuple[str, ...]:
    """Names of the back ends that can run here."""
    return tuple(name for name, make in BACKENDS.items() if make().available())
