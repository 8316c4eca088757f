"""Deadlines kept and missed: worked by hand, at the boundaries, and against a plain loop."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from apportion.executor.training.records import Run
from apportion.instances.training import Tenants
from apportion.results import (
    HEADLINE,
    OF_DEADLINES,
    admission,
    deadline_outcomes,
    per_job_frame,
    slo_jobs,
    tenant_misses,
    training_metrics,
)

pytestmark = pytest.mark.quick

Build = Callable[..., Run]
SOFT = ((100.0, 10.0), (110.0, 8.0), (120.0, 5.0), (150.0, 2.0))
HARD = ((100.0, 10.0),)
LATER = math.nextafter(100.0, math.inf)


def run_of(
    build: Build,
    finish: list[float],
    due: list[tuple[tuple[float, float], ...]],
    *,
    slo: list[bool] | None = None,
    tenant: list[int] | None = None,
    arrival: list[float] | None = None,
) -> Run:
    """A run of one-GPU jobs that end when told, -1: never."""
    n = len(finish)
    flat = [pair for own in due for pair in own]
    jobs: dict[str, Any] = {
        "id": [f"j{row}" for row in range(n)],
        "gang": [1] * n,
        "work": [1.0] * n,
        "throughput_per_s": [[1.0]] * n,
        "arrival_s": arrival or [0.0] * n,
        "slo": slo or [bool(own) for own in due],
        "deadline_offsets": np.cumsum([0, *(len(own) for own in due)]),
        "deadline_s": [at for at, _ in flat],
        "deadline_value": [value for _, value in flat],
    }
    run = build(
        gpus={"GPU": 2}, jobs=jobs, finish_s=finish,
        first_start_s=[0.0 if at >= 0 else -1.0 for at in finish],
    )  # fmt: skip
    if tenant is None:
        return run
    whose = run.scenario.jobs.take(np.arange(n), {"tenant": np.array(tenant)})
    names = [f"t{row}" for row in range(max(tenant) + 1)]
    return replace(run, scenario=replace(run.scenario, jobs=whose, tenants=Tenants.named(*names)))


@pytest.mark.parametrize(
    ("finish", "due", "met", "earned", "miss", "late"),
    [
        (99.0, SOFT, 0, 10, Fraction(0), False),
        (100.0, SOFT, 0, 10, Fraction(0), False),  # ends at the very instant: kept
        (LATER, SOFT, 1, 8, Fraction(1, 5), True),
        (110.0, SOFT, 1, 8, Fraction(1, 5), True),
        (110.5, SOFT, 2, 5, Fraction(1, 2), True),
        (120.0, SOFT, 2, 5, Fraction(1, 2), True),
        (150.0, SOFT, 3, 2, Fraction(4, 5), True),
        (math.nextafter(150.0, math.inf), SOFT, -1, 0, Fraction(1), True),
        (-1.0, SOFT, -1, 0, Fraction(1), True),  # unfinished
        (100.0, HARD, 0, 10, Fraction(0), False),
        (LATER, HARD, -1, 0, Fraction(1), True),
        (-1.0, HARD, -1, 0, Fraction(1), True),
        (105.0, ((100.0, 3.0), (110.0, 1.0)), 1, 1, Fraction(2, 3), True),  # its own most is 3
        (105.0, ((100.0, 4.0), (110.0, 4.0)), 1, 4, Fraction(0), True),  # late, and nothing lost
        (105.0, ((100.0, 4.0), (110.0, 0.0)), 1, 0, Fraction(1), True),  # kept for nothing
        (99.0, ((100.0, 0.0),), 0, 0, Fraction(0), False),  # nothing to be earned, nothing lost
        (101.0, ((100.0, 0.0),), -1, 0, Fraction(1), True),
    ],
)
def test_one_job(
    build_run: Build, finish: float, due: Any, met: int, earned: float, miss: Fraction, late: bool
):
    run = run_of(build_run, [finish], [due])
    got = deadline_outcomes(run)
    assert got.slo.tolist() == [True]
    assert got.met.tolist() == [met]
    assert got.earned.tolist() == [earned]
    assert got.most.tolist() == [due[0][1]]
    assert got.miss[0] == pytest.approx(float(miss), abs=1e-15)
    assert got.late.tolist() == [late]
    metrics = training_metrics(run)
    assert metrics.deadline_miss_fraction == pytest.approx(float(miss), abs=1e-15)
    assert metrics.deadline_late_fraction == float(late)
    assert metrics.deadline_value == earned


def test_what_counts_as_an_slo_job(build_run: Build):
    """Flagged with deadlines; a flag alone, or deadlines alone, make a job best effort."""
    run = run_of(
        build_run, [500.0, 500.0, 500.0, 40.0], [HARD, HARD, (), ()],
        slo=[True, False, True, False],
    )  # fmt: skip
    assert slo_jobs(run.scenario.jobs).tolist() == [True, False, False, False]
    got = deadline_outcomes(run)
    assert got.met.tolist() == [-1] * 4
    assert got.earned.tolist() == [0] * 4
    assert got.most.tolist() == [10, 0, 0, 0]
    assert np.isnan(got.miss).tolist() == [False, True, True, True]
    assert got.late.tolist() == [True, False, False, False]


def mixed(build: Build) -> Run:
    """Seven jobs of three users; the last user has no SLO job.

    user 0: soft, done at 105 (8 of 10); hard, done at 100 (10 of 10); hard, never done
    user 1: soft, done at 150 (2 of 10); user 2: best effort, done after 40 and 60, one never
    """
    return run_of(
        build, [105.0, 100.0, -1.0, 150.0, 50.0, 80.0, -1.0],
        [SOFT, HARD, HARD, SOFT, (), (), ()],
        tenant=[0, 0, 0, 1, 2, 2, 2], arrival=[0.0, 10.0, 0.0, 0.0, 10.0, 20.0, 0.0],
    )  # fmt: skip


def test_a_mix_by_hand(build_run: Build):
    run = mixed(build_run)
    got = training_metrics(run)
    assert got.slo_jobs == 4
    assert got.deadline_miss_fraction == pytest.approx((0.2 + 0 + 1 + 0.8) / 4)
    assert got.deadline_late_fraction == 3 / 4
    assert got.deadline_value == 20
    assert got.deadline_value_fraction == 20 / 40
    assert got.slo_jct_mean_s == pytest.approx((105 + 90 + 150) / 3)
    assert got.best_effort_jct_mean_s == pytest.approx((40 + 60) / 2)
    users = tenant_misses(run)
    assert users.jobs.tolist() == [3, 1, 0]
    assert users.rate[:2] == pytest.approx([0.4, 0.8])
    assert np.isnan(users.rate[2])
    assert got.deadline_tenant_worst_fraction == pytest.approx(0.8)
    # (0.4 + 0.8)^2 / (2 (0.16 + 0.64)) = 1.44 / 1.6
    assert got.deadline_tenant_jain == pytest.approx(0.9)


def test_users_who_all_keep_their_deadlines_are_treated_alike(build_run: Build):
    run = run_of(build_run, [50.0, 60.0], [HARD, HARD], tenant=[0, 1])
    got = training_metrics(run)
    assert (got.deadline_tenant_worst_fraction, got.deadline_tenant_jain) == (0.0, 1.0)
    one = run_of(build_run, [50.0, 600.0], [HARD, HARD], tenant=[0, 1])
    assert training_metrics(one).deadline_tenant_jain == pytest.approx(0.5)


def test_without_deadlines_there_is_nothing_to_miss(three_jobs: Run, no_jobs: Run):
    for run in (three_jobs, no_jobs):
        got = training_metrics(run)
        assert (got.slo_jobs, got.deadline_value) == (0, 0.0)
        for name in ("miss_fraction", "late_fraction", "value_fraction", "tenant_worst_fraction"):
            assert getattr(got, f"deadline_{name}") is None, name
        assert got.deadline_tenant_jain is got.slo_jct_mean_s is None
    assert training_metrics(three_jobs).best_effort_jct_mean_s == pytest.approx(140)
    frame = per_job_frame(three_jobs)
    assert frame[["deadline_met", "value_earned"]].isna().all(axis=None)


def test_nothing_to_earn_has_no_part_of_it(build_run: Build):
    got = training_metrics(run_of(build_run, [50.0], [((100.0, 0.0),)]))
    assert got.deadline_value_fraction is None
    assert got.deadline_miss_fraction == 0


def test_columns_of_the_file_of_jobs(build_run: Build):
    frame = per_job_frame(mixed(build_run))
    text = frame[["id", "deadline_met", "value_earned"]].to_csv(index=False)
    assert text.split() == [
        "id,deadline_met,value_earned", "j0,1,8.0", "j1,0,10.0", "j2,-1,0.0", "j3,3,2.0",
        "j4,,", "j5,,", "j6,,",
    ]  # fmt: skip
    again = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    assert again["value_earned"].sum() == 20


def test_the_headline_tells_misses_and_what_becomes_of_the_others():
    found = [name for name in HEADLINE if "deadline" in name or "best_effort" in name]
    assert found == ["deadline_miss_fraction", "best_effort_jct_mean_s"]
    assert set(OF_DEADLINES) == set(found)


# ------------------------------------------------------------------ a plain loop on random runs


def by_loop(run: Run) -> list[tuple[int, Fraction, Fraction] | None]:
    """Deadline met, value earned and miss of each job, in exact fractions."""
    jobs, out = run.scenario.jobs, list[tuple[int, Fraction, Fraction] | None]()
    for row in range(len(jobs)):
        start, end = int(jobs.deadline_offsets[row]), int(jobs.deadline_offsets[row + 1])
        if not jobs.slo[row] or start == end:
            out.append(None)
            continue
        finish = float(run.jobs.finish_s[row])
        found = (-1, Fraction(0), Fraction(1))
        for k in range(end - start):
            if finish != -1 and finish <= float(jobs.deadline_s[start + k]):
                value = Fraction(float(jobs.deadline_value[start + k]))
                most = Fraction(float(jobs.deadline_value[start]))
                found = (k, value, 1 - value / most if most else Fraction(0))
                break
        out.append(found)
    return out


def random_run(build: Build, rng: np.random.Generator) -> Run:
    """Finishes, deadlines and arrivals on a coarse grid, so that many coincide."""
    n = int(rng.integers(1, 12))
    arrival = rng.integers(0, 4, n) * 10.0
    due: list[tuple[tuple[float, float], ...]] = []
    for row in range(n):
        k = int(rng.integers(0, 5))
        at = np.sort(rng.choice(np.arange(0, 12), k, replace=False)) * 10.0 + arrival[row]
        value = -np.sort(-rng.integers(0, 11, k).astype(float))
        due.append(tuple(zip(at.tolist(), value.tolist(), strict=True)))
    finish = np.where(rng.random(n) < 0.8, arrival + rng.integers(1, 14, n) * 10.0, -1.0)
    return run_of(
        build, finish.tolist(), due, slo=(rng.random(n) < 0.7).tolist(),
        tenant=rng.integers(0, 4, n).tolist(), arrival=arrival.tolist(),
    )  # fmt: skip


def check(run: Run) -> None:
    told, got = by_loop(run), deadline_outcomes(run)
    jobs = run.scenario.jobs
    counted = [row for row, one in enumerate(told) if one is not None]
    assert np.flatnonzero(got.slo).tolist() == counted
    known = [one for one in told if one is not None]
    assert got.met[counted].tolist() == [met for met, _, _ in known]
    assert got.earned[counted].tolist() == [float(value) for _, value, _ in known]
    assert got.miss[counted] == pytest.approx([float(miss) for _, _, miss in known], abs=1e-15)
    assert got.late[counted].tolist() == [met != 0 for met, _, _ in known]
    metrics = training_metrics(run)
    finish, arrival = run.jobs.finish_s, jobs.arrival_s
    if known:
        mean = sum((miss for _, _, miss in known), Fraction(0)) / len(known)
        assert metrics.deadline_miss_fraction == pytest.approx(float(mean), abs=1e-12)
        assert metrics.deadline_value == float(sum(value for _, value, _ in known))
        rates = list[Fraction]()
        for user in range(run.scenario.tenants.id.size):
            own = [one[2] for row, one in enumerate(told) if one and jobs.tenant[row] == user]
            rates += [sum(own, Fraction(0)) / len(own)] if own else []
        assert metrics.deadline_tenant_worst_fraction == pytest.approx(float(max(rates)))
        squares = len(rates) * sum(rate**2 for rate in rates)
        even = sum(rates) ** 2 / squares if squares else Fraction(1)
        assert metrics.deadline_tenant_jain == pytest.approx(float(even))
    else:
        assert metrics.deadline_miss_fraction is None
    for name, mine in (("slo", True), ("best_effort", False)):
        ended = [
            Fraction(float(finish[row])) - Fraction(float(arrival[row]))
            for row in range(len(jobs)) if (told[row] is not None) == mine and finish[row] != -1
        ]  # fmt: skip
        value = getattr(metrics, f"{name}_jct_mean_s")
        assert (value is None) == (not ended)
        assert not ended or value == pytest.approx(float(sum(ended) / len(ended)))


@pytest.mark.parametrize("seed", range(20))
def test_against_a_loop(build_run: Build, seed: int):
    check(random_run(build_run, np.random.default_rng(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_against_a_loop_300_times(build_run: Build, block: int):
    for seed in range(100 + 50 * block, 150 + 50 * block):
        check(random_run(build_run, np.random.default_rng(seed)))


@pytest.mark.parametrize("seed", range(5))
def test_who_ends_later_never_misses_less(build_run: Build, seed: int):
    rng = np.random.default_rng(1000 + seed)
    run = random_run(build_run, rng)
    finish = run.jobs.finish_s
    later = np.where(finish >= 0, finish + rng.integers(0, 3, finish.size) * 10.0, -1.0)
    other = deadline_outcomes(replace(run, jobs=replace(run.jobs, finish_s=later)))
    slo = other.slo
    assert (other.miss[slo] >= deadline_outcomes(run).miss[slo]).all()


# ------------------------------------------------------------------ what was promised


def test_admission_by_hand(build_run: Build):
    """j0 done at its second deadline, j1 in time, j2 never, j3 at its last; the rest best effort."""
    run = mixed(build_run)
    yes = np.array([True, True, True, False, False, False, False])
    got = admission(run, yes)
    assert (got.accepted, got.rejected, got.broken) == (3, 1, 1)  # j2 alone kept no deadline
    assert got.precision == pytest.approx(2 / 3)
    assert got.would_have_fit is got.rejected_in_vain is None
    first = admission(run, yes, promised=np.zeros(7, dtype=int), would_fit=~yes)
    assert (first.broken, first.precision) == (2, pytest.approx(1 / 3))
    assert (first.would_have_fit, first.rejected_in_vain) == (1, 1.0)
    second = admission(run, yes, promised=np.array([1, 0, 0, 0, 0, 0, 0]))
    assert second.broken == 1
    none = admission(run, np.zeros(7, dtype=bool), rejected=np.zeros(7, dtype=bool))
    assert (none.accepted, none.rejected, none.precision, none.rejected_in_vain) == (
        0,
        0,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"accepted": [0]}, "job 'j0' is accepted and rejected"),
        ({"accepted": [4]}, "job 'j4' is accepted and has no deadline that counts"),
        ({"accepted": [1], "promised": [0, 1, 0, 0, 0, 0, 0]}, "job 'j1' is promised a deadline"),
        ({"accepted": [1], "promised": [0, -1, 0, 0, 0, 0, 0]}, "job 'j1' is promised a deadline"),
        ({"accepted": [1], "promised": [0]}, r"promised has shape \(1,\), not \(7,\)"),
    ],
)
def test_admissions_that_cannot_be(build_run: Build, given: dict[str, Any], told: str):
    yes, no = np.zeros(7, dtype=bool), np.zeros(7, dtype=bool)
    yes[given["accepted"]] = True
    no[0] = True
    promised = np.array(given["promised"]) if "promised" in given else None
    with pytest.raises(ValueError, match=told):
        admission(mixed(build_run), yes, rejected=no, promised=promised)
