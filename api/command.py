"""The command ``apportion``: answers on standard output, progress on standard error."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from apportion.answer import Answer, read_answer
from apportion.comparing import compare as compare_runs
from apportion.demo import demo as run_demo
from apportion.executor.training import check as check_allocation
from apportion.importing import import_trace
from apportion.instances import InstanceError
from apportion.instances.files import json_text, naming, read_json
from apportion.instances.memory_json import dump_memory, load_memory
from apportion.instances.training.answer_json import allocation_from_dict, outcome_from_dict
from apportion.instances.training.round_json import read_round
from apportion.policy_list import policies_table, policy_table
from apportion.progress import cell_progress, run_progress
from apportion.registry import make_policy, policy_from_label
from apportion.results import metrics_table, training_metrics, utilisation_figure
from apportion.results.table import Table
from apportion.show import answer_tables
from apportion.simulating import simulate as simulate_scenario
from apportion.solver import Budget, write_mps
from apportion.solving import solve as solve_round
from apportion.versions import versions

DONE, NO, BAD_INPUT, INFEASIBLE, NOTHING_IN_TIME, OUR_ERROR, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

app = typer.Typer(
    name="apportion",
    help="Decide, check and simulate scheduling rounds of GPU clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
PolicyName = Annotated[str, typer.Option("--policy", help="Name of a policy.")]
Params = Annotated[
    list[str] | None, typer.Option("--param", help="NAME=VALUE, once for each parameter.")
]
Gap = Annotated[float, typer.Option("--gap", help="Relative gap that counts as optimal.")]
Backend = Annotated[str, typer.Option("--solver", help="Back end; auto chooses by model.")]
TimeLimit = Annotated[
    float | None, typer.Option("--time-limit", help="Seconds of wall time for one decision.")
]


def _print(table: Table, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(table.to_json(timings=True))
    else:
        Console().print(table)


def _parameters(given: Sequence[str] | None) -> dict[str, str]:
    return policy_from_label(":".join(["policy", *(given or [])]))[1] if given else {}


@app.command()
def demo(
    as_json: AsJson = False,
    workers: Annotated[int | None, typer.Option(help="Processes at once.")] = None,
) -> None:
    """Run FFT, SRTF and FIFO on the bundled scenario and set them side by side."""
    result = run_demo(workers=workers, done=None if as_json else cell_progress("demo"))
    if as_json:
        sys.stdout.write(result.table.to_json(timings=True))
        return
    console = Console()
    for part in result.parts():
        console.print(part)


@app.command()
def solve(
    round_file: Annotated[Path, typer.Argument(metavar="ROUND", help="A round file.")],
    policy: PolicyName = "fft",
    param: Params = None,
    time_limit: TimeLimit = None,
    gap: Gap = 1e-4,
    solver: Backend = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the back end.")] = 0,
    memory: Annotated[Path | None, typer.Option(help="Memory of the policy.")] = None,
    previous: Annotated[Path | None, typer.Option(help="The last answer.")] = None,
    outcome: Annotated[Path | None, typer.Option(help="What came of the last answer.")] = None,
    memory_out: Annotated[Path | None, typer.Option(help="Write the memory here.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the answer here.")] = None,
    export_mps: Annotated[Path | None, typer.Option(help="Write the model here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Decide one round."""
    asked = read_round(round_file)
    chosen = make_policy(policy, _parameters(param))
    last = None if previous is None else read_answer(previous)
    seen = None
    if outcome is not None:
        if last is None:
            raise InstanceError("--outcome needs --previous, the answer it belongs to")
        with naming(outcome):
            seen = outcome_from_dict(last.round_, read_json(outcome))
    known = None
    if memory is not None:
        with naming(memory):
            known = load_memory(memory.read_text(encoding="utf-8"))
    answer = solve_round(
        asked, chosen, memory=known, previous=last, outcome=seen, time_limit_s=time_limit,
        gap=gap, backend=solver, seed=seed,
    )  # fmt: skip
    if export_mps is not None:
        _export(answer, chosen, export_mps)
    if memory_out is not None:
        memory_out.write_text(dump_memory(answer.memory) + "\n", encoding="utf-8")
    if out is not None:
        answer.write(out)
    if as_json:
        sys.stdout.write(json_text(answer.to_dict()) + "\n")
    else:
        console = Console()
        for part in answer_tables(answer):
            console.print(part)
    raise typer.Exit(
        {"INFEASIBLE": INFEASIBLE, "NO_SOLUTION": NOTHING_IN_TIME}.get(answer.status, 0)
    )


def _export(answer: Answer, policy: Any, path: Path) -> None:
    program = policy.compile(answer.round_, answer.memory, Budget.of(None))
    if program.model is None:
        raise InstanceError(f"--export-mps: policy {answer.policy!r} has no model")
    write_mps(program.model, path)


@app.command()
def simulate(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="File or bundled name.")],
    policy: Annotated[
        str | None, typer.Option("--policy", help="Default: the scenario's own.")
    ] = None,
    param: Params = None,
    variant: Annotated[str | None, typer.Option(help="What-if variant.")] = None,
    seed: Annotated[int | None, typer.Option(help="Default: the scenario's own.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder; a run found there is resumed.")
    ] = None,
    gap: Gap = 1e-4,
    solver: Backend = "auto",
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
) -> None:
    """Carry a scenario out under one policy."""
    with run_progress(scenario) as tick:
        done = simulate_scenario(
            scenario, policy, parameters=_parameters(param), variant=variant, seed=seed, out=out,
            gap=gap, backend=solver, time_limit_s=time_limit, progress=tick,
        )  # fmt: skip
    metrics = training_metrics(done)
    _print(metrics_table(metrics, title=f"{done.scenario.name} under {done.policy}"), as_json)
    if not as_json:
        Console().print(utilisation_figure(done))


@app.command()
def compare(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="File or bundled name.")],
    policies: Annotated[
        str, typer.Option(help="Names or NAME:PARAMETER=VALUE, separated by commas.")
    ] = "fft,srtf,fifo",
    variants: Annotated[
        str | None, typer.Option(help="Variants, separated by commas; base = none. Default: all.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="FIRST:STOP, or numbers with commas.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder that keeps finished runs.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes at once.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    gap: Gap = 1e-4,
    solver: Backend = "auto",
    as_json: AsJson = False,
) -> None:
    """Set policies x variants x seeds side by side."""
    table = compare_runs(
        scenario, _listed(policies, "--policies"),
        variants=None if variants is None else _listed(variants, "--variants"),
        seeds=None if seeds is None else _seeds(seeds), out=out, workers=workers,
        gap=gap, backend=solver, done=cell_progress("compare"),
    )  # fmt: skip
    if markdown:
        sys.stdout.write(table.to_markdown())
    elif csv:
        sys.stdout.write(table.to_csv())
    else:
        _print(table, as_json)


def _listed(text: str, where: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InstanceError(f"{where} {text!r}: an entry is empty")
    return parts


def _seeds(text: str) -> list[int]:
    try:
        if ":" in text:
            first, stop = text.split(":")
            out = list(range(int(first or 0), int(stop)))
        else:
            out = [int(part) for part in text.split(",")]
    except ValueError:
        raise InstanceError(f"--seeds {text!r}: expected FIRST:STOP or numbers") from None
    if not out or min(out) < 0:
        raise InstanceError(f"--seeds {text!r}: names no seed from 0 on")
    return out


@app.command()
def check(
    round_file: Annotated[Path, typer.Argument(metavar="ROUND", help="A round file.")],
    answer_file: Annotated[Path, typer.Argument(metavar="ANSWER", help="An answer file.")],
    as_json: AsJson = False,
) -> None:
    """Check an answer against a round, without any solver. Exit 1 if a rule is broken."""
    asked = read_round(round_file)
    with naming(answer_file):
        data: Any = read_json(answer_file)
        if not isinstance(data, dict) or "allocation" not in data:
            raise InstanceError("has no 'allocation': not an answer")
        allocation = allocation_from_dict(asked, cast("dict[str, Any]", data)["allocation"])
    broken = check_allocation(asked, allocation)
    if as_json:
        rows = [{"rule": one.rule, "message": one.message} for one in broken]
        sys.stdout.write(json.dumps({"valid": not broken, "violations": rows}, indent=1) + "\n")
    elif broken:
        for one in broken:
            sys.stdout.write(f"{one.rule}: {one.message}\n")
    else:
        sys.stdout.write(
            f"valid: {allocation.job.size} jobs on {int(allocation.gpus.sum())} GPUs\n"
        )
    raise typer.Exit(NO if broken else DONE)


@app.command()
def policies(
    name: Annotated[str | None, typer.Argument(help="One policy, with its parameters.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the policies, or the parameters of one."""
    _print(policies_table() if name is None else policy_table(name), as_json)


@app.command(name="import")
def import_(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="gavel or philly.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="Trace files.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the scenario.")],
    throughputs: Annotated[Path | None, typer.Option(help="Throughput table (gavel).")] = None,
    timezone: Annotated[
        str | None, typer.Option(help="Zone of a trace that states none (philly): UTC, +08:00.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="GPUs by type, TYPE=COUNT with commas (gavel).")
    ] = None,
    missing: Annotated[
        str, typer.Option(help="Jobs without a throughput (gavel): error or skip.")
    ] = "error",
    limit: Annotated[int | None, typer.Option(help="First jobs only.")] = None,
    as_json: AsJson = False,
) -> None:
    """Turn a public trace into a scenario of our own."""
    said = import_trace(
        kind, files, out, throughputs=throughputs, timezone=timezone, gpus=gpus, missing=missing,
        limit=limit,
    )  # fmt: skip
    sys.stdout.write(
        json.dumps(said) + "\n" if as_json else f"{said['scenario']}: {said['jobs']} jobs\n"
    )


@app.command()
def version(as_json: AsJson = False) -> None:
    """Tell the versions of everything an answer depends on."""
    found = versions()
    if as_json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    else:
        sys.stdout.write("".join(f"{name} {number}\n" for name, number in found.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and turn errors into one line and an exit code."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    try:
        out = app(args=arguments, standalone_mode=False)
        return int(out) if isinstance(out, int) else DONE
    except Exception as error:
        return _failed(error)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED


def _failed(error: Exception) -> int:
    if type(error).__module__.startswith(("click", "typer")):
        told = getattr(error, "format_message", None)
        if told is not None:
            sys.stderr.write(f"error: {told()}\n")
            return BAD_INPUT
        return INTERRUPTED if type(error).__name__ == "Abort" else DONE
    if isinstance(error, InstanceError | BrokenPipeError | OSError):
        sys.stderr.write(f"error: {error}\n")
        return BAD_INPUT
    if os.environ.get("APPORTION_DEBUG"):
        traceback.print_exc()
    sys.stderr.write(
        f"internal error: {type(error).__name__}: {error}\n"
        "this is our fault; APPORTION_DEBUG=1 shows where it happened\n"
    )
    return OUR_ERROR


def run() -> None:
    """Console script."""
    sys.exit(main())
