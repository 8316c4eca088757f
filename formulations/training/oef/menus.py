"""Menus: a few bundles, of which everybody takes the one it likes best.

Such an allocation is free of envy whatever the bundles are, and the optimum hands out few distinct
ones. That gives allocations to fall back on, and the rows to begin with.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import KDTree

from apportion.formulations.training.oef.envy import Envy
from apportion.formulations.training.oef.relaxation import FLOOR, Relaxation
from apportion.instances.columns import Floats, Ints
from apportion.solver import Budget, UncertifiedError

BROKEN = 1e-8
"""Envy that counts, in mean utilities: ten times the tolerance of the LPs."""

ALIKE = 7
"""Decimals to which bundles are compared, in mean bundles."""

NEAR = 0.01
"""Bundles within this part of a user's best one get rows from the start."""

MOST_ROUNDS = 500
"""Rounds after which something is wrong: three to thirty are usual."""

STEPS = 2
"""Menus tried one after the other; the third rarely gains."""

_SMALLEST = 1e-30
"""Stands for a speed of zero in logarithms."""


def chosen(envy: Envy, menu: Floats) -> tuple[Floats, Ints]:
    """Let every user choose from a menu; those with a binding cap keep bundles of their own.

    Returns
    -------
    menu, item_of
        Bundles that somebody chose, and the one each user has.
    """
    worth = _worth(envy, menu)
    best = np.argmax(worth, axis=1)
    alone = envy.capped | ~np.isfinite(worth.max(axis=1))
    own = np.flatnonzero(alone)
    item = np.where(alone, 0, best)
    item[own] = len(menu) + np.arange(own.size)
    used, item_of = np.unique(item, return_inverse=True)
    return np.vstack((menu, envy.fair[own]))[used], item_of.ravel().astype(np.int64)


def _worth(envy: Envy, menu: Floats) -> Floats:
    """Worth of each item to each user, minus infinity where it is beyond the user's cap."""
    worth = np.zeros((envy.weight.size, len(menu)))
    for kind in range(menu.shape[1]):
        worth += np.multiply.outer(envy.speed[:, kind], menu[:, kind])
    return np.where(menu.sum(axis=1)[None, :] <= envy.cap[:, None], worth, -np.inf)


def best_menu(envy: Envy, menu: Floats, budget: Budget) -> tuple[Floats, Ints]:
    """Improve a menu: optimise its bundles for those who chose them, and let them choose again.

    Returns
    -------
    bundles, item_of
        The bundle of each user, shape (u, k), and the item it is.
    """
    best, out, item = -np.inf, envy.fair, np.arange(envy.weight.size, dtype=np.int64)
    for _ in range(STEPS):
        menu, item_of = chosen(envy, menu)
        menu = optimal_menu(envy, item_of, budget)
        value = envy.value(menu[item_of])
        if value <= best * (1.0 + BROKEN):
            break
        best, out, item = value, menu[item_of], item_of
    return out, item


def optimal_menu(envy: Envy, item_of: Ints, budget: Budget) -> Floats:
    """Find the best bundles for given classes of users, by rows on demand.

    For two classes the member that is most tempted by the other's bundle stands for its class.
    Users with a binding cap stay at their fair shares here, which keeps the LP small.
    """
    lp = Relaxation(envy, item_of, fixed=np.unique(item_of[envy.capped]))
    members = np.split(
        np.argsort(item_of, kind="stable"), np.cumsum(np.bincount(item_of))[:-1]
    )  # fmt: skip
    for _ in range(MOST_ROUNDS):
        menu = lp.solve(budget)
        own = envy.own(menu[item_of])
        limit = BROKEN * float(own.mean())
        excess, short = envy.excess(menu, item_of), envy.floor - own
        user, item = [np.flatnonzero(short > limit)], [np.full((short > limit).sum(), FLOOR)]
        for rows in members:
            worst = rows[np.argmax(excess[rows], axis=0)]
            broken = np.flatnonzero(excess[worst, np.arange(len(menu))] > limit)
            user.append(worst[broken])
            item.append(broken)
        if not lp.add(np.concatenate(user), np.concatenate(item)):
            return menu
    raise UncertifiedError(f"a menu is still envied after {MOST_ROUNDS} rounds")


def repaired(envy: Envy, bundle: Floats, excess: Floats) -> Floats | None:
    """Make any bundles free of envy: all choose among them, then they are scaled to what there is.

    Parameters
    ----------
    envy
        The users.
    bundle
        A bundle for each user, shape (u, k).
    excess
        By how much each envies each, shape (u, u).

    Returns
    -------
    The bundles, or None where a cap binds at a fair share: there scaling does not keep the rows.
    """
    if envy.capped.any():
        return None
    too_large = bundle.sum(axis=1)[None, :] > envy.cap[:, None]
    tempted = np.where(too_large, -np.inf, excess)
    at = np.argmax(tempted, axis=1)
    moves = tempted[np.arange(at.size), at] > 0.0
    out = np.where(moves[:, None], bundle[at], bundle)
    used = np.einsum("i,ij->j", envy.weight, out)
    fits = np.divide(envy.capacity, used, out=np.ones_like(used), where=used > envy.capacity)
    out = out * float(fits.min(initial=1.0))
    rest = np.maximum(envy.capacity - np.einsum("i,ij->j", envy.weight, out), 0.0)
    rest /= envy.weight.sum()
    if rest.sum() > 0.0:
        room = float((envy.cap - out.sum(axis=1)).min()) / float(rest.sum())
        out = out + rest * min(1.0, max(0.0, room))
    return np.where(envy.speed > 0.0, out, 0.0)


def distinct(bundle: Floats) -> Floats:
    """Distinct bundles, up to ``ALIKE`` decimals."""
    _, first = np.unique(np.round(bundle, ALIKE), axis=0, return_index=True)
    return bundle[np.sort(first)]


def neighbours(envy: Envy, count: int) -> tuple[Ints, Ints]:
    """Pairs of users and those most like them, by the logarithm of their speeds."""
    users = envy.weight.size
    place = np.log(np.maximum(envy.speed, _SMALLEST))
    near = KDTree(place).query(place, min(count + 1, users))[1].reshape(users, -1)
    user = np.repeat(np.arange(users, dtype=np.int64), near.shape[1])
    return user, near.ravel().astype(np.int64)


def first_pairs(envy: Envy, bundle: Floats, item_of: Ints) -> tuple[Ints, Ints]:
    """Pairs to begin with, from a menu: each with who stands for its item, and for near ones."""
    count = int(item_of.max()) + 1
    place = np.log(np.maximum(envy.speed, _SMALLEST))
    size = np.bincount(item_of, minlength=count)[:, None]
    centre = np.zeros((count, place.shape[1]))
    np.add.at(centre, item_of, place)
    off = ((place - (centre / size)[item_of]) ** 2).sum(axis=1)
    order = np.lexsort((off, item_of))
    stands = order[np.searchsorted(item_of[order], np.arange(count))]
    users = np.arange(item_of.size, dtype=np.int64)
    # bundles that only one capped user has are small, and nobody envies them
    shared = np.flatnonzero(~envy.capped[stands])
    excess = envy.excess(bundle, users, stands[shared])
    near_user, near_item = np.nonzero(excess > -NEAR * envy.own(bundle)[:, None])
    near_item = shared[near_item]
    user = np.concatenate((users, stands[item_of], near_user))
    other = np.concatenate((stands[item_of], users, stands[near_item]))
    return user, other
