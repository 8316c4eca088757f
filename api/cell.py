"""One run of a comparison, in a process of its own: ``python -m apportion.cell``."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from apportion.families.family import Metrics
from apportion.families.lookup import scenario_family
from apportion.instances import InstanceError
from apportion.instances.files import read_json, write_json
from apportion.simulating import simulate

BAD_CELL = 2
"""Exit code of a child whose input is unusable."""


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


class Cells:
    """Runs cells in child processes, and ends those under way when told to.

    A child ends with the end of its standard input too, so that none is left behind however this
    process ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, cell: Cell, path: Path) -> Metrics:
        """Run a cell in a child that keeps its metrics in a file, or read what is kept.

        Raises
        ------
        InstanceError
            As the child found it.
        CellError
            If the child died, or was stopped.
        """
        found = kept(cell, path)
        if found is not None:
            return found
        with self._started(cell) as child:
            try:
                said = _told(child, json.dumps({"cell": asdict(cell), "path": str(path)}))
            finally:
                with self._lock:
                    self._live.discard(child)
        if child.returncode == BAD_CELL:
            raise InstanceError(said.strip())
        if child.returncode != 0:
            last = (said.strip().splitlines() or ["no message"])[-1]
            raise CellError(f"{cell.label}: the run ended with code {child.returncode}: {last}")
        return _metrics_in(cell, read_json(path), path)

    def _started(self, cell: Cell) -> subprocess.Popen[str]:
        with self._lock:
            if self._stopped:
                raise CellError(f"{cell.label}: stopped")
            # -P: a stranger's modules in the working folder must not shadow anything.
            # A group of its own: a terminal's interrupt goes to the parent, which ends its children
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "apportion.cell"],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                encoding="utf-8", start_new_session=True,
            )  # fmt: skip
            self._live.add(child)
            return child

    def stop(self) -> None:
        """End the children under way; no further one is started."""
        with self._lock:
            self._stopped = True
            for child in self._live:
                child.kill()


def _told(child: subprocess.Popen[str], text: str) -> str:
    """Hand a child its task, wait for its end, and return what it wrote to standard error."""
    assert child.stdin is not None
    assert child.stderr is not None
    with contextlib.suppress(BrokenPipeError):  # it died; its code says so
        child.stdin.write(f"{text}\n")
        child.stdin.flush()
    said = child.stderr.read()
    child.wait()
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()
    return said


def timings_path(path: Path) -> Path:
    """Name the file beside a cell that holds its wall times: the cell itself repeats exactly."""
    return path.with_suffix(".timings.json")


def _metrics_in(cell: Cell, found: Any, path: Path) -> Metrics:
    """Read the metrics of a cell, with the wall times that lie beside it."""
    runs = scenario_family(cell.scenario).runs
    return runs.metrics_from_dict({**found["metrics"], **read_json(timings_path(path))})


def kept(cell: Cell, path: Path) -> Metrics | None:
    """Read a finished cell, unless the scenario or the program has changed since."""
    try:
        found = read_json(path)
        metrics = _metrics_in(cell, found, path)
        same = found["version"] == version("apportion")
    except (InstanceError, LookupError, TypeError, ValueError):
        return None  # not there, or not one of ours: the cell is run again
    runs = scenario_family(cell.scenario).runs
    world = runs.read_scenario(cell.scenario, variant=cell.variant, seed=cell.seed)
    return metrics if same and found.get("scenario_digest") == runs.digest(world) else None


def run_cell(cell: Cell, path: Path) -> None:
    """Run a cell here and keep its metrics."""
    runs = scenario_family(cell.scenario).runs
    world = runs.read_scenario(cell.scenario, variant=cell.variant, seed=cell.seed)
    done = simulate(
        world, cell.policy, parameters=cell.parameters, gap=cell.gap, backend=cell.backend
    )
    metrics = runs.metrics(done).as_dict(timings=True)
    # wall times first: a cell that is there is whole
    write_json(timings_path(path), {"timings": metrics.pop("timings")})
    write_json(
        path,
        {
            "cell": asdict(cell),
            "version": version("apportion"),
            "scenario_digest": runs.digest(world),
            "metrics": metrics,
        },
    )


def main() -> int:
    """Read a cell from standard input and run it; ``BAD_CELL`` and one line on unusable input."""
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        run_cell(Cell(**asked["cell"]), Path(asked["path"]))
    except InstanceError as error:
        sys.stderr.write(f"{error}\n")
        return BAD_CELL
    return 0


def _end_with_parent() -> None:
    """Wait for the end of standard input: the parent is gone, or wants no answer any more."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(BAD_CELL + 1)


if __name__ == "__main__":
    sys.exit(main())
