"""Two-sided bounds on latencies with forks, on a lattice.

Bounds of a distribution are kept at the points of a lattice. The largest of independent times
multiplies them, which adds no error. The sum of two convolves them: the second is rounded up to
the lattice for the lower bound of the distribution, and down for the upper one. What runs one
after the other without a fork is known exactly at the points (``serial_cdf``), so that only forks
that are added to something are rounded, once each.
"""

from __future__ import annotations

import numpy as np

from apportion.executor.microservices.chains import Chain
from apportion.executor.microservices.serial_tails import serial_cdf, serial_tail
from apportion.executor.tolerances import ROUNDING_OF_TRANSFORMS
from apportion.instances.columns import Floats

Bounds = tuple[Floats, Floats]
"""Lower and upper bounds of a distribution at the points of a lattice."""


def chain_tail(
    chain: Chain, rates: Floats, shifts: Floats, time: float, steps: int
) -> tuple[float, float]:
    """Bound the probability that a latency is above a time.

    Parameters
    ----------
    chain
        What is added, and what runs side by side.
    rates, shifts
        Rate and shift of every call, repeats included; rates of the calls of the chain positive.
    time
        In the unit of the shifts.
    steps
        Points of the lattice; a chain without forks needs none.

    Returns
    -------
    low, high
        Between them lies the probability.
    """
    left = time - float(shifts[chain.calls].sum())
    if not chain.forks:
        return serial_tail(rates[chain.calls], left)
    if left <= 0:
        return 1.0, 1.0
    step = left / steps
    parts = [_fork(members, rates, shifts, step, steps) for members in chain.forks]
    if chain.calls.size:
        parts.append(serial_cdf(rates[chain.calls], 0.0, step, steps))
    total = parts[-1]
    for part in parts[:-2]:
        total = _sum(total, part)
    low, high = _last(total, parts[-2]) if len(parts) > 1 else (total[0][-1], total[1][-1])
    return max(0.0, 1.0 - float(high)), min(1.0, 1.0 - float(low))


def _chain_cdf(chain: Chain, rates: Floats, shifts: Floats, step: float, count: int) -> Bounds:
    shift = float(shifts[chain.calls].sum())
    total = serial_cdf(rates[chain.calls], shift, step, count)  # a member has a call of its own
    for members in chain.forks:
        total = _sum(total, _fork(members, rates, shifts, step, count))
    return total


def _fork(
    members: tuple[Chain, ...], rates: Floats, shifts: Floats, step: float, count: int
) -> Bounds:
    low, high = np.ones(count + 1), np.ones(count + 1)
    for member in members:
        least, most = _chain_cdf(member, rates, shifts, step, count)
        low, high = low * least, high * most
    return low, high


def _monotone(part: Bounds) -> Bounds:
    """Sharpen bounds by what is known of distributions: they rise."""
    low, high = part
    return np.maximum.accumulate(low), np.minimum.accumulate(high[::-1])[::-1]


def _masses(part: Bounds) -> Bounds:
    """Probability of each point when rounded up, and when rounded down, to the lattice."""
    low, high = _monotone(part)
    up = np.diff(low, prepend=0.0)
    down = np.append(np.diff(high), 0.0)  # what is beyond the lattice plays no part
    down[0] += high[0]
    return up, down


def _sum(one: Bounds, two: Bounds) -> Bounds:
    """Bound the distribution of a sum of independent times."""
    up, down = _masses(two)
    low, high = _monotone(one)
    least = _convolved(low, up) - ROUNDING_OF_TRANSFORMS
    most = _convolved(high, down) + ROUNDING_OF_TRANSFORMS
    return np.clip(least, 0.0, 1.0), np.clip(most, 0.0, 1.0)


def _convolved(one: Floats, two: Floats) -> Floats:
    count = one.size
    size = 1 << (2 * count - 2).bit_length()
    both = np.fft.rfft(one, size) * np.fft.rfft(two, size)
    return np.fft.irfft(both, size)[:count]


def _last(one: Bounds, two: Bounds) -> tuple[float, float]:
    """Bound the last point of a sum; no more of it is asked for."""
    up, down = _masses(two)
    low, high = _monotone(one)
    return float(low[::-1] @ up), float(high[::-1] @ down)
