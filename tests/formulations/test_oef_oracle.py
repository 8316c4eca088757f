"""OEF's shares against dense linear programs with every row, written from the formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from apportion import solve
from apportion.formulations.training import OEFNoncooperative
from apportion.formulations.training.oef.cooperative import cooperative, cooperative_model, merged
from apportion.formulations.training.oef.menus import repaired
from apportion.formulations.training.oef.noncooperative import noncooperative, noncooperative_model
from apportion.instances.training import Cluster, Jobs, Tenants, TrainingRound
from apportion.solver import Budget, Solver, UncertifiedError

EPS = 1e-6
NO_LIMIT = Budget.of(None)
SEEDS = [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 320))]


@dataclass(frozen=True)
class Case:
    w: np.ndarray
    pi: np.ndarray
    cap: np.ndarray
    m: np.ndarray

    @property
    def problem(self) -> tuple[np.ndarray, ...]:
        return self.w, self.pi, self.cap, self.m


def draw(seed: int, *, caps: bool = True) -> Case:
    """Draw up to seven users and four types, with ties, equal users, weights, zeros and caps."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    if rng.random() < 0.5:
        w = rng.choice([1.0, 1.5, 2.0, 3.0], (n, k))
    else:
        w = np.round(np.cumprod(np.c_[np.ones(n), rng.uniform(1.0, 2.0, (n, k - 1))], axis=1), 3)
    if rng.random() < 0.3:
        w[rng.random((n, k)) < 0.3] = 0.0
        w[:, 0] = np.where(w.any(axis=1), w[:, 0], 1.0)
    if rng.random() < 0.3 and n > 1:
        w[1 : 1 + n // 2] = w[0]
    pi = rng.choice([0.5, 1.0, 1.0, 2.0, 3.0], n) if rng.random() < 0.6 else np.ones(n)
    m = rng.integers(0, 9, k).astype(float)
    m[int(rng.integers(k))] += 1.0
    cap = np.full(n, np.inf)
    if caps and rng.random() < 0.6:
        some = rng.random(n) < 0.6
        cap[some] = rng.integers(1, 9, int(some.sum()))
    return Case(w, pi, cap, m)


def best(objective: np.ndarray, rows: list[np.ndarray], sides: list[float], bounds: Any) -> Any:
    """Maximise; rows are ``row @ x <= side``."""
    answer = linprog(-objective, A_ub=np.array(rows), b_ub=np.array(sides), bounds=bounds)
    assert answer.status == 0, answer.message
    return answer


def basic_rows(case: Case, extra: int = 0) -> tuple[list[np.ndarray], list[float]]:
    """Capacity and demand rows over x[l, j], and ``extra`` columns behind."""
    n, k = case.w.shape
    rows, sides = [], []
    for j in range(k):
        row = np.zeros(n * k + extra)
        row[j : n * k : k] = 1.0
        rows.append(row)
        sides.append(float(case.m[j]))
    for user in range(n):
        if np.isfinite(case.cap[user]):
            row = np.zeros(n * k + extra)
            row[user * k : user * k + k] = 1.0
            rows.append(row)
            sides.append(float(case.cap[user]))
    return rows, sides


def utility_row(case: Case, user: int, extra: int = 0) -> np.ndarray:
    n, k = case.w.shape
    row = np.zeros(n * k + extra)
    row[user * k : user * k + k] = case.w[user] / case.pi[user]
    return row


def filled_levels(case: Case) -> np.ndarray:
    """Levels per weight: raise all, freeze who cannot rise, solve again."""
    n, k = case.w.shape
    frozen: dict[int, float] = {}
    while len(frozen) < n:
        rows, sides = basic_rows(case, 1)
        for user in range(n):
            row = -utility_row(case, user, 1)
            row[-1] = 0.0 if user in frozen else 1.0
            rows.append(row)
            sides.append(-frozen[user] + 1e-9 if user in frozen else 0.0)
        goal = np.zeros(n * k + 1)
        goal[-1] = 1.0
        level = -best(goal, rows, sides, (0, None)).fun
        before = len(frozen)
        for user in [one for one in range(n) if one not in frozen]:
            held = [*sides]
            for at, other in enumerate(range(n)):
                if other not in frozen:
                    held[len(sides) - n + at] = -level + 1e-9
            loose = [row.copy() for row in rows]
            for row in loose:
                row[-1] = 0.0
            if -best(utility_row(case, user, 1), loose, held, (0, None)).fun <= level + 1e-6:
                frozen[user] = level
        assert len(frozen) > before
    return np.array([frozen[user] for user in range(n)])


def usable_worth(w: np.ndarray, bundle: np.ndarray, cap: float) -> tuple[float, np.ndarray, float]:
    """Worth of the fastest GPUs of a bundle up to a cap, those GPUs, and the speed of the last."""
    cap = min(cap, 2.0 * float(bundle.sum()) + 1.0)
    left, worth, part, last = cap, 0.0, np.zeros(w.size), 0.0
    for j in sorted(range(w.size), key=lambda j: (-w[j], j)):
        if w[j] > 0 and left > cap * 1e-12:
            part[j] = min(bundle[j], left)
            worth += w[j] * part[j]
            left -= part[j]
            last = w[j]
    return worth, part, last if left <= cap * 1e-12 else 0.0


def offer_of(case: Case) -> np.ndarray:
    """The common offer per weight: everybody takes what it can use, what is left is offered again."""
    n, k = case.w.shape
    offer = case.m / case.pi.sum()
    d = case.cap / case.pi
    for _ in range(1000):
        part = np.array([usable_worth(case.w[u], offer, d[u])[1] for u in range(n)])
        step = np.zeros(k)
        for j in range(k):
            left = case.m[j] - (case.pi * part[:, j]).sum()
            takers = sum(
                case.pi[u]
                for u in range(n)
                if case.w[u, j] > 0
                and (
                    part[u].sum() < d[u] * (1 - 1e-12)
                    or any(
                        part[u, i] > 0 and (-case.w[u, i], i) > (-case.w[u, j], j) for i in range(k)
                    )
                )
            )
            if left > 1e-9 * case.m[j] and takers:
                step[j] = left / takers
        if not step.any():
            break
        offer = offer + step
    return offer


def envy_optimum(case: Case) -> float:
    """Largest sum with a row for each ordered pair, capped users judging by a price of their cap."""
    n, k = case.w.shape
    offer, d = offer_of(case), case.cap / case.pi
    rows, sides = basic_rows(case)
    for user in range(n):
        worth, _, price = usable_worth(case.w[user], offer, d[user])
        rows.append(-utility_row(case, user))
        sides.append(-worth + 1e-9)
        for other in range(n):
            if other == user:
                continue
            row = -utility_row(case, user)
            judged = np.maximum(case.w[user] - price, 0.0) / case.pi[other]
            row[other * k : other * k + k] += judged
            rows.append(row)
            sides.append(-(price * d[user] if price else 0.0) + 1e-9)
    return float(-best(case.w.ravel(), rows, sides, (0, None)).fun)


def keeps_rules(case: Case, x: np.ndarray) -> None:
    assert (x >= 0).all()
    assert (x.sum(axis=0) <= case.m * (1 + 1e-7) + 1e-9).all()
    assert (x.sum(axis=1) <= case.cap * (1 + 1e-7)).all()
    assert not x[case.w == 0].any()


@pytest.mark.parametrize("seed", SEEDS)
def test_noncooperative_levels(seed: int) -> None:
    case = draw(seed)
    found = noncooperative(*case.problem, budget=NO_LIMIT)
    assert found.proved
    keeps_rules(case, found.gpus)
    levels = (case.w * found.gpus).sum(axis=1) / case.pi
    assert levels == pytest.approx(filled_levels(case), rel=EPS, abs=EPS)
    assert found.value == pytest.approx(levels.min())
    assert found.bound == pytest.approx(found.value, rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_levels_where_water_filling_cannot_vouch(seed: int, monkeypatch: Any) -> None:
    """The plain model then raises the least level, and says that it did no more."""

    def refuse(*given: Any, **named: Any) -> Any:
        raise UncertifiedError("on purpose")

    case = draw(seed)
    least = noncooperative(*case.problem, budget=NO_LIMIT).value
    monkeypatch.setattr(
        "apportion.formulations.training.oef.noncooperative.water_filling", refuse
    )  # fmt: skip
    found = noncooperative(*case.problem, budget=NO_LIMIT)
    assert found.proved
    keeps_rules(case, found.gpus)
    assert found.value == pytest.approx(least, rel=EPS, abs=1e-9)
    assert "on purpose" in found.note


@pytest.mark.parametrize("seed", SEEDS)
def test_cooperative_optimum_and_envy(seed: int) -> None:
    case = draw(seed)
    found = cooperative(*case.problem, budget=NO_LIMIT, gap=0.0)
    assert found.proved, found.note
    keeps_rules(case, found.gpus)
    own = (case.w * found.gpus).sum(axis=1)
    assert own.sum() == pytest.approx(found.value)
    assert found.value == pytest.approx(envy_optimum(case), rel=EPS)
    y, d = found.gpus / case.pi[:, None], case.cap / case.pi
    for user in range(case.pi.size):
        mine = own[user] / case.pi[user]
        slack = EPS * max(1.0, mine)
        for other in range(case.pi.size):
            if other != user:
                assert usable_worth(case.w[user], y[other], d[user])[0] <= mine + slack
        fair = usable_worth(case.w[user], case.m / case.pi.sum(), d[user])[0]
        assert mine >= fair - slack


@pytest.mark.parametrize("seed", SEEDS)
def test_fair_shares_keep_every_rule(seed: int) -> None:
    """Equally fast types and weights far apart included: they are the answer when time is short."""
    case = draw(seed)
    rng = np.random.default_rng([12, seed])
    far = Case(case.w, case.pi * 10.0 ** rng.integers(-6, 7, case.pi.size), case.cap, case.m)
    for one in (case, far):
        whole = merged(*one.problem)
        keeps_rules(one, whole.gpus(whole.envy.fair))
        assert whole.envy.worst(whole.envy.fair) <= 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_any_bundles_can_be_made_fair(seed: int) -> None:
    case = draw(seed, caps=False)
    envy = merged(*case.problem).envy
    users = np.arange(envy.weight.size)
    bundle = np.random.default_rng(seed).uniform(0.0, 5.0, envy.speed.shape) * (envy.capacity > 0)
    fair = repaired(envy, bundle, envy.excess(bundle, users))
    assert fair is not None
    own = envy.own(fair)
    envied = np.where(np.eye(users.size, dtype=bool), -np.inf, envy.excess(fair, users))
    assert envied.max() <= 1e-9 * max(1.0, own.max())
    assert envy.overload(fair).max() <= 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_without_caps_the_rows_are_the_plain_ones(seed: int) -> None:
    case = draw(seed, caps=False)
    rules = merged(*case.problem).envy
    assert not rules.base.any()
    assert np.array_equal(rules.judged, rules.speed)


@pytest.mark.parametrize("seed", range(12))
def test_written_models_say_the_same(seed: int) -> None:
    case = draw(seed)
    users = [f"u{i}" for i in range(case.pi.size)]
    types = [f"t{i}" for i in range(case.m.size)]
    level = Solver(gap=0.0).solve(
        noncooperative_model(*case.problem, users, types), budget=NO_LIMIT
    )
    found = noncooperative(*case.problem, budget=NO_LIMIT)
    assert level.objectives[0] == pytest.approx(found.value, rel=EPS, abs=1e-9)
    whole = merged(*case.problem)
    names = [users[first] for first in whole.classes.first]
    model = cooperative_model(whole.envy, names, types)
    answer = Solver(gap=0.0).solve(model, budget=NO_LIMIT)
    assert answer.point is not None
    x = whole.gpus(answer.point.reshape(whole.envy.speed.shape))
    value = cooperative(*case.problem, budget=NO_LIMIT, gap=0.0).value
    assert float((case.w * x).sum()) == pytest.approx(value, rel=EPS)


def test_equal_users_do_not_stand_against_themselves() -> None:
    """A prototype lost a batch of rows to a user that envied itself, and gave 4 instead of 15/4."""
    one = cooperative(
        np.array([[3.0, 1.0], [2.0, 1.0]]), np.ones(2), np.full(2, np.inf), np.ones(2),
        budget=NO_LIMIT, gap=0.0,
    )  # fmt: skip
    assert one.value == pytest.approx(3.75)
    w = np.repeat([[1.0, 2.0], [1.0, 3.0]], 30, axis=0)
    many = cooperative(
        w, np.ones(60), np.full(60, np.inf), np.full(2, 30.0), budget=NO_LIMIT, gap=0.0
    )
    assert many.value == pytest.approx(30 * 3.75)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kinds", [2, 3])
def test_from_a_part_of_many_users(kinds: int, weighted: bool) -> None:
    """Enough users that the search starts from a smaller problem and a menu."""
    rng = np.random.default_rng(kinds)
    n = 130
    w = np.cumprod(np.c_[np.ones(n), rng.uniform(1.05, 1.6, (n, kinds - 1))], axis=1)
    pi = rng.choice([1.0, 2.0, 5.0], n) if weighted else np.ones(n)
    m = np.round(n * rng.uniform(0.5, 1.5, kinds))
    found = cooperative(w, pi, np.full(n, np.inf), m, budget=NO_LIMIT, gap=0.0)
    assert found.proved, found.note
    assert found.rounds > 1
    assert found.rows < n * (n - 1) / 4
    y = found.gpus / pi[:, None]
    own = (w * y).sum(axis=1)
    assert (w @ y.T - own[:, None]).max() <= 1e-7 * own.mean()
    assert (found.gpus.sum(axis=0) <= m * (1 + 1e-7)).all()
    assert found.bound - found.value <= 1e-7 * found.bound
    loose = linprog_of_pairs(w, pi, m)
    assert found.value == pytest.approx(loose, rel=1e-6)


def linprog_of_pairs(w: np.ndarray, pi: np.ndarray, m: np.ndarray) -> float:
    """Dense optimum over bundles per weight, all pairs, by the interior-point code."""
    from scipy.sparse import csr_matrix, vstack

    n, k = w.shape
    one, other = np.nonzero(~np.eye(n, dtype=bool))
    row = np.repeat(np.arange(one.size), k)
    mine = csr_matrix(
        (-w[one].ravel(), (row, (one[:, None] * k + np.arange(k)).ravel())), (one.size, n * k)
    )
    theirs = csr_matrix(
        (w[one].ravel(), (row, (other[:, None] * k + np.arange(k)).ravel())), (one.size, n * k)
    )
    load = csr_matrix((np.repeat(pi, k), (np.tile(np.arange(k), n), np.arange(n * k))), (k, n * k))
    answer = linprog(
        -(pi[:, None] * w).ravel(), A_ub=vstack([mine + theirs, load]),
        b_ub=np.r_[np.zeros(one.size), m], method="highs-ipm",
    )  # fmt: skip
    assert answer.status == 0
    return float(-answer.fun)


@pytest.mark.parametrize("form", ["cooperative", "noncooperative"])
def test_nobody_and_nothing(form: str) -> None:
    run: Any = {
        "cooperative": lambda *p: cooperative(*p, budget=NO_LIMIT, gap=0.0),
        "noncooperative": lambda *p: noncooperative(*p, budget=NO_LIMIT),
    }[form]
    none = run(np.zeros((0, 2)), np.zeros(0), np.zeros(0), np.ones(2))
    assert none.proved
    assert none.value == 0.0
    no_gpus = run(np.ones((2, 1)), np.ones(2), np.full(2, np.inf), np.zeros(1))
    assert no_gpus.proved
    assert not no_gpus.gpus.any()
    alone = run(np.array([[1.0, 2.0]]), np.array([3.0]), np.array([np.inf]), np.array([2.0, 3.0]))
    assert alone.gpus.tolist() == [[pytest.approx(2.0), pytest.approx(3.0)]]
    one_type = run(np.ones((3, 1)), np.array([1.0, 2.0, 1.0]), np.full(3, np.inf), np.array([8.0]))
    assert one_type.gpus.ravel() == pytest.approx([2.0, 4.0, 2.0])


def test_weights_too_far_apart_give_no_less_than_the_equal_split() -> None:
    weight = np.array([1.3703669e-05, 1.911041041687, 0.132526418336, 0.001510644328, 30527.3])
    speed = np.array([2.0, 2.0, 3.0, 3.0, 3.0])
    jobs = Jobs.of(
        id=list("abcde"), gang=[1] * 5, work=[1e3] * 5, throughput_per_s=speed[:, None],
        tenant=list(range(5)),
    )  # fmt: skip
    tenants = Tenants(np.array(list("abcde")), weight, np.full(5, np.inf))
    asked = TrainingRound(cluster=Cluster.uniform({"v": 1}), jobs=jobs, tenants=tenants)
    answer = solve(asked, OEFNoncooperative())
    # on one type speeds are in parts of themselves: everybody's level is one GPU over all weights
    assert answer.objective == pytest.approx(1.0 / weight.sum(), rel=1e-6)
    assert any("equal split stands in" in note for note in answer.notes)
