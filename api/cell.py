"""One run of a comparison, in a process of its own: ``python -m apportion.cell``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from apportion.executor.training import scenario_digest
from apportion.instances import InstanceError
from apportion.instances.files import read_json, write_json
from apportion.instances.training.scenario_toml import read_scenario
from apportion.results import TrainingMetrics, training_metrics
from apportion.simulating import simulate


@dataclass(frozen=True)
class Cell:
    """A policy on a variant of a scenario file with a seed.

    ``label`` is what tables call the policy; ``variant`` None is the scenario as it is, ``seed``
    None its own.
    """

    label: str
    policy: str
    parameters: Mapping[str, Any]
    scenario: str
    variant: str | None
    seed: int | None
    gap: float
    backend: str


class CellError(RuntimeError):
    """A cell's process ended without a result."""


def run_cell_in_child(cell: Cell, path: Path) -> TrainingMetrics:
    """Run a cell in a child process that keeps its metrics in a file, or read what is kept.

    Raises
    ------
    InstanceError
        As the child found it.
    CellError
        If the child died.
    """
    kept = _kept(cell, path)
    if kept is not None:
        return kept
    # -P: a stranger's modules in the working folder must not shadow anything
    child = subprocess.run(
        [sys.executable, "-P", "-m", "apportion.cell"],
        input=json.dumps({"cell": asdict(cell), "path": str(path)}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if child.returncode == 2:
        raise InstanceError(child.stderr.strip())
    if child.returncode != 0:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise CellError(f"{cell.label}: the run ended with code {child.returncode}: {last}")
    return TrainingMetrics.from_dict(read_json(path)["metrics"])


def _kept(cell: Cell, path: Path) -> TrainingMetrics | None:
    """Read a finished cell, unless the scenario has changed since."""
    if not path.exists():
        return None
    found = read_json(path)
    world = read_scenario(cell.scenario, variant=cell.variant, seed=cell.seed)
    same = found.get("scenario_digest") == scenario_digest(world)
    return TrainingMetrics.from_dict(found["metrics"]) if same else None


def run_cell(cell: Cell, path: Path) -> None:
    """Run a cell here and keep its metrics."""
    world = read_scenario(cell.scenario, variant=cell.variant, seed=cell.seed)
    done = simulate(
        world, cell.policy, parameters=cell.parameters, gap=cell.gap, backend=cell.backend
    )
    write_json(
        path,
        {
            "cell": asdict(cell),
            "scenario_digest": scenario_digest(world),
            "metrics": training_metrics(done).as_dict(timings=True),
        },
    )


def main() -> int:
    """Read a cell from standard input and run it; 2 and one line on unusable input."""
    asked = json.load(sys.stdin)
    try:
        run_cell(Cell(**asked["cell"]), Path(asked["path"]))
    except InstanceError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
