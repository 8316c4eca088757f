"""Applications drawn from a seed: valid, repeatable, with the stated statistics."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.microservices import Allocation, CallTrees
from apportion.instances.microservices.generate import GENERATOR_KEYS, GraphGenerator
from apportion.instances.microservices.laws import least_admissible
from apportion.instances.microservices.planned import planned_outcome
from apportion.instances.microservices.round_json import round_from_dict, round_to_dict
from apportion.instances.microservices.scenario_toml import read_scenario

pytestmark = pytest.mark.quick


def longest(trees: CallTrees) -> int:
    """Calls of the longest chain."""
    depth = np.zeros(trees.calls.size, dtype=np.int64)
    for row, parent in enumerate(trees.parent_row):
        depth[row] = 1 if parent < 0 else depth[parent] + 1
    return int(depth.max(initial=0))


@pytest.mark.parametrize("seed", range(8))
def test_a_drawn_application_is_a_round(seed: int) -> None:
    of = GraphGenerator(microservices=40, services=3, classes=6, calls=30, depth=5, most_cost=3.0)
    round_ = of.generate(seed)
    assert round_ == of.generate(seed)
    assert round_ != of.generate(seed + 100)
    assert round_from_dict(round_to_dict(round_)) == round_
    assert len(round_.microservices) == 40
    assert np.bincount(round_.classes.service).max() <= 6
    trees = round_.classes.trees
    assert longest(trees) <= 5
    assert np.diff(trees.offsets).max() <= 30
    assert (round_.services.unmodelled_share < 0.01).all()
    assert round_.microservices.cost.min() >= 1
    assert 1.5 < round_.microservices.cost.max() <= 3
    front = [name.startswith("front") for name in round_.microservices.id]
    assert not round_.demand[front][3:].any()  # entries that no service has


def test_nobody_calls_who_waits_for_it() -> None:
    for seed in range(5):
        trees = (
            GraphGenerator(microservices=8, calls=60, least_calls=20).generate(seed).classes.trees
        )
        for row, parent in enumerate(trees.parent_row.tolist()):
            above = parent
            while above >= 0:
                assert trees.microservice[above] != trees.microservice[row]
                above = int(trees.parent_row[above])


def test_targets_can_be_kept_but_not_by_the_least() -> None:
    for seed in range(5):
        round_ = GraphGenerator(services=2, tightness=0.4).generate(seed)
        nobody = [False, False]
        least = np.maximum(least_admissible(round_), 1)
        few = planned_outcome(round_, Allocation.of(least, nobody))
        many = planned_outcome(round_, Allocation.of(100 * least, nobody))
        target = round_.services.target_ms
        assert (few.latency_tail_ms > target).all()
        assert (many.latency_tail_ms < target).all()


def test_more_services_leave_the_first_as_they_were() -> None:
    one = GraphGenerator(microservices=60, services=1).generate(3).classes
    two = GraphGenerator(microservices=60, services=2).generate(3).classes
    own = two.service == 0
    assert two.share[own] == pytest.approx(one.share)


def test_one_class_stands_for_all() -> None:
    round_ = GraphGenerator(classes=1).generate(0)
    assert round_.classes.share.tolist() == [1.0]
    assert not round_.services.unmodelled_share.any()


def test_the_front_end_calls_as_many_as_published() -> None:
    of = GraphGenerator(
        microservices=400, least_calls=1, calls=1000, depth=2, optional_share=0.0,
        popularity=0.0, repeat_share=0.0, parallel_share=1.0,
    )  # fmt: skip
    number = np.array([
        int((of.generate(seed).classes.trees.parent == 0).sum()) for seed in range(150)
    ])  # fmt: skip
    for count, share in ((1, 0.22), (2, 0.48), (3, 0.18), (4, 0.025)):
        found = float((number == count).mean())
        assert abs(found - share) <= 4 * np.sqrt(share * (1 - share) / 150), count
    assert number.max() > 10


def test_scenarios_have_the_keys_of_the_generator(tmp_path: Path) -> None:
    assert set(GENERATOR_KEYS) == {entry.name for entry in fields(GraphGenerator)}
    path = tmp_path / "scenario.toml"
    head = 'schema = "apportion/scenario/1"\nfamily = "microservices"\nname = "g"\nseed = 4\n'
    path.write_text(head + '[graph]\nkind = "generated"\nmicroservices = 12\nclasses = 3\n')
    scenario = read_scenario(path)
    assert scenario.start == GraphGenerator(microservices=12, classes=3).generate(4)
    assert read_scenario(path, seed=5).start == GraphGenerator(
        microservices=12, classes=3
    ).generate(5)
    fixed = read_scenario(path, seed=5, overrides={"graph": {"seed": 4, "target_ms": 99}})
    assert fixed.start.classes == scenario.start.classes
    assert fixed.start.services.target_ms.tolist() == [99]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"microservices": 2}, r"graph\.microservices = 2"),
    ({"services": 9}, "30 microservices have 4 entries"),
    ({"least_calls": 50}, "is more than calls = 40"),
    ({"optional_share": 1.5}, r"graph\.optional_share = 1\.5"),
    ({"tightness": float("nan")}, "must be finite"),
    ({"classes": 2.5}, "must be a whole number"),
]


@pytest.mark.parametrize(("given_", "said"), BAD, ids=range(len(BAD)))
def test_bad_parameters_are_told(given_: dict[str, Any], said: str) -> None:
    with pytest.raises(InstanceError, match=said):
        GraphGenerator(**given_)
