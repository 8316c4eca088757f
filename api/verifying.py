"""Whether an answer is what it says, recomputed from its round without any solver."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np

from apportion.answer import Answer
from apportion.answer_reading import read_answer
from apportion.certifying import (
    MODEL_SCHEMA,
    POLICY_SCHEMA,
    ROUNDED,
    SCHEMA,
    Certifiable,
    Proving,
    in_policy_units,
    most_by_counting,
    placed_beside,
    proved_bound,
    size_of,
)
from apportion.executor.training import check
from apportion.families.lookup import training_round
from apportion.instances import InstanceError
from apportion.instances.columns import Floats
from apportion.instances.training import Allocation, Shares, TrainingRound
from apportion.instances.training.answer_json import allocation_from_dict, allocation_to_dict
from apportion.instances.training.round_json import round_to_dict
from apportion.questions.model_questions import Valued
from apportion.registry import make_policy
from apportion.solver import Budget, Choice, Model, ModelError, relative_gap
from apportion.solver import verify as verify_model

SAME = 1e-9
"""Difference, relative to the sums behind them, below which two numbers are the same."""

_KEYS = {
    "schema", "tolerance", "arithmetic", "left_out", "gpus", "prices", "gpu_credit", "bound", "gap",
}  # fmt: skip


@dataclass(frozen=True)
class Verified:
    """What a check of an answer found.

    Parameters
    ----------
    faults
        Claims that do not hold, each by name.
    proved
        Claims that were recomputed and hold.
    words
        Claims that nothing here can check, and whose word they are.
    """

    faults: tuple[str, ...]
    proved: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was found to be wrong."""
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """Give the findings as plain data."""
        return {
            "valid": self.holds,
            "faults": list(self.faults),
            "proved": list(self.proved),
            "words": list(self.words),
        }


def verify(answer: Answer | str | Path, round_: TrainingRound | str | Path) -> Verified:
    """Check an answer against a round by our own arithmetic; no solver takes part.

    Recomputed are the rules of the round, the policy's objective of the plan and its columns of
    the jobs, and the bound that the certificate's prices prove. What the answer rests on besides
    the round (policy, parameters, memory) is taken from the answer.

    Parameters
    ----------
    answer
        An answer, or the path of an answer file.
    round_
        The round that was asked, or the path of a round file.

    Returns
    -------
    The claims that do not hold, those that do, and those that nobody can check without a solver.

    Raises
    ------
    InstanceError
        If the answer or the round cannot be read, or the policy is not known here.

    Examples
    --------
    >>> import apportion as ap
    >>> rnd = ap.TrainingRound(
    ...     cluster=ap.Cluster.uniform({"V100": 2}),
    ...     jobs=ap.Jobs.of(id=["a"], gang=[2], work=[600.0], throughput_per_s=[[1.0]]),
    ... )
    >>> ap.verify(ap.solve(rnd, "fft"), rnd).holds
    True
    """
    told = answer if isinstance(answer, Answer) else read_answer(answer)
    asked = training_round(round_, "verify")
    training_round(told.round_, "verify")
    find = _Findings(told, asked)
    find.all()
    return Verified(tuple(find.faults), tuple(find.proved), tuple(find.words))


@dataclass(eq=False)
class _Findings:
    """One check of one answer."""

    answer: Answer
    round_: TrainingRound
    faults: list[str] = field(default_factory=list[str])
    proved: list[str] = field(default_factory=list[str])
    words: list[str] = field(default_factory=list[str])

    def all(self) -> None:
        """Look at every claim."""
        if not self._round():
            return
        allocation = self.answer.allocation
        self._rules(allocation)
        policy = make_policy(self.answer.policy, self.answer.parameters)
        if self.answer.memory is not None:
            self.words.append("memory: what the policy remembers is the answer's own word")
        program = policy.compile(self.round_, self.answer.memory, Budget.of(None))
        certificate = self.answer.certificate
        if not isinstance(program, Certifiable):
            model: Model | None = getattr(program, "model", None)
            if certificate is not None and isinstance(program, Proving):
                self._by_proof(certificate, program)
            elif certificate is None or model is None:
                self._without_model()
            else:
                self._by_model(certificate, model, program)
            return
        plan = allocation if certificate is None else self._with_left_out(allocation, certificate)
        if self.faults or plan is None:
            return
        choice = program.choice_of(plan)
        prices, credit = (certificate or {}).get("prices"), (certificate or {}).get("gpu_credit")
        scale = size_of(choice, _numbers(prices), credit if _is_number(credit) else None)
        scale += abs(self.answer.objective or 0.0)
        self._columns(program)
        self._objective(program, plan, scale)
        if certificate is not None and self._certificate(certificate):
            self._most_gpus(certificate, choice, plan)
            self._bound(program, certificate, choice, scale)
        self._status(program, certificate, choice, scale)

    def _round(self) -> bool:
        """Whether the answer is one to this round; else what differs is named."""
        own, asked = self.answer.round_, self.round_
        if own == asked:
            self.proved.append("round: the answer is one to this round")
            return True
        for place in _differences(round_to_dict(own), round_to_dict(asked), "round"):
            self.faults.append(f"{place}: not what the round file says")
        if not self.faults:
            self.faults.append("round: not the one that was answered")
        try:
            again = allocation_from_dict(asked, allocation_to_dict(own, self.answer.allocation))
        except InstanceError as error:
            self.faults.append(f"allocation: {error}")
        else:
            self._rules(again)
        return False

    def _rules(self, allocation: Allocation) -> None:
        broken = check(self.round_, allocation)
        self.faults.extend(f"{one.rule}: {one.message}" for one in broken)
        if not broken:
            gpus = int(allocation.gpus.sum())
            self.proved.append(
                f"rules: the plan of {allocation.job.size} jobs on {gpus} GPUs obeys all of them"
            )

    def _without_model(self) -> None:
        for name in ("objective", "bound"):
            value = getattr(self.answer, name)
            if value is not None:
                self.words.append(f"{name}: {value} is the word of policy {self.answer.policy!r}")

    def _by_model(self, data: Mapping[str, Any], model: Model, program: object) -> None:
        """Check the certificate of the policy's model, and that the answer says what it says.

        Where shares were moved back into their rules before the objective was read, a bound may
        differ by the rounding of that.
        """
        if data.get("schema") != MODEL_SCHEMA or not isinstance(data.get("model"), Mapping):
            self.faults.append(f"certificate.schema: expected {MODEL_SCHEMA!r} and its model")
            return
        try:
            found = verify_model(model, data["model"])
        except (ModelError, TypeError, ValueError) as error:
            self.faults.append(f"certificate.model: {error}")
            return
        self.faults.extend(f"certificate.model: {fault}" for fault in found.faults)
        self.words.extend(f"certificate.model: {word}" for word in found.words)
        if found.faults:
            return
        status = str(data["model"]["status"]).upper()
        if status != self.answer.status:
            self.faults.append(
                f"status: {status} by the model, the answer says {self.answer.status}"
            )
        for name, values in (("objective", "objectives"), ("bound", "bounds")):
            told, text = getattr(self.answer, name), (data["model"][values] or [None])[-1]
            value = None if text is None else in_policy_units(program, float(Fraction(text)))
            moved = isinstance(program, Valued) and name == "bound"
            if not _same(told, value, abs(told or 0.0), ROUNDED if moved else SAME):
                self.faults.append(f"{name}: {value} by the model, the answer says {told}")
        if isinstance(program, Valued):
            self._shares(model, np.array(data["model"]["point"], dtype=np.float64))
        if not self.faults:
            self.proved.append(
                f"model: {status.lower()} with objective {self.answer.objective:.12g}, by"
                f" {found.arithmetic} arithmetic"
            )

    def _by_proof(self, data: Mapping[str, Any], program: Proving) -> None:
        """Check a proof of a policy's own: plan, objective and bound that it makes."""
        tolerance, proof = data.get("tolerance"), data.get("proof")
        if data.get("schema") != POLICY_SCHEMA or not isinstance(proof, Mapping):
            self.faults.append(f"certificate.schema: expected {POLICY_SCHEMA!r} and a proof")
            return
        if not _is_number(tolerance) or tolerance < 0:
            self.faults.append("certificate.tolerance: must be a number from 0 on")
            return
        plan = self._with_left_out(self.answer.allocation, data)
        try:
            made = program.proved(cast("Mapping[str, Any]", proof))
        except (KeyError, TypeError, ValueError) as error:
            self.faults.append(f"certificate.proof: {error}")
            return
        if plan is None:
            return
        pairs = [
            sorted(zip(one.job.tolist(), one.gpu_type.tolist(), strict=True))
            for one in (plan, made.allocation)
        ]
        if pairs[0] != pairs[1]:
            self.faults.append("allocation: not the one that the proof makes")
            return
        scale = max(abs(made.objective or 0.0), abs(made.bound or 0.0))
        for name in ("objective", "bound"):
            told, value = getattr(self.answer, name), getattr(made, name)
            if not _same(told, value, scale, SAME if name == "objective" else ROUNDED):
                self.faults.append(f"{name}: {value} by the proof, the answer says {told}")
        apart = relative_gap(made.objective or 0.0, made.bound or 0.0)
        if self.answer.status == "OPTIMAL" and apart > tolerance:
            self.faults.append(f"status: OPTIMAL, but value and bound are {apart:.3g} apart")
        if not self.faults:
            self.proved.append(
                f"proof: objective {self.answer.objective:.12g} is within {apart:.3g} of a bound"
            )

    def _shares(self, model: Model, point: Floats) -> None:
        """Check that the shares are those of the model's point: its time by job and type."""
        shares: Shares | None = self.answer.decision.shares
        block = next(
            (one for one in model.column_blocks if {a.name for a in one.axes} == {"job", "type"}),
            None,
        )
        if shares is None or block is None:
            self.faults.append("shares: there are none, though the model is one of shares")
            return
        axes = {axis.name: axis for axis in block.axes}
        job, kind = (np.asarray(axes[name].codes, dtype=np.int64) for name in ("job", "type"))
        ids = {name: row for row, name in enumerate(self.round_.jobs.id.tolist())}
        row = np.array([ids[name] for name in axes["job"].labels], dtype=np.int64)[job]
        user = shares.of_job[row]
        meant = point[block.start : block.stop] * self.round_.jobs.gang[row]
        told = np.where(user >= 0, shares.gpus[user, kind], 0.0)
        bad = np.flatnonzero(~np.isclose(told, meant, rtol=SAME, atol=SAME))
        if bad.size:
            at = int(bad[0])
            where = f"job {axes['job'].labels[job[at]]!r} on {axes['type'].labels[kind[at]]}"
            self.faults.append(
                f"shares: {meant[at]:.12g} GPUs for {where} by the model, the answer says"
                f" {told[at]:.12g}"
            )

    def _with_left_out(
        self, allocation: Allocation, certificate: Mapping[str, Any]
    ) -> Allocation | None:
        """The plan as the model made it: with the gangs that found no room on nodes."""
        gone = certificate.get("left_out", [])
        if not gone:
            return allocation
        ids, types = self.round_.jobs.id.tolist(), self.round_.cluster.types.tolist()
        try:
            job = [ids.index(one["job"]) for one in gone]
            kind = [types.index(one["gpu_type"]) for one in gone]
        except (KeyError, TypeError, ValueError):
            self.faults.append("certificate.left_out: names a job or type that the round has not")
            return None
        rows = np.r_[allocation.job, job].astype(np.int64)
        kinds = np.r_[allocation.gpu_type, kind].astype(np.int64)
        gpus = np.r_[allocation.gpus, self.round_.jobs.gang[job]].astype(np.int64)
        order = np.argsort(rows, kind="stable")
        plan = Allocation.of(rows[order], kinds[order], gpus[order])
        known = {"guaranteed_lease", "commitment", "lease_end"}  # of leases, checked above
        broken = [one for one in check(self.round_, plan) if one.rule not in known]
        if broken:
            self.faults.append(f"certificate.left_out: {broken[0].message}")
            return None
        self.words.append(
            f"nodes: {len(gone)} gangs of the model's plan found no room on nodes; objective and"
            " bound speak of the plan with them"
        )
        return plan

    def _columns(self, program: Certifiable) -> None:
        wanted, told = program.columns(), self.answer.decision.per_job
        for name in sorted({*wanted, *told}):
            if name not in wanted or name not in told:
                self.faults.append(f"jobs.{name}: is missing or not one of the policy's columns")
                continue
            one, other = np.asarray(wanted[name], float), np.asarray(told[name], float)
            # what is infinite or beyond all numbers is null in files
            one = np.where(np.isfinite(one), one, np.inf)
            bad = np.flatnonzero(~np.isclose(one, other, rtol=SAME, atol=0.0))
            if bad.size:
                job = str(self.round_.jobs.id[bad[0]])
                self.faults.append(
                    f"jobs.{name}: {one[bad[0]]:.12g} for job {job!r}, the answer says"
                    f" {other[bad[0]]:.12g}"
                )

    def _objective(self, program: Certifiable, plan: Allocation, scale: float) -> None:
        told, value = self.answer.objective, program.value(plan)
        if told is None or not _same(told, value, scale):
            self.faults.append(f"objective: {value:.12g} for this plan, the answer says {told}")
            return
        self.proved.append(f"objective: {told:.12g} is the cost of the plan")
        answered = [one for one in self.answer.stages if one.answered]
        if len(answered) != 1 or not _same(answered[0].objective, told, scale):
            self.faults.append("stages: none of them, or another value, gave the answer")

    def _certificate(self, data: Mapping[str, Any]) -> bool:
        """Whether a certificate has the parts of one."""
        if data.get("schema") != SCHEMA:
            self.faults.append(f"certificate.schema: {data.get('schema')!r}, expected {SCHEMA!r}")
            return False
        odd = sorted(set(data) ^ _KEYS)
        if odd:
            self.faults.append(f"certificate.{odd[0]}: is missing or not known")
            return False
        if not _is_number(data["tolerance"]) or data["tolerance"] < 0:
            self.faults.append("certificate.tolerance: must be a number from 0 on")
            return False
        prices = data["prices"]
        none = [prices is None, data["gpu_credit"] is None, data["bound"] is None]
        if any(none) and not all(none):
            self.faults.append("certificate.prices: prices, credit and bound belong together")
            return False
        types = set(self.round_.cluster.types.tolist())
        if prices is not None and (
            (_numbers(prices) or {}).keys() != types
            or not _is_number(data["gpu_credit"])
            or not _is_number(data["bound"])
        ):
            self.faults.append("certificate.prices: not a number for each GPU type")
            return False
        return True

    def _most_gpus(self, data: Mapping[str, Any], choice: Choice, plan: Allocation) -> None:
        placed = int(plan.gpus.sum())
        most = None
        if choice.total is not None:
            most = placed - placed_beside(choice) + most_by_counting(choice)
        stated = data["gpus"]
        if stated != {"placed": placed, "at_most": most}:
            self.faults.append(
                f"certificate.gpus: {placed} are placed and at most {most} can be, the answer says"
                f" {stated}"
            )
        elif most == placed:
            self.proved.append(f"GPUs: no plan places more than these {placed}")
        elif most is not None:
            self.words.append(
                f"GPUs: {placed} are placed; that no plan places more is the word of the search"
                f" (counting gangs proves: at most {most})"
            )

    def _bound(
        self, program: Certifiable, data: Mapping[str, Any], choice: Choice, scale: float
    ) -> None:
        answer = self.answer
        if data["bound"] is None:
            return
        types = self.round_.cluster.types.tolist()
        prices = np.array([data["prices"][kind] for kind in types], dtype=np.float64)
        found = proved_bound(choice, prices, float(data["gpu_credit"]), program.held_cost)
        if not _same(found, data["bound"], scale):
            self.faults.append(
                f"certificate.bound: the prices prove {found:.12g}, not {data['bound']}"
            )
            return
        if answer.objective is None or answer.bound is None:
            self.faults.append("bound: missing, although there are prices that prove one")
            return
        gap = relative_gap(answer.objective, found)
        if not _is_number(data["gap"]) or abs(data["gap"] - gap) > SAME + SAME * gap:
            self.faults.append(f"certificate.gap: {gap:.6g}, not {data['gap']}")
        if answer.bound < found - SAME * scale:
            self.faults.append(f"bound: {answer.bound} is below {found:.12g}, which is proved")

    def _status(
        self, program: Certifiable, data: Mapping[str, Any] | None, choice: Choice, scale: float
    ) -> None:
        answer = self.answer
        value, bound, gap = answer.objective, answer.bound, answer.gap
        if (bound is None) != (gap is None):
            self.faults.append("gap: bound and gap belong together")
            return
        if bound is None or gap is None or value is None:
            self._unproved(program, choice)
            return
        if bound > value + SAME * scale:
            self.faults.append(f"bound: {bound} is above the objective {value}")
            return
        if abs(gap - relative_gap(value, bound)) > SAME:
            self.faults.append(f"gap: {relative_gap(value, bound):.6g}, the answer says {gap}")
            return
        if answer.status not in ("OPTIMAL", "FEASIBLE"):
            self.faults.append(f"status: {answer.status} with a bound")
            return
        tolerance = None if data is None else data.get("tolerance")
        allowed = float(tolerance) if _is_number(tolerance) else math.inf
        if answer.status == "OPTIMAL" and gap > allowed + SAME:
            self.faults.append(f"status: OPTIMAL within {tolerance} is not what the bound says")
            return
        known = None if data is None else data.get("bound")
        if not _is_number(known):
            self.words.append(f"bound: {bound:.12g} (gap {gap:.4%}) is the word of the search")
            return
        certain = relative_gap(value, known)
        self.proved.append(f"bound: the prices alone prove {known:.12g}, a gap of {certain:.4%}")
        if bound > known + SAME * scale:
            self.words.append(
                f"bound: {bound:.12g} (gap {gap:.4%}) is the word of the search; a solver has to"
                " run again to prove what lies beyond the prices"
            )

    def _unproved(self, program: Certifiable, choice: Choice) -> None:
        """Look at a status that comes without a bound."""
        status, required = self.answer.status, program.required
        if status == "OPTIMAL":
            self.faults.append("status: OPTIMAL without a bound")
        elif status == "INFEASIBLE":
            most = most_by_counting(choice)
            if required is not None and most < required:
                self.proved.append(
                    f"status: {required} GPUs have to be placed, counting gangs shows that at most"
                    f" {most} can be"
                )
            else:
                self.words.append("status: INFEASIBLE is the word of the search")
        else:
            self.words.append(f"status: {status}, no bound is claimed")


def _differences(one: Any, other: Any, where: str) -> list[str]:
    """Name the places where two plain texts differ, two levels down at most."""
    if one == other:
        return []
    deep = where.count(".") < 2 and isinstance(one, dict) and isinstance(other, dict)
    if not deep:
        return [where]
    first, second = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
    return [
        place
        for key in sorted({*first, *second})
        for place in _differences(first.get(key), second.get(key), f"{where}.{key}")
    ]


def _same(
    one: float | None, other: float | None, scale: float, tolerance: float = SAME
) -> bool:  # fmt: skip
    if one is None or other is None or not math.isfinite(other):
        return one == other
    return abs(one - other) <= tolerance * max(scale, abs(one), abs(other))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _numbers(data: object) -> dict[str, float] | None:
    """Give an object of numbers, None for anything else."""
    if not isinstance(data, Mapping):
        return None
    found = cast("Mapping[str, Any]", data)
    return dict(found) if all(map(_is_number, found.values())) else None
