"""What is committed: the folders of the design and no others, and nothing of one machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.quick

BESIDE_THE_ROOMS = {".ci", "benchmarks", "docs", "locks", "notebooks", "tests"}
TOP_FILES = {
    ".gitattributes",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "pyproject.toml",
}

HOSTS = ("pypi.org", "pythonhosted.org", "registry.npmjs.org", "deb.debian.org")
OF_ONE_MACHINE = re.compile(
    "|".join(
        [
            *(re.escape(host) for host in HOSTS),
            r"(?<![\w.\])}])/(?:root|work/(?:main|shared|\.library)|home/\w+|opt/(?:pypi|wheels))\b",
            r"\bsub-?agents?\b",
            r"\bsession transcripts?\b",
            r"\bhelper (?:agent|session)s?\b",
        ]
    ),
    re.IGNORECASE,
)


def test_top_level(committed: list[str], pyproject: dict[str, Any]) -> None:
    rooms = set(pyproject["tool"]["setuptools"]["package-dir"].values())
    folders = {name.split("/")[0] for name in committed if "/" in name}
    assert folders - BESIDE_THE_ROOMS == {name for name in rooms if "/" not in name}
    assert {name for name in committed if "/" not in name} <= TOP_FILES


def test_tests_are_no_package(committed: list[str]) -> None:
    assert not [n for n in committed if n.startswith("tests/") and n.endswith("/__init__.py")]


def test_nothing_of_one_machine(committed: list[str], root: Path) -> None:
    found = list[str]()
    for name in committed:
        if (root / name).samefile(__file__):
            continue
        text = (root / name).read_bytes().decode(errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            found += [f"{name}:{number}: {hit[0]}" for hit in OF_ONE_MACHINE.finditer(line)]
    assert not found


def test_no_large_files(committed: list[str], root: Path) -> None:
    large = [name for name in committed if (root / name).stat().st_size > 2_000_000]
    assert not large
