"""Lines of an MPS file as sections of fields, in free or in fixed format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from apportion.solver.errors import ModelError

Layout = Literal["free", "fixed"]

_FIXED = ((1, 3), (4, 12), (14, 22), (24, 36), (39, 47), (49, 61))
"""Where the fields of fixed format stand, counted from 0."""

_NAMED_SETS = ("RHS", "RANGES", "BOUNDS")
_WITH_KIND = ("ROWS", "BOUNDS")
_WITHOUT_VALUE = ("FR", "MI", "PL", "BV")


@dataclass(frozen=True, slots=True)
class Line:
    """One line, in the same form for both formats.

    Attributes
    ----------
    number
        Number in the file, from 1.
    section
        Section that it stands in, such as ``"ROWS"``.
    is_head
        Whether it opens the section.
    kind
        Kind of row or bound, such as ``"UP"``; empty elsewhere.
    fields
        What follows, without the name of a set of sides or bounds. On a head, what stands behind
        the section's name.
    """

    number: int
    section: str
    is_head: bool
    kind: str
    fields: tuple[str, ...]

    def error(self, fault: str) -> ModelError:
        """Make the error to raise for a fault on this line."""
        return ModelError(f"MPS line {self.number} ({self.section}): {fault}")

    def pairs(self, first: int) -> list[tuple[str, float]]:
        """Give names and numbers that alternate from field ``first`` on."""
        fields = self.fields[first:]
        if not fields or len(fields) % 2:
            raise self.error(f"{' '.join(self.fields)!r} is not a list of names and numbers")
        names, values = fields[::2], fields[1::2]
        return [(name, self.number_of(text)) for name, text in zip(names, values, strict=True)]

    def number_of(self, text: str) -> float:
        """Read a number, which old files may write with a D."""
        try:
            return float(text)
        except ValueError:
            pass
        try:
            return float(text.upper().replace("D", "E"))
        except ValueError:
            raise self.error(f"{text!r} is not a number") from None


def lines_of(text: str, layout: Layout) -> Iterator[Line]:
    """Give the lines of a file up to ``ENDATA``, without comments and empty ones.

    Raises
    ------
    ModelError
        If the file ends before ``ENDATA``.
    """
    section = ""
    for number, raw in enumerate(text.splitlines(), start=1):
        if not raw.strip() or raw[0] == "*":
            continue
        if not raw[0].isspace():
            word, *rest = raw.split()
            section = word.upper()
            yield Line(number, section, True, "", tuple(rest))
            if section == "ENDATA":
                return
            continue
        yield _fixed(number, section, raw) if layout == "fixed" else _free(number, section, raw)
    raise ModelError("MPS: the file ends before ENDATA")


def _fixed(number: int, section: str, raw: str) -> Line:
    padded = raw.expandtabs()
    kind, *fields = (padded[begin:end].strip() for begin, end in _FIXED)
    while fields and not fields[-1]:
        fields.pop()
    return Line(number, section, False, kind, tuple(fields[section in _NAMED_SETS :]))


def _free(number: int, section: str, raw: str) -> Line:
    fields = raw.split()
    kind = fields.pop(0) if section in _WITH_KIND else ""
    if section == "BOUNDS":
        # the set may have no name
        bare = kind.upper() in _WITHOUT_VALUE and len(fields) == 1
        named = len(fields) > (1 if bare else 2) or (
            len(fields) == 2 and kind.upper() in _WITHOUT_VALUE
        )
    else:
        named = section in _NAMED_SETS and len(fields) % 2 == 1
    return Line(number, section, False, kind, tuple(fields[named:]))
