"""Latencies drawn from the laws: the default simulator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from apportion.executor.microservices.chains import Chain, chains
from apportion.executor.microservices.seen import Measured
from apportion.executor.tolerances import LEAST_REQUESTS, LEAST_VIOLATIONS, MOST_REQUESTS
from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.microservices.laws import loads, rates, shifts_ms

Phase = tuple[float, Ints]
"""A part of a round, as a share of its length, and the containers that serve in it."""


def requests_to_draw(round_: MicroserviceRound, asked: int | None) -> Ints:
    """Tell how many requests of each service are drawn, shape (S,).

    By default the larger of ``LEAST_REQUESTS`` and ``LEAST_VIOLATIONS`` over the violation
    budget, but no more than ``MOST_REQUESTS``.
    """
    if asked is not None:
        return np.full(len(round_.services), asked, dtype=np.int64)
    wanted = np.ceil(LEAST_VIOLATIONS / round_.services.violation_budget)
    return np.clip(wanted, LEAST_REQUESTS, MOST_REQUESTS).astype(np.int64)


def draw_latencies(
    chain: Chain, rate: Floats, shift_ms: Floats, count: int, rng: np.random.Generator
) -> Floats:
    """Draw latencies of requests of one class.

    Parameters
    ----------
    chain
        Its tree.
    rate, shift_ms
        Rate and shift of every call, repeats included; a rate of 0: the call does not end.
    count
        Requests.
    rng
        Where chance comes from.

    Returns
    -------
    ndarray
        Latencies in ms, shape (count,).
    """
    total = np.full(count, float(shift_ms[chain.calls].sum()))
    for row in chain.calls.tolist():
        drawn = rng.standard_exponential(count)
        total += drawn / rate[row] if rate[row] > 0 else np.inf
    for members in chain.forks:
        longest = np.zeros(count)
        for member in members:
            np.maximum(longest, draw_latencies(member, rate, shift_ms, count, rng), out=longest)
        total += longest
    return total


def draw_round(
    round_: MicroserviceRound,
    phases: Sequence[Phase],
    rank: Ints | None,
    requests: Ints,
    rng: tuple[np.random.Generator, np.random.Generator],
    *,
    forms: Sequence[Chain] | None = None,
) -> Measured:
    """Draw the requests of a round.

    Parameters
    ----------
    round_
        With the rates, shares and laws that really hold.
    phases
        Containers that serve, one part of the round after the other; the parts sum to 1.
    rank
        Order of the classes, or None.
    requests
        How many requests of each service are drawn, shape (S,); none of a service nobody calls.
    rng
        For the classes, and for the times.
    forms
        The trees as ``chains`` gives them, where they are known already.

    Returns
    -------
    Measured
    """
    trees, classes = round_.classes.trees, round_.classes
    known = chains(trees) if forms is None else forms
    per_phase = _counts(round_, phases, requests, rng[0])
    measured, shifts = Measured(round_), shifts_ms(round_)
    for (_, containers), counts in zip(phases, per_phase, strict=True):
        of_class = rates(round_.microservices, loads(round_, containers, rank))
        column = 0 if rank is None else trees.class_of
        rate = of_class[trees.microservice, column] / trees.per_request
        for k in np.flatnonzero(counts[: len(classes)]).tolist():
            measured.add(k, draw_latencies(known[k], rate, shifts, int(counts[k]), rng[1]))
        for service, count in enumerate(counts[len(classes) :].tolist()):
            measured.add_unmodelled(service, count)
    return measured


def _counts(
    round_: MicroserviceRound, phases: Sequence[Phase], requests: Ints, rng: np.random.Generator
) -> Ints:
    """Spread requests over phases, classes and the unmodelled rest, shape (phases, K + S)."""
    classes, services = round_.classes, round_.services
    out = np.zeros((len(phases), len(classes) + len(services)), dtype=np.int64)
    length = np.array([share for share, _ in phases])
    for service in np.flatnonzero(services.rate_per_s > 0).tolist():
        own = np.append(
            np.flatnonzero(classes.service == service), len(classes) + service
        )  # the last stands for what follows no class
        share = np.append(classes.share[own[:-1]], services.unmodelled_share[service])
        chance = np.outer(length, share).ravel()
        drawn = rng.multinomial(int(requests[service]), chance / chance.sum())
        out[:, own] = drawn.reshape(len(phases), -1)
    return out
