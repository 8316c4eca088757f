"""Conformance battery for policies, ours and those of others.

``check_policy(policy)`` runs everything; ``policy_checks(policy)`` lists the checks one by one, for
``pytest.mark.parametrize``. A check that fails raises ``AssertionError`` and says what it saw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apportion.conformance import Check, asserting, require
from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.executor.training import check, run
from apportion.families.microservices import MICROSERVICES
from apportion.instances import Decision, Policy
from apportion.instances.columns import Ints
from apportion.instances.memory_json import dump_memory, load_memory
from apportion.instances.training import (
    Cluster,
    Commitments,
    ExecutorOptions,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.instances.training.curves import INVERSE
from apportion.instances.training.planned import planned_outcome
from apportion.instances.training.true_curves import TrueCurves
from apportion.registry import family_name
from apportion.solver import Budget, Solver
from apportion.testing_microservices import policy_checks as microservice_checks

TRAITS = ("permutation", "useless_type", "monotone_capacity", "unit_homogeneous")
"""Properties a policy may declare; only declared ones are checked."""

_EXACT = 1e-6
"""Relative difference of objectives below which two proved optima are the same."""


def check_policy(policy: Policy, *, seed: int = 0) -> None:
    """Run every check that applies to a policy.

    Parameters
    ----------
    policy
        The policy to judge.
    seed
        Root of the random rounds.

    Raises
    ------
    AssertionError
        Naming the first check that failed.
    """
    for name, judge in policy_checks(policy, seed=seed):
        try:
            judge()
        except AssertionError as error:
            raise AssertionError(f"{policy.name}: {name}: {error}") from error


def policy_checks(policy: Policy, *, seed: int = 0) -> list[Check]:
    """List the checks that apply to a policy: those of its family, and those of its traits.

    Raises
    ------
    AssertionError
        If the policy declares a trait that does not exist.
    """
    if family_name(policy) == MICROSERVICES.name:
        return microservice_checks(policy, seed=seed)
    unknown = sorted(policy.traits - set(TRAITS))
    if unknown:
        raise AssertionError(
            f"{policy.name}: unknown trait {unknown[0]!r}; known: {', '.join(TRAITS)}"
        )
    battery = _Battery(policy, seed)
    common = (
        battery.feasible, battery.incumbent, battery.empty_round, battery.single_job,
        battery.zero_capacity, battery.more_than_fits, battery.same_twice, battery.no_time,
        battery.memory_as_text, battery.kept_promises, battery.hidden_truth,
        battery.hidden_curves,
    )  # fmt: skip
    by_trait = [getattr(battery, trait) for trait in TRAITS if trait in policy.traits]
    return [(judge.__name__, asserting(judge)) for judge in (*common, *by_trait)]


def random_round(
    rng: np.random.Generator, jobs: int = 8, types: int = 3, *, running: bool = True
) -> TrainingRound:
    """Draw a small round: mixed gangs, types some jobs cannot use, jobs that already run."""
    cluster = Cluster.uniform(
        {f"type-{i}": int(rng.integers(1, 9)) for i in range(types)}, gpus_per_node=4
    )
    gang = rng.choice([1, 1, 2, 4], jobs)
    rates = rng.uniform(0.5, 4.0, (jobs, types)).round(2)
    rates[rng.random((jobs, types)) < 0.15] = 0.0
    work = rng.uniform(100.0, 5000.0, jobs).round()
    kinds, free = np.full(jobs, -1), cluster.gpus.copy()
    for row in range(jobs if running else 0):
        kind = int(rng.integers(types))
        if rng.random() < 0.4 and rates[row, kind] > 0 and gang[row] <= free[kind]:
            kinds[row] = kind
            free[kind] -= gang[row]
    on = kinds >= 0
    return TrainingRound(
        cluster=cluster,
        jobs=Jobs.of(
            id=[f"job-{i}" for i in range(jobs)], gang=gang, work=work, throughput_per_s=rates,
            arrival_s=rng.uniform(0.0, 6000.0, jobs).round(), running=on, previous_type=kinds,
            held_gpus=np.where(on, gang, 0), work_done=np.where(on, 0.3 * work, 0.0),
            preemptible=~(on & (rng.random(jobs) < 0.3)),
        ),
        now_s=6000.0,
    )  # fmt: skip


def _of(round_: TrainingRound, **columns: Any) -> TrainingRound:
    """Give a round with other job columns."""
    jobs = round_.jobs
    known = ("gang", "work", "throughput_per_s", "arrival_s", "running", "previous_type",
             "held_gpus", "work_done", "preemptible", "code")  # fmt: skip
    data = {"id": jobs.id, **{name: getattr(jobs, name) for name in known}, **columns}
    return replace(round_, jobs=Jobs.of(**data))


def _permuted(round_: TrainingRound, order: Ints) -> TrainingRound:
    jobs = round_.jobs
    names = ("gang", "work", "throughput_per_s", "arrival_s", "running", "previous_type",
             "held_gpus", "work_done", "preemptible", "code")  # fmt: skip
    columns = {name: getattr(jobs, name)[order] for name in names}
    return replace(round_, jobs=Jobs.of(id=jobs.id[order], **columns))


@dataclass(frozen=True)
class _Battery:
    policy: Policy
    seed: int

    def decide(self, round_: TrainingRound, memory: Any = None) -> Decision:
        budget = Budget.of(None)
        solver = Solver(gap=0.0, work_limit=WORK_LIMIT)
        return self.policy.compile(round_, memory, budget).solve(solver, budget)

    def rounds(self, count: int = 6) -> list[TrainingRound]:
        rng = np.random.default_rng(self.seed)
        return [random_round(rng, jobs=int(rng.integers(2, 12))) for _ in range(count)]

    def passes(self, round_: TrainingRound, decision: Decision) -> None:
        broken = check(round_, decision.allocation)
        require(not broken, f"{round_}: {broken[0].message if broken else ''}")

    def feasible(self) -> None:
        for round_ in self.rounds():
            self.passes(round_, self.decide(round_))

    def incumbent(self) -> None:
        for round_ in self.rounds():
            program = self.policy.compile(round_, None, Budget.of(None))
            self.passes(round_, program.incumbent())

    def empty_round(self) -> None:
        cluster = Cluster.uniform({"only": 4})
        round_ = TrainingRound(
            cluster=cluster,
            jobs=Jobs.of(id=[], gang=[], work=[], throughput_per_s=np.zeros((0, 1))),
        )
        decision = self.decide(round_)
        require(decision.allocation.job.size == 0, "a round without jobs must place nobody")

    def single_job(self) -> None:
        jobs = Jobs.of(id=["one"], gang=[2], work=[600.0], throughput_per_s=[[1.0]])
        round_ = TrainingRound(cluster=Cluster.uniform({"only": 4}), jobs=jobs)
        self.passes(round_, self.decide(round_))

    def zero_capacity(self) -> None:
        jobs = Jobs.of(
            id=["a", "b"], gang=[1, 2], work=[600.0, 1.0], throughput_per_s=[[1.0], [2.0]]
        )
        round_ = TrainingRound(cluster=Cluster.uniform({"only": 0}), jobs=jobs)
        decision = self.decide(round_)
        require(decision.allocation.job.size == 0, "nobody can run without GPUs")

    def more_than_fits(self) -> None:
        jobs = Jobs.of(
            id=["huge", "small"], gang=[64, 1], work=[600.0, 60.0], throughput_per_s=[[9.0], [1.0]]
        )
        round_ = TrainingRound(cluster=Cluster.uniform({"only": 4}), jobs=jobs)
        decision = self.decide(round_)
        self.passes(round_, decision)
        require(any("huge" in note for note in decision.notes), "the hopeless gang is not named")

    def same_twice(self) -> None:
        for round_ in self.rounds(3):
            one, two = self.decide(round_), self.decide(round_)
            require(one.allocation == two.allocation, f"{round_}: two calls differ")
            require(one.objective == two.objective, f"{round_}: two objectives differ")

    def no_time(self) -> None:
        for round_ in self.rounds(3):
            budget = Budget.of(1e-6)
            program = self.policy.compile(round_, None, budget)
            self.passes(round_, program.solve(Solver(), budget))

    def memory_as_text(self) -> None:
        for round_ in self.rounds(3):
            first = self.decide(round_)
            seen = planned_outcome(round_, first.allocation)
            memory = self.policy.remember(None, round_, first, seen)
            later = replace(round_, now_s=round_.now_s + round_.duration_s)
            one = self.decide(later, memory)
            two = self.decide(later, load_memory(dump_memory(memory)))
            require(one.allocation == two.allocation, "memory does not survive being written")

    def kept_promises(self) -> None:
        """Guaranteed leases, jobs that cannot be preempted and begun reservations stay."""
        jobs = Jobs.of(
            id=["leased", "pinned", "promised", "new"], gang=[2, 1, 2, 4],
            work=[9e5, 9e5, 9e5, 60.0], throughput_per_s=[[1.0], [1.0], [1.0], [50.0]],
            running=[True, True, False, False], previous_type=[0, 0, -1, -1],
            held_gpus=[2, 1, 0, 0], preemptible=[True, False, True, True],
            guaranteed=[True, False, False, False], lease_end_s=[2000.0, -1.0, -1.0, -1.0],
        )  # fmt: skip
        round_ = TrainingRound(
            cluster=Cluster.uniform({"only": 6}, gpus_per_node=2), jobs=jobs, now_s=600.0,
            commitments=Commitments.of([2], [500.0], [5000.0], [2]),
        )  # fmt: skip
        self.passes(round_, self.decide(round_))
        self.passes(round_, self.policy.compile(round_, None, Budget.of(None)).incumbent())

    def hidden_truth(self) -> None:
        """Change what nobody can know yet: decisions before it shows must stay the same."""
        seen = [self.seen(factor) for factor in (1.0, 3.0)]
        shows_s = min(end_s for _, end_s in seen)
        known = [[entry for entry in entries if entry[0] < shows_s] for entries, _ in seen]
        require(len(known[0]) > 1, "too few decisions fell before the truth showed")
        require(known[0] == known[1], "a decision depends on hidden truth")

    def seen(self, factor: float) -> tuple[list[tuple[float, list[int], list[int]]], float]:
        """Decisions of a run whose jobs are truly longer than reported, and its first end."""
        rng = np.random.default_rng(self.seed + 1)
        n = 10
        work = rng.uniform(6_000.0, 20_000.0, n).round()
        stretch = np.where(np.arange(n) % 2 == 0, factor, 1.0 + factor / 2.0)
        scenario = Scenario(
            name="truth",
            cluster=Cluster.uniform({"slow": 4, "fast": 4}, gpus_per_node=4),
            jobs=Jobs.of(
                id=[f"j{i}" for i in range(n)], gang=rng.choice([1, 2], n), work=work,
                throughput_per_s=rng.uniform(0.5, 3.0, (n, 2)).round(2),
                arrival_s=np.sort(rng.uniform(0.0, 4000.0, n)).round(),
            ),
            tenants=Tenants.named("default"),
            true_work=work * stretch,
            options=ExecutorOptions(until_s=8_000.0),
        )  # fmt: skip
        watch = _Watch(BoundPolicy(self.policy, Solver(work_limit=WORK_LIMIT)), [], [])
        ends = run(scenario, watch).jobs.finish_s
        return watch.seen, float(ends[ends >= 0].min(initial=np.inf))

    def hidden_curves(self) -> None:
        """Change how metrics will develop: decisions before a point of them is seen stay the same.

        An iteration takes longer than some rounds, and what the curves are decides which job will
        reach its target first.
        """
        worlds = [self.curves_seen(turn) for turn in (False, True)]
        pairs = list(zip(*worlds, strict=False))
        same = [one[1] == other[1] for one, other in pairs]
        unseen = same.index(False) if False in same else len(same)
        require(unseen > 1, "too few decisions fell before a metric showed")
        # a policy may let everybody wait; who runs shows something in the end
        runs = any(entry[0][1] for world in worlds for entry in world)
        require(unseen < len(pairs) or not runs, "the metrics never showed what was changed")
        known = [[entry[0] for entry in world[:unseen]] for world in worlds]
        require(known[0] == known[1], "a decision depends on hidden curves")

    def curves_seen(self, turned: bool) -> list[tuple[Any, tuple[bytes, ...]]]:
        """Decisions of a run whose jobs stop on a metric, each with what was known of the jobs."""
        rng = np.random.default_rng(self.seed + 2)
        n, iteration_s = 10, 1500.0
        cap, steep = 40.0, np.where((np.arange(n) % 2 == 0) ^ turned, 0.9, 0.1)
        scenario = Scenario(
            name="curves",
            cluster=Cluster.uniform({"slow": 4, "fast": 4}, gpus_per_node=4),
            jobs=Jobs.of(
                id=[f"j{i}" for i in range(n)], gang=rng.choice([1, 2], n), work=np.full(n, cap),
                throughput_per_s=rng.uniform(0.5, 1.0, (n, 2)) / iteration_s,
                arrival_s=np.sort(rng.uniform(0.0, 1000.0, n)).round(),
                stop_on_metric=np.ones(n, dtype=np.bool_), metric_target=np.full(n, 0.5),
                iteration_cap=np.full(n, cap),
            ),
            tenants=Tenants.named("default"),
            true_curves=TrueCurves(
                np.full(n, INVERSE), steep, np.full(n, 1.0), np.full(n, 0.2), noise=0.0
            ),
            options=ExecutorOptions(until_s=6.0 * iteration_s),
        )  # fmt: skip
        watch = _Watch(BoundPolicy(self.policy, Solver(work_limit=WORK_LIMIT)), [], [])
        run(scenario, watch)
        return list(zip(watch.seen, watch.known, strict=True))

    def compare(
        self, one: Decision, two: Decision, first: TrainingRound, second: TrainingRound
    ) -> None:
        if one.objective is not None and two.objective is not None:
            size = max(1.0, abs(one.objective))
            require(
                abs(one.objective - two.objective) <= _EXACT * size,
                f"objective {one.objective} became {two.objective}",
            )
            return
        places = [
            {
                (str(asked.jobs.id[row]), str(asked.cluster.types[kind]))
                for row, kind in zip(
                    found.allocation.job.tolist(), found.allocation.gpu_type.tolist(), strict=True
                )
            }
            for asked, found in ((first, one), (second, two))
        ]
        require(places[0] == places[1], f"placed {places[0]}, then {places[1]}")

    def permutation(self) -> None:
        rng = np.random.default_rng(self.seed)
        for round_ in self.rounds():
            other = _permuted(round_, rng.permutation(len(round_.jobs)))
            self.compare(self.decide(round_), self.decide(other), round_, other)

    def useless_type(self) -> None:
        for round_ in self.rounds():
            more = _with_type(round_)
            self.compare(self.decide(round_), self.decide(more), round_, more)

    def monotone_capacity(self) -> None:
        for round_ in self.rounds():
            base = self.decide(round_).objective
            gpus = {
                str(k): int(c) + 4
                for k, c in zip(round_.cluster.types, round_.cluster.gpus, strict=True)
            }
            cluster = Cluster.uniform(gpus, gpus_per_node=4)
            up = np.ones(cluster.nodes.size, dtype=np.bool_)
            more = self.decide(replace(round_, cluster=cluster, node_up=up)).objective
            if base is None or more is None:
                raise AssertionError("needs an objective")
            least = base - _EXACT * max(1.0, abs(base))
            require(more >= least, f"{base} fell to {more}")

    def unit_homogeneous(self) -> None:
        for round_ in self.rounds():
            jobs = round_.jobs
            other = _of(
                round_, work=jobs.work * 8.0, work_done=jobs.work_done * 8.0,
                throughput_per_s=jobs.throughput_per_s * 8.0,
            )  # fmt: skip
            self.compare(self.decide(round_), self.decide(other), round_, other)


def _with_type(round_: TrainingRound) -> TrainingRound:
    """Add a type with GPUs on which nobody runs."""
    counts = {
        str(kind): int(count)
        for kind, count in zip(round_.cluster.types, round_.cluster.gpus, strict=True)
    }
    rates = np.c_[round_.jobs.throughput_per_s, np.zeros(len(round_.jobs))]
    cluster = Cluster.uniform({**counts, "useless": 4}, gpus_per_node=4)
    base = replace(round_, cluster=round_.cluster)
    jobs = _of(base, throughput_per_s=round_.jobs.throughput_per_s).jobs
    columns = {
        name: getattr(jobs, name)
        for name in ("gang", "work", "arrival_s", "running", "previous_type", "held_gpus",
                     "work_done", "preemptible", "code")
    }  # fmt: skip
    wider = Jobs.of(id=jobs.id, throughput_per_s=rates, **columns)
    nodes = cluster.nodes.size
    return replace(round_, cluster=cluster, jobs=wider, node_up=np.ones(nodes, dtype=np.bool_))


@dataclass(frozen=True)
class _Watch:
    """A decider that notes what was decided when."""

    inner: BoundPolicy
    seen: list[tuple[float, list[int], list[int]]]
    known: list[tuple[bytes, ...]]

    @property
    def subscribes(self) -> Any:
        return self.inner.subscribes

    @property
    def reacts_to(self) -> Any:
        return self.inner.reacts_to

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        jobs = round_.jobs
        observed = (jobs.observed_offsets, jobs.observed_iteration, jobs.observed_metric)
        self.known.append(tuple(column.tobytes() for column in observed))
        decision = self.inner.decide(round_, memory)
        plan = decision.allocation
        self.seen.append(
            (round_.now_s, round_.jobs.code[plan.job].tolist(), plan.gpu_type.tolist())
        )
        return decision

    def remember(self, memory: Any, round_: Any, decision: Decision, outcome: Any) -> Any:
        return self.inner.remember(memory, round_, decision, outcome)

    def react(self, plan: Any, event: Any, view: Any) -> tuple[Any | None, Any]:
        return self.inner.react(plan, event, view)
