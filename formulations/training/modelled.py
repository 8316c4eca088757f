"""A decision that rests on one solve of the program's own model."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.instances import Decision
from apportion.solver import Solution


@dataclass(frozen=True)
class ModelledDecision(Decision):
    """A decision with the solution that it was read from.

    Parameters
    ----------
    solution
        Solution of the program's ``model``, which certificates are made of; None where the
        decision came from elsewhere.
    """

    solution: Solution | None = None
