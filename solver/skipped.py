"""Who was passed over where no ``Solution`` tells it: drivers that hold an LP give none."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_HEARD: ContextVar[list[str] | None] = ContextVar("apportion.solver.skipped", default=None)


@contextmanager
def noting_skipped() -> Generator[list[str]]:
    """Collect which back ends drivers pass over inside the block, each once.

    Examples
    --------
    >>> with noting_skipped() as missing:
    ...     note_skipped(["highs: cannot run here", "highs: cannot run here"])
    >>> missing
    ['highs: cannot run here']
    """
    heard: list[str] = []
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)


def note_skipped(names: Sequence[str]) -> None:
    """Tell those who listen in this context; nobody does by default."""
    heard = _HEARD.get()
    if heard is not None:
        heard.extend(name for name in dict.fromkeys(names) if name not in heard)
