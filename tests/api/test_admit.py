"""Would a job's deadline be met: by what, at whose cost, and if not, what would do instead."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import apportion as ap
from apportion import registry
from apportion.formulations.training.chronus import Chronus
from apportion.instances import InstanceError
from apportion.instances.memory_json import dump_memory

LEASE_S = 1200.0

EXACT = Chronus(overhead_s=0.0, safety=1.0, round_up=False)

Job = tuple[str, int, int, Sequence[tuple[float, float]]]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry._BUILT_IN
    if Chronus not in known:
        monkeypatch.setattr(registry, "_BUILT_IN", (*known, Chronus))


def build(gpus: int, jobs: Sequence[Job], arrival_s: Sequence[float] | None = None, **more: Any):
    """Name, gang, leases of work, and pairs of deadline in leases and value."""
    counts = [len(options) for *_, options in jobs]
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"GPU": gpus}),
        jobs=ap.Jobs.of(
            id=[name for name, *_ in jobs], gang=[gang for _, gang, *_ in jobs],
            work=[leases * LEASE_S for _, _, leases, _ in jobs],
            throughput_per_s=np.ones((len(jobs), 1)), slo=[count > 0 for count in counts],
            deadline_offsets=np.concatenate(([0], np.cumsum(counts))).astype(int),
            deadline_s=[at * LEASE_S for *_, options in jobs for at, _ in options],
            deadline_value=[value for *_, options in jobs for _, value in options],
            arrival_s=arrival_s,
        ),
        **more,
    )  # fmt: skip


def test_a_promise_with_its_reservation_and_cost() -> None:
    asked = build(
        4, [("A", 4, 1, [(2, 10)]), ("B", 2, 2, [(2, 8)]), ("C", 2, 1, [(1, 5)])],
        arrival_s=[-3.0, -2.0, -1.0],
    )  # fmt: skip
    found = ap.admit(asked, "A", EXACT)
    assert (found.accepted, found.known, found.decided) == (True, False, True)
    assert (found.deadline_s, found.value) == (2 * LEASE_S, 10.0)
    assert (found.gpu_type, found.gpus, found.charged_gpus) == ("GPU", 4, 4)
    assert found.leases_s == (LEASE_S,)
    # without A both B and C would fit; with it B does not, and C still does
    assert found.displaced == ("B",)
    assert found.displaced_value == 8.0
    assert found.best_effort_gpu_s == 4 * LEASE_S


def test_a_refusal_with_what_would_do() -> None:
    asked = build(4, [("A", 4, 1, [(2, 10)]), ("B", 2, 2, [(2, 8)])], arrival_s=[-2.0, -1.0])
    found = ap.admit(asked, "B", EXACT)
    assert not found.accepted
    assert found.deadline_s is None
    assert found.leases_s == ()
    assert found.counter_offer_s == 3 * LEASE_S
    assert (found.extra_gpus, found.extra_type) == (2, "GPU")
    assert any("no room" in note for note in found.notes)


def test_later_arrivals_do_not_count_against_a_refused_job() -> None:
    asked = build(
        4, [("A", 4, 1, [(2, 10)]), ("B", 2, 2, [(2, 8)]), ("C", 4, 1, [(3, 1)])],
        arrival_s=[-3.0, -2.0, -1.0],
    )  # fmt: skip
    found = ap.admit(asked, "B", EXACT)
    assert (found.counter_offer_s, found.extra_gpus) == (3 * LEASE_S, 2)


def test_soft_deadlines_report_the_level() -> None:
    asked = build(
        2, [("A", 2, 1, [(1, 10)]), ("B", 2, 1, [(1, 10), (2, 8), (4, 5)])], arrival_s=[-2.0, -1.0]
    )
    found = ap.admit(asked, "B", EXACT)
    assert (found.deadline_s, found.value) == (2 * LEASE_S, 8.0)


def test_promises_in_force_are_told_and_kept() -> None:
    asked = build(2, [("A", 2, 2, [(2, 10)]), ("B", 2, 1, [(1, 10)])], arrival_s=[-2.0, -1.0])
    answer = ap.solve(asked, EXACT)
    memory = EXACT.remember(
        None, asked, answer.decision,
        ap.Outcome(0.0, 1.0, np.zeros(2), np.zeros(2), np.zeros(2, dtype=bool)),
    )  # fmt: skip
    found = ap.admit(asked, "A", EXACT, memory=memory)
    assert (found.accepted, found.known) == (True, True)
    assert found.displaced_value == 0.0
    # a job that was rejected may ask anew, after all promises
    again = ap.admit(asked, "B", EXACT, memory=memory)
    assert not again.accepted
    assert again.counter_offer_s == 3 * LEASE_S


def test_a_promise_that_failed_nodes_have_broken() -> None:
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"slow": 1, "fast": 2}, gpus_per_node=1),
        jobs=ap.Jobs.of(
            id=["A", "B"], gang=[1, 1], work=[LEASE_S] * 2, throughput_per_s=[[0.5, 1.0]] * 2,
            slo=[True, True], deadline_offsets=[0, 1, 2], deadline_s=[LEASE_S] * 2,
            deadline_value=[1.0, 1.0],
        ),
    )  # fmt: skip
    memory = ap.solve(asked, EXACT).decision.carry
    assert ap.admit(asked, "B", EXACT, memory=memory).known
    up = np.array([True, False, True])
    broken = dataclasses.replace(asked, node_up=up)
    assert ap.admit(broken, "A", EXACT, memory=memory).known
    found = ap.admit(broken, "B", EXACT, memory=memory)
    assert not found.accepted
    assert (found.extra_gpus, found.extra_type) == (1, "fast")
    assert any("lost its promise" in note for note in found.notes)


def test_nobody_decides_when_somebody_asks() -> None:
    asked = build(2, [("A", 2, 1, [(2, 10)])])
    memory = dict(ap.solve(asked, EXACT).decision.carry)
    before = dump_memory(memory)
    ap.admit(asked, "A", EXACT, memory=memory)
    assert dump_memory(memory) == before


def test_best_effort_jobs_and_negative_slack() -> None:
    asked = build(2, [("free", 1, 1, []), ("late", 1, 3, [(2, 10)])])
    free = ap.admit(asked, "free", EXACT)
    assert not free.accepted
    assert any("no deadline" in note for note in free.notes)
    late = ap.admit(asked, "late", EXACT)
    assert late.extra_gpus is None
    assert late.counter_offer_s == 3 * LEASE_S
    assert any("negative slack" in note for note in late.notes)


def test_a_gang_larger_than_the_cluster() -> None:
    found = ap.admit(build(2, [("A", 3, 1, [(2, 10)])]), "A", EXACT)
    assert not found.accepted
    assert any("no GPU type in service" in note for note in found.notes)


def test_who_cannot_be_asked() -> None:
    asked = build(2, [("A", 1, 1, [(2, 10)])])
    with pytest.raises(InstanceError, match="'B': is not in the round"):
        ap.admit(asked, "B", EXACT)
    with pytest.raises(InstanceError, match="'fft' makes no promises"):
        ap.admit(asked, "A", "fft")


# ---------------------------------------------------------------------- every case


def fits(jobs: Sequence[tuple[int, int, int]], free: tuple[int, ...]) -> bool:
    """Try every choice of leases for (gang, leases, due)."""
    if not jobs:
        return True
    gang, need, due = jobs[0]
    return any(
        all(free[t] >= gang for t in chosen)
        and fits(jobs[1:], tuple(f - gang * (t in chosen) for t, f in enumerate(free)))
        for chosen in itertools.combinations(range(min(due, len(free))), need)
    )


def judge(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus, length = int(rng.integers(1, 5)), 10
    needs = [
        (int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 5)))
        for _ in range(int(rng.integers(2, 5)))
    ]
    jobs: list[Job] = [
        (f"j{at}", gang, need, [(due, 10.0)]) for at, (gang, need, due) in enumerate(needs)
    ]
    asked = build(gpus, jobs, arrival_s=[float(at - 9) for at in range(len(jobs))])
    accepted: list[tuple[int, int, int]] = []
    for at, (gang, need, due) in enumerate(needs):
        found = ap.admit(asked, f"j{at}", EXACT)
        assert found.decided
        yes = fits([*accepted, (gang, need, due)], (gpus,) * length)
        assert found.accepted == yes
        if yes:
            accepted.append((gang, need, due))
            continue
        if gang > gpus:
            assert found.counter_offer_s is None
            continue
        later = [d for d in range(due + 1, length) if fits([*accepted, (gang, need, d)],
                                                           (gpus,) * length)]  # fmt: skip
        assert found.counter_offer_s == later[0] * LEASE_S
        more = [
            extra for extra in range(1, gang + 1)
            if fits([*accepted, (gang, need, due)],
                    (gpus + extra,) * due + (gpus,) * (length - due))
        ]  # fmt: skip
        assert found.extra_gpus == (more[0] if more else None)


@pytest.mark.parametrize("seed", range(20))
def test_answers_against_every_plan(seed: int) -> None:
    judge(seed)


@pytest.mark.slow
def test_answers_against_every_plan_of_many() -> None:
    for seed in range(20, 320):
        judge(seed)


# ---------------------------------------------------------------------- the command


def test_command_tells_yes_and_no(command, tmp_path) -> None:
    path = tmp_path / "round.json"
    ap.write_round(
        build(4, [("A", 4, 1, [(2, 10)]), ("B", 4, 1, [(2, 8)])], arrival_s=[-2.0, -1.0]), path
    )
    told = command("admit", path, "--job", "A")
    assert told.code == 0
    assert "deadline met" in told.out
    assert "yes" in told.out
    # with the margins of estimates each needs both leases
    told = command("admit", path, "--job", "B", "--json")
    assert told.code == 1
    assert json.loads(told.out)["extra_gpus"] == 4
    plain = ("--param", "safety=1", "--param", "overhead_s=0")
    assert command("admit", path, "--job", "B", *plain).code == 0


def test_command_with_memory_and_mistakes(command, tmp_path) -> None:
    asked = build(4, [("A", 4, 1, [(3, 10)])])
    path, memory = tmp_path / "round.json", tmp_path / "memory.json"
    ap.write_round(asked, path)
    memory.write_text(dump_memory(ap.solve(asked, "chronus").decision.carry))
    told = command("admit", path, "--job", "A", "--memory", memory, "--json")
    assert told.code == 0
    assert told.json["known"] is True
    assert command("admit", path, "--job", "a").code == 2
    assert command("admit", path, "--job", "A", "--policy", "srtf").code == 2
    memory.write_text("3")
    told = command("admit", path, "--job", "A", "--memory", memory)
    assert told.code == 2
    assert "memory.json: memory: not one of chronus" in told.err


def test_the_table_shows_deadlines_to_the_second() -> None:
    lease_s, due_s = 1200.0, 1234567.25
    asked = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"GPU": 1}), now_s=1027 * lease_s,
        jobs=ap.Jobs.of(
            id=["a", "b"], gang=[1, 1], work=[lease_s] * 2, throughput_per_s=[[1.0]] * 2,
            slo=[True] * 2, deadline_offsets=[0, 1, 2], deadline_s=[due_s, due_s],
            deadline_value=[10.0] * 2,
        ),
    )  # fmt: skip
    shown = {row[0]: row[1] for row in ap.admit(asked, "a", EXACT).table().rows}
    assert shown["deadline kept"] == "1234567.25 s"
    assert shown["reservation"] == "1 lease of 1200 s, 1 GPU of GPU (charged 1)"
    assert shown["leases from"] == "1232400"
    shown = {row[0]: row[1] for row in ap.admit(asked, "b", EXACT).table().rows}
    assert shown["earliest deadline"] == "1234800 s"
    assert shown["smallest extra capacity"] == "1 GPU of GPU"
