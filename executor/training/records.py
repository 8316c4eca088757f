"""What a run leaves behind, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from apportion.instances.columns import Floats, Ints, Names
from apportion.instances.training import Scenario


@dataclass(frozen=True, eq=False)
class JobRecords:
    """One row for each job of the scenario, in its order.

    Times are seconds since the epoch, -1 for what has not happened.
    """

    first_start_s: Floats
    finish_s: Floats
    work: Floats
    """Executed in this run, less what was lost."""
    gpu_s: Floats
    """Held, up to the end of the job."""
    preemptions: Ints
    """Times a decision or the end of its lease took its GPUs before it was done."""
    migrations: Ints
    """Restarts on another type or other nodes than before."""


@dataclass(frozen=True, eq=False)
class LeaseRecords:
    """One row for each stretch that a job ran on the same GPUs at one speed.

    ``work = rate_per_s * (end_s - start_s - stall_s) - lost_work``, and a job's work is the sum
    over its rows.
    """

    job: Ints
    start_s: Floats
    end_s: Floats
    gpu_type: Ints
    gpus: Ints
    hosts: Ints
    stall_s: Floats
    """Time at the start that went into the switch."""
    rate_per_s: Floats
    work: Floats
    lost_work: Floats
    ended: Names
    """completed, preempted (by a decision), expired (its lease ended and no decision went on with
    it), moved, failed (its node did), or stopped (the run ended first)."""


@dataclass(frozen=True, eq=False)
class RoundRecords:
    """One row for each interval between two decisions; tables of shape (rounds, types) are GPU-seconds.

    In every row and type: busy + stalled + the four idle causes + down = GPUs of the type x length.
    """

    index: Ints
    """Number of the round the decision fell in; rounds without a decision are skipped."""
    now_s: Floats
    end_s: Floats
    reasons: Names
    """Joined by ``+``."""
    active: Ints
    running: Ints
    status: Names
    objective: Floats
    """NaN where the decision has none."""
    gap: Floats
    """NaN where nothing was proved."""
    busy_gpu_s: Floats
    stalled_gpu_s: Floats
    idle_no_demand_gpu_s: Floats
    """Free while no waiting job could run on the type."""
    idle_no_pack_gpu_s: Floats
    """Free while jobs waited for the type whose gangs are all larger than what was free."""
    idle_policy_gpu_s: Floats
    """Free although a waiting gang would have fitted: the policy left them idle."""
    idle_finished_gpu_s: Floats
    """Held by a job that ended, or was stopped, before the interval did."""
    down_gpu_s: Floats
    """On nodes out of service."""
    unplaced: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Gangs of the allocation whose CPU cores or host memory fit on no nodes; they waited on."""


@dataclass(frozen=True, eq=False)
class Run:
    """A scenario carried out under one policy.

    ``decide_s`` holds the wall time of each decision: it is outside byte identity, and NaN where
    a decision was taken from a journal without times. ``stopped`` says why a run ended with jobs
    unfinished; it is empty where all are done.
    """

    scenario: Scenario
    policy: str
    jobs: JobRecords
    leases: LeaseRecords
    rounds: RoundRecords
    decide_s: Floats
    time_limited: bool = False
    stopped: str = ""
