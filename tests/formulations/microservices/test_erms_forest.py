"""Call trees as stages: times up the tree, room and parts down it, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.formulations.microservices.forest import Forest
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Services,
)

pytestmark = pytest.mark.quick
IDS = list("abcde")


@pytest.fixture
def forest() -> Forest:
    """A, which calls b and c side by side and then d twice; and a class of e alone, and one unused."""
    tree = [[{"microservice": "a", "stages": [
        [{"microservice": "b"}, {"microservice": "c"}], [{"microservice": "d", "calls": 2.0}],
    ]}]]  # fmt: skip
    round_ = MicroserviceRound(
        Microservices.of(IDS, 1.0, -0.1), Services.of(["s"], 1.0, 20.0),
        CallClasses.of(
            ["tree", "idle", "alone"],
            CallTrees.nested([tree, [[{"microservice": "b"}]], [[{"microservice": "e"}]]], IDS),
            share=[0.5, 0.0, 0.5],
        ),
    )  # fmt: skip
    return Forest.of(round_)


def by_name(forest: Forest, column: np.ndarray) -> dict[str, float]:
    names = [IDS[m] for m in forest.microservice.tolist()]
    return dict(zip(names, column.tolist(), strict=True))


def of(forest: Forest, **values: float) -> np.ndarray:
    return np.array([values[IDS[m]] for m in forest.microservice.tolist()])


def test_who_is_there(forest: Forest) -> None:
    assert sorted(IDS[m] for m in forest.microservice) == IDS
    assert by_name(forest, forest.repeats) == {"a": 1, "b": 1, "c": 1, "d": 2, "e": 1}
    assert by_name(forest, forest.root) == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 1}
    assert by_name(forest, forest.service) == dict.fromkeys(IDS, 0)


def test_latency_is_the_sum_over_stages_of_the_latest(forest: Forest) -> None:
    node, _ = forest.latency(of(forest, a=1.0, b=2.0, c=5.0, d=3.0, e=7.0))
    assert node[forest.calls :].tolist() == [9.0, 7.0]
    assert by_name(forest, node[: forest.calls])["a"] == 9.0


def test_allowance_is_own_time_and_the_room_of_the_path(forest: Forest) -> None:
    own = of(forest, a=1.0, b=2.0, c=5.0, d=3.0, e=7.0)
    allowed = forest.allowance(own, np.array([12.0, 10.0]))
    # 3 to spare; b could take 3 more, as c does
    assert by_name(forest, allowed) == {"a": 4.0, "b": 8.0, "c": 8.0, "d": 6.0, "e": 10.0}


def test_critical_calls(forest: Forest) -> None:
    found = by_name(forest, forest.critical(of(forest, a=1.0, b=2.0, c=5.0, d=3.0, e=7.0)))
    assert found == {"a": True, "b": False, "c": True, "d": True, "e": True}


def test_split_gives_bases_and_parts_by_weight(forest: Forest) -> None:
    base = of(forest, a=1.0, b=0.0, c=2.0, d=0.0, e=0.0)
    weight = of(forest, a=1.0, b=3.0, c=2.0, d=6.0, e=0.0)
    share = by_name(forest, forest.split(base, weight, np.array([23.0, 10.0])))
    # 20 beyond the bases 1 and 2, parts of 10: a 1, stage 3, d 6; b gets what the stage gets
    assert share == {"a": 3.0, "b": 8.0, "c": 8.0, "d": 12.0, "e": 0.0}


def test_rows_of_a_model(forest: Forest) -> None:
    row, upper = forest.rows(np.array([20.0, 30.0]))
    found = by_name(forest, row[: forest.calls])
    assert (found["a"], found["d"], found["e"]) == (0, 0, 1)
    assert {found["b"], found["c"]} == {2, 3}
    assert upper.tolist() == [20.0, 30.0, 0.0, 0.0]
