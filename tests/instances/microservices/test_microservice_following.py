"""What a plan leads to where nobody watched, and the round after."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.microservices import (
    Allocation,
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Outcome,
    Services,
)
from apportion.instances.microservices.builtin import BUILTIN_NAMES, builtin_round
from apportion.instances.microservices.following import round_after
from apportion.instances.microservices.laws import least_admissible
from apportion.instances.microservices.planned import class_moments, planned_outcome

pytestmark = pytest.mark.quick


def two_classes(rate: float = 100.0, target: float = 14.0) -> MicroserviceRound:
    """Class S calls A, class C calls A and then B: the example worked in the specification."""
    return MicroserviceRound(
        Microservices.of(["A", "B"], [0.6, 0.5], [-0.02, -0.1]),
        Services.of(["s"], rate, target),
        CallClasses.of(["S", "C"], CallTrees.serial([[1, 1], [0, 1]]), share=[0.9, 0.1]),
    )


def test_one_exponential_is_exact() -> None:
    round_ = two_classes()
    outcome = planned_outcome(round_, Allocation.of([6, 3], [False]))
    assert outcome.assumed
    assert (outcome.start_s, outcome.end_s) == (0, 60)
    assert outcome.class_requests.tolist() == [5400, 600]
    assert outcome.serving.tolist() == [6, 3]
    tail = class_moments(round_, Allocation.of([6, 3], [False])).tail(14.0)
    assert tail[0] == pytest.approx(0.023913, abs=1e-6)
    assert tail[1] == pytest.approx(0.218737, abs=0.02)  # two rates: an estimate
    assert outcome.violations[0] == pytest.approx(6000 * (0.9 * tail[0] + 0.1 * tail[1]))
    assert outcome.latency_tail_ms[0] == pytest.approx(13.3186, abs=0.3)


def test_equal_rates_are_exact() -> None:
    n = 4
    trees = CallTrees.serial(np.ones((n, 1)))
    round_ = MicroserviceRound(
        Microservices.of(list("abcd"), 1.0, -0.001, shift_ms=0.5),
        Services.of(["s"], 100.0, 10.0),
        CallClasses.of(["k"], trees),
    )
    moments = class_moments(round_, Allocation.of([1] * n, [False]))
    x = 0.9 * (10.0 - 2.0)
    erlang = math.exp(-x) * sum(x**i / math.factorial(i) for i in range(n))
    assert moments.tail(10.0)[0] == pytest.approx(erlang, rel=1e-12)
    assert moments.tail(2.0).tolist() == [1.0]
    at = moments.percentile(np.array([1.0]), erlang)
    assert at == pytest.approx(10.0, rel=1e-9)


def test_of_a_stage_the_slowest_stands() -> None:
    stages = [
        [{"microservice": "a", "stages": [[{"microservice": "b"}, {"microservice": "c", "calls": 2}]]}]
    ]  # fmt: skip
    round_ = MicroserviceRound(
        Microservices.of(list("abc"), [1.0, 0.5, 2.0], -1e-9, shift_ms=[0.1, 0.2, 0.3]),
        Services.of(["s"], 1.0, 10.0),
        CallClasses.of(["k"], CallTrees.nested([stages], list("abc"))),
    )
    moments = class_moments(round_, Allocation.of([1, 1, 1], [False]))
    assert moments.mean_ms == pytest.approx([3.0])
    assert moments.shift_ms == pytest.approx([0.3])
    assert moments.variance == pytest.approx([5.0])


def test_what_cannot_be_kept_is_violated() -> None:
    round_ = two_classes()
    outcome = planned_outcome(round_, Allocation.of([6, 1], [False]))  # B is overloaded
    assert outcome.violations[0] >= 600
    assert outcome.latency_tail_ms.tolist() == [math.inf]
    nothing = planned_outcome(round_, Allocation.of([0, 0], [False]))
    assert nothing.violations.tolist() == [6000]
    lost = replace(
        round_,
        services=replace(round_.services, unmodelled_share=[0.1]),
        classes=round_.classes.with_share([0.8, 0.1]),
    )
    outcome = planned_outcome(lost, Allocation.of([99, 99], [False]))
    assert outcome.unmodelled_requests.tolist() == pytest.approx([600])
    assert outcome.violations[0] == pytest.approx(600, rel=1e-2)
    assert outcome.latency_tail_ms.tolist() == [math.inf]


def test_a_claim_is_believed() -> None:
    outcome = planned_outcome(two_classes(target=13.0), Allocation.of([6, 3], [True]), 30.0)
    assert outcome.end_s == 30
    assert outcome.violations[0] == pytest.approx(3000 * 0.05)
    assert outcome.latency_tail_ms.tolist() == [13.0]


def test_priority_serves_those_who_go_first_faster() -> None:
    round_ = two_classes()
    plan = Allocation.of([6, 3], [False], rank=[1, 0])
    first = class_moments(round_, plan).tail(14.0)
    both = class_moments(round_, Allocation.of([6, 3], [False])).tail(14.0)
    assert first[1] < both[1]
    assert first[0] == pytest.approx(both[0])


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_a_round_that_went_as_planned_stays_as_it_is(name: str) -> None:
    round_ = builtin_round(name)
    count = np.ceil(1.3 * np.maximum(least_admissible(round_), 1)).astype(np.int64)
    plan = Allocation.of(count, [False] * len(round_.services))
    after = round_after(round_, plan, planned_outcome(round_, plan))
    assert after.now_s == 60
    assert after.index == 1
    assert after.containers is not None
    assert after.containers.tolist() == count.tolist()
    assert after.services.rate_per_s == pytest.approx(round_.services.rate_per_s)
    assert after.classes.share == pytest.approx(round_.classes.share)
    assert after.observed is not None
    assert after.observed.load_per_s == pytest.approx(round_.calls_per_s / count)
    seen = after.observed
    assert (seen.latency_p50_ms < seen.latency_p95_ms).all()
    late = seen.latency_tail_ms > round_.services.target_ms
    assert seen.violated.tolist() == late.tolist()


def an_outcome(**changes: object) -> Outcome:
    given = {
        "class_requests": [600, 1200], "violations": [200], "unmodelled_requests": [200],
        "latency_tail_ms": [np.inf], "serving": [4.0, 0.0], **changes,
    }  # fmt: skip
    return Outcome.of(0.0, 20.0, **given)


def test_the_next_round_holds_what_was_seen() -> None:
    after = round_after(two_classes(), Allocation.of([6, 3], [False]), an_outcome())
    assert after.services.rate_per_s.tolist() == [100]
    assert after.classes.share.tolist() == [0.3, 0.6]
    assert after.services.unmodelled_share.tolist() == [0.1]
    assert after.now_s == 20
    seen = after.observed
    assert seen is not None
    assert seen.violated.tolist() == [True]
    assert seen.load_per_s.tolist() == [22.5, math.inf]
    assert seen.latency_p50_ms[0] == pytest.approx(math.log(2) / (0.6 - 0.02 * 22.5))
    assert seen.latency_p95_ms[1] == math.inf
    few = round_after(two_classes(), Allocation.of([6, 3], [False]), an_outcome(violations=[99]))
    assert few.observed is not None
    assert few.observed.violated.tolist() == [False]


def test_shares_stay_where_nothing_was_seen() -> None:
    quiet = an_outcome(class_requests=[0, 0], unmodelled_requests=[0], violations=[0])
    after = round_after(two_classes(), Allocation.of([6, 3], [False]), quiet)
    assert after.classes.share.tolist() == [0.9, 0.1]
    assert after.services.rate_per_s.tolist() == [0]
    assert after.observed is not None
    assert after.observed.load_per_s.tolist() == [0, 0]


def test_parts_of_another_round_are_refused() -> None:
    plan = Allocation.of([6, 3], [False])
    with pytest.raises(InstanceError, match=r"outcome\.class_requests has shape \(1,\)"):
        round_after(two_classes(), plan, an_outcome(class_requests=[1]))
    with pytest.raises(InstanceError, match=r"allocation\.containers has shape \(1,\)"):
        round_after(two_classes(), Allocation.of([6], [False]), an_outcome())
