"""Conformance battery for policies of microservices, ours and those of others.

``apportion.testing.policy_checks`` gives these checks for a policy of this family.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apportion.conformance import Check, asserting, require
from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.executor.microservices import check, run
from apportion.instances import Decision, Policy
from apportion.instances.columns import Floats, Ints
from apportion.instances.memory_json import dump_memory, load_memory
from apportion.instances.microservices import (
    Allocation,
    CallClasses,
    CallTrees,
    ExecutorOptions,
    MicroserviceRound,
    Microservices,
    Nodes,
    Scenario,
    Services,
)
from apportion.instances.microservices.planned import planned_outcome
from apportion.solver import Budget, Solver

TRAITS = ("permutation", "idle_class", "looser_target", "unit_homogeneous")
"""Properties a policy may declare; only declared ones are checked."""

_EXACT = 1e-6
"""Relative difference of objectives below which two proved optima are the same."""

_CHANGES = 3
"""Round of the scenario of hidden truth from which rates and shares differ."""


def policy_checks(policy: Policy, *, seed: int = 0) -> list[Check]:
    """List the checks that apply to a policy: the common ones, and those of its traits.

    Raises
    ------
    AssertionError
        If the policy declares a trait that does not exist.
    """
    unknown = sorted(policy.traits - set(TRAITS))
    if unknown:
        raise AssertionError(
            f"{policy.name}: unknown trait {unknown[0]!r}; known: {', '.join(TRAITS)}"
        )
    battery = _Battery(policy, seed)
    common = (
        battery.feasible, battery.incumbent, battery.empty_round, battery.single_microservice,
        battery.nobody_calls, battery.zero_capacity, battery.no_feasible_plan, battery.same_twice,
        battery.no_time, battery.memory_as_text, battery.hidden_laws, battery.hidden_future,
    )  # fmt: skip
    by_trait = [getattr(battery, trait) for trait in TRAITS if trait in policy.traits]
    return [(judge.__name__, asserting(judge)) for judge in (*common, *by_trait)]


def random_round(
    rng: np.random.Generator,
    microservices: int = 5,
    classes: int = 3,
    services: int = 2,
    *,
    nodes: bool = False,
) -> MicroserviceRound:
    """Draw a small round: chains and forks, repeated calls, a shared microservice, rounds to keep.

    Every class calls microservice 0. Targets leave room for a plan on an unlimited cluster.
    """
    rest = rng.uniform(0.5, 2.0, microservices).round(3)
    laws = Microservices.of(
        [f"m{at}" for at in range(microservices)], rest, -rest / rng.uniform(8.0, 20.0, microservices),
        shift_ms=rng.uniform(0.0, 1.0, microservices).round(2), least_rate_per_ms=0.1 * rest,
        cost=rng.choice([1.0, 1.0, 2.0, 0.5], microservices), least_containers=1,
        most_containers=60,
    )  # fmt: skip
    owner = np.arange(classes) % services
    share = np.zeros(classes)
    for service in range(services):
        own = owner == service
        share[own] = rng.dirichlet(np.full(int(own.sum()), 2.0))
    trees = CallTrees.nested(
        [_drawn_stages(rng, microservices) for _ in range(classes)], laws.id.tolist()
    )
    used = services if classes >= services else classes
    round_ = MicroserviceRound(
        laws,
        Services.of(
            [f"s{at}" for at in range(used)], rng.uniform(4.0, 20.0, used).round(1),
            _targets(laws, trees, owner, used) * rng.uniform(2.5, 4.0, used),
            rng.choice([0.01, 0.05, 0.1], used),
        ),
        CallClasses.of([f"c{at}" for at in range(classes)], trees, share=share, service=owner),
        containers=rng.integers(1, 20, microservices),
        now_s=600.0,
        index=10,
    )  # fmt: skip
    if not nodes:
        return round_
    count = int(rng.integers(1, 4))
    cores = rng.choice([2.0, 4.0, 16.0], count)
    names = [f"n{at}" for at in range(count)]
    return replace(round_, nodes=Nodes.of(names, cores, 6144.0 * cores))


def _drawn_stages(rng: np.random.Generator, microservices: int) -> list[Any]:
    others = [int(m) for m in rng.permutation(np.arange(1, microservices))]
    stages: list[Any] = [[{"microservice": "m0"}]]
    while others and rng.random() < 0.75:
        width = 2 if len(others) > 1 and rng.random() < 0.4 else 1
        stages.append(
            [
                {"microservice": f"m{others.pop()}", "calls": float(rng.choice([1, 1, 2]))}
                for _ in range(width)
            ]
        )
    return stages


def _targets(laws: Microservices, trees: CallTrees, owner: Ints, services: int) -> Floats:
    """Mean latency of the longest class of each service at two thirds of the best rates."""
    mean = 1.5 / laws.rate_at_rest_per_ms + laws.shift_ms
    longest = np.zeros(services)
    demand = trees.demand(len(laws))
    np.maximum.at(longest, owner, mean @ demand)
    return longest


def _permuted(round_: MicroserviceRound, rng: np.random.Generator) -> MicroserviceRound:
    """Give the same round with microservices, services and classes in another order."""
    laws, services, classes = round_.microservices, round_.services, round_.classes
    m, s, k = (rng.permutation(len(part)) for part in (laws, services, classes))
    place_of_m, place_of_s = np.argsort(m), np.argsort(s)
    trees = classes.trees
    starts: list[int] = trees.offsets.tolist()
    order: list[int] = k.tolist()
    calls = np.array([c for at in order for c in range(starts[at], starts[at + 1])], dtype=np.int64)
    counts = [0, *(starts[at + 1] - starts[at] for at in order)]
    offsets = np.cumsum(np.array(counts, dtype=np.int64))
    moved = CallTrees(
        offsets, place_of_m[trees.microservice[calls]], trees.parent[calls], trees.stage[calls],
        trees.calls[calls],
    )  # fmt: skip
    return replace(
        round_,
        microservices=_taken(laws, m),
        services=_taken(services, s),
        classes=CallClasses(classes.id[k], place_of_s[classes.service[k]], classes.share[k], moved),
        containers=None if round_.containers is None else round_.containers[m],
        share_error=round_.share_error[s],
    )


def _taken(table: Any, rows: Ints) -> Any:
    return type(table)(**{name: getattr(table, name)[rows] for name in table.__dataclass_fields__})


@dataclass(frozen=True)
class _Battery:
    policy: Policy
    seed: int

    def decide(self, round_: MicroserviceRound, memory: Any = None) -> Decision:
        budget = Budget.of(None)
        solver = Solver(gap=0.0, work_limit=WORK_LIMIT)
        return self.policy.compile(round_, memory, budget).solve(solver, budget)

    def greedy(self, round_: MicroserviceRound) -> Decision:
        return self.policy.compile(round_, None, Budget.of(None)).incumbent()

    def rounds(self, count: int = 6) -> list[MicroserviceRound]:
        rng = np.random.default_rng(self.seed)
        return [
            random_round(
                rng, microservices=int(rng.integers(2, 6)), classes=int(rng.integers(1, 5)),
                services=int(rng.integers(1, 3)), nodes=at % 2 == 1,
            )
            for at in range(count)
        ]  # fmt: skip

    def passes(self, round_: MicroserviceRound, decision: Decision) -> None:
        broken = check(round_, decision.allocation)
        require(not broken, f"{round_}: {broken[0].message if broken else ''}")

    def feasible(self) -> None:
        for round_ in self.rounds():
            self.passes(round_, self.decide(round_))

    def incumbent(self) -> None:
        for round_ in self.rounds():
            self.passes(round_, self.greedy(round_))

    def empty_round(self) -> None:
        nothing = MicroserviceRound(
            Microservices.of([], [], []), Services.of([], [], []),
            CallClasses.of([], CallTrees.serial(np.zeros((0, 0)))),
        )  # fmt: skip
        for decision in (self.decide(nothing), self.greedy(nothing)):
            self.passes(nothing, decision)

    def single_microservice(self) -> None:
        round_ = _single()
        for decision in (self.decide(round_), self.greedy(round_)):
            self.passes(round_, decision)
            require(
                decision.allocation.containers[0] >= 2,  # 10 calls/s, 8 are the most for one
                "the only microservice does not carry its load",
            )

    def nobody_calls(self) -> None:
        base = _single()
        round_ = replace(base, services=replace(base.services, rate_per_s=[0.0]))
        for decision in (self.decide(round_), self.greedy(round_)):
            self.passes(round_, decision)

    def zero_capacity(self) -> None:
        round_ = replace(_single(), cpu_cores=0.0, memory_mib=0.0)
        for decision in (self.decide(round_), self.greedy(round_)):
            self.passes(round_, decision)
            self.gives_up(decision, "nothing can run without a cluster")

    def no_feasible_plan(self) -> None:
        """A target below the shift, and bounds below the load: valid plans, and no claim."""
        base = _single()
        late = replace(base, services=replace(base.services, target_ms=[0.4]))
        few = replace(base, microservices=replace(base.microservices, most_containers=[1]))
        for round_ in (late, few):
            for decision in (self.decide(round_), self.greedy(round_)):
                self.passes(round_, decision)
                self.gives_up(decision, "no plan keeps the SLA")
                told = any("only" in note for note in decision.notes)
                require(told, "no note names the service whose SLA is not kept")

    def gives_up(self, decision: Decision, why: str) -> None:
        plan: Allocation = decision.allocation
        require(not plan.guaranteed.any(), f"{why}, and yet an SLA is claimed")
        require(decision.status not in ("OPTIMAL", "FEASIBLE"), f"{why}: {decision.status}")

    def same_twice(self) -> None:
        for round_ in self.rounds(4):
            one, two = self.decide(round_), self.decide(round_)
            require(one.allocation == two.allocation, f"{round_}: two calls differ")
            require(one.objective == two.objective, f"{round_}: two objectives differ")

    def no_time(self) -> None:
        for round_ in self.rounds(4):
            budget = Budget.of(1e-6)
            program = self.policy.compile(round_, None, budget)
            self.passes(round_, program.solve(Solver(), budget))

    def memory_as_text(self) -> None:
        for round_ in self.rounds(4):
            first = self.decide(round_)
            seen = planned_outcome(round_, first.allocation)
            memory = self.policy.remember(None, round_, first, seen)
            later = replace(round_, now_s=round_.now_s + round_.duration_s, index=round_.index + 1)
            one = self.decide(later, memory)
            two = self.decide(later, load_memory(dump_memory(memory)))
            self.passes(later, one)
            require(one.allocation == two.allocation, "memory does not survive being written")

    def hidden_laws(self) -> None:
        """How containers really answer shows after the first round only."""
        world = self.world()
        laws = world.start.microservices
        slower = replace(laws, rate_at_rest_per_ms=0.7 * laws.rate_at_rest_per_ms)
        plans = [self.plans(replace(world, true_microservices=one)) for one in (laws, slower)]
        require(plans[0][0] == plans[1][0], "the first decision depends on the true laws")

    def hidden_future(self) -> None:
        """Rates and shares of later rounds are not known before they come."""
        world = self.world()
        rate, share = np.array(world.rate_per_s), np.array(world.share)
        rate[_CHANGES:] *= 3.0
        share[_CHANGES:] = share[_CHANGES:, ::-1]
        other = replace(world, rate_per_s=rate, share=share)
        known = [self.plans(one)[: _CHANGES + 1] for one in (world, other)]
        require(
            known[0] == known[1], "a decision depends on rates or shares that are still to come"
        )

    def world(self) -> Scenario:
        """Five rounds of one service with two classes."""
        trees = CallTrees.serial([[1.0, 1.0], [1.0, 2.0], [0.0, 1.0]])
        start = MicroserviceRound(
            Microservices.of(
                ["front", "search", "rates"], [1.0, 0.8, 0.6], [-0.05, -0.08, -0.04],
                shift_ms=0.5, least_rate_per_ms=0.1, least_containers=1, most_containers=200,
            ),
            Services.of(["search"], [20.0], [40.0], 0.05),
            CallClasses.of(["light", "heavy"], trees, share=[0.8, 0.2]),
        )  # fmt: skip
        times = np.arange(_CHANGES + 2)
        return Scenario(
            name="truth", start=start, rate_per_s=(20.0 + 4.0 * times[:, None]).astype(np.float64),
            share=np.tile([0.7, 0.3], (times.size, 1)), seed=self.seed,
            options=ExecutorOptions(requests=2000),
        )  # fmt: skip

    def plans(self, scenario: Scenario) -> list[list[int]]:
        """Containers asked for in each round of a run."""
        done = run(scenario, BoundPolicy(self.policy, Solver(work_limit=WORK_LIMIT)))
        return done.microservices.asked.tolist()

    def compare(
        self, one: Decision, two: Decision, first: MicroserviceRound, second: MicroserviceRound
    ) -> None:
        if one.objective is not None and two.objective is not None:
            self.equal(one.objective, two.objective)
            return
        plans = [
            dict(zip(asked.microservices.id, found.allocation.containers.tolist(), strict=True))
            for asked, found in ((first, one), (second, two))
        ]
        require(plans[0] == plans[1], f"planned {plans[0]}, then {plans[1]}")

    def equal(self, one: float, two: float) -> None:
        size = max(1.0, abs(one))
        require(abs(one - two) <= _EXACT * size, f"objective {one} became {two}")

    def permutation(self) -> None:
        """Neither names nor the order of rows change what a plan costs."""
        rng = np.random.default_rng(self.seed)
        for round_ in self.rounds():
            other = _permuted(round_, rng)
            self.compare(self.decide(round_), self.decide(other), round_, other)

    def idle_class(self) -> None:
        """A class that never occurs changes nothing."""
        for round_ in self.rounds():
            classes, trees = round_.classes, round_.classes.trees
            calls = int(trees.offsets[1])  # the first class once more, as one nobody follows
            columns: dict[str, Any] = {
                name: np.append(getattr(trees, name), getattr(trees, name)[:calls])
                for name in ("microservice", "parent", "stage", "calls")
            }
            more = CallTrees(np.append(trees.offsets, trees.offsets[-1] + calls), **columns)
            other = replace(
                round_,
                classes=CallClasses(
                    np.append(classes.id, "idle"), np.append(classes.service, classes.service[0]),
                    np.append(classes.share, 0.0), more,
                ),
            )  # fmt: skip
            self.compare(self.decide(round_), self.decide(other), round_, other)

    def looser_target(self) -> None:
        """A later target never costs more where both are kept."""
        for round_ in self.rounds():
            looser = replace(
                round_, services=replace(round_.services, target_ms=1.3 * round_.services.target_ms)
            )
            one, two = self.decide(round_), self.decide(looser)
            if one.objective is None or two.objective is None:
                raise AssertionError("needs an objective")
            if one.status == two.status == "OPTIMAL":
                most = one.objective + _EXACT * max(1.0, abs(one.objective))
                require(two.objective <= most, f"{one.objective} rose to {two.objective}")

    def unit_homogeneous(self) -> None:
        """Milliseconds may be any unit of time, and costs any money."""
        for round_ in self.rounds():
            laws, services = round_.microservices, round_.services
            slower = replace(
                round_,
                microservices=replace(
                    laws,
                    shift_ms=8.0 * laws.shift_ms, cost=4.0 * laws.cost,
                    **{
                        name: getattr(laws, name) / 8.0
                        for name in ("rate_at_rest_per_ms", "rate_slope_per_ms", "least_rate_per_ms")
                    },
                ),
                services=replace(services, target_ms=8.0 * services.target_ms),
            )  # fmt: skip
            one, two = self.decide(round_), self.decide(slower)
            if one.objective is None or two.objective is None:
                raise AssertionError("needs an objective")
            self.equal(4.0 * one.objective, two.objective)


def _single() -> MicroserviceRound:
    """One microservice behind one service: 10 calls/s, of which one container carries 8."""
    return MicroserviceRound(
        Microservices.of(["one"], [1.0], [-0.1], shift_ms=0.5, least_rate_per_ms=0.2),
        Services.of(["only"], [10.0], [20.0], 0.05),
        CallClasses.of(["all"], CallTrees.serial([[1.0]])),
        cpu_cores=math.inf,
    )
