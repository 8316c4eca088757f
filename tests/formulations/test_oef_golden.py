"""OEF on the worked examples, through rounds and the public face of the policies."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.formulations.training.oef import OEFCooperative, OEFNoncooperative
from apportion.formulations.training.oef.rounding import whole_gpus
from apportion.instances import Decision
from apportion.instances.training import Cluster, Jobs, Tenants, TrainingRound
from apportion.solver import Budget, Solver

pytestmark = pytest.mark.quick

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden_oef.json").read_text())
POLICIES: dict[str, Any] = {"noncooperative": OEFNoncooperative, "cooperative": OEFCooperative}
EPS = 1e-9


def round_of(w: Any, m: Any, pi: Any = None) -> TrainingRound:
    """One tenant a user, with as many jobs of one GPU as there are GPUs, so that no cap binds."""
    w, gpus, n = np.array(w, dtype=float), int(sum(m)), len(w)
    tenants = Tenants(
        [f"user-{i:02}" for i in range(n)], np.ones(n) if pi is None else np.array(pi, float),
        np.full(n, np.inf),
    )  # fmt: skip
    return TrainingRound(
        cluster=Cluster.uniform({f"type-{i}": int(count) for i, count in enumerate(m)}),
        jobs=Jobs.of(
            id=[f"{i}-{j}" for i in range(n) for j in range(gpus)], gang=np.ones(n * gpus, int),
            work=np.full(n * gpus, 1e6), throughput_per_s=np.repeat(w, gpus, axis=0) * 0.25,
            tenant=np.repeat(np.arange(n), gpus),
        ),
        tenants=tenants,
    )  # fmt: skip


def decide(form: str, round_: TrainingRound, memory: Any = None) -> Decision:
    budget = Budget.of(None)
    return POLICIES[form]().compile(round_, memory, budget).solve(Solver(gap=0.0), budget)


def utilities(decision: Decision, truth: Any) -> np.ndarray:
    return (np.array(truth, dtype=float) * decision.shares.gpus).sum(axis=1)


def exact(values: list[str]) -> np.ndarray:
    return np.array([float(Fraction(value)) for value in values])


@pytest.mark.parametrize("form", POLICIES)
@pytest.mark.parametrize("example", GOLDEN["examples"], ids=lambda example: example["id"])
def test_worked_examples(example: dict[str, Any], form: str) -> None:
    decision = decide(form, round_of(example["w"], example["m"], example["pi"]))
    assert decision.status == "OPTIMAL"
    assert decision.shares.weight.tolist() == example["pi"]
    found = utilities(decision, example["w"])
    if form in example:
        assert found == pytest.approx(exact(example[form]), abs=EPS)
        total = exact(example[form]).sum()
    else:
        total = float(Fraction(example["cooperative_sum"]))
    assert found.sum() == pytest.approx(total, abs=EPS)
    level = found[0] / example["pi"][0]
    assert decision.objective == pytest.approx(total if form == "cooperative" else level, abs=EPS)


@pytest.mark.parametrize(
    "case", GOLDEN["misreports"], ids=lambda case: f"{case['liar']}-{case['says']}"
)
def test_misreports(case: dict[str, Any]) -> None:
    truth = [[1.0, 2.0], [1.0, 3.0]]
    said = [list(row) for row in truth]
    said[case["liar"]][1] = float(Fraction(case["says"]))
    got = utilities(decide(case["form"], round_of(said, [1, 1])), truth)[case["liar"]]
    if "gets" in case:
        assert got == pytest.approx(float(Fraction(case["gets"])), abs=EPS)
    else:  # the optimum is not unique, this is the best that the liar can hope for
        assert got <= float(Fraction(case["at_most"])) + EPS


def test_what_misreports_change() -> None:
    """Under-reporting pays without cooperation, over-reporting with it: both must stay known."""
    truth = {"noncooperative": Fraction(9, 5), "cooperative": Fraction(3, 2)}
    gains = {
        (case["form"], case["says"])
        for case in GOLDEN["misreports"]
        if case["liar"] == 0 and "gets" in case and Fraction(case["gets"]) > truth[case["form"]]
    }
    assert gains == {
        ("noncooperative", "3/2"), ("noncooperative", "1"), ("cooperative", "5/2"),
    }  # fmt: skip


def test_o4_the_cooperative_optimum_is_not_pareto_efficient() -> None:
    """Users 2 and 3 could trade to (1, 5/2, 25/6) with a sum of 23/3, but user 1 would envy."""
    w = np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 5.0]])
    optimum = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.5, 0.5]])
    assert (w * optimum).sum(axis=1) == pytest.approx([1.0, 2.5, 4.0])
    assert (w @ optimum.T <= (w * optimum).sum(axis=1)[:, None] + EPS).all()
    traded = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1 / 6], [0.0, 0.0, 5 / 6]])
    better = (w * traded).sum(axis=1)
    assert (better >= np.array([1.0, 2.5, 4.0]) - EPS).all()
    assert better.sum() == pytest.approx(23 / 3)
    assert w[0] @ traded[1] > better[0] + 0.1
    decision = decide("cooperative", round_of(w, [1, 1, 1]))
    assert decision.objective == pytest.approx(7.5)
    found = utilities(decision, w)
    assert 1.0 - EPS <= found[0] <= 1.1 + EPS
    assert 2.4 - EPS <= found[1] <= 2.5 + EPS
    assert found[2] == pytest.approx(4.0)


def test_o6_rounding_carries_what_it_owes() -> None:
    share, free = np.array([[0.4], [0.6]]), np.array([1])
    owed, winners = np.zeros((2, 1)), []
    for _ in range(10):
        granted = whole_gpus(share + owed, free)
        owed = share + owed - granted
        winners.append(int(np.argmax(granted)) + 1)
    assert winners == [2, 1, 2, 1, 2] * 2
    assert owed == pytest.approx(np.zeros((2, 1)), abs=1e-12)


def test_types_that_are_not_full_are_granted_in_the_long_run() -> None:
    """Shares of 0.2 and 0.2 of one GPU: rounding their sum alone would never grant anything."""
    share, free = np.array([[0.2], [0.2]]), np.array([1])
    owed, total = np.zeros((2, 1)), np.zeros((2, 1))
    for _ in range(50):
        granted = whole_gpus(share + owed, free)
        owed = share + owed - granted
        total += granted
    assert total.ravel().tolist() == [10.0, 10.0]


def test_whole_gpus_go_to_the_first_of_equals() -> None:
    granted = whole_gpus(np.array([[0.5], [0.5], [1.0]]), np.array([2]))
    assert granted.ravel().tolist() == [1, 0, 1]


def test_whole_gpus_are_taken_back_from_the_last_of_equals() -> None:
    granted = whole_gpus(np.array([[1.25], [1.25], [-0.6]]), np.array([1]))
    assert granted.ravel().tolist() == [1, 0, 0]
