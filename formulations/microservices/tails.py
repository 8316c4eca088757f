"""Tail probabilities of every class of a round, for plans, their neighbours and their slopes.

Source: Derm (ISCA 2024) for the law; the product form on a contour is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from apportion.formulations.microservices.contour import (
    MOST_SURE,
    TERM_LIMIT,
    Complexes,
    contour,
)
from apportion.formulations.microservices.forks import Fork
from apportion.formulations.microservices.stages import stages_of
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import MicroserviceRound, laws


@dataclass(frozen=True, eq=False)
class Tails:
    """The active classes of a round, A of them, as products of transforms.

    Parameters
    ----------
    round_
        The round.
    classes
        Rows of the round's classes, shape (A,).
    row_class
        For each call outside forks the active class it belongs to, in order, shape (E,).
    microservice, calls
        Who is called and how often in a request, shape (E,).
    starts
        First such call of each class that has any.
    forks, fork_class
        Forks, and the class of each.
    room_ms
        Target less shift of each class, shape (A,).
    weights
        Weights of the contour, shape (J,).
    s
        Its nodes at each class's room, per ms, shape (A, J).
    exact
        False for classes whose tail is only known from above, shape (A,).
    """

    round_: MicroserviceRound
    classes: Ints
    row_class: Ints
    microservice: Ints
    calls: Floats
    starts: Ints
    forks: tuple[Fork, ...]
    fork_class: tuple[int, ...]
    room_ms: Floats
    weights: Complexes
    s: Complexes
    exact: Bools

    @classmethod
    def of(cls, round_: MicroserviceRound) -> Tails:
        """Compile the call trees of a round."""
        classes = np.flatnonzero(round_.active)
        parts = [stages_of(round_, int(k)) for k in classes]
        rows = np.array([row for part in parts for row in part.rows], dtype=np.int64)
        row_class = np.repeat(np.arange(classes.size), [len(part.rows) for part in parts])
        trees = round_.classes.trees
        target = round_.services.target_ms[round_.classes.service[classes]]
        room = target - np.array([part.shift_ms for part in parts])
        nodes, weights = contour(max((part.calls for part in parts), default=1))
        return cls(
            round_=round_,
            classes=cast(Ints, classes),
            row_class=cast(Ints, row_class),
            microservice=trees.microservice[rows],
            calls=trees.per_request[rows],
            starts=cast(Ints, np.flatnonzero(np.diff(row_class, prepend=-1))),
            forks=tuple(fork for part in parts for fork in part.forks),
            fork_class=tuple(at for at, part in enumerate(parts) for _ in part.forks),
            room_ms=room,
            weights=weights / nodes,
            s=nodes[None, :] / np.where(room > 0, room, 1.0)[:, None],
            exact=np.array([part.exact for part in parts], dtype=np.bool_),
        )

    # ------------------------------------------------------------------ values

    def class_tails(self, containers: Ints | Floats, rank: Ints | None = None) -> Floats:
        """Compute the probability that a request of each class exceeds its target.

        Parameters
        ----------
        containers
            Shape (M,).
        rank
            Order of the classes, shape (K,), or None.

        Returns
        -------
        ndarray
            Shape (K,); 0 for classes that do not occur.
        """
        out = np.zeros(len(self.round_.classes))
        out[self.classes] = 1.0 - self.met(self.rates(containers, rank))
        return out

    def violations(self, containers: Ints | Floats, rank: Ints | None = None) -> Floats:
        """Compute the share of the requests of each service above its target, shape (S,).

        A service that nobody calls has none.
        """
        return service_violations(self.round_, self.class_tails(containers, rank))

    def rates(self, containers: Ints | Floats, rank: Ints | None = None) -> Floats:
        """Compute the rate of a call to each microservice, shape (M, 1) or (M, A)."""
        load = laws.loads(self.round_, containers, rank)
        return laws.rates(
            self.round_.microservices, load if rank is None else load[:, self.classes]
        )

    def met(self, rate: Floats) -> Floats:
        """Compute the probability that each class meets its target, shape (A,).

        Parameters
        ----------
        rate
            Rates per ms, shape (M, 1) or (M, A); 0: no call ends.
        """
        product, dead = self._transform(rate)
        return self._invert(product, dead)

    def _transform(self, rate: Floats) -> tuple[Complexes, Bools]:
        own = rate[self.microservice, 0 if rate.shape[1] == 1 else self.row_class]
        dead = self._dead(own, rate)
        product = np.ones(self.s.shape, dtype=np.complex128)
        if own.size:
            factors = 1.0 + self._mean(own)[:, None] * self.s[self.row_class]
            product[self.row_class[self.starts]] = 1.0 / np.multiply.reduceat(
                factors, self.starts, axis=0
            )
        for fork, at in zip(self.forks, self.fork_class, strict=True):
            if not dead[at]:
                product[at] *= fork.transform(self._fork_rate(fork, at, rate)[None], self.s[at])[0]
        return product, dead

    def _means(self, rate: Floats) -> Floats:
        """Mean time of each call outside forks beyond its shift, shape (E,); 0 where it is endless."""
        return self._mean(rate[self.microservice, 0 if rate.shape[1] == 1 else self.row_class])

    def _mean(self, own: Floats) -> Floats:
        if own.size and own.min() > 0.0:
            return self.calls / own
        return np.where(own > 0, self.calls / np.where(own > 0, own, 1.0), 0.0)

    def met_at(self, rates: Floats) -> Floats:
        """Compute the probabilities at several rates at once.

        Parameters
        ----------
        rates
            Shape (Q, M, 1) or (Q, M, A), all above zero where a class calls.

        Returns
        -------
        ndarray
            Shape (Q, A).
        """
        product = np.ones((rates.shape[0], *self.s.shape), dtype=np.complex128)
        if self.calls.size:
            own = rates[:, self.microservice, 0 if rates.shape[2] == 1 else self.row_class]
            factors = 1.0 + (self.calls / own)[:, :, None] * self.s[self.row_class]
            product[:, self.row_class[self.starts]] = 1.0 / np.multiply.reduceat(
                factors, self.starts, axis=1
            )
        trees = self.round_.classes.trees
        for fork, at in zip(self.forks, self.fork_class, strict=True):
            own = rates[:, trees.microservice[fork.rows], 0 if rates.shape[2] == 1 else at]
            product[:, at] *= fork.transform(own / trees.per_request[fork.rows], self.s[at])
        return self._invert(product, self.room_ms <= 0)

    def _fork_rate(self, fork: Fork, at: int, rate: Floats) -> Floats:
        trees = self.round_.classes.trees
        own = rate[trees.microservice[fork.rows], 0 if rate.shape[1] == 1 else at]
        return own / trees.per_request[fork.rows]

    def _dead(self, own: Floats, rate: Floats) -> Bools:
        """Classes that cannot end in time: a call of rate 0, or no room beyond the shifts."""
        dead = self.room_ms <= 0
        if own.size and own.min() <= 0.0:
            dead[self.row_class[own <= 0]] = True
        for fork, at in zip(self.forks, self.fork_class, strict=True):
            dead[at] |= bool((self._fork_rate(fork, at, rate) <= 0).any())
        return dead

    def _invert(self, product: Complexes, dead: Bools) -> Floats:
        terms = product * self.weights
        out = terms.sum(axis=-1).real
        if self.weights.size > MOST_SURE:
            noise = np.abs(terms).max(axis=-1, initial=0.0) > TERM_LIMIT
            # so far from the mean that it is 0 or 1: the transform at a real point tells
            out = np.where(noise, (np.abs(product[..., 0]) > 0.5).astype(float), out)
        out = np.minimum(np.maximum(out, 0.0), 1.0)
        return np.where(dead, 0.0, out) if dead.any() else out

    # ------------------------------------------------------------------ slopes

    def met_and_slopes(self, rate: Floats) -> tuple[Floats, Floats]:
        """Compute the probability of each class and its slope in the log mean of each microservice.

        Parameters
        ----------
        rate
            Rates per ms, shape (M, 1), all above zero where a class calls.

        Returns
        -------
        met
            Shape (A,).
        slope
            Derivative of ``met`` in ``nu = -log rate``, not positive, shape (M, A).
        """
        mean = self._means(rate)
        product, dead = self._transform(rate)
        slope = np.zeros((rate.shape[0], self.classes.size))
        if mean.size:
            q = mean[:, None] * self.s[self.row_class]
            inner = (product * self.weights)[self.row_class] * (q / (1.0 + q))
            np.add.at(slope, (self.microservice, self.row_class), -inner.sum(axis=1).real)
        for fork, at in zip(self.forks, self.fork_class, strict=True):
            if dead[at]:
                continue
            own = self._fork_rate(fork, at, rate)
            base = fork.transform(own[None], self.s[at])[0]
            turned = fork.slopes(own, self.s[at]) * (product[at] / base * self.weights)
            called = self.round_.classes.trees.microservice[fork.rows]
            np.add.at(slope, (called, np.full(called.size, at)), -turned.sum(axis=1).real)
        slope[:, dead] = 0.0
        return self._invert(product, dead), np.minimum(slope, 0.0)

    # ------------------------------------------------------------------ neighbours

    def neighbours(self, rate: Floats, other: Floats) -> Floats:
        """Compute the probabilities after one microservice alone goes to another rate.

        Parameters
        ----------
        rate
            Present rates, shape (M, 1).
        other
            What each would go to, shape (M, 1).

        Returns
        -------
        ndarray
            Shape (M, A): entry m is for the plan in which only m has changed.
        """
        product, dead = self._transform(rate)
        base = self._invert(product, dead)
        out = np.repeat(base[None, :], rate.shape[0], axis=0)
        self._change_calls(out, product, rate, other)
        for fork, at in zip(self.forks, self.fork_class, strict=True):
            if not dead[at]:
                self._change_fork(out, fork, at, product, rate, other)
        if dead.any():
            self._revive(out, dead, rate, other)
        return out

    def _change_calls(self, out: Floats, product: Complexes, rate: Floats, other: Floats) -> None:
        if not self.microservice.size:
            return
        before, after = self._means(rate)[:, None], self._means(other)[:, None]
        s = self.s[self.row_class]
        ratio = (1.0 + before * s) / (1.0 + after * s)
        key = self.row_class * len(self.round_.microservices) + self.microservice
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        first = order[starts]
        if starts.size < key.size:
            ratio = np.multiply.reduceat(ratio[order], starts, axis=0)
        else:
            ratio = ratio[order]
        of_class, called = self.row_class[first], self.microservice[first]
        stuck = (self.room_ms[of_class] <= 0) | (other[called, 0] <= 0)
        found = self._invert(product[of_class] * ratio, stuck)
        out[called, of_class] = found

    def _change_fork(
        self, out: Floats, fork: Fork, at: int, product: Complexes, rate: Floats, other: Floats
    ) -> None:
        trees = self.round_.classes.trees
        called = trees.microservice[fork.rows]
        who = np.unique(called)
        own, changed = self._fork_rate(fork, at, rate), self._fork_rate(fork, at, other)
        variants = np.where(called[None, :] == who[:, None], changed[None, :], own[None, :])
        stuck = cast(Bools, (variants <= 0).any(axis=1))
        base = fork.transform(own[None], self.s[at])[0]
        turned = fork.transform(np.where(stuck[:, None], 1.0, variants), self.s[at])
        rest = np.repeat((product[at] / base)[None], who.size, axis=0)
        rest = (
            rest
            * self._outside(who, at, rate, other)
            * self._other_forks(fork, who, at, rate, other)
        )
        out[who, at] = self._invert(rest * turned, stuck)

    def _outside(self, who: Ints, at: int, rate: Floats, other: Floats) -> Complexes:
        """Change of a class's calls outside forks when each of some microservices changes."""
        out = np.ones((who.size, self.s.shape[1]), dtype=np.complex128)
        own = np.flatnonzero(self.row_class == at)
        before, after = self._means(rate), self._means(other)
        for row in own[np.isin(self.microservice[own], who)]:
            v = int(np.searchsorted(who, self.microservice[row]))
            out[v] *= (1.0 + before[row] * self.s[at]) / (1.0 + after[row] * self.s[at])
        return out

    def _other_forks(
        self, fork: Fork, who: Ints, at: int, rate: Floats, other: Floats
    ) -> Complexes:
        """Change of a class's other forks when each of some microservices changes."""
        out = np.ones((who.size, self.s.shape[1]), dtype=np.complex128)
        trees = self.round_.classes.trees
        for one, of_class in zip(self.forks, self.fork_class, strict=True):
            called = trees.microservice[one.rows]
            if one is fork or of_class != at or not np.isin(called, who).any():
                continue
            own, changed = self._fork_rate(one, at, rate), self._fork_rate(one, at, other)
            variants = np.where(called[None, :] == who[:, None], changed[None, :], own[None, :])
            stuck = cast(Bools, (variants <= 0).any(axis=1))
            variants = np.where(stuck[:, None], own[None, :], variants)
            found = one.transform(np.concatenate((own[None], variants)), self.s[at])
            out *= found[1:] / found[0]
        return out

    def _revive(self, out: Floats, dead: Bools, rate: Floats, other: Floats) -> None:
        """Recompute the classes that do not end now, and may after a change."""
        for m in np.flatnonzero(other[:, 0] != rate[:, 0]):
            changed = rate.copy()
            changed[m] = other[m]
            out[m, dead] = self.met(changed)[dead]


def service_violations(round_: MicroserviceRound, tails: Floats) -> Floats:
    """Weigh the tails of the classes, shape (K,), by their shares: shape (S,)."""
    services, classes = round_.services, round_.classes
    mixed = np.bincount(classes.service, weights=classes.share * tails, minlength=len(services))
    out = np.minimum(mixed + services.unmodelled_share, 1.0)
    return cast(Floats, np.where(services.rate_per_s > 0, out, 0.0))
