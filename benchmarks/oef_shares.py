"""Cooperative OEF at scale: envy-free shares of many different users, exact and within 1 %.

Usage: ``python benchmarks/oef_shares.py [--short] [--out results/reference]``

Instances, n users on k types, one seed each:

- ``step``: the speed-up from each type to the next is uniform on [1.05, 1.6], independent.
- ``family``: speeds ``b ** e`` with b evenly spaced from 1 to 4 and one exponent e a user, uniform
  on [0.3, 1.2], times log-normal noise of 3 %; sorted, in parts of the slowest type's.
- GPUs of each type: ``4 n / k`` times a uniform number on [0.5, 1.5], rounded.
- weights: all 1, or drawn from 1, 2 and 4.

CPU seconds of this process (one thread), imports excluded, one run each. ``envy`` is the largest
envy over every ordered pair in mean utilities, computed here from the GPUs alone. ``all rows`` is
the same model with a row for each ordered pair, by HiGHS's dual simplex through scipy, stopped
after 60 s and not tried beyond 200,000 rows.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, vstack

from apportion.formulations.training.oef.cooperative import cooperative
from apportion.formulations.training.oef.noncooperative import noncooperative
from apportion.solver import Budget

MOST_ROWS = 200_000
MOST_S = 60.0
NO_LIMIT = Budget.of(None)

SHORT = (("step", 100, 3, False), ("family", 100, 3, True))
LONG = (
    ("step", 100, 3, False), ("family", 100, 3, False), ("step", 100, 3, True),
    ("step", 300, 4, False), ("family", 300, 4, False), ("step", 300, 4, True),
    ("family", 300, 4, True),
    ("step", 1000, 4, False), ("family", 1000, 4, False), ("step", 1000, 4, True),
)  # fmt: skip


@dataclass(frozen=True)
class Instance:
    """Users and GPUs."""

    speed: np.ndarray
    weight: np.ndarray
    gpus: np.ndarray

    @property
    def problem(self) -> tuple[np.ndarray, ...]:
        """What the solvers take: no caps."""
        return self.speed, self.weight, np.full(self.weight.size, np.inf), self.gpus


def make(kind: str, users: int, types: int, weighted: bool, seed: int = 0) -> Instance:
    """Draw an instance by the laws above."""
    rng = np.random.default_rng(seed)
    if kind == "step":
        steps = rng.uniform(1.05, 1.6, (users, types - 1))
        speed = np.cumprod(np.hstack((np.ones((users, 1)), steps)), axis=1)
    else:
        exponent = rng.uniform(0.3, 1.2, (users, 1))
        noise = np.exp(rng.normal(0.0, 0.03, (users, types)))
        speed = np.sort(np.linspace(1.0, 4.0, types) ** exponent * noise, axis=1)
        speed /= speed[:, :1]
    gpus = np.round(4.0 * users / types * rng.uniform(0.5, 1.5, types))
    weight = rng.choice([1.0, 2.0, 4.0], users) if weighted else np.ones(users)
    return Instance(speed, weight, gpus)


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, and what it returned."""
    start = time.process_time()
    out = work()
    return time.process_time() - start, out


def worst_envy(case: Instance, gpus: np.ndarray) -> float:
    """Largest envy over all ordered pairs and excess over capacities, relative."""
    bundle = gpus / case.weight[:, None]
    own = (case.speed * bundle).sum(axis=1)
    envy = float((case.speed @ bundle.T - own[:, None]).max()) / float(own.mean())
    over = float((gpus.sum(axis=0) / case.gpus).max()) - 1.0
    return max(envy, over, 0.0)


def with_all_rows(case: Instance) -> tuple[float, float | None] | None:
    """CPU seconds and optimum of the model with a row for each pair; None where not tried."""
    users, types = case.speed.shape
    if users * (users - 1) > MOST_ROWS:
        return None
    one, other = np.nonzero(~np.eye(users, dtype=bool))
    row, kind = np.repeat(np.arange(one.size), types), np.arange(types)
    shape = (one.size, users * types)
    value = case.speed[one].ravel()
    mine = csr_matrix((-value, (row, (one[:, None] * types + kind).ravel())), shape)
    theirs = csr_matrix((value, (row, (other[:, None] * types + kind).ravel())), shape)
    load = csr_matrix(
        (np.repeat(case.weight, types), (np.tile(kind, users), np.arange(users * types))),
        (types, users * types),
    )
    matrix = vstack([mine + theirs, load])
    sides = np.r_[np.zeros(one.size), case.gpus]
    goal = -(case.weight[:, None] * case.speed).ravel()
    took, answer = cpu(
        lambda: linprog(
            goal, A_ub=matrix, b_ub=sides, method="highs-ds", options={"time_limit": MOST_S}
        )
    )
    return took, float(-answer.fun) if answer.status == 0 else None


def measure(kind: str, users: int, types: int, weighted: bool) -> list[str]:
    """One line of the table."""
    case = make(kind, users, types, weighted)
    took, found = cpu(lambda: cooperative(*case.problem, budget=NO_LIMIT, gap=0.0))
    near_s, near = cpu(lambda: cooperative(*case.problem, budget=NO_LIMIT, gap=0.01))
    equal_s, equal = cpu(lambda: noncooperative(*case.problem, budget=NO_LIMIT))
    dense = with_all_rows(case)
    said = "not tried"
    if dense is not None:
        seconds, value = dense
        same = "" if value is None else f" ({(found.value - value) / value:+.0e})"
        said = f"{seconds:.2f}{same}" if value is not None else f"> {MOST_S:.0f}"
    gap = (found.bound - found.value) / found.bound
    near_gap = (near.bound - near.value) / near.bound
    print(f"{kind} {users}x{types} done", file=sys.stderr, flush=True)
    return [
        f"{kind} {users} x {types}", "1, 2, 4" if weighted else "1",
        f"{took:.2f}", str(found.rounds), f"{found.rows}", f"{users * (users - 1)}",
        f"{found.value:.4f}", f"{gap:.0e}" if found.proved else f"{gap:.1e} (not proved)",
        f"{worst_envy(case, found.gpus):.0e}",
        f"{near_s:.2f}", f"{near_gap:.2%}", f"{worst_envy(case, near.gpus):.0e}",
        said, f"{equal_s:.2f}", f"{equal.value * case.weight.sum() / found.value:.3f}",
    ]  # fmt: skip


HEADER = (
    "instance", "weights", "exact (s)", "rounds", "rows", "pairs", "throughput", "gap", "envy",
    "within 1 % (s)", "gap there", "envy there", "all rows (s, difference)",
    "non-cooperative (s)", "its throughput",
)  # fmt: skip


def table(lines: list[list[str]]) -> str:
    """Lay the lines out as a table."""
    rows = [list(HEADER), ["---"] * len(HEADER), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="the two smallest instances")
    parser.add_argument("--out", type=Path, help="folder to write oef_shares.md to")
    given = parser.parse_args(arguments)
    text = table([measure(*one) for one in (SHORT if given.short else LONG)])
    print(text)
    if given.out is not None:
        said = (__doc__ or "").split("\n\n", 2)[2]
        versions = (
            f"numpy {np.__version__}, scipy {scipy.__version__}, Python {sys.version.split()[0]}"
        )
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "oef_shares.md").write_text(
            f"# Cooperative OEF at scale\n\nMade by `python benchmarks/oef_shares.py --out"
            f" results/reference`; {versions}; one run each on a shared machine.\n\n{said}\n"
            f"`its throughput` is the sum of normalised throughputs of the non-cooperative form"
            f" in parts of the cooperative one's.\n\n{text}",
            encoding="utf-8",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
