"""The main job on a bundled scenario: three policies, every allocation checked, one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from apportion.comparing import CellDone, compare
from apportion.executor.training.records import Run
from apportion.instances.scenario_file import BASE
from apportion.results import Table, utilisation_figure
from apportion.simulating import simulate

SCENARIO = "demo"
POLICIES = ("fft", "srtf", "fifo")


@dataclass(frozen=True)
class Demo:
    """What the demo ends with."""

    table: Table
    run: Run
    checked: int

    def parts(self) -> Iterator[Table | Text]:
        """Show GPU time over the day, the comparison, and the checker's verdict."""
        yield Text("GPUs busy over time under fft", style="bold")
        yield utilisation_figure(self.run)
        yield self.table
        yield Text(
            f"Every allocation was checked before it was carried out, {self.checked} under fft"
            " alone: none broke a rule."
        )


def demo(*, workers: int | None = None, done: CellDone | None = None) -> Demo:
    """Run FFT, SRTF and FIFO on the bundled scenario.

    Parameters
    ----------
    workers
        Processes at once.
    done
        Called after each run.
    """
    table = compare(SCENARIO, POLICIES, variants=[BASE], workers=workers, done=done)
    run: Run = simulate(SCENARIO, "fft")
    return Demo(table, run, int(run.rounds.index.size))
