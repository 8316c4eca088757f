"""What decisions of rules of thumb share: bounds, capacity, what the laws say of a plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from apportion.formulations.microservices.tails import Tails
from apportion.instances import Budget, Decision, Stage
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.errors import InstanceError
from apportion.instances.microservices import Allocation, MicroserviceRound
from apportion.instances.microservices.laws import least_admissible
from apportion.instances.policy import Column

SLACK = 1e-9
"""Relative slack of counts and capacities: quotients that should be whole are off by a few ulps."""

REACH = 0.95
"""Share of a rate that no count exceeds up to which counts are bought: the last percents of a
hyperbola cost more than all before them."""

_NAMED = 5
"""Names in a note: more would hide the other notes."""

_HALVINGS = 60
"""Steps of a bisection on a number between 0 and 1, down to the last bit."""


@dataclass(frozen=True)
class PlainProgram:
    """A program without a model: its incumbent is its answer."""

    decide: Callable[[], Decision]

    @property
    def model(self) -> None:
        """There is none."""
        return None

    def incumbent(self) -> Decision:
        """Decide."""
        return self.decide()

    def solve(self, solver: Any, budget: Budget) -> Decision:
        """Decide; neither a solver nor much time is needed."""
        return self.decide()


@dataclass(frozen=True, eq=False)
class Fitted:
    """Counts within bounds and capacity.

    Parameters
    ----------
    containers
        Shape (M,).
    notes
        What had to be cut, and why.
    whole
        True: nothing was cut.
    """

    containers: Ints
    notes: tuple[str, ...]
    whole: bool


def room(round_: MicroserviceRound) -> tuple[float, float]:
    """Cores and MiB that all containers together may use."""
    cpu, memory = round_.cpu_cores, round_.memory_mib
    if round_.nodes is not None:
        nodes = round_.nodes
        cpu = min(cpu, float(np.maximum(nodes.cpu_cores - nodes.cpu_used, 0.0).sum()))
        memory = min(memory, float(np.maximum(nodes.memory_mib - nodes.memory_used_mib, 0.0).sum()))
    return cpu, memory


def fits(round_: MicroserviceRound, containers: Ints) -> bool:
    """Whether the cluster has the cores and the memory for a plan."""
    cpu, memory = room(round_)
    kinds = round_.microservices
    return bool(
        containers @ kinds.cpu_cores <= cpu * (1.0 + SLACK)
        and containers @ kinds.memory_mib <= memory * (1.0 + SLACK)
    )


def fitted(round_: MicroserviceRound, wanted: Ints | Floats) -> Fitted:
    """Bring counts within the bounds of each microservice and the size of the cluster.

    Where the cluster is too small, everything beyond the least that carries the load shrinks by
    one factor; where even that does not fit, everything beyond the lower bounds.

    Parameters
    ----------
    round_
        The round.
    wanted
        Counts, shape (M,); rounded up, infinite ones mean as many as allowed.
    """
    kinds = round_.microservices
    least, most = kinds.least_containers, kinds.most_containers
    asked = np.ceil(np.asarray(wanted, dtype=np.float64))
    cut = asked > most
    counts = np.clip(asked, least, most).astype(np.int64)
    notes = _note_on_bounds(round_, cut, asked)
    if fits(round_, counts):
        return Fitted(counts, notes, whole=not cut.any())
    needed = np.clip(least_admissible(round_), least, counts)
    base = needed if fits(round_, needed) else least
    cpu, memory = room(round_)
    note = (
        f"the cluster is too small: the plan asks for {counts @ kinds.cpu_cores:g} cores and"
        f" {counts @ kinds.memory_mib:g} MiB, there are {cpu:g} and {memory:g}; it was scaled down"
    )
    return Fitted(_scaled(round_, base, counts), (*notes, note), whole=False)


def _note_on_bounds(round_: MicroserviceRound, cut: Bools, asked: Floats) -> tuple[str, ...]:
    rows = np.flatnonzero(cut)
    if not rows.size:
        return ()
    kinds = round_.microservices
    some = ", ".join(
        f"{str(kinds.id[row])!r} {asked[row]:g} of {kinds.most_containers[row]}"
        for row in rows[:_NAMED]
    )
    more = f" and {rows.size - _NAMED} more" if rows.size > _NAMED else ""
    return (f"more containers needed than allowed: {some}{more}",)


def _scaled(round_: MicroserviceRound, base: Ints, counts: Ints) -> Ints:
    """Shrink what lies above a base until it fits, then give the remainders away one by one."""
    extra = (counts - base).astype(np.float64)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if fits(round_, base + np.floor(middle * extra).astype(np.int64)):
            low = middle
        else:
            high = middle
    out = base + np.floor(low * extra).astype(np.int64)
    if not fits(round_, out):  # not even the base does: bounds and cluster contradict
        return base
    remainder = np.round(low * extra - np.floor(low * extra), 9)  # equal ones in order of rows
    for row in np.argsort(-remainder, kind="stable").tolist():
        if out[row] < counts[row]:
            out[row] += 1
            if not fits(round_, out):
                out[row] -= 1
    return cast(Ints, out)


def decided(
    round_: MicroserviceRound,
    wanted: Ints | Floats,
    *,
    start: float,
    rank: Ints | None = None,
    stage: str = "rule",
    notes: tuple[str, ...] = (),
    carry: Any = None,
    per_job: Mapping[str, Column] | None = None,
) -> Decision:
    """Make a rule's decision: fit the counts, and ask the laws which SLAs the plan keeps.

    Parameters
    ----------
    round_
        The round.
    wanted
        Counts, shape (M,).
    start
        Reading of ``time.perf_counter`` at which the rule began.
    rank
        Order of the classes at the microservices.
    stage, notes, carry, per_job
        Passed on; ``per_job`` holds columns of the microservices.
    """
    plan = fitted(round_, wanted)
    cost = float(round_.microservices.cost @ plan.containers)
    kept, missed = judged(round_, plan.containers, rank)
    took_s = time.perf_counter() - start
    return Decision(
        Allocation(plan.containers, kept, rank),
        objective=cost,
        carry=carry,
        per_job={} if per_job is None else per_job,
        notes=(*notes, *plan.notes, *missed),
        stages=(Stage(stage, took_s, objective=cost, answered=True),),
    )


def judged(
    round_: MicroserviceRound, containers: Ints, rank: Ints | None = None
) -> tuple[Bools, tuple[str, ...]]:
    """Ask the laws which services keep their SLA, shape (S,), and note by how much others do not."""
    services = round_.services
    violation = Tails.of(round_).violations(containers, rank)
    kept = violation <= services.violation_budget
    rows = np.flatnonzero(~kept & (services.rate_per_s > 0)).tolist()
    notes = tuple(
        f"service {str(services.id[row])!r}: {violation[row]:.3%} of its requests exceed"
        f" {services.target_ms[row]:g} ms, its SLA allows {services.violation_budget[row]:.3%}"
        for row in rows
    )
    return kept, notes


def containers_at_load(round_: MicroserviceRound, load_per_s: Floats) -> Floats:
    """Fewest containers on which the load does not exceed the given one, shape (M,).

    Zero where nobody calls, infinite where the load given is zero.
    """
    calls = round_.calls_per_s
    with np.errstate(divide="ignore", invalid="ignore"):
        need = np.ceil(calls / load_per_s * (1.0 - SLACK))
    return cast(Floats, np.where(calls > 0, np.maximum(need, 1.0), 0.0))


def load_at_rate(round_: MicroserviceRound, rate_per_ms: Floats) -> Floats:
    """Heaviest load at which calls still have the given rate, shape (M,).

    Rates that no load gives, or only loads next to nothing, count as ``REACH`` of the best rate.
    """
    kinds = round_.microservices
    rest, slope = kinds.rate_at_rest_per_ms, kinds.rate_slope_per_ms
    best = rest + slope * kinds.least_load_per_s
    # the best rate is had at its own load where that is not zero; else it is out of reach
    top = np.where(kinds.least_load_per_s > 0, best, REACH * rest)
    floor = np.maximum(kinds.least_rate_per_ms, (1.0 - REACH) * rest)
    return (np.clip(rate_per_ms, np.minimum(floor, top), top) - rest) / slope


def running(round_: MicroserviceRound, utilisation: float) -> Ints:
    """Containers that run now; where that is not known, those of a given utilisation."""
    if round_.containers is not None:
        return round_.containers
    load = utilisation * round_.microservices.most_load_per_s
    return fitted(round_, containers_at_load(round_, load)).containers


def require_between(
    policy: str, name: str, value: float, low: float, high: float, *, closed: bool = True
) -> None:
    """Refuse a parameter outside its range.

    Raises
    ------
    InstanceError
        Naming policy, parameter, value and range.
    """
    good = low <= value <= high if closed else low < value <= high
    if isinstance(value, bool) or not good:
        rule = f"from {low:g} to {high:g}" if closed else f"above {low:g} and at most {high:g}"
        raise InstanceError(f"{policy}.{name} = {value}: must be a number {rule}")
