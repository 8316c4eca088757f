"""Water-filling against progressive filling in fractions: an exact simplex method, written here."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from apportion.solver import Budget, Sharing, water_filling

pytestmark = pytest.mark.quick

SEEDS = [pytest.param(seed, marks=[] if seed < 24 else pytest.mark.slow) for seed in range(1000)]

Exact = list[Fraction]


def optimum(cost: Exact, matrix: list[Exact], side: Exact) -> Fraction:
    """Largest ``cost @ x`` with ``matrix @ x <= side`` and ``x >= 0``, by Bland's rule.

    The first column is the artificial one: it is driven out first, and held at 0 then.
    """
    rows, columns = len(matrix), len(cost)
    width = 1 + columns + rows
    table = [
        [Fraction(-1), *matrix[i], *(Fraction(int(i == j)) for j in range(rows)), side[i]]
        for i in range(rows)
    ]
    basis = [1 + columns + i for i in range(rows)]
    gain = [Fraction(0), *cost, *([Fraction(0)] * (rows + 1))]
    infeasible = [Fraction(-1), *([Fraction(0)] * width)]

    def pivot(row: int, column: int) -> None:
        by = table[row][column]
        table[row] = [entry / by for entry in table[row]]
        for other in (*(line for i, line in enumerate(table) if i != row), gain, infeasible):
            if other[column]:
                factor = other[column]
                other[:] = [a - factor * b for a, b in zip(other, table[row], strict=True)]
        basis[row] = column

    def climb(value: Exact, first: int) -> None:
        while True:
            column = next((j for j in range(first, width) if value[j] > 0), None)
            if column is None:
                return
            leaving = [
                (table[i][width] / table[i][column], basis[i], i)
                for i in range(rows)
                if table[i][column] > 0
            ]
            assert leaving, "no end"
            pivot(min(leaving)[2], column)

    lowest = min(range(rows), key=lambda i: table[i][width])
    if table[lowest][width] < 0:
        pivot(lowest, 0)
        climb(infeasible, 0)
        assert infeasible[width] == 0, "no point"
        if 0 in basis:
            row = basis.index(0)
            pivot(row, next(j for j in range(1, width) if table[row][j]))
    climb(gain, 1)
    return -gain[width]


class Filling:
    """Jobs as fractions; columns are the pairs of a job and a type on which it can run."""

    def __init__(self, sharing: Sharing) -> None:
        self.speed = [
            [Fraction(v) * Fraction(s) for v in row]
            for row, s in zip(sharing.speed.tolist(), sharing.scale.tolist(), strict=True)
        ]
        self.gang = [Fraction(v) for v in sharing.gang.tolist()]
        self.capacity = [Fraction(v) for v in sharing.capacity.tolist()]
        self.jobs, self.types = range(len(self.gang)), range(len(self.capacity))
        self.pairs = [
            (j, i) for j in self.jobs for i in self.types if self.speed[j][i] and self.capacity[i]
        ]
        ceiling = [np.inf] * len(self.gang) if sharing.ceiling is None else sharing.ceiling.tolist()
        alone = [max((self.speed[j][i] for o, i in self.pairs if o == j), default=Fraction(0))
                 for j in self.jobs]  # fmt: skip
        self.best = [
            most if top == np.inf else min(most, Fraction(top))
            for most, top in zip(alone, ceiling, strict=True)
        ]

    def gain(self, job: int, sign: int = 1) -> Exact:
        return [sign * self.speed[j][i] if j == job else Fraction(0) for j, i in self.pairs]

    def rules(self) -> tuple[list[Exact], Exact]:
        time = [[Fraction(int(j == o)) for o, _ in self.pairs] for j in self.jobs]
        load = [[self.gang[j] * (i == k) for j, i in self.pairs] for k in self.types]
        return time + load, [Fraction(1)] * len(time) + self.capacity

    def levels(self) -> Exact:
        """Raise all alike; who cannot rise further while the others stay is settled."""
        level = {j: Fraction(0) for j in self.jobs if not self.best[j]}
        while len(level) < len(self.jobs):
            active = [j for j in self.jobs if j not in level]
            least = self._least(active, level)
            for job in [j for j in active if self._most(j, active, level, least) == least]:
                level[job] = least
        return [level[j] for j in self.jobs]

    def _least(self, active: list[int], level: dict[int, Fraction]) -> Fraction:
        matrix, side = self.rules()
        matrix = [[*row, Fraction(0)] for row in matrix]
        matrix += [[*self.gain(j, -1), Fraction(int(j in active))] for j in self.jobs]
        side += [Fraction(0) if j in active else -level[j] for j in self.jobs]
        matrix.append([Fraction(0)] * len(self.pairs) + [Fraction(1)])
        side.append(min(self.best[j] for j in active))
        return optimum([Fraction(0)] * len(self.pairs) + [Fraction(1)], matrix, side)

    def _most(
        self, job: int, active: list[int], level: dict[int, Fraction], least: Fraction
    ) -> Fraction:
        matrix, side = self.rules()
        matrix += [self.gain(j, -1) for j in self.jobs if j != job]
        side += [-least if j in active else -level[j] for j in self.jobs if j != job]
        return min(self.best[job], optimum(self.gain(job), matrix, side))


def drawn(seed: int) -> Sharing:
    """Few jobs, few numbers; every second time gangs that are large beside the capacities."""
    rng = np.random.default_rng([seed, 77])
    jobs, types = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    speed = rng.choice([0.0, 1.0, 2.0, 3.0, 4.0], (jobs, types), p=[0.2, 0.3, 0.2, 0.1, 0.2])
    if seed % 3 == 0:
        speed = speed[rng.integers(0, jobs, jobs)]
    gang = rng.choice([1.0, 2.0, 4.0], jobs)
    if seed % 2:
        gang = gang * rng.choice([1.0, 10.0, 100.0, 1000.0], jobs)
    unit = rng.choice([1.0, 4.0, 0.25], jobs) if seed % 5 < 2 else np.ones(jobs)
    ceiling = rng.choice([0.0, 0.25, 0.5, 1.0, 2.0, np.inf], jobs) if seed % 4 == 1 else None
    capacity = rng.choice([0.0, 1.0, 2.0, 3.0, 8.0], types, p=[0.1, 0.3, 0.2, 0.2, 0.2])
    return Sharing(
        speed * unit[:, None], gang, capacity, rng.choice([1.0, 0.5], jobs) / unit, ceiling
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_levels_are_those_in_fractions(seed: int) -> None:
    sharing = drawn(seed)
    found = water_filling(sharing, budget=Budget.of(60.0))
    exact = [float(level) for level in Filling(sharing).levels()]
    np.testing.assert_allclose(found.levels, exact, rtol=1e-8, atol=0.0)
    np.testing.assert_allclose(sharing.levels(found.x), exact, rtol=1e-8, atol=0.0)
    assert sharing.excess(found.x) <= 1e-9
    # types that run out at one level may be closed one after the other
    assert all(a <= b * (1.0 + 1e-12) for a, b in pairwise(found.bottlenecks))


def test_ten_users_on_parts_of_a_cluster() -> None:
    """Fractions of 0.05: what an LP may miss by must be small beside them, not beside 1."""
    speed = np.array(
        [[1, 3.15, 4.36], [1, 1.9, 2.64], [1, 4.41, 4.14], [1, 2.48, 1.81], [1, 1.1, 3.98]]
    )
    capacity = np.array([8.0, 4.0, 2.0]) / 1.4
    twice = Sharing(np.repeat(10.0 * speed, 2, axis=0), np.full(10, 10.0), capacity, np.ones(10))
    found = water_filling(twice, budget=Budget.of(60.0))
    assert np.ptp(found.levels) == 0.0
    once = water_filling(
        Sharing(5 * speed, np.full(5, 5.0), capacity / 2.0, np.ones(5)), budget=Budget.of(60.0)
    )
    np.testing.assert_allclose(found.levels[::2], once.levels, rtol=1e-11)


@pytest.mark.parametrize("count", [100, 10_000, 1_000_000])
def test_many_identical_jobs_on_a_few_gpus(count: int) -> None:
    """By hand: halves of speeds (1, 2) and (1, 1) on one GPU of each type.

    The second half has the slow type and a part ``b`` of the fast one: ``2 (1 - b) = 1 + b``.
    """
    half = count // 2
    sharing = Sharing(
        np.repeat([[1.0, 2.0], [1.0, 1.0]], half, axis=0), np.ones(count), np.ones(2),
        np.ones(count),
    )  # fmt: skip
    found = water_filling(sharing, budget=Budget.of(60.0))
    np.testing.assert_allclose(found.levels, 4.0 / 3.0 / half, rtol=1e-9)
    assert sharing.excess(found.x) <= 1e-9
