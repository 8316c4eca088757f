"""``apportion fit TRACES... -o model.json``: from files of traces to the model of an application.

For the command line::

    model = fit_traces(paths, containers={"cart": 3}, sampling=0.1)
    write_model("model.json", model)

``paths`` mixes what there is: Jaeger and OpenTelemetry JSON, Alibaba's tables of call graphs,
containers and rates, and Kubernetes' objects; each file is recognised by its content. ``each`` gets
the call trees as they are read, so that classes of requests are learned in the same pass.
``model.table()`` lists a row a microservice to be shown.
"""

from __future__ import annotations

import gzip
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from apportion.instances.columns import Floats, Ints, Names
from apportion.instances.errors import InstanceError
from apportion.instances.files import PathLike, naming
from apportion.instances.microservices.alibaba import read_call_graphs
from apportion.instances.microservices.alibaba_loads import read_containers, read_loads
from apportion.instances.microservices.csv_blocks import header, is_tar
from apportion.instances.microservices.fit import FitOptions, LawFit, fit_law
from apportion.instances.microservices.fit_linear import TwoLines, fit_two_lines, linear_latency
from apportion.instances.microservices.fitted_model import (
    FittedModel,
    ServiceTable,
    read_model,
    write_model,
)
from apportion.instances.microservices.kubernetes import Deployments, read_kubernetes
from apportion.instances.microservices.laws_linear import linear_from_laws
from apportion.instances.microservices.linear_latency import LinearLatency
from apportion.instances.microservices.loads import Loads
from apportion.instances.microservices.microservices import Microservices
from apportion.instances.microservices.raw_spans import Faults
from apportion.instances.microservices.span_trees import TracedCalls, traced_calls
from apportion.instances.microservices.trace_files import read_spans

__all__ = ["FittedModel", "files_by_kind", "fit_traces", "read_model", "read_traces", "write_model"]

SAMPLES_MOST = 200_000
"""Samples kept of a microservice; of more, every second, fourth, ... is kept: they are enough for
three digits."""

TAIL_SAMPLES = 20
"""Calls in a window from which its P95 is taken."""

LINE_WINDOWS = 6
"""Windows from which two lines are fitted rather than derived from the law."""

_KUBERNETES = re.compile(r'\s*(\{\s*"(apiVersion|kind|items)"|---|apiVersion:|kind:|items:)')


def fit_traces(
    paths: Iterable[PathLike],
    *,
    containers: Mapping[str, float] | None = None,
    sampling: float = 1.0,
    sample: float = 1.0,
    window_s: float = 60.0,
    peak_per_s: float | None = None,
    percentile: float = 0.95,
    strict: bool = False,
    network: bool = True,
    options: FitOptions | None = None,
    each: Callable[[TracedCalls], object] | None = None,
) -> FittedModel:
    """Fit the law of every microservice in traces.

    Parameters
    ----------
    paths
        Traces, and where there are files of containers, rates and deployments among them.
    containers
        Containers of each microservice by name, before those of deployments and tables.
    sampling
        Share of the requests that were traced. It scales the loads that are counted.
    sample
        Share of the traces in Alibaba's tables that are read, to spare time.
    window_s
        Loads are counted in windows of this length, and tails taken in them.
    peak_per_s
        Calls per second of the busiest container, for rates that are normalised.
    percentile
        The tail that Erms' lines stand for.
    strict
        True: a trace that cannot be understood is an error, not left out.
    network
        As in ``traced_calls``.
    options
        How laws are fitted.
    each
        Called with the call trees of each window as they are read.

    Returns
    -------
    FittedModel
        Every sample is one call's own time at the load of its window. A microservice with fewer
        than two different loads is refused, with the reason; the others stand.

    Raises
    ------
    InstanceError
        On files that cannot be read, and where no microservice can be fitted.
    """
    files = files_by_kind(paths)
    if not files.spans and not files.call_graphs:
        raise InstanceError("no file holds traces")
    faults = Faults(strict)
    known = _Surroundings.of(files, containers, peak_per_s)
    seen = _Seen(percentile)
    for part, traced in _parts(files, sample, faults, network):
        if each is not None:
            each(traced)
        seen.add(
            traced, known.loads_of(traced, 1000.0 * window_s, sampling * part), sampling * part
        )
    return _model(seen, known, faults, options or FitOptions())


@dataclass
class Files:
    """Files by what they hold."""

    spans: list[PathLike] = field(default_factory=list["PathLike"])
    call_graphs: list[PathLike] = field(default_factory=list["PathLike"])
    containers: list[PathLike] = field(default_factory=list["PathLike"])
    rates: list[PathLike] = field(default_factory=list["PathLike"])
    kubernetes: list[PathLike] = field(default_factory=list["PathLike"])


def files_by_kind(paths: Iterable[PathLike]) -> Files:
    """Sort files by what they hold, from their first bytes or the names of their columns.

    Raises
    ------
    InstanceError
        Naming the file that is none of them, or that cannot be read.
    """
    out = Files()
    for path in paths:
        with naming(path):
            _list_of(out, path).append(path)
    return out


def _list_of(files: Files, path: PathLike) -> list[PathLike]:
    start = _first(path)
    if not start.strip():
        raise InstanceError("the file is empty")
    if _KUBERNETES.match(start):
        return files.kubernetes
    if start.lstrip()[0] in "{[":
        return files.spans
    columns = {name.lower() for name in header(path)}
    if {"traceid", "trace_id"} & columns or {"rpcid", "rpc_id"} & columns:
        return files.call_graphs
    if {"metric", "metrics", "providerrpc_mcr"} & columns:
        return files.rates
    if "msname" in columns:
        return files.containers
    raise InstanceError(
        "holds no traces, containers or rates: expected JSON of Jaeger, OpenTelemetry or"
        f" Kubernetes, or a table of Alibaba's; its first columns are {', '.join(sorted(columns)[:5])}"
    )


def _first(path: PathLike) -> str:
    place = Path(path)
    try:
        if is_tar(place):
            return _first_packed(place)
        with gzip.open(place) if place.suffix == ".gz" else place.open("rb") as stream:
            return stream.read(1024).decode("utf-8-sig", errors="replace")
    except FileNotFoundError:
        raise InstanceError("no such file") from None
    except IsADirectoryError:
        raise InstanceError("is a folder, not a file") from None
    except EOFError:
        raise InstanceError("the file is truncated: its gzip data end early") from None
    except tarfile.TarError as error:
        raise InstanceError(f"not a tar archive: {error}") from None
    except OSError as error:
        raise InstanceError(f"cannot be read: {error.strerror or error}") from None


def _first_packed(place: Path) -> str:
    with tarfile.open(place) as archive:
        inside = next((one for one in archive if one.isfile()), None)
        stream = None if inside is None else archive.extractfile(inside)
        if stream is None:
            raise InstanceError("the archive holds no file")
        return stream.read(1024).decode("utf-8-sig", errors="replace")


def read_traces(
    files: Files | Iterable[PathLike],
    *,
    sample: float = 1.0,
    faults: Faults | None = None,
    network: bool = True,
) -> Iterator[TracedCalls]:
    """Read call trees, all of Jaeger's and OpenTelemetry's at once, Alibaba's hour by hour.

    Parameters
    ----------
    files
        Files, sorted by what they hold or not.
    sample
        Share of the traces in Alibaba's tables that are read.
    faults, network
        As in ``traced_calls``.
    """
    files = files if isinstance(files, Files) else files_by_kind(files)
    faults = Faults() if faults is None else faults
    for _, traced in _parts(files, sample, faults, network):
        yield traced


def _parts(
    files: Files, sample: float, faults: Faults, network: bool
) -> Iterator[tuple[float, TracedCalls]]:
    """Read call trees and the share of them that was read."""
    if files.spans:
        yield 1.0, traced_calls(read_spans(files.spans, faults=faults), faults, network=network)
    if files.call_graphs:
        for spans in read_call_graphs(files.call_graphs, sample=sample, faults=faults):
            yield sample, traced_calls(spans, faults, network=network)


@dataclass
class _Surroundings:
    """What is known besides traces."""

    loads: Loads | None
    counts: dict[str, float]
    deployments: Deployments | None
    warnings: list[str]

    @classmethod
    def of(
        cls, files: Files, containers: Mapping[str, float] | None, peak_per_s: float | None
    ) -> _Surroundings:
        loads = None
        counts: dict[str, float] = {}
        deployments = read_kubernetes(files.kubernetes) if files.kubernetes else None
        if files.rates:
            loads = read_loads(files.rates, files.containers, peak_per_s=peak_per_s)
        elif files.containers:
            table = read_containers(files.containers).groupby("msname")["containers"].mean()
            counts.update({str(name): float(count) for name, count in table.items()})
        if deployments is not None:
            counts.update(deployments.counts())
        for name, count in (containers or {}).items():
            if not 0 < count < np.inf:
                raise InstanceError(f"containers.{name} = {count}: must be positive")
            counts[name] = float(count)
        return cls(loads, counts, deployments, list(deployments.warnings) if deployments else [])

    def loads_of(self, traced: TracedCalls, window_ms: float, sampling: float) -> Loads:
        """Give the loads: as they were measured, else counted from the calls."""
        if self.loads is not None:
            return self.loads
        return Loads.counted(
            traced.start_ms, traced.start_of_call_ms, traced.trees.microservice,
            traced.microservice_id, containers=self.counts, window_ms=window_ms,
            sampling=sampling,
        )  # fmt: skip


@dataclass
class _Samples:
    """Loads and times of one microservice; every ``stride``-th call is kept."""

    load: list[Floats] = field(default_factory=list["Floats"])
    time: list[Floats] = field(default_factory=list["Floats"])
    stride: int = 1
    met: int = 0
    tails: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    def add(self, load: Floats, time: Floats) -> None:
        at = np.arange(-self.met % self.stride, load.size, self.stride)
        self.met += load.size
        self.load.append(load[at])
        self.time.append(time[at])
        while sum(part.size for part in self.load) > SAMPLES_MOST:
            self.load = [np.concatenate(self.load)[::2]]
            self.time = [np.concatenate(self.time)[::2]]
            self.stride *= 2


class _Seen:
    """What was seen so far: samples by microservice, requests by service."""

    def __init__(self, percentile: float) -> None:
        self.percentile = percentile
        self.samples: dict[str, _Samples] = {}
        self.latency: dict[str, _Samples] = {}
        self.requests: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self.unknown: set[str] = set()
        self.made: dict[str, float] = {}  # requests, those not traced included
        self.watched_ms = 0.0

    def add(self, traced: TracedCalls, loads: Loads, sampling: float) -> None:
        own, called = traced.own_ms, traced.trees.microservice
        row = loads.row_of(traced.start_of_call_ms, called, traced.microservice_id)
        good = (row >= 0) & (own > 0)
        self.unknown.update(traced.microservice_id[np.setdiff1d(called, called[row >= 0])].tolist())
        for code, rows in _groups(np.where(good, called, -1)):
            name = str(traced.microservice_id[code])
            mine = self.samples.setdefault(name, _Samples())
            self._tails(mine, loads, row[rows], own[rows])
            mine.add(loads.load_per_s[row[rows]], own[rows])
        self._count(traced, sampling)

    def _tails(self, mine: _Samples, loads: Loads, row: Ints, own: Floats) -> None:
        for window, rows in _groups(row):
            if rows.size >= TAIL_SAMPLES:
                tail = float(np.quantile(own[rows], self.percentile))
                mine.tails.append((float(loads.load_per_s[window]), tail))

    def _count(self, traced: TracedCalls, sampling: float) -> None:
        names, code = np.unique(traced.service, return_inverse=True)
        for at, rows in _groups(code.astype(np.int64)):
            name = str(names[at])
            self.requests[name] = self.requests.get(name, 0) + int(rows.size)
            self.made[name] = self.made.get(name, 0.0) + rows.size / sampling
            failed = int(np.count_nonzero(traced.failed[rows]))
            self.failed[name] = self.failed.get(name, 0) + failed
            latency = traced.latency_ms[rows]
            self.latency.setdefault(name, _Samples()).add(latency, latency)
        if len(traced) > 1:
            span = float(np.ptp(traced.start_ms))
            self.watched_ms += span * (len(traced) + 1) / (len(traced) - 1)


def _groups(code: Ints) -> Iterator[tuple[int, Ints]]:
    """List the rows of each code that is not negative."""
    order = np.argsort(code, kind="stable")
    known, first = np.unique(code[order], return_index=True)
    bounds = np.append(first, code.size)
    for at, one in enumerate(known.tolist()):
        if one >= 0:
            yield one, order[bounds[at] : bounds[at + 1]]


def _model(seen: _Seen, known: _Surroundings, faults: Faults, options: FitOptions) -> FittedModel:
    fits: dict[str, LawFit] = {}
    refused = dict.fromkeys(sorted(seen.unknown), "its load is not known")
    for name, mine in sorted(seen.samples.items()):
        try:
            fits[name] = fit_law(np.concatenate(mine.load), np.concatenate(mine.time), options)
            refused.pop(name, None)
        except InstanceError as error:
            refused[name] = str(error)
    if not fits:
        first = next(iter(refused.items()), ("", "no call takes any time"))
        raise InstanceError(f"no microservice can be fitted; {first[0]}: {first[1]}")
    names = np.array(list(fits), dtype=np.str_)
    laws, containers = _laws(names, list(fits.values()), known)
    linear, measured = _linear(names, laws, seen)
    warnings = [*faults.warnings, *known.warnings]
    if known.loads is None:
        alone = [str(name) for name in names if str(name) not in known.counts]
        if alone:
            warnings.append(
                f"containers of {len(alone)} microservices are not known, taken as 1 each (first:"
                f" {alone[0]}): their loads are those of the whole microservice"
            )
    return FittedModel(
        microservices=laws,
        fits=tuple(fits.values()),
        linear=linear,
        linear_measured=measured,
        services=_service_table(seen),
        containers=containers,
        refused=refused,
        warnings=tuple(warnings),
    )


def _laws(
    names: Names, fits: list[LawFit], known: _Surroundings
) -> tuple[Microservices, Ints | None]:
    """Put laws, and the sizes and bounds of deployments, into columns."""
    columns: dict[str, Floats] = {
        name: np.array([getattr(fit, name) for fit in fits], dtype=np.float64)
        for name in (
            "rate_at_rest_per_ms", "rate_slope_per_ms", "shift_ms", "least_rate_per_ms",
            "least_load_per_s",
        )
    }  # fmt: skip
    laws = Microservices.of(names, **columns)
    have = [known.counts.get(str(name)) for name in names]
    containers = None
    if all(count is not None for count in have):
        rounded = [max(round(count), 1) for count in have if count is not None]
        containers = np.array(rounded, dtype=np.int64)
    found = known.deployments
    if found is None:
        return laws, containers
    row = {str(name): at for at, name in enumerate(found.id)}
    at = np.array([row.get(str(name), -1) for name in names])
    sizes: dict[str, object] = {}
    for name in ("cpu_cores", "memory_mib", "least_containers", "most_containers"):
        sizes[name] = np.where(at >= 0, getattr(found, name)[at], getattr(laws, name))
    return Microservices.of(names, **columns, **sizes), containers


def _linear(names: Names, laws: Microservices, seen: _Seen) -> tuple[LinearLatency, np.ndarray]:
    """Fit lines to the tails of windows where there are enough; derive the others."""
    derived = linear_from_laws(laws, seen.percentile)
    rows: list[TwoLines] = []
    measured = np.zeros(names.size, dtype=np.bool_)
    for at, name in enumerate(names):
        lines = TwoLines(
            float(derived.slope_before_ms[at]), float(derived.intercept_before_ms[at]),
            float(derived.slope_after_ms[at]), float(derived.intercept_after_ms[at]),
            float(derived.inflection_per_s[at]), float("nan"), np.zeros(0, dtype=np.bool_),
        )  # fmt: skip
        tails = np.array(seen.samples[str(name)].tails).reshape(-1, 2)
        if len(tails) >= LINE_WINDOWS and np.unique(tails[:, 0]).size >= 2:  # a line needs two
            lines = fit_two_lines(tails[:, 0], tails[:, 1])
            measured[at] = True
        rows.append(lines)
    return linear_latency(rows), measured


def _service_table(seen: _Seen) -> ServiceTable:
    names = sorted(seen.requests)
    latency = [np.concatenate(seen.latency[name].time) for name in names]
    requests = np.array([seen.requests[name] for name in names], dtype=np.int64)
    made = np.array([seen.made[name] for name in names], dtype=np.float64)
    seconds = seen.watched_ms / 1000.0
    return ServiceTable(
        id=np.array(names, dtype=np.str_),
        requests=requests,
        rate_per_s=made / seconds if seconds > 0 else np.zeros(requests.size),
        failed=np.array([seen.failed[name] for name in names], dtype=np.int64),
        latency_p50_ms=np.array([np.quantile(one, 0.5) for one in latency]),
        latency_p95_ms=np.array([np.quantile(one, 0.95) for one in latency]),
        latency_p99_ms=np.array([np.quantile(one, 0.99) for one in latency]),
    )
