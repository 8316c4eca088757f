"""Reservations in force between decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from apportion.executor.training.world import World
from apportion.instances.columns import Bools, Ints, freeze
from apportion.instances.training import Commitments

_NONE = Commitments()


class Promises:
    """Commitments by the scenario's rows; those that are over or whose job is done drop out."""

    def __init__(self) -> None:
        self._kept = _NONE

    @property
    def some(self) -> bool:
        """Whether anything is promised."""
        return bool(self._kept.job.size)

    def replace(self, commitments: Commitments, rows: Ints) -> None:
        """Take what a decision promises; ``rows`` are the scenario rows of its round's jobs."""
        self._kept = replace(commitments, job=rows[commitments.job])

    def at(self, now_s: float, world: World) -> Commitments:
        """Promises in force now, with the rows of the round to be shown."""
        kept = self._kept
        if not kept.job.size:
            return _NONE
        good = (kept.end_s > now_s) & ~world.finished(kept.job)
        if not good.all():
            kept = self._kept = _only(kept, good)
        return replace(kept, job=world.state.rows().searchsorted(kept.job))

    def drop_last(self) -> None:
        """Give up the promise made last: after a failure not all of them can be kept."""
        good = np.ones(self._kept.job.size, dtype=np.bool_)
        good[-1:] = False
        self._kept = _only(self._kept, good)


def _only(commitments: Commitments, good: Bools) -> Commitments:
    columns: dict[str, Any] = {
        name: getattr(commitments, name)[good]
        for name in ("job", "start_s", "end_s", "gpus", "gpu_type", "kind")
    }
    for column in columns.values():
        freeze(column)
    return Commitments(**columns)
