"""Cells of the reference tables of microservices: one policy or more on one application each.

All is on built-in graphs with synthetic laws of latency, which a seed draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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
from apportion.results.microservices import microservice_metrics
from apportion.solver import Solver

DERM = ("derm", "derm:priority=uniform", "derm:priority=worst", "derm:priority=queue")
RULES = (
    "grandslam", "rhythm", "ursa", "firm", "sinan", "autopilot", "hpa", "static-worst",
)  # fmt: skip
POLICIES = (*DERM, "erms", *RULES)
SCHEMES = tuple(f"erms:scheme={scheme}" for scheme in ("fcfs", "partition", "priority"))
BESIDE = ("budget", "uniform", "worst", "queue")

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
        label = f"{name}:most_nodes={APPLICATION_NODES}" if name == "derm" else name
        out[name] = outcome(round_, decided(label, round_), seed)
    return out


APPLICATION_POLICIES = ("derm", *SCHEMES, "erms:form=exact", *RULES)
APPLICATIONS = ("social-network", "media", "hotel")
APPLICATION_NODES = 100
"""Boxes of Derm's search: each takes a tenth of a second with the social network's forks."""
