"""From spans to call trees: who waits for whom, in which order, and what each call takes itself.

A call begins where a span enters another microservice (or says that it serves a call); spans
inside a microservice belong to the call they work for. Calls that overlap in time run side by
side in one stage. What a call takes itself is the time its caller waits for it less the longest
call of each of its stages, so that the tree's latency is that of the trace.

Source: the grammar is that of Derm's and Erms' artifacts (a call's own time is its span less
those of its calls); finding stages by overlap, and the treatment of clocks and of calls that
nobody waits for, are our own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from apportion.instances.columns import (
    Bools,
    Floats,
    Ints,
    Names,
    bools,
    finite,
    floats,
    names,
    require,
)
from apportion.instances.microservices.call_trees import CallTrees
from apportion.instances.microservices.raw_spans import Faults
from apportion.instances.microservices.spans import NO_PARENT, Kind, Spans, levels

OVERLAP_SHARE = 0.1
"""Calls that overlap by no more than this share of the shorter one follow one another: the clocks
of two machines, and times rounded to milliseconds, make neighbours overlap a little."""

CLOCK_STEPS = 2.0
"""Steps of the clock by which a call may seem to outlast its caller: start and duration are each
rounded to one."""

BACKGROUND = "background "
"""Put before the name of a microservice to name the service of calls that nobody waits for."""


@dataclass(frozen=True, eq=False)
class TracedCalls:
    """Call trees of T requests and the time each call took, C calls in all.

    Parameters
    ----------
    trace_id
        Names of the traces, shape (T,); a call that nobody waited for is a request of its own
        under the name of its trace.
    service
        What each asked for, shape (T,).
    start_ms, latency_ms
        When it began, and how long the one who asked waited, shape (T,).
    failed
        Whether any span of it ended in an error, shape (T,).
    microservice_id
        Names of the microservices, shape (M,).
    trees
        Call tree of each request; every call once.
    start_of_call_ms
        When each call began, by the clock of the request, shape (C,).
    own_ms
        What each call took itself, shape (C,), not negative.
    """

    trace_id: Names
    service: Names
    start_ms: Floats
    latency_ms: Floats
    failed: Bools
    microservice_id: Names
    trees: CallTrees
    start_of_call_ms: Floats
    own_ms: Floats

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        requests, calls = len(self.trees), self.trees.calls.size
        for name in ("trace_id", "service"):
            given = names(getattr(self, name), f"traced.{name}", count=requests, unique=False)
            put(name, given)
        put("microservice_id", names(self.microservice_id, "traced.microservice_id"))
        put("failed", bools(self.failed, "traced.failed", (requests,)))
        for name, count in (
            ("start_ms", requests), ("latency_ms", requests), ("start_of_call_ms", calls),
            ("own_ms", calls),
        ):  # fmt: skip
            column = floats(getattr(self, name), f"traced.{name}", (count,))
            finite(column, f"traced.{name}")
            put(name, column)
        require(self.own_ms, self.own_ms >= 0, "traced.own_ms", "must not be negative")
        called = self.trees.microservice
        good = called < self.microservice_id.size
        require(called, good, "calls.microservice", f"there are {self.microservice_id.size}")

    def __len__(self) -> int:
        return len(self.trees)


def traced_calls(
    spans: Spans, faults: Faults | None = None, *, network: bool = True
) -> TracedCalls:
    """Build the call trees of traces.

    Parameters
    ----------
    spans
        The spans.
    faults
        Takes what was mended.
    network
        True: what a caller waits beyond what the one called records (the network, and queues
        before it) counts as the call's own time. False: it counts for nobody.

    Returns
    -------
    TracedCalls
        Requests in the order of ``spans.trace_id``, then the calls that nobody waited for.

    Notes
    -----
    Clocks of two machines differ. A call recorded outside the span that caused it is moved into
    it; where it is longer than that span, or ends after it on the same clock, it was not waited
    for. It then becomes a request of a service of its own, so that its load is not lost.
    """
    faults = Faults() if faults is None else faults
    times = _on_callers_clock(spans, faults)
    calls = _calls(spans, times)
    return _trees(spans, calls, faults, network)


class _Times(NamedTuple):
    """Of each span: when its caller began to wait, for how long, and whether it waited."""

    start_ms: Floats
    wait_ms: Floats
    waited: Bools


def _on_callers_clock(spans: Spans, faults: Faults) -> _Times:
    """Bring every span to the clock of the request, from the top down."""
    seen = spans.seen_by_caller
    wait = np.where(seen, spans.wait_ms, spans.duration_ms)
    begin = np.where(seen, spans.wait_start_ms, spans.start_ms)
    waited = spans.waited & (spans.kind != Kind.CONSUMER)
    moved = np.zeros(len(spans))  # what is added to the clock of the span's own microservice
    slack = CLOCK_STEPS * spans.clock_ms
    skewed = 0
    for rows in _below_the_top(spans.level):
        parent = spans.parent[rows]
        own_clock = (spans.microservice[rows] == spans.microservice[parent]) & (
            spans.kind[rows] != Kind.SERVER
        )
        same = seen[rows] | own_clock
        at = begin[rows] + np.where(same, moved[parent], 0.0)
        low = spans.start_ms[parent] + moved[parent]
        high = low + spans.duration_ms[parent]
        over = at + wait[rows] > high + slack
        outside = over | (at < low - slack)
        longer = wait[rows] > spans.duration_ms[parent] + slack
        waited[rows] &= ~(outside & (longer | (same & over)))
        move = outside & waited[rows]
        skewed += int(np.count_nonzero(move))
        inside = np.clip(at, low, np.maximum(high - wait[rows], low))
        at = np.where(move, inside, at)
        # the own clock: where the call was recorded apart it must lie within the wait
        room = np.maximum(wait[rows] - spans.duration_ms[rows], 0.0)
        own = np.clip(spans.start_ms[rows] + np.where(same, moved[parent], 0.0), at, at + room)
        moved[rows] = np.where(seen[rows], own, at) - spans.start_ms[rows]
        begin[rows] = at
    top = spans.parent < 0
    begin[top] = np.where(seen, spans.wait_start_ms, spans.start_ms)[top]
    faults.count("spans outside their parents, moved inside: clocks differ", skewed)
    return _Times(begin, wait, waited)


def _below_the_top(level: Ints) -> list[Ints]:
    """List the rows of each level from 1 on."""
    order = np.argsort(level, kind="stable")
    bounds = np.searchsorted(level[order], np.arange(1, int(level.max(initial=0)) + 2))
    return [order[low:high] for low, high in itertools.pairwise(bounds.tolist())]


class _Calls(NamedTuple):
    """Of the C calls: their spans, the call each is made by (as a place among the calls, or
    ``NO_PARENT``), whether that one waits, and when."""

    row: Ints
    caller: Ints
    waited: Bools
    start_ms: Floats
    wait_ms: Floats


def _calls(spans: Spans, times: _Times) -> _Calls:
    """Find the spans at which calls begin, and fold the others into them."""
    parent, kind = spans.parent, spans.kind
    top = parent < 0
    entering = top | (spans.microservice != spans.microservice[parent])
    entering |= (kind == Kind.SERVER) | (kind == Kind.CONSUMER)
    # the one who answers a client span, alone: its times are those of the client
    children = np.bincount(parent[~top], minlength=len(spans))
    client = ~top & entering & (kind[parent] == Kind.CLIENT) & ~entering[parent]
    paired = client & (children[parent] == 1) & ~spans.seen_by_caller & times.waited
    start = np.where(paired, times.start_ms[parent], times.start_ms)
    wait = np.where(paired, times.wait_ms[parent], times.wait_ms)
    call_of = np.where(entering, np.arange(len(spans)), NO_PARENT)
    waited = times.waited.copy()  # down to here from the call above, not only from the span above
    for rows in _below_the_top(spans.level):
        above = parent[rows]
        call_of[rows] = np.where(entering[rows], rows, call_of[above])
        waited[rows] &= waited[above] | entering[above]
    row = np.flatnonzero(entering)
    place = np.full(len(spans) + 1, NO_PARENT, dtype=np.int64)  # the last is for no parent
    place[row] = np.arange(row.size)
    caller = place[np.where(top, NO_PARENT, call_of[parent])[row]]
    return _Calls(row, caller, waited[row], start[row], wait[row])


def _trees(spans: Spans, calls: _Calls, faults: Faults, network: bool) -> TracedCalls:
    made = np.where(calls.waited, calls.caller, NO_PARENT)  # who waits for it
    detached = (calls.caller >= 0) & ~calls.waited
    level = levels(made)
    request = _requests(spans, calls, detached, made, level)
    stage, first = _stages(request, made, calls.start_ms, calls.wait_ms)
    order = np.lexsort((np.arange(made.size), calls.start_ms, stage, level, request))
    longest = np.maximum.reduceat(calls.wait_ms[first.order], first.begin)
    below = np.zeros(made.size)
    inner = first.caller >= 0
    np.add.at(below, first.caller[inner], longest[inner])
    took = calls.wait_ms if network else np.minimum(spans.duration_ms[calls.row], calls.wait_ms)
    own = took - below
    faults.count(
        "calls shorter than what they wait for, whose own time is taken as none",
        int(np.count_nonzero(own < -CLOCK_STEPS * spans.clock_ms)),
    )
    count = len(spans.trace_id) + int(detached.sum())
    latency = np.zeros(count)
    outer = ~inner
    np.add.at(latency, request[first.order[first.begin[outer]]], longest[outer])
    return _ordered(spans, calls, order, made, request, stage, np.maximum(own, 0.0), latency)


def _requests(spans: Spans, calls: _Calls, detached: Bools, made: Ints, level: Ints) -> Ints:
    """Number the requests: the traces, then the calls that nobody waited for, shape (C,)."""
    out = spans.trace[calls.row].copy()
    out[detached] = len(spans.trace_id) + np.arange(int(detached.sum()))
    for rows in _below_the_top(level):
        out[rows] = out[made[rows]]
    return out


class _Groups(NamedTuple):
    """The stages: calls in their order, where each stage begins in it, and whose stage it is."""

    order: Ints
    begin: Ints
    caller: Ints


def _stages(request: Ints, made: Ints, start: Floats, wait: Floats) -> tuple[Ints, _Groups]:
    """Number the stages below each call by overlap in time."""
    count = made.size
    family = np.where(made >= 0, made, count + request)  # calls of one caller, or of one request
    order = np.lexsort((np.arange(count), -wait, start, family))
    fresh = np.ones(count, dtype=np.bool_)
    fresh[1:] = family[order][1:] != family[order][:-1]
    group = np.cumsum(fresh) - 1
    begin, length, end = start[order], wait[order], (start + wait)[order]
    # the one among those before it that ends last: a running maximum inside each family
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[by_end] = np.arange(count)
    last = by_end[np.maximum.accumulate(group * count + rank) % max(count, 1)]
    before = np.concatenate(([0], last[:-1])) if count else last
    common = np.minimum(end[before], end) - begin
    apart = common <= OVERLAP_SHARE * np.minimum(length, length[before])
    opens = fresh | (apart & ~((length == 0) & (begin < end[before])))
    number = np.cumsum(opens)
    first_of_family = np.flatnonzero(fresh)
    stage = np.empty(count, dtype=np.int64)
    stage[order] = number - number[first_of_family][group] if count else number
    return stage, _Groups(order, np.flatnonzero(opens), made[order][opens])


def _ordered(
    spans: Spans, calls: _Calls, order: Ints, made: Ints, request: Ints, stage: Ints, own: Floats,
    latency: Floats,
) -> TracedCalls:  # fmt: skip
    """Lay the calls out by request, callers first."""
    traces = len(spans.trace_id)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(request, minlength=latency.size))))
    place = np.empty(order.size + 1, dtype=np.int64)
    place[order] = np.arange(order.size)
    caller = made[order]
    parent = np.where(caller >= 0, place[caller] - offsets[request[order]], NO_PARENT)
    of_request = request[order]
    begin = np.full(latency.size, np.inf)
    np.minimum.at(begin, of_request, calls.start_ms[order])
    failed = np.zeros(traces, dtype=np.bool_)
    failed[spans.trace[spans.failed]] = True
    head = order[offsets[traces:-1]]  # the first call of each request that nobody waited for
    from_trace = spans.trace[calls.row[head]]
    who = spans.microservice_id[spans.microservice[calls.row[head]]]
    return TracedCalls(
        trace_id=np.concatenate((spans.trace_id, spans.trace_id[from_trace])),
        service=np.concatenate((spans.service, np.char.add(BACKGROUND, who))),
        start_ms=np.where(np.isfinite(begin), begin, 0.0),
        latency_ms=latency,
        failed=np.concatenate((failed, failed[from_trace])),
        microservice_id=spans.microservice_id,
        trees=CallTrees(
            offsets, spans.microservice[calls.row[order]], parent, stage[order],
            np.ones(order.size),
        ),
        start_of_call_ms=calls.start_ms[order],
        own_ms=own[order],
    )  # fmt: skip
