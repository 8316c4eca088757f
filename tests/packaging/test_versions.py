"""One version, and locks that answer all that pyproject.toml asks on every supported Python."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import apportion

pytestmark = pytest.mark.quick

MINORS = ("3.11", "3.12", "3.13")


def test_one_version(pyproject: dict[str, Any], root: Path) -> None:
    assert apportion.__version__ == version("apportion") == pyproject["project"]["version"]
    changes = (root / "CHANGELOG.md").read_text()
    assert f"## [{apportion.__version__}]" in changes


def test_one_list_of_supported_pythons(pyproject: dict[str, Any], root: Path) -> None:
    project = pyproject["project"]
    around = [f"3.{minor}" for minor in range(8, 20)]
    assert tuple(SpecifierSet(project["requires-python"]).filter(around)) == MINORS
    language = "Programming Language :: Python :: "
    named = {text.removeprefix(language) for text in project["classifiers"] if language in text}
    assert named == set(MINORS)
    locks = {path.name for path in (root / "locks").iterdir()}
    assert locks == {f"py{minor.replace('.', '')}.txt" for minor in MINORS}
    assert f"for minor in {' '.join(MINORS)};" in (root / ".ci/pythons").read_text()


@pytest.mark.parametrize("minor", MINORS)
def test_lock(pyproject: dict[str, Any], root: Path, minor: str) -> None:
    lines = (root / "locks" / f"py{minor.replace('.', '')}.txt").read_text().splitlines()
    assert lines[0].startswith("#")
    pin = re.compile(r"([a-z0-9][a-z0-9.-]*)==([0-9][0-9a-z.]*)")
    pins: dict[str, str] = {}
    for line in lines[1:]:
        found = pin.fullmatch(line)
        assert found, line
        pins[canonicalize_name(found[1])] = found[2]
    project = pyproject["project"]
    asked = [*pyproject["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        asked += extra
    for requirement in map(Requirement, asked):
        if requirement.marker is None or requirement.marker.evaluate({"python_version": minor}):
            locked = pins[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(locked), f"{requirement}, not {locked}"
