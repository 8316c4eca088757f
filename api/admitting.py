"""One job's question before it is admitted: would its deadline be met, and at whose cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from apportion.families.lookup import training_round
from apportion.formulations.training.chronus.offers import Offer
from apportion.instances import InstanceError, Policy
from apportion.instances.errors import nearest
from apportion.instances.training import TrainingRound
from apportion.promises import without_broken_promises
from apportion.registry import make_policy
from apportion.results import Column, Table
from apportion.solving import budget_of, solver_of

_DIGITS = 12
"""Digits of a number that is shown: microseconds of the second week of a trace; six, which is what
``g`` gives, would round a deadline there to ten seconds."""


def _plain(number: float) -> str:
    return f"{number:.{_DIGITS}g}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"


@runtime_checkable
class Admits(Protocol):
    """A program that can answer one job."""

    def offer(self, row: int, solver: Any, budget: Any) -> Offer:
        """Tell a job whether its deadline would be met."""
        ...


@dataclass(frozen=True)
class Admission:
    """What a job is told about its deadline.

    Attributes
    ----------
    job, policy
        The job, and whose answer it is.
    accepted
        Whether a deadline is or would be promised.
    known
        Whether it has been promised already.
    deadline_s, value
        The deadline that is kept, and its value; None if none is.
    gpu_type
        Type of its reserved leases; empty without any.
    gpus, charged_gpus
        GPUs of a lease, and those that the reservation is charged for.
    lease_s
        Length of a lease.
    leases_s
        Start of each reserved lease.
    displaced
        Jobs that would be promised something without it and are not with it.
    displaced_value
        What others lose by it.
    best_effort_gpu_s
        GPU-seconds that its reservation takes from jobs without promises, at most.
    counter_offer_s
        Earliest deadline that would be promised instead; None where none is needed or known.
    extra_gpus, extra_type
        Fewest GPUs more before its last deadline that would do, and their type; None and empty
        where none are needed or no number would do.
    decided
        False where time ran out before the answer was proved.
    notes
        Why it is rejected, and what was given up before.
    """

    job: str
    policy: str
    accepted: bool
    known: bool
    deadline_s: float | None
    value: float | None
    gpu_type: str
    gpus: int
    charged_gpus: int
    lease_s: float
    leases_s: tuple[float, ...]
    displaced: tuple[str, ...]
    displaced_value: float
    best_effort_gpu_s: float
    counter_offer_s: float | None
    extra_gpus: int | None
    extra_type: str
    decided: bool
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        out = dict(self.__dict__)
        for name in ("leases_s", "displaced", "notes"):
            out[name] = list(out[name])
        return out

    def table(self) -> Table:
        """Show it as a table of a few lines."""
        columns = [Column("what", "what"), Column("answer", "answer")]
        verdict = "yes" if self.accepted else "no"
        if self.known:
            verdict = "yes, promised already"
        if not self.decided:
            verdict += " (not proved)"
        rows: list[list[Any]] = [["deadline met", verdict]]
        if self.accepted:
            ends = "" if self.deadline_s is None else f"{_plain(self.deadline_s)} s"
            count = len(self.leases_s)
            rows += [
                ["deadline kept", ends],
                ["value", "" if self.value is None else _plain(self.value)],
                ["reservation", f"{count} lease{'s' * (count != 1)} of {_plain(self.lease_s)} s,"
                 f" {_gpus(self.gpus)} of {self.gpu_type} (charged {self.charged_gpus})"],
                ["leases from", ", ".join(map(_plain, self.leases_s))],
                ["taken from best effort", f"{_plain(self.best_effort_gpu_s)} GPU-s at most"],
                ["displaced", ", ".join(self.displaced) or "nobody"],
                ["value others lose", _plain(self.displaced_value)],
            ]  # fmt: skip
        else:
            offer_s = self.counter_offer_s
            later = "none" if offer_s is None else f"{_plain(offer_s)} s"
            more = "no number would do"
            if self.extra_gpus is not None:
                more = f"{_gpus(self.extra_gpus)} of {self.extra_type}"
            rows += [["earliest deadline", later], ["smallest extra capacity", more]]
        return Table(f"{self.policy}: job {self.job}", columns, rows, list(self.notes))


def admit(
    round_: TrainingRound | str | Path,
    job: str,
    policy: str | Policy = "chronus",
    *,
    parameters: Mapping[str, Any] | None = None,
    memory: Any = None,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    backend: str = "auto",
    seed: int = 0,
) -> Admission:
    """Tell whether a job's deadline would be met, by what, at whose cost, or what would do instead.

    Nothing is decided: the policy's memory stays as it is.

    Parameters
    ----------
    round_
        A round with the job, or the path of a round file.
    job
        Name of the job.
    policy, parameters
        A policy that makes promises, and parameters that differ from the defaults.
    memory
        The policy's memory: the promises that are in force.
    time_limit_s
        Wall time; an answer that is cut off is not proved, and says so.
    gap, backend, seed
        How the exact model is asked.

    Raises
    ------
    InstanceError
        On an unknown job, a policy that makes no promises, an unusable parameter or memory, or a
        file that is not a round.

    Examples
    --------
    >>> import apportion as ap
    >>> rnd = ap.TrainingRound(
    ...     cluster=ap.Cluster.uniform({"V100": 2}),
    ...     jobs=ap.Jobs.of(id=["a"], gang=[2], work=[1000.0], throughput_per_s=[[1.0]],
    ...                  slo=[True], deadline_offsets=[0, 1], deadline_s=[2400.0],
    ...                  deadline_value=[10.0]),
    ... )
    >>> ap.admit(rnd, "a").leases_s
    (1200.0,)
    """
    budget = budget_of(time_limit_s)
    asked = training_round(round_, "admit")
    asked, given_up = without_broken_promises(asked)
    ids: list[str] = asked.jobs.id.tolist()
    if job not in ids:
        raise InstanceError(f"job {job!r}: is not in the round{nearest(job, ids)}")
    row = ids.index(job)
    chosen = make_policy(policy, parameters)
    program = chosen.compile(asked, memory, budget)
    if not isinstance(program, Admits):
        raise InstanceError(f"admit: policy {chosen.name!r} makes no promises")
    found = program.offer(row, solver_of(gap, backend, seed), budget)
    return _told(asked, row, chosen, found, tuple(given_up))


def _told(
    round_: TrainingRound, row: int, policy: Policy, found: Offer, given_up: tuple[str, ...]
) -> Admission:
    lease_s = float(getattr(policy, "lease_s", 0.0))
    types, ids = round_.cluster.types, round_.jobs.id
    count = len(found.leases_s)
    note = (found.note,) if found.note else ()
    return Admission(
        job=str(ids[row]),
        policy=policy.name,
        accepted=found.accepted,
        known=found.known,
        deadline_s=found.deadline_s,
        value=found.value,
        gpu_type=str(types[found.gpu_type]) if found.gpu_type >= 0 else "",
        gpus=found.gpus,
        charged_gpus=found.charged,
        lease_s=lease_s,
        leases_s=found.leases_s,
        displaced=tuple(str(ids[one]) for one in found.displaced),
        displaced_value=found.displaced_value,
        best_effort_gpu_s=found.gpus * lease_s * count,
        counter_offer_s=found.counter_offer_s,
        extra_gpus=found.extra_gpus,
        extra_type=str(types[found.extra_type]) if found.extra_type >= 0 else "",
        decided=found.decided,
        notes=(*given_up, *note),
    )
