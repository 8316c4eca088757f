"""What an executor says of a plan it does not carry out."""

from __future__ import annotations

from apportion.instances.policy import Violation


class InvalidAllocation(RuntimeError):  # noqa: N818  # what it is, not that it is an error
    """A decision breaks a rule and was not carried out.

    Attributes
    ----------
    violations
        What the checker found.
    """

    def __init__(self, now_s: float, violations: list[Violation]) -> None:
        self.violations = tuple(violations)
        lines = "; ".join(f"{v.rule}: {v.message}" for v in violations)
        super().__init__(f"the allocation decided at {now_s:g} s was not carried out: {lines}")
