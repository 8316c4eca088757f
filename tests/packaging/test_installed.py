"""The wheel works in an empty environment, whatever the user's own modules are called.

The environment holds the wheel and links to the distributions that the wheel says it needs, and to no
others: a dependency that pyproject.toml forgets is missing here, though the tests' own environment
has it. The editable installation that the tests run on is out of sight.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.xdist_group("wheel")

STRANGERS = ("api", "executor", "formulations", "instances", "results", "solver")


def closure(requirements: Iterable[str], seen: set[str]) -> set[str]:
    """The distributions that ``requirements`` ask for, without extras, and what those need."""
    for requirement in map(Requirement, requirements):
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and requirement.name not in seen:
            seen.add(requirement.name)
            closure(distribution(requirement.name).requires or (), seen)
    return seen


def link(name: str, site: Path) -> None:
    """Make an installed distribution visible in another environment."""
    files = distribution(name).files or ()
    for part in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        if not (site / part).exists():
            (site / part).symlink_to(distribution(name).locate_file(part))


class Elsewhere:
    """A folder of a user's, with modules named like our rooms, and an environment with the wheel."""

    def __init__(self, folder: Path, wheel: Path, dependencies: Iterable[str]) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        for name in STRANGERS:
            (self.folder / f"{name}.py").write_text("WHOSE = 'the stranger'\n")
        home = folder / "environment"
        venv.create(home, with_pip=False, symlinks=True)
        self.bin = home / "bin"
        minor = "python{}.{}".format(*sys.version_info[:2])
        self.site = home / "lib" / minor / "site-packages"
        for name in closure(dependencies, set()):
            link(name, self.site)
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install"]
        pip += ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
        subprocess.run([*pip, str(wheel)], check=True)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """What a program of the environment says, started in the user's folder."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        program, *rest = command
        return subprocess.run(
            [self.bin / program, *rest],
            cwd=self.folder,
            env=clean,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def elsewhere(
    wheel: Path, pyproject: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Elsewhere:
    folder = tmp_path_factory.mktemp("elsewhere")
    return Elsewhere(folder, wheel, pyproject["project"]["dependencies"])


def test_the_demo_runs(elsewhere: Elsewhere) -> None:
    done = elsewhere.run("apportion", "demo")
    assert done.returncode == 0, done.stderr
    for policy in ("fft", "srtf", "fifo"):
        assert policy in done.stdout.lower()
    assert "Traceback" not in done.stderr


def test_a_program_may_use_both(elsewhere: Elsewhere) -> None:
    lines = [f"import {name}; assert {name}.WHOSE == 'the stranger'" for name in STRANGERS]
    lines += ["import apportion", "import apportion.command, apportion.solver, apportion.results"]
    lines += ["print(apportion.__file__)", "print(apportion.solver.__file__)"]
    (elsewhere.folder / "host.py").write_text("\n".join(lines))
    done = elsewhere.run("python", "host.py")
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert Path(line).is_relative_to(elsewhere.site)


def test_every_module_imports_with_the_declared_dependencies(elsewhere: Elsewhere) -> None:
    # Not __main__ modules, which are programs.
    code = (
        "import importlib, pkgutil, apportion\n"
        "for module in pkgutil.walk_packages(apportion.__path__, 'apportion.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
    )
    done = elsewhere.run("python", "-W", "error::SyntaxWarning", "-c", code)
    assert done.returncode == 0, done.stderr
