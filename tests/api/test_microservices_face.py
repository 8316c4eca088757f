"""Rounds and scenarios of microservices through the face: Python, the command, files, resume."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apportion as ap
from apportion.families.lookup import FAMILIES, family_of, scenario_family
from apportion.families.microservices import MICROSERVICES
from apportion.instances.microservices import (
    Allocation,
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Outcome,
    Services,
)

SCENARIO = """\
schema = "apportion/scenario/1"
family = "microservices"
name = "tiny"
seed = 3

[graph]
kind = "builtin"
name = "hotel"

[rates]
kind = "constant"
rounds = 4

[policy]
name = "hpa"

[policy.parameters]
target_utilisation = 0.5

[executor]
requests = 2000

[[variant]]
name = "busier"
[variant.rates]
per_s = 900
"""


def chain(**services: Any) -> MicroserviceRound:
    """Give the two-class application of the Derm example: A alone, or A then B."""
    given = {"rate_per_s": [100.0], "target_ms": [14.0], "violation_budget": 0.05, **services}
    return MicroserviceRound(
        Microservices.of(["A", "B"], [0.6, 0.5], [-0.02, -0.1]),
        Services.of(["shop"], **given),
        CallClasses.of(["S", "C"], CallTrees.serial([[1.0, 1.0], [0.0, 1.0]]), share=[0.9, 0.1]),
    )


@pytest.fixture
def asked() -> MicroserviceRound:
    return chain()


@pytest.fixture
def asked_file(tmp_path: Path, asked: MicroserviceRound) -> Path:
    ap.write_round(asked, tmp_path / "asked.json")
    return tmp_path / "asked.json"


@pytest.fixture
def world_file(tmp_path: Path) -> Path:
    path = tmp_path / "world.toml"
    path.write_text(SCENARIO)
    return path


# ---------------------------------------------------------------------------- one round


@pytest.mark.quick
def test_the_example_of_derm(asked):
    answer = ap.solve(asked, gap=0.0)  # its family's default
    assert answer.policy == "derm"
    assert answer.family is MICROSERVICES is family_of(asked)
    assert answer.status == "OPTIMAL"
    assert answer.objective == pytest.approx(9.0)
    assert answer.allocation.containers.tolist() == [6, 3]
    assert answer.allocation.guaranteed.tolist() == [True]
    assert ap.check(asked, answer.allocation) == []
    facts = answer.to_dict()
    low, high = (facts["services"][f"violation_{end}"][0] for end in ("least", "most"))
    assert low <= 0.043395 + 1e-6
    assert high >= 0.043395 - 1e-6
    assert facts["classes"]["id"] == ["S", "C"]
    assert facts["classes"]["violation_most"] == pytest.approx([0.023913, 0.218737], abs=1e-5)


@pytest.mark.quick
def test_an_answer_survives_its_file(asked, tmp_path):
    answer = ap.solve(asked, "hpa")
    answer.write(tmp_path / "answer.json")
    again = ap.read_answer(tmp_path / "answer.json")
    assert again.round_ == asked
    assert again.allocation == answer.allocation
    assert again.to_dict() == answer.to_dict() == json.loads((tmp_path / "answer.json").read_text())
    one = ap.solve(answer.next_round(), "hpa", previous=answer)
    two = ap.solve(again.next_round(), "hpa", previous=again)
    assert one.allocation == two.allocation
    assert "the previous plan is taken as carried out" in " ".join(one.notes)


@pytest.mark.quick
def test_a_round_file_is_told_apart_by_its_family(asked, asked_file):
    assert ap.read_round(asked_file) == asked
    data = json.loads(asked_file.read_text())
    assert data["schema"] == "apportion/round/1"
    assert data["family"] == "microservices"
    asked_file.write_text(json.dumps({**data, "family": "microservice"}))
    with pytest.raises(ap.InstanceError, match="did you mean 'microservices'"):
        ap.read_round(asked_file)
    asked_file.write_text(json.dumps({**data, "family": "training"}))
    with pytest.raises(ap.InstanceError, match="microservices: unknown key"):
        ap.read_round(asked_file)


@pytest.mark.quick
def test_memory_goes_from_round_to_round(asked):
    answer = ap.solve(asked, "hpa")
    assert answer.memory is None
    measured = Outcome.of(
        0.0, 60.0, class_requests=[5400.0, 600.0], violations=[10.0], unmodelled_requests=[0.0],
        latency_tail_ms=[12.0], serving=answer.allocation.containers,
    )  # fmt: skip
    later = answer.next_round(measured)
    assert later.now_s == 60.0
    assert later.containers.tolist() == answer.allocation.containers.tolist()
    second = ap.solve(later, "hpa", previous=answer, outcome=measured)
    assert second.memory is not None
    assert second.notes == ()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"class_requests": np.zeros(3)}, "outcome.class_requests has shape (3,)"),
        ({"violations": np.array([np.nan])}, "outcome.violations: must be finite"),
        ({"serving": np.array([np.inf, 1.0])}, "outcome.serving: must be finite"),
        ({"start_s": 5.0}, "outcome.start_s = 5.0: the previous answer was decided at 0.0"),
        ({"end_s": 61.0}, "outcome.end_s = 61.0: lies after this round's now_s = 60.0"),
        ({"end_s": 0.0}, "outcome.end_s = 0.0: must lie after start_s = 0.0"),
    ],
)
def test_an_outcome_of_something_else_is_refused(asked, change, says):
    answer = ap.solve(asked, "hpa")
    good = MICROSERVICES.rules.planned_outcome(asked, answer.allocation)
    with pytest.raises(ap.InstanceError) as caught:
        ap.solve(answer.next_round(), "hpa", previous=answer, outcome=replace(good, **change))
    assert says in str(caught.value)


@pytest.mark.quick
def test_nothing_arrives(asked):
    with pytest.raises(ap.InstanceError, match="nothing arrives"):
        ap.solve(asked, "hpa").next_round(arrivals=object())


@pytest.mark.quick
@pytest.mark.parametrize("policy", ["derm", "erms", "hpa", "static-worst"])
def test_no_time_is_still_an_answer(asked, policy):
    answer = ap.solve(asked, policy, time_limit_s=1e-9)
    assert ap.check(asked, answer.allocation) == []


@pytest.mark.quick
def test_a_plan_that_breaks_a_rule_is_replaced(asked, toys):
    base = MICROSERVICES.policies[0]()

    class Broken(type(base)):  # type: ignore[misc]
        def compile(self, round_: Any, memory: Any, budget: Any) -> Any:
            program = super().compile(round_, memory, budget)
            bad = Allocation.of([-1, 3], [True])
            return type(
                "P", (), {
                    "model": None,
                    "incumbent": lambda _: program.incumbent(),
                    "solve": lambda _, solver, budget: ap.Decision(bad),
                },
            )()  # fmt: skip

    answer = ap.solve(asked, Broken())
    assert ap.check(asked, answer.allocation) == []
    assert "broke a rule" in answer.notes[0]


@pytest.mark.quick
def test_an_sla_below_the_shifts_is_told(command, tmp_path):
    hopeless = replace(
        chain(),
        microservices=Microservices.of(["A", "B"], [0.6, 0.5], [-0.02, -0.1], shift_ms=20.0),
    )
    path = tmp_path / "hopeless.json"
    ap.write_round(hopeless, path)
    done = command("solve", path, "--policy", "derm", "--json")
    assert done.code == 3, done
    assert done.json["status"] == "INFEASIBLE"
    assert done.json["allocation"]["guaranteed"] == []
    assert any("shop" in note for note in done.json["notes"])


# ---------------------------------------------------------------------------- the command


@pytest.mark.quick
def test_solve_and_check(asked_file, tmp_path, command):
    out = tmp_path / "answer.json"
    done = command("solve", asked_file, "--policy", "erms", "-o", out, "--json")
    assert done.code == 0, done
    assert done.json == json.loads(out.read_text())
    assert done.json["family"] == "microservices"
    assert done.json["microservices"]["id"] == ["A", "B"]
    good = command("check", asked_file, out)
    assert good.code == 0
    assert good.out.startswith("valid: ")
    assert "containers of 2 microservices, 1 of 1 SLAs kept" in good.out
    data = json.loads(out.read_text())
    data["allocation"]["containers"] = {"A": 1, "B": 1}
    out.write_text(json.dumps(data))
    bad = command("check", asked_file, out, "--json")
    assert bad.code == 1
    assert [row["rule"] for row in bad.json["violations"]] == ["guarantee"]


@pytest.mark.quick
def test_what_people_see(asked_file, command):
    shown = command("solve", asked_file, "--policy", "erms").out
    for word in ("erms: ", "containers of 2 microservices", "Services", "Classes of requests",
                 "in time", "kept", "passes the checker"):  # fmt: skip
        assert word in shown


@pytest.mark.quick
def test_the_outcome_file(asked_file, tmp_path, command):
    answer, memory = tmp_path / "answer.json", tmp_path / "memory.json"
    assert command("solve", asked_file, "--policy", "hpa", "-o", answer).code == 0
    later = ap.read_answer(answer).next_round()
    ap.write_round(later, tmp_path / "later.json")
    outcome = {
        "start_s": 0.0, "end_s": 60.0, "class_requests": {"S": 5000, "C": 800},
        "violations": {"shop": 3}, "latency_tail_ms": {"shop": None},
        "serving": {"A": 6.0, "B": 3.0},
    }  # fmt: skip
    seen = tmp_path / "outcome.json"
    seen.write_text(json.dumps(outcome))
    done = command(
        "solve", tmp_path / "later.json", "--policy", "hpa", "--previous", answer,
        "--outcome", seen, "--memory-out", memory, "--json",
    )  # fmt: skip
    assert done.code == 0, done
    assert done.json["notes"] == []
    assert json.loads(memory.read_text())
    seen.write_text(json.dumps({**outcome, "serving": {"A": 6.0, "Z": 3.0}}))
    said = command(
        "solve", tmp_path / "later.json", "--policy", "hpa", "--previous", answer,
        "--outcome", seen,
    ).refused()  # fmt: skip
    assert said.startswith(f"error: {seen}: outcome.serving")


@pytest.mark.quick
@pytest.mark.parametrize("question", ["explain", "prices", "audit", "admit", "verify"])
def test_questions_about_jobs_are_refused(asked_file, tmp_path, command, question):
    answer = tmp_path / "answer.json"
    ap.solve(ap.read_round(asked_file), "hpa").write(answer)
    arguments: dict[str, list[Any]] = {
        "admit": [asked_file, "--job", "x"],
        "verify": [answer, "--round", asked_file],
    }
    said = command(question, *arguments.get(question, [asked_file])).refused()
    expected = f"{question}: is asked of training rounds only, this is a microservices round"
    assert said == f"error: {expected}"
    ask: dict[str, Any] = {
        "explain": lambda one: ap.explain(one, "derm"),
        "prices": ap.prices,
        "audit": ap.audit,
        "admit": lambda one: ap.admit(one, "x"),
        "verify": lambda one: ap.verify(ap.solve(one, "hpa"), one),
    }
    with pytest.raises(ap.InstanceError, match="training"):
        ask[question](chain())


@pytest.mark.quick
def test_a_policy_of_the_other_family_is_refused(asked_file, rnd, tmp_path, command):
    said = command("solve", asked_file, "--policy", "fft").refused()
    assert said.startswith(
        "error: policy 'fft' is for training, the question is one of microservices; policies that"
        " fit: derm, erms, "
    )
    assert "srtf" not in said
    with pytest.raises(ap.InstanceError, match="'derm' is for microservices, the question is one"):
        ap.solve(rnd, "derm")
    with pytest.raises(ap.InstanceError, match="'hpa' is for microservices"):
        ap.compare("demo", ["fft", "hpa"])


@pytest.mark.quick
def test_an_answer_of_the_other_family_is_refused(asked_file, rnd, tmp_path, command):
    answer, jobs = tmp_path / "answer.json", tmp_path / "jobs.json"
    ap.solve(rnd, "srtf").write(answer)
    said = command("check", asked_file, answer).refused()
    assert (
        said
        == f"error: {answer}: family = \"training\": the round {asked_file} is of 'microservices'"
    )
    ap.write_round(rnd, jobs)
    assert command("check", jobs, answer).code == 0
    told = command("solve", asked_file, "--policy", "hpa", "--previous", answer).refused()
    assert "previous: an answer of 'srtf', the policy is 'hpa'" in told


@pytest.mark.quick
def test_policies_are_listed_with_their_family(command):
    rows = command("policies", "--json").json["rows"]
    of = {row["name"]: row["family"] for row in rows}
    assert of["derm"] == of["erms"] == of["hpa"] == "microservices"
    assert of["fft"] == "training"
    shown = command("policies", "derm").out
    assert "family: microservices" in shown
    assert "priority" in shown


BAD: list[tuple[tuple[str, ...], Any, str]] = [
    (("services", "target_ms"), [-1.0], "services.target_ms[0]"),
    (("services", "violation_budget"), [1.5], "services.violation_budget[0]"),
    (("classes", "share"), [0.9, 0.3], "must sum to 1"),
    (("microservices", "rate_at_rest_per_ms"), [0.0, 0.5], "rate_at_rest_per_ms[0]"),
    (("microservices", "rate_slope_per_ms"), [0.1, -0.1], "rate_slope_per_ms[0]"),
    (("microservices", "costs"), [1.0, 1.0], "did you mean 'cost'?"),
    (("clases",), {}, "did you mean 'classes'?"),
    (("services", "rate_per_s"), ["many"], "services.rate_per_s[0]"),
]


@pytest.mark.quick
@pytest.mark.parametrize(("path", "value", "says"), BAD, ids=lambda part: str(part)[:30])
def test_wrong_rounds_are_named(asked_file, command, path, value, says):
    data = json.loads(asked_file.read_text())
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    asked_file.write_text(json.dumps(data))
    said = command("solve", asked_file).refused()
    assert said.startswith(f"error: {asked_file}: ")
    assert says in said


@pytest.mark.quick
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"allocation": {"containers": {"A": 6}}}, "allocation.containers"),
        ({"allocation": {"containers": {"A": 6, "D": 3}}}, "containers.D: unknown"),
        ({"commitments": []}, "commitments: rounds of microservices have none"),
        ({"shares": {}}, "shares: answers about microservices have none"),
        ({"jobs": {}}, "jobs"),
        ({"microservices": {"id": ["A"]}}, "answer.microservices.id"),
        ({"family": "microservcies"}, "did you mean 'microservices'?"),
    ],
    ids=str,
)
def test_wrong_answers_are_named(asked, tmp_path, change, says):
    path = tmp_path / "answer.json"
    path.write_text(json.dumps({**ap.solve(asked, "hpa").to_dict(), **change}))
    with pytest.raises(ap.InstanceError) as caught:
        ap.read_answer(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)


# ---------------------------------------------------------------------------- scenarios


def test_simulate_writes_and_repeats(world_file, tmp_path, command):
    one, two = tmp_path / "one", tmp_path / "two"
    done = command("simulate", world_file, "-o", one, "--json")
    assert done.code == 0, done
    values = {row["metric"]: row["value"] for row in done.json["rows"]}
    assert values["rounds"] == 4
    assert ap.simulate(world_file, out=two).rounds.index.size == 4
    files = sorted(path.name for path in one.iterdir())
    assert {"metrics.json", "rounds.csv", "services.csv", "microservices.csv", "classes.csv",
            "journal.jsonl", "timings.json"} <= set(files)  # fmt: skip
    for name in files:
        if "timings" not in name:
            assert (one / name).read_bytes() == (two / name).read_bytes(), name
    assert json.loads((one / "metrics.json").read_text())["rounds"] == 4


def test_a_run_cut_off_goes_on_to_the_same_bytes(world_file, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    ap.simulate(world_file, out=whole)
    shutil.copytree(whole, cut)
    lines = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "journal.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:10])
    for name in ("metrics.json", "rounds.csv"):
        (cut / name).unlink()
    ap.simulate(world_file, out=cut)
    for path in whole.iterdir():
        if "timings" not in path.name:
            assert path.read_bytes() == (cut / path.name).read_bytes(), path.name
    with pytest.raises(ap.InstanceError, match="journal is of"):
        ap.simulate(world_file, "static-worst", out=cut)


def test_the_scenario_names_policy_variant_and_seed(world_file, command):
    assert scenario_family(world_file) is MICROSERVICES
    run = ap.simulate(world_file)
    assert json.loads(run.policy)["parameters"]["target_utilisation"] == 0.5
    busier = ap.simulate(world_file, variant="busier", seed=9)
    assert busier.scenario.seed == 9
    assert busier.microservices.asked.sum() > run.microservices.asked.sum()
    shown = command("simulate", world_file, "--variant", "busier").out
    assert "tiny under hpa:target_utilisation=0.5" in shown


def test_compare_in_processes_and_here(world_file, tmp_path, command):
    out = tmp_path / "kept"
    done = command(
        "compare", world_file, "--policies", "hpa,static-worst", "--seeds", "0:2", "-o", out,
        "--workers", "2", "--json",
    )  # fmt: skip
    assert done.code == 0, done
    rows = done.json["rows"]
    assert [(row["policy"], row["variant"]) for row in rows] == [
        (policy, variant) for policy in ("hpa", "static-worst") for variant in ("base", "busier")
    ]
    cells = sorted((out / "cells").iterdir())
    stamps = {path: path.stat().st_mtime_ns for path in cells}
    again = ap.compare(world_file, ["hpa", "static-worst"], seeds=range(2), out=out)
    assert {path: path.stat().st_mtime_ns for path in cells} == stamps  # nothing ran twice
    assert json.loads(again.to_json())["rows"] == rows
    here = ap.compare(ap.read_scenario(world_file, seed=0), ["hpa", "static-worst"])
    assert [row[0] for row in here.rows] == ["hpa", "static-worst"]


def test_the_bundled_scenario(command):
    done = command("simulate", "ticket-search", "--policy", "autopilot", "--json")
    assert done.code == 0, done
    assert {row["metric"] for row in done.json["rows"]} >= {"containers_mean", "violation_fraction"}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('family = "microservices"', 'family = "microservics"', "did you mean 'microservices'?"),
        ('name = "hotel"', 'name = "hotels"', "did you mean 'hotel'?"),
        ('name = "hpa"', 'name = "fft"', "policy 'fft' is for training"),
        ("rounds = 4", "round = 4", "did you mean 'rounds'?"),
        ("target_utilisation", "target_utilization", "did you mean 'target_utilisation'?"),
    ],
)
def test_wrong_scenarios_are_named(world_file, command, old, new, says):
    world_file.write_text(SCENARIO.replace(old, new))
    said = command("simulate", world_file).refused()
    assert said.startswith(f"error: {world_file}: ")
    assert says in said
    assert "Traceback" not in said


@pytest.mark.quick
def test_families_are_all_there():
    assert list(FAMILIES) == ["training", "microservices"]
