"""The market of a window of rounds: most sum of logarithms of progress, less the makespan.

Source: Shockwave (Zheng et al., NSDI 2023), as in its released code. The fluid form lets a job run
parts of rounds; the whole form has a binary for every job, type and round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from apportion.formulations.training.time_shares import Sharers
from apportion.instances.columns import Floats, Ints
from apportion.solver import (
    Axis,
    Budget,
    Concave,
    Model,
    ModelBuilder,
    NoSolutionError,
    Solver,
    Status,
    maximise_concave,
)

LEAST_PROGRESS = 0.01
"""Below this part of the work the logarithm goes on as its tangent, because it has no end at 0."""

MOST_WEIGHT = 1e6
"""Largest weight of a job's logarithm: beyond it codes no longer see the others."""

FASTEST, SLOWEST = 1e6, 1e-6
"""Parts of its work that a job does in a round on its best type, at most and at least: jobs that are
faster or slower count as such ones, because no model holds both beside jobs of usual lengths."""

TOUCHES = np.linspace(0.0, 1.0, 6)
"""Where tangents of the whole form touch at first, in parts of each job's range; the source's
breakpoints."""

CUTS = 40
"""Programs of the whole form solved one after the other; two to five are usual."""

CLOSED = 1e-7
"""Distance of value and bound that counts as none beside a code's own tolerances."""


EQUAL = 1e-9
"""Relative difference of times that is rounding."""


@dataclass(frozen=True, eq=False)
class Window:
    """What is planned for.

    Parameters
    ----------
    sharers
        The jobs that share, and the free GPUs.
    rounds
        Rounds of the window.
    makespan_weight
        Loss for each window that the longest job would still have to run after this one.
    least
        Progress each job must reach at least, in parts of its work, shape (m,).
    weight
        Weight of each job's logarithm, shape (m,).
    """

    sharers: Sharers
    rounds: int
    makespan_weight: float
    least: Floats
    weight: Floats

    @classmethod
    def of(cls, sharers: Sharers, rounds: int, makespan_weight: float) -> Window:
        """Set a window up without rules of finish times."""
        m = sharers.rows.size
        return cls(sharers, rounds, makespan_weight, np.zeros(m), sharers.weight)

    @cached_property
    def work(self) -> Floats:
        """Whole work of each job, shape (m,)."""
        return self.sharers.round_.jobs.work[self.sharers.rows]

    @cached_property
    def done(self) -> Floats:
        """Part of each job's work that is done, shape (m,)."""
        return 1.0 - self.sharers.left / self.work

    @cached_property
    def step(self) -> Floats:
        """Part of its work that each job does in a round on each type, shape (m, k)."""
        # the length of a round last: speeds over works may lie far apart, not beyond all numbers
        step = self.sharers.speed / self.work[:, None] * self.sharers.round_.duration_s
        best = step.max(axis=1, keepdims=True)
        return np.minimum(step * np.maximum(1.0, SLOWEST / best), FASTEST)

    @cached_property
    def reach(self) -> Floats:
        """Most progress each job can make by the end of the window."""
        return np.minimum(1.0, self.done + self.rounds * self.step.max(axis=1))

    @cached_property
    def windows(self) -> Floats:
        """Windows that the whole work of each job takes on its fastest type."""
        return 1.0 / (self.rounds * self.step.max(axis=1))

    @cached_property
    def fair_s(self) -> Floats:
        """Time of each job on an equal share of its own; infinite where that is nothing."""
        rate = (self.sharers.isolated * self.sharers.speed).sum(axis=1)
        return np.divide(self.work, rate, out=np.full_like(rate, np.inf), where=rate > 0.0)

    @cached_property
    def age_s(self) -> Floats:
        """Time since each job's arrival."""
        round_ = self.sharers.round_
        return round_.now_s - round_.jobs.arrival_s[self.sharers.rows]

    @property
    def scale(self) -> float:
        """Factor of the sum of logarithms."""
        return 1.0 / (self.done.size * self.rounds)

    @cached_property
    def shortest(self) -> float:
        """Windows that the longest job must still run after this one, whatever is planned."""
        return float(((1.0 - self.reach) * self.windows).max())

    @cached_property
    def unit(self) -> float:
        """What models divide the objective by, so that no job's weight is beyond ``MOST_WEIGHT``."""
        return max(1.0, float(self.weight.max()) / MOST_WEIGHT)

    @property
    def shift(self) -> float:
        """What models add to the objective, so that gaps are relative to what is decided.

        The makespan that no plan avoids goes out. A logarithm of 1 comes in for every job, because
        logarithms end at 0, to which nothing is close.
        """
        return self.makespan_weight * self.shortest - self.scale * float(self.weight.sum())

    def with_finish_times(self, most_rho: float) -> Window:
        """Ask of every job to end in time, where it has an equal share after the window.

        The end of the window and what is then left on an equal share must not be later than
        ``most_rho`` times the fair finish, all since the job's arrival.
        """
        end_s = self.age_s + self.rounds * self.sharers.round_.duration_s
        finite = np.isfinite(self.fair_s)
        late = np.divide(end_s, self.fair_s, out=np.zeros_like(end_s), where=finite)
        return replace(self, least=np.where(finite, 1.0 + late - most_rho, 0.0))

    def with_priorities(self, most_rho: float, power: float) -> Window:
        """Weigh up the jobs that will end late on an equal share from now on."""
        late = np.ones_like(self.fair_s)
        finite = np.isfinite(self.fair_s)
        late[finite] = (self.age_s / self.fair_s + 1.0 - self.done)[finite]
        late = np.maximum(late, 1.0)
        # the power of a very late job may be beyond all numbers
        raised = np.exp(np.minimum(power * np.log(late), np.log(MOST_WEIGHT)))
        weight = self.sharers.weight * np.where(late > most_rho * (1.0 + EQUAL), raised, 1.0)
        return replace(self, least=np.zeros_like(self.least), weight=weight)

    @property
    def reachable(self) -> bool:
        """Whether each job could reach its least progress if it were alone."""
        return bool((self.least <= self.reach + EQUAL).all())

    def gain(self, progress: Floats) -> Floats:
        """Weighted logarithm of each job's progress."""
        low = np.minimum(progress / LEAST_PROGRESS - 1.0, 0.0)
        log = np.log(np.maximum(progress, LEAST_PROGRESS))
        return self.scale * self.weight * (log + low)

    def slope(self, progress: Floats) -> Floats:
        """Derivative of the gain."""
        return self.scale * self.weight / np.maximum(progress, LEAST_PROGRESS)

    def progress(self, counts: Floats) -> Floats:
        """Progress of each job after so many rounds on each type, shape (m, k) to (m,)."""
        return np.minimum(1.0, self.done + (self.step * counts).sum(axis=1))

    def value(self, counts: Floats) -> float:
        """Objective of a plan of rounds."""
        progress = self.progress(counts)
        longest = float(((1.0 - progress) * self.windows).max())
        return float(self.gain(progress).sum()) - self.makespan_weight * longest


@dataclass(frozen=True, eq=False)
class Plan:
    """Rounds of each job on each type, and what is proved of them.

    Parameters
    ----------
    counts
        Shape (m, k).
    value, bound
        Objective, and what no plan exceeds.
    proved
        Whether they meet within the gap asked for.
    steps
        Programs solved.
    """

    counts: Floats
    value: float
    bound: float | None
    proved: bool
    steps: int


def _model(window: Window, *, whole: bool, cuts: Floats | None = None) -> Model:
    """Columns ``run`` (rounds), ``progress`` and ``longest``; with cuts also ``gain``.

    Parameters
    ----------
    window
        The window.
    whole
        False: one column for each job and type, the rounds it runs there. True: a binary for each
        round beside.
    cuts
        Places where tangents touch, shape (cuts, m).
    """
    sharers, m = window.sharers, window.done.size
    rounds, k = window.rounds, sharers.capacity.size
    ids, kinds = sharers.round_.jobs.id[sharers.rows].tolist(), sharers.round_.cluster.types
    row, kind = np.nonzero(sharers.speed > 0.0)
    slots, length = (rounds, 1) if whole else (1, rounds)
    builder = ModelBuilder("shockwave")
    axes = (Axis("job", ids, codes=row), Axis("type", kinds.tolist(), codes=kind))
    run = builder.columns(
        "run", (slots, row.size), upper=float(length), integer=whole,
        axes=() if whole else axes[:2],
    )  # fmt: skip
    low = np.minimum(np.maximum(window.least, window.done), window.reach)
    progress = builder.columns("progress", m, lower=low, upper=window.reach)
    most = float(((1.0 - window.done) * window.windows).max())
    longest = builder.columns("longest", 1, lower=window.shortest, upper=max(most, window.shortest))
    slot = np.arange(slots)[:, None]
    builder.rows(
        "one_type", slots * m, row=slot * m + row, column=run, value=1.0, upper=float(length)
    )
    builder.rows(
        "capacity", slots * k, row=slot * k + kind, column=run, value=sharers.gang[row],
        upper=np.tile(sharers.capacity, slots) * length,
    )  # fmt: skip
    job = np.arange(m)
    row_of = np.concatenate((np.tile(row, slots), job))
    builder.rows(
        "work", m, row=row_of, column=np.concatenate((run.ravel(), progress)),
        value=np.concatenate((-np.tile(window.step[row, kind], slots), np.ones(m))),
        upper=window.done,
    )  # fmt: skip
    builder.rows(
        "makespan", m, row=np.concatenate((job, job)),
        column=np.concatenate((np.repeat(longest, m), progress)),
        value=np.concatenate((np.ones(m), window.windows)), lower=window.windows,
    )  # fmt: skip
    gain: Ints = np.zeros(0, dtype=np.int64)
    if cuts is not None:
        least, most_gain = window.gain(low) / window.unit, window.gain(window.reach) / window.unit
        gain = builder.columns("gain", m, lower=least, upper=most_gain)
        for at, touch in enumerate(cuts):
            slope = window.slope(touch) / window.unit
            builder.rows(
                f"tangent_{at}", m, row=np.concatenate((job, job)),
                column=np.concatenate((gain, progress)),
                value=np.concatenate((np.ones(m), -slope)),
                upper=window.gain(touch) / window.unit - slope * touch,
            )  # fmt: skip
    k_weight = window.makespan_weight / window.unit
    builder.objective(
        "welfare", column=np.append(gain, longest),
        value=np.append(np.ones(gain.size), -k_weight), maximise=True,
        offset=window.shift / window.unit,
    )  # fmt: skip
    return builder.build()


def fluid_model(window: Window) -> Model:
    """Give the linear part of the fluid form; the logarithms come on top of it."""
    return _model(window, whole=False)


def fluid(window: Window, gap: float, budget: Budget) -> Plan:
    """Solve the fluid form.

    Raises
    ------
    NoSolutionError
        If no plan reaches the least progress of all jobs, or time is up before the first plan.
    """
    model = fluid_model(window)
    row, kind = np.nonzero(window.sharers.speed > 0.0)
    progress = row.size + np.arange(window.done.size)
    gains = Concave(
        progress,
        lambda reached: window.gain(reached) / window.unit,
        lambda reached: window.slope(reached) / window.unit,
    )
    found = maximise_concave(model, gains, budget=budget, gap=gap)
    counts = np.zeros_like(window.step)
    counts[row, kind] = found.x[: row.size]
    counts = _within(window, counts)
    value = window.value(counts)
    bound = max(value, found.bound * window.unit - window.shift)
    return Plan(counts, value, bound, found.proved, found.rounds)


def _within(window: Window, counts: Floats) -> Floats:
    """Take back what a code's tolerances let a plan exceed."""
    counts = np.clip(counts, 0.0, window.rounds)
    counts /= np.maximum(1.0, counts.sum(axis=1, keepdims=True) / window.rounds)
    most = window.sharers.capacity * window.rounds
    load = window.sharers.gang @ counts
    over = np.divide(load, most, out=np.ones_like(load), where=load > 0.0)
    return counts / np.maximum(1.0, over)[None, :]


def whole(window: Window, solver: Solver, budget: Budget) -> Plan:
    """Solve the whole form: programs over tangents until value and bound meet.

    Raises
    ------
    NoSolutionError
        If no plan reaches the least progress of all jobs, or time is up before the first plan.
    """
    row, kind = np.nonzero(window.sharers.speed > 0.0)
    span = window.reach - window.done
    cuts = window.done + TOUCHES[:, None] * span
    best: Plan | None = None
    for step in range(1, CUTS + 1):
        answer = solver.solve(_model(window, whole=True, cuts=cuts), budget=budget)
        if answer.status is Status.INFEASIBLE:
            raise NoSolutionError("no plan of whole rounds reaches the least progress")
        if answer.point is None:
            break
        taken = np.round(answer.x[: window.rounds * row.size]).reshape(window.rounds, row.size)
        counts = np.zeros_like(window.step)
        counts[row, kind] = taken.sum(axis=0)
        cuts = np.vstack((cuts, window.progress(counts)[None, :]))
        value, bound = window.value(counts), answer.bound
        top = np.inf if best is None or best.bound is None else best.bound
        top = top if bound is None else min(top, bound * window.unit - window.shift)
        if best is not None and best.value >= value:
            counts, value = best.counts, best.value
        close = max(solver.gap * abs(value + window.shift), CLOSED * window.unit)
        known = None if np.isinf(top) else max(top, value)
        best = Plan(counts, value, known, top <= value + close, step)
        if best.proved or budget.expired():
            break
    if best is None:
        raise NoSolutionError("no plan of whole rounds was found in time")
    return best
