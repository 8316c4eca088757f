"""A sliding window of time in buckets, one row a tenant."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Floats, Ints


@dataclass(frozen=True, eq=False)
class Window:
    """Amounts by bucket of time; the last column is the newest bucket.

    Parameters
    ----------
    newest
        Number of the newest bucket: it covers ``newest * bucket_s`` to ``(newest + 1) * bucket_s``.
    bucket_s
        Length of a bucket, seconds.
    served_gpu_s, desired_gpu_s, entitled_gpu_s
        GPU-seconds executed, desired, and of quota, shape (tenants, buckets).
    """

    newest: int
    bucket_s: float
    served_gpu_s: Floats
    desired_gpu_s: Floats
    entitled_gpu_s: Floats

    @classmethod
    def empty(cls, tenants: int, buckets: int, bucket_s: float, now_s: float) -> Window:
        """Nothing has happened yet."""
        none = np.zeros((tenants, buckets))
        return cls(_bucket_until(now_s, bucket_s), bucket_s, none, none, none)

    def until(self, now_s: float) -> Window:
        """Slide on, so that the newest bucket reaches a time; what falls out is forgotten."""
        newest = max(self.newest, _bucket_until(now_s, self.bucket_s))
        if newest == self.newest:
            return self
        columns = (self.served_gpu_s, self.desired_gpu_s, self.entitled_gpu_s)
        return Window(newest, self.bucket_s, *(_slid(c, newest - self.newest) for c in columns))

    def with_interval(
        self, start_s: float, end_s: float, served: Floats, desired: Floats, entitled: Floats
    ) -> Window:
        """Add the amounts of an interval, spread evenly over it, shape (tenants,) each."""
        slid = self.until(end_s)
        count = self.served_gpu_s.shape[1]
        edges = (slid.newest + 1 - count + np.arange(count + 1, dtype=np.float64)) * self.bucket_s
        overlap = np.minimum(end_s, edges[1:]) - np.maximum(start_s, edges[:-1])
        length = end_s - start_s
        part = np.maximum(overlap, 0.0) / length if length > 0 else np.zeros(count)
        return Window(
            slid.newest,
            self.bucket_s,
            slid.served_gpu_s + served[:, None] * part,
            slid.desired_gpu_s + desired[:, None] * part,
            slid.entitled_gpu_s + entitled[:, None] * part,
        )

    def for_tenants(self, place: Ints) -> Window:
        """Give the rows of other tenants, from their places here; -1 stands for a newcomer."""
        columns = (self.served_gpu_s, self.desired_gpu_s, self.entitled_gpu_s)
        known = (place >= 0)[:, None]
        picked = (np.where(known, column[place], 0.0) for column in columns)
        return Window(self.newest, self.bucket_s, *picked)


def _bucket_until(now_s: float, bucket_s: float) -> int:
    """Bucket that ends at or after a time: at an edge the one that is over."""
    return math.ceil(now_s / bucket_s) - 1


def _slid(column: Floats, by: int) -> Floats:
    out = np.zeros_like(column)
    if by < column.shape[1]:
        out[:, : column.shape[1] - by] = column[:, by:]
    return out
