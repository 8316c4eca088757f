"""What holds of OEF's shares and what does not, on random users with arbitrary relative speeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from apportion.formulations.training.oef.cooperative import cooperative
from apportion.formulations.training.oef.noncooperative import noncooperative
from apportion.solver import Budget

EPS = 1e-6
NO_LIMIT = Budget.of(None)
SEEDS = [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 320))]


def draw(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two to six users, two to four types: speeds of the first type are 1, GPUs are positive."""
    rng = np.random.default_rng([5, seed])
    n, k = int(rng.integers(2, 7)), int(rng.integers(2, 5))
    w = np.c_[np.ones(n), rng.uniform(1.0, 5.0, (n, k - 1))].round(2)
    pi = rng.choice([1.0, 1.0, 2.0, 3.0], n) if seed % 2 else np.ones(n)
    return w, pi, rng.integers(1, 9, k).astype(float)


def nc(w: np.ndarray, pi: np.ndarray, m: np.ndarray) -> Any:
    found = noncooperative(w, pi, np.full(pi.size, np.inf), m, budget=NO_LIMIT)
    assert found.proved
    return found


def co(w: np.ndarray, pi: np.ndarray, m: np.ndarray) -> Any:
    found = cooperative(w, pi, np.full(pi.size, np.inf), m, budget=NO_LIMIT, gap=0.0)
    assert found.proved, found.note
    return found


def utility(w: np.ndarray, found: Any) -> np.ndarray:
    return (w * found.gpus).sum(axis=1)


def most_beyond(w: np.ndarray, m: np.ndarray, least: np.ndarray) -> float:
    """Largest sum of utilities among all allocations in which nobody has less than ``least``."""
    n, k = w.shape
    load = np.tile(np.eye(k), n)
    own = np.zeros((n, n * k))
    for user in range(n):
        own[user, user * k : user * k + k] = w[user]
    answer = linprog(
        -w.ravel(), A_ub=np.vstack([load, -own]), b_ub=np.r_[m, -least + 1e-9 * least.max()]
    )
    assert answer.status == 0
    return float(-answer.fun)


@pytest.mark.parametrize("seed", SEEDS)
def test_noncooperative_holds(seed: int) -> None:
    w, pi, m = draw(seed)
    found = nc(w, pi, m)
    u = utility(w, found)
    # equality, efficiency among all allocations, no GPU left over
    assert (u / pi).max() - (u / pi).min() < EPS
    assert most_beyond(w, m, u) <= u.sum() * (1 + EPS)
    assert found.gpus.sum(axis=0) == pytest.approx(m)
    assert u.sum() <= (w.max(axis=0) * m).sum() * (1 + EPS)
    rng = np.random.default_rng(seed)
    # monotone in GPUs, antitone in users, homogeneous
    kind = int(rng.integers(m.size))
    assert nc(w, pi, m + np.eye(m.size)[kind]).value >= found.value * (1 - EPS)
    joined = np.vstack([w, w.mean(axis=0)]), np.append(pi, 1.0)
    assert nc(*joined, m).value <= found.value * (1 + EPS)
    assert nc(w, pi, 3.0 * m).value == pytest.approx(3.0 * found.value)
    twice = nc(np.vstack([w, w]), np.r_[pi, pi], 2.0 * m)
    assert twice.value == pytest.approx(found.value)
    order = rng.permutation(pi.size)
    assert nc(w[order], pi[order], m).value == pytest.approx(found.value)


@pytest.mark.quick
def test_twice_the_users_and_twice_the_gpus() -> None:
    """A case in which water-filling once could not vouch for its last step."""
    w, pi, m = draw(160)
    twice = nc(np.vstack([w, w]), np.r_[pi, pi], 2.0 * m)
    assert twice.value == pytest.approx(nc(w, pi, m).value)
    u = utility(np.vstack([w, w]), twice)
    assert u.max() - u.min() < EPS


@pytest.mark.parametrize("seed", SEEDS)
def test_over_reporting_never_pays_without_cooperation(seed: int) -> None:
    w, pi, m = draw(seed)
    before = utility(w, nc(w, pi, m))
    rng = np.random.default_rng([6, seed])
    liar = int(rng.integers(pi.size))
    said = w.copy()
    said[liar, 1:] *= rng.uniform(1.0, 1.5, m.size - 1) ** rng.integers(0, 2, m.size - 1)
    after = utility(w, nc(said, pi, m))[liar]
    assert after <= before[liar] * (1 + EPS)


@pytest.mark.parametrize("seed", SEEDS)
def test_cooperative_holds(seed: int) -> None:
    w, pi, m = draw(seed)
    found = co(w, pi, m)
    u = utility(w, found)
    y = found.gpus / pi[:, None]
    size = EPS * u.mean()
    assert (w @ y.T <= (u / pi)[:, None] + size).all()
    assert (u >= pi / pi.sum() * (w @ m) - size).all()
    assert found.gpus.sum(axis=0) == pytest.approx(m)
    assert u.sum() >= nc(w, pi, m).gpus.ravel() @ w.ravel() - size
    assert u.sum() <= (w.max(axis=0) * m).sum() + size
    if pi.size == 2:  # there envy-freeness is the sharing incentive
        assert most_beyond(w, m, u) <= u.sum() * (1 + EPS)
    rng = np.random.default_rng(seed)
    kind = int(rng.integers(m.size))
    assert co(w, pi, m + np.eye(m.size)[kind]).value >= found.value * (1 - EPS)
    assert co(w, pi, 3.0 * m).value == pytest.approx(3.0 * found.value)
    order = rng.permutation(pi.size)
    assert co(w[order], pi[order], m).value == pytest.approx(found.value)
    # a user of weight 2 is two of weight 1
    split = co(np.vstack([w, w[:1]]), np.r_[pi[0] / 2, pi[1:], pi[0] / 2], m)
    assert split.value == pytest.approx(found.value)
    ends = split.gpus[[0, -1]] @ w[0]
    assert ends[0] == pytest.approx(ends[1])


@pytest.mark.quick
def test_noncooperative_shares_are_envied_and_may_be_below_an_equal_part() -> None:
    w, pi, m = np.array([[1.0, 2.0], [1.0, 3.0]]), np.ones(2), np.ones(2)
    found = nc(w, pi, m)
    assert w[1] @ found.gpus[0] == pytest.approx(2.2)  # user 2 has 1.8
    assert utility(w, found)[1] < (w[1] @ m) / 2


@pytest.mark.quick
def test_under_reporting_often_pays_without_cooperation() -> None:
    gains = 0
    for seed in range(40):
        w, pi, m = draw(seed)
        said = w.copy()
        said[0, 1:] = 1.0 + 0.5 * (said[0, 1:] - 1.0)
        before = utility(w, nc(w, pi, m))[0]
        gains += utility(w, nc(said, pi, m))[0] > before * (1 + EPS)
    assert gains >= 20


@pytest.mark.quick
def test_over_reporting_can_pay_with_cooperation() -> None:
    gains = 0
    for seed in range(40):
        w, pi, m = draw(seed)
        said = w.copy()
        said[0, -1] *= 1.2
        before = utility(w, co(w, pi, m))[0]
        gains += utility(w, co(said, pi, m))[0] > before * (1 + EPS)
    assert gains >= 3


@pytest.mark.quick
def test_cooperative_optima_are_often_not_pareto_efficient() -> None:
    """With speed-ups in one order on three types a fair number of optima are dominated."""
    dominated = 0
    for seed in range(40):
        rng = np.random.default_rng([7, seed])
        n = int(rng.integers(3, 7))
        w = np.cumprod(np.c_[np.ones(n), rng.uniform(1.0, 2.0, (n, 2))], axis=1)
        m = rng.integers(1, 6, 3).astype(float)
        u = utility(w, co(w, np.ones(n), m))
        dominated += most_beyond(w, m, u) > u.sum() * (1 + 1e-4)
    assert 4 <= dominated < 40


@pytest.mark.quick
def test_with_speeds_of_zero_equality_may_give_more_in_all() -> None:
    """With positive speeds and without caps the cooperative sum is the larger one, see above."""
    w = np.array([[0.0, 1.942], [0.0, 1.691], [1.0, 1.476], [0.0, 1.602]])
    pi, m = np.array([3.0, 1.0, 2.0, 1.0]), np.array([6.0, 3.0])
    assert utility(w, nc(w, pi, m)).sum() > co(w, pi, m).value + 0.2


@pytest.mark.quick
def test_caps_let_others_have_more_and_nobody_envies_what_it_could_not_use() -> None:
    """One GPU is all that user 1 can use: with plain rows the nine others could not be given out."""
    w, pi, m = np.ones((2, 1)), np.ones(2), np.array([10.0])
    found = cooperative(w, pi, np.array([1.0, np.inf]), m, budget=NO_LIMIT, gap=0.0)
    assert found.gpus.ravel() == pytest.approx([1.0, 9.0])
    # 15 GPUs for caps 6, 1 and none: the first is full with 6, the last has the rest
    three = cooperative(
        np.ones((3, 1)), np.ones(3), np.array([6.0, 1.0, np.inf]), np.array([15.0]),
        budget=NO_LIMIT, gap=0.0,
    )  # fmt: skip
    assert three.gpus.ravel() == pytest.approx([6.0, 1.0, 8.0])
    level = noncooperative(w, pi, np.array([1.0, np.inf]), m, budget=NO_LIMIT)
    assert level.gpus.ravel() == pytest.approx([1.0, 9.0])
    assert level.value == pytest.approx(1.0)


@pytest.mark.parametrize("seconds", [1e-6, 0.02, 0.1])
@pytest.mark.parametrize("capped", [False, True])
def test_a_time_limit_never_breaks_fairness(seconds: float, capped: bool) -> None:
    rng = np.random.default_rng(3)
    n, k = 250, 4
    w = np.cumprod(np.c_[np.ones(n), rng.uniform(1.05, 1.6, (n, k - 1))], axis=1)
    m = np.array([200.0, 150.0, 220.0, 90.0])
    cap = np.where(rng.random(n) < 0.5, 2.0, np.inf) if capped else np.full(n, np.inf)
    found = cooperative(w, np.ones(n), cap, m, budget=Budget.of(seconds), gap=0.0)
    own = utility(w, found)
    assert found.bound >= found.value
    assert found.proved or found.time_limited
    assert (found.gpus.sum(axis=0) <= m * (1 + 1e-9)).all()
    assert (found.gpus.sum(axis=1) <= cap * (1 + 1e-7)).all()
    for other in range(n):
        worth = part_worth(w, found.gpus[other], cap)
        assert (worth <= own + 1e-7 * own.mean()).all()


def part_worth(w: np.ndarray, bundle: np.ndarray, cap: np.ndarray) -> np.ndarray:
    """Worth to each user of the fastest GPUs of a bundle up to its cap; speeds rise by type."""
    taken, out = np.zeros(cap.size), np.zeros(cap.size)
    for kind in reversed(range(bundle.size)):
        part = np.minimum(bundle[kind], cap - taken)
        out += w[:, kind] * part
        taken += part
    return out
