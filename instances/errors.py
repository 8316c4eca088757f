"""The one error of this room: an input that does not describe a round."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LISTED = 12  # known words that are told before the list is cut


class InstanceError(ValueError):
    """An instance, scenario or file breaks a rule.

    The message names object, field, index and value, in one line: the command line prints it as
    it is and exits with code 2.
    """


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known word was probably meant.

    Parameters
    ----------
    word
        What was written.
    known
        What would have been understood.

    Returns
    -------
    str
        ``"; did you mean 'gang'?"``, or the list of known words where none is near.
    """
    words = sorted(one for one in known if one)  # an empty name may stand for null
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if not close:  # written in another case
        of = {one.casefold(): one for one in reversed(words)}
        folded = difflib.get_close_matches(word.casefold(), sorted(of), n=1, cutoff=0.6)
        close = [of[one] for one in folded]
    if close:
        return f"; did you mean {close[0]!r}?"
    if len(words) > _LISTED:
        return f"; known: {', '.join(words[:_LISTED])} and {len(words) - _LISTED} more"
    return f"; known: {', '.join(words)}" if words else ""
