"""Auditors against loops over all pairs, and LPs of SciPy, on small random instances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from apportion.results.auditing.audited import AuditedUsers, utility, valued_bundles
from apportion.results.auditing.envy import envy
from apportion.results.auditing.pareto import pareto
from apportion.results.auditing.sharing_incentive import fair_utility, sharing_incentive

CLEAR = 1e-5
"""Margins closer to zero than this may fall on either side: both sides calculate in floats."""


def random_users(seed: int) -> AuditedUsers:
    rng = np.random.default_rng([seed, 56])
    n, k = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    speed = np.round(rng.uniform(1, 4, (n, k)), 2) * (rng.random((n, k)) < 0.85)
    usable = speed > 0
    least = np.where(usable, speed, np.inf).min(axis=1)[:, None]
    speed = np.where(usable, speed / least, 0.0)
    whole = bool(rng.random() < 0.5)
    most = rng.integers(1, 5, n).astype(float)
    if not whole and rng.random() < 0.6:
        most = np.full(n, np.inf)
    capacity = rng.integers(1, 7, k).astype(float)
    parts = rng.dirichlet(np.ones(n + int(rng.integers(0, 2))), k).T[:n]
    if rng.random() < 0.5:  # like a vertex: few users hold each type
        parts = parts * (rng.random((n, k)) < 0.5)
    return AuditedUsers(
        name=np.array([f"u{at}" for at in range(n)]),
        weight=rng.integers(1, 4, n).astype(float),
        speed=speed, most=most, gpus=parts * capacity, capacity=capacity,
        types=np.array([f"t{at}" for at in range(k)]), of="planned shares", whole_gang=whole,
        of_job=np.arange(n),
    )  # fmt: skip


def value_by_lp(speed: Any, most: float, bundle: Any) -> float:
    """Best use of a bundle: at most each type's GPUs, at most ``most`` altogether."""
    if np.isinf(most):
        return float(sum(a * b for a, b in zip(speed, bundle, strict=True)))
    found = linprog(
        -np.asarray(speed), A_ub=np.ones((1, len(speed))), b_ub=[most],
        bounds=[(0, amount) for amount in bundle], method="highs",
    )  # fmt: skip
    return -float(found.fun)


def most_gain(users: AuditedUsers, floor: list[float]) -> float:
    n, k = users.gpus.shape
    rows, sides = [], []
    for user in range(n):
        line = np.zeros((n, k))
        line[user] = -users.speed[user]
        rows.append(line.ravel())
        sides.append(-floor[user])
        if np.isfinite(users.most[user]):
            line = np.zeros((n, k))
            line[user] = 1.0
            rows.append(line.ravel())
            sides.append(users.most[user])
    for kind in range(k):
        line = np.zeros((n, k))
        line[:, kind] = 1.0
        rows.append(line.ravel())
        sides.append(users.capacity[kind])
    found = linprog(
        -users.speed.ravel(), A_ub=np.array(rows), b_ub=np.array(sides), bounds=(0, None),
        method="highs",
    )  # fmt: skip
    assert found.status == 0, found.message
    return -float(found.fun) - sum(floor)


def judge(seed: int) -> tuple[bool, bool, bool]:
    users = random_users(seed)
    n = len(users)
    value = [
        [
            value_by_lp(
                users.speed[one], users.most[one],
                users.gpus[other] * users.weight[one] / users.weight[other],
            )
            for other in range(n)
        ]
        for one in range(n)
    ]  # fmt: skip
    own = [value[at][at] for at in range(n)]
    assert users.utility == pytest.approx(own, abs=1e-9)

    margin = {(i, j): own[i] - value[i][j] for i in range(n) for j in range(n) if i != j}
    found = envy(users)
    assert found.margin == pytest.approx(min(margin.values()), abs=1e-9)
    pair = tuple(int(name[1:]) for name in found.worst)
    assert margin[pair] == pytest.approx(min(margin.values()), abs=1e-9)
    if abs(min(margin.values())) > CLEAR:
        assert found.holds == (min(margin.values()) > 0)

    fair = []
    for at in range(n):
        bundle = users.capacity * users.weight[at] / users.weight.sum()
        if users.whole_gang:
            time_on = bundle / users.most[at]
            time_on = time_on / max(1.0, time_on.sum())
            fair.append(float((users.speed[at] * time_on * users.most[at]).sum()))
        else:
            fair.append(value_by_lp(users.speed[at], users.most[at], bundle))
    assert fair_utility(users) == pytest.approx(fair, abs=1e-9)
    incentive = sharing_incentive(users)
    least = min(a - b for a, b in zip(own, fair, strict=True))
    assert incentive.margin == pytest.approx(least, abs=1e-9)
    if abs(least) > CLEAR:
        assert incentive.holds == (least > 0)

    gain = most_gain(users, own)
    best = pareto(users)
    if gain > CLEAR:
        assert best.holds is False
        assert best.margin == pytest.approx(-gain, abs=1e-6)
    elif gain < 1e-7:
        assert best.holds is True
    return bool(found.holds), bool(incentive.holds), bool(best.holds)


@pytest.mark.parametrize("seed", range(20))
def test_random_users(seed: int) -> None:
    judge(seed)


@pytest.mark.slow
def test_many_random_users() -> None:
    got = np.array([judge(seed) for seed in range(20, 420)])
    # both answers occur often enough for the comparison to mean something
    assert (got.sum(axis=0) >= 10).all(), got.sum(axis=0)
    assert ((~got).sum(axis=0) >= 10).all(), got.sum(axis=0)


def test_an_efficient_plan_is_recognised() -> None:
    """The most valuable division of each type is always efficient."""
    for seed in range(20):
        users = random_users(seed)
        users = AuditedUsers(**{**vars(users), "most": np.full(len(users), np.inf)})
        gpus = np.zeros_like(users.gpus)
        gpus[users.speed.argmax(axis=0), np.arange(users.capacity.size)] = users.capacity
        assert pareto(users.with_gpus(gpus)).holds is True


def test_blocks_of_users_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    users = random_users(3)
    whole = np.zeros((len(users), len(users)))
    for rows, value in valued_bundles(users):
        whole[rows] = value
    monkeypatch.setattr("apportion.results.auditing.audited._BLOCK", 1)
    parts = list(valued_bundles(users))
    assert sorted(int(rows[0]) for rows, _ in parts) == list(range(len(users)))
    for rows, value in parts:
        assert value == pytest.approx(whole[rows])
    ratio = users.weight[:, None, None] / users.weight[None, :, None]
    each = utility(users.speed[:, None], users.most[:, None], users.gpus[None] * ratio)
    assert whole == pytest.approx(each)
