"""Placement and reservations that disagree with the jobs and nodes of their round."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from apportion.instances import InstanceError
from apportion.instances.training import TrainingRound
from apportion.instances.training.allocation import Commitments, Placement
from apportion.instances.training.round_json import round_from_dict, round_to_dict

pytestmark = pytest.mark.quick

BASE = {
    "schema": "apportion/round/1",
    "family": "training",
    "now_s": 600.0,
    "cluster": {
        "types": ["V100", "A100"],
        "nodes": ["v1", "v2", "a1"],
        "node_type": ["V100", "V100", "A100"],
        "node_gpus": [4, 4, 4],
    },
    "jobs": {
        "id": ["x", "y", "z"],
        "gang": [6, 2, 2],
        "work": [10, 10, 10],
        "throughput_per_s": [[1, 2], [1, 2], [1, 0]],
        "running": [True, True, False],
        "previous_type": ["V100", "V100", None],
        "held_gpus": [6, 2, 0],
        "config_gpus": [[], [4], []],
        "config_type": [[], ["A100"], []],
        "config_throughput_per_s": [[], [3.0], []],
    },
    "placement": [
        {"job": "x", "node": "v1", "gpus": 4},
        {"job": "x", "node": "v2", "gpus": 2},
        {"job": "y", "node": "v2", "gpus": 2},
    ],
}


def read(placement=None, commitments=None) -> TrainingRound:
    data = copy.deepcopy(BASE)
    if placement is not None:
        keys = ("job", "node", "gpus")
        data["placement"] = [dict(zip(keys, row, strict=True)) for row in placement]
    if commitments is not None:
        keys = ("job", "start_s", "end_s", "gpus", "gpu_type")
        data["commitments"] = [dict(zip(keys, row, strict=True)) for row in commitments]
    return round_from_dict(data)


def test_what_agrees_is_read_and_written():
    round_ = read()
    assert round_from_dict(round_to_dict(round_)) == round_
    assert read([("y", "v2", 2)]).placement.job.tolist() == [1]  # x is placed by nobody
    assert read([]).placement.job.size == 0


@pytest.mark.parametrize(
    ("placement", "says"),
    [
        ([("x", "v1", 9)], "round.placement.gpus[0] = 9: node 'v1' has 4 GPUs"),
        (
            [("x", "v1", 4), ("x", "v2", 2), ("y", "v1", 2)],
            "round.placement.gpus[0] = 4: node 'v1' has 4 GPUs, jobs hold 6 of it",
        ),
        (
            [("y", "a1", 2)],
            "round.placement.node[0] = 2: node 'a1' has A100 GPUs, job 'y' runs on V100",
        ),
        (
            [("y", "v2", 1), ("y", "v2", 1)],
            "round.placement.job[1] = 1: job 'y' names node 'v2' twice",
        ),
        ([("z", "v1", 1)], "round.placement.job[0] = 2: job 'z' holds GPUs but does not run"),
        (
            [("y", "v2", 2), ("x", "v1", 4)],
            "round.placement.gpus[1] = 4: job 'x' holds 6 GPUs by jobs.held_gpus, 4 by its"
            " placement",
        ),
        ([("y", "v2", 0)], "round.placement.gpus[0] = 0: must be at least 1"),
    ],
)
def test_placements_that_disagree_are_refused(placement, says):
    with pytest.raises(InstanceError) as told:
        read(placement)
    assert str(told.value) == says


def test_rows_that_do_not_exist_are_refused():
    for placement in (Placement.of([9], [0], [1]), Placement.of([1], [9], [2])):
        with pytest.raises(InstanceError, match=r"round\.placement\.\w+\[0\] = 9: there are 3"):
            replace(read(), placement=placement)
    with pytest.raises(InstanceError, match=r"round\.commitments\.job\[0\] = -1"):
        replace(read(), commitments=Commitments.of([-1], [0.0], [1.0], [1]))


@pytest.mark.parametrize(
    ("commitments", "says"),
    [
        (
            [("x", 0, 900, 7, None)],
            "round.commitments.gpus[0] = 7: job 'x' asks for 6 GPUs and has no configuration of 7",
        ),
        (
            [("y", 0, 900, 4, "V100")],
            "round.commitments.gpus[0] = 4: job 'y' asks for 2 GPUs and has no configuration of 4"
            " on V100",
        ),
        (
            [("z", 0, 900, 2, "A100")],
            "round.commitments.gpu_type[0] = 'A100': job 'z' cannot run there, its throughput is 0",
        ),
        (
            [("x", 0, 900, 4, "V100"), ("y", 0, 900, 2, None), ("x", 899, None, 4, "A100")],
            "round.commitments.gpu_type[2] = 'A100': job 'x' is promised V100 at the same time by"
            " entry 0",
        ),
        (
            [("x", 0, None, 4, "A100"), ("x", 5, 6, 4, "A100"), ("x", 899, None, 4, "V100")],
            "round.commitments.gpu_type[2] = 'V100': job 'x' is promised A100 at the same time by"
            " entry 0",
        ),
        (
            [("x", 5, 5, 4, None)],
            "round.commitments.end_s[0] = 5.0: must lie after start_s",
        ),
        (
            [("x", -1e300, 5, 4, None)],
            "round.commitments.start_s[0] = -1e+300: must not be beyond 1e+15",
        ),
    ],
)
def test_promises_nobody_can_keep_are_refused(commitments, says):
    with pytest.raises(InstanceError) as told:
        read(commitments=commitments)
    assert str(told.value) == says


def test_promises_that_can_be_kept_are_read():
    rows = [
        ("y", 0, 900, 4, "A100"),
        ("y", 900, 1000, 2, "V100"),
        ("x", 0, 100, 4, "V100"),
        ("z", 0, None, 2, None),
        ("z", 50, None, 2, "V100"),
        ("y", 0, 900, 4, None),
    ]
    assert read(commitments=rows).commitments.job.size == 6


@pytest.mark.parametrize("field", ["now_s", "duration_s"])
@pytest.mark.parametrize("value", [1e16, 1e308, -1e16, 10**400, np.inf])
def test_times_that_cannot_be_told_apart_are_refused(field, value):
    with pytest.raises(InstanceError, match=rf"^round\.{field}[^\n]*(beyond|positive|finite)"):
        replace(read(), **{field: value})


def test_a_round_too_short_to_divide_by_is_refused():
    with pytest.raises(InstanceError, match=r"round.duration_s = 1e-300: is closer to zero"):
        replace(read(), duration_s=1e-300)
