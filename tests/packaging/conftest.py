"""The checkout as its files, and the wheel built from them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def listed(*options: str) -> list[str]:
    """Files of the checkout that exist, by ``git ls-files`` with ``options``."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", *options]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in set(out.split("\0")) if (ROOT / name).is_file())


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def committed() -> list[str]:
    """Every file under version control."""
    return listed()


@pytest.fixture(scope="session")
def present() -> list[str]:
    """The same and what is new: all that a build from this folder could see."""
    return listed("--cached", "--others", "--exclude-standard")


@pytest.fixture(scope="session")
def pyproject() -> dict[str, Any]:
    """The project's own description."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="session")
def wheel(present: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy, so that nothing left by an earlier build can slip in."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in present:
        target = folder / "copy" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([*command, str(folder / "copy")], check=True)
    (built,) = folder.glob("*.whl")
    return built
