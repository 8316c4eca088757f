"""The cheapest matching of jobs with places in the queues of identical machines.

Source: AlloX (Le et al., EuroSys 2020); a job that is q-th from the last on its machine delays q
jobs, itself among them. Machines of one type are interchangeable, so that place q of a type is one
column that holds as many jobs as there are machines: a transportation problem, whose optima are
whole. Columns and arcs are added as prices ask for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apportion.instances import Budget
from apportion.instances.columns import Bools, Floats, Ints

COST_BITS = 40
"""Costs are rounded to 2^-40 of the largest: far below any measurement, and within 64 bits even
when the code multiplies them by the number of nodes."""

DENSE = 200_000
"""Arcs up to which all are given at once; a flow of that size takes about a tenth of a second."""

ROUNDS = 30
"""Pricing rounds; three to six are usual, and the bound is true after each."""

ARC_S = 2e-6
"""Seconds a flow takes for an arc, measured with room to spare: what does not fit is not begun."""

PROOF = 1e-9
"""Relative distance of value and bound that counts as none: well above the rounding of costs."""


@dataclass(frozen=True, eq=False)
class Queues:
    """Jobs and machines.

    Parameters
    ----------
    duration
        Time of each job on a machine of each type, positive, infinite where it cannot run, shape
        (n, k). Every job can run somewhere.
    machines
        Machines of each type, shape (k,).
    """

    duration: Floats
    machines: Ints

    def ranks(self, kind: Ints) -> Ints:
        """Place from the end of each job, when the shortest go first on every type, from 1 on."""
        own = self.duration[np.arange(kind.size), kind]
        order = np.lexsort((np.arange(kind.size), -own, kind))
        start = np.searchsorted(kind[order], np.arange(self.machines.size))
        out = np.empty(kind.size, dtype=np.int64)
        out[order] = np.arange(kind.size) - start[kind[order]]
        return out // np.maximum(self.machines[kind], 1) + 1

    def value(self, kind: Ints) -> float:
        """Sum of completion times of jobs put on types, each machine the shortest job first."""
        own = self.duration[np.arange(kind.size), kind]
        return float(self.ranks(kind) @ own)

    def bound(self, prices: Sequence[Floats]) -> float:
        """What no matching is below, by prices of the places of each type from the end on.

        At any prices from 0 on: each job pays for its cheapest place, the sum of which less what
        all places together bring in is below every matching's cost. Places behind those that have
        a price are free, and of these the first one is the cheapest.
        """
        least = np.full(self.duration.shape[0], np.inf)
        income = 0.0
        for kind, given in enumerate(prices):
            if self.machines[kind] > 0:
                price = np.append(np.maximum(given, 0.0), 0.0)
                q = np.arange(1, price.size + 1)
                for at, own in zip(q.tolist(), price.tolist(), strict=True):
                    least = np.minimum(least, self.duration[:, kind] * at + own)
                income += float(price.sum()) * int(self.machines[kind])
        return float(least.sum()) - income

    def greedy(self) -> Ints:
        """Put jobs on types from the end, the longest first, each where it costs least."""
        machines = self.machines.tolist()
        count = [0] * len(machines)
        out = np.zeros(self.duration.shape[0], dtype=np.int64)
        shortest = self.duration.min(axis=1)
        order = np.argsort(-shortest, kind="stable")
        table = self.duration.tolist()
        for job in order.tolist():
            row = table[job]
            cost, kind = min(
                ((count[i] // machines[i] + 1) * time, i)
                for i, time in enumerate(row)
                if machines[i] > 0 and time < np.inf
            )
            del cost
            count[kind] += 1
            out[job] = kind
        return out


@dataclass(frozen=True, eq=False)
class Matched:
    """Types of all jobs, the sum of completion times, and what is proved.

    Parameters
    ----------
    kind
        Type of each job, shape (n,).
    value, bound
        Sum of completion times, and what no matching is below, or None.
    limited
        Whether time was short.
    prices
        Prices of the places of each type, from the end on, at which the bound holds.
    """

    kind: Ints
    value: float
    bound: float | None
    limited: bool = False
    prices: tuple[Floats, ...] | None = None

    @property
    def gap(self) -> float | None:
        """Relative distance of value and bound."""
        if self.bound is None:
            return None
        return max(0.0, self.value - self.bound) / self.value if self.value > 0.0 else 0.0


def match(queues: Queues, budget: Budget, gap: float = 0.0) -> Matched:
    """Find the cheapest matching, proved by prices of the places.

    Parameters
    ----------
    queues
        Jobs and machines.
    budget
        At its end the best matching so far is given.
    gap
        Relative distance of value and bound to stop at.
    """
    kind = queues.greedy()
    best = Matched(kind, queues.value(kind), None)
    if not kind.size:
        return Matched(kind, 0.0, 0.0, prices=tuple(np.zeros(0) for _ in queues.machines))
    arcs = _Arcs.around(queues, kind)
    for _ in range(ROUNDS):
        if budget.left_s() < arcs.job.size * ARC_S + 1e-3:
            return replace(best, limited=True)
        place = arcs.flow()
        if place is None:
            return best
        kind, given = arcs.kind_of(place), arcs.job.size
        arcs = arcs.with_arcs(_near(kind, queues.ranks(kind)))
        prices = arcs.prices(arcs.place_of(kind))
        bound, more = arcs.priced(prices)
        better = best.bound is None or bound > best.bound
        told = arcs.by_type(prices) if better else best.prices
        if queues.value(kind) > best.value:
            kind = best.kind
        value = queues.value(kind)
        best = Matched(kind, value, min(value, max(bound, best.bound or 0.0)), prices=told)
        arcs = arcs.with_arcs(more)
        if (best.gap or 0.0) <= max(PROOF, gap) or arcs.job.size == given:
            return best
    return best


@dataclass(frozen=True, eq=False)
class _Arc:
    """Pairs of job and place: place ``q`` from the end on type ``kind``."""

    job: Ints
    kind: Ints
    q: Ints


@dataclass(frozen=True, eq=False)
class _Arcs:
    """A transportation problem over some of the arcs; places are numbered type by type."""

    queues: Queues
    depth: Ints
    job: Ints
    place: Ints

    @classmethod
    def around(cls, queues: Queues, kind: Ints) -> _Arcs:
        """All places a little beyond those of a guess, or those near where each job would go."""
        n, k = queues.duration.shape
        count = np.bincount(kind, minlength=k)
        used = (queues.machines > 0) & np.isfinite(queues.duration).any(axis=0)
        depth = np.where(used, -(-count // np.maximum(queues.machines, 1)) + 2, 0)
        able = np.isfinite(queues.duration) & used
        empty = np.zeros(0, dtype=np.int64)
        out = cls(queues, depth, empty, empty)
        if float(able.sum(axis=0) @ depth) <= DENSE:
            deep: list[int] = depth.tolist()
            near = [_grid(np.flatnonzero(able[:, i]), i, deep[i]) for i in range(int(k))]
            return out.with_arcs(_joined(near))
        everyone: Ints = np.arange(int(n), dtype=np.int64)
        parts = [_Arc(everyone, kind, queues.ranks(kind))]
        for i in np.flatnonzero(used).tolist():
            rows = np.flatnonzero(able[:, i])
            ahead = np.sort(queues.duration[kind == i, i])
            behind = ahead.size - np.searchsorted(ahead, queues.duration[rows, i], side="right")
            q = behind // max(int(queues.machines[i]), 1) + 1
            parts += [
                _Arc(rows, np.full(rows.size, i), np.clip(q + step, 1, depth[i]))
                for step in (-1, 0, 1)
            ]
        return out.with_arcs(_joined(parts))

    def with_arcs(self, more: _Arc) -> _Arcs:
        """Add arcs, and places where they are deeper than all so far."""
        depth = self.depth.copy()
        np.maximum.at(depth, more.kind, more.q)
        old_kind, old_q = self._where(self.place)
        job = np.concatenate((self.job, more.job))
        kind, q = np.concatenate((old_kind, more.kind)), np.concatenate((old_q, more.q))
        first = np.concatenate(([0], np.cumsum(depth)))
        key = np.unique(job * int(first[-1]) + first[kind] + q - 1)
        return _Arcs(self.queues, depth, key // int(first[-1]), key % int(first[-1]))

    def _where(self, place: Ints) -> tuple[Ints, Ints]:
        """Type and position of places."""
        end = np.cumsum(self.depth)
        kind = np.searchsorted(end, place, side="right")
        return kind, place - (end - self.depth)[kind] + 1

    @property
    def cost(self) -> Floats:
        """Cost of each arc."""
        kind, q = self._where(self.place)
        return q * self.queues.duration[self.job, kind]

    @property
    def room(self) -> Ints:
        """Jobs that each place holds."""
        return np.repeat(self.queues.machines, self.depth)

    def kind_of(self, place: Ints) -> Ints:
        """Type of each job from its place."""
        return self._where(place)[0]

    def place_of(self, kind: Ints) -> Ints:
        """Place of each job when the shortest go first on every type."""
        return (np.cumsum(self.depth) - self.depth)[kind] + self.queues.ranks(kind) - 1

    def flow(self) -> Ints | None:
        """Place of each job at least cost over these arcs; None where there is none."""
        n, places, cost = self.queues.duration.shape[0], self.room.size, self.cost
        whole: Ints = np.round(cost * (2.0**COST_BITS / float(cost.max()))).astype(np.int64)
        # OR-Tools takes a while to import, and most callers never match
        from ortools.graph.python import min_cost_flow

        # the stubs of the code give arrays scalars for shapes
        network: Any = min_cost_flow.SimpleMinCostFlow()
        network.add_arcs_with_capacity_and_unit_cost(
            self.job, n + self.place, np.ones(whole.size, dtype=np.int64), whole
        )
        network.add_arcs_with_capacity_and_unit_cost(
            n + np.arange(places), np.full(places, n + places), self.room,
            np.zeros(places, dtype=np.int64),
        )  # fmt: skip
        network.set_nodes_supplies(np.arange(n), np.ones(n, dtype=np.int64))
        network.set_node_supply(n + places, -n)
        if network.solve() != network.OPTIMAL:
            return None
        taken = network.flows(np.arange(whole.size)) > 0
        out = np.full(n, -1, dtype=np.int64)
        out[self.job[taken]] = self.place[taken]
        return out

    def prices(self, place: Ints) -> Floats:
        """Prices of places at which nobody would rather be elsewhere on these arcs.

        The price of a place is the cheapest chain of moves from it to one that is not full, so
        these are the largest prices that hold; found by Bellman's recursion.
        """
        room = self.room
        free = np.bincount(place, minlength=room.size) < room
        own = np.full(place.size, np.nan)
        cost = self.cost
        here = place[self.job] == self.place
        own[self.job[here]] = cost[here]
        start, end = place[self.job[~here]], self.place[~here]
        rise = cost[~here] - own[self.job[~here]]
        order = np.lexsort((rise, end, start))
        start, end, rise = start[order], end[order], rise[order]
        first = np.flatnonzero(np.diff(start * room.size + end, prepend=-1))
        start, end, rise = start[first], end[first], rise[first]
        out = np.where(free, 0.0, np.inf)
        if not start.size:
            return np.zeros(room.size)
        heads = np.flatnonzero(np.diff(start, prepend=-1))
        for _ in range(room.size):
            reach = np.minimum.reduceat(rise + out[end], heads)
            new = out.copy()
            new[start[heads]] = np.minimum(new[start[heads]], reach)
            # below zero: a chain of moves pays, so that these arcs have a better flow
            if np.array_equal(new, out) or new.min() < -1e-9 * cost.max():
                break
            out = new
        most = out[np.isfinite(out)].max(initial=0.0)
        return np.clip(out, 0.0, most)

    def by_type(self, prices: Floats) -> tuple[Floats, ...]:
        """Prices of places, type by type."""
        return tuple(np.split(prices, np.cumsum(self.depth)[:-1]))

    def priced(self, prices: Floats) -> tuple[float, _Arc]:
        """Give the bound that prices prove over all places, and the arcs that would pay.

        Places deeper than the deepest are covered by one more, free of charge: deeper ones cost
        more and cannot have a lower price.
        """
        queues = self.queues
        n, k = queues.duration.shape
        least, at = np.full((n, k), np.inf), np.zeros((n, k), dtype=np.int64)
        first = np.concatenate(([0], np.cumsum(self.depth)))
        for i in np.flatnonzero(self.depth).tolist():
            price = np.append(prices[first[i] : first[i + 1]], 0.0)
            q = np.arange(1, price.size + 1)
            rows = np.flatnonzero(np.isfinite(queues.duration[:, i]))
            # the best place falls with the duration: only the lower hull of the prices matters
            total = queues.duration[rows, i][:, None] * q + price
            at[rows, i] = total.argmin(axis=1) + 1
            least[rows, i] = total[np.arange(rows.size), at[rows, i] - 1]
        best = least.min(axis=1)
        bound = float(best.sum() - prices @ self.room)
        known = np.full(n, np.inf)
        np.minimum.at(known, self.job, self.cost + prices[self.place])
        pays: Bools = least < (known - 1e-12 * np.abs(known))[:, None]
        job, kind = np.nonzero(pays)
        return bound, _Arc(job, kind, at[job, kind])


def _near(kind: Ints, q: Ints) -> _Arc:
    """Each job's own place, and those next to it."""
    job = np.arange(kind.size)
    return _joined([_Arc(job, kind, np.maximum(q + step, 1)) for step in (-1, 0, 1)])


def _grid(rows: Ints, kind: int, depth: int) -> _Arc:
    job = np.repeat(rows, depth)
    q: Ints = np.arange(1, depth + 1, dtype=np.int64)
    return _Arc(job, np.full(job.size, kind), np.tile(q, rows.size))


def _joined(parts: list[_Arc]) -> _Arc:
    return _Arc(
        np.concatenate([part.job for part in parts]),
        np.concatenate([part.kind for part in parts]),
        np.concatenate([part.q for part in parts]),
    )
