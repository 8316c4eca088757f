"""Classes of requests learned from traces: how often each call graph occurs.

Source: Derm (ISCA 2024) counts graph variants; the canonical form and the count of what is left
over as violated are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Floats, Ints, floats, freeze, ints, require
from apportion.instances.errors import InstanceError
from apportion.instances.microservices.call_trees import CallTrees
from apportion.instances.microservices.canonical import canonical
from apportion.instances.microservices.class_merge import (
    LEAST_SHARE,
    MOST_CLASSES,
    MergedClasses,
    Rest,
    merge_classes,
    stacked_trees,
    take_trees,
)
from apportion.instances.microservices.span_trees import TracedCalls

_COLUMNS = ("microservice", "parent", "stage", "calls")


class GraphCounter:
    """Counts equal call graphs over any number of batches of traces."""

    def __init__(self) -> None:
        self._services: dict[str, int] = {}
        self._microservices: dict[str, int] = {}
        self._trees: list[CallTrees] = []
        self._service: list[int] = []
        self._count: list[float] = []
        self._number: dict[tuple[int, bytes], int] = {}

    def __len__(self) -> int:
        return len(self._count)

    @property
    def services(self) -> list[str]:
        """Names of the services met so far, in the order in which they were met."""
        return list(self._services)

    @property
    def microservices(self) -> list[str]:
        """Names of the microservices met so far, in the order in which they were met."""
        return list(self._microservices)

    def add(
        self, trees: CallTrees, services: Sequence[str], microservices: Sequence[str],
        weight: object = None,
    ) -> Ints:  # fmt: skip
        """Count a batch.

        Parameters
        ----------
        trees
            A tree for each of n requests.
        services
            Name of the service of each request, n names.
        microservices
            Names of the microservices, as the trees number them.
        weight
            How many requests each stands for, shape (n,); default 1.

        Returns
        -------
        ndarray
            Number of the graph of each request, shape (n,): graphs are counted from 0 as they
            are met.
        """
        n = len(trees)
        if len(services) != n:
            raise InstanceError(f"{len(services)} services for {n} requests")
        often = floats(np.ones(n) if weight is None else weight, "weight", (n,))
        require(often, often >= 0, "weight", "must not be negative")
        called = trees.microservice
        require(
            called, called < len(microservices), "calls.microservice",
            f"there are {len(microservices)} microservices",
        )  # fmt: skip
        code = np.array(
            [_coded(str(name), self._microservices) for name in microservices], np.int64
        )
        # one numbering for all batches, for the canonical order follows the numbers
        renamed = CallTrees(trees.offsets, code[called], trees.parent, trees.stage, trees.calls)
        forms = canonical(renamed)
        out = np.empty(n, dtype=np.int64)
        for at in range(n):
            owner = _coded(str(services[at]), self._services)
            out[at] = self._counted(forms, at, owner, float(often[at]))
        return out

    def _counted(self, forms: CallTrees, at: int, owner: int, weight: float) -> int:
        span = slice(int(forms.offsets[at]), int(forms.offsets[at + 1]))
        key = (owner, b"".join(getattr(forms, name)[span].tobytes() for name in _COLUMNS))
        number = self._number.setdefault(key, len(self._count))
        if number == len(self._count):
            self._trees.append(take_trees(forms, [at]))
            self._service.append(owner)
            self._count.append(0.0)
        self._count[number] += weight
        return number

    def merged(
        self, *, most_classes: int = MOST_CLASSES, least_share: float = LEAST_SHARE,
        rest: Rest = "unmodelled",
    ) -> MergedClasses:  # fmt: skip
        """Turn the counts into classes and shares; see ``merge_classes``.

        Returns
        -------
        MergedClasses
            Of ``services`` and ``microservices``; ``class_of`` is by number of the graph.
        """
        return merge_classes(
            stacked_trees(self._trees), self._count, self.services,
            service=np.array(self._service, dtype=np.int64),
            microservices=len(self.microservices), most_classes=most_classes,
            least_share=least_share, rest=rest,
        )  # fmt: skip


def _coded(name: str, known: dict[str, int]) -> int:
    return known.setdefault(name, len(known))


def learn_classes(
    traced: TracedCalls,
    *,
    most_classes: int = MOST_CLASSES,
    least_share: float = LEAST_SHARE,
    rest: Rest = "unmodelled",
) -> tuple[MergedClasses, GraphCounter]:
    """Learn the classes of one batch of traces.

    Returns
    -------
    MergedClasses
        Classes and shares; ``class_of`` is by trace.
    GraphCounter
        The counts, with the names of services and microservices.
    """
    counter = GraphCounter()
    number = counter.add(traced.trees, traced.service.tolist(), traced.microservice_id.tolist())
    merged = counter.merged(most_classes=most_classes, least_share=least_share, rest=rest)
    class_of = merged.class_of[number]
    freeze(class_of)
    return MergedClasses(merged.classes, merged.unmodelled_share, class_of), counter


def requests_by_round(
    class_of: object, start_s: object, duration_s: float, classes: int, *, first_s: float = 0.0
) -> Floats:
    """Count the requests of each class round by round, as forecasts want them.

    Parameters
    ----------
    class_of
        Class of each request, shape (n,); -1: none, not counted.
    start_s
        When each began, shape (n,).
    duration_s
        Length of a round.
    classes
        Number of classes, K.
    first_s
        When the first round begins; earlier requests are not counted.

    Returns
    -------
    ndarray
        Shape (T, K), up to the last request.
    """
    if not 0 < duration_s < np.inf:
        raise InstanceError(f"duration_s = {duration_s}: must be positive and finite")
    of = ints(class_of, "class_of")
    require(of, of < classes, "class_of", f"there are {classes} classes")
    start = floats(start_s, "start_s", of.shape)
    round_: Any = np.floor((start - first_s) / duration_s).astype(np.int64)
    rounds = int(round_.max(initial=-1)) + 1
    good = (of >= 0) & (round_ >= 0)
    out = np.zeros((rounds, classes))
    np.add.at(out, (round_[good], of[good]), 1.0)
    freeze(out)
    return cast(Floats, out)
