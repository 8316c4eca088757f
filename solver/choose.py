"""Which back end ``backend="auto"`` means.

Measured on 2 cores: simplex codes tie up to about 2,000 jobs x 6 types, and beyond that interior
point with crossover is 2 to 17 times faster on contended fairness LPs.
"""

from __future__ import annotations

from apportion.solver.backend import Backend
from apportion.solver.errors import ModelError
from apportion.solver.model import Model
from apportion.solver.registry import backend

SMALL_LP_NONZEROS = 20_000
"""LPs with at most this many nonzeros count as small."""

_SMALL_LP = ("glop", "highs")
_LARGE_LP = ("highs-ipm", "glop")
_MILP = ("highs", "scip", "cbc")


def automatic(model: Model) -> Backend:
    """Back end for a model, by class and size: the first that can run here.

    Raises
    ------
    ModelError
        If none can.
    """
    if not model.is_lp:
        names = _MILP
    else:
        names = _SMALL_LP if model.values.size <= SMALL_LP_NONZEROS else _LARGE_LP
    for name in names:
        candidate = backend(name)
        if candidate.available():
            return candidate
    raise ModelError(f"none of the back ends {', '.join(names)} can run here")
