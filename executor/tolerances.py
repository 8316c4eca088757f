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

SAME_INSTANT = 1e-12
"""Relative difference below which two times are one: sums such as 43.8 + 7.3 and products such as
7 * 7.3 differ by an ulp, and a job that ends with a round must not be taken for one that does not."""
