"""What can be said about a model after a solve."""

from enum import Enum


class Status(Enum):
    """Verdict on a model, in our words and never a back end's.

    A status is given only when it was confirmed here: see :meth:`apportion.solver.Solver.solve`.
    """

    OPTIMAL = "optimal"
    """A point passed the re-check and a bound proves it within the stated gap."""
    FEASIBLE = "feasible"
    """A point passed the re-check; nothing proves it within the stated gap."""
    INFEASIBLE = "infeasible"
    """No point exists: two back ends say so, neither of them at a limit."""
    UNBOUNDED = "unbounded"
    """A feasible point and an improving direction without end, both re-checked here."""
    NO_SOLUTION = "no_solution"
    """No point was found, and none was shown to be impossible."""
    ERROR = "error"
    """The back end broke down."""
