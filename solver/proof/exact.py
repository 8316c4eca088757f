"""Exact arithmetic on a model's numbers, for those who check instead of solving.

Numbers that are short decimals are read as those decimals, 0.1 as one tenth; those of a point or of
duals are the fractions that double precision holds. Arrays share one denominator, so that sums
are sums of whole numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.models.model import Model, Objective

MOST_PLACES = 9
"""Decimal places that are looked for; models of longer numbers are checked in double precision."""

_LARGEST_EXACT = 2.0**53
_ROUND_DUALS = 10**6
"""Duals of small models are fractions of small whole numbers, which rounding to these restores."""


@dataclass(frozen=True, slots=True, eq=False)
class Fractions:
    """Numbers over one denominator; ``numerators`` is an array of Python's whole numbers."""

    numerators: Any
    denominator: int

    def at(self, index: int) -> Fraction:
        """Give one of the numbers."""
        return Fraction(int(self.numerators[index]), self.denominator)

    def times(self, other: Fractions) -> Fractions:
        """Multiply number by number."""
        return Fractions(self.numerators * other.numerators, self.denominator * other.denominator)

    def minus(self, other: Fractions) -> Fractions:
        """Subtract number by number."""
        return Fractions(
            self.numerators * other.denominator - other.numerators * self.denominator,
            self.denominator * other.denominator,
        )

    def taken(self, places: Any) -> Fractions:
        """Give the numbers at these places."""
        return Fractions(self.numerators[places], self.denominator)

    def total(self) -> Fraction:
        """Give the sum."""
        return Fraction(sum(self.numerators.tolist()), self.denominator)

    def sums(self, places: Any, length: int) -> Fractions:
        """Sum the numbers that fall on each of ``length`` places."""
        found = np.zeros(length, dtype=object)
        np.add.at(found, places, self.numerators)
        return Fractions(found, self.denominator)


def from_decimals(values: FloatArray) -> Fractions | None:
    """Read numbers as short decimals; infinite ones as zero. ``None`` if one is too long."""
    finite = np.where(np.isfinite(values), values, 0.0)
    for places in range(MOST_PLACES + 1):
        factor = 10.0**places
        whole = np.rint(finite * factor)
        if (np.abs(whole) < _LARGEST_EXACT).all() and (whole / factor == finite).all():
            return Fractions(whole.astype(np.int64).astype(object), 10**places)
    return None


def from_doubles(values: FloatArray) -> Fractions:
    """Read numbers as what they are in double precision."""
    return _over_one([Fraction(value) for value in values.tolist()])


def rounded(values: FloatArray) -> Fractions:
    """Read numbers as the nearest fractions with small denominators."""
    return _over_one([Fraction(value).limit_denominator(_ROUND_DUALS) for value in values.tolist()])


def _over_one(numbers: list[Fraction]) -> Fractions:
    denominator = math.lcm(*(number.denominator for number in numbers))
    whole = [number.numerator * (denominator // number.denominator) for number in numbers]
    return Fractions(np.array(whole, dtype=object), denominator)


@dataclass(frozen=True, eq=False)
class ExactModel:
    """A model in exact numbers.

    Attributes
    ----------
    model
        The model.
    values
        Entries of its matrix.
    lower, upper, row_lower, row_upper
        Bounds and sides; infinite ones count as zero here.
    """

    model: Model
    values: Fractions
    lower: Fractions
    upper: Fractions
    row_lower: Fractions
    row_upper: Fractions

    @cached_property
    def has_exact_objectives(self) -> bool:
        """Whether all objectives are short decimals, too."""
        return all(exact_objective(one) is not None for one in self.model.objectives)

    def activity(self, x: Fractions) -> Fractions:
        """Value of every row at a point."""
        terms = self.values.times(x.taken(self.model.indices))
        return terms.sums(self.model.row_of_entry, self.model.row_count)

    def dual_bound(self, objective: int, y: Fractions) -> Fraction | None:
        """Bound that row duals prove for an objective as a minimisation, without its offset.

        ``None`` where they prove none: see :func:`apportion.solver.proof.duality.dual_bound`.
        """
        return self.dual_bound_of(_cost(self.model.objectives[objective]), y)

    def dual_bound_of(self, cost: Fractions | None, y: Fractions) -> Fraction | None:
        """Bound on the minimum of ``cost``, without an offset; see :meth:`dual_bound`."""
        if cost is None:
            return None
        model = self.model
        up = y.numerators > 0
        missing = ~np.isfinite(np.where(up, model.row_lower, model.row_upper))
        y = Fractions(np.where(missing, 0, y.numerators), y.denominator)
        side = _chosen(up, self.row_lower, self.row_upper)
        pull = self.values.times(y.taken(model.row_of_entry))
        z = cost.minus(pull.sums(model.indices, model.column_count))
        up = z.numerators > 0
        open_end = ~np.isfinite(np.where(up, model.lower, model.upper))
        if (z.numerators[open_end] != 0).any():
            return None
        bound = _chosen(up, self.lower, self.upper)
        return y.times(side).total() + z.times(bound).total()


def exact_model(model: Model) -> ExactModel | None:
    """Read a model in exact numbers; ``None`` if some are not short decimals."""
    parts = [
        from_decimals(part)
        for part in (model.values, model.lower, model.upper, model.row_lower, model.row_upper)
    ]
    given = [part for part in parts if part is not None]
    if len(given) < len(parts) or not ExactModel(model, *given).has_exact_objectives:
        return None
    return ExactModel(model, *given)


def exact_objective(objective: Objective) -> tuple[Fractions, Fraction] | None:
    """Give an objective's coefficients and offset; ``None`` if some are not short decimals."""
    cost = from_decimals(objective.cost)
    offset = from_decimals(np.array([objective.offset]))
    return None if cost is None or offset is None else (cost, offset.at(0))


def exact_value(objective: Objective, x: Fractions) -> Fraction | None:
    """Value of an objective at a point, offset included."""
    parts = exact_objective(objective)
    return None if parts is None else parts[0].times(x).total() + parts[1]


def zeros(length: int) -> Fractions:
    """Give that many zeros."""
    return Fractions(np.zeros(length, dtype=object), 1)


def _cost(objective: Objective) -> Fractions | None:
    parts = exact_objective(objective)
    if parts is None:
        return None
    return Fractions(parts[0].numerators * int(objective.sign), parts[0].denominator)


def _chosen(first: Any, one: Fractions, other: Fractions) -> Fractions:
    """Choose between two number by number."""
    return Fractions(
        np.where(first, one.numerators * other.denominator, other.numerators * one.denominator),
        one.denominator * other.denominator,
    )
