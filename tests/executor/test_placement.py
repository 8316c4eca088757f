"""Placement on nodes: deterministic, sticky, largest gang first, fewest hosts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.executor.training import check, place, scenario_digest
from apportion.executor.training.nodes import FreeGpus, FreeHosts
from apportion.instances.training import (
    Allocation,
    Cluster,
    ExecutorOptions,
    Jobs,
    Placement,
    Scenario,
    Tenants,
    TrainingRound,
)

pytestmark = pytest.mark.quick


def round_of(gangs, nodes, *, held=(), **more):
    """One type; ``held`` are entries (job, node, GPUs) of jobs that run."""
    n = len(gangs)
    running = np.isin(np.arange(n), [job for job, _, _ in held])
    jobs = Jobs(
        id=[f"j{i}" for i in range(n)], gang=gangs, work=[1.0] * n,
        throughput_per_s=np.ones((n, 1)), running=running,
        previous_type=np.where(running, 0, -1), held_gpus=np.where(running, gangs, 0), **more,
    )  # fmt: skip
    cluster = Cluster.uniform({"gpu": sum(nodes)}, gpus_per_node=max(nodes))
    cluster = replace(cluster, node_gpus=nodes) if len(cluster.nodes) == len(nodes) else Cluster(
        types=["gpu"], type_memory_gib=[np.inf], nodes=[f"n{i}" for i in range(len(nodes))],
        node_type=[0] * len(nodes), node_gpus=nodes, node_cpus=[np.inf] * len(nodes),
        node_memory_gib=[np.inf] * len(nodes), node_rack=[0] * len(nodes), racks=["r"],
    )  # fmt: skip
    held = Placement.of(*zip(*held, strict=True)) if held else Placement()
    return TrainingRound(cluster=cluster, jobs=jobs, placement=held)


def everyone(round_, rows=None):
    rows = np.arange(len(round_.jobs)) if rows is None else np.array(rows, dtype=int)
    return Allocation.of(rows, np.zeros(rows.size, dtype=int), round_.jobs.gang[rows])


def where(allocation):
    p = allocation.placement
    out = {}
    for job, node, gpus in zip(p.job.tolist(), p.node.tolist(), p.gpus.tolist(), strict=True):
        out.setdefault(job, {})[node] = gpus
    return out


def placed(round_, rows=None):
    allocation, missing = place(round_, everyone(round_, rows))
    assert missing == []
    assert check(round_, allocation) == []
    return where(allocation)


def test_the_fullest_node_that_has_room():
    assert placed(round_of([4, 2, 1], [8, 4, 2])) == {0: {1: 4}, 1: {2: 2}, 2: {0: 1}}


def test_the_lowest_of_equal_nodes_and_the_lowest_row_first():
    assert placed(round_of([2, 2, 2], [2, 2, 2])) == {0: {0: 2}, 1: {1: 2}, 2: {2: 2}}


def test_the_largest_gang_first():
    assert placed(round_of([1, 4], [4, 2])) == {0: {1: 1}, 1: {0: 4}}


def test_a_large_gang_takes_whole_nodes_and_its_last_piece_the_best_fit():
    assert placed(round_of([10], [4, 3, 8, 2])) == {0: {2: 8, 3: 2}}


def test_a_job_that_stays_keeps_its_gpus():
    held = [(0, 2, 1), (1, 0, 1), (1, 1, 1)]
    assert placed(round_of([1, 2, 1], [4, 4, 4], held=held)) == {
        0: {2: 1}, 1: {0: 1, 1: 1}, 2: {0: 1}
    }  # fmt: skip


def test_an_explicit_placement_is_taken_as_it_is():
    round_ = round_of([1], [4, 4])
    given_ = replace(everyone(round_), placement=Placement.of([0], [1], [1]))
    assert place(round_, given_)[0] is given_


def test_gangs_without_room_for_cpus_are_left_out_and_told():
    round_ = round_of([1, 1, 2], [2, 2], cpus=[3.0, 3.0, 2.0])
    cluster = replace(round_.cluster, node_cpus=[4.0, 4.0])
    round_ = replace(round_, cluster=cluster)
    allocation, missing = place(round_, everyone(round_))
    assert where(allocation) == {0: {1: 1}, 2: {0: 2}}
    assert [one.rule for one in missing] == ["unplaced"]
    assert missing[0].message.startswith("job 'j1': no nodes have room for its 1 GPUs")
    assert check(round_, allocation) == []


def test_memory_splits_in_proportion_to_gpus():
    round_ = round_of([3], [2, 2], memory_gib=[30.0])
    round_ = replace(round_, cluster=replace(round_.cluster, node_memory_gib=[20.0, 15.0]))
    assert placed(round_) == {0: {0: 2, 1: 1}}


GANGS = st.lists(st.integers(1, 9), min_size=1, max_size=12)
NODES = st.lists(st.integers(1, 8), min_size=1, max_size=8)


@given(gangs=GANGS, nodes=NODES, down=st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_whatever_fits_by_count_is_placed_and_legal(gangs, nodes, down):
    round_ = round_of(gangs, nodes)
    up = [not down >> i & 1 for i in range(len(nodes))]
    round_ = replace(round_, node_up=up)
    free, rows = int(round_.capacity[0]), []
    for row, gang in enumerate(gangs):
        if gang <= free:
            free -= gang
            rows.append(row)
    first = placed(round_, rows)
    assert first == placed(round_, rows)


@given(gangs=GANGS, nodes=NODES, seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_both_bookkeepings_place_alike(gangs, nodes, seed):
    """Without CPU limits the scan over nodes and the buckets take the same nodes."""
    round_ = round_of(gangs, nodes)
    up = np.ones(len(nodes), dtype=bool)
    one, two = FreeGpus(round_.cluster, up), FreeHosts(round_.cluster, up, round_.jobs)
    rng, taken = np.random.default_rng(seed), {}
    for _ in range(40):
        row = int(rng.integers(len(gangs)))
        if row in taken:
            hosts = taken.pop(row)
            one.give(row, hosts)
            two.give(row, hosts)
            continue
        hosts = one.take(row, 0, gangs[row])
        assert hosts == two.take(row, 0, gangs[row])
        if hosts is not None:
            taken[row] = hosts


def test_the_digest_sees_every_column():
    jobs = Jobs(id=["a", "b"], gang=[1, 2], work=[1.0, 2.0], throughput_per_s=[[1.0], [1.0]])
    base = Scenario("one", Cluster.uniform({"gpu": 4}), jobs, Tenants.named("t"))
    same = replace(base, name="another", policy="fifo")
    assert scenario_digest(base) == scenario_digest(same)
    others = [
        replace(base, seed=1),
        replace(base, options=ExecutorOptions(round_s=60.0)),
        replace(base, true_work=[1.0, 2.0]),
        replace(base, true_throughput_per_s=[[1.0], [1.0]]),
        replace(base, cluster=Cluster.uniform({"gpu": 5})),
        replace(base, tenants=Tenants.named("u")),
        replace(base, jobs=replace(jobs, weight=[1.0, 2.0])),
        replace(base, jobs=replace(jobs, id=["ab", "b"])),
    ]
    digests = {scenario_digest(one) for one in [base, *others]}
    assert len(digests) == len(others) + 1
