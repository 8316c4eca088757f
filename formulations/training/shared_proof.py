"""What proves fractions of time: duals of a merged model, spread over the model of all jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apportion.formulations.training.time_share_program import TIME, model_block
from apportion.instances.columns import Floats
from apportion.solver import Axis, Classes, Model, Solution

LARGEST_PROOF = 4_000
"""Columns of the model of all jobs up to which a proof is kept with an answer: it is made in some
milliseconds there, and beyond that files grow by megabytes."""


def spread_proof(
    whole: Model, merged: Model, found: Solution, classes: Classes, x: Floats
) -> Solution | None:
    """Give the solution of the model of all jobs that fractions and a merged solution make up.

    Its point has the fractions that were really decided, and every other column at the largest
    value that rows leave it; identical jobs share the dual of their class.

    Parameters
    ----------
    whole
        A model with columns ``TIME`` by job and type and at most one more, which no ``<=`` row
        holds; families of rows by job or by type. One objective, which is maximised.
    merged
        The same model of classes of identical jobs, by the first job of each.
    found
        Its solution.
    classes
        The classes, of all jobs that share.
    x
        Fractions, shape (m, k).

    Returns
    -------
    The solution; None where the merged one has no duals, or the model is too large to keep it.
    """
    if found.duals is None or whole.column_count > LARGEST_PROOF or len(whole.objectives) > 1:
        return None
    duals = np.zeros(whole.row_count)
    own = {block.name: block for block in merged.row_blocks}
    for block in whole.row_blocks:
        source = own.get(block.name)
        if source is None or len(block.axes) != 1:
            return None
        values = found.duals[source.start : source.stop]
        if block.axes[0].name == "job":
            values = _by_job(block.axes[0], source.axes[0], values, classes, whole)
        if values is None or values.size != block.size:
            return None
        duals[block.start : block.stop] = values
    point = _point(whole, x)
    value = whole.objectives[0].value(point)
    return replace(found, point=point, objectives=(value,), duals=duals, reduced_costs=None)


def _by_job(
    axis: Axis, source: Axis, values: Floats, classes: Classes, whole: Model
) -> Floats | None:
    """Duals of the rows of jobs, each an equal part of its class's."""
    block = model_block(whole, TIME)
    everyone = list(next(one.labels for one in block.axes if one.name == "job"))
    row = {label: at for at, label in enumerate(everyone)}
    place = {label: at for at, label in enumerate(source.labels)}
    at = np.array([row[label] for label in axis.labels], dtype=np.int64)
    kind = classes.of_row[at]
    first = [everyone[one] for one in classes.first[kind].tolist()]
    if not set(first) <= set(place):
        return None
    return values[[place[label] for label in first]] / classes.count[kind]


def _point(whole: Model, x: Floats) -> Floats:
    """Fractions as values of columns, and what the rows leave of the column beside them."""
    block = model_block(whole, TIME)
    codes = {axis.name: np.asarray(axis.codes) for axis in block.axes}
    out = np.zeros(whole.column_count)
    out[block.start : block.stop] = x[codes["job"], codes["type"]]
    for column in range(block.stop, whole.column_count):
        entries = np.flatnonzero(whole.indices == column)
        rows, values = whole.row_of_entry[entries], whole.values[entries]
        falls = values < 0.0
        room = whole.activity(out)[rows[falls]] - whole.row_lower[rows[falls]]
        out[column] = float((room / -values[falls]).min(initial=np.inf))
        out[column] = min(max(out[column], float(whole.lower[column])), float(whole.upper[column]))
    return out
