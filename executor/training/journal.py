"""A run on disk while it goes on: one line for each finished interval between two decisions.

``journal.jsonl`` begins with a header and holds what was decided, as the difference from the
decision before. A run that was killed leaves whole lines, and perhaps the beginning of one more,
which is dropped. Replaying the lines through the same world gives the same state, so a resumed
run ends with the same bytes as one that was never disturbed. Wall times differ from run to run
and go to ``timings.jsonl``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from apportion.executor.begun import begun
from apportion.executor.codec import decode, encode
from apportion.executor.json_lines import Lines
from apportion.executor.training.digest import scenario_digest
from apportion.instances.columns import Bools, Floats, Ints, freeze
from apportion.instances.errors import InstanceError
from apportion.instances.policy import Decision
from apportion.instances.training import (
    Allocation,
    Commitments,
    Placement,
    Scenario,
    TrainingRound,
)

SCHEMA = "apportion/journal/1"

_PLAIN = (
    "status",
    "objective",
    "bound",
    "gap",
    "carry",
    "next_decision_s",
    "notes",
    "time_limited",
)


_INTERVAL = {"now_s", "end_s", "allocation", "commitments", "reactions", *_PLAIN}


@dataclass
class Entry:
    """What was decided in one interval, with the scenario rows its allocation speaks of."""

    rows: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    decision: Decision | None = None
    reactions: list[tuple[Ints, Allocation | None]] = field(
        default_factory=list[tuple[Ints, Allocation | None]]
    )

    def react(self, rows: Ints, action: Allocation | None) -> None:
        """Note a reaction, or that there was none."""
        self.reactions.append((rows, action))


class Replay:
    """One journaled interval: its decision, and its reactions as they come up."""

    def __init__(self, line: dict[str, Any], last: Last, view: TrainingRound, spent: float) -> None:
        if line["now_s"] != view.now_s:
            raise InstanceError(
                f"journal.jsonl: a decision was journaled at {line['now_s']:g} s, this run decides"
                f" at {view.now_s:g} s; the journal was written by another version or is damaged"
            )
        self._line, self._last, self._reactions = line, last, list(line["reactions"])
        self.decide_s = spent
        rows = view.jobs.code
        plain = {name: decode(line[name]) for name in _PLAIN}
        allocation = last.decode(rows, line["allocation"])
        promised = _commitments(rows, line["commitments"])
        self.decision = Decision(allocation, commitments=promised, **plain)

    def reaction(self, view: TrainingRound) -> Allocation | None:
        """Take the next reaction."""
        action = self._reactions.pop(0)
        return None if action is None else self._last.decode(view.jobs.code, action)


class Last:
    """The allocation journaled last, by scenario row: what the next one is told against."""

    def __init__(self, jobs: int) -> None:
        self._kind: Ints = np.full(jobs, -1, dtype=np.int64)
        self._gpus: Ints = np.zeros(jobs, dtype=np.int64)
        self._end: Floats = np.full(jobs, np.inf)
        self._sure: Bools = np.zeros(jobs, dtype=np.bool_)

    def encode(self, rows: Ints, allocation: Allocation) -> dict[str, Any]:
        """Tell an allocation over the jobs of a round as the difference from the last one."""
        n, at = rows.size, allocation.job
        kind, gpus = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
        end, sure = np.full(n, np.inf), np.zeros(n, dtype=np.bool_)
        kind[at], gpus[at] = allocation.gpu_type, allocation.gpus
        end[at], sure[at] = allocation.lease_end_s, allocation.guaranteed
        differs = (kind != self._kind[rows]) | (gpus != self._gpus[rows])
        differs |= (end != self._end[rows]) | (sure != self._sure[rows])
        i = np.flatnonzero(differs)
        self._set(rows[i], kind[i], gpus[i], end[i], sure[i])
        out: dict[str, Any] = {
            "row": rows[i].tolist(),
            "type": kind[i].tolist(),
            "gpus": gpus[i].tolist(),
            "end": [None if value == np.inf else value for value in end[i].tolist()],
            "sure": sure[i].tolist(),
        }
        if allocation.lost_job.size:
            out["lost_row"] = rows[allocation.lost_job].tolist()
            out["lost_work"] = allocation.lost_work.tolist()
        if allocation.placement is not None:
            where = allocation.placement
            out["placement"] = [
                rows[where.job].tolist(), where.node.tolist(), where.gpus.tolist()
            ]  # fmt: skip
        return out

    def decode(self, rows: Ints, told: dict[str, Any]) -> Allocation:
        """Undo ``encode``."""
        end = [np.inf if value is None else value for value in told["end"]]
        self._set(
            np.array(told["row"], dtype=np.int64), np.array(told["type"], dtype=np.int64),
            np.array(told["gpus"], dtype=np.int64), np.array(end, dtype=np.float64),
            np.array(told["sure"], dtype=np.bool_),
        )  # fmt: skip
        job = cast(Ints, np.flatnonzero(self._gpus[rows] > 0))
        on = rows[job]
        placement = None
        if "placement" in told:
            owners, nodes, gpus = told["placement"]
            placement = Placement.of(_among(rows, owners), nodes, gpus)
        return Allocation.of(
            job, self._kind[on], self._gpus[on],
            lease_end_s=self._end[on], guaranteed=self._sure[on], placement=placement,
            lost_job=_among(rows, told.get("lost_row", [])),
            lost_work=told.get("lost_work", []),
        )  # fmt: skip

    def _set(self, rows: Ints, kind: Ints, gpus: Ints, end: Floats, sure: Bools) -> None:
        self._kind[rows], self._gpus[rows] = kind, gpus
        self._end[rows], self._sure[rows] = end, sure


class Journal:
    """The files of one run, open for the next line."""

    def __init__(
        self,
        lines: list[dict[str, Any]],
        times: list[float],
        files: tuple[Lines, Lines],
        jobs: int,
    ) -> None:
        self._lines, self._times, self._files = lines, times, files
        self._last = Last(jobs)
        self._taken = 0
        self._written = len(lines)

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
        found = begun(folder, header, _INTERVAL)
        return cls(found.lines, found.decide_s, found.files, len(scenario.jobs))

    def next(self, view: TrainingRound) -> Replay | None:
        """Take the next journaled interval; None when the journal is used up."""
        if self._taken == len(self._lines):
            return None
        line, times = self._lines[self._taken], self._times
        spent = times[self._taken] if self._taken < len(times) else float("nan")
        self._taken += 1
        return Replay(line, self._last, view, spent)

    def append(self, entry: Entry, span: tuple[float, float], decide_s: float) -> None:
        """Write a finished interval, unless it came from here."""
        if self._written:
            told = self._lines[-self._written]
            self._written -= 1
            if (told.get("now_s"), told.get("end_s")) != span:
                raise InstanceError(
                    f"{self._files[0].path}: the interval from {span[0]:g} ends at {span[1]:g} here"
                    f" and at {told.get('end_s')} there; the journal is damaged"
                )
            return
        decision = cast(Decision, entry.decision)
        line: dict[str, Any] = {"now_s": span[0], "end_s": span[1]}
        line |= {name: encode(getattr(decision, name)) for name in _PLAIN}
        line["allocation"] = self._last.encode(entry.rows, decision.allocation)
        line["commitments"] = _told(entry.rows, decision.commitments)
        line["reactions"] = [
            None if action is None else self._last.encode(rows, action)
            for rows, action in entry.reactions
        ]
        self._files[0].write(line)
        self._files[1].write({"now_s": span[0], "decide_s": decide_s})

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


def _told(rows: Ints, commitments: Commitments | None) -> dict[str, Any] | None:
    if commitments is None:
        return None
    out = {"row": encode(rows[commitments.job])}
    for name in ("start_s", "end_s", "gpus", "gpu_type", "kind"):
        out[name] = encode(getattr(commitments, name))
    return out


def _commitments(rows: Ints, told: dict[str, Any] | None) -> Commitments | None:
    if told is None:
        return None
    columns = {name: decode(column) for name, column in told.items()}
    job = _among(rows, columns.pop("row"))
    freeze(job)
    return Commitments(job, **columns)


def _among(rows: Ints, wanted: Any) -> Ints:
    """Positions of scenario rows among the rising rows of a round."""
    return cast(Ints, np.searchsorted(rows, np.asarray(wanted, dtype=np.int64)))
