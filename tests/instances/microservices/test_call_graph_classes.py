"""Canonical call trees, merged classes, expanded branches, and classes learned from traces."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from apportion.instances.errors import InstanceError
from apportion.instances.microservices import CallTrees
from apportion.instances.microservices.canonical import canonical, equal_trees
from apportion.instances.microservices.class_merge import (
    merge_classes,
    stacked_trees,
    take_trees,
)
from apportion.instances.microservices.expand import expand
from apportion.instances.microservices.learn import (
    GraphCounter,
    learn_classes,
    requests_by_round,
)
from apportion.instances.microservices.span_trees import TracedCalls

pytestmark = pytest.mark.quick

WHO = list("abc")
USUAL = settings(max_examples=50, deadline=None)


def call(name: str, *stages: list[Any], calls: float = 1, **more: Any) -> dict[str, Any]:
    return {"microservice": name, "calls": calls, "stages": list(stages), **more}


def stages_of(depth: int) -> st.SearchStrategy[list[Any]]:
    if depth == 0:
        return st.just([])
    one = st.builds(
        lambda name, calls, stages: {"microservice": name, "calls": calls, "stages": stages},
        st.sampled_from(WHO), st.sampled_from([1, 2, 3]), stages_of(depth - 1),
    )  # fmt: skip
    return st.lists(st.lists(one, min_size=1, max_size=2), max_size=2)


TREES = stages_of(3)


def meaning(stages: Sequence[Any]) -> Any:
    """What a tree means, told another way: multisets of multisets, repeated calls added up."""
    repeated: Counter[Any] = Counter()
    parallel: Counter[Any] = Counter()
    for members in stages:
        told = [(one["microservice"], meaning(one["stages"])) for one in members]
        if len(members) == 1:
            repeated[told[0]] += members[0]["calls"]
        elif members:
            calls = [one["calls"] for one in members]
            several = Counter(zip(told, calls, strict=True))
            parallel[frozenset(several.items())] += 1
    return frozenset(repeated.items()), frozenset(parallel.items())


def shuffled(stages: list[Any], random: np.random.Generator) -> list[Any]:
    """The same tree in another order, repeated calls torn apart."""
    out: list[Any] = []
    for members in stages:
        own = [{**one, "stages": shuffled(one["stages"], random)} for one in members]
        if len(own) == 1 and own[0]["calls"] > 1 and random.random() < 0.5:
            out.append([{**own[0], "calls": own[0]["calls"] - 1}])
            own = [{**own[0], "calls": 1}]
        out.append([own[at] for at in random.permutation(len(own))])
    return [out[at] for at in random.permutation(len(out))]


@USUAL
@given(TREES, st.integers(0, 1000))
def test_the_canonical_form_knows_no_order(stages: list[Any], seed: int) -> None:
    random = np.random.default_rng(seed)
    one = canonical(CallTrees.nested([stages], WHO))
    two = canonical(CallTrees.nested([shuffled(stages, random)], WHO))
    assert one == two
    assert canonical(one) == one
    assert CallTrees.nested(one.nested_lists(WHO), WHO) == one  # so that files keep it
    before = CallTrees.nested([stages], WHO).demand(3)
    assert one.demand(3) == pytest.approx(before)


@USUAL
@given(st.lists(TREES, min_size=2, max_size=6))
def test_trees_are_equal_where_they_mean_the_same(trees: list[Any]) -> None:
    number = equal_trees(CallTrees.nested(trees, WHO)).tolist()
    told = [meaning(stages) for stages in trees]
    for one, two in itertools.combinations(range(len(trees)), 2):
        assert (number[one] == number[two]) == (told[one] == told[two])
    forms = canonical(CallTrees.nested(trees, WHO))
    for at in range(len(trees)):
        assert take_trees(forms, [at]) == canonical(CallTrees.nested([trees[at]], WHO))


def test_what_is_folded_and_what_is_not() -> None:
    twice = [[call("a")], [call("b")], [call("a", calls=2)]]
    assert canonical(CallTrees.nested([twice], WHO)).nested_lists(WHO) == [
        [[{"microservice": "a", "calls": 3.0}], [{"microservice": "b"}]]
    ]
    side_by_side = [[call("a"), call("a")]]
    assert canonical(CallTrees.nested([side_by_side], WHO)).calls.tolist() == [1, 1]
    other_below = [[call("a", [call("b")])], [call("a")]]
    assert canonical(CallTrees.nested([other_below], WHO)).calls.size == 3


def test_depth_is_no_limit() -> None:
    depth = 30_000
    place = np.arange(depth)
    flat = np.zeros(depth, dtype=np.int64)
    chain = CallTrees(np.array([0, depth]), flat, place - 1, flat, np.ones(depth))
    assert canonical(chain) == chain


def test_taking_and_stacking_are_inverse() -> None:
    trees = CallTrees.nested([[[call("a")]], [], [[call("b", [call("c")])]]], WHO)
    parts = [take_trees(trees, [at]) for at in range(3)]
    assert stacked_trees(parts) == trees
    assert take_trees(trees, []) == stacked_trees([])


# --- merging


def three() -> CallTrees:
    return CallTrees.nested(
        [[[call("a")]], [[call("a")], [call("b", calls=4)]], [[call("c"), call("b")]]], WHO
    )


def test_equal_trees_are_merged_and_rare_ones_dropped() -> None:
    trees = stacked_trees([three(), three()])
    merged = merge_classes(trees, [50, 30, 1, 15, 4, 0], ["s"], least_share=0.05)
    assert merged.classes.id.tolist() == ["s/1", "s/2"]
    assert merged.classes.share.tolist() == pytest.approx([0.65, 0.34])
    assert merged.unmodelled_share.tolist() == pytest.approx([0.01])
    assert merged.class_of.tolist() == [0, 1, -1, 0, 1, -1]


def test_what_is_beyond_the_most_frequent_is_unmodelled_or_lumped() -> None:
    merged = merge_classes(three(), [5, 3, 2], ["s"], most_classes=2)
    assert merged.classes.share.tolist() == [0.5, 0.3]
    assert merged.unmodelled_share.tolist() == pytest.approx([0.2])
    lumped = merge_classes(three(), [5, 3, 2], ["s"], most_classes=2, rest="largest")
    assert lumped.classes.id.tolist() == ["s/1", "s/rest"]
    assert lumped.classes.share.tolist() == [0.5, 0.5]
    assert lumped.unmodelled_share.tolist() == [0]
    assert lumped.class_of.tolist() == [0, 1, 1]
    assert lumped.classes.trees.demand(3)[:, 1].tolist() == [1, 4, 1]
    assert (
        len(merge_classes(three(), [5, 3, 2], ["s"], most_classes=3, rest="largest").classes) == 3
    )


def test_services_are_merged_apart() -> None:
    trees = stacked_trees([three(), three()])
    merged = merge_classes(
        trees, [1, 1, 2, 0, 0, 7], ["s", "t", "none"], service=[0, 0, 0, 1, 1, 1],
        requests=[8, 7, 3], microservices=5,
    )  # fmt: skip
    assert merged.classes.id.tolist() == ["s/1", "s/2", "s/3", "t/1"]
    assert merged.classes.share.tolist() == [0.25, 0.125, 0.125, 1]
    assert merged.unmodelled_share.tolist() == [0.5, 0, 1]


def test_bad_merges_are_told() -> None:
    for given_, said in (
        ({"most_classes": 0}, "most_classes = 0"),
        ({"least_share": 1.0}, "least_share = 1"),
        ({"rest": "larges"}, "did you mean 'largest'"),
        ({"service": [0, 0, 1]}, "there are 1 services"),
        ({"requests": [2]}, "are fewer than the weights"),
    ):
        with pytest.raises(InstanceError, match=said):
            merge_classes(three(), [5, 3, 2], ["s"], **given_)  # type: ignore[arg-type]
    with pytest.raises(InstanceError, match="must not be negative"):
        merge_classes(three(), [5, 3, -2], ["s"])


# --- branches


CHANCES = st.sampled_from([0.0, 0.25, 0.5, 1.0])


def branching(depth: int) -> st.SearchStrategy[list[Any]]:
    if depth == 0:
        return st.just([])
    plain = st.builds(
        lambda name, stages, p: {"microservice": name, "calls": 1, "stages": stages, "p": p},
        st.sampled_from(WHO), branching(depth - 1), CHANCES,
    )  # fmt: skip
    choice = st.lists(plain, min_size=1, max_size=2).map(
        lambda calls: {"one_of": [{**one, "p": one["p"] / 2} for one in calls]}
    )
    return st.lists(st.lists(st.one_of(plain, choice), max_size=2), max_size=2)


def outcomes(stages: Sequence[Any]) -> list[tuple[list[Any], float]]:
    """Every way branches may be taken, one by one, with its probability."""
    per_member = [[_ways(one) for one in members] for members in stages]
    out: list[tuple[list[Any], float]] = []
    for picked in itertools.product(*itertools.chain.from_iterable(per_member)):
        left = list(picked)
        tree: list[Any] = []
        p = 1.0
        for members in stages:
            stage: list[Any] = []
            for _ in members:
                made, chance = left.pop(0)
                p *= chance
                stage += made
            tree += [stage] if stage else []
        out.append((tree, p))
    return out


def _ways(member: Any) -> list[tuple[list[Any], float]]:
    calls = member.get("one_of", [member])
    out = [
        ([{**one, "stages": tree}], one["p"] * p)
        for one in calls
        for tree, p in outcomes(one["stages"])
    ]
    absent = 1.0 - sum(one["p"] for one in calls)
    return [*out, ([], absent)]


@USUAL
@given(branching(2), branching(1))
def test_expansion_is_enumeration(one: list[Any], two: list[Any]) -> None:
    services = {"one": one, "two": two}
    merged = expand(services, WHO, least_share=0.0, most_classes=10**6)
    told = [meaning(with_stages(tree)) for tree in merged.classes.trees.nested_lists(WHO)]
    for row, stages in enumerate(services.values()):
        wanted: Counter[Any] = Counter()
        for tree, p in outcomes(stages):
            if p > 0:
                wanted[meaning(tree)] += p
        own = merged.classes.service == row
        found = dict(
            zip(
                [tree for tree, mine in zip(told, own, strict=True) if mine],
                merged.classes.share[own].tolist(), strict=True,
            )
        )  # fmt: skip
        assert found == pytest.approx(dict(wanted))
        assert len(found) == int(own.sum())  # no two classes mean the same


def with_stages(stages: list[Any]) -> list[Any]:
    """Fill in the defaults that nested lists leave out."""
    return [
        [
            {
                "microservice": one["microservice"],
                "calls": one.get("calls", 1),
                "stages": with_stages(one.get("stages", [])),
            }
            for one in members
        ]
        for members in stages
    ]


@USUAL
@given(
    branching(2), st.floats(0, 0.3), st.integers(1, 4), st.sampled_from(["unmodelled", "largest"])
)
def test_whatever_is_dropped_is_counted(
    stages: list[Any], least: float, most: int, rest: Any
) -> None:
    merged = expand({"s": stages}, WHO, least_share=least, most_classes=most, rest=rest)
    share = merged.classes.share
    assert share.sum() + merged.unmodelled_share.sum() == pytest.approx(1.0)
    assert len(merged.classes) <= most
    whole = expand({"s": stages}, WHO, least_share=0.0, most_classes=10**6)
    named = merged.classes.id != "s/rest"
    assert (share[named] >= least).all()
    assert share[named] == pytest.approx(whole.classes.share[: int(named.sum())])
    assert merged.unmodelled_share[0] <= 1.0 - share.sum() + 1e-9


def test_rare_trees_that_are_many_are_dropped_on_the_way() -> None:
    stages = [[call("abc"[at % 3], [call("a")] * (at + 1), p=0.5)] for at in range(40)]
    merged = expand({"s": stages}, WHO, least_share=0.01)
    assert merged.classes.share.sum() + merged.unmodelled_share[0] == pytest.approx(1.0)
    with pytest.raises(InstanceError, match="a least_share above 0 drops rare ones"):
        expand({"s": stages}, WHO, least_share=0.0)
    many = expand({"s": [[call("a", p=0.5)] for _ in range(40)]}, WHO, least_share=0.01)
    binomial = many.classes.trees.demand(1)[0]  # calls of a: equal trees are merged at once
    assert sorted(binomial.tolist()) == list(range(14, 27))
    exact = 0.125370687619577  # of twenty calls; some ways to make twenty were dropped
    assert exact - many.unmodelled_share[0] <= many.classes.share[0] <= exact


def test_branches_that_depend_on_one_another() -> None:
    stages = [[call("a", [call("b", branch="miss")], [call("c", branch="late")])]]
    table = [
        {"present": [], "p": 0.7},
        {"present": ["miss", "late"], "p": 0.2},
        {"present": ["miss"], "p": 0.1},
    ]
    merged = expand({"s": stages}, WHO, joint={"s": table})
    assert merged.classes.share.tolist() == pytest.approx([0.7, 0.2, 0.1])
    assert merged.classes.trees.demand(3).T.tolist() == [[1, 0, 0], [1, 1, 1], [1, 1, 0]]
    free = [[call("a", [call("b", branch="miss"), call("c", p=0.5)])]]
    merged = expand({"s": free}, WHO, joint={"s": [{"present": ["miss"], "p": 1}]})
    assert merged.classes.share.tolist() == [0.5, 0.5]


BAD: list[tuple[list[Any], str]] = [
    ([[call("x")]], r"s\[0\]\[0\]\.microservice = \"x\": is not a microservice"),
    ([[call("a", p=1.5)]], r"s\[0\]\[0\]\.p = 1\.5: must lie between 0 and 1"),
    ([[call("a", p=float("nan"))]], "must lie between 0 and 1"),
    ([[call("a", p=True)]], "must lie between 0 and 1"),
    ([[call("a", calls=0)]], "must be a positive number"),
    ([[call("a", prob=0.5)]], r"s\[0\]\[0\]\.prob: unknown key"),
    ([[call("a", [call("b", stagse=[])])]], r"stages\[0\]\[0\]\.stagse: .* mean 'stages'"),
    ([[{"one_of": [call("a", p=0.6), call("b", p=0.6)]}]], "sum to 1.2, more than 1"),
    ([[{"one_of": [call("a")]}]], "a choice needs the probability of each"),
    ([[{"one_of": [call("a", p=1)], "p": 1}]], "unknown key; known: one_of"),
    ([[call("a", branch="x")]], "s has no joint table"),
    ([call("a")], r"s\[0\]: expected a list"),
    ([["a"]], "expected a table with a microservice"),
    ("a", "expected a list"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("stages", "said"), BAD, ids=range(len(BAD)))
def test_bad_branches_are_told(stages: list[Any], said: str) -> None:
    with pytest.raises(InstanceError, match=said):
        expand({"s": stages}, WHO)


JOINT: list[tuple[Any, str]] = [
    ({"t": []}, r"joint\.t: unknown service"),
    ({"s": [{"present": ["x"], "p": 0.5}]}, "sum to 0.5, not to 1"),
    ({"s": [{"present": ["y"], "p": 1}]}, r"joint\.s\[0\]\.present = 'y': unknown branch"),
    ({"s": [{"presnt": ["x"], "p": 1}]}, "did you mean 'present'"),
    ({"s": [{"p": 1}]}, r"joint\.s\[0\]\.present is missing"),
    ({"s": [{"present": [3], "p": 1}]}, "must be a string"),
    ({"s": ["x"]}, "expected a table"),
]


@pytest.mark.parametrize(("joint", "said"), JOINT, ids=range(len(JOINT)))
def test_bad_joint_tables_are_told(joint: Any, said: str) -> None:
    with pytest.raises(InstanceError, match=said):
        expand({"s": [[call("a", branch="x")]]}, WHO, joint=joint)
    with pytest.raises(InstanceError, match="must be a name, without p"):
        expand({"s": [[call("a", branch="x", p=1)]]}, WHO, joint={"s": [{"present": [], "p": 1}]})


# --- learning


def traced(trees: CallTrees, service: list[str], who: list[str]) -> TracedCalls:
    n, c = len(trees), trees.calls.size
    return TracedCalls(
        np.array([f"t{at}" for at in range(n)]), np.array(service), np.arange(n) * 1.0,
        np.zeros(n), np.zeros(n, dtype=np.bool_), np.array(who), trees, np.zeros(c), np.zeros(c),
    )  # fmt: skip


def test_shares_are_recovered_from_traces() -> None:
    stages = [[call("a", [call("b", p=0.3)], [{"one_of": [call("c", p=0.6), call("b", p=0.2)]}])]]
    true = expand({"s": stages}, WHO)
    random = np.random.default_rng(5)
    count = 6_000
    drawn = random.choice(len(true.classes), count, p=true.classes.share)
    nested = true.classes.trees.nested_lists(WHO)
    trees = [shuffled(with_stages(nested[k]), random) for k in drawn]
    merged, counter = learn_classes(traced(CallTrees.nested(trees, WHO), ["s"] * count, WHO))
    assert counter.microservices == WHO
    assert counter.services == ["s"]
    assert not merged.unmodelled_share.any()
    told = {
        meaning(with_stages(tree)): float(share)
        for tree, share in zip(
            merged.classes.trees.nested_lists(counter.microservices), merged.classes.share,
            strict=True,
        )
    }  # fmt: skip
    wanted = {
        meaning(with_stages(tree)): float(share)
        for tree, share in zip(nested, true.classes.share, strict=True)
    }
    assert set(told) == set(wanted)
    for form, share in wanted.items():
        assert abs(told[form] - share) <= 4 * np.sqrt(share * (1 - share) / count)
    # each trace has the class that was drawn for it
    for k in range(len(nested)):
        (own,) = set(merged.class_of[drawn == k].tolist())
        (tree,) = take_trees(merged.classes.trees, [own]).nested_lists(WHO)
        assert meaning(with_stages(tree)) == meaning(with_stages(nested[k]))


def test_batches_may_name_microservices_in_another_order() -> None:
    counter = GraphCounter()
    tree = [[call("a", [call("b"), call("c")])], [call("b")]]
    first = counter.add(CallTrees.nested([tree], WHO), ["s"], WHO)
    other = ["c", "x", "b", "a"]
    again = counter.add(CallTrees.nested([tree, [[call("x")]]], other), ["s", "t"], other, [3, 5])
    assert first.tolist() == [0]
    assert again.tolist() == [0, 1]
    assert len(counter) == 2
    assert counter.microservices == ["a", "b", "c", "x"]
    merged = counter.merged()
    assert merged.classes.share.tolist() == [1, 1]
    assert merged.classes.service.tolist() == [0, 1]
    assert counter.merged(most_classes=1).classes.trees.demand(4)[:, 0].tolist() == [1, 2, 1, 0]
    with pytest.raises(InstanceError, match="1 services for 2 requests"):
        counter.add(CallTrees.nested([tree, tree], WHO), ["s"], WHO)


def test_nothing_seen_is_nothing_learned() -> None:
    merged = GraphCounter().merged()
    assert len(merged.classes) == 0
    assert merged.unmodelled_share.size == 0


def test_requests_are_counted_by_round() -> None:
    counts = requests_by_round([0, 1, -1, 1, 0], [0, 59.9, 60, 60, 200], 60.0, 2)
    assert counts.tolist() == [[1, 1], [0, 1], [0, 0], [1, 0]]
    later = requests_by_round([0, 1, -1, 1, 0], [0, 59.9, 60, 60, 200], 60.0, 2, first_s=60.0)
    assert later.tolist() == [[0, 1], [0, 0], [1, 0]]
    assert requests_by_round([], [], 60.0, 2).shape == (0, 2)
    with pytest.raises(InstanceError, match="there are 2 classes"):
        requests_by_round([2], [0.0], 60.0, 2)
    with pytest.raises(InstanceError, match="must be positive"):
        requests_by_round([0], [0.0], 0.0, 2)
