"""Numbers nobody can compute with are refused where they enter."""

from __future__ import annotations

import pytest

from apportion.instances import InstanceError
from apportion.instances.training import Jobs

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("work", [1.0, 1e16], r"jobs.work\[1\] = 1e\+16 \(job 'b'\): must not be beyond 1e\+15"),
        ("work", [1e-16, 1.0], r"jobs.work\[0\] = 1e-16 \(job 'a'\): is closer to zero"),
        ("throughput_per_s", [[1e300], [1.0]], r"jobs.throughput_per_s\[0, 0\] = 1e\+300"),
        ("throughput_per_s", [[1e-300], [1.0]], r"jobs.throughput_per_s\[0, 0\] = 1e-300"),
        ("arrival_s", [0.0, -1e20], r"jobs.arrival_s\[1\] = -1e\+20"),
        ("gang", [2**60, 1], r"jobs.gang\[0\] = 1152921504606846976"),
    ],
)
def test_sizes_beyond_arithmetic_are_refused(column, values, said):
    columns = {"gang": [1, 1], "work": [1.0, 1.0], "throughput_per_s": [[1.0], [0.0]]}
    with pytest.raises(InstanceError, match=said):
        Jobs.of(id=["a", "b"], **{**columns, column: values})


def test_zero_throughput_is_no_tiny_number():
    jobs = Jobs.of(id=["a"], gang=[1], work=[1e15], throughput_per_s=[[0.0, 1e-15]])
    assert jobs.throughput_per_s.tolist() == [[0.0, 1e-15]]
