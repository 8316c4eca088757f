"""Policies by name: the built-in ones and those that installed packages bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, cast

from apportion.formulations.training import FFT, FIFO, SRTF
from apportion.instances import InstanceError, Policy
from apportion.instances.errors import nearest

ENTRY_POINTS = "apportion.policies"
"""Entry-point group under which other packages register their policy classes."""

_BUILT_IN: tuple[type[Any], ...] = (FFT, SRTF, FIFO)


def policy_classes() -> dict[str, type[Any]]:
    """Give all registered policy classes by name, the built-in ones first.

    A class from another package never replaces a built-in one of the same name.
    """
    out: dict[str, type[Any]] = {cls.name: cls for cls in _BUILT_IN}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda found: found.name):
        if point.name not in out:
            out[point.name] = cast("type[Any]", point.load())
    return out


def policy_class(name: str) -> type[Any]:
    """Find a policy class by name.

    Raises
    ------
    InstanceError
        On an unknown name, with the nearest known one.
    """
    known = policy_classes()
    if name not in known:
        raise InstanceError(f"policy: {name!r} is not known{nearest(name, known)}")
    return known[name]


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
        name = policy.name
        return cast(
            Policy, dataclasses.replace(cast(Any, policy), **_read(type(policy), given, name))
        )
    cls = policy_class(policy) if isinstance(policy, str) else policy
    return cast(Policy, cls(**_read(cls, given, str(cls.name))))


def parameters_of(policy: Policy | type[Any]) -> dict[str, Any]:
    """Give the parameters of a policy, or the defaults of a policy class, by name."""
    if isinstance(policy, type):
        return {field.name: field.default for field in dataclasses.fields(policy)}
    return {
        field.name: getattr(policy, field.name) for field in dataclasses.fields(cast(Any, policy))
    }


def policy_from_label(label: str) -> tuple[str, dict[str, str]]:
    """Split ``"fft:fairness_weight=0:units=normalised"`` into name and parameters."""
    name, *parts = label.split(":")
    given: dict[str, str] = {}
    for part in parts:
        key, sign, value = part.partition("=")
        if not sign or not key:
            raise InstanceError(f"policy {label!r}: expected NAME:PARAMETER=VALUE, got {part!r}")
        given[key.strip()] = value.strip()
    return name.strip(), given


def _read(cls: type[Any], given: Mapping[str, Any], name: str) -> dict[str, Any]:
    known = {field.name: field.default for field in dataclasses.fields(cls)}
    out: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise InstanceError(f"{name}: unknown parameter {key!r}{nearest(key, known)}")
        out[key] = _like(known[key], value, f"{name}.{key}")
    return out


def _like(default: Any, value: Any, where: str) -> Any:
    """Read a value as the kind of thing the default is."""
    try:
        if isinstance(default, bool):
            if isinstance(value, bool):
                return value
            return {"true": True, "false": False}[str(value).lower()]
        if isinstance(default, int | float) and not isinstance(value, bool):
            return type(default)(value)
    except (KeyError, TypeError, ValueError):
        kind = "true or false" if isinstance(default, bool) else "a number"
        raise InstanceError(f"{where} = {value!r}: must be {kind}") from None
    if type(value) is not type(default) and default is not None:
        raise InstanceError(f"{where} = {value!r}: must be like {default!r}")
    return value
