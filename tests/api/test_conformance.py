"""The conformance battery: our policies pass it, and each way to be bad is caught by name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import apportion as ap
from apportion.registry import label_of
from apportion.testing import TRAITS, check_policy, policy_checks

pytestmark = pytest.mark.quick

OWN = [cls for cls in ap.policy_classes().values() if cls.__module__.startswith("apportion.")]

POLICIES = [
    *(cls() for cls in OWN),
    ap.FIFO(strict=False),
    ap.FFT(units="normalised"),
    ap.FFT(units="normalised", tau_model="isolated", remaining_work=True),
    ap.FFT(method="milp"),
    ap.FFT(method="lp_repair"),
    ap.FFT(work_conservation="hard"),
    ap.FFT(work_conservation="reward"),
    ap.FFT(work_conservation="none"),
    ap.FFT(fairness_weight=0.0),
    ap.FFT(wait_weight=-1.0, switch_weight=0.0),
]


def cases():
    for policy in POLICIES:
        label = label_of(policy)
        for name, judge in policy_checks(policy):
            yield pytest.param(judge, id=f"{label}-{name}")


@pytest.mark.parametrize("judge", list(cases()))
def test_our_policies(judge):
    judge()


def test_published_systems_are_among_them():
    names = {cls.name for cls in OWN}
    assert {"fft", "oef-cooperative", "oef-noncooperative", "astraea"} < names
    assert len(names) == len(OWN)
    assert all(cls.source for cls in OWN)


def failures(policy) -> dict[str, str]:
    found = {}
    for name, judge in policy_checks(policy):
        try:
            judge()
        except AssertionError as error:
            found[name] = str(error)
    return found


def test_the_honest_toy_passes(toys):
    assert failures(toys.Toy()) == {}
    check_policy(toys.Toy())


@pytest.mark.parametrize(
    ("bad", "check", "says"),
    [
        ("Overbooks", "feasible", "GPUs given"),
        ("Overbooks", "incumbent", "GPUs given"),
        ("Overbooks", "no_time", "GPUs given"),
        ("ForgetsLeases", "kept_promises", "job 'pinned' is not preemptible"),
        ("Fickle", "same_twice", "two calls differ"),
        ("Peeks", "hidden_truth", "a decision depends on hidden truth"),
        ("ForgetsInWriting", "memory_as_text", "memory does not survive being written"),
    ],
)
def test_each_way_to_be_bad_is_caught_by_name(toys, bad, check, says):
    found = failures(getattr(toys, bad)())
    assert check in found
    assert says in found[check]
    with pytest.raises(AssertionError, match=r"^toy: "):
        check_policy(getattr(toys, bad)())


def test_peeking_and_fickleness_are_caught_by_nothing_else(toys):
    # the work that a job really needs follows from its curve too
    assert set(failures(toys.Peeks())) == {"hidden_truth", "hidden_curves"}
    assert set(failures(toys.ForgetsInWriting())) == {"memory_as_text"}


def test_peeking_at_curves_is_caught_by_nothing_else(toys):
    @dataclass(frozen=True)
    class PeeksAtCurves(toys.Toy):
        """Finds the scenario on the stack and serves the steepest metric first."""

        def decide(self, round_, memory):
            frame = sys._getframe()
            while frame is not None and "scenario" not in frame.f_locals:
                frame = frame.f_back
            curves = None if frame is None else frame.f_locals["scenario"].true_curves
            steep = round_.jobs.work if curves is None else curves.a[round_.jobs.code]
            return toys.in_order(round_, np.argsort(-steep, kind="stable").tolist())

    found = failures(PeeksAtCurves())
    assert set(found) == {"hidden_curves"}
    assert found["hidden_curves"] == "a decision depends on hidden curves"


def test_what_was_measured_may_change_decisions(toys):
    @dataclass(frozen=True)
    class Reads(toys.Toy):
        """Serves the lowest loss first, as far as anybody has seen it."""

        def decide(self, round_, memory):
            jobs = round_.jobs
            newest = np.full(len(jobs), np.inf)
            seen = np.flatnonzero(np.diff(jobs.observed_offsets))
            newest[seen] = jobs.observed_metric[jobs.observed_offsets[seen + 1] - 1]
            return toys.in_order(round_, np.argsort(newest, kind="stable").tolist())

    assert failures(Reads()) == {}


@pytest.mark.parametrize(
    ("bad", "trait"),
    [
        ("Toy", "permutation"),
        ("CountsTypes", "useless_type"),
        ("LikesSmallNumbers", "unit_homogeneous"),
        ("DislikesGpus", "monotone_capacity"),
        ("Toy", "monotone_capacity"),
    ],
)
def test_a_trait_that_is_only_claimed_is_caught(toys, bad, trait):
    silent = getattr(toys, bad)()
    assert trait not in dict(policy_checks(silent))
    assert failures(silent) == {}
    assert set(failures(getattr(toys, bad)(declares=frozenset({trait})))) == {trait}


def test_traits_that_hold_pass(toys):
    for trait in ("useless_type", "unit_homogeneous"):
        assert failures(toys.Toy(declares=frozenset({trait}))) == {}


def test_unknown_traits_are_refused(toys):
    with pytest.raises(AssertionError, match="toy: unknown trait 'fast'; known: permutation"):
        policy_checks(toys.Toy(declares=frozenset({"fast", *TRAITS})))


def test_the_battery_judges_without_asserts_too():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import toys\n"
        "from apportion.testing import check_policy\n"
        "assert False, 'asserts are on'\n"
        "try: check_policy(toys.Overbooks())\n"
        "except AssertionError as error: print(error)\n"
    )
    folder = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-O", "-c", code, folder], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("toy: feasible: ")
