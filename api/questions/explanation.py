"""What ``explain`` answers, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.text import Text

from apportion.questions.what_if import shortened
from apportion.results import Column, Table
from apportion.results.table import Cell


@dataclass(frozen=True)
class Option:
    """What it would take to give a job a type, or to let it wait.

    Parameters
    ----------
    gpu_type
        The type; None: it waits.
    possible
        Whether the round can do it at all.
    cost
        The job's own cost there.
    price
        What its GPUs cost there at the relaxation's prices.
    objective_change, gpus_change
        Change of the policy's objective and of the GPUs in use when it is forced, found by solving
        again; None where no optimum was proved.
    stopped
        Jobs that would have to wait instead.
    reason
        Why it is not possible, or what it is.
    """

    gpu_type: str | None
    possible: bool
    cost: float | None = None
    price: float | None = None
    objective_change: float | None = None
    gpus_change: int | None = None
    stopped: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class JobReason:
    """What a job got, and why.

    Parameters
    ----------
    job
        The job.
    got
        The GPU type it runs on in this round, None where it waits.
    why
        What decided it.
    parts
        Part of the time it is meant to have on each type, where the policy shares time.
    """

    job: str
    got: str | None
    why: str
    parts: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class TypeUse:
    """How much of a GPU type is wanted.

    Parameters
    ----------
    gpu_type
        The type.
    free, used
        GPUs beside the leases that go on, and how many of them the plan uses.
    price
        What a GPU costs whoever takes it, in the relaxation: above zero where jobs compete for it,
        below where rules have it filled at a loss; None where it was not solved.
    """

    gpu_type: str
    free: int
    used: int
    price: float | None


@dataclass(frozen=True)
class Explanation:
    """Answer to the question why.

    Parameters
    ----------
    policy, status, objective
        Of the decision that is explained.
    conflict
        Rules that no plan obeys together, in words; empty where there is no conflict.
    minimal
        Whether it was shown that any one of them can be dropped to make the others possible.
    repair
        Cheapest way to make it possible, in words.
    jobs
        What every job got, and why.
    types
        How much of each GPU type is wanted.
    job, options
        The job that was asked for, and what each type, or waiting, would take.
    notes
        What a reader should know.
    """

    policy: str
    status: str
    objective: float | None
    conflict: tuple[str, ...] = ()
    minimal: bool = False
    repair: tuple[str, ...] = ()
    jobs: tuple[JobReason, ...] = ()
    types: tuple[TypeUse, ...] = ()
    job: str | None = None
    options: tuple[Option, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Give the explanation as plain data."""
        return {"schema": "apportion/explanation/1", **asdict(self)}

    def parts(self) -> Iterator[Table | Text]:
        """Show the explanation."""
        if self.conflict:
            kind = "" if self.minimal else " (perhaps not all of them are needed)"
            yield Text(f"Impossible together{kind}:")
            yield from (Text(f"  {line}") for line in self.conflict)
        if self.repair:
            yield Text("Cheapest way out:")
            yield from (Text(f"  {line}") for line in self.repair)
        if self.types:
            yield self._types()
        if self.options:
            yield self._options()
        columns = [Column("job", "job"), Column("got", "got"), Column("why", "why")]
        rows: list[list[Cell]] = [[one.job, one.got or "waits", one.why] for one in self.jobs]
        title = f"{self.policy}: {self.status}"
        if self.objective is not None:
            title += f", objective {self.objective:.6g}"
        yield Table(title, columns, rows, list(self.notes))

    def _types(self) -> Table:
        columns = [
            Column("type", "GPU type"), Column("free", "GPUs to give", "count"),
            Column("used", "given", "count"), Column("price", "price of one", "ratio"),
            Column("binds", ""),
        ]  # fmt: skip
        rows: list[list[Cell]] = [
            [
                one.gpu_type,
                one.free,
                one.used,
                one.price,
                "all given" if one.used == one.free else "",
            ]
            for one in self.types
        ]
        return Table("GPU types", columns, rows)

    def _options(self) -> Table:
        columns = [
            Column("type", "GPU type"), Column("cost", "own cost", "ratio"),
            Column("price", "price of its GPUs", "ratio"),
            Column("objective", "change of the objective", "ratio"),
            Column("gpus", "change of GPUs in use", "count"), Column("instead", "would wait"),
            Column("note", ""),
        ]  # fmt: skip
        rows: list[list[Cell]] = [
            [one.gpu_type or "(waits)", one.cost, one.price, one.objective_change,
             one.gpus_change, shortened(one.stopped), one.reason]
            for one in self.options
        ]  # fmt: skip
        return Table(f"Job {self.job}: what else it could get", columns, rows)
