"""Training jobs as columns: what was asked for, and what has happened so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from apportion.instances.columns import (
    LARGEST,
    Bools,
    Floats,
    Ints,
    Names,
    bools,
    equal_columns,
    floats,
    freeze,
    ints,
    names,
    ragged,
    require,
    sized,
)
from apportion.instances.errors import InstanceError, nearest

NEVER = -1.0
"""A time that has not come: ``first_start_s`` of a job that never ran."""


class Column(NamedTuple):
    """How one plain column is read: its kind, its default, and the values it may take."""

    kind: str
    default: Any
    least: float = -np.inf
    most: float = np.inf
    above: bool = False
    rule: str = ""

    def good(self, values: Any) -> Bools:
        """Mark the values that lie in the range (``above``: the least value is excluded)."""
        low = values > self.least if self.above else values >= self.least
        return cast(Bools, low & (values <= self.most))


def _count(default: int | None = 0, least: int = 0, rule: str = "must not be negative") -> Column:
    return Column("int", default, least=least, rule=rule)


def _amount(default: float = 0.0) -> Column:
    return Column("float", default, least=0.0, rule="must not be negative")


def _positive(default: Any) -> Column:
    return Column("float", default, least=0.0, above=True, rule="must be positive")


COLUMNS: Mapping[str, Column] = {
    # what was submitted
    "code": Column("int", None),
    "tenant": _count(),
    "arrival_s": Column("float", 0.0),
    "gang": Column("int", ..., least=1, rule="a gang needs at least 1 GPU"),
    "work": _positive(...),
    "min_gpus": _count(None, 1, "must be at least 1"),
    "max_gpus": _count(None, 1, "must be at least 1"),
    "cpus": _amount(),
    "memory_gib": _amount(),
    "gpu_memory_gib": _amount(),
    "gpu_fraction": Column("float", 1.0, 0.0, 1.0, above=True, rule="must lie in (0, 1]"),
    "preemptible": Column("bool", True),
    "weight": _positive(1.0),
    "slo": Column("bool", False),
    "model": Column("name", ""),
    "global_batch": _count(),
    "restart_s": _amount(),
    "state_gb": _amount(),
    "stop_on_metric": Column("bool", False),
    "metric_target": Column("float", 0.0),
    "metric_rises": Column("bool", False),
    "iteration_cap": _positive(None),
    # what has happened so far
    "work_done": _amount(),
    "running": Column("bool", False),
    "previous_type": _count(-1, -1, "-1 (never ran) or a GPU type"),
    "held_gpus": _count(),
    "first_start_s": Column("float", NEVER),
    "lease_start_s": Column("float", NEVER),
    "lease_end_s": Column("float", NEVER, NEVER, rule="-1 (no lease) or a time"),
    "guaranteed": Column("bool", False),
    "work_in_lease": _amount(),
    "attained_gpu_s": _amount(),
}
"""The plain columns, one value a job. ``...`` is required, None has a default of its own."""

RAGGED: Mapping[str, tuple[str, ...]] = {
    "config": ("config_gpus", "config_type", "config_throughput_per_s"),
    "deadline": ("deadline_s", "deadline_value"),
    "observed": ("observed_iteration", "observed_metric"),
    "spread": ("spread_hosts", "spread_speed"),
}
"""The ragged columns: ``<name>_offsets`` of shape (n + 1,), and the values it cuts up."""

INFINITE = frozenset({"iteration_cap", "lease_end_s"})
"""The plain columns in which infinity has a meaning."""


def default_column(name: str, gang: Any, n: int) -> Any:
    """Fill a plain column of n jobs that was not given.

    Parameters
    ----------
    name
        A key of ``COLUMNS``.
    gang
        GPUs the jobs ask for: the default of their least and most.
    n
        Number of jobs.

    Raises
    ------
    InstanceError
        Where the column is required.
    """
    if name == "code":
        return np.arange(n)
    if name in ("min_gpus", "max_gpus"):
        return gang
    if name == "iteration_cap":
        return np.full(n, np.inf)
    if COLUMNS[name].default is ...:
        raise InstanceError(f"jobs.{name} is missing")
    return np.full(n, COLUMNS[name].default)


def _column() -> Any:
    return field(default_factory=lambda: None)


@dataclass(frozen=True, eq=False, repr=False)
class Jobs:
    """Training jobs, one row a job, n rows and k GPU types.

    Only ``id``, ``gang``, ``work`` and ``throughput_per_s`` are required. Every column is
    read-only; plain ones have shape (n,). Times are seconds since the scenario's epoch.

    Parameters
    ----------
    id
        Unique names.
    gang
        GPUs the job asks for, all or nothing.
    work
        Total work in the job's own unit (iterations, epochs, seconds), as reported.
    throughput_per_s
        Work units a second of the whole gang on each type, shape (n, k); 0 = cannot run there.
    code
        Integer that stays the job's own from round to round; default 0..n-1.
    tenant
        Row of the tenants; default 0.
    arrival_s
        Submission time.
    min_gpus, max_gpus
        Bounds for elastic policies; default: the gang.
    cpus, memory_gib
        CPU cores and host memory of the whole gang.
    gpu_memory_gib
        Memory the model needs on each GPU.
    gpu_fraction
        Part of a GPU in (0, 1] for jobs that can share one.
    preemptible
        False: once started, the job keeps its GPUs until it ends.
    weight
        Priority weight.
    slo
        True: a job with deadlines that count; False: best effort.
    model, global_batch
        What is trained, and the batch size over all GPUs (0 = unknown).
    restart_s, state_gb
        Time lost by any restart, and training state to be moved on a switch.
    stop_on_metric, metric_target, metric_rises, iteration_cap
        Stop criterion: after ``work`` iterations, or when the metric passes its target (from
        below where ``metric_rises``), at the latest after ``iteration_cap`` iterations.
    work_done, work_in_lease
        Work executed so far, and the part of it in the present lease.
    running, previous_type, held_gpus
        Whether it holds GPUs now; the type it last ran on (-1 = never); GPUs held now.
    first_start_s, lease_start_s, lease_end_s, guaranteed
        First start and present lease (-1 = none; an infinite end = until the next decision),
        and whether that lease is guaranteed.
    attained_gpu_s
        GPU-seconds held so far.
    config_offsets, config_gpus, config_type, config_throughput_per_s
        Ragged: further configurations, GPUs x type -> throughput.
    deadline_offsets, deadline_s, deadline_value
        Ragged: deadlines, rising and not before the arrival, with the value of finishing by each,
        which must not rise.
    observed_offsets, observed_iteration, observed_metric
        Ragged: the iteration-metric curve seen so far.
    spread_offsets, spread_hosts, spread_speed
        Ragged: relative speed when the gang is spread over that many hosts; the entry with the
        largest host count not above the actual one holds, 1 below the first.

    Raises
    ------
    InstanceError
        Naming column, index, job and value.
    """

    id: Names
    gang: Ints
    work: Floats
    throughput_per_s: Floats
    code: Ints = _column()
    tenant: Ints = _column()
    arrival_s: Floats = _column()
    min_gpus: Ints = _column()
    max_gpus: Ints = _column()
    cpus: Floats = _column()
    memory_gib: Floats = _column()
    gpu_memory_gib: Floats = _column()
    gpu_fraction: Floats = _column()
    preemptible: Bools = _column()
    weight: Floats = _column()
    slo: Bools = _column()
    model: Names = _column()
    global_batch: Ints = _column()
    restart_s: Floats = _column()
    state_gb: Floats = _column()
    stop_on_metric: Bools = _column()
    metric_target: Floats = _column()
    metric_rises: Bools = _column()
    iteration_cap: Floats = _column()
    work_done: Floats = _column()
    running: Bools = _column()
    previous_type: Ints = _column()
    held_gpus: Ints = _column()
    first_start_s: Floats = _column()
    lease_start_s: Floats = _column()
    lease_end_s: Floats = _column()
    guaranteed: Bools = _column()
    work_in_lease: Floats = _column()
    attained_gpu_s: Floats = _column()
    config_offsets: Ints = _column()
    config_gpus: Floats = _column()
    config_type: Floats = _column()
    config_throughput_per_s: Floats = _column()
    deadline_offsets: Ints = _column()
    deadline_s: Floats = _column()
    deadline_value: Floats = _column()
    observed_offsets: Ints = _column()
    observed_iteration: Floats = _column()
    observed_metric: Floats = _column()
    spread_offsets: Ints = _column()
    spread_hosts: Floats = _column()
    spread_speed: Floats = _column()

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("id", names(self.id, "jobs.id"))
        n = self.id.size
        put("_count", n)
        table = floats(self.throughput_per_s, "jobs.throughput_per_s")
        if table.size == 0 and table.ndim != 2:
            table = np.zeros((n, 0))
            freeze(table)
        if table.ndim != 2 or table.shape[0] != n:
            raise InstanceError(
                f"jobs.throughput_per_s has shape {table.shape},"
                f" expected ({n}, GPU types): one row for each job"
            )
        sized(table, "jobs.throughput_per_s", self.id, ratio=True)
        require(table, table >= 0, "jobs.throughput_per_s", "must not be negative", self.id)
        put("throughput_per_s", table)
        for name, column in COLUMNS.items():
            put(name, self._plain(name, column, n))
        for name, parts in RAGGED.items():
            self._ragged(name, parts, n)
        self._check_together()

    @classmethod
    def of(
        cls,
        *,
        id: object,
        gang: object,
        work: object,
        throughput_per_s: object,
        **columns: Any,
    ) -> Jobs:
        """Build from any sequences, by column name.

        The plain constructor does the same; this one also tells a misspelt column by its nearest
        right name, and type checkers let it take lists.

        Raises
        ------
        InstanceError
            On unknown columns, and as the constructor does.
        """
        for name in columns:
            if name not in _FIELDS:
                raise InstanceError(f"jobs: unknown column {name!r}{nearest(name, _FIELDS)}")
        given: dict[str, Any] = {"id": id, "gang": gang, "work": work, **columns}
        return cls(throughput_per_s=cast(Any, throughput_per_s), **given)

    def _plain(self, name: str, column: Column, n: int) -> Any:
        given = self.__dict__[name]
        where = f"jobs.{name}"
        if given is None:
            given = default_column(name, self.gang, n)
        match column.kind:
            case "int":
                out: Any = ints(given, where, (n,))
                if name != "code":
                    require(out, out <= LARGEST, where, f"must not be beyond {LARGEST:g}", self.id)
            case "bool":
                out = bools(given, where, (n,))
            case "name":
                out = names(given, where, count=n, unique=False)
            case _:
                out = floats(given, where, (n,))
                if name not in INFINITE:
                    sized(out, where, self.id, ratio=name == "work")
        if column.rule:
            require(out, column.good(out), where, column.rule, self.id)
        return out

    def _ragged(self, name: str, parts: tuple[str, ...], n: int) -> None:
        put = self.__dict__.__setitem__
        offsets = self.__dict__[f"{name}_offsets"]
        if offsets is None:
            given = [part for part in parts if self.__dict__[part] is not None]
            if given:
                raise InstanceError(f"jobs.{given[0]} is given without jobs.{name}_offsets")
            offsets = np.zeros(n + 1, dtype=np.int64)
        for part in parts:
            values = self.__dict__[part]
            try:
                starts, flat = ragged(offsets, [] if values is None else values, f"jobs.{part}", n)
            except InstanceError as error:
                # several columns share one column of offsets, which has a name of its own
                told = str(error).replace(f"jobs.{part}_offsets", f"jobs.{name}_offsets")
                raise InstanceError(told) from None
            sized(flat, f"jobs.{part}")
            put(f"{name}_offsets", starts)
            put(part, flat)

    def _check_together(self) -> None:
        ids = self.id
        code = self.code
        if np.unique(code).size != code.size:
            raise InstanceError("jobs.code: codes must differ from job to job")
        require(
            self.max_gpus, self.max_gpus >= self.min_gpus, "jobs.max_gpus",
            "must not be below min_gpus", ids,
        )  # fmt: skip
        types = self.throughput_per_s.shape[1]
        require(
            self.previous_type, self.previous_type < max(types, 1), "jobs.previous_type",
            f"there are {types} GPU types", ids,
        )  # fmt: skip
        held = ~self.running | ((self.previous_type >= 0) & (self.held_gpus >= 1))
        require(self.running, held, "jobs.running", "needs previous_type and held_gpus too", ids)
        for name, of, least, most, rule in (
            ("config_gpus", "config", 1, np.inf, "must be at least 1"),
            ("spread_hosts", "spread", 1, np.inf, "must be at least 1"),
            ("config_type", "config", 0, types - 1, f"there are {types} GPU types"),
            ("config_throughput_per_s", "config", 0, np.inf, "must not be negative"),
            ("spread_speed", "spread", np.nextafter(0.0, 1.0), np.inf, "must be positive"),
            ("deadline_value", "deadline", 0, np.inf, "must not be negative"),
        ):
            values = cast(Floats, getattr(self, name))
            owner = np.repeat(ids, np.diff(getattr(self, f"{of}_offsets")))
            good = (values >= least) & (values <= most)
            require(values, good, f"jobs.{name}", rule, owner)
        for name, step in (("deadline", "deadline_s"), ("spread", "spread_hosts")):
            values = cast(Floats, getattr(self, step))
            inner = np.ones(values.size, dtype=np.bool_)
            starts = cast(Ints, getattr(self, f"{name}_offsets"))[:-1]
            inner[starts[starts < values.size]] = False
            rising = np.r_[True, np.diff(values) > 0] if values.size else inner
            require(values, rising | ~inner, f"jobs.{step}", "must rise within a job")
        self._check_deadlines()

    def _check_deadlines(self) -> None:
        """Refuse deadlines before the arrival, and lateness that is worth more than punctuality."""
        due, worth = self.deadline_s, self.deadline_value
        if not due.size:
            return
        of = np.repeat(np.arange(len(self)), np.diff(self.deadline_offsets))
        ids = self.id[of]
        require(
            due, due >= self.arrival_s[of], "jobs.deadline_s",
            "must not lie before the job's arrival_s", ids,
        )  # fmt: skip
        falls = np.r_[True, (np.diff(worth) <= 0) | (np.diff(of) > 0)]
        require(
            worth, falls, "jobs.deadline_value",
            "must not rise within a job: finishing later is worth no more", ids,
        )  # fmt: skip

    def __len__(self) -> int:
        return cast(int, self.__dict__["_count"])

    def __repr__(self) -> str:
        return f"Jobs({len(self)} jobs x {self.throughput_per_s.shape[1]} GPU types)"

    def take(self, rows: Ints, known: Mapping[str, Any] | None = None) -> Jobs:
        """Select rows as a view: a column is gathered when it is first read.

        Parameters
        ----------
        rows
            Distinct row numbers.
        known
            Columns that replace this object's own, already of the selected length. They are
            trusted: the caller has checked them.

        Notes
        -----
        The executor makes one such view a round; a policy pays for the columns it reads.
        """
        view = object.__new__(Jobs)
        view.__dict__["_source"] = self
        view.__dict__["_rows"] = rows
        view.__dict__["_count"] = int(rows.size)
        if known:
            view.__dict__.update(known)
        return view

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            source = self.__dict__.get("_source")
            if source is None or name.startswith("__"):
                raise AttributeError(name)
            rows = self.__dict__["_rows"]
            group = _RAGGED_OF.get(name)
            if group is None:
                if name not in _FIELDS:
                    raise AttributeError(name)
                column = getattr(source, name)[rows]
                freeze(column)
                self.__dict__[name] = column
                return column
            _take_ragged(self.__dict__, source, rows, group)
            return self.__dict__[name]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Jobs):
            return False
        if len(self) == 0 == len(other):  # however many types an empty table was made for
            return True
        return equal_columns(self, other, sorted(_FIELDS))

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed


_FIELDS = frozenset(entry.name for entry in fields(Jobs))
_RAGGED_OF: Mapping[str, str] = {
    part: name for name, parts in RAGGED.items() for part in (f"{name}_offsets", *parts)
}


def _take_ragged(target: dict[str, Any], source: Jobs, rows: Ints, name: str) -> None:
    offsets = cast(Ints, getattr(source, f"{name}_offsets"))
    lengths = offsets[rows + 1] - offsets[rows]
    starts = np.concatenate(([0], np.cumsum(lengths)))
    pick: Ints = np.arange(int(starts[-1])) + np.repeat(offsets[rows] - starts[:-1], lengths)
    freeze(starts)
    target.setdefault(f"{name}_offsets", starts)
    for part in RAGGED[name]:
        if part not in target:  # else it is one of the columns that replace the source's own
            column = getattr(source, part)[pick]
            freeze(column)
            target[part] = column
