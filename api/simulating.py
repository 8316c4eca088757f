"""A whole scenario, carried out under one policy."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.families.family import Progress
from apportion.families.lookup import family_of, is_scenario, read_scenario
from apportion.instances import InstanceError, Policy
from apportion.instances.files import naming, write_bytes, write_json
from apportion.registry import label_of, made_for, make_policy, told_parameters
from apportion.solving import budget_of, solver_of


def simulate(
    scenario: Any,
    policy: str | Policy | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    variant: str | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    gap: float = 1e-4,
    backend: str = "auto",
    time_limit_s: float | None = None,
    progress: Progress | None = None,
) -> Any:
    """Carry a scenario out, round by round, every allocation checked.

    Parameters
    ----------
    scenario
        A scenario of any family, the path of a scenario file, or the name of a bundled one.
    policy, parameters
        Who decides; default: what the scenario says.
    variant, seed
        What-if variant and seed, for scenarios read from files.
    out
        Folder that the run is written to as it goes, and resumed from: metrics, jobs, rounds and
        the journal. Same scenario and policy, same bytes.
    gap, backend
        Relative gap and back end of each decision.
    time_limit_s
        Wall time for each decision. Default: none, so that a run repeats exactly; searches stop
        on deterministic work.
    progress
        Called now and then.

    Returns
    -------
    Run
        The records of the family's executor.

    Raises
    ------
    InstanceError
        On unusable input, or a folder that holds another run.
    """
    given = is_scenario(scenario)
    if given:
        if variant is not None or seed is not None:
            raise InstanceError("simulate: variant and seed need a scenario file")
        world = scenario
    else:
        world = read_scenario(scenario, variant=variant, seed=seed)
    family = family_of(world)
    with contextlib.nullcontext() if policy is not None or given else naming(scenario):
        chosen = made_for(family, *_who(world, policy, parameters))
    budget_of(time_limit_s)
    decider = BoundPolicy(chosen, solver_of(gap, backend, world.seed, WORK_LIMIT), time_limit_s)
    folder = None if out is None else made_folder(out)
    said = {
        "name": chosen.name,
        "parameters": told_parameters(chosen),
        "gap": gap,
        "backend": backend,
    }
    if time_limit_s is not None:
        said["time_limit_s"] = time_limit_s
    done = family.runs.run(
        world,
        decider,
        policy=json.dumps(said, sort_keys=True),
        journal=folder,
        progress=progress,
    )
    if folder is not None:
        write_run(done, folder)
    return done


def _who(
    scenario: Any, policy: str | Policy | None, parameters: Mapping[str, Any] | None
) -> tuple[str | Policy, Mapping[str, Any]]:
    """Take the scenario's policy where none is given; its parameters go with its policy only."""
    if policy is None or policy == scenario.policy:
        return scenario.policy, {**scenario.parameters, **(parameters or {})}
    return policy, parameters or {}


def policy_of(done: Any) -> str:
    """Name the policy of a run, with the parameters that are not at their defaults."""
    said = json.loads(done.policy)
    return label_of(make_policy(said["name"], said["parameters"]))


def made_folder(path: str | Path) -> Path:
    """Make a folder, and those above it, where it is not there yet.

    Raises
    ------
    InstanceError
        If it cannot be made or written to.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InstanceError(f"{folder}: is a file, not a folder") from None
    except OSError as error:
        raise InstanceError(f"{folder}: cannot be made: {error.strerror or error}") from None
    if not os.access(folder, os.W_OK):
        raise InstanceError(f"{folder}: cannot be written to")
    return folder


def write_run(done: Any, folder: Path) -> None:
    """Write the metrics and the tables of a run; wall times go to a file of their own."""
    runs = family_of(done.scenario).runs
    metrics = runs.metrics(done)
    write_json(folder / "metrics.json", metrics.as_dict())
    write_json(folder / "timings.json", metrics.as_dict(timings=True))
    for name, frame in runs.frames(done).items():
        write_bytes(folder / f"{name}.csv", frame.to_csv(index=False).encode())
