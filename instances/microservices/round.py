"""One scheduling round of a microservice application, as a scheduler may see it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints, floats, freeze, ints, require
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.microservices.call_classes import CallClasses
from apportion.instances.microservices.linear_latency import LinearLatency
from apportion.instances.microservices.microservices import Microservices
from apportion.instances.microservices.nodes import Nodes
from apportion.instances.microservices.observed import Observed
from apportion.instances.microservices.services import Services
from apportion.instances.policy import REASONS, Reason

SHARE_TOLERANCE = 1e-6
"""How far the shares of a service may sum from 1: shares written with six digits must pass."""


@dataclass(frozen=True, eq=False, repr=False)
class MicroserviceRound:
    """What is there, who is called how often, and what was agreed.

    Parameters
    ----------
    microservices
        Latency laws, sizes and bounds of the containers.
    services
        Request rates and SLAs.
    classes
        Call graphs and their shares; the shares of a service and its ``unmodelled_share`` sum
        to 1.
    containers
        Containers that run now, shape (M,); None: not known, nothing is held against changes.
    nodes
        Machines; None: placement is not asked for.
    cpu_cores, memory_mib
        Size of the whole cluster; infinite: no limit. Nodes limit it too where they are given.
    linear
        Piecewise-linear latency of each microservice (Erms); None: derived from the laws.
    share_error
        L1 distance within which the true shares of each service are expected, shape (S,).
    observed
        What was measured in the last round; None: nothing.
    now_s, duration_s, index, reasons
        When the decision falls, the length of a round, its number, and why it is asked for.

    Raises
    ------
    InstanceError
        Where the parts do not fit together.
    """

    family: ClassVar[Literal["microservices"]] = "microservices"

    microservices: Microservices
    services: Services
    classes: CallClasses
    containers: Ints | None = None
    nodes: Nodes | None = None
    cpu_cores: float = math.inf
    memory_mib: float = math.inf
    linear: LinearLatency | None = None
    share_error: Floats = field(default_factory=lambda: cast(Floats, None))
    observed: Observed | None = None
    now_s: float = 0.0
    duration_s: float = 60.0
    index: int = 0
    reasons: tuple[Reason, ...] = ("boundary",)

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        m, s = len(self.microservices), len(self.services)
        self._check_numbers()
        self._check_classes(m, s)
        if self.containers is not None:
            column = ints(self.containers, "round.containers", (m,))
            ids = self.microservices.id
            require(
                column, column >= 0, "round.containers", "must not be negative", ids, "microservice"
            )
            put("containers", column)
        error: Any = self.share_error
        error = floats(np.zeros(s) if error is None else error, "round.share_error", (s,))
        require(
            error, (error >= 0) & (error <= 2), "round.share_error", "must lie between 0 and 2",
            self.services.id, "service",
        )  # fmt: skip
        put("share_error", error)
        self._check_least()
        if self.linear is not None and len(self.linear) != m:
            raise InstanceError(
                f"round.linear has {len(self.linear)} rows, there are {m} microservices"
            )
        if self.observed is not None:
            self.observed.require_shape(m, s)

    def _check_numbers(self) -> None:
        put = self.__dict__.__setitem__
        for name in ("cpu_cores", "memory_mib", "now_s", "duration_s"):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                raise InstanceError(f"round.{name} = {value!r}: must be a number")
            put(name, float(cast(float, value)))
        if not self.cpu_cores >= 0 or not self.memory_mib >= 0:
            raise InstanceError("round.cpu_cores and round.memory_mib must not be negative")
        if not math.isfinite(self.now_s):
            raise InstanceError(f"round.now_s = {self.now_s}: must be finite")
        if not 0 < self.duration_s < math.inf:
            raise InstanceError(
                f"round.duration_s = {self.duration_s}: must be positive and finite"
            )
        for reason in self.reasons:
            if reason not in REASONS:
                raise InstanceError(f"round.reasons: {reason!r}{nearest(reason, REASONS)}")

    def _check_least(self) -> None:
        """Refuse bounds that no plan can keep: every answer has to."""
        own, nodes = self.microservices, self.nodes
        for name, of_one, free in (
            ("cpu_cores", own.cpu_cores, None if nodes is None else nodes.cpu_cores - nodes.cpu_used),
            ("memory_mib", own.memory_mib,
             None if nodes is None else nodes.memory_mib - nodes.memory_used_mib),
        ):  # fmt: skip
            limit = getattr(self, name)
            if free is not None:
                limit = min(limit, float(np.maximum(free, 0.0).sum()))
            least = float(of_one @ own.least_containers)
            if least > limit * (1.0 + SHARE_TOLERANCE):
                raise InstanceError(
                    f"microservices.least_containers ask for {name} = {least:g} together, the"
                    f" cluster has {limit:g}"
                )

    def _check_classes(self, m: int, s: int) -> None:
        classes, services = self.classes, self.services
        require(
            classes.service, classes.service < s, "classes.service", f"there are {s} services",
            classes.id, "class",
        )  # fmt: skip
        called = classes.trees.microservice
        require(called, called < m, "calls.microservice", f"there are {m} microservices")
        total = np.bincount(classes.service, weights=classes.share, minlength=s)
        total = total + services.unmodelled_share
        require(
            total, np.abs(total - 1.0) <= SHARE_TOLERANCE, "classes.share of service",
            "shares of a service, with its unmodelled_share, must sum to 1", services.id, "service",
        )  # fmt: skip

    @cached_property
    def demand(self) -> Floats:
        """Calls of each microservice in one request of each class, shape (M, K)."""
        return self.classes.trees.demand(len(self.microservices))

    @cached_property
    def class_rate_per_s(self) -> Floats:
        """Requests per second of each class, shape (K,)."""
        out = self.services.rate_per_s[self.classes.service] * self.classes.share
        freeze(out)
        return out

    @cached_property
    def active(self) -> Bools:
        """Classes that occur: of positive share, in a service that is called, shape (K,)."""
        out = self.class_rate_per_s > 0
        freeze(out)
        return out

    @cached_property
    def calls_per_s(self) -> Floats:
        """Calls per second of each microservice, shape (M,)."""
        out = self.demand @ self.class_rate_per_s
        freeze(out)
        return out

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MicroserviceRound):
            return False
        plain = ("containers", "cpu_cores", "memory_mib", "share_error", "now_s", "duration_s",
                 "index", "reasons")  # fmt: skip
        parts = ("microservices", "services", "classes", "nodes", "linear", "observed")
        return all(_same(getattr(self, name), getattr(other, name)) for name in plain) and all(
            getattr(self, name) == getattr(other, name) for name in parts
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed

    def __repr__(self) -> str:
        return (
            f"MicroserviceRound({len(self.microservices)} microservices, {len(self.services)}"
            f" services, {len(self.classes)} classes, now_s={self.now_s:g})"
        )


def _same(one: Any, two: Any) -> bool:
    if one is None or two is None:
        return one is two
    return (
        bool(np.array_equal(cast(Floats, one), two)) if isinstance(one, np.ndarray) else one == two
    )
