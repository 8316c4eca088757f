"""Astraea's first phase as an optimum: lexicographic max-min of the tenants' ratios."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from apportion.formulations.training.astraea.selection import Standing
from apportion.formulations.training.baselines.quota import Room
from apportion.formulations.training.greedy import NOWHERE
from apportion.formulations.training.running import fastest
from apportion.instances.columns import Bools, Floats, Ints
from apportion.solver import Axis, Model, ModelBuilder


@dataclass(frozen=True, eq=False)
class MaxMinTick:
    """The choice of one tick: starved jobs first, then the least ratios as high as they go.

    The sum of the j least ratios is maximised for j = 1, 2, ..., each without loss to those
    before it (sums of the least by Ogryczak and Tamir 2003). That is lexicographic max-min for
    whole gangs too; to raise the least ratio, fix its tenant and go on is not, because there the
    tenant that stays behind is a choice.

    Parameters
    ----------
    standing
        Where everybody stands.
    """

    standing: Standing

    @cached_property
    def starved(self) -> dict[int, int]:
        """Starved jobs that fit one after the other by arrival, with their types."""
        standing, jobs = self.standing, self.standing.round_.jobs
        rows = np.flatnonzero(standing.starved & standing.pending)
        rows = rows[np.lexsort((jobs.code[rows], jobs.arrival_s[rows]))]
        room, out = Room(fastest(standing.round_, rows), standing.free), dict[int, int]()
        for at, (row, need) in enumerate(zip(rows.tolist(), jobs.gang[rows].tolist(), strict=True)):
            kind = room.find(at, need)
            if kind != NOWHERE:
                room.take(kind, need)
                out[row] = kind
        return out

    @cached_property
    def free(self) -> Ints:
        """GPUs left by the starved jobs, shape (k,)."""
        out = self.standing.free.copy()
        for row, kind in self.starved.items():
            out[kind] -= self.standing.round_.jobs.gang[row]
        return out

    @cached_property
    def fits(self) -> Bools:
        """Where each job may be placed, shape (n, k)."""
        standing, jobs = self.standing, self.standing.round_.jobs
        room = jobs.gang[:, None] <= self.free[None, :]
        open_ = standing.pending & ~standing.starved
        return standing.round_.eligible & open_[:, None] & room

    @cached_property
    def served_gpu_s(self) -> Floats:
        """GPU-time in the window of each tenant, with a lease of the starved jobs."""
        jobs, out = self.standing.round_.jobs, self.standing.served_gpu_s.copy()
        rows = list(self.starved)
        np.add.at(out, jobs.tenant[rows], jobs.gang[rows] * self.standing.lease_s)
        return out

    @cached_property
    def tenants(self) -> Ints:
        """Tenants with a quota and jobs to choose from."""
        standing = self.standing
        wants = np.zeros(standing.quota.size, dtype=np.bool_)
        wants[standing.round_.jobs.tenant[self.fits.any(axis=1)]] = True
        return np.flatnonzero(wants & (standing.entitled_gpu_s > 0))

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Least ratio before the choice, and what one GPU adds at least to any.

        Ratios are measured from the one in units of the other: one GPU of a large tenant moves
        its ratio by less than the tolerances of solvers.
        """
        who = self.tenants
        entitled = self.standing.entitled_gpu_s[who]
        least = float((self.served_gpu_s[who] / entitled).min())
        return least, self.standing.lease_s / float(entitled.max())

    def ratios(self, kinds: dict[int, int]) -> Floats:
        """Ratio of each tenant of ``tenants`` once some jobs have their lease."""
        jobs, served = self.standing.round_.jobs, self.standing.served_gpu_s.copy()
        rows = list(kinds)
        np.add.at(served, jobs.tenant[rows], jobs.gang[rows] * self.standing.lease_s)
        return served[self.tenants] / self.standing.entitled_gpu_s[self.tenants]

    @cached_property
    def model(self) -> Model | None:
        """Columns ``x[job, type]``; None where nobody can be chosen.

        Rows ``one_type``, ``capacity``, ``order`` (a job may start only if those of its tenant
        with less LTGF and no larger gang do) and ``ratio``.
        """
        if not self.fits.any():
            return None
        round_ = self.standing.round_
        ids, types = round_.jobs.id.tolist(), round_.cluster.types.tolist()
        row, kind = np.nonzero(self.fits)
        builder = ModelBuilder("astraea")
        x = builder.columns(
            "x", row.size, integer=True,
            axes=(Axis("job", ids, codes=row), Axis("type", types, codes=kind)),
        )  # fmt: skip
        if self.free.size > 1:
            builder.rows(
                "one_type", len(ids), row=row, column=x, value=1.0, upper=1.0,
                axes=(Axis("job", ids),),
            )  # fmt: skip
        builder.rows(
            "capacity", len(types), row=kind, column=x, value=round_.jobs.gang[row],
            upper=self.free, axes=(Axis("type", types),),
        )  # fmt: skip
        self._order(builder, row, x)
        if self.tenants.size:
            self._levels(builder, row, x)
        builder.objective("gpus", column=x, value=round_.jobs.gang[row], maximise=True)
        return builder.build()

    def _order(self, builder: ModelBuilder, row: Ints, x: Ints) -> None:
        """Rows ``order``: a group of jobs before one job, ``sum of group >= size * job``."""
        pairs = list(self._before())
        if not pairs:
            return
        spans = np.searchsorted(row, np.arange(len(self.standing.round_.jobs) + 1))
        rows, columns, values = list[int](), list[int](), list[float]()
        for at, (group, job) in enumerate(pairs):
            for member, factor in ((job, -float(len(group))), *((one, 1.0) for one in group)):
                own = x[spans[member] : spans[member + 1]].tolist()
                rows += [at] * len(own)
                columns += own
                values += [factor] * len(own)
        builder.rows("order", len(pairs), row=rows, column=columns, value=values, lower=0.0)

    def _before(self) -> Iterable[tuple[list[int], int]]:
        """Groups that go before a job: of each gang and set of types the last LTGF below its own.

        What goes before these goes before the job by their own rows. A job with other types than
        another may start where that one cannot, so that only supersets of its types bind it.
        """
        standing, jobs = self.standing, self.standing.round_.jobs
        rows = np.flatnonzero(self.fits.any(axis=1))
        masks: list[list[bool]] = standing.round_.eligible.tolist()
        types: list[frozenset[int]] = [
            frozenset(i for i, able in enumerate(mask) if able) for mask in masks
        ]
        keys = (jobs.code[rows], standing.ltgf[rows], jobs.tenant[rows])
        order: list[int] = rows[np.lexsort(keys)].tolist()
        last: dict[tuple[int, frozenset[int]], list[int]] = {}
        newest: dict[tuple[int, frozenset[int]], list[int]] = {}
        tenant, level = -1, -1.0
        for job in order:
            if int(jobs.tenant[job]) != tenant:
                last, newest = {}, {}
            elif float(standing.ltgf[job]) != level:
                last, newest = last | newest, {}
            tenant, level = int(jobs.tenant[job]), float(standing.ltgf[job])
            for (gang, other), group in last.items():
                if gang <= jobs.gang[job] and other >= types[job]:
                    yield group, job
            newest.setdefault((int(jobs.gang[job]), types[job]), []).append(job)

    def _levels(self, builder: ModelBuilder, row: Ints, x: Ints) -> None:
        """Objectives ``least[j]``: the sum of the j least ratios, ``j t_j - sum of shortfalls``."""
        standing, who = self.standing, self.tenants
        jobs, m = standing.round_.jobs, self.tenants.size
        least, unit = self.scale
        entitled = standing.entitled_gpu_s[who]
        base = (self.served_gpu_s[who] / entitled - least) / unit
        gain = standing.lease_s / entitled / unit
        place = np.full(standing.quota.size, -1, dtype=np.int64)
        place[who] = np.arange(m)
        owner = place[jobs.tenant[row]]
        counts = np.flatnonzero(owner >= 0)
        top = float((base + gain * float(self.free.sum())).max())
        t = builder.columns("level", m, upper=top)
        short = builder.columns("shortfall", (m, m), upper=top)
        level: Ints = np.arange(m, dtype=np.int64)[:, None]
        # row (j, u): t_j - shortfall_ju - gain_u * GPUs_u <= base_u
        own = level * m + np.arange(m)
        work = level * m + owner[counts][None, :]
        value = -gain[owner[counts]] * jobs.gang[row[counts]]
        shape = (m, counts.size)
        builder.rows(
            "ratio", m * m,
            row=np.concatenate((own.ravel(), own.ravel(), work.ravel())),
            column=np.concatenate((
                np.repeat(t, m), short.ravel(), np.broadcast_to(x[counts], shape).ravel(),
            )),
            value=np.concatenate((
                np.ones(m * m), -np.ones(m * m), np.broadcast_to(value, shape).ravel(),
            )),
            upper=np.tile(base, m),
        )  # fmt: skip
        for j in range(m):
            builder.objective(
                f"least {j + 1}", column=np.concatenate((t[j : j + 1], short[j])),
                value=np.concatenate(([j + 1.0], -np.ones(m))), maximise=True,
            )  # fmt: skip
