"""Shares of the classes by round: constant, lists, and a random walk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from apportion.instances.columns import Floats
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import spelt
from apportion.instances.microservices.call_classes import CallClasses
from apportion.instances.microservices.request_rates import equal_lengths, of_every
from apportion.instances.microservices.services import Services
from apportion.instances.streams import stream

CONCENTRATION = 200.0
PULL = 0.05
LEAST_SHARE = 1e-12
"""Least parameter of a draw, as a share: a gamma of shape zero is no distribution."""

Section = Mapping[str, Any]


def share_paths(
    section: Section, services: Services, classes: CallClasses, rounds: int, seed: int
) -> Floats:
    """Make the shares that ``[shares]`` of a scenario describes.

    Parameters
    ----------
    section
        The checked table.
    services, classes
        What is called, with the shares that hold where the table names none.
    rounds
        Number of rounds, T.
    seed
        Root seed of the walk.

    Returns
    -------
    ndarray
        Shape (T, K); with the ``unmodelled_share`` those of a service sum to 1.
    """
    if section["kind"] == "list":
        return _listed(section, classes, rounds)
    share = named_shares(section.get("share"), services, classes, "shares.share")
    if section["kind"] == "constant":
        return np.tile(share, (rounds, 1))
    return dirichlet_walk(
        share, classes, rounds, seed,
        concentration=section.get("concentration", CONCENTRATION),
        pull=section.get("pull", PULL),
    )  # fmt: skip


def named_shares(
    given: Mapping[str, float] | None, services: Services, classes: CallClasses, where: str
) -> Floats:
    """Set the shares of some classes; the others of a service share what is left.

    Parameters
    ----------
    given
        Shares by class.
    services, classes
        What is called. What is left is split in proportion to the shares the others have, or
        equally where these are all zero.
    where
        Name of the table, for errors.

    Raises
    ------
    InstanceError
        On unknown classes, and where the shares of a service cannot sum to 1.
    """
    share = classes.share.copy()
    if not given:
        return share
    row = {name: at for at, name in enumerate(classes.id.tolist())}
    for name in given:
        if name not in row:
            raise InstanceError(f"{where}.{spelt(name)}: unknown class{nearest(name, row)}")
    fixed = np.zeros(share.size, dtype=np.bool_)
    fixed[[row[name] for name in given]] = True
    share[[row[name] for name in given]] = list(given.values())
    for s in np.unique(classes.service[fixed]):
        own = classes.service == s
        left = 1.0 - services.unmodelled_share[s] - share[own & fixed].sum()
        others = own & ~fixed
        if others.any() and left >= 0:
            parts = share[others]
            parts = parts if parts.sum() > 0 else np.ones(parts.size)
            share[others] = left * parts / parts.sum()
        elif left < -1e-6 or (not others.any() and left > 1e-6):
            total = 1.0 - services.unmodelled_share[s]
            raise InstanceError(
                f"{where}: those of service {str(services.id[s])!r} sum to"
                f" {total - left:g}, not to {total:g}"
            )
    return share


def _listed(section: Section, classes: CallClasses, rounds: int) -> Floats:
    names: list[str] = classes.id.tolist()
    rows = of_every(section.get("class", []), names, "shares.class", "class")
    lists = [row["share"] for row in rows]
    found = equal_lengths(lists, names, "shares.class")
    if found < rounds:
        raise InstanceError(f"shares.class: {found} rounds, the rates have {rounds}")
    return np.array(lists, dtype=np.float64).T[:rounds]


def dirichlet_walk(
    share: Floats,
    classes: CallClasses,
    rounds: int,
    seed: int,
    *,
    concentration: float = CONCENTRATION,
    pull: float = PULL,
) -> Floats:
    """Let the shares of each service wander.

    Each round is a Dirichlet draw around the round before, of which ``pull`` has been replaced by
    the start: without it a class whose share came close to zero would stay there.

    Parameters
    ----------
    share
        Shares of the first round, shape (K,).
    classes
        Which service each belongs to.
    rounds
        Number of rounds, T.
    seed
        Root seed; the stream ``class_shares`` is used.
    concentration
        Sum of the Dirichlet parameters: the variance of a share p is p (1 - p) / (1 +
        concentration) in a round.
    pull
        Between 0 and 1.

    Returns
    -------
    ndarray
        Shape (T, K); each service keeps the sum it starts with.
    """
    random = stream(seed, "class_shares")
    out = np.empty((rounds, share.size))
    for s in np.unique(classes.service):
        own = np.flatnonzero(classes.service == s)
        total = share[own].sum()
        start = share[own] / total if total > 0 else share[own]
        now = start
        for t in range(rounds):
            if t and total > 0:
                now = _drawn(random, (1.0 - pull) * now + pull * start, concentration)
            out[t, own] = total * now
    return out


def _drawn(random: np.random.Generator, mean: Floats, concentration: float) -> Floats:
    gammas: Floats = random.standard_gamma(concentration * np.maximum(mean, LEAST_SHARE))
    total = float(gammas.sum())
    return gammas / total if total > 0 else mean  # all may underflow at a tiny concentration
