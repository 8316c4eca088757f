"""Answers of policies with a model of their own carry a certificate that needs no solver."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import apportion as ap
from apportion.answer_reading import answer_from_dict
from apportion.formulations.training import joined, pinned
from apportion.formulations.training.modelled import ModelledDecision
from apportion.instances.training import Cluster, Jobs, TrainingRound
from apportion.registry import policy_class
from apportion.solver import Axis, Model, ModelBuilder, Solver


@dataclass(frozen=True)
class Program:
    """Which share of one GPU type would each job get, by an LP."""

    round_: TrainingRound

    @property
    def model(self) -> Model:
        jobs = self.round_.jobs
        builder = ModelBuilder("toy")
        names = jobs.id.tolist()
        x = builder.columns("x", len(jobs), upper=1.0, axes=(Axis("job", names),))
        builder.rows("capacity", 1, row=0, column=x, value=jobs.gang, upper=self.round_.capacity[0])
        builder.objective("speed", column=x, value=jobs.throughput_per_s[:, 0], maximise=True)
        return builder.build()

    def solve(self, solver: Solver, budget: Any) -> ModelledDecision:
        solution = solver.solve(self.model, budget=budget)
        held = pinned(self.round_)
        whole = np.where(solution.x > 0.999, 0, -1).astype(np.int64)
        return ModelledDecision(
            joined(held, whole, self.round_.jobs.gang),
            status=solution.status.name, objective=solution.objective, bound=solution.bound,
            gap=solution.gap, solution=solution,
        )  # fmt: skip

    def incumbent(self) -> ModelledDecision:
        nobody = np.full(len(self.round_.jobs), -1, dtype=np.int64)
        return ModelledDecision(joined(pinned(self.round_), nobody, self.round_.jobs.gang))


@dataclass(frozen=True)
class Toy:
    name: ClassVar[str] = "toy-lp"
    source: ClassVar[str] = "a test"
    subscribes: ClassVar[frozenset[Any]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset()

    def compile(self, round_: Any, memory: Any, budget: Any) -> Program:
        return Program(round_)

    def remember(self, memory: Any, round_: Any, decision: Any, outcome: Any) -> None:
        return None


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> type[Any]:
        return Toy if name == "toy-lp" else policy_class(name)

    monkeypatch.setattr("apportion.registry.policy_class", found)


ROUND = TrainingRound(
    cluster=Cluster.uniform({"v": 3}),
    jobs=Jobs.of(
        id=["a", "b", "c"], gang=[2, 1, 1], work=[9.0] * 3, throughput_per_s=[[4.0], [3.0], [1.0]]
    ),
)


def test_an_outsider_can_check_it(registered: None) -> None:
    answer = ap.solve(ROUND, Toy())
    assert answer.status == "OPTIMAL"
    assert answer.objective == pytest.approx(7.0)
    back = answer_from_dict(answer.to_dict())
    found = ap.verify(back, ROUND)
    assert found.faults == ()
    assert any("objective 7" in line and "exact" in line for line in found.proved)
    assert found.words == ()


def _set(path: tuple[Any, ...], value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("objective",), 7.5, "objective: 7.0 by the model, the answer says 7.5"),
        (("bound",), 9.0, "bound: 7.0 by the model"),
        (("status",), "FEASIBLE", "status: OPTIMAL by the model"),
        (("certificate", "model", "duals"), [0.0], "certificate.model: duals: they prove 8"),
        (("certificate", "model", "point"), [1.0, 1.0, 1.0], "certificate.model: point:"),
        (("certificate", "schema"), "apportion/other/1", "certificate.schema"),
        (("certificate", "model", "status"), "feasible", "status: FEASIBLE by the model"),
        (("certificate", "model", "odd"), 1, "certificate.model: certificate: key 'odd'"),
        (("certificate", "model", "objectives"), ["8"], "objective speed: 7 at the point, not 8"),
    ],
)
def test_a_lie_is_found(registered: None, path: tuple[Any, ...], value: Any, fault: str) -> None:
    data = copy.deepcopy(ap.solve(ROUND, Toy()).to_dict())
    _set(path, value)(data)
    found = ap.verify(answer_from_dict(data), ROUND)
    assert any(fault in one for one in found.faults), found.faults


def test_another_round_has_another_model(registered: None) -> None:
    answer = ap.solve(ROUND, Toy())
    data = answer.to_dict()
    smaller = TrainingRound(cluster=Cluster.uniform({"v": 4}), jobs=ROUND.jobs)
    found = ap.verify(answer_from_dict(data), smaller)
    assert not found.holds


# --------------------------------------------------------------------------- policies that share


def shared(seed: int, copies: int = 2) -> TrainingRound:
    """Some different jobs, each as often as said, so that the policy merges them."""
    random = np.random.default_rng([17, seed])
    n = 4
    speed = random.uniform(0.3, 5.0, (n, 3)) * (random.random((n, 3)) < 0.8)
    speed[:, 0] = np.maximum(speed[:, 0], 0.2)
    gang, work = random.integers(1, 3, n), random.uniform(1e3, 1e5, n)
    rows = np.tile(np.arange(n), copies)
    return TrainingRound(
        cluster=Cluster.uniform({"a": 2, "b": 3, "c": 2}),
        jobs=Jobs.of(
            id=[f"j{i}" for i in range(rows.size)], gang=gang[rows], work=work[rows],
            throughput_per_s=speed[rows], weight=random.choice([1.0, 2.0], n)[rows],
            slo=rows == 0, deadline_offsets=np.concatenate(([0], np.cumsum(rows == 0))),
            deadline_s=np.full(copies, 40.0 * work[0] / speed[0].max()),
            deadline_value=np.ones(copies),
        ),
    )  # fmt: skip


SHARING = [
    ("gavel-las", {}),
    ("gavel-las", {"aware": False}),
    ("gavel-makespan", {}),
    ("gavel-makespan", {"aware": False}),
    ("gavel-throughput", {}),
    ("gavel-throughput", {"units": "normalised"}),
    ("gavel-cost", {}),
    ("gavel-cost", {"prices": {"a": 1.0, "b": 2.5, "c": 0.7}}),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("policy", "parameters"), SHARING)
@pytest.mark.parametrize("gap", [0.0, 1e-4])
def test_shares_are_proved_without_a_solver(policy, parameters, seed, gap):
    round_ = shared(seed)
    answer = ap.solve(round_, policy, parameters=parameters, gap=gap)
    assert answer.status == "OPTIMAL"
    assert answer.certificate is not None
    found = ap.verify(answer_from_dict(answer.to_dict()), round_)
    assert found.faults == ()
    assert found.words == ()
    assert any(line.startswith("model: optimal") for line in found.proved)


def _changed_share(data: dict[str, Any]) -> None:
    data["shares"]["gpus"] = [[one * 0.9 for one in row] for row in data["shares"]["gpus"]]


def _doubled_duals(data: dict[str, Any]) -> None:
    data["certificate"]["model"]["duals"] = [
        2.0 * one for one in data["certificate"]["model"]["duals"]
    ]


@pytest.mark.parametrize("policy", ["gavel-las", "gavel-makespan", "gavel-throughput"])
@pytest.mark.parametrize(
    ("lie", "fault"),
    [
        (lambda data: data.update(objective=data["objective"] * (1.0 + 1e-7)), "objective:"),
        (lambda data: data.update(bound=data["bound"] * (1.0 + 1e-5)), "bound:"),
        (_changed_share, "shares:"),
        (_doubled_duals, "certificate.model: duals:"),
    ],
    ids=["objective", "bound", "share", "duals"],
)
def test_a_lie_about_shares_is_found(policy, lie, fault):
    data = copy.deepcopy(ap.solve(shared(1), policy).to_dict())
    lie(data)
    found = ap.verify(answer_from_dict(data), shared(1))
    assert any(one.startswith(fault) for one in found.faults), found.faults


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        ("gavel-ftf", {}),
        ("gavel-las", {"levels": "lexicographic"}),
        ("gavel-las", {"tenants": "fairness"}),
        ("gavel-cost", {"form": "ratio"}),
        ("drf", {}),
    ],
)
def test_what_no_single_model_proves_has_no_certificate(policy, parameters):
    answer = ap.solve(shared(0), policy, parameters=parameters)
    assert answer.certificate is None
    assert ap.verify(answer, shared(0)).holds


def test_shares_decided_before_have_no_certificate():
    first = ap.solve(shared(0), "gavel-las")
    later = replace(shared(0), now_s=300.0)
    again = ap.solve(later, "gavel-las", previous=first)
    assert first.certificate is not None
    assert again.certificate is None
    assert ap.verify(again, later).holds


# ------------------------------------------------------------------------------------- matchings


def waiting(seed: int, jobs: int = 8) -> TrainingRound:
    random = np.random.default_rng([23, seed])
    speed = random.uniform(0.3, 5.0, (jobs, 2)) * (random.random((jobs, 2)) < 0.8)
    speed[:, 0] = np.maximum(speed[:, 0], 0.2)
    return TrainingRound(
        cluster=Cluster.uniform({"a": 2, "b": 1}),
        jobs=Jobs.of(
            id=[f"j{i}" for i in range(jobs)], gang=np.ones(jobs, dtype=int),
            work=random.uniform(1e2, 1e4, jobs), throughput_per_s=speed,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_a_matching_is_proved_by_prices_of_places(seed):
    round_ = waiting(seed)
    answer = ap.solve(round_, "allox", parameters={"alpha": 1.0}, gap=0.0)
    assert answer.status == "OPTIMAL"
    found = ap.verify(answer_from_dict(answer.to_dict()), round_)
    assert found.faults == ()
    assert found.words == ()
    assert any(line.startswith("proof: objective") for line in found.proved)


def _cheaper(data: dict[str, Any]) -> None:
    data["certificate"]["proof"]["prices"] = {"a": [], "b": []}


def _moved(data: dict[str, Any]) -> None:
    data["certificate"]["proof"]["matching"]["j0"] = "none"


def _forgotten(data: dict[str, Any]) -> None:
    del data["certificate"]["proof"]["matching"]["j0"]


@pytest.mark.parametrize(
    ("lie", "fault"),
    [
        (lambda data: data.update(objective=data["objective"] * 0.99), "objective:"),
        (lambda data: data.update(bound=data["bound"] * 0.99), "bound:"),
        (_cheaper, "bound:"),
        (_moved, "certificate.proof:"),
        (_forgotten, "certificate.proof:"),
        (lambda data: data["certificate"].update(schema="other"), "certificate.schema:"),
        (lambda data: data["certificate"].update(tolerance=-1), "certificate.tolerance:"),
    ],
)
def test_a_lie_about_a_matching_is_found(lie, fault):
    data = copy.deepcopy(ap.solve(waiting(3), "allox", parameters={"alpha": 1.0}).to_dict())
    lie(data)
    found = ap.verify(answer_from_dict(data), waiting(3))
    assert any(one.startswith(fault) for one in found.faults), found.faults


def test_a_matching_with_another_first_job_is_not_the_one_proved():
    data = copy.deepcopy(ap.solve(waiting(3), "allox", parameters={"alpha": 1.0}).to_dict())
    runs = {one["job"] for one in data["allocation"]["jobs"]}
    idle = next(f"j{i}" for i in range(8) if f"j{i}" not in runs)
    place = next(one for one in data["allocation"]["jobs"] if one["gpu_type"] == "a")
    place["job"] = idle
    found = ap.verify(answer_from_dict(data), waiting(3))
    assert any("not the one that the proof makes" in one for one in found.faults), found.faults
