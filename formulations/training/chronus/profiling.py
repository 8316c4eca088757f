"""How long jobs are thought to take: from a profile before they run, and from what they ran since.

Three sources, told apart in the answer: what was reported; a profile, which is off by some noise;
and the pace of the job itself, which takes the profile's place in proportion to progress. In the
source the noisy number moves towards the true duration, which nobody can know; here it moves
towards what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from apportion.formulations.training.astraea.service import places
from apportion.instances.columns import Bools, Floats, Ints, Names, floats, ints, names, require
from apportion.instances.counters import keys_of, normals
from apportion.instances.errors import InstanceError
from apportion.instances.training import Jobs, Outcome, TrainingRound

Source = Literal["reported", "profiled"]

PURPOSE = "chronus profile"
LEAST_FACTOR, MOST_FACTOR = 0.5, 2.0
"""Factors on durations beyond these are cut off, as published."""

LONGEST_S, EACH_GPU_S = 120.0, 30.0
"""A profile takes so long for every GPU, and so long at most, as published."""

MOST_GPUS = 8
"""Gangs beyond it are profiled on so many GPUs, as published."""

SHORTEST_S = 300.0
"""Reported time up to which a job is not profiled, as published: it would be over by then."""

HELD_GPUS, HELD_S = 4, 60.0
"""A user who has all but so many GPUs of the pool waits so long, as published."""

NOT_YET = -1.0
"""End of a profile that was not begun."""

_KEYS = ("profile_end_s", "measured_part", "told_s", "ran_s")
_TEMPLATES = ("template_model", "template_gang", "template_end_s")


@dataclass(frozen=True)
class Profiling:
    """How durations are estimated; see ``Chronus``."""

    estimates: Source = "reported"
    noise: float = 0.0
    noise_seed: int = 0
    pool_gpus: int = 32
    reuse_profiles: bool = False
    hold_users: bool = False


@dataclass(frozen=True, eq=False)
class Templates:
    """Jobs that were profiled, by model and gang, and when that was over; columns of one length."""

    model: Names = field(default_factory=lambda: np.zeros(0, dtype="U1"))
    gang: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    end_s: Floats = field(default_factory=lambda: np.zeros(0))

    def ends(self) -> dict[tuple[str, int], float]:
        """End of the profile by model and gang."""
        pairs = zip(self.model.tolist(), self.gang.tolist(), strict=True)
        return dict(zip(pairs, self.end_s.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Profile:
    """What is known of how long the jobs of a round take, columns of shape (n,).

    Parameters
    ----------
    how
        Parameters.
    jobs, now_s
        The jobs, and the moment.
    end_s
        End of the profile of each, ``NOT_YET`` for those that need none or whose turn is unknown.
    measured_part
        Part of the reported work that was watched.
    told_s, ran_s
        Seconds that it would have taken as reported, and those that it took.
    templates
        What was profiled before.
    """

    how: Profiling
    jobs: Jobs
    now_s: float
    end_s: Floats
    measured_part: Floats
    told_s: Floats
    ran_s: Floats
    templates: Templates

    @cached_property
    def factor(self) -> Floats:
        """Estimated duration over the reported one."""
        if self.how.estimates == "reported":
            return np.ones(len(self.jobs))
        profiled = profile_factor(self.jobs.id, self.how.noise, self.how.noise_seed)
        watched = self.told_s > 0.0
        measured = np.divide(self.ran_s, self.told_s, out=profiled.copy(), where=watched)
        return blended(profiled, measured, np.where(watched, self.measured_part, 0.0))

    @cached_property
    def waiting(self) -> Bools:
        """Jobs whose profile is not over, so that nothing can be promised to them."""
        return self.end_s > self.now_s

    @property
    def told(self) -> Names:
        """Where each estimate comes from."""
        if self.how.estimates == "reported":
            return np.full(len(self.jobs), "reported")
        blends = (self.told_s > 0.0) & (self.measured_part > 0.0)
        return np.where(self.waiting, "profiling", np.where(blends, "blended", "profiled"))

    def at_once(self) -> Profile:
        """Take all profiles as finished: whoever asks wants an answer now."""
        return replace(self, end_s=np.full(len(self.jobs), NOT_YET))

    def memory(self) -> dict[str, Any]:
        """Plain columns to be remembered; nothing where reports are believed."""
        if self.how.estimates == "reported":
            return {}
        columns = (self.end_s, self.measured_part, self.told_s, self.ran_s)
        out: dict[str, Any] = {
            key: column.copy() for key, column in zip(_KEYS, columns, strict=True)
        }
        return out | {key: getattr(self.templates, key[len("template_") :]) for key in _TEMPLATES}


def profile_factor(ids: Names, noise: float, seed: int) -> Floats:
    """Profiled duration over the reported one: ``1 + N(0, noise)`` within bounds, shape (n,).

    It depends on a job's name and the seed alone.
    """
    if not ids.size:
        return np.zeros(0)
    drawn = normals(seed, PURPOSE, keys_of(ids))
    return np.clip(1.0 + noise * drawn, LEAST_FACTOR, MOST_FACTOR)


def blended(profiled: Floats, measured: Floats, part: Floats) -> Floats:
    """Move from the profile to what was measured, as far as work was watched."""
    weight = np.clip(part, 0.0, 1.0)
    return profiled + weight * (measured - profiled)


def profiled(
    round_: TrainingRound, memory: Any, how: Profiling, told_s: Floats, known: Bools
) -> Profile:
    """Bring profiles up to date: who is in the pool, and whose turn comes when.

    Parameters
    ----------
    round_
        The round.
    memory
        The policy's; columns of profiles may be missing.
    how
        Parameters.
    told_s
        Reported time of each job on its fastest type, shape (n,).
    known
        Jobs that were answered before, shape (n,).

    Raises
    ------
    InstanceError
        On columns that are none of ours.
    """
    jobs, n = round_.jobs, len(round_.jobs)
    nothing = np.zeros(n)
    if how.estimates == "reported":
        never = np.full(n, NOT_YET)
        return Profile(how, jobs, round_.now_s, never, nothing, nothing, nothing, Templates())
    end_s, part, told, ran = _recalled(round_, memory)
    templates = _templates(memory)
    begun = jobs.running | (jobs.work_done > 0.0)
    new = ~known & ~begun & (end_s == NOT_YET) & (told_s > SHORTEST_S) & np.isfinite(told_s)
    if how.pool_gpus and new.any():
        end_s, templates = _turns(jobs, np.flatnonzero(new), end_s, templates, how)
    return Profile(how, jobs, round_.now_s, end_s, part, told, ran, templates)


def after(
    told: dict[str, Any], round_: TrainingRound, kind: Ints, outcome: Outcome
) -> dict[str, Any]:
    """Add what a round's outcome shows of the pace of its jobs to the memory.

    Parameters
    ----------
    told
        Memory of the decision.
    round_
        The round.
    kind
        Type each job ran on, -1 for none, shape (n,).
    outcome
        What came of it.
    """
    if "ran_s" not in told:
        return told
    jobs, on = round_.jobs, np.flatnonzero(kind >= 0)
    speed = jobs.throughput_per_s[on, kind[on]]
    work = np.maximum(outcome.work[on], 0.0)
    on, work, speed = on[speed > 0.0], work[speed > 0.0], speed[speed > 0.0]
    out = {**told, **{key: np.array(told[key]) for key in _KEYS}}
    out["measured_part"][on] += work / jobs.work[on]
    out["told_s"][on] += work / speed
    out["ran_s"][on] += outcome.gpu_s[on] / jobs.gang[on]
    return out


def without_profiles(told: dict[str, Any], stay: Bools) -> dict[str, Any]:
    """Drop jobs from the columns of profiles."""
    return {**told, **{key: told[key][stay] for key in _KEYS if key in told}}


# ---------------------------------------------------------------------- the pool


def profile_s(gang: Ints) -> Floats:
    """Seconds that a profile takes."""
    return np.minimum(LONGEST_S, EACH_GPU_S * np.minimum(gang, MOST_GPUS))


@dataclass(eq=False)
class _Pool:
    """Profiles in the pool: start, end, GPUs and user of each."""

    gpus: int
    taken: list[tuple[float, float, int, int]] = field(
        default_factory=list[tuple[float, float, int, int]]
    )

    def used(self, at_s: float, user: int | None = None) -> int:
        """GPUs in use at a moment, by everybody or by one user."""
        return sum(
            gpus for start_s, end_s, gpus, of in self.taken
            if start_s <= at_s < end_s and user in (None, of)
        )  # fmt: skip

    def start(self, from_s: float, length_s: float, gpus: int, user: int, hold: bool) -> float:
        """Take GPUs for a profile as early as can be from a moment on."""
        ends = sorted(end_s for _, end_s, _, _ in self.taken if end_s > from_s)
        for at_s in (from_s, *ends):
            while hold and self.used(at_s, user) >= max(1, self.gpus - HELD_GPUS):
                at_s += HELD_S
            begins = [begin_s for begin_s, *_ in self.taken if at_s < begin_s < at_s + length_s]
            if all(self.used(moment) + gpus <= self.gpus for moment in (at_s, *begins)):
                self.taken.append((at_s, at_s + length_s, gpus, user))
                return at_s
        raise AssertionError("an empty pool holds every profile")


def _turns(
    jobs: Jobs, rows: Ints, end_s: Floats, templates: Templates, how: Profiling
) -> tuple[Floats, Templates]:
    """Give newcomers their turn in the pool, in order of arrival."""
    out, ends = end_s.copy(), templates.ends()
    length = profile_s(jobs.gang)
    gpus = np.minimum(np.minimum(jobs.gang, MOST_GPUS), how.pool_gpus)
    pool = _Pool(how.pool_gpus)
    first_s = float(jobs.arrival_s[rows].min())
    for row in np.flatnonzero(end_s > first_s).tolist():
        last_s = float(end_s[row])
        pool.taken.append(
            (last_s - float(length[row]), last_s, int(gpus[row]), int(jobs.tenant[row]))
        )
    for row in rows[np.lexsort((jobs.code[rows], jobs.arrival_s[rows]))].tolist():
        key, arrival_s = (str(jobs.model[row]), int(jobs.gang[row])), float(jobs.arrival_s[row])
        if how.reuse_profiles and key[0] and key in ends:
            # whoever comes while the first of its kind is in the pool waits for it
            out[row] = max(arrival_s, ends[key])
            continue
        user, size = int(jobs.tenant[row]), int(gpus[row])
        begun_s = pool.start(arrival_s, float(length[row]), size, user, how.hold_users)
        out[row] = begun_s + float(length[row])
        if key[0]:
            ends[key] = float(out[row])
    if not how.reuse_profiles:
        return out, templates
    keys = sorted(ends)
    return out, Templates(
        np.array([model for model, _ in keys], dtype=np.str_),
        np.array([gang for _, gang in keys], dtype=np.int64),
        np.array([ends[key] for key in keys]),
    )  # fmt: skip


# ---------------------------------------------------------------------- memory


def _recalled(round_: TrainingRound, memory: Any) -> tuple[Floats, ...]:
    """Columns of profiles in the order of a round's jobs; newcomers have none."""
    jobs, n = round_.jobs, len(round_.jobs)
    out = tuple(np.full(n, NOT_YET if key == "profile_end_s" else 0.0) for key in _KEYS)
    if memory is None or not any(key in memory for key in _KEYS):
        return out
    given = np.asarray(memory["id"])
    ids = given if given.dtype.kind == "U" else names(memory["id"], "memory.id")
    code = ints(memory["code"], "memory.code", ids.shape)
    at = places(ids, code, jobs.id, jobs.code)
    found = np.flatnonzero(at >= 0)
    for key, column in zip(_KEYS, out, strict=True):
        if key not in memory:
            raise InstanceError(f"memory: not one of chronus: it lacks {key}")
        known = floats(memory[key], f"memory.{key}", ids.shape)
        least = NOT_YET if key == "profile_end_s" else 0.0
        good = np.isfinite(known) & (known >= least)
        require(known, good, f"memory.{key}", f"must be at least {least:g}")
        column[found] = known[at[found]]
    return out


def _templates(memory: Any) -> Templates:
    if memory is None or _TEMPLATES[0] not in memory:
        return Templates()
    given = np.asarray(memory[_TEMPLATES[0]])
    if given.dtype.kind != "U" or given.ndim != 1:
        raise InstanceError(f"memory.{_TEMPLATES[0]}: expected names of models")
    shape = given.shape
    return Templates(
        given,
        ints(memory.get(_TEMPLATES[1]), f"memory.{_TEMPLATES[1]}", shape),
        floats(memory.get(_TEMPLATES[2]), f"memory.{_TEMPLATES[2]}", shape),
    )
