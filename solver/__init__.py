"""The optimisation model, the back ends, and answers whose status is true.

A :class:`ModelBuilder` collects a model by array operations; a :class:`Solver` solves it within a
:class:`Budget` on one of several back ends; the :class:`Solution` carries only what was checked.
"""

import logging

from apportion.solver.backends.held_lp import UncertifiedError
from apportion.solver.backends.registry import BACKENDS, available_backends
from apportion.solver.budget import Budget
from apportion.solver.drivers.aggregate import Classes, identical_rows
from apportion.solver.drivers.choice import Choice, ChoiceSolution, ChoiceStage
from apportion.solver.drivers.choice_search import solve_choice
from apportion.solver.drivers.neighbourhood_search import fix_and_optimise
from apportion.solver.drivers.neighbourhood_solution import (
    NeighbourhoodSolution,
    NeighbourhoodStage,
)
from apportion.solver.drivers.neighbourhoods import (
    Groups,
    InTurn,
    Neighbourhood,
    Neighbourhoods,
    Rins,
    SearchView,
)
from apportion.solver.drivers.parametric import Level, best_level, with_violation
from apportion.solver.drivers.row_generation import Generated, Rows, generate_rows
from apportion.solver.drivers.session import RebuildReason, Session, SessionStep
from apportion.solver.drivers.sharing import MaxMin, Sharing, solve_max_min
from apportion.solver.drivers.tangents import Concave, TangentSolution, maximise_concave
from apportion.solver.drivers.waterfill import WaterFilling, water_filling
from apportion.solver.errors import ModelError, NoSolutionError, UnsupportedModelError
from apportion.solver.models.blocks import Axis, Block
from apportion.solver.models.builder import ModelBuilder
from apportion.solver.models.model import Model, Objective
from apportion.solver.models.mps import write_mps
from apportion.solver.models.pulp_bridge import from_pulp, pulp_variables, to_pulp
from apportion.solver.models.read_mps import read_mps
from apportion.solver.models.rules import Rule
from apportion.solver.proof.certificate import Certificate, Verification, certify, verify
from apportion.solver.proof.conflict import Conflict, find_conflict
from apportion.solver.proof.elastic import infeasibility_duals
from apportion.solver.proof.proof import gap_of, relative_gap
from apportion.solver.proof.recheck import check_point
from apportion.solver.proof.repair import Change, Repair, cheapest_repair
from apportion.solver.proof.row_prices import Prices, prices
from apportion.solver.skipped import noting_skipped
from apportion.solver.solution import Solution
from apportion.solver.solve import Solver
from apportion.solver.status import Status

logging.getLogger("apportion.solver").addHandler(logging.NullHandler())

__all__ = [
    "BACKENDS",
    "Axis",
    "Block",
    "Budget",
    "Certificate",
    "Change",
    "Choice",
    "ChoiceSolution",
    "ChoiceStage",
    "Classes",
    "Concave",
    "Conflict",
    "Generated",
    "Groups",
    "InTurn",
    "Level",
    "MaxMin",
    "Model",
    "ModelBuilder",
    "ModelError",
    "Neighbourhood",
    "NeighbourhoodSolution",
    "NeighbourhoodStage",
    "Neighbourhoods",
    "NoSolutionError",
    "Objective",
    "Prices",
    "RebuildReason",
    "Repair",
    "Rins",
    "Rows",
    "Rule",
    "SearchView",
    "Session",
    "SessionStep",
    "Sharing",
    "Solution",
    "Solver",
    "Status",
    "TangentSolution",
    "UncertifiedError",
    "UnsupportedModelError",
    "Verification",
    "WaterFilling",
    "available_backends",
    "best_level",
    "certify",
    "cheapest_repair",
    "check_point",
    "find_conflict",
    "fix_and_optimise",
    "from_pulp",
    "gap_of",
    "generate_rows",
    "identical_rows",
    "infeasibility_duals",
    "maximise_concave",
    "noting_skipped",
    "prices",
    "pulp_variables",
    "read_mps",
    "relative_gap",
    "solve_choice",
    "solve_max_min",
    "to_pulp",
    "verify",
    "water_filling",
    "with_violation",
    "write_mps",
]
