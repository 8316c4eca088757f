"""Scenarios: what the file says, what its what-ifs change, and how mistakes are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Failure,
    Jobs,
    Scenario,
    Tenants,
    bundled_names,
    read_scenario,
    variant_names,
    write_scenario,
)
from apportion.instances.training.jobs_file import JobsFile, read_jobs, write_jobs
from apportion.instances.training.laws import SwitchCost

pytestmark = pytest.mark.quick

BASE = """
schema = "apportion/scenario/1"
family = "training"
name = "base"
epoch = "2025-01-01T00:00:00+01:00"
seed = 3

[[cluster.type]]
name = "V100"
gpus = 12
gpus_per_node = 4

[[cluster.type]]
name = "A100"
gpus = 8
memory_gib = 80

[workload]
kind = "generate"
jobs = 30

[[tenant]]
name = "blue"

[[tenant]]
name = "green"
weight = 2
quota_gpus = 6

[policy]
name = "fft"
[policy.parameters]
wait_weight = 0.5

[executor]
round_s = 120
backfill = true
fixed_s = 10

[[executor.failure]]
node = "node-3"
at_s = 1000
repair_s = 2000

[[variant]]
name = "8 more A100"
[variant.cluster]
add_gpus = { A100 = 8 }

[[variant]]
name = "node 3 gone"
[variant.cluster]
remove_nodes = "node-3"

[[variant]]
name = "weights doubled"
[variant.workload]
weight_factor = 2

[[variant]]
name = "round 60 s"
[variant.executor]
round_s = 60

[[variant]]
name = "green heavier"
[[variant.tenant]]
name = "green"
weight = 5
[[variant.cluster.type]]
name = "A100"
gpus = 4

[[variant]]
name = "first come"
[variant.policy]
name = "fifo"
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str = BASE) -> Path:
        path = tmp_path / "base.toml"
        path.write_text(text)
        return path

    return write


def same_jobs(left: Scenario, right: Scenario) -> bool:
    return left.jobs == right.jobs and left.tenants == right.tenants


def test_reads_every_table(write: Any) -> None:
    scenario = read_scenario(write())
    assert scenario.name == "base"
    assert scenario.epoch == "2025-01-01T00:00:00+01:00"
    assert scenario.seed == 3
    assert scenario.cluster.types.tolist() == ["V100", "A100"]
    assert scenario.cluster.node_gpus.tolist() == [4, 4, 4, 8]
    assert scenario.cluster.type_memory_gib.tolist() == [np.inf, 80]
    assert len(scenario.jobs) == 30
    assert scenario.tenants.weight.tolist() == [1, 2]
    assert scenario.tenants.quota_gpus.tolist() == [np.inf, 6]
    assert (scenario.policy, scenario.parameters) == ("fft", {"wait_weight": 0.5})
    assert scenario.options == ExecutorOptions(
        round_s=120,
        backfill=True,
        switch=SwitchCost(fixed_s=10),
        failures=(Failure(3, 1000.0, 2000.0),),
    )


def test_what_ifs_change_what_they_name_and_nothing_else(write: Any) -> None:
    path = write()
    base = read_scenario(path)
    assert variant_names(path) == (
        "8 more A100", "node 3 gone", "weights doubled", "round 60 s", "green heavier", "first come",
    )  # fmt: skip

    more = read_scenario(path, variant="8 more A100")
    assert more.cluster.gpus.tolist() == [12, 16]
    assert more.cluster.nodes.tolist() == [f"node-{index}" for index in range(5)]
    assert same_jobs(more, base)

    gone = read_scenario(path, variant="node 3 gone")
    assert gone.cluster.gpus.tolist() == [12, 0]
    assert gone.cluster.types.tolist() == ["V100", "A100"]
    assert gone.options.failures == ()  # what is gone cannot fail
    assert same_jobs(gone, base)

    doubled = read_scenario(path, variant="weights doubled")
    assert (doubled.jobs.weight == 2 * base.jobs.weight).all()
    assert (doubled.jobs.work == base.jobs.work).all()

    short = read_scenario(path, variant="round 60 s")
    assert short.options.round_s == 60
    assert short.options.backfill
    assert same_jobs(short, base)

    heavier = read_scenario(path, variant="green heavier")
    assert heavier.tenants.weight.tolist() == [1, 5]
    assert heavier.tenants.quota_gpus.tolist() == [np.inf, 6]
    assert heavier.cluster.gpus.tolist() == [12, 4]
    assert heavier.cluster.type_memory_gib.tolist() == [np.inf, 80]

    fifo = read_scenario(path, variant="first come")
    assert (fifo.policy, fifo.parameters) == ("fifo", {})  # another policy, other parameters


def test_overrides_come_last(write: Any) -> None:
    path = write()
    changes = {"executor": {"round_s": 30.0}, "workload": {"limit": 4}}
    scenario = read_scenario(path, variant="round 60 s", seed=9, overrides=changes)
    assert scenario.options.round_s == 30
    assert len(scenario.jobs) == 4
    assert scenario.seed == 9
    assert scenario.jobs.arrival_s.tolist() == sorted(scenario.jobs.arrival_s.tolist())
    other = read_scenario(path, seed=9)
    assert (other.jobs.work[:4] == scenario.jobs.work).all()
    with pytest.raises(InstanceError, match=r"overrides: executor\.round: unknown key; did you"):
        read_scenario(path, overrides={"executor": {"round": 1}})


def test_what_every_workload_can_do(write: Any) -> None:
    path = write()
    base = read_scenario(path)
    half = read_scenario(path, overrides={"workload": {"arrival_compression": 2}})
    assert (half.jobs.arrival_s == base.jobs.arrival_s / 2).all()
    one = read_scenario(path, overrides={"workload": {"weight_factor": {"green": 3}}})
    assert (one.jobs.weight == np.where(base.jobs.tenant == 1, 3.0, 1.0)).all()


def test_truth_differs_from_reports_only_where_asked(write: Any) -> None:
    path = write()
    base = read_scenario(path)
    assert base.true_work is None
    noisy = read_scenario(path, overrides={"truth": {"work_noise": 0.3}})
    assert noisy.jobs == base.jobs
    assert noisy.true_throughput_per_s is None
    assert noisy.true_work is not None
    again = read_scenario(path, overrides={"truth": {"work_noise": 0.3, "throughput_noise": 0.1}})
    assert again.true_work is not None
    assert (noisy.true_work == again.true_work).all()  # one stream a purpose
    many = {"truth": {"work_noise": 0.3}, "workload": {"jobs": 20_000}}
    big = read_scenario(path, overrides=many)
    assert big.true_work is not None
    factor = big.true_work / big.jobs.work
    assert factor.mean() == pytest.approx(1, abs=0.01)
    assert factor.std() == pytest.approx(0.3, abs=0.01)


def test_nodes_one_by_one(write: Any) -> None:
    text = """
schema = "apportion/scenario/1"
family = "training"
name = "nodes"
epoch = 2025-01-01T00:00:00Z
[[cluster.node]]
name = "big"
type = "A100"
gpus = 8
cpus = 64
memory_gib = 512
rack = "east"
[[cluster.node]]
name = "old"
type = "K80"
gpus = 2
[cluster.add_gpus]
K80 = 3
[workload]
kind = "generate"
jobs = 1
"""
    scenario = read_scenario(write(text))
    cluster = scenario.cluster
    assert scenario.epoch == "2025-01-01T00:00:00+00:00"
    assert cluster.types.tolist() == ["A100", "K80"]
    assert cluster.nodes.tolist() == ["big", "old", "node-2"]
    assert cluster.node_gpus.tolist() == [8, 2, 3]
    assert cluster.node_cpus.tolist() == [64, np.inf, np.inf]
    assert cluster.racks.tolist() == ["east", "rack-0"]
    assert scenario.tenants == Tenants.named("default")


MISTAKES: list[tuple[str, str, str]] = [
    ("round_s = 120", "round_seconds = 120", "executor.round_seconds: unknown key; did you mean 'round_s'?"),
    ("[executor]", "[exekutor]", "exekutor: unknown key; did you mean 'executor'?"),
    ("jobs = 30", "jbos = 30", "workload.jbos: unknown key; did you mean 'jobs'?"),
    ("jobs = 30", "jobs = 3.5", "workload.jobs = 3.5: must be a whole number"),
    ("jobs = 30", "jobs = 30\nload = -1", "workload.load = -1: must be positive"),
    ("jobs = 30", "jobs = 30\nload = nan", "workload.load = nan: must be finite"),
    ("jobs = 30", "jobs = 30\nload = 1\nrate_per_h = 2", "workload: give load or rate_per_h, not both"),
    ("jobs = 30", "jobs = 30\ngang_shares = [1, 2]", "workload.gang_shares has 2 values, gang_sizes has 4"),
    ("jobs = 30", "jobs = 30\ngang_sizes = [1, 0, 1, 1]", "workload.gang_sizes[1] = 0: must lie in [1, 1e+06]"),
    ("jobs = 30", "jobs = 30\nspeed = { V100 = 1, A10 = 2 }", "workload.speed.A10: unknown GPU type; did you mean"),
    ("jobs = 30", "jobs = 30\nspeed = { V100 = 1 }", "workload.speed.A100 is missing"),
    ("jobs = 30", "jobs = 30\ntenant_share = { bleu = 1 }", "workload.tenant_share.bleu: unknown tenant; did you mean 'blue'?"),
    ("jobs = 30", "jobs = 30\nweight_factor = { bleu = 2 }", "workload.weight_factor.bleu: unknown tenant; did you mean 'blue'?"),
    ("jobs = 30", "jobs = 30\nweight_factor = 0", "workload.weight_factor = 0: must be positive"),
    ("jobs = 30", 'jobs = 30\narrivals = "bursti"', "workload.arrivals = \"bursti\"; did you mean 'bursty'?"),
    ("jobs = 30", "jobs = 30\nwork_least = 9\nwork_most = 5", "workload.work_most = 5: is below work_least = 9"),
    ('"generate"', '"generat"', "workload.kind = \"generat\"; did you mean 'generate'?"),
    ('kind = "generate"', "", "workload.kind = null"),
    ("gpus = 12", "gpus = -12", "cluster.type[0].gpus = -12: must lie in [0, 1e+06]"),
    ("gpus = 12", 'gpus = "12"', "cluster.type[0].gpus = \"12\": must be a whole number"),
    ("gpus_per_node = 4", "gpus_pernode = 4", "cluster.type[0].gpus_pernode: unknown key; did you mean 'gpus_per_node'?"),
    ('name = "A100"\ngpus = 8', 'name = "V100"\ngpus = 8', "cluster.type[1].name = 'V100': already used"),
    ('name = "A100"\ngpus = 8', "gpus = 8", "cluster.type[1].name is missing"),
    ("round_s = 120", "round_s = 0", "executor.round_s = 0: must be positive"),
    ("backfill = true", 'backfill = "yes"', "executor.backfill = \"yes\": must be true or false"),
    ('node = "node-3"', 'node = "nod-3"', "executor.failure[0].node = 'nod-3': unknown node; did you mean 'node-3'?"),
    ("repair_s = 2000", "repair_s = 900", "executor.failures: repair_s = 900.0 must lie after at_s = 1000.0"),
    ("weight = 2", "weight = 0", "tenant[1].weight = 0: must be positive"),
    ('name = "green"', 'name = "blue"', "tenants.id[1] = 'blue': already used at index 0"),
    ("seed = 3", "seed = -3", "seed = -3: must not be negative"),
    ("+01:00", "", "epoch = '2025-01-01T00:00:00': needs an offset, such as +00:00"),
    ("2025-01-01T00:00:00+01:00", "new year", "epoch = 'new year': must be an ISO-8601 instant"),
    ('family = "training"', 'family = "trainin"', "family = \"trainin\"; did you mean 'training'?"),
    ('name = "base"', "", "name is missing"),
    ("scenario/1", "scenario/2", "a later version than this apportion reads"),
    ('schema = "apportion/scenario/1"', "", "the key 'schema' is missing"),
    ("[policy]", "[policy", "not TOML: "),
    ("[policy]", "[[policy]]", "policy: expected a table, got "),
    ("A100 = 8 }", "A1O0 = 8 }", "variant '8 more A100': cluster.add_gpus.A1O0: unknown GPU type; did you mean 'A100'?"),
    ("A100 = 8 }", "A100 = 1.5 }", "variant '8 more A100': cluster.add_gpus.A100 = 1.5: must be a whole number"),
    ('remove_nodes = "node-3"', 'remove_nodes = ["node-33"]', "variant 'node 3 gone': cluster.remove_nodes[0] = 'node-33': unknown node"),
    ("weight_factor = 2", "wieght_factor = 2", "variant 'weights doubled': workload.wieght_factor: unknown key; did you mean 'weight_factor'?"),
    ('name = "round 60 s"', 'name = "node 3 gone"', "variant[3].name = 'node 3 gone': already used"),
    ('name = "round 60 s"', "nme = 1", "variant[3].name = null: must be a string"),
    ('name = "round 60 s"', 'name = "x"\nschema = "y"', "variant 'x': schema: a variant cannot change it"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "told"), MISTAKES)
def test_mistakes_are_told_in_a_line(write: Any, old: str, new: str, told: str) -> None:
    assert old in BASE
    path = write(BASE.replace(old, new, 1))
    variant = told.split("'")[1] if told.startswith("variant '") else None
    with pytest.raises(InstanceError) as error:
        read_scenario(path, variant=variant)
    assert str(error.value).startswith(f"{path}: ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_mistake_in_any_variant_is_found(write: Any) -> None:
    path = write(BASE.replace("weight_factor = 2", "weight_facto = 2"))
    with pytest.raises(InstanceError, match="variant 'weights doubled'"):
        read_scenario(path)


def test_names_that_are_not_there(write: Any, tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="unknown variant 'round 6 s'; did you mean 'round 60"):
        read_scenario(write(), variant="round 6 s")
    with pytest.raises(InstanceError, match="no bundled scenario; did you mean 'demo'"):
        read_scenario("dem")
    with pytest.raises(InstanceError, match=r"none\.toml: no such file"):
        read_scenario(tmp_path / "none.toml")
    with pytest.raises(InstanceError, match="seed = -1"):
        read_scenario(write(), seed=-1)
    bare = write(BASE[: BASE.index("[[cluster")] + '[workload]\nkind = "generate"')
    with pytest.raises(InstanceError, match="cluster is missing"):
        read_scenario(bare)


def test_the_bundled_scenario() -> None:
    assert bundled_names() == ("demo",)
    demo = read_scenario("demo")
    assert demo.cluster.types.tolist() == ["T4", "V100", "A10"]
    assert demo.cluster.gpus.tolist() == [12, 12, 12]
    assert 60 <= len(demo.jobs) <= 80
    assert demo.tenants.id.size == 3
    names = variant_names("demo")
    assert len(names) >= 3
    for name in names:
        read_scenario("demo", variant=name)


def a_scenario(**changes: Any) -> Scenario:
    cluster = Cluster.uniform({"T4": 6, "V100": 4}, gpus_per_node=4, memory_gib={"T4": 16})
    jobs = Jobs(
        id=np.array(["a", "b", "c"]),
        gang=np.array([1, 2, 4]),
        work=np.array([10.0, 20.0, 1 / 3]),
        throughput_per_s=np.array([[1.0, 2.0], [0.5, 0.0], [0.1, 0.3]]),
        arrival_s=np.array([5.0, 0.0, 2.5]),
        tenant=np.array([1, 0, 1]),
        config_offsets=np.array([0, 2, 2, 3]),
        config_gpus=np.array([1.0, 2.0, 4.0]),
        config_type=np.array([0.0, 1.0, 1.0]),
        config_throughput_per_s=np.array([1.0, 3.0, 0.4]),
    )
    given: dict[str, Any] = {
        "name": 'a "quoted" name',
        "cluster": cluster,
        "jobs": jobs,
        "tenants": Tenants(["blue", "grün"], [1.0, 2.0], [np.inf, 3.0]),
        "options": ExecutorOptions(
            60, True, 9e6, SwitchCost(charge_move=True), (Failure(1, 3.0), Failure(0, 1.0, 2.0))
        ),
        "true_work": np.array([11.0, 19.0, 0.3]),
        "policy": "fft",
        "parameters": {"modes": ["hard", "reward"], "deep": {"x": 1e-7}, "odd key": True},
    }
    return Scenario(**{**given, **changes})


def test_a_scenario_written_as_files_reads_back(tmp_path: Path) -> None:
    uneven = Cluster(
        types=["A100"],
        type_memory_gib=[80.0],
        nodes=["x", "y"],
        node_type=[0, 0],
        node_gpus=[1, 3],
        node_cpus=[8.0, np.inf],
        node_memory_gib=[np.inf, 64.0],
        node_rack=[0, 1],
        racks=["east", "west"],
    )  # fmt: skip
    one = Jobs(id=["a"], gang=[1], work=[1.0], throughput_per_s=[[1.0]], tenant=[1])
    for index, scenario in enumerate(
        [a_scenario(), a_scenario(cluster=uneven, jobs=one, true_work=None), read_scenario("demo")]
    ):
        path = write_scenario(scenario, tmp_path / f"out-{index}")
        for place in (path, path.parent):
            again = read_scenario(place)
            for name in (
                "name",
                "cluster",
                "jobs",
                "tenants",
                "epoch",
                "seed",
                "options",
                "policy",
            ):
                assert getattr(again, name) == getattr(scenario, name), name
            assert again.parameters == scenario.parameters
            for name in ("true_work", "true_throughput_per_s"):
                before, after = getattr(scenario, name), getattr(again, name)
                assert (before is None) == (after is None)
                assert before is None or np.array_equal(before, after)


def test_jobs_move_to_the_types_of_another_cluster(tmp_path: Path) -> None:
    scenario = a_scenario()
    write_scenario(scenario, tmp_path)
    text = (tmp_path / "scenario.toml").read_text()
    head, _, rest = text.partition("[[tenant]]")
    cluster = '[[cluster.type]]\nname = "V100"\ngpus = 4\n\n'
    text = head[: head.index("[[cluster")] + cluster + "[[tenant]]" + rest
    text = "\n".join(line for line in text.split("[[executor")[0].splitlines())
    (tmp_path / "scenario.toml").write_text(text)
    moved = read_scenario(tmp_path)
    assert moved.jobs.throughput_per_s.tolist() == [[2.0], [0.0], [0.3]]
    assert moved.jobs.config_offsets.tolist() == [0, 1, 1, 2]
    assert moved.jobs.config_gpus.tolist() == [2.0, 4.0]
    (tmp_path / "scenario.toml").write_text(text.replace("V100", "V10"))
    told = (
        r"jobs\.json\.gz: the cluster's GPU type 'V10' has no throughput there; did you mean 'V100'"
    )
    with pytest.raises(InstanceError, match=told):
        read_scenario(tmp_path)


def test_limit_counts_by_arrival(tmp_path: Path) -> None:
    write_scenario(a_scenario(), tmp_path)
    short = read_scenario(tmp_path, overrides={"workload": {"limit": 2}})
    assert short.jobs.id.tolist() == ["b", "c"]
    assert short.true_work is not None
    assert short.true_work.tolist() == [19.0, 0.3]


def test_files_of_jobs_name_their_tenants(tmp_path: Path) -> None:
    scenario = a_scenario()
    path = tmp_path / "jobs.json"
    write_jobs(JobsFile(scenario.cluster.types, scenario.tenants.id, scenario.jobs), path)
    assert read_jobs(path).tenants.tolist() == ["grün", "blue"]  # in order of their first job
    with pytest.raises(InstanceError, match=r'jobs\.tenant\[1\] = "blue": unknown tenant'):
        read_jobs(path, np.array(["grün", "red"]))
    path.write_text(path.read_text().replace('"types"', '"typs"'))
    with pytest.raises(InstanceError, match=r"jobs\.json: file\.typs: unknown key; did you mean"):
        read_jobs(path)


SMALL = """
schema = "apportion/scenario/1"
family = "training"
name = "small"

[cluster]
type = [{ name = "V100", gpus = 8 }, { name = "A100", gpus = 0 }]

[workload]
kind = "generate"
jobs = 2
"""


@pytest.mark.quick
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[workload]", "[wokload]", "wokload: unknown key; did you mean 'workload'?"),
        ("[workload]", "[[varian]]", "varian: unknown key; did you mean 'variant'?"),
        ("[workload]", "[workloads.x]", "workloads: unknown key; did you mean 'workload'?"),
        ('[workload]\nkind = "generate"\njobs = 2', "", "workload is missing"),
        ("[workload]", '[[variant]]\nname = "base"\n[workload]', "variant[0].name = 'base': names"),
        (
            "jobs = 2", 'jobs = 2\n[[variant]]\nname = "v"\n[variant.cluster]\nadd_gpus = { V10 = 1 }',
            "variant 'v': cluster.add_gpus.V10: unknown GPU type; did you mean 'V100'?",
        ),
        (
            "jobs = 2",
            'jobs = 2\n[[variant]]\nname = "v"\n[variant.cluster]\nremove_nodes = ["node-7"]',
            "variant 'v': cluster.remove_nodes[0] = 'node-7': unknown node; did you mean 'node-0'?",
        ),
        (
            "jobs = 2",
            'jobs = 2\n[[variant]]\nname = "v"\n[variant.cluster]\nremove_nodes = ["node-0"]',
            "variant 'v': cluster: has no GPUs left: remove_nodes takes every node",
        ),
        (
            "jobs = 2",
            'jobs = 2\n[[variant]]\nname = "v"\n[variant.workload]\nweight_factor = { defalt = 2 }',
            "variant 'v': workload.weight_factor.defalt: unknown tenant; did you mean 'default'?",
        ),
        ("gpus = 8", "gpus = 0", "cluster: has no GPUs"),
        ("jobs = 2", "jobs = 2\n[truth]\nwork_noise = 1e9", "truth.work_noise = 1000000000.0: must lie"),
        ("A100", "V100", "cluster.type[1].name = 'V100': already used"),
    ],
)  # fmt: skip
def test_every_name_is_checked_when_the_file_is_read(tmp_path, old, new, says):
    path = tmp_path / "s.toml"
    path.write_text(SMALL)
    assert read_scenario(path).cluster.gpus.tolist() == [8, 0]
    path.write_text(SMALL.replace(old, new))
    with pytest.raises(InstanceError) as told:
        read_scenario(path)
    assert str(told.value).startswith(f"{path}: {says}")


@pytest.mark.quick
def test_a_workload_that_is_no_table_and_a_folder_without_a_scenario(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text('schema = "apportion/scenario/1"\nfamily = "training"\nworkload = "x"\n')
    with pytest.raises(InstanceError) as told:
        read_scenario(path)
    assert str(told.value) == f'{path}: workload: expected a table, got "x"'
    with pytest.raises(InstanceError) as told:
        read_scenario(tmp_path)
    assert str(told.value) == f"{tmp_path}: the folder holds no scenario.toml"
