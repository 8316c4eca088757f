"""What several tests of the room need: small inputs, and where the real data are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.instances.training import Cluster, Jobs, Tenants, TrainingRound


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """Find real data, or skip with a message."""
    root = Path(__file__).parents[2] / ".." / "shared" / "data"
    folder = Path(os.environ.get("APPORTION_DATA", root)).resolve()

    def find(name: str) -> Path:
        if not (folder / name).exists():
            pytest.skip(f"no {name} under {folder}: set APPORTION_DATA")
        return folder / name

    return find


@pytest.fixture
def small() -> TrainingRound:
    """Two types, three nodes, two tenants, three jobs."""
    cluster = Cluster.uniform({"T4": 4, "V100": 6}, gpus_per_node=4)
    jobs = Jobs(
        id=np.array(["a", "b", "c"]),
        gang=np.array([1, 2, 4]),
        work=np.array([10.0, 20.0, 30.0]),
        throughput_per_s=np.array([[1.0, 2.0], [0.5, 0.0], [0.1, 0.3]]),
        tenant=np.array([0, 1, 1]),
        previous_type=np.array([-1, 0, 1]),
        lease_end_s=np.array([-1.0, np.inf, 300.0]),
    )
    return TrainingRound(cluster, jobs, tenants=Tenants.named("blue", "green"))


@pytest.fixture
def document() -> dict[str, Any]:
    """A small round as it stands in a file."""
    return {
        "schema": "apportion/round/1",
        "family": "training",
        "now_s": 600.0,
        "cluster": {
            "types": ["T4", "V100"],
            "nodes": ["n0", "n1"],
            "node_type": ["T4", "V100"],
            "node_gpus": [4, 4],
        },
        "tenants": {"id": ["blue", "green"]},
        "jobs": {
            "id": ["a", "b"],
            "gang": [1, 2],
            "work": [10, 20.5],
            "throughput_per_s": [[1, 2], [0.5, 0]],
            "tenant": ["green", "blue"],
            "previous_type": ["V100", None],
            "running": [True, False],
            "held_gpus": [1, 0],
            "deadline_s": [[900, 1200], []],
            "deadline_value": [[2, 1], []],
        },
        "placement": [{"job": "a", "node": "n1", "gpus": 1}],
        "commitments": [{"job": "b", "start_s": 900, "end_s": 1200, "gpus": 2, "gpu_type": "T4"}],
    }
