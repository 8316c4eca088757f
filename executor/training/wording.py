"""How broken rules are told, and the first look at columns that all checks share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.instances.columns import Ints
from apportion.instances.policy import Violation
from apportion.instances.training import TrainingRound


def job_id(round_: TrainingRound, row: Any) -> str:
    """Name a job as a message does."""
    return repr(str(round_.jobs.id[int(row)]))


def whole(columns: dict[str, Any], first: NDArray[Any]) -> list[Violation]:
    """Refuse columns that are not whole numbers, or not of the length of the first."""
    for name, column in columns.items():
        if column.dtype.kind not in "iu":
            if column.dtype.kind == "f" and np.isnan(column).any():
                return [Violation("nan", f"{name}[{int(np.isnan(column).argmax())}] = NaN")]
            return [Violation("shape", f"{name} holds {column.dtype}, expected whole numbers")]
        if column.shape != first.shape or column.ndim != 1:
            return [Violation("shape", f"{name} has shape {column.shape}, expected {first.shape}")]
    return []


def outside(codes: Ints, count: int) -> bool:
    """Whether a code is not in 0..count-1; seen as unsigned, a negative one is a huge one."""
    return bool(np.count_nonzero(codes.astype(np.uint64) < count) < codes.size)
