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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from line_chart import line_chart

from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.executor.microservices import run
from apportion.instances import Decision
from apportion.instances.microservices import (
    Allocation,
    CallClasses,
    CallTrees,
    ExecutorOptions,
    MicroserviceRound,
    Microservices,
    Scenario,
)
from apportion.instances.microservices.builtin import builtin_round
from apportion.instances.microservices.class_merge import take_trees
from apportion.instances.microservices.forecast import predict_shares, share_radius
from apportion.instances.microservices.generate import GraphGenerator
from apportion.instances.microservices.learn import GraphCounter
from apportion.instances.microservices.share_paths import dirichlet_walk
from apportion.instances.streams import stream
from apportion.registry import make_policy, policy_from_label
from apportion.results.definitions import Unit
from apportion.results.microservices import microservice_metrics
from apportion.results.table import Cell, Column, Spread, Table
from apportion.solver import Solver

ROOT = Path(__file__).resolve().parents[1]
COMMAND = "python benchmarks/reference_microservices.py"

DERM = ("derm", "derm:priority=uniform", "derm:priority=worst", "derm:priority=queue")
RULES = (
    "grandslam", "rhythm", "ursa", "firm", "sinan", "autopilot", "hpa", "static-worst",
)  # fmt: skip
POLICIES = (*DERM, "erms", *RULES)
SCHEMES = tuple(f"erms:scheme={scheme}" for scheme in ("fcfs", "partition", "priority"))
BESIDE = ("budget", "uniform", "worst", "queue")

TARGETS_MS = (200, 250, 300, 350, 400, 450, 500, 550)
RATES_PER_S = (10, 30, 50)
SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SWEPT_TARGETS_MS = (450, 550)
RATE_PER_S = 30.0
TIGHT_MS = 450.0
"""Target at which tails bind; at 550 ms the load that a container carries binds as well."""

SEEDS = (0, 1, 2)

MOST_ROUNDS, SETTLED_ROUNDS = 120, 7
"""A rule that looks back is asked about the same round until it has given one plan for longer
than it holds containers back (five rounds), or so many times."""

LOOK_BACK = frozenset({"firm", "sinan", "autopilot", "hpa", "static-worst"})

DAY_ROUNDS, AMPLITUDE, DRAWN = 160, 0.5, 2000
FORECAST_ROUNDS, WARM_UP = 320, 20
FORECASTS = ("last", "mean", "ewma", "dirichlet", "static")
CONCENTRATIONS = (50.0, 200.0, 1000.0)

QUEUE_SLOPE = -1e-3
"""A call per second takes a 1000th of a call per ms from a container with a queue of its own."""

QUEUE_ROUNDS = 5
"""Of which the first is left out: queues are empty at its start."""

SYNTHETIC = (
    "Synthetic: graphs as published or in their likeness, laws of latency drawn from a seed in the"
    " ranges that Derm's artifact was fitted to. No measurement of anybody's."
)


# ---------------------------------------------------------------------- plans and what they do


@dataclass(frozen=True)
class Fixed:
    """A decider with one plan for every round, which claims nothing: forecasts vary."""

    plan: Allocation
    subscribes: frozenset[Any] = frozenset()
    reacts_to: frozenset[Any] = frozenset()

    def decide(self, round_: MicroserviceRound, memory: Any) -> Decision:
        plan = replace(self.plan, guaranteed=np.zeros_like(self.plan.guaranteed))
        return Decision(plan)

    def remember(self, memory: Any, round_: Any, decision: Decision, outcome: Any) -> None:
        return None

    def react(self, plan: Any, event: Any, view: Any) -> tuple[None, Any]:
        return None, plan


def bound(label: str) -> BoundPolicy:
    """Make a policy with the solver of experiments."""
    return BoundPolicy(make_policy(*policy_from_label(label)), Solver(work_limit=WORK_LIMIT))


def decided(label: str, round_: MicroserviceRound) -> Decision:
    """Decide a round; a rule that looks back is asked until its plan stays."""
    decider, memory, same = bound(label), None, 0
    decision = decider.decide(round_, memory)
    if label.split(":")[0] not in LOOK_BACK:
        return decision
    for _ in range(MOST_ROUNDS):
        memory = decider.remember(memory, round_, decision, None)
        plan = decision.allocation.containers
        round_ = replace(round_, containers=plan, now_s=round_.now_s + round_.duration_s)
        decision = decider.decide(round_, memory)
        same = same + 1 if np.array_equal(decision.allocation.containers, plan) else 0
        if same == SETTLED_ROUNDS:
            break
    return decision


def world(round_: MicroserviceRound, rounds: int, seed: int, **options: Any) -> Scenario:
    """Let a round stay as it is: rates and shares are what is believed."""
    forecast = {"forecast": "true", "rate_margin": 0.0} | options
    true = forecast.pop("true_microservices", None)
    return Scenario(
        "constant", round_, np.tile(round_.services.rate_per_s, (rounds, 1)),
        np.tile(round_.classes.share, (rounds, 1)), true_microservices=true, seed=seed,
        options=ExecutorOptions(**forecast),
    )  # fmt: skip


def outcome(
    round_: MicroserviceRound, decision: Decision, seed: int, *, true: Microservices | None = None
) -> dict[str, Any]:
    """Carry a plan out for a round by Monte Carlo."""
    done = run(world(round_, 1, seed, true_microservices=true), Fixed(decision.allocation))
    told = microservice_metrics(done)
    expected = done.services.expected_violation[0] / round_.services.violation_budget
    planned = done.services.planned_violation[0] / round_.services.violation_budget
    return {
        "containers": int(decision.allocation.containers.sum()), "status": decision.status,
        "violation": told.violation_worst_fraction,
        "by_law": float(expected.max() * round_.services.violation_budget[expected.argmax()]),
        "kept": bool((expected <= 1.0).all()), "planned_kept": bool((planned <= 1.0).all()),
        "q": dict(told.classes),
    }  # fmt: skip


def ticket(seed: int, rate: float, target: float, share: float = 0.5, shifts: float = 1.0) -> Any:
    """The ticket search with a share of the complex (heavy) class."""
    return builtin_round(
        "ticket-search", seed=seed, rate_per_s=rate, target_ms=target,
        share={"light": 1.0 - share, "heavy": share}, shift_factor=shifts,
    )  # fmt: skip


# ---------------------------------------------------------------------- cells


def target_cell(
    shifts: float, rate: float, target: float, seed: int, policies: Sequence[str] = POLICIES
) -> dict[str, Any]:
    """All policies on one round; where no number of containers does, say so and ask no more."""
    round_ = ticket(seed, rate, target, shifts=shifts)
    first = decided("derm", round_)
    if first.status == "INFEASIBLE":
        many = Allocation.of(np.full(len(round_.microservices), 10**6), [False])
        return {"possible": False, "least": outcome(round_, Decision(many), seed)["by_law"]}
    return {
        "possible": True,
        "policies": {name: outcome(round_, decided(name, round_), seed) for name in policies},
    }


def share_cell(target: float, share: float, seed: int) -> dict[str, Any]:
    """Derm's priorities at one share of the complex class."""
    round_ = ticket(seed, RATE_PER_S, target, share)
    return {
        name: outcome(round_, decided(label, round_), seed)
        for name, label in zip(BESIDE, DERM, strict=True)
    }


def day(seed: int, rounds: int) -> Scenario:
    """A day's rise and fall in fewer rounds, and shares that wander."""
    round_ = ticket(seed, RATE_PER_S, TIGHT_MS)
    phase = 2.0 * np.pi * np.arange(rounds) / rounds
    rate = RATE_PER_S * (1.0 - AMPLITUDE * np.cos(phase))[:, None]
    share = dirichlet_walk(round_.classes.share, round_.classes, rounds, seed)
    start = replace(round_, services=replace(round_.services, rate_per_s=rate[0]))
    return Scenario("day", start, rate, share, seed=seed)


def trace_cell(
    policy: str, forecast: str, robust: bool, seed: int, rounds: int = DAY_ROUNDS
) -> dict[str, Any]:
    """One policy over a day with one forecast of the shares."""
    options = ExecutorOptions(forecast=forecast, robust=robust, requests=DRAWN)
    label = f"{policy}{':robust=true' if robust else ''}"
    done = run(replace(day(seed, rounds), options=options), bound(label), policy=label)
    told = microservice_metrics(done)
    out = {
        name: getattr(told, name)
        for name in ("containers_mean", "containers_asked_mean", "violation_fraction",
                     "missed_fraction", "churn_fraction", "forecast_l1_mean",
                     "radius_covers_fraction", "class_kept_least_fraction")
    }  # fmt: skip
    series = {
        "rate": done.services.rate_per_s[:, 0], "share": done.classes.share[:, 1],
        "held": done.microservices.held.sum(axis=1),
    }  # fmt: skip
    return {**out, "series": {name: values.tolist() for name, values in series.items()}}


def forecast_cell(
    classes: int, concentration: float, seed: int, rounds: int = FORECAST_ROUNDS
) -> dict[str, Any]:
    """Errors of all forecasts on one walk: each round from those before it only."""
    start = np.array([0.5, 0.5] if classes == 2 else [0.4, 0.3, 0.2, 0.1])
    table = CallClasses.of(
        [str(k) for k in range(classes)], CallTrees.serial(np.eye(classes)), share=start
    )
    share = dirichlet_walk(start, table, rounds, seed, concentration=concentration)
    phase = 2.0 * np.pi * np.arange(rounds) / DAY_ROUNDS
    mean = 60.0 * RATE_PER_S * (1.0 - AMPLITUDE * np.cos(phase))[:, None] * share
    counts = stream(seed, "requests").poisson(mean)
    seen = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    out: dict[str, Any] = {}
    for method in FORECASTS:
        errors, covered, radii = [], [], []
        for t in range(WARM_UP, rounds):
            past = counts[max(0, t - 80) : t]  # what the executor keeps
            guess = predict_shares(past, start, method)
            radius = float(share_radius(past, start, method)[0])
            off = float(np.abs(guess - share[t]).sum()), float(np.abs(guess - seen[t]).sum())
            errors.append(off)
            radii.append(radius)
            covered.append((off[0] <= radius, off[1] <= radius))
        true, counted = np.mean(errors, axis=0).tolist()
        covers, covers_counted = np.mean(covered, axis=0).tolist()
        out[method] = {
            "l1": true, "l1_counted": counted, "radius": float(np.mean(radii)),
            "covers": covers, "covers_counted": covers_counted,
        }  # fmt: skip
    return out


def recovery_cell(requests: int, seed: int) -> dict[str, Any]:
    """Learn the classes of a drawn application from so many of its requests' graphs."""
    application = GraphGenerator(microservices=20, services=1, classes=8).generate(seed)
    classes, random = application.classes, stream(seed, "class_draws")
    drawn = random.choice(len(classes), requests, p=classes.share / classes.share.sum())
    counter = GraphCounter()
    batch = take_trees(classes.trees, drawn)
    number = counter.add(batch, ["s"] * requests, application.microservices.id.tolist())
    merged = counter.merged()
    found = np.zeros(len(classes))
    for k, at in dict(zip(drawn.tolist(), number.tolist(), strict=True)).items():
        row = int(merged.class_of[at])
        found[k] = merged.classes.share[row] if row >= 0 else 0.0
    off = float(np.abs(found - classes.share / classes.share.sum()).sum())
    return {"l1": off, "classes": len(classes), "met": len(merged.classes)}


def error_cell(
    error: str, seed: int, policies: Sequence[str] = POLICIES, rounds: int = 60
) -> dict[str, Any]:
    """Plans by the believed laws, carried out by others whose rates are off."""
    round_ = ticket(seed, RATE_PER_S, TIGHT_MS)
    believed = round_.microservices
    factor = np.full(len(believed), float(error)) if error != "drawn" else None
    if factor is None:
        factor = stream(seed, "model_error").uniform(0.8, 1.2, len(believed))
    true = replace(
        believed, rate_at_rest_per_ms=believed.rate_at_rest_per_ms * factor,
        rate_slope_per_ms=believed.rate_slope_per_ms * factor,
        least_rate_per_ms=believed.least_rate_per_ms * factor,
    )  # fmt: skip
    plans = {name: decided(name, round_) for name in policies}
    out = {name: outcome(round_, plan, seed, true=true) for name, plan in plans.items()}
    if "firm" in plans:  # it alone looks at measured latencies: let it see them
        known = replace(round_, containers=plans["firm"].allocation.containers)
        scenario = world(known, rounds, seed, requests=DRAWN, true_microservices=true)
        done = run(scenario, bound("firm"))
        last = slice(2 * rounds // 3, None)
        measured = done.services.violations[last].sum() / done.services.measured[last].sum()
        held = float(done.microservices.held[last].sum(axis=1).mean())
        out["firm, measuring"] = {"containers": held, "violation": float(measured)}
    return out


def queue_cell(
    application: str,
    share: float,
    seed: int,
    requests: int,
    priorities: Sequence[str] = ("budget", "queue"),
) -> dict[str, Any]:
    """Plans for laws that come from queues, carried out event by event."""
    if application == "ticket-search":
        drawn = ticket(seed, 300.0, 400.0, share)
    else:
        drawn = builtin_round(application, seed=seed, rate_per_s=20_000.0)
        own = len(drawn.services)
        if own == 2:  # two services share what there is
            rate = 40_000.0 * np.array([1.0 - share, share])
            drawn = replace(drawn, services=replace(drawn.services, rate_per_s=rate))
    table = drawn.microservices
    laws = replace(
        table, rate_slope_per_ms=np.full(len(table), QUEUE_SLOPE),
        least_load_per_s=np.zeros(len(table)),
        least_rate_per_ms=0.2 * table.rate_at_rest_per_ms,
    )  # fmt: skip
    length = requests / float(drawn.services.rate_per_s.sum()) / (QUEUE_ROUNDS - 1)
    round_ = replace(drawn, microservices=laws, duration_s=length)
    plans = {name: decided(f"derm:priority={name}", round_) for name in priorities}
    if "queue" in plans:  # the same containers, served as requests come
        plain = replace(plans["queue"].allocation, rank=None)
        plans["queue, unordered"] = replace(plans["queue"], allocation=plain)
    out: dict[str, Any] = {}
    for name, plan in plans.items():
        scenario = world(round_, QUEUE_ROUNDS, seed, simulator="events")
        done = run(scenario, Fixed(plan.allocation))
        kept, seen = done.classes.kept[1:].sum(axis=0), done.classes.measured[1:].sum(axis=0)
        bad, all_ = done.services.violations[1:].sum(axis=0), done.services.measured[1:].sum(axis=0)
        law = outcome(replace(round_, duration_s=60.0), plan, seed)
        ids, rank = round_.classes.id.tolist(), plan.allocation.rank
        out[name] = {
            "containers": law["containers"],
            "order": "" if rank is None else " > ".join(ids[k] for k in np.argsort(rank)),
            "law": law["violation"], "law_q": law["q"],
            "events": float((bad / np.maximum(all_, 1)).max()),
            "events_q": {
                name_: float(a / b) if b else None
                for name_, a, b in zip(ids, kept.tolist(), seen.tolist(), strict=True)
            },
        }  # fmt: skip
    return out


def application_cell(application: str, seed: int) -> dict[str, Any]:
    """All policies, and all of Erms' schemes, on an application's own rates and targets."""
    round_ = builtin_round(application, seed=seed)
    out: dict[str, Any] = {}
    for name in APPLICATION_POLICIES:
        label = f"{name}:most_nodes=300" if name == "derm:priority=queue" else name
        out[name] = outcome(round_, decided(label, round_), seed)
    return out


APPLICATION_POLICIES = (*DERM, *SCHEMES, "erms:form=exact", *RULES)
APPLICATIONS = ("social-network", "media", "hotel")


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
        ["mean (least..largest) over laws; the SLA allows 5 %", "derm:priority=queue stops each"
         " order after 300 boxes"],
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
