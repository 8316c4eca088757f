"""Two-sided bounds on sums of exponential times, by uniformisation with positive terms.

A sum of exponential times is the time in which a chain of states is passed through. The chain is
watched at the events of a Poisson process (uniformisation, Jensen 1953); every term of that sum
is positive, so that equal and nearly equal rates cancel nothing. What the sum leaves out is less
than it, which bounds the answer from both sides: the mass still under way is a lower bound of the
tail, one less the mass that has arrived an upper one. Stiff chains, whose rates differ by orders
of magnitude, would take many events: the time is halved until an event is rare, and the matrix
of the chain squared as often, which again only adds positive numbers.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from apportion.executor.tolerances import (
    NEGLIGIBLE,
    ROUNDING_OF_CHAINS,
    STIFFEST,
    UNIFORMISATION_TERMS,
    WIDEST_CHAIN,
)
from apportion.instances.columns import Floats


def serial_tail(rates: Floats, time: float) -> tuple[float, float]:
    """Bound the probability that a sum of exponential times takes longer than a time.

    Parameters
    ----------
    rates
        Rate of each, positive, shape (n,).
    time
        In the inverse unit; up to zero the answer is 1, unless there is nothing to add.

    Returns
    -------
    low, high
        Between them lies the probability.
    """
    if not rates.size:
        return (0.0, 0.0) if time >= 0 else (1.0, 1.0)
    if time <= 0:
        return 1.0, 1.0
    slow = rates * time <= STIFFEST  # without the others the sum is shorter,
    tame = cast(Floats, np.minimum(rates, STIFFEST / time))  # so slow it is longer
    if slow.all():
        return _tail(rates, time)
    least = _tail(rates[slow], time)[0] if slow.any() else 0.0
    return least, _tail(tame, time)[1]


def _tail(rates: Floats, time: float) -> tuple[float, float]:
    if rates.size > WIDEST_CHAIN:
        under_way, arrived = _event_by_event(rates, time)
    else:
        state = transition(rates, time)[0]
        under_way, arrived = float(state[:-1].sum()), float(state[-1])
    slack = rounding(rates, time)
    return max(0.0, under_way - slack), min(1.0, 1.0 - arrived + slack)


def rounding(rates: Floats, time: float) -> float:
    """Bound the rounding error of a probability computed here."""
    size = rates.size + UNIFORMISATION_TERMS
    return ROUNDING_OF_CHAINS * size * max(1.0, float(rates.max()) * time)


def transition(rates: Floats, time: float) -> Floats:
    """Bound from below where the chain is after a time.

    Parameters
    ----------
    rates
        Positive, shape (n,).
    time
        Not negative.

    Returns
    -------
    ndarray
        From each state to each, shape (n + 1, n + 1); the last is the end. Rows sum to hardly
        less than 1.
    """
    fastest = float(rates.max())
    halvings = max(0, math.ceil(math.log2(fastest * time))) if fastest * time > 1 else 0
    events = fastest * time / 2.0**halvings  # expected, at most 1
    step = np.diag(np.append(1.0 - rates / fastest, 1.0)) + np.diag(rates / fastest, 1)
    one = np.eye(rates.size + 1)
    out = one
    for term in range(_terms(events), 0, -1):
        out = one + (events / term) * (step @ out)
    out *= math.exp(-events)
    for _ in range(halvings):
        out = out @ out
    return out


def _terms(events: float) -> int:
    """Terms of the series after which what is left out is nothing even when squared often."""
    left, terms = 1.0, 0
    while terms < UNIFORMISATION_TERMS and left > NEGLIGIBLE:
        terms += 1
        left *= events / terms
    return terms


def _event_by_event(rates: Floats, time: float) -> tuple[float, float]:
    """Sum over the events of the Poisson process; for chains whose matrix would be large."""
    fastest = float(rates.max())
    mean = fastest * time
    events = math.ceil(mean + 8.0 * math.sqrt(mean) + 40.0)
    number = np.arange(events + 1)
    log_weight = number * math.log(mean) - mean - _log_factorials(events)
    weight = np.exp(log_weight)
    move, under_way, arrived = rates / fastest, 0.0, 0.0
    state, end = np.zeros(rates.size), 0.0
    state[0] = 1.0
    stay = 1.0 - move
    for of_event in weight.tolist():
        under_way += of_event * float(state.sum())
        arrived += of_event * end
        moved = state * move
        end += float(moved[-1])
        state *= stay
        state[1:] += moved[:-1]
    return under_way, arrived


def _log_factorials(most: int) -> Floats:
    return cast(Floats, np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, most + 1))))))


def serial_cdf(rates: Floats, shift: float, step: float, count: int) -> tuple[Floats, Floats]:
    """Bound the distribution of a shifted sum of exponential times on a lattice.

    Parameters
    ----------
    rates
        Positive, shape (n,), at least one.
    shift
        Least value.
    step, count
        The lattice: ``step * 0, ..., step * count``.

    Returns
    -------
    low, high
        Bounds of the probability of a value up to each point, shape (count + 1,).
    """
    low, high = np.zeros(count + 1), np.zeros(count + 1)
    first = max(0, math.ceil(shift / step))
    if first > count:
        return low, high
    rest, left = max(0.0, first * step - shift), count + 1 - first
    slow = rates[rates * step * count <= STIFFEST]
    tame = cast(Floats, np.minimum(rates, STIFFEST / (step * count)))
    low[first:], high[first:] = _arrived(tame, rest, step, left)
    if slow.size < rates.size:
        high[first:] = _arrived(slow, rest, step, left)[1] if slow.size else 1.0
    return low, high


def _arrived(rates: Floats, first: float, step: float, count: int) -> tuple[Floats, Floats]:
    """Bound the distribution at ``first``, ``first + step``, ..., by doubling the points known."""
    if rates.size == 1:
        arrived = -np.expm1(-rates[0] * (first + step * np.arange(count)))
        slack = rounding(rates, first + step * count)
        return np.maximum(arrived - slack, 0.0), np.minimum(arrived + slack, 1.0)
    power = transition(rates, step)
    states = transition(rates, first)[:1] if first > 0 else np.eye(1, rates.size + 1)
    while states.shape[0] < count:
        states = np.concatenate((states, states @ power))[:count]
        power = power @ power
    slack = rounding(rates, first + step * count)
    low = np.clip(states[:, -1] - slack, 0.0, 1.0)
    high = np.clip(1.0 - states[:, :-1].sum(axis=1) + slack, 0.0, 1.0)
    return low, high
