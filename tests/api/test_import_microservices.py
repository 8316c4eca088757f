"""Traces of microservices through the command, and a short run of what they became."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apportion as ap
from apportion.importing_microservices import kept_calls
from apportion.instances.microservices import CallTrees

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def traces(jaeger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "traces.json"
    path.write_text(json.dumps(jaeger([2, 4, 6, 8, 10])))
    return path


def deployment(name: str, replicas: int, cpu: str = "500m", memory: str = "256Mi") -> Any:
    requests = {"cpu": cpu, "memory": memory}
    pod = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": {"spec": pod}},
    }  # fmt: skip


def listed(*items: Any) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


def test_jaeger(traces, tmp_path, command):
    out = tmp_path / "shop"
    done = command(
        "import", "jaeger", traces, "--target-ms", "60", "--containers", "back=2", "-o", out,
        "--json",
    )  # fmt: skip
    assert done.code == 0, done
    assert done.json["scenario"] == str(out / "scenario.toml")
    assert (done.json["microservices"], done.json["services"], done.json["classes"]) == (2, 1, 1)
    assert done.json["rounds"] == 4  # the fifth minute is not whole
    world = ap.read_scenario(out)
    assert world.start.services.target_ms.tolist() == [60.0]
    assert world.start.linear is not None
    assert world.rate_per_s[:, 0] == pytest.approx([2.0, 4.0, 6.0, 8.0], rel=0.05)
    assert world.share.tolist() == [[1.0]] * 4
    ran = command("simulate", out, "--policy", "hpa", "--json")
    assert ran.code == 0, ran
    again = command("import", "jaeger", traces, "--target-ms", "60", "-o", out).refused()
    assert again.endswith("is there already; --force replaces it")
    plain = command(
        "import", "jaeger", traces, "--target-ms", "60", "-o", out, "--force", "--violation-budget",
        "0.01",
    )  # fmt: skip
    assert plain.code == 0
    told = f"{out / 'scenario.toml'}: 2 microservices, 1 services, 1 classes, 4 rounds\n"
    assert plain.out.startswith(told)
    assert ap.read_scenario(out).start.services.violation_budget.tolist() == [0.01]


def test_deployments_beside_traces_say_the_containers(traces, tmp_path, command):
    kubernetes, out = tmp_path / "deployments.json", tmp_path / "shop"
    kubernetes.write_text(listed(deployment("front", 2), deployment("back", 3)))
    done = command("import", "jaeger", traces, kubernetes, "--target-ms", "60", "-o", out)
    assert done.code == 0, done
    start = ap.read_scenario(out).start
    of = dict(zip(start.microservices.id.tolist(), start.containers.tolist(), strict=True))
    assert of == {"front": 2, "back": 3}
    assert set(start.microservices.cpu_cores.tolist()) == {0.5}


def test_kubernetes_into_a_round(traces, tmp_path, command):
    out = tmp_path / "shop"
    assert command("import", "jaeger", traces, "--target-ms", "60", "-o", out).code == 0
    asked, now = out / "application.json", tmp_path / "now.json"
    kubernetes = tmp_path / "deployments.json"
    kubernetes.write_text(listed(deployment("front", 4, "1"), deployment("back", 7)))
    done = command("import", "kubernetes", kubernetes, "--round", asked, "-o", now, "--json")
    assert done.code == 0, done
    assert done.json["microservices"] == 2
    round_ = ap.read_round(now)
    names = round_.microservices.id.tolist()
    assert dict(zip(names, round_.containers.tolist(), strict=True)) == {"front": 4, "back": 7}
    assert round_.microservices.cpu_cores[names.index("front")] == 1.0
    assert round_.microservices.memory_mib.tolist() == [256.0, 256.0]
    assert command("solve", now, "--policy", "hpa").code == 0
    kubernetes.write_text(listed(deployment("frnt", 4), deployment("back", 7)))
    said = command("import", "kubernetes", kubernetes, "--round", asked, "-o", now).refused()
    assert "is there already" in said
    arguments = ("import", "kubernetes", kubernetes, "--round", asked, "-o", now, "--force")
    assert "no workload is called 'front'; did you mean 'frnt'?" in command(*arguments).refused()
    kept = command(*arguments, "--missing", "skip")
    assert kept.code == 0
    assert "left out: front" in kept.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["jaeger"], "traces agree on no latency; give --target-ms"),
        (["jaeger", "--target-ms", "soon"], "expected MS or SERVICE=MS"),
        (["jaeger", "--target-ms", "-1"], "must be positive and finite"),
        (["jaeger", "--target-ms", "5", "--target-ms", "6"], "a number for all is given twice"),
        (["jaeger", "--target-ms", "frnt=5"], "--target-ms frnt: unknown service"),
        (["jaeger", "--target-ms", "5", "--round", "x"], "--round does not apply"),
        (["jaeger", "--target-ms", "5", "--timezone", "UTC"], "--timezone does not apply"),
        (["jaeger", "--target-ms", "5", "--limit", "3"], "--limit does not apply"),
        (["jaeger", "--target-ms", "5", "--sampling", "0"], "--sampling 0.0: must be above 0"),
        (["jaeger", "--target-ms", "5", "--missing", "skp"], "did you mean 'skip'?"),
        (["jaeger", "--target-ms", "5", "--violation-budget", "2"], "violation_budget"),
        (["alibaba", "--target-ms", "5"], "holds no traces of alibaba"),
        (["kubernetes"], "--round names the round"),
        (["kubernetes", "--target-ms", "5"], "--target-ms does not apply"),
        (["philly", "--timezone", "UTC", "--target-ms", "5"], "--target-ms does not apply"),
        (["jager", "--target-ms", "5"], "did you mean 'jaeger'?"),
    ],
)
def test_what_does_not_belong_is_refused(traces, tmp_path, command, arguments, says):
    kind, *options = arguments
    said = command("import", kind, traces, *options, "-o", tmp_path / "out").refused()
    assert says in said
    assert not (tmp_path / "out").exists()


def test_a_microservice_without_a_law(traces, jaeger, tmp_path, command):
    data = jaeger([2, 4, 6])
    for at, trace in enumerate(data["data"]):
        if at % 400 == 0:  # too few calls for a law
            span = json.loads(json.dumps(trace["spans"][1]))
            span.update(spanID=f"{span['spanID']}x", processID="p3", duration=1000)
            span["references"][0]["spanID"] = trace["spans"][1]["spanID"]
            span["startTime"] = trace["spans"][1]["startTime"] + 100
            trace["spans"].append(span)
            trace["processes"]["p3"] = {"serviceName": "rare"}
    path, out = tmp_path / "rare.json", tmp_path / "shop"
    path.write_text(json.dumps(data))
    said = command("import", "jaeger", path, "--target-ms", "60", "-o", out).refused()
    assert "no law for 'rare'" in said
    assert "--missing skip leaves such calls out" in said
    done = command(
        "import", "jaeger", path, "--target-ms", "60", "--missing", "skip", "-o", out, "--json"
    )
    assert done.code == 0, done
    assert done.json["dropped"] == ["rare"]
    assert set(ap.read_scenario(out).start.microservices.id.tolist()) == {"front", "back"}


def nested(trees: CallTrees, names: str) -> list[list[Any]]:
    return trees.nested_lists(list(names))


def test_calls_left_out_hand_down_what_they_make():
    one = {"microservice": "B", "calls": 2.0, "stages": [
        [{"microservice": "C", "calls": 3.0}, {"microservice": "D"}], [{"microservice": "A"}],
    ]}  # fmt: skip
    trees = CallTrees.nested(
        [[[{"microservice": "A", "stages": [[one], [{"microservice": "D"}]]}]]], "ABCD"
    )
    kept = kept_calls(trees, np.array([0, -1, 1, 2]))
    assert nested(kept, "ACD") == [
        [[{"microservice": "A", "stages": [
            [{"microservice": "C", "calls": 6.0}, {"microservice": "D", "calls": 2.0}],
            [{"microservice": "A", "calls": 2.0}],
            [{"microservice": "D"}],
        ]}]]
    ]  # fmt: skip
    assert kept_calls(trees, np.array([0, 1, 2, 3])).demand(4).tolist() == trees.demand(4).tolist()
    assert len(kept_calls(trees, np.full(4, -1)).calls) == 0


def test_renumbering_alone_changes_nothing():
    trees = CallTrees.nested(
        [[[{"microservice": "A", "stages": [[{"microservice": "B"}]]}], [{"microservice": "C"}]], []],
        "ABC",
    )  # fmt: skip
    assert nested(kept_calls(trees, np.array([2, 0, 1])), "BCA") == nested(trees, "ABC")


def test_alibaba(tmp_path, command):
    rng = np.random.default_rng(2)
    lines = [",traceid,timestamp,rpcid,um,rpctype,dm,interface,rt"]
    for minute, load in enumerate([2, 4, 6, 8, 2]):
        for at in range(60 * load):
            start, name = 60_000 * minute + int(rng.integers(0, 59_000)), f"t{minute}-{at}"
            own = 1 + int(rng.exponential(1.0 / (0.05 - 0.003 * load)))
            front = own + 2 + int(rng.exponential(10.0))
            rows = [
                (start, "0", "(?)", "http", "entry", front), (start, "0", "(?)", "http", "entry", -front),
                (start + 1, "0.1", "entry", "rpc", "A", own), (start + 1, "0.1", "entry", "rpc", "A", -own),
            ]  # fmt: skip
            lines += [
                f"{len(lines)},{name},{time},{rpc},{um},{kind},{dm},i,{rt}"
                for time, rpc, um, kind, dm, rt in rows
            ]
    path, out = tmp_path / "MSCallGraph_0.csv", tmp_path / "hour"
    path.write_text("\n".join(lines) + "\n")
    done = command("import", "alibaba", path, "--target-ms", "400", "-o", out, "--json")
    assert done.code == 0, done
    assert (done.json["microservices"], done.json["rounds"], done.json["dropped"]) == (2, 4, [])
    world = ap.read_scenario(out)
    assert world.rate_per_s.ravel() == pytest.approx([2.0, 4.0, 6.0, 8.0], rel=0.05)
    assert command("simulate", out, "--policy", "erms", "--json").code == 0
