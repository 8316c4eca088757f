"""Proof that no plan of at most a given cost keeps every row, by tangents in the log means.

``-log F`` of a class is convex in ``nu = -log rate`` (Prekopa); on a box of its values the share of
requests that miss is above its chord, so that each row is above a convex function of nu, and every
tangent of that is a sum over microservices. The best plan of a tangent within a cost is found by
taking the largest decrements for their cost, for nu falls convexly in the containers.

Source: the method is described in the project's speed notes for Derm; several rows, general costs
and forks are ours: rows are combined by multipliers, which every tangent may choose anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from apportion.formulations.microservices.derm.requirements import Requirements
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import laws

BOUND_TOLERANCE = 1e-8
"""A row counts as missed beyond this share of its budget: above what contours and slopes err."""

_STEPS = np.array([1.0, 0.6, 0.35, 0.2, 0.1, 0.04])
_LEAST_MET = 1e-12  # logarithms of smaller probabilities say nothing
_CONVERGED = 1e-7
_PUSH = 2.0  # how fast multipliers follow the rows that are missed


@dataclass(frozen=True, eq=False)
class Box:
    """Bounds of the containers and of ``-log F`` of each class."""

    low: Ints
    high: Ints
    least: Floats
    most: Floats


@dataclass(frozen=True, eq=False)
class Verdict:
    """What is known of the plans of a box within a cost.

    ``state`` says that there is none, that ``plan`` is one, or that it is open; then the rest says
    where to split: the point the search ended at, its values, and what the chords give away.
    """

    state: Literal["none", "found", "open"]
    plan: Ints | None = None
    nu: Floats | None = None
    z: Floats | None = None
    given_away: Floats | None = None
    missing: float = 0.0


@dataclass(frozen=True, eq=False)
class _Chords:
    """Rows as ``constant + slope @ z``, relative to their budgets."""

    constant: Floats
    slope: Floats
    per_class: Floats


class TangentBound:
    """The bound for one set of requirements.

    In order of arrival all classes meet the same rate at a microservice; with an order among them
    each has its own, so that nu is of shape (M, 1) or (M, A).
    """

    def __init__(self, need: Requirements) -> None:
        self.need = need
        self.tails = need.tails
        self.used = np.flatnonzero(need.high > need.low)
        self.scale = 1.0 / need.budget
        self.calls = lanes(need)
        self.evaluations = 0

    def root(self) -> Box:
        """All plans."""
        count = self.tails.classes.size
        return Box(self.need.low, self.need.high, np.zeros(count), np.full(count, np.inf))

    def verdict(self, box: Box, cost: float, rounds: int) -> Verdict:
        """Look for a plan of a box within a cost, or show that there is none.

        Parameters
        ----------
        box
            Where to look.
        cost
            Most that the plan may cost.
        rounds
            Tangents to try.
        """
        need = self.need
        left = cost - need.value(box.low)
        if left < -BOUND_TOLERANCE * max(abs(cost), 1.0):
            return Verdict("none")
        low, high = box.low, self._reachable(box, left)
        values = self._values(low, high, box)
        if values is None:
            return Verdict("none")
        least, most = values
        chords = self._chords(least, most)
        steps = _Steps.of(need, self.used, self.calls, low, high, left)
        if not steps.any:
            kept = need.kept(low)
            return Verdict("found", low) if kept else Verdict("none")
        return self._search(low, least, most, chords, steps, rounds)

    def _reachable(self, box: Box, left: float) -> Ints:
        per = self.need.cost - self.need.churn_cost
        per = np.where(per > 0, per, self.need.cost)
        more = np.floor(left / per + BOUND_TOLERANCE)
        return cast(Ints, np.minimum(box.high, box.low + more.astype(np.int64)))

    def _values(self, low: Ints, high: Ints, box: Box) -> tuple[Floats, Floats] | None:
        """Bound ``-log F`` of each class on a box; None where no plan of it keeps every row."""
        need, phi = self.need, _missed
        top, bottom = need.met(high), need.met(low)
        self.evaluations += 2
        least = np.maximum(-np.log(np.maximum(top, _LEAST_MET)), box.least)
        most = np.minimum(-np.log(np.maximum(bottom, _LEAST_MET)), box.most)
        base = need.weight @ phi(least)
        room = need.budget - base
        if (room < -BOUND_TOLERANCE * need.budget).any() or (least > most + BOUND_TOLERANCE).any():
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.where(need.weight > 0, room[:, None] / need.weight, np.inf).min(axis=0)
        share = np.minimum(own + phi(least), 1.0)
        with np.errstate(divide="ignore"):
            cut = np.where(share < 1.0 - _LEAST_MET, -np.log1p(-share), np.inf)
        return least, np.maximum(np.minimum(most, cut), least)

    def _chords(self, least: Floats, most: Floats) -> _Chords:
        width = np.maximum(most - least, _LEAST_MET)
        slope = (_missed(least + width) - _missed(least)) / width
        weight = self.need.weight * self.scale[:, None]
        constant = weight @ (_missed(least) - slope * least) - 1.0
        return _Chords(constant, weight * slope, slope)

    def _search(
        self, low: Ints, least: Floats, most: Floats, chords: _Chords, steps: _Steps, rounds: int
    ) -> Verdict:
        """Frank and Wolfe's method on the chords, the multipliers following the rows."""
        need = self.need
        nu = self._nu(low)
        share = np.full(need.budget.size, 1.0 / need.budget.size)
        best: tuple[float, Ints] | None = None
        z, missing = least, 0.0
        for turn in range(rounds):
            met, slope = self.tails.met_and_slopes(np.exp(-nu))
            self.evaluations += 1
            raw = -np.log(np.maximum(met, _LEAST_MET))
            z = np.maximum(raw, least)
            rows = chords.constant + chords.slope @ z
            share = _pushed(share, rows)
            pull = np.where(raw >= least, share @ chords.slope, 0.0)
            gradient = -slope / np.maximum(met, _LEAST_MET) * pull
            if nu.shape[1] == 1:
                gradient = gradient.sum(axis=1, keepdims=True)
            target, plan = steps.best(gradient, nu, low)
            value = float(share @ rows)
            missing = value + float((gradient * (target - nu)).sum())
            if missing > BOUND_TOLERANCE:
                return Verdict("none")
            excess = float(need.excess(need.met(plan)).max())
            self.evaluations += 1
            if excess <= 0.0 and need.value(plan) <= steps.most_cost:
                return Verdict("found", plan)
            if best is None or excess < best[0]:
                best = (excess, plan)
            if value - missing < _CONVERGED:
                break
            nu = target if turn == 0 else self._stepped(nu, target, least, chords, share)
        given = (share * self.scale) @ need.weight
        away = given * (_missed(z) - _missed(least) - chords.per_class * (z - least))
        assert best is not None
        return Verdict("open", best[1], nu, z, away, -missing)

    def _nu(self, counts: Ints | Floats) -> Floats:
        rate = self.tails.rates(counts, self.need.rank)
        return cast(Floats, np.where(rate > 0, -np.log(np.where(rate > 0, rate, 1.0)), 0.0))

    def _stepped(
        self, nu: Floats, target: Floats, least: Floats, chords: _Chords, share: Floats
    ) -> Floats:
        way = target - nu
        met = self.tails.met_at(np.exp(-(nu + _STEPS[:, None, None] * way)))
        self.evaluations += _STEPS.size
        z = np.maximum(-np.log(np.maximum(met, _LEAST_MET)), least)
        values = z @ (share @ chords.slope)
        return nu + _STEPS[int(values.argmin())] * way


def lanes(need: Requirements) -> Floats:
    """Calls per second that each class meets at each microservice, shape (M, 1) or (M, A)."""
    round_ = need.round_
    if need.rank is None:
        return round_.calls_per_s[:, None]
    found = laws.loads(round_, np.ones(len(round_.microservices), dtype=np.int64), need.rank)
    return found[:, need.tails.classes]


def _missed(z: Floats) -> Floats:
    return cast(Floats, -np.expm1(-z))


def _pushed(share: Floats, rows: Floats) -> Floats:
    """Move multipliers towards the rows that are missed most."""
    if share.size == 1:
        return share
    spread = float(np.ptp(rows))
    if spread <= 0.0:
        return share
    out = np.maximum(share, 1e-6) * np.exp(_PUSH * (rows - rows.max()) / spread)
    return cast(Floats, out / out.sum())


@dataclass(frozen=True, eq=False)
class _Steps:
    """What each further container of a box takes off nu, and what it costs.

    ``cost`` is of shape (U, L) over the microservices that may grow and their steps, ``fall`` of
    shape (U, L, 1) or (U, L, A); steps that the box does not have take nothing off. ``origin`` is
    nu before the first step.
    """

    used: Ints
    origin: Floats
    fall: Floats
    cost: Floats
    left: float
    most_cost: float
    same_cost: float

    @classmethod
    def of(
        cls, need: Requirements, used: Ints, calls: Floats, low: Ints, high: Ints, left: float
    ) -> _Steps:
        """Tabulate the steps of a box within a cost."""
        grow = used[high[used] > low[used]]
        length = int((high[grow] - low[grow]).max(initial=0))
        count = low[grow][:, None] + np.arange(length + 1)
        counts = np.minimum(count, high[grow][:, None])
        own = need.round_.microservices
        load = calls[grow][:, None, :] / np.maximum(counts, 1)[:, :, None]
        rest, slope, light = (
            column[grow][:, None, None]
            for column in (own.rate_at_rest_per_ms, own.rate_slope_per_ms, own.least_load_per_s)
        )
        nu = -np.log(rest + slope * np.maximum(load, light))
        cost = np.repeat(need.cost[grow][:, None], length, axis=1)
        if need.churn_cost:
            cost = (
                cost + np.where(count[:, :-1] < need.before[grow][:, None], -1, 1) * need.churn_cost
            )
        same = float(cost.flat[0]) if cost.size and (cost == cost.flat[0]).all() else 0.0
        most = (left + need.value(low)) * (1.0 + BOUND_TOLERANCE)
        return cls(grow, nu[:, 0], nu[:, :-1] - nu[:, 1:], cost, max(left, 0.0), most, same)

    @property
    def any(self) -> bool:
        """Whether any container may be added."""
        return self.fall.size > 0

    def best(self, gradient: Floats, nu: Floats, low: Ints) -> tuple[Floats, Ints]:
        """Find where a tangent is least: the point in nu, with a broken last step, and a plan."""
        worth = (self.fall * gradient[self.used][:, None, :]).sum(axis=2)
        if self.same_cost > 0.0:
            taken, part = self._most_worth(worth)
        else:
            taken, part = self._most_worth_for_cost(worth)
        counts = taken.sum(axis=1)
        plan = low.copy()
        plan[self.used] += counts
        target = nu.copy()
        target[self.used] = self.origin - (self.fall * (taken + part)[:, :, None]).sum(axis=1)
        return target, plan

    def _most_worth(self, worth: Floats) -> tuple[Bools, Floats]:
        many = int(np.floor(self.left / self.same_cost * (1.0 + 1e-12) + 1e-9))
        flat = worth.ravel()
        taken = flat > 0.0
        if many < flat.size:
            chosen = np.argpartition(-flat, max(many - 1, 0))[:many]
            mask = np.zeros(flat.size, dtype=np.bool_)
            mask[chosen] = True
            taken &= mask
        return taken.reshape(worth.shape), np.zeros(worth.shape)

    def _most_worth_for_cost(self, worth: Floats) -> tuple[Bools, Floats]:
        flat, price = worth.ravel(), self.cost.ravel()
        order = np.argsort(-flat / price, kind="stable")
        spent = np.cumsum(price[order])
        whole = int(np.searchsorted(spent, self.left * (1.0 + 1e-12) + 1e-12, side="right"))
        taken = np.zeros(flat.size, dtype=np.bool_)
        taken[order[:whole]] = True
        taken &= flat > 0.0
        part = np.zeros(flat.size)
        if whole < flat.size and flat[order[whole]] > 0.0:
            before = spent[whole - 1] if whole else 0.0
            part[order[whole]] = (self.left - before) / price[order[whole]]
        return taken.reshape(worth.shape), part.reshape(worth.shape)
