"""Call trees of several services as one forest of stages, level by level."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import MicroserviceRound


@dataclass(frozen=True, eq=False)
class Forest:
    """Calls of the classes that occur, and the requests above them.

    Nodes are the C calls, then the K' requests (one a class). A call's latency is its own time
    and then, stage by stage, the latest of the members.

    Parameters
    ----------
    microservice, root
        Who is called, and in which request, shape (C,).
    repeats
        How often the call is made in one request, shape (C,).
    root_service
        Service of each request, shape (K',).
    stage
        Stage each call belongs to, shape (C,).
    owner
        Node that each stage hangs below, shape (G,).
    depth
        Depth of each node below its request, shape (C + K',); requests have 0.
    """

    microservice: Ints
    root: Ints
    repeats: Floats
    root_service: Ints
    stage: Ints
    owner: Ints
    depth: Ints

    @classmethod
    def of(cls, round_: MicroserviceRound) -> Forest:
        """Build from the classes of a round that occur."""
        trees, classes = round_.classes.trees, round_.classes
        rows = np.flatnonzero(round_.active[trees.class_of])
        roots = np.flatnonzero(round_.active)
        count = rows.size
        place = np.full(trees.calls.size, -1, dtype=np.int64)
        place[rows] = np.arange(count)
        root_of = np.full(len(trees), -1, dtype=np.int64)
        root_of[roots] = count + np.arange(roots.size)
        above = trees.parent_row[rows]
        parent = np.where(above >= 0, place[above], root_of[trees.class_of[rows]])
        depth = np.zeros(count + roots.size, dtype=np.int64)
        for at in range(count):  # parents come first
            depth[at] = depth[parent[at]] + 1
        keys = np.stack((parent, trees.stage[rows]), axis=1).reshape(-1, 2)
        stages, stage = np.unique(keys, axis=0, return_inverse=True)
        return cls(
            microservice=trees.microservice[rows],
            root=root_of[trees.class_of[rows]] - count,
            repeats=trees.per_request[rows],
            root_service=classes.service[roots],
            stage=cast(Ints, stage.reshape(-1)),
            owner=stages[:, 0],
            depth=depth,
        )

    @cached_property
    def service(self) -> Ints:
        """Service each call is made for, shape (C,)."""
        return self.root_service[self.root]

    @property
    def calls(self) -> int:
        """Number of calls, C."""
        return self.microservice.size

    @cached_property
    def levels(self) -> tuple[tuple[Ints, Ints], ...]:
        """From the requests downward: nodes of a depth, and the stages below them."""
        of_stage = self.depth[self.owner]
        deepest = int(self.depth.max(initial=-1))
        return tuple(
            (np.flatnonzero(self.depth == level), np.flatnonzero(of_stage == level))
            for level in range(deepest + 1)
        )

    @cached_property
    def members(self) -> tuple[Ints, ...]:
        """Calls of the stages below each level, in the order of ``levels``."""
        level = self.depth[self.owner][self.stage]
        return tuple(np.flatnonzero(level == at) for at in range(len(self.levels)))

    @cached_property
    def width(self) -> Ints:
        """Members of each stage, shape (G,)."""
        return np.bincount(self.stage, minlength=self.owner.size).astype(np.int64)

    def latency(self, own: Floats) -> tuple[Floats, Floats]:
        """Latency of each node and of each stage from the calls' own times, shape (C,)."""
        node = np.concatenate((own, np.zeros(self.root_service.size)))
        stage = np.full(self.owner.size, -np.inf)
        for (_, stages), members in zip(reversed(self.levels), reversed(self.members), strict=True):
            np.maximum.at(stage, self.stage[members], node[members])
            np.add.at(node, self.owner[stages], stage[stages])
        return node, stage

    def allowance(self, own: Floats, target_ms: Floats) -> Floats:
        """Longest own time of each call that keeps every request in time, others as they are.

        Parameters
        ----------
        own
            Own times, shape (C,).
        target_ms
            Target of each request, shape (K',).
        """
        node, stage = self.latency(own)
        granted = np.concatenate((np.zeros(self.calls), target_ms))
        for (_, stages), members in zip(self.levels, self.members, strict=True):
            owner = self.owner[stages]
            room = np.zeros(self.owner.size)
            # what the owner may take, less itself and its other stages
            room[stages] = granted[owner] - (node[owner] - stage[stages])
            granted[members] = room[self.stage[members]]
        return granted[: self.calls] - (node[: self.calls] - own)

    def critical(self, own: Floats) -> Bools:
        """Mark the calls that a request waits for, shape (C,); of equals all."""
        node, stage = self.latency(own)
        on = np.zeros(node.size, dtype=np.bool_)
        on[self.calls :] = True
        for members in self.members:
            above = self.stage[members]
            on[members] = on[self.owner[above]] & (node[members] >= stage[above])
        return on[: self.calls]

    def rows(self, target_ms: Floats) -> tuple[Ints, Floats]:
        """Row of a model that the time of each node counts into, and the rows' upper sides.

        Requests come first, then the members of stages with several: a member less the latency of
        its stage is at most 0. An only member counts into the row of its owner.

        Parameters
        ----------
        target_ms
            Of the requests, shape (K',).
        """
        requests = self.root_service.size
        row = np.zeros(self.calls + requests, dtype=np.int64)
        row[self.calls :] = np.arange(requests)
        beside = np.flatnonzero(self.width[self.stage] > 1)
        own = np.full(self.calls, -1, dtype=np.int64)
        own[beside] = requests + np.arange(beside.size)
        for members in self.members:
            above = row[self.owner[self.stage[members]]]
            row[members] = np.where(own[members] >= 0, own[members], above)
        return row, np.concatenate((target_ms, np.zeros(beside.size)))

    def split(self, base: Floats, weight: Floats, target_ms: Floats) -> Floats:
        """Split targets: each call its base, and of the rest a part in proportion to its weight.

        Members of a stage get all of the stage's part; a stage weighs as much as its heaviest
        member.

        Parameters
        ----------
        base, weight
            Of the calls themselves, shape (C,).
        target_ms
            Of the requests, shape (K',).
        """
        node_base, stage_base = self.latency(base)
        node_weight, stage_weight = self.latency(weight)
        given = np.concatenate((np.zeros(self.calls), target_ms))
        for (_, stages), members in zip(self.levels, self.members, strict=True):
            owner = self.owner[stages]
            part = np.zeros(self.owner.size)
            share = _part(stage_weight[stages], node_weight[owner])
            part[stages] = stage_base[stages] + (given[owner] - node_base[owner]) * share
            given[members] = part[self.stage[members]]
        calls = slice(self.calls)
        share = _part(weight, node_weight[calls])
        return base + (given[calls] - node_base[calls]) * share


def _part(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
