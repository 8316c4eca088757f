from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from apportion.solver import (
    Budget,
    ModelBuilder,
    ModelError,
    NoSolutionError,
    Rows,
    Solver,
    UncertifiedError,
    generate_rows,
)
from apportion.solver.backends.held_lp import HeldLP
from apportion.solver.drivers import row_generation as module

pytestmark = pytest.mark.quick

SEEDS = [pytest.param(seed, marks=[] if seed < 20 else pytest.mark.slow) for seed in range(200)]


def minute() -> Budget:
    return Budget.of(60.0)


def allocation(worth, supply):
    """Users get parts of the supply, so that the sum of what they are worth to them is largest."""
    users, kinds = worth.shape
    builder = ModelBuilder("allocation")
    x = builder.columns("x", (users, kinds), upper=supply)
    kind = np.arange(kinds)[None, :]
    builder.rows("supply", kinds, row=kind, column=x, value=1.0, upper=supply)
    builder.objective("worth", column=x, value=worth, maximise=True)
    return builder.build()


def envy(worth, pairs) -> Rows:
    """Each user values its own bundle at least as much as the other's; itself included if asked."""
    users, kinds = worth.shape
    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    own, other = pairs[:, :1] * kinds + np.arange(kinds), pairs[:, 1:] * kinds + np.arange(kinds)
    columns = np.hstack((own, other)).ravel()
    values = np.hstack((worth[pairs[:, 0]], -worth[pairs[:, 0]])).ravel()
    row = np.repeat(np.arange(len(pairs)), 2 * kinds)
    # places that come twice stay twice: rows are checked as they are handed over
    order = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=len(pairs)))))
    matrix = csr_matrix((values, columns, order), shape=(len(pairs), users * kinds))
    return Rows(matrix, np.zeros(len(pairs)), np.full(len(pairs), np.inf))


def worst_envy(worth, itself=False):
    def separate(x):
        bundle = x.reshape(worth.shape)
        value = worth @ bundle.T
        most = value.argmax(axis=1)
        pairs = [(i, j) for i, j in enumerate(most.tolist()) if i != j or itself]
        return envy(worth, pairs) if pairs else None

    return separate


def by_all_rows(worth, supply):
    users = len(worth)
    rows = envy(worth, [(i, j) for i in range(users) for j in range(users) if i != j])
    model = allocation(worth, supply)
    for row in range(len(rows.lower)):
        model = model.with_row(f"envy{row}", rows.matrix[row].toarray().ravel(), 0.0, np.inf)
    return Solver(gap=1e-9).solve(model, budget=minute())


def drawn(seed):
    rng = np.random.default_rng(seed)
    users, kinds = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    worth = np.sort(rng.uniform(1.0, 4.0, (users, kinds)), axis=1)
    if seed % 2:
        worth = worth[rng.integers(0, users, users)]  # equal users
    return worth, rng.integers(1, 5, kinds).astype(float)


@pytest.mark.parametrize("seed", SEEDS)
def test_envy_free_allocation_against_all_rows_at_once(seed):
    worth, supply = drawn(seed)
    found = generate_rows(allocation(worth, supply), worst_envy(worth), budget=minute())
    dense = by_all_rows(worth, supply)
    assert found.value == pytest.approx(dense.objective, rel=1e-7)
    assert found.bound == pytest.approx(found.value, rel=1e-7)
    bundle = found.x.reshape(worth.shape)
    value = worth @ bundle.T
    assert (value <= np.diag(value)[:, None] + 1e-6).all()


def test_a_row_of_a_user_against_itself_does_no_harm():
    # HiGHS refuses a batch of rows with doubled places in silence; by that 4.0 was once returned
    worth, supply = np.array([[3.0, 1.0], [2.0, 1.0]]), np.ones(2)
    model = allocation(worth, supply)
    for itself in (False, True):
        start = envy(worth, [(0, 0), (1, 1)]) if itself else None
        found = generate_rows(model, worst_envy(worth, itself), budget=minute(), start=start)
        assert found.value == pytest.approx(3.75)


def test_twins_that_cancel_leave_no_violation_of_rounding():
    # summed in floating point 1e-17 is left, relative to nothing
    matrix = csr_matrix((np.array([0.1, 0.2, -0.3]), np.zeros(3, dtype=int), [0, 3]), shape=(1, 1))
    rows = Rows(matrix, np.zeros(1), np.zeros(1))
    assert not rows.violated(np.ones(1)).any()
    assert Rows(matrix, np.ones(1), np.ones(1)).violated(np.ones(1)).all()
    assert matrix.nnz == 3


def test_equal_users_get_what_is_worth_the_same():
    worth = np.tile([[3.0, 1.0]], (4, 1))
    found = generate_rows(allocation(worth, np.ones(2)), worst_envy(worth), budget=minute())
    np.testing.assert_allclose((worth * found.x.reshape(4, 2)).sum(axis=1), 1.0, atol=1e-8)


def test_rows_to_begin_with_may_be_all():
    worth, supply = drawn(4)
    users = len(worth)
    pairs = [(i, j) for i in range(users) for j in range(users) if i != j]
    start = envy(worth, pairs)
    found = generate_rows(
        allocation(worth, supply), worst_envy(worth), budget=minute(), start=start
    )
    assert (found.rounds, found.rows) == (1, len(pairs))


def test_rows_that_nothing_satisfies():
    worth, supply = np.ones((1, 1)), np.ones(1)
    impossible = Rows(csr_matrix(np.ones((1, 1))), np.array([2.0]), np.array([np.inf]))
    with pytest.raises(NoSolutionError, match="no point"):
        generate_rows(allocation(worth, supply), lambda x: impossible, budget=minute())


def test_no_point_is_returned_when_time_is_up():
    worth, supply = drawn(4)
    with pytest.raises(NoSolutionError, match="budget"):
        generate_rows(allocation(worth, supply), worst_envy(worth), budget=Budget(0.0))


def test_rows_that_are_refused_are_not_passed_over(monkeypatch):
    worth, supply = np.array([[3.0, 1.0], [2.0, 1.0]]), np.ones(2)
    lp = HeldLP(allocation(worth, supply))
    outside = csr_matrix((np.ones(1), np.array([99]), np.array([0, 1])), shape=(1, 100))
    with pytest.raises(UncertifiedError, match="refuses"):
        lp.add_rows(outside, np.zeros(1), np.ones(1))
    # and where HiGHS said yes but left them out, the point gives it away
    monkeypatch.setattr(HeldLP, "add_rows", lambda *_: None)
    with pytest.raises(UncertifiedError, match="violated"):
        generate_rows(allocation(worth, supply), worst_envy(worth), budget=minute())


def test_rounds_without_end_are_given_up(monkeypatch):
    monkeypatch.setattr(module, "MOST_ROUNDS", 1)
    worth, supply = np.array([[3.0, 1.0], [2.0, 1.0]]), np.ones(2)
    with pytest.raises(UncertifiedError, match="rounds"):
        generate_rows(allocation(worth, supply), worst_envy(worth), budget=minute())


def test_questions_that_make_no_sense():
    model = allocation(np.ones((1, 1)), np.ones(1))
    wide = Rows(csr_matrix(np.ones((1, 2))), np.array([9.0]), np.array([np.inf]))
    with pytest.raises(ModelError, match="columns"):
        generate_rows(model, lambda x: wide, budget=minute())
    with pytest.raises(ModelError, match="not usable"):
        Rows(csr_matrix(np.array([[np.nan]])), np.zeros(1), np.ones(1))
    with pytest.raises(ModelError, match="sides"):
        Rows(csr_matrix(np.ones((1, 1))), np.zeros(2), np.ones(1))
