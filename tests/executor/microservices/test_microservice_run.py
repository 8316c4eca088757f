"""Runs: what is shown, brought about, recorded and resumed."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apportion.executor.microservices import (
    InvalidAllocation,
    accepted,
    run,
    scenario_digest,
    violation_bounds,
)
from apportion.executor.microservices.containers import Containers
from apportion.instances import Decision, InstanceError
from apportion.instances.microservices import (
    Allocation,
    CallClasses,
    CallTrees,
    ExecutorOptions,
    MicroserviceRound,
    Microservices,
    Nodes,
    Scenario,
    Services,
)

HERE = Path(__file__).parent
SEEDS = [*range(20), *(pytest.param(s, marks=pytest.mark.slow) for s in range(20, 200))]


@pytest.fixture(scope="module")
def script():
    path = HERE / "microservices_journaled.py"
    spec = importlib.util.spec_from_file_location("apportion_test_microservices_journaled", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Planned:
    """Answers with counts that were fixed before."""

    subscribes = frozenset()
    reacts_to = frozenset()

    def __init__(self, counts, guaranteed=False, rank=None):
        self.counts, self.guaranteed, self.rank = np.atleast_2d(counts), guaranteed, rank
        self.seen, self.outcomes = [], []

    def decide(self, round_, memory):
        counts = self.counts[min(len(self.seen), len(self.counts) - 1)]
        self.seen.append(round_)
        sure = np.full(len(round_.services), self.guaranteed)
        return Decision(Allocation.of(counts, sure, rank=self.rank))

    def remember(self, memory, round_, decision, outcome):
        self.outcomes.append(outcome)
        return None


def start(**changes):
    parts = {
        "microservices": Microservices.of(["A", "B"], [0.6, 0.5], [-0.02, -0.1]),
        "services": Services.of(["s"], [100.0], [14.0], 0.05),
        "classes": CallClasses.of(
            ["S", "C"], CallTrees.serial([[1, 1], [0, 1]]), share=[0.9, 0.1]
        ),
        "containers": [6, 3],
    }  # fmt: skip
    return MicroserviceRound(**{**parts, **changes})


def scenario(rounds=5, first=None, rate=100.0, share=(0.9, 0.1), **options):
    truth = options.pop("truth", None)
    return Scenario(
        name="test", start=first or start(), rate_per_s=np.full((rounds, 1), rate),
        share=np.tile(share, (rounds, 1)), true_microservices=truth,
        options=ExecutorOptions(**{"requests": 20_000, **options}),
    )  # fmt: skip


# ---------------------------------------------------------------------- what is brought about


def test_a_steady_plan_keeps_what_it_claims():
    done = run(scenario(first=start(containers=[7, 4])), Planned([7, 4], guaranteed=True))
    records = done.services
    expected = violation_bounds(start(), np.array([7, 4])).middle
    assert records.expected_violation == pytest.approx(np.tile(expected, (5, 1)), abs=1e-9)
    for hits, count in zip(records.violations[:, 0], records.measured[:, 0], strict=True):
        assert accepted(hits / count, float(expected[0]), int(count))
    assert records.claimed.all()
    assert not records.missed.any()
    assert done.rounds.end_s.tolist() == [60.0, 120.0, 180.0, 240.0, 300.0]


def test_a_plan_that_breaks_a_rule_is_refused():
    decider = Planned([5, 3], guaranteed=True)
    with pytest.raises(InvalidAllocation, match=r"decided at 0 s.*guarantee: service s") as caught:
        run(scenario(), decider)
    assert [violation.rule for violation in caught.value.violations] == ["guarantee"]
    assert decider.outcomes == []


def test_containers_start_late_and_stop_at_once():
    done = run(
        scenario(rounds=3, stabilisation_s=0.0, start_delay_s=15.0, largest_step=np.inf),
        Planned([[10, 3], [4, 5], [4, 5]]),
    )
    table = done.microservices
    assert table.held.tolist() == [[10, 3], [4, 5], [4, 5]]
    assert table.serving == pytest.approx(
        np.array([[6 + 4 * 0.75, 3.0], [4.0, 3 + 2 * 0.75], [4.0, 5.0]])
    )
    assert table.fewest_serving.tolist() == [[6, 3], [4, 3], [4, 5]]
    assert table.started.tolist() == [[4, 0], [0, 2], [0, 0]]
    assert table.stopped.tolist() == [[0, 0], [6, 0], [0, 0]]
    assert table.load_per_s[2] == pytest.approx([25.0, 2.0])
    parts = [violation_bounds(start(), np.array(counts)).middle[0] for counts in ([6, 3], [10, 3])]
    assert done.services.expected_violation[0, 0] == pytest.approx(
        0.25 * parts[0] + 0.75 * parts[1], abs=1e-9
    )


def test_a_start_longer_than_a_round():
    done = run(
        scenario(rounds=4, stabilisation_s=0.0, start_delay_s=90.0),
        Planned([[9, 3], [9, 3], [7, 3], [7, 3]]),
    )
    table = done.microservices
    assert table.serving[:, 0].tolist() == [6.0, 6.0 + 3 * 0.5, 7.0, 7.0]
    assert table.held[:, 0].tolist() == [9, 9, 7, 7]


def test_what_has_not_started_goes_first():
    world = Containers(start(), ExecutorOptions(stabilisation_s=0.0, start_delay_s=100.0))
    world.ask(0.0, np.array([9, 3]))
    world.phases(0.0, 60.0)
    assert world.ask(60.0, np.array([8, 3])).tolist() == [8, 3]
    assert world.serving.tolist() == [6, 3]
    assert world.ask(70.0, np.array([5, 3])).tolist() == [5, 3]
    assert world.serving.tolist() == [5, 3]
    assert world.phases(70.0, 200.0) == [(1.0, world.serving)]


def test_removal_waits_for_the_largest_request_of_late():
    counts = [[6, 3], [3, 3], [5, 3]] + [[3, 3]] * 8
    done = run(scenario(rounds=11, stabilisation_s=300.0, largest_step=np.inf), Planned(counts))
    # 6 was asked for at 0 s and counts until 300 s, 5 at 120 s until 420 s
    assert done.microservices.held[:, 0].tolist() == [6] * 5 + [5, 5] + [3] * 4


def test_steps_are_bounded():
    done = run(
        scenario(rounds=5, stabilisation_s=0.0, largest_step=0.5), Planned([[40, 1]] * 5)
    )  # fmt: skip
    assert done.microservices.held.tolist() == [[9, 2], [13, 1], [19, 1], [28, 1], [40, 1]]


def test_what_is_held_back_never_overfills_the_cluster():
    first = start(cpu_cores=2.0, containers=[6, 3])  # 0.2 cores each: 10 containers
    counts = [[2, 8], [2, 8], [2, 8], [2, 8]]
    done = run(scenario(rounds=4, first=first, largest_step=np.inf), Planned(counts))
    held = done.microservices.held
    assert held.sum(axis=1).max() <= 10
    assert held[0].tolist() == [2, 8]  # stabilisation gives way
    slow = run(scenario(rounds=4, first=first, largest_step=0.5), Planned(counts))
    held = slow.microservices.held
    assert (held.sum(axis=1) <= 10).all()
    assert held[:, 0].tolist() == [6, 4, 2, 2]  # as far as it must
    assert held[:, 1].tolist() == [4, 6, 8, 8]


def test_only_what_takes_room_makes_room():
    """B takes memory alone: letting it go would free no core."""
    table = Microservices.of(
        ["B", "A", "C"], [0.6] * 3, [-0.02] * 3, cpu_cores=[0.0, 1.0, 1.0], memory_mib=1.0
    )
    first = start(
        microservices=table, containers=[5, 5, 1], cpu_cores=6.0,
        classes=CallClasses.of(["S"], CallTrees.serial([[1], [1], [1]])),
    )  # fmt: skip
    done = run(
        scenario(rounds=1, first=first, share=(1.0,), largest_step=np.inf), Planned([2, 2, 4])
    )
    assert done.microservices.held.tolist() == [[5, 2, 4]]


def test_the_first_plan_runs_at_once_where_nothing_is_known():
    decider = Planned([7, 4])
    done = run(scenario(rounds=2, first=start(containers=None)), decider)
    assert decider.seen[0].containers is None
    assert decider.seen[1].containers.tolist() == [7, 4]
    assert done.microservices.serving.tolist() == [[7.0, 4.0], [7.0, 4.0]]
    assert done.microservices.started.sum() == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_serving_stays_within_bounds(seed):
    """Invariant 19, whatever is asked for and however it is delayed."""
    rng = np.random.default_rng(seed)
    least, most = np.array([2, 1]), np.array([12, 9])
    first = start(
        microservices=Microservices.of(
            ["A", "B"], [0.6, 0.5], [-0.02, -0.1], least_containers=least, most_containers=most
        ),
        nodes=Nodes.of(["n"], [float(rng.uniform(2.0, 5.0))], [1e6]),
        containers=[4, 3],
    )
    free = int(np.floor(first.nodes.cpu_cores[0] / 0.2 + 1e-9))
    rows = np.arange(30)
    counts = np.column_stack([rng.integers(2, 13, 30), rng.integers(1, 10, 30)])
    counts[:, 0] = np.maximum(2, np.minimum(counts[:, 0], free - counts[:, 1]))
    counts = counts[counts.sum(axis=1) <= free]
    done = run(
        scenario(
            rounds=counts.shape[0], first=first, start_delay_s=float(rng.uniform(0.0, 200.0)),
            stabilisation_s=float(rng.choice([0.0, 120.0, 300.0])),
            largest_step=float(rng.choice([0.3, 0.5, np.inf])), requests=10,
        ),
        Planned(counts),
    )  # fmt: skip
    table = done.microservices
    assert rows.size == 30
    assert (table.fewest_serving >= least).all()
    assert (table.held >= least).all()
    assert (table.held <= most).all()
    assert (table.serving <= table.held + 1e-9).all()
    assert (table.held.sum(axis=1) <= free).all()
    between = np.vstack([[[4, 3]], table.held[:-1]])
    assert (table.held == between + table.started - table.stopped).all()


# ---------------------------------------------------------------------- what is shown


def test_a_round_holds_what_a_scheduler_could_know(script):
    decider = script.Wandering()
    world = script.scenario(rounds=6)
    done = run(world, decider)
    views = decider.seen
    assert views[0].services == world.start.services
    assert views[0].classes == world.start.classes
    assert views[0].containers.tolist() == [8, 6, 6]
    assert views[0].observed is None
    for at, view in enumerate(views):
        assert (view.index, view.now_s) == (at, 60.0 * at)
        if at:
            came = done.services.arrivals[at - 1] / 60.0
            assert (view.services.rate_per_s >= 1.1 * came - 1e-9).all()
            assert view.observed.rate_per_s == pytest.approx(came)
            assert view.observed.latency_tail_ms.tolist() == done.services.tail_ms[at - 1].tolist()
            assert view.containers.tolist() == done.microservices.held[at - 1].tolist()
            assert view.share_error[0] > 0.0
            assert view.share_error[1] == 0.0  # its only class
    assert done.services.forecast_per_s[1:] == pytest.approx(
        np.array([view.services.rate_per_s for view in views[1:]])
    )


def test_hidden_truth_moves_no_first_decision_and_no_belief(script):
    """Other laws and shares in the world: the first round is shown unchanged."""
    world = script.scenario(rounds=3)
    table = world.start.microservices
    slower = replace(table, rate_at_rest_per_ms=0.8 * table.rate_at_rest_per_ms)
    one, two = script.Wandering(), script.Wandering()
    before, after = run(world, one), run(replace(world, true_microservices=slower), two)
    assert one.seen[0] == two.seen[0]
    assert (after.services.violations > before.services.violations).all()
    # requests that come do not depend on how they are served
    assert np.array_equal(before.services.arrivals, after.services.arrivals)
    assert np.array_equal(before.classes.requests, after.classes.requests)
    for first, second in zip(one.seen, two.seen, strict=True):
        assert first.services == second.services
        assert first.microservices == second.microservices == table


@pytest.mark.parametrize("forecast", ["true", "last", "mean", "ewma", "dirichlet", "static"])
def test_shares_are_forecast_as_asked(forecast):
    share = np.array([[0.9, 0.1]] * 2 + [[0.5, 0.5]] * 6)
    world = Scenario(
        name="shift", start=start(), rate_per_s=np.full((8, 1), 100.0), share=share,
        options=ExecutorOptions(requests=100, forecast=forecast),
    )  # fmt: skip
    done = run(world, Planned([20, 20]))
    error = done.services.forecast_l1[:, 0]
    if forecast == "true":
        assert (error == 0).all()
    elif forecast == "static":
        assert error.tolist() == pytest.approx([0.0] * 2 + [0.8] * 6)
    else:
        assert error[2] > 0.7  # nobody sees it coming
        last = {"last": 0.1, "ewma": 0.1, "mean": 0.5, "dirichlet": 0.5}[forecast]
        assert error[-1] < last
        assert error[-1] < error[2]
    assert done.classes.forecast.sum(axis=1) == pytest.approx(np.ones(8))


def test_outcomes_tell_what_happened():
    decider = Planned([6, 2])  # B is overloaded: every request of C is late
    done = run(scenario(rounds=2, stabilisation_s=0.0), decider)
    outcome = decider.outcomes[0]
    assert outcome.class_requests.tolist() == done.classes.requests[0].tolist()
    assert outcome.violations.sum() == pytest.approx(
        done.services.arrivals[0, 0] * done.services.violations[0, 0] / done.services.measured[0, 0]
    )
    assert np.isinf(outcome.latency_tail_ms[0])
    assert outcome.serving.tolist() == [6.0, 2.0]
    assert done.classes.kept[:, 1].tolist() == [0, 0]


def test_services_nobody_calls():
    first = start(
        services=Services.of(["s", "t"], [100.0, 0.0], [14.0, 20.0], 0.05),
        classes=CallClasses.of(
            ["S", "T"], CallTrees.serial([[1, 0], [0, 1]]), share=[1.0, 1.0], service=[0, 1]
        ),
    )
    for simulator in ("monte-carlo", "events"):
        world = Scenario(
            name="idle", start=first, rate_per_s=np.tile([100.0, 0.0], (3, 1)),
            share=np.ones((3, 2)), options=ExecutorOptions(requests=100, simulator=simulator),
        )  # fmt: skip
        done = run(world, Planned([6, 1], guaranteed=True))
        assert done.services.measured[:, 1].tolist() == [0, 0, 0]
        assert np.isnan(done.services.tail_ms[:, 1]).all()
        assert not done.services.missed[:, 1].any()


def test_queues_go_on_from_round_to_round():
    """A container short: requests wait, and those that come later wait longer."""
    table = Microservices.of(["A", "B"], [0.1, 1.0], [-0.001, -0.001])
    first = start(microservices=table, containers=[1, 1])
    world = scenario(
        rounds=4, first=first, rate=110.0, simulator="events", stabilisation_s=0.0, robust=True
    )
    done = run(world, Planned([1, 1]))
    tail = done.services.tail_ms[:, 0]
    assert (np.diff(tail) > 0).all()
    assert tail[-1] > 10_000.0
    records = done.services
    assert records.measured.sum() == records.arrivals.sum()  # the last round waits for all
    assert records.measured[0, 0] < records.arrivals[0, 0]
    assert np.isnan(records.expected_violation).all()
    none = run(
        scenario(rounds=2, rate=50.0, simulator="events", first=start(containers=[1, 0])),
        Planned([1, 0]),
    )
    assert none.classes.kept[:, 1].tolist() == [0, 0]  # no container of B: they never end
    assert none.services.measured.sum() == none.services.arrivals.sum()
    assert np.isinf(none.services.tail_ms[1, 0])


def test_priorities_reach_the_queues():
    table = Microservices.of(["A", "B"], [1.0, 1.0], [-0.001, -0.001])
    first = start(
        microservices=table, containers=[1, 1],
        classes=CallClasses.of(
            ["S", "C"], CallTrees.serial([[1, 1], [0, 1]]), share=[0.5, 0.5]
        ),
    )  # fmt: skip
    world = scenario(rounds=1, first=first, rate=800.0, share=(0.5, 0.5), simulator="events")
    kept = [
        run(world, Planned([1, 1], rank=rank)).classes.kept[0] for rank in (None, [0, 1], [1, 0])
    ]
    assert kept[1][0] > kept[0][0] > kept[2][0]
    assert kept[2][1] > kept[0][1] > kept[1][1]


# ---------------------------------------------------------------------- same bytes, and resuming


@pytest.mark.parametrize("simulator", ["monte-carlo", "events"])
def test_same_seed_same_bytes(script, simulator, tmp_path):
    world = script.scenario(simulator)
    reports = []
    done = run(world, script.Wandering(), progress=lambda *at: reports.append(at))
    again = run(world, script.Wandering(), policy="p", journal=tmp_path / "a")
    assert script.digest(done) == script.digest(again)
    length = world.start.duration_s
    assert reports == [(length * (at + 1), at + 1, 14) for at in range(14)]
    other = run(replace(world, seed=8), script.Wandering())
    assert script.digest(other) != script.digest(done)
    resumed = script.Wandering()
    whole = run(world, resumed, policy="p", journal=tmp_path / "a")
    assert resumed.asked == 0
    assert script.digest(whole) == script.digest(done)
    assert np.array_equal(whole.decide_s, again.decide_s)


@pytest.mark.parametrize("simulator", ["monte-carlo", "events"])
def test_killed_and_resumed_ends_with_the_same_bytes(script, simulator, tmp_path):
    folder, path = tmp_path / "run", tmp_path / "run" / "journal.jsonl"
    command = [
        sys.executable,
        str(HERE / "microservices_journaled.py"),
        str(folder),
        "0.2",
        simulator,
    ]
    child = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 120
        while not path.exists() or path.read_bytes().count(b"\n") < 5:
            assert child.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
    done = path.read_bytes().count(b"\n") - 1
    with path.open("ab") as torn:
        torn.write(b'{"index": 99, "torn')
    decider = script.Wandering()
    resumed = run(script.scenario(simulator), decider, policy="wandering", journal=folder)
    undisturbed = tmp_path / "undisturbed"
    whole = run(
        script.scenario(simulator), script.Wandering(), policy="wandering", journal=undisturbed
    )
    assert decider.asked == 14 - done
    assert script.digest(resumed) == script.digest(whole)
    assert path.read_bytes() == (undisturbed / "journal.jsonl").read_bytes()


def test_a_journal_of_another_run_is_refused(script, tmp_path):
    world = script.scenario(rounds=3)
    run(world, script.Wandering(), policy="p", journal=tmp_path)
    with pytest.raises(InstanceError, match="the journal is of policy 'p'"):
        run(world, script.Wandering(), policy="q", journal=tmp_path)
    with pytest.raises(InstanceError, match="the journal is of scenario"):
        run(replace(world, seed=1), script.Wandering(), policy="p", journal=tmp_path)
    path = tmp_path / "journal.jsonl"
    lines = path.read_text().splitlines()
    broken = json.loads(lines[2])
    for change, words in (
        ({"violations": [1, 2]}, "had violations"), ({"index": 7}, "was journaled where"),
    ):  # fmt: skip
        path.write_text("\n".join([*lines[:2], json.dumps(broken | change), *lines[3:]]) + "\n")
        with pytest.raises(InstanceError, match=words):
            run(world, script.Wandering(), policy="p", journal=tmp_path)
    del broken["allocation"]
    path.write_text("\n".join([*lines[:2], json.dumps(broken)]) + "\n")
    with pytest.raises(InstanceError, match="lacks 'allocation'"):
        run(world, script.Wandering(), policy="p", journal=tmp_path)


def test_a_fingerprint_sees_every_part(script):
    world = script.scenario(rounds=3)
    first = world.start
    table = first.microservices
    changed = [
        replace(world, seed=8),
        replace(world, rate_per_s=world.rate_per_s + 1.0),
        replace(world, share=np.tile(world.share[0], (3, 1))),
        replace(world, options=replace(world.options, robust=False)),
        replace(world, true_microservices=table),
        replace(world, start=replace(first, containers=[8, 6, 7])),
        replace(world, start=replace(first, nodes=None)),
        replace(world, start=replace(first, cpu_cores=7.0)),
        replace(world, start=replace(first, microservices=replace(table, shift_ms=[0.3, 0.3, 1]))),
        replace(world, start=replace(first, services=replace(first.services, target_ms=[14, 21]))),
        replace(
            world,
            start=replace(
                first,
                classes=CallClasses.of(
                    first.classes.id, CallTrees.serial([[1, 1, 0], [0, 1, 1], [0, 1, 3]]),
                    share=first.classes.share, service=first.classes.service,
                ),
            ),
        ),
    ]  # fmt: skip
    digests = {scenario_digest(one) for one in (world, *changed)}
    assert len(digests) == 1 + len(changed)
    assert scenario_digest(replace(world, name="other", policy="hpa")) == scenario_digest(world)
