"""Memories and weights that no policy wrote or can use."""

from __future__ import annotations

import numpy as np
import pytest

import apportion as ap
from apportion.instances import dump_memory

pytestmark = pytest.mark.quick


def round_() -> ap.TrainingRound:
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": 2}),
        jobs=ap.Jobs.of(id=["a", "b"], gang=[1, 1], work=[1.0, 2.0], throughput_per_s=[[1.0]] * 2),
    )


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"rho": [0.0, -1.0]}, "memory.rho[1] = -1.0 (job 'b'): must not be negative"),
        ({"rho": [1e16, 0.0]}, "memory.rho[0] = 1e+16 (job 'a'): must not be beyond 1e+15"),
        ({"rho": [np.inf, 0.0]}, "memory.rho[0] = inf (job 'a'): must be finite"),
        ({"rho": [np.nan, 0.0]}, "memory.rho[0] = NaN: not a number"),
        ({"fair_per_s": [0.0, -2.0]}, "memory.fair_per_s[1] = -2.0 (job 'b'): must not be"),
        ({"rho": ["x", "y"]}, "memory.rho: expected numbers"),
        ({"id": ["a", "a"]}, "memory.id[1] = 'a': already used at index 0"),
        ({"id": ["c", "c"]}, "memory.id[1] = 'c': already used at index 0"),
    ],
)
def test_memories_nobody_wrote_are_refused(changed, says, tmp_path, command):
    memory = {"id": ["a", "b"], "rho": [0.0, 0.0], "fair_per_s": [1.0, 1.0]} | changed
    given = {name: np.array(column) for name, column in memory.items()}
    with pytest.raises(ap.InstanceError) as told:
        ap.solve(round_(), "fft", memory=given)
    assert str(told.value).startswith(says)
    if "NaN" in says:
        return
    ap.write_round(round_(), tmp_path / "r.json")
    path = tmp_path / "m.json"
    path.write_text(dump_memory(given))
    for name in ("solve", "explain", "prices"):
        line = command(name, tmp_path / "r.json", "--memory", path).refused()
        assert line.startswith(f"error: {path}: {says}")


@pytest.mark.parametrize("value", [1e308, 1.1e15, float("inf"), float("nan")])
@pytest.mark.parametrize("field", ["wait_weight", "fairness_weight", "switch_weight"])
def test_weights_beyond_what_a_solver_tells_apart_are_refused(field, value):
    least = "-1e+15" if field == "wait_weight" else "0"
    with pytest.raises(ap.InstanceError) as told:
        ap.FFT(**{field: value})
    assert str(told.value) == f"fft.{field} = {value}: must be a number from {least} to 1e+15"
    assert ap.FFT(wait_weight=-3.0).wait_weight == -3.0
