"""Tolerances of this room, each with its reason."""

from __future__ import annotations

HOST_RELATIVE = 1e-9
"""CPU cores and host memory are sums of a few fractions; this is far above their rounding error
and far below any real core or gibibyte."""

WORK_RELATIVE = 1e-9
"""Work is a rate times a difference of times of up to 1e9 s, so about 1e-10 of it is rounding."""

STUCK_INTERVALS = 1000
"""Decision intervals in a row without any work, with nothing left to wait for, after which a run
stops: memory may make a policy start a job late, but not this late."""
