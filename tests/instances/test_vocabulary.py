"""Constructors refuse what does not describe a round, naming object, field, index and value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError, nearest
from apportion.instances.training import (
    Allocation,
    Cluster,
    ExecutorOptions,
    Failure,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
    never_fits,
)

pytestmark = pytest.mark.quick

CLUSTER = Cluster.uniform({"T4": 4, "V100": 8}, memory_gib={"T4": 16})


def jobs(**changes: Any) -> Jobs:
    columns: dict[str, Any] = {
        "id": ["a", "b"],
        "gang": [1, 2],
        "work": [10.0, 20.0],
        "throughput_per_s": [[1.0, 2.0], [0.5, 0.0]],
    }
    return Jobs(**{**columns, **changes})


def due(offsets: Any, at_s: Any, value: Any, **others: Any) -> dict[str, Any]:
    return {"deadline_offsets": offsets, "deadline_s": at_s, "deadline_value": value, **others}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"work": [np.nan, 1]}, "jobs.work[0] = NaN: not a number"),
        ({"work": [1, np.inf]}, "jobs.work[1] = inf (job 'b'): must be finite"),
        ({"throughput_per_s": [[1, np.nan], [1, 1]]}, "jobs.throughput_per_s[0, 1] = NaN"),
        ({"throughput_per_s": [[1, np.inf], [1, 1]]}, "jobs.throughput_per_s[0, 1] = inf (job 'a')"),
        ({"throughput_per_s": [[1, 1]]}, "jobs.throughput_per_s has shape (1, 2), expected (2, GPU types)"),
        ({"throughput_per_s": [1, 1]}, "jobs.throughput_per_s has shape (2,)"),
        ({"throughput_per_s": [[1, -1], [1, 1]]}, "jobs.throughput_per_s[0, 1] = -1.0 (job 'a'): must not be negative"),
        ({"gang": [0, 1]}, "jobs.gang[0] = 0 (job 'a'): a gang needs at least 1 GPU"),
        ({"gang": [1.5, 1]}, "jobs.gang[0] = 1.5: must be whole"),
        ({"gang": [np.inf, 1]}, "jobs.gang[0] = inf: must be whole"),
        ({"gang": [2**64, 1]}, "jobs.gang"),
        ({"id": ["a", "a"]}, "jobs.id[1] = 'a': already used at index 0"),
        ({"id": ["a", ""]}, "jobs.id[1] is empty"),
        ({"weight": [1, 0]}, "jobs.weight[1] = 0.0 (job 'b'): must be positive"),
        ({"lease_end_s": [-2, 0]}, "jobs.lease_end_s[0] = -2.0 (job 'a'): -1 (no lease) or a time"),
        ({"lease_end_s": [-np.inf, 0]}, "jobs.lease_end_s[0] = -inf"),
        ({"previous_type": [2, 0]}, "jobs.previous_type[0] = 2 (job 'a'): there are 2 GPU types"),
        ({"min_gpus": [2, 2], "max_gpus": [1, 2]}, "jobs.max_gpus[0] = 1 (job 'a'): must not be below"),
        ({"code": [3, 3]}, "jobs.code: codes must differ"),
        ({"deadline_s": [1.0]}, "jobs.deadline_s is given without jobs.deadline_offsets"),
        (due([0, 1, 2], [5, 6], [1, 1], arrival_s=[5, 6.5]), "jobs.deadline_s[1] = 6.0 (job 'b'): must not lie before the job's arrival_s"),
        (due([0, 1, 3], [5, 6, 6], [1, 3, 2]), "jobs.deadline_s[2] = 6.0: must rise within a job"),
        (due([0, 0, 2], [5, 6], [2, 2.5]), "jobs.deadline_value[1] = 2.5 (job 'b'): must not rise within a job: finishing later is worth no more"),
        (due([0, 1, 2], [5, np.nan], [1, 1]), "jobs.deadline_s[1] = NaN: not a number"),
        (due([0, 1, 2], [5, 6], [1, np.inf]), "jobs.deadline_value[1] = inf: must be finite"),
        (due([0, 1, 2], [5, 6], [1, -1]), "jobs.deadline_value[1] = -1.0 (job 'b'): must not be negative"),
        (due([0, 1, 3], [5, 6], [1, 1]), "jobs.deadline_offsets must rise from 0 to the number of values, 2; got [0, 1, 3]"),
        (due([0, 2], [5, 6], [1, 1]), "jobs.deadline_offsets has shape (2,), expected (3,)"),
    ],
)  # fmt: skip
def test_jobs(changes: Any, told: str) -> None:
    with pytest.raises(InstanceError) as error:
        jobs(**changes)
    assert told in str(error.value)


def test_deadlines_at_their_limits() -> None:
    """A deadline at the arrival, equal values, and a next job that is worth more all pass."""
    whole = jobs(**due([0, 2, 3], [5, 6, 5], [2, 2, 9], arrival_s=[5, 5]))
    assert whole.deadline_value.tolist() == [2, 2, 9]
    assert len(jobs(**due([0, 0, 0], [], [])).deadline_s) == 0


def cluster(**changes: Any) -> Cluster:
    columns: dict[str, Any] = {
        "types": ["T4"], "type_memory_gib": [16], "nodes": ["x"], "node_type": [0],
        "node_gpus": [4], "node_cpus": [8], "node_memory_gib": [64], "node_rack": [0],
        "racks": ["r"],
    }  # fmt: skip
    return Cluster(**{**columns, **changes})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"node_gpus": [0]}, "cluster.node_gpus[0] = 0: a node needs at least 1 GPU"),
        ({"node_gpus": [-4]}, "cluster.node_gpus[0] = -4"),
        ({"node_type": [1]}, "cluster.node_type[0] = 1: there are 1 GPU types"),
        ({"types": []}, "cluster.types is empty"),
        ({"types": ["T4", "T4"]}, "cluster.types[1] = 'T4': already used"),
        ({"type_memory_gib": [np.nan]}, "cluster.type_memory_gib[0] = NaN"),
        ({"node_memory_gib": [-1]}, "cluster.node_memory_gib[0] = -1.0: must not be negative"),
        ({"node_rack": [3]}, "cluster.node_rack[0] = 3: there are 1 racks"),
    ],
)
def test_clusters(changes: Any, told: str) -> None:
    with pytest.raises(InstanceError) as error:
        cluster(**changes)
    assert told in str(error.value)


def test_clusters_from_counts() -> None:
    with pytest.raises(InstanceError, match=r"cluster\.gpus\['T4'\] = -1: must not be negative"):
        Cluster.uniform({"T4": -1})
    with pytest.raises(InstanceError, match="unknown GPU type 'V10'; did you mean 'V100'"):
        Cluster.uniform({"V100": 4}, memory_gib={"V10": 16})
    with pytest.raises(InstanceError, match="unknown GPU type 'V10'; did you mean 'V100'"):
        CLUSTER.type_index("V10")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"jobs": jobs(arrival_s=[0, 10])}, "jobs.arrival_s[1] = 10.0 (job 'b'): arrives after the round's now_s = 0.0"),
        ({"jobs": jobs(throughput_per_s=[[1], [1]])}, "jobs.throughput_per_s has 1 columns, the cluster has 2 GPU types"),
        ({"jobs": jobs(tenant=[0, 1])}, "jobs.tenant[1] = 1 (job 'b'): there are 1 tenants"),
        ({"now_s": np.nan}, "round.now_s = nan: must be finite"),
        ({"now_s": "1"}, "round.now_s = '1': must be a number"),
        ({"duration_s": 0}, "round.duration_s = 0.0: must be positive"),
        ({"duration_s": np.inf}, "round.duration_s = inf: must be finite"),
        ({"reasons": ("arival",)}, "round.reasons: 'arival'; did you mean 'arrival'?"),
        ({"node_up": [True]}, "round.node_up has shape (1,), expected (2,)"),
    ],
)  # fmt: skip
def test_rounds(changes: Any, told: str) -> None:
    with pytest.raises(InstanceError) as error:
        TrainingRound(**{"cluster": CLUSTER, "jobs": jobs(), **changes})
    assert told in str(error.value)


def test_tenants() -> None:
    with pytest.raises(InstanceError, match=r"tenants\.weight\[1\] = -1\.0: must be positive"):
        Tenants(["a", "b"], [1, -1], [np.inf, np.inf])
    with pytest.raises(InstanceError, match=r"tenants\.id\[1\] = 'a': already used"):
        Tenants.named("a", "a")


def test_scenarios() -> None:
    def scenario(**changes: Any) -> Scenario:
        parts: dict[str, Any] = {"cluster": CLUSTER, "jobs": jobs(), "tenants": Tenants.named("x")}
        return Scenario("s", **{**parts, **changes})

    for changes, told in [
        ({"epoch": "2025-01-01"}, "epoch = '2025-01-01': needs an offset"),
        ({"epoch": "soon"}, "epoch = 'soon': must be an ISO-8601 instant"),
        ({"true_work": [1.0, 0.0]}, "scenario.true_work[1] = 0.0 (job 'b'): must be positive"),
        ({"options": ExecutorOptions(failures=(Failure(7, 1.0),))}, "executor.failures: node 7 of 2"),
    ]:  # fmt: skip
        with pytest.raises(InstanceError) as error:
            scenario(**changes)
        assert told in str(error.value)


def test_gangs_that_never_fit_are_reported_not_refused() -> None:
    round_ = TrainingRound(
        CLUSTER,
        jobs(
            id=["fits", "large", "nowhere", "memory"],
            gang=[8, 9, 1, 1],
            work=[1.0] * 4,
            throughput_per_s=[[1, 1], [1, 1], [0, 0], [1, 0]],
            gpu_memory_gib=[0, 0, 0, 40],
        ),
    )
    assert never_fits(round_) == [
        (1, "its gang of 9 GPUs is larger than any type it runs on (8 GPUs)"),
        (2, "no GPU type has a throughput for it"),
        (3, "its model needs 40 GiB on each GPU, more than any type it runs on has"),
    ]


def test_columns_are_read_only_and_views_equal_copies() -> None:
    whole = jobs(
        deadline_offsets=[0, 1, 3], deadline_s=[5.0, 6.0, 7.0], deadline_value=[1.0, 3.0, 2.0]
    )
    with pytest.raises(ValueError, match="read-only"):
        whole.work[0] = 3
    part = whole.take(np.array([1]))
    again = jobs(
        id=["b"], gang=[2], work=[20.0], throughput_per_s=[[0.5, 0.0]], code=[1],
        deadline_offsets=[0, 2], deadline_s=[6.0, 7.0], deadline_value=[3.0, 2.0],
    )  # fmt: skip
    assert part == again
    assert len(part) == 1
    moved = whole.take(np.array([1]), {"deadline_s": np.array([16.0, 17.0])})
    assert moved.deadline_value.tolist() == [3, 2]  # read first: it must not bring the old times
    assert moved.deadline_s.tolist() == [16, 17]


def test_allocations() -> None:
    with pytest.raises(InstanceError, match=r"allocation\.gpus has shape \(1,\), expected \(2,\)"):
        Allocation.of([0, 1], [0, 0], [1])
    with pytest.raises(InstanceError, match=r"allocation\.lease_end_s\[0\] = NaN"):
        Allocation.of([0], [0], [1], lease_end_s=[np.nan])


def test_the_nearest_word() -> None:
    assert nearest("gagn", ["gang", "work"]) == "; did you mean 'gang'?"
    assert nearest("zzz", ["gang", "work"]) == "; known: gang, work"
    long = nearest("zzz", [f"job-{index}" for index in range(4000)])
    assert long.endswith("and 3988 more")
    assert len(long) < 200
    assert nearest("zzz", []) == ""


@pytest.mark.quick
def test_nearest_looks_past_case_and_lists_no_empty_name():
    assert nearest("FFT", ["fft", "fifo"]) == "; did you mean 'fft'?"
    assert nearest("v100", ["V100", "A100"]) == "; did you mean 'V100'?"
    assert nearest("zzz", ["", "A100"]) == "; known: A100"
    assert nearest("zzz", [""]) == ""


@pytest.mark.quick
def test_names_with_a_nul_are_refused():
    with pytest.raises(InstanceError) as told:
        Jobs.of(id=["a", "b\0"], gang=[1, 1], work=[1, 1], throughput_per_s=[[1.0]] * 2)
    assert str(told.value) == "jobs.id[1] = 'b\\x00': must not hold a NUL character"
