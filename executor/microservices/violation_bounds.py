"""How often requests miss their targets by the laws of a round, bounded from both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from apportion.executor.microservices.chains import Chain, chains
from apportion.executor.microservices.lattice_tails import chain_tail
from apportion.executor.tolerances import (
    CLAIM_TOLERANCE,
    LATTICE_STEPS,
    LATTICE_STEPS_MOST,
    LATTICE_WORK_MOST,
    WORTH_SHARPENING,
)
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.microservices.laws import loads, rates, shifts_ms


@dataclass(frozen=True, eq=False)
class ViolationBounds:
    """Shares of requests above their target.

    Parameters
    ----------
    low, high
        Of each service, shape (S,); 0 where nobody calls it.
    class_low, class_high
        Of each class, shape (K,); NaN where the class does not occur.
    """

    low: Floats
    high: Floats
    class_low: Floats
    class_high: Floats

    @property
    def middle(self) -> Floats:
        """Middle of the bracket of each service, shape (S,)."""
        return (self.low + self.high) / 2

    @property
    def class_middle(self) -> Floats:
        """Middle of the bracket of each class, shape (K,)."""
        return (self.class_low + self.class_high) / 2


def violation_bounds(
    round_: MicroserviceRound,
    containers: Ints | Floats,
    rank: Ints | None = None,
    *,
    steps: int = LATTICE_STEPS,
    forms: Sequence[Chain] | None = None,
) -> ViolationBounds:
    """Bound the share of the requests of each service above its target.

    Parameters
    ----------
    round_
        The round, by whose laws requests are answered.
    containers
        Shape (M,).
    rank
        Order of the classes, shape (K,), or None.
    steps
        Lattice steps to the target of a class with forks; classes without are exact up to
        rounding.
    forms
        The trees as ``chains`` gives them, where they are known already.

    Returns
    -------
    ViolationBounds
    """
    oracle = _Oracle(round_, containers, rank, chains_of(round_, forms))
    for k in np.flatnonzero(round_.active).tolist():
        oracle.look(k, steps)
    return oracle.bounds()


def refuted_claims(
    round_: MicroserviceRound,
    containers: Ints,
    rank: Ints | None,
    claimed: Bools,
) -> ViolationBounds:
    """Bound violations as closely as it takes to judge which SLAs are kept.

    Parameters
    ----------
    round_, containers, rank
        As for ``violation_bounds``.
    claimed
        Services whose SLA is claimed to be kept, shape (S,); others are not looked at.

    Returns
    -------
    ViolationBounds
        A claim is refuted where ``low`` is above the budget by more than ``CLAIM_TOLERANCE``.
    """
    oracle = _Oracle(round_, containers, rank, chains_of(round_, None))
    service, budget = round_.classes.service, round_.services.violation_budget + CLAIM_TOLERANCE
    calls = np.diff(round_.classes.trees.offsets)
    look = round_.active & claimed[service]
    steps, work = LATTICE_STEPS, 0
    while look.any():
        for k in np.flatnonzero(look).tolist():
            oracle.look(k, steps)
        found = oracle.bounds()
        undecided = claimed & (found.low <= budget) & (found.high > budget)
        steps *= 2
        look = oracle.wide(undecided)
        work += steps * int(calls[look].sum())
        if steps > LATTICE_STEPS_MOST or work > LATTICE_WORK_MOST:
            break
    return oracle.bounds()


def chains_of(round_: MicroserviceRound, known: Sequence[Chain] | None) -> Sequence[Chain]:
    """Give the trees of a round as chains, by default worked out now."""
    return chains(round_.classes.trees) if known is None else known


class _Oracle:
    """Brackets of the classes, as far as they have been looked at."""

    def __init__(
        self,
        round_: MicroserviceRound,
        containers: Ints | Floats,
        rank: Ints | None,
        forms: Sequence[Chain],
    ) -> None:
        self._round, self._forms = round_, forms
        trees = round_.classes.trees
        of_class = rates(round_.microservices, loads(round_, containers, rank))
        column = 0 if rank is None else trees.class_of
        self._rates = of_class[trees.microservice, column] / trees.per_request
        self._shifts = shifts_ms(round_)
        self._unending = np.bincount(
            trees.class_of, weights=self._rates == 0, minlength=len(trees)
        ).astype(np.bool_)
        self._forked: Bools = np.array([bool(form.forks) for form in forms], dtype=np.bool_)
        self._low, self._high = np.full(len(trees), np.nan), np.full(len(trees), np.nan)
        self._low[round_.active], self._high[round_.active] = 0.0, 1.0

    def look(self, k: int, steps: int) -> None:
        """Bound one class, or sharpen its bounds."""
        low, high = 1.0, 1.0
        if not self._unending[k]:
            target = float(self._round.services.target_ms[self._round.classes.service[k]])
            low, high = chain_tail(self._forms[k], self._rates, self._shifts, target, steps)
        self._low[k] = max(self._low[k], low)
        self._high[k] = min(self._high[k], high)

    def wide(self, services: Bools) -> Bools:
        """Tell which classes to sharpen for some services, shape (K,): those that blur most."""
        round_ = self._round
        on = round_.active & self._forked & services[round_.classes.service]
        blur = np.where(on, round_.classes.share * (self._high - self._low), 0.0)
        return (blur > 0) & (blur >= blur.max(initial=0.0) * WORTH_SHARPENING)

    def bounds(self) -> ViolationBounds:
        """Sum the classes up by service."""
        round_, on = self._round, self._round.active
        service, share = round_.classes.service, round_.classes.share
        lost = np.where(round_.services.rate_per_s > 0, round_.services.unmodelled_share, 0.0)
        sums = [
            cast(Floats, lost + np.bincount(service[on], share[on] * tail[on], lost.size))
            for tail in (self._low, self._high)
        ]
        return ViolationBounds(sums[0], sums[1], self._low.copy(), self._high.copy())
