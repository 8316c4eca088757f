"""Erms' exact form against every plan of small rounds, and the rules that hold between forms.

The oracle walks trees call by call and tries every count; it shares no code with the policy.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from apportion.executor.microservices import check
from apportion.formulations.microservices.erms import Erms
from apportion.formulations.microservices.erms.exact import solve_one
from apportion.formulations.microservices.erms.problem import Workload
from apportion.formulations.microservices.erms.targets import merged, targets
from apportion.formulations.microservices.forest import Forest
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    LinearLatency,
    MicroserviceRound,
    Microservices,
    Services,
)
from apportion.solver import Budget, Solver

NO_LIMIT = Budget.of(None)
MOST = 12


def draw(rng: np.random.Generator, *, services: int = 2, m: int = 3) -> MicroserviceRound:
    """Draw a round of up to 3 microservices with at most 12 containers each."""
    ids = [f"m{at}" for at in range(m)]
    count = int(rng.integers(1, services + 1))
    owner, share, trees = [], [], []
    for service in range(count):
        kinds = int(rng.integers(1, 3))
        part = rng.dirichlet(np.ones(kinds)) if rng.random() < 0.8 else np.eye(kinds)[0]
        for at in range(kinds):
            owner.append(service)
            share.append(float(part[at]))
            trees.append(_stages(rng, ids, depth=2))
    before = rng.uniform(0.2, 3.0, m)
    intercept = rng.uniform(0.0, 3.0, m)
    after = before * rng.uniform(1.0, 4.0, m)
    turn = rng.uniform(0.5, 6.0, m)
    jump = np.where(rng.random(m) < 0.3, rng.uniform(-2.0, 2.0, m), 0.0)  # fits are not continuous
    linear = LinearLatency(
        before, intercept, after, intercept + (before - after) * turn + jump, turn
    )
    finite = rng.random() < 0.3
    return MicroserviceRound(
        Microservices.of(
            ids, 10.0, -1e-6, cost=rng.choice([1.0, 1.0, 2.0, 0.5], m), most_containers=MOST,
            least_containers=rng.integers(0, 3, m), cpu_cores=1.0,
        ),
        Services.of(
            [f"s{at}" for at in range(count)], rng.uniform(1.0, 8.0, count).round(2),
            rng.uniform(8.0, 40.0, count).round(2),
        ),
        CallClasses.of([f"k{at}" for at in range(len(owner))],
                       CallTrees.nested(trees, ids), share=share, service=owner),
        linear=linear, cpu_cores=float(rng.integers(8, 30)) if finite else np.inf,
    )  # fmt: skip


def _stages(rng: np.random.Generator, ids: list[str], depth: int) -> list[Any]:
    stages = []
    for _ in range(int(rng.integers(1, 3))):
        members = []
        for _ in range(int(rng.choice([1, 1, 2]))):
            call: dict[str, Any] = {"microservice": str(rng.choice(ids))}
            if rng.random() < 0.3:
                call["calls"] = float(rng.integers(2, 4))
            if depth > 1 and rng.random() < 0.3:
                call["stages"] = _stages(rng, ids, depth - 1)
            members.append(call)
        stages.append(members)
    return stages


@dataclass(frozen=True)
class Oracle:
    """Latency of every class under a plan, by walking its tree."""

    round_: MicroserviceRound

    def called(self) -> np.ndarray:
        """Calls per second of each microservice for each service."""
        round_ = self.round_
        out = np.zeros((len(round_.microservices), len(round_.services)))
        trees, classes = round_.classes.trees, round_.classes
        for k in range(len(classes)):
            s = int(classes.service[k])
            rate = float(round_.services.rate_per_s[s] * classes.share[k])
            for row in range(trees.offsets[k], trees.offsets[k + 1]):
                out[trees.microservice[row], s] += rate * self.times(row)
        return out

    def times(self, row: int) -> float:
        """How often a call is made in one request."""
        trees = self.round_.classes.trees
        k = int(np.searchsorted(trees.offsets, row, side="right")) - 1
        up = int(trees.parent[row])
        return float(trees.calls[row]) * (1.0 if up < 0 else self.times(int(trees.offsets[k]) + up))

    def line(self, m: int, load: float) -> float:
        linear = self.round_.linear
        assert linear is not None
        light = linear.slope_before_ms[m] * load + linear.intercept_before_ms[m]
        if load <= linear.inflection_per_s[m]:
            return float(light)
        turn = linear.inflection_per_s[m]
        top = linear.slope_before_ms[m] * turn + linear.intercept_before_ms[m]
        return float(max(top, linear.slope_after_ms[m] * load + linear.intercept_after_ms[m]))

    def request(self, k: int, latency: Any) -> float:
        """Latency of a class, ``latency(m)`` that of one call."""
        trees = self.round_.classes.trees
        low, high = int(trees.offsets[k]), int(trees.offsets[k + 1])

        def below(parent: int) -> float:
            stages: dict[int, float] = {}
            for row in range(low, high):
                if trees.parent[row] == parent:
                    own = self.times(row) * latency(int(trees.microservice[row]))
                    whole = own + below(row - low)
                    number = int(trees.stage[row])
                    stages[number] = max(stages.get(number, 0.0), whole)
            return sum(stages.values())

        return below(-1)

    def in_time(self, work: np.ndarray, x: Any) -> bool:
        """Whether all classes that occur are in time, ``work[m, s]`` being met by service s."""
        round_ = self.round_
        for k in range(len(round_.classes)):
            s = int(round_.classes.service[k])
            if round_.classes.share[k] * round_.services.rate_per_s[s] <= 0:
                continue
            of = lambda m, s=s: self.line(m, work[m, s] / x[m])  # noqa: E731
            if self.request(k, of) > round_.services.target_ms[s] * (1 + 1e-9):
                return False
        return True

    def met(self, position: Any) -> np.ndarray:
        """Work that each service meets; ``None``: in order of arrival."""
        called = self.called()
        if position is None:
            return np.repeat(called.sum(axis=1)[:, None], called.shape[1], axis=1)
        before = np.asarray(position)[:, None] <= np.asarray(position)[None, :]
        return called @ before

    def least(self) -> np.ndarray:
        called = self.called().sum(axis=1) > 0
        return np.maximum(self.round_.microservices.least_containers, called)

    def best(self, position: Any) -> float:
        """Cost of the cheapest plan in time, infinite without one."""
        kinds, work = self.round_.microservices, self.met(position)
        plans = np.array(list(itertools.product(*(range(low, MOST + 1) for low in self.least()))))
        cost = plans @ kinds.cost
        for at in np.argsort(cost, kind="stable"):
            x = plans[at]
            if x.sum() <= self.round_.cpu_cores and self.in_time(work, x):
                return float(cost[at])
        return np.inf

    def best_apart(self) -> float:
        """Cost of the cheapest plan in which each service has containers of its own."""
        kinds, called = self.round_.microservices, self.called()
        pairs = [(m, s) for m, s in zip(*np.nonzero(called), strict=True)]
        best = np.inf
        for x in itertools.product(range(1, MOST + 1), repeat=len(pairs)):
            table = np.zeros(called.shape)
            for (m, s), count in zip(pairs, x, strict=True):
                table[m, s] = count
            total = np.maximum(table.sum(axis=1), self.least())
            cost = float(kinds.cost @ total)
            if cost >= best or (total > MOST).any() or total.sum() > self.round_.cpu_cores:
                continue
            if all(self._alone(called[:, s], table[:, s], s) for s in range(called.shape[1])):
                best = cost
        return best

    def _alone(self, called: np.ndarray, x: np.ndarray, s: int) -> bool:
        round_ = self.round_
        for k in np.flatnonzero(round_.classes.service == s).tolist():
            if round_.classes.share[k] <= 0:
                continue
            late = self.request(k, lambda m: self.line(m, called[m] / x[m]))
            if late > round_.services.target_ms[s] * (1 + 1e-9):
                return False
        return True


def decide(round_: MicroserviceRound, **options: Any) -> Any:
    program = Erms(**options).compile(round_, None, NO_LIMIT)
    decision = program.solve(Solver(gap=0.0), NO_LIMIT)
    assert not check(round_, decision.allocation)
    return program, decision


def position_of(round_: MicroserviceRound, decision: Any) -> Any:
    """Place of each service, read from the ranks of its classes."""
    out = np.zeros(len(round_.services), dtype=int)
    out[round_.classes.service] = decision.allocation.rank
    return out


def judge(round_: MicroserviceRound, decision: Any, best: float, hopeless: bool) -> None:
    if hopeless or np.isinf(best):
        assert decision.status == "INFEASIBLE"
        assert decision.notes
        return
    assert decision.status == "OPTIMAL"
    assert decision.objective == pytest.approx(best, rel=1e-9)
    assert decision.bound == pytest.approx(best, rel=1e-6)


def compare(seed: int) -> None:
    round_ = draw(np.random.default_rng(seed))
    oracle = Oracle(round_)
    program, decision = decide(round_, scheme="fcfs", form="exact")
    judge(round_, decision, oracle.best(None), bool(program.work.hopeless.any()))
    program, decision = decide(round_, scheme="priority", form="exact")
    if decision.allocation.rank is not None:
        best = oracle.best(position_of(round_, decision))
        judge(round_, decision, best, bool(program.work.hopeless.any()))
    orders = itertools.permutations(range(len(round_.services)))
    best = min(oracle.best(np.array(order)) for order in orders)
    program, decision = decide(round_, scheme="priority", form="exact", order="enumerate")
    judge(round_, decision, best, bool(program.work.hopeless.any()))


@pytest.mark.parametrize("seed", range(20))
def test_shared_containers_against_every_plan(seed: int) -> None:
    compare(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 220))
def test_shared_containers_against_every_plan_at_length(seed: int) -> None:
    compare(seed)


def test_lines_that_jump() -> None:
    """Three in a chain, each w ms up to w = 4 and w + 10 beyond; work 20: 1 to 5 containers take
    30, 20, 16.7, 15 and 4 ms, so that the fifth saves more than the fourth."""
    ids = ["a", "b", "c"]
    linear = LinearLatency(*(np.full(3, x) for x in (1.0, 0.0, 1.0, 10.0, 4.0)))
    round_ = MicroserviceRound(
        Microservices.of(ids, 10.0, -1e-6), Services.of(["s"], 20.0, 40.0),
        CallClasses.of(["k"], CallTrees.serial(np.ones((3, 1)))), linear=linear,
    )  # fmt: skip
    _, decision = decide(round_, form="exact")
    # of 11 containers 1, 5, 5 take 38 ms, 2, 4, 5 take 39 and 3, 3, 5 take 37.3; 2, 3, 5 take 40.7
    assert (decision.status, decision.objective) == ("OPTIMAL", 11.0)


@pytest.mark.parametrize("seed", [4, 12, 13, 34, 38, 74])
def test_the_best_order_by_a_little(seed: int) -> None:
    """Rounds in which another order than that of the targets is best, some by half a container."""
    round_ = replace(draw(np.random.default_rng(4000 + seed), services=3), cpu_cores=np.inf)
    kinds = replace(round_.microservices, most_containers=np.full(3, 10**6))
    round_ = replace(round_, microservices=kinds)
    program, rule = decide(round_, form="exact")
    _, best = decide(round_, form="exact", order="enumerate")
    costs = []
    for order in itertools.permutations(range(len(round_.services))):
        problem, guess = program._problem(np.array(order))
        found = solve_one(problem, round_, guess, np.inf, Solver(gap=0.0), NO_LIMIT)
        costs.append(float(problem.cost @ found.counts))
    assert best.status == "OPTIMAL"
    assert best.objective == min(costs) < rule.objective


def compare_apart(seed: int) -> None:
    round_ = draw(np.random.default_rng(1000 + seed), m=2)
    program, decision = decide(round_, scheme="partition", form="exact")
    judge(round_, decision, Oracle(round_).best_apart(), bool(program.work.hopeless.any()))


@pytest.mark.parametrize("seed", range(10))
def test_containers_apart_against_every_plan(seed: int) -> None:
    compare_apart(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 60))
def test_containers_apart_against_every_plan_at_length(seed: int) -> None:
    compare_apart(seed)


def rules(seed: int) -> None:
    """Whatever the round, rounded targets are in time and cost no less than the exact form."""
    rng = np.random.default_rng(2000 + seed)
    round_ = replace(draw(rng, services=3, m=4), cpu_cores=np.inf)
    wide = replace(
        round_, microservices=replace(round_.microservices, most_containers=np.full(4, 10**6))
    )
    oracle, costs = Oracle(wide), {}
    for scheme, form in itertools.product(("fcfs", "priority", "partition"), ("kkt", "exact")):
        program, decision = decide(wide, scheme=scheme, form=form)
        if program.work.hopeless.any():
            return
        costs[scheme, form] = decision.objective
        if scheme != "partition":
            position = None if scheme == "fcfs" else position_of(wide, decision)
            assert oracle.in_time(oracle.met(position), decision.allocation.containers)
    for scheme in ("fcfs", "priority", "partition"):
        assert costs[scheme, "exact"] <= costs[scheme, "kkt"] + 1e-9
    for form in ("kkt", "exact"):  # whatever the order: nobody meets more work
        assert costs["priority", form] <= costs["fcfs", form] + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_rules_between_forms(seed: int) -> None:
    rules(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 220))
def test_rules_between_forms_at_length(seed: int) -> None:
    rules(seed)


@pytest.mark.parametrize("seed", range(20))
def test_targets_of_a_path_sum_to_the_target(seed: int) -> None:
    rng = np.random.default_rng(3000 + seed)
    round_ = draw(rng, services=3, m=4)
    assert round_.linear is not None
    work = Workload(round_, round_.linear)
    forest, target = work.forest, rng.uniform(50.0, 90.0, work.forest.root_service.size)
    found = targets(forest, round_.linear, round_.microservices.cost, work.of_own, target)
    # the longest path of the targets is the target itself, in stages with several members too
    assert forest.latency(found.own_ms)[0][forest.calls :] == pytest.approx(target)


def test_a_target_is_kept_exactly_before_rounding() -> None:
    rng = np.random.default_rng(5)
    slope, base = rng.uniform(1.0, 100.0, 6), rng.uniform(0.0, 3.0, 6)
    ids = [f"m{at}" for at in range(6)]
    round_ = MicroserviceRound(
        Microservices.of(ids, 10.0, -1e-6), Services.of(["s"], 2.0, 40.0),
        CallClasses.of(["k"], CallTrees.serial(np.ones((6, 1)))),
        linear=LinearLatency(slope, base, slope, base, np.full(6, np.inf)),
    )  # fmt: skip
    program = Erms().compile(round_, None, NO_LIMIT)
    target = program.targets_ms[:, 0]
    x = slope * 2.0 / (target - base)
    assert (slope * 2.0 / x + base).sum() == pytest.approx(40.0)
    root = np.sqrt(slope * 2.0)
    assert x.sum() == pytest.approx(root.sum() ** 2 / (40.0 - base.sum()))
    rounded = program.solve(Solver(), NO_LIMIT).allocation.containers
    assert rounded.tolist() == np.ceil(x - 1e-9).astype(int).tolist()


def test_merging_a_chain_is_associative() -> None:
    ids = ["a", "b", "c"]
    flat = [[{"microservice": name}] for name in ids]
    left = [[{"microservice": "a", "stages": [[{"microservice": "b"}]]}], [{"microservice": "c"}]]
    right = [[{"microservice": "a"}], [{"microservice": "b", "stages": [[{"microservice": "c"}]]}]]
    tops = []
    for stages in (flat, left, right):
        round_ = MicroserviceRound(
            Microservices.of(ids, 10.0, -1e-6), Services.of(["s"], 1.0, 30.0),
            CallClasses.of(["k"], CallTrees.nested([stages], ids)),
        )  # fmt: skip
        forest = Forest.of(round_)
        order = np.argsort(forest.microservice)
        weight, base = np.zeros(3), np.zeros(3)
        weight[order], base[order] = [10.0, 20.0, 5.0], [1.0, 2.0, 3.0]
        node, bottom, _ = merged(forest, weight, base)
        tops.append((node[-1], bottom[-1]))
    assert tops == [pytest.approx((35.0, 6.0))] * 3
