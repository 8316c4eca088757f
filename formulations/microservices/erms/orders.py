"""Who goes first at shared microservices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import cast

import numpy as np

from apportion.formulations.microservices.erms.problem import Workload
from apportion.formulations.microservices.erms.targets import Targets
from apportion.instances.columns import Floats, Ints

MOST_ENUMERATED = 6
"""Services whose orders are all tried: 720 of them."""


def sharing(work: Workload) -> Ints:
    """Services that meet another one somewhere."""
    calls = work.calls_per_s > 0
    shared = calls.sum(axis=1) > 1
    return np.flatnonzero((calls & shared[:, None]).any(axis=0))


def by_targets(work: Workload, first: Targets) -> Ints:
    """Place of each service by Erms' rule, shape (S,): the smallest target goes first.

    Erms orders the services at each shared microservice by their targets there. A plan has one
    order for all; a service takes the smallest of its targets at shared microservices.
    """
    forest = work.forest
    shared = (work.calls_per_s > 0).sum(axis=1) > 1
    least = np.full(len(work.round_.services), np.inf)
    rows = np.flatnonzero(shared[forest.microservice])
    np.minimum.at(least, forest.service[rows], first.per_call_ms[rows])
    return _positions(np.argsort(least, kind="stable"))


def all_orders(work: Workload) -> Iterator[Ints]:
    """Give every order of the services that meet others, the others behind them."""
    some = sharing(work)
    rest = np.setdiff1d(np.arange(len(work.round_.services)), some)
    for order in itertools.permutations(some.tolist()):
        yield _positions(np.concatenate((np.array(order, dtype=np.int64), rest)))


def rank_of_classes(work: Workload, position: Ints) -> Ints:
    """Rank of each class of the round: the place of its service, shape (K,)."""
    return position[work.round_.classes.service]


def _positions(order: Ints | Floats) -> Ints:
    out = np.empty(order.size, dtype=np.int64)
    out[order.astype(np.int64)] = np.arange(order.size)
    return cast(Ints, out)
