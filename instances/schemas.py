"""The published JSON Schemas of our files, draft 2020-12.

The committed files under ``schemas/`` are made from the very tables the readers use; a test keeps
the two equal. After a change of the tables, from the root of a checkout::

    python -c "from apportion.instances import schemas; schemas.publish('instances/schemas')"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from apportion.instances.files import PathLike, write_bytes
from apportion.instances.microservices import round_schema as of_rounds
from apportion.instances.microservices import scenario_keys as of_scenarios
from apportion.instances.training.round_schema import jobs_file_schema, round_schema_from_tables
from apportion.instances.training.scenario_keys import scenario_schema_from_tables

NAMES = (
    "round-1", "jobs-1", "scenario-1", "graph-1", "microservices-round-1",
    "microservices-scenario-1",
)  # fmt: skip
"""The schemas there are: format and version."""


def round_schema() -> dict[str, Any]:
    """Read the schema of a round file."""
    return published("round-1")


def jobs_schema() -> dict[str, Any]:
    """Read the schema of a file of jobs."""
    return published("jobs-1")


def scenario_schema() -> dict[str, Any]:
    """Read the schema of a scenario, as its TOML reads into plain data."""
    return published("scenario-1")


def published(name: str) -> dict[str, Any]:
    """Read a published schema.

    Parameters
    ----------
    name
        One of ``NAMES``.
    """
    item = resources.files("apportion.instances").joinpath("schemas", f"{name}.json")
    return json.loads(item.read_text(encoding="utf-8"))


def generated(name: str) -> dict[str, Any]:
    """Make a schema from the tables of the readers; see ``published``."""
    return _MAKERS[name]()


def publish(folder: PathLike) -> None:
    """Write every schema, as generated, into a folder."""
    for name in NAMES:
        text = json.dumps(generated(name), indent=1) + "\n"
        write_bytes(Path(folder) / f"{name}.json", text.encode())


_MAKERS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "round-1": round_schema_from_tables,
    "jobs-1": jobs_file_schema,
    "scenario-1": scenario_schema_from_tables,
    "graph-1": of_rounds.graph_schema_from_tables,
    "microservices-round-1": of_rounds.round_schema_from_tables,
    "microservices-scenario-1": of_scenarios.scenario_schema_from_tables,
}
