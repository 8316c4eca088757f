"""The applications that come with the package: who calls whom, how often, at what rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.microservices.builtin import BUILTIN_NAMES, builtin_round
from apportion.instances.microservices.laws import least_admissible

pytestmark = pytest.mark.quick


def called(round_: MicroserviceRound, name: str) -> dict[str, int]:
    """Microservices of a class, and how often a request calls them."""
    k = round_.classes.id.tolist().index(name)
    column = round_.demand[:, k].tolist()
    return {
        who: int(n) for who, n in zip(round_.microservices.id.tolist(), column, strict=True) if n
    }


def test_the_ticket_search_has_the_published_counts() -> None:
    round_ = builtin_round("ticket-search")
    demand = round_.demand
    assert demand.shape == (12, 2)
    assert (demand > 0).sum(axis=0).tolist() == [10, 10]
    assert int((demand > 0).all(axis=1).sum()) == 8
    assert demand.sum(axis=0).tolist() == [103, 473]
    assert (demand[demand > 0].min(), demand.max()) == (1, 113)
    assert "travel2" in called(round_, "light")
    assert {"travel", "order"} < set(called(round_, "heavy"))


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_laws_lie_in_the_stated_ranges(name: str) -> None:
    for seed in range(5):
        round_ = builtin_round(name, seed=seed)
        laws = round_.microservices
        assert ((laws.rate_at_rest_per_ms >= 2.4) & (laws.rate_at_rest_per_ms <= 9.4)).all()
        assert ((laws.rate_slope_per_ms >= -0.0903) & (laws.rate_slope_per_ms <= -0.006)).all()
        assert ((laws.shift_ms >= 0.26) & (laws.shift_ms <= 0.79)).all()
        assert (laws.least_rate_per_ms == 0.8).all()
        assert (laws.least_load_per_s < laws.most_load_per_s).all()
        assert (least_admissible(round_) >= 1).all()
        assert round_ == builtin_round(name, seed=seed)
    assert builtin_round(name, seed=0) != builtin_round(name, seed=1)


def test_the_ticket_search_needs_as_many_containers_as_the_published_fit() -> None:
    # the floor of that fit is 32, 85 and 138 containers
    floors = [
        int(least_admissible(builtin_round("ticket-search", rate_per_s=rate)).sum())
        for rate in (10.0, 30.0, 50.0)
    ]
    assert floors == pytest.approx([32, 85, 138], rel=0.1)


def test_compose_post_meets_at_compose_post() -> None:
    of = called(builtin_round("social-network"), "compose-post")
    assert of["compose-post"] == 5  # from unique-id, user, text and media, and once for all
    assert of["user-mention"] == of["url-shorten"] == of["social-graph"] == 1
    assert {"post-storage", "user-timeline", "home-timeline"} <= set(of)
    miss = called(builtin_round("social-network"), "read-user-timeline/miss")
    assert miss["user-timeline-cache"] == 2
    assert miss["user-timeline-db"] == 1


def test_media_and_hotel() -> None:
    of = called(builtin_round("media"), "compose-review")
    assert of["compose-review"] == 5
    assert {"rating", "review-storage", "user-review", "movie-review"} <= set(of)
    hotel = builtin_round("hotel")
    search, recommend = called(hotel, "search"), called(hotel, "recommend")
    assert set(search) == {"front-end", "search", "geo", "rate", "reservation", "profile"}
    assert set(recommend) == {"front-end", "recommendation", "profile"}
    assert set(search) & set(recommend) == {"front-end", "profile"}


def test_what_can_be_set() -> None:
    round_ = builtin_round(
        "social-network", rate_per_s={"compose-post": 5.0}, target_ms=20.0, violation_budget=0.01,
        share={"read-user-timeline/hit": 0.5, "read-user-timeline/miss": 0.5}, shift_factor=0.0,
    )  # fmt: skip
    assert round_.services.rate_per_s.tolist() == [5, 300, 600]
    assert round_.services.target_ms.tolist() == [20, 20, 20]
    assert round_.services.violation_budget.tolist() == [0.01] * 3
    assert round_.classes.share.tolist() == [1, 0.5, 0.5, 1]
    assert not round_.microservices.shift_ms.any()
    usual = builtin_round("social-network").microservices
    for name in ("rate_at_rest_per_ms", "rate_slope_per_ms", "least_load_per_s"):
        assert np.array_equal(getattr(usual, name), getattr(round_.microservices, name))


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("hotels", {}, "did you mean 'hotel'"),
    ("hotel", {"rate_per_s": {"serch": 1.0}}, r"rate_per_s\.serch: .*'search'"),
    ("ticket-search", {"share": {"heavy": 0.1}}, "must sum to 1"),
    ("ticket-search", {"share": {"hevy": 0.1}}, "did you mean 'heavy'"),
    ("ticket-search", {"target_ms": 0.0}, "must be positive"),
]


@pytest.mark.parametrize(("name", "given", "said"), BAD, ids=range(len(BAD)))
def test_bad_requests_are_told(name: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InstanceError, match=said):
        builtin_round(name, **given)
