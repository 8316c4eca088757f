"""Make the reference tables of FFT: ``results/reference/fft_*.md`` and ``.csv``.

Usage: ``python benchmarks/reference_fft.py [--data DIR] [--out results/reference] [--only NAME]``

DIR holds ``gavel/`` (the traces and throughput tables); default: APPORTION_DATA, else
``../shared/data`` beside the checkout. Finished runs are kept under ``--scratch``, so that the
command goes on where it was stopped. Decisions stop on deterministic work, so that the tables
repeat to the byte on one platform with one lock file.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import apportion as ap
from apportion.cell import Cell
from apportion.results import Labels, TrainingMetrics, comparison_table

ROOT = Path(__file__).resolve().parent.parent
COMMAND = "python benchmarks/reference_fft.py"

ROUNDS = """
[[variant]]
name = "round 60 s"
[variant.executor]
round_s = 60

[[variant]]
name = "round 900 s"
[variant.executor]
round_s = 900
"""

GAVEL = """schema = "apportion/scenario/1"
family = "training"
name = "{name}"
epoch = "2017-10-03T00:00:00+00:00"

[[cluster.type]]
name = "v100"
gpus = {gpus}
gpus_per_node = 4

[[cluster.type]]
name = "p100"
gpus = {gpus}
gpus_per_node = 4

[[cluster.type]]
name = "k80"
gpus = {gpus}
gpus_per_node = 4

[workload]
kind = "gavel"
traces = ["{data}/gavel/{trace}"]
throughputs = "{data}/gavel/{table}_throughputs.json.gz"
missing = "skip"
arrival_compression = {compression}

[policy]
name = "fft"

[executor]
round_s = {round_s}
"""

EPOCHS = """schema = "apportion/scenario/1"
family = "training"
name = "epochs"
epoch = "2025-01-06T08:00:00+00:00"
seed = 0

[[cluster.type]]
name = "T4"
gpus = 12
gpus_per_node = 4

[[cluster.type]]
name = "V100"
gpus = 12
gpus_per_node = 4

[[cluster.type]]
name = "A10"
gpus = 12
gpus_per_node = 4

[workload]
kind = "generate"
jobs = 400
load = 1.1
epoch_s = 100

[policy]
name = "fft"

[executor]
round_s = 300
"""

SMALL = GAVEL.format(
    name="physical_small_test", gpus=2, data="{data}", trace="physical_small_test.csv",
    table="physical_cluster", compression=1.0, round_s=60.0,
)  # fmt: skip
MSR = GAVEL.format(
    name="msr_2869ce", gpus=24, data="{data}", trace="msr_seed0_vc_2869ce.csv.gz",
    table="simulation", compression=9.0, round_s=300.0,
)  # fmt: skip

POLICIES = (
    "fft", "fft:fairness_weight=0", "fft:units=normalised", "fft:remaining_work=true",
    "fft:method=lp_repair", "srtf", "fifo",
)  # fmt: skip
WEIGHTS = ("0", "0.5", "1", "2", "4")
SHOWN = (
    "unfinished", "jct_mean_s", "jct_p99_s", "makespan_s", "ftf_share_mean", "ftf_share_max",
    "ftf_exclusive_mean", "starvation_max_s", "busy_fraction", "preemptions", "migrations",
)  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """One reference table."""

    name: str
    title: str
    scenario: str
    policies: tuple[str, ...]
    variants: tuple[str, ...] = ("base",)
    seeds: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()


_TRACE_NOTE = (
    "Trace msr vc 2869ce of Gavel, the 354 jobs that have a throughput, submissions compressed 9"
    " times (load about 0.85) on 24 V100 + 24 P100 + 24 K80 in nodes of 4, rounds of 300 s."
)
_UNITS_NOTE = (
    "Published units multiply work per round by work per round: with work in training steps the"
    " compensation outweighs every other term as soon as its weight is not zero, with work in parts"
    " of a job it hardly counts."
)

_ORDER_NOTE = (
    "The sweep was first run with epochs of 600 s and 200 jobs (fft_weight_epochs_600), where the"
    " weight showed nothing; 100 s and 400 jobs (fft_weight_epochs) were chosen after that, to see"
    " the compensation in the units of the formula's examples. Read the two together."
)

TABLES = (
    Reference(
        "fft_small",
        "FFT, SRTF and FIFO on Gavel's physical small test",
        SMALL,
        POLICIES,
        notes=("2 V100 + 2 P100 + 2 K80, rounds of 60 s; 20 jobs submitted at once.",),
    ),
    Reference(
        "fft_msr", "FFT, SRTF and FIFO on a Philly-derived trace of Gavel", MSR, POLICIES,
        notes=(_TRACE_NOTE, _UNITS_NOTE),
    ),
    Reference(
        "fft_rounds", "Length of a round", MSR + ROUNDS, ("fft", "srtf", "fifo"),
        variants=("round 60 s", "base", "round 900 s"),
        notes=(_TRACE_NOTE, "Variant base: rounds of 300 s."),
    ),
    Reference(
        "fft_weight_msr",
        "Weight of the fairness compensation on the trace",
        MSR,
        tuple(f"fft:fairness_weight={w}" for w in WEIGHTS)
        + tuple(f"fft:fairness_weight={w}:units=normalised" for w in ("1", "4")),
        notes=(_TRACE_NOTE, _UNITS_NOTE),
    ),
    Reference(
        "fft_weight_epochs",
        "Weight of the fairness compensation on generated jobs of 3 to 200 epochs",
        EPOCHS,
        (*(f"fft:fairness_weight={w}" for w in WEIGHTS), "srtf", "fifo"),
        seeds=(0, 1, 2),
        notes=(
            "12 T4 + 12 V100 + 12 A10 in nodes of 4, rounds of 300 s, 400 jobs, load 1.1, three"
            " seeds; an epoch takes about 100 s on the slowest type, so that theta is 2 to 10 epochs"
            " a round as in the published formula's examples.",
            _ORDER_NOTE,
        ),
    ),
    Reference(
        "fft_weight_epochs_600",
        "Weight of the fairness compensation where an epoch takes 600 s",
        EPOCHS.replace("jobs = 400", "jobs = 200").replace("epoch_s = 100", "epoch_s = 600"),
        (*(f"fft:fairness_weight={w}" for w in WEIGHTS), "srtf", "fifo"),
        seeds=(0, 1, 2),
        notes=(
            "12 T4 + 12 V100 + 12 A10 in nodes of 4, rounds of 300 s, 200 jobs, load 1.1, three"
            " seeds; an epoch takes about 600 s on the slowest type, the generator's default.",
            _ORDER_NOTE,
        ),
    ),
)  # fmt: skip


def make(one: Reference, data: Path, out: Path, scratch: Path) -> None:
    """Run one table's cells and write it."""
    folder = scratch / one.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scenario.toml"
    path.write_text(one.scenario.replace("{data}", str(data)), encoding="utf-8")

    found: dict[Labels, TrainingMetrics] = {}

    def told(cell: Cell, metrics: TrainingMetrics, count: int, total: int) -> None:
        found[Labels(cell.label, cell.variant or "base", cell.seed or 0)] = metrics
        sys.stderr.write(f"{one.name}: {count}/{total}\n")

    ap.compare(path, one.policies, variants=one.variants, seeds=one.seeds, out=folder, done=told)
    order = [
        Labels(policy, variant, seed)
        for policy in one.policies
        for variant in one.variants
        for seed in one.seeds or (0,)
    ]
    rows = [(labels, found[labels]) for labels in order]
    table = comparison_table(rows, title=one.title, shown=SHOWN)
    text = table.to_markdown().rstrip()
    notes = "".join(f"{note}\n\n" for note in one.notes)
    command = f"Made by `{COMMAND} --only {one.name}`.\n"
    (out / f"{one.name}.md").write_text(f"{text}\n\n{notes}{command}", encoding="utf-8")
    (out / f"{one.name}.csv").write_text(table.to_csv(), encoding="utf-8")


def main() -> int:
    """Make the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("APPORTION_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default))
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "reference")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "reference")
    parser.add_argument("--only", help="name of one table")
    options = parser.parse_args()
    chosen = [one for one in TABLES if options.only in (None, one.name)]
    if not chosen:
        parser.error(f"--only: one of {', '.join(one.name for one in TABLES)}")
    if not (options.data / "gavel").is_dir():
        parser.error(f"{options.data}/gavel is not there; see --data")
    for one in chosen:
        make(one, options.data.resolve(), options.out, options.scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
