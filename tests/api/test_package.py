"""What the package shows: its exports, its version, a silent and quick import, strangers' policies."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from importlib.metadata import version
from pathlib import Path

import pytest

import apportion as ap
from apportion.families.lookup import FAMILIES
from apportion.registry import label_of, make_policy, policy_classes

pytestmark = pytest.mark.quick


def python(code: str, *options: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, check=True, cwd=cwd,
    )  # fmt: skip


def test_exports():
    assert len(set(ap.__all__)) == len(ap.__all__)
    for name in ap.__all__:
        thing = getattr(ap, name)
        assert thing.__doc__, name
    promised = {
        "read_round", "from_frame", "solve", "simulate", "compare", "check", "Answer", "FFT",
        "FIFO", "SRTF", "TrainingRound", "Scenario", "Outcome", "InstanceError", "EngineError",
        "read_answer", "policy_classes", "to_frame", "training_metrics",
    }  # fmt: skip
    assert promised <= set(ap.__all__)
    scope: dict[str, object] = {}
    exec("from apportion import *", scope)
    assert set(ap.__all__) <= set(scope)


def test_version():
    assert ap.__version__ == version("apportion")


def test_import_is_silent_and_leaves_the_back_ends_for_later():
    done = python(
        """
        import sys, apportion
        heavy = ("ortools", "highspy", "pulp", "networkx", "scipy.optimize", "matplotlib", "typer")
        print([name for name in heavy if name in sys.modules])
        """,
        "-W", "error",
    )  # fmt: skip
    assert done.stdout == "[]\n"
    assert done.stderr == ""


def test_the_library_logs_and_leaves_handlers_to_its_user():
    handlers = logging.getLogger("apportion").handlers
    assert [type(one) for one in handlers] == [logging.NullHandler]


# ---------------------------------------------------------------------- policies of other packages

STRANGER = """
from dataclasses import dataclass
from typing import ClassVar
from apportion.formulations.training import SRTF, FIFO

@dataclass(frozen=True)
class Longest(SRTF):
    '''Somebody else's order.

    Parameters
    ----------
    patience
        How long it waits.
    '''
    name: ClassVar[str] = "longest"
    source: ClassVar[str] = "elsewhere"
    patience: int = 3

@dataclass(frozen=True)
class Impostor(FIFO):
    '''Says it is FFT.'''
    name: ClassVar[str] = "fft"

@dataclass(frozen=True)
class Needy(FIFO):
    '''Has a parameter without a default.'''
    name: ClassVar[str] = "needy"
    def __init__(self, strict=True): ...

@dataclass(frozen=True, kw_only=True)
class Demanding:
    '''Must be told something.'''
    name: ClassVar[str] = "demanding"
    subscribes: ClassVar[frozenset] = frozenset()
    traits: ClassVar[frozenset] = frozenset()
    what: int
    def compile(self, round_, memory, budget):
        return FIFO().compile(round_, memory, budget)
    def remember(self, memory, round_, decision, outcome):
        return None
"""

POINTS = """\
[apportion.policies]
fft = stranger:Impostor
longest = stranger:Longest
demanding = stranger:Demanding
broken = no_such_module:Thing
misnamed = stranger:Longest
plain = os:getcwd
"""


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """Install a package that brings policies, on the path of this process."""
    site = tmp_path / "site"
    info = site / "stranger-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (site / "stranger.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("stranger", None)


def test_a_strangers_policy_is_listed_and_usable(stranger, rnd, command, caplog):
    known = policy_classes()
    own = [name for name, cls in known.items() if cls.__module__.startswith("apportion.")]
    assert list(known)[: len(own)] == own
    assert own[0] == "fft"
    assert own == [cls.name for family in FAMILIES.values() for cls in family.policies]
    assert set(known) - set(own) == {"longest", "demanding"}
    assert known["fft"] is ap.FFT
    for name in ("broken", "misnamed", "plain"):
        assert any(f"policy {name!r}" in record.getMessage() for record in caplog.records)
    answer = ap.solve(rnd, "longest", parameters={"patience": "5"})
    assert answer.policy == "longest"
    assert answer.parameters == {"patience": 5}
    assert answer.allocation == ap.solve(rnd, "srtf").allocation
    assert make_policy("fft").name == "fft"
    assert type(make_policy("fft")) is ap.FFT
    told = command("policies", "--json")
    assert [row["name"] for row in told.json["rows"]][len(own) :] == ["demanding", "longest"]
    shown = command("policies", "longest", "--json").json
    assert shown["rows"] == [
        {"parameter": "patience", "default": "3", "about": "How long it waits."}
    ]  # fmt: skip
    assert "did you mean 'longest'?" in command("policies", "longes").refused()


def test_a_parameter_without_a_default_is_asked_for(stranger, rnd, command):
    with pytest.raises(ap.InstanceError, match=r"demanding.what: has no default and is not given"):
        ap.solve(rnd, "demanding")
    assert ap.solve(rnd, "demanding", parameters={"what": 3}).allocation.job.size == 2
    assert "(required)" in command("policies", "demanding").out


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken", "cannot be loaded: ModuleNotFoundError"),
        ("misnamed", "calls itself 'longest'"),
        ("plain", "is not a dataclass of parameters"),
    ],
)
def test_what_a_stranger_gets_wrong_is_told_where_it_is_asked_for(
    stranger, rnd, command, name, says
):
    with pytest.raises(ap.InstanceError) as caught:
        ap.solve(rnd, name)
    assert f"policy {name!r}" in str(caught.value)
    assert says in str(caught.value)
    assert says in command("policies", name).refused()


def test_labels():
    assert label_of(ap.FFT()) == "fft"
    assert label_of(ap.FFT(fairness_weight=0, method="milp")) == "fft:fairness_weight=0:method=milp"
