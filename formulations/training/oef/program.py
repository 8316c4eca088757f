"""OEF's round as a program: shares of users, whole GPUs, gangs."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from apportion.formulations.training.greedy import NOWHERE
from apportion.formulations.training.oef.cooperative import (
    Merged,
    cooperative,
    cooperative_model,
    merged,
)
from apportion.formulations.training.oef.memory import NOT_BINDING, Remembered
from apportion.formulations.training.oef.noncooperative import (
    Found,
    equal_split,
    largest_sum,
    levels,
    noncooperative,
    noncooperative_model,
)
from apportion.formulations.training.oef.placement import Placed, place_gangs
from apportion.formulations.training.oef.rounding import whole_gpus
from apportion.formulations.training.oef.users import Users, usable
from apportion.formulations.training.pinned import Pinned
from apportion.formulations.training.plain import joined, notes_on_hopeless
from apportion.instances import Budget, Decision, Stage
from apportion.instances.columns import Bools, Floats
from apportion.instances.policy import Column
from apportion.instances.training import Shares, TrainingRound
from apportion.solver import Budget as Deadline
from apportion.solver import Model, Solution, Solver, Status, relative_gap

MOST_CLASSES = 60
"""Classes up to which the cooperative model is written down: it has a row for each pair."""


@dataclass(frozen=True, eq=False)
class OEFProgram:
    """A compiled round.

    Parameters
    ----------
    form
        Name of the policy.
    round_
        The round.
    held
        Leases that go on, and the GPUs they leave.
    users
        Who shares.
    recalled
        What is known from the round before, or None.
    work_conserving
        Whether GPUs that nobody has a claim to go to whoever can use them.
    """

    form: str
    round_: TrainingRound
    held: Pinned
    users: Users
    recalled: Remembered | None
    work_conserving: bool

    @property
    def is_cooperative(self) -> bool:
        """Whether envy counts, or equality."""
        return self.form == "oef-cooperative"

    @cached_property
    def free(self) -> Floats:
        """GPUs to be shared, shape (k,)."""
        return self.held.free.astype(np.float64)

    @cached_property
    def able(self) -> Bools:
        """Types on which each job can be placed, shape (n, k)."""
        return usable(self.round_, self.held)

    @cached_property
    def merged(self) -> Merged:
        """Users with the same speeds and caps per weight as one."""
        users = self.users
        return merged(users.speed, users.weight, users.cap, self.free)

    @cached_property
    def model(self) -> Model | None:
        """The model with all its rows; None for cooperative rounds of many different users.

        The cooperative one speaks of classes of identical users, its bundles are per mean weight.
        """
        names, types = self.users.name, self.round_.cluster.types.tolist()
        if not self.is_cooperative:
            return noncooperative_model(*self._problem, names.tolist(), types)
        if not len(self.users) or self.merged.classes.first.size > MOST_CLASSES:
            return None
        return cooperative_model(
            self.merged.envy, names[self.merged.classes.first].tolist(), types
        )  # fmt: skip

    def with_gpus(self, kind: int, more: int) -> OEFProgram:
        """Give the program with so many GPUs more of a type, or less, for the same users."""
        free = self.held.free.copy()
        free[kind] += more
        return replace(self, held=replace(self.held, free=free), recalled=None)

    def value_of(self, solution: Solution) -> float | None:
        """Objective where that of the model is the one of a solution."""
        units = float(self.merged.envy.capacity.sum()) if self.is_cooperative else 0.0
        unit = float(self.free.sum()) / units if units > 0.0 else 1.0
        return solution.objective * unit

    @property
    def _problem(self) -> tuple[Floats, Floats, Floats, Floats]:
        users = self.users
        return users.speed, users.weight, users.cap, self.free

    def incumbent(self) -> Decision:
        """Share what was shared before where that still holds, else equally."""
        start = time.perf_counter()
        found = self._recalled() or self._at_hand()
        return self._decision(found, "incumbent", start, Solver().gap)

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Decide: shares anew where anything has changed, then whole GPUs and gangs."""
        start = time.perf_counter()
        found = self._recalled()
        if found is not None:
            return self._decision(found, "recalled", start, solver.gap)
        left_s = budget.left_s()
        if left_s <= 0.0:
            found = replace(self._at_hand(), time_limited=len(self.users) > 0)
            return self._decision(found, "incumbent", start, solver.gap)
        deadline = Deadline.of(None if left_s == np.inf else left_s)
        if self.is_cooperative:
            found = cooperative(*self._problem, budget=deadline, gap=solver.gap)
        else:
            found = noncooperative(*self._problem, budget=deadline)
        return self._decision(found, "lp", start, solver.gap)

    def _recalled(self) -> Found | None:
        if self.recalled is None:
            return None
        return self.recalled.found(self.users, self.free, bool(self._caps_press.any()))

    @cached_property
    def _caps_press(self) -> Bools:
        """Users whose cap binds when everybody has its fair share."""
        if not self.is_cooperative or not len(self.users):
            return np.zeros(len(self.users), dtype=np.bool_)
        return self.merged.classes.spread(self.merged.envy.capped.astype(np.float64)) > 0.0

    def _at_hand(self) -> Found:
        """Shares that keep every rule and cost nothing to find."""
        speed, weight, cap, free = self._problem
        if not len(self.users):
            return Found(np.zeros_like(speed), 0.0, 0.0, proved=True)
        most = largest_sum(speed, free)
        if self.is_cooperative:
            gpus = self.merged.gpus(self.merged.envy.fair)
            return Found(gpus, float((speed * gpus).sum()), most, proved=False)
        gpus = equal_split(speed, weight, cap, free)
        least = float(levels(speed, weight, gpus).min())
        return Found(gpus, least, most / float(weight.sum()), proved=False)

    def _decision(self, found: Found, stage: str, start: float, gap: float) -> Decision:
        ask = found.gpus
        if self.recalled is not None:
            ask = ask + self.recalled.owed_to(self.users, self.free.size)
        placed = place_gangs(
            self.round_, self.users, self.able, self.held.free, ask,
            whole_gpus(ask, self.held.free), work_conserving=self.work_conserving,
        )  # fmt: skip
        distance = relative_gap(found.value, max(found.value, found.bound))
        proved = found.proved and distance <= max(gap, NOT_BINDING)
        told = Stage(
            stage, time.perf_counter() - start, found.value, found.bound, distance, answered=True,
            note=f"{found.rounds} rounds, {found.rows} rows" if found.rounds else "",
        )  # fmt: skip
        return Decision(
            joined(self.held, placed.type_of_job, self.round_.jobs.gang),
            status=(Status.OPTIMAL if proved else Status.FEASIBLE).name,
            objective=found.value,
            bound=found.bound,
            gap=distance,
            shares=Shares(
                self.users.name, self.users.weight, found.gpus, self.users.of_job,
                whole_gang=False,
            ),
            carry=self._carry(found, ask, placed),
            per_job=self._columns(found, ask),
            stages=(told,),
            notes=self._notes(found, stage),
            time_limited=found.time_limited,
        )  # fmt: skip

    def _carry(self, found: Found, ask: Floats, placed: Placed) -> dict[str, Any]:
        """What ``remember`` needs: the memory but for the grants, and who runs without a claim."""
        users, total = self.users, found.gpus.sum(axis=1)
        binds = bool((total >= users.cap * (1.0 - NOT_BINDING)).any() or self._caps_press.any())
        memory = Remembered(
            self.form, users.name, users.weight, users.speed, users.cap, self.free, found.gpus,
            ask, found.value, found.bound, found.proved, binds,
        )  # fmt: skip
        return {**memory.to_memory(), "extra": np.flatnonzero(placed.extra)}

    def _columns(self, found: Found, ask: Floats) -> dict[str, Column]:
        """User of each job, and what the user has."""
        users, of_job = self.users, self.users.of_job
        name = np.append(users.name, "")
        per_user = {
            "user_gpus": found.gpus.sum(axis=1),
            "user_throughput": np.einsum("ij,ij->i", users.speed, found.gpus),
            "user_owed_gpus": (ask - found.gpus).sum(axis=1),
        }
        out: dict[str, Column] = {"user": name[of_job]}
        for key, column in per_user.items():
            out[key] = np.append(column, 0.0)[of_job]
        return out

    def _notes(self, found: Found, stage: str) -> tuple[str, ...]:
        notes = notes_on_hopeless(self.round_)
        if self.held.chosen:
            notes += ("reservations for any type were put on one before the rest was shared",)
        left_out = np.flatnonzero(
            self.held.open & self.round_.startable & (self.users.of_job == NOWHERE)
        )  # fmt: skip
        notes += tuple(
            f"job {str(self.round_.jobs.id[row])!r} has no part in the shares: its gang does not"
            " fit beside the leases that go on"
            for row in left_out.tolist()
        )
        if stage == "recalled":
            notes += ("nothing that the shares depend on has changed: they are those of before",)
        if found.note:
            notes += (found.note,)
        return notes
