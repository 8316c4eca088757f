"""Laws of nature of a training cluster: what a switch costs, how fast a spread gang runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.instances.columns import Floats, Ints
from apportion.instances.errors import InstanceError


@dataclass(frozen=True)
class SwitchCost:
    """Time a job stands still when it starts on other GPUs than before.

    Parameters
    ----------
    bandwidth_gb_per_s
        Rate at which training state moves; 1.25 GB/s is a 10 Gb/s network.
    fixed_s
        Time lost beside the copy.
    charge_start, charge_resume, charge_move
        Whether a first start, a resume on the type it ran on before, and a move between nodes of
        one type cost the same. The literature leaves this open; default: only a change of type
        costs.
    """

    bandwidth_gb_per_s: float = 1.25
    fixed_s: float = 30.0
    charge_start: bool = False
    charge_resume: bool = False
    charge_move: bool = False

    def __post_init__(self) -> None:
        if not (np.isfinite(self.bandwidth_gb_per_s) and self.bandwidth_gb_per_s > 0):
            raise InstanceError(f"bandwidth_gb_per_s = {self.bandwidth_gb_per_s}: must be positive")
        if not (np.isfinite(self.fixed_s) and self.fixed_s >= 0):
            raise InstanceError(f"fixed_s = {self.fixed_s}: must not be negative")

    def switch_s(self, state_gb: Any, restart_s: Any) -> Any:
        """Seconds one charged switch takes: fixed, the job's own restart, and the copy."""
        return self.fixed_s + restart_s + state_gb / self.bandwidth_gb_per_s


def spread_speed(hosts: int, spread_hosts: Floats, spread_speed: Floats) -> float:
    """Relative speed of one job's gang on a number of hosts.

    Parameters
    ----------
    hosts
        Nodes the gang lies on.
    spread_hosts, spread_speed
        The job's own table, hosts rising.

    Returns
    -------
    float
        The entry with the largest host count not above ``hosts``; 1 below the first.
    """
    at = int(np.searchsorted(spread_hosts, hosts, side="right")) - 1
    return 1.0 if at < 0 else float(spread_speed[at])


def isolated_throughput_per_s(
    throughput_per_s: Floats, gang: Ints, capacity: Ints, sharers: Floats | float
) -> Floats:
    """Throughput of each job alone on an equal share of the cluster.

    Each job holds ``capacity / (sharers * gang)`` of the time on each type, scaled down so that
    the fractions add to at most 1 (Gavel's isolated allocation, OSDI 2020).

    Parameters
    ----------
    throughput_per_s
        Shape (n, k).
    gang
        Shape (n,).
    capacity
        GPUs of each type, shape (k,).
    sharers
        Jobs that share the cluster, one number or shape (n,).

    Returns
    -------
    Floats
        Shape (n,); 0 where the job runs on no type that has GPUs.
    """
    share = capacity[None, :] / (np.atleast_1d(sharers)[:, None] * gang[:, None])
    total = share.sum(axis=1, keepdims=True)
    share = share / np.maximum(total, 1.0)
    return (throughput_per_s * share).sum(axis=1)
