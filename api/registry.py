"""Policies by name: the built-in ones and those that installed packages bring."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from apportion.families.family import Family
from apportion.families.lookup import FAMILIES
from apportion.families.training import TRAINING
from apportion.instances import InstanceError, Policy
from apportion.instances.errors import nearest

log = logging.getLogger("apportion.registry")

ENTRY_POINTS = "apportion.policies"
"""Entry-point group under which other packages register their policy classes."""

_BUILT_IN: tuple[type[Any], ...] = tuple(
    policy for family in FAMILIES.values() for policy in family.policies
)


def policy_classes() -> dict[str, type[Any]]:
    """Give all registered policy classes by name, the built-in ones first.

    A class from another package never replaces a built-in one of the same name. One that cannot
    be loaded is left out, with a warning in the log: it must not stop the others.
    """
    out: dict[str, type[Any]] = {cls.name: cls for cls in _BUILT_IN}
    for name, point in _registered().items():
        try:
            out[name] = _loaded(point)
        except InstanceError as error:
            log.warning("%s", error)
    return out


def policy_class(name: str) -> type[Any]:
    """Find a policy class by name.

    Raises
    ------
    InstanceError
        On an unknown name, with the nearest known one, or on one whose package cannot be loaded.
    """
    known = {str(cls.name): cls for cls in _BUILT_IN}
    if name in known:
        return known[name]
    others = _registered()
    if name not in others:
        raise InstanceError(f"policy: {name!r} is not known{nearest(name, [*known, *others])}")
    return _loaded(others[name])


def _registered() -> dict[str, EntryPoint]:
    """Entry points of other packages by name; where two share one, the first package by name."""
    taken = {cls.name for cls in _BUILT_IN}
    out: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda p: (p.name, p.value)):
        if point.name not in taken:
            out.setdefault(point.name, point)
    return out


def _loaded(point: EntryPoint) -> type[Any]:
    where = f"policy {point.name!r} ({point.value})"
    try:
        cls: Any = point.load()
    except Exception as error:  # whatever a stranger's module does when it is imported
        raise InstanceError(
            f"{where}: cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        raise InstanceError(f"{where}: is not a dataclass of parameters")
    if getattr(cls, "name", None) != point.name:
        raise InstanceError(f"{where}: calls itself {getattr(cls, 'name', None)!r}")
    return cast("type[Any]", cls)


def make_policy(
    policy: str | Policy | type[Any], parameters: Mapping[str, Any] | None = None
) -> Policy:
    """Make a policy from a name and parameters, or take one as it is.

    Parameters
    ----------
    policy
        A registered name, a policy class, or a policy.
    parameters
        Values by name. Text is read as the kind of the parameter's default, so that values from
        a command line and from a file mean the same.

    Raises
    ------
    InstanceError
        On unknown names or unusable values.
    """
    given = dict(parameters or {})
    if not isinstance(policy, str | type):
        if not given:
            return policy
        changed = _read(type(policy), given, policy.name)
        return cast(Policy, dataclasses.replace(cast(Any, policy), **changed))
    cls = policy_class(policy) if isinstance(policy, str) else policy
    read = _read(cls, given, str(cls.name))
    for name, default in parameters_of(cls).items():
        if default is dataclasses.MISSING and name not in read:
            raise InstanceError(f"{cls.name}.{name}: has no default and is not given")
    return cast(Policy, cls(**read))


def family_name(policy: Policy | type[Any]) -> str:
    """Name the family whose rounds a policy decides; one that says nothing decides training jobs."""
    return str(getattr(policy, "family", TRAINING.name))


def made_for(
    family: Family, policy: str | Policy | type[Any] | None,
    parameters: Mapping[str, Any] | None = None,
) -> Policy:  # fmt: skip
    """Make a policy for rounds of a family; None stands for the family's default.

    Raises
    ------
    InstanceError
        As ``make_policy``, and on a policy of another family, with those that fit.
    """
    asked = family.default_policy if policy is None else policy
    chosen: Any = policy_class(asked) if isinstance(asked, str) else asked
    of = family_name(chosen)
    if of != family.name:
        fit = [name for name, cls in policy_classes().items() if family_name(cls) == family.name]
        raise InstanceError(
            f"policy {chosen.name!r} is for {of}, the question is one of {family.name};"
            f" policies that fit: {', '.join(fit)}"
        )
    return make_policy(asked, parameters)


def parameters_of(policy: Policy | type[Any]) -> dict[str, Any]:
    """Give the parameters of a policy, or the defaults of a policy class, by name.

    A parameter without a default is ``dataclasses.MISSING``.
    """
    fields = [field for field in dataclasses.fields(cast(Any, policy)) if field.init]
    if not isinstance(policy, type):
        return {field.name: getattr(policy, field.name) for field in fields}
    return {
        field.name: (
            field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
        )
        for field in fields
    }


def told_parameters(policy: Policy) -> dict[str, Any]:
    """Give the parameters of a policy as JSON can hold them; other values are spelt as text."""
    return {name: _told(value) for name, value in parameters_of(policy).items()}


def _told(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value


def label_of(policy: Policy) -> str:
    """Name a policy with the parameters that are not at their defaults."""
    plain = parameters_of(type(policy))
    return ":".join(
        [policy.name]
        + [f"{key}={value}" for key, value in parameters_of(policy).items() if value != plain[key]]
    )


def policy_from_label(label: str) -> tuple[str, dict[str, str]]:
    """Split ``"fft:fairness_weight=0:units=normalised"`` into name and parameters."""
    name, *parts = label.split(":")
    try:
        return name.strip(), settings(parts)
    except InstanceError as error:
        raise InstanceError(f"policy {label!r}: {error}") from None


def settings(parts: Iterable[str]) -> dict[str, str]:
    """Read texts ``NAME=VALUE``, each name once."""
    given: dict[str, str] = {}
    for part in parts:
        key, sign, value = part.partition("=")
        if not sign or not key.strip():
            raise InstanceError(f"{part!r} is not PARAMETER=VALUE")
        if key.strip() in given:
            raise InstanceError(f"{key.strip()!r} is given twice")
        given[key.strip()] = value.strip()
    return given


def _read(cls: type[Any], given: Mapping[str, Any], name: str) -> dict[str, Any]:
    known = parameters_of(cls)
    out: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise InstanceError(f"{name}: unknown parameter {key!r}{nearest(key, known)}")
        out[key] = _like(known[key], value, f"{name}.{key}")
    return out


def _like(default: Any, value: Any, where: str) -> Any:
    """Read a value as the kind of thing the default is."""
    if default is None or default is dataclasses.MISSING:
        return value
    if isinstance(default, bool):
        read = {"true": True, "false": False}.get(str(value).lower())
        if read is None:
            raise InstanceError(f"{where} = {value!r}: must be true or false")
        return read
    if isinstance(default, int | float):
        return _number_like(default, value, where)
    if type(value) is not type(default):
        raise InstanceError(f"{where} = {value!r}: must be like {default!r}")
    return value


def _number_like(default: float, value: Any, where: str) -> Any:
    what = "a whole number" if isinstance(default, int) else "a number"
    if isinstance(value, bool):
        raise InstanceError(f"{where} = {value!r}: must be {what}")
    try:
        read = type(default)(value)
    except (TypeError, ValueError, OverflowError):
        raise InstanceError(f"{where} = {value!r}: must be {what}") from None
    if not isinstance(value, str) and read != value:
        raise InstanceError(f"{where} = {value!r}: must be {what}")
    return read
