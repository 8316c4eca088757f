"""The cooperative form: the most normalised throughput of all such that nobody envies anybody."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.oef.envy import Envy, envy_of
from apportion.formulations.training.oef.menus import (
    BROKEN,
    MOST_ROUNDS,
    best_menu,
    distinct,
    first_pairs,
    neighbours,
    repaired,
)
from apportion.formulations.training.oef.noncooperative import Found, largest_sum
from apportion.formulations.training.oef.relaxation import FLOOR, Relaxation
from apportion.instances.columns import Floats, Ints
from apportion.solver import (
    Axis,
    Budget,
    Classes,
    Model,
    ModelBuilder,
    ModelError,
    NoSolutionError,
    UncertifiedError,
    identical_rows,
)

FAIR = 1e-7
"""Largest envy of an answer, in mean utilities, over all pairs."""

SMALL = 90
"""Up to so many classes the LP starts from neighbours alone; beyond, from a part of the users."""

PART = 4
"""One class in so many is in the smaller problem that gives the first menu."""

NEIGHBOURS = 3
"""Rows between each user and so many like it, beside those that a menu gives."""

PER_ROUND = 2
"""Worst rows that each user and each bundle adds in a round."""

_STOPPED = "Time limit reached"
"""What an LP says that was stopped by the clock."""

COARSE_GAP = 1e-6
"""Gap to which the smaller problem is solved: its bundles are only a start."""


@dataclass(frozen=True, eq=False)
class Merged:
    """Users with the same speeds and the same cap per weight as one, in units of mean bundles.

    Exact: the weighted mean of their bundles keeps all rows and the objective.

    Parameters
    ----------
    envy
        The classes.
    classes
        Who is in which.
    scale
        GPUs of each user per unit of its class's bundle, shape (users,).
    """

    envy: Envy
    classes: Classes
    scale: Floats

    def gpus(self, bundle: Floats) -> Floats:
        """GPUs of every user, from the bundles of the classes."""
        held = np.where(self.envy.speed > 0.0, bundle, 0.0)
        return self.classes.spread(held) * self.scale[:, None]


def merged(speed: Floats, weight: Floats, cap: Floats, capacity: Floats) -> Merged:
    """Merge identical users, and choose units in which the mean bundle is 1."""
    classes = identical_rows(speed, cap / weight)
    total = classes.total(weight)
    mean = float(total.mean()) if total.size else 1.0
    gpus = float(capacity.sum())
    unit = gpus / total.size if gpus > 0.0 else 1.0
    share = total / mean
    per_weight = (cap / weight)[classes.first] * mean / unit
    # a class cannot hold more than there is
    per_weight = np.where(per_weight * share < gpus / unit, per_weight, np.inf)
    envy = envy_of(speed[classes.first], share, per_weight, capacity / unit)
    return Merged(envy, classes, weight / mean * unit)


def cooperative(
    speed: Floats, weight: Floats, cap: Floats, capacity: Floats, *, budget: Budget, gap: float
) -> Found:
    """Find the envy-free shares of largest normalised throughput.

    Envy is of bundles per weight, and with caps of what a user could use of them; see ``envy_of``.

    Parameters
    ----------
    speed
        Relative speeds, each user can run somewhere, shape (u, k).
    weight, cap
        Shape (u,); caps in GPUs, infinite where there is none.
    capacity
        GPUs of each type, shape (k,).
    budget
        Deadline; whenever it falls the answer is free of envy.
    gap
        Relative gap at which to stop.

    Returns
    -------
    Found
        ``proved`` where value and bound meet within the gap.
    """
    if not weight.size or not capacity.any():
        return Found(np.zeros_like(speed), 0.0, 0.0, proved=True)
    whole = merged(speed, weight, cap, capacity)
    search = _Search(whole.envy)
    search.run(budget, gap)
    gpus = whole.gpus(search.best)
    # units: worth of bundles per mean weight, so that only GPUs have to be converted
    value = float((speed * gpus).sum())
    unit = float(capacity.sum()) / float(whole.envy.capacity.sum())
    bound = min(search.bound * unit, largest_sum(speed, capacity))
    proved = bool(bound - value <= max(gap, FAIR) * abs(bound))
    return Found(
        gpus, value, max(bound, value), proved, time_limited=search.time_limited and not proved,
        rounds=search.rounds, rows=search.rows, note=search.note,
    )  # fmt: skip


class _Search:
    """Relaxations from above, menus from below."""

    def __init__(self, envy: Envy) -> None:
        self.envy = envy
        self.best, self.value = envy.fair, envy.value(envy.fair)
        self.bound, self.rounds, self.rows = np.inf, 0, 0
        self.time_limited, self.note = False, ""

    def run(self, budget: Budget, gap: float) -> None:
        """Search until bound and value meet, or the budget ends."""
        try:
            self._run(budget, gap)
        except (NoSolutionError, UncertifiedError, ModelError) as error:
            # an LP that the clock stopped says so an instant before the budget has ended
            self.time_limited = budget.expired() or _STOPPED in str(error)
            self.note = "" if self.time_limited else f"the search ended early: {error}"

    def _run(self, budget: Budget, gap: float) -> None:
        users = np.arange(self.envy.weight.size, dtype=np.int64)
        lp = Relaxation(self.envy, users)
        if users.size > SMALL:
            bundle, item_of = self._coarse(budget)
            lp.add(*first_pairs(self.envy, bundle, item_of))
            lp.add(*neighbours(self.envy, NEIGHBOURS))
        else:
            lp.add(*neighbours(self.envy, 2 * self.envy.capacity.size))
        for _ in range(MOST_ROUNDS):
            bundle = lp.solve(budget)
            self.rounds, self.rows, self.bound = lp.rounds, lp.rows, lp.bound
            excess = self.envy.excess(bundle, users)
            user, item = self._broken(bundle, excess)
            if not user.size:
                self._offer(bundle)
                return
            mended = repaired(self.envy, bundle, excess)
            if mended is not None:
                self._offer(mended)
            if self.bound - self.value <= gap * self.bound:
                return
            if not lp.add(user, item):
                raise UncertifiedError("rows that are in are broken")
        raise UncertifiedError(f"rows are still broken after {MOST_ROUNDS} rounds")

    def _coarse(self, budget: Budget) -> tuple[Floats, Ints]:
        """Solve for some of the users, and optimise the menu they have for all."""
        envy = self.envy
        loose = np.flatnonzero(~envy.capped)
        menu = envy.fair
        if loose.size > SMALL:
            # spread over all kinds of users, and the same whatever their order is
            pace = np.log(np.maximum(envy.speed[loose], 1.0)).sum(axis=1)
            order = loose[np.lexsort((*envy.speed[loose].T, pace))]
            some = order[PART // 2 :: PART]
            taken = np.einsum("i,ij->j", envy.weight[envy.capped], envy.fair[envy.capped])
            left = np.maximum(envy.capacity - taken, 0.0)
            part = float(envy.weight[some].sum() / envy.weight[loose].sum())
            small = _Search(
                envy_of(envy.speed[some], envy.weight[some], envy.cap[some], left * part)
            )
            small.run(budget, COARSE_GAP)
            menu = small.best
        bundle, item_of = best_menu(envy, distinct(menu), budget)
        self._offer(bundle)
        return bundle, item_of

    def _broken(self, bundle: Floats, excess: Floats) -> tuple[Ints, Ints]:
        """Worst rows of each user and of each bundle that are broken."""
        own = self.envy.own(bundle)
        limit = BROKEN * float(own.mean())
        short = np.flatnonzero(self.envy.floor - own > limit)
        user, item = [short], [np.full(short.size, FLOOR, dtype=np.int64)]
        most, users = min(PER_ROUND, excess.shape[0]), np.arange(excess.shape[0], dtype=np.int64)
        by_user = np.argpartition(-excess, most - 1, axis=1)[:, :most].ravel()
        by_item = np.argpartition(-excess, most - 1, axis=0)[:most].ravel()
        for who, what in ((np.repeat(users, most), by_user), (by_item, np.tile(users, most))):
            broken = excess[who, what] > limit
            user.append(who[broken])
            item.append(what[broken])
        return np.concatenate(user), np.concatenate(item)

    def _offer(self, bundle: Floats) -> None:
        """Take bundles that are better than those at hand, if they keep every rule."""
        bundle = np.where(self.envy.speed > 0.0, bundle, 0.0)
        value = self.envy.value(bundle)
        if value > self.value and self.envy.worst(bundle) <= FAIR:
            self.best, self.value = bundle, value


def cooperative_model(envy: Envy, names: list[str], types: list[str]) -> Model:
    """Write the model down with a row for every pair.

    Columns ``bundle[user, type]`` are GPUs per weight; rows ``capacity[type]``, ``demand[user]``,
    ``fair_share[user]`` and ``envy[user, other]``.

    Parameters
    ----------
    envy
        Users, or classes of them.
    names, types
        Labels.
    """
    users, kinds = envy.speed.shape
    builder = ModelBuilder("oef-cooperative")
    by_user, by_type = Axis("user", names), Axis("type", types)
    user: Ints = np.arange(users, dtype=np.int64)[:, None]
    kind: Ints = np.arange(kinds, dtype=np.int64)[None, :]
    upper = np.where(envy.speed > 0.0, envy.capacity / envy.weight[:, None], 0.0)
    y = builder.columns("bundle", (users, kinds), upper=upper, axes=(by_user, by_type))
    builder.rows(
        "capacity", kinds, row=kind, column=y, value=envy.weight[:, None], upper=envy.capacity,
        axes=(by_type,),
    )  # fmt: skip
    builder.rows("demand", users, row=user, column=y, value=1.0, upper=envy.cap, axes=(by_user,))
    builder.rows(
        "fair_share", users, row=user, column=y, value=envy.speed, lower=envy.floor,
        axes=(by_user,),
    )  # fmt: skip
    one, other = np.nonzero(~np.eye(users, dtype=np.bool_))
    row = np.arange(one.size)[:, None]
    builder.rows(
        "envy", one.size,
        row=np.hstack((np.repeat(row, kinds, axis=1),) * 2),
        column=np.hstack((y[one], y[other])),
        value=np.hstack((envy.speed[one], -envy.judged[one])), lower=envy.base[one],
        axes=(Axis("user", names, codes=one), Axis("other", names, codes=other)),
    )  # fmt: skip
    worth = envy.weight[:, None] * envy.speed
    builder.objective("normalised_throughput", column=y, value=worth, maximise=True)
    return builder.build()
