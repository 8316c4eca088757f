"""Why jobs got what they got under policies that share: shares, turns, and the model's prices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from apportion.formulations.training import Pinned, pinned
from apportion.instances import Decision
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.training import Shares
from apportion.questions.explanation import Option, TypeUse
from apportion.questions.model_questions import ModelQuestions
from apportion.questions.what_if import Questions, shortened
from apportion.solver import Status

SOME = 5e-4
"""Parts of time below it are not worth a word."""


@runtime_checkable
class Ranked(Protocol):
    """A program that gives leases by priority."""

    def priority(self, decision: Decision) -> Floats:
        """Priority of each job on each type, the largest first, shape (n, k)."""
        ...


@dataclass(eq=False)
class SharedReasons:
    """A decided round, and its model where a single one says what was decided.

    Parameters
    ----------
    ask
        The round and its decision.
    model
        Its model, or None.
    """

    ask: Questions
    model: ModelQuestions | None

    @cached_property
    def held(self) -> Pinned:
        """Leases that go on, and the GPUs they leave."""
        return pinned(self.ask.round_)

    @cached_property
    def types(self) -> list[str]:
        """GPU types."""
        return self.ask.round_.cluster.types.tolist()

    @cached_property
    def own(self) -> Bools:
        """Entries of the plan beside the leases that go on."""
        return ~np.isin(self.ask.base.allocation.job, self.held.job)

    @cached_property
    def used(self) -> Ints:
        """GPUs of each type that the plan gives beside the leases that go on, shape (k,)."""
        plan = self.ask.base.allocation
        out = np.zeros(len(self.types), dtype=np.int64)
        np.add.at(out, plan.gpu_type[self.own], plan.gpus[self.own])
        return out

    @cached_property
    def able(self) -> Bools:
        """Where each job could run beside the leases that go on, shape (n, k)."""
        round_, held = self.ask.round_, self.held
        fits = round_.jobs.gang[:, None] <= held.free[None, :]
        return round_.eligible & fits & held.open[:, None]

    @cached_property
    def priority(self) -> Floats | None:
        """Priority of each job on each type, or None where leases do not go by one."""
        program = self.ask.program
        return program.priority(self.ask.base) if isinstance(program, Ranked) else None

    def types_of(self) -> tuple[TypeUse, ...]:
        """How much of each GPU type is wanted, and its price where the model has one."""
        prices = {} if self.model is None else self.model.prices_of_types()
        free, used = self.held.free.tolist(), self.used.tolist()
        return tuple(
            TypeUse(name, free[kind], used[kind], prices.get(name))
            for kind, name in enumerate(self.types)
        )

    def parts(self, row: int) -> dict[str, float]:
        """Part of the time that a job is meant to have on each type, where the policy says so."""
        shares: Shares | None = self.ask.base.shares
        if shares is None or not shares.whole_gang or shares.of_job[row] < 0:
            return {}
        time = shares.gpus[shares.of_job[row]] / float(self.ask.round_.jobs.gang[row])
        return {
            self.types[kind]: float(time[kind]) for kind in np.flatnonzero(time > SOME).tolist()
        }

    def why(self, row: int, kind: int | None) -> str:
        """Say what a job is meant to have, what it has in this round and why, and what binds."""
        if row in self.held.job.tolist():
            return "its lease goes on, or it holds a reservation"
        texts = [self._meant(row), self._turn(row, kind), self._binding(row)]
        return "; ".join(text for text in texts if text)

    def _meant(self, row: int) -> str:
        shares: Shares | None = self.ask.base.shares
        if shares is None or shares.of_job[row] < 0:
            return ""
        if shares.whole_gang:
            parts = [f"{part:.3g} of the time on {name}" for name, part in self.parts(row).items()]
            return f"is meant to have {' and '.join(parts) or 'no time'}"
        user = int(shares.of_job[row])
        gpus = [
            f"{shares.gpus[user, kind]:.3g} GPUs of {name}"
            for kind, name in enumerate(self.types)
            if shares.gpus[user, kind] > SOME
        ]
        name = str(shares.user[user])
        return f"its user {name!r} is meant to have {' and '.join(gpus) or 'nothing'} at a time"

    def _turn(self, row: int, kind: int | None) -> str:
        gang = int(self.ask.round_.jobs.gang[row])
        if kind is not None:
            return f"runs on {self.types[kind]} in this round"
        if not self.held.open[row]:
            return "may not start while a reservation lies ahead, since it could not be stopped"
        if not self.able[row].any():
            return f"no type it runs on has {gang} GPUs free beside the leases that go on"
        meant = [self.types.index(name) for name in self.parts(row)]
        wanted = [at for at in meant if self.able[row, at]] or np.flatnonzero(
            self.able[row]
        ).tolist()
        return "waits: " + ", and ".join(self._behind(row, at, gang) for at in wanted)

    def _behind(self, row: int, kind: int, gang: int) -> str:
        """Say who has the GPUs of a type, or that the gang does not fit beside them."""
        plan, ids = self.ask.base.allocation, self.ask.round_.jobs.id
        left = int(self.held.free[kind] - self.used[kind])
        there = plan.job[self.own & (plan.gpu_type == kind)]
        name = self.types[kind]
        if gang <= left:
            return f"{left} GPUs of {name} are left idle by the policy's own rules"
        room = f"{left} of {int(self.held.free[kind])} GPUs are left, its gang needs {gang}"
        if self.priority is None:
            return f"the GPUs of {name} went to {shortened(ids[there].tolist())} ({room})"
        rank = self.priority[:, kind]
        first = there[rank[there] >= rank[row]]
        if not first.size:
            return f"its gang does not fit on {name} beside those placed elsewhere first ({room})"
        return f"on {name} it is behind {shortened(ids[first].tolist())} ({room})"

    def _binding(self, row: int) -> str:
        if self.model is None:
            return ""
        shares: Shares | None = self.ask.base.shares
        found = self.model.binding("job", str(self.ask.round_.jobs.id[row]))
        if shares is not None and not shares.whole_gang and shares.of_job[row] >= 0:
            user = str(shares.user[shares.of_job[row]])
            found = found + self.model.binding("user", user) + self.model.binding("tenant", user)
        return f"what binds: {', '.join(found)}" if found else ""

    def best_forced(self, row: int) -> str:
        """Tell the least that it takes to let a waiting job run."""
        tried = [
            one
            for one in self.options(row, waiting=False)
            if one.possible and one.objective_change is not None
        ]
        if not tried or self.model is None:
            return ""
        best = min(tried, key=lambda one: self._loss(one.objective_change))
        how = "all the time " if self.model.model.is_lp else ""
        return f"; forced {how}onto {best.gpu_type}: objective {best.objective_change:+.4g}"

    def _loss(self, change: float | None) -> float:
        """What a change takes away, whichever way the policy's objective points."""
        assert self.model is not None
        better = self.model.model.objectives[0].sign * np.sign(self.model.slope)
        return better * (change or 0.0)

    def options(self, row: int, *, waiting: bool = True) -> tuple[Option, ...]:
        """What it would take to give a job each type, or no time at all, by the model."""
        if self.model is None or not self.model.solved:
            return ()
        round_, model = self.ask.round_, self.model
        job, gang = str(round_.jobs.id[row]), int(round_.jobs.gang[row])
        prices = model.prices_of_types()
        if not model.columns_of(job) and self.able[row].any():
            return ()
        out: list[Option] = []
        for kind, name in enumerate(self.types):
            price = prices[name] * gang if name in prices else None
            if not self.able[row, kind]:
                out.append(Option(name, False, price=price, reason=self._barred(row, kind, gang)))
                continue
            out.append(self._option(row, kind, name, price))
        if waiting and self.able[row].any():
            out.append(self._option(row, None, None, 0.0))
        return tuple(out)

    def _option(self, row: int, kind: int | None, name: str | None, price: float | None) -> Option:
        assert self.model is not None
        job: Any = str(self.ask.round_.jobs.id[row])
        moved = self.model.forced(job, None if kind is None else self.types[kind])
        if moved is None:
            return Option(name, False, price=price, reason="the model has no such choice")
        if moved.status in (Status.INFEASIBLE, Status.NO_SOLUTION):
            reason = f"{moved.status.name}: no plan obeys all rules then"
            return Option(name, False, price=price, reason=reason)
        reason = "what it got" if self.ask.kind_of(row) == kind else ""
        if self.model.model.is_lp:
            reason = "no time at all" if kind is None else "all the time"
        return Option(name, True, None, price, moved.change, reason=reason)

    def _barred(self, row: int, kind: int, gang: int) -> str:
        if row in self.held.job.tolist():
            return "its lease goes on"
        if not self.ask.round_.eligible[row, kind]:
            return "it cannot run there"
        if not self.held.open[row]:
            return "it may not start while a reservation lies ahead"
        return f"{int(self.held.free[kind])} GPUs are free, its gang needs {gang}"
