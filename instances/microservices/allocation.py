"""What a decision is: how many containers of what, which requests go first, and where they lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints, bools, floats, ints
from apportion.instances.errors import InstanceError


@dataclass(frozen=True, eq=False)
class Allocation:
    """Containers of every microservice.

    Parameters
    ----------
    containers
        Shape (M,), not negative.
    guaranteed
        Services whose SLA the plan claims to keep by the laws of the round, shape (S,). A service
        without the claim is served as well as it goes.
    rank
        Order in which microservices serve the classes, shape (K,): 0 goes first, equal ranks in
        order of arrival; None: all in order of arrival.
    placement
        Containers of each microservice on each node, shape (M, J); None: not placed.
    """

    containers: Ints
    guaranteed: Bools
    rank: Ints | None = None
    placement: Ints | None = None

    @classmethod
    def of(
        cls,
        containers: object,
        guaranteed: object,
        *,
        rank: object = None,
        placement: object = None,
    ) -> Allocation:
        """Build from any sequences.

        Raises
        ------
        InstanceError
            On columns of the wrong kind. Whether the plan obeys the round is the checker's
            question.
        """
        counts = ints(containers, "allocation.containers")
        if counts.ndim != 1:
            raise InstanceError(f"allocation.containers has {counts.ndim} dimensions, expected 1")
        placed = None if placement is None else ints(placement, "allocation.placement")
        if placed is not None and placed.ndim != 2:  # microservices x nodes
            raise InstanceError(f"allocation.placement has {placed.ndim} dimensions, expected 2")
        return cls(
            counts,
            bools(guaranteed, "allocation.guaranteed"),
            None if rank is None else ints(rank, "allocation.rank"),
            placed,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Allocation):
            return False
        pairs = [
            (getattr(self, name), getattr(other, name))
            for name in ("containers", "guaranteed", "rank", "placement")
        ]
        return all(
            one is two if one is None or two is None else np.array_equal(one, two)
            for one, two in pairs
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed


@dataclass(frozen=True, eq=False)
class Outcome:
    """What happened between one decision and the next.

    Parameters
    ----------
    start_s, end_s
        The interval, half-open.
    class_requests
        Requests of each class that were seen, shape (K,).
    violations
        Requests of each service above its target, shape (S,).
    unmodelled_requests
        Requests of each service that followed no class, shape (S,).
    latency_tail_ms
        Latency of each service at the percentile of its SLA, shape (S,); infinite where its
        microservices were overloaded.
    serving
        Containers of each microservice that served, averaged over the interval, shape (M,).
    assumed
        True: nobody watched; the plan is taken as carried out and the forecast as true.
    """

    start_s: float
    end_s: float
    class_requests: Floats
    violations: Floats
    unmodelled_requests: Floats
    latency_tail_ms: Floats
    serving: Floats
    assumed: bool = False

    @classmethod
    def of(
        cls, start_s: float, end_s: float, *, class_requests: object, violations: object,
        unmodelled_requests: object, latency_tail_ms: object, serving: object,
        assumed: bool = False,
    ) -> Outcome:  # fmt: skip
        """Build from any sequences."""
        given = {
            "class_requests": class_requests, "violations": violations,
            "unmodelled_requests": unmodelled_requests, "latency_tail_ms": latency_tail_ms,
            "serving": serving,
        }  # fmt: skip
        columns = {name: floats(value, f"outcome.{name}") for name, value in given.items()}
        return cls(start_s, end_s, **columns, assumed=assumed)
