"""Call graphs of well-known applications, with synthetic laws of latency.

Sources: DeathStarBench's social network, media and hotel applications, their calls as the Erms
artifact (ASPLOS 2023) lists them, retold; a ticket search like TrainTicket's, with the counts of
calls, classes and shared microservices of the Derm artifact (ISCA 2024). The laws are drawn from a
seed in the ranges that artifact was fitted to. They are not measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from apportion.instances.columns import Floats
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.microservices.call_classes import CallClasses
from apportion.instances.microservices.call_trees import CallTrees
from apportion.instances.microservices.microservices import Microservices
from apportion.instances.microservices.round import MicroserviceRound
from apportion.instances.microservices.services import Services
from apportion.instances.streams import stream

Stages: TypeAlias = list[list[dict[str, Any]]]

REST_PER_MS = (2.4, 9.4)
"""Rates at zero load that the artifact was fitted to."""

SLOPE_OF_REST = (0.0055, 0.0096)
"""Fall of the rate by one call per second, as a share of the rate at rest: slopes from -0.013 to
-0.09, and some 90 to 160 calls per second on a container."""

SHIFT_MS = (0.26, 0.79)
LEAST_RATE_PER_MS = 0.8
PROFILED_LOAD = 0.2
"""Least load of a profile, as a share of the load at which the rate falls to its least."""


def call(microservice: str, *stages: list[dict[str, Any]], calls: float = 1) -> dict[str, Any]:
    """Write one call of a tree as ``CallTrees.nested`` reads it.

    Parameters
    ----------
    microservice
        Who is called.
    *stages
        What it calls: stages one after the other, the calls of a stage side by side.
    calls
        How often.
    """
    out: dict[str, Any] = {"microservice": microservice}
    if calls != 1:
        out["calls"] = calls
    if stages:
        out["stages"] = list(stages)
    return out


@dataclass(frozen=True)
class _Class:
    name: str
    service: str
    share: float
    stages: Stages


@dataclass(frozen=True)
class _Application:
    """What is called; services with their rates and targets where the caller names none."""

    classes: tuple[_Class, ...]
    rate_per_s: Mapping[str, float]
    target_ms: Mapping[str, float]
    cpu_cores: float
    memory_mib: float


def _ticket_search() -> _Application:
    """Two graphs of ten microservices, eight of them in both; 103 and 473 calls a request."""

    def graph(travel: str, order: str, tickets: int, stations: int, seats: int) -> Stages:
        basic = call("basic", [call("train")], [call("route")], [call("price")])
        return [[
            call(
                travel,
                [call("ticketinfo", [basic], calls=tickets)],
                [call("station", calls=stations)],
                [call("seat", [call(order)], [call("config", calls=2)], calls=seats)],
            )
        ]]  # fmt: skip

    light = graph("travel2", "order-other", tickets=6, stations=28, seats=11)
    heavy = graph("travel", "order", tickets=31, stations=113, seats=51)
    return _Application(
        (_Class("light", "search", 0.5, light), _Class("heavy", "search", 0.5, heavy)),
        {"search": 30.0}, {"search": 550.0}, 0.2, 1024.0,
    )  # fmt: skip


def _social_network() -> _Application:
    fan_out = call("home-timeline", [call("social-graph")])
    store = [call("post-storage"), call("user-timeline")]
    text = call("text", [call("user-mention"), call("url-shorten")], [call("compose-post")])
    parts = [call(name, [call("compose-post")]) for name in ("unique-id", "user", "media")]
    compose = call("front-end", [*parts, text], [call("compose-post", store, [fan_out])])
    cache, database = [call("user-timeline-cache")], [call("user-timeline-db")]
    hit = call("front-end", [call("user-timeline", cache)], [call("post-storage")])
    miss = call(
        "front-end", [call("user-timeline", cache, database, cache)], [call("post-storage")]
    )
    home = call("front-end", [call("home-timeline")], [call("post-storage")])
    return _Application(
        (
            _Class("compose-post", "compose-post", 1.0, [[compose]]),
            _Class("read-user-timeline/hit", "read-user-timeline", 0.8, [[hit]]),
            _Class("read-user-timeline/miss", "read-user-timeline", 0.2, [[miss]]),
            _Class("read-home-timeline", "read-home-timeline", 1.0, [[home]]),
        ),
        {"compose-post": 100.0, "read-user-timeline": 300.0, "read-home-timeline": 600.0},
        {"compose-post": 11.0, "read-user-timeline": 7.0, "read-home-timeline": 5.0},
        0.1, 200.0,
    )  # fmt: skip


def _media() -> _Application:
    stores = [call("review-storage"), call("user-review"), call("movie-review")]
    meet = [call("compose-review")]
    parts = [call(name, meet) for name in ("user", "text", "unique-id")]
    movie = call("movie-id", [call("rating", meet)])
    review = call("front-end", [*parts, movie], [call("compose-review", stores)])
    return _Application(
        (_Class("compose-review", "compose-review", 1.0, [[review]]),),
        {"compose-review": 200.0}, {"compose-review": 8.0}, 0.1, 200.0,
    )  # fmt: skip


def _hotel() -> _Application:
    profile = [call("profile")]
    search = call(
        "front-end", [call("search", [call("geo")], [call("rate")])], [call("reservation")], profile
    )
    recommend = call("front-end", [call("recommendation")], profile)
    return _Application(
        (
            _Class("search", "search", 1.0, [[search]]),
            _Class("recommend", "recommend", 1.0, [[recommend]]),
        ),
        {"search": 300.0, "recommend": 200.0}, {"search": 8.0, "recommend": 5.0}, 0.1, 200.0,
    )  # fmt: skip


_APPLICATIONS: Mapping[str, Callable[[], _Application]] = {
    "ticket-search": _ticket_search,
    "social-network": _social_network,
    "media": _media,
    "hotel": _hotel,
}
BUILTIN_NAMES = tuple(_APPLICATIONS)
"""The applications that come with the package."""


def builtin_round(
    name: str,
    *,
    seed: int = 0,
    rate_per_s: float | Mapping[str, float] | None = None,
    target_ms: float | Mapping[str, float] | None = None,
    violation_budget: float = 0.05,
    share: Mapping[str, float] | None = None,
    shift_factor: float = 1.0,
) -> MicroserviceRound:
    """Make the round of an application that comes with the package.

    Parameters
    ----------
    name
        One of ``BUILTIN_NAMES``.
    seed
        Root of the laws that are drawn.
    rate_per_s, target_ms
        Of every service, or by service; default: the application's own.
    violation_budget
        Of every service.
    share
        Shares of classes by name; default: the application's own.
    shift_factor
        Multiplies the drawn shifts; 0 leaves them out, as the Derm artifact does in its tails.

    Raises
    ------
    InstanceError
        On an unknown application, service or class, with the nearest known one.
    """
    if name not in _APPLICATIONS:
        raise InstanceError(f"application {name!r}{nearest(name, BUILTIN_NAMES)}")
    of = _APPLICATIONS[name]()
    services = list(of.rate_per_s)
    used = _names(of.classes)
    trees = CallTrees.nested([one.stages for one in of.classes], used)
    shares = _given(share, {one.name: one.share for one in of.classes}, "share", "class")
    classes = CallClasses.of(
        [one.name for one in of.classes],
        trees,
        share=list(shares.values()),
        service=[services.index(one.service) for one in of.classes],
    )
    # by its own rates and shares: the laws stay as they are when the caller changes these
    often = np.array([one.share * of.rate_per_s[one.service] for one in of.classes])
    called = trees.demand(len(used)) @ often
    return MicroserviceRound(
        drawn_laws(
            used, called, seed, shift_factor=shift_factor,
            cpu_cores=of.cpu_cores, memory_mib=of.memory_mib,
        ),
        Services.of(
            services,
            list(_given(rate_per_s, of.rate_per_s, "rate_per_s", "service").values()),
            list(_given(target_ms, of.target_ms, "target_ms", "service").values()),
            violation_budget,
        ),
        classes,
    )  # fmt: skip


def _names(classes: Sequence[_Class]) -> list[str]:
    """List the microservices in the order in which they are met."""
    out: dict[str, None] = {}
    waiting: list[Any] = [stage for one in classes for stage in one.stages]
    while waiting:
        for one in waiting.pop(0):
            out.setdefault(one["microservice"])
            waiting += one.get("stages", [])
    return list(out)


def _given(
    values: float | Mapping[str, float] | None, default: Mapping[str, float], what: str, of: str
) -> dict[str, float]:
    """Take what is given, for all or by name, and the default elsewhere."""
    if values is None:
        return dict(default)
    if not isinstance(values, Mapping):
        return dict.fromkeys(default, values)
    for name in values:
        if name not in default:
            raise InstanceError(f"{what}.{name}: unknown {of}{nearest(name, default)}")
    return {name: values.get(name, usual) for name, usual in default.items()}


def drawn_laws(
    names: Sequence[str],
    called: Floats,
    seed: int,
    *,
    shift_factor: float = 1.0,
    cpu_cores: float = 0.2,
    memory_mib: float = 1024.0,
) -> Microservices:
    """Draw laws of latency in the ranges that the Derm artifact was fitted to.

    Parameters
    ----------
    names
        The microservices, M of them.
    called
        How often each is called, shape (M,): who is called more often answers faster, as long
        as the draw allows.
    seed
        Root seed; the stream ``latency_model`` is used.
    shift_factor
        Multiplies the shifts.
    cpu_cores, memory_mib
        Size of a container.
    """
    count = len(names)
    random = stream(seed, "latency_model")
    order = np.argsort(-called, kind="stable")
    rest, shift = np.empty(count), np.empty(count)
    rest[order] = np.sort(random.uniform(*REST_PER_MS, count))[::-1]
    shift[order] = np.sort(random.uniform(*SHIFT_MS, count)) * shift_factor
    slope = -rest * random.uniform(*SLOPE_OF_REST, count)
    return Microservices.of(
        names, rest, slope,
        shift_ms=shift,
        least_rate_per_ms=LEAST_RATE_PER_MS,
        least_load_per_s=PROFILED_LOAD * (LEAST_RATE_PER_MS - rest) / slope,
        cpu_cores=cpu_cores,
        memory_mib=memory_mib,
        least_containers=1,
    )  # fmt: skip
