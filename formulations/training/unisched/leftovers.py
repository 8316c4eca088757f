"""GPUs that the plan leaves idle: best effort, jobs ahead of their plan, more GPUs for elastic ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.unisched.configurations import Configurations
from apportion.formulations.training.unisched.plan import NONE
from apportion.instances.columns import Bools, Floats, Ints

NEVER_ENDS = 10**9
"""Leases that a job may hold its GPUs where no end of it can be told."""


@dataclass(eq=False)
class Leftovers:
    """Who runs during a slot, and what is free in this lease and the ones after it.

    Parameters
    ----------
    menu
        Configurations.
    left_s
        Seconds that each would still take, restarts aside, shape (c,).
    code
        What breaks ties between jobs, shape (n,).
    free
        GPUs of each type that are not planned for, shape (k, T); T is 1 at least.
    choice
        Configuration of each job that runs, -1 for those that wait, shape (n,).
    """

    menu: Configurations
    left_s: Floats
    code: Ints
    free: Ints
    choice: Ints

    @property
    def whole_s(self) -> Floats:
        """Seconds to the end by each configuration, a restart included where it is due."""
        return self.left_s + np.where(self.menu.runs, 0.0, self.menu.restart_s)

    def fits(self, configuration: int, leases: int) -> bool:
        """Whether a configuration's GPUs are free for so many leases."""
        kind, gpus = int(self.menu.gpu_type[configuration]), int(self.menu.gpus[configuration])
        return bool((self.free[kind, :leases] >= gpus).all())

    def take(self, configuration: int, leases: int = 1) -> None:
        """Let a job run by a configuration, for this lease or for more."""
        kind, gpus = int(self.menu.gpu_type[configuration]), int(self.menu.gpus[configuration])
        self.free[kind, :leases] -= gpus
        self.choice[self.menu.job[configuration]] = configuration

    def fill(self, order: Ints, leases: Ints) -> None:
        """Start configurations in order; a job whose turn has come once is not asked again.

        Parameters
        ----------
        order
            Configurations, the first ones first.
        leases
            Leases for which each job would hold its GPUs: 1 for those that may be stopped,
            shape (n,).
        """
        room = self.free[self.menu.gpu_type[order], 0] >= self.menu.gpus[order]
        for cut in order[room].tolist():
            row = int(self.menu.job[cut])
            if self.choice[row] == NONE and self.fits(cut, int(leases[row])):
                self.take(cut, int(leases[row]))

    def by_reward(self, rows: Bools, weight: Floats) -> Ints:
        """Configurations of some jobs, the most reward per GPU first.

        With a reward that is inverse to the time left, that is the least remaining GPU time first.
        """
        cuts = np.flatnonzero(rows[self.menu.job])
        cost = self.whole_s[cuts] * self.menu.gpus[cuts] / weight[self.menu.job[cuts]]
        return cuts[np.lexsort((cuts, self.code[self.menu.job[cuts]], rounded(cost)))]

    def by_chance(self, rows: Bools, in_time: Bools, running: Bools, slack_s: Floats) -> Ints:
        """Configurations that end in time: who runs goes on, then the least slack first.

        Slack falls while a job waits and not while it runs: by slack alone two jobs would take
        turns and restart each time.
        """
        cuts = np.flatnonzero(rows[self.menu.job] & in_time)
        cost = rounded(self.whole_s[cuts] * self.menu.gpus[cuts])
        row = self.menu.job[cuts]
        keys = (cuts, cost, self.code[row], rounded(slack_s[row]), ~running[row])
        return cuts[np.lexsort(keys)]

    def by_slack(self, rows: Bools, slack_s: Floats, planned: Ints) -> Ints:
        """Configurations of SLO jobs, the least slack first; the planned one where there is one."""
        job = self.menu.job
        mine = (planned[job] == NONE) | (planned[job] == np.arange(job.size)) | self.menu.runs
        cuts = np.flatnonzero(rows[job] & mine)
        cost = rounded(self.whole_s[cuts] * self.menu.gpus[cuts])
        row = job[cuts]
        return cuts[np.lexsort((cuts, cost, self.code[row], rounded(slack_s[row])))]

    def scale_up(self, rows: Bools, period_s: Floats) -> None:
        """Give idle GPUs to elastic jobs that run, the most seconds saved per GPU first.

        A job moves to more GPUs of its type only if it gets further by it within the period for
        which it will have them, the restart included.

        Parameters
        ----------
        rows
            Jobs that may grow, shape (n,).
        period_s
            How long each will have the GPUs at least, shape (n,).
        """
        menu, whole = self.menu, self.whole_s
        pause = np.where(menu.runs, 0.0, menu.restart_s)
        progress = menu.speed * np.maximum(0.0, period_s[menu.job] - pause)
        while True:
            now = self.choice[menu.job]
            grows = np.flatnonzero(rows[menu.job] & (now >= 0))
            old = now[grows]
            more = menu.gpus[grows] - menu.gpus[old]
            good = (menu.gpu_type[grows] == menu.gpu_type[old]) & (more > 0)
            good &= more <= self.free[menu.gpu_type[grows], 0]
            good &= (progress[grows] > progress[old]) & (whole[grows] < whole[old])
            grows, old, more = grows[good], old[good], more[good]
            if not grows.size:
                return
            gain = rounded((whole[old] - whole[grows]) / more)
            best = np.lexsort((grows, self.code[menu.job[grows]], -gain))[0]
            self.free[menu.gpu_type[grows[best]], 0] -= more[best]
            self.choice[menu.job[grows[best]]] = grows[best]


def rounded(values: Floats) -> Floats:
    """Nine digits of each number, so that equals computed in two ways stay equal."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.floor(np.log10(np.abs(values)))
    scale = 10.0 ** (8 - np.where(np.isfinite(size), size, 0.0))
    return np.round(values * scale) / scale
