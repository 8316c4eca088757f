"""The call trees of a round as sums of stages: single calls, and forks of calls side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from apportion.formulations.microservices.forks import Fork, Network, in_series, side_by_side
from apportion.instances.columns import Ints
from apportion.instances.microservices import MicroserviceRound, laws


@dataclass
class Stages:
    """One class: calls that follow one another, forks between them, and the time they all share.

    ``rows`` are rows of the round's call trees; ``shift_ms`` is the part of the latency that no
    number of containers changes. ``exact`` is False where a fork inside a fork has branches of
    different shifts: there all branches are given the longest, which no request can exceed.
    """

    rows: list[int] = field(default_factory=list[int])
    forks: list[Fork] = field(default_factory=list[Fork])
    shift_ms: float = 0.0
    exact: bool = True

    @property
    def calls(self) -> int:
        """Calls in all, those inside forks included."""
        return len(self.rows) + sum(fork.rows.size for fork in self.forks)


@dataclass
class _Branch:
    """A branch of a fork: its network, its calls, and its own shift."""

    network: Network
    rows: list[int]
    shift_ms: float
    is_chain: bool
    exact: bool


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
        branches = [_branch(row, below, stage, shift) for row in members]
        longest = max(branch.shift_ms for branch in branches)
        lead = [longest - branch.shift_ms for branch in branches]
        exact = all(branch.exact for branch in branches)
        if any(lead) and not all(branch.is_chain for branch in branches):
            exact, lead = False, [0.0] * len(branches)
        out.forks.append(Fork.of([(b.network, b.rows) for b in branches], lead))
        out.shift_ms += longest
        out.exact &= exact


def _branch(row: int, below: dict[int, list[int]], stage: Ints, shift: list[float]) -> _Branch:
    """Build one branch: a call and all that is below it."""
    network, rows = Network.chain(1), [row]
    total, is_chain, exact = shift[row], True, True
    for members in _members(row, below, stage):
        inner = [_branch(one, below, stage, shift) for one in members]
        longest = max(branch.shift_ms for branch in inner)
        exact &= all(b.exact for b in inner)
        exact &= all(b.shift_ms == longest for b in inner)
        is_chain &= len(inner) == 1 and inner[0].is_chain
        joined = inner[0].network
        for one in inner[1:]:
            joined = side_by_side(joined, one.network)
        network = in_series(network, joined)
        rows += [each for branch in inner for each in branch.rows]
        total += longest
    return _Branch(network, rows, total, is_chain, exact)
