"""Traces of microservices become scenarios, and deployments the containers of a round."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from apportion.instances import InstanceError
from apportion.instances.columns import Floats, Ints
from apportion.instances.errors import nearest
from apportion.instances.files import naming, write_bytes
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Services,
)
from apportion.instances.microservices.fitted_model import FittedModel
from apportion.instances.microservices.kubernetes import read_kubernetes
from apportion.instances.microservices.learn import GraphCounter, requests_by_round
from apportion.instances.microservices.model_file import files_by_kind, fit_traces
from apportion.instances.microservices.round_json import read_round, write_round
from apportion.instances.microservices.span_trees import TracedCalls
from apportion.instances.scenario_file import VERSION
from apportion.instances.toml_text import toml_text
from apportion.instances.versions import schema_name
from apportion.simulating import made_folder

KINDS = ("alibaba", "jaeger", "kubernetes")

ROUND_NAME = "application.json"
TOML_NAME = "scenario.toml"

_LEAST_ROUNDS = 2
"""Fewer whole rounds of traces tell no rate by round: the mean is taken as constant."""


@dataclass(frozen=True)
class Application:
    """What traces do not say.

    Parameters
    ----------
    target_ms
        Latency agreed, of every service under the name ``""``, or by service.
    violation_budget
        Share of the requests that may exceed it.
    containers, sampling, window_s, peak_per_s
        As in ``apportion.fit``; the window is the length of a round too.
    round_
        Round file that Kubernetes' containers are put into.
    """

    target_ms: Mapping[str, float] | None = None
    violation_budget: float | None = None
    containers: Mapping[str, float] | None = None
    sampling: float | None = None
    window_s: float | None = None
    peak_per_s: float | None = None
    round_: Path | None = None

    def none(self, kind: str, *but: str) -> None:
        """Refuse all that is given, ``but`` for some."""
        for name, value in self.__dict__.items():
            if value is not None and name not in but:
                raise InstanceError(f"import {kind}: --{_OPTIONS[name]} does not apply")


_OPTIONS = {
    "target_ms": "target-ms", "violation_budget": "violation-budget", "containers": "containers",
    "sampling": "sampling", "window_s": "window", "peak_per_s": "peak", "round_": "round",
}  # fmt: skip


def import_application(
    kind: str, files: Sequence[Path], out: Path, told: Application, *, missing: str, force: bool
) -> dict[str, Any]:
    """Read traces and write a scenario folder, or read deployments and write a round.

    Parameters
    ----------
    kind
        One of ``KINDS``.
    files
        Traces, and beside them tables of containers and rates or Kubernetes' objects; for
        ``kubernetes`` these alone.
    out
        Folder that receives ``scenario.toml`` and the round; for ``kubernetes`` the round file.
    told
        What the files do not say.
    missing
        What to do with microservices whose law cannot be fitted: ``error``, or ``skip`` to leave
        their calls out.
    force
        Replace what is there already.

    Returns
    -------
    dict
        What was written, and how much it holds; ``warnings`` are for the reader.

    Raises
    ------
    InstanceError
        On files that are something else, options that do not belong, and targets that are missing.
    """
    if missing not in ("error", "skip"):
        raise InstanceError(f"import: missing = {missing!r}{nearest(missing, ('error', 'skip'))}")
    if kind == "kubernetes":
        told.none(kind, "round_")
        return _deployed(files, out, told.round_, skip=missing == "skip", force=force)
    there = out / TOML_NAME
    if there.exists() and not force:
        raise InstanceError(f"import: {there} is there already; --force replaces it")
    told.none(kind, *(name for name in _OPTIONS if name != "round_"))
    if told.target_ms is None:
        raise InstanceError(f"import {kind}: traces agree on no latency; give --target-ms")
    _require_kind(kind, files)
    seen = _Seen()
    window_s = 60.0 if told.window_s is None else told.window_s
    sampling = 1.0 if told.sampling is None else told.sampling
    for name, value, most in (("sampling", sampling, 1.0), ("window", window_s, 1e9)):
        if not 0.0 < value <= most:
            raise InstanceError(
                f"import {kind}: --{name} {value}: must be above 0 and up to {most:g}"
            )
    model = fit_traces(
        files, containers=told.containers, sampling=sampling, window_s=window_s,
        peak_per_s=told.peak_per_s, each=seen.add,
    )  # fmt: skip
    learned = _learned(seen, model, told, skip=missing == "skip")
    return _written(out, learned, seen, model, (window_s, sampling))


def _require_kind(kind: str, files: Sequence[Path]) -> None:
    found = files_by_kind(files)
    mine, other = (found.call_graphs, found.spans)[:: 1 if kind == "alibaba" else -1]
    if other:
        raise InstanceError(f"{other[0]}: holds no traces of {kind}")
    if not mine:
        raise InstanceError(f"import {kind}: no file holds traces")


@dataclass
class _Seen:
    """Requests as they are read: their graphs, services and times."""

    counter: GraphCounter = field(default_factory=GraphCounter)
    graph: list[Ints] = field(default_factory=list["Ints"])
    service: list[Ints] = field(default_factory=list["Ints"])
    start_ms: list[Floats] = field(default_factory=list["Floats"])

    def add(self, traced: TracedCalls) -> None:
        """Take in a batch of traces."""
        of: list[str] = traced.service.tolist()
        self.graph.append(self.counter.add(traced.trees, of, traced.microservice_id.tolist()))
        row = {name: at for at, name in enumerate(self.counter.services)}
        self.service.append(np.array([row[name] for name in of], dtype=np.int64))
        self.start_ms.append(traced.start_ms)


@dataclass(frozen=True)
class _Learned:
    round_: MicroserviceRound
    class_of: Ints
    dropped: tuple[str, ...]


def _learned(seen: _Seen, model: FittedModel, told: Application, *, skip: bool) -> _Learned:
    """Put laws, classes and what was agreed into one round."""
    merged, counter = seen.counter.merged(), seen.counter
    laws: list[str] = model.microservices.id.tolist()
    classes = merged.classes
    codes: list[int] = np.unique(classes.trees.microservice).tolist()
    called = {counter.microservices[at] for at in codes}
    dropped = sorted(called - set(laws))
    if dropped and not skip:
        why = (model.refused or {}).get(dropped[0], "no call of it takes any time")
        more = f" and {len(dropped) - 1} more" if len(dropped) > 1 else ""
        raise InstanceError(
            f"import: no law for {dropped[0]!r}{more}: {why}; --missing skip leaves such calls out"
        )
    code = np.array([laws.index(n) if n in laws else -1 for n in counter.microservices], np.int64)
    round_ = MicroserviceRound(
        model.microservices,
        _services(counter.services, model, told, merged.unmodelled_share),
        CallClasses(classes.id, classes.service, classes.share, kept_calls(classes.trees, code)),
        containers=model.containers,
        linear=model.linear,
    )
    graph = np.concatenate(seen.graph) if seen.graph else np.zeros(0, dtype=np.int64)
    return _Learned(round_, merged.class_of[graph], tuple(dropped))


def _services(
    names: list[str], model: FittedModel, told: Application, unmodelled: Floats
) -> Services:
    given = dict(told.target_ms or {})
    target = [given.get(name, given.get("")) for name in names]
    for name in given:
        if name and name not in names:
            raise InstanceError(f"--target-ms {name}: unknown service{nearest(name, names)}")
    for name, value in zip(names, target, strict=True):
        if value is None:
            raise InstanceError(f"--target-ms: service {name!r} is missing")
    rates = dict(zip(model.services.id.tolist(), model.services.rate_per_s.tolist(), strict=True))
    budget = 0.05 if told.violation_budget is None else told.violation_budget
    return Services.of(names, [rates[name] for name in names], target, budget, unmodelled)


def kept_calls(trees: CallTrees, code: Ints) -> CallTrees:
    """Renumber the microservices of call trees, and leave out calls to those without a number.

    What such a call makes is made by its caller, in its place, one stage after the other.

    Parameters
    ----------
    trees
        The trees.
    code
        New number of each microservice, -1: none.
    """
    columns: dict[str, list[Any]] = {n: [] for n in ("microservice", "parent", "stage", "calls")}
    offsets = [0]
    for k in range(len(trees)):
        low, high = int(trees.offsets[k]), int(trees.offsets[k + 1])
        place: dict[int, int] = {
            -1: -1
        }  # of each call, that of its nearest kept ancestor or its own
        path: dict[int, tuple[int, ...]] = {-1: ()}
        often: dict[int, float] = {-1: 1.0}
        rows: list[tuple[int, int, tuple[int, ...], float]] = []
        for at in range(high - low):
            row, parent = low + at, int(trees.parent[low + at])
            stage = (*path[parent], int(trees.stage[row]))
            calls = often[parent] * float(trees.calls[row])
            number = int(code[trees.microservice[row]])
            if number < 0:
                place[at], path[at], often[at] = place[parent], stage, calls
                continue
            rows.append((number, place[parent], stage, calls))
            place[at], path[at], often[at] = len(rows) - 1, (), 1.0
        turns = {
            parent: {s: n for n, s in enumerate(sorted({r[2] for r in rows if r[1] == parent}))}
            for parent in {r[1] for r in rows}
        }
        columns["microservice"] += [row[0] for row in rows]
        columns["parent"] += [row[1] for row in rows]
        columns["stage"] += [turns[row[1]][row[2]] for row in rows]
        columns["calls"] += [row[3] for row in rows]
        offsets.append(len(columns["calls"]))
    given: dict[str, Any] = {"offsets": offsets, **columns}
    return CallTrees(**given)


def _written(
    out: Path, learned: _Learned, seen: _Seen, model: FittedModel, told: tuple[float, float]
) -> dict[str, Any]:
    round_, (window_s, sampling) = learned.round_, told
    rates, shares = _by_round(learned, seen, window_s, sampling)
    first_ms = min((float(one.min()) for one in seen.start_ms if one.size), default=0.0)
    epoch = datetime.datetime.fromtimestamp(first_ms / 1e3, datetime.UTC)
    folder = made_folder(out)
    write_round(replace(round_, duration_s=window_s), folder / ROUND_NAME)
    content: dict[str, Any] = {
        "schema": schema_name("scenario", VERSION),
        "family": round_.family,
        "name": out.resolve().name,
        "epoch": epoch.isoformat(),
        "graph": {"kind": "file", "path": ROUND_NAME},
        **(
            {}
            if rates is None
            else {"rates": _listed("service", round_.services.id, "per_s", rates)}
        ),
        **(
            {}
            if shares is None
            else {"shares": _listed("class", round_.classes.id, "share", shares)}
        ),
        "policy": {"name": "derm"},
        "executor": {"round_s": window_s},
    }
    write_bytes(folder / TOML_NAME, toml_text(content).encode())
    return {
        "scenario": str(folder / TOML_NAME),
        "microservices": len(round_.microservices),
        "services": len(round_.services),
        "classes": len(round_.classes),
        "rounds": 0 if rates is None else len(rates),
        "dropped": list(learned.dropped),
        "warnings": list(model.warnings),
    }


def _listed(kind: str, names: Any, column: str, table: Floats) -> dict[str, Any]:
    rows = zip(names.tolist(), table.T.tolist(), strict=True)
    return {"kind": "list", kind: [{"name": name, column: values} for name, values in rows]}


def _by_round(
    learned: _Learned, seen: _Seen, window_s: float, sampling: float
) -> tuple[Floats | None, Floats | None]:
    """Rates (T, S) and shares (T, K) as they were seen, None where the traces are too short."""
    start_s = np.concatenate([*seen.start_ms, np.zeros(0)]) / 1e3
    if not start_s.size:
        return None, None
    first_s = float(start_s.min())
    rounds = math.floor((float(start_s.max()) - first_s) / window_s)
    if rounds < _LEAST_ROUNDS:
        return None, None
    classes, services = learned.round_.classes, learned.round_.services

    def counted(code: Ints, size: int) -> Floats:
        table = requests_by_round(code, start_s, window_s, size, first_s=first_s)
        return np.vstack((table, np.zeros((max(0, rounds - len(table)), size))))[:rounds]

    rates = counted(np.concatenate(seen.service), len(services)) / (window_s * sampling)
    count = counted(learned.class_of, len(classes))
    of_service = (classes.service[:, None] == np.arange(len(services))).astype(np.float64)
    total = (count @ of_service)[:, classes.service]
    modelled = 1.0 - services.unmodelled_share[classes.service]
    share = np.divide(count, total, out=np.zeros_like(count), where=total > 0) * modelled
    return rates, cast(Floats, np.where(total > 0, share, classes.share))


def _deployed(
    files: Sequence[Path], out: Path, given: Path | None, *, skip: bool, force: bool
) -> dict[str, Any]:
    """Put the containers, sizes and bounds of deployments into a round."""
    if given is None:
        raise InstanceError("import kubernetes: --round names the round the containers belong to")
    if out.exists() and not force:
        raise InstanceError(f"import: {out} is there already; --force replaces it")
    round_, found = read_round(given), read_kubernetes(files)
    laws = round_.microservices
    row = {name: at for at, name in enumerate(found.id.tolist())}
    at = np.array([row.get(name, -1) for name in laws.id.tolist()], dtype=np.int64)
    lost = [name for name in laws.id.tolist() if name not in row]
    if lost and (not skip or len(lost) == len(laws)):
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise InstanceError(
            f"import kubernetes: no workload is called {lost[0]!r}{more}{nearest(lost[0], row)}"
            + ("" if skip else "; --missing skip leaves them as they are")
        )
    here = at >= 0

    def taken(name: str, sure: bool) -> Any:
        column: Any = getattr(found, name)[at]
        out: Any = getattr(laws, name).copy()
        rows = here if sure else here & (column > 0)
        out[rows] = column[rows]
        return out

    before = laws.least_containers if round_.containers is None else round_.containers
    with naming(given):
        changed = replace(
            round_,
            containers=np.where(here, found.containers[at], before),
            microservices=replace(
                laws,
                cpu_cores=taken("cpu_cores", sure=False),
                memory_mib=taken("memory_mib", sure=False),
                least_containers=taken("least_containers", sure=True),
                most_containers=taken("most_containers", sure=True),
            ),
        )
    write_round(changed, out)
    return {
        "round": str(out), "microservices": int(here.sum()), "dropped": lost,
        "warnings": list(found.warnings),
    }  # fmt: skip
