"""A decision about training jobs, for people."""

from __future__ import annotations

import numpy as np

from apportion.families.own_columns import own_columns, shown_value
from apportion.instances import Decision
from apportion.instances.training import Allocation, TrainingRound
from apportion.results import Column, Table


def decision_table(policy: str, round_: TrainingRound, decision: Decision) -> Table:
    """One row for each job: where it runs, or that it waits, and what the policy says of it."""
    plan: Allocation = decision.allocation
    jobs, cluster = round_.jobs, round_.cluster
    entry = {row: at for at, row in enumerate(plan.job.tolist())}
    hosts: dict[int, list[str]] = {}
    if plan.placement is not None:
        for row, node, gpus in zip(
            plan.placement.job.tolist(), plan.placement.node.tolist(),
            plan.placement.gpus.tolist(), strict=True,
        ):  # fmt: skip
            hosts.setdefault(row, []).append(f"{cluster.nodes[node]} x{gpus}")
    shown = {name: np.asarray(column) for name, column in decision.per_job.items()}
    columns = [
        Column("job", "job"), Column("gang", "gang", "count"), Column("type", "GPU type"),
        Column("nodes", "nodes"), *own_columns(shown),
    ]  # fmt: skip
    rows: list[list[str | int | float | None]] = []
    for row, name in enumerate(jobs.id.tolist()):
        at = entry.get(row)
        kind = "waits" if at is None else str(cluster.types[plan.gpu_type[at]])
        own = [shown_value(column[row]) for column in shown.values()]
        rows.append([name, int(jobs.gang[row]), kind, ", ".join(hosts.get(row, [])), *own])
    total = int(round_.capacity.sum())
    title = (
        f"{policy}: {plan.job.size} of {len(jobs)} jobs on {int(plan.gpus.sum())} of {total} GPUs"
    )
    return Table(title, columns, rows, list(decision.notes))
