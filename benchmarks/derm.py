"""Derm: tails and proved container counts, beside other ways to compute them.

Usage: ``python benchmarks/derm.py [--short] [--only oracle,loads,scale,general,largest]
[--out FOLDER]``

CPU seconds of this process and its children, imports excluded, one thread; searches stop by
the clock. Applications are synthetic, with rates, slopes and calls of the magnitudes
that Derm's artifact states. ``f`` is the target as a share of the one for which the least
admissible counts are enough. ``--out`` writes ``derm.md``.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import mpmath
import numpy as np
from scipy.linalg import expm
from solver_paths import cpu, table, used_machine, yardstick

from apportion.formulations.microservices.contour import contour
from apportion.formulations.microservices.derm import Derm
from apportion.formulations.microservices.derm.greedy import climb, trim
from apportion.formulations.microservices.derm.outer_approximation import by_levels
from apportion.formulations.microservices.derm.requirements import Requirements, requirements
from apportion.formulations.microservices.derm.search import Found, cheapest, reachable
from apportion.formulations.microservices.tails import Tails
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Services,
)
from apportion.solver import Budget, Solver

LOADS = (10, 30, 50, 100, 200, 1000)
SHARES_OF_TARGET = (0.9, 0.7, 0.5)


# ------------------------------------------------------------------ applications


def laws(rng: np.random.Generator, count: int) -> Microservices:
    """Rates, slopes and limits of the stated magnitudes; shifts a tenth of them."""
    return Microservices.of(
        [f"m{at}" for at in range(count)], rng.uniform(2.4, 9.4, count),
        -np.exp(rng.uniform(np.log(0.006), np.log(0.09), count)),
        shift_ms=rng.uniform(0.026, 0.079, count), least_rate_per_ms=0.8,
    )  # fmt: skip


def ticket_search(seed: int, rate: float) -> MicroserviceRound:
    """12 microservices, two classes of 10 that share 8; 103 and 473 calls."""
    rng = np.random.default_rng([seed, 1])
    calls = np.zeros((12, 2))
    for k, (first, total) in enumerate(((0, 103), (2, 473))):
        calls[first : first + 10, k] = 1 + np.round(rng.dirichlet(np.full(10, 0.7)) * (total - 10))
    return one_service(laws(rng, 12), CallTrees.serial(calls), np.array([0.5, 0.5]), rate)


def chains(seed: int, count: int, classes: int, stages: int, rate: float) -> MicroserviceRound:
    """Classes of so many stages each; popular microservices are in more of them."""
    rng = np.random.default_rng([seed, count, classes, stages])
    popularity = rng.dirichlet(np.full(count, 0.6)) + 1e-3
    popularity /= popularity.sum()
    calls = np.zeros((count, classes))
    for k in range(classes):
        who = rng.choice(count, stages, replace=False, p=popularity)
        calls[who, k] = np.maximum(1, np.round(np.exp(rng.normal(1.2, 1.1, stages))))
    share = rng.dirichlet(np.full(classes, 1.5))
    return one_service(laws(rng, count), CallTrees.serial(calls), share, rate)


def one_service(
    kinds: Microservices, trees: CallTrees, share: np.ndarray, rate: float
) -> MicroserviceRound:
    """Put classes under one P95 target."""
    ids = [f"c{at}" for at in range(len(trees))]
    classes = CallClasses.of(ids, trees, share=share / share.sum())
    return MicroserviceRound(kinds, Services.of(["s"], float(rate), 550.0), classes)


def forked(round_: MicroserviceRound, seed: int) -> MicroserviceRound:
    """Let every third and fourth stage of each class run side by side."""
    rng = np.random.default_rng([seed, 9])
    names = round_.microservices.id.tolist()
    trees: list[list[list[dict[str, object]]]] = []
    for k in range(len(round_.classes)):
        own = np.flatnonzero(round_.demand[:, k])
        rng.shuffle(own)
        made = [{"microservice": names[m], "calls": float(round_.demand[m, k])} for m in own]
        stages: list[list[dict[str, object]]] = []
        while made:
            width = 2 if len(stages) % 3 == 2 else 1
            stages.append(made[:width])
            made = made[width:]
        trees.append(stages)
    return replace(round_, classes=replace(round_.classes, trees=CallTrees.nested(trees, names)))


def priced(round_: MicroserviceRound, seed: int) -> MicroserviceRound:
    """Give containers unequal costs without a common unit."""
    cost = np.random.default_rng([seed, 7]).uniform(0.5, 3.0, len(round_.microservices))
    return replace(round_, microservices=replace(round_.microservices, cost=cost))


def several(seed: int, services: int, count: int, classes: int, stages: int) -> MicroserviceRound:
    """Services with targets of their own that share microservices."""
    base = chains(seed, count, services * classes, stages, 60.0)
    owner = np.repeat(np.arange(services), classes)
    share = base.classes.share / np.bincount(owner, weights=base.classes.share)[owner]
    return MicroserviceRound(
        base.microservices,
        Services.of([f"s{at}" for at in range(services)], 60.0, 550.0),
        CallClasses.of(base.classes.id, base.classes.trees, share=share, service=owner),
    )


def with_target(round_: MicroserviceRound, share: float) -> MicroserviceRound | None:
    """Set each target to a share of the one that the least counts keep; None: out of reach."""
    low, high = 1.0, 1e5
    services = round_.services
    least = np.empty(len(services))
    for s in range(len(services)):
        low, high = 1.0, 1e5
        for _ in range(40):
            middle = (low + high) / 2
            trial = replace(
                round_, services=replace(services, target_ms=np.full(len(services), middle))
            )
            need = requirements(trial)
            kept = Tails.of(trial).violations(need.low)[s] <= services.violation_budget[s]
            low, high = (low, middle) if kept else (middle, high)
        least[s] = high
    out = replace(round_, services=replace(services, target_ms=share * least))
    return out if reachable(requirements(out)) else None


# ------------------------------------------------------------------ tables


def oracle(repeats: int) -> tuple[str, list[str]]:
    """Times and errors of a tail: the contour, its neighbours, and scipy's matrix exponential."""
    round_ = with_target(ticket_search(0, 50.0), 0.7)
    assert round_ is not None
    need = requirements(round_)
    tails, plan = need.tails, need.low + 2
    rate, other = tails.rates(plan), tails.rates(plan + 1)
    each = [
        ("both classes", lambda: tails.met(rate)),
        ("with all slopes", lambda: tails.met_and_slopes(rate)),
        ("12 neighbours", lambda: tails.neighbours(rate, other)),
    ]
    rows = [[name, f"{timed(work, repeats) * 1e6:.0f}", ""] for name, work in each]
    chain = [
        rate[tails.microservice[tails.row_class == k], 0] / tails.calls[tails.row_class == k]
        for k in range(2)
    ]
    dense = timed(
        lambda: [by_expm(own, float(tails.room_ms[k])) for k, own in enumerate(chain)], repeats // 4
    )
    rows.append(["scipy.linalg.expm, both classes", f"{dense * 1e6:.0f}", ""])
    for name, kind in (("distinct rates", 0), ("equal rates", 1), ("equal to 1e-12", 2)):
        worst = errors(kind, 12 if repeats > 100 else 3)
        rows.append([f"largest error, {name}", f"{worst[0]:.1e}", f"{worst[1]:.1e}"])
    return table(["12 microservices, 2 classes of 10", "us or error", "expm's error"], rows), []


def timed(work: object, repeats: int) -> float:
    """CPU seconds of one call."""
    call = work
    began = time.process_time()
    for _ in range(max(repeats, 1)):
        call()  # type: ignore[operator]  # a function of nothing
    return (time.process_time() - began) / max(repeats, 1)


def by_expm(rates: np.ndarray, time_ms: float) -> float:
    """The tail by a dense matrix exponential, which cancels where rates nearly agree."""
    generator = np.diag(-rates) + np.diag(rates[:-1], 1)
    return float(expm(generator * time_ms)[0].sum())


def errors(kind: int, count: int) -> tuple[float, float]:
    """Largest errors of contour and matrix exponential against hundreds of digits."""
    rng = np.random.default_rng(kind)
    worst = [0.0, 0.0]
    for _ in range(count):
        rates = np.exp(rng.uniform(-3, 2, int(rng.integers(2, 13))))
        if kind:
            rates[:] = rates[0]
        if kind == 2:  # nearly equal
            rates *= 1.0 + 1e-12 * rng.random(rates.size)
        until = float((1.0 / rates).sum() * rng.uniform(0.5, 3.0))
        true = exactly(rates, until)
        nodes, weights = contour(rates.size)
        s = nodes / until
        met = (weights / nodes * (1.0 / (1.0 + s[None] / rates[:, None])).prod(axis=0)).sum().real
        worst[0] = max(worst[0], abs(1.0 - met - true))
        worst[1] = max(worst[1], abs(by_expm(rates, until) - true))
    return worst[0], worst[1]


def exactly(rates: np.ndarray, until: float) -> float:
    """The tail by partial fractions with enough digits, ties split by 1e-40."""
    with mpmath.workdps(60 + 60 * rates.size):
        apart = [
            mpmath.mpf(float(r)) * (1 + mpmath.mpf(10) ** -40 * j) for j, r in enumerate(rates)
        ]
        total = mpmath.mpf(0)
        for i, own in enumerate(apart):
            part = mpmath.e ** (-own * mpmath.mpf(until))
            for j, other in enumerate(apart):
                if i != j:
                    part *= other / (other - own)
            total += part
        return float(total)


def loads(seeds: int, cap_s: float) -> tuple[str, list[str]]:
    """12 microservices at every load, beside the level MILP on two back ends."""
    head = ["requests/s", "instances", "proved", "slowest s", "containers", "of them beyond the least",
            "levels, HiGHS s", "levels, SCIP s"]  # fmt: skip
    rows, worst, unproved = list[list[str]](), 0.0, 0
    for rate in LOADS:
        made = [
            one
            for seed in range(seeds)
            for f in SHARES_OF_TARGET
            if (one := with_target(ticket_search(seed, rate), f)) is not None
        ]
        found = [cpu(lambda one=one: cheapest(requirements(one), Budget.of(20.0))) for one in made]
        slow, proved = max(spent for spent, _ in found), sum(plan.proved for _, plan in found)
        worst, unproved = max(worst, slow), unproved + len(made) - proved
        plans = [plan.containers for _, plan in found if plan.containers is not None]
        extra = [
            float(plan.sum() / requirements(one).low.sum() - 1)
            for plan, one in zip(plans, made, strict=True)
        ]
        models = [by_model(made[0], name, cap_s, found[0][1]) for name in ("highs", "scip")]
        rows.append([
            str(rate), str(len(made)), str(proved), f"{slow:.3f}",
            f"{min(p.sum() for p in plans)} to {max(p.sum() for p in plans)}",
            f"{min(extra):.0%} to {max(extra):.0%}", *models,
        ])  # fmt: skip
        sys.stderr.write(" | ".join(rows[-1]) + "\n")
    met = "met" if worst <= 0.1 and not unproved else "missed"
    return table(head, rows), [
        f"Goal: proved at every load within 0.1 CPU s: slowest {worst:.3f} s, {unproved} unproved;"
        f" {met}. The level MILP is solved for the first instance of each row, capped at"
        f" {cap_s:g} s of the clock."
    ]


def by_model(round_: MicroserviceRound, backend: str, cap_s: float, known: Found) -> str:
    """Seconds of the level MILP, and whether it found the same."""
    need = requirements(round_)
    solver = Solver(gap=1e-6, backend=backend)
    spent, (found, _) = cpu(lambda: by_levels(need, solver, Budget.of(cap_s)))
    same = found.proved and found.containers.sum() == known.containers.sum()
    return f"{spent:.2f}" if same else f"{spent:.2f} (not proved)"


@dataclass(frozen=True)
class Run:
    """A search stopped at a time."""

    spent_s: float
    found: Found
    need: Requirements

    @property
    def gap(self) -> float:
        """Relative distance of plan and bound."""
        value = self.need.value(self.found.containers)
        return (value - self.found.bound) / value

    def cells(self) -> list[str]:
        """Seconds and proof."""
        return [f"{self.spent_s:.2f}", "proved" if self.found.proved else f"{self.gap:.2%}"]


def searched(round_: MicroserviceRound, limit_s: float, gap: float = 0.0) -> Run:
    """Search within CPU seconds."""
    spent, (found, need) = cpu(lambda: _searched(round_, limit_s, gap))
    assert found.containers is not None
    assert need.kept(found.containers)
    return Run(spent, found, need)


def _searched(round_: MicroserviceRound, limit_s: float, gap: float) -> tuple[Found, Requirements]:
    need = requirements(round_)
    return cheapest(need, Budget.of(limit_s), gap=gap), need


SCALES = (
    # microservices, classes, stages, requests/s, f
    (20, 8, 10, 200, 0.5), (50, 4, 12, 200, 0.75), (100, 8, 12, 200, 0.75),
    (100, 8, 25, 200, 0.75), (100, 8, 25, 200, 0.5), (100, 8, 25, 2000, 0.5),
    (200, 16, 30, 500, 0.6),
)  # fmt: skip


def scale(
    seeds: int, long_s: float, sizes: tuple[tuple[int, int, int, int, float], ...]
) -> tuple[str, list[str]]:
    """Larger chains, after one second and after thirty."""
    head = ["microservices x classes", "stages", "requests/s", "f", "containers", "1 s: CPU s",
            "gap", f"{long_s:g} s: CPU s", "gap"]  # fmt: skip
    rows, short_gap, long_gap = list[list[str]](), dict[str, float](), dict[str, float]()
    for count, classes, stages, rate, f in sizes:
        for seed in range(seeds):
            made = with_target(chains(seed, count, classes, stages, rate), f)
            if made is None:
                continue
            first, last = searched(made, 1.0), searched(made, long_s)
            size = f"{count} x {classes}"
            short_gap[size] = max(short_gap.get(size, 0.0), first.gap)
            long_gap[size] = max(long_gap.get(size, 0.0), last.gap)
            rows.append([
                size, str(stages), str(rate), f"{f:g}", str(last.found.containers.sum()),
                *first.cells(), *last.cells(),
            ])  # fmt: skip
            sys.stderr.write(" | ".join(rows[-1]) + "\n")
    notes = list[str]()
    for size, limits in (("100 x 8", (0.02, 0.01)), ("200 x 16", (0.03, None))):
        if size in short_gap:
            met = short_gap[size] <= limits[0] and (
                limits[1] is None or long_gap[size] <= limits[1]
            )
            aim = f"{limits[0]:.0%} in 1 s" + (f" and {limits[1]:.0%} in 30 s" if limits[1] else "")
            notes.append(
                f"Goal for {size}: {aim}; worst {short_gap[size]:.2%} and {long_gap[size]:.2%};"
                f" {'met' if met else 'missed'}."
            )
    return table(head, rows), notes


def general(seeds: int, limit_s: float) -> tuple[str, list[str]]:
    """What the chains leave out: costs without a unit, forks, several services, an order."""
    head = ["application", "seed", "cost", "CPU s", "gap", "beyond the greedy plan's cost"]
    kinds = {
        "ticket search, unequal costs": lambda s: priced(ticket_search(s, 50.0), s),
        "ticket search, forks": lambda s: forked(ticket_search(s, 50.0), s),
        "100 x 8, unequal costs": lambda s: priced(chains(s, 100, 8, 12, 200.0), s),
        "100 x 8, forks": lambda s: forked(chains(s, 100, 8, 12, 200.0), s),
        "3 services, 20 x 6": lambda s: several(s, 3, 20, 2, 8),
        "4 services, 100 x 16": lambda s: several(s, 4, 100, 4, 12),
    }
    rows = list[list[str]]()
    for name, make in kinds.items():
        for seed in range(seeds):
            made = with_target(make(seed), 0.75)
            if made is None:
                continue
            need = requirements(made)
            start = climb(need, Budget.of(60.0)).containers
            greedy = need.value(trim(need, start, Budget.of(60.0)).containers)
            run = searched(made, limit_s, 1e-4)
            cost = need.value(run.found.containers)
            rows.append([name, str(seed), f"{cost:.6g}", *run.cells(), f"{cost / greedy - 1:.2%}"])
            sys.stderr.write(" | ".join(rows[-1]) + "\n")
    return table(head, rows), []


def largest(count: int, classes: int) -> tuple[str, list[str]]:
    """A plan for an application of a thousand microservices."""
    made = with_target(chains(0, count, classes, 30, 500.0), 0.75)
    assert made is not None
    spent, decision = cpu(
        lambda: (
            Derm(form="greedy")
            .compile(made, None, Budget.of(60.0))
            .solve(Solver(), Budget.of(60.0))
        )
    )
    assert decision.allocation.guaranteed.all()
    rows = [[f"{count} x {classes}", str(decision.allocation.containers.sum()), f"{spent:.1f}"]]
    met = "met" if spent <= 60.0 else "missed"
    notes = [f"Goal: a feasible plan within 60 s: {spent:.1f} CPU s; {met}."]
    return table(["microservices x classes", "containers", "CPU s"], rows), notes


def main() -> None:
    """Measure, print, and write the page where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="oracle,loads,scale,general,largest")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    little = options.short
    parts = {
        "oracle": ("Tails", lambda: oracle(40 if little else 2000)),
        "loads": (
            "12 microservices, 2 classes",
            lambda: loads(1 if little else 4, 5.0 if little else 20.0),
        ),
        "scale": (
            "Chains",
            lambda: scale(
                1 if little else 2, 1.0 if little else 30.0, SCALES[:2] if little else SCALES
            ),
        ),
        "general": (
            "Costs, forks and services",
            lambda: general(1 if little else 3, 1.0 if little else 10.0),
        ),
        "largest": (
            "A thousand microservices",
            lambda: largest(*((100, 8) if little else (1000, 64))),
        ),
    }
    loop, began = yardstick(), time.monotonic()
    text = "**Derm: tails and proved container counts**\n\n"
    for name in options.only.split(","):
        title, run = parts[name]
        body, notes = run()
        text += f"*{title}*\n\n{body}\n" + "".join(f"- {note}\n" for note in notes) + "\n"
    text += (
        f"{used_machine((loop + yardstick()) / 2)} {time.monotonic() - began:.0f} seconds of the"
        " clock in all, the cores shared with other work: searches that the clock stopped had less CPU"
        " time than their limit. Applications are synthetic.\n\nMade by `python benchmarks/derm.py --out"
        " results/reference`.\n"
    )
    sys.stdout.write(text)
    if options.out is not None:
        (options.out / "derm.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
