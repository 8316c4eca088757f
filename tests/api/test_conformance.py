"""The conformance battery: our policies pass it, and each way to be bad is caught by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    assert set(failures(toys.Peeks())) == {"hidden_truth"}
    assert set(failures(toys.ForgetsInWriting())) == {"memory_as_text"}


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
