"""Which family an object or a file belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from apportion.families.family import Family
from apportion.families.microservices import MICROSERVICES
from apportion.families.training import TRAINING
from apportion.instances import InstanceError
from apportion.instances.errors import nearest
from apportion.instances.files import PathLike, naming, read_json, shown, write_json
from apportion.instances.scenario_file import open_scenario
from apportion.instances.training import TrainingRound

FAMILIES: Mapping[str, Family] = {one.name: one for one in (TRAINING, MICROSERVICES)}
"""All families by name."""


def family_of(thing: object) -> Family:
    """Find the family of a round or a scenario.

    Raises
    ------
    InstanceError
        If it is neither.
    """
    for family in FAMILIES.values():
        if isinstance(thing, (family.round_type, family.scenario_type)):
            return family
    raise InstanceError(f"{type(thing).__name__}: neither a round nor a scenario of any family")


def family_in(data: object, where: str) -> Family:
    """Find the family that the content of a file names.

    Content without a family is taken for the first one's: its reader says what is missing.

    Raises
    ------
    InstanceError
        On a name that no family has, with the nearest one.
    """
    name = cast("dict[str, Any]", data).get("family") if isinstance(data, dict) else None
    if not isinstance(name, str):
        return TRAINING
    if name not in FAMILIES:
        hint = nearest(name, FAMILIES)
        expected = " or ".join(repr(one) for one in FAMILIES)
        raise InstanceError(
            f"{where} = {shown(name)}: expected {expected}{hint if 'did you mean' in hint else ''}"
        )
    return FAMILIES[name]


def is_scenario(thing: object) -> bool:
    """Tell a scenario from the path of one."""
    return isinstance(thing, tuple(family.scenario_type for family in FAMILIES.values()))


def the_round(round_: Any) -> Any:
    """Take a round as it is, or read the file of one.

    Raises
    ------
    InstanceError
        On what is neither, and on files as ``read_round`` says.
    """
    if isinstance(round_, str | Path):
        return read_round(round_)
    return checked(round_)


def checked(round_: Any) -> Any:
    """Refuse what is not a round.

    Raises
    ------
    InstanceError
        Naming what was given.
    """
    kinds = tuple(family.round_type for family in FAMILIES.values())
    if not isinstance(round_, kinds):
        raise InstanceError(f"round: {type(round_).__name__} is neither a round nor a path")
    return round_


def training_round(round_: Any, question: str) -> TrainingRound:
    """Take or read a round of training jobs, for what is asked of those only.

    Parameters
    ----------
    round_
        A round, or the path of a round file.
    question
        What is asked, for the message.

    Raises
    ------
    InstanceError
        On a round of another family.
    """
    asked = the_round(round_)
    if not isinstance(asked, TrainingRound):
        name = family_of(asked).name
        raise InstanceError(
            f"{question}: is asked of {TRAINING.name} rounds only, this is a {name} round"
        )
    return asked


def read_round(path: PathLike) -> Any:
    """Read a round of any family from a JSON file, packed where its name ends in ``.gz``.

    Raises
    ------
    InstanceError
        In one line: file, object, field, index, value, and the nearest known spelling.
    """
    data = read_json(path)
    with naming(path):
        return family_in(data, "round.family").files.round_from_dict(data)


def write_round(round_: Any, path: PathLike) -> None:
    """Write a round to a JSON file, whole or not at all; reading it back gives an equal one."""
    write_json(path, family_of(checked(round_)).files.round_to_dict(round_))


def scenario_family(path: PathLike) -> Family:
    """Find the family of a scenario file, folder or bundled name by its key ``family``.

    Raises
    ------
    InstanceError
        On what cannot be read, and on a name that no family has, with the nearest one.
    """
    file = open_scenario(path)
    with naming(file.label):
        return family_in(file.base, "family")


def read_scenario(
    path: PathLike,
    *,
    variant: str | None = None,
    seed: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Any:
    """Read a scenario of any family.

    Parameters
    ----------
    path
        A TOML file, a folder that holds a ``scenario.toml``, or the name of a bundled scenario
        such as ``"demo"``. Paths inside the file start at its folder.
    variant
        Name of one of its variants; None: the scenario as it stands.
    seed
        Replaces the file's seed.
    overrides
        Tables like those of a variant, applied last.

    Raises
    ------
    InstanceError
        In one line: file, path of the table, key, value, and for unknown keys and names the
        nearest known one.
    """
    runs = scenario_family(path).runs
    return runs.read_scenario(path, variant=variant, seed=seed, overrides=overrides)
