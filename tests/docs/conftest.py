"""Pages are run as they stand: their files are written, their code and their commands executed.

In a fenced block the first word is the language, a second one the name of a file::

    ```toml day.toml        written to the page's folder, not run
    ```python               run; all blocks of a page share one namespace
    ```console              lines after "$ " are run, the others are what they print
    ```text                 right after a block of Python: what it prints

Every other block (``sh``, ``mermaid``, ...) is for the eye. In what is printed ``...`` stands for
anything, and runs of blanks count as one.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from apportion import command

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)(?: +(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    file: str
    text: str
    line: int
    follows: bool
    """Whether nothing but blank lines stands between it and the block before."""


def read_blocks(page: Path) -> list[Block]:
    """List the fenced blocks of a page."""
    text, end = page.read_text(encoding="utf-8"), 0
    out: list[Block] = []
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        follows = not text[end : found.start()].strip()
        out.append(Block(found[1], found[2] or "", found[3], line, follows))
        end = found.end()
    return out


def same(wanted: str, printed: str, where: str) -> None:
    """Compare what a page promises with what was printed."""
    first, *middle = [_squeezed(part) for part in wanted.split("...")]
    text, at = _squeezed(printed), len(first)
    found = text.startswith(first) if middle else text == first
    last = middle.pop() if middle else ""
    for part in middle:
        place = text.find(part, at)
        found, at = found and place >= 0, place + len(part)
    if not (found and text.endswith(last) and len(text) - len(last) >= at):
        pytest.fail(f"{where}: the page says\n{wanted}\nprinted was\n{printed}", pytrace=False)


def _squeezed(text: str) -> str:
    """Take runs of blanks, and the rules of tables, as one."""
    return re.sub("─+", "─", " ".join(text.split()))


def run_command(line: str, folder: Path, *, here: bool) -> tuple[int, str]:
    """Run one command; ours in this process if wanted, because starting it anew takes a second."""
    if here and line.startswith("apportion ") and not re.search(r"[|<>;&$]", line):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = command.main(shlex.split(line)[1:])
        return code, out.getvalue()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env={**os.environ, "PATH": path}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Split a console block into commands and what each prints."""
    parts = re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)
    assert not parts[0].strip(), f"a console block begins with {parts[0]!r}"
    for part in parts[1:]:
        line, _, wanted = part.partition("\n")
        yield " ".join(line.split()), wanted


def run_console(block: Block, folder: Path, where: str, *, here: bool = False) -> None:
    """Run the commands of a block; one that fails must be followed by ``echo $?``."""
    told, last = list(commands(block.text)), 0
    for at, (line, wanted) in enumerate(told):
        if line == "echo $?":
            same(wanted, f"{last}\n", f"{where}: {line}")
            continue
        last, printed = run_command(line, folder, here=here)
        asked = at + 1 < len(told) and told[at + 1][0] == "echo $?"
        assert last == 0 or asked, f"{where}: {line!r} ended with {last}:\n{printed}"
        if wanted.strip():
            same(wanted, printed, f"{where}: {line}")


@pytest.fixture
def run_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Run a page in an empty folder."""

    def run(page: Path) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "100")
        names: dict[str, Any] = {"__name__": "__main__"}
        printed = ""
        for block in read_blocks(page):
            where = f"{page.name}:{block.line}"
            if block.file:
                place = tmp_path / block.file
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                out = io.StringIO()
                code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
                with contextlib.redirect_stdout(out):
                    exec(code, names)
                printed = out.getvalue()
            elif block.language == "console":
                run_console(block, tmp_path, where, here=True)
            elif block.language == "text" and block.follows:
                same(block.text, printed, where)

    return run


@pytest.fixture(scope="session")
def blocks() -> Callable[[Path], list[Block]]:
    """Give the reader of pages."""
    return read_blocks


@pytest.fixture(scope="session")
def console() -> Callable[..., None]:
    """Give what runs a console block in processes of their own."""
    return run_console


@pytest.fixture(scope="session")
def root() -> Path:
    """Give the folder of the checkout."""
    return ROOT
