"""Tickets become GPUs, and users of different speed-ups trade them.

Source: Gandiva-fair (Chaudhary et al., EuroSys 2020), reconstructed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints

PASSES = 60
"""Passes of a filling; each uses up a type or satisfies somebody, a handful is usual."""

TRADING_ROUNDS = 50
"""Times all pairs of types are gone through; a second time seldom finds anything."""

NOTHING = 1e-12
"""GPUs, and relative differences of speed-ups, that count as none: rounding leaves as much."""


def filled(
    supply: Floats, weight: Floats, able: Bools, most: Floats, group: Ints | None = None
) -> Floats:
    """Share a supply in proportion to weights among those who can use it, up to what each can use.

    What somebody cannot use goes to the others in the same proportion.

    Parameters
    ----------
    supply
        GPUs of each group and type, shape (g, k).
    weight
        Positive, shape (m,).
    able
        Who can use which type, shape (m, k).
    most
        GPUs each can use in all, shape (m,).
    group
        Group of each, shape (m,); default: all in one.

    Returns
    -------
    GPUs of each on each type, shape (m, k).
    """
    m, k = able.shape
    groups = np.zeros(m, dtype=np.int64) if group is None else group
    left, out = supply.copy(), np.zeros((m, k))
    tiny = NOTHING * np.maximum(supply, 1.0)
    for _ in range(PASSES):
        room = np.maximum(most - out.sum(axis=1), 0.0)
        wants = able & (room > NOTHING * most)[:, None] & (left > tiny)[groups]
        asks = np.where(wants, weight[:, None], 0.0)
        total = np.zeros_like(left)
        np.add.at(total, groups, asks)
        part = np.divide(left, total, out=np.zeros_like(left), where=total > 0.0)
        more = asks * part[groups]
        wish = more.sum(axis=1)
        if not wish.any():
            break
        scale = np.divide(room, wish, out=np.ones_like(wish), where=wish > room)
        more *= np.clip(scale, 0.0, 1.0)[:, None]
        out += more
        given = np.zeros_like(left)
        np.add.at(given, groups, more)
        left = np.maximum(left - given, 0.0)
    return out


@dataclass(frozen=True, eq=False)
class Trade:
    """One exchange: the buyer gives ``price * fast`` slow GPUs for ``fast`` fast ones."""

    buyer: int
    seller: int
    slow_type: int
    fast_type: int
    price: float
    fast: float


def traded(gpus: Floats, speed: Floats, most: Floats) -> tuple[Floats, list[Trade]]:
    """Let users trade types pair by pair until nobody gains.

    Of a pair of types, the user with the highest speed-up buys fast GPUs from the user with the
    lowest, at the second-highest speed-up among those who hold slow ones, but not below the
    seller's, until one of them has nothing left to give or can use no more.

    Parameters
    ----------
    gpus
        GPUs of each user and type, shape (u, k).
    speed
        Speed of one GPU of each type for each user, in any unit of its own, shape (u, k).
    most
        GPUs each user can use in all, shape (u,).

    Returns
    -------
    GPUs after the trades, shape (u, k), and the trades.
    """
    held, trades = gpus.copy(), list[Trade]()
    k = held.shape[1]
    for _ in range(TRADING_ROUNDS):
        before = len(trades)
        for one in range(k):
            for two in range(one + 1, k):
                trades += _pair(held, speed, most, one, two)
        if len(trades) == before:
            break
    return held, trades


def _pair(held: Floats, speed: Floats, most: Floats, one: int, two: int) -> list[Trade]:
    """Trade two types, in place; the one that is faster for most users is the fast one."""
    users = np.flatnonzero((speed[:, one] > 0.0) & (speed[:, two] > 0.0))
    if users.size < 2:
        return []
    ratio = speed[users, two] / speed[users, one]
    slow, fast = (one, two) if np.median(ratio) >= 1.0 else (two, one)
    rate = speed[users, fast] / speed[users, slow]
    order = np.argsort(-rate, kind="stable")
    users, rates = users[order].tolist(), rate[order].tolist()
    pays: list[float] = held[users, slow].tolist()
    has: list[float] = held[users, fast].tolist()
    room: list[float] = (most[users] - held[users].sum(axis=1)).tolist()
    trades: list[Trade] = []
    buyer, seller = 0, len(users) - 1
    while buyer < seller and rates[buyer] > rates[seller] * (1.0 + NOTHING):
        if pays[buyer] <= NOTHING:
            buyer += 1
            continue
        next_holder = next((i for i in range(buyer + 1, len(users)) if pays[i] > NOTHING), seller)
        price = max(rates[next_holder], rates[seller])
        amount = min(has[seller], pays[buyer] / price)
        if price > 1.0:  # the seller ends up with more GPUs than before
            amount = min(amount, max(room[seller], 0.0) / (price - 1.0))
        elif price < 1.0:
            amount = min(amount, max(room[buyer], 0.0) / (1.0 - price))
        if amount <= NOTHING:
            if has[seller] > NOTHING and price < 1.0 and room[buyer] <= NOTHING:
                buyer += 1
            else:
                seller -= 1
            continue
        for at, sign in ((buyer, 1.0), (seller, -1.0)):
            has[at] += sign * amount
            pays[at] -= sign * amount * price
            room[at] += sign * amount * (price - 1.0)
        trades.append(Trade(users[buyer], users[seller], slow, fast, price, amount))
    held[users, slow], held[users, fast] = np.maximum(pays, 0.0), np.maximum(has, 0.0)
    return trades
