"""How the command ends: one line for people, and a code for programs."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

from apportion.instances import InstanceError

DONE, NO, BAD_INPUT, INFEASIBLE, NOTHING_IN_TIME, OUR_ERROR, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

READER_GONE = 141
"""What a shell reports for a program whose reader went away, as in ``apportion ... | head -1``."""

OF_STATUS = {"INFEASIBLE": INFEASIBLE, "NO_SOLUTION": NOTHING_IN_TIME, "ERROR": NOTHING_IN_TIME}
"""Codes of answers whose status is not a success; all others are ``DONE``."""


def told(error: BaseException) -> int:
    """Say on standard error what went wrong, in one line, and give the exit code."""
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        _say("interrupted")
        return INTERRUPTED
    if type(error).__module__.startswith(("click", "typer")):
        return _of_usage(error)
    if isinstance(error, SystemExit):  # the command-line library ends itself where a pipe breaks
        broken = isinstance(error.__context__, BrokenPipeError)
        return _reader_gone() if broken else int(error.code or DONE)
    if isinstance(error, BrokenPipeError):
        return _reader_gone()
    if isinstance(error, InstanceError):
        _say(f"error: {error}")
        return BAD_INPUT
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename}: "
        _say(f"error: {where}{error.strerror or error}")
        return BAD_INPUT
    if os.environ.get("APPORTION_DEBUG"):
        traceback.print_exception(error)
    _say(f"internal error: {type(error).__name__}: {error}")
    _say("this is our fault; APPORTION_DEBUG=1 shows where it happened")
    return OUR_ERROR


def _of_usage(error: BaseException) -> int:
    """Errors of the command line itself; its library sends whole help pages as errors too."""
    message = getattr(error, "format_message", None)
    if message is None:
        return DONE
    if type(error).__name__ == "NoArgsIsHelpError":
        return BAD_INPUT  # the help page has been shown
    context = getattr(error, "ctx", None)
    hint = "" if context is None else f" ('{context.command_path} --help' shows what there is)"
    _say(f"error: {message()}{hint}")
    return BAD_INPUT


def _reader_gone() -> int:
    # what is left in the buffer has nowhere to go: the interpreter must not try at its end
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE


def _say(text: str) -> None:
    sys.stderr.write(" ".join(text.split("\n")) + "\n")
