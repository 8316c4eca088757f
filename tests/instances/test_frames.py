"""Rounds from and to pandas tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from apportion.instances import from_frame, to_frame
from apportion.instances.errors import InstanceError
from apportion.instances.training import Cluster, TrainingRound

pytestmark = pytest.mark.quick

CLUSTER = Cluster.uniform({"T4": 4, "V100": 8})


def frame(**changes: Any) -> pd.DataFrame:
    columns = {
        "id": ["a", "b"],
        "gang": [1, 2],
        "work": [1.5, 3.0],
        "throughput_per_s[V100]": [2.0, 3.0],
        "throughput_per_s[T4]": [1.0, 0.0],
    }
    kept = {**columns, **changes}
    return pd.DataFrame({name: values for name, values in kept.items() if values is not None})


def test_there_and_back(small: TrainingRound) -> None:
    table = to_frame(small)
    assert len(table) == 3
    assert table["tenant"].tolist() == ["blue", "green", "green"]
    assert table["previous_type"].fillna("-").tolist() == ["-", "T4", "V100"]
    assert table["throughput_per_s[V100]"].tolist() == [2.0, 0.0, 0.3]
    assert from_frame(table, small.cluster, tenants=small.tenants) == small


def test_the_least_a_table_needs() -> None:
    round_ = from_frame(frame(), CLUSTER, now_s=60)
    assert round_.jobs.throughput_per_s.tolist() == [[1, 2], [0, 3]]
    assert round_.tenants.id.tolist() == ["default"]
    indexed = frame().set_index("id")
    assert from_frame(indexed, CLUSTER, now_s=60) == round_
    named = from_frame(frame(tenant=["x", "y"]), CLUSTER)
    assert named.tenants.id.tolist() == ["x", "y"]
    empty = from_frame(frame().iloc[:0], CLUSTER)
    assert len(empty.jobs) == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"gnag": [1, 2]}, "frame: unknown column 'gnag'; did you mean 'gang'?"),
        ({"throughput_per_s[V10]": [1, 2]}, "unknown column 'throughput_per_s[V10]'; did you mean 'throughput_per_s[V100]'?"),
        ({"throughput_per_s[T4]": None}, "frame: the column 'throughput_per_s[T4]' is missing"),
        ({"gang": None}, "frame: the column 'gang' is missing"),
        ({"work": [1.0, np.nan]}, "frame: work[1] is missing or NaN"),
        ({"gang": [1, 0]}, "jobs.gang[1] = 0 (job 'b'): a gang needs at least 1 GPU"),
        ({"work": ["1", "2"]}, "jobs.work: expected numbers"),
        ({"id": ["a", 2]}, "jobs.id[1] = 2: must be a string"),
        ({"previous_type": ["T4", "V10"]}, "jobs.previous_type[1] = \"V10\": unknown GPU type; did you mean 'V100'?"),
    ],
)  # fmt: skip
def test_wrong_tables(changes: Any, told: str) -> None:
    with pytest.raises(InstanceError) as error:
        from_frame(frame(**changes), CLUSTER)
    assert told in str(error.value)


def test_unknown_tenants_of_a_table(small: TrainingRound) -> None:
    with pytest.raises(InstanceError, match="unknown tenant; did you mean 'blue'"):
        from_frame(frame(tenant=["blue", "bleu"]), CLUSTER, tenants=small.tenants)
