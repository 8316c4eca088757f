"""What a policy says of each row of its round, as columns of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from apportion.results import Column


def own_columns(columns: Mapping[str, Any]) -> list[Column]:
    """Head the columns of a policy, NumPy arrays by name."""
    return [
        Column(f"own_{name}", name, "ratio" if column.dtype.kind in "iuf" else "")
        for name, column in columns.items()
    ]


def shown_value(value: Any) -> str | int | float | None:
    """Show one value of a policy's own columns; what is infinite is left blank."""
    plain = value.item()
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
