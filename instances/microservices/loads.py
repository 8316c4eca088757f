"""The load on a container of each microservice in windows of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from apportion.instances.columns import Floats, Ints, Names, floats, names, require
from apportion.instances.errors import InstanceError


@dataclass(frozen=True, eq=False)
class Loads:
    """Loads of microservices, one row a microservice and window; no pair twice.

    Parameters
    ----------
    microservice_id
        Names, unique, shape (M,).
    microservice
        Row of the microservice, shape (N,).
    start_ms
        When each window begins.
    load_per_s
        Calls per second on one container.
    containers
        Containers in that window.
    cpu, memory
        Use by the neighbours on the nodes, for the interference of Erms; NaN: not known.
    window_ms
        Length of the windows.
    """

    microservice_id: Names
    microservice: Ints
    start_ms: Floats
    load_per_s: Floats
    containers: Floats
    cpu: Floats
    memory: Floats
    window_ms: float

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        shape = (np.size(self.microservice),)
        put("microservice_id", names(self.microservice_id, "loads.microservice_id"))
        for name in ("start_ms", "load_per_s", "containers"):
            put(name, floats(getattr(self, name), f"loads.{name}", shape))
        require(self.load_per_s, self.load_per_s >= 0, "loads.load_per_s", "must not be negative")
        if not 0 < self.window_ms < np.inf:
            raise InstanceError(f"loads.window_ms = {self.window_ms}: must be positive and finite")

    @classmethod
    def of(
        cls, *, start_ms: Floats, microservice: object, load_per_s: Floats, containers: Floats,
        window_ms: float, cpu: Floats | None = None, memory: Floats | None = None,
    ) -> Loads:  # fmt: skip
        """Build from names and numbers by row."""
        known, code = np.unique(np.asarray(microservice, dtype=np.str_), return_inverse=True)
        nothing = np.full(code.size, np.nan)
        return cls(
            known, code.astype(np.int64), start_ms, load_per_s, containers,
            nothing if cpu is None else cpu, nothing if memory is None else memory, window_ms,
        )  # fmt: skip

    @classmethod
    def counted(
        cls, requests_ms: Floats, start_ms: Floats, microservice: Ints, ids: Names, *,
        containers: Mapping[str, float], window_ms: float, sampling: float = 1.0,
    ) -> Loads:  # fmt: skip
        """Count calls in windows of time.

        Parameters
        ----------
        requests_ms
            When each request began.
        start_ms, microservice
            When each call began, and the row of whom it called.
        ids
            Names of the microservices.
        containers
            How many each has; those that are not named have one.
        window_ms
            Length of a window.
        sampling
            Share of the requests that were traced.

        Notes
        -----
        A window need not be watched to its end. From n requests in it that span a time t the time
        watched is ``t (n + 1) / (n - 1)``, its unbiased estimate if they come evenly, but no
        longer than the window; windows of fewer than two requests are left out.
        """
        if not 0 < sampling <= 1:
            raise InstanceError(f"sampling = {sampling}: must be above 0 and at most 1")
        if not 0 < window_ms < np.inf:
            raise InstanceError(f"window_ms = {window_ms}: must be positive and finite")
        windows, watched_ms = _watched(requests_ms, window_ms)
        number = np.floor(start_ms / window_ms).astype(np.int64)
        at = cast(Ints, np.searchsorted(windows, number))
        known = np.append(windows, np.iinfo(np.int64).min)[at] == number
        width = max(windows.size, 1)
        pairs, count = np.unique((microservice * width + at)[known], return_counts=True)
        who, at = pairs // width, pairs % width
        size = np.array([float(containers.get(str(name), 1.0)) for name in ids])[who]
        rate = count / sampling / (watched_ms[at] / 1000.0)
        nothing = np.full(count.size, np.nan)
        return cls(
            ids, who, cast(Floats, windows[at] * window_ms), rate / np.maximum(size, 1.0), size, nothing,
            nothing, window_ms,
        )  # fmt: skip

    def row_of(self, start_ms: Floats, microservice: Ints, ids: Names) -> Ints:
        """Find the row of each call, -1 where its load is not known.

        Parameters
        ----------
        start_ms, microservice
            When each call began, and the row of whom it called.
        ids
            Names of the microservices, which may be others than those of the loads.
        """
        code = {str(name): at for at, name in enumerate(self.microservice_id)}
        own = np.array([code.get(str(name), -1) for name in ids], dtype=np.int64)[microservice]
        begun = np.round(self.start_ms / self.window_ms).astype(np.int64)
        number = np.floor(start_ms / self.window_ms).astype(np.int64)
        windows, place = np.unique(begun, return_inverse=True)
        width = max(windows.size, 1)
        order = np.argsort(self.microservice * width + place, kind="stable")
        keys = (self.microservice * width + place)[order]
        at = cast(Ints, np.searchsorted(windows, number))
        there = (own >= 0) & (np.append(windows, np.iinfo(np.int64).min)[at] == number)
        key = own * width + at
        row = cast(Ints, np.searchsorted(keys, key))
        there &= np.append(keys, -1)[row] == key
        return cast(Ints, np.where(there, np.append(order, -1)[row], -1))


def _watched(requests_ms: Floats, window_ms: float) -> tuple[Ints, Floats]:
    """Estimate how long each window was watched: numbers of windows, and times in ms."""
    number = np.floor(requests_ms / window_ms).astype(np.int64)
    windows, group, count = np.unique(number, return_inverse=True, return_counts=True)
    first, last = np.full(windows.size, np.inf), np.full(windows.size, -np.inf)
    np.minimum.at(first, group, requests_ms)
    np.maximum.at(last, group, requests_ms)
    span = last - first
    good = (count >= 2) & (span > 0)
    watched = span[good] * (count[good] + 1) / (count[good] - 1)
    return windows[good], np.minimum(watched, window_ms)
