"""Real speeds of the jobs of a run, and which jobs could run at all."""

from __future__ import annotations

from typing import cast

import numpy as np

from apportion.executor.training.records import Run
from apportion.instances.columns import Bools, Floats
from apportion.instances.training.jobs import NEVER


def usable_throughput_per_s(run: Run) -> Floats:
    """Take the real throughput of each gang on each type, 0 where the gang does not fit.

    Returns
    -------
    Floats
        Shape (n, k), work units a second.
    """
    scenario = run.scenario
    jobs, cluster = scenario.jobs, scenario.cluster
    if not len(jobs):
        return np.zeros((0, cluster.types.size))
    speed = scenario.true_throughput_per_s
    speed = jobs.throughput_per_s if speed is None else speed
    fits = jobs.gang[:, None] <= cluster.gpus[None, :]
    fits &= jobs.gpu_memory_gib[:, None] <= cluster.type_memory_gib[None, :]
    return np.where(fits, speed, 0.0)


def admitted(run: Run) -> Bools:
    """Mark the jobs that ran, or fit on some type: no other ever counts as active, shape (n,)."""
    fits = usable_throughput_per_s(run).max(axis=1, initial=0.0) > 0
    return cast(Bools, fits | (run.jobs.first_start_s != NEVER))


def normalised_gpu_s(run: Run) -> Floats:
    """Measure what each job did by the GPU-seconds of its slowest type that would do as much.

    ``work * gang / least throughput of the gang``: its leases' throughput of one GPU, in parts of
    that on the slowest type the gang fits on, times GPUs x time, less what was lost.

    Returns
    -------
    Floats
        Shape (n,).
    """
    speed = usable_throughput_per_s(run)
    least = np.where(speed > 0, speed, np.inf).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least), run.jobs.work * run.scenario.jobs.gang / least, 0.0)
