"""Derm's law of latency from measured times: a shift and an exponential whose rate falls with load.

At each load w the smallest time is the shift, and the rest is exponential of a rate that is
estimated twice: by the mean, and by least squares against the empirical distribution. A straight
line through the rates, each weighted by its own precision, gives ``rate = b + a w`` with a < 0.

Source: Derm (ISCA 2024), as its artifact fits; weights, guards, unbiased estimates, standard
errors and goodness of fit are our own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from apportion.instances.columns import Floats, Ints, finite, floats, require
from apportion.instances.errors import InstanceError, nearest

ESTIMATORS = ("mean", "distribution")
"""How the rate at one load is found: by maximum likelihood, or as Derm does for its allocation."""

SHIFTS = ("minimum", "quantile", "zero")

BINS = 100
"""Bins of the empirical distribution, as Derm's artifact has them."""

NO_SPREAD = 1e-9
"""Mean excess over the shift, as a share of the times, that rounding alone can make: such times
are all alike, and their rate would mean nothing."""

FLAT_SLOPE = 1e-6
"""Slope in parts of the rate at rest that stands for one that is not negative."""

LEAST_RATE_SHARE = 0.1
"""Where the line falls below this share of the smallest rate seen, it is not trusted."""

SAME_LOAD = 0.02
"""Loads apart by no more than this part are one: a load that is counted is never the same twice."""

SURE_ERRORS = 2.0
"""Standard errors by which a slope must differ from none to be believed without a warning."""

NARROW = 1.2
"""Largest over smallest load below which a slope is told to be uncertain."""


@dataclass(frozen=True)
class FitOptions:
    """How laws are fitted.

    Parameters
    ----------
    estimator
        One of ``ESTIMATORS``: which rates the line is laid through.
    shift
        ``"minimum"``: from the smallest time of each load; ``"quantile"``: from a low quantile,
        which outliers do not move; ``"zero"``: none, for plans that do not count shifts.
    shift_quantile
        The quantile.
    levels
        Loads are grouped into at most so many levels of equal numbers of samples.
    least_samples
        A level of fewer samples says nothing.
    """

    estimator: str = "mean"
    shift: str = "minimum"
    shift_quantile: float = 0.001
    levels: int = 10
    least_samples: int = 20

    def __post_init__(self) -> None:
        for name, known in (("estimator", ESTIMATORS), ("shift", SHIFTS)):
            value = getattr(self, name)
            if value not in known:
                raise InstanceError(f"fit.{name} = {value!r}{nearest(str(value), known)}")
        if not 0 < self.shift_quantile < 1:
            raise InstanceError(
                f"fit.shift_quantile = {self.shift_quantile}: must lie between 0 and 1"
            )
        for name, least in (("levels", 2), ("least_samples", 2)):
            if not getattr(self, name) >= least:
                value = getattr(self, name)
                raise InstanceError(f"fit.{name} = {value}: must be at least {least}")


@dataclass(frozen=True)
class LawFit:
    """A fitted law and how well it fits.

    Parameters
    ----------
    rate_at_rest_per_ms, rate_slope_per_ms, shift_ms
        The law: b, a < 0, s >= 0.
    rate_at_rest_error, rate_slope_error, shift_error
        Their standard errors.
    least_load_per_s, most_load_per_s
        The loads between which it was seen.
    least_rate_per_ms
        Rate at the heaviest load, where the line ends to be trusted.
    r_squared
        Share of the variation of the rates that the line explains, with its weights.
    ks
        Largest distance between the distribution of the samples, each by the law of its load,
        and the law.
    kl_mean, kl_distribution
        Kullback-Leibler divergence of the samples from the exponentials by either estimate, over
        100 equal bins, averaged over the samples of all loads.
    samples, levels
        Samples used, and different loads.
    warnings
        What to be wary of.
    """

    rate_at_rest_per_ms: float
    rate_slope_per_ms: float
    shift_ms: float
    rate_at_rest_error: float
    rate_slope_error: float
    shift_error: float
    least_load_per_s: float
    most_load_per_s: float
    least_rate_per_ms: float
    r_squared: float
    ks: float
    kl_mean: float
    kl_distribution: float
    samples: int
    levels: int
    warnings: tuple[str, ...] = ()


@dataclass
class _Level:
    """Samples of one load, and what they say."""

    load: float
    times: Floats
    shift: float = 0.0
    rates: dict[str, float] = field(default_factory=dict[str, float])
    kl: dict[str, float] = field(default_factory=dict[str, float])


def fit_law(load_per_s: object, time_ms: object, options: FitOptions | None = None) -> LawFit:
    """Fit the law of one microservice.

    Parameters
    ----------
    load_per_s
        Load on a container while each sample was taken, shape (N,).
    time_ms
        What a call took itself; those that are not positive are dropped.
    options
        How.

    Returns
    -------
    LawFit

    Raises
    ------
    InstanceError
        Where fewer than two different loads have enough samples: one load tells no slope.
    """
    options = FitOptions() if options is None else options
    load = floats(load_per_s, "fit.load_per_s")
    time = floats(time_ms, "fit.time_ms", load.shape)
    finite(load, "fit.load_per_s")
    finite(time, "fit.time_ms")
    require(load, load >= 0, "fit.load_per_s", "must not be negative")
    levels, warnings = _levels(load[time > 0], time[time > 0], options)
    if len(levels) < 2:  # a line needs two points
        raise InstanceError(
            f"{len(levels)} different load{'' if len(levels) == 1 else 's'} with at least"
            f" {options.least_samples} samples: the law needs 2 to tell how load slows a call; shorter"
            " windows may show more"
        )
    for level in levels:
        _fit_level(level, options)
    return _line(levels, options, warnings)


def _levels(load: Floats, time: Floats, options: FitOptions) -> tuple[list[_Level], list[str]]:
    """Group the samples by load: like loads together, and into levels where they are many."""
    known, group = np.unique(load, return_inverse=True)
    alike = _alike(known)
    group = alike[group] if known.size else group
    if alike.max(initial=-1) >= options.levels:
        # cuts at quantiles of the samples: levels of about equal weight
        cuts = np.quantile(load, np.linspace(0, 1, options.levels + 1)[1:-1])
        group = np.searchsorted(np.unique(cuts), load, side="left")
    warnings: list[str] = []
    out: list[_Level] = []
    dropped = 0
    for code in np.unique(group):
        mine = group == code
        if np.count_nonzero(mine) >= options.least_samples:
            out.append(_Level(float(load[mine].mean()), time[mine]))
        else:
            dropped += int(np.count_nonzero(mine))
    if dropped:
        warnings.append(f"{dropped} samples of loads with fewer than {options.least_samples}")
    return out, warnings


def _alike(known: Floats) -> Ints:
    """Number groups of rising loads in which none is much above the first."""
    out = np.zeros(known.size, dtype=np.int64)
    first = known[0] if known.size else 0.0
    for at in range(1, known.size):
        apart = known[at] > first * (1 + SAME_LOAD)
        out[at] = out[at - 1] + apart
        first = known[at] if apart else first
    return out


def _fit_level(level: _Level, options: FitOptions) -> None:
    times = level.times
    if options.shift == "zero":
        level.shift, rest = 0.0, times
        mean = float(rest.mean())
    elif options.shift == "minimum":
        low = float(times.min())
        mean = float((times - low).sum() / (times.size - 1))  # unbiased: one sample is the minimum
        # the smallest of N lies 1 / (N rate) above the shift on average
        level.shift = max(low - mean / times.size, 0.0)
        rest = times - level.shift
    else:
        q = options.shift_quantile
        low = float(np.quantile(times, q))
        above = times[times > low] - low  # again exponential, whatever lies below
        mean = float(above.mean()) if above.size else 0.0
        level.shift = max(low + mean * np.log1p(-q), 0.0)
        rest = np.maximum(times - level.shift, 0.0)
    if not mean > NO_SPREAD * float(times.max()):
        raise InstanceError(
            f"all times at a load of {level.load:g} calls/s are {times[0]:g} ms: no exponential"
        )
    binned = _Binned.of(rest)
    level.rates = {"mean": 1.0 / mean, "distribution": _least_squares(binned, 1.0 / mean)}
    level.kl = {name: _divergence(binned, rate) for name, rate in level.rates.items()}


class _Binned(NamedTuple):
    """Samples counted in equal bins: their upper ends, and the share in each."""

    end: Floats
    share: Floats

    @classmethod
    def of(cls, times: Floats) -> _Binned:
        count, edges = np.histogram(times, bins=BINS, range=(0.0, float(times.max())))
        return cls(edges[1:].astype(np.float64), count / times.size)


def _least_squares(binned: _Binned, start: float) -> float:
    """Fit 1 - exp(-rate x) to the empirical distribution at the ends of the bins."""
    from scipy.optimize import minimize_scalar  # only who fits waits for it

    seen = np.cumsum(binned.share)

    def distance(log_rate: float) -> float:
        error = -np.expm1(-np.exp(log_rate) * binned.end) - seen
        return float(error @ error)

    low, high = np.log(start) - 3.0, np.log(start) + 3.0  # a factor of 20 either way
    found: Any = minimize_scalar(
        distance, bounds=(low, high), method="bounded", options={"xatol": 1e-9}
    )
    return float(np.exp(found.x))


def _divergence(binned: _Binned, rate: float) -> float:
    """Compute the divergence of the samples from the exponential; the last bin takes its tail."""
    upper = -np.expm1(-rate * binned.end)
    upper[-1] = 1.0
    share = np.maximum(np.diff(upper, prepend=0.0), np.finfo(float).tiny)
    some = binned.share > 0
    return float(np.sum(binned.share[some] * np.log(binned.share[some] / share[some])))


def _line(levels: list[_Level], options: FitOptions, warnings: list[str]) -> LawFit:
    load = np.array([level.load for level in levels])
    count = np.array([level.times.size for level in levels], dtype=np.float64)
    rate = np.array([level.rates[options.estimator] for level in levels])
    weight = count / rate**2  # the variance of a rate by its mean is rate**2 / N
    centre = float(weight @ load / weight.sum())
    middle = float(weight @ rate / weight.sum())
    spread = float(weight @ (load - centre) ** 2)
    slope = float(weight @ ((load - centre) * (rate - middle))) / spread
    warnings = list(warnings)
    rest = middle - slope * centre
    error = (np.sqrt(1.0 / weight.sum() + centre**2 / spread), np.sqrt(1.0 / spread))
    if not slope < -FLAT_SLOPE * middle / max(float(load.max()), 1.0):
        warnings.append(
            f"rates do not fall with load (slope {slope:.3g}): taken as nearly flat, so that the"
            " latency under heavier load is not known"
        )
        rest, slope = middle, -FLAT_SLOPE * middle
        rest -= slope * centre
    elif not slope < -SURE_ERRORS * error[1]:
        warnings.append(
            f"the slope {slope:.3g} is not told from none: its standard error is {error[1]:.3g}"
        )
    if load.max() < NARROW * load.min():
        warnings.append(
            f"loads lie between {load.min():g} and {load.max():g} calls/s only: the slope is"
            " uncertain"
        )
    heavy = float(load.max())
    least = max(rest + slope * heavy, LEAST_RATE_SHARE * float(rate.min()))
    off = float(weight @ (rate - rest - slope * load) ** 2)
    total = float(weight @ (rate - middle) ** 2)
    shifts = np.array([level.shift for level in levels])
    share = count / count.sum()
    shift_error = 1.0 / (count * rate)
    if options.shift == "zero":
        shift_error = np.zeros(count.size)
    elif options.shift == "quantile":  # that of a quantile of an exponential
        q = options.shift_quantile
        shift_error = np.sqrt(q / ((1 - q) * count)) / rate
    return LawFit(
        rate_at_rest_per_ms=rest,
        rate_slope_per_ms=slope,
        shift_ms=float(shifts.mean()),
        rate_at_rest_error=float(error[0]),
        rate_slope_error=float(error[1]),
        shift_error=float(np.sqrt((shift_error**2).sum()) / count.size),
        least_load_per_s=float(load.min()),
        most_load_per_s=heavy,
        least_rate_per_ms=least,
        r_squared=1.0 - off / total if total > 0 else 1.0,
        ks=_ks(levels, rest, slope, float(shifts.mean())),
        kl_mean=float(share @ [level.kl["mean"] for level in levels]),
        kl_distribution=float(share @ [level.kl["distribution"] for level in levels]),
        samples=int(count.sum()),
        levels=len(levels),
        warnings=tuple(warnings),
    )


def _ks(levels: list[_Level], rest: float, slope: float, shift: float) -> float:
    """Bring all samples to the unit exponential by the law, and compare distributions."""
    unit = np.concatenate(
        [max(rest + slope * one.load, 0.0) * (one.times - shift) for one in levels]
    )
    unit.sort()
    law = -np.expm1(-np.maximum(unit, 0.0))
    step = np.arange(unit.size + 1) / unit.size
    return float(max((step[1:] - law).max(), (law - step[:-1]).max()))
