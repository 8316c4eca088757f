"""Request rates by round: constant, a day's sine, lists, and columns of a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Floats
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import naming, read_text, shown, spelt
from apportion.instances.microservices.services import Services
from apportion.instances.streams import stream

DEFAULT_ROUNDS = 30
DAY_S = 86400.0

Section = Mapping[str, Any]


def request_rates(
    section: Section, services: Services, duration_s: float, seed: int, folder: Path | None
) -> Floats:
    """Make the rates that ``[rates]`` of a scenario describes.

    Parameters
    ----------
    section
        The checked table.
    services
        The services, with the rates that hold where the table names none.
    duration_s
        Length of a round.
    seed
        Root seed of the noise.
    folder
        Where paths start; None: no file may be named.

    Returns
    -------
    ndarray
        Requests per second, shape (T, S).
    """
    match section["kind"]:
        case "constant":
            rates = np.tile(_mean(section, services), (_rounds(section), 1))
        case "sine":
            rates = _sine(section, services, duration_s)
        case "list":
            rates = _listed(section, services)
        case _:
            rates = _from_csv(section, services, folder)
    spread = section.get("noise", 0.0)
    if spread:
        # log-normal of mean 1, so that the rates asked for are met on average
        noise = stream(seed, "rates").normal(-0.5 * spread**2, spread, rates.shape)
        rates = rates * np.exp(noise)
    return rates


def _rounds(section: Section) -> int:
    return section.get("rounds", DEFAULT_ROUNDS)


def by_name(value: Any, default: Floats, names: Sequence[str], where: str, what: str) -> Floats:
    """Take a number for all, numbers by name, or the defaults where nothing is given."""
    out = default.copy()
    if isinstance(value, Mapping):
        row = {name: at for at, name in enumerate(names)}
        for name, item in cast(Mapping[str, Any], value).items():
            if name not in row:
                raise InstanceError(f"{where}.{spelt(name)}: unknown {what}{nearest(name, row)}")
            out[row[name]] = item
    elif value is not None:
        out[:] = value
    return out


def _mean(section: Section, services: Services) -> Floats:
    names = services.id.tolist()
    return by_name(section.get("per_s"), services.rate_per_s, names, "rates.per_s", "service")


def _sine(section: Section, services: Services, duration_s: float) -> Floats:
    middle = (np.arange(_rounds(section)) + 0.5) * duration_s  # a round is met at its middle
    turns = (middle - section.get("phase_s", 0.0)) / section.get("period_s", DAY_S)
    wave = 1.0 + section.get("amplitude", 0.5) * np.sin(2.0 * np.pi * turns)
    # a sine at -1 and a share of 1 may leave a rounding error below zero
    return np.maximum(wave, 0.0)[:, None] * _mean(section, services)


def of_every(rows: Sequence[Section], names: Sequence[str], where: str, what: str) -> list[Section]:
    """Order rows by name; every name must have one row and no other may.

    Raises
    ------
    InstanceError
        On unknown, repeated and missing names.
    """
    found: dict[str, Section] = {}
    for index, row in enumerate(rows):
        name = row["name"]
        if name not in names:
            raise InstanceError(
                f"{where}[{index}].name = {name!r}: unknown {what}{nearest(name, names)}"
            )
        if name in found:
            raise InstanceError(f"{where}[{index}].name = {name!r}: already used")
        found[name] = row
    for name in names:
        if name not in found:
            raise InstanceError(f"{where}: {what} {name!r} is missing")
    return [found[name] for name in names]


def equal_lengths(lists: Sequence[list[float]], names: Sequence[str], where: str) -> int:
    """Give the common length of lists by round, or say which differs from the first."""
    for name, one in zip(names, lists, strict=True):
        if len(one) != len(lists[0]):
            raise InstanceError(
                f"{where}: {name!r} has {len(one)} rounds, {names[0]!r} has {len(lists[0])}"
            )
    return len(lists[0]) if lists else 0


def _listed(section: Section, services: Services) -> Floats:
    names: list[str] = services.id.tolist()
    where = "rates.service"
    rows = of_every(section.get("service", []), names, where, "service")
    lists = [row["per_s"] for row in rows]
    equal_lengths(lists, names, where)
    return _cut(np.array(lists, dtype=np.float64).T, section)


def _cut(rates: Any, section: Section) -> Floats:
    rounds = section.get("rounds", rates.shape[0])
    if rounds > rates.shape[0]:
        raise InstanceError(f"rates.rounds = {rounds}: there are {rates.shape[0]}")
    return cast(Floats, rates[:rounds])


def _from_csv(section: Section, services: Services, folder: Path | None) -> Floats:
    if folder is None:
        raise InstanceError("rates.path: a scenario that comes with the package has no folder")
    path = folder / section["path"]
    names: list[str] = services.id.tolist()
    column = {name: name for name in names}
    for index, row in enumerate(section.get("service", [])):
        if row["name"] not in column:
            hint = nearest(row["name"], names)
            where = f"rates.service[{index}].name"
            raise InstanceError(f"{where} = {row['name']!r}: unknown service{hint}")
        column[row["name"]] = row["column"]
    with naming(path):
        rates = _columns(read_text(path), [column[name] for name in names])
        peak = rates.max(axis=0)
        wanted = by_name(section.get("peak_per_s"), peak, names, "rates.peak_per_s", "service")
        flat = np.flatnonzero((peak == 0) & (wanted > 0))
        if flat.size:
            raise InstanceError(f"{column[names[int(flat[0])]]!r} is all zero: it has no peak")
    scale = np.divide(wanted, peak, out=np.ones_like(peak), where=peak > 0)
    return _cut(rates * scale, section)


def _columns(text: str, wanted: Sequence[str]) -> Floats:
    """Read columns of numbers, not negative, from a table with a header."""
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise InstanceError(f"not a CSV table: {error}") from None
    head = rows[0]
    for name in wanted:
        if name not in head:
            raise InstanceError(f"the column {name!r} is missing{nearest(name, head)}")
    place = [head.index(name) for name in wanted]
    out: list[list[float]] = []
    for line, row in enumerate(rows[1:], start=2):
        if not row:
            continue  # an empty line at the end
        if len(row) != len(head):
            raise InstanceError(f"line {line} has {len(row)} fields, the header has {len(head)}")
        out.append([_number(row[at], line, head[at]) for at in place])
    if not out:
        raise InstanceError("holds no rounds, only a header")
    return np.array(out, dtype=np.float64)


def _number(text: str, line: int, column: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not (np.isfinite(value) and value >= 0):
        rule = "must be a number, not negative"
        raise InstanceError(f"line {line}: {column} = {shown(text)}: {rule}")
    return value
