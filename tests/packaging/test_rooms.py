"""No room knows the face; what rooms may know of one another is import-linter's to check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.quick


def imported(source: str) -> Iterator[str]:
    """Every module that a file imports, wherever in the file; a relative import as dots."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from (f"{base}.{alias.name}" for alias in node.names)


def test_no_room_imports_the_face(
    present: list[str], pyproject: dict[str, Any], root: Path
) -> None:
    table: dict[str, str] = pyproject["tool"]["setuptools"]["package-dir"]
    rooms = {name.split(".")[1] for name in table if "." in name}
    found = list[str]()
    for file in present:
        if file.split("/")[0] in rooms and file.endswith(".py"):
            for name in imported((root / file).read_text(encoding="utf-8")):
                top, _, rest = name.partition(".")
                if not top or (top == "apportion" and rest.split(".")[0] not in rooms):
                    found.append(f"{file} imports {name}")
    assert not found


def test_the_walk_sees_every_form() -> None:
    source = "import a.b\ndef f():\n    from a import c\n    from . import d\nfrom .e import g\n"
    assert sorted(imported(source)) == ["..d", ".e.g", "a.b", "a.c"]
