"""FFT: every round each job gets at most one GPU type, at least cost with fairness compensation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from apportion.formulations.training.fft.compensation import (
    Compensation,
    TauModel,
    recall,
    remembered,
)
from apportion.formulations.training.fft.program import FFTProgram
from apportion.formulations.training.pinned import pinned
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST, Floats
from apportion.instances.errors import InstanceError
from apportion.instances.training import Outcome, TrainingRound
from apportion.instances.training.laws import SwitchCost

WorkConservation = Literal["lexicographic", "hard", "reward", "none"]
Method = Literal["auto", "milp", "lp_repair"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "work_conservation": ("lexicographic", "hard", "reward", "none"),
    "tau_model": ("best_type", "isolated"),
    "units": ("paper", "normalised"),
    "method": ("auto", "milp", "lp_repair"),
}


@dataclass(frozen=True)
class FFT:
    """Cost minimisation with finish-time fairness (Mo, Xu and Lau, ICS 2025).

    The cost of job j on type i in a round is ``phi + s - rho * theta``: a completion-time
    surrogate, the rounds lost to a switch of type, and the job's compensation times its speed.

    Parameters
    ----------
    work_conservation
        ``lexicographic``: place as many GPUs as any plan can, then minimise cost. ``hard``: place
        ``min(GPUs, GPUs asked for)`` or report infeasible. ``reward``: pay a reward per placed GPU
        large enough to give the same plans. ``none``: cost alone.
    wait_weight
        Factor of the first term of phi, ``waited * theta / W``. Its published sign makes waiting
        a cost; 0 leaves it out, a negative number turns it round.
    remaining_work
        True: phi and nothing else uses the work left instead of the whole work.
    tau_model
        Estimate of the time on an exclusive equal share: ``best_type`` or ``isolated``.
    units
        ``paper``: theta in work units per round. ``normalised``: in parts of the job's work, so
        that results do not depend on what a unit of work is.
    fairness_weight
        Factor of ``rho * theta``; 0 turns the compensation off.
    bandwidth_gb_per_s, switch_fixed_s
        A switch of type costs ``(fixed + restart + state / bandwidth)`` seconds.
    switch_weight
        Factor of the switching cost; 0 leaves it out.
    method
        ``milp``: the plain model. ``lp_repair``: round the relaxation, with a proved gap.
        ``auto``: ``lp_repair``, then a small core that proves the optimum.
    """

    source: ClassVar[str] = (
        "FFT (ICS 2025, pp. 324-338), formulas second-hand; see docs/systems/fft.md"
    )
    name: ClassVar[str] = "fft"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()

    work_conservation: WorkConservation = "lexicographic"
    wait_weight: float = 1.0
    remaining_work: bool = False
    tau_model: TauModel = "best_type"
    units: Literal["paper", "normalised"] = "paper"
    fairness_weight: float = 1.0
    bandwidth_gb_per_s: float = 1.25
    switch_fixed_s: float = 30.0
    switch_weight: float = 1.0
    method: Method = "auto"

    def __post_init__(self) -> None:
        for field, known in _CHOICES.items():
            value = getattr(self, field)
            if value not in known:
                raise InstanceError(f"fft.{field} = {value!r}: must be one of {', '.join(known)}")
        for field in ("wait_weight", "fairness_weight", "switch_weight"):
            value = getattr(self, field)
            least = -LARGEST if field == "wait_weight" else 0.0
            if not least <= value <= LARGEST:
                rule = f"must be a number from {least:g} to {LARGEST:g}"
                raise InstanceError(f"fft.{field} = {value}: {rule}")
        SwitchCost(self.bandwidth_gb_per_s, self.switch_fixed_s)

    @property
    def traits(self) -> frozenset[str]:
        """What a change of names, types or units leaves as it is.

        ``hard`` counts GPUs that nobody can use among those to be filled, and published units
        are mixed.
        """
        held = {"permutation"}
        held |= {"useless_type"} if self.work_conservation != "hard" else set()
        held |= {"unit_homogeneous"} if self.units == "normalised" else set()
        return frozenset(held)

    def cost(self, round_: TrainingRound, owed: Compensation) -> Floats:
        """Cost of each job on each type, shape (n, k); infinite where it cannot run.

        Units are mixed, as published: a pure number + GPU-rounds + rounds - (work per round)^2.
        """
        jobs, duration = round_.jobs, round_.duration_s
        if not len(jobs):
            return np.zeros((0, round_.cluster.types.size))
        theta = jobs.throughput_per_s * duration
        work = jobs.work
        if self.remaining_work:
            # the last iteration of a job whose work was under-reported still has a length
            work = np.maximum(jobs.work - jobs.work_done, 1e-9 * jobs.work)
        waited = (round_.now_s - jobs.arrival_s) / duration
        ratio = theta / work[:, None]
        with np.errstate(divide="ignore"):
            out = self.wait_weight * waited[:, None] * ratio + jobs.gang[:, None] / ratio
        out += self.switch_weight * self._switch(round_)
        speed = theta if self.units == "paper" else theta / jobs.work[:, None]
        out -= self.fairness_weight * owed.rho[:, None] * speed
        return np.where(round_.eligible, out, np.inf)

    def _switch(self, round_: TrainingRound) -> Floats:
        """Rounds lost by each job on each type."""
        jobs = round_.jobs
        law = SwitchCost(self.bandwidth_gb_per_s, self.switch_fixed_s)
        lost = law.switch_s(jobs.state_gb, jobs.restart_s) / round_.duration_s
        kinds = np.arange(round_.cluster.types.size)
        moves = (jobs.previous_type >= 0)[:, None] & (jobs.previous_type[:, None] != kinds)
        return np.where(moves, lost[:, None], 0.0)

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> FFTProgram:
        """Read the compensation, price every job on every type, and set the round up.

        Raises
        ------
        InstanceError
            On a memory that is not FFT's.
        """
        owed = recall(round_, memory, self.tau_model)
        return FFTProgram(
            round_=round_,
            held=pinned(round_),
            cost=self.cost(round_, owed),
            owed=owed,
            work_conservation=self.work_conservation,
            method=self.method,
        )

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Outcome
    ) -> dict[str, Any]:
        """Update the compensation with what was really served."""
        owed = recall(round_, memory, self.tau_model)
        return remembered(round_, owed, outcome, normalised=self.units == "normalised")
