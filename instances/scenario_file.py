"""Scenario files of every family: opening them, their what-ifs and the caller's overrides."""

from __future__ import annotations

import contextlib
import datetime
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, cast

from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, read_text, shown
from apportion.instances.scenario_merge import Kinds, merged
from apportion.instances.versions import Migration, migrated

VERSION = 1
MIGRATIONS: Mapping[int, Migration] = {}
"""For each older version of the format, the step to the next one."""

BASE = "base"
"""Name of the scenario without a variant, which no variant may bear."""

DEFAULT_FAMILY = "training"
"""Family of a scenario that names none."""

Content = dict[str, Any]


@dataclass(frozen=True)
class ScenarioFile:
    """A scenario file as it was read, nothing below its top level checked.

    Parameters
    ----------
    label
        Its name in errors.
    folder
        Where paths inside it start; None: it comes with the package.
    base
        Its tables, without ``schema`` and variants.
    variants
        What differs in each variant, in the order of the file.
    """

    label: str
    folder: Path | None
    base: Content
    variants: dict[str, Content]

    @property
    def family(self) -> str:
        """Family of the rounds, as the file spells it."""
        family = self.base.get("family", DEFAULT_FAMILY)
        return family if isinstance(family, str) else shown(family)


def bundled_names(family: str | None = None) -> tuple[str, ...]:
    """List the scenarios that come with the package, those of one family or all."""
    found = resources.files("apportion.instances").joinpath("bundled").iterdir()
    names = sorted(Path(item.name).stem for item in found if item.name.endswith(".toml"))
    return tuple(name for name in names if family is None or _bundled(name).family == family)


def open_scenario(path: PathLike) -> ScenarioFile:
    """Open a scenario: a TOML file, a folder with a ``scenario.toml``, or a bundled name.

    Raises
    ------
    InstanceError
        Where there is no such file, or it is not TOML of our format.
    """
    place = Path(path)
    known = bundled_names()
    if isinstance(path, str) and path in known and not place.exists():
        return _bundled(path)
    if place.is_dir():
        place = place / "scenario.toml"
        if not place.exists():
            raise InstanceError(f"{path}: the folder holds no scenario.toml")
    with naming(path):
        if isinstance(path, str) and not place.exists() and place.name == path and not place.suffix:
            raise InstanceError(f"no such file, and no bundled scenario{nearest(path, known)}")
        text = read_text(place)
    return _split(str(place), place.parent, text)


def variant_names(path: PathLike) -> tuple[str, ...]:
    """List the variants of a scenario, in the order of the file.

    Raises
    ------
    InstanceError
        Where the file cannot be read, as ``open_scenario`` says.
    """
    return tuple(open_scenario(path).variants)


def _bundled(name: str) -> ScenarioFile:
    item = resources.files("apportion.instances").joinpath("bundled", f"{name}.toml")
    return _split(f"{name}.toml (bundled)", None, item.read_text(encoding="utf-8"))


def _split(label: str, folder: Path | None, text: str) -> ScenarioFile:
    with naming(label):
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InstanceError(f"not TOML: {error}") from None
        except RecursionError:
            raise InstanceError("not read: the TOML is nested too deeply") from None
        base = migrated(data, "scenario", VERSION, MIGRATIONS)
        return ScenarioFile(label, folder, base, _variants(base.pop("variant", [])))


def _variants(rows: Any) -> dict[str, Content]:
    if not isinstance(rows, list):
        raise InstanceError(f"variant: expected a list of tables [[variant]], got {shown(rows)}")
    out: dict[str, Content] = {}
    for index, row in enumerate(cast(list[Any], rows)):
        patch = dict(cast(Content, row)) if isinstance(row, dict) else {}
        name = patch.pop("name", None)
        if not isinstance(name, str) or not name:
            raise InstanceError(f"variant[{index}].name = {shown(name)}: must be a string")
        if name in out:
            raise InstanceError(f"variant[{index}].name = {name!r}: already used")
        if name == BASE:
            raise InstanceError(
                f"variant[{index}].name = {name!r}: names the scenario as it is; give it another"
                " name"
            )
        for key in ("schema", "family"):
            if key in patch:
                raise InstanceError(f"variant {name!r}: {key}: a variant cannot change it")
        out[name] = patch
    return out


@dataclass(frozen=True)
class Rules:
    """What a family asks of a scenario's tables.

    Parameters
    ----------
    family
        Its name.
    check
        Checks every key and value of the whole and passes what was read.
    check_variant
        What more is checked of a variant, whether it was asked for or not.
    kinds
        Tables that lose what an override of their kind makes meaningless; see ``merged``.
    """

    family: str
    check: Callable[[Content], Content]
    check_variant: Callable[[Content], None]
    kinds: Kinds


def chosen(
    file: ScenarioFile,
    rules: Rules,
    *,
    variant: str | None,
    seed: int | None,
    overrides: Mapping[str, Any] | None,
) -> Content:
    """Check a whole file and pass the tables of one variant, overridden.

    Parameters
    ----------
    file, rules
        The file, and what its family asks of it.
    variant
        Name of one of its variants; None: the scenario as it stands.
    seed
        Replaces the file's seed.
    overrides
        Tables like those of a variant, applied last.

    Raises
    ------
    InstanceError
        On whatever the rules refuse, in variants that were not asked for too. The file is not
        named: wrap the call in ``naming``.
    """
    if file.family != rules.family:  # before its tables are taken for misspelt ones
        raise InstanceError(f"family = {shown(file.family)}{nearest(file.family, [rules.family])}")
    content = rules.check(file.base)
    checked: dict[str, Content] = {}
    for name, patch in file.variants.items():
        with naming(f"variant {name!r}"):
            checked[name] = rules.check(merged(file.base, patch, rules.kinds))
            rules.check_variant(checked[name])
    if variant is not None:
        if variant not in checked:
            raise InstanceError(f"unknown variant {variant!r}{nearest(variant, checked)}")
        content = checked[variant]
    if overrides:
        with naming("overrides"):
            patch = {} if variant is None else file.variants[variant]
            raw = merged(file.base, patch, rules.kinds)
            content = rules.check(merged(raw, overrides, rules.kinds))
    if seed is not None:
        content["seed"] = _seed(seed)
    return content


def naming_variant(variant: str | None) -> contextlib.AbstractContextManager[None]:
    """Put the name of a variant, if there is one, before every error raised inside."""
    return contextlib.nullcontext() if variant is None else naming(f"variant {variant!r}")


def spelt_out(content: Content) -> Content:
    """Spell the epoch as text: TOML has instants of its own."""
    epoch = content.get("epoch")
    return (
        {**content, "epoch": epoch.isoformat()} if isinstance(epoch, datetime.datetime) else content
    )


def _seed(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InstanceError(f"seed = {shown(seed)}: must be a whole number, not negative")
    return seed
