"""The cooperative LP with the rows found so far, held in the solver and grown by separation."""

from __future__ import annotations

from typing import cast

import numpy as np
from scipy.sparse import csr_matrix

from apportion.formulations.training.oef.envy import Envy
from apportion.instances.columns import Floats, Ints
from apportion.solver import Budget, Model, ModelBuilder, NoSolutionError, Rows
from apportion.solver.backends.held_lp import HeldLP
from apportion.solver.drivers.row_generation import require_inside, with_rows
from apportion.solver.proof.duality import dual_bound

TIGHT = 1e-9
"""Feasibility tolerance of the LPs: a tenth of what separation counts as broken."""

FLOOR = -1
"""Stands for the fair share in the place of an envied bundle."""


def bundle_model(envy: Envy, item_of: Ints, members: Floats, fixed: Ints, name: str) -> Model:
    """Model of bundles that keep capacities and caps, envy left aside.

    Parameters
    ----------
    envy
        The users.
    item_of
        Bundle of each user; users of one bundle hold the same per weight. Shape (u,).
    members
        Weight of the users of each bundle, shape (bundles,).
    fixed
        Bundles that stay at their user's fair share.
    name
        Name of the model.
    """
    count, kinds = members.size, envy.capacity.size
    worth = np.zeros((count, kinds))
    np.add.at(worth, item_of, envy.weight[:, None] * envy.speed)
    cap = np.full(count, np.inf)
    np.minimum.at(cap, item_of, envy.cap)
    builder = ModelBuilder(name)
    upper = np.where(worth > 0.0, envy.capacity[None, :] / members[:, None], 0.0)
    lower = np.zeros_like(upper)
    if fixed.size:
        first = np.unique(item_of, return_index=True)[1]
        lower[fixed] = upper[fixed] = envy.fair[first[fixed]]
    y = builder.columns("bundle", (count, kinds), lower=lower, upper=upper)
    builder.rows(
        "capacity", kinds, row=np.arange(kinds)[None, :], column=y, value=members[:, None],
        upper=envy.capacity,
    )  # fmt: skip
    binding = np.flatnonzero(cap * members < envy.capacity.sum())
    builder.rows(
        "demand", binding.size, row=np.arange(binding.size)[:, None], column=y[binding],
        value=1.0, upper=cap[binding],
    )  # fmt: skip
    builder.objective("normalised_throughput", column=y, value=worth, maximise=True)
    return builder.build()


def envy_rows(envy: Envy, item_of: Ints, bundles: int, user: Ints, item: Ints) -> Rows:
    """Rows by which users do not envy bundles; ``FLOOR`` in place of one is the fair share."""
    kinds, count = envy.capacity.size, user.size
    kind, row = np.arange(kinds), np.repeat(np.arange(count), kinds)
    column = (item_of[user][:, None] * kinds + kind).ravel()
    other = (np.maximum(item, 0)[:, None] * kinds + kind).ravel()
    against = np.where(item[:, None] == FLOOR, 0.0, -envy.judged[user])
    values = np.r_[envy.speed[user].ravel(), against.ravel()]
    matrix = csr_matrix(
        (values, (np.r_[row, row], np.r_[column, other])), shape=(count, bundles * kinds)
    )
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    least = np.where(item == FLOOR, envy.floor[user], envy.base[user])
    return Rows(cast("csr_matrix[np.float64]", matrix), least, np.full(count, np.inf))


class Relaxation:
    """An LP over bundles whose envy rows are added when they are broken.

    Parameters
    ----------
    envy
        The users.
    item_of
        Bundle of each user, 0 to some number without gaps, shape (u,).
    fixed
        Bundles that stay at their user's fair share; none unless given.

    Attributes
    ----------
    bound
        Least value proved so far that no allocation with these bundles exceeds.
    rounds, rows
        LPs solved, and rows added.
    """

    def __init__(self, envy: Envy, item_of: Ints, fixed: Ints | None = None) -> None:
        self.envy, self.item_of = envy, item_of
        self.members = np.bincount(item_of, weights=envy.weight).astype(np.float64)
        none = np.zeros(0, dtype=np.int64)
        self.inside = bundle_model(
            envy, item_of, self.members, none if fixed is None else fixed, "oef-cooperative"
        )
        self.lp = HeldLP(self.inside, TIGHT)
        self.known: Ints = np.zeros(0, dtype=np.int64)
        self.bound, self.rounds, self.rows = np.inf, 0, 0

    def add(self, user: Ints, item: Ints) -> int:
        """Add rows that are not in yet, and give their number."""
        # a user does not envy what it has itself
        apart = self.item_of[user] != item
        code = np.unique(user[apart] * (self.members.size + 1) + item[apart] + 1)
        code = code[~np.isin(code, self.known)]
        if code.size:
            who, what = code // (self.members.size + 1), code % (self.members.size + 1) - 1
            rows = envy_rows(self.envy, self.item_of, self.members.size, who, what)
            self.inside = with_rows(self.lp, self.inside, rows)
            self.known = np.concatenate((self.known, code))
            self.rows += code.size
        return code.size

    def solve(self, budget: Budget) -> Floats:
        """Solve the LP and give its bundles, shape (bundles, k).

        Raises
        ------
        NoSolutionError
            If the budget ends, or no bundles keep the rows.
        UncertifiedError
            If the LP's end cannot be vouched for.
        """
        point = self.lp.solve(budget)
        self.rounds += 1
        if point is None:
            raise NoSolutionError("no bundles keep the rows")
        x = np.clip(point.x, self.inside.lower, self.inside.upper)
        require_inside(self.inside, x)
        proved = dual_bound(self.inside, point.duals)
        if proved is not None:
            self.bound = min(self.bound, -proved)
        return x.reshape(self.members.size, -1)
