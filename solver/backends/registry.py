"""The back ends by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from apportion.solver.backends.backend import Backend
from apportion.solver.backends.cbc import Cbc
from apportion.solver.backends.cpsat import CpSat
from apportion.solver.backends.glop import Glop
from apportion.solver.backends.highs import Highs
from apportion.solver.backends.pdlp import Pdlp
from apportion.solver.backends.scip import Scip
from apportion.solver.errors import ModelError

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
