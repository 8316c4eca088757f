"""Let part of a workload stop on a metric: learning curves, targets and caps by a law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apportion.instances.columns import Bools, Floats, freeze
from apportion.instances.counters import keys_of, uniforms
from apportion.instances.errors import InstanceError
from apportion.instances.tables import Table, Value
from apportion.instances.training.curves import INVERSE, NO_CURVE
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.true_curves import NOISE_MOST, TrueCurves
from apportion.instances.training.workloads import Workload

_A, _B, _C = (0.05, 1.0), (0.5, 2.0), (0.05, 0.5)
"""Ranges of the parameters of the inverse curves, drawn uniformly."""

METRIC_STOPS = Table(
    "jobs that stop on a metric instead of a number of iterations",
    {
        "share": Value("number", "part of the jobs", 0, 1, required=True),
        "target_least": Value("number", "least part of the fall to be reached", 0, 0.999),
        "target_most": Value("number", "largest part of the fall to be reached", 0, 0.999),
        "cap_least": Value("number", "least cap, in needed iterations", 1),
        "cap_most": Value("number", "largest cap, in needed iterations", 1),
        "noise": Value("number", "relative spread of a measured metric", 0, NOISE_MOST),
    },
)


@dataclass(frozen=True)
class MetricStops:
    """The law by which jobs stop on a metric.

    Parameters
    ----------
    share
        Part of the jobs that do, each by a throw of its own.
    target_least, target_most
        The target is reached after a part of the curve's whole fall, uniform between these.
    cap_least, cap_most
        The cap is so many times the iterations really needed, uniform between these.
    noise
        Relative standard deviation of a measured loss.

    Notes
    -----
    Curves are ``1 / (a k + b) + c`` with a in [0.05, 1], b in [0.5, 2], c in [0.05, 0.5], which
    fixes how many iterations a job needs. How long it runs stays what the workload says: its
    throughputs are scaled with its work. What it reports as work is its cap.
    """

    share: float
    target_least: float = 0.6
    target_most: float = 0.95
    cap_least: float = 1.2
    cap_most: float = 3.0
    noise: float = 0.02

    def __post_init__(self) -> None:
        for name in ("target", "cap"):
            least, most = getattr(self, f"{name}_least"), getattr(self, f"{name}_most")
            if not least <= most:
                raise InstanceError(
                    f"metric_stops.{name}_least = {least:g}: lies above {name}_most = {most:g}"
                )


def with_metric_stops(workload: Workload, law: MetricStops, seed: int) -> Workload:
    """Turn part of the jobs into ones that stop on a metric.

    Parameters
    ----------
    workload
        Its work, the true one where it differs, says how long each job runs.
    law
        Who, and how.
    seed
        Root seed. What a job draws depends on its id alone.
    """
    jobs, n = workload.jobs, len(workload.jobs)
    keys = keys_of(jobs.id)

    def draw(purpose: str, least: float, most: float) -> Floats:
        return least + (most - least) * uniforms(seed, f"metric_{purpose}", keys)

    chosen: Bools = draw("share", 0.0, 1.0) < law.share
    a, b, c = draw("a", *_A), draw("b", *_B), draw("c", *_C)
    fallen = draw("target", law.target_least, law.target_most)
    target = (1.0 - fallen) / b + c  # the curve starts at 1 / b + c
    curves = TrueCurves(np.where(chosen, INVERSE, NO_CURVE), a, b, c, law.noise)
    before = jobs.work if workload.true_work is None else workload.true_work
    cap = np.full(n, np.inf)
    aimed = _columns(jobs, stop_on_metric=chosen, metric_target=np.where(chosen, target, 0.0),
                     metric_rises=np.zeros(n, dtype=np.bool_), iteration_cap=cap)  # fmt: skip
    needed = curves.needed(aimed, before)
    scale = needed / before
    cap = np.where(chosen, np.ceil(needed * draw("cap", law.cap_least, law.cap_most)), np.inf)
    config_owner = np.repeat(np.arange(n), np.diff(jobs.config_offsets))
    scaled = _columns(
        aimed,
        iteration_cap=cap,
        work=np.where(chosen, cap, jobs.work),
        work_done=jobs.work_done * scale,
        throughput_per_s=jobs.throughput_per_s * scale[:, None],
        config_throughput_per_s=jobs.config_throughput_per_s * scale[config_owner],
        config_offsets=jobs.config_offsets,
        config_gpus=jobs.config_gpus,
        config_type=jobs.config_type,
    )
    true_rates = workload.true_throughput_per_s
    return replace(
        workload, jobs=scaled, true_work=needed, true_curves=curves,
        true_throughput_per_s=None if true_rates is None else true_rates * scale[:, None],
    )  # fmt: skip


def _columns(jobs: Jobs, **columns: Any) -> Jobs:
    for column in columns.values():
        freeze(column)
    return jobs.take(np.arange(len(jobs)), columns)


def metric_stops(workload: Workload, section: Mapping[str, Any] | None, seed: int) -> Workload:
    """Apply the checked table ``[metric_stops]`` where there is one."""
    return (
        workload if section is None else with_metric_stops(workload, MetricStops(**section), seed)
    )
