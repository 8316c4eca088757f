"""Solve a multiple choice problem: relaxation, rounding, then a core that proves the optimum."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np

from apportion.solver.arrays import IntArray
from apportion.solver.budget import Budget
from apportion.solver.choice import (
    CORE_ROUNDS,
    COST_EQUALITY,
    WIDE_CORE,
    Choice,
    ChoiceSolution,
    ChoiceStage,
    _Prices,
    _restrict,
    round_down_and_fill,
    solve_relaxation,
)
