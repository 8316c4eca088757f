"""Shares: what goes in comes back, and what cannot be is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.instances import InstanceError
from apportion.instances.training import Shares

GOOD = {
    "user": ["a", "b"],
    "weight": [1.0, 2.0],
    "gpus": [[0.5, 0.0], [0.25, 1.5]],
    "of_job": [0, 1, -1, 1],
    "whole_gang": False,
}


def test_reads_back_equal() -> None:
    shares = Shares.from_dict(GOOD)
    assert Shares.from_dict(shares.to_dict()) == shares
    assert shares != Shares.from_dict({**GOOD, "whole_gang": True})
    assert not shares.gpus.flags.writeable


def test_nobody_is_a_share_too() -> None:
    empty = Shares(np.array([], dtype=np.str_), np.zeros(0), np.zeros((0, 3)), np.zeros(0, int))
    assert Shares.from_dict(empty.to_dict()).user.size == 0


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("user", ["a", "a"], r"shares.user\[1\] = 'a': already used"),
        ("weight", [1.0], "shares.weight has shape"),
        ("weight", [1.0, 0.0], r"shares.weight\[1\] = 0.0: must be positive"),
        ("gpus", [[0.5, 0.0]], "shares.gpus has shape"),
        ("gpus", [[0.5, 0.0], [0.25, -1.5]], r"shares.gpus\[1, 1\] = -1.5: must not be negative"),
        ("gpus", [[0.5, 0.0], [0.25, float("inf")]], r"shares.gpus\[1, 1\] = inf: must be finite"),
        ("of_job", [0, 2], r"shares.of_job\[1\] = 2: there are 2 users"),
        ("whole_gang", 1, "shares.whole_gang = 1: must be true or false"),
    ],
)
def test_refuses(key: str, value: object, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        Shares.from_dict({**GOOD, key: value})


def test_unknown_and_missing_keys() -> None:
    for data in ({**GOOD, "gpu": 1}, {k: v for k, v in GOOD.items() if k != "weight"}, 3):
        with pytest.raises(InstanceError, match="shares: expected keys user, weight"):
            Shares.from_dict(data)
