"""Prices and what-ifs of policies that share, against LPs written down without our models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import apportion as ap

pytestmark = pytest.mark.quick


def shared_round(seed: int, jobs: int = 5) -> ap.TrainingRound:
    random = np.random.default_rng([9, seed])
    speed = random.uniform(0.5, 4.0, (jobs, 2))
    speed[random.random((jobs, 2)) < 0.2] = 0.0
    speed[:, 0] = np.maximum(speed[:, 0], 0.5)
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"T4": 3, "A100": 2}),
        jobs=ap.Jobs.of(
            id=[f"j{i}" for i in range(jobs)], gang=random.integers(1, 3, jobs),
            work=random.uniform(1e3, 1e4, jobs), throughput_per_s=speed,
        ),
    )  # fmt: skip


def level_by_hand(
    asked: ap.TrainingRound, per_speed: Any, *, fixed: tuple[int, int] | None = None, more: Any = 0
) -> float:
    """Largest common ``per_speed * speed @ x`` by an LP written down without our models."""
    rate, gang = asked.jobs.throughput_per_s, asked.jobs.gang
    n, k = rate.shape
    cost = np.zeros(n * k + 1)
    cost[-1] = -1.0
    rows, sides = [], []
    for j in range(n):
        one, level = np.zeros(n * k + 1), np.zeros(n * k + 1)
        one[j * k : (j + 1) * k] = 1.0
        level[j * k : (j + 1) * k] = -per_speed[j] * rate[j]
        level[-1] = 1.0
        rows += [one, level]
        sides += [1.0, 0.0]
    for i in range(k):
        use = np.zeros(n * k + 1)
        use[i : n * k : k] = gang
        rows.append(use)
        sides.append(float((asked.capacity + more)[i]))
    limits = [(0.0, 0.0 if rate[j, i] == 0.0 else None) for j in range(n) for i in range(k)]
    if fixed is not None:
        limits[fixed[0] * k + fixed[1]] = (1.0, None)
    limits.append((0.0, None))
    found = linprog(cost, A_ub=np.array(rows), b_ub=sides, bounds=limits)
    return float(-found.fun) if found.status == 0 else np.nan


@pytest.mark.parametrize("seed", range(6))
def test_forcing_a_job_under_a_sharing_policy_costs_what_an_lp_says(seed):
    asked = shared_round(seed)
    rate, gang, capacity = asked.jobs.throughput_per_s, asked.jobs.gang, asked.capacity
    equal = rate @ (capacity / capacity.sum())
    scale = {"gavel-las": gang / equal, "gavel-makespan": 1.0 / asked.jobs.work}
    for policy, per_speed in scale.items():
        own = level_by_hand(asked, per_speed)
        turn = (lambda level: 1.0 / level) if policy == "gavel-makespan" else (lambda level: level)
        for row, job in enumerate(asked.jobs.id.tolist()):
            for kind, one in enumerate(ap.explain(asked, policy, job).options[:2]):
                wanted = level_by_hand(asked, per_speed, fixed=(row, kind))
                if rate[row, kind] == 0.0:
                    assert not one.possible
                elif not np.isnan(wanted) and wanted > 1e-9:
                    change = turn(wanted) - turn(own)
                    assert one.objective_change == pytest.approx(change, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("seed", range(6))
def test_one_more_gpu_under_a_sharing_policy_is_worth_what_an_lp_says(seed):
    asked = shared_round(seed)
    rate, gang, capacity = asked.jobs.throughput_per_s, asked.jobs.gang, asked.capacity
    equal = rate @ (capacity / capacity.sum())
    scale = {"gavel-las": gang / equal, "gavel-makespan": 1.0 / asked.jobs.work}
    for policy, per_speed in scale.items():
        turn = (lambda level: 1.0 / level) if policy == "gavel-makespan" else (lambda level: level)
        base = turn(level_by_hand(asked, per_speed))
        table = ap.prices(asked, policy).as_dict()
        assert [row["gpu_type"] for row in table["rows"]] == ["T4", "A100"]
        for kind, row in enumerate(table["rows"]):
            step = np.eye(2)[kind]
            more = turn(level_by_hand(asked, per_speed, more=step)) - base
            less = base - turn(level_by_hand(asked, per_speed, more=-step))
            assert row["one_more"] == pytest.approx(more, rel=1e-6, abs=1e-7)
            assert row["last_one"] == pytest.approx(less, rel=1e-6, abs=1e-7)
            low, high = sorted((more, less))
            slack = 1e-6 * max(1.0, abs(low), abs(high))
            assert low - slack <= row["relaxation"] <= high + slack


def test_the_sign_is_that_of_the_change():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"T4": 2}),
        jobs=ap.Jobs.of(id=["a", "b"], gang=[2, 2], work=[100.0] * 2,
                        throughput_per_s=[[1.0], [1.0]]),
    )  # fmt: skip
    (lengthens,) = ap.prices(asked, "gavel-makespan").as_dict()["rows"]
    assert lengthens["one_more"] == pytest.approx(200.0 * 2 / 3 - 200.0)  # 66.7 s less
    assert lengthens["last_one"] == pytest.approx(200.0 - 400.0)
    assert lengthens["relaxation"] == pytest.approx(-100.0)
    (gains,) = ap.prices(asked, "gavel-throughput").as_dict()["rows"]
    assert gains["one_more"] == pytest.approx(0.5)
    assert gains["last_one"] == pytest.approx(0.5)
    assert gains["relaxation"] == pytest.approx(0.5)


def test_a_deadline_that_binds_has_a_price():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"T4": 1}),
        jobs=ap.Jobs.of(
            id=["fast", "slow"], gang=[1, 1], work=[1e4, 1e3], throughput_per_s=[[4.0], [1.0]],
            slo=[False, True], deadline_offsets=[0, 0, 1], deadline_s=[2e3], deadline_value=[1.0],
        ),
    )  # fmt: skip
    gpu, deadline = ap.prices(asked, "gavel-cost").as_dict()["rows"]
    assert gpu["gpu_type"] == "T4"
    assert deadline["gpu_type"] == "speed for the deadline of job 'slow', per best speed"
    assert deadline["free"] == pytest.approx(0.5)
    for key in ("one_more", "last_one", "relaxation"):
        assert deadline[key] == pytest.approx(1.0 - 4.0)
    found = ap.explain(asked, "gavel-cost")
    assert "speed for the deadline of job 'slow' (price 3)" in found.jobs[1].why


def test_deadlines_that_clash_are_named_although_the_policy_answers():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"T4": 1}),
        jobs=ap.Jobs.of(
            id=["a", "b"], gang=[1, 1], work=[1e3, 1e3], throughput_per_s=[[1.0], [1.0]],
            slo=[True, True], deadline_offsets=[0, 1, 2], deadline_s=[1500.0] * 2,
            deadline_value=[1.0] * 2,
        ),
    )  # fmt: skip
    found = ap.explain(asked, "gavel-cost")
    assert found.status == "OPTIMAL"
    assert found.minimal
    assert sorted(found.conflict) == [
        "capacity of GPU type 'T4': at most 1",
        "speed for the deadline of job 'a': at least 0.666667",
        "speed for the deadline of job 'b': at least 0.666667",
    ]
    assert "answered by giving rules up" in found.notes[-1]
    rows = ap.prices(asked, "gavel-cost").as_dict()
    assert [row["one_more"] for row in rows["rows"]] == [None]
    assert any("no optimum of the model was proved (infeasible)" in note for note in rows["notes"])


def test_whole_gangs_have_differences_only():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"T4": 2}),
        jobs=ap.Jobs.of(id=["a", "b"], gang=[1, 2], work=[1e3] * 2, throughput_per_s=[[1.0]] * 2),
    )
    (row,) = ap.prices(asked, "astraea", parameters={"method": "milp"}).as_dict()["rows"]
    assert row["relaxation"] is None
    assert row["last_one"] is not None


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("srtf", "policy 'srtf' has no model with GPUs to price"),
        ("gavel-ftf", "no single model of policy 'gavel-ftf' says what a GPU is worth"),
        ("allox", "no single model of policy 'allox' says what a GPU is worth"),
        ("shockwave", "no single model of policy 'shockwave' says what a GPU is worth"),
    ],
)
def test_what_no_model_says_is_refused(rnd, policy, text):
    with pytest.raises(ap.InstanceError, match=text):
        ap.prices(rnd, policy)


def test_nobody_to_share_with_is_no_error(make):
    asked = make(gang=[3, 3])
    table = ap.prices(asked, "gavel-las").as_dict()
    assert table["rows"] == []
    assert "nobody could use the free GPUs" in table["notes"][0]


def test_no_time_leaves_blanks():
    table = ap.prices(shared_round(0), "gavel-makespan", time_limit_s=1e-9).as_dict()
    assert all(row["one_more"] is None for row in table["rows"])
    assert any("no optimum of the model was proved" in note for note in table["notes"])


@pytest.mark.parametrize("policy", ["gavel-las", "gavel-throughput", "oef-cooperative"])
def test_the_commands_say_it(command, round_file, policy):
    told = command("prices", round_file, "--policy", policy)
    assert told.code == 0
    assert "V100" in told.out
    told = command("explain", round_file, "--policy", policy, "--job", "a")
    assert told.code == 0
    assert "is meant to have" in told.out.replace("\n", " ")


@pytest.mark.parametrize("policy", ["oef-noncooperative", "oef-cooperative"])
@pytest.mark.parametrize("seed", range(4))
def test_one_more_gpu_to_users_is_worth_what_deciding_again_says(policy, seed):
    asked = shared_round(seed, jobs=6)
    base = ap.solve(asked, policy, gap=0.0).objective
    table = ap.prices(asked, policy).as_dict()
    for kind, row in enumerate(table["rows"][:2]):
        gpus = [3, 2]
        assert row["free"] == gpus[kind]
        gpus[kind] += 1
        more = replace(
            asked, cluster=ap.Cluster.uniform(dict(zip(("T4", "A100"), gpus, strict=True)))
        )
        wanted = ap.solve(more, policy, gap=0.0).objective - base
        assert row["one_more"] == pytest.approx(wanted, rel=1e-5, abs=1e-5)
        if row["relaxation"] is not None and row["last_one"] is not None:
            low, high = sorted((row["one_more"], row["last_one"]))
            assert low - 1e-5 <= row["relaxation"] <= high + 1e-5


def test_the_only_user_pays_at_the_gpus_and_not_at_a_bound():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"T4": 2}),
        jobs=ap.Jobs.of(id=["a"], gang=[2], work=[1e3], throughput_per_s=[[1.0]]),
    )
    rows = ap.prices(asked, "oef-noncooperative").as_dict()["rows"]
    assert rows[0]["last_one"] == pytest.approx(1.0)


def test_shockwave_is_not_explained_by_a_part_of_its_model(rnd):
    found = ap.explain(rnd, "shockwave", "a")
    assert found.options == ()
    assert "no single model says what else could be" in found.notes[-1]
    assert all(one.price is None for one in found.types)
