"""What proves fractions of time: duals of a merged model, spread over the model of all jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from apportion.instances.columns import Floats
from apportion.solver import Axis, Block, Classes, Model, Solution

LARGEST_PROOF = 4_000
"""Pairs of jobs and types up to which a proof is kept with an answer: it is made in some
milliseconds there, and beyond that files grow by megabytes."""


@dataclass(frozen=True, eq=False)
class Merged:
    """One solve of a model of classes of identical jobs.

    Parameters
    ----------
    model
        The model of the first job of each class, with columns by ``job`` and ``type``.
    found
        Its solution.
    classes
        The classes, of all jobs that share.
    """

    model: Model
    found: Solution
    classes: Classes


def spread_proof(whole: Model, merged: Merged, x: Floats) -> Solution | None:
    """Give the solution of the model of all jobs that fractions and a merged solution make up.

    Its point has the fractions that were really decided, and every other column at the largest
    value that rows leave it; identical jobs have equal parts of the dual of their class.

    Parameters
    ----------
    whole
        The same model of all jobs: columns by ``job`` and ``type``, and behind them columns that
        only ``>=`` rows hold down; families of rows by job or by type; one objective.
    merged
        The model that was solved.
    x
        Fractions, shape (m, k).

    Returns
    -------
    The solution; None where the merged one has no duals.
    """
    found = merged.found
    objective, *others = whole.objectives
    if found.duals is None or others:
        return None
    jobs = _Jobs.of(whole, merged.classes)
    duals = np.zeros(whole.row_count)
    source = {block.name: block for block in merged.model.row_blocks}
    for block in whole.row_blocks:
        own = source[block.name]
        values = found.duals[own.start : own.stop]
        for axis, same in zip(block.axes, own.axes, strict=True):
            if axis.name == "job":
                values = jobs.parts(axis, same, values)
        duals[block.start : block.stop] = values
    point = _point(whole, x)
    value = objective.value(point)
    return replace(found, point=point, objectives=(value,), duals=duals, reduced_costs=None)


@dataclass(frozen=True, eq=False)
class _Jobs:
    """Names of all jobs, and their classes."""

    names: list[str]
    classes: Classes

    @classmethod
    def of(cls, whole: Model, classes: Classes) -> _Jobs:
        axes = {axis.name: axis for axis in time_block(whole).axes}
        return cls([str(label) for label in axes["job"].labels], classes)

    def parts(self, axis: Axis, source: Axis, values: Floats) -> Floats:
        """Duals of the rows of jobs, each an equal part of its class's."""
        row = {name: at for at, name in enumerate(self.names)}
        place = {str(label): at for at, label in enumerate(source.labels)}
        kind = self.classes.of_row[[row[str(label)] for label in axis.labels]]
        first = self.classes.first[kind].tolist()
        return values[[place[self.names[one]] for one in first]] / self.classes.count[kind]


def time_block(model: Model) -> Block:
    """Columns by job and type."""
    return next(
        block for block in model.column_blocks if {a.name for a in block.axes} == {"job", "type"}
    )


def _point(whole: Model, x: Floats) -> Floats:
    """Fractions as values of columns, and what the rows leave of the columns behind them."""
    block = time_block(whole)
    codes = {axis.name: np.asarray(axis.codes) for axis in block.axes}
    out = np.zeros(whole.column_count)
    out[block.start : block.stop] = x[codes["job"], codes["type"]]
    for column in range(block.stop, whole.column_count):
        entries = np.flatnonzero(whole.indices == column)
        rows, values = whole.row_of_entry[entries], whole.values[entries]
        falls = values < 0.0
        room = whole.activity(out)[rows[falls]] - whole.row_lower[rows[falls]]
        most = float((room / -values[falls]).min(initial=np.inf))
        out[column] = min(max(most, float(whole.lower[column])), float(whole.upper[column]))
    return out
