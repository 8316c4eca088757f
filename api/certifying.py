"""What an answer claims, with the prices that prove it: checked by arithmetic, no solver needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from apportion.instances import Decision
from apportion.instances.columns import Floats, Ints
from apportion.instances.policy import Column
from apportion.instances.training import Allocation, TrainingRound
from apportion.questions.model_questions import Valued
from apportion.solver import Choice, Model, Solution, Status, certify, gap_of
from apportion.solver.drivers.choice_prices import priced

SCHEMA = "apportion/round-certificate/1"

MODEL_SCHEMA = "apportion/model-certificate/1"

POLICY_SCHEMA = "apportion/policy-certificate/1"

ROUNDED = 1e-6
"""Relative distance of an answer from its model's optimum that counts as none where shares are
moved back into their rules before they are read: simplex codes work to 1e-7."""


@runtime_checkable
class Certifiable(Protocol):
    """A program whose round is a choice of one GPU type for each job."""

    @property
    def rows(self) -> Ints:
        """Jobs that this round may place."""
        ...

    @property
    def held_cost(self) -> float:
        """Cost of the leases that go on."""
        ...

    @property
    def required(self) -> int | None:
        """GPUs that have to be placed beside the leases that go on, None for no such demand."""
        ...

    def choice_of(self, allocation: Allocation) -> Choice:
        """The choice among all plans that place as many GPUs as an allocation does."""
        ...

    def value(self, allocation: Allocation) -> float:
        """Cost of an allocation."""
        ...

    def columns(self) -> dict[str, Column]:
        """What the policy says of each job."""
        ...


@runtime_checkable
class Proving(Protocol):
    """A program without a model that can write down what proves its decision, and read it."""

    def proof(self, decision: Decision) -> dict[str, Any] | None:
        """What proves a decision, as plain data; None where nothing does."""
        ...

    def proved(self, proof: Mapping[str, Any]) -> Decision:
        """Plan, objective and bound that a proof makes.

        Raises
        ------
        KeyError, TypeError, ValueError
            On what is not a proof for this round.
        """
        ...


def certificate(
    program: object, round_: TrainingRound, planned: Decision, carried: Allocation, gap: float
) -> dict[str, Any] | None:
    """Write down what proves an answer.

    Parameters
    ----------
    program
        The compiled round.
    round_
        The round.
    planned
        The decision as the model made it.
    carried
        The allocation as it found room on nodes.
    gap
        Relative gap within which ``OPTIMAL`` is claimed.

    Returns
    -------
    Plain data, or None where the policy has no such model.
    """
    if not isinstance(program, Certifiable):
        return _of_model(program, round_, planned, carried, gap)
    plan = planned.allocation
    types = round_.cluster.types.tolist()
    choice = program.choice_of(plan)
    prices: Floats | None = getattr(planned, "prices", None)
    credit = float(getattr(planned, "credit", 0.0))
    bound = None
    if prices is not None and planned.bound is not None:
        bound = proved_bound(choice, prices, credit, program.held_cost)
    value = planned.objective
    return {
        "schema": SCHEMA,
        "tolerance": gap,
        "arithmetic": "double",
        "left_out": left_out(round_, plan, carried),
        "gpus": {
            "placed": int(plan.gpus.sum()),
            "at_most": int(plan.gpus.sum()) - placed_beside(choice) + most_by_counting(choice)
            if choice.total is not None
            else None,
        },
        "prices": None
        if bound is None or prices is None
        else dict(zip(types, prices.tolist(), strict=True)),
        "gpu_credit": None if bound is None else credit,
        "bound": bound,
        "gap": gap_of(value, bound),
    }


def _of_model(
    program: object, round_: TrainingRound, planned: Decision, carried: Allocation, gap: float
) -> dict[str, Any] | None:
    """Certificate of the program's own model, where the decision was read from its solution."""
    if isinstance(program, Proving):
        proof = program.proof(planned)
        gone = left_out(round_, planned.allocation, carried)
        head = {"schema": POLICY_SCHEMA, "tolerance": max(gap, ROUNDED), "left_out": gone}
        return None if proof is None else {**head, "proof": proof}
    solution: Solution | None = getattr(planned, "solution", None)
    if solution is None:  # before the model, which some programs only build when asked
        return None
    model: Model | None = getattr(program, "model", None)
    if model is None:
        return None
    if isinstance(program, Valued):
        gap = max(gap, ROUNDED)
    return {
        "schema": MODEL_SCHEMA,
        "left_out": left_out(round_, planned.allocation, carried),
        "model": certify(model, solution, gap=gap).to_dict(),
    }


def in_policy_units(program: object, value: float) -> float | None:
    """Value of a model's objective, or a bound of it, in units of the policy's; None: no number."""
    if not isinstance(program, Valued):
        return value
    return program.value_of(
        Solution(Status.OPTIMAL, None, (value,), (value,), backend="", elapsed_s=0.0)
    )


def left_out(round_: TrainingRound, plan: Allocation, carried: Allocation) -> list[dict[str, Any]]:
    """List the gangs that the model placed and that found no room on nodes."""
    gone = ~np.isin(plan.job, carried.job)
    pairs = zip(plan.job[gone].tolist(), plan.gpu_type[gone].tolist(), strict=True)
    ids, types = round_.jobs.id, round_.cluster.types
    return [{"job": str(ids[job]), "gpu_type": str(types[kind])} for job, kind in pairs]


def proved_bound(choice: Choice, prices: Floats, credit: float, held_cost: float) -> float:
    """What no plan that places as many GPUs can cost less than, by one product over all options.

    At any prices from 0 on: a copy pays its cost and its GPUs' prices, or nothing where it waits;
    the sum of the least payments, less what all GPUs would bring in, is below every plan's cost.
    """
    return priced(choice, np.asarray(prices, dtype=np.float64), credit).bound + held_cost


def placed_beside(choice: Choice) -> int:
    """GPUs that have to be placed."""
    return 0 if choice.total is None else round(choice.total)


def most_by_counting(choice: Choice) -> int:
    """GPUs that no plan can place more of: sums that gangs can reach, type by type.

    Every type is filled as if all jobs were there for it alone, so that this is a bound and not
    always the truth.
    """
    reached = 0
    for kind, capacity in enumerate(choice.capacity.astype(np.int64).tolist()):
        own = choice.resource == kind
        usable = choice.allowed[:, own].any(axis=1)
        amount = np.where(choice.allowed, choice.amount, 0.0)[:, own].max(axis=1, initial=0.0)
        gangs = amount[usable].astype(np.int64)
        reached += _largest_sum(gangs, choice.count[usable], capacity)
    most = np.where(choice.allowed, choice.amount, 0.0).max(axis=1, initial=0.0)
    return min(reached, int(choice.count @ most))


def _largest_sum(gangs: Ints, count: Ints, capacity: int) -> int:
    """Largest sum of gangs, each taken as often as there are copies, within a capacity."""
    mask = (1 << (capacity + 1)) - 1
    sums = 1
    sizes, place = np.unique(gangs, return_inverse=True)
    copies = np.bincount(place, weights=count, minlength=sizes.size).astype(np.int64)
    for size, times in zip(sizes.tolist(), copies.tolist(), strict=True):
        if not 0 < size <= capacity:
            continue
        left, part = min(times, capacity // size), 1
        while left > 0:  # powers of two, then the rest, reach every number of copies
            taken = min(part, left)
            sums |= (sums << (size * taken)) & mask
            left -= taken
            part *= 2
    return sums.bit_length() - 1


def size_of(choice: Choice, prices: Mapping[str, float] | None, credit: float | None) -> float:
    """Size of the sums behind a bound, beside it: what rounding errors are relative to."""
    paid = 0.0 if prices is None else max(map(abs, prices.values()), default=0.0)
    return paid * float(choice.capacity.sum()) + abs(credit or 0.0) * placed_beside(choice)
