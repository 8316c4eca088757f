"""Write to locks/ the exact versions of all that the project and its extras need on this Python.

pip resolves as it would for a first installation. What the machine adds to pip's settings (further
indexes, local wheels, constraints) is left out, so the answer is the public index's on any machine;
only an index, a certificate or a proxy named in the environment is kept, since without them some
networks reach nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

KEPT = {"PIP_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_INDEX_URL", "PIP_PROXY"}


def requirements(pyproject: Path) -> list[str]:
    """Everything that pyproject.toml asks for: to build, to run, and in each extra."""
    table = tomllib.loads(pyproject.read_text())
    project = table["project"]
    parts = [table["build-system"]["requires"], project["dependencies"]]
    parts += project["optional-dependencies"].values()
    return sorted({requirement for part in parts for requirement in part})


def resolve(wanted: list[str]) -> dict[str, str]:
    """Versions that pip would install for ``wanted`` into an empty environment."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PIP_") or k in KEPT}
    environment["PIP_CONFIG_FILE"] = os.devnull
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--dry-run", "--ignore-installed", "--only-binary=:all:", "--report=-", *wanted]
    answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    found = [item["metadata"] for item in json.loads(answer)["install"]]
    return {item["name"].lower().replace("_", "-"): item["version"] for item in found}


def main() -> None:
    """Resolve and write, one package a line."""
    root = Path(__file__).parents[1]
    minor = sys.version_info[:2]
    versions = resolve(requirements(root / "pyproject.toml"))
    lines = [f"{name}=={version}" for name, version in sorted(versions.items())]
    title = "# All that apportion needs on Python {}.{}, made by `make lock`.".format(*minor)
    lock = root / "locks" / "py{}{}.txt".format(*minor)
    lock.write_text("\n".join([title, *lines, ""]))


if __name__ == "__main__":
    main()
