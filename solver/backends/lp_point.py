"""What drivers of LPs go on from: a proved optimum, or an end that nobody can vouch for."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.solver.arrays import FloatArray


class UncertifiedError(RuntimeError):
    """A driver came to an end that it cannot vouch for."""


@dataclass(frozen=True, slots=True, eq=False)
class LPPoint:
    """Optimum of an LP, as a minimisation.

    Attributes
    ----------
    value
        Value of the objective, as the back end states it.
    x
        Value of every column.
    duals
        Dual of every row: change of the value per unit by which its binding side is raised.
        From HiGHS exactly 0 where the row is in the basis.
    """

    value: float
    x: FloatArray
    duals: FloatArray
