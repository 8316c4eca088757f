"""What an audit finds: properties that hold or do not, with the worst case and its margin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apportion.results.table import Cell, Column, Table


@dataclass(frozen=True)
class Finding:
    """One property, or one measure.

    Parameters
    ----------
    property
        Its name: ``"envy-freeness"``.
    holds
        None: it does not apply, could not be settled, or is a measure without a threshold.
    worst
        Who is worst off; for envy the envious user and the one it envies.
    margin
        By how much the worst case holds; below zero: by how much it does not. For measures their
        value. None where there is none.
    words
        What the margin is, and who it is about, for people.
    """

    property: str
    holds: bool | None
    worst: tuple[str, ...] = ()
    margin: float | None = None
    words: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain data for JSON."""
        return {
            "property": self.property, "holds": self.holds, "worst": list(self.worst),
            "margin": self.margin, "words": self.words,
        }  # fmt: skip


def shortened(names: tuple[str, ...], most: int = 3) -> str:
    """Name the first of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return " / ".join(names[:most]) + more


@dataclass(frozen=True)
class Audit:
    """What was found about one plan, or one run.

    Parameters
    ----------
    policy
        Who decided.
    of
        What was audited: ``"planned shares"``, ``"this round's leases"``, ``"executed leases"``.
    findings
        In a fixed order.
    utility
        Normalised throughput of each user.
    notes
        What a reader should know.
    """

    policy: str
    of: str
    findings: tuple[Finding, ...]
    utility: Mapping[str, float] = field(default_factory=dict[str, float])
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether no property failed; what does not apply does not fail."""
        return all(one.holds is not False for one in self.findings)

    def __getitem__(self, name: str) -> Finding:
        """Find a property or measure by name; KeyError where it was not asked for."""
        for one in self.findings:
            if one.property == name:
                return one
        raise KeyError(name)

    def table(self) -> Table:
        """Set the findings below each other; what they mean in words stands under the table."""
        columns = [
            Column("property", "property"), Column("holds", "holds"), Column("worst", "worst case"),
            Column("margin", "margin", "ratio"), Column("words", "in words", readers="machines"),
        ]  # fmt: skip
        said = {True: "yes", False: "NO", None: "-"}
        rows: list[list[Cell]] = [
            [one.property, said[one.holds], shortened(one.worst), one.margin, one.words]
            for one in self.findings
        ]
        words = [f"{one.property}: {one.words}" for one in self.findings if one.words]
        return Table(f"{self.policy}: audit of {self.of}", columns, rows, [*words, *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain data for JSON."""
        return {
            "schema": "apportion/audit/1",
            "policy": self.policy,
            "of": self.of,
            "holds": self.holds,
            "findings": [one.to_dict() for one in self.findings],
            "utility": dict(self.utility),
            "notes": list(self.notes),
        }
