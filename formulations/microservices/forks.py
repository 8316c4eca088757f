"""Calls side by side: the transform of the largest of several sums of exponentials.

A fork is a chain of states, one for each set of calls that have ended, left at the rates of the
calls under way. Every step ends a call, so that the transform follows from the last state back in
one pass, by level: a phase-type law without cycles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from apportion.formulations.microservices.contour import Complexes, contour
from apportion.instances.columns import Floats, Ints

MOST_STATES = 2000
"""States of one fork: beyond them its transform takes longer than all the rest of a round."""

DERIVATIVE_STEP = 2e-3
"""Relative step of the five-point derivative: error about 1e-12, rounding about 1e-11."""


@dataclass(frozen=True, eq=False)
class Network:
    """States from 0 (nothing has ended) to the last (all has), and the calls that lead on.

    ``source``, ``target``, ``speed`` and ``times`` have one entry for each step, which is taken at
    ``times`` the rate number ``speed``; ``level`` counts the calls that have ended in each state.
    """

    source: Ints
    target: Ints
    speed: Ints
    times: Floats
    level: Ints
    speeds: int

    @classmethod
    def chain(cls, calls: int) -> Network:
        """Build calls that follow one another."""
        at = np.arange(calls)
        return cls(at, at + 1, at, np.ones(calls), np.arange(calls + 1), calls)

    @classmethod
    def alike(cls, calls: int) -> Network:
        """Build calls of one rate side by side: the fewer still run, the slower one of them ends."""
        at, none = np.arange(calls), np.zeros(calls, dtype=np.int64)
        times = (calls - at).astype(np.float64)
        return cls(at, at + 1, cast(Ints, none), times, np.arange(calls + 1), 1)

    @property
    def states(self) -> int:
        """Number of states."""
        return self.level.size

    @property
    def depth(self) -> int:
        """Calls in all."""
        return int(self.level[-1])


def in_series(first: Network, second: Network) -> Network:
    """Let the second begin where the first ends."""
    last = first.states - 1
    return Network(
        np.concatenate((first.source, second.source + last)),
        np.concatenate((first.target, second.target + last)),
        np.concatenate((first.speed, second.speed + first.speeds)),
        np.concatenate((first.times, second.times)),
        np.concatenate((first.level, second.level[1:] + first.depth)),
        first.speeds + second.speeds,
    )


def side_by_side(first: Network, second: Network) -> Network:
    """Let both run at once until both have ended."""
    a, b = first.states, second.states
    of_first = [part[:, None] * b + np.arange(b) for part in (first.source, first.target)]
    of_second = [part[:, None] + b * np.arange(a) for part in (second.source, second.target)]
    speed = np.concatenate((np.repeat(first.speed, b), np.repeat(second.speed + first.speeds, a)))
    return Network(
        np.concatenate((of_first[0].ravel(), of_second[0].ravel())),
        np.concatenate((of_first[1].ravel(), of_second[1].ravel())),
        speed,
        np.concatenate((np.repeat(first.times, b), np.repeat(second.times, a))),
        (first.level[:, None] + second.level[None, :]).ravel(),
        first.speeds + second.speeds,
    )


@dataclass(frozen=True, eq=False)
class Branch:
    """A branch of a fork.

    Parameters
    ----------
    network
        Its states.
    rows
        Rows of the round's call trees it makes.
    starts
        First of the rows behind each rate of the network, which is the least of theirs.
    shift_ms
        The part of its latency that no number of containers changes.
    is_chain
        Whether its calls follow one another.
    exact
        False where its latency is only known from above.
    """

    network: Network
    rows: tuple[int, ...]
    starts: tuple[int, ...]
    shift_ms: float
    is_chain: bool = True
    exact: bool = True

    @classmethod
    def call(cls, row: int, shift_ms: float) -> Branch:
        """Make a branch of one call."""
        return cls(Network.chain(1), (row,), (0,), shift_ms)

    def then(self, other: Branch) -> Branch:
        """Append another branch."""
        return Branch(
            in_series(self.network, other.network), self.rows + other.rows,
            self.starts + tuple(at + len(self.rows) for at in other.starts),
            self.shift_ms + other.shift_ms, self.is_chain and other.is_chain,
            self.exact and other.exact,
        )  # fmt: skip

    def beside(self, other: Branch) -> Branch:
        """Run another branch at once, both with the longer shift."""
        return Branch(
            side_by_side(self.network, other.network), self.rows + other.rows,
            self.starts + tuple(at + len(self.rows) for at in other.starts),
            max(self.shift_ms, other.shift_ms), is_chain=False,
            exact=self.exact and other.exact and self.shift_ms == other.shift_ms,
        )  # fmt: skip


def few_enough(branches: Sequence[Branch]) -> list[Branch]:
    """Bring the states of a fork below their limit, at the price of a longer latency.

    Single calls are taken as alike, as slow as the slowest of them; where that is not enough, the
    branches with most states follow one another instead.
    """
    out = list(branches)
    if _states(out) <= MOST_STATES:
        return out
    single = [branch for branch in out if len(branch.rows) == 1]
    if len(single) > 1:
        rows = tuple(row for branch in single for row in branch.rows)
        longest = max(branch.shift_ms for branch in single)
        alike = Branch(Network.alike(len(rows)), rows, (0,), longest, is_chain=False, exact=False)
        out = [*(branch for branch in out if len(branch.rows) > 1), alike]
    while len(out) > 1 and _states(out) > MOST_STATES:
        out.sort(key=lambda branch: branch.network.states)
        last = out.pop()
        out.append(replace(out.pop().then(last), exact=False))
    return out


def _states(branches: Sequence[Branch]) -> int:
    return math.prod(branch.network.states for branch in branches)


@dataclass(frozen=True, eq=False)
class Fork:
    """A fork whose branches may start ahead of one another.

    Parameters
    ----------
    network
        States of all branches together.
    rows
        Rows of the round's call trees it makes, shape (c,).
    starts
        First of the rows behind each rate of the network, shape (r,).
    states, widths
        States and rates of each branch, shape (b,).
    lead_ms
        How much earlier than the latest each branch starts, shape (b,); only chains may have one.
    steps
        For each level from the last to the first: its states, and its steps sorted by state.
    """

    network: Network
    rows: Ints
    starts: Ints
    states: Ints
    widths: Ints
    lead_ms: Floats
    steps: tuple[tuple[Ints, Ints, Ints], ...]

    @classmethod
    def of(cls, branches: Sequence[Branch], lead_ms: Sequence[float]) -> Fork:
        """Join branches."""
        joined = branches[0]
        for other in branches[1:]:
            joined = joined.beside(other)
        network = joined.network
        order = np.argsort(network.source, kind="stable")
        level = network.level[network.source[order]]
        steps: list[tuple[Ints, Ints, Ints]] = []
        for depth in range(network.depth - 1, -1, -1):
            own = order[level == depth]
            states, starts = np.unique(network.source[own], return_index=True)
            steps.append((states, cast(Ints, starts), cast(Ints, own)))
        return cls(
            network=network,
            rows=np.array(joined.rows, dtype=np.int64),
            starts=np.array(joined.starts, dtype=np.int64),
            states=np.array([branch.network.states for branch in branches], dtype=np.int64),
            widths=np.array([branch.network.speeds for branch in branches], dtype=np.int64),
            lead_ms=np.array(lead_ms, dtype=np.float64),
            steps=tuple(steps),
        )

    def transform(self, rate: Floats, s: Complexes) -> Complexes:
        """Compute the transform of the fork's latency beyond its longest shift.

        Parameters
        ----------
        rate
            Rates of its calls per ms, shape (v, c): v variants at once.
        s
            Nodes per ms, shape (J,).

        Returns
        -------
        ndarray
            Shape (v, J).
        """
        return self._transform(np.minimum.reduceat(rate, self.starts, axis=1), s)

    def _transform(self, rate: Floats, s: Complexes) -> Complexes:
        net = self.network
        out = np.ones((net.states, rate.shape[0], s.size), dtype=np.complex128)
        for states, starts, steps in self.steps:
            speed = (rate[:, net.speed[steps]] * net.times[steps]).T[:, :, None]
            above = np.add.reduceat(speed * out[net.target[steps]], starts, axis=0)
            out[states] = above / (s + np.add.reduceat(speed, starts, axis=0))
        if not self.lead_ms.any():
            return out[0]
        return cast(Complexes, np.einsum("sv,svj->vj", self._begins(rate), out))

    def _begins(self, rate: Floats) -> Floats:
        """Compute the law of the state at which the latest branch starts, shape (states, v)."""
        joint = np.ones((1, rate.shape[0]))
        first = 0
        for states, width, lead in zip(
            self.states.tolist(), self.widths.tolist(), self.lead_ms.tolist(), strict=True
        ):
            own = np.zeros((states, rate.shape[0]))
            own[0] = 1.0
            if lead > 0.0:
                own = _phases(rate[:, first : first + width], lead)
            joint = (joint[:, None, :] * own[None, :, :]).reshape(-1, rate.shape[0])
            first += width
        return joint

    def slopes(self, rate: Floats, s: Complexes) -> Complexes:
        """Compute the derivative of the transform in the logarithm of each rate, shape (c, J).

        Where the least of several rates counts, that one alone has a derivative.
        """
        least = np.minimum.reduceat(rate, self.starts)
        count = least.size
        turns = np.array([1.0, -1.0, 2.0, -2.0]) * DERIVATIVE_STEP
        variants = np.repeat(least[None, :], 4 * count, axis=0).reshape(4, count, count)
        each = np.arange(count)
        variants[:, each, each] *= np.exp(turns)[:, None]
        found = self._transform(variants.reshape(4 * count, count), s).reshape(4, count, s.size)
        near, far = found[0] - found[1], found[2] - found[3]
        out = np.zeros((rate.size, s.size), dtype=np.complex128)
        ends = np.append(self.starts[1:], rate.size)
        slowest = [a + int(rate[a:b].argmin()) for a, b in zip(self.starts, ends, strict=True)]
        out[slowest] = (8.0 * near - far) / (12.0 * DERIVATIVE_STEP)
        return out


def _phases(rate: Floats, time_ms: float) -> Floats:
    """Compute how many calls of a chain have ended after a time, shape (calls + 1, v)."""
    variants, calls = rate.shape
    out = np.zeros((calls + 1, variants))
    if time_ms == 0.0:
        out[0] = 1.0
        return out
    nodes, weights = contour(calls)
    ended = np.cumprod(rate[:, :, None] / (rate[:, :, None] + nodes / time_ms), axis=1)
    share = np.clip((ended * (weights / nodes)).sum(axis=2).real, 0.0, 1.0).T
    out[0] = 1.0 - share[0]
    out[1:-1] = np.maximum(share[:-1] - share[1:], 0.0)
    out[-1] = share[-1]
    return out
