"""How much longer the jobs of a round will take: from what was observed to columns.

Jobs that stop after a number of iterations need what they say. For jobs that stop on a metric a
learning curve is fitted to what was seen, and solved for the target; a high quantile stands for
jobs with deadlines, the median for best effort. What was fitted is kept as plain columns and
fitted again only when a job has shown more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from apportion.instances.columns import Bools, Floats, Ints, freeze
from apportion.instances.errors import InstanceError
from apportion.instances.training.curve_fit import CurveFits, CurveOptions, fit_curves, padded
from apportion.instances.training.curves import NO_CURVE, as_loss
from apportion.instances.training.jobs import Jobs

Memory = dict[str, Any]

POINTS_MOST = 128
"""Newest points of a history that are fitted: older ones weigh next to nothing."""

HISTORY_MOST = 4096
"""Ended jobs that are remembered for their template."""

_SAME_COUNT = 1e-6
"""Part of an iteration count by which a fit may pass a whole number and still mean it: to about
this much exact data are reproduced. One more iteration can be one more lease."""

_FITTED = ("family", "a", "b", "c", "reached", "slo", "best_effort")
_KEPT = ("code", "points", "newest", "target", *_FITTED)
_ENDED = ("history_model", "history_iterations")


class Flag(IntEnum):
    """Where an estimate comes from."""

    EXACT = 0
    """The job says how many iterations it runs."""
    FITTED = 1
    """Quantile of a fitted curve."""
    CAPPED = 2
    """The quantile lies beyond the cap; the cap is used."""
    UNREACHABLE = 3
    """The fitted curve never gets to the target; the cap is used."""
    TOO_FEW_POINTS = 4
    """Too little was seen; the cap, or for best effort what jobs of its template took."""
    NO_FIT = 5
    """What was seen does not fall; the same fallback."""


@dataclass(frozen=True)
class EstimatorOptions:
    """How estimates are made.

    Parameters
    ----------
    curves
        How curves are fitted.
    slo_quantile, best_effort_quantile
        Quantile of the bootstrap that stands for jobs with deadlines, and for the others.
    refits_most
        Jobs fitted in one round at most; the others keep what was fitted before, and those whose
        fit is oldest come first.
    restart_unit_s
        A restart on g GPUs takes so many seconds times ``1 + log2 g``; None: the jobs' own
        ``restart_s``.
    """

    curves: CurveOptions = field(default_factory=CurveOptions)
    slo_quantile: float = 0.8
    best_effort_quantile: float = 0.5
    refits_most: int = 1000
    restart_unit_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("slo_quantile", "best_effort_quantile"):
            level = getattr(self, name)
            if not 0.0 < level < 1.0:
                raise InstanceError(f"estimator.{name} = {level}: must lie between 0 and 1")
        if self.refits_most < 0:
            raise InstanceError(f"estimator.refits_most = {self.refits_most}: must not be negative")
        unit = self.restart_unit_s
        if unit is not None and not (np.isfinite(unit) and unit >= 0):
            raise InstanceError(f"estimator.restart_unit_s = {unit}: must not be negative")


@dataclass(frozen=True)
class Estimates:
    """What the n jobs of a round still need.

    Parameters
    ----------
    iterations
        Iterations in all, shape (n,); never above the cap, never below what is done. Of a fitted
        curve the first whole iteration that reaches the target.
    remaining_iterations
        Those still to come, shape (n,). A job that stops on a metric and still runs needs one
        more at least, up to its cap.
    remaining_s
        Seconds of the gang on each type, a restart included, shape (n, k); infinite where the
        job cannot run.
    config_remaining_s
        The same for each entry of the configurations, aligned with ``config_gpus``.
    flag
        Values of ``Flag``, shape (n,).
    quantile
        Quantile used, shape (n,); NaN where none was.
    family, a, b, c
        Fitted curves, shape (n,); ``NO_CURVE`` and NaN where there are none.
    fitted, late
        Jobs fitted in this round, and jobs that showed more but must wait for their turn.
    """

    iterations: Floats
    remaining_iterations: Floats
    remaining_s: Floats
    config_remaining_s: Floats
    flag: Ints
    quantile: Floats
    family: Ints
    a: Floats
    b: Floats
    c: Floats
    fitted: int
    late: int


class _Seen(NamedTuple):
    """What is known of the m metric-stopped jobs: rows, different points, newest, target."""

    rows: Ints
    points: Ints
    newest: Floats
    target: Floats


def estimate(
    jobs: Jobs, memory: Memory | None = None, options: EstimatorOptions | None = None
) -> tuple[Estimates, Memory]:
    """Estimate what the jobs of a round still need.

    Parameters
    ----------
    jobs
        As the round shows them.
    memory
        What the last call returned; None at the start.
    options
        How.

    Returns
    -------
    tuple
        Estimates, and the memory for the next call: plain columns, newcomers added, jobs that
        are gone left out.

    Raises
    ------
    InstanceError
        If the memory is not one of an estimator.
    """
    how = options or EstimatorOptions()
    checked = _checked(memory)
    seen = _seen(jobs)
    kept, stale = _recalled(jobs, seen, checked, how)
    turn = stale[: how.refits_most]
    if turn.size:
        _refit(jobs, seen, turn, kept, how)
    estimates = _estimates(jobs, seen, kept, checked, how, (turn.size, stale.size - turn.size))
    return estimates, {**kept, **{name: checked[name] for name in _ENDED}}


def remember_ended(memory: Memory | None, jobs: Jobs, done: Floats, ended: Bools) -> Memory:
    """Note how long metric-stopped jobs took that have ended: the guess for their template.

    Parameters
    ----------
    memory
        Of ``estimate``.
    jobs
        A round's.
    done
        Iterations done by the end of the round, shape (n,).
    ended
        Which have ended, shape (n,).
    """
    out = _checked(memory)
    rows = np.flatnonzero(ended & jobs.stop_on_metric)
    model = np.concatenate([out["history_model"], jobs.model[rows]])[-HISTORY_MOST:]
    iterations = np.concatenate([out["history_iterations"], done[rows]])[-HISTORY_MOST:]
    return {**out, "history_model": model, "history_iterations": iterations}


def relative_error(estimated: Any, true: Any) -> Floats:
    """Error of estimated iterations, ``|estimated - true| / true``; NaN where neither is known."""
    guess, truth = np.asarray(estimated, dtype=np.float64), np.asarray(true, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(guess - truth) / truth
    return cast(Floats, np.where(np.isfinite(truth) & (truth > 0), error, np.nan))


# ---------------------------------------------------------------------- what was fitted before


def _empty() -> Memory:
    out: Memory = {name: np.zeros(0) for name in _KEPT}
    for name in ("code", "points", "family"):
        out[name] = np.zeros(0, dtype=np.int64)
    return {**out, "history_model": np.zeros(0, dtype="U1"), "history_iterations": np.zeros(0)}


def _checked(memory: Memory | None) -> Memory:
    if memory is None:
        return _empty()
    if not isinstance(memory, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  # files
        raise InstanceError("memory.estimator: expected columns by name")
    for names in (_KEPT, _ENDED):
        sizes: set[int] = set()
        for name in names:
            given = memory.get(name)
            if not isinstance(given, np.ndarray) or given.ndim != 1:
                raise InstanceError(f"memory.estimator.{name}: expected a column")
            column = cast("NDArray[Any]", given)
            kind = "U" if name == "history_model" else _empty()[name].dtype.kind
            if column.dtype.kind != kind:
                raise InstanceError(f"memory.estimator.{name}: holds {column.dtype} values")
            sizes.add(column.size)
        if len(sizes) > 1:
            raise InstanceError(f"memory.estimator: {names[0]} and its columns differ in length")
    return {name: memory[name] for name in (*_KEPT, *_ENDED)}


def _seen(jobs: Jobs) -> _Seen:
    rows = np.flatnonzero(jobs.stop_on_metric)
    target = as_loss(jobs.metric_target[rows], jobs.metric_rises[rows])
    if not rows.size:
        return _Seen(rows, np.zeros(0, dtype=np.int64), np.zeros(0), target)
    starts, ends = jobs.observed_offsets[rows], jobs.observed_offsets[rows + 1]
    newest = np.full(rows.size, -1.0)
    some = ends > starts
    newest[some] = jobs.observed_iteration[ends[some] - 1]
    return _Seen(rows, _points(jobs)[rows], newest, target)


def _points(jobs: Jobs) -> Ints:
    """Count each job's different observed iterations, shape (n,).

    An iteration that was reported twice does not tell more of the curve's shape.
    """
    count = np.diff(jobs.observed_offsets)
    owner = np.repeat(np.arange(len(jobs)), count)
    k = jobs.observed_iteration
    step = (np.diff(k) > 0) | (np.diff(owner) > 0)
    if step.all():
        return count
    order = np.lexsort((k, owner))
    k, owner = k[order], owner[order]
    again = np.flatnonzero((np.diff(k) == 0) & (np.diff(owner) == 0))
    return count - np.bincount(owner[again], minlength=len(jobs))


def _recalled(
    jobs: Jobs, seen: _Seen, memory: Memory, how: EstimatorOptions
) -> tuple[Memory, Ints]:
    """Bring the kept columns into this round's order; say whose fit is out of date, oldest first."""
    code = jobs.code[seen.rows]
    order = np.argsort(memory["code"], kind="stable")
    place = np.searchsorted(memory["code"][order], code)
    place = np.minimum(place, max(order.size - 1, 0))
    known = np.zeros(code.size, dtype=np.bool_)
    if order.size:
        known = memory["code"][order][place] == code
    fresh: Memory = {"points": 0, "newest": -1.0, "family": NO_CURVE}
    kept: Memory = {"code": code}
    for name in _KEPT[1:]:
        column = np.full(code.size, fresh.get(name, np.nan), dtype=memory[name].dtype)
        column[known] = memory[name][order[place[known]]]
        kept[name] = column
    other = kept["target"] != seen.target  # another job under the same code
    kept["points"][other], kept["newest"][other] = 0, -1.0
    kept["family"][other] = NO_CURVE
    kept["target"] = seen.target
    more = (kept["points"] != seen.points) | (kept["newest"] != seen.newest)
    more &= seen.points >= how.curves.least_points
    at = np.flatnonzero(more)
    gained = seen.points[at] - kept["points"][at]
    return kept, at[np.lexsort((code[at], -gained, kept["points"][at] > 0))]


def _refit(jobs: Jobs, seen: _Seen, turn: Ints, kept: Memory, how: EstimatorOptions) -> None:
    rows = seen.rows[turn]
    first = np.maximum(jobs.observed_offsets[rows], jobs.observed_offsets[rows + 1] - POINTS_MOST)
    length = jobs.observed_offsets[rows + 1] - first
    starts = np.concatenate(([0], np.cumsum(length)))
    pick: Ints = np.arange(int(starts[-1])) + np.repeat(first - starts[:-1], length)
    rises = np.repeat(jobs.metric_rises[rows], length)
    loss = as_loss(jobs.observed_metric[pick], rises)
    history = padded(starts, jobs.observed_iteration[pick], loss)
    fits = fit_curves(history, seen.target[turn], jobs.code[rows], how.curves)
    _keep(kept, turn, fits, how)
    kept["points"][turn], kept["newest"][turn] = seen.points[turn], seen.newest[turn]


def _keep(kept: Memory, turn: Ints, fits: CurveFits, how: EstimatorOptions) -> None:
    for name in ("family", "a", "b", "c"):
        kept[name][turn] = getattr(fits, name)
    kept["reached"][turn] = fits.iterations
    kept["slo"][turn] = fits.quantile(how.slo_quantile)
    kept["best_effort"][turn] = fits.quantile(how.best_effort_quantile)


# ---------------------------------------------------------------------- from fits to columns


def _estimates(
    jobs: Jobs,
    seen: _Seen,
    kept: Memory,
    memory: Memory,
    how: EstimatorOptions,
    counts: tuple[int, int],
) -> Estimates:
    n, rows = len(jobs), seen.rows
    done = jobs.work_done
    iterations = np.maximum(jobs.work, done)
    flag = np.full(n, int(Flag.EXACT), dtype=np.int64)
    quantile = np.full(n, np.nan)
    family = np.full(n, NO_CURVE, dtype=np.int64)
    curve = np.full((3, n), np.nan)
    if rows.size:
        cap = np.where(np.isfinite(jobs.iteration_cap), jobs.iteration_cap, jobs.work)[rows]
        slo = jobs.slo[rows]
        wanted, flag[rows] = _wanted(jobs, seen, kept, memory, cap, how)
        least = np.minimum(np.floor(done[rows]) + 1.0, cap)
        iterations[rows] = np.maximum(np.clip(wanted, least, cap), done[rows])
        level = np.where(slo, how.slo_quantile, how.best_effort_quantile)
        quantile[rows] = np.where(np.isin(flag[rows], (Flag.FITTED, Flag.CAPPED)), level, np.nan)
        family[rows] = kept["family"]
        curve[:, rows] = kept["a"], kept["b"], kept["c"]
    left = iterations - done
    remaining_s = _seconds(left[:, None], jobs.throughput_per_s)
    remaining_s += _restart_s(jobs, jobs.gang, np.arange(n), how)[:, None]
    owner = np.repeat(np.arange(n), np.diff(jobs.config_offsets))
    config_s = _seconds(left[owner], jobs.config_throughput_per_s)
    config_s += _restart_s(jobs, jobs.config_gpus, owner, how)
    a, b, c = curve[0], curve[1], curve[2]
    for column in (iterations, left, remaining_s, config_s, flag, quantile, family, a, b, c):
        freeze(column)
    fitted, late = counts
    return Estimates(
        iterations, left, remaining_s, config_s, flag, quantile, family, a, b, c, fitted, late
    )


def _wanted(
    jobs: Jobs, seen: _Seen, kept: Memory, memory: Memory, cap: Floats, how: EstimatorOptions
) -> tuple[Floats, Ints]:
    """Iterations each metric-stopped job is thought to take, and where that comes from."""
    slo = jobs.slo[seen.rows]
    fitted = cast(Floats, np.where(slo, kept["slo"], kept["best_effort"]))
    usual: Floats = np.where(
        slo, cap, np.minimum(_template(jobs.model[seen.rows], memory, cap), cap)
    )
    never = np.isinf(kept["reached"])
    tried, falls = kept["points"] > 0, kept["family"] != NO_CURVE
    enough = seen.points >= how.curves.least_points
    # a history may hold points that cannot belong to a curve: then nothing was fitted either
    flag = np.select(
        [tried & falls & never, tried & falls & (fitted > cap), tried & falls, tried & enough],
        [Flag.UNREACHABLE, Flag.CAPPED, Flag.FITTED, Flag.NO_FIT],
        Flag.TOO_FEW_POINTS,
    )
    # a job looks at its metric after whole iterations only
    whole = np.ceil(fitted * (1.0 - _SAME_COUNT))
    value: Floats = np.select(
        [(flag == Flag.UNREACHABLE) | (flag == Flag.CAPPED), flag == Flag.FITTED],
        [cap, whole],
        usual,
    )
    return value, flag.astype(np.int64)


def _template(model: Any, memory: Memory, cap: Floats) -> Floats:
    """Median iterations of ended jobs of the same template; the cap where there was none."""
    out = cap.copy()
    names, iterations = memory["history_model"], memory["history_iterations"]
    for name in np.unique(model).tolist():
        of = iterations[names == name]
        if of.size:
            out[model == name] = np.median(of)
    return out


def _seconds(iterations: Floats, throughput: Floats) -> Floats:
    """Time of some iterations: for ever where the job cannot run, even if none are left."""
    out = np.full(np.broadcast_shapes(iterations.shape, throughput.shape), np.inf)
    return np.divide(iterations, throughput, out=out, where=throughput > 0)


def _restart_s(jobs: Jobs, gpus: Any, owner: Ints, how: EstimatorOptions) -> Floats:
    if how.restart_unit_s is None:
        return jobs.restart_s[owner]
    return how.restart_unit_s * (1.0 + np.log2(np.asarray(gpus, dtype=np.float64)))
