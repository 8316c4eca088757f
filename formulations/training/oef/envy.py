"""Who envies whom: the rows of the cooperative form, with demand caps, on bundles per weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.oef.noncooperative import fastest_part
from apportion.instances.columns import Bools, Floats, Ints

MOST_FILLINGS = 1000
"""Steps of the filling of fair shares: each uses up a type or a user's cap, or gets near it."""

LEFT_OVER = 1e-9
"""Part of a type that may be left when the filling of fair shares ends."""

TOUCHES = 1e-12
"""A fair share within this of a user's cap, relative, counts as reaching it."""


@dataclass(frozen=True, eq=False)
class Envy:
    """Users whose bundles per weight may not be envied, u rows and k types.

    User l may hold the bundle ``y[l]`` if ``speed[l] @ y[l] >= base[l] + judged[l] @ y[i]`` for
    every other i. Where no cap binds at the fair share, base is 0 and judged is the speed.

    Parameters
    ----------
    speed
        Relative speeds, shape (u, k).
    weight
        Shape (u,).
    cap
        GPUs per weight, infinite where there is no cap, shape (u,).
    capacity
        GPUs of each type, shape (k,).
    judged, base
        What a bundle is worth to a user at most, shapes (u, k) and (u,).
    fair
        A bundle for each user that keeps all rules, shape (u, k).
    """

    speed: Floats
    weight: Floats
    cap: Floats
    capacity: Floats
    judged: Floats
    base: Floats
    fair: Floats

    @property
    def floor(self) -> Floats:
        """Worth of each user's fair share, which no user may fall below, shape (u,)."""
        return np.einsum("ij,ij->i", self.speed, self.fair)

    @property
    def capped(self) -> Bools:
        """Users whose cap binds at their fair share, shape (u,)."""
        return self.base > 0.0

    def own(self, bundle: Floats) -> Floats:
        """Worth of each user's own bundle, shape (u,)."""
        return np.einsum("ij,ij->i", self.speed, bundle)

    def value(self, bundle: Floats) -> float:
        """Normalised throughput of all."""
        return float((self.weight * self.own(bundle)).sum())

    def excess(self, menu: Floats, item_of: Ints, items: Ints | None = None) -> Floats:
        """By how much each user envies each bundle of a menu, shape (u, bundles).

        Parameters
        ----------
        menu
            Distinct bundles, shape (bundles, k).
        item_of
            The bundle each user has, shape (u,); it is left out, as minus infinity.
        items
            Bundles to look at; all of them unless given.
        """
        looked = np.arange(len(menu), dtype=np.int64) if items is None else items
        out = np.repeat((self.base - self.own(menu[item_of]))[:, None], looked.size, axis=1)
        # not a BLAS product: its last digits depend on the number of cores
        for kind in range(menu.shape[1]):
            out += np.multiply.outer(self.judged[:, kind], menu[looked, kind])
        out[item_of[:, None] == looked[None, :]] = -np.inf
        return out

    def worst(self, bundle: Floats) -> float:
        """Largest broken rule over all pairs, caps, floors and capacities; in mean utilities."""
        users = self.weight.size
        if not users:
            return 0.0
        size = max(float(self.own(bundle).mean()), np.finfo(float).tiny)
        envy = float(self.excess(bundle, np.arange(users, dtype=np.int64)).max())
        short = float((self.floor - self.own(bundle)).max())
        over_cap = float((bundle.sum(axis=1) - self.cap).max())
        return max(0.0, envy, short, over_cap, float(self.overload(bundle).max())) / size

    def overload(self, bundle: Floats) -> Floats:
        """GPUs beyond each type's capacity, per mean weight and user; negative where some are left."""
        used = np.einsum("i,ij->j", self.weight, bundle)
        return (used - self.capacity) / float(self.weight.sum())


def envy_of(speed: Floats, weight: Floats, cap: Floats, capacity: Floats) -> Envy:
    """Find fair shares, and from them how users with caps judge the bundles of others.

    What user l could use of a bundle y is the largest ``speed[l] @ z`` with ``z <= y`` and
    ``sum z <= cap[l]``. It is concave in y, so that a row with it on the right is not linear; but
    for every price p >= 0 it is at most ``p cap[l] + max(speed[l] - p, 0) @ y``, with equality at
    the fair share for the price of the cap there. These rows are used: whoever keeps them envies
    nobody, and the fair shares keep them.

    Parameters
    ----------
    speed, weight, cap
        Shapes (u, k), (u,), (u,); caps per weight.
    capacity
        Shape (k,).
    """
    if not weight.size:
        return Envy(speed, weight, cap, capacity, speed, np.zeros(0), np.zeros_like(speed))
    offer = fair_offer(speed, weight, cap, capacity)
    everyone = np.broadcast_to(offer, speed.shape)
    price = _price_of_cap(speed, everyone, cap)
    base = np.where(price > 0.0, price * np.where(np.isfinite(cap), cap, 0.0), 0.0)
    judged = np.maximum(speed - price[:, None], 0.0)
    fair = fastest_part(speed, everyone, cap)
    return Envy(speed, weight, cap, capacity, judged, base, fair)


def fair_offer(speed: Floats, weight: Floats, cap: Floats, capacity: Floats) -> Floats:
    """Offer everybody the same bundle per weight, as large as can be when caps leave GPUs over.

    Everybody takes its fastest GPUs of the offer up to its cap. Starting from an equal split,
    the offer of each type grows by what is left of it until nobody takes more.

    Returns
    -------
    Floats
        The offer, shape (k,).
    """
    offer = capacity / weight.sum()
    for _ in range(MOST_FILLINGS):
        taken = fastest_part(speed, np.broadcast_to(offer, speed.shape), cap)
        left = capacity - np.einsum("i,ij->j", weight, taken)
        takers = (weight[:, None] * _takes_more(speed, taken, cap)).sum(axis=0)
        grows = (left > LEFT_OVER * capacity) & (takers > 0.0)
        if not grows.any():
            break
        offer = offer + np.divide(left, takers, out=np.zeros_like(left), where=grows)
    return offer


def _takes_more(speed: Floats, taken: Floats, cap: Floats) -> Bools:
    """Who would take more of a type: room under the cap, or GPUs to give back for it.

    Those are slower ones, and equally fast ones of a higher type, which come last when a user fills
    its cap.
    """
    has_room = taken.sum(axis=1) < cap * (1.0 - TOUCHES)
    order = np.argsort(-speed, axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    last = np.where(taken > 0.0, rank, -1).max(axis=1)
    return (speed > 0.0) & (has_room[:, None] | (rank < last[:, None]))


def _price_of_cap(speed: Floats, offer: Floats, cap: Floats) -> Floats:
    """Worth of one GPU more under each user's cap at an offer, the largest where it is on an edge.

    That is the speed of the slowest GPU it keeps; 0 where the cap is above the offer.
    """
    order = np.argsort(-speed, axis=1, kind="stable")
    ranked = np.take_along_axis(np.where(speed > 0.0, offer, 0.0), order, axis=1)
    reached = np.cumsum(ranked, axis=1) >= cap[:, None] * (1.0 - TOUCHES)
    first = np.argmax(reached, axis=1)
    ranked_speed = np.take_along_axis(speed, order, axis=1)
    return np.where(reached.any(axis=1), ranked_speed[np.arange(cap.size), first], 0.0)
