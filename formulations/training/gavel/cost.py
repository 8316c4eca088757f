"""Throughput for money, and throughput alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, cast

import numpy as np

from apportion.formulations.training.gavel.base import (
    Gavel,
    inside,
    notes_on_left_out,
    proved,
    raised,
)
from apportion.formulations.training.gavel.deadlines import (
    Deadlines,
    deadlines_of,
    fewest_dropped,
)
from apportion.formulations.training.gavel.pairs import Pairs
from apportion.formulations.training.gavel.worth import ratio_model, ratio_point, worth_model
from apportion.formulations.training.shared_proof import Merged
from apportion.formulations.training.time_share_program import Fractions, fractions_of
from apportion.formulations.training.time_shares import Sharers
from apportion.instances.columns import LARGEST, SMALLEST, Floats
from apportion.instances.errors import InstanceError
from apportion.solver import (
    Budget,
    Classes,
    Model,
    NoSolutionError,
    Solution,
    Solver,
    Status,
    identical_rows,
)

Units = Literal["paper", "normalised"]

RELAXED = 1e-6
"""Part of a deadline's speed that is given up where the deadlines a MILP keeps clash by its
tolerance; back ends work to 1e-6 there."""


@dataclass(frozen=True)
class GavelThroughput(Gavel):
    """Most throughput of all jobs together.

    Parameters
    ----------
    recompute_s, work_conserving
        As in ``Gavel``.
    units
        ``paper``: work units a second, whatever they are. ``normalised``: each job's in parts of
        its best, so that results do not depend on what a unit of work is.
    """

    name: ClassVar[str] = "gavel-throughput"
    units: Units = "paper"

    @classmethod
    def choices(cls) -> dict[str, tuple[str, ...]]:
        """Values of the parameters with a list of them."""
        return {"units": ("paper", "normalised")}

    @property
    def traits(self) -> frozenset[str]:
        """What a change of names, types or units leaves as it is."""
        held = {"permutation", "useless_type", "monotone_capacity"}
        return frozenset(held | ({"unit_homogeneous"} if self.units == "normalised" else set()))

    def worth(self, sharers: Sharers) -> Floats:
        """What the time of a job on a type is worth, shape (m, k)."""
        speed = sharers.speed
        return speed if self.units == "paper" else speed / speed.max(axis=1, keepdims=True)

    def fractions(self, sharers: Sharers, solver: Solver, budget: Budget) -> Fractions:
        """Share the free GPUs; identical jobs share columns."""
        worth = self.worth(sharers)
        classes = identical_rows(worth, sharers.speed, sharers.gang)
        x, proof = _most(sharers, worth, np.zeros(sharers.gang.size), classes, solver, budget)
        found = proof.found
        if x is None:
            raise NoSolutionError(f"throughput: {found.message}")
        bound = _bound(found, worth)
        return proved(
            x, self.value(sharers, x), bound, solver.gap, notes=notes_on_left_out(sharers),
            time_limited=found.time_limited, proof=proof,
        )  # fmt: skip

    def value(self, sharers: Sharers, x: Floats) -> float:
        """Throughput of all jobs together."""
        return float(np.vdot(self.worth(sharers), x))

    def model_of(self, sharers: Sharers) -> Model:
        """The LP; its objective is in parts of the largest worth of any pair."""
        pairs = Pairs.of(sharers, sharers.speed)
        return worth_model(
            pairs, self.worth(sharers), np.ones(sharers.gang.size), np.zeros(sharers.gang.size)
        )

    def bound_of(self, sharers: Sharers, solution: Solution) -> float | None:
        """Bound on the throughput from a solution of the model."""
        return _bound(solution, self.worth(sharers))


@dataclass(frozen=True)
class GavelCost(Gavel):
    """Most throughput for money, with deadlines as rules.

    Parameters
    ----------
    recompute_s, work_conserving
        As in ``Gavel``. False here by default: idle GPUs cost nothing.
    prices
        Price of a GPU of each type and unit of time by name, or as text ``"V100=3,K80=1"``; None:
        1 everywhere.
    form
        ``code``: the sum of throughput over the type's price, as in Gavel's code. ``ratio``:
        throughput of all jobs over the money all their gangs cost.
    deadlines
        Where those of SLO jobs cannot all be kept: ``fewest`` are given up and named, or ``all``
        as in Gavel's code. ``ignored``: nobody asks for them.
    units
        ``paper``: work units a second. ``normalised``: in parts of each job's best.
    """

    name: ClassVar[str] = "gavel-cost"

    work_conserving: bool = False
    prices: Mapping[str, float] | str | None = field(default=None, hash=False)
    form: Literal["code", "ratio"] = "code"
    deadlines: Literal["fewest", "all", "ignored"] = "fewest"
    units: Units = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prices is not None:
            self.__dict__["prices"] = _prices(self.prices)

    @classmethod
    def choices(cls) -> dict[str, tuple[str, ...]]:
        """Values of the parameters with a list of them."""
        return {
            "form": ("code", "ratio"),
            "deadlines": ("fewest", "all", "ignored"),
            "units": ("paper", "normalised"),
        }

    @property
    def traits(self) -> frozenset[str]:
        """What a change of names, types or units leaves as it is.

        With prices a type that they do not name is refused; with more GPUs more deadlines are kept,
        at the cost of throughput.
        """
        held = {
            "permutation": True,
            "monotone_capacity": self.deadlines == "ignored",
            "useless_type": self.prices is None,
            "unit_homogeneous": self.units == "normalised",
        }
        return frozenset(trait for trait, holds in held.items() if holds)

    def price(self, sharers: Sharers) -> Floats:
        """Price of each type, shape (k,).

        Raises
        ------
        InstanceError
            On a type without a price, where there are prices.
        """
        kinds = sharers.round_.cluster.types.tolist()
        if self.prices is None:
            return np.ones(len(kinds))
        prices = _prices(self.prices)
        for kind in kinds:
            if kind not in prices:
                raise InstanceError(f"gavel-cost.prices: has no price of type {kind!r}")
        return np.array([prices[kind] for kind in kinds])

    def worth(self, sharers: Sharers) -> Floats:
        """What the time of a job on a type is worth before or after its price, shape (m, k)."""
        speed = sharers.speed
        worth = speed if self.units == "paper" else speed / speed.max(axis=1, keepdims=True)
        return worth / self.price(sharers) if self.form == "code" else worth

    def fractions(self, sharers: Sharers, solver: Solver, budget: Budget) -> Fractions:
        """Share the free GPUs; identical jobs share columns."""
        asked = self._asked(sharers)
        x, proof = self._best(sharers, asked.need, solver, budget)
        # the model of all jobs has all deadlines, and is one of sums
        of_model = self.form == "code" and proof.found.status is not Status.INFEASIBLE
        if proof.found.status is Status.INFEASIBLE:
            asked = self._fewer(sharers, asked, solver, budget)
            x, proof = self._best(sharers, asked.need, solver, budget)
        if proof.found.status is Status.INFEASIBLE:
            x, proof = self._best(sharers, asked.need * (1.0 - RELAXED), solver, budget)
        found = proof.found
        if x is None:
            raise NoSolutionError(f"cost: {found.message}")
        x = inside(sharers, raised(x, sharers.speed, asked.need))
        answer = proved(
            x, self.value(sharers, x), self.bound_of(sharers, found), solver.gap,
            notes=(*asked.notes(sharers), *notes_on_left_out(sharers)),
            time_limited=found.time_limited, proof=proof if of_model else None,
        )  # fmt: skip
        return answer if asked.proved else replace(answer, status=Status.FEASIBLE.name)

    def _asked(self, sharers: Sharers) -> Deadlines:
        if self.deadlines == "ignored":
            nobody = np.zeros(sharers.gang.size, dtype=np.bool_)
            return Deadlines(np.zeros(sharers.gang.size), nobody, nobody)
        asked = deadlines_of(sharers)
        if self.deadlines == "all" and asked.dropped.any():
            return _none_of(asked)
        return asked

    def _fewer(
        self, sharers: Sharers, asked: Deadlines, solver: Solver, budget: Budget
    ) -> Deadlines:
        if self.deadlines == "all":
            return _none_of(asked)
        return fewest_dropped(sharers, Pairs.of(sharers, sharers.speed), asked, solver, budget)

    def _best(
        self, sharers: Sharers, need: Floats, solver: Solver, budget: Budget
    ) -> tuple[Floats | None, Merged]:
        worth = self.worth(sharers)
        classes = identical_rows(worth, sharers.speed, sharers.gang, need)
        if self.form == "code":
            return _most(sharers, worth, need, classes, solver, budget)
        some = classes.first
        pairs = Pairs.of(sharers, sharers.speed, classes)
        model = ratio_model(
            pairs, worth[some] / worth.max(), classes.count, need[some], self.price(sharers)
        )
        found = Merged(model, solver.solve(model, budget=budget), classes)
        if found.found.point is None:
            return None, found
        return classes.spread(ratio_point(pairs, found.found)), found

    def value(self, sharers: Sharers, x: Floats) -> float:
        """Throughput over price, summed; or throughput over cost, 0 where nobody runs."""
        gain = float(np.vdot(self.worth(sharers), x))
        if self.form == "code":
            return gain
        cost = float(sharers.gang @ x @ self.price(sharers))
        return gain / cost if cost > 0.0 else 0.0

    def model_of(self, sharers: Sharers) -> Model | None:
        """The LP with all deadlines that can be kept one by one; None for the ratio form."""
        if self.form == "ratio":
            return None
        pairs = Pairs.of(sharers, sharers.speed)
        need = self._asked(sharers).need
        return worth_model(pairs, self.worth(sharers), np.ones(need.size), need)

    def bound_of(self, sharers: Sharers, solution: Solution) -> float | None:
        """Bound on the objective from a solution of the model."""
        worth = self.worth(sharers)
        if self.form == "code":
            return _bound(solution, worth)
        bound = solution.bounds[0] if solution.bounds else None
        cheapest = cheapest_pair(sharers, self.price(sharers))
        return None if bound is None else float(bound) * float(worth.max()) / cheapest


def _prices(given: Mapping[str, float] | str) -> dict[str, float]:
    """Read prices by type, from text too."""
    pairs: dict[str, object] = {}
    if isinstance(given, str):
        for part in given.split(","):
            kind, _, price = part.partition("=")
            pairs[kind.strip()] = price
    elif isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        pairs.update(given)
    else:
        raise InstanceError(f"gavel-cost.prices = {given!r}: must be prices by type")
    out: dict[str, float] = {}
    for kind, price in pairs.items():
        try:
            out[kind] = float(cast(Any, price))
        except (TypeError, ValueError):
            out[kind] = np.nan
        if not SMALLEST <= out[kind] <= LARGEST:
            rule = f"must be a number from {SMALLEST:g} to {LARGEST:g}"
            raise InstanceError(f"gavel-cost.prices[{kind!r}] = {price}: {rule}")
    return out


def cheapest_pair(sharers: Sharers, price: Floats) -> float:
    """Least that any gang costs on any type it can use: the unit of cost in the ratio's model."""
    cost = sharers.gang[:, None] * price
    return float(cost[sharers.speed > 0.0].min())


def _none_of(asked: Deadlines) -> Deadlines:
    kept = np.zeros_like(asked.kept)
    return Deadlines(asked.speed, kept, asked.dropped | asked.kept)


def _most(
    sharers: Sharers, worth: Floats, need: Floats, classes: Classes, solver: Solver, budget: Budget
) -> tuple[Floats | None, Merged]:
    some = classes.first
    pairs = Pairs.of(sharers, sharers.speed, classes)
    model = worth_model(pairs, worth[some], classes.count, need[some])
    # the unit is that of all jobs, of which every class has one
    found = solver.solve(model, budget=budget)
    solved = Merged(model, found, classes)
    if found.point is None:
        return None, solved
    x = classes.spread(fractions_of(model, found, len(pairs.job), len(pairs.kinds)))
    return inside(sharers, x), solved


def _bound(solution: Solution, worth: Floats) -> float | None:
    return None if solution.bound is None else float(solution.bound) * float(worth.max())
