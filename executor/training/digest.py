"""A fingerprint of a scenario, so that a journal is never continued under another one."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from apportion.instances.training import Scenario


def scenario_digest(scenario: Scenario) -> str:
    """SHA-256 of everything in a scenario that a run depends on.

    Returns
    -------
    str
        64 hexadecimal digits. The scenario's name and the policy it asks for are left out.
    """
    out = hashlib.sha256()
    for part in ("cluster", "jobs", "tenants"):
        table: Any = getattr(scenario, part)
        for field in fields(table):
            _feed(out, f"{part}.{field.name}", getattr(table, field.name))
    for name in ("epoch", "seed", "options", "true_work", "true_throughput_per_s"):
        _feed(out, name, getattr(scenario, name))
    if scenario.true_curves is not None:
        for field in fields(scenario.true_curves):
            _feed(out, f"true_curves.{field.name}", getattr(scenario.true_curves, field.name))
    return out.hexdigest()


def _feed(out: Any, name: str, value: object) -> None:
    out.update(f"{name}:".encode())
    if not isinstance(value, np.ndarray):
        out.update(repr(value).encode())
        return
    array = cast("NDArray[Any]", value)
    out.update(f"{array.dtype.kind}{array.shape}".encode())
    if array.dtype.kind == "U":
        # the width of the column depends on the longest name anywhere; the names do not
        out.update("\0".join(array.ravel().tolist()).encode())
    else:
        out.update(np.ascontiguousarray(array).tobytes())
