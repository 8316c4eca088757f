"""Calls that follow one another or run side by side, as states that are left at their rates.

A network is a phase-type law without cycles: every step ends a call. Where branches of a fork have
different shifts, those that are ahead have run for a while when the last one starts: the fork is
entered at a random state, whose law is that of the branches after that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np

from apportion.formulations.microservices.contour import Complexes, contour
from apportion.instances.columns import Floats, Ints


@dataclass(frozen=True, eq=False)
class Entry:
    """Random starts of one fork, in every copy of it that a network holds.

    Parameters
    ----------
    start
        State that stands for its entrance, which is left at once, shape (n,).
    states
        States of the fork in the order of its branches' states, shape (n, f).
    branches
        First rate of each branch, the branch, and how long it is ahead.
    """

    start: Ints
    states: Ints
    branches: tuple[tuple[int, Network, float], ...]

    def moved(self, start: Ints, states: Ints, first_rate: int) -> Entry:
        """Give the entry of copies elsewhere."""
        branches = tuple((at + first_rate, own, lead) for at, own, lead in self.branches)
        return Entry(start, states, branches)

    def law(self, rate: Floats) -> Floats:
        """Compute the law of the state the fork is entered at, shape (f, v)."""
        joint = np.ones((1, rate.shape[0]))
        for first, own, lead in self.branches:
            part = occupied(own, rate[:, first : first + own.rates], lead)
            joint = (joint[:, None, :] * part[None, :, :]).reshape(-1, rate.shape[0])
        return joint


@dataclass(frozen=True, eq=False)
class Network:
    """States from 0 (nothing has ended) to the last (all has), and the calls that lead on.

    ``source``, ``target``, ``rate`` and ``times`` have one entry for each step, which is taken at
    ``times`` the rate of that number; ``level`` counts the calls that have ended in each state.
    """

    source: Ints
    target: Ints
    rate: Ints
    times: Floats
    level: Ints
    rates: int
    entries: tuple[Entry, ...] = field(default=())

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

    @cached_property
    def by_level(self) -> tuple[tuple[Ints, Ints, Ints], ...]:
        """For each level but the last: its states, and its steps sorted by state with their starts."""
        order = np.argsort(self.source, kind="stable")
        level = self.level[self.source[order]]
        out: list[tuple[Ints, Ints, Ints]] = []
        for depth in range(self.depth):
            own = order[level == depth]
            states, starts = np.unique(self.source[own], return_index=True)
            out.append((states, cast(Ints, starts), own))
        return tuple(out)

    @cached_property
    def entered(self) -> dict[int, list[tuple[int, Ints]]]:
        """For each level: which entries start there, and which of their copies."""
        out: dict[int, list[tuple[int, Ints]]] = {}
        for number, entry in enumerate(self.entries):
            level = self.level[entry.start]
            for depth in np.unique(level).tolist():
                out.setdefault(depth, []).append((number, np.flatnonzero(level == depth)))
        return out

    def transform(self, rate: Floats, s: Complexes) -> Complexes:
        """Compute the transform of the time until all calls have ended.

        Parameters
        ----------
        rate
            Rates per ms, shape (v, rates): v variants at once.
        s
            Nodes per ms, shape (J,).

        Returns
        -------
        ndarray
            Shape (v, J).
        """
        laws = [entry.law(rate) for entry in self.entries]
        out = np.ones((self.states, rate.shape[0], s.size), dtype=np.complex128)
        for depth in range(self.depth - 1, -1, -1):
            states, starts, steps = self.by_level[depth]
            speed = (rate[:, self.rate[steps]] * self.times[steps]).T[:, :, None]
            above = np.add.reduceat(speed * out[self.target[steps]], starts, axis=0)
            out[states] = above / (s + np.add.reduceat(speed, starts, axis=0))
            for number, copies in self.entered.get(depth, ()):
                entry = self.entries[number]
                inside = out[entry.states[copies]]
                out[entry.start[copies]] = np.einsum("fv,nfvj->nvj", laws[number], inside)
        return out[0]


def occupied(network: Network, rate: Floats, time_ms: float) -> Floats:
    """Compute the law of a network's state after a time, shape (states, v)."""
    variants = rate.shape[0]
    if time_ms <= 0.0 and not network.entries:
        out = np.zeros((network.states, variants))
        out[0] = 1.0
        return out
    laws = [entry.law(rate) for entry in network.entries]
    if time_ms <= 0.0:
        return _at_once(network, laws, variants)
    nodes, weights = contour(network.depth)
    s = nodes / time_ms
    flow = np.zeros((network.states, variants, s.size), dtype=np.complex128)
    flow[0] = 1.0
    for depth in range(network.depth):
        _spread(network, laws, depth, flow)
        states, starts, steps = network.by_level[depth]
        speed = (rate[:, network.rate[steps]] * network.times[steps]).T[:, :, None]
        flow[states] /= s + np.add.reduceat(speed, starts, axis=0)
        np.add.at(flow, network.target[steps], flow[network.source[steps]] * speed)
    flow[-1] /= s
    share = np.maximum((flow * weights).sum(axis=2).real / time_ms, 0.0)
    return cast(Floats, share / share.sum(axis=0))


def _at_once(network: Network, laws: Sequence[Floats], variants: int) -> Floats:
    flow = np.zeros((network.states, variants, 1), dtype=np.complex128)
    flow[0] = 1.0
    for depth in range(network.depth):
        _spread(network, laws, depth, flow)
    return flow[:, :, 0].real


def _spread(network: Network, laws: Sequence[Floats], depth: int, flow: Complexes) -> None:
    """Let what enters a fork begin in its states."""
    for number, copies in network.entered.get(depth, ()):
        entry = network.entries[number]
        arrived = flow[entry.start[copies]].copy()
        flow[entry.start[copies]] = 0.0
        parts = laws[number][None, :, :, None] * arrived[:, None, :, :]
        np.add.at(flow, entry.states[copies], parts)


def in_series(first: Network, second: Network) -> Network:
    """Let the second begin where the first ends."""
    last = first.states - 1
    moved = tuple(
        entry.moved(entry.start + last, entry.states + last, first.rates)
        for entry in second.entries
    )
    return Network(
        np.concatenate((first.source, second.source + last)),
        np.concatenate((first.target, second.target + last)),
        np.concatenate((first.rate, second.rate + first.rates)),
        np.concatenate((first.times, second.times)),
        np.concatenate((first.level, second.level[1:] + first.depth)),
        first.rates + second.rates,
        first.entries + moved,
    )


def side_by_side(first: Network, second: Network) -> Network:
    """Let both run at once until both have ended."""
    a, b = first.states, second.states
    of_first = [_left(part, b).ravel() for part in (first.source, first.target)]
    of_second = [_right(part, a, b).ravel() for part in (second.source, second.target)]
    rate = np.concatenate((np.repeat(first.rate, b), np.repeat(second.rate + first.rates, a)))
    return Network(
        np.concatenate((of_first[0], of_second[0])),
        np.concatenate((of_first[1], of_second[1])),
        rate,
        np.concatenate((np.repeat(first.times, b), np.repeat(second.times, a))),
        (first.level[:, None] + second.level[None, :]).ravel(),
        first.rates + second.rates,
        tuple(
            one.moved(_left(one.start, b).ravel(), _copies(_left(one.states, b)), 0)
            for one in first.entries
        )
        + tuple(
            one.moved(
                _right(one.start, a, b).ravel(), _copies(_right(one.states, a, b)), first.rates
            )
            for one in second.entries
        ),
    )


def _left(state: Ints, b: int) -> Ints:
    """States of a product for states of its first part, with every state of the second."""
    return state[..., None] * b + np.arange(b)


def _right(state: Ints, a: int, b: int) -> Ints:
    """States of a product for states of its second part, with every state of the first."""
    return state[..., None] + b * np.arange(a)


def _copies(states: Ints) -> Ints:
    """Turn (n, f, c) into (n c, f)."""
    return states.transpose(0, 2, 1).reshape(-1, states.shape[1])


def forked(branches: Sequence[Network], lead_ms: Sequence[float]) -> Network:
    """Run branches side by side, each ahead of the last one to start by some time."""
    joined, firsts = branches[0], [0]
    for other in branches[1:]:
        firsts.append(joined.rates)
        joined = side_by_side(joined, other)
    if not any(lead > 0.0 for lead in lead_ms):
        return joined
    entry = Entry(
        np.zeros(1, dtype=np.int64), 1 + np.arange(joined.states)[None, :],
        tuple(zip(firsts, branches, lead_ms, strict=True)),
    )  # fmt: skip
    inner = (one.moved(one.start + 1, one.states + 1, 0) for one in joined.entries)
    # a state of its own before the others: who is inside must not be sent to the start again
    return replace(
        joined,
        source=joined.source + 1,
        target=joined.target + 1,
        level=cast(Ints, np.concatenate(([0], joined.level))),
        entries=(*inner, entry),
    )
