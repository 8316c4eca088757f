"""A fingerprint of a scenario, so that a journal is never continued under another one."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

from apportion.executor.fingerprint import feed, feed_table
from apportion.instances.microservices import Scenario

_TABLES = ("microservices", "services", "nodes", "linear", "observed")
_COLUMNS = ("containers", "cpu_cores", "memory_mib", "share_error", "now_s", "duration_s", "index")


def scenario_digest(scenario: Scenario) -> str:
    """SHA-256 of everything in a scenario that a run depends on.

    Returns
    -------
    str
        64 hexadecimal digits. The scenario's name and the policy it asks for are left out.
    """
    out, start = hashlib.sha256(b"microservices"), scenario.start
    for name in _TABLES:
        table: Any = getattr(start, name)
        if table is not None:
            feed_table(out, name, table)
    for field in fields(start.classes):
        if field.name != "trees":
            feed(out, f"classes.{field.name}", getattr(start.classes, field.name))
    feed_table(out, "trees", start.classes.trees)
    for name in _COLUMNS:
        feed(out, f"start.{name}", getattr(start, name))
    for name in ("rate_per_s", "share", "epoch", "seed", "options"):
        feed(out, name, getattr(scenario, name))
    if scenario.true_microservices is not None:
        feed_table(out, "truth", scenario.true_microservices)
    return out.hexdigest()
