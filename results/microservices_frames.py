"""What happened in each round, as frames: services, microservices, classes, decisions."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from apportion.executor.microservices.records import Run
from apportion.executor.microservices.statistics import wilson_interval
from apportion.instances.columns import Names
from apportion.results.microservices import ratio


def round_frame(run: Run) -> pd.DataFrame:
    """Tabulate the decisions, one row a round.

    Returns
    -------
    pandas.DataFrame
        ``index``, ``now_s``, ``end_s``, ``status``, ``objective``, ``gap``, ``notes`` (how many),
        ``asked``, ``held``, ``started``, ``stopped`` (containers of all microservices),
        ``arrivals`` and ``violation`` (share of all requests). Missing values are NaN.
    """
    counts, services = run.microservices, run.services
    columns: dict[str, Any] = {
        entry.name: getattr(run.rounds, entry.name) for entry in fields(run.rounds)
    }
    for name in ("asked", "held", "started", "stopped"):
        columns[name] = getattr(counts, name).sum(axis=1)
    share = np.nan_to_num(ratio(services.violations, services.measured))
    came = services.arrivals.astype(np.float64)
    columns["arrivals"] = services.arrivals.sum(axis=1)
    columns["violation"] = ratio((share * came).sum(axis=1), came.sum(axis=1))
    return pd.DataFrame(columns)


def service_frame(run: Run) -> pd.DataFrame:
    """Tabulate services, one row for each round and service.

    Returns
    -------
    pandas.DataFrame
        ``index``, ``now_s``, ``service``, ``target_ms``, ``violation_budget``, the columns of
        ``ServiceRecords``, the measured share of violations ``violation`` and its Wilson interval
        of 95 % (``violation_low``, ``violation_high``). Latencies may be infinite.
    """
    services, records = run.scenario.start.services, run.services
    out = _by_round(run, "service", services.id, records)
    rounds = run.rounds.index.size
    out.insert(3, "target_ms", np.tile(services.target_ms, rounds))
    out.insert(4, "violation_budget", np.tile(services.violation_budget, rounds))
    low, high = wilson_interval(records.violations, records.measured)
    out["violation"] = ratio(records.violations, records.measured).ravel()
    out["violation_low"], out["violation_high"] = low.ravel(), high.ravel()
    return out


def microservice_frame(run: Run) -> pd.DataFrame:
    """Tabulate microservices, one row for each round and microservice.

    Returns
    -------
    pandas.DataFrame
        ``index``, ``now_s``, ``microservice`` and the columns of ``MicroserviceRecords``.
    """
    return _by_round(run, "microservice", run.scenario.start.microservices.id, run.microservices)


def class_frame(run: Run) -> pd.DataFrame:
    """Tabulate classes, one row for each round and class.

    Returns
    -------
    pandas.DataFrame
        ``index``, ``now_s``, ``class``, ``service``, the columns of ``ClassRecords``, and the
        share ``satisfied`` of the measured requests that were not above the target (q_k).
    """
    classes, services = run.scenario.start.classes, run.scenario.start.services
    out = _by_round(run, "class", classes.id, run.classes)
    out.insert(3, "service", np.tile(services.id[classes.service], run.rounds.index.size))
    out["satisfied"] = ratio(run.classes.kept, run.classes.measured).ravel()
    return out


def _by_round(run: Run, kind: str, ids: Names, records: Any) -> pd.DataFrame:
    rounds, width = run.rounds, ids.size
    columns: dict[str, Any] = {
        "index": np.repeat(rounds.index, width),
        "now_s": np.repeat(rounds.now_s, width),
        kind: np.tile(ids, rounds.index.size),
    }
    columns |= {entry.name: getattr(records, entry.name).ravel() for entry in fields(records)}
    return pd.DataFrame(columns)
