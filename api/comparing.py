"""Policies x variants x seeds, in local processes, each finished cell kept."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from numbers import Integral
from pathlib import Path
from typing import Any

from apportion.cell import Cell, Cells
from apportion.families.family import Metrics
from apportion.families.lookup import family_of, is_scenario, scenario_family
from apportion.instances import InstanceError, Policy
from apportion.instances.scenario_file import BASE
from apportion.registry import label_of, made_for, make_policy, policy_from_label, told_parameters
from apportion.results import Labels, Table
from apportion.simulating import made_folder, simulate
from apportion.solving import solver_of

CellDone = Callable[[Cell, Metrics, int, int], None]
"""Called after each cell with the cell, its metrics, cells done and cells in all."""


def compare(
    scenario: Any,
    policies: Sequence[str | Policy],
    *,
    variants: Sequence[str] | None = None,
    seeds: Iterable[int] | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    gap: float = 1e-4,
    backend: str = "auto",
    done: CellDone | None = None,
) -> Table:
    """Run every policy on every variant and seed, and set the metrics side by side.

    Parameters
    ----------
    scenario
        A scenario file, the name of a bundled one, or a scenario, of any family.
    policies
        Names, ``"name:parameter=value"`` labels, or policies.
    variants
        Names of variants; ``"base"`` is the scenario as it is. Default: base and all variants.
    seeds
        Seeds; default: the scenario's own.
    out
        Folder in which each finished cell is kept, so that a second call goes on where the first
        one stopped; default: a temporary one.
    workers
        Processes at once; default: the processors this process may use. Scenarios and policies
        given as objects run in this process.
    gap, backend
        As in ``simulate``.
    done
        Called after each cell with the cell, its metrics, cells done and cells in all.

    Returns
    -------
    Table
        One row for each policy and variant.

    Raises
    ------
    InstanceError
        On unusable input; nothing is run then.
    """
    solver_of(gap, backend, 0)
    if workers is not None and workers < 1:
        raise InstanceError(f"compare: workers = {workers}: must be at least 1")
    if is_scenario(scenario) or not all(isinstance(one, str) for one in policies):
        if out is not None:
            raise InstanceError("compare: out needs a scenario file and policies by name")
        return _compare_here(scenario, policies, variants, seeds, gap, backend, done)
    labels = [str(one) for one in policies]
    cells = _cells(str(scenario), labels, variants, seeds, gap, backend)
    with tempfile.TemporaryDirectory() as scratch:
        folder = made_folder(Path(scratch if out is None else out) / "cells")
        found = _run_all(cells, folder, workers or _processors(), done)
    labelled = [
        (Labels(cell.label, cell.variant or BASE, cell.seed or 0), metrics)
        for cell, metrics in zip(cells, found, strict=True)
    ]
    return scenario_family(scenario).tables.comparison(labelled, title=_title(scenario))


def _title(scenario: Any) -> str:
    return scenario.name if is_scenario(scenario) else Path(scenario).stem


def _cells(
    scenario: str, policies: Sequence[str], variants: Sequence[str] | None,
    seeds: Iterable[int] | None, gap: float, backend: str,
) -> list[Cell]:  # fmt: skip
    chosen, grid = _chosen(scenario, variants), _grid(seeds)
    if not policies or not chosen:
        raise InstanceError("compare: needs at least one policy and one variant")
    cells: list[Cell] = []
    family = scenario_family(scenario)
    for label in policies:
        name, given = policy_from_label(label)
        made_for(family, name, given)
        cells += [
            Cell(label, name, given, scenario, None if v == BASE else v, s, gap, backend)
            for v in chosen
            for s in grid
        ]
    if len({(cell.label, cell.variant, cell.seed) for cell in cells}) < len(cells):
        raise InstanceError("compare: a policy, variant or seed is named twice")
    return cells


def _chosen(scenario: str | Path, variants: Sequence[str] | None) -> list[str]:
    """Give the names of variants to run, all of which can be read."""
    runs = scenario_family(scenario).runs
    known = runs.variant_names(scenario)
    chosen = [BASE, *known] if variants is None else list(variants)
    for name in chosen:
        runs.read_scenario(scenario, variant=None if name == BASE else name)
    return chosen


def _grid(seeds: Iterable[int] | None) -> list[int | None]:
    if seeds is None:
        return [None]
    grid: list[Any] = list(seeds)
    for seed in grid:
        if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
            raise InstanceError(f"compare: seed {seed!r}: must be a whole number, not negative")
    if not grid:
        raise InstanceError("compare: needs at least one seed")
    return [int(seed) for seed in grid]


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_all(
    cells: Sequence[Cell], folder: Path, workers: int, done: CellDone | None
) -> list[Metrics]:
    """Run the cells that are not kept yet, a few processes at a time."""
    found: list[Metrics | None] = [None] * len(cells)
    children = Cells()
    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(cells)))) as pool:
        places = {
            pool.submit(children.run, cell, folder / f"{_key(cell)}.json"): at
            for at, cell in enumerate(cells)
        }
        try:
            for count, future in enumerate(as_completed(places), start=1):
                at = places[future]
                metrics = found[at] = future.result()
                if done is not None:
                    done(cells[at], metrics, count, len(cells))
        except BaseException:
            children.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [metrics for metrics in found if metrics is not None]


def _key(cell: Cell) -> str:
    """Name the file of a cell by all that decides its outcome, defaults of the policy included."""
    every = told_parameters(make_policy(cell.policy, cell.parameters))
    text = json.dumps({**asdict(cell), "every": every}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compare_here(
    scenario: Any, policies: Sequence[str | Policy],
    variants: Sequence[str] | None, seeds: Iterable[int] | None, gap: float, backend: str,
    done: CellDone | None,
) -> Table:  # fmt: skip
    """Run objects in this process, one after the other."""
    family = family_of(scenario) if is_scenario(scenario) else scenario_family(scenario)
    if is_scenario(scenario):
        if variants is not None or seeds is not None:
            raise InstanceError("compare: variants and seeds need a scenario file")
        worlds = [(BASE, 0, scenario)]
    else:
        worlds = [
            (
                v,
                seed or 0,
                family.runs.read_scenario(scenario, variant=None if v == BASE else v, seed=seed),
            )
            for v in _chosen(scenario, variants)
            for seed in _grid(seeds)
        ]
    labelled = {
        one if isinstance(one, str) else label_of(one): (
            make_policy(*policy_from_label(one)) if isinstance(one, str) else one
        )
        for one in policies
    }
    if len(labelled) < len(policies):
        raise InstanceError("compare: a policy is named twice")
    rows: list[tuple[Labels, Metrics]] = []
    for label, chosen_policy in labelled.items():
        for variant, seed, world in worlds:
            metrics = family.runs.metrics(simulate(world, chosen_policy, gap=gap, backend=backend))
            rows.append((Labels(label, variant, seed), metrics))
            if done is not None:
                cell = Cell(label, chosen_policy.name, {}, world.name, variant, seed, gap, backend)
                done(cell, metrics, len(rows), len(policies) * len(worlds))
    return family.tables.comparison(rows, title=_title(scenario))
