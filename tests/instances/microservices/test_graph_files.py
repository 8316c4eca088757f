"""Call graphs with branches as files: what they expand to, and bad ones told in a line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from apportion.instances import schemas
from apportion.instances.errors import InstanceError
from apportion.instances.microservices import graph_json
from apportion.instances.microservices.graph_json import graph_from_dict, read_graph
from apportion.instances.microservices.scenario_toml import read_scenario

pytestmark = pytest.mark.quick

SCHEMA = jsonschema.Draft202012Validator(schemas.published("graph-1"))
GRAPH: dict[str, Any] = {
    "schema": "apportion/graph/1",
    "family": "microservices",
    "microservices": {
        "id": ["front", "cache", "store", "mail"],
        "rate_at_rest_per_ms": [1.0, 2.0, 0.5, 0.5],
        "rate_slope_per_ms": [-0.01, -0.01, -0.01, -0.01],
    },
    "services": {
        "id": ["shop", "pay"],
        "rate_per_s": [10, 1],
        "target_ms": [30, 60],
        "unmodelled_share": [0, 0.5],
    },
    "trees": {
        "shop": [
            [
                {
                    "microservice": "front",
                    "stages": [
                        [{"microservice": "cache"}],
                        [{"microservice": "store", "calls": 2, "p": 0.25}],
                    ],
                }
            ]
        ],
        "pay": [
            [{"microservice": "front"}, {"microservice": "mail", "branch": "new"}],
            [
                {
                    "one_of": [
                        {"microservice": "store", "p": 0.5},
                        {"microservice": "cache", "p": 0.5},
                    ]
                }
            ],
        ],
    },
    "joint": {"pay": [{"present": ["new"], "p": 0.2}, {"present": [], "p": 0.8}]},
}


def test_a_graph_is_expanded(tmp_path: Path) -> None:
    SCHEMA.validate(GRAPH)
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(GRAPH))
    round_ = read_graph(path)
    assert round_.classes.id.tolist() == ["shop/1", "shop/2", "pay/1", "pay/2", "pay/3", "pay/4"]
    assert round_.classes.share.tolist() == pytest.approx([0.75, 0.25, 0.2, 0.2, 0.05, 0.05])
    assert round_.services.unmodelled_share.tolist() == [0, 0.5]
    assert round_.demand[:, 1].tolist() == [1, 1, 2, 0]
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(
        'schema = "apportion/scenario/1"\nfamily = "microservices"\nname = "shop"\n'
        '[graph]\nkind = "file"\npath = "graph.json"\n[rates]\nkind = "constant"\nrounds = 2\n'
    )
    assert read_scenario(scenario).start == round_


def test_what_is_dropped_is_unmodelled() -> None:
    few = {**GRAPH, "least_share": 0.15}
    round_ = graph_from_dict(few)
    assert round_.classes.id.tolist() == ["shop/1", "shop/2", "pay/1", "pay/2"]
    assert round_.services.unmodelled_share.tolist() == pytest.approx([0, 0.6])
    one = graph_from_dict({**GRAPH, "most_classes": 1, "rest": "largest"})
    assert one.classes.id.tolist() == ["shop/rest", "pay/rest"]
    assert one.classes.share.tolist() == pytest.approx([1, 0.5])


def test_schema_and_reader_know_the_same_keys() -> None:
    assert set(SCHEMA.schema["properties"]) == set(graph_json.GRAPH_KEYS)


Spoil = Callable[[dict[str, Any]], Any]
SPOILT: list[tuple[Spoil, str, bool]] = [
    (lambda d: d.update(tree=1), "did you mean 'trees'", False),
    (lambda d: d.update(family="training"), "expected 'microservices'", False),
    (lambda d: d.update(schema="apportion/round/1"), "expected 'apportion/graph/1'", False),
    (lambda d: d.pop("trees"), r"graph\.trees is missing", False),
    (lambda d: d["trees"].pop("pay"), r"trees\.pay is missing", True),
    (lambda d: d["trees"].update(pya=[]), "did you mean 'pay'", True),
    (lambda d: d.update(joint=[]), "joint: expected an object", False),
    (lambda d: d["joint"]["pay"][0].update(p=0.3), "sum to 1.1, not to 1", True),
    (lambda d: d.update(rest="larges"), "did you mean 'largest'", False),
    (lambda d: d.update(most_classes=True), r"graph\.most_classes = true", False),
    (lambda d: d.update(most_classes=0), "most_classes = 0: must be at least 1", False),
    (lambda d: d.update(least_share="1"), r"graph\.least_share = \"1\"", False),
    (lambda d: d["trees"]["shop"][0][0].update(p=2), r"shop\[0\]\[0\]\.p = 2", False),
    (lambda d: d["services"].update(target_ms=[0, 1]), r"target_ms\[0\] = 0", False),
]


@pytest.mark.parametrize(("spoil", "said", "by_schema"), SPOILT, ids=range(len(SPOILT)))
def test_bad_graphs_are_told(spoil: Spoil, said: str, by_schema: bool) -> None:
    document = copy.deepcopy(GRAPH)
    spoil(document)
    with pytest.raises(InstanceError, match=said):
        graph_from_dict(document)
    assert SCHEMA.is_valid(document) == by_schema  # what only names or sums tell, the reader does
