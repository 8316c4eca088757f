"""The static answer to graphs that vary: plan as if every request followed the dearest class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apportion.formulations.microservices.derm.greedy import climb, trim
from apportion.formulations.microservices.derm.requirements import requirements
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.policy import Budget


def worst_round(
    round_: MicroserviceRound, budget: Budget
) -> tuple[MicroserviceRound, tuple[str, ...]]:
    """Give all mass of every service to one class.

    That is the class which makes every call of the others at least as often; where no class does,
    the one that would need the dearest plan if all requests followed it.

    Returns
    -------
    round_
        The round with those shares.
    notes
        Which services have no class that holds all others.
    """
    classes, services = round_.classes, round_.services
    share = np.zeros(len(classes))
    notes: list[str] = []
    for s in range(len(services)):
        own = np.flatnonzero((classes.service == s) & (classes.share > 0))
        if not own.size:
            continue
        calls = round_.demand[:, own]
        holds = (calls[:, :, None] >= calls[:, None, :]).all(axis=0).min(axis=1)
        if holds.any():
            chosen = int(own[int(holds.argmax())])
        else:
            chosen = max(own.tolist(), key=lambda k: _alone(round_, s, k, budget))
            notes.append(
                f"service {str(services.id[s])!r}: no class makes all calls of the others; the"
                f" worst one is {str(classes.id[chosen])!r}, whose plan costs most"
            )
        share[chosen] = 1.0 - services.unmodelled_share[s]
    return replace(round_, classes=classes.with_share(share)), tuple(notes)


def _alone(round_: MicroserviceRound, s: int, k: int, budget: Budget) -> float:
    """Cost of a plan for one class of one service alone."""
    services = round_.services
    rate = np.where(np.arange(len(services)) == s, services.rate_per_s, 0.0)
    share = np.where(round_.classes.service == s, 0.0, round_.classes.share)
    share[k] = 1.0 - services.unmodelled_share[s]
    alone = replace(
        round_,
        services=replace(services, rate_per_s=rate),
        classes=round_.classes.with_share(share),
    )
    need = requirements(alone)
    plan = climb(need, budget)
    if not plan.kept:
        return np.inf
    return need.value(trim(need, plan.containers, budget).containers)
