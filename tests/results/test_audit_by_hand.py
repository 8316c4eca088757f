"""Auditors against cases worked by hand; types are ordered slow, fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from apportion.executor.training.records import Run
from apportion.instances import InstanceError
from apportion.instances.training import Allocation, Cluster, Jobs, Shares, TrainingRound
from apportion.results import (
    PROPERTIES,
    Audit,
    audit_run,
    audit_users,
    users_of_leases,
    users_of_run,
    users_of_shares,
    utility,
)
from apportion.results.auditing.evenness import jain
from apportion.results.auditing.planned_finish import finish_time_ratio
from apportion.results.auditing.truthfulness import truthfulness
from apportion.solver import Budget

pytestmark = pytest.mark.quick


def make_round(
    speed: Sequence[Sequence[float]], gpus: Sequence[int], **columns: Any
) -> TrainingRound:
    n = len(speed)
    jobs: dict[str, Any] = {
        "id": [f"j{at + 1}" for at in range(n)], "gang": [1] * n, "work": [100.0] * n,
        "throughput_per_s": speed,
    }  # fmt: skip
    return TrainingRound(
        cluster=Cluster.uniform({f"t{at + 1}": count for at, count in enumerate(gpus)}),
        jobs=Jobs.of(**{**jobs, **columns}),
    )


def share(
    gpus: Any, weight: Sequence[float] | None = None, *, whole: bool = False, of_job: Any = None
) -> Shares:
    n = len(gpus)
    return Shares(
        user=np.array([f"u{at + 1}" for at in range(n)]),
        weight=np.ones(n) if weight is None else np.array(weight, dtype=float),
        gpus=np.array(gpus, dtype=float),
        of_job=np.arange(n) if of_job is None else np.array(of_job),
        whole_gang=whole,
    )


def found(round_: TrainingRound, shares: Shares, *, capped: bool = False) -> Audit:
    users = users_of_shares(round_, shares, Allocation.empty(), capped=capped)
    return audit_users(users, "hand", round_=round_)


O1 = make_round([[1, 2], [1, 3]], [1, 1])
O2 = make_round([[1, 2], [1, 3], [1, 4]], [1, 1])
O4 = make_round([[1, 1, 1], [1, 2, 3], [1, 3, 5]], [1, 1, 1])


def test_non_cooperative_o1() -> None:
    got = found(O1, share([[1, 2 / 5], [0, 3 / 5]]))
    assert got.of == "planned shares"
    assert list(got.utility.values()) == pytest.approx([9 / 5, 9 / 5])
    envy = got["envy-freeness"]
    assert (envy.holds, envy.worst) == (False, ("u2", "u1"))
    assert envy.margin == pytest.approx(9 / 5 - 11 / 5)
    incentive = got["sharing-incentive"]
    assert (incentive.holds, incentive.worst) == (False, ("u2",))
    assert incentive.margin == pytest.approx(9 / 5 - 2)
    assert got["pareto-efficiency"].holds is True
    assert got["jain-index"].margin == pytest.approx(1.0)
    assert got["price-of-fairness"].margin == pytest.approx(1 - (18 / 5) / 4)
    assert not got.holds


def test_cooperative_o1() -> None:
    got = found(O1, share([[1, 1 / 4], [0, 3 / 4]]))
    assert list(got.utility.values()) == pytest.approx([3 / 2, 9 / 4])
    for name in ("within-capacity", "envy-freeness", "sharing-incentive", "pareto-efficiency"):
        assert got[name].holds is True, name
    # u1 values u2's bundle at 3/2 as its own, and its part of everything at 3/2 too
    assert got["envy-freeness"].worst == ("u1", "u2")
    assert got["envy-freeness"].margin == pytest.approx(0.0)
    assert got["sharing-incentive"].margin == pytest.approx(0.0)
    assert got["price-of-fairness"].margin == pytest.approx(1 / 16)
    u = np.array([3 / 2, 9 / 4])
    assert got["jain-index"].margin == pytest.approx(u.sum() ** 2 / (2 * (u**2).sum()))


def test_max_min_o1_is_envied() -> None:
    got = found(O1, share([[1, 5 / 17], [0, 12 / 17]]))
    # u2 has 36/17 and values u1's bundle at 1 + 15/17
    assert got["envy-freeness"].margin == pytest.approx(27 / 17 - 24 / 17)
    assert got["sharing-incentive"].margin == pytest.approx(27 / 17 - 3 / 2)


def test_weights_count_o1() -> None:
    # weights 1, 2. NC: u2's per-weight bundle of u1 is (2, 2/7), worth 20/7 to it, it has 18/7.
    got = found(O1, share([[1, 1 / 7], [0, 6 / 7]], [1, 2]))
    assert got["envy-freeness"].worst == ("u2", "u1")
    assert got["envy-freeness"].margin == pytest.approx(18 / 7 - 20 / 7)
    assert got["sharing-incentive"].margin == pytest.approx(18 / 7 - 2 / 3 * 4)
    assert got["jain-index"].margin == pytest.approx(1.0)
    # C: u1 would value half of u2's bundle at 1, u2 twice u1's at 2.
    fair = found(O1, share([[1, 0], [0, 1]], [1, 2]))
    assert fair["envy-freeness"].holds is True
    assert fair["envy-freeness"].margin == pytest.approx(0.0)
    assert fair["sharing-incentive"].margin == pytest.approx(1 - 3 / 3)


def test_o2() -> None:
    fair = found(O2, share([[1, 0], [0, 1 / 2], [0, 1 / 2]]))
    assert list(fair.utility.values()) == pytest.approx([1, 3 / 2, 2])
    assert fair["envy-freeness"].holds is True
    assert fair["sharing-incentive"].holds is True
    assert fair["sharing-incentive"].worst == ("u1",)
    assert fair["sharing-incentive"].margin == pytest.approx(0.0)
    assert fair["price-of-fairness"].margin == pytest.approx(1 - (9 / 2) / 5)
    equal = found(O2, share([[1, 5 / 26], [0, 6 / 13], [0, 9 / 26]]))
    assert list(equal.utility.values()) == pytest.approx([18 / 13] * 3)
    # u3 values u2's 6/13 fast GPUs at 24/13, and u1's bundle at 1 + 10/13 = 23/13
    assert equal["envy-freeness"].worst == ("u3", "u2")
    assert equal["envy-freeness"].margin == pytest.approx(18 / 13 - 24 / 13)
    assert equal["sharing-incentive"].worst == ("u3",)
    assert equal["sharing-incentive"].margin == pytest.approx(18 / 13 - 5 / 3)


def test_o4_has_a_dominated_point_without_envy() -> None:
    # U = (1, 5/2, 4): u2 and u3 hold types 2 and 3 so that swapping helps both
    dominated = found(O4, share([[1, 0, 0], [0, 1 / 2, 1 / 2], [0, 1 / 2, 1 / 2]]))
    assert list(dominated.utility.values()) == pytest.approx([1, 5 / 2, 4])
    assert dominated["envy-freeness"].holds is True
    pareto = dominated["pareto-efficiency"]
    assert pareto.holds is False
    assert pareto.margin == pytest.approx(-(23 / 3 - 15 / 2))
    assert pareto.worst == ("u3",)
    # U = (1.1, 2.4, 4), also the largest sum without envy, is not
    other = found(O4, share([[1, 0.1, 0], [0, 0.9, 0.2], [0, 0, 0.8]]))
    assert list(other.utility.values()) == pytest.approx([1.1, 2.4, 4])
    assert other["envy-freeness"].holds is True
    assert other["pareto-efficiency"].holds is True
    best = found(O4, share([[1, 0, 0], [0, 1, 1 / 6], [0, 0, 5 / 6]]))
    assert best["pareto-efficiency"].holds is True
    assert best["envy-freeness"].worst == ("u1", "u2")
    assert best["envy-freeness"].margin == pytest.approx(1 - 7 / 6)


def test_more_than_there_is() -> None:
    got = found(O1, share([[1, 1], [0, 1 / 2]]))
    assert got["within-capacity"].holds is False
    assert got["within-capacity"].worst == ("t2",)
    assert got["within-capacity"].margin == pytest.approx(-1 / 2)
    assert got["pareto-efficiency"].holds is None


def test_best_use_of_a_bundle_by_one_gang() -> None:
    # speeds 1, 3, 2; a gang of 2 takes 1 of type 2, then 1 of the 4 of type 3
    speed, bundle = np.array([1.0, 3.0, 2.0]), np.array([5.0, 1.0, 4.0])
    assert utility(speed, np.array(2.0), bundle) == pytest.approx(5.0)
    assert utility(speed, np.array(7.0), bundle) == pytest.approx(3 + 8 + 2)
    assert utility(speed, np.array(np.inf), bundle) == pytest.approx(16.0)


def test_whole_gangs_have_the_scaled_share_of_gavel() -> None:
    # One job of 2 GPUs among 4 slow, 4 fast: 2 of each type in proportion, scaled to 1 + 1.
    alone = make_round([[1, 2]], [4, 4], gang=[2])
    got = found(alone, share([[2, 0]], whole=True))
    assert got["sharing-incentive"].margin == pytest.approx(2 - (1 + 2))
    assert got["sharing-incentive"].holds is False
    assert found(alone, share([[0, 2]], whole=True))["sharing-incentive"].holds is True
    # Three equal jobs of 2 on 4 + 4: 4/3 of each, 8/3 > 2, so 1 + 1 again
    three = make_round([[1, 2]] * 3, [4, 4], gang=[2, 2, 2])
    got = found(three, share([[2, 0], [0, 2], [0, 2]], whole=True))
    assert got["sharing-incentive"].margin == pytest.approx(2 - 3)
    # five: 0.8 of each, no scaling
    five = make_round([[1, 2]] * 5, [4, 4], gang=[2] * 5)
    got = found(five, share([[0.8, 0.8]] * 5, whole=True))
    assert got["sharing-incentive"].margin == pytest.approx(0.0)


def test_a_gang_envies_only_what_it_can_use() -> None:
    # j1 runs on 1 GPU and has 1; j2's 4 GPUs are worth no more than 1 of them to it
    two = make_round([[1.0], [1.0]], [5], gang=[1, 4])
    assert found(two, share([[1], [4]], whole=True))["envy-freeness"].holds is True
    envy = found(two, share([[1], [4]]))["envy-freeness"]
    assert (envy.holds, envy.margin) == (False, pytest.approx(1 - 4))
    assert found(two, share([[1], [4]]), capped=True)["envy-freeness"].holds is True


def test_a_users_jobs_add_up_to_its_demand() -> None:
    three = make_round([[1.0], [1.0], [2.0]], [5], gang=[1, 2, 1])
    users = users_of_shares(three, share([[3], [2]], of_job=[0, 0, 1]), Allocation.empty())
    assert users.most.tolist() == [3, 1]
    assert users.utility.tolist() == [3, 1]
    assert users.notes == ()
    with pytest.raises(InstanceError, match=r"user 'u1' runs whole gangs and has 2 jobs"):
        users_of_shares(three, share([[3], [2]], of_job=[0, 0, 1], whole=True), Allocation.empty())


def test_odd_users_are_told() -> None:
    two = make_round([[1, 2], [1, 3]], [1, 1])
    users = users_of_shares(two, share([[1, 1], [0, 0]], of_job=[0, 0]), Allocation.empty())
    assert "different relative speeds" in users.notes[0]
    assert users.notes[1] == "users without a job: u2"
    assert users.speed.tolist() == [[1, 2], [0, 0]]


def test_shares_of_another_round_are_refused() -> None:
    with pytest.raises(InstanceError, match="of 2 jobs and 2 GPU types, the round has 3 jobs"):
        found(O2, share([[1, 0], [0, 1]]))


def test_speeds_count_from_the_slowest_type_that_can_be_used() -> None:
    # type 1 is too small for the gang: type 2 is the slowest one, whatever the throughput
    one = make_round([[1, 5, 10]], [1, 2, 2], gang=[2])
    users = users_of_shares(one, share([[0, 1, 1]]), Allocation.empty())
    assert users.speed.tolist() == [[0, 1, 2]]


def test_what_others_hold_is_not_there_to_share() -> None:
    # j3 has no part in the shares and runs on type 2
    plan = Allocation.of([2], [1], [1])
    users = users_of_shares(O2, share([[1, 0], [0, 0]], of_job=[0, 1, -1]), plan)
    assert users.capacity.tolist() == [1, 0]


def test_planned_finish() -> None:
    # 100 units. u1: (1, 2/5) on a gang of 1: 2/5 fast, 3/5 slow: 7/5 a second, 500/7 s.
    # Its half of the cluster: 3/2 a second, 200/3 s.
    got = found(O1, share([[1, 2 / 5], [0, 3 / 5]]))["finish-time-fairness"]
    rho1, rho2 = (500 / 7) / (200 / 3), (100 / (9 / 5)) / (100 / 2)
    assert got.worst == ("j2",)
    assert got.margin == pytest.approx(1 - max(rho1, rho2))
    # 60 of 100 units done, arrived 40 s ago: 40 + 40/1.5 against 200/3
    late = TrainingRound(
        cluster=O1.cluster, now_s=40.0,
        jobs=Jobs.of(id=["a", "b"], gang=[1, 1], work=[100.0, 100.0], work_done=[60.0, 0.0],
                     throughput_per_s=[[1, 2], [1, 3]]),
    )  # fmt: skip
    half = share([[1 / 2, 1 / 2], [1 / 2, 1 / 2]], whole=True)
    users = users_of_shares(late, half, Allocation.empty())
    rho = finish_time_ratio(users, late, np.arange(2))
    assert rho == pytest.approx([(40 + 40 / 1.5) / (100 / 1.5), (40 + 50) / 50])


def test_jobs_of_one_user_split_what_it_has() -> None:
    # gangs 1 and 3 of one user with 2 GPUs: 1/2 and 3/2, half of the time each; j3 has 2 of 2
    round_ = make_round([[1.0], [3.0], [2.0]], [4], gang=[1, 3, 2])
    users = users_of_shares(round_, share([[2], [2]], of_job=[0, 0, 1]), Allocation.empty())
    rho = finish_time_ratio(users, round_, np.arange(3))
    # alone with a third of 4 GPUs: all of the time, 4/9 and 2/3 of it
    assert rho == pytest.approx([2 * 1, 2 * 4 / 9, 1 * 2 / 3])


def test_an_equal_part_is_no_more_than_all_of_the_time() -> None:
    # alone, a gang of 1 on 2 slow and 2 fast GPUs: half of its time on each, 3/2; planned 2
    alone = make_round([[1, 2]], [2, 2])
    users = users_of_shares(alone, share([[0, 1]]), Allocation.empty())
    assert finish_time_ratio(users, alone, np.arange(1)) == pytest.approx([3 / 4])


def test_leases_that_go_on_are_told() -> None:
    held: dict[str, Any] = {
        "running": [True, False], "preemptible": [False, True], "previous_type": [1, -1],
        "held_gpus": [1, 0], "lease_start_s": [0.0, -1.0], "first_start_s": [0.0, -1.0],
    }  # fmt: skip
    round_ = make_round([[1, 2], [1, 3]], [1, 1], **held)
    got = found(round_, share([[0, 1], [1, 0]]))
    assert got.notes == ("leases that may not be stopped are judged as if they could",)
    assert found(O1, share([[0, 1], [1, 0]])).notes == ()


def test_planned_finish_without_gpus() -> None:
    got = found(O1, share([[1, 1], [0, 0]]))["finish-time-fairness"]
    assert (got.holds, got.worst, got.margin) == (False, ("j2",), None)
    assert "never end" in got.words
    idle = found(make_round([[0.0]], [1]), share([[0]]))["finish-time-fairness"]
    assert idle.holds is None


def test_leases_of_one_round() -> None:
    # j1 holds both fast GPUs, j2 waits, j3 fits nowhere
    round_ = make_round([[1, 2], [1, 3], [1, 1]], [2, 2], gang=[2, 2, 3])
    users = users_of_leases(round_, Allocation.of([0], [1], [2]))
    assert users.name.tolist() == ["j1", "j2"]
    got = audit_users(users, "hand", round_=round_)
    assert got.of == "this round's leases"
    assert got["envy-freeness"].worst == ("j2", "j1")
    assert got["envy-freeness"].margin == pytest.approx(-6)
    assert got["finish-time-fairness"].holds is None
    assert got["pareto-efficiency"].holds is False
    # j2 can have both slow GPUs: 2 more. j1 could give it z of its time on fast for 2 z of slow
    # only at a loss.
    assert got["pareto-efficiency"].margin == pytest.approx(-2)
    assert got["pareto-efficiency"].worst == ("j2",)


def test_executed_leases(three_jobs: Run) -> None:
    # [0, 100): A has 1 slow of 2, B both fast. C arrives at 50 and takes no part.
    got = audit_run(three_jobs, 0.0, 100.0)
    assert got.of == "executed leases"
    assert got.utility == pytest.approx({"A": 1.0, "B": 6.0})
    # A's gang of 1: on B's bundle it would do 2; B values A's bundle at 1
    assert got["envy-freeness"].worst == ("A", "B")
    assert got["envy-freeness"].margin == pytest.approx(1 - 2)
    # A: 1 + 1 of its half, scaled to 1/2 + 1/2: 3/2. B: 1 + 1, no scaling: 1 + 3
    assert got["sharing-incentive"].margin == pytest.approx(1 - 3 / 2)
    assert got["truthfulness"].holds is got["finish-time-fairness"].holds is None
    # [40, 140): A alone is there throughout. B's fast GPUs for 60 s and C's slow one for 40 s
    # are not there for it.
    alone = users_of_run(three_jobs, 40.0, 140.0)
    assert alone.name.tolist() == ["A"]
    assert alone.of_job.tolist() == [0, -1, -1]
    assert alone.gpus == pytest.approx(np.array([[0.6, 0.4]]))
    assert alone.capacity == pytest.approx([2 - 0.4, 2 - 1.2])
    with pytest.raises(InstanceError, match="no length"):
        users_of_run(three_jobs, 5.0, 5.0)


def test_nodes_out_of_service_are_not_there_to_share(build_run: Callable[..., Run]) -> None:
    # 1 fast GPU of 2 is down in [0, 100), both in [100, 200): of [50, 150) it is 50 + 100 GPU s
    run = build_run(
        gpus={"slow": 2, "fast": 2},
        jobs={"id": ["A"], "gang": [1], "work": [9.0], "throughput_per_s": [[1.0, 2.0]]},
        first_start_s=[-1.0],
        finish_s=[-1.0],
        intervals=[
            (0.0, 100.0, "HEURISTIC", np.nan, {"down": [0, 100]}),
            (100.0, 200.0, "HEURISTIC", np.nan, {"down": [0, 200]}),
        ],
    )
    assert users_of_run(run, 50.0, 150.0).capacity == pytest.approx([2, 2 - 1.5])


def test_nobody(build_run: Callable[..., Run]) -> None:
    empty = TrainingRound(
        cluster=Cluster.uniform({"t1": 1}),
        jobs=Jobs.of(id=[], gang=[], work=[], throughput_per_s=np.zeros((0, 1))),
    )
    got = audit_users(users_of_leases(empty, Allocation.empty()), "hand", round_=empty)
    assert got.holds
    assert [one.property for one in got.findings] == list(PROPERTIES)
    assert {one.holds for one in got.findings[1:]} == {None}
    got.table().to_text()
    with pytest.raises(KeyError):
        got["none-such"]
    with pytest.raises(InstanceError, match="did you mean 'jain-index'"):
        audit_users(users_of_leases(empty, Allocation.empty()), "hand", asked=["jain-indx"])


def test_jain() -> None:
    assert jain(np.array([2.0, 2.0, 2.0])) == pytest.approx(1.0)
    assert jain(np.array([5.0, 0.0, 0.0, 0.0])) == pytest.approx(1 / 4)
    assert jain(np.array([1e200, 1e200])) == pytest.approx(1.0)
    assert jain(np.zeros(3)) is jain(np.zeros(0)) is None


def _non_cooperative(round_: TrainingRound) -> Any:
    """Equal normalised throughput for O1's two users, by its closed form on the reports."""
    rate = round_.jobs.throughput_per_s
    a, b = (rate / rate[:, :1])[:, 1]
    # the lower speed-up has the slow GPU: 1 + a x = b (1 - x)
    x = (b - 1) / (a + b) if a <= b else None
    y = (a - 1) / (a + b)
    gpus = [[1, x], [0, 1 - x]] if x is not None else [[0, 1 - y], [1, y]]
    return users_of_shares(round_, share(gpus), Allocation.empty(), capped=False)


def test_lies_under_the_non_cooperative_rule() -> None:
    # O1, truth 9/5. u1 as (1, 3/2): 17/9 gains; (1, 1): 2 gains. u2 as (1, 5/2): 2 gains.
    users = _non_cooperative(O1)
    got = truthfulness(users, O1, _non_cooperative, [3 / 4])
    # u1 says 3/2 -> 17/9; u2 says 9/4 -> x = (5/4)/(17/4) = 5/17, 3 * 12/17 = 36/17
    assert (got.holds, got.worst) == (False, ("u2",))
    assert got.margin == pytest.approx(-(36 / 17 - 9 / 5))
    assert "speed-ups as 0.75 times" in got.words
    # over-reporting pays nobody: u1 as 5/2 gets 19/11, u2 as 15/4 gets 3 (1 - (11/4)/(23/4))
    over = truthfulness(users, O1, _non_cooperative, [5 / 4])
    assert over.holds is True
    # scaling all speeds changes nothing in a rule on speed-ups: that is the best lie
    assert over.margin == pytest.approx(0.0)


def test_what_a_liar_shares_with_others_cannot_be_told() -> None:
    def merged(round_: TrainingRound) -> Any:
        both = share([[1, 1]], of_job=[0, 0])
        return users_of_shares(round_, both, Allocation.empty(), capped=False)

    got = truthfulness(_non_cooperative(O1), O1, merged, [2.0])
    assert (got.holds, got.margin) == (None, None)
    assert "4 lies tried" in got.words

    def split(round_: TrainingRound) -> Any:
        # whoever lies, j2 has the fast GPU
        parts = share([[1, 0], [0, 1]], of_job=[0, 1])
        return users_of_shares(round_, parts, Allocation.empty(), capped=False)

    got = truthfulness(_non_cooperative(O1), O1, split, [2.0])
    assert (got.worst, got.margin) == (("u2",), pytest.approx(-(3 - 9 / 5)))

    def leases(round_: TrainingRound) -> Any:
        return users_of_leases(round_, Allocation.empty())

    assert truthfulness(_non_cooperative(O1), O1, leases, [2.0]).holds is None


def test_lies_need_time_and_something_to_lie_about() -> None:
    users = _non_cooperative(O1)
    ended = Budget.of(1e-9)
    while ended.left_s() > 0:
        pass
    late = truthfulness(users, O1, _non_cooperative, [2.0], budget=ended)
    assert late.holds is None
    same = truthfulness(users, O1, _non_cooperative, [1.0])
    assert same.holds is None
    for bad in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InstanceError, match="must be a finite number above zero"):
            truthfulness(users, O1, _non_cooperative, [bad])
