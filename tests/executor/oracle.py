"""A plain simulator with an object for each job, the second opinion on finish times.

Every round touches every job. It knows one GPU type, free preemption and full speed, so where a
gang lies does not matter and GPUs are counted only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Job:
    row: int
    arrival: float
    gang: int
    left: float
    runs: bool = False
    finish: float = -1.0


def replay(arrivals, gangs, works, gpus, round_s, policy):
    """Finish time of each job under "fifo" or "srtf"."""
    jobs = [Job(i, *job) for i, job in enumerate(zip(arrivals, gangs, works, strict=True))]
    coming = sorted(jobs, key=lambda job: job.arrival)
    active: list[Job] = []
    index, done = 0, 0
    while done < len(jobs):
        now = index * round_s
        while coming and coming[0].arrival <= now:
            active.append(coming.pop(0))
        choose(active, gpus, policy)
        for job in active:
            if job.runs:
                if job.left <= round_s:
                    job.finish = now + job.left
                    done += 1
                job.left -= round_s
        active = [job for job in active if job.finish < 0]
        index += 1
        if not active and coming:
            index = max(index, int(coming[0].arrival // round_s))
    return [job.finish for job in jobs]


def choose(active, gpus, policy):
    free = gpus
    if policy == "fifo":
        free -= sum(job.gang for job in active if job.runs)
        for job in active:
            if not job.runs:
                if job.gang > free:
                    break
                job.runs = True
                free -= job.gang
        return
    for job in sorted(active, key=lambda job: (job.left, job.row)):
        job.runs = job.gang <= free
        free -= job.gang * job.runs
