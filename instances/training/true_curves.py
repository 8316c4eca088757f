"""How the metrics of jobs really develop, and what is measured of them: hidden truth."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from apportion.instances.columns import Floats, Ints, floats, freeze, ints, require
from apportion.instances.counters import Keys, normals
from apportion.instances.errors import InstanceError
from apportion.instances.training.curves import (
    FAMILIES,
    NO_CURVE,
    as_loss,
    first_iteration_to,
    loss_at,
)
from apportion.instances.training.jobs import Jobs

PURPOSE = "metric_noise"
NOISE = 0.02
"""Relative spread of a measurement where none is given."""

NOISE_MOST = 1.0
"""Relative spread of a measurement at most: beyond it a curve cannot be told from nothing."""

LEAST_FACTOR = 0.01
"""A measured loss is never below this part of the true one: losses are positive."""


@dataclass(frozen=True, eq=False)
class TrueCurves:
    """The metric of each of n jobs after k iterations, and the noise of measuring it.

    Parameters
    ----------
    family
        Codes into ``FAMILIES``; ``NO_CURVE`` for jobs without a metric, shape (n,).
    a, b, c
        Parameters of the loss, not negative, shape (n,). Where the metric rises the loss is
        1 - metric.
    noise
        Relative standard deviation of a measured loss.

    Raises
    ------
    InstanceError
        Naming column, index and value.
    """

    family: Ints
    a: Floats
    b: Floats
    c: Floats
    noise: float = NOISE

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        where = "scenario.true_curves"
        family = ints(self.family, f"{where}.family")
        good = (family >= NO_CURVE) & (family < len(FAMILIES))
        rule = f"-1 (none) or one of the {len(FAMILIES)} families"
        require(family, good, f"{where}.family", rule)
        put("family", family)
        for name in "abc":
            column = floats(getattr(self, name), f"{where}.{name}", family.shape)
            require(column, column >= 0, f"{where}.{name}", "must not be negative")
            put(name, column)
        start = (family != 0) | (self.b > 0)
        require(self.b, start, f"{where}.b", "must be positive: the loss would start infinite")
        if not 0.0 <= self.noise <= NOISE_MOST:
            raise InstanceError(f"{where}.noise = {self.noise}: must lie in [0, {NOISE_MOST:g}]")

    def __len__(self) -> int:
        return self.family.size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TrueCurves):
            return False
        return all(
            np.array_equal(getattr(self, entry.name), getattr(other, entry.name))
            for entry in fields(self)
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed

    def take(self, rows: Ints) -> TrueCurves:
        """Select jobs."""
        return TrueCurves(self.family[rows], self.a[rows], self.b[rows], self.c[rows], self.noise)

    def needed(self, jobs: Jobs, work: Floats) -> Floats:
        """Work each job really does, shape (n,).

        Parameters
        ----------
        jobs
            As reported.
        work
            What jobs need that do not stop on a metric.

        Returns
        -------
        Floats
            For jobs that do: the first whole iteration whose true metric has passed the target,
            or the cap where that comes first.

        Raises
        ------
        InstanceError
            Where a job would never stop: no cap, and a target it does not reach.
        """
        rows = np.flatnonzero(jobs.stop_on_metric & (self.family != NO_CURVE))
        out = work.copy()
        target = as_loss(jobs.metric_target[rows], jobs.metric_rises[rows])
        one = self.take(rows)
        stop = first_iteration_to(one.family, one.a, one.b, one.c, target)
        out[rows] = np.minimum(stop, jobs.iteration_cap[rows])
        if not np.isfinite(out[rows]).all():
            row = int(rows[np.flatnonzero(~np.isfinite(out[rows]))[0]])
            raise InstanceError(
                f"jobs.metric_target[{row}] = {jobs.metric_target[row]} (job"
                f" {str(jobs.id[row])!r}): its true curve never gets there; give it an"
                " iteration_cap"
            )
        freeze(out)
        return out

    def measured(self, jobs: Jobs, rows: Ints, iteration: Floats, keys: Keys, seed: int) -> Floats:
        """Measure the metric of some jobs, with noise.

        Parameters
        ----------
        jobs, rows, iteration
            Jobs, and the iterations they have just finished, shape (m,).
        keys
            Of these jobs: ``keys_of(jobs.id)[rows]``.
        seed
            Root seed. The noise of a job at an iteration depends on nothing else: not on other
            jobs, not on when or how often it is measured.
        """
        loss = loss_at(self.family[rows], self.a[rows], self.b[rows], self.c[rows], iteration)
        noise = 1.0 + self.noise * normals(seed, PURPOSE, keys, iteration)
        loss = loss * np.maximum(noise, LEAST_FACTOR)
        return as_loss(loss, jobs.metric_rises[rows])
