"""Latency targets: merge calls up the tree, hand what is left down, choose a line for each call.

Minimising ``sum c_i A_i / (t_i - b_i)`` with ``A_i`` the slope times the work and ``b_i`` the
intercept, the sum of the targets t_i held, gives each call of a chain its intercept and a part of
the rest in proportion to ``sqrt(c_i A_i)``. A chain then acts as one call with
``sqrt A = sum sqrt A_i``, ``b = sum b_i``; calls side by side as one with ``A = sum A_i``,
``b = max b_i``, which is exact where their intercepts are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.microservices.erms.latency import lines
from apportion.formulations.microservices.forest import Forest
from apportion.instances.columns import Bools, Floats
from apportion.instances.microservices import LinearLatency


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets of the calls.

    Parameters
    ----------
    per_call_ms
        Target of a single call, shape (C,).
    own_ms
        The same for all its repeats in a request.
    after
        Whether the heavy line was used.
    """

    per_call_ms: Floats
    own_ms: Floats
    after: Bools


def targets(
    forest: Forest, linear: LinearLatency, cost: Floats, work: Floats, target_ms: Floats
) -> Targets:
    """Compute the targets of all calls.

    Parameters
    ----------
    forest
        The calls.
    linear
        Lines of the microservices.
    cost
        Cost of a container of each microservice, shape (M,).
    work
        Calls per second that the containers of each call must carry, shape (C,).
    target_ms
        Target of each request, shape (K',).

    Notes
    -----
    All calls start on the heavy line. A call moves to the light one where its target lies left of
    the inflection, is negative, or is below the light line's intercept; it never moves back, so
    that this ends.
    """
    called, repeats = forest.microservice, forest.repeats
    after = np.ones(forest.calls, dtype=np.bool_)
    while True:
        slope, intercept = lines(linear, called, after)
        weight = np.sqrt(cost[called] * slope * repeats * work)
        own = _handed_down(forest, weight, repeats * intercept, target_ms)
        single = own / repeats
        with np.errstate(divide="ignore", invalid="ignore"):
            load = np.where(slope > 0, (single - intercept) / slope, np.inf)
        turn = linear.inflection_per_s[called]
        left = (load < turn) | np.isinf(turn) | (single < 0)
        moves = after & (left | (single < linear.intercept_before_ms[called]))
        if not moves.any():
            return Targets(single, own, after)
        after &= ~moves


def merged(forest: Forest, weight: Floats, intercept: Floats) -> tuple[Floats, Floats, Floats]:
    """Merge upward: ``sqrt A`` and ``b`` of each node, shape (C + K',), and ``sqrt A`` of stages.

    Parameters
    ----------
    forest
        The calls.
    weight, intercept
        ``sqrt A`` and ``b`` of the calls themselves, shape (C,).
    """
    node, base, stage, _ = _merged(forest, weight, intercept)
    return node, base, stage


def _merged(
    forest: Forest, weight: Floats, intercept: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    none = np.zeros(forest.root_service.size)
    node, base = np.concatenate((weight, none)), np.concatenate((intercept, none))
    square = np.zeros(forest.owner.size)
    stage_base = np.full(forest.owner.size, -np.inf)
    upward = zip(reversed(forest.levels), reversed(forest.members), strict=True)
    for (_, stages), members in upward:
        np.add.at(square, forest.stage[members], node[members] ** 2)
        np.maximum.at(stage_base, forest.stage[members], base[members])
        np.add.at(node, forest.owner[stages], np.sqrt(square[stages]))
        np.add.at(base, forest.owner[stages], stage_base[stages])
    return node, base, np.sqrt(square), stage_base


def _handed_down(forest: Forest, weight: Floats, intercept: Floats, target_ms: Floats) -> Floats:
    """Own target of each call, shape (C,)."""
    node, base, stage, stage_base = _merged(forest, weight, intercept)
    given = np.concatenate((np.zeros(forest.calls), target_ms))
    for (_, stages), members in zip(forest.levels, forest.members, strict=True):
        owner = forest.owner[stages]
        part = _share(stage[stages], node[owner])
        stage_target = np.zeros(forest.owner.size)
        stage_target[stages] = stage_base[stages] + (given[owner] - base[owner]) * part
        given[members] = stage_target[forest.stage[members]]
    calls = slice(forest.calls)
    part = _share(weight, node[calls])
    return intercept + (given[calls] - base[calls]) * part


def _share(part: Floats, whole: Floats) -> Floats:
    """Part of a whole; where the whole is nothing (flat lines only) nobody needs anything."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
