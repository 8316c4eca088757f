"""The call trees of a round as sums of stages: single calls, and forks of calls side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from apportion.formulations.microservices.forks import Branch, Fork
from apportion.instances.columns import Ints
from apportion.instances.microservices import MicroserviceRound, laws


@dataclass
class Stages:
    """One class: calls that follow one another, forks between them, and the time they all share.

    ``rows`` are rows of the round's call trees; ``shift_ms`` is the part of the latency that no
    number of containers changes. ``exact`` is False where a fork has too many states: there the
    latency is taken for longer than it is, so that no plan is thought better than it is.
    """

    rows: list[int] = field(default_factory=list[int])
    forks: list[Fork] = field(default_factory=list[Fork])
    shift_ms: float = 0.0
    exact: bool = True

    @property
    def calls(self) -> int:
        """Calls in all, those inside forks included."""
        return len(self.rows) + sum(fork.rows.size for fork in self.forks)


def stages_of(round_: MicroserviceRound, k: int) -> Stages:
    """Split the tree of a class into stages."""
    trees = round_.classes.trees
    low, high = int(trees.offsets[k]), int(trees.offsets[k + 1])
    below: dict[int, list[int]] = {}
    for row in range(low, high):
        below.setdefault(int(trees.parent_row[row]), []).append(row)
    out = Stages()
    shift = laws.shifts_ms(round_)
    _append(out, -1, below, trees.stage, cast("list[float]", shift.tolist()))
    return out


def _members(parent: int, below: dict[int, list[int]], stage: Ints) -> list[list[int]]:
    """Give the calls below a parent, stage after stage."""
    by_number: dict[int, list[int]] = {}
    for row in below.get(parent, []):
        by_number.setdefault(int(stage[row]), []).append(row)
    return [by_number[number] for number in sorted(by_number)]


def _append(
    out: Stages, parent: int, below: dict[int, list[int]], stage: Ints, shift: list[float]
) -> None:
    """Add what happens below a call, stage after stage."""
    for members in _members(parent, below, stage):
        if len(members) == 1:
            out.rows.append(members[0])
            out.shift_ms += shift[members[0]]
            _append(out, members[0], below, stage, shift)
            continue
        joined = Branch.fork([_branch(row, below, stage, shift) for row in members])
        out.forks.append(Fork.of(joined))
        out.shift_ms += joined.shift_ms
        out.exact &= joined.exact


def _branch(row: int, below: dict[int, list[int]], stage: Ints, shift: list[float]) -> Branch:
    """Build one branch: a call and all that is below it."""
    out = Branch.call(row, shift[row])
    for members in _members(row, below, stage):
        inner = [_branch(one, below, stage, shift) for one in members]
        out = out.then(inner[0] if len(inner) == 1 else Branch.fork(inner))
    return out
