"""The generator: the distributions it promises, and the same bytes for the same seed."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.files import json_text
from apportion.instances.training import Cluster, Generator, Jobs, generate_jobs
from apportion.instances.training.generate import MODEL_STATE_GB
from apportion.instances.training.jobs_json import jobs_to_dict

pytestmark = pytest.mark.quick

CLUSTER = Cluster.uniform({"T4": 12, "V100": 12, "A10": 12}, gpus_per_node=4)
TENANTS = np.array(["blue", "green"])


def drawn(seed: int = 1, cluster: Cluster = CLUSTER, **options: Any) -> Jobs:
    return generate_jobs(Generator(**{"jobs": 5000, **options}), cluster, TENANTS, seed)


def digest(jobs: Jobs) -> str:
    text = json_text(jobs_to_dict(jobs, CLUSTER.types, TENANTS))
    return hashlib.sha256(text.encode()).hexdigest()


def test_same_seed_same_bytes() -> None:
    assert digest(drawn(jobs=50)) == digest(drawn(jobs=50))
    assert digest(drawn(jobs=50)) != digest(drawn(jobs=50, seed=2))


def test_distributions() -> None:
    jobs = drawn()
    shares = np.array([(jobs.gang == size).mean() for size in (1, 2, 4, 8)])
    assert shares == pytest.approx([0.6, 0.2, 0.15, 0.05], abs=0.02)
    assert jobs.work.min() == 3
    assert jobs.work.max() <= 200
    assert (jobs.work == np.round(jobs.work)).all()
    inner = np.log(jobs.work[(jobs.work > 3) & (jobs.work < 200)])
    assert np.median(np.log(jobs.work)) == pytest.approx(2.2, abs=0.06)
    assert 0.6 < inner.std() < 0.9
    assert (np.bincount(jobs.tenant) / len(jobs)) == pytest.approx([0.5, 0.5], abs=0.03)
    assert set(jobs.model.tolist()) == set(MODEL_STATE_GB)
    assert all(MODEL_STATE_GB[m] == s for m, s in zip(jobs.model, jobs.state_gb, strict=True))


def test_speed_ups_follow_the_law_and_differ_by_model() -> None:
    jobs = drawn()
    ratio = jobs.throughput_per_s / jobs.throughput_per_s[:, :1]
    exponent = np.log(ratio[:, 1]) / np.log(2.0)
    assert ((exponent >= 0.5) & (exponent <= 1.2)).all()
    assert ratio[:, 2] == pytest.approx(2.7**exponent)
    assert np.unique(exponent.round(9)).size == len(MODEL_STATE_GB)


@pytest.mark.parametrize("load", [0.5, 0.8, 1.1])
def test_poisson_arrivals_carry_the_load(load: float) -> None:
    jobs = drawn(load=load)
    gaps = np.diff(jobs.arrival_s)
    assert jobs.arrival_s[0] == 0
    assert (gaps >= 0).all()
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.06)  # exponential
    demand_gpu_s = (jobs.gang * jobs.work / jobs.throughput_per_s.mean(axis=1)).sum()
    assert demand_gpu_s / (36 * jobs.arrival_s[-1]) == pytest.approx(load, rel=0.05)


def test_bursts_keep_the_rate_and_spread_the_gaps() -> None:
    jobs = drawn(jobs=40_000, rate_per_h=60, arrivals="bursty", burst_ratio=10, burst_share=0.1)
    gaps = np.diff(jobs.arrival_s)
    assert 3600 / gaps.mean() == pytest.approx(60, rel=0.1)
    assert gaps.std() / gaps.mean() > 1.15


def test_one_stream_a_purpose() -> None:
    base = drawn(jobs=200)
    gangs = drawn(jobs=200, gang_sizes=(1,), gang_shares=(1.0,))
    assert (gangs.gang == 1).all()
    for name in ("work", "throughput_per_s", "model", "tenant"):
        assert np.array_equal(getattr(gangs, name), getattr(base, name)), name
    rate = drawn(jobs=200, rate_per_h=5)
    bursty = drawn(jobs=200, rate_per_h=5, arrivals="bursty")
    assert (rate.arrival_s != bursty.arrival_s).any()
    for name in ("work", "gang", "throughput_per_s", "model", "tenant"):
        assert np.array_equal(getattr(rate, name), getattr(bursty, name)), name
    longer = drawn(jobs=300, rate_per_h=5)
    for name in ("arrival_s", "work", "gang", "model", "tenant"):  # more jobs come after
        assert np.array_equal(getattr(longer, name)[:200], getattr(rate, name)), name


def test_deadlines() -> None:
    jobs = drawn(slo_share=0.9, soft_share=2 / 3)
    each = np.diff(jobs.deadline_offsets)
    assert (jobs.slo == (each > 0)).all()
    shares = [(each == 4).mean(), (each == 1).mean(), (each == 0).mean()]
    assert shares == pytest.approx([0.6, 0.3, 0.1], abs=0.02)
    duration = jobs.work / jobs.throughput_per_s.max(axis=1)
    first = jobs.deadline_offsets[:-1]
    slo, soft = np.flatnonzero(each > 0), np.flatnonzero(each == 4)
    slack = (jobs.deadline_s[first[slo]] - jobs.arrival_s[slo]) / duration[slo]
    assert slack.min() == pytest.approx(1.1, abs=0.01)
    assert slack.max() == pytest.approx(2.0, abs=0.01)
    assert slack.mean() == pytest.approx(1.55, abs=0.02)
    after = jobs.deadline_s[first[soft][:, None] + np.arange(4)] - jobs.arrival_s[soft][:, None]
    assert after == pytest.approx(after[:, :1] * [1.0, 1.1, 1.2, 1.5])
    assert (jobs.deadline_value[first[soft][:, None] + np.arange(4)] == [10, 8, 5, 2]).all()
    assert (jobs.deadline_value[first[np.flatnonzero(each == 1)]] == 10).all()


def test_deadlines_have_streams_of_their_own() -> None:
    base, none = drawn(jobs=200, slo_share=0.5, soft_share=0.5), drawn(jobs=200)
    assert none.deadline_s.size == 0
    assert not none.slo.any()
    for name in ("arrival_s", "work", "gang", "throughput_per_s", "model", "tenant"):
        assert np.array_equal(getattr(base, name), getattr(none, name)), name
    hard = drawn(jobs=200, slo_share=0.5)
    assert np.array_equal(hard.slo, base.slo)
    assert np.array_equal(hard.deadline_s, base.deadline_s[base.deadline_offsets[:-1][base.slo]])
    more = drawn(jobs=200, slo_share=0.8)
    assert (more.slo | ~hard.slo).all()  # who had a deadline keeps it, at the same time
    kept = np.isin(more.deadline_s, hard.deadline_s)
    assert kept.sum() == hard.deadline_s.size


def test_a_duration_counts_on_types_that_have_room() -> None:
    cluster = Cluster.uniform({"slow": 8, "fast": 2})
    options = {"slo_share": 1, "slack_least": 1, "slack_most": 1, "speed": {"slow": 1, "fast": 2}}
    jobs = drawn(jobs=300, cluster=cluster, rate_per_h=1, **options)
    kind = np.where(jobs.gang <= 2, 1, 0)
    rate = jobs.throughput_per_s[np.arange(300), kind]
    assert jobs.deadline_s == pytest.approx(jobs.arrival_s + jobs.work / rate)
    nowhere = drawn(jobs=9, slo_share=1, rate_per_h=1, speed={"T4": 0, "V100": 0, "A10": 0})
    assert not nowhere.slo.any()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"slo_share": 1.5}, "workload.slo_share = 1.5: must lie in [0, 1]"),
        ({"soft_share": -0.1}, "workload.soft_share = -0.1: must lie in [0, 1]"),
        ({"slack_least": 0}, "workload.slack_least = 0: must be positive"),
        ({"slack_most": 1}, "workload.slack_most = 1: is below slack_least = 1.1"),
        ({"soft_factors": (1.0, 2.0)}, "workload.soft_values has 4 values, soft_factors has 2"),
        ({"soft_factors": (1, 1.1, 1.1, 2)}, "workload.soft_factors = [1, 1.1, 1.1, 2]: must rise"),
        ({"soft_factors": (2, 3, 4, 5)}, "workload.soft_factors = [2, 3, 4, 5]: must start at 1"),
        ({"soft_values": (9, 8, 8, 8.5)}, "workload.soft_values = [9, 8, 8, 8.5]: must not rise"),
        ({"soft_values": (9, 8, 8, -1)}, "workload.soft_values[3] = -1: must not be negative"),
    ],
)
def test_deadlines_that_cannot_be_drawn(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InstanceError) as error:
        Generator(**options)
    assert told in str(error.value)


def test_edges() -> None:
    assert len(drawn(jobs=0)) == 0
    assert drawn(jobs=1).arrival_s.tolist() == [0.0]
    assert drawn(jobs=1, arrivals="bursty").arrival_s.tolist() == [0.0]
    eight = drawn(jobs=10, gang_sizes=(4,), gang_shares=(1,), gang_exponent=1.0)
    one = drawn(jobs=10, gang_sizes=(4,), gang_shares=(1,))
    assert eight.throughput_per_s == pytest.approx(4 * one.throughput_per_s)
    stopped = drawn(jobs=10, speed={"T4": 1, "V100": 0, "A10": 2})
    assert (stopped.throughput_per_s[:, 1] == 0).all()
    assert (drawn(jobs=50, tenant_share={"green": 1}).tenant == 1).all()


def test_what_cannot_be_drawn() -> None:
    empty = Cluster.uniform({"T4": 0})
    with pytest.raises(InstanceError, match=r"workload\.load = 0\.8: needs GPUs that the jobs"):
        drawn(cluster=empty)
    assert len(drawn(cluster=empty, rate_per_h=5)) == 5000
    four = Cluster.uniform({"A": 1, "B": 1, "C": 1, "D": 1})
    with pytest.raises(InstanceError, match=r"workload\.speed is missing"):
        drawn(cluster=four)
    with pytest.raises(InstanceError, match=r"workload\.jobs = -1: must lie in"):
        Generator(jobs=-1)
    with pytest.raises(InstanceError, match=r"workload\.gang_shares: at least one must be pos"):
        Generator(gang_shares=(0.0, 0.0, 0.0, 0.0))
    with pytest.raises(InstanceError, match=r"workload\.models is empty"):
        Generator(models={})
    with pytest.raises(InstanceError, match=r"workload\.burst_share = 1\.5: must lie in \(0, 0"):
        Generator(burst_share=1.5)
    with pytest.raises(InstanceError, match=r"tenant_share: at least one must be positive"):
        drawn(tenant_share={})
