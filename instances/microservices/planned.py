"""The outcome a plan would have if the laws and the forecast were true.

Tails are estimated from two moments: the latency of a class is taken as a shifted gamma variable
with the mean and the variance of its calls, of which the slowest on average stands for a stage.
That is no proof of anything. Plans are proved by the policies and checked by the executor, each
with an exact method of its own; this estimate only stands in where nobody watched.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from scipy.special import gammaincc

from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices.allocation import Allocation, Outcome
from apportion.instances.microservices.laws import loads, rates, shifts_ms
from apportion.instances.microservices.round import MicroserviceRound

HALVINGS = 60
"""Steps of the search for a percentile: enough for any float."""


def planned_outcome(
    round_: MicroserviceRound, allocation: Allocation, end_s: float | None = None
) -> Outcome:
    """Carry a plan out in thought, to the end of the round or to ``end_s``.

    Requests come as forecast and containers serve from the start. The violations of a service
    are those that its classes are estimated to have, and at most its violation budget where the
    plan claims to keep the SLA.

    Parameters
    ----------
    round_, allocation
        What was decided.
    end_s
        End of the interval; default one round after ``now_s``.
    """
    end = round_.now_s + round_.duration_s if end_s is None else end_s
    length, services, classes = end - round_.now_s, round_.services, round_.classes
    of_class = round_.class_rate_per_s * length
    total = services.rate_per_s * length
    moments = class_moments(round_, allocation)
    lost = services.unmodelled_share
    violated, tail = np.zeros(len(services)), np.zeros(len(services))
    for s in range(len(services)):
        own: Ints = np.flatnonzero((classes.service == s) & round_.active)
        part = moments.take(own)
        share, budget = classes.share[own], float(services.violation_budget[s])
        target = float(services.target_ms[s])
        late = float(lost[s] + share @ part.tail(target))
        tail[s] = part.percentile(share, budget - float(lost[s]))
        if allocation.guaranteed[s]:
            late, tail[s] = min(late, budget), min(tail[s], target)
        violated[s] = min(late, 1.0) * total[s]
    return Outcome.of(
        round_.now_s, end, class_requests=of_class, violations=violated,
        unmodelled_requests=lost * total, latency_tail_ms=tail,
        serving=allocation.containers.astype(np.float64), assumed=True,
    )  # fmt: skip


class ClassMoments:
    """Mean and variance of the random part of classes' latencies, and their shifts.

    Parameters
    ----------
    shift_ms, mean_ms, variance
        Shape (K,); infinite means where a call does not end.
    """

    def __init__(self, shift_ms: Floats, mean_ms: Floats, variance: Floats) -> None:
        self.shift_ms, self.mean_ms, self.variance = shift_ms, mean_ms, variance

    def take(self, rows: Ints) -> ClassMoments:
        """Take some classes."""
        return ClassMoments(self.shift_ms[rows], self.mean_ms[rows], self.variance[rows])

    def tail(self, target_ms: float) -> Floats:
        """Estimate P(latency > target) of each class, shape (K,)."""
        left = target_ms - self.shift_ms
        out = np.where(self.mean_ms > 0, 1.0, (left < 0).astype(np.float64))
        good = np.isfinite(self.mean_ms) & (self.mean_ms > 0) & (left > 0)
        mean, variance = self.mean_ms[good], self.variance[good]
        out[good] = gammaincc(mean * mean / variance, left[good] * mean / variance)
        return cast(Floats, out)

    def percentile(self, share: Floats, beyond: float) -> float:
        """Estimate the latency beyond which a part of the requests lies; infinite where none."""
        if not beyond > 0:
            return np.inf
        if not share.size:
            return 0.0
        ended = np.isfinite(self.mean_ms)
        if float(share[~ended].sum()) >= beyond:
            return np.inf
        low, high = 0.0, float((self.shift_ms + self.mean_ms)[ended].max() + 1.0)
        while share @ self.tail(high) > beyond:
            high *= 2.0
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            if share @ self.tail(middle) > beyond:
                low = middle
            else:
                high = middle
        return high


def class_moments(round_: MicroserviceRound, allocation: Allocation) -> ClassMoments:
    """Compute the moments of every class under a plan, shape (K,)."""
    trees = round_.classes.trees
    load = loads(round_, allocation.containers, allocation.rank)
    rate = rates(round_.microservices, load)
    column = trees.class_of if rate.shape[1] > 1 else np.zeros(trees.class_of.size, dtype=np.int64)
    own = rate[trees.microservice, column]
    with np.errstate(divide="ignore"):
        mean = np.where(own > 0, trees.per_request / own, np.inf)
    below: list[dict[int, tuple[float, float, float]]] = [{} for _ in range(mean.size)]
    roots: list[dict[int, tuple[float, float, float]]] = [{} for _ in range(len(trees))]
    shift = shifts_ms(round_)
    for row in range(mean.size - 1, -1, -1):  # calls come after their parents
        # infinite variances would be subtracted nowhere, but they make warnings
        variance = float(mean[row]) ** 2 if np.isfinite(mean[row]) else 0.0
        whole = _summed([(float(shift[row]), float(mean[row]), variance), *below[row].values()])
        parent = int(trees.parent_row[row])
        above = roots[int(trees.class_of[row])] if parent < 0 else below[parent]
        stage = int(trees.stage[row])
        if stage not in above or sum(whole[:2]) > sum(above[stage][:2]):
            above[stage] = whole
    columns = np.array([_summed(list(root.values())) for root in roots]).reshape(-1, 3).T
    return ClassMoments(*columns)


def _summed(parts: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    return (sum(p[0] for p in parts), sum(p[1] for p in parts), sum(p[2] for p in parts))
