"""What the conformance batteries of all families share."""

from __future__ import annotations

import functools
from collections.abc import Callable

Check = tuple[str, Callable[[], None]]
"""Name of a check, and what raises ``AssertionError`` where it fails."""


def require(holds: bool, otherwise: str) -> None:
    """Raise where something does not hold: an ``assert`` that ``python -O`` keeps."""
    if not holds:
        raise AssertionError(otherwise)


def asserting(judge: Callable[[], None]) -> Callable[[], None]:
    """Let a policy that crashes, or that an executor refuses, fail the check it stands in."""

    @functools.wraps(judge)
    def judged() -> None:
        try:
            judge()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from error

    return judged
