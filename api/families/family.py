"""What the face asks of a family of rounds; nothing else in the face knows one family from another.

A family is a folder of the same name in ``instances``, ``formulations`` and ``executor``. Its rounds,
allocations, outcomes, scenarios and records are its own types, so that they stay open here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pandas as pd
from rich.text import Text

from apportion.instances import Decider, Decision, Violation
from apportion.instances.files import PathLike
from apportion.results import Labels, Table

Progress = Callable[[float, int, int], None]
"""Called now and then with the time reached, the things that are done, and those in all."""


class Metrics(Protocol):
    """What a run amounts to, one number a name."""

    def as_dict(self, *, timings: bool = False) -> dict[str, Any]:
        """Give plain data for JSON; wall times stand under ``timings``, if asked for."""
        ...


class Files(Protocol):
    """Rounds, and what is said about them, as plain data for JSON; each pair is inverse."""

    rows: ClassVar[str]
    """Key under which an answer keeps its columns of the round's rows, such as ``jobs``."""

    def row_names(self, round_: Any) -> list[str]:
        """Name the rows of a round that ``Decision.per_job`` has values for."""
        ...

    def round_from_dict(self, data: object) -> Any:
        """Read a round."""
        ...

    def round_to_dict(self, round_: Any) -> dict[str, Any]:
        """Write a round."""
        ...

    def allocation_from_dict(self, round_: Any, data: object) -> Any:
        """Read an allocation by the names of its round."""
        ...

    def allocation_to_dict(self, round_: Any, allocation: Any) -> dict[str, Any]:
        """Write an allocation."""
        ...

    def outcome_from_dict(self, round_: Any, data: object) -> Any:
        """Read what came of an answer to a round."""
        ...

    told: ClassVar[tuple[str, ...]]
    """Further keys of an answer, for readers: what ``facts`` gives. They are not read back."""

    def facts(self, round_: Any, allocation: Any) -> dict[str, Any]:
        """Recompute what a reader of an answer wants to know, by the keys ``told``."""
        ...

    def commitments_from_rows(self, round_: Any, data: object) -> Any:
        """Read the reservations of a decision."""
        ...

    def commitment_rows(self, round_: Any, commitments: Any) -> list[dict[str, Any]]:
        """Write the reservations of a decision."""
        ...

    def shares_from_dict(self, data: object) -> Any:
        """Read the shares of a decision; what writes them is their own ``to_dict``."""
        ...


class Rules(Protocol):
    """What makes a decision one that may be carried out, and what follows it."""

    def keepable(self, round_: Any) -> tuple[Any, tuple[str, ...]]:
        """Leave out promises that nobody can keep any more; one line for each."""
        ...

    def check(self, round_: Any, allocation: Any) -> list[Violation]:
        """Recompute every rule from the round alone."""
        ...

    def finished(self, round_: Any, decision: Decision) -> tuple[Decision, list[Violation]]:
        """Complete a policy's decision, check it before and after, and give what it breaks."""
        ...

    def certificate(
        self, program: object, round_: Any, planned: Decision, carried: Any, gap: float
    ) -> dict[str, Any] | None:
        """Write down what proves an answer, where the policy's model allows a proof."""
        ...

    def planned_outcome(self, round_: Any, allocation: Any, end_s: float | None = None) -> Any:
        """Carry a plan out in thought, to the end of the round or to ``end_s``."""
        ...

    def require_outcome(self, outcome: Any, before: Any, now: Any) -> None:
        """Refuse an outcome that cannot be what came of ``before`` until ``now``."""
        ...

    def round_after(self, round_: Any, decision: Decision, outcome: Any, arrivals: Any) -> Any:
        """Build the round that follows."""
        ...


class Runs(Protocol):
    """Scenarios, and what comes of them."""

    counted: ClassVar[str]
    """What the progress of a run counts, such as ``jobs``."""

    def read_scenario(
        self, path: PathLike, *, variant: str | None = None, seed: int | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Read a scenario, or a what-if variant of one."""
        ...

    def variant_names(self, path: PathLike) -> tuple[str, ...]:
        """List the variants of a scenario."""
        ...

    def digest(self, scenario: Any) -> str:
        """Give a fingerprint of all that a run depends on."""
        ...

    def run(
        self, scenario: Any, decider: Decider, *, policy: str, journal: Path | None,
        progress: Progress | None,
    ) -> Any:  # fmt: skip
        """Carry a scenario out, or go on with the run that ``journal`` holds the beginning of."""
        ...

    def metrics(self, run: Any) -> Metrics:
        """Measure a run."""
        ...

    def metrics_from_dict(self, data: Mapping[str, Any]) -> Metrics:
        """Read metrics that ``as_dict`` wrote."""
        ...

    def frames(self, run: Any) -> Mapping[str, pd.DataFrame]:
        """Give the tables that are written beside a run, by the name of their file."""
        ...


class Tables(Protocol):
    """What people are shown."""

    def decision(self, policy: str, round_: Any, decision: Decision) -> Sequence[Table]:
        """Show what was decided, first one row for each row of the round."""
        ...

    def plan(self, round_: Any, allocation: Any) -> str:
        """Sum an allocation up in a few words."""
        ...

    def metrics(self, metrics: Any, *, title: str) -> Table:
        """List the metrics of a run."""
        ...

    def comparison(self, runs: Iterable[tuple[Labels, Any]], *, title: str) -> Table:
        """Set the metrics of runs side by side."""
        ...

    def figure(self, run: Any) -> Text | None:
        """Draw a run, where there is something to draw."""
        ...


@dataclass(frozen=True)
class Family:
    """One family of rounds.

    Parameters
    ----------
    name
        As files spell it, and the folders.
    round_type, scenario_type
        Its classes, by which objects are told apart.
    policies
        Its own policy classes.
    default_policy
        Who decides where nobody is named.
    files, rules, runs, tables
        What the face asks of it.
    """

    name: str
    round_type: type[Any]
    scenario_type: type[Any]
    policies: tuple[type[Any], ...]
    default_policy: str
    files: Files
    rules: Rules
    runs: Runs
    tables: Tables
