"""More tiny models with status, optimum, bound and duals computed by hand, on every back end.

Together with ``test_backends.py``. Rows of equal numbers, rows without terms, corners where more
rows meet than needed, open columns and gangs that do not pack: what trips adapters up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from apportion.solver import BACKENDS, NoSolutionError, Solver, Status, UnsupportedModelError

pytestmark = pytest.mark.quick

INF = np.inf
THIRD = 1.0 / 3.0

# data of the model, optimum, unique point or None, unique duals or None
SOLVABLE: dict[str, tuple[dict[str, Any], float, list[float] | None, list[float] | None]] = {
    # the two diagonals cost 1 + 2 and 3 + 2
    "assignment": (
        {
            "rows": [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]],
            "row_lower": 1, "row_upper": 1, "cost": [1, 3, 2, 2],
        },
        *(3.0, [1, 0, 0, 1], None),
    ),
    # stocks 3 and 4, needs 2 and 5: 2 * 2 + 1 * 3 + 4 * 1
    "transport": (
        {
            "rows": [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]],
            "row_lower": [-INF, -INF, 2, 5], "row_upper": [3, 4, INF, INF], "cost": [2, 3, 4, 1],
        },
        *(11.0, [2, 1, 0, 4], None),
    ),
    # speeds 2 and 1 on three GPUs: t / 2 + t = 3
    "max_min": (
        {
            "rows": [[2, 0, -1], [0, 1, -1], [1, 1, 0]], "row_lower": [0, 0, -INF],
            "row_upper": [INF, INF, 3], "cost": [0, 0, 1], "maximise": True,
        },
        *(2.0, [1, 2, 2], [-THIRD, -2 * THIRD, 2 * THIRD]),
    ),
    "open_column": (
        {"rows": [[1, -1]], "row_lower": -3, "lower": [-INF, 1], "upper": [INF, 4], "cost": [1, 0]},
        *(-2.0, [-2, 1], [1.0]),
    ),
    "three_rows_in_one_corner": (
        {"rows": [[1, 0], [0, 1], [1, 1]], "row_upper": [2, 2, 4], "cost": [1, 1], "maximise": True},
        *(4.0, [2, 2], None),
    ),
    "the_same_row_twice": (
        {"rows": [[1, 1], [1, 1]], "row_lower": [3, 4], "cost": [2, 3]},
        *(8.0, [4, 0], [0.0, 2.0]),
    ),
    "opposite_rows": (
        {"rows": [[1, 1], [-1, -1]], "row_upper": [5, -5], "cost": [1, 2], "maximise": True},
        *(10.0, [0, 5], None),
    ),
    "row_without_terms": (
        {"rows": [[0, 0], [1, 1]], "row_lower": [-1, -INF], "row_upper": [0, 4], "cost": [1, 1], "maximise": True},
        *(4.0, None, [0.0, 1.0]),
    ),
    # the second column is cheap in the row, so it is filled first
    "large_coefficients": (
        {"rows": [[1e6, 1]], "row_upper": 3e6, "cost": [1e3, 1], "maximise": True},
        *(3009.99, [2.99999, 10], [1e-3]),
    ),
    "only_zero": (
        {"rows": [[1, 1]], "row_upper": 0, "cost": [1, 2], "maximise": True},
        *(0.0, [0, 0], None),
    ),
    "large_offset": (
        {"rows": [[1]], "row_lower": 2.5, "cost": [1], "offset": 1e6},
        *(1000002.5, [2.5], [1.0]),
    ),
    "capacity_written_downwards": (
        {"rows": [[-1, -1]], "row_lower": -7, "cost": [1, 0.5], "maximise": True},
        *(7.0, [7, 0], [-1.0]),
    ),
    "equality_with_a_negative_side": (
        {"rows": [[1, -2]], "row_lower": -4, "row_upper": -4, "cost": [1, 1]},
        *(2.0, [0, 2], [-0.5]),
    ),
    "set_cover": (
        {
            "rows": [[1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1]], "row_lower": 1, "upper": 1,
            "integer": True, "cost": [2, 2, 2, 3],
        },
        *(3.0, [0, 0, 0, 1], None),
    ),
    # gangs of 3, 3 and 2 on two nodes of 4: in fractions all would fit
    "gangs_that_do_not_pack": (
        {
            "rows": [
                [1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1],
                [3, 0, 3, 0, 2, 0], [0, 3, 0, 3, 0, 2],
            ],
            "row_upper": [1, 1, 1, 4, 4], "upper": 1, "integer": True,
            "cost": [3, 3, 3, 3, 2, 2], "maximise": True,
        },
        *(6.0, None, None),
    ),
    "switch": (
        {"rows": [[1, -10]], "row_upper": 0, "upper": [10, 1], "integer": True, "cost": [2, -5], "maximise": True},
        *(15.0, [10, 1], None),
    ),
    "fractional_bounds_of_integers": (
        {"lower": [0.5, -1.5], "upper": [2.5, 1.5], "integer": True, "cost": [1, -1]},
        *(0.0, [1, 1], None),
    ),
}  # fmt: skip

IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "two_caps_and_a_demand": {"rows": [[1, 1], [1, 0], [0, 1]], "row_lower": [6, -INF, -INF], "row_upper": [INF, 2, 3], "cost": [1, 1]},
    "fixed_columns": {"rows": [[1, 1]], "row_upper": 5, "lower": 3, "upper": 3, "cost": [1, 1]},
    # 29 is the largest number that 6, 10 and 15 do not make
    "frobenius": {"rows": [[6, 10, 15]], "row_lower": 29, "row_upper": 29, "integer": True, "cost": [1, 1, 1]},
    "no_whole_number_between": {"lower": 0.25, "upper": 0.75, "integer": True, "cost": [1, 1]},
    "row_without_terms": {"rows": [[0, 0]], "row_lower": 1, "row_upper": 2, "cost": [1, 1]},
}  # fmt: skip

ENDLESS: dict[str, dict[str, Any]] = {
    "mixed_ray": {"rows": [[1, -1]], "row_upper": 0.5, "upper": INF, "integer": [True, False], "cost": [1, 0], "maximise": True},
    "open_both_ways": {"rows": [[1, 1]], "row_lower": 0, "row_upper": 0, "lower": -INF, "upper": INF, "cost": [1, 0]},
}  # fmt: skip


def answer(backend, model, minute):
    """Answer of a back end, or none where it has to refuse the class of the model."""
    capabilities = BACKENDS[backend]().capabilities
    wide = not (np.isfinite(model.lower).all() and np.isfinite(model.upper).all())
    refuses = (
        (not capabilities.integers and not model.is_lp)
        or (not capabilities.continuous and not model.integer.all())
        or (capabilities.exact_integers_only and wide)
    )
    if refuses:
        with pytest.raises(UnsupportedModelError):
            Solver(backend=backend).solve(model, budget=minute)
        return None
    return Solver(backend=backend, gap=0.0).solve(model, budget=minute)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SOLVABLE)
def test_status_optimum_bound_and_duals(case, backend, dense_model, minute):
    data, optimum, point, duals = SOLVABLE[case]
    model = dense_model(**data)
    found = answer(backend, model, minute)
    if found is None:
        return
    assert found.status is Status.OPTIMAL, found
    assert found.objective == pytest.approx(optimum, rel=1e-6, abs=1e-6)
    assert found.bound == pytest.approx(optimum, rel=1e-6, abs=1e-6)
    if point is not None:
        np.testing.assert_allclose(found.x, point, atol=1e-5)
    with_duals = model.is_lp and BACKENDS[backend]().capabilities.duals
    assert (found.duals is not None) == with_duals
    if with_duals and duals is not None:
        np.testing.assert_allclose(found.duals, duals, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("case", "status"),
    [*((c, Status.INFEASIBLE) for c in IMPOSSIBLE), *((c, Status.UNBOUNDED) for c in ENDLESS)],
)
def test_no_optimum_means_no_values(case, status, backend, dense_model, minute):
    data = IMPOSSIBLE[case] if status is Status.INFEASIBLE else ENDLESS[case]
    found = answer(backend, dense_model(**data), minute)
    if found is None:
        return
    told = {status}
    if status is Status.UNBOUNDED and backend == "pdlp":
        # it gives up without a claim that could be looked into
        told.add(Status.NO_SOLUTION)
    assert found.status in told, found
    assert found.bounds == (None,)
    assert found.duals is None
    with pytest.raises(NoSolutionError):
        _ = found.x
