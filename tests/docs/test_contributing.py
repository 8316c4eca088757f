"""The ten steps of CONTRIBUTING.md, followed to the letter in a copy of the code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOMS = ("executor", "formulations", "instances", "results", "solver")
ANYTHING = "(.*?)"


@pytest.fixture
def copy(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the code, lay it out by the installed names, and let new processes import it."""
    folder, site = tmp_path / "checkout", tmp_path / "site" / "apportion"
    for name in ("api", *ROOMS):
        shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", folder)
    site.mkdir(parents=True)
    for room in ROOMS:
        (site / room).symlink_to(folder / room)
    for path in (folder / "api").iterdir():
        (site / path.name).symlink_to(path)
    monkeypatch.setenv("PYTHONPATH", str(site.parent))
    monkeypatch.setenv("COLUMNS", "100")
    return folder


def apply(diff: str, path: Path) -> None:
    """Replace the old lines of a diff, which must stand in the file exactly once."""
    lines = diff.splitlines()
    old = "\n".join(line[1:] for line in lines if line[0] in " -")
    new = "\n".join(line[1:] for line in lines if line[0] in " +")
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path.name} holds {text.count(old)} times\n{old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_ten_steps_work(
    copy: Path, root: Path, blocks: Callable[[Path], list[Any]], console: Callable[..., None]
) -> None:
    page = root / "CONTRIBUTING.md"
    steps = re.findall(r"^\*\*(\d+)\. ", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert steps == [str(number) for number in range(1, 11)]
    told = subprocess.run(
        [sys.executable, "-c", "import apportion.registry as r; print(r.__file__)"],
        capture_output=True, text=True, check=True, cwd=copy,
    )  # fmt: skip
    assert str(copy.parent) in told.stdout, "the copy is not what new processes import"
    for block in blocks(page):
        path = copy / block.file
        if block.language == "diff":
            apply(block.text, path)
        elif block.file:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(block.text)
        elif block.language == "console":
            console(block, copy, f"{page.name}:{block.line}")
    ruff = shutil.which(
        "ruff", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if ruff is not None:
        for what in (["check"], ["format", "--diff"]):
            done = subprocess.run(
                [ruff, *what, "formulations/training/most_progress.py", "tests"],
                cwd=copy, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
