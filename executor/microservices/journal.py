"""A run on disk while it goes on: one line for each finished round.

``journal.jsonl`` begins with a header and holds what was decided. Replaying it through the same
world, whose chance is seeded, gives the same state, so that a run that was killed and resumed
ends with the same bytes as one that was never disturbed. Each line says how many violations
followed, and a replay that sees others is refused. Wall times go to ``timings.jsonl``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from apportion.executor.begun import begun
from apportion.executor.codec import decode, encode
from apportion.executor.json_lines import Lines
from apportion.executor.microservices.digest import scenario_digest
from apportion.instances.columns import Ints
from apportion.instances.errors import InstanceError
from apportion.instances.microservices import Allocation, MicroserviceRound, Scenario
from apportion.instances.policy import Decision

SCHEMA = "apportion/microservices-journal/1"

_PLAIN = ("status", "objective", "bound", "gap", "carry", "notes", "time_limited")
_LINE = {"index", "allocation", "violations", *_PLAIN}


class Journal:
    """The files of one run, open for the next line."""

    def __init__(
        self, lines: list[dict[str, Any]], times: list[float], files: tuple[Lines, Lines]
    ) -> None:
        self._lines, self._times, self._files = lines, times, files
        self._taken = 0

    @classmethod
    def open(cls, folder: Path, scenario: Scenario, policy: str) -> Journal:
        """Open the journal of a run, new or begun.

        Parameters
        ----------
        folder
            Made if it is not there.
        scenario, policy
            What the run is of.

        Raises
        ------
        InstanceError
            If the journal there is of another scenario, policy or version, or is damaged before
            its last line.
        """
        header = {"schema": SCHEMA, "scenario": scenario_digest(scenario), "policy": policy}
        found = begun(folder, header, _LINE)
        return cls(found.lines, found.decide_s, found.files)

    def next(self, view: MicroserviceRound) -> tuple[Decision, float] | None:
        """Take the next decision and its wall time; None when the journal is used up."""
        if self._taken == len(self._lines):
            return None
        line = self._lines[self._taken]
        if line["index"] != view.index:
            raise InstanceError(
                f"{self._files[0].path}: round {line['index']} was journaled where this run is in"
                f" round {view.index}; the journal was written by another version or is damaged"
            )
        plain = {name: decode(line[name]) for name in _PLAIN}
        allocation = _allocation(view, line["allocation"])
        times = self._times
        return Decision(allocation, **plain), (
            times[self._taken] if self._taken < len(times) else math.nan
        )

    def append(
        self, view: MicroserviceRound, decision: Decision, violations: Ints, decide_s: float
    ) -> None:
        """Write a finished round, unless it came from here."""
        if self._taken < len(self._lines):
            told = self._lines[self._taken]["violations"]
            self._taken += 1
            if told != violations.tolist():
                raise InstanceError(
                    f"{self._files[0].path}: round {view.index} had violations {told}, here it has"
                    f" {violations.tolist()}; the journal was written by another version"
                )
            return
        line: dict[str, Any] = {"index": view.index}
        line |= {name: encode(getattr(decision, name)) for name in _PLAIN}
        line["allocation"] = _told(decision.allocation)
        line["violations"] = violations.tolist()
        self._files[0].write(line)
        self._files[1].write({"index": view.index, "decide_s": decide_s})
        self._lines.append(line)
        self._taken += 1

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


def _told(allocation: Allocation) -> dict[str, Any]:
    out: dict[str, Any] = {
        "containers": allocation.containers.tolist(),
        "guaranteed": np.flatnonzero(allocation.guaranteed).tolist(),
    }
    if allocation.rank is not None:
        out["rank"] = allocation.rank.tolist()
    if allocation.placement is not None:
        where = np.nonzero(allocation.placement)
        out["placement"] = [*(at.tolist() for at in where), allocation.placement[where].tolist()]
    return out


def _allocation(view: MicroserviceRound, told: dict[str, Any]) -> Allocation:
    guaranteed = np.zeros(len(view.services), dtype=np.bool_)
    guaranteed[np.array(told["guaranteed"], dtype=np.int64)] = True
    placement = None
    if "placement" in told and view.nodes is not None:
        rows, nodes, counts = told["placement"]
        placement = np.zeros((len(view.microservices), len(view.nodes)), dtype=np.int64)
        placement[np.array(rows, dtype=np.int64), np.array(nodes, dtype=np.int64)] = counts
    containers = np.array(told["containers"], dtype=np.int64)
    return Allocation.of(containers, guaranteed, rank=told.get("rank"), placement=placement)
