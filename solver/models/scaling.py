"""Turning decimal data into whole numbers, exactly or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from apportion.solver.arrays import FloatArray, IntArray, dot
from apportion.solver.errors import UnsupportedModelError
from apportion.solver.models.model import Model

MOST_PLACES = 9
"""Decimal places that are looked for; longer numbers count as fractional."""

_LARGEST_EXACT = 2.0**53
_LARGEST_SUM = 2.0**62


@dataclass(frozen=True, slots=True, eq=False)
class WholeModel:
    """A pure integer model in whole numbers; each row is multiplied by its own power of ten.

    Attributes
    ----------
    lower, upper
        Bounds of the columns, rounded inwards, shape (columns,).
    values
        Matrix entries beside the model's ``indices``.
    row_lower, row_upper
        Sides of the rows, rounded inwards, shape (rows,). A side that no point reaches is moved
        to the largest activity, an infinite one too.
    cost
        Coefficients of the minimisation, shape (columns,).
    cost_offset
        Offset of the minimisation, times ``cost_factor``.
    cost_factor
        Power of ten that the coefficients were multiplied by.
    """

    lower: IntArray
    upper: IntArray
    values: IntArray
    row_lower: list[int]
    row_upper: list[int]
    cost: IntArray
    cost_offset: float
    cost_factor: float

    def has_empty_interval(self) -> bool:
        """Whether no whole number lies between some pair of bounds or sides."""
        sides = zip(self.row_lower, self.row_upper, strict=True)
        return bool((self.lower > self.upper).any()) or any(low > high for low, high in sides)


def whole_model(model: Model) -> WholeModel:
    """Scale a model's rows and first objective to whole numbers.

    Raises
    ------
    UnsupportedModelError
        If a column is continuous or unbounded, a coefficient is not a decimal of at most
        ``MOST_PLACES`` places, or sums could overflow. The message names the place.
    """
    lower, upper = _whole_bounds(model)
    largest = np.maximum(np.abs(lower), np.abs(upper))
    places = _decimal_places(model.values)
    if places.size and places.min() < 0:
        bad = int(np.argmin(places))
        row, column = int(model.row_of_entry[bad]), int(model.indices[bad])
        raise UnsupportedModelError(
            f"row {model.row_name(row)}, column {model.column_name(column)}: coefficient "
            f"{float(model.values[bad])!r} is not a decimal of at most {MOST_PLACES} places"
        )
    row_places = np.zeros(model.row_count, dtype=np.int64)
    np.maximum.at(row_places, model.row_of_entry, places)
    values = np.rint(model.values * 10.0 ** row_places[model.row_of_entry])
    reach = np.bincount(
        model.row_of_entry,
        weights=np.abs(values) * largest[model.indices],
        minlength=model.row_count,
    )
    if reach.size and reach.max() > _LARGEST_SUM:
        raise UnsupportedModelError(
            f"row {model.row_name(int(np.argmax(reach)))} overflows 64 bits in whole numbers"
        )
    sides = zip(
        model.row_lower.tolist(),
        model.row_upper.tolist(),
        row_places.tolist(),
        reach.tolist(),
        strict=True,
    )
    pairs = [_whole_sides(low, high, 10**power, int(most) + 1) for low, high, power, most in sides]
    cost, factor = _whole_cost(model, largest)
    return WholeModel(
        lower=lower.astype(np.int64),
        upper=upper.astype(np.int64),
        values=values.astype(np.int64),
        row_lower=[pair[0] for pair in pairs],
        row_upper=[pair[1] for pair in pairs],
        cost=cost,
        cost_offset=model.objectives[0].sign * model.objectives[0].offset * factor,
        cost_factor=factor,
    )


def _whole_bounds(model: Model) -> tuple[FloatArray, FloatArray]:
    if not model.integer.all():
        column = model.column_name(int(np.argmin(model.integer)))
        raise UnsupportedModelError(f"column {column} is continuous")
    lower, upper = np.ceil(model.lower), np.floor(model.upper)
    small = (np.abs(lower) <= _LARGEST_EXACT) & (np.abs(upper) <= _LARGEST_EXACT)
    if not small.all():
        bad = int(np.argmin(small))
        raise UnsupportedModelError(
            f"column {model.column_name(bad)}: bounds [{lower[bad]}, {upper[bad]}] are too wide"
        )
    return lower, upper


def _whole_cost(model: Model, largest: FloatArray) -> tuple[IntArray, float]:
    objective = model.objectives[0]
    places = _decimal_places(objective.cost)
    if places.size and places.min() < 0:
        bad = int(np.argmin(places))
        raise UnsupportedModelError(
            f"objective {objective.name}, column {model.column_name(bad)}: coefficient "
            f"{float(objective.cost[bad])!r} is not a decimal of at most {MOST_PLACES} places"
        )
    factor = 10.0 ** int(places.max(initial=0))
    cost = np.rint(objective.sign * objective.cost * factor)
    if dot(np.abs(cost), largest) > _LARGEST_SUM:
        raise UnsupportedModelError(
            f"objective {objective.name} overflows 64 bits in whole numbers"
        )
    return cost.astype(np.int64), factor


def _decimal_places(values: FloatArray) -> IntArray:
    """Fewest decimal places that give each number exactly; -1 where there are too many.

    A number has that many places if it is the double nearest to such a decimal, which is what
    dividing the whole number by the power of ten gives.
    """
    places = np.full(values.size, -1, dtype=np.int64)
    for power in range(MOST_PLACES + 1):
        open_ones = np.flatnonzero(places < 0)
        if not open_ones.size:
            break
        scaled = np.rint(values[open_ones] * 10.0**power)
        exact = (scaled / 10.0**power == values[open_ones]) & (np.abs(scaled) < _LARGEST_EXACT)
        places[open_ones[exact]] = power
    return places


def _whole_sides(low: float, high: float, factor: int, most: int) -> tuple[int, int]:
    """Sides of a row times ``factor``, rounded inwards and kept within ``-most`` to ``most``."""
    whole_low = -most if low * factor <= -most else _scaled(low, factor, up=True)
    whole_high = most if high * factor >= most else _scaled(high, factor, up=False)
    return min(whole_low, most), max(whole_high, -most)


def _scaled(side: float, factor: int, *, up: bool) -> int:
    nearest = round(side * factor)
    if nearest / factor == side:
        return nearest
    exact = Fraction(side) * factor
    return -(-exact.numerator // exact.denominator) if up else exact.numerator // exact.denominator
