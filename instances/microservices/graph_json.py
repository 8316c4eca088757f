"""Call graphs with branches as JSON files: ``"schema": "apportion/graph/1"``.

A graph says what a request may do; ``expand`` turns it into the classes of a round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, read_json, shown
from apportion.instances.microservices.class_merge import LEAST_SHARE, MOST_CLASSES, RESTS
from apportion.instances.microservices.expand import expand
from apportion.instances.microservices.microservices import Microservices
from apportion.instances.microservices.round import MicroserviceRound
from apportion.instances.microservices.round_columns import (
    MICROSERVICES,
    SERVICES,
    columns_from_dict,
)
from apportion.instances.microservices.services import Services
from apportion.instances.plain_data import known_keys, plain_value
from apportion.instances.versions import Migration, migrated

VERSION = 1
MIGRATIONS: Mapping[int, Migration] = {}
"""For each older version of the format, the step to the next one."""

GRAPH_KEYS = (
    "schema", "family", "microservices", "services", "trees", "joint", "most_classes",
    "least_share", "rest",
)  # fmt: skip


def read_graph(path: PathLike) -> MicroserviceRound:
    """Read call graphs from a JSON file and expand them.

    Raises
    ------
    InstanceError
        In one line: file, object, field, index, value, and the nearest known spelling.
    """
    data = read_json(path)
    with naming(path):
        return graph_from_dict(data)


def graph_from_dict(data: object) -> MicroserviceRound:
    """Make a round from plain data.

    Parameters
    ----------
    data
        ``microservices`` and ``services`` are columns as in a round; ``trees`` holds the stages
        of each service, with branches, and ``joint`` the branches that depend on one another, as
        ``expand`` says; ``most_classes``, ``least_share`` and ``rest`` are its parameters.

    Returns
    -------
    MicroserviceRound
        With what was dropped added to the services' ``unmodelled_share``.
    """
    section = known_keys(migrated(data, "graph", VERSION, MIGRATIONS), GRAPH_KEYS, "graph")
    family = section.get("family")
    if family != MicroserviceRound.family:
        hint = nearest(family, [MicroserviceRound.family]) if isinstance(family, str) else ""
        raise InstanceError(f"graph.family = {shown(family)}: expected 'microservices'{hint}")
    for name in ("microservices", "services", "trees"):
        if name not in section:
            raise InstanceError(f"graph.{name} is missing")
    microservices = Microservices(
        **columns_from_dict(section["microservices"], MICROSERVICES, "microservices")
    )
    services = Services(**columns_from_dict(section["services"], SERVICES, "services"))
    names: list[str] = services.id.tolist()
    trees = known_keys(section["trees"], tuple(names), "trees")
    for name in names:
        if name not in trees:
            raise InstanceError(f"trees.{name} is missing")
    joint = section.get("joint", {})
    if not isinstance(joint, dict):
        raise InstanceError(f"joint: expected an object, got {shown(joint)}")
    merged = expand(
        {name: trees[name] for name in names},
        microservices.id.tolist(),
        joint=cast("dict[str, Any]", joint),
        **_parameters(section),
    )
    own = services.unmodelled_share
    lost = own + (1.0 - own) * merged.unmodelled_share
    share = merged.classes.share * (1.0 - own)[merged.classes.service]
    return MicroserviceRound(
        microservices,
        replace(services, unmodelled_share=np.minimum(lost, 1.0)),
        merged.classes.with_share(np.minimum(share, 1.0)),
    )


def _parameters(section: dict[str, Any]) -> dict[str, Any]:
    least = plain_value(section.get("least_share", LEAST_SHARE), "float", "graph.least_share")
    rest = plain_value(section.get("rest", RESTS[0]), "name", "graph.rest")
    most = section.get("most_classes", MOST_CLASSES)
    if type(most) is not int:
        raise InstanceError(f"graph.most_classes = {shown(most)}: must be a whole number")
    return {"most_classes": most, "least_share": least, "rest": rest}
