"""Calls side by side: the transform of the largest of several sums of exponentials.

A fork is a chain of states, one for each set of calls that have ended, left at the rates of the
calls under way. Every step ends a call, so that the transform follows from the last state back in
one pass, by level: a phase-type law without cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from apportion.formulations.microservices.contour import Complexes, contour
from apportion.instances.columns import Floats, Ints
from apportion.instances.errors import InstanceError

MOST_STATES = 2000
"""States of one fork: beyond them the transform takes longer than a lattice would."""

DERIVATIVE_STEP = 2e-3
"""Relative step of the five-point derivative: error about 1e-12, rounding about 1e-11."""


@dataclass(frozen=True, eq=False)
class Network:
    """States from 0 (nothing has ended) to the last (all has), and the calls that lead on.

    ``source``, ``target`` and ``call`` have one entry for each step; ``level`` counts the calls
    that have ended in each state.
    """

    source: Ints
    target: Ints
    call: Ints
    level: Ints
    calls: int

    @classmethod
    def chain(cls, calls: int) -> Network:
        """Build calls that follow one another."""
        at = np.arange(calls)
        return cls(at, at + 1, at, np.arange(calls + 1), calls)

    @property
    def states(self) -> int:
        """Number of states."""
        return self.level.size


def in_series(first: Network, second: Network) -> Network:
    """Let the second begin where the first ends."""
    last = first.states - 1
    return Network(
        np.concatenate((first.source, second.source + last)),
        np.concatenate((first.target, second.target + last)),
        np.concatenate((first.call, second.call + first.calls)),
        np.concatenate((first.level, second.level[1:] + first.calls)),
        first.calls + second.calls,
    )


def side_by_side(first: Network, second: Network) -> Network:
    """Let both run at once until both have ended."""
    a, b = first.states, second.states
    if a * b > MOST_STATES:
        raise InstanceError(
            f"calls: a fork has {a * b} states, at most {MOST_STATES} are evaluated"
        )
    of_first = [part[:, None] * b + np.arange(b) for part in (first.source, first.target)]
    of_second = [part[:, None] + b * np.arange(a) for part in (second.source, second.target)]
    call = np.concatenate((np.repeat(first.call, b), np.repeat(second.call + first.calls, a)))
    return Network(
        np.concatenate((of_first[0].ravel(), of_second[0].ravel())),
        np.concatenate((of_first[1].ravel(), of_second[1].ravel())),
        call,
        (first.level[:, None] + second.level[None, :]).ravel(),
        first.calls + second.calls,
    )


@dataclass(frozen=True, eq=False)
class Fork:
    """A fork whose branches may start ahead of one another.

    Parameters
    ----------
    network
        States of all branches together.
    rows
        Rows of the round's call trees behind the network's calls, shape (c,).
    sizes
        Calls of each branch, shape (b,).
    lead_ms
        How much earlier than the latest each branch starts, shape (b,); only chains may have one.
    steps
        For each level from the last to the first: its states, and its steps sorted by state.
    """

    network: Network
    rows: Ints
    sizes: Ints
    lead_ms: Floats
    steps: tuple[tuple[Ints, Ints, Ints], ...]

    @classmethod
    def of(
        cls, branches: Sequence[tuple[Network, Sequence[int]]], lead_ms: Sequence[float]
    ) -> Fork:
        """Join branches."""
        network = branches[0][0]
        for other, _ in branches[1:]:
            network = side_by_side(network, other)
        rows = np.array([row for _, own in branches for row in own], dtype=np.int64)
        sizes = np.array([len(own) for _, own in branches], dtype=np.int64)
        order = np.argsort(network.source, kind="stable")
        level = network.level[network.source[order]]
        steps: list[tuple[Ints, Ints, Ints]] = []
        for depth in range(network.calls - 1, -1, -1):
            own = order[level == depth]
            states, starts = np.unique(network.source[own], return_index=True)
            steps.append((cast(Ints, states), cast(Ints, starts), cast(Ints, own)))
        return cls(network, rows, sizes, np.array(lead_ms, dtype=np.float64), tuple(steps))

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
        net = self.network
        out = np.ones((net.states, rate.shape[0], s.size), dtype=np.complex128)
        for states, starts, steps in self.steps:
            speed = rate[:, net.call[steps]].T[:, :, None]
            above = np.add.reduceat(speed * out[net.target[steps]], starts, axis=0)
            out[states] = above / (s + np.add.reduceat(speed, starts, axis=0))
        if not self.lead_ms.any():
            return out[0]
        begins = self._begins(rate)
        return cast(Complexes, np.einsum("sv,svj->vj", begins, out))

    def _begins(self, rate: Floats) -> Floats:
        """Compute the law of the state at which the latest branch starts, shape (states, v)."""
        joint = np.ones((1, rate.shape[0]))
        first = 0
        for size, lead in zip(self.sizes.tolist(), self.lead_ms.tolist(), strict=True):
            own = _phases(rate[:, first : first + size], lead)
            joint = (joint[:, None, :] * own[None, :, :]).reshape(-1, rate.shape[0])
            first += size
        return joint

    def slopes(self, rate: Floats, s: Complexes) -> Complexes:
        """Compute the derivative of the transform in the logarithm of each rate, shape (c, J)."""
        count = rate.size
        turns = np.array([1.0, -1.0, 2.0, -2.0]) * DERIVATIVE_STEP
        variants = np.repeat(rate[None, :], 4 * count, axis=0).reshape(4, count, count)
        each = np.arange(count)
        variants[:, each, each] *= np.exp(turns)[:, None]
        found = self.transform(variants.reshape(4 * count, count), s).reshape(4, count, s.size)
        near, far = found[0] - found[1], found[2] - found[3]
        return cast(Complexes, (8.0 * near - far) / (12.0 * DERIVATIVE_STEP))


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
