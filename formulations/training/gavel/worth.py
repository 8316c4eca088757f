"""Models of most worth: a sum, or a sum over another one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.formulations.training.gavel.pairs import Pairs
from apportion.instances.columns import Floats
from apportion.solver import Axis, Model, ModelBuilder, Solution


def worth_model(pairs: Pairs, worth: Floats, count: NDArray[np.number], need: Floats) -> Model:
    """Give the LP of most worth: columns ``x``; rows ``one``, ``capacity``, ``in_time``.

    Parameters
    ----------
    pairs
        Jobs or classes.
    worth
        Worth of each one's time on each type, shape (m, k); the objective is in parts of the
        largest.
    count
        Members of each class.
    need
        Speed that each must have, 0 for none, shape (m,).
    """
    builder = ModelBuilder("worth")
    x = pairs.time(builder)
    row, kind = pairs.places
    _in_time(builder, pairs, x, need)
    value = (worth / worth.max())[row, kind] * count[row]
    builder.objective("worth", column=x, value=value, maximise=True)
    return builder.build()


def _in_time(builder: ModelBuilder, pairs: Pairs, x: NDArray[np.int64], need: Floats) -> None:
    row, _ = pairs.places
    asked = np.flatnonzero(need > 0.0)
    place = np.full(need.size, -1, dtype=np.int64)
    place[asked] = np.arange(asked.size)
    own = place[row] >= 0
    builder.rows(
        "in_time", asked.size, row=place[row[own]], column=x[own], value=pairs.relative[own],
        lower=need[asked] / pairs.best[asked],
        axes=(Axis("job", [pairs.job[at] for at in asked.tolist()]),),
    )  # fmt: skip


def ratio_model(
    pairs: Pairs, worth: Floats, count: NDArray[np.number], need: Floats, price: Floats
) -> Model:
    """Give the LP of most worth for money, by the substitution of Charnes and Cooper (1962).

    Columns ``part[job, type]`` are fractions times ``scale``, which makes all cost 1; the cost of
    the cheapest gang is the unit, so that ``scale`` is 1 at most: adding the pair of best ratio
    never lowers the ratio, so an optimum exists that costs as much as some whole gang. Second
    objective: the least scale, which is the most that can be spent at that ratio.
    """
    row, kind = pairs.places
    jobs, types = len(pairs.job), len(pairs.kinds)
    builder = ModelBuilder("worth for money")
    part = builder.columns("part", row.size, axes=pairs.axes())
    scale = builder.columns("scale", 1)
    everyone, all_types = np.arange(jobs), np.arange(types)

    def with_scale(
        name: str, rows: int, at: NDArray[np.int64], value: Floats, side: Floats
    ) -> None:
        builder.rows(
            name, rows, row=np.concatenate((at, np.arange(rows))),
            column=np.concatenate((part, np.repeat(scale, rows))),
            value=np.concatenate((value, -side)), upper=0.0,
        )  # fmt: skip

    with_scale("one", everyone.size, row, np.ones(row.size), np.ones(jobs))
    room = np.maximum(1.0, pairs.capacity)
    load = pairs.gang[row] / room[kind]
    with_scale("capacity", all_types.size, kind, load, pairs.capacity / room)
    with_scale("in_time", everyone.size, row, -pairs.relative, -need / pairs.best)
    own = (pairs.gang / count)[row] * price[kind]
    cost = own / own.min()
    builder.rows("cost", 1, row=0, column=part, value=cost * count[row], lower=1.0, upper=1.0)
    value = worth[row, kind] * count[row]
    builder.objective("worth", column=part, value=value, maximise=True)
    builder.objective("scale", column=scale, value=1.0)
    return builder.build()


def ratio_point(pairs: Pairs, solution: Solution) -> Floats:
    """Fractions of a solution of ``ratio_model``, shape (m, k)."""
    row, kind = pairs.places
    out = np.zeros(pairs.speed.shape)
    out[row, kind] = solution.x[:-1] / solution.x[-1]
    return out
