"""Options that several commands share, and texts of the command line that hold more than one thing."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from apportion.instances import InstanceError
from apportion.registry import settings

Number = TypeVar("Number", int, float)

_MOST_SEEDS = 100_000
"""More seeds than this are a slip of the keyboard."""


def _reader(kind: Callable[[str], Number], what: str) -> Callable[[str], Number]:
    """Read a number, and name the text where it is none."""

    def read(text: str) -> Number:
        try:
            return kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not {what}") from None

    return read


number = _reader(float, "a number")
whole = _reader(int, "a whole number")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
MaybePolicy = Annotated[
    str | None,
    typer.Option(
        "--policy", help="Name of a policy. Default: that of the round's family; fft for jobs."
    ),
]
PolicyName = Annotated[str, typer.Option("--policy", help="Name of a policy.")]
Params = Annotated[
    list[str] | None, typer.Option("--param", help="NAME=VALUE, once for each parameter.")
]
Gap = Annotated[
    float, typer.Option(parser=number, metavar="GAP", help="Relative gap that counts as optimal.")
]
Backend = Annotated[str, typer.Option("--solver", help="Back end; auto chooses by model.")]
TimeLimit = Annotated[
    float | None,
    typer.Option(parser=number, metavar="S", help="Seconds of wall time for one decision."),
]
Seed = Annotated[int | None, typer.Option(parser=whole, metavar="N", help="Seed.")]
Workers = Annotated[int | None, typer.Option(parser=whole, metavar="N", help="Processes at once.")]
Limit = Annotated[int | None, typer.Option(parser=whole, metavar="N", help="First jobs only.")]
Containers = Annotated[
    list[str] | None,
    typer.Option(help="NAME=COUNT, once for each microservice; others count as 1."),
]
MaybeSampling = Annotated[
    float | None,
    typer.Option(parser=number, metavar="SHARE", help="Share of requests traced. Default: 1."),
]
MaybeWindow = Annotated[
    float | None,
    typer.Option(
        parser=number, metavar="S", help="Loads are counted in such windows. Default: 60 s."
    ),
]
Peak = Annotated[
    float | None,
    typer.Option(parser=number, metavar="RATE", help="Calls/s of the busiest container (alibaba)."),
]
ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="File, folder or bundled name.")
]


def parameters(given: Sequence[str] | None) -> dict[str, str]:
    """Read ``--param NAME=VALUE`` options."""
    try:
        return settings(given or ())
    except InstanceError as error:
        raise InstanceError(f"--param: {error}") from None


def counts(given: Sequence[str] | None, option: str) -> dict[str, float]:
    """Read options ``NAME=NUMBER``, each name once."""
    try:
        texts = settings(given or ())
    except InstanceError as error:
        raise InstanceError(f"{option}: {error}") from None
    out: dict[str, float] = {}
    for name, text in texts.items():
        try:
            out[name] = float(text)
        except ValueError:
            raise InstanceError(f"{option} {name}={text}: {text!r} is not a number") from None
    return out


def targets(given: Sequence[str] | None) -> dict[str, float] | None:
    """Read ``--target-ms``: a number for all under the name ``""``, or ``SERVICE=MS`` each."""
    if given is None:
        return None
    out: dict[str, float] = {}
    for text in given:
        name, sign, value = text.rpartition("=")
        name = name.strip() if sign else ""
        try:
            latency = float(value)
        except ValueError:
            raise InstanceError(f"--target-ms {text}: expected MS or SERVICE=MS") from None
        if not 0.0 < latency < float("inf"):
            raise InstanceError(f"--target-ms {text}: must be positive and finite")
        if name in out:
            raise InstanceError(f"--target-ms: {name or 'a number for all'} is given twice")
        out[name] = latency
    return out


def listed(text: str, option: str) -> list[str]:
    """Read names separated by commas; one that holds a comma stands in double quotes."""
    rows = list(csv.reader([text], skipinitialspace=True, strict=False))
    parts = [part.strip() for row in rows for part in row]
    if not parts or not all(parts):
        raise InstanceError(f"{option} {text!r}: an entry is empty")
    return parts


def seeds(text: str) -> list[int]:
    """Read ``FIRST:STOP`` (without STOP), or numbers with commas."""
    try:
        if ":" in text:
            first, stop = (int(part or 0) for part in text.split(":"))
            found = range(first, min(stop, first + _MOST_SEEDS + 1))
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError:
        raise InstanceError(f"--seeds {text!r}: expected FIRST:STOP or numbers") from None
    if len(found) > _MOST_SEEDS:
        raise InstanceError(f"--seeds {text!r}: more than {_MOST_SEEDS} seeds")
    if not found or min(found) < 0:
        raise InstanceError(f"--seeds {text!r}: names no seed from 0 on")
    return list(found)


def writable(**paths: Path | None) -> None:
    """Refuse files that cannot be written, before anything is written or run.

    Parameters
    ----------
    paths
        By option: ``memory_out=...`` is told as ``--memory-out``.
    """
    seen: dict[Path, str] = {}
    for name, path in paths.items():
        if path is None:
            continue
        option = f"--{name.replace('_', '-')}"
        where = f"{option} {path}"
        if path.is_dir():
            raise InstanceError(f"{where}: is a folder, not a file")
        if not path.parent.is_dir():
            raise InstanceError(f"{where}: there is no folder {path.parent}")
        if not os.access(path.parent, os.W_OK):
            raise InstanceError(f"{where}: the folder cannot be written to")
        if path.resolve() in seen:
            raise InstanceError(f"{where}: is the file of {seen[path.resolve()]} too")
        seen[path.resolve()] = option
