"""Why rounds are impossible, why jobs got what they got, and what one more GPU is worth."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import apportion as ap
from apportion.explaining import Explanation, _impossible
from apportion.solver import Budget
from apportion.solving import solver_of
from apportion.what_if import Questions

pytestmark = pytest.mark.quick


@pytest.fixture
def tight() -> ap.TrainingRound:
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"slow": 1, "fast": 2}),
        jobs=ap.Jobs.of(id=["a", "b"], gang=[2, 2], work=[10.0, 12.0],
                        throughput_per_s=[[1.0, 2.0], [1.0, 3.0]]),
    )  # fmt: skip


@pytest.fixture
def tight_file(tight, tmp_path):
    ap.write_round(tight, tmp_path / "tight.json")
    return tmp_path / "tight.json"


def random_round(seed: int, jobs: int = 5) -> ap.TrainingRound:
    random = np.random.default_rng(seed)
    speed = random.uniform(0.5, 4.0, (jobs, 2)) * (random.random((jobs, 2)) < 0.8)
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"T4": 3, "A100": 3}),
        jobs=ap.Jobs.of(
            id=[f"j{i}" for i in range(jobs)], gang=random.integers(1, 4, jobs),
            work=random.uniform(1e3, 1e4, jobs), throughput_per_s=speed,
        ),
    )  # fmt: skip


def brute(program: Any, capacity: Any, fixed: dict[int, int]) -> tuple[int, float] | None:
    """Most GPUs, then least cost, over all plans with some jobs fixed (-1 = waits)."""
    gang, cost = program.gang, program.cost
    best = None
    for kinds in product(range(-1, cost.shape[1]), repeat=gang.size):
        if any(kinds[row] != kind for row, kind in fixed.items()):
            continue
        used = np.zeros(cost.shape[1])
        value = 0.0
        for row, kind in enumerate(kinds):
            if kind >= 0:
                used[kind] += gang[row]
                value += cost[row, kind]
        if (used <= capacity).all() and np.isfinite(value):
            found = (-int(used.sum()), value)
            best = found if best is None or found < best else best
    return None if best is None else (-best[0], best[1])


# ------------------------------------------------------------------------------ impossible rounds


def test_the_conflict_of_a_hard_rule_is_minimal_and_in_words(tight):
    found = ap.explain(tight, "fft", parameters={"work_conservation": "hard"})
    assert found.status == "INFEASIBLE"
    assert found.minimal
    assert set(found.conflict) == {
        "GPU type fast: 2 GPUs are free",
        "work conservation (F-C4): at least 3 GPUs are placed",
    }
    assert found.repair == ("work conservation (F-C4): at least 3 GPUs are placed: move 3 to 2",)


def test_the_conflict_of_side_rules_names_them(rnd):
    def clash(problem: Any, x: Any) -> Any:
        import pulp

        both = pulp.lpSum([x["a"].values(), x["b"].values()])
        problem += both <= 1, "not_both"
        problem += both >= 2, "both"
        return problem

    found = ap.explain(rnd, "fft", side_rules=clash)
    assert found.status == "INFEASIBLE"
    assert found.minimal
    assert set(found.conflict) == {"side rule not_both <= 1", "side rule both >= 2"}
    assert len(found.repair) == 1


def test_a_search_cut_short_says_so(rnd):
    def clash(problem: Any, x: Any) -> Any:
        problem += x["a"]["V100"] + x["a"]["A100"] >= 2, "twice"
        return problem

    whole = ap.explain(rnd, "fft", side_rules=clash)
    assert whole.conflict
    ask = Questions(ap.FFT(), rnd, None, solver_of(0.0, "auto", 0), Budget.of(None), clash)
    ask.budget = Budget.of(1e-9)
    cut = _impossible(Explanation("fft", "INFEASIBLE", None), ask)
    assert cut.conflict == ()
    assert not cut.minimal
    assert "which rules are in conflict was not found in time" in cut.notes
    assert "no repair: it was not found in time" in cut.notes


def test_no_conflict_where_there_is_a_plan(rnd):
    found = ap.explain(rnd, "fft")
    assert found.conflict == ()
    assert found.repair == ()
    assert [one.job for one in found.jobs] == ["a", "b"]


# -------------------------------------------------------------------------------- possible rounds


@pytest.mark.parametrize("seed", range(6))
def test_forcing_a_job_costs_what_brute_force_says(seed):
    asked = random_round(seed)
    program = ap.FFT().compile(asked, None, _forever())
    base = brute(program, asked.capacity, {})
    assert base is not None
    for row, job in enumerate(asked.jobs.id.tolist()):
        for one in ap.explain(asked, "fft", job).options:
            types = asked.cluster.types.tolist()
            kind = -1 if one.gpu_type is None else types.index(one.gpu_type)
            wanted = brute(program, asked.capacity, {row: kind})
            if not one.possible:
                assert wanted is None
                continue
            assert wanted is not None
            assert one.gpus_change == wanted[0] - base[0]
            assert one.objective_change == pytest.approx(wanted[1] - base[1], abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_one_more_gpu_is_worth_what_brute_force_says(seed):
    asked = random_round(seed)
    program = ap.FFT().compile(asked, None, _forever())
    base = brute(program, asked.capacity, {})
    assert base is not None
    for kind, row in enumerate(ap.prices(asked, "fft").as_dict()["rows"]):
        step = np.eye(2)[kind]
        more = brute(program, asked.capacity + step, {})
        less = brute(program, asked.capacity - step, {})
        assert more is not None
        assert less is not None
        assert row["one_more_gpus"] == more[0] - base[0]
        assert row["one_more"] == pytest.approx(more[1] - base[1], abs=1e-6)
        assert row["last_one_gpus"] == base[0] - less[0]
        assert row["last_one"] == pytest.approx(base[1] - less[1], abs=1e-6)


def _forever() -> Budget:
    return Budget.of(None)


def test_a_helpful_gpu_has_a_negative_price():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"T4": 1, "A100": 1}),
        jobs=ap.Jobs.of(id=["a", "b"], gang=[1, 1], work=[100.0, 100.0],
                        throughput_per_s=[[0.1, 1.0], [0.1, 1.0]]),
    )  # fmt: skip
    rows = ap.prices(asked, "fft").as_dict()["rows"]
    assert rows[0]["one_more"] == pytest.approx(0.0)
    assert rows[1]["one_more"] < 0


def test_a_small_round_tells_what_forcing_takes_without_being_asked(tight):
    waits, runs = ap.explain(tight, "fft").jobs
    assert waits.got is None
    assert "forced onto fast" in waits.why
    assert "b would wait" in waits.why
    assert runs.got == "fast"


def test_hopeless_jobs_and_leases_have_their_reason(make):
    asked = make(gang=[3, 1], id=["big", "b"])
    big = ap.explain(asked, "fft").jobs[0]
    assert big.got is None
    assert big.why.startswith("can never start: its gang of 3 GPUs")
    option = ap.explain(asked, "fft", "big").options[0]
    assert not option.possible


def test_with_side_rules_forcing_obeys_them(rnd):
    def never(problem: Any, x: Any) -> Any:
        import pulp

        problem += pulp.lpSum([x["a"].values(), x["b"].values()]) <= 1, "not_both"
        return problem

    got = {one.job: one.got for one in ap.explain(rnd, "fft", side_rules=never).jobs}
    (waits,) = [job for job, kind in got.items() if kind is None]
    (runs,) = [job for job, kind in got.items() if kind is not None]
    for one in ap.explain(rnd, "fft", waits, side_rules=never).options:
        if one.gpu_type is not None:
            assert one.stopped == (runs,)


def test_a_policy_without_a_model_says_so(rnd):
    found = ap.explain(rnd, "fifo", "a")
    assert found.options == ()
    assert "no model" in found.notes[-1]
    with pytest.raises(ap.InstanceError, match="'fifo' has no model"):
        ap.prices(rnd, "fifo")


# ------------------------------------------------------------------------------------ the command


def test_the_commands(command, tight_file, round_file):
    told = command("explain", tight_file, "--param", "work_conservation=hard")
    assert told.code == 0
    assert "Impossible together:" in told.out
    assert "GPU type fast: 2 GPUs are free" in told.out
    found = command("explain", tight_file, "--param", "work_conservation=hard", "--json").json
    assert found["minimal"] is True
    assert len(found["conflict"]) == 2
    told = command("explain", round_file, "--job", "a")
    assert told.code == 0
    assert "Job a: what else it could get" in told.out
    rows = command("prices", round_file, "--json").json["rows"]
    assert [row["gpu_type"] for row in rows] == ["V100", "A100"]
    assert command("prices", round_file).code == 0


def test_errors_are_one_line(command, round_file, tmp_path):
    assert "job 'c': is not in the round" in command(
        "explain", round_file, "--job", "c"
    ).refused()  # fmt: skip
    assert "did you mean" in command("explain", round_file, "--policy", "ffs").refused()
    assert "no model" in command("prices", round_file, "--policy", "fifo").refused()
    assert "none.json" in command("explain", tmp_path / "none.json").refused()
    assert "greater than zero" in command("prices", round_file, "--time-limit", "-1").refused()
