"""FFT's stages say what they reached, what was proved by then, and which back end ran."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from apportion.formulations.training import FFT
from apportion.formulations.training.fft.ran import NotingSolver
from apportion.instances import Stage
from apportion.solver import BACKENDS, Budget, Model, ModelBuilder, Solution, Solver, Status
from apportion.testing import random_round

pytestmark = pytest.mark.quick

SOLVED = {"lp", "core", "milp"}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("method", ["auto", "milp"])
def test_a_stage_with_value_and_bound_has_their_gap(seed, method):
    round_ = random_round(np.random.default_rng([3, seed]), jobs=30, types=3, running=False)
    program = FFT(method=method).compile(round_, None, Budget.of(None))
    decision = program.solve(Solver(gap=0.0), Budget.of(None))
    assert decision.stages
    for stage in decision.stages:
        if stage.objective is None or stage.bound is None:
            assert stage.gap is None
            continue
        size = max(abs(stage.objective), abs(stage.bound))
        assert stage.gap == pytest.approx(abs(stage.objective - stage.bound) / (size or 1.0))
    proved = [stage for stage in decision.stages if stage.bound is not None]
    assert any(stage.gap is not None for stage in proved)


@pytest.mark.parametrize("seed", range(4))
def test_a_stage_names_the_back_end_that_ran(seed):
    round_ = random_round(np.random.default_rng([3, seed]), jobs=30, types=3, running=False)
    for method in ("auto", "milp"):
        program = FFT(method=method).compile(round_, None, Budget.of(None))
        decision = program.solve(Solver(gap=0.0, backend="highs"), Budget.of(None))
        ran = {stage.name: stage.backend for stage in decision.stages}
        assert SOLVED & set(ran)
        for name, backend in ran.items():
            assert backend == ("highs" if name in SOLVED | {"most_gpus"} else None)


class Limping(Solver):
    """A solver that passed somebody over."""

    def solve(self, model: Model, **how: object) -> Solution:
        found = Solver.solve(self, model, **how)  # pyright: ignore[reportArgumentType]
        return replace(found, skipped=("scip: is not installed",))


@pytest.mark.parametrize("method", ["auto", "milp"])
def test_who_was_passed_over_stands_in_the_note(method):
    round_ = random_round(np.random.default_rng([3, 1]), jobs=30, types=3, running=False)
    program = FFT(method=method).compile(round_, None, Budget.of(None))
    decision = program.solve(Limping(gap=0.0), Budget.of(None))
    for stage in decision.stages:
        told = "passed over: scip: is not installed" in stage.note
        assert told == (stage.name in SOLVED)


def test_each_core_is_told_by_its_own_solve():
    builders = [ModelBuilder("choice-core"), ModelBuilder("choice-core")]
    noting = NotingSolver.of(Solver(backend="highs"))
    for columns, builder in zip((2, 3), builders, strict=True):
        x = builder.columns("x", columns, upper=1.0)
        builder.objective("sum", column=x, value=1.0)
        assert noting.solve(builder.build(), budget=Budget.of(None)).status is Status.OPTIMAL
    assert noting.told(Stage("core", note="3 options of 9 groups")).backend == "highs"
    assert noting.told(Stage("core", note="0 options of 9 groups")).backend is None
    assert noting.told(Stage("repair")).backend is None
    assert math.isclose(replace(noting, gap=0.5).gap, 0.5)
    assert replace(noting, gap=0.5).ran is noting.ran
    assert "highs" in BACKENDS
