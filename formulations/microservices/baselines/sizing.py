"""A plan that keeps every SLA by the laws: one utilisation for all, then what is not needed goes."""

from __future__ import annotations

import numpy as np

from apportion.formulations.microservices.plain import containers_at_load
from apportion.formulations.microservices.tails import Tails
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.microservices.laws import least_admissible

LEAST_UTILISATION = 2.0**-10
"""Services that miss their SLA even at this utilisation are given up: they never keep it."""

MOST_TRIMMED = 200
"""Microservices up to which plans are trimmed one by one: each takes a dozen evaluations."""

_HALVINGS = 12
"""Steps of the bisection on the utilisation: finer ones change no counts worth having."""


def at_utilisation(round_: MicroserviceRound, utilisation: float) -> Ints:
    """Containers at a share of the heaviest load, within bounds, shape (M,)."""
    kinds = round_.microservices
    counts = containers_at_load(round_, utilisation * kinds.most_load_per_s)
    counts = np.maximum(counts, least_admissible(round_))
    return np.clip(counts, kinds.least_containers, kinds.most_containers).astype(np.int64)


def even_plan(round_: MicroserviceRound) -> Ints:
    """Containers at the highest utilisation that keeps every SLA that can be kept, shape (M,).

    Services that cannot keep theirs do not count; where there are no others, the plan is that of
    half the heaviest load.
    """
    tails, budget = Tails.of(round_), round_.services.violation_budget
    called = round_.services.rate_per_s > 0
    amply = at_utilisation(round_, LEAST_UTILISATION)
    able = called & (tails.violations(amply) <= budget)
    if not able.any():
        return at_utilisation(round_, 0.5 if called.any() else 1.0)

    def kept(counts: Ints) -> bool:
        return bool((tails.violations(counts) <= budget)[able].all())

    low, high, best = np.log(LEAST_UTILISATION), 0.0, amply
    if kept(tight := at_utilisation(round_, 1.0)):
        return tight
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        counts = at_utilisation(round_, float(np.exp(middle)))
        if kept(counts):
            low, best = middle, counts
        else:
            high = middle
    return best


def trimmed(round_: MicroserviceRound, counts: Ints, able: Bools | None = None) -> Ints:
    """Take away what a plan does not need, the dearest first; not for large applications.

    Parameters
    ----------
    round_
        The round.
    counts
        A plan, shape (M,).
    able
        Services whose SLA must stay kept, shape (S,); None: those that keep it now.
    """
    kinds = round_.microservices
    if len(kinds) > MOST_TRIMMED:
        return counts
    tails, budget = Tails.of(round_), round_.services.violation_budget
    must = tails.violations(counts) <= budget if able is None else able
    must = must & (round_.services.rate_per_s > 0)
    least = np.clip(least_admissible(round_), kinds.least_containers, kinds.most_containers)
    out = counts.copy()
    for row in np.argsort(-kinds.cost * counts, kind="stable").tolist():
        low, high = int(min(least[row], out[row])), int(out[row])
        while low < high:
            middle = (low + high) // 2
            out[row] = middle
            if (tails.violations(out) <= budget)[must].all():
                high = middle
            else:
                low = middle + 1
        out[row] = high
    return out


def cost_of(round_: MicroserviceRound, counts: Ints | Floats) -> float:
    """What a plan costs."""
    return float(round_.microservices.cost @ counts)
