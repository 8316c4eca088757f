"""Names of file formats and the way from older versions to the present one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from apportion.instances.errors import InstanceError
from apportion.instances.files import shown

Migration: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


def schema_name(kind: str, version: int) -> str:
    """Spell the name of a format: ``"apportion/round/1"``."""
    return f"apportion/{kind}/{version}"


def migrated(
    data: object, kind: str, version: int, migrations: Mapping[int, Migration]
) -> dict[str, Any]:
    """Bring a file's content to the present version of its format.

    Parameters
    ----------
    data
        What the file holds; its key ``schema`` names format and version.
    kind, version
        The format and its present version.
    migrations
        For each older version, the step to the next one.

    Returns
    -------
    dict
        The content without the key ``schema``.

    Raises
    ------
    InstanceError
        On another format, a missing or misspelt name, and versions newer than this one.
    """
    present = schema_name(kind, version)
    if not isinstance(data, dict):
        raise InstanceError(f"expected an object with schema {present!r}, got {shown(data)}")
    content = dict(cast(dict[str, Any], data))
    if "schema" not in content:
        raise InstanceError(f"the key 'schema' is missing; expected {present!r}")
    name = content.pop("schema")
    match = (
        re.fullmatch(rf"apportion/{kind}/([1-9][0-9]*)", name) if isinstance(name, str) else None
    )
    if match is None:
        raise InstanceError(f"schema = {shown(name)}: expected {present!r}")
    found = int(match.group(1))
    if found > version:
        raise InstanceError(
            f"schema = {shown(name)}: a later version than this apportion reads ({present!r});"
            " install a newer one"
        )
    for step in range(found, version):
        if step not in migrations:
            raise InstanceError(f"schema = {shown(name)}: version {step} is no longer read")
        content = migrations[step](content)
    return content
