"""Forks of a request: their calls, and the transform of their latency and its slopes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from apportion.formulations.microservices.contour import Complexes
from apportion.formulations.microservices.networks import Network, forked, in_series
from apportion.instances.columns import Floats, Ints

MOST_STATES = 2000
"""States of one fork: beyond them its transform takes longer than all the rest of a round."""

DERIVATIVE_STEP = 2e-3
"""Relative step of the five-point derivative: error about 1e-12, rounding about 1e-11."""


@dataclass(frozen=True, eq=False)
class Branch:
    """A branch of a fork.

    Parameters
    ----------
    network
        Its states.
    rows
        Rows of the round's call trees it makes.
    starts
        First of the rows behind each rate of the network, which is the least of theirs.
    shift_ms
        The part of its latency that no number of containers changes.
    exact
        False where its latency is only known from above.
    """

    network: Network
    rows: tuple[int, ...]
    starts: tuple[int, ...]
    shift_ms: float
    exact: bool = True

    @classmethod
    def call(cls, row: int, shift_ms: float) -> Branch:
        """Make a branch of one call."""
        return cls(Network.chain(1), (row,), (0,), shift_ms)

    @classmethod
    def fork(cls, branches: Sequence[Branch]) -> Branch:
        """Run branches side by side, as one; too many states are avoided."""
        members = few_enough(branches)
        longest = max(branch.shift_ms for branch in members)
        rows, starts = list[int](), list[int]()
        for branch in members:
            starts += [at + len(rows) for at in branch.starts]
            rows += branch.rows
        network = forked(
            [branch.network for branch in members],
            [longest - branch.shift_ms for branch in members],
        )
        exact = all(branch.exact for branch in members)
        return cls(network, tuple(rows), tuple(starts), longest, exact)

    def then(self, other: Branch) -> Branch:
        """Append another branch."""
        return Branch(
            in_series(self.network, other.network), self.rows + other.rows,
            self.starts + tuple(at + len(self.rows) for at in other.starts),
            self.shift_ms + other.shift_ms, self.exact and other.exact,
        )  # fmt: skip


def few_enough(branches: Sequence[Branch]) -> list[Branch]:
    """Bring the states of a fork below their limit, at the price of a longer latency.

    Single calls are taken as alike, as slow as the slowest of them; where that is not enough, the
    branches with most states follow one another instead.
    """
    out = list(branches)
    if _states(out) <= MOST_STATES:
        return out
    single = [branch for branch in out if len(branch.rows) == 1]
    if len(single) > 1:
        rows = tuple(row for branch in single for row in branch.rows)
        longest = max(branch.shift_ms for branch in single)
        alike = Branch(Network.alike(len(rows)), rows, (0,), longest, exact=False)
        out = [*(branch for branch in out if len(branch.rows) > 1), alike]
    while len(out) > 1 and _states(out) > MOST_STATES:
        out.sort(key=lambda branch: branch.network.states)
        last = out.pop()
        out.append(replace(out.pop().then(last), exact=False))
    return out


def _states(branches: Sequence[Branch]) -> int:
    return math.prod(branch.network.states for branch in branches)


@dataclass(frozen=True, eq=False)
class Fork:
    """A fork as a factor of the transform of its class.

    Parameters
    ----------
    network
        States of all branches together.
    rows
        Rows of the round's call trees it makes, shape (c,).
    starts
        First of the rows behind each rate of the network, shape (r,).
    """

    network: Network
    rows: Ints
    starts: Ints

    @classmethod
    def of(cls, branch: Branch) -> Fork:
        """Take what `Branch.fork` joined."""
        rows, starts = (np.array(part, dtype=np.int64) for part in (branch.rows, branch.starts))
        return cls(branch.network, rows, starts)

    def transform(self, rate: Floats, s: Complexes) -> Complexes:
        """Compute the transform of the fork's latency beyond its longest shift.

        Parameters
        ----------
        rate
            Rates of its calls per ms, shape (v, c): v variants at once.
        s
            Nodes per ms, shape (J,).

        Returns
        -------
        ndarray
            Shape (v, J).
        """
        return self.network.transform(np.minimum.reduceat(rate, self.starts, axis=1), s)

    def slopes(self, rate: Floats, s: Complexes) -> Complexes:
        """Compute the derivative of the transform in the logarithm of each rate, shape (c, J).

        Where the least of several rates counts, that one alone has a derivative.
        """
        least = np.minimum.reduceat(rate, self.starts)
        count = least.size
        turns = np.array([1.0, -1.0, 2.0, -2.0]) * DERIVATIVE_STEP
        variants = np.repeat(least[None, :], 4 * count, axis=0).reshape(4, count, count)
        each = np.arange(count)
        variants[:, each, each] *= np.exp(turns)[:, None]
        found = self.network.transform(variants.reshape(4 * count, count), s)
        near, far = (found.reshape(4, count, s.size)[at] - found.reshape(4, count, s.size)[at + 1]
                     for at in (0, 2))  # fmt: skip
        out = np.zeros((rate.size, s.size), dtype=np.complex128)
        ends = np.append(self.starts[1:], rate.size)
        slowest = [a + int(rate[a:b].argmin()) for a, b in zip(self.starts, ends, strict=True)]
        out[slowest] = (8.0 * near - far) / (12.0 * DERIVATIVE_STEP)
        return cast(Complexes, out)
