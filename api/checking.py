"""Whether an allocation obeys its round, whatever the family."""

from __future__ import annotations

from typing import Any

from apportion.families.lookup import family_of
from apportion.instances import Violation


def check(round_: Any, allocation: Any) -> list[Violation]:
    """Recompute every rule of a round's family from the round alone.

    Parameters
    ----------
    round_
        A round of any family.
    allocation
        What was decided.

    Returns
    -------
    list of Violation
        The broken rules; none means that the allocation may be carried out.

    Raises
    ------
    InstanceError
        If the round is none.
    """
    return family_of(round_).rules.check(round_, allocation)
