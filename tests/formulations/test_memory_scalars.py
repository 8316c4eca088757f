"""Single values of a memory that a caller changed by hand: each is named, none crashes a policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import apportion as ap

POLICIES = (
    "oef-cooperative", "oef-noncooperative", "astraea", "gavel-las", "gavel-ftf", "gavel-makespan",
    "gavel-cost", "gavel-throughput", "gandiva-fair", "shockwave",
)  # fmt: skip


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("value", ["x", None, [], np.zeros((2, 2)), {"a": 1}], ids=repr)
def test_a_single_value_of_another_kind_is_named(name: str, value: Any) -> None:
    jobs = ap.Jobs.of(
        id=["a", "b"], gang=[1, 1], work=[1e6, 1e6], throughput_per_s=[[4.0, 1.0], [2.0, 1.0]]
    )
    first = ap.solve(
        ap.TrainingRound(cluster=ap.Cluster.uniform({"v": 1, "k": 1}), jobs=jobs), name
    )
    then = first.next_round()
    memory = ap.solve(then, name, previous=first).memory
    single = [key for key, kept in memory.items() if isinstance(kept, str | int | float)]
    assert single
    for key in single:
        with pytest.raises(ap.InstanceError, match=key if value is not None else "memory"):
            ap.solve(then, name, memory=memory | {key: value})
