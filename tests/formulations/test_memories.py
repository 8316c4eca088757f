"""Memories that a caller changed by hand, or took from another policy, or asks otherwise with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import apportion as ap

POLICIES = (
    "oef-cooperative", "oef-noncooperative", "astraea", "gavel-las", "gavel-ftf", "gavel-makespan",
    "gavel-cost", "gavel-throughput", "gandiva-fair", "shockwave",
)  # fmt: skip


def then_and_memory(name: str) -> tuple[ap.TrainingRound, Any]:
    """Give a round in which nothing has changed, and what the policy remembers there."""
    jobs = ap.Jobs.of(
        id=["a", "b"], gang=[1, 1], work=[1e6, 1e6], throughput_per_s=[[4.0, 1.0], [2.0, 1.0]]
    )
    first = ap.solve(
        ap.TrainingRound(cluster=ap.Cluster.uniform({"v": 1, "k": 1}), jobs=jobs), name
    )
    then = first.next_round()
    return then, ap.solve(then, name, previous=first).memory


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("value", ["x", None, [], np.zeros((2, 2)), {"a": 1}], ids=repr)
def test_a_single_value_of_another_kind_is_named(name: str, value: Any) -> None:
    then, memory = then_and_memory(name)
    single = [key for key, kept in memory.items() if isinstance(kept, str | int | float)]
    assert single
    for key in single:
        if key == "settings" and isinstance(value, str):
            continue  # any text is one that the parameters may have had
        with pytest.raises(ap.InstanceError, match=key if value is not None else "memory"):
            ap.solve(then, name, memory=memory | {key: value})


@pytest.mark.parametrize("other", ["gavel-cost", "gavel-throughput", "gavel-ftf", "gandiva-fair"])
def test_fractions_of_another_policy_are_not_taken_over(other: str) -> None:
    """Of the two jobs ``gavel-cost`` gives each one GPU: a least level of 2/3, where 1 can be had."""
    then, memory = then_and_memory(other)
    with pytest.raises(ap.InstanceError, match=f"memory.policy = '{other}': this is gavel-las"):
        ap.solve(then, "gavel-las", memory=memory)
    _, own = then_and_memory("gavel-las")
    assert ap.solve(then, "gavel-las", memory=own).stages[-1].name == "remembered"
    del own["policy"], own["settings"]  # as versions before wrote it
    assert ap.solve(then, "gavel-las", memory=own).stages[-1].name == "remembered"


def test_other_parameters_make_new_fractions() -> None:
    """Ratio at prices (100, 1): all the work on the cheap type, not the shares of equal prices."""
    then, memory = then_and_memory("gavel-cost")
    dear = {"prices": {"v": 100.0, "k": 1.0}, "form": "ratio"}
    kept = ap.solve(then, "gavel-cost", memory=memory)
    assert kept.stages[-1].name == "remembered"
    anew = ap.solve(then, "gavel-cost", parameters=dear, memory=memory)
    assert anew.status == "OPTIMAL"
    assert anew.objective == pytest.approx(ap.solve(then, "gavel-cost", parameters=dear).objective)
    assert anew.memory["received_s"].sum() > 0.0
