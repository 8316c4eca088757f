"""Random numbers: one stream for each purpose, so that changing one does not move another."""

from __future__ import annotations

import numpy as np

PURPOSES = (
    "arrivals", "bursts", "gangs", "work", "models", "throughput", "tenants", "work_noise",
    "throughput_noise", "slo", "soft", "slack", "call_graphs", "rates", "class_shares",
    "latency_model", "requests", "service_times", "class_draws",
    "model_error",
)  # fmt: skip
"""What the streams are for. The place in this list is the spawn key: only ever append."""


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Open the stream of one purpose under a root seed.

    Parameters
    ----------
    seed
        Root seed, not negative.
    purpose
        One of ``PURPOSES``.
    """
    key = PURPOSES.index(purpose)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(key,)))
