"""Make the reference tables of microservices: ``results/reference/microservices_*.md``, ``.csv``, ``.svg``.

usage: python benchmarks/reference_microservices.py [--only NAME] [--out results/reference]
       [--scratch FOLDER] [--workers 2] [--short]

Tables, all on built-in graphs with synthetic laws of latency (a seed draws the laws):

- ``targets``: containers and violations against T = 200 to 550 ms and 10, 30 and 50 requests/s,
  every policy, on the ticket search; with shifts, and without them as the artifact counts tails.
- ``shares``: the share of the complex class from 0 to 1 under Derm's four priorities.
- ``trace``: rates that rise and fall like a day's, shares that wander; forecasts of the shares.
- ``forecasts``: errors of the forecasts of shares, cover of the robust radius, shares recovered
  from sampled graphs.
- ``errors``: plans whose laws are off by 20 %.
- ``queues``: plans for laws that come from queues, carried out event by event.
- ``applications``: the other built-in applications, with every scheme of Erms.

Every finished cell is kept under ``runs/reference_microservices`` and not run again: delete the
folder after a change of the code. Searches stop on deterministic work, so that the tables repeat
byte for byte; times go to standard error. ``--short`` runs a small cell of each and writes nothing.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from line_chart import line_chart
from microservice_cells import (
    APPLICATION_POLICIES,
    APPLICATIONS,
    BESIDE,
    CONCENTRATIONS,
    DAY_ROUNDS,
    DERM,
    FORECAST_ROUNDS,
    FORECASTS,
    MOST_ROUNDS,
    POLICIES,
    RATE_PER_S,
    RULES,
    SEEDS,
    SETTLED_ROUNDS,
    TIGHT_MS,
    WARM_UP,
    application_cell,
    error_cell,
    forecast_cell,
    queue_cell,
    recovery_cell,
    share_cell,
    target_cell,
    trace_cell,
)

from apportion.results.definitions import Unit
from apportion.results.table import Cell, Column, Spread, Table

ROOT = Path(__file__).resolve().parents[1]
COMMAND = "python benchmarks/reference_microservices.py"

TARGETS_MS = (200, 250, 300, 350, 400, 450, 500, 550)
RATES_PER_S = (10, 30, 50)
SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SWEPT_TARGETS_MS = (450, 550)

SYNTHETIC = (
    "Synthetic: graphs as published or in their likeness, laws of latency drawn from a seed in the"
    " ranges that Derm's artifact was fitted to. No measurement of anybody's."
)


# ---------------------------------------------------------------------- what tables are made of

Found = list[tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Made:
    """A table for people, its rows for machines, and charts by suffix."""

    tables: tuple[Table, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    charts: Mapping[str, str]


@dataclass(frozen=True)
class Reference:
    """One table: its cells, and how they are shown."""

    name: str
    title: str
    cell: Callable[..., dict[str, Any]]
    keys: tuple[tuple[Any, ...], ...]
    shown: Callable[[Found], Made]


def spread(values: Sequence[float | None]) -> Cell:
    """Mean with the least and the largest value; None where one is missing."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Spread(float(np.mean(known)), min(known), max(known))


def columns(**named: tuple[str, Unit]) -> list[Column]:
    """Columns from key, header and unit."""
    return [Column(key, header, unit) for key, (header, unit) in named.items()]


def shown_targets(found: Found) -> Made:
    """Pivots over T, and one table of how much Derm saves over all cells."""
    rows: list[tuple[Any, ...]] = []
    for (shifts, rate, target, seed), cell in found:
        start = ("yes" if shifts else "no", rate, target, seed)
        if not cell["possible"]:
            rows.append((*start, "none", "", "", cell["least"], "", "", ""))
            continue
        for name, told in cell["policies"].items():
            q = told["q"]
            rows.append(
                (*start, name, told["containers"], told["violation"], told["by_law"],
                 told["kept"], q["light"], q["heavy"])
            )  # fmt: skip
    tables = [_saved(found)]
    charts: dict[str, str] = {}
    for shifts in dict.fromkeys(key[0] for key, _ in found):
        for rate in dict.fromkeys(key[1] for key, _ in found if key[0] == shifts):
            part = [(key, cell) for key, cell in found if key[:2] == (shifts, rate)]
            tables.append(_pivot(part, shifts, rate))
            if rate == RATE_PER_S:
                suffix = "" if shifts else "_without_shifts"
                charts[suffix] = _target_chart(part, shifts)
    head = ("shifts", "rate_per_s", "target_ms", "seed", "policy", "containers",
            "simulated_violation", "violation_by_law", "kept", "q_light", "q_heavy")  # fmt: skip
    return Made(tuple(tables), head, tuple(rows), charts)


def _of(part: Found, target: float) -> list[dict[str, Any]]:
    """Cells of a target in which some plan exists, one a seed."""
    return [cell for key, cell in part if key[2] == target and cell["possible"]]


def _pivot(part: Found, shifts: float, rate: float) -> Table:
    targets = list(dict.fromkeys(key[2] for key, _ in part))
    seeds = len({key[3] for key, _ in part})
    rows: list[list[Cell]] = [
        ["laws for which a plan exists", *(f"{len(_of(part, t))} of {seeds}" for t in targets)],
        ["least violation of the others",
         *(_percent([c["least"] for k, c in part if k[2] == t and not c["possible"]])
           for t in targets)],
    ]  # fmt: skip
    for name in POLICIES:
        row: list[Cell] = [name]
        for target in targets:
            told = [cell["policies"][name] for cell in _of(part, target)]
            if not told:
                row.append("no plan")
                continue
            text = f"{np.mean([one['containers'] for one in told]):.1f}"
            bad = [one["violation"] for one in told if not one["kept"]]
            row.append(text if not bad else f"{text} ✗ {_percent(bad)}")
        rows.append(row)
    what = "with shifts" if shifts else "without shifts (the artifact's tails)"
    return Table(
        f"Containers against the target, {rate:g} requests/s, {what}",
        [Column("policy", "policy"), *(Column(f"t{t}", f"T = {t} ms") for t in targets)], rows,
        ["means over the laws for which a plan exists; ✗: the SLA (5 %) is missed for some of"
         " them, with the mean share of late requests there, simulated"],
    )  # fmt: skip


def _percent(values: Sequence[float]) -> str:
    return f"{100.0 * np.mean(values):.1f} %" if values else ""


def _saved(found: Found) -> Table:
    """How much fewer containers Derm asks for than each policy, over all cells with a plan."""
    cells = [cell["policies"] for _, cell in found if cell["possible"]]
    rows: list[list[Cell]] = []
    for name in POLICIES:
        less = [1.0 - one["derm"]["containers"] / one[name]["containers"] for one in cells]
        late = [one[name]["violation"] for one in cells]
        kept = float(np.mean([one[name]["kept"] for one in cells]))
        no = float(np.mean([one[name]["status"] == "INFEASIBLE" for one in cells]))
        rows.append([name, spread(less), spread(late), kept, no])
    return Table(
        f"Over all {len(cells)} cells that some plan can keep",
        columns(
            policy=("policy", ""),
            saved=("derm asks for less by", "fraction"),
            late=("simulated violation", "fraction"),
            kept=("cells that keep the SLA", "fraction"),
            no=("own model finds no plan", "fraction"),
        ),
        rows,
        ["mean (least..largest); the SLA allows 5 %"],
    )


def _target_chart(part: Found, shifts: float) -> str:
    lines = {
        name: [
            (float(target), float(np.mean([c["policies"][name]["containers"] for c in cells])))
            for target in TARGETS_MS
            if len(cells := _of(part, target)) == len(SEEDS)
        ]
        for name in POLICIES
    }
    what = "with shifts" if shifts else "without shifts"
    return line_chart(
        f"Ticket search (synthetic), {RATE_PER_S:g} requests/s, {what}", "target T, ms",
        "containers", lines, log=True,
    )  # fmt: skip


def shown_shares(found: Found) -> Made:
    """Containers by share of the complex class, what is saved, and q of each class."""
    tables: list[Table] = []
    charts: dict[str, str] = {}
    for target in dict.fromkeys(key[0] for key, _ in found):
        rows: list[list[Cell]] = []
        for share in dict.fromkeys(key[1] for key, _ in found):
            cells = [cell for key, cell in found if key[:2] == (target, share)]

            def count(name: str, cells: Sequence[dict[str, Any]] = cells) -> list[float]:
                return [float(cell[name]["containers"]) for cell in cells]

            def saved(less: str, more: str, count: Any = count) -> Cell:
                pairs = zip(count(less), count(more), strict=True)
                return spread([1.0 - one / two for one, two in pairs])

            row: list[Cell] = [share, *(spread(count(name)) for name in BESIDE)]
            row += [saved("budget", "uniform"), saved("budget", "worst"), saved("queue", "budget")]
            for name in ("budget", "uniform", "queue"):
                row += [spread([cell[name]["q"][k] for cell in cells]) for k in ("light", "heavy")]
            rows.append(row)
        named: dict[str, tuple[str, Unit]] = {"share": ("share of the complex class", "fraction")}
        named |= {name: (name, "count") for name in BESIDE}
        named |= {
            "saved_uniform": ("budget saves against uniform", "fraction"),
            "saved_worst": ("budget saves against worst", "fraction"),
            "queue_saves": ("queue saves against order of arrival", "fraction"),
        }
        for name in ("budget", "uniform", "queue"):
            for k in ("light", "heavy"):
                named[f"q_{k}_{name}"] = (f"q {k}, {name}", "fraction")
        tables.append(
            Table(f"T = {target:g} ms, {RATE_PER_S:g} requests/s", columns(**named), rows)
        )
        lines = {
            name: [
                (row[0], row[1 + at].mean)  # pyright: ignore[reportAttributeAccessIssue]
                for row in rows
            ]
            for at, name in enumerate(BESIDE)
        }
        charts[f"_{target:g}"] = line_chart(
            f"Ticket search (synthetic), T = {target:g} ms, {RATE_PER_S:g} requests/s",
            "share of the complex class", "containers", lines,
        )  # fmt: skip
    flat = tuple(
        (*key, name, told["containers"], told["violation"], told["by_law"],
         told["q"]["light"], told["q"]["heavy"])
        for key, cell in found for name, told in cell.items()
    )  # fmt: skip
    head = ("target_ms", "share_heavy", "seed", "priority", "containers", "simulated_violation",
            "violation_by_law", "q_light", "q_heavy")  # fmt: skip
    return Made(tuple(tables), head, flat, charts)


TRACE_METRICS: Mapping[str, tuple[str, Unit]] = {
    "containers_mean": ("containers", "count"),
    "violation_fraction": ("violations", "fraction"),
    "missed_fraction": ("rounds that miss the SLA", "fraction"),
    "class_kept_least_fraction": ("least q_k", "fraction"),
    "churn_fraction": ("churn", "fraction"),
    "forecast_l1_mean": ("L1 error of shares", "ratio"),
    "radius_covers_fraction": ("radius covers", "fraction"),
}


def shown_trace(found: Found) -> Made:
    """Policies over the day, and forecasts under Derm."""
    order = list(dict.fromkeys(key[:3] for key, _ in found))
    cells = dict(found)
    seeds = list(dict.fromkeys(key[3] for key, _ in found))
    rows: list[list[Cell]] = []
    flat: list[tuple[Any, ...]] = []
    for start in order:
        policy, forecast, robust = start
        told = [cells[*start, seed] for seed in seeds]
        base = [cells["derm", "ewma", False, seed] for seed in seeds]
        less = [
            1.0 - one["containers_mean"] / two["containers_mean"]
            for one, two in zip(base, told, strict=True)
        ]
        rows.append(
            [policy, f"{forecast}{', robust' if robust else ''}",
             *(spread([one[name] for one in told]) for name in TRACE_METRICS), spread(less)]
        )  # fmt: skip
        for seed, one in zip(seeds, told, strict=True):
            flat.append((policy, forecast, robust, seed, *(one[name] for name in TRACE_METRICS)))
    table = Table(
        f"{DAY_ROUNDS} rounds of a minute, T = {TIGHT_MS:g} ms",
        columns(policy=("policy", ""), forecast=("forecast of shares", ""), **TRACE_METRICS,
                saved=("derm (ewma) holds less by", "fraction")),
        rows, ["mean (least..largest) over seeds of laws, shares and requests"],
    )  # fmt: skip
    first = seeds[0]
    lines = {
        f"{policy}, {forecast}": list(
            enumerate(cells[policy, forecast, False, first]["series"]["held"])
        )
        for policy, forecast in (("derm", "true"), ("derm", "ewma"), ("derm", "static"),
                                 ("hpa", "ewma"), ("firm", "ewma"), ("static-worst", "ewma"))
        if (policy, forecast, False, first) in cells
    }  # fmt: skip
    chart = line_chart(
        f"A day in {DAY_ROUNDS} rounds (synthetic), seed {first}", "round", "containers held", lines
    )
    head = ("policy", "forecast", "robust", "seed", *TRACE_METRICS)
    return Made((table,), head, tuple(flat), {"": chart})


def shown_forecasts(found: Found) -> Made:
    """Errors by walk and method; shares recovered by number of requests."""
    walks = [(key[1:], cell) for key, cell in found if key[0] == "walk"]
    rows: list[list[Cell]] = []
    flat: list[tuple[Any, ...]] = []
    for classes, concentration in dict.fromkeys(key[:2] for key, _ in walks):
        cells = [cell for key, cell in walks if key[:2] == (classes, concentration)]
        for method in FORECASTS:
            told = [cell[method] for cell in cells]
            names = ("l1", "l1_counted", "radius", "covers", "covers_counted")
            rows.append(
                [f"{classes}", f"{concentration:g}", method,
                 *(spread([one[name] for one in told]) for name in names)]
            )  # fmt: skip
    for key, cell in walks:
        flat += [
            ("walk", *key, method, told["l1"], told["l1_counted"], told["radius"], told["covers"],
             told["covers_counted"])
            for method, told in cell.items()
        ]  # fmt: skip
    one = Table(
        f"Forecasts of shares, {FORECAST_ROUNDS - WARM_UP} rounds, each from those before it",
        columns(classes=("classes", ""), concentration=("concentration of the walk", ""),
                method=("forecast", ""), l1=("L1 error, true shares", "ratio"),
                l1_counted=("L1 error, counted shares", "ratio"), radius=("radius", "ratio"),
                covers=("radius covers true shares", "fraction"),
                covers_counted=("radius covers counted shares", "fraction")),
        rows,
        ["the variance of a share p is p (1 - p) / (1 + concentration) in a round; 5 % of what"
         " was lost returns", "the radius should cover 95 % of the rounds"],
    )  # fmt: skip
    drawn = [(key[1:], cell) for key, cell in found if key[0] == "recovery"]
    recovered: list[list[Cell]] = []
    for count in dict.fromkeys(key[0] for key, _ in drawn):
        told = [cell for key, cell in drawn if key[0] == count]
        recovered.append(
            [f"{count}", spread([cell["l1"] for cell in told]),
             spread([cell["met"] / cell["classes"] for cell in told])]
        )  # fmt: skip
    flat += [
        ("recovery", "", "", key[1], key[0], cell["l1"], "", "", cell["met"] / cell["classes"], "")
        for key, cell in drawn
    ]
    two = Table(
        "Shares recovered from the graphs of so many requests, generated applications of one service",
        columns(requests=("requests", ""), l1=("L1 error of shares", "ratio"),
                met=("classes met", "fraction")),
        recovered,
        ["classes below a share of 0.0001 count as unmodelled"],
    )  # fmt: skip
    head = ("what", "classes", "concentration", "seed", "method_or_requests", "l1", "l1_counted",
            "radius", "covers_or_met", "covers_counted")  # fmt: skip
    return Made((one, two), head, tuple(flat), {})


ERRORS = {"1.0": "none", "0.8": "20 % slower", "1.2": "20 % faster", "drawn": "each within 20 %"}


def shown_errors(found: Found) -> Made:
    """Violations by policy and error."""
    names = list(dict.fromkeys(name for _, cell in found for name in cell))
    rows: list[list[Cell]] = []
    for name in names:
        row: list[Cell] = [name]
        of_none = [cell[name]["containers"] for key, cell in found if key[0] == "1.0"]
        row.append(spread([float(count) for count in of_none]))
        row += [
            spread([cell[name]["violation"] for key, cell in found if key[0] == error])
            for error in ERRORS
        ]
        rows.append(row)
    flat = tuple(
        (*key, name, told["containers"], told["violation"])
        for key, cell in found for name, told in cell.items()
    )  # fmt: skip
    named: dict[str, tuple[str, Unit]] = {
        "policy": ("policy", ""), "containers": ("containers", "count"),
    }  # fmt: skip
    named |= {
        f"e{at}": (f"true laws: {text}", "fraction") for at, text in enumerate(ERRORS.values())
    }
    table = Table(
        f"Simulated violation, T = {TIGHT_MS:g} ms, {RATE_PER_S:g} requests/s",
        columns(**named), rows,
        ["plans by the believed laws; rates of all calls are off, the load a container carries is"
         " not", "firm, measuring: the last third of 60 rounds in which FIRM sees true latencies;"
         " its containers are those it holds without an error"],
    )  # fmt: skip
    return Made(
        (table,), ("error", "seed", "policy", "containers", "simulated_violation"), flat, {}
    )


def shown_queues(found: Found) -> Made:
    """What the law promises of plans and what queues do, by class."""
    rows: list[list[Cell]] = []
    flat: list[tuple[Any, ...]] = []
    for key, cell in found:
        application, share, seed, requests = key
        base = cell["budget"]["containers"]
        for name, told in cell.items():
            law, events = told["law_q"], told["events_q"]
            kept = ", ".join(
                f"{k} {_share(law[k])} / {_share(events[k])}"
                for k in law if events[k] is not None
            )  # fmt: skip
            row = [application, f"{share:g}", name, told["order"], told["containers"],
                   1.0 - told["containers"] / base, told["law"], told["events"]]  # fmt: skip
            flat.append((application, share, seed, requests, *row[2:], json.dumps([law, events])))
            if seed == SEEDS[0]:
                rows.append([*row, kept])
    table = Table(
        f"Plans for the laws of queues, carried out event by event; laws of seed {SEEDS[0]}",
        columns(application=("application", ""), share=("share of the second class", ""),
                priority=("plan", ""), order=("order", ""), containers=("containers", "count"),
                saved=("fewer than budget", "fraction"), law=("worst service, law", "fraction"),
                events=("worst service, events", "fraction"), q=("q_k, law / events", "")),
        rows,
        ["the SLA allows 5 %", "queue, unordered: the containers of queue, requests served in order"
         " of arrival", "other seeds are in the CSV"],
    )  # fmt: skip
    head = ("application", "share", "seed", "requests", "plan", "order", "containers",
            "fewer_than_budget", "violation_law", "violation_events", "q_law_and_events")  # fmt: skip
    return Made((table,), head, tuple(flat), {})


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100.0 * value:.1f} %"


def shown_applications(found: Found) -> Made:
    """Containers and violations of every policy on the other applications."""
    rows: list[list[Cell]] = []
    for application in APPLICATIONS:
        cells = [cell for key, cell in found if key[0] == application]
        for name in APPLICATION_POLICIES:
            told = [cell[name] for cell in cells]
            less = [1.0 - cell["derm"]["containers"] / cell[name]["containers"] for cell in cells]
            rows.append(
                [application, name, spread([float(one["containers"]) for one in told]),
                 spread(less), spread([one["violation"] for one in told]),
                 float(np.mean([one["kept"] for one in told]))]
            )  # fmt: skip
    table = Table(
        "Own rates and targets",
        columns(application=("application", ""), policy=("policy", ""),
                containers=("containers", "count"), saved=("derm asks for less by", "fraction"),
                late=("worst service, simulated", "fraction"), kept=("laws kept", "fraction")),
        rows,
        ["mean (least..largest) over laws; the SLA allows 5 %", "Derm's search stops after 100 boxes here;"
         " its other priorities take minutes on some laws of the social network and are left out"],
    )  # fmt: skip
    flat = tuple(
        (*key, name, told["containers"], told["violation"], told["by_law"], told["kept"])
        for key, cell in found for name, told in cell.items()
    )  # fmt: skip
    head = ("application", "seed", "policy", "containers", "worst_simulated_violation",
            "worst_violation_by_law", "kept")  # fmt: skip
    return Made((table,), head, flat, {})


# ---------------------------------------------------------------------- tables


def _forecast_or_recovery(kind: str, *key: Any) -> dict[str, Any]:
    return (forecast_cell if kind == "walk" else recovery_cell)(*key)


_TRACE = (
    *(("derm", forecast, False) for forecast in ("ewma", "static", "last", "mean", "dirichlet", "true")),
    ("derm", "ewma", True),
    *((label, "ewma", False) for label in (*DERM[1:3], "erms", *RULES)),
)  # fmt: skip

TABLES = (
    Reference(
        "microservices_targets", "Containers and violations against target and load, ticket search",
        target_cell,
        tuple(
            (shifts, rate, target, seed)
            for shifts, rates in ((1.0, RATES_PER_S), (0.0, (30,)))
            for rate in rates for target in TARGETS_MS for seed in SEEDS
        ),
        shown_targets,
    ),
    Reference(
        "microservices_shares", "The share of the complex class, ticket search", share_cell,
        tuple((t, share, seed) for t in SWEPT_TARGETS_MS for share in SHARES for seed in SEEDS),
        shown_shares,
    ),
    Reference(
        "microservices_trace", "Rates like a day's and shares that wander, ticket search", trace_cell,
        tuple((*start, seed) for start in _TRACE for seed in SEEDS), shown_trace,
    ),
    Reference(
        "microservices_forecasts", "Forecasts of the shares of classes", _forecast_or_recovery,
        (*(("walk", k, c, seed) for k in (2, 4) for c in CONCENTRATIONS for seed in SEEDS),
         *(("recovery", count, seed) for count in (100, 1000, 10_000) for seed in SEEDS)),
        shown_forecasts,
    ),
    Reference(
        "microservices_errors", "Laws that are off by 20 %, ticket search", error_cell,
        tuple((error, seed) for error in ERRORS for seed in SEEDS), shown_errors,
    ),
    Reference(
        "microservices_queues", "What queues do to plans with and without an order", queue_cell,
        (*(("ticket-search", share, seed, 3000) for share in (0.1, 0.5, 0.9) for seed in SEEDS[:2]),
         *(("hotel", share, seed, 40_000) for share in (0.1, 0.4, 0.9) for seed in SEEDS)),
        shown_queues,
    ),
    Reference(
        "microservices_applications", "The other built-in applications", application_cell,
        tuple((name, seed) for name in APPLICATIONS for seed in SEEDS), shown_applications,
    ),
)  # fmt: skip

_RULE_NOTE = (
    "FIRM, Sinan, Autopilot, HPA and the static worst graph look back: each was asked about the same"
    f" round until its plan stayed for {SETTLED_ROUNDS} rounds, {MOST_ROUNDS} at most."
)
NOTES: Mapping[str, tuple[str, ...]] = {
    "microservices_targets": (
        "Two classes of equal share, 103 and 473 calls a request, one service, so that all schemes"
        " of Erms plan alike. Shifts are least latencies; the artifact computes them and leaves them"
        " out of its tails. With them a heavy request takes longer than the shorter targets whatever"
        " is spent: no plan. Nothing is planned or compared there.", _RULE_NOTE,
        "Ursa: where its union bound allows no thresholds the row is its fallback, the lowest of its"
        " thresholds.",
    ),
    "microservices_shares": (
        "q: share of the requests of a class in time, simulated. Shares of 2 % and 5 % were added to"
        " steps of 10 %.",
    ),
    "microservices_trace": (
        "Shares: a Dirichlet walk of concentration 200. Rates: 30 requests/s on average, 15 to 45."
        " Plans are for 1.1 times the larger of the last rate and its smoothing; new containers"
        " serve after 10 s, counts fall after 300 s only and change by half at most in a round.",
    ),
    "microservices_forecasts": (),
    "microservices_errors": (_RULE_NOTE,),
    "microservices_queues": (
        "Containers serve one call at a time at their rate at rest and have a queue each; laws are"
        " those of such queues (slope -1/1000). On the ticket search repeated calls are drawn one by"
        " one by events, as one exponential by the law: events are far less dispersed. Ticket search:"
        " 300 requests/s, T = 400 ms; hotel: 40,000 requests/s of two services, own targets. The first"
        " fifth of the time is left out.",
    ),
    "microservices_applications": (_RULE_NOTE,),
}  # fmt: skip


def make(one: Reference, out: Path, scratch: Path, workers: int) -> None:
    """Run what is missing of a table, and write it."""
    folder = scratch / one.name
    folder.mkdir(parents=True, exist_ok=True)
    paths = {
        key: folder / ("_".join(str(part) for part in key).replace(":", ".") + ".json")
        for key in one.keys
    }
    missing = [key for key in one.keys if not paths[key].exists()]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        jobs = {pool.submit(timed, one.cell, key): key for key in missing}
        for count, future in enumerate(as_completed(jobs), 1):
            told, spent_s = future.result()
            path = paths[jobs[future]]
            path.with_suffix(".part").write_text(json.dumps(told), encoding="utf-8")
            path.with_suffix(".part").replace(path)
            sys.stderr.write(
                f"{one.name}: {count}/{len(missing)} {jobs[future]} {spent_s:.1f} s CPU\n"
            )
    found = [(key, json.loads(path.read_text(encoding="utf-8"))) for key, path in paths.items()]
    write(one, one.shown(found), out)


def timed(
    cell: Callable[..., dict[str, Any]], key: tuple[Any, ...]
) -> tuple[dict[str, Any], float]:
    """Run a cell and take its CPU time."""
    start = time.process_time()
    return cell(*key), time.process_time() - start


def write(one: Reference, made: Made, out: Path) -> None:
    """Write a table's files."""
    text = [f"# {one.title}\n", f"{SYNTHETIC}\n", *(f"{note}\n" for note in NOTES[one.name])]
    text += [f"{table.to_markdown()}" for table in made.tables]
    text += [f"![{one.title}]({one.name}{suffix}.svg)\n" for suffix in made.charts]
    short = one.name.removeprefix("microservices_")
    text.append(f"Made by `{COMMAND} --only {short}`.")
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{one.name}.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    rows = io.StringIO()
    csv.writer(rows, lineterminator="\n").writerows([made.head, *made.rows])
    (out / f"{one.name}.csv").write_text(rows.getvalue(), encoding="utf-8")
    for suffix, chart in made.charts.items():
        (out / f"{one.name}{suffix}.svg").write_text(chart, encoding="utf-8")


def short() -> None:
    """Run a small cell of each table."""
    few = ("derm", "erms", "hpa", "ursa")
    for target in (200.0, 550.0):
        told = target_cell(1.0, 10.0, target, 0, few)
        print("targets", target, {k: v["containers"] for k, v in told.get("policies", {}).items()})
    print("shares", {k: v["containers"] for k, v in share_cell(550.0, 0.1, 0).items()})
    day_ = trace_cell("derm", "ewma", True, 0, rounds=8)
    print("trace", {name: day_[name] for name in ("containers_mean", "violation_fraction")})
    print("forecasts", forecast_cell(2, 200.0, 0, rounds=40)["ewma"])
    print("recovery", recovery_cell(100, 0))
    print("errors", {k: v["violation"] for k, v in error_cell("0.8", 0, few).items()})
    queues = queue_cell("hotel", 0.4, 0, 2000, ("budget", "queue"))
    print("queues", {name: (told["law"], told["events"]) for name, told in queues.items()})


def main() -> int:
    """Make the tables asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "reference")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "reference_microservices")
    names = [one.name.removeprefix("microservices_") for one in TABLES]
    parser.add_argument("--only", choices=names)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    if options.short:
        short()
        return 0
    for one in TABLES:
        if options.only in (None, one.name.removeprefix("microservices_")):
            make(one, options.out, options.scratch, options.workers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
