"""Numbers as people read them: one unit and one number of decimals for a whole column."""

from __future__ import annotations

import math
from collections.abc import Sequence

from apportion.results.definitions import Unit

MISSING = "-"
"""What people see where there is no value; CSV leaves the field empty, JSON says null."""

_SECONDS = ((7200.0, "h", 3600.0), (120.0, "min", 60.0), (1.0, "s", 1.0), (0.0, "ms", 1e-3))


def readable_unit(values: Sequence[float], unit: Unit) -> tuple[str, float]:
    """Choose the unit a column is shown in, and the raw amount that one of it stands for.

    Durations are shown in hours from two hours upwards, in minutes from two minutes, below that
    in seconds or milliseconds; the largest value decides for the column.
    """
    if unit == "fraction":
        return "%", 0.01
    if unit not in ("s", "GPU s"):
        return "", 1.0
    largest = max((abs(value) for value in values), default=0.0)
    if largest == 0.0:
        return unit, 1.0
    name, size = next((name, size) for least, name, size in _SECONDS if largest >= least)
    return (f"GPU {name}" if unit == "GPU s" else name), size


def decimals(values: Sequence[float], unit: Unit) -> int:
    """Choose the decimals of a column from its scaled values.

    Counts have none while they are whole, percentages have one. Elsewhere the smallest value
    keeps three significant digits, as long as the largest shows no more than four.
    """
    if unit == "fraction":
        return 1
    if unit == "count":
        return 0 if all(value == math.floor(value) for value in values) else 1
    sizes = [abs(value) for value in values if value]
    if not sizes:
        return 0
    wanted = 2 - math.floor(math.log10(min(sizes)))
    allowed = 3 - math.floor(math.log10(max(sizes)))
    return max(0, min(wanted, allowed, 3))


def readable(value: float | None, unit: Unit) -> str:
    """Write one number with its unit as people read it; `MISSING` for None."""
    if value is None:
        return MISSING
    name, size = readable_unit([value], unit)
    digits = decimals([value / size], unit)
    return f"{value / size:,.{digits}f} {name}".rstrip()
