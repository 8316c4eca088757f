"""An answer proves itself: what holds, what is told as a word, and every kind of tampering by name."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import apportion as ap
from apportion.certifying import most_by_counting
from apportion.solver import Choice

pytestmark = pytest.mark.quick


def larger(seed: int = 0, jobs: int = 30) -> ap.TrainingRound:
    random = np.random.default_rng(seed)
    speed = random.uniform(0.5, 4.0, (jobs, 3)) * (random.random((jobs, 3)) < 0.8)
    speed[:, 0] += 0.1
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"T4": 16, "V100": 8, "A100": 8}, gpus_per_node=8),
        jobs=ap.Jobs.of(
            id=[f"j{i}" for i in range(jobs)], gang=random.choice([1, 2, 4], jobs),
            work=random.uniform(1e3, 1e5, jobs), throughput_per_s=speed,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_an_answer_holds_and_says_what_is_proved(seed):
    asked = larger(seed)
    answer = ap.solve(asked, "fft")
    told = answer.certificate
    assert told is not None
    assert told["bound"] <= answer.bound + 1e-9 * abs(answer.bound)
    found = ap.verify(answer, asked)
    assert found.holds, found.faults
    assert any(line.startswith("bound: the prices alone prove") for line in found.proved)


def test_what_lies_beyond_the_prices_is_a_word():
    # at these prices of one capacity fractions reach further than whole gangs
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": 3}),
        jobs=ap.Jobs.of(id=["a", "b", "c"], gang=[2, 2, 2], work=[100.0, 200.0, 400.0],
                        throughput_per_s=[[1.0], [1.0], [1.0]]),
    )  # fmt: skip
    answer = ap.solve(asked, "fft", parameters={"work_conservation": "none", "wait_weight": 0.0})
    assert ap.verify(answer, asked).holds
    answer = ap.solve(asked, "fft", parameters={"method": "milp"})
    found = ap.verify(answer, asked)
    assert found.holds
    assert any("is the word of the search" in line for line in found.words)


@pytest.mark.parametrize("mode", ["lexicographic", "hard", "reward", "none"])
@pytest.mark.parametrize("method", ["auto", "milp", "lp_repair"])
def test_every_mode_and_method_holds(rnd, mode, method):
    answer = ap.solve(rnd, "fft", parameters={"work_conservation": mode, "method": method})
    assert ap.verify(answer, rnd).holds


def test_the_greedy_plan_holds_and_claims_no_bound(rnd):
    found = ap.verify(ap.solve(larger(), "fft", time_limit_s=1e-6), larger())
    assert found.holds
    assert "status: FEASIBLE, no bound is claimed" in found.words


def test_an_impossible_rule_is_proved_by_counting():
    tight = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"slow": 1, "fast": 2}),
        jobs=ap.Jobs.of(id=["a", "b"], gang=[2, 2], work=[10.0, 12.0],
                        throughput_per_s=[[1.0, 2.0], [1.0, 3.0]]),
    )  # fmt: skip
    found = ap.verify(ap.solve(tight, "fft", parameters={"work_conservation": "hard"}), tight)
    assert found.holds
    assert (
        "status: 3 GPUs have to be placed, counting gangs shows that at most 2 can be"
        in found.proved
    )


def test_a_policy_without_a_model_is_checked_by_the_rules(rnd):
    answer = ap.solve(rnd, "fifo")
    assert answer.certificate is None
    assert ap.verify(answer, rnd).holds


def test_memory_and_leases_are_taken_into_account():
    asked = larger()
    first = ap.solve(asked, "fft")
    following = first.next_round()
    second = ap.solve(following, "fft", previous=first)
    found = ap.verify(second, following)
    assert found.holds, found.faults
    assert any(line.startswith("memory:") for line in found.words)


@pytest.mark.parametrize("mode", ["lexicographic", "none"])
def test_gangs_without_room_on_nodes_are_told_and_counted(mode):
    cluster = replace(
        ap.Cluster.uniform({"V100": 8}, gpus_per_node=4), node_cpus=np.array([4.0, 4.0])
    )
    asked = ap.TrainingRound(
        cluster=cluster,
        jobs=ap.Jobs.of(id=["greedy", "modest"], gang=[1, 1], work=[60.0, 60.0],
                        throughput_per_s=[[1.0], [1.0]], cpus=[100.0, 1.0],
                        arrival_s=[-9e3, -9e3]),
        now_s=0.0,
    )  # fmt: skip
    parameters = {"work_conservation": mode, "wait_weight": -1.0}
    answer = ap.solve(asked, "fft", parameters=parameters)
    assert answer.certificate is not None
    assert answer.certificate["left_out"] == [{"job": "greedy", "gpu_type": "V100"}]
    found = ap.verify(answer, asked)
    assert found.holds, found.faults
    assert any(line.startswith("nodes: 1 gangs") for line in found.words)


def test_an_empty_round_holds():
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": 2}),
        jobs=ap.Jobs.of(id=[], gang=[], work=[], throughput_per_s=np.zeros((0, 1))),
    )
    answer = ap.solve(asked, "fft", side_rules=lambda problem, x: problem)
    assert answer.status == "OPTIMAL"
    assert ap.verify(answer, asked).holds
    assert ap.verify(ap.solve(asked, "fft"), asked).holds
    assert ap.explain(asked, "fft").jobs == ()
    assert ap.prices(asked, "fft").as_dict()["rows"][0]["one_more"] == 0.0


def test_counting_is_never_below_the_truth():
    random = np.random.default_rng(0)
    for _ in range(30):
        n, k = 4, 2
        gang = random.integers(1, 5, n).astype(float)
        cost = np.where(random.random((n, k)) < 0.7, -1.0, np.inf)
        capacity = random.integers(0, 7, k).astype(float)
        one = Choice(
            cost=cost, amount=np.broadcast_to(gang[:, None], (n, k)), resource=np.arange(k),
            capacity=capacity, count=np.ones(n, dtype=np.int64),
        )  # fmt: skip
        best = 0
        for ways in product(range(-1, k), repeat=n):
            plan = np.zeros((n, k), dtype=np.int64)
            for row, kind in enumerate(ways):
                if kind >= 0:
                    plan[row, kind] = 1
            if one.feasible(plan):
                best = max(best, int(one.used(plan).sum()))
        assert most_by_counting(one) >= best


# ------------------------------------------------------------------------------------ tampering


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """An answer as a file's content, its round's file, and a way to verify a changed answer."""
    folder = tmp_path_factory.mktemp("verify")
    asked = larger(3)
    ap.write_round(asked, folder / "round.json")
    ap.solve(asked, "fft").write(folder / "answer.json")
    return folder, json.loads((folder / "answer.json").read_text())


def set_at(data, path, change):
    *way, last = path.split("/")
    for key in way:
        data = data[int(key)] if isinstance(data, list) else data[key]
    data[last] = change(data[last])


TAMPERED = [
    ("objective", lambda v: v * 0.999, "objective: "),
    ("bound", lambda v: v * 1.01, "bound: "),
    ("bound", lambda v: v * 0.9, "bound: "),
    ("gap", lambda v: v + 0.01, "gap: "),
    ("status", lambda v: "NO_SOLUTION", "status: NO_SOLUTION with a bound"),
    ("certificate/bound", lambda v: v * 1.001, "certificate.bound: "),
    ("certificate/gap", lambda v: v + 0.1, "certificate.gap: "),
    ("certificate/prices/A100", lambda v: v + 5.0, "certificate.bound: "),
    ("certificate/prices", lambda v: {"A100": 1.0}, "certificate.prices: "),
    ("certificate/prices", lambda v: None, "certificate.prices: "),
    ("certificate/gpu_credit", lambda v: "much", "certificate.prices: "),
    ("certificate/gpus", lambda v: {**v, "at_most": 5}, "certificate.gpus: "),
    ("certificate/schema", lambda v: "mine/1", "certificate.schema: "),
    ("certificate/tolerance", lambda v: -1.0, "certificate.tolerance: "),
    ("certificate/left_out", lambda v: [{"job": "ghost", "gpu_type": "T4"}],
     "certificate.left_out: "),
    ("jobs/rho", lambda v: [one + 1.0 for one in v], "jobs.rho: "),
    ("jobs/mu", lambda v: [one + 1.0 for one in v], "jobs.mu: "),
    ("policy/parameters", lambda v: {**v, "wait_weight": 3.0, "switch_fixed_s": 0.0, "units": "normalised", "remaining_work": True, "fairness_weight": 0.0, "tau_model": "isolated"}, "jobs."),
    ("allocation/jobs", lambda v: v[:-1], "objective: "),
    ("round/duration_s", lambda v: v * 2, "round.duration_s: "),
    ("round/jobs/work", lambda v: [one * 2 for one in v], "round.jobs.work: "),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "change", "says"), TAMPERED, ids=[f"{p} {s}" for p, _, s in TAMPERED]
)
def test_what_was_tampered_with_is_named(written, command, path, change, says):
    folder, good = written
    data = copy.deepcopy(good)
    set_at(data, path, change)
    (folder / "changed.json").write_text(json.dumps(data))
    told = command("verify", folder / "changed.json", "--round", folder / "round.json", "--json")
    assert told.code == 1, told
    assert told.json["valid"] is False
    assert any(line.startswith(says) for line in told.json["faults"]), told.json["faults"]


def test_a_gang_where_there_is_no_room_breaks_a_rule(written, command):
    folder, good = written
    data = copy.deepcopy(good)
    placed = {row["job"] for row in data["allocation"]["jobs"]}
    columns = good["round"]["jobs"]
    job = next(name for name in columns["id"] if name not in placed)
    gang = columns["gang"][columns["id"].index(job)]
    data["allocation"]["jobs"].append({"job": job, "gpu_type": "T4", "gpus": gang})
    (folder / "changed.json").write_text(json.dumps(data))
    told = command("verify", folder / "changed.json", "--round", folder / "round.json")
    assert told.code == 1
    assert "type_capacity" in told.out
    assert told.out.endswith("not valid\n")


def test_the_command(written, command, tmp_path):
    folder, good = written
    told = command("verify", folder / "answer.json", "--round", folder / "round.json")
    assert told.code == 0
    assert told.out.endswith("valid\n")
    assert "proved objective" in told.out
    again = command("verify", folder / "answer.json", "--round", folder / "round.json", "--json")
    assert again.json["faults"] == []
    (tmp_path / "bad.json").write_text("{")
    assert "bad.json" in command(
        "verify", tmp_path / "bad.json", "--round", folder / "round.json"
    ).refused()  # fmt: skip
    assert "none.json" in command(
        "verify", folder / "answer.json", "--round", tmp_path / "none.json"
    ).refused()  # fmt: skip
    stranger = {**good, "policy": {"name": "nobody", "parameters": {}}}
    (tmp_path / "stranger.json").write_text(json.dumps(stranger))
    assert "nobody" in command(
        "verify", tmp_path / "stranger.json", "--round", folder / "round.json"
    ).refused()  # fmt: skip
    assert command("verify", folder / "answer.json").code == 2


def test_a_written_answer_keeps_its_certificate(written):
    folder, good = written
    again = ap.read_answer(folder / "answer.json")
    assert again.certificate == good["certificate"]
    assert again.to_dict()["certificate"] == good["certificate"]
