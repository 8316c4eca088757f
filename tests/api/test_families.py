"""Families: what belongs to which, and what is refused by name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import apportion as ap
from apportion.families.lookup import (
    FAMILIES,
    family_in,
    family_of,
    is_scenario,
    scenario_family,
    the_round,
)
from apportion.families.training import TRAINING
from apportion.formulations.training import SRTF
from apportion.registry import family_name, made_for

pytestmark = pytest.mark.quick


@dataclass(frozen=True)
class Elsewhere(SRTF):
    """A policy of a family that does not exist."""

    name: ClassVar[str] = "elsewhere"
    family: ClassVar[str] = "serving"


def test_rounds_and_scenarios_know_their_family(rnd):
    assert family_of(rnd) is TRAINING
    world = ap.read_scenario("demo")
    assert family_of(world) is scenario_family("demo") is TRAINING
    assert is_scenario(world)
    assert not is_scenario("demo")
    assert not is_scenario(rnd)


@pytest.mark.parametrize("thing", [None, 3, {"family": "training"}, TRAINING])
def test_what_is_no_round_is_told(thing):
    with pytest.raises(ap.InstanceError, match="neither a round"):
        family_of(thing)
    with pytest.raises(ap.InstanceError, match=f"{type(thing).__name__} is neither a round nor a"):
        ap.solve(thing)
    with pytest.raises(ap.InstanceError, match="neither a round"):
        ap.check(thing, None)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"family": "trainign"}, "expected 'training'.*; did you mean 'training'?"),
        ({"family": "zebra"}, "x = \"zebra\": expected 'training'"),
    ],
)
def test_unknown_families_name_the_nearest(data, says):
    with pytest.raises(ap.InstanceError, match=says):
        family_in(data, "x")


@pytest.mark.parametrize("data", [None, [], {}, {"family": None}, {"family": 3}])
def test_content_without_a_family_is_left_to_the_first_reader(data):
    assert family_in(data, "x") is TRAINING
    with pytest.raises(ap.InstanceError, match="expected"):
        TRAINING.files.round_from_dict(data)


def test_a_round_file_is_read_by_its_family(rnd, tmp_path):
    path = tmp_path / "round.json"
    ap.write_round(rnd, path)
    assert the_round(path) == the_round(str(path)) == ap.read_round(path) == rnd
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "family": "trainnig"}))
    with pytest.raises(ap.InstanceError) as caught:
        ap.read_round(path)
    assert str(caught.value).startswith(f'{path}: round.family = "trainnig": expected ')
    assert str(caught.value).endswith("did you mean 'training'?")


def test_a_scenario_of_an_unknown_family_is_told(tmp_path: Path, command):
    path = tmp_path / "world.toml"
    path.write_text('schema = "apportion/scenario/1"\nfamily = "trainig"\nname = "x"\n')
    said = f"{path}: family = \"trainig\": expected 'training'"
    for ask in (ap.read_scenario, ap.simulate, lambda one: ap.compare(one, ["fft"])):
        with pytest.raises(ap.InstanceError) as caught:
            ask(path)
        assert str(caught.value).startswith(said)
    assert said in command("simulate", path).refused()


def test_policies_say_their_family():
    for family in FAMILIES.values():
        assert {family_name(cls) for cls in family.policies} == {family.name}
        assert family.default_policy in {cls.name for cls in family.policies}
    assert family_name(SRTF) == "training"  # it says nothing
    assert family_name(Elsewhere()) == "serving"


def test_the_default_policy_is_the_familys(rnd):
    assert ap.solve(rnd).policy == "fft"
    assert made_for(TRAINING, None).name == "fft"


def refused(call: Any) -> str:
    with pytest.raises(ap.InstanceError) as caught:
        call()
    return str(caught.value)


def test_a_policy_of_another_family_is_refused_with_those_that_fit(rnd):
    said = "policy 'elsewhere' is for serving, the question is one of training; policies that fit: "
    for call in (
        lambda: ap.solve(rnd, Elsewhere()),
        lambda: ap.simulate("demo", Elsewhere()),
        lambda: ap.compare("demo", [Elsewhere(), "fifo"], variants=["base"]),
    ):
        told = refused(call)
        assert told.startswith(said)
        assert "fft, " in told


def test_the_list_of_policies_has_their_family(command):
    rows = command("policies", "--json").json["rows"]
    assert {row["family"] for row in rows} == set(FAMILIES)
    assert "family: training" in command("policies", "srtf").out
