"""Scenarios of microservices as TOML: what each table means, and bad ones told in a line."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings

from apportion.instances import schemas
from apportion.instances.errors import InstanceError
from apportion.instances.microservices import CallClasses, CallTrees, Services
from apportion.instances.microservices.builtin import builtin_round
from apportion.instances.microservices.request_rates import request_rates
from apportion.instances.microservices.round_json import write_round
from apportion.instances.microservices.scenario_keys import SECTIONS, scenario_table
from apportion.instances.microservices.scenario_toml import read_scenario
from apportion.instances.microservices.share_paths import dirichlet_walk, named_shares
from apportion.instances.scenario_file import bundled_names, open_scenario, variant_names
from apportion.instances.training import bundled_names as training_names
from apportion.instances.training import read_scenario as read_training

pytestmark = pytest.mark.quick

HEAD = """
schema = "apportion/scenario/1"
family = "microservices"
name = "hotel"
seed = 3
[graph]
kind = "builtin"
name = "hotel"
"""
SCHEMA = jsonschema.Draft202012Validator(schemas.published("microservices-scenario-1"))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def written(text: str) -> Path:
        path = tmp_path / "scenario.toml"
        path.write_text(HEAD + text)
        return path

    return written


def test_the_bundled_scenario() -> None:
    assert "ticket-search" in bundled_names("microservices")
    assert "ticket-search" not in training_names()
    assert set(training_names()) | set(bundled_names("microservices")) == set(bundled_names())
    scenario = read_scenario("ticket-search")
    start = scenario.start
    assert scenario.rounds == 30
    assert (len(start.microservices), len(start.classes), len(start.services)) == (12, 2, 1)
    assert start.demand.sum(axis=0).tolist() == [103, 473]
    assert scenario.policy == "derm"
    assert scenario.rate_per_s.min() > 15
    names = variant_names("ticket-search")
    assert len(names) >= 3
    for name in names:
        other = read_scenario("ticket-search", variant=name)
        assert other.rounds == 30
    off = read_scenario("ticket-search", variant="laws 20 % off").truth
    factor = off.rate_at_rest_per_ms / start.microservices.rate_at_rest_per_ms
    assert ((factor > 0.8) & (factor < 1.2)).all()
    assert np.ptp(factor) > 0.1
    assert np.allclose(off.most_load_per_s, start.microservices.most_load_per_s)


def test_the_bundled_files_obey_the_schema() -> None:
    for name in bundled_names("microservices"):
        item = resources.files("apportion.instances").joinpath("bundled", f"{name}.toml")
        SCHEMA.validate(tomllib.loads(item.read_text(encoding="utf-8")))


def test_a_family_reads_its_own_files_only(write: Callable[[str], Path]) -> None:
    assert open_scenario(write("")).family == "microservices"
    assert open_scenario("demo").family == "training"
    with pytest.raises(InstanceError, match=r"family = .microservices.; known: training"):
        read_training("ticket-search")
    with pytest.raises(InstanceError, match=r"family = .training.; known: microservices"):
        read_scenario("demo")


def test_schema_and_reader_know_the_same_keys() -> None:
    properties = SCHEMA.schema["properties"]
    first = {name: next(iter(kinds)) for name, (_, kinds) in SECTIONS.items()}
    assert set(properties) == {"schema", "variant", *scenario_table(first).keys}
    for section, (every, kinds) in SECTIONS.items():
        told = {one["properties"]["kind"]["const"]: one for one in properties[section]["oneOf"]}
        assert set(told) == set(kinds)
        for kind, one in told.items():
            assert set(one["properties"]) == {*every, *kinds[kind]}


def test_the_least_that_must_be_said(write: Callable[[str], Path]) -> None:
    scenario = read_scenario(write(""))
    own = builtin_round("hotel")
    assert scenario.start == own
    assert scenario.rounds == 30
    assert scenario.seed == 3
    assert (scenario.rate_per_s == own.services.rate_per_s).all()
    assert (scenario.share == own.classes.share).all()
    assert scenario.truth is scenario.start.microservices
    assert read_scenario(write(""), seed=9).seed == 9


EVERYTHING = """
target_ms = { search = 9 }
violation_budget = 0.01
shift_factor = 0
seed = 5
[rates]
kind = "list"
[[rates.service]]
name = "recommend"
per_s = [10, 20, 30]
[[rates.service]]
name = "search"
per_s = [1, 2, 3]
[shares]
kind = "list"
[[shares.class]]
name = "search"
share = [1, 1, 1]
[[shares.class]]
name = "recommend"
share = [1, 1, 1]
[[microservice]]
name = "geo"
most_containers = 7
cost = 2.5
[cluster]
cpu_cores = 100
nodes = 2
[[cluster.node]]
name = "big"
cpu_cores = 96
memory_mib = 1000
cpu_used = 4
[start]
containers = 3
rate_per_s = { search = 0.5 }
share_error = { search = 0.25 }
[truth]
rate_factor = 0.5
slope_factor = { geo = 2 }
[policy]
name = "hpa"
parameters = { target = 0.5 }
[executor]
round_s = 30
simulator = "events"
forecast = "dirichlet"
robust = true
window = 5
[[variant]]
name = "tight"
[variant.graph]
target_ms = { search = 8 }
[[variant]]
name = "erms"
[variant.policy]
name = "erms"
"""


def test_what_every_table_means(write: Callable[[str], Path]) -> None:
    path = write(EVERYTHING)
    SCHEMA.validate(tomllib.loads(path.read_text()))
    scenario = read_scenario(path)
    start, services = scenario.start, scenario.start.services
    assert services.target_ms.tolist() == [9, 5]
    assert services.violation_budget.tolist() == [0.01, 0.01]
    assert not start.microservices.shift_ms.any()
    assert scenario.rate_per_s.tolist() == [[1, 10], [2, 20], [3, 30]]
    geo = start.microservices.id.tolist().index("geo")
    assert start.microservices.most_containers[geo] == 7
    assert start.microservices.cost[geo] == 2.5
    assert start.microservices.cost.sum() == len(start.microservices) + 1.5
    assert start.nodes is not None
    assert start.nodes.id.tolist() == ["big", "node-0", "node-1"]
    assert start.nodes.cpu_used.tolist() == [4, 0, 0]
    assert start.nodes.memory_mib.tolist() == [1000, 131072, 131072]
    assert start.cpu_cores == 100
    assert start.containers is not None
    assert set(start.containers.tolist()) == {3}
    assert services.rate_per_s.tolist() == [0.5, 10]
    assert start.share_error.tolist() == [0.25, 0]
    assert start.duration_s == 30
    truth = scenario.truth
    rest = start.microservices.rate_at_rest_per_ms
    assert np.allclose(truth.rate_at_rest_per_ms, 0.5 * rest)
    ratio = truth.rate_slope_per_ms / start.microservices.rate_slope_per_ms
    assert ratio[geo] == pytest.approx(1.0)
    assert np.delete(ratio, geo) == pytest.approx(0.5)
    assert (scenario.policy, dict(scenario.parameters)) == ("hpa", {"target": 0.5})
    options = scenario.options
    assert (options.simulator, options.forecast, options.window) == ("events", "dirichlet", 5)
    assert read_scenario(path, variant="tight").start.services.target_ms.tolist() == [8, 5]
    assert dict(read_scenario(path, variant="erms").parameters) == {}
    cut = read_scenario(path, overrides={"rates": {"rounds": 2}})
    assert cut.rounds == 2


def test_a_day_is_a_sine(write: Callable[[str], Path]) -> None:
    text = """
[rates]
kind = "sine"
rounds = 96
per_s = { search = 100, recommend = 10 }
amplitude = 0.5
phase_s = 3600
[executor]
round_s = 900
"""
    rates = read_scenario(write(text)).rate_per_s
    assert rates.mean(axis=0) == pytest.approx([100, 10])
    peak = (np.argmax(rates[:, 0]) + 0.5) * 900
    assert abs(peak - (3600 + 21600)) <= 450
    assert rates[:, 0].max() == pytest.approx(150, rel=1e-3)
    assert np.allclose(rates[:, 0], 10 * rates[:, 1])
    still = request_rates(
        {"kind": "sine", "amplitude": 1.0}, Services.of(["s"], 5.0, 1.0), 900.0, 0, None
    )
    assert (still >= 0).all()


def test_noise_keeps_the_mean_and_repeats(write: Callable[[str], Path]) -> None:
    text = '[rates]\nkind = "constant"\nrounds = 20000\nper_s = 10\nnoise = 0.3\n'
    path = write(text)
    rates = read_scenario(path).rate_per_s
    assert rates.mean(axis=0) == pytest.approx(10, rel=0.02)
    assert rates.std() == pytest.approx(10 * np.sqrt(np.expm1(0.09)), rel=0.05)
    assert (rates == read_scenario(path).rate_per_s).all()
    assert (rates != read_scenario(path, seed=4).rate_per_s).any()


def test_rates_from_a_table(write: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("minute,search,rec\n0,0.5,1\n1,1.0,3\n2,0.25,2\n")
    text = """
[rates]
kind = "csv"
path = "rates.csv"
peak_per_s = { search = 80 }
[[rates.service]]
name = "recommend"
column = "rec"
"""
    path = write(text)
    assert read_scenario(path).rate_per_s.tolist() == [[40, 1], [80, 3], [20, 2]]
    assert read_scenario(path, overrides={"rates": {"rounds": 1}}).rounds == 1
    for content, said in (
        ("minute,serch,rec\n0,1,1\n", r"rates\.csv: the column 'search' is missing; did you mean"),
        ("search,rec\n1\n", "line 2 has 1 fields, the header has 2"),
        ("search,rec\n1,nan\n", r"line 2: rec = \"nan\": must be a number, not negative"),
        ("search,rec\n1,-1\n", r"line 2: rec = \"-1\""),
        ("search,rec\n", "no rounds"),
        ("search,rec\n0,1\n", "'search' is all zero: it has no peak"),
        ('search,rec\n"1,1\n', "not a CSV table"),
        ("", "empty"),
    ):
        (tmp_path / "rates.csv").write_text(content)
        with pytest.raises(InstanceError, match=said):
            read_scenario(path)


def test_a_graph_from_a_file(tmp_path: Path) -> None:
    own = builtin_round("media", seed=4, rate_per_s=12.0)
    write_round(own, tmp_path / "round.json")
    path = tmp_path / "scenario.toml"
    text = 'schema = "apportion/scenario/1"\nfamily = "microservices"\nname = "m"\n'
    path.write_text(text + '[graph]\nkind = "file"\npath = "round.json"\n')
    scenario = read_scenario(path)
    assert scenario.start == own
    (tmp_path / "round.json").unlink()
    with pytest.raises(InstanceError, match="no such file"):
        read_scenario(path)


def shared(counts: list[int], lost: list[float]) -> tuple[Services, CallClasses]:
    """Services with so many classes each, equally likely."""
    services = Services.of([f"s{at}" for at in range(len(counts))], 1.0, 1.0, 0.05, lost)
    owner = np.repeat(np.arange(len(counts)), counts)
    share = np.concatenate([np.full(n, (1 - x) / n) for n, x in zip(counts, lost, strict=True)])
    trees = CallTrees.serial(np.ones((1, owner.size)))
    ids = [f"k{at}" for at in range(owner.size)]
    return services, CallClasses.of(ids, trees, share=share, service=owner)


def test_classes_that_are_not_named_share_what_is_left() -> None:
    services, classes = shared([3, 2], [0.1, 0.0])
    share = named_shares({"k0": 0.5, "k4": 0.2}, services, classes, "shares.share")
    assert share == pytest.approx([0.5, 0.2, 0.2, 0.8, 0.2])
    share = named_shares({"k0": 0.5, "k1": 0.4, "k2": 0.0}, services, classes, "shares.share")
    assert share == pytest.approx([0.5, 0.4, 0.0, 0.5, 0.5])
    again = named_shares({"k0": 0.5}, services, classes.with_share(share), "shares.share")
    assert again == pytest.approx([0.5, 0.4, 0.0, 0.5, 0.5])
    empty = classes.with_share([0.9, 0.0, 0.0, 0.5, 0.5])
    assert named_shares({"k0": 0.5}, services, empty, "shares.share")[1:3].tolist() == [0.2, 0.2]
    with pytest.raises(InstanceError, match=r"'s0' sum to 1, not to 0\.9"):
        named_shares({"k0": 1.0}, services, classes, "shares.share")
    with pytest.raises(InstanceError, match=r"'s1' sum to 0\.5, not to 1"):
        named_shares({"k3": 0.25, "k4": 0.25}, services, classes, "shares.share")
    with pytest.raises(InstanceError, match=r"shares\.share\.k9: unknown class"):
        named_shares({"k9": 1.0}, services, classes, "shares.share")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.floats(1e-3, 1e6),
    st.floats(0, 1),
    st.integers(0, 1000),
)
def test_a_walk_stays_among_shares(
    counts: list[int], concentration: float, pull: float, seed: int
) -> None:
    lost = [0.25] * len(counts)
    services, classes = shared(counts, lost)
    walk = dirichlet_walk(classes.share, classes, 12, seed, concentration=concentration, pull=pull)
    assert walk[0] == pytest.approx(classes.share)
    assert (walk >= 0).all()
    of_service = classes.service[:, None] == np.arange(len(services))
    assert walk @ of_service == pytest.approx(0.75)


def test_how_far_a_walk_moves() -> None:
    _, classes = shared([2], [0.0])
    # pulled back wholly, the rounds are independent draws around the start
    walk = dirichlet_walk(classes.share, classes, 20_000, 1, concentration=99.0, pull=1.0)
    assert walk[1:, 0].mean() == pytest.approx(0.5, abs=0.002)
    assert walk[1:, 0].var() == pytest.approx(0.25 / 100, rel=0.05)


BAD: list[tuple[str, str]] = [
    ('[rate]\nkind = "constant"', "rate: unknown key; did you mean 'rates'"),
    ('[rates]\nkind = "sinus"', r"rates\.kind = \"sinus\"; did you mean 'sine'"),
    ("[rates]\nper_s = 3", r"rates\.kind = null"),
    ('[rates]\nkind = "constant"\nper_s = { serch = 1 }', "did you mean 'search'"),
    ('[rates]\nkind = "constant"\nper_s = -1', "must not be negative"),
    ('[rates]\nkind = "constant"\nrounds = 0', "rounds = 0"),
    ('[rates]\nkind = "constant"\nper_s = nan', r"rates\.per_s = nan: must be finite"),
    ('[rates]\nkind = "constant"\namplitude = 1', r"rates\.amplitude: unknown key"),
    ('[rates]\nkind = "csv"\npath = "none.csv"', r"none\.csv: no such file"),
    (
        '[rates]\nkind = "list"\n[[rates.service]]\nname = "search"\nper_s = [1]',
        "service 'recommend' is missing",
    ),
    (
        '[rates]\nkind = "list"\n[[rates.service]]\nname = "search"\nper_s = [1]\n'
        '[[rates.service]]\nname = "recommend"\nper_s = [1, 2]',
        "'recommend' has 2 rounds, 'search' has 1",
    ),
    (
        '[rates]\nkind = "list"\nrounds = 5\n[[rates.service]]\nname = "search"\nper_s = [1]\n'
        '[[rates.service]]\nname = "recommend"\nper_s = [1]',
        r"rates\.rounds = 5: there are 1",
    ),
    ('[shares]\nkind = "constant"\nshare = { search = 0.5 }', "sum to 0.5, not to 1"),
    (
        '[shares]\nkind = "list"\n[[shares.class]]\nname = "search"\nshare = [1]\n'
        '[[shares.class]]\nname = "recommend"\nshare = [1]',
        "1 rounds, the rates have 30",
    ),
    (
        '[rates]\nkind = "constant"\nrounds = 1\n[shares]\nkind = "list"\n'
        '[[shares.class]]\nname = "search"\nshare = [0.5]\n'
        '[[shares.class]]\nname = "recommend"\nshare = [1]',
        "must sum to 1",
    ),
    ('[[microservice]]\nname = "gep"\ncost = 2', r"microservice\[0\]\.name = 'gep'.*'geo'"),
    ('[[microservice]]\nname = "geo"\ncost = 0', r"microservice\[0\]\.cost = 0"),
    ('[[microservice]]\nname = "geo"\nmost_containers = 0', "must lie between least_containers"),
    ('[[microservice]]\nname = "geo"\nleast_rate_per_ms = 50', "above least_rate_per_ms"),
    ("[cluster]\nnode_cpu_cores = 5", "needs cluster.nodes"),
    ("[start]\ncontainers = { geo = 1 }", "start.containers.front-end is missing"),
    ("[start]\ncontainers = 1.5", "must be whole"),
    ("[start]\nshare_error = 3", r"start\.share_error = 3"),
    ("[truth]\nmodel_error = 1.5", r"truth\.model_error = 1\.5"),
    ("[truth]\nrate_factor = { gep = 1 }", "did you mean 'geo'"),
    ('[executor]\nforecast = "lats"', "did you mean 'last'"),
    ("[executor]\nsmoothing = 0", r"executor\.smoothing = 0"),
    ('[[variant]]\nname = "v"\n[variant.rates]\nkindd = "csv"', "variant 'v': rates"),
    ('[[variant]]\nname = "v"\nfamily = "training"', "a variant cannot change it"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=range(len(BAD)))
def test_bad_scenarios_are_told_in_a_line(
    write: Callable[[str], Path], text: str, said: str
) -> None:
    with pytest.raises(InstanceError, match=said) as raised:
        read_scenario(write(text))
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(str(write(text)))


def test_a_graph_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    head = 'schema = "apportion/scenario/1"\nfamily = "microservices"\nname = "m"\n'
    for text, said in (
        ("", "graph is missing"),
        ('[graph]\nkind = "built-in"\nname = "media"', "did you mean 'builtin'"),
        ('[graph]\nkind = "builtin"\nname = "hotels"', "did you mean 'hotel'"),
        ('[graph]\nkind = "builtin"', r"graph\.name is missing"),
        ("graph = 3", "graph: expected a table"),
    ):
        path.write_text(head + text)
        with pytest.raises(InstanceError, match=said):
            read_scenario(path)
    with pytest.raises(InstanceError, match="has no folder"):
        read_scenario("ticket-search", overrides={"graph": {"kind": "file", "path": "x.json"}})


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_value_anywhere_is_read_or_told(data: st.DataObject) -> None:
    tables: Any = tomllib.loads(HEAD + EVERYTHING)
    del tables["schema"], tables["variant"], tables["family"]
    place: Any = tables
    key: Any = data.draw(st.sampled_from(sorted(place)))
    while isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
        place = place[key]
        known = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(known))
    place[key] = data.draw(VALUES)
    overrides = {name: value for name, value in tables.items() if name != "name"}
    try:
        scenario = read_scenario("ticket-search", overrides=overrides)
    except InstanceError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert scenario.rounds >= 1


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 200), st.floats(), st.text(max_size=3),
    st.lists(st.floats(0, 1), max_size=3), st.dictionaries(st.text(max_size=3), st.floats()),
)  # fmt: skip
