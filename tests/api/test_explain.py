"""Why rounds are impossible, why jobs got what they got, and what one more GPU is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest

import apportion as ap
from apportion.formulations.training import broken_promises, joined, pinned
from apportion.instances import Decision
from apportion.instances.training import Commitments, Placement
from apportion.questions.conflicts import impossible
from apportion.questions.promise_conflicts import clash
from apportion.questions.what_if import Questions
from apportion.solver import Axis, Budget, Model, ModelBuilder
from apportion.solving import solver_of

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
    assert found.repair == ("work conservation (F-C4): at least 3 GPUs are placed: 3 -> 2",)


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
    cut = impossible(ask)
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


# -------------------------------------------------------------------------- broken reservations


def reserved(capacity: int = 3, **columns: Any) -> ap.TrainingRound:
    """Two jobs that were promised two V100 each, and a third one that was promised nothing."""
    jobs: dict[str, Any] = {
        "id": ["j1", "j2", "j3"], "gang": [2, 2, 1], "work": [1e4] * 3,
        "throughput_per_s": [[1.0, 3.0], [1.0, 1.5], [1.0, 1.2]],
    }  # fmt: skip
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": capacity, "A100": 2}),
        jobs=ap.Jobs.of(**{**jobs, **columns}), now_s=10.0,
        commitments=Commitments.of([0, 1], [0.0, 5.0], [900.0, 600.0], [2, 2], [0, 0]),
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["fft", "gavel-las", "oef-noncooperative", "fifo"])
def test_reservations_that_clash_are_named_and_minimal(policy):
    found = ap.explain(reserved(), policy)
    assert found.status == ap.solve(reserved(), policy).status == "INFEASIBLE"
    assert found.minimal
    assert set(found.conflict) == {
        "reservation of job 'j1' from 0 s for 2 GPUs of type V100 until 900 s",
        "reservation of job 'j2' from 5 s for 2 GPUs of type V100 until 600 s",
        "capacity of GPU type 'V100': 3 in service",
    }
    assert found.repair == ("capacity of GPU type 'V100': 3 -> 4",)
    assert "was given up" in found.notes[0]


def test_dropping_any_one_rule_of_the_clash_makes_a_plan():
    for row in (0, 1):
        alone = Commitments.of([row], [0.0], [900.0], [2], [0])
        assert ap.explain(replace(reserved(), commitments=alone)).conflict == ()
    assert ap.explain(reserved(capacity=4)).conflict == ()
    assert ap.explain(reserved(capacity=4)).status == "OPTIMAL"


def test_a_lease_that_goes_on_stands_against_a_reservation():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"A": 2}),
        jobs=ap.Jobs.of(
            id=["a", "b", "c"], gang=[1, 1, 1], work=[1e4] * 3, throughput_per_s=[[1.0]] * 3,
            running=[True, True, False], previous_type=[0, 0, -1], held_gpus=[1, 1, 0],
            preemptible=[False, False, True],
        ),
        now_s=300.0, commitments=Commitments.of([2], [200.0], [900.0], [1]),
        placement=Placement.of([0, 1], [0, 0], [1, 1]),
    )  # fmt: skip
    found = ap.explain(asked)
    assert found.minimal
    assert set(found.conflict) == {
        "reservation of job 'c' from 200 s for 1 GPUs of any one type until 900 s",
        "job 'a' may not be stopped: it goes on with 1 GPUs of type A",
        "job 'b' may not be stopped: it goes on with 1 GPUs of type A",
        "capacity of GPU type 'A': 2 in service",
    }
    assert found.repair == ("capacity of GPU type 'A': 2 -> 3",)


def test_where_a_job_cannot_run_is_part_of_the_conflict():
    asked = replace(
        reserved(capacity=1, throughput_per_s=[[1.0, 0.0], [1.0, 1.5], [1.0, 1.2]]),
        commitments=Commitments.of([0], [0.0], [900.0], [2]),
    )
    found = ap.explain(asked)
    assert found.minimal
    assert set(found.conflict) == {
        "reservation of job 'j1' from 0 s for 2 GPUs of any one type until 900 s",
        "job 'j1' cannot run on type 'A100'", "capacity of GPU type 'V100': 1 in service",
    }  # fmt: skip
    assert found.repair == ("capacity of GPU type 'V100': 1 -> 2",)


def test_what_no_gpu_can_mend_has_to_be_given_up():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": 2, "A100": 2}),
        jobs=ap.Jobs.of(
            id=["a"], gang=[1], work=[1e4], throughput_per_s=[[1.0, 2.0]], running=[True],
            previous_type=[1], held_gpus=[1], preemptible=[False],
        ),
        now_s=300.0, commitments=Commitments.of([0], [200.0], [900.0], [1], [0]),
        placement=Placement.of([0], [1], [1]),
    )  # fmt: skip
    found = ap.explain(asked)
    words = "reservation of job 'a' from 200 s for 1 GPUs of type V100 until 900 s"
    assert found.minimal
    assert set(found.conflict) == {
        words, "job 'a' may not be stopped: it goes on with 1 GPUs of type A100",
        "job 'a' runs on one GPU type at a time",
    }  # fmt: skip
    assert found.repair == (f"give up the {words}",)


@pytest.mark.parametrize("seed", range(20))
def test_the_model_of_reservations_says_what_the_round_says(seed):
    random = np.random.default_rng([5, seed])
    n, k = int(random.integers(2, 7)), int(random.integers(1, 4))
    rates = random.choice([0.0, 0.5, 1.0, 2.0], (n, k))
    rates[:, 0] = 1.0
    gang = random.integers(1, 4, n)
    rows = random.permutation(n)[: int(random.integers(1, n + 1))]
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({f"t{i}": int(random.integers(2, 6)) for i in range(k)}),
        jobs=ap.Jobs.of(
            id=[f"j{i}" for i in range(n)], gang=gang, work=np.full(n, 1e3),
            throughput_per_s=rates, preemptible=random.random(n) < 0.7,
        ),
        now_s=100.0,
        commitments=Commitments.of(
            rows, random.choice([0.0, 200.0], rows.size), np.full(rows.size, 900.0), gang[rows],
            [int(random.choice([-1, *np.flatnonzero(rates[row] > 0)])) for row in rows],
        ),
    )  # fmt: skip
    found = clash(asked, solver_of(0.0, "auto", 0), Budget.of(None))
    assert bool(found.conflict) == bool(broken_promises(asked).size)
    assert found.minimal == bool(found.conflict)


# ----------------------------------------------------------------------- policies with other models


@dataclass(frozen=True)
class Fixed:
    """A program with a model that has no plan, and no way to take another model."""

    round_: ap.TrainingRound
    status: str = "INFEASIBLE"

    @property
    def model(self) -> Model:
        round_ = self.round_
        ids, types = round_.jobs.id.tolist(), round_.cluster.types.tolist()
        row, kind = np.nonzero(round_.eligible)
        builder = ModelBuilder("fixed")
        x = builder.columns("x", row.size, upper=1.0, integer=True, axes=(
            Axis("job", ids, codes=row), Axis("type", types, codes=kind)))  # fmt: skip
        builder.rows("one_type", len(ids), row=row, column=x, value=1.0, upper=1.0,
                     axes=(Axis("job", ids),))  # fmt: skip
        builder.rows("capacity", len(types), row=kind, column=x, value=round_.jobs.gang[row],
                     upper=round_.capacity, axes=(Axis("type", types),))  # fmt: skip
        builder.rows("must_run", len(ids), row=row, column=x, value=1.0, lower=1.0,
                     axes=(Axis("job", ids),))  # fmt: skip
        builder.objective("cost", column=x, value=1.0)
        return builder.build()

    def incumbent(self) -> Decision:
        nobody = np.full(len(self.round_.jobs), -1, dtype=np.int64)
        return Decision(joined(pinned(self.round_), nobody, self.round_.jobs.gang), self.status)

    def solve(self, solver: Any, budget: Any) -> Decision:
        return self.incumbent()


@dataclass(frozen=True)
class MustRun:
    name: ClassVar[str] = "must-run"
    source: ClassVar[str] = "a test"
    subscribes: ClassVar[frozenset[Any]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset()
    status: str = "INFEASIBLE"

    def compile(self, round_: Any, memory: Any, budget: Any) -> Fixed:
        return Fixed(round_, self.status)

    def remember(self, memory: Any, round_: Any, decision: Any, outcome: Any) -> None:
        return None


@pytest.mark.parametrize("status", ["INFEASIBLE", "FEASIBLE"])
def test_a_model_that_takes_no_side_rules_has_its_conflict_in_words(status):
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": 3}),
        jobs=ap.Jobs.of(id=["a", "b"], gang=[2, 2], work=[1.0] * 2, throughput_per_s=[[1.0]] * 2),
    )
    found = ap.explain(asked, MustRun(status))
    assert found.status == status
    assert found.minimal
    assert set(found.conflict) == {
        "capacity of GPU type 'V100': at most 3", "must run of job 'a': at least 1",
        "must run of job 'b': at least 1",
    }  # fmt: skip
    assert found.repair in (
        ("capacity of GPU type 'V100': 3 -> 4",),
        ("must run of job 'a': 1 -> 0",),
        ("must run of job 'b': 1 -> 0",),
    )


def test_a_model_with_a_plan_blames_no_rule():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": 4}),
        jobs=ap.Jobs.of(id=["a", "b"], gang=[2, 2], work=[1.0] * 2, throughput_per_s=[[1.0]] * 2),
    )
    found = ap.explain(asked, MustRun())
    assert found.conflict == found.repair == ()
    assert "what is impossible is none of its rules" in found.notes[0]


def test_what_a_job_is_meant_to_have_and_why_it_waits():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": 2, "A100": 2}),
        jobs=ap.Jobs.of(id=["a", "b", "c"], gang=[2, 2, 1], work=[1e4] * 3,
                        throughput_per_s=[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
    )  # fmt: skip
    found = ap.explain(asked, "gavel-las")
    first, second, third = found.jobs
    assert first.parts == second.parts == pytest.approx({"V100": 0.5})
    assert first.got == "V100"
    assert second.got is None
    assert "waits: on V100 it is behind a (0 of 2 GPUs are left, its gang needs 2)" in second.why
    assert "forced all the time onto V100: objective" in second.why
    assert "share of job 'a' (price" in first.why
    assert third.got == "A100"
    assert "what binds" not in third.why
    prices = {one.gpu_type: one.price for one in found.types}
    assert prices["V100"] > 0.0
    assert prices["A100"] == pytest.approx(0.0, abs=1e-9)


def test_a_gang_that_does_not_fit_is_not_said_to_be_behind():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": 3}),
        jobs=ap.Jobs.of(id=["a", "b"], gang=[2, 2], work=[1e4] * 2, throughput_per_s=[[1.0]] * 2,
                        running=[True, False], previous_type=[0, -1], held_gpus=[2, 0],
                        preemptible=[False, True]),
        placement=Placement.of([0], [0], [2]),
    )  # fmt: skip
    waits = ap.explain(asked, "gavel-las").jobs[1]
    assert waits.why.endswith("no type it runs on has 2 GPUs free beside the leases that go on")


@pytest.mark.parametrize(
    ("policy", "note"),
    [
        ("gavel-ftf", "no single model says what else could be"),
        ("allox", "no single model says what else could be"),
        ("oef-noncooperative", "the model shares among users"),
    ],
)
def test_what_no_single_model_says_is_not_said(rnd, policy, note):
    found = ap.explain(rnd, policy, "a")
    assert found.options == ()
    assert note in found.notes[-1]
    assert all("no model" not in one.why for one in found.jobs)


def test_binding_rows_of_a_user(rnd):
    found = ap.explain(rnd, "oef-noncooperative")
    assert all("its user" in one.why for one in found.jobs)
    assert any("share of user" in one.why for one in found.jobs)


def test_side_rules_of_a_sharing_policy_are_named(rnd):
    def clashing(problem: Any, x: Any) -> Any:
        problem += x["a"]["V100"] >= 2, "twice"
        return problem

    found = ap.explain(rnd, "gavel-las", side_rules=clashing)
    assert found.status == "INFEASIBLE"
    assert found.minimal
    twice, *others = sorted(found.conflict)
    assert twice == "side rule twice >= 2"
    assert others in (
        ["time of job 'a': at most 1"],
        ["use of job 'a' on GPU type 'V100': at most 1"],
    )
    assert found.repair == ("side rule twice: 2 -> 1",)
