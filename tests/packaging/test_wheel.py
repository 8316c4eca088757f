"""The wheel holds the rooms by their installed names, whole, and nothing else of the checkout."""

from __future__ import annotations

import zipfile
from email.parser import Parser
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("wheel")

NOT_INSTALLED = "results/reference"


def packages(pyproject: dict[str, Any]) -> dict[str, str]:
    """Folder -> installed name."""
    table: dict[str, str] = pyproject["tool"]["setuptools"]["package-dir"]
    return {folder: name for name, folder in table.items()}


def expected(present: list[str], pyproject: dict[str, Any]) -> set[str]:
    """Every file of the rooms by its place in the wheel."""
    folders = packages(pyproject)
    found = set[str]()
    for name in map(PurePosixPath, present):
        if name.parts[0] not in folders or name.is_relative_to(NOT_INSTALLED):
            continue
        nearest = next(parent for parent in name.parents if str(parent) in folders)
        package = folders[str(nearest)].replace(".", "/")
        found.add(f"{package}/{name.relative_to(nearest)}")
    return found


def test_every_folder_with_code_is_a_package(present: list[str], pyproject: dict[str, Any]) -> None:
    folders = packages(pyproject)
    code = {str(PurePosixPath(name).parent) for name in present if name.endswith(".py")}
    rooms = {folder for folder in code if folder.split("/")[0] in folders}
    assert rooms == set(folders)
    assert sorted(folders.values()) == sorted(pyproject["tool"]["setuptools"]["packages"])


def test_contents(wheel: Path, present: list[str], pyproject: dict[str, Any]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == expected(present, pyproject)
    assert "apportion/py.typed" in inside
    for pattern in ("apportion/instances/schemas/*.json", "apportion/instances/bundled/*.toml"):
        assert any(PurePosixPath(name).match(pattern) for name in inside), pattern


def test_metadata(wheel: Path, pyproject: dict[str, Any]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(path).decode())
        names = archive.namelist()
    assert wheel.name.endswith("-py3-none-any.whl")
    assert metadata["Name"] == "apportion"
    assert metadata["Version"] == pyproject["project"]["version"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert path.replace("METADATA", "licenses/LICENSE") in names
