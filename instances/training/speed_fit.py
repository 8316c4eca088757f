"""How the speed of a job depends on its GPUs, from measurements at some counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.optimize import nnls

from apportion.instances.columns import Floats
from apportion.instances.errors import InstanceError

NEWEST_WEIGHT = 0.5
"""Weight of the newest measurement in the moving average."""


@dataclass(frozen=True)
class SpeedLaw:
    """Seconds of an iteration on g GPUs: ``fixed + parallel / g + doubling log2(g)``.

    Parameters
    ----------
    fixed, parallel, doubling
        What no GPU shortens, what they share, and what each doubling costs in communication;
        seconds, not negative.
    """

    fixed: float
    parallel: float
    doubling: float

    def seconds(self, gpus: Any) -> Floats:
        """Seconds of an iteration."""
        g = np.asarray(gpus, dtype=np.float64)
        return self.fixed + self.parallel / g + self.doubling * np.log2(g)

    def throughput_per_s(self, gpus: Any) -> Floats:
        """Iterations a second."""
        return 1.0 / self.seconds(gpus)


def fit_speed(gpus: Any, seconds: Any) -> SpeedLaw:
    """Fit the law by non-negative least squares on relative residuals.

    Parameters
    ----------
    gpus, seconds
        Counts that were measured, and seconds of an iteration there, shape (m,). Fewer than
        three counts leave the law underdetermined: the solution found has the fewest terms.

    Raises
    ------
    InstanceError
        On counts below 1, times that are not positive, or nothing at all.
    """
    g, t = np.asarray(gpus, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if g.ndim != 1 or g.shape != t.shape or not g.size:
        raise InstanceError(f"gpus has shape {g.shape}, seconds {t.shape}: expected equal lists")
    for name, column, good in (
        ("gpus", g, np.isfinite(g) & (g >= 1)),
        ("seconds", t, np.isfinite(t) & (t > 0)),
    ):
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            least = "at least 1" if name == "gpus" else "positive"
            raise InstanceError(f"{name}[{at}] = {column[at]}: must be {least}")
    rows = np.stack([np.ones_like(g), 1.0 / g, np.log2(g)], axis=1) / t[:, None]
    found = nnls(rows, np.ones_like(t))[0]
    return SpeedLaw(float(found[0]), float(found[1]), float(found[2]))


def moving_average(average: Any, newest: Any, weight: float = NEWEST_WEIGHT) -> Floats:
    """Move an average towards the newest measurement.

    Parameters
    ----------
    average
        So far; NaN where nothing was measured yet.
    newest
        Measured now; NaN where nothing was.
    weight
        Of the newest, in (0, 1].
    """
    if not 0.0 < weight <= 1.0:
        raise InstanceError(f"weight = {weight}: must lie in (0, 1]")
    old, new = np.asarray(average, dtype=np.float64), np.asarray(newest, dtype=np.float64)
    mixed = weight * new + (1.0 - weight) * old
    return cast(Floats, np.where(np.isnan(old), new, np.where(np.isnan(new), old, mixed)))
