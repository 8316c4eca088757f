"""One monotonic deadline, shared by everything done for one answer."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """A deadline on the monotonic clock.

    Parameters
    ----------
    deadline_s
        Reading of :func:`time.monotonic` at which time is up; infinity for no limit.
    """

    deadline_s: float

    @classmethod
    def of(cls, seconds: float | None) -> Budget:
        """Start a budget now.

        Parameters
        ----------
        seconds
            Length in seconds; ``None`` for no limit.

        Raises
        ------
        ValueError
            If ``seconds`` is zero, negative or NaN.
        """
        if seconds is None:
            return cls(math.inf)
        if not seconds > 0:
            raise ValueError(f"time limit = {seconds!r} s: must be greater than zero")
        return cls(time.monotonic() + seconds)

    def left_s(self) -> float:
        """Seconds left: infinity without a limit, never negative."""
        return max(0.0, self.deadline_s - time.monotonic())

    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.left_s() <= 0.0

    def part(self, fraction: float) -> Budget:
        """Budget that ends after ``fraction`` of the time left, and with this one at the latest.

        Raises
        ------
        ValueError
            If ``fraction`` is not in (0, 1].
        """
        if not 0.0 < fraction <= 1.0:
            raise ValueError(f"fraction of a budget = {fraction!r}: must be in (0, 1]")
        if math.isinf(self.deadline_s):
            return self
        return Budget(min(self.deadline_s, time.monotonic() + fraction * self.left_s()))
