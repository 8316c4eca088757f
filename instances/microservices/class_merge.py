"""From many weighted call trees to a few classes, and what is lost counted as violated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from apportion.instances.columns import Floats, Ints, floats, freeze, ints, require
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.microservices.call_classes import CallClasses
from apportion.instances.microservices.call_trees import CallTrees
from apportion.instances.microservices.canonical import canonical, equal_trees

Rest: TypeAlias = Literal["unmodelled", "largest"]
RESTS: tuple[Rest, ...] = ("unmodelled", "largest")
"""What becomes of the graphs beyond the most frequent ones."""

MOST_CLASSES = 64
LEAST_SHARE = 1e-4


@dataclass(frozen=True, eq=False)
class MergedClasses:
    """Classes that stand for many call trees.

    Parameters
    ----------
    classes
        K classes, by service, the most frequent first; their shares and ``unmodelled_share`` sum
        to 1.
    unmodelled_share
        Share of the requests of each service that no class stands for, shape (S,).
    class_of
        Class of each tree, shape (N,); -1: none.
    """

    classes: CallClasses
    unmodelled_share: Floats
    class_of: Ints


def merge_classes(
    trees: CallTrees,
    weight: object,
    services: Sequence[str],
    *,
    service: object = None,
    requests: object = None,
    microservices: int | None = None,
    most_classes: int = MOST_CLASSES,
    least_share: float = LEAST_SHARE,
    rest: Rest = "unmodelled",
) -> MergedClasses:
    """Merge equal trees, drop the rare ones, and lump those beyond a number.

    Parameters
    ----------
    trees
        N trees.
    weight
        How often each occurs, shape (N,).
    services
        Names of the services.
    service
        Row of the service of each tree, shape (N,); default: the first.
    requests
        Requests of each service, shape (S,), those that followed none of the trees included;
        default: the sum of its weights.
    microservices
        Number of microservices; default: those that the trees call.
    most_classes
        Classes of a service at most.
    least_share
        Graphs below this share are dropped; their requests are unmodelled, which counts as
        violated.
    rest
        Graphs beyond the most frequent: ``"unmodelled"``, or ``"largest"``: one further class
        that calls every microservice one after the other, each as often as the graph of them
        that calls it most. That is pessimistic for latencies beyond the mean.

    Raises
    ------
    InstanceError
        On weights below zero and on parameters out of range.
    """
    if most_classes < 1:
        raise InstanceError(f"most_classes = {most_classes}: must be at least 1")
    if not 0 <= least_share < 1:
        raise InstanceError(f"least_share = {least_share}: must be at least 0 and below 1")
    if rest not in RESTS:
        raise InstanceError(f"rest = {rest!r}{nearest(str(rest), RESTS)}")
    n, s = len(trees), len(services)
    often = floats(weight, "weight", (n,))
    require(often, often >= 0, "weight", "must not be negative")
    owner = ints(np.zeros(n, dtype=np.int64) if service is None else service, "service", (n,))
    require(owner, (owner >= 0) & (owner < s), "service", f"there are {s} services")
    form = equal_trees(trees)
    seen = np.bincount(owner, weights=often, minlength=s)
    total = seen if requests is None else floats(requests, "requests", (s,))
    require(total, total >= seen * (1.0 - 1e-9), "requests", "are fewer than the weights")
    parts = [
        _of_service(
            np.flatnonzero(owner == at), form, often / max(float(total[at]), 1e-300),
            most_classes, least_share, rest,
        )
        for at in range(s)
    ]  # fmt: skip
    called = int(trees.microservice.max(initial=-1)) + 1
    demand = trees.demand(called if microservices is None else microservices)
    return _joined(trees, parts, services, demand)


@dataclass(frozen=True)
class _Part:
    """What is kept of one service: trees that stand for a class, their share, who belongs."""

    kept: list[int]  # a tree of each kept class
    share: list[float]
    rows: list[Ints]  # the trees of each
    lumped: Ints
    lumped_share: float
    lost: float


def _of_service(rows: Ints, form: Ints, part: Floats, most: int, least: float, rest: Rest) -> _Part:
    forms, first, group = np.unique(form[rows], return_index=True, return_inverse=True)
    share = np.minimum(np.bincount(group, weights=part[rows], minlength=forms.size), 1.0)
    order = np.lexsort((first, -share))  # the most frequent first, then the first that was met
    large = [at for at in order.tolist() if share[at] >= least and share[at] > 0]
    room = most if len(large) <= most or rest == "unmodelled" else most - 1
    kept, over = large[:room], large[room:]
    lumped = rows[np.isin(group, over)]
    beyond = float(share[over].sum())
    put = rest == "largest" and len(over) > 0
    lost = 1.0 - float(share[kept].sum()) - (beyond if put else 0.0)
    return _Part(
        [int(rows[first[at]]) for at in kept],
        share[kept].tolist(),
        [rows[group == at] for at in kept],
        lumped if put else rows[:0],
        beyond if put else 0.0,
        # sums of shares carry a rounding error, which is no lost request
        lost if lost > 1e-12 else 0.0,
    )


def _joined(
    trees: CallTrees, parts: Sequence[_Part], services: Sequence[str], demand: Floats
) -> MergedClasses:
    chosen = [row for part in parts for row in part.kept]
    forms = canonical(take_trees(trees, chosen))
    lists: list[CallTrees] = []
    names: list[str] = []
    share: list[float] = []
    owner: list[int] = []
    class_of = np.full(len(trees), -1, dtype=np.int64)
    at = 0
    for row, part in enumerate(parts):
        for number, (own, members) in enumerate(zip(part.share, part.rows, strict=True)):
            class_of[members] = len(names)
            lists.append(take_trees(forms, [at]))
            names.append(f"{services[row]}/{number + 1}")
            share.append(own)
            owner.append(row)
            at += 1
        if part.lumped.size:
            class_of[part.lumped] = len(names)
            lists.append(CallTrees.serial(demand[:, part.lumped].max(axis=1)[:, None]))
            names.append(f"{services[row]}/rest")
            share.append(part.lumped_share)
            owner.append(row)
    lost = np.array([part.lost for part in parts], dtype=np.float64)
    classes = CallClasses.of(names, stacked_trees(lists), share=share, service=owner)
    freeze(lost)
    freeze(class_of)
    return MergedClasses(classes, lost, class_of)


def take_trees(trees: CallTrees, rows: Sequence[int]) -> CallTrees:
    """Take some of the classes, in the order asked for."""
    at = np.array(rows, dtype=np.int64)
    low, high = trees.offsets[at], trees.offsets[at + 1]
    offsets = np.concatenate(([0], np.cumsum(high - low)))
    inside = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], high - low)
    flat = inside + np.repeat(low, high - low)
    return CallTrees(
        offsets, trees.microservice[flat], trees.parent[flat], trees.stage[flat], trees.calls[flat]
    )


def stacked_trees(parts: Sequence[CallTrees]) -> CallTrees:
    """Put the classes of several trees behind one another."""
    sizes = [size for part in parts for size in np.diff(part.offsets).tolist()]
    offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    none = CallTrees.serial(np.zeros((1, 0)))
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in (none, *parts)])
        for name in ("microservice", "parent", "stage", "calls")
    }
    return CallTrees(offsets, **columns)
