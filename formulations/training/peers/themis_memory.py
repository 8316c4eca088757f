"""What Themis remembers: the parts of leases that winners have not paid for yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.instances.columns import Floats, Names, floats, names, require
from apportion.instances.errors import InstanceError


def debts(ids: Names, memory: Any) -> Floats:
    """Read each job's debt from memory, 0 for newcomers, shape (n,).

    Raises
    ------
    InstanceError
        On a memory that is not Themis'.
    """
    if memory is None:
        return np.zeros(ids.size)
    try:
        known = names(memory["id"], "memory.id")
        debt = floats(memory["debt"], "memory.debt", (known.size,))
    except (KeyError, TypeError, IndexError):
        raise InstanceError("memory: not one of themis: it lacks id or debt") from None
    require(debt, (debt >= 0.0) & (debt <= 1.0), "memory.debt", "must be in [0, 1]", known)
    if np.array_equal(known, ids):
        return debt.copy()
    owed = dict(zip(known.tolist(), debt.tolist(), strict=True))
    return np.array([owed.get(name, 0.0) for name in ids.tolist()], dtype=np.float64)
