"""Rounds, plans and outcomes of microservices as files: equal when read back, bad ones told."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from apportion.instances import schemas
from apportion.instances.errors import InstanceError
from apportion.instances.files import json_text, parse_json
from apportion.instances.microservices import (
    Allocation,
    CallClasses,
    CallTrees,
    LinearLatency,
    MicroserviceRound,
    Microservices,
    Nodes,
    Observed,
    Outcome,
    Services,
    round_json,
)
from apportion.instances.microservices.answer_json import (
    allocation_from_dict,
    allocation_to_dict,
    outcome_from_dict,
    outcome_to_dict,
)
from apportion.instances.microservices.round_json import (
    read_round,
    round_from_dict,
    round_to_dict,
    write_round,
)
from apportion.instances.policy import REASONS

pytestmark = pytest.mark.quick

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)
NAMES = TEXT.filter(bool)
AMOUNT = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
POSITIVE = st.floats(1e-6, 1e6)
LATENCY = st.one_of(st.just(np.inf), AMOUNT)


def column(draw: st.DrawFn, of: st.SearchStrategy[Any], count: int) -> list[Any]:
    return draw(st.lists(of, min_size=count, max_size=count))


def unique(draw: st.DrawFn, count: int) -> list[str]:
    return draw(st.lists(NAMES, min_size=count, max_size=count, unique=True))


@st.composite
def trees(draw: st.DrawFn, m: int, k: int) -> CallTrees:
    sizes = column(draw, st.integers(0, 6), k) if m else [0] * k
    parent: list[int] = []
    for size in sizes:
        parent += [draw(st.integers(-1, place - 1)) for place in range(size)]
    count = sum(sizes)
    return CallTrees(
        np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
        np.array(column(draw, st.integers(0, max(m - 1, 0)), count)),
        np.array(parent),
        np.array(column(draw, st.integers(0, 4), count)),
        np.array(column(draw, st.one_of(st.just(1.0), POSITIVE), count)),
    )


@st.composite
def microservices(draw: st.DrawFn, m: int) -> Microservices:
    rest = np.array(column(draw, st.floats(1e-3, 1e3), m))
    slope = -np.array(column(draw, st.floats(1e-4, 10), m))
    least = rest * np.array(column(draw, st.floats(1e-3, 0.9), m))
    fewest = np.array(column(draw, st.integers(0, 9), m), dtype=np.int64)
    return Microservices.of(
        unique(draw, m), rest, slope,
        shift_ms=column(draw, AMOUNT, m),
        least_rate_per_ms=least,
        least_load_per_s=0.5 * (least - rest) / slope,
        cost=column(draw, POSITIVE, m),
        cpu_cores=column(draw, AMOUNT, m),
        memory_mib=column(draw, AMOUNT, m),
        least_containers=fewest,
        most_containers=fewest + np.array(column(draw, st.integers(0, 9), m), dtype=np.int64),
    )  # fmt: skip


def split(draw: st.DrawFn, owner: list[int], services: int) -> tuple[list[float], list[float]]:
    """Shares of the classes and what of each service follows none: together 1."""
    weight = np.array(column(draw, st.floats(0, 1), len(owner)))
    rest = np.array(column(draw, st.floats(0.01, 1), services))
    total = rest + np.bincount(np.array(owner, dtype=np.int64), weight, minlength=services)
    return (weight / total[owner]).tolist() if owner else [], (rest / total).tolist()


@st.composite
def rounds(draw: st.DrawFn) -> MicroserviceRound:
    m, s = draw(st.integers(0, 4)), draw(st.integers(1, 3))
    k, j = draw(st.integers(0, 4)), draw(st.integers(1, 3))
    owner = column(draw, st.integers(0, s - 1), k)
    share, lost = split(draw, owner, s)
    budget = column(draw, st.floats(1e-3, 0.9), s)
    before = np.array(column(draw, AMOUNT, m))
    own = draw(microservices(m))
    # bounds that no plan can keep are refused
    cpu, memory = (float(of @ own.least_containers) for of in (own.cpu_cores, own.memory_mib))
    sizes, used = (np.array([column(draw, AMOUNT, j) for _ in range(2)]) for _ in range(2))
    sizes[:, 0] += used[:, 0] + [cpu, memory]
    optional: dict[str, Any] = {
        "containers": column(draw, st.integers(0, 99), m),
        "nodes": Nodes.of(unique(draw, j), *sizes, *used),
        "linear": LinearLatency(
            before, column(draw, AMOUNT, m), before + 1.0,
            column(draw, st.floats(-1e3, 1e3), m), column(draw, LATENCY, m),
        ),
        "share_error": column(draw, st.floats(0, 2), s),
        "observed": Observed(
            *(column(draw, LATENCY, m) for _ in range(3)),
            *(column(draw, LATENCY, s) for _ in range(2)),
            column(draw, st.booleans(), s),
        ),
        "cpu_cores": cpu + draw(POSITIVE),
        "memory_mib": memory + draw(POSITIVE),
        "now_s": draw(st.floats(-1e6, 1e6)),
        "duration_s": draw(POSITIVE),
        "index": draw(st.integers(0, 9)),
        "reasons": tuple(draw(st.lists(st.sampled_from(REASONS), max_size=2))),
    }  # fmt: skip
    kept = draw(st.sets(st.sampled_from(sorted(optional))))
    return MicroserviceRound(
        own,
        Services.of(
            unique(draw, s), column(draw, AMOUNT, s), column(draw, POSITIVE, s), budget, lost
        ),
        CallClasses.of(unique(draw, k), draw(trees(m, k)), share=share, service=owner),
        **{name: value for name, value in optional.items() if name in kept},
    )


SCHEMA = jsonschema.Draft202012Validator(schemas.published("microservices-round-1"))
USUAL = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@USUAL
@given(rounds())
def test_reading_back_gives_an_equal_round(round_: MicroserviceRound) -> None:
    text = json_text(round_to_dict(round_))
    back = round_from_dict(parse_json(text))
    assert back == round_
    assert json_text(round_to_dict(back)) == text
    SCHEMA.validate(json.loads(text))


@USUAL
@given(rounds(), st.data())
def test_reading_back_gives_equal_answers(round_: MicroserviceRound, data: st.DataObject) -> None:
    draw: Any = data.draw
    m, s, k = len(round_.microservices), len(round_.services), len(round_.classes)
    nodes = 0 if round_.nodes is None else len(round_.nodes)
    count = st.integers(0, 50)
    plan = Allocation.of(
        column(draw, count, m),
        column(draw, st.booleans(), s),
        rank=column(draw, count, k) if draw(st.booleans()) else None,
        placement=np.array(column(draw, count, m * nodes), dtype=np.int64).reshape(m, nodes)
        if nodes and draw(st.booleans())
        else None,
    )
    told = parse_json(json_text(allocation_to_dict(round_, plan)))
    assert allocation_from_dict(round_, told) == plan
    outcome = Outcome.of(
        0.0, 60.0,
        class_requests=column(draw, AMOUNT, k),
        violations=column(draw, AMOUNT, s),
        unmodelled_requests=column(draw, AMOUNT, s),
        latency_tail_ms=column(draw, LATENCY, s),
        serving=column(draw, AMOUNT, m),
        assumed=draw(st.booleans()),
    )  # fmt: skip
    told = parse_json(json_text(outcome_to_dict(round_, outcome)))
    back = outcome_from_dict(round_, told)
    assert (back.start_s, back.end_s, back.assumed) == (0.0, 60.0, outcome.assumed)
    for name in ("class_requests", "violations", "unmodelled_requests", "latency_tail_ms"):
        assert np.array_equal(getattr(back, name), getattr(outcome, name)), name


def a_document() -> dict[str, Any]:
    return {
        "schema": "apportion/round/1",
        "family": "microservices",
        "microservices": {
            "id": ["front", "cart", "store"],
            "rate_at_rest_per_ms": [1, 0.6, 0.5],
            "rate_slope_per_ms": [-0.01, -0.02, -0.1],
        },
        "services": {
            "id": ["shop", "pay"],
            "rate_per_s": [100, 5],
            "target_ms": [30, 50],
            "unmodelled_share": [0.1, 0],
        },
        "classes": {
            "id": ["light", "heavy", "pay"],
            "service": ["shop", "shop", "pay"],
            "share": [0.8, 0.1, 1],
            "stages": [
                [[{"microservice": "front"}]],
                [
                    [{"microservice": "front", "stages": [[{"microservice": "cart", "calls": 2}]]}],
                    [{"microservice": "store", "calls": 3}, {"microservice": "cart"}],
                ],
                [[{"microservice": "store"}]],
            ],
        },
        "containers": {"front": 3, "cart": 2, "store": 1},
        "nodes": {"id": ["n0"], "cpu_cores": [52], "memory_mib": [131072]},
        "share_error": {"shop": 0.2},
    }


def test_what_a_document_means(tmp_path: Path) -> None:
    SCHEMA.validate(a_document())
    round_ = round_from_dict(a_document())
    assert round_.demand.tolist() == [[1, 1, 0], [0, 3, 0], [0, 3, 1]]
    assert round_.classes.service.tolist() == [0, 0, 1]
    assert round_.services.violation_budget.tolist() == [0.05, 0.05]
    assert round_.microservices.shift_ms.tolist() == [0, 0, 0]
    assert round_.share_error.tolist() == [0.2, 0]
    for name in ("round.json", "round.json.gz"):
        write_round(round_, tmp_path / name)
        assert read_round(tmp_path / name) == round_


def test_schema_and_reader_know_the_same_keys() -> None:
    schema = schemas.published("microservices-round-1")
    assert set(schema["properties"]) == set(round_json.ROUND_KEYS)
    classes = schema["properties"]["classes"]
    assert set(classes["properties"]) == set(round_json.CLASS_KEYS)


def deep(depth: int) -> CallTrees:
    """A chain of calls, each made by the one before."""
    place = np.arange(depth)
    return CallTrees(
        np.array([0, depth]), np.zeros(depth, int), place - 1, np.zeros(depth, int), np.ones(depth)
    )


def test_trees_too_deep_to_nest_are_written_as_columns() -> None:
    depth = 20_000
    round_ = MicroserviceRound(
        Microservices.of(["a"], 1.0, -0.1),
        Services.of(["s"], 1.0, 1e6),
        CallClasses.of(["k"], deep(depth)),
    )
    told = round_to_dict(round_)
    assert "calls" in told["classes"]
    assert round_from_dict(parse_json(json_text(told))) == round_


Spoil = Callable[[dict[str, Any]], Any]
SPOILT: list[tuple[Spoil, str]] = [
    (lambda d: d.update(familly=1), r"round\.familly: unknown key; did you mean 'family'"),
    (lambda d: d.update(family="training"), "expected 'microservices'"),
    (lambda d: d.pop("services"), r"round\.services is missing"),
    (lambda d: d.update(schema="apportion/round/2"), "later version"),
    (lambda d: d.update(index=-1), r"round\.index = -1"),
    (lambda d: d.update(duration_s=0), r"round\.duration_s = 0\.0"),
    (lambda d: d.update(now_s=True), r"round\.now_s = True"),
    (lambda d: d.update(cpu_cores=-1), "must not be negative"),
    (lambda d: d.update(reasons=["boundry"]), "did you mean 'boundary'"),
    (lambda d: d["microservices"].update(shift=[0] * 3), "did you mean 'shift_ms'"),
    (lambda d: d["microservices"].pop("rate_slope_per_ms"), "rate_slope_per_ms is missing"),
    (lambda d: d["microservices"].update(cost=[1, 2]), r"cost has 2 values, .* has 3"),
    (
        lambda d: d["microservices"].update(rate_at_rest_per_ms=[1, 0, 1]),
        r"rate_at_rest_per_ms\[1\] = 0\.0 \(microservice 'cart'\)",
    ),
    (
        lambda d: d["microservices"].update(rate_slope_per_ms=[-0.1, -0.1, 0.1]),
        r"rate_slope_per_ms\[2\] = 0\.1 \(microservice 'store'\): must be negative",
    ),
    (lambda d: d["microservices"].update(cost=["1", 1, 1]), r"cost\[0\] = \"1\""),
    (lambda d: d["microservices"].update(id=["a", "a", "b"]), r"id\[1\] = 'a': already used"),
    (lambda d: d["services"].update(target_ms=[0, 1]), r"target_ms\[0\] = 0\.0 \(service 'shop'\)"),
    (lambda d: d["services"].update(violation_budget=[0.05, 5]), "must lie between 0 and 1"),
    (lambda d: d["classes"].update(share=[0.8, 0.1, 0.9]), r"\(service 'pay'\): .* sum to 1"),
    (lambda d: d["classes"].update(service=["shop", "shp", "pay"]), "did you mean 'shop'"),
    (lambda d: d["classes"].pop("service"), "more than one service"),
    (lambda d: d["classes"].update(stages=[[]]), "expected a list of 3"),
    (lambda d: d["classes"].pop("stages"), "either 'stages' or 'calls'"),
    (
        lambda d: d["classes"]["stages"][1][1][0].update(microservice="stoer"),
        r"classes\.stages\[1\]\[1\]\[0\]\.microservice = 'stoer': .* did you mean 'store'",
    ),
    (
        lambda d: d["classes"]["stages"][1][1][0].update(microservice=["store"]),
        "is not a microservice",
    ),
    (lambda d: d["classes"]["stages"][1][1][0].update(call=1), "did you mean 'calls'"),
    (lambda d: d["classes"]["stages"][1][1][0].update(calls=0), "must be a positive number"),
    (lambda d: d["classes"]["stages"][1][1][0].update(calls=True), "must be a positive number"),
    (lambda d: d["classes"]["stages"][1][1][0].update(calls="2"), "must be a positive number"),
    (lambda d: d["classes"]["stages"].__setitem__(0, {"microservice": "front"}), "expected a list"),
    (lambda d: d["containers"].pop("cart"), r"round\.containers\.cart is missing"),
    (lambda d: d["containers"].update(cart=1.5), "must be whole"),
    (lambda d: d["containers"].update(cart=None), r"round\.containers\.cart = null"),
    (lambda d: d["containers"].update(crat=1), "did you mean 'cart'"),
    (lambda d: d["share_error"].update(shop=3), "must lie between 0 and 2"),
    (lambda d: d["nodes"].update(cpu_used=[-1]), r"nodes\.cpu_used\[0\] = -1"),
]


@pytest.mark.parametrize(("spoil", "said"), SPOILT, ids=range(len(SPOILT)))
def test_bad_documents_are_told_in_a_line(spoil: Spoil, said: str) -> None:
    document = a_document()
    spoil(document)
    with pytest.raises(InstanceError, match=said) as raised:
        round_from_dict(document)
    assert "\n" not in str(raised.value)


def columns_form() -> dict[str, Any]:
    document = a_document()
    document["classes"] = {
        "id": ["light", "heavy", "pay"],
        "service": ["shop", "shop", "pay"],
        "share": [0.8, 0.1, 1],
        "calls": [
            {"microservice": [name], "parent": [-1], "stage": [0], "calls": [1]}
            for name in ("front", "cart", "store")
        ],
    }
    return document


CALLS: list[tuple[Spoil, str]] = [
    (lambda c: c.update(parent=[0]), "calls must not form a cycle"),
    (lambda c: c.update(stage=[]), r"calls\[1\]\.stage has 0 values"),
    (lambda c: c.update(calls=[0]), "must be positive"),
    (lambda c: c.update(microservice=["crat"]), "did you mean 'cart'"),
    (lambda c: c.pop("parent"), r"calls\[1\]\.parent is missing"),
    (lambda c: c.update(parents=[-1]), "did you mean 'parent'"),
]


@pytest.mark.parametrize(("spoil", "said"), CALLS, ids=range(len(CALLS)))
def test_bad_columns_of_calls_are_told(spoil: Spoil, said: str) -> None:
    document = columns_form()
    SCHEMA.validate(document)
    round_from_dict(document)
    spoil(document["classes"]["calls"][1])
    with pytest.raises(InstanceError, match=said):
        round_from_dict(document)


def test_not_a_number_is_no_input(tmp_path: Path) -> None:
    place = tmp_path / "round.json"
    place.write_text(json.dumps(a_document()).replace("[100, 5]", "[NaN, 5]"))
    with pytest.raises(InstanceError, match=r"services\.rate_per_s\[0\] = NaN"):
        read_round(place)
    document = a_document()
    document["services"]["rate_per_s"] = [float("nan"), 5.0]
    with pytest.raises(InstanceError, match=r"services\.rate_per_s\[0\] = NaN"):
        round_from_dict(document)


ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"containers": {"front": 1, "cart": 1}}, "containers.store is missing"),
    ({"containers": {"front": 1, "cart": 1, "store": 1, "stor": 1}}, "did you mean 'store'"),
    ({"guaranteed": ["shop"]}, "allocation.containers is missing"),
    ({"guaranted": []}, "did you mean 'guaranteed'"),
    ({"guaranteed": ["shopp"]}, "did you mean 'shop'"),
    ({"rank": {"light": 0, "heavy": 1}}, "rank.pay is missing"),
    ({"placement": {"front": {"n1": 2}}}, "front.n1: unknown key; known: n0"),
    ({"placement": {"front": {"n0": 1.5}}}, "must be whole"),
]


@pytest.mark.parametrize(("change", "said"), ANSWERS, ids=range(len(ANSWERS)))
def test_bad_plans_are_told(change: dict[str, Any], said: str) -> None:
    round_ = round_from_dict(a_document())
    good = {"containers": {"front": 1, "cart": 2, "store": 3}, "guaranteed": ["pay"]}
    allocation_from_dict(round_, good)
    spoilt = {**copy.deepcopy(good), **change}
    if said.startswith("allocation.containers"):
        del spoilt["containers"]
    with pytest.raises(InstanceError, match=said):
        allocation_from_dict(round_, spoilt)


def test_plans_of_another_round_are_refused() -> None:
    round_ = round_from_dict(a_document())
    with pytest.raises(InstanceError, match=r"allocation\.containers has shape \(2,\)"):
        allocation_to_dict(round_, Allocation.of([1, 2], [True, False]))
    bare = Allocation.of([1, 2, 3], [True, False], placement=np.zeros((3, 2), dtype=np.int64))
    with pytest.raises(InstanceError, match=r"allocation\.placement has shape \(3, 2\)"):
        allocation_to_dict(round_, bare)


OUTCOMES: list[tuple[Spoil, str]] = [
    (lambda o: o.update(end_s=0), "must lie after start_s"),
    (lambda o: o.pop("serving"), r"outcome\.serving is missing"),
    (lambda o: o["serving"].pop("cart"), r"outcome\.serving\.cart is missing"),
    (lambda o: o["violations"].update(pay=-1), "must not be below 0"),
    (lambda o: o["violations"].update(pay=None), r"violations\.pay = null"),
    (lambda o: o["class_requests"].update(hevy=1), "did you mean 'heavy'"),
    (lambda o: o.update(assumed=1), "must be true or false"),
]


def test_outcomes_may_leave_out_what_was_not_seen() -> None:
    round_ = round_from_dict(a_document())
    outcome = outcome_from_dict(round_, an_outcome())
    assert outcome.class_requests.tolist() == [900, 0, 0]
    assert outcome.unmodelled_requests.tolist() == [0, 0]
    assert outcome.latency_tail_ms.tolist() == [20.5, np.inf]


def an_outcome() -> dict[str, Any]:
    return {
        "start_s": 0,
        "end_s": 60,
        "class_requests": {"light": 900},
        "violations": {"shop": 3, "pay": 0},
        "latency_tail_ms": {"shop": 20.5, "pay": None},
        "serving": {"front": 3, "cart": 2, "store": 0.5},
    }


@pytest.mark.parametrize(("spoil", "said"), OUTCOMES, ids=range(len(OUTCOMES)))
def test_bad_outcomes_are_told(spoil: Spoil, said: str) -> None:
    data = an_outcome()
    spoil(data)
    with pytest.raises(InstanceError, match=said):
        outcome_from_dict(round_from_dict(a_document()), data)
