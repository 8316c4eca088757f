"""Which reservations cannot be kept together, by a small model of those that have begun."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from apportion.instances.columns import Floats, Ints
from apportion.instances.training import TrainingRound
from apportion.questions.conflicts import Impossible, conflict_of
from apportion.questions.wording import Words
from apportion.solver import Axis, Budget, Model, ModelBuilder, Solver


def clash(round_: TrainingRound, solver: Solver, budget: Budget) -> Impossible:
    """Say why the reservations that have begun cannot all be kept.

    The cheapest way out is in GPUs; giving a reservation up counts as one GPU more than it holds.

    Parameters
    ----------
    round_
        A round whose reservations clash with each other, with leases that go on, or with what is
        in service.
    solver, budget
        How to search, and until when.
    """
    promises = Promises(round_)
    model = promises.model
    words = PromiseWords(promises, model, model)
    return conflict_of(model, words, solver, budget, promises.weights)


@dataclass(frozen=True, eq=False)
class Promises:
    """The reservations that have begun, and the leases that may not be stopped.

    Parameters
    ----------
    round_
        The round.
    """

    round_: TrainingRound

    @cached_property
    def entries(self) -> Ints:
        """Reservations that have begun."""
        return self.round_.commitments.active(self.round_.now_s)

    @cached_property
    def keeps(self) -> Ints:
        """Jobs that go on where they are: not to be stopped, or with a guaranteed lease."""
        jobs = self.round_.jobs
        sure = jobs.guaranteed & (jobs.lease_end_s > self.round_.now_s)
        return np.flatnonzero(jobs.running & ~self.round_.stranded & (~jobs.preemptible | sure))

    @cached_property
    def reserved(self) -> Ints:
        """Jobs with a reservation that has begun."""
        return np.unique(self.round_.commitments.job[self.entries])

    @cached_property
    def amount(self) -> Ints:
        """GPUs that each of the reserved jobs needs for all that it was promised."""
        promised = self.round_.commitments
        most = self.round_.jobs.gang.copy()
        np.maximum.at(most, promised.job[self.entries], promised.gpus[self.entries])
        return most[self.reserved]

    @cached_property
    def options(self) -> tuple[Ints, Ints, Ints]:
        """Job, type and GPUs of every way to run: leases as they are, then all types."""
        jobs, k = self.round_.jobs, self.round_.cluster.types.size
        return (
            np.concatenate((self.keeps, np.repeat(self.reserved, k))),
            np.concatenate((jobs.previous_type[self.keeps], np.tile(np.arange(k), len(self.reserved)))),
            np.concatenate((jobs.held_gpus[self.keeps], np.repeat(self.amount, k))),
        )  # fmt: skip

    @cached_property
    def barred(self) -> Ints:
        """Options on types where the job cannot run, however many GPUs there were."""
        job, kind, gpus = self.options
        jobs, capacity = self.round_.jobs, self.round_.capacity
        bad = ~self.round_.eligible[job, kind]
        bad &= (jobs.throughput_per_s[job, kind] <= 0.0) | (gpus <= capacity[kind])
        bad[: self.keeps.size] = False
        return np.flatnonzero(bad)

    @cached_property
    def model(self) -> Model:
        """Columns ``x[job, type]``; rows by entry, by lease, by job, by barred option, by type."""
        job, kind, gpus = self.options
        promised, types = self.round_.commitments, self.round_.cluster.types.tolist()
        ids = self.round_.jobs.id.tolist()
        builder = ModelBuilder("reservations")
        x = builder.columns(
            "x", job.size, upper=1.0, integer=True,
            axes=(Axis("job", ids, codes=job), Axis("type", types, codes=kind)),
        )  # fmt: skip
        serves = (
            (job[None, :] == promised.job[self.entries, None])
            & (gpus[None, :] >= promised.gpus[self.entries, None])
            & (
                (promised.gpu_type[self.entries, None] < 0)
                | (kind[None, :] == promised.gpu_type[self.entries, None])
            )
        )
        at, option = np.nonzero(serves)
        builder.rows(
            "reservation", self.entries.size, row=at, column=x[option], value=1.0, lower=1.0
        )
        builder.rows(
            "lease", self.keeps.size, row=np.arange(self.keeps.size),
            column=x[: self.keeps.size], value=1.0, lower=1.0,
        )  # fmt: skip
        builder.rows(
            "one_type", len(ids), row=job, column=x, value=1.0, upper=1.0, axes=(Axis("job", ids),)
        )
        builder.rows(
            "barred", self.barred.size, row=np.arange(self.barred.size),
            column=x[self.barred], value=1.0, upper=0.0,
        )  # fmt: skip
        builder.rows(
            "capacity", len(types), row=kind, column=x, value=gpus, upper=self.round_.capacity,
            axes=(Axis("type", types),),
        )  # fmt: skip
        builder.objective("nothing", column=x, value=0.0)
        return builder.build()

    @cached_property
    def weights(self) -> Floats:
        """Price of moving a side of each row: GPUs for types, more for promises, else infinite."""
        out = np.full(self.model.row_count, np.inf)
        for block in self.model.row_blocks:
            if block.name == "capacity":
                out[block.start : block.stop] = 1.0
            elif block.name == "reservation":
                gpus = self.amount[
                    np.searchsorted(self.reserved, self.round_.commitments.job[self.entries])
                ]
                out[block.start : block.stop] = 1.0 + gpus
        return out


@dataclass(frozen=True, eq=False)
class PromiseWords(Words):
    """Rows of the model of reservations as texts; the program is the ``Promises``."""

    def told(self, row: int) -> str:
        """Say what a row demands."""
        promises: Promises = self.program
        block = next(one for one in self.model.row_blocks if one.start <= row < one.stop)
        place = row - block.start
        match block.name:
            case "reservation":
                return self._reservation(int(promises.entries[place]))
            case "lease":
                return self._lease(int(promises.keeps[place]))
            case "barred":
                job, kind, _ = promises.options
                at = int(promises.barred[place])
                return (
                    f"job {self._job(int(job[at]))} cannot run on type {self._type(int(kind[at]))}"
                )
            case "one_type":
                return f"job {self._job(place)} runs on one GPU type at a time"
            case _:
                there = int(promises.round_.capacity[place])
                return f"capacity of GPU type {self._type(place)}: {there} in service"

    def of_change(self, row: int, before: float, after: float) -> str:
        """Say what has to give."""
        block = next(one for one in self.model.row_blocks if one.start <= row < one.stop)
        if block.name == "reservation":
            return f"give up the {self.told(row)}"
        kind = self._type(row - block.start)
        return f"capacity of GPU type {kind}: {before:g} -> {after:g}"

    def _job(self, row: int) -> str:
        return repr(str(self.program.round_.jobs.id[row]))

    def _type(self, kind: int) -> str:
        return repr(str(self.program.round_.cluster.types[kind]))

    def _reservation(self, entry: int) -> str:
        round_: TrainingRound = self.program.round_
        promised = round_.commitments
        kind = int(promised.gpu_type[entry])
        which = "of any one type" if kind < 0 else f"of type {round_.cluster.types[kind]}"
        return (
            f"{promised.kind[entry]} of job {self._job(int(promised.job[entry]))} from"
            f" {promised.start_s[entry]:g} s for {promised.gpus[entry]} GPUs {which} until"
            f" {promised.end_s[entry]:g} s"
        )

    def _lease(self, row: int) -> str:
        jobs, types = self.program.round_.jobs, self.program.round_.cluster.types
        gpus = f"{jobs.held_gpus[row]} GPUs of type {types[jobs.previous_type[row]]}"
        if jobs.preemptible[row]:
            end = f"{jobs.lease_end_s[row]:g} s"
            return f"lease of job {self._job(row)} is guaranteed until {end}: {gpus}"
        return f"job {self._job(row)} may not be stopped: it goes on with {gpus}"
