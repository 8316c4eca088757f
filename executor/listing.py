"""How broken rules are listed, whatever the family."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from apportion.instances.columns import Ints
from apportion.instances.policy import Violation

MESSAGES_PER_RULE = 20
"""More broken entries than this of one rule are counted, not listed."""


def listed(rule: str, bad: Ints | NDArray[np.intp], text: Callable[[int], str]) -> list[Violation]:
    """Tell each broken entry; nothing is written where there are none."""

    def messages() -> Iterator[Violation]:
        for index in bad[:MESSAGES_PER_RULE].tolist():
            yield Violation(rule, text(index))
        if bad.size > MESSAGES_PER_RULE:
            yield Violation(rule, f"and {bad.size - MESSAGES_PER_RULE} more")

    return list(messages()) if bad.size else []
