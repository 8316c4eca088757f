"""Metrics of a microservice run, each a function of the executor's records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from apportion.executor.microservices.records import Run
from apportion.instances.columns import Bools, Floats
from apportion.results.definitions import (
    Definition,
    definitions,
    metric,
    plain,
    read_plain,
)

_DERM = "Derm (ISCA 2024)"
_DYNAMICS = "forecasts as in Derm (ISCA 2024); distances our own"
_RECORDS = "records of the executor"
_SOLVER = "status contract of the solver"
_TAILS = "as in Derm (ISCA 2024) and Erms (ASPLOS 2023); counting our own"


@dataclass(frozen=True, kw_only=True)
class MicroserviceMetrics:
    """What a run amounts to. `DEFINITIONS` says how each number is computed, with unit and source.

    None stands where there is nothing to measure: no share of violations without a request, no
    gap without a proof. Containers are counted as they are held: they serve or start, after
    delays, steps and stabilisation, and are paid for. Latencies include requests that did not
    end, as infinite ones; where that reaches a statistic it is None, and ``endless_fraction``
    tells how often.
    """

    rounds: int = metric("rounds", "count", "rounds carried out", _RECORDS)
    requests: int = metric("requests", "count", "requests that came", _RECORDS)

    containers_mean: float | None = metric(
        "containers", "count", "mean over rounds of the containers held", _DERM, "low"
    )
    containers_asked_mean: float | None = metric(
        "asked for", "count", "mean over rounds of the containers the plans asked for", _DERM, "low"
    )
    containers_most: int | None = metric(
        "most containers", "count", "largest over rounds of the containers held", _RECORDS, "low"
    )
    container_hours: float = metric(
        "container hours", "count", "sum over rounds of containers held x hours", _RECORDS, "low"
    )
    core_hours: float = metric(
        "core hours", "count", "the same with the CPU cores of a container", _RECORDS, "low"
    )
    # An amount in the scenario's own units of cost; there is no unit for it.
    cost_mean: float | None = metric(
        "cost", "count", "mean over rounds of the sum of cost x containers held", _DERM, "low"
    )

    violation_fraction: float | None = metric(
        "violations", "fraction",
        "requests above their target / requests, over services by the requests that came; those of"
        " no class count as above", _TAILS, "low",
    )  # fmt: skip
    violation_worst_fraction: float | None = metric(
        "worst service", "fraction", "largest over services of the same", _TAILS, "low"
    )
    violation_worst_ratio: float | None = metric(
        "worst / budget", "ratio",
        "largest over services of their share of violations / their violation budget", _TAILS,
        "low",
    )  # fmt: skip
    missed_fraction: float | None = metric(
        "missed", "fraction",
        "rounds x services that missed their SLA (one-sided binomial test on the measured requests,"
        " p < 0.01) / rounds x services that had requests", _TAILS, "low",
    )  # fmt: skip
    late_fraction: float | None = metric(
        "late minutes", "fraction",
        "rounds x services whose latency at the percentile of the SLA is above the target / rounds"
        " x services that had requests", _TAILS, "low",
    )  # fmt: skip
    endless_fraction: float | None = metric(
        "endless", "fraction", "the same whose latency at that percentile is infinite", _TAILS,
        "low",
    )  # fmt: skip
    claimed_fraction: float | None = metric(
        "claimed", "fraction",
        "rounds x services whose plan claimed to keep the SLA by what was believed / all that had"
        " requests", _RECORDS, "high",
    )  # fmt: skip
    claimed_missed_fraction: float | None = metric(
        "claimed, missed", "fraction", "claims whose SLA was missed (binomial test) / claims",
        _RECORDS, "low",
    )  # fmt: skip
    tail_ratio_p50: float | None = metric(
        "tail / target", "ratio",
        "median over rounds and services of latency at the percentile of the SLA / target", _TAILS,
        "low",
    )  # fmt: skip
    tail_ratio_max: float | None = metric(
        "max tail / target", "ratio", "largest of the same", _TAILS, "low"
    )
    p99_ratio_p50: float | None = metric(
        "P99 / target", "ratio", "median over rounds and services of P99 latency / target", _TAILS,
        "low",
    )  # fmt: skip
    class_kept_least_fraction: float | None = metric(
        "least q_k", "fraction",
        "least over classes of requests not above their target / requests, over the run", _DERM,
        "high",
    )  # fmt: skip

    started: int = metric("started", "count", "containers started", _RECORDS, "low")
    stopped: int = metric("stopped", "count", "containers let go", _RECORDS, "low")
    changes: int = metric(
        "changes", "count", "rounds x microservices whose containers held changed", _RECORDS, "low"
    )
    churn_fraction: float | None = metric(
        "churn", "fraction", "(started + stopped) / containers held, over all rounds", _RECORDS,
        "low",
    )  # fmt: skip

    forecast_l1_mean: float | None = metric(
        "forecast error", "ratio",
        "mean over rounds and services with requests of the L1 distance between forecast and true"
        " shares of the classes", _DYNAMICS, "low",
    )  # fmt: skip
    radius_covers_fraction: float | None = metric(
        "radius covers", "fraction",
        "rounds x services whose forecast error is within the distance the policy was told to"
        " expect / those that were told one", _DYNAMICS, "high",
    )  # fmt: skip
    rate_error_mean: float | None = metric(
        "rate error", "ratio",
        "mean over rounds and services with requests of forecast rate / true rate - 1", _DYNAMICS,
    )  # fmt: skip

    decisions: int = metric("decisions", "count", "decisions taken", _RECORDS)
    worst_gap: float | None = metric(
        "worst gap", "fraction", "largest relative gap over decisions that proved one", _SOLVER,
        "low",
    )  # fmt: skip
    optimal_fraction: float | None = metric(
        "proved optimal", "fraction",
        "decisions with status OPTIMAL / all decisions; none for policies without a model",
        _SOLVER, "high",
    )  # fmt: skip
    infeasible_fraction: float | None = metric(
        "infeasible", "fraction", "decisions with status INFEASIBLE / all decisions", _SOLVER, "low"
    )
    decide_p50_s: float | None = metric(
        "p50 decide", "s", "median wall time of a decision", _RECORDS, "low", timing=True
    )
    decide_p95_s: float | None = metric(
        "p95 decide", "s", "95th percentile of the same", _RECORDS, "low", timing=True
    )
    decide_max_s: float | None = metric(
        "max decide", "s", "largest of the same", _RECORDS, "low", timing=True
    )

    services: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    """Share of violations of each service."""
    classes: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    """Share of the requests of each class that were not above their target (q_k)."""
    microservices: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    """Containers of each microservice held, mean over rounds."""
    time_limited: bool = False
    """True: a wall limit stopped a decision, so no byte identity is claimed."""

    def as_dict(self, *, timings: bool = False) -> dict[str, Any]:
        """Turn into plain data for JSON, in a fixed order.

        Parameters
        ----------
        timings
            True adds the wall times under ``"timings"``; without them the same run gives the same
            bytes.
        """
        return plain(self, ("services", "classes", "microservices"), timings=timings)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MicroserviceMetrics:
        """Read back what `as_dict` wrote; wall times that were left out are None.

        Raises
        ------
        ValueError
            On a key that is missing or unknown.
        """
        return read_plain(cls, data)


DEFINITIONS: Mapping[str, Definition] = definitions(MicroserviceMetrics)
"""Definition, unit and source of every metric, in the order of tables and files."""


def microservice_metrics(run: Run) -> MicroserviceMetrics:
    """Measure a run, from its records alone."""
    values: dict[str, Any] = {
        "rounds": int(run.rounds.index.size),
        "requests": int(run.services.arrivals.sum()),
        **_containers(run),
        **_violations(run),
        **_latencies(run),
        **_classes(run),
        **_forecasts(run),
        **_decisions(run),
        "time_limited": bool(run.time_limited),
    }
    return MicroserviceMetrics(**values)


def _containers(run: Run) -> dict[str, Any]:
    table, records = run.scenario.start.microservices, run.microservices
    hours = (run.rounds.end_s - run.rounds.now_s) / 3600.0
    held = records.held.astype(np.float64)
    total = cast(Floats, held.sum(axis=1))
    moved = int(records.started.sum() + records.stopped.sum())
    changed = (records.started > 0) | (records.stopped > 0)
    return {
        "containers_mean": _mean(total),
        "containers_asked_mean": _mean(records.asked.sum(axis=1)),
        "containers_most": int(total.max()) if total.size else None,
        "container_hours": float(total @ hours),
        "core_hours": float((held @ table.cpu_cores) @ hours),
        "cost_mean": _mean(held @ table.cost),
        "started": int(records.started.sum()),
        "stopped": int(records.stopped.sum()),
        "changes": int(changed.sum()),
        "churn_fraction": moved / float(total.sum()) if total.sum() > 0 else None,
        "microservices": {str(name): _mean(held[:, m]) for m, name in enumerate(table.id.tolist())},
    }


def service_violations(run: Run) -> Floats:
    """Share of the requests of each service above its target over the run, shape (S,).

    Every round counts by the requests that came, however many were measured. NaN where none came.
    """
    records = run.services
    share = ratio(records.violations, records.measured)
    came = np.where(np.isnan(share), 0, records.arrivals).astype(np.float64)
    return ratio((came * np.nan_to_num(share)).sum(axis=0), came.sum(axis=0))


def _violations(run: Run) -> dict[str, Any]:
    records, services = run.services, run.scenario.start.services
    share, came = service_violations(run), records.arrivals.sum(axis=0)
    known, some = ~np.isnan(share), records.measured > 0
    claims = records.claimed & some
    over = share / services.violation_budget
    return {
        "violation_fraction": _weighted(share, came),
        "violation_worst_fraction": float(share[known].max()) if known.any() else None,
        "violation_worst_ratio": float(over[known].max()) if known.any() else None,
        "missed_fraction": _share(records.missed, some),
        "claimed_fraction": _share(records.claimed, some),
        "claimed_missed_fraction": _share(records.missed, claims),
        "services": {
            str(name): None if np.isnan(value) else float(value)
            for name, value in zip(services.id.tolist(), share.tolist(), strict=True)
        },
    }


def _latencies(run: Run) -> dict[str, Any]:
    records, target = run.services, run.scenario.start.services.target_ms
    some = records.measured > 0
    tail, p99 = (records.tail_ms / target)[some], (records.p99_ms / target)[some]
    return {
        "late_fraction": _mean(tail > 1.0),
        "endless_fraction": _mean(np.isinf(tail)),
        "tail_ratio_p50": _finite(_median(tail)),
        "tail_ratio_max": _finite(float(tail.max())) if tail.size else None,
        "p99_ratio_p50": _finite(_median(p99)),
    }


def _classes(run: Run) -> dict[str, Any]:
    records, ids = run.classes, run.scenario.start.classes.id
    share = ratio(records.kept, records.measured)
    came = np.where(np.isnan(share), 0, records.requests).astype(np.float64)
    kept = ratio((came * np.nan_to_num(share)).sum(axis=0), came.sum(axis=0))
    known = kept[~np.isnan(kept)]
    return {
        "class_kept_least_fraction": float(known.min()) if known.size else None,
        "classes": {
            str(name): None if np.isnan(value) else float(value)
            for name, value in zip(ids.tolist(), kept.tolist(), strict=True)
        },
    }


def _forecasts(run: Run) -> dict[str, Any]:
    records = run.services
    some, told = records.arrivals > 0, records.share_error > 0
    true = records.rate_per_s > 0
    error = ratio(records.forecast_per_s, records.rate_per_s) - 1.0
    within = records.forecast_l1 <= records.share_error
    return {
        "forecast_l1_mean": _mean(records.forecast_l1[some]),
        "radius_covers_fraction": _share(within, told & some),
        "rate_error_mean": _mean(error[true & some]),
    }


def _decisions(run: Run) -> dict[str, Any]:
    rounds = run.rounds
    proved = rounds.gap[~np.isnan(rounds.gap)]
    modelled = bool((rounds.status != "HEURISTIC").any())
    spent = run.decide_s[~np.isnan(run.decide_s)]
    times = np.percentile(spent, [50.0, 95.0, 100.0]).tolist() if spent.size else [None] * 3
    return {
        "decisions": int(rounds.index.size),
        "worst_gap": float(proved.max()) if proved.size else None,
        "optimal_fraction": _mean(rounds.status == "OPTIMAL") if modelled else None,
        "infeasible_fraction": _mean(rounds.status == "INFEASIBLE") if modelled else None,
        **dict(zip(("decide_p50_s", "decide_p95_s", "decide_max_s"), times, strict=True)),
    }


def ratio(above: Any, below: Any) -> Floats:
    """Divide, NaN where there is nothing to divide by."""
    high, low = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    return np.divide(high, low, out=np.full(high.shape, np.nan), where=low > 0)


def _mean(values: Any) -> float | None:
    array = np.asarray(values, dtype=np.float64)
    return float(array.mean()) if array.size else None


def _median(values: Floats) -> float:
    return float(np.sort(values)[(values.size - 1) // 2]) if values.size else np.nan


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _share(what: Bools, among: Bools) -> float | None:
    return float(what[among].mean()) if among.any() else None


def _weighted(share: Floats, weight: Any) -> float | None:
    known = ~np.isnan(share)
    total = float(weight[known].sum())
    return float(share[known] @ weight[known]) / total if total > 0 else None
