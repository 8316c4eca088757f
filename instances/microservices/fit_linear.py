"""Erms' law from measured tails: two lines over the load, and how interference steepens them.

Every cut between two loads is tried: a line is laid through the points on either side, cuts with a
falling line, or a second one that is not steeper, are passed over, and the best of the others is
the one with the largest accuracy for its gap (how far the lines are apart where they should
meet). Points far off the lines are taken out, and the search is made once more.

Source: Erms (ASPLOS 2023), as its artifact fits; the outlier rule, the fallback of one line and
the tree of inflections written here are our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from apportion.instances.columns import Bools, Floats, finite, floats, require
from apportion.instances.errors import InstanceError
from apportion.instances.microservices.linear_latency import LinearLatency

GAP_FLOOR = 0.01
"""Gaps below this part of the range of latencies count alike: they are rounding, not a break."""

OUTLIER_DEVIATIONS = 4.0
"""Residuals beyond so many standard deviations, estimated by their median, are outliers."""

NOISE = 0.01
"""Deviations below this part of the value are none: exact points must not make outliers of
others that are off by a rounding."""

MEDIAN_POINTS = 500
"""Points from which the line that outliers cannot bend is drawn; its pairs are their square."""

NORMAL_MEDIAN = 0.6745
"""Median of the absolute value of a standard normal variable."""

LEAST_SIDE = 3
"""Points a line needs where there are enough: two always lie on one."""

ROUNDS = 10
"""Times that points may change sides; two or three are enough."""

TREE_DEPTH = 3
"""Depth of the tree of inflections, as in Erms' artifact."""


@dataclass(frozen=True)
class TwoLines:
    """Two fitted lines.

    Parameters
    ----------
    slope_before_ms, intercept_before_ms, slope_after_ms, intercept_after_ms
        The lines.
    inflection_per_s
        Where they cross, or the cut where they cross below zero; infinite: one line only.
    accuracy
        One less the mean absolute error in parts of the value, over the points kept.
    used
        Points that are no outliers, shape (N,).
    warnings
        What to be wary of.
    """

    slope_before_ms: float
    intercept_before_ms: float
    slope_after_ms: float
    intercept_after_ms: float
    inflection_per_s: float
    accuracy: float
    used: Bools
    warnings: tuple[str, ...] = ()


class _Line(NamedTuple):
    slope: float
    intercept: float

    def at(self, load: Floats | float) -> Floats:
        return self.slope * np.asarray(load) + self.intercept


def fit_two_lines(load_per_s: object, tail_ms: object) -> TwoLines:
    """Fit Erms' law of one microservice without interference.

    Parameters
    ----------
    load_per_s
        Load on a container, shape (N,).
    tail_ms
        Tail latency at it, shape (N,).

    Returns
    -------
    TwoLines
        Where no cut gives two rising lines, one line, flat if it would fall.

    Raises
    ------
    InstanceError
        On fewer than two different loads, and on values that are not finite or negative.
    """
    load, tail = _points(load_per_s, tail_ms)
    used = np.ones(load.size, dtype=np.bool_)
    found = _search(load, tail)
    keep = _near(load, tail, found)
    warnings: list[str] = []
    if not keep.all() and np.unique(load[keep]).size >= 2:
        used = keep
        warnings.append(f"{int((~keep).sum())} of {keep.size} points are outliers")
        found = _search(load[keep], tail[keep])
    if found is None:
        return _single(load, tail, used, warnings)
    before, after, cut = found
    crossing = (before.intercept - after.intercept) / (after.slope - before.slope)
    fitted = np.where(load <= crossing, before.at(load), after.at(load))
    return TwoLines(
        *before, *after, crossing if crossing >= 0 else cut,
        _accuracy(fitted[used], tail[used]), used, tuple(warnings),
    )  # fmt: skip


def _points(load_per_s: object, tail_ms: object) -> tuple[Floats, Floats]:
    load = floats(load_per_s, "fit.load_per_s")
    tail = floats(tail_ms, "fit.tail_ms", load.shape)
    for column, name in ((load, "fit.load_per_s"), (tail, "fit.tail_ms")):
        finite(column, name)
        require(column, column >= 0, name, "must not be negative")
    if np.unique(load).size < 2:  # a line needs two points
        raise InstanceError("a line needs tails at two different loads at least")
    return load, tail


def _search(load: Floats, tail: Floats) -> tuple[_Line, _Line, float] | None:
    """Try every cut between two loads."""
    order = np.argsort(load, kind="stable")
    load, tail = load[order], tail[order]
    reach = float(np.ptp(tail))
    side = LEAST_SIDE if load.size >= 2 * LEAST_SIDE else 2
    best: tuple[float, _Line, _Line, float] | None = None
    for at in np.flatnonzero(np.diff(load) > 0) + 1:
        if min(at, load.size - at) < side:
            continue
        before, after = _least_squares(load[:at], tail[:at]), _least_squares(load[at:], tail[at:])
        if before is None or after is None or before.slope < 0 or after.slope <= before.slope:
            continue
        fitted = np.concatenate((before.at(load[:at]), after.at(load[at:])))
        gap = _gap(before, after, float(load[at - 1]), float(load[at])) / max(reach, 1e-300)
        score = _accuracy(fitted, tail) / (GAP_FLOOR + gap)
        if best is None or score > best[0] * (1 + 1e-12):  # the lighter of two equal cuts
            best = (score, before, after, float(load[at - 1] + load[at]) / 2)
    return None if best is None else best[1:]


def _gap(before: _Line, after: _Line, low: float, high: float) -> float:
    """Find how near the lines come between two loads."""
    one, two = (float(after.at(load) - before.at(load)) for load in (low, high))
    return 0.0 if one <= 0 <= two else min(abs(one), abs(two))


def _least_squares(load: Floats, tail: Floats) -> _Line | None:
    centre, middle = load.mean(), tail.mean()
    spread = float(((load - centre) ** 2).sum())
    if not spread > 0:  # one load
        return None
    slope = float(((load - centre) * (tail - middle)).sum()) / spread
    return _Line(slope, float(middle - slope * centre))


def _accuracy(fitted: Floats, tail: Floats) -> float:
    error = np.abs(fitted - tail) / np.maximum(tail, 1e-300)
    return float(1.0 - np.minimum(error, 1.0).mean())


def _near(load: Floats, tail: Floats, found: tuple[_Line, _Line, float] | None) -> Bools:
    """Tell which points lie near the lines, drawn anew so that no outlier bends them."""
    first = np.ones(load.size, dtype=np.bool_) if found is None else load <= found[2]
    fitted = tail.copy()
    for side in (first, ~first):
        line = _median_line(load[side], tail[side])
        if line is not None:
            fitted[side] = line.at(load[side])
    error = np.abs(tail - fitted)
    deviation = float(np.median(error)) / NORMAL_MEDIAN
    return error <= OUTLIER_DEVIATIONS * np.maximum(deviation, NOISE * tail)


def _median_line(load: Floats, tail: Floats) -> _Line | None:
    """Draw a line with the median of all slopes between points (Theil and Sen)."""
    if load.size > MEDIAN_POINTS:  # all pairs of many points are too many
        pick = np.linspace(0, load.size - 1, MEDIAN_POINTS).astype(np.int64)
        load, tail = load[pick], tail[pick]
    one, two = np.triu_indices(load.size, 1)
    run = load[two] - load[one]
    some = run != 0
    if not some.any():
        return None
    slope = float(np.median((tail[two] - tail[one])[some] / run[some]))
    return _Line(slope, float(np.median(tail - slope * load)))


def _single(load: Floats, tail: Floats, used: Bools, warnings: list[str]) -> TwoLines:
    line = _least_squares(load[used], tail[used])
    if line is None or line.slope < 0:
        warnings.append("tails do not rise with load: taken as flat")
        line = _Line(0.0, float(tail[used].mean()))
    else:
        warnings.append("no cut gives two rising lines: one line for all loads")
    accuracy = _accuracy(line.at(load[used]), tail[used])
    return TwoLines(*line, *line, np.inf, accuracy, used, tuple(warnings))


def linear_latency(rows: list[TwoLines]) -> LinearLatency:
    """Put the lines of several microservices into columns."""
    return LinearLatency(
        *(
            np.array([getattr(row, name) for row in rows], dtype=np.float64)
            for name in (
                "slope_before_ms", "intercept_before_ms", "slope_after_ms", "intercept_after_ms",
                "inflection_per_s",
            )
        )
    )  # fmt: skip


class SlopeLaw(NamedTuple):
    """A line whose slope is linear in the neighbours' use: ``cpu c1 + memory c2 + c3``."""

    cpu: float
    memory: float
    alone: float
    intercept: float

    def slope(self, cpu: float, memory: float) -> float:
        """Give the slope under some interference."""
        return self.cpu * cpu + self.memory * memory + self.alone


@dataclass(frozen=True)
class InterferenceFit:
    """Erms' law under interference.

    Parameters
    ----------
    before, after
        The two lines.
    inflections
        The tree that says where the inflection lies.
    used
        Points that are no outliers, shape (N,).
    warnings
        What to be wary of.
    """

    before: SlopeLaw
    after: SlopeLaw
    inflections: InflectionTree
    used: Bools
    warnings: tuple[str, ...] = ()

    def at(self, cpu: float, memory: float) -> TwoLines:
        """Give the lines under some interference.

        Slopes that extrapolation makes negative are taken as flat, and a second line that would be
        the flatter one as steep as the first. The inflection is where the lines cross, or what
        the tree says where they do not.
        """
        low = max(self.before.slope(cpu, memory), 0.0)
        high = max(self.after.slope(cpu, memory), low)
        turn = self.inflections.at(cpu, memory)
        if high > low:
            crossing = (self.before.intercept - self.after.intercept) / (high - low)
            turn = crossing if crossing >= 0 else turn
        return TwoLines(
            low, self.before.intercept, high, self.after.intercept, turn, float("nan"), self.used,
            self.warnings,
        )  # fmt: skip


def fit_interference(
    load_per_s: object, tail_ms: object, cpu: object, memory: object
) -> InterferenceFit:
    """Fit Erms' law where the neighbours on the nodes differ.

    Parameters
    ----------
    load_per_s, tail_ms
        As in ``fit_two_lines``.
    cpu, memory
        What the neighbours use at each point, in any unit, shape (N,).

    Returns
    -------
    InterferenceFit
        The inflection is searched for each interference that has points enough, a tree of depth
        3 learns it from them, and each side's line is fitted to its points of all interferences.

    Raises
    ------
    InstanceError
        Where no interference has two rising lines, or a side's slope falls where it was seen.
    """
    load, tail = _points(load_per_s, tail_ms)
    used = floats(cpu, "fit.cpu", load.shape), floats(memory, "fit.memory", load.shape)
    setting = np.stack(used, axis=1)
    known, group = np.unique(setting, axis=0, return_inverse=True)
    group = group.ravel()
    turns: list[float] = []
    rows: list[int] = []
    keep = np.ones(load.size, dtype=np.bool_)
    for at in range(len(known)):
        mine = np.flatnonzero(group == at)
        if np.unique(load[mine]).size < 4:  # two lines need four
            continue
        lines = fit_two_lines(load[mine], tail[mine])
        keep[mine[~lines.used]] = False
        if np.isfinite(lines.inflection_per_s):
            turns.append(lines.inflection_per_s)
            rows.append(at)
    if not rows:
        raise InstanceError("no interference shows two rising lines: fit one line for each")
    tree = InflectionTree.grown(known[rows], np.array(turns))
    turn = np.array([tree.at(*one) for one in setting])
    warnings = () if keep.all() else (f"{int((~keep).sum())} of {keep.size} points are outliers",)
    before, after = _sides(load, tail, setting, keep, turn)
    for _ in range(ROUNDS):  # points change sides where the fitted lines cross elsewhere
        slopes = [setting @ np.array(law[:2]) + law.alone for law in (before, after)]
        steeper = slopes[1] > slopes[0]
        cross = np.divide(
            before.intercept - after.intercept, slopes[1] - slopes[0], out=turn.copy(),
            where=steeper,
        )  # fmt: skip
        moved = (load <= cross) != (load <= turn)
        turn = cross
        if not moved[keep].any():
            break
        try:
            before, after = _sides(load, tail, setting, keep, turn)
        except InstanceError:  # the sides fitted last stand
            break
    return InterferenceFit(before, after, tree, keep, warnings)


def _sides(
    load: Floats, tail: Floats, setting: Floats, keep: Bools, turn: Floats
) -> tuple[SlopeLaw, SlopeLaw]:
    """Fit the lines on both sides of the inflections."""
    low, high = keep & (load <= turn), keep & (load > turn)
    return (
        _slope_law(load[low], tail[low], setting[low], "before"),
        _slope_law(load[high], tail[high], setting[high], "after"),
    )


def _slope_law(load: Floats, tail: Floats, setting: Floats, name: str) -> SlopeLaw:
    if load.size < 2:
        raise InstanceError(f"no two points {name} the inflection")
    design = np.stack(
        (setting[:, 0] * load, setting[:, 1] * load, load, np.ones_like(load)), axis=1
    )
    found = np.linalg.lstsq(design, tail, rcond=None)[0]  # least norm: what does not vary is 0
    law = SlopeLaw(*(float(one) for one in found))
    slopes = setting @ found[:2] + found[2]
    if (slopes < -1e-9 * np.abs(slopes).max()).any():
        worst = int(np.argmin(slopes))
        raise InstanceError(
            f"the line {name} the inflection falls (slope {slopes[worst]:.3g}) at cpu"
            f" {setting[worst, 0]:g}, memory {setting[worst, 1]:g}"
        )
    return law


@dataclass(frozen=True)
class InflectionTree:
    """A regression tree over (cpu, memory): a leaf, or a split."""

    value: float
    axis: int = -1
    cut: float = 0.0
    low: InflectionTree | None = None
    high: InflectionTree | None = None

    @classmethod
    def grown(cls, settings: Floats, turns: Floats, depth: int = TREE_DEPTH) -> InflectionTree:
        """Grow a tree by the splits that leave least squared error.

        Parameters
        ----------
        settings
            Shape (G, 2).
        turns
            Inflections, shape (G,).
        depth
            Splits on the way to a leaf, at most.
        """
        leaf = cls(float(turns.mean()))
        if depth == 0 or turns.size < 2 or not np.ptp(turns) > 0:
            return leaf
        best: tuple[float, int, float] | None = None
        for axis in range(settings.shape[1]):
            known = np.unique(settings[:, axis])
            for cut in (known[1:] + known[:-1]) / 2:
                left = settings[:, axis] <= cut
                error = float(turns[left].var() * left.sum() + turns[~left].var() * (~left).sum())
                if best is None or error < best[0]:
                    best = (error, axis, float(cut))
        if best is None:
            return leaf
        _, axis, cut = best
        left = settings[:, axis] <= cut
        return cls(
            leaf.value, axis, cut,
            cls.grown(settings[left], turns[left], depth - 1),
            cls.grown(settings[~left], turns[~left], depth - 1),
        )  # fmt: skip

    def at(self, cpu: float, memory: float) -> float:
        """Look up the inflection."""
        if self.low is None or self.high is None:
            return self.value
        value = (cpu, memory)[self.axis]
        return (self.low if value <= self.cut else self.high).at(cpu, memory)
