"""Call graphs of Alibaba's microservice traces of 2021 and 2022.

A call is one or two rows of the table MSCallGraph with one ``rpcid``: what the caller saw and
what the one called saw. In 2021 the latter's time is negative. The numbers of ``rpcid`` tell the
caller: ``0.1.2`` was made by ``0.1``. Calls to databases and caches are recorded by callers only.

Source: the READMEs of ``cluster-trace-microservices-v2021`` and ``-v2022`` in
``alibaba/clusterdata``; Luo et al., SoCC 2021 and 2022.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pandas as pd

from apportion.instances.columns import Bools, Floats, Ints, Names
from apportion.instances.errors import InstanceError
from apportion.instances.files import PathLike, naming
from apportion.instances.microservices.csv_blocks import BLOCK_ROWS, Block, blocks
from apportion.instances.microservices.raw_spans import Faults
from apportion.instances.microservices.spans import NO_PARENT, Kind, Spans

CALL_GRAPH = {
    "timestamp": ("timestamp",), "traceid": ("traceid", "trace_id"), "rpcid": ("rpcid", "rpc_id"),
    "um": ("um",), "rpctype": ("rpctype", "rpc_type"), "dm": ("dm",), "rt": ("rt",),
    "interface": ("interface", ""), "service": ("service", ""),
}  # fmt: skip
"""Columns of MSCallGraph and how they are spelt; an empty spelling: may be missing."""

WHAT = "a table of Alibaba's call graphs"
CLOCK_MS = 1.0
"""Times are whole milliseconds."""

GRACE_S = 60.0
"""How much later than its first call a request may still be recorded: the tables' own interval."""

ROWS_MOST = 20_000_000
"""Rows held at once, about 0.8 GB; a window that holds more is cut where requests seem to have
ended, by the time of the rows that are read."""

UNKNOWN = ("", "(?)", "nan", "unknown", "unavailable", "none", "null")
"""Names that stand for no name, in small letters."""

NAMELESS = "unknown"
"""The microservice of calls whose name neither side recorded."""

_MESSAGE = "mq"
_RPCID = re.compile(r"[0-9]+(\.[0-9]+)*")


def read_call_graphs(
    paths: Iterable[PathLike],
    *,
    window_s: float = 3600.0,
    sample: float = 1.0,
    faults: Faults | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Iterator[Spans]:
    """Read call graphs window by window, so that days of them need the memory of an hour.

    Parameters
    ----------
    paths
        Files of MSCallGraph unpacked from their archives, packed or not with gzip, in the order
        of time. Columns are found by name; a nameless first one is passed over.
    window_s
        Length of a window of requests.
    sample
        Share of the traces that are read, the same ones whatever the order of the files.
    faults
        Takes what was wrong.
    block_rows
        Rows read at once.

    Yields
    ------
    Spans
        The requests that began in a window: one span a call, with both sides' times where both
        are recorded. Calls through message queues are not waited for. Windows without requests
        are left out.

    Raises
    ------
    InstanceError
        Naming file, line, column and value; on a column that is missing the nearest there is.
    """
    if not 0 < sample <= 1:
        raise InstanceError(f"sample = {sample}: must be above 0 and at most 1")
    if not 0 < window_s < np.inf:
        raise InstanceError(f"window_s = {window_s}: must be positive and finite")
    faults = Faults() if faults is None else faults
    held = _Held(faults, 1000.0 * window_s, sample)
    for path in paths:
        for block in blocks(path, CALL_GRAPH, WHAT, rows=block_rows):
            with naming(path):
                held.add(block)
            yield from held.cut()
        held.read_ms = held.latest_ms  # the next file begins where this one ends
        yield from held.ended()
    yield from held.ended(everything=True)


@dataclass
class _Codes:
    """Strings by number in the order in which they were met."""

    names: list[str] = field(default_factory=list[str])
    code: dict[str, int] = field(default_factory=dict[str, int])

    def of(self, codes: Ints, known: Sequence[str], keep: Bools) -> Ints:
        """Number strings that have numbers of their own, of the rows that are kept."""
        codes = codes[keep]
        used, local = np.unique(codes, return_inverse=True)
        return np.array([self.one(known[int(code)]) for code in used], dtype=np.int64)[local]

    def one(self, name: str) -> int:
        code = self.code.setdefault(name, len(self.names))
        if code == len(self.names):
            self.names.append(name)
        return code

    def array(self) -> Names:
        return np.array(self.names, dtype=np.str_)


_COLUMNS = ("trace", "rpc", "caller", "called", "message", "time_ms", "took_ms", "entry", "service")
_KINDS = {"message": np.bool_, "time_ms": np.float64, "took_ms": np.float32}


class _Held:
    """Rows of requests that may not be over."""

    def __init__(self, faults: Faults, window_ms: float, sample: float) -> None:
        self.faults, self.window_ms, self.sample = faults, window_ms, sample
        self.trace, self.rpc, self.who, self.what = _Codes(), _Codes(), _Codes(), _Codes()
        self.who.one(NAMELESS)
        self.what.one("")
        self.rows: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self.count = 0
        self.read_ms = -np.inf  # times up to here are in files read: rows stand in any order
        self.latest_ms = -np.inf
        self.block_ms = np.inf  # first time in the block read last
        self.end_ms = np.inf
        self.over: set[str] = set()

    def add(self, block: Block) -> None:
        """Take the rows of a block whose traces are read."""
        time_ms, took_ms = block.numbers("timestamp"), block.numbers("rt", empty=True)
        codes, ids = block.coded("traceid")
        keep = np.ones(len(ids), dtype=np.bool_)  # by trace
        if self.sample < 1:
            hashed = pd.util.hash_array(np.array(ids, dtype=object), categorize=False)
            keep = hashed < np.uint64(self.sample * 2.0**64)
        late = np.array([name in self.over for name in ids], dtype=np.bool_)
        passed = int((late & keep)[codes].sum())
        self.faults.count("rows of requests long over, passed over", passed)
        kept: Bools = (keep & ~late)[codes]
        if not kept.any():
            return
        kind, kinds = block.coded("rpctype")
        message = np.array([name.lower() == _MESSAGE for name in kinds], dtype=np.bool_)
        columns: dict[str, Any] = {
            "trace": self.trace.of(codes, ids, kept),
            "rpc": self.rpc.of(*block.coded("rpcid"), kept),
            "caller": self._who(block, "um", kept),
            "called": self._who(block, "dm", kept),
            "message": message[kind[kept]],
            "time_ms": time_ms[kept],
            "took_ms": took_ms[kept],
            "entry": self._what(block, "interface", kept),
            "service": self._what(block, "service", kept),
        }
        for name, column in columns.items():  # small numbers: an hour is held
            self.rows[name].append(column.astype(_KINDS.get(name, np.int32)))
        self.count += int(kept.sum())
        self.block_ms = float(time_ms[kept].min())
        self.latest_ms = max(self.latest_ms, float(time_ms[kept].max()))
        if self.end_ms == np.inf:
            self.end_ms = (self.block_ms // self.window_ms + 1) * self.window_ms

    def _who(self, block: Block, name: str, kept: Bools) -> Ints:
        codes, known = block.coded(name)
        named = [NAMELESS if one.lower() in UNKNOWN else one for one in known]
        return self.who.of(codes, named, kept)

    def _what(self, block: Block, name: str, kept: Bools) -> Ints:
        if name not in block:
            return np.zeros(int(kept.sum()), dtype=np.int64)
        return self.what.of(*block.coded(name), kept)

    def ended(self, *, everything: bool = False) -> Iterator[Spans]:
        """Give the windows of which no row can come any more."""
        while self.count and (everything or self.read_ms >= self.end_ms + 1000 * GRACE_S):
            yield from self._flush(self.end_ms)
            if self.count:
                first = min(float(part.min()) for part in self.rows["time_ms"] if part.size)
                self.end_ms = max(
                    self.end_ms + self.window_ms, (first // self.window_ms + 1) * self.window_ms
                )
            else:
                self.end_ms = np.inf if everything else self.end_ms + self.window_ms

    def cut(self) -> Iterator[Spans]:
        """Give what seems to be over where too much is held."""
        if self.count > ROWS_MOST:
            yield from self._flush(self.block_ms - 1000 * GRACE_S)

    def _flush(self, before_ms: float) -> Iterator[Spans]:
        """Let go of the requests that began before an instant."""
        rows = {name: np.concatenate(parts) for name, parts in self.rows.items()}
        began = np.full(len(self.trace.names), np.inf)
        np.minimum.at(began, rows["trace"], rows["time_ms"])
        ready = began[rows["trace"]] < before_ms
        if not ready.any():
            return
        names = self.trace.array()
        self.over = set(names[began < before_ms].tolist())
        rest = {name: column[~ready] for name, column in rows.items()}
        self.trace = _Codes()
        everything = np.ones(rest["trace"].size, dtype=np.bool_)
        rest["trace"] = self.trace.of(rest["trace"], names.tolist(), everything)
        self.rows = {name: [column] for name, column in rest.items()}
        self.count = int(rest["trace"].size)
        used, trace = np.unique(rows["trace"][ready], return_inverse=True)
        done = {name: column[ready] for name, column in rows.items() if name != "trace"}
        del rows
        done["trace"] = trace.astype(np.int64)
        spans = _spans(done, names[used], self)
        if len(spans):
            yield spans


def _spans(rows: dict[str, Any], traces: Names, held: _Held) -> Spans:
    """Fold the rows of each call and find who made it."""
    rows, traces = _without_bad(rows, traces, held)
    rpc_above = _prefixes(held.rpc)
    key = rows["trace"] * len(held.rpc.names) + rows["rpc"]
    keys, first, group = np.unique(key, return_index=True, return_inverse=True)
    sides = _Sides(rows, group.astype(np.int64), keys.size, held.faults)
    trace, rpc = rows["trace"][first], rows["rpc"][first]
    used, span = np.unique(rpc, return_inverse=True)
    parent = _parents(keys, trace, rpc, rpc_above, held)
    who, owner = np.unique(sides.called, return_inverse=True)
    return Spans(
        trace_id=traces,
        service=_services(rows, sides, parent, trace, first, held, traces.size),
        microservice_id=held.who.array()[who],
        span_id=held.rpc.array()[used],
        trace=trace,
        span=span.astype(np.int64),
        parent=parent,
        microservice=owner.astype(np.int64),
        start_ms=sides.start_ms,
        duration_ms=sides.duration_ms,
        kind=np.where(sides.message, int(Kind.CONSUMER), int(Kind.SERVER)),
        waited=~sides.message,
        failed=np.zeros(keys.size, dtype=np.bool_),
        wait_start_ms=sides.wait_start_ms,
        wait_ms=sides.wait_ms,
        clock_ms=CLOCK_MS,
    )


def _without_bad(rows: dict[str, Any], traces: Names, held: _Held) -> tuple[dict[str, Any], Names]:
    """Leave out traces with a malformed rpcid, or a call of which no side tells the time."""
    well = np.array([_RPCID.fullmatch(name) is not None for name in held.rpc.names])
    key = rows["trace"] * len(held.rpc.names) + rows["rpc"]
    known, group = np.unique(key, return_inverse=True)
    timed = np.zeros(known.size, dtype=np.bool_)
    timed[group[np.isfinite(rows["took_ms"])]] = True
    good = np.ones(traces.size, dtype=np.bool_)
    for what, fine in (("rpcid is not numbers and dots", well[rows["rpc"]]),
                       ("rt is missing", timed[group])):  # fmt: skip
        for row in np.flatnonzero(~fine):
            code = rows["trace"][row]
            if good[code]:
                good[code] = False
                name = f"trace {str(traces[code])!r}, rpcid {held.rpc.names[rows['rpc'][row]]!r}"
                held.faults.leave_out(what, name)
    keep = good[rows["trace"]]
    place = np.cumsum(good) - 1
    out = {name: column[keep] for name, column in rows.items()}
    out["trace"] = place[out["trace"]]
    return out, traces[good]


class _Sides:
    """What caller and called recorded of each of G calls."""

    def __init__(self, rows: dict[str, Any], group: Ints, count: int, faults: Faults) -> None:
        took, time = cast(Floats, rows["took_ms"]), cast(Floats, rows["time_ms"])
        nameless = 0
        timed = np.isfinite(took)
        number = np.bincount(group, minlength=count)
        faults.count("calls recorded more than twice", int((number > 2).sum()))
        negative = timed & np.signbit(took) & (took < 0)
        has_negative = np.zeros(count, dtype=np.bool_)
        has_negative[group[negative]] = True
        # by size within each call: the caller's is the largest, that of the called the smallest
        size = np.where(timed, np.abs(took), -1.0)
        callers = timed & ~(has_negative[group] & negative)
        called = timed & (negative | ~has_negative[group])
        longest = _last(group[callers], size[callers], np.flatnonzero(callers), count)
        shortest = _last(group[called], -size[called], np.flatnonzero(called), count)
        alone = longest == shortest  # no negative time and one row: the caller's, or both's
        by_caller = longest >= 0
        answer = np.where(shortest >= 0, shortest, longest)
        self.duration_ms = size[answer]
        self.start_ms = time[answer]
        self.wait_ms = np.where(by_caller, size[longest], np.nan)
        self.wait_start_ms = np.where(by_caller, time[longest], np.nan)
        self.duration_ms = np.where(alone & by_caller, self.wait_ms, self.duration_ms)
        self.message = np.zeros(count, dtype=np.bool_)
        self.message[group[rows["message"]]] = True
        self.called = np.full(count, nameless, dtype=np.int64)
        named = np.flatnonzero(rows["called"] != nameless)[::-1]  # the first row is written last
        self.called[group[named]] = rows["called"][named]
        other = rows["called"][named] != self.called[group[named]]
        faults.count("rows that give a call another microservice", int(other.sum()))


def _last(group: Ints, value: Floats, row: Ints, count: int) -> Ints:
    """Find the row of the largest value of each group, -1 where there is none; first rows win."""
    out = np.full(count, -1, dtype=np.int64)
    order = np.lexsort((-row, value, group))
    out[group[order]] = row[order]
    return out


def _prefixes(rpc: _Codes) -> Ints:
    """Find the number of each rpcid's prefix; -1: there is none. Prefixes get numbers too."""
    at = 0
    out: list[int] = []
    while at < len(rpc.names):  # grows as prefixes are met
        head, dot, _ = rpc.names[at].rpartition(".")
        out.append(rpc.one(head) if dot else -1)
        at += 1
    return np.array(out, dtype=np.int64)


def _parents(keys: Ints, trace: Ints, rpc: Ints, above: Ints, held: _Held) -> Ints:
    """Find the call with the longest prefix that was recorded, shape (G,)."""
    width = int(above.size)
    sorted_keys = trace * width + rpc
    order = np.argsort(sorted_keys, kind="stable")
    sorted_keys = sorted_keys[order]
    out = np.full(keys.size, NO_PARENT, dtype=np.int64)
    wanted = above[rpc]
    open_ = np.flatnonzero(wanted >= 0)
    first = True
    while open_.size:
        key = trace[open_] * width + wanted[open_]
        at = np.minimum(np.searchsorted(sorted_keys, key), keys.size - 1)
        found = sorted_keys[at] == key
        out[open_[found]] = order[at[found]]
        missing = open_[~found]
        if first:  # those below a top call that was not recorded are the request's own
            lost = missing[above[wanted[missing]] >= 0]
            held.faults.count("calls whose caller was not recorded", int(lost.size))
            first = False
        wanted[missing] = above[wanted[missing]]
        open_ = missing[wanted[missing] >= 0]
    return out


def _services(
    rows: dict[str, Any], sides: _Sides, parent: Ints, trace: Ints, first: Ints, held: _Held,
    count: int,
) -> Names:  # fmt: skip
    """Name the services: as the table does, else by the entry's microservice and interface."""
    what, who = held.what.names, held.who.names
    out = [""] * count
    top = np.flatnonzero(parent < 0)
    for call in top[np.argsort(-sides.start_ms[top], kind="stable")].tolist():
        row = int(first[call])
        entry = f"{who[int(sides.called[call])]} {what[int(rows['entry'][row])]}".strip()
        if "." in held.rpc.names[int(rows["rpc"][row])]:  # the entry's own call was not recorded
            entry = who[int(rows["caller"][row])]
        out[int(trace[call])] = what[int(rows["service"][row])] or entry
    return np.array(out, dtype=np.str_)
