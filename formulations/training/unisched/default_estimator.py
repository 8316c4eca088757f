"""The estimator where none is given."""

from __future__ import annotations

from apportion.formulations.training.unisched.estimates import Estimates, reported_work
from apportion.instances.training import TrainingRound


def default_estimator(round_: TrainingRound) -> Estimates:
    """Estimate by reported work."""
    return reported_work(round_)
