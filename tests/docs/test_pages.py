"""The README and every page under docs/ do what they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROSE = [*PAGES, ROOT / "CONTRIBUTING.md"]
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_runs_as_it_stands(page: Path, run_page: Callable[[Path], None]) -> None:
    run_page(page)


@pytest.mark.parametrize("page", PROSE, ids=_name)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lost = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not lost, f"{_name(page)}: no such file: {', '.join(lost)}"


def test_decisions_are_numbered_short_and_of_one_shape() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    numbers = [page.name[:4] for page in pages]
    assert len(set(numbers)) == len(numbers), "a number is used twice"
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 25, f"{page.name} is longer than 25 lines"
        for part in ("**Context.**", "**Choice.**", "**Consequences.**"):
            assert part in text, f"{page.name} lacks {part}"


@pytest.mark.parametrize(
    "text",
    [
        '```python\nprint("one  two")\n```\n```text\none three\n```\n',
        "```python\nraise ValueError\n```\n",
        "```console\n$ apportion policies none-such\n```\n",
        "```console\n$ echo one two three\none ... two\n```\n",
        "```console\n$ false\n$ echo $?\n2\n```\n",
    ],
    ids=["other output", "exception", "failed command", "end differs", "other exit code"],
)
def test_a_page_that_is_wrong_is_caught(
    text: str, tmp_path: Path, run_page: Callable[[Path], None]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        run_page(page)
