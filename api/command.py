"""The command ``apportion``: answers on standard output, progress on standard error."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from apportion.admitting import admit as admit_job
from apportion.answer import Answer
from apportion.answer_reading import read_answer
from apportion.auditing import audit as audit_round
from apportion.comparing import compare as compare_runs
from apportion.demo import demo as run_demo
from apportion.exits import DONE, INTERRUPTED, NO, OF_STATUS, told
from apportion.families.lookup import family_of, read_round, scenario_family, training_round
from apportion.fitting import fit as fit_traces
from apportion.fitting import fit_table
from apportion.importing import import_trace
from apportion.importing_microservices import Application
from apportion.instances import InstanceError
from apportion.instances.files import (
    in_place,
    json_text,
    naming,
    read_json,
    read_text,
    shown,
    write_bytes,
)
from apportion.instances.memory_json import dump_memory, load_memory
from apportion.instances.microservices.fitted_model import model_to_dict
from apportion.options import (
    AsJson,
    Backend,
    Containers,
    Gap,
    Limit,
    MaybePolicy,
    MaybeSampling,
    MaybeWindow,
    Params,
    Peak,
    PolicyName,
    ScenarioName,
    Seed,
    TimeLimit,
    Workers,
    counts,
    listed,
    number,
    parameters,
    targets,
    writable,
)
from apportion.options import seeds as read_seeds
from apportion.policy_list import policies_table, policy_table
from apportion.progress import cell_progress, run_progress
from apportion.questions.explaining import explain as explain_round
from apportion.questions.pricing import prices as price_gpus
from apportion.registry import made_for
from apportion.results.table import Table
from apportion.show import answer_tables
from apportion.simulating import policy_of
from apportion.simulating import simulate as simulate_scenario
from apportion.solver import Budget, Model, write_mps
from apportion.solving import solve as solve_round
from apportion.verifying import verify as verify_answer
from apportion.versions import versions

app = typer.Typer(
    name="apportion",
    help="Decide, check and simulate scheduling rounds of GPU clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print(table: Table, as_json: bool, timings: bool = False) -> None:
    """Print a table; wall times are for people, or for whoever asks: the rest repeats exactly."""
    if as_json:
        sys.stdout.write(table.to_json(timings=timings))
    else:
        Console().print(table)


@app.command()
def demo(
    as_json: AsJson = False,
    workers: Workers = None,
) -> None:
    """Run FFT, SRTF and FIFO on the bundled scenario and set them side by side."""
    result = run_demo(workers=workers, done=None if as_json else cell_progress("demo"))
    if as_json:
        sys.stdout.write(result.table.to_json())
        return
    console = Console()
    for part in result.parts():
        console.print(part)


@app.command()
def solve(
    round_file: Annotated[Path, typer.Argument(metavar="ROUND", help="A round file.")],
    policy: MaybePolicy = None,
    param: Params = None,
    time_limit: TimeLimit = None,
    gap: Gap = 1e-4,
    solver: Backend = "auto",
    seed: Seed = None,
    memory: Annotated[Path | None, typer.Option(help="Memory of the policy.")] = None,
    previous: Annotated[Path | None, typer.Option(help="The last answer.")] = None,
    outcome: Annotated[Path | None, typer.Option(help="What came of the last answer.")] = None,
    memory_out: Annotated[Path | None, typer.Option(help="Write the memory here.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the answer here.")] = None,
    export_mps: Annotated[Path | None, typer.Option(help="Write the model here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Decide one round."""
    targets = {"out": out, "memory_out": memory_out, "export_mps": export_mps}
    # a device or a pipe is written to as it is: no file is made beside it
    writable(**{name: path for name, path in targets.items() if path and not in_place(path)})
    asked = read_round(round_file)
    chosen = made_for(family_of(asked), policy, parameters(param))
    last = None if previous is None else read_answer(previous)
    with _naming_memory(memory):
        answer = solve_round(
            asked, chosen, memory=_memory(memory), previous=last, outcome=_outcome(outcome, last),
            time_limit_s=time_limit, gap=gap, backend=solver, seed=seed or 0,
        )  # fmt: skip
    model = None if export_mps is None else _model(answer, chosen)
    if export_mps is not None and model is not None:
        write_mps(model, export_mps)
    if memory_out is not None:
        write_bytes(memory_out, f"{dump_memory(answer.memory)}\n".encode())
    if out is not None:
        answer.write(out)
    if as_json:
        sys.stdout.write(json_text(answer.to_dict()) + "\n")
    else:
        console = Console()
        for part in answer_tables(answer):
            console.print(part)
    raise typer.Exit(OF_STATUS.get(answer.status, DONE))


def _memory(path: Path | None) -> Any:
    if path is None:
        return None
    with naming(path):
        return load_memory(read_text(path))


@contextlib.contextmanager
def _naming_memory(path: Path | None) -> Generator[None]:
    """Put the file of a memory before what a policy says of it."""
    try:
        yield
    except InstanceError as error:
        if path is None or not str(error).startswith("memory"):
            raise
        raise InstanceError(f"{path}: {error}") from None


def _outcome(path: Path | None, last: Answer | None) -> Any:
    if path is None:
        return None
    if last is None:
        raise InstanceError("--outcome needs --previous, the answer it belongs to")
    data = read_json(path)
    with naming(path):
        return last.family.files.outcome_from_dict(last.round_, data)


def _model(answer: Answer, policy: Any) -> Model:
    program = policy.compile(answer.round_, answer.memory, Budget.of(None))
    if program.model is None:
        raise InstanceError(f"--export-mps: policy {answer.policy!r} has no model")
    return program.model


@app.command()
def simulate(
    scenario: ScenarioName,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Default: the scenario's own.")
    ] = None,
    param: Params = None,
    variant: Annotated[str | None, typer.Option(help="What-if variant.")] = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder; a run found there is resumed.")
    ] = None,
    gap: Gap = 1e-4,
    solver: Backend = "auto",
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
) -> None:
    """Carry a scenario out under one policy."""
    family = scenario_family(scenario)
    with run_progress(scenario, family.runs.counted) as tick:
        done = simulate_scenario(
            scenario, policy, parameters=parameters(param), variant=variant, seed=seed, out=out,
            gap=gap, backend=solver, time_limit_s=time_limit, progress=tick,
        )  # fmt: skip
    title = f"{done.scenario.name} under {policy_of(done)}"
    _print(family.tables.metrics(family.runs.metrics(done), title=title), as_json)
    figure = family.tables.figure(done)
    if figure is not None and not as_json:
        Console().print(figure)


@app.command()
def compare(
    scenario: ScenarioName,
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
    workers: Workers = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    timings: Annotated[
        bool, typer.Option("--timings", help="Wall times in JSON, CSV and Markdown too.")
    ] = False,
    gap: Gap = 1e-4,
    solver: Backend = "auto",
    as_json: AsJson = False,
) -> None:
    """Set policies x variants x seeds side by side."""
    if sum((markdown, csv, as_json)) > 1:
        raise InstanceError("--markdown, --csv and --json: at most one of them")
    table = compare_runs(
        scenario, listed(policies, "--policies"),
        variants=None if variants is None else listed(variants, "--variants"),
        seeds=None if seeds is None else read_seeds(seeds), out=out, workers=workers,
        gap=gap, backend=solver, done=cell_progress("compare"),
    )  # fmt: skip
    if markdown:
        sys.stdout.write(table.to_markdown(timings=timings))
    elif csv:
        sys.stdout.write(table.to_csv(timings=timings))
    else:
        _print(table, as_json, timings)


@app.command()
def check(
    round_file: Annotated[Path, typer.Argument(metavar="ROUND", help="A round file.")],
    answer_file: Annotated[Path, typer.Argument(metavar="ANSWER", help="An answer file.")],
    as_json: AsJson = False,
) -> None:
    """Check an answer against a round, without any solver. Exit 1 if a rule is broken."""
    asked = read_round(round_file)
    family = family_of(asked)
    data: Any = read_json(answer_file)
    with naming(answer_file):
        if not isinstance(data, dict) or "allocation" not in data:
            raise InstanceError("has no 'allocation': not an answer")
        told = cast("dict[str, Any]", data)
        if told.get("family", family.name) != family.name:
            raise InstanceError(
                f"family = {shown(told['family'])}: the round {round_file} is of {family.name!r}"
            )
        allocation = family.files.allocation_from_dict(asked, told["allocation"])
    broken = family.rules.check(asked, allocation)
    if as_json:
        rows = [{"rule": one.rule, "message": one.message} for one in broken]
        sys.stdout.write(json.dumps({"valid": not broken, "violations": rows}, indent=1) + "\n")
    elif broken:
        for one in broken:
            sys.stdout.write(f"{one.rule}: {one.message}\n")
    else:
        sys.stdout.write(f"valid: {family.tables.plan(asked, allocation)}\n")
    raise typer.Exit(NO if broken else DONE)


@app.command()
def verify(
    answer_file: Annotated[Path, typer.Argument(metavar="ANSWER", help="An answer file.")],
    round_file: Annotated[
        Path, typer.Option("--round", metavar="ROUND", help="The round that was asked.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check every claim of an answer, without any solver. Exit 1 if one does not hold."""
    found = verify_answer(read_answer(answer_file), training_round(round_file, "verify"))
    if as_json:
        sys.stdout.write(json_text(found.to_dict()) + "\n")
    else:
        for title, lines in (
            ("wrong", found.faults), ("proved", found.proved), ("word", found.words),
        ):  # fmt: skip
            sys.stdout.write("".join(f"{title:<7}{line}\n" for line in lines))
        sys.stdout.write("valid\n" if found.holds else "not valid\n")
    raise typer.Exit(DONE if found.holds else NO)


@app.command()
def explain(
    round_file: Annotated[Path, typer.Argument(metavar="ROUND", help="A round file.")],
    policy: PolicyName = "fft",
    param: Params = None,
    job: Annotated[str | None, typer.Option(help="A job to look at in detail.")] = None,
    memory: Annotated[Path | None, typer.Option(help="Memory of the policy.")] = None,
    time_limit: TimeLimit = 60.0,
    gap: Gap = 0.0,
    solver: Backend = "auto",
    as_json: AsJson = False,
) -> None:
    """Tell why a round is impossible, or why jobs got what they got."""
    with _naming_memory(memory):
        found = explain_round(
            training_round(round_file, "explain"), policy, job, parameters=parameters(param), memory=_memory(memory),
            time_limit_s=time_limit, gap=gap, backend=solver,
        )  # fmt: skip
    if as_json:
        sys.stdout.write(json_text(found.to_dict()) + "\n")
        return
    console = Console()
    for part in found.parts():
        console.print(part)


@app.command()
def prices(
    round_file: Annotated[Path, typer.Argument(metavar="ROUND", help="A round file.")],
    policy: PolicyName = "fft",
    param: Params = None,
    memory: Annotated[Path | None, typer.Option(help="Memory of the policy.")] = None,
    time_limit: TimeLimit = None,
    gap: Gap = 0.0,
    solver: Backend = "auto",
    as_json: AsJson = False,
) -> None:
    """Tell what one more GPU of each type would be worth."""
    with _naming_memory(memory):
        table = price_gpus(
            training_round(round_file, "prices"), policy, parameters=parameters(param), memory=_memory(memory),
            time_limit_s=time_limit, gap=gap, backend=solver,
        )  # fmt: skip
    _print(table, as_json)


@app.command()
def audit(
    round_file: Annotated[Path, typer.Argument(metavar="ROUND", help="A round file.")],
    policy: PolicyName = "fft",
    param: Params = None,
    memory: Annotated[Path | None, typer.Option(help="Memory of the policy.")] = None,
    asked: Annotated[
        str | None, typer.Option("--property", help="Names, separated by commas. Default: all.")
    ] = None,
    probe: Annotated[
        str | None,
        typer.Option(metavar="FACTORS", help="Scale reports by these, separated by commas."),
    ] = None,
    leases: Annotated[
        bool, typer.Option("--leases", help="Audit this round's leases, not the shares.")
    ] = False,
    capped: Annotated[
        bool,
        typer.Option(
            "--capped/--uncapped", help="Whether users use no more than their jobs' gangs."
        ),
    ] = True,
    time_limit: TimeLimit = None,
    gap: Gap = 0.0,
    solver: Backend = "auto",
    as_json: AsJson = False,
) -> None:
    """Tell which fairness properties a plan has. Exit 1 if one that was asked does not hold."""
    with _naming_memory(memory):
        found = audit_round(
            training_round(round_file, "audit"), policy, parameters=parameters(param), memory=_memory(memory),
            properties=None if asked is None else listed(asked, "--property"),
            probe=[] if probe is None else [number(one) for one in listed(probe, "--probe")],
            leases=leases, capped=capped, time_limit_s=time_limit, gap=gap, backend=solver,
        )  # fmt: skip
    if as_json:
        sys.stdout.write(json_text(found.to_dict()) + "\n")
    else:
        Console().print(found.table())
    raise typer.Exit(DONE if found.holds else NO)


@app.command()
def admit(
    round_file: Annotated[Path, typer.Argument(metavar="ROUND", help="A round file.")],
    job: Annotated[str, typer.Option(help="The job that asks.")],
    policy: Annotated[str, typer.Option("--policy", help="A policy that promises.")] = "chronus",
    param: Params = None,
    memory: Annotated[Path | None, typer.Option(help="Memory of the policy.")] = None,
    time_limit: TimeLimit = None,
    gap: Gap = 0.0,
    solver: Backend = "auto",
    as_json: AsJson = False,
) -> None:
    """Tell whether a job's deadline would be met, and what it would cost. Exit 1 if not."""
    with _naming_memory(memory):
        found = admit_job(
            training_round(round_file, "admit"), job, policy, parameters=parameters(param),
            memory=_memory(memory), time_limit_s=time_limit, gap=gap, backend=solver,
        )  # fmt: skip
    if as_json:
        sys.stdout.write(json_text(found.to_dict()) + "\n")
    else:
        Console().print(found.table())
    raise typer.Exit(DONE if found.accepted else NO)


@app.command()
def policies(
    name: Annotated[str | None, typer.Argument(help="One policy, with its parameters.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the policies, or the parameters of one."""
    _print(policies_table() if name is None else policy_table(name), as_json)


@app.command(name="import")
def import_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="gavel, philly, chronus, elasticflow; alibaba, jaeger, kubernetes.",
        ),
    ],
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
        str,
        typer.Option(help="Jobs without a throughput, microservices without a law: error or skip."),
    ] = "error",
    model_info: Annotated[
        Path | None, typer.Option(help="Speeds of spread gangs (chronus).")
    ] = None,
    limit: Limit = None,
    target_ms: Annotated[
        list[str] | None,
        typer.Option(metavar="MS", help="Agreed latency: MS, or SERVICE=MS each (microservices)."),
    ] = None,
    violation_budget: Annotated[
        float | None,
        typer.Option(parser=number, metavar="SHARE", help="Requests that may exceed it: 0.05."),
    ] = None,
    containers: Containers = None,
    sampling: MaybeSampling = None,
    window: MaybeWindow = None,
    peak: Peak = None,
    round_file: Annotated[
        Path | None, typer.Option("--round", help="Round to put containers into (kubernetes).")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a scenario that is there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Turn a public trace into a scenario of our own."""
    told_besides = Application(
        target_ms=targets(target_ms), violation_budget=violation_budget,
        containers=counts(containers, "--containers") or None, sampling=sampling, window_s=window,
        peak_per_s=peak, round_=round_file,
    )  # fmt: skip
    said = import_trace(
        kind, files, out, throughputs=throughputs, timezone=timezone, gpus=gpus, missing=missing,
        model_info=model_info, limit=limit, application=told_besides, force=force,
    )  # fmt: skip
    if "jobs" not in said:
        sys.stdout.write(json.dumps(said) + "\n" if as_json else _told_application(said))
        return
    dropped = said.get("dropped", 0)
    lost = f", {dropped} row{'s' * (dropped > 1)} with 0 GPUs dropped" if dropped else ""
    sys.stdout.write(
        json.dumps(said) + "\n" if as_json else f"{said['scenario']}: {said['jobs']} jobs{lost}\n"
    )


def _told_application(said: dict[str, Any]) -> str:
    """Say in a few lines what became of traces or deployments."""
    where = said.get("scenario", said.get("round"))
    parts = [f"{said[name]} {name}" for name in ("microservices", "services", "classes", "rounds")
             if said.get(name)]  # fmt: skip
    lines = [f"{where}: {', '.join(parts)}"]
    if said["dropped"]:
        lines.append(f"left out: {', '.join(said['dropped'])}")
    return "".join(f"{line}\n" for line in [*lines, *said["warnings"]])


@app.command()
def fit(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACES",
            help="Traces of Jaeger, OpenTelemetry or Alibaba; tables of containers and rates.",
        ),
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the model here.")] = None,
    containers: Containers = None,
    sampling: MaybeSampling = None,
    window: MaybeWindow = None,
    peak: Peak = None,
    percentile: Annotated[
        float, typer.Option(parser=number, metavar="P", help="Tail that Erms' lines stand for.")
    ] = 0.95,
    estimator: Annotated[str, typer.Option(help="Of rates: mean or distribution.")] = "mean",
    shift: Annotated[str, typer.Option(help="minimum, quantile or zero.")] = "minimum",
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse traces that cannot be understood.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit latency laws of microservices from traces."""
    if out is not None and not in_place(out):
        writable(out=out)
    model = fit_traces(
        traces, out=out, containers=counts(containers, "--containers"),
        sampling=1.0 if sampling is None else sampling, window_s=60.0 if window is None else window,
        peak_per_s=peak, percentile=percentile, estimator=estimator, shift=shift,
        strict=strict,
    )  # fmt: skip
    if as_json:
        sys.stdout.write(json_text(model_to_dict(model)) + "\n")
    else:
        Console().print(fit_table(model))


@app.command()
def version(as_json: AsJson = False) -> None:
    """Tell the versions of everything an answer depends on."""
    found = versions()
    if as_json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    else:
        sys.stdout.write("".join(f"{name} {number}\n" for name, number in found.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and turn errors into one line and an exit code.

    Parameters
    ----------
    arguments
        What follows the command's name; default: those of this process.
    """
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    streams = sys.stdout, sys.stderr
    try:
        out = app(args=arguments, standalone_mode=False, prog_name="apportion")
        sys.stdout.flush()
        if out == INTERRUPTED:  # the command-line library has taken the interrupt
            raise KeyboardInterrupt
        return int(out) if isinstance(out, int) else DONE
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        sys.stdout, sys.stderr = streams
        return told(error)


def run() -> None:
    """Console script."""
    for stream in (sys.stdout, sys.stderr):
        # names that a terminal cannot show are spelt out, not a reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main())
