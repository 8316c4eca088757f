"""Answers as files: what is written comes back, and what is malformed is named."""

from __future__ import annotations

import json
import math
from copy import deepcopy

import numpy as np
import pytest

import apportion as ap
from apportion.answer_reading import STATUSES, answer_from_dict

pytestmark = pytest.mark.quick

FIELDS = ("status", "objective", "bound", "gap", "next_decision_s", "notes", "time_limited")


def same_column(one, two) -> bool:
    one, two = np.asarray(one), np.asarray(two)
    return one.dtype.kind == two.dtype.kind and np.array_equal(one, two)


@pytest.mark.parametrize("policy", ["fft", "fifo", "srtf"])
def test_what_is_written_comes_back(tmp_path, rnd, make, policy):
    first = ap.solve(rnd, policy)
    answer = ap.solve(make(now_s=300.0), policy, previous=first)
    answer.write(tmp_path / "a.json")
    back = ap.read_answer(tmp_path / "a.json")
    assert back.allocation == answer.allocation
    assert back.round_.jobs == answer.round_.jobs
    assert back.round_.cluster == answer.round_.cluster
    assert back.policy == answer.policy
    assert back.parameters == answer.parameters
    assert back.elapsed_s == answer.elapsed_s
    assert back.stages == answer.stages
    for name in FIELDS:
        assert getattr(back.decision, name) == getattr(answer.decision, name)
    assert back.decision.per_job.keys() == answer.decision.per_job.keys()
    for name, column in answer.decision.per_job.items():
        assert same_column(back.decision.per_job[name], column)
    if policy == "fft":
        for name in ("id", "rho", "fair_per_s"):
            assert same_column(back.memory[name], answer.memory[name])
    else:
        assert back.memory is None
        assert back.decision.next_decision_s == answer.decision.next_decision_s
    back.write(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_everything_a_decision_may_hold_comes_back(tmp_path, toys, rnd, make):
    policy = toys.Promises()
    answer = ap.solve(rnd, policy)
    answer.write(tmp_path / "a.json")
    back = ap.read_answer(tmp_path / "a.json").decision
    told = answer.decision
    assert back.shares == told.shares
    assert back.commitments == told.commitments
    assert back.next_decision_s == 60.0
    assert back.time_limited
    assert back.carry["until"] == math.inf
    assert back.carry["plan"].tolist() == [0, 1, 2]
    for name, column in told.per_job.items():
        assert same_column(back.per_job[name], column), name
    # a policy is handed the same to remember, from a file or from memory
    ap.solve(make(now_s=300.0), policy, previous=ap.read_answer(tmp_path / "a.json"))
    assert policy.seen[-1].shares == told.shares


def test_no_end_of_a_decision_is_told_as_until_change(rnd):
    data = ap.solve(rnd, "fifo").to_dict()
    assert data["until_change"] is True
    assert data["next_decision_s"] is None
    assert answer_from_dict(data).decision.next_decision_s == math.inf


def test_names_of_every_kind(tmp_path, make):
    ids = ["ä, [b]", 'quote" \\ back']
    answer = ap.solve(make(id=ids), "fft")
    answer.write(tmp_path / "ä b.json")
    assert ap.read_answer(tmp_path / "ä b.json").round_.jobs.id.tolist() == ids


def test_empty_round_comes_back(tmp_path):
    jobs = ap.Jobs.of(id=[], gang=[], work=[], throughput_per_s=[])
    asked = ap.TrainingRound(cluster=ap.Cluster.uniform({"V100": 2}), jobs=jobs)
    ap.solve(asked, "fft").write(tmp_path / "a.json")
    assert ap.read_answer(tmp_path / "a.json").allocation.job.size == 0


def put(data, path, value):
    *way, last = path
    for step in way:
        data = data[step]
    if value is None and last in ("policy", "status", "allocation", "round", "family"):
        del data[last]
    else:
        data[last] = value


BAD = [
    (("schema",), "apportion/round/1", "schema = \"apportion/round/1\": expected 'apportion/answer/1'"),
    (("schema",), "apportion/answer/2", "a later version"),
    (("family",), "serving", 'answer.family = "serving": expected \'training\''),
    (("family",), None, "answer.family is missing"),
    (("policy",), None, "answer.policy is missing"),
    (("policy",), "fft", "answer.policy: expected an object, got \"fft\""),
    (("policy", "name"), 3, "answer.policy.name = 3: must be a string"),
    (("policy", "parameter"), {}, "answer.policy.parameter: unknown key; did you mean 'parameters'?"),
    (("policy", "parameters"), [], "answer.policy.parameters: expected an object"),
    (("status",), None, "answer.status is missing"),
    (("status",), 1, "answer.status = 1: must be a string"),
    (("status",), "OPTIMUM", "answer.status = 'OPTIMUM'; did you mean 'OPTIMAL'?"),
    (("statos",), "OPTIMAL", "answer.statos: unknown key; did you mean 'status'?"),
    (("objective",), "3", 'answer.objective = "3": must be a number'),
    (("objective",), True, "answer.objective = true: must be a number"),
    (("bound",), [], "answer.bound = []: must be a number"),
    (("gap",), 10**400, "gap = 1000"),
    (("next_decision_s",), "soon", 'answer.next_decision_s = "soon": must be a number'),
    (("until_change",), "yes", 'answer.until_change = "yes": must be true or false'),
    (("time_limited",), 1, "answer.time_limited = 1: must be true or false"),
    (("notes",), "none", 'answer.notes: expected a list, got "none"'),
    (("notes",), [1], "answer.notes[0] = 1: must be a string"),
    (("skipped",), [None], "answer.skipped[0] = null: must be a string"),
    (("allocation",), None, "answer.allocation is missing"),
    (("allocation",), [], "answer: allocation: expected an object"),
    (("allocation", "jobs", 0, "job"), "c", 'answer: allocation.jobs.job[0] = "c": unknown job'),
    (("allocation", "jobs", 0, "gpus"), 1.5, "answer: allocation.gpus[0] = 1.5: must be whole"),
    (("allocation", "jobs", 0, "gpu"), 1, "answer: allocation.jobs[0].gpu: unknown key; did you mean"),
    (("allocation", "jobs", 0, "nodes"), {"node-9": 2}, "allocation.jobs[0].nodes.node-9: unknown key"),
    (("commitments",), {}, "answer: commitments: expected a list of objects"),
    (("commitments",), [{"job": "a"}], "answer: commitments[0].start_s is missing"),
    (("shares",), "half", "answer: shares: expected keys"),
    (("jobs",), [], "answer.jobs: expected an object"),
    (("jobs", "id"), ["b", "a"], 'answer.jobs.id = ["b", "a"]: not the jobs'),
    (("jobs", "rho"), [1.0], "answer.jobs.rho has shape (1,), expected (2,)"),
    (("jobs", "rho"), [1.0, "x"], 'answer.jobs.rho = "x": must be a number'),
    (("jobs", "rho"), 1.0, "answer.jobs.rho: expected a list, got 1.0"),
    (("stages",), {}, "answer.stages: expected a list"),
    (("stages", 0), "lp", 'answer.stages[0]: expected an object, got "lp"'),
    (("stages", 0, "name"), None, "answer.stages[0].name = null: must be a string"),
    (("stages", 0, "bund"), 1, "answer.stages[0].bund: unknown key; did you mean 'bound'?"),
    (("stages", 0, "bound"), "x", 'answer.stages[0].bound = "x": must be a number'),
    (("stages", 0, "answered"), 0, "answer.stages[0].answered = 0: must be true or false"),
    (("stages", 0, "backend"), 7, "answer.stages[0].backend = 7: must be a string"),
    (("stages", 0, "note"), None, "answer.stages[0].note = null: must be a string"),
    (("carry",), {"$colum": 1}, "answer.carry: memory: '$colum' is not a mark of this format"),
    (("memory",), {"$column": {}}, "answer.memory: memory: {} is not a column"),
    (("round",), None, "answer.round is missing"),
    (("round",), 3, "answer.round: expected an object"),
    (("round", "jobs", "gang"), [0, 1], "answer.round: jobs.gang[0] = 0"),
    (("timings",), [], "answer.timings: expected an object"),
    (("timings", "elapsed"), 1, "answer.timings.elapsed: unknown key; did you mean 'elapsed_s'?"),
    (("timings", "elapsed_s"), "1", 'answer.timings.elapsed_s = "1": must be a number'),
    (("timings", "stages_s"), [], ""),
    (("timings", "stages_s"), [1.0], "answer.timings.stages_s: 1 times for 3 stages"),
    (("timings", "stages_s", 0), "x", 'answer.timings.stages_s[0] = "x": must be a number'),
]  # fmt: skip


@pytest.fixture(scope="module")
def written():
    jobs = ap.Jobs.of(
        id=["a", "b"], gang=[2, 1], work=[600.0, 300.0], throughput_per_s=[[1.0, 2.0], [1.0, 1.2]]
    )
    asked = ap.TrainingRound(cluster=ap.Cluster.uniform({"V100": 2, "A100": 2}), jobs=jobs)
    return json.loads(json.dumps(ap.solve(asked, "fft").to_dict()))


@pytest.mark.parametrize(("path", "value", "says"), BAD, ids=lambda part: str(part)[:40])
def test_malformed_fields_are_named(tmp_path, written, path, value, says):
    data = deepcopy(written)
    put(data, path, value)
    place = tmp_path / "bad.json"
    place.write_text(json.dumps(data), encoding="utf-8")
    if not says:
        assert ap.read_answer(place).stages[0].elapsed_s == 0.0
        return
    with pytest.raises(ap.InstanceError) as caught:
        ap.read_answer(place)
    told = str(caught.value)
    assert told.startswith(f"{place}: ")
    assert told.count(str(place)) == 1
    assert "\n" not in told
    assert says in told.removeprefix(f"{place}: ").replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("[1, 2", "truncated JSON"),
        ("[]", "expected an object with schema 'apportion/answer/1'"),
        ("{}", "the key 'schema' is missing"),
        ('{"schema": NaN}', "schema = NaN: is not a JSON number"),
        ('{"a": 1, "a": 2}', "the key 'a' appears twice"),
    ],
)
def test_files_that_are_no_answers(tmp_path, text, says):
    place = tmp_path / "bad.json"
    place.write_text(text, encoding="utf-8")
    with pytest.raises(ap.InstanceError, match="^" + str(place)) as caught:
        ap.read_answer(place)
    assert says in str(caught.value)
    assert str(caught.value).count(str(place)) == 1


def test_every_status_can_be_read(written):
    for status in STATUSES:
        assert answer_from_dict({**written, "status": status}).status == status
