"""Make the reference tables of fair shares: ``results/reference/fair_*.md`` and ``.csv``.

usage: python benchmarks/reference_fair.py [--only NAME] [--data DIR] [--out results/reference]
       [--workers 2] [--short]

Tables: ``fair_msr`` (Gavel's msr traces, one tenant for each virtual cluster, 36 GPUs of each of
three types), ``fair_36`` and ``fair_24`` (generated work on 12 + 12 + 12 and 8 + 8 + 8 GPUs),
``fair_philly`` (the Philly table with its virtual clusters as tenants, 1,120 GPUs) and
``fair_large`` (4000 jobs, 1000 GPUs of 8 types).

DIR holds ``gavel/`` and ``philly/``; default: APPORTION_DATA, else ``../shared/data`` beside the
checkout. Every finished cell (policy x load x seed) is kept under ``runs/reference_fair`` and not
run again. Decisions stop on deterministic work, so that everything but decision times repeats.
``--short`` runs one small cell of each table that needs no data, and writes nothing.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.executor.training import run
from apportion.instances import Decision
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Generator,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
    generate_jobs,
    read_gavel,
    read_philly,
)
from apportion.registry import make_policy, policy_from_label
from apportion.results import training_metrics, users_of_leases, users_of_shares
from apportion.results.auditing.envy import envy
from apportion.results.auditing.evenness import most_efficient
from apportion.solver import Solver

ROOT = Path(__file__).resolve().parents[1]
COMMAND = "python benchmarks/reference_fair.py"

EVERY = 10
"""Of so many decisions one is audited: audits cost more than most decisions."""

FAIR = (
    "fft", "oef-cooperative", "oef-noncooperative", "gavel-las", "gavel-ftf", "gandiva-fair",
    "astraea", "tiresias",
)  # fmt: skip
LOADS, SEEDS = (0.5, 0.8, 1.1), (0, 1, 2, 3, 4)


# ---------------------------------------------------------------------- scenarios


LONGEST_S = 86_400.0
"""Jobs of the msr traces that take longer on their best type are left out: one of them alone keeps
a run going for weeks in which nobody else is there."""


def msr(load: float, seed: int, data: Path, jobs: int = 300) -> Scenario:
    """Jobs of all virtual clusters after an instant drawn by the seed, arrivals scaled to the load.

    The instant lies before half of the arrivals. Work stays as it is, so that scaling the arrivals
    is what sets the load.
    """
    folder = data / "gavel"
    everyone = read_gavel(
        sorted(folder.glob("msr_seed0_vc_*.csv.gz")),
        folder / "simulation_throughputs.json.gz", missing="skip",
    )  # fmt: skip
    arrival = everyone.jobs.arrival_s
    first = np.random.default_rng((seed, 0)).uniform(0.0, float(np.median(arrival)))
    best_s = everyone.jobs.work / everyone.jobs.throughput_per_s.max(axis=1)
    rows = np.flatnonzero((arrival >= first) & (best_s <= LONGEST_S))[:jobs]
    table = everyone.jobs.take(rows)
    best = table.throughput_per_s.max(axis=1)
    demand = float((table.gang * table.work / best).sum())
    span = demand / (load * float(everyone.cluster.gpus.sum()))
    since = table.arrival_s - table.arrival_s[0]
    scaled = since * (span / max(float(since[-1]), 1.0))
    return Scenario(
        "msr", everyone.cluster, everyone.jobs.take(rows, {"arrival_s": scaled}),
        everyone.tenants, seed=seed, options=ExecutorOptions(round_s=360.0),
    )  # fmt: skip


def epochs(load: float, seed: int, data: Path, jobs: int = 200) -> Scenario:
    """The generator's default law on 12 + 12 + 12 GPUs, six tenants."""
    cluster = Cluster.uniform({"T4": 12, "V100": 12, "A10": 12}, gpus_per_node=4)
    names = [f"team-{i}" for i in range(6)]
    law = Generator(
        jobs=jobs, load=load, epoch_s=600.0, work_most=60.0,
        tenant_share=dict.fromkeys(names, 1.0 / 6.0),
    )  # fmt: skip
    drawn = generate_jobs(law, cluster, np.array(names), seed)
    return Scenario("36 GPUs", cluster, drawn, Tenants.named(*names), seed=seed)


def users(load: float, seed: int, data: Path, jobs: int = 200) -> Scenario:
    """Twenty tenants with one model each, speed-ups 1, U(1.1, 1.8), U(1.3, 2.6), 8 + 8 + 8 GPUs."""
    rng = np.random.default_rng((seed, 1))
    up = np.c_[np.ones(20), rng.uniform(1.1, 1.8, 20), rng.uniform(1.3, 2.6, 20)]
    up = np.maximum.accumulate(up, axis=1)
    cluster = Cluster.uniform({"RTX3070": 8, "RTX3080": 8, "RTX3090": 8}, gpus_per_node=8)
    tenant = rng.integers(0, 20, jobs)
    gang = rng.choice([1, 2, 4], jobs, p=[0.7, 0.2, 0.1])
    hours = np.clip(rng.lognormal(0.0, 0.9, jobs), 0.1, 12.0)
    demand = float((gang * hours * 3600.0 / up[tenant, 2]).sum())
    gaps = rng.exponential(1.0, jobs)
    arrival = np.cumsum(gaps) / gaps.sum() * demand / (load * 24.0)
    names = [f"user-{i:02d}" for i in range(20)]
    table = Jobs.of(
        id=[f"job-{i}" for i in range(jobs)], gang=gang, work=hours * 3600.0 * gang,
        throughput_per_s=up[tenant] * gang[:, None], tenant=tenant, arrival_s=arrival,
        model=[f"model-{i:02d}" for i in tenant], state_gb=np.full(jobs, 1.0),
    )  # fmt: skip
    return Scenario("24 GPUs", cluster, table, Tenants.named(*names), seed=seed)


def philly(load: float, seed: int, data: Path, jobs: int | None = None) -> Scenario:
    """The busiest two weeks of the table; tenants weigh what they asked for over the whole table."""
    whole = read_philly(data / "philly/philly_jobs.csv.gz", timezone="UTC", total_gpus=1120)
    table = whole.jobs
    gpu_s = table.gang * table.work
    days = np.floor(table.arrival_s / 86400.0).astype(np.int64)
    by_day = np.bincount(days, weights=gpu_s)
    ends = np.convolve(by_day, np.ones(14), mode="valid")
    first = int(ends.argmax()) * 86400.0
    rows = np.flatnonzero((table.arrival_s >= first) & (table.arrival_s < first + 14 * 86400.0))
    rows = rows[table.gang[rows] <= 1120][:jobs]
    asked = np.bincount(table.tenant, weights=gpu_s, minlength=whole.tenants.id.size)
    tenants = Tenants(
        whole.tenants.id, np.maximum(asked, asked[asked > 0].min()),
        np.full(whole.tenants.id.size, np.inf),
    )  # fmt: skip
    natural = float(gpu_s[rows].sum()) / (1120.0 * 14.0 * 86400.0)
    moved = {"arrival_s": (table.arrival_s[rows] - first) * (natural / load)}
    return Scenario(
        "philly", whole.cluster, table.take(rows, moved), tenants, seed=seed,
        options=ExecutorOptions(round_s=300.0),
    )  # fmt: skip


def large(load: float, seed: int, data: Path, jobs: int = 4000) -> Scenario:
    """4000 generated jobs on 125 GPUs of each of 8 types, speeds from 1 to 4."""
    speed = dict(
        zip([f"gpu-{i}" for i in range(8)], np.linspace(1.0, 4.0, 8).tolist(), strict=True)
    )
    cluster = Cluster.uniform(dict.fromkeys(speed, 125), gpus_per_node=5)
    law = Generator(jobs=jobs, load=load, epoch_s=600.0, work_most=60.0, speed=speed)
    return Scenario(
        "large", cluster, generate_jobs(law, cluster, np.array(["default"]), seed),
        Tenants.named("default"), seed=seed,
    )  # fmt: skip


# ---------------------------------------------------------------------- one run


@dataclass
class Watched:
    """A bound policy whose decisions are audited now and then."""

    inner: BoundPolicy
    count: int = 0
    seen: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        """Decide, and audit every so many decisions in which somebody could wait."""
        decision = self.inner.decide(round_, memory)
        if self.count % EVERY == 0 and len(round_.jobs) > 1:
            self._audit(round_, decision)
        self.count += 1
        return decision

    def _audit(self, round_: TrainingRound, decision: Decision) -> None:
        leases = users_of_leases(round_, decision.allocation)
        if not len(leases):
            return
        got, most = float(leases.utility.sum()), most_efficient(leases)
        planned, margin = got, None
        if decision.shares is not None and decision.shares.user.size:
            meant = users_of_shares(round_, decision.shares, decision.allocation)
            planned, margin = float(meant.utility.sum()), envy(meant).margin
        for name, value in (("got", got), ("planned", planned), ("most", most), ("envy", margin)):
            if value is not None:
                self.seen.setdefault(name, []).append(value)

    def figures(self) -> dict[str, float | None]:
        """Means over the audited decisions."""
        mean = {name: float(np.mean(values)) for name, values in self.seen.items()}
        most = mean.get("most")
        margins = np.array(self.seen.get("envy", []))
        return {
            "planned_of_most": None if not most else mean["planned"] / most,
            "leased_of_most": None if not most else mean["got"] / most,
            "envy_free_fraction": float((margins >= -1e-6).mean()) if margins.size else None,
            "worst_envy": float(margins.min()) if margins.size else None,
        }


METRICS = (
    "unfinished", "jct_mean_s", "jct_p99_s", "ftf_share_mean", "ftf_share_max",
    "ltgf_loss_fraction", "ltgf_tenant_loss", "ltgf_tenant_spread", "ltgf_tenant_jain",
    "normalised_throughput", "busy_fraction", "preemptions", "starvation_max_s",
)  # fmt: skip


def cell(
    table: str, label: str, load: float, seed: int, data: str, jobs: int | None
) -> dict[str, Any]:
    """Run one policy on one load and seed."""
    made = SCENARIOS[table]
    scenario = made(load, seed, Path(data)) if jobs is None else made(load, seed, Path(data), jobs)
    policy = make_policy(*policy_from_label(label))
    watched = Watched(BoundPolicy(policy, Solver(work_limit=WORK_LIMIT)))
    done = run(scenario, watched, policy=label)
    told = training_metrics(done).as_dict()
    out = {name: told[name] for name in METRICS} | watched.figures()
    out["decide_p50_s"] = float(np.median(done.decide_s))
    out["decide_p99_s"] = float(np.percentile(done.decide_s, 99))
    return out


SCENARIOS: Mapping[str, Callable[..., Scenario]] = {
    "fair_msr": msr, "fair_36": epochs, "fair_24": users, "fair_philly": philly,
    "fair_large": large,
}  # fmt: skip


# ---------------------------------------------------------------------- tables

SHOWN = (
    ("jct_mean_s", "mean JCT, h", 1.0 / 3600.0, 2), ("ftf_share_mean", "mean FTF", 1.0, 2),
    ("ftf_share_max", "max FTF", 1.0, 1), ("ltgf_loss_fraction", "jobs below due GPU time", 1.0, 2),
    ("ltgf_tenant_loss", "tenants' lost LTGF", 1.0, 3), ("ltgf_tenant_spread", "LTGF spread", 1.0, 2),
    ("ltgf_tenant_jain", "Jain of LTGF", 1.0, 3),
    ("busy_fraction", "busy", 1.0, 3), ("preemptions", "preempted", 1.0, 0),
    ("planned_of_most", "planned / E_max", 1.0, 3), ("leased_of_most", "leased / E_max", 1.0, 3),
    ("envy_free_fraction", "plans without envy", 1.0, 2), ("decide_p50_s", "p50 decide, ms", 1e3, 1),
    ("decide_p99_s", "p99 decide, ms", 1e3, 1), ("unfinished", "unfinished", 1.0, 0),
)  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """One table: which cells, and what to say of it."""

    name: str
    title: str
    policies: tuple[str, ...]
    loads: tuple[float, ...]
    seeds: tuple[int, ...]
    notes: tuple[str, ...]


_E_MAX = (
    "planned / E_max: normalised throughput that the policy's shares mean, over the most that GPUs"
    " could do for the jobs of the round whatever is fair (the price of fairness is one minus it);"
    f" leased / E_max: what the leases of that round do. Audited: one decision of {EVERY}."
)
_LTGF = (
    "LTGF (Astraea): GPU time received over GPU time due, of jobs at their end and of tenants over"
    " 24 h; below 1 is a loss. FTF above 1 is bad. Plans without envy: of the policies that say"
    " what each user is meant to have; users are jobs (Gavel, Gandiva-fair by tenants), or"
    " tenants' models (OEF)."
)

TABLES = (
    Reference(
        "fair_msr", "Fair shares on Gavel's msr traces, 36 V100 + 36 P100 + 36 K80",
        FAIR, LOADS, SEEDS,
        ("300 jobs of all fifteen virtual clusters from an instant that the seed draws, arrivals"
         " scaled to the load; jobs without a measured throughput, or longer than a day on their best"
         " type, are left out; rounds of 360 s.",
         _E_MAX, _LTGF),
    ),
    Reference(
        "fair_36", "Fair shares on 12 T4 + 12 V100 + 12 A10", FAIR, LOADS, SEEDS,
        ("200 generated jobs of six tenants, rounds of 300 s.", _E_MAX, _LTGF),
    ),
    Reference(
        "fair_24", "Fair shares on 8 + 8 + 8 GPUs with twenty users", FAIR, LOADS, SEEDS,
        ("200 jobs of twenty tenants with one model each, speed-ups 1, U(1.1, 1.8), U(1.3, 2.6),"
         " rounds of 300 s.", _E_MAX, _LTGF),
    ),
    Reference(
        "fair_philly", "Tenants of the Philly table on 1,120 GPUs",
        ("astraea", "themis", "tiresias", "drf", "static-quota", "dynamic-quota", "fifo"),
        (0.62, 1.1), (0,),
        ("The busiest fourteen days of the table, virtual clusters as tenants weighted by the GPU"
         " time they asked for over the whole table, 140 nodes of 8 GPUs, rounds of 300 s. Astraea's"
         " own weights are published in part only. Their load on this cluster is 0.62, where all"
         " policies without quotas decide alike; load 1.1, with the same arrivals closer together, was"
         " added after that was seen.", _LTGF),
    ),
    Reference(
        "fair_large", "4000 jobs on 1000 GPUs of 8 types",
        ("fft", "gavel-las", "gavel-ftf", "allox", "tiresias"), (1.1, 1.5), (0,),
        ("Generated jobs, 125 GPUs of each type at speeds from 1 to 4, rounds of 300 s.",
         _E_MAX),
    ),
)  # fmt: skip


def make(one: Reference, data: Path, out: Path, scratch: Path, workers: int) -> None:
    """Run what is missing of a table, and write it."""
    folder = scratch / one.name
    folder.mkdir(parents=True, exist_ok=True)
    cells = [(p, load, seed) for p in one.policies for load in one.loads for seed in one.seeds]
    paths = {key: folder / f"{key[0]}_{key[1]:g}_{key[2]}.json" for key in cells}
    missing = [key for key in cells if not paths[key].exists()]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        jobs = {pool.submit(cell, one.name, *key, str(data), None): key for key in missing}
        for count, future in enumerate(as_completed(jobs), 1):
            path = paths[jobs[future]]
            path.with_suffix(".part").write_text(json.dumps(future.result()), encoding="utf-8")
            path.with_suffix(".part").replace(path)
            sys.stderr.write(f"{one.name}: {count}/{len(missing)} {jobs[future]}\n")
    found = {key: json.loads(path.read_text(encoding="utf-8")) for key, path in paths.items()}
    _write(one, found, out)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _write(one: Reference, found: Mapping[tuple[str, float, int], Any], out: Path) -> None:
    many = len(one.loads) > 1
    head = [*(["load"] if many else []), "policy", *(title for _, title, _, _ in SHOWN)]
    rows: list[list[str]] = []
    for load in one.loads:
        for policy in one.policies:
            row = [*([f"{load:g}"] if many else []), policy]
            for name, _, scale, digits in SHOWN:
                value = _mean([found[policy, load, seed][name] for seed in one.seeds])
                row.append("" if value is None else f"{value * scale:.{digits}f}")
            rows.append(row)
    kept = [i for i in range(len(head)) if any(row[i] for row in rows)]
    head, rows = [head[i] for i in kept], [[row[i] for i in kept] for row in rows]
    text = [f"# {one.title}\n", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    text += ["| " + " | ".join(row) + " |" for row in rows]
    notes = [f"Means over {len(one.seeds)} seeds."] if len(one.seeds) > 1 else []
    text += ["", *(f"{note}\n" for note in (*notes, *one.notes))]
    text.append(f"Made by `{COMMAND} --only {one.name}`. Decision times are the machine's own.")
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{one.name}.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    with (out / f"{one.name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def main() -> int:
    """Make the tables asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    default = os.environ.get("APPORTION_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default))
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "reference")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "reference_fair")
    parser.add_argument("--only", choices=[one.name for one in TABLES])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    if options.short:
        for policy in FAIR:
            told = cell("fair_24", policy, 0.8, 0, ".", 12)
            print(policy, {name: told[name] for name in ("jct_mean_s", "leased_of_most")})
        return 0
    for one in TABLES:
        if options.only in (None, one.name):
            make(one, options.data.resolve(), options.out, options.scratch, options.workers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
