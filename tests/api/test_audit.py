"""``audit``: properties of plans, from Python and from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import apportion as ap
from apportion.formulations.training.plain import PlainProgram
from apportion.instances import Decision
from apportion.instances.training import Shares
from apportion.results import PROPERTIES
from apportion.testing import random_round

Command = Callable[..., Any]

PLAN = ("within-capacity", "envy-freeness", "sharing-incentive", "pareto-efficiency")


@dataclass(frozen=True)
class Equal:
    """Two users, a slow and a fast GPU: equal normalised throughput, by its closed form.

    Parameters
    ----------
    fair
        True: the cooperative division instead, for the reports of the example only.
    scale
        Times what there is.
    """

    source: ClassVar[str] = "a test"
    name: ClassVar[str] = "equal"
    subscribes: ClassVar[frozenset[str]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset()

    fair: bool = False
    scale: float = 1.0

    def compile(self, round_: ap.TrainingRound, memory: Any, budget: Any) -> Any:
        if memory is not None:
            raise ap.InstanceError("memory: this policy has none")
        return PlainProgram(lambda: self._decide(round_))

    def _decide(self, round_: ap.TrainingRound) -> Decision:
        a, b = (round_.jobs.throughput_per_s[:, 1] / round_.jobs.throughput_per_s[:, 0]).tolist()
        low = (b - 1) / (a + b)
        gpus = [[1, low], [0, 1 - low]] if a <= b else [[0, 1 - (a - 1) / (a + b)], [1, 0]]
        if self.fair:
            gpus = [[1, 1 / 4], [0, 3 / 4]]
        shares = Shares(
            np.array(["u1", "u2"]), np.ones(2), self.scale * np.array(gpus), np.arange(2)
        )
        return Decision(ap.Allocation.of([0], [0], [1]), shares=shares)

    def remember(self, memory: Any, round_: Any, decision: Any, outcome: Any) -> Any:
        return None


@pytest.fixture
def two() -> ap.TrainingRound:
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"slow": 1, "fast": 1}),
        jobs=ap.Jobs.of(
            id=["a", "b"], gang=[1, 1], work=[100.0, 100.0], throughput_per_s=[[1, 2], [1, 3]]
        ),
    )


@pytest.fixture
def file(two: ap.TrainingRound, tmp_path: Path) -> Path:
    ap.write_round(two, tmp_path / "two.json")
    return tmp_path / "two.json"


def test_shares_are_audited(two: ap.TrainingRound) -> None:
    got = ap.audit(two, Equal(), capped=False)
    assert (got.policy, got.of) == ("equal", "planned shares")
    assert got.utility == pytest.approx({"u1": 9 / 5, "u2": 9 / 5})
    assert [one.property for one in got.findings] == list(PROPERTIES)
    assert got["envy-freeness"].margin == pytest.approx(9 / 5 - 11 / 5)
    assert got["truthfulness"].holds is None
    assert not got.holds
    assert ap.audit(
        two, Equal(), capped=False, properties=["pareto-efficiency", "jain-index"]
    ).holds
    assert ap.audit(two, Equal(fair=True), capped=False, properties=PLAN).holds
    assert ap.audit(two, Equal(scale=2.0), capped=False)["within-capacity"].holds is False


def test_leases_are_audited_when_asked_or_without_shares(two: ap.TrainingRound) -> None:
    for got in (ap.audit(two, Equal(), capped=False, leases=True), ap.audit(two, "fifo")):
        assert got.of == "this round's leases"
        assert set(got.utility) == {"a", "b"}
    assert ap.audit(two, Equal(), capped=False, leases=True).utility == pytest.approx(
        {"a": 1.0, "b": 0.0}
    )


def test_more_gpus_than_a_users_jobs_need_are_worth_nothing(two: ap.TrainingRound) -> None:
    # u1 has (1, 2/5) for a gang of 1: 2/5 on fast, 3/5 on slow
    assert ap.audit(two, Equal()).utility == pytest.approx({"u1": 7 / 5, "u2": 9 / 5})


def test_the_probe_finds_a_lie_that_pays(two: ap.TrainingRound) -> None:
    # u2 says 9/4: 36/17 instead of 9/5; see the auditors' own tests
    got = ap.audit(two, Equal(), capped=False, probe=[3 / 4], properties=["truthfulness"])
    assert got["truthfulness"].worst == ("u2",)
    assert got["truthfulness"].margin == pytest.approx(9 / 5 - 36 / 17)
    assert not got.holds
    assert ap.audit(
        two, Equal(fair=True), capped=False, probe=[3 / 4], properties=["truthfulness"]
    ).holds


def test_remaining_time_is_worth_lying_about(two: ap.TrainingRound) -> None:
    # one fast GPU, the shorter job first: who says it is faster looks shorter
    one = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"fast": 1}),
        jobs=ap.Jobs.of(
            id=["a", "b"], gang=[1, 1], work=[100.0, 120.0], throughput_per_s=[[1], [1]]
        ),
    )
    got = ap.audit(one, "srtf", probe=[1.1, 2.0])["truthfulness"]
    assert (got.holds, got.worst, got.margin) == (False, ("b",), pytest.approx(-1.0))
    assert "speeds as 2 times" in got.words
    assert ap.audit(one, "fifo", probe=[1.1, 2.0])["truthfulness"].holds is True


def test_an_executed_interval_is_audited(scenario_file: Path) -> None:
    run = ap.simulate(scenario_file, "fifo")
    got = ap.audit_run(run, 0.0, 300.0)
    assert got.of == "executed leases"
    assert got["truthfulness"].holds is None


def test_the_command(command: Command, file: Path) -> None:
    told = command("audit", file, "--policy", "srtf")
    assert told.code == 1
    assert "srtf: audit of this round's leases" in told.out
    assert "envy-freeness" in told.out
    told = command(
        "audit", file, "--policy", "srtf", "--property", "pareto-efficiency", "--uncapped"
    )
    assert told.code == 0
    assert "envy-freeness" not in told.out
    told = command(
        "audit", file, "--policy", "fifo", "--json", "--probe", "0.5, 2", "--time-limit", 60
    )
    assert told.json["schema"] == "apportion/audit/1"
    assert told.json["of"] == "this round's leases"
    assert [one["property"] for one in told.json["findings"]] == list(PROPERTIES)
    truth = next(one for one in told.json["findings"] if one["property"] == "truthfulness")
    assert truth["holds"] is True
    assert "lies tried" in truth["words"]
    assert told.code == (0 if told.json["holds"] else 1)


def test_the_command_says_the_same_twice(command: Command, file: Path) -> None:
    first, second = (command("audit", file, "--json", "--probe", "2") for _ in range(2))
    assert first == second


def test_what_the_command_refuses(command: Command, file: Path, tmp_path: Path) -> None:
    def said(*arguments: object) -> str:
        return command("audit", file, *arguments).refused()

    assert "did you mean 'envy-freeness'?" in said("--property", "envyfreeness")
    assert "'x' is not a number" in said("--probe", "2,x")
    assert "probe factor = -1.0: must be a finite number above zero" in said("--probe", "-1")
    assert "an entry is empty" in said("--property", "")
    assert "time limit = 0.0" in said("--time-limit", "0")
    memory = tmp_path / "memory.json"
    memory.write_text(json.dumps({"odd": 1}), encoding="utf-8")
    assert str(memory) in said("--memory", memory)


def test_time_that_ends_is_told(two: ap.TrainingRound) -> None:
    got = ap.audit(
        two, Equal(), capped=False, probe=np.linspace(0.5, 2.0, 20_000).tolist(), time_limit_s=0.2
    )
    assert "no time for" in got["truthfulness"].words


def test_shares_of_a_strange_kind(two: ap.TrainingRound) -> None:
    @dataclass(frozen=True)
    class Strange(Equal):
        def _decide(self, round_: ap.TrainingRound) -> Decision:
            return Decision(ap.Allocation.empty(), shares={"u1": 3})

    with pytest.raises(ap.InstanceError, match="shares are a dict"):
        ap.audit(two, Strange())


@pytest.mark.parametrize("policy", ["fft", "srtf", "fifo"])
def test_random_rounds(policy: str) -> None:
    """Running jobs, jobs that may not be stopped, jobs that fit nowhere: always an audit."""
    for seed in range(10):
        round_ = random_round(np.random.default_rng(seed), jobs=6, types=3)
        got = ap.audit(round_, policy, probe=[3.0])
        assert got["within-capacity"].holds is not False
        assert got["pareto-efficiency"].holds is not None or not got.utility
        json.dumps(got.to_dict(), allow_nan=False)
        got.table().to_text(width=80)


@pytest.mark.parametrize("policy", ["fft", "srtf", "fifo"])
@pytest.mark.parametrize("jobs", [0, 1])
def test_small_rounds(policy: str, jobs: int) -> None:
    few = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"a": 2}),
        jobs=ap.Jobs.of(
            id=["j"][:jobs], gang=[1][:jobs], work=[10.0][:jobs],
            throughput_per_s=np.ones((jobs, 1)),
        ),
    )  # fmt: skip
    got = ap.audit(few, policy, probe=[2.0])
    assert got.holds
    assert json.loads(json.dumps(got.to_dict(), allow_nan=False)) == got.to_dict()
