"""Reservations that nobody can keep any more: the round without them, and what was given up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apportion.formulations.training import broken_promises
from apportion.instances import Decision
from apportion.instances.training import Commitments, TrainingRound


def without_broken_promises(round_: TrainingRound) -> tuple[TrainingRound, tuple[str, ...]]:
    """Leave out the reservations that have begun and cannot be kept.

    Returns
    -------
    TrainingRound
        The round with the reservations that can be kept together.
    tuple of str
        One line for each that was given up.
    """
    broken = broken_promises(round_)
    if not broken.size:
        return round_, ()
    promised, jobs, types = round_.commitments, round_.jobs, round_.cluster.types
    notes: list[str] = []
    for entry in broken.tolist():
        kind = int(promised.gpu_type[entry])
        what = f"{promised.gpus[entry]} GPUs" + (f" of {types[kind]}" if kind >= 0 else "")
        notes.append(
            f"job {str(jobs.id[promised.job[entry]])!r}: its reservation of {what} until"
            f" {promised.end_s[entry]:g} was given up: nothing in service can serve it beside"
            " the others and what may not be stopped"
        )
    keep = np.ones(promised.job.size, dtype=np.bool_)
    keep[broken] = False
    kept = Commitments(
        promised.job[keep], promised.start_s[keep], promised.end_s[keep], promised.gpus[keep],
        promised.gpu_type[keep], promised.kind[keep],
    )  # fmt: skip
    return replace(round_, commitments=kept), tuple(notes)


def given_up(decision: Decision, notes: tuple[str, ...]) -> Decision:
    """Say in a decision which promises were given up: for the round as asked there is no plan."""
    if not notes:
        return decision
    return replace(
        decision, status="INFEASIBLE", bound=None, gap=None, notes=(*notes, *decision.notes)
    )
