"""CBC: the binary that PuLP ships, in a child process. Always one thread.

``work_limit`` counts branch-and-bound nodes for MILPs; LPs ignore it.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.backends.backend import (
    Capabilities,
    Claim,
    RawResult,
    Request,
    Stop,
    installed,
    too_late,
)
from apportion.solver.models.model import Model
from apportion.solver.models.mps import mps_text

GRACE_S = 0.1
"""Time after the deadline at which the child is killed, so that it may write what it found.

Most that an answer may be late at the 99th percentile is 0.25 s, and reading it takes some.
"""

START_S = 0.03
"""Time that the child takes to start and to end: with less left it is not started."""

BUILD_S_PER_NONZERO = 2e-6
"""Time to write a model down, and as much for CBC to read it: 0.06 s of ours for 80,000 nonzeros."""

TOLD = 0.9
"""Part of the time left that CBC is told of, because it looks at the clock late."""

_SEED_RANGE = 2**31
_BOUND = re.compile(r"Lower bound:\s+(-?\d+)\.(\d+)")
_NODES = re.compile(r"Enumerated nodes:\s+(\d+)")


@dataclass(frozen=True, slots=True)
class Cbc:
    """CBC."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        return "cbc"

    @property
    def capabilities(self) -> Capabilities:
        """Model classes that it takes."""
        return Capabilities(integers=True, continuous=True, duals=True)

    def available(self) -> bool:
        """Whether it can run here."""
        return installed("pulp") and os.access(_binary(), os.X_OK)

    def solve(self, model: Model, request: Request) -> RawResult:
        """Minimise the first objective of ``model``."""
        late = too_late(request, model, BUILD_S_PER_NONZERO)
        if late is not None:
            return late
        columns = [f"C{j}" for j in range(model.column_count)]
        rows = [f"R{i}" for i in range(model.row_count)]
        with tempfile.TemporaryDirectory(prefix="cbc") as name:
            folder = Path(name)
            (folder / "model.mps").write_text(mps_text(model, columns, rows), encoding="ascii")
            if request.start is not None and not model.is_lp:
                (folder / "start").write_text(_start_text(request.start, columns), encoding="ascii")
            if request.budget.left_s() < START_S:
                return RawResult(Claim.NOTHING, Stop.TIME, message="no time to start CBC")
            log = _run(folder, model, request)
            if log is None:
                return RawResult(Claim.NOTHING, Stop.TIME, message="killed at the deadline")
            return _read(folder, model, log)


def _binary() -> str:
    apis: Any = importlib.import_module("pulp.apis")
    return str(apis.PULP_CBC_CMD.pulp_cbc_path)


def _run(folder: Path, model: Model, request: Request) -> str | None:
    """Run the child; give its log, or ``None`` if it had to be killed."""
    command = [_binary(), "model.mps", "-timeMode", "elapsed"]
    left_s = request.budget.left_s()
    if math.isfinite(left_s):
        command += ["-sec", f"{max(TOLD * left_s, 0.01):.3f}"]
    if not model.is_lp:
        seed = str(request.seed % _SEED_RANGE)
        command += ["-ratio", repr(float(request.gap)), "-allow", "0", "-randomCbcSeed", seed]
        if request.work_limit is not None:
            command += ["-maxNodes", str(int(min(request.work_limit, _SEED_RANGE - 1)))]
        if request.start is not None:
            command += ["-mipstart", "start"]
    command += ["-solve", "-solution", "status", "-saveSolution", "values"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=left_s + GRACE_S if math.isfinite(left_s) else None,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.decode(errors="replace")


def _start_text(start: FloatArray, columns: list[str]) -> str:
    lines = ["Start given - objective value 0"]
    used = np.flatnonzero(start)
    lines.extend(
        f"{j} {columns[j]} {value!r} 0"
        for j, value in zip(used.tolist(), start[used].tolist(), strict=True)
    )
    return "\n".join(lines) + "\n"


def _read(folder: Path, model: Model, log: str) -> RawResult:
    status_file = folder / "status"
    if not status_file.exists():
        return RawResult(Claim.FAILED, message=log[-300:].strip())
    with status_file.open(encoding="ascii", errors="replace") as file:
        message = file.readline().strip()
    claim, stop = _claim(message)
    value, duals, x, reduced_costs = _values(folder / "values", model)
    nodes = _NODES.search(log)
    if claim not in (Claim.OPTIMAL, Claim.POINT):
        x = None
    optimal_lp = model.is_lp and claim is Claim.OPTIMAL
    return RawResult(
        claim,
        stop,
        x=x,
        bound=None if model.is_lp else _bound(log, claim, value),
        duals=duals if optimal_lp else None,
        reduced_costs=reduced_costs if optimal_lp else None,
        work=float(nodes[1]) if nodes else None,
        message=message,
    )


def _claim(message: str) -> tuple[Claim, Stop]:
    """Meaning of the first line of the solution file."""
    word = message.split(" - ")[0].lower()
    if word.startswith("optimal"):
        return Claim.OPTIMAL, Stop.FINISHED
    if "infeasible" in word:
        # preprocessing says so of unbounded models, too
        return Claim.INFEASIBLE_OR_UNBOUNDED, Stop.FINISHED
    if "unbounded" in word:
        return Claim.UNBOUNDED, Stop.FINISHED
    if word.startswith("stopped on"):
        stop = Stop.TIME if "time" in word else Stop.WORK
        return (Claim.NOTHING if "no integer" in word else Claim.POINT), stop
    return Claim.NOTHING, Stop.FINISHED


def _bound(log: str, claim: Claim, value: float | None) -> float | None:
    """Lower bound: the printed one less its rounding, or the value of a finished search."""
    printed = _BOUND.findall(log)
    if printed:
        whole, decimals = printed[-1]
        return float(f"{whole}.{decimals}") - 0.5 * 10.0 ** -len(decimals)
    return value if claim is Claim.OPTIMAL else None


def _values(
    file: Path, model: Model
) -> tuple[float | None, FloatArray | None, FloatArray | None, FloatArray | None]:
    """Objective value, row duals, point and reduced costs from CBC's binary solution file.

    Its text file rounds to eight digits.
    """
    data = file.read_bytes() if file.exists() else b""
    if len(data) < 16:
        return None, None, None, None
    rows, columns = np.frombuffer(data[:8], dtype=np.int32).tolist()
    numbers = np.frombuffer(data[8:], dtype=np.float64)
    if columns != model.column_count or numbers.size != 1 + 2 * rows + 2 * columns:
        return None, None, None, None
    _, duals, x, reduced_costs = np.split(numbers[1:], np.cumsum([rows, rows, columns]))
    return float(numbers[0]), _all_rows(model, duals), x, reduced_costs


def _all_rows(model: Model, duals: FloatArray) -> FloatArray | None:
    """Duals of all rows: CBC drops those without a side when it reads the file."""
    if duals.size == model.row_count:
        return duals
    kept = np.isfinite(model.row_lower) | np.isfinite(model.row_upper)
    if duals.size != int(kept.sum()):
        return None
    spread = np.zeros(model.row_count)
    spread[kept] = duals
    return spread
