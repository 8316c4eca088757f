"""A fingerprint of a scenario, so that a journal is never continued under another one."""

from __future__ import annotations

import hashlib

from apportion.executor.fingerprint import feed, feed_table
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
        feed_table(out, part, getattr(scenario, part))
    for name in ("epoch", "seed", "options", "true_work", "true_throughput_per_s"):
        feed(out, name, getattr(scenario, name))
    if scenario.true_curves is not None:
        feed_table(out, "true_curves", scenario.true_curves)
    return out.hexdigest()
