"""The journal of a run, new or begun: its header is checked, its finished lines are given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apportion.executor.json_lines import Lines
from apportion.instances.errors import InstanceError


@dataclass(frozen=True)
class Begun:
    """What a folder holds of a run.

    Parameters
    ----------
    lines
        Finished lines, without the header.
    decide_s
        Wall time of each decision, NaN where it is not known.
    files
        Journal and times, open for the next line.
    """

    lines: list[dict[str, Any]]
    decide_s: list[float]
    files: tuple[Lines, Lines]


def begun(folder: Path, header: Mapping[str, Any], needed: Set[str]) -> Begun:
    """Open the journal of a run.

    Parameters
    ----------
    folder
        Made if it is not there.
    header
        What the run is of: the first line of the journal.
    needed
        Keys that every line has.

    Raises
    ------
    InstanceError
        If the journal there is of another scenario, policy or version, or is damaged before its
        last line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        journal = opened.enter_context(closing(Lines(folder / "journal.jsonl")))
        timings = opened.enter_context(closing(Lines(folder / "timings.jsonl")))
        lines = journal.read()
        for number, line in enumerate(lines[1:], start=2):
            if missing := needed - line.keys():
                raise InstanceError(
                    f"{journal.path}: line {number} lacks {min(missing)!r}; the journal is damaged"
                )
        if lines:
            _require_same(journal.path, lines[0], header)
        else:
            journal.write(dict(header))
        # wall times are no part of the run: damage there must not stop it
        times = timings.read(strict=False)[: max(0, len(lines) - 1)]
        opened.pop_all()
    spent = [float(line.get("decide_s", math.nan)) for line in times]
    return Begun(lines[1:], spent, (journal, timings))


def _require_same(path: Path, found: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    for name, value in header.items():
        if found.get(name) != value:
            raise InstanceError(
                f"{path}: the journal is of {name} {found.get(name)!r}, this run is of {value!r};"
                " choose another folder or remove it"
            )
