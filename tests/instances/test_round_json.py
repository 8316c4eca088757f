"""Rounds as files: reading back gives an equal object, and bad files are told in a line."""

from __future__ import annotations

import gzip
import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from apportion.instances.errors import InstanceError
from apportion.instances.files import json_text, parse_json
from apportion.instances.training import (
    Cluster,
    Commitments,
    Jobs,
    Placement,
    Tenants,
    TrainingRound,
    read_round,
    round_from_dict,
    round_to_dict,
    write_round,
)
from apportion.instances.training.jobs import COLUMNS, INFINITE, RAGGED
from apportion.instances.versions import migrated

pytestmark = pytest.mark.quick

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)
NAMES = TEXT.filter(bool)
POSITIVE = st.floats(1e-15, 1e15)
AMOUNT = st.one_of(st.just(0.0), st.floats(1e-15, 1e15))


def unique(count: int) -> st.SearchStrategy[list[str]]:
    return st.lists(NAMES, min_size=count, max_size=count, unique=True)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    k, m, racks = draw(st.integers(1, 3)), draw(st.integers(0, 4)), draw(st.integers(1, 2))
    size = st.one_of(st.just(np.inf), POSITIVE)

    def column(of: Any) -> Any:
        return np.array(draw(st.lists(of, min_size=m, max_size=m)))

    return Cluster(
        types=draw(unique(k)),
        type_memory_gib=draw(st.lists(size, min_size=k, max_size=k)),
        nodes=np.array(draw(unique(m)), dtype=np.str_),
        node_type=column(st.integers(0, k - 1)),
        node_gpus=column(st.integers(1, 16)),
        node_cpus=column(size),
        node_memory_gib=column(size),
        node_rack=column(st.integers(0, racks - 1)),
        racks=draw(unique(racks)),
    )


def value(name: str, types: int) -> st.SearchStrategy[Any]:
    column = COLUMNS[name]
    match column.kind:
        case "bool":
            return st.booleans()
        case "name":
            return TEXT
        case "int":
            high = types - 1 if name == "previous_type" else 10**15
            return st.integers(int(max(column.least, -(10**15))), high)
        case _:
            if name == "work":
                return POSITIVE
            low = max(column.least, -1e15)
            high = min(column.most, 1e15)
            usual = st.floats(low, high, exclude_min=column.above)
            return st.one_of(usual, st.just(np.inf)) if name in INFINITE else usual


@st.composite
def ragged(draw: st.DrawFn, name: str, n: int, types: int) -> dict[str, Any]:
    lengths = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    total = sum(lengths)
    out: dict[str, Any] = {f"{name}_offsets": np.concatenate(([0], np.cumsum(lengths, dtype=int)))}
    for part in RAGGED[name]:
        of = st.integers(0, types - 1) if part == "config_type" else st.floats(1, 100)
        out[part] = np.array(draw(st.lists(of, min_size=total, max_size=total)), dtype=float)
    for part in ("deadline_s", "spread_hosts"):
        if part in out:
            out[part] = np.arange(total) + 1.0  # must rise within a job
    if "deadline_value" in out:
        out["deadline_value"] = -np.sort(-out["deadline_value"])  # must not rise within a job
    return out


@st.composite
def rounds(draw: st.DrawFn) -> TrainingRound:
    cluster = draw(clusters())
    k, n = cluster.types.size, draw(st.integers(0, 4))
    tenants = draw(unique(draw(st.integers(1, 3))))
    columns: dict[str, Any] = {}
    others = [name for name in COLUMNS if name not in ("gang", "work", "running")]
    optional = st.sets(st.sampled_from(others))
    for name in {"gang", "work"} | draw(optional):
        of = st.integers(0, len(tenants) - 1) if name == "tenant" else value(name, k)
        columns[name] = draw(st.lists(of, min_size=n, max_size=n, unique=name == "code"))
    if "max_gpus" in columns or "min_gpus" in columns:
        columns["min_gpus"] = [1] * n
        columns.setdefault("max_gpus", [2] * n)
    for name in draw(st.sets(st.sampled_from(sorted(RAGGED)))):
        columns.update(draw(ragged(name, n, k)))
    if "deadline_s" in columns and "arrival_s" in columns:  # no deadline before the arrival
        columns["arrival_s"] = [-abs(instant) for instant in columns["arrival_s"]]
    rates = draw(st.lists(st.lists(AMOUNT, min_size=k, max_size=k), min_size=n, max_size=n))
    held = draw(st.integers(0, int(cluster.node_gpus[0]))) if n and cluster.nodes.size else 0
    if held:  # the first job holds GPUs of the first node
        for name, own, other in (
            ("running", True, False), ("previous_type", int(cluster.node_type[0]), -1), ("held_gpus", held, 0),
        ):  # fmt: skip
            columns[name] = [own, *columns.get(name, [other] * n)[1:]]
    jobs = Jobs(
        id=np.array(draw(unique(n)), dtype=np.str_),
        throughput_per_s=np.array(rates).reshape(n, k),
        **columns,
    )
    promised = draw(st.integers(0, 2)) if n else 0
    first = 0 if n and rates[n - 1][0] > 0 else -1
    return TrainingRound(
        cluster,
        jobs,
        now_s=1e15,
        duration_s=draw(POSITIVE),
        tenants=Tenants(tenants, [1.5] * len(tenants), draw(st.permutations([np.inf, 4, 2]))[: len(tenants)]),
        reasons=draw(st.sampled_from([("boundary",), ("arrival", "failure"), ()])),
        commitments=Commitments.of(
            [n - 1] * promised, [2.0] * promised, [np.inf, 9.0][:promised], [1] * promised,
            [-1, first][:promised], ["lease", "reservation"][:promised],
        ),
        placement=Placement.of([0], [0], [held]) if held else Placement(),
        node_up=np.array(
            draw(st.lists(st.booleans(), min_size=cluster.nodes.size, max_size=cluster.nodes.size)),
            dtype=bool,
        ),
        index=draw(st.integers(0, 10**6)),
    )  # fmt: skip


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rounds())
def test_reading_back_gives_an_equal_round(round_: TrainingRound) -> None:
    text = json_text(round_to_dict(round_))
    again = round_from_dict(parse_json(text))
    assert again == round_
    assert json_text(round_to_dict(again)) == text


@pytest.mark.parametrize("name", ["round.json", "round.json.gz"])
def test_files_packed_and_plain(small: TrainingRound, tmp_path: Any, name: str) -> None:
    path = tmp_path / name
    write_round(small, path)
    first = path.read_bytes()
    assert read_round(path) == small
    write_round(small, str(path))
    assert path.read_bytes() == first  # same round, same bytes
    assert [item.name for item in tmp_path.iterdir()] == [name]  # nothing half-written is left


def test_running_jobs_read_back(small: TrainingRound) -> None:
    columns = {"running": [True, False, False], "held_gpus": [2, 0, 0], "previous_type": [1, 0, -1]}
    jobs = Jobs(
        id=["a", "b", "c"], gang=[2, 1, 1], work=[1.0] * 3, throughput_per_s=[[1.0, 1.0]] * 3,
        **columns,
    )  # fmt: skip
    round_ = TrainingRound(small.cluster, jobs, placement=Placement.of([0], [1], [2]))
    assert round_from_dict(round_to_dict(round_)) == round_


def test_names_stand_for_codes(small: TrainingRound) -> None:
    jobs = round_to_dict(small)["jobs"]
    assert jobs["tenant"] == ["blue", "green", "green"]
    assert jobs["previous_type"] == [None, "T4", "V100"]
    assert jobs["lease_end_s"] == [-1.0, None, 300.0]
    assert "weight" not in jobs  # defaults are left out
    assert "code" not in jobs


def test_reads_a_written_document(document: dict[str, Any]) -> None:
    round_ = round_from_dict(document)
    assert round_.jobs.tenant.tolist() == [1, 0]
    assert round_.jobs.previous_type.tolist() == [1, -1]
    assert round_.jobs.deadline_offsets.tolist() == [0, 2, 2]
    assert round_.jobs.deadline_s.tolist() == [900.0, 1200.0]
    assert round_.placement == Placement.of([0], [1], [1])
    assert round_.commitments.gpu_type.tolist() == [0]
    assert round_.duration_s == 300.0


def test_empty_jobs_of_any_width_are_equal() -> None:
    cluster = Cluster.uniform({"T4": 1, "V100": 1})
    round_ = TrainingRound(cluster, Jobs(id=[], gang=[], work=[], throughput_per_s=[]))
    assert round_from_dict(round_to_dict(round_)) == round_


BAD: list[tuple[str, Any, str]] = [
    ("jobs.gang", [0, 2], "jobs.gang[0] = 0 (job 'a'): a gang needs at least 1 GPU"),
    ("jobs.gang", [1, 1.5], "jobs.gang[1] = 1.5: must be whole"),
    ("jobs.gang", [1, True], "jobs.gang[1] = true: must be a whole number"),
    ("jobs.gang", [1, 10**30], "jobs.gang"),
    ("jobs.work", [1.5, 10**25], "jobs.work[1] = 10000000000000000000000000: is too large"),
    ("jobs.gang", [1, 2**63], "jobs.gang[1] = 9223372036854775808: is too large"),
    ("jobs.work", [1, None], "jobs.work[1] = null: must be a number"),
    ("jobs.work", [1, "2"], 'jobs.work[1] = "2": must be a number'),
    ("jobs.work", [1], "jobs.work has shape (1,), expected (2,)"),
    ("jobs.work", 3, "jobs.work: expected a list, got 3"),
    ("jobs.work", [1, -2], "jobs.work[1] = -2.0 (job 'b'): must be positive"),
    ("jobs.id", ["a", "a"], "jobs.id[1] = 'a': already used at index 0"),
    ("jobs.tenant", ["gren", "blue"], "jobs.tenant[0] = \"gren\": unknown tenant; did you mean 'green'?"),
    ("jobs.previous_type", ["V10", None], "jobs.previous_type[0] = \"V10\": unknown GPU type; did you mean 'V100'?"),
    ("jobs.throughput_per_s", [[1, 2]], "jobs.throughput_per_s has 1 rows, expected 2"),
    ("jobs.throughput_per_s", [[1, 2], [1]], "jobs.throughput_per_s[1] has 1 values, expected 2: one for each GPU type (T4, V100)"),
    ("jobs.throughput_per_s", [[1, 2], [1, -1]], "jobs.throughput_per_s[1, 1] = -1.0 (job 'b'): must not be negative"),
    ("jobs.arrival_s", [0, 700], "jobs.arrival_s[1] = 700.0 (job 'b'): arrives after the round's now_s = 600.0"),
    ("jobs.gag", [1, 2], "jobs.gag: unknown key; did you mean 'gang'?"),
    ("jobs.deadline_value", [[1], []], "jobs.deadline_value[0] has 1 values, jobs.deadline_s[0] has 2"),
    ("jobs.deadline_s", [[9, 8], []], "jobs.deadline_s[1] = 8.0: must rise within a job"),
    ("jobs.deadline_s", [[-1, 8], []], "jobs.deadline_s[0] = -1.0 (job 'a'): must not lie before the job's arrival_s"),
    ("jobs.deadline_value", [[1, 2], []], "jobs.deadline_value[1] = 2.0 (job 'a'): must not rise within a job"),
    ("jobs.deadline_s", ..., "jobs.deadline_s is missing: jobs.deadline_value is given"),
    ("jobs.work", ..., "jobs.work is missing"),
    ("jobs", ..., "round.jobs is missing"),
    ("cluster.node_gpus", [4, 0], "cluster.node_gpus[1] = 0: a node needs at least 1 GPU"),
    ("cluster.node_gpus", [4, -1], "cluster.node_gpus[1] = -1"),
    ("cluster.node_type", ["T4", "V10"], "cluster.node_type[1] = \"V10\": unknown GPU type; did you mean 'V100'?"),
    ("cluster.node_rack", ["r", "r"], "cluster.racks and cluster.node_rack: give both or none"),
    ("cluster.types", [], "cluster.node_type[0]"),
    ("cluster.type", ["T4"], "cluster.type: unknown key; did you mean 'types'?"),
    ("placement", [{"job": "x", "node": "n1", "gpus": 1}], "placement.job[0] = \"x\": unknown job"),
    ("placement", [{"job": "a", "gpus": 1}], "placement[0].node is missing"),
    ("placement", [{"job": "a", "node": "n1", "gpus": 0}], "round.placement.gpus[0] = 0: must be at least 1"),
    ("placement", [{"job": "a", "node": "n1", "gpu": 1}], "placement[0].gpu: unknown key; did you mean 'gpus'?"),
    ("commitments", [{"job": "b", "start_s": 9, "end_s": 9, "gpus": 2}], "round.commitments.end_s[0] = 9.0: must lie after start_s"),
    ("node_up", {"n7": False}, "round.node_up.n7: unknown key"),
    ("node_up", {"n1": 0}, "round.node_up[0] = 0: must be true or false"),
    ("reasons", ["arrivals"], "round.reasons: 'arrivals'; did you mean 'arrival'?"),
    ("index", -1, "round.index = -1: must be a whole number, not negative"),
    ("now_s", "soon", "round.now_s = 'soon': must be a number"),
    ("duration_s", 0, "round.duration_s = 0.0: must be positive"),
    ("jobz", {}, "round.jobz: unknown key; did you mean 'jobs'?"),
    ("family", "trainings", "round.family = \"trainings\": expected 'training'"),
    ("schema", "apportion/round/2", "schema = \"apportion/round/2\": a later version than this apportion reads ('apportion/round/1')"),
    ("schema", "apportion/scenario/1", "schema = \"apportion/scenario/1\": expected 'apportion/round/1'"),
    ("schema", ..., "the key 'schema' is missing; expected 'apportion/round/1'"),
    ("tenants", {"id": ["blue", "green"], "weight": [1, 0]}, "tenants.weight[1] = 0.0: must be positive"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "what", "told"), BAD)
def test_bad_values_are_named(
    document: dict[str, Any], tmp_path: Any, where: str, what: Any, told: str
) -> None:
    *above, key = where.split(".")
    section = document
    for name in above:
        section = section[name]
    if what is ...:
        del section[key]
    else:
        section[key] = what
    path = tmp_path / "round.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InstanceError) as error:
        read_round(path)
    assert str(error.value).startswith(f"{path}: ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_every_column_refuses_strings_and_nan(document: dict[str, Any]) -> None:
    for name, column in COLUMNS.items():
        wrong = (
            [1, 2] if column.kind == "name" or name in ("tenant", "previous_type") else ["x", "y"]
        )
        bad = {**document, "jobs": {**document["jobs"], name: wrong}}
        with pytest.raises(InstanceError, match=rf"jobs\.{name}\[0\] = "):
            round_from_dict(bad)


TEXTS: list[tuple[bytes, str]] = [
    (b"", "the file is empty"),
    (b"  \n", "the file is empty"),
    (b'{"schema": "apportion/round/1", "jobs": {', "truncated JSON: the text ends early, at line 1"),
    (b'{"schema": "apportion/rou', "truncated JSON"),
    (b"{'schema': 1}", "not JSON: Expecting property name enclosed in double quotes at line 1 column 2"),
    (b"[1, 2]", "expected an object with schema 'apportion/round/1', got [1, 2]"),
    (b'{"schema": "apportion/round/1", "now_s": NaN}', "now_s = NaN: is not a JSON number; write null for infinity"),
    (b'{"schema": "apportion/round/1", "now_s": -Infinity}', "now_s = -Infinity: is not a JSON number"),
    (b'{"schema": "apportion/round/1", "now_s": 1e999}', "now_s = 1e999: is too large"),
    (b'{"jobs": {"work": [1, NaN]}}', "jobs.work[1] = NaN: is not a JSON number"),
    (b'{"placement": [{"gpus": 1e999}]}', "placement[0].gpus = 1e999: is too large"),
    (b'{"schema": "apportion/round/1", "now_s": 1, "now_s": 2}', "the key 'now_s' appears twice"),
    (b'{"now_s": ' + b"9" * 5000 + b"}", "now_s = 9999"),
    (b"[" * 200_000, "not read: the JSON is nested too deeply"),
    (b'{"schema": "\xff"}', "not UTF-8 text (byte 12)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), TEXTS, ids=range(len(TEXTS)))
def test_bad_files_are_told_in_a_line(tmp_path: Any, text: bytes, told: str) -> None:
    path = tmp_path / "round.json"
    path.write_bytes(text)
    with pytest.raises(InstanceError) as error:
        read_round(path)
    assert str(error.value).startswith(f"{path}: ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Any, small: TrainingRound) -> None:
    with pytest.raises(InstanceError, match=r"none\.json: no such file"):
        read_round(tmp_path / "none.json")
    with pytest.raises(InstanceError, match="is a folder, not a file"):
        read_round(tmp_path)
    path = tmp_path / "round.json.gz"
    path.write_bytes(b'{"schema"')
    with pytest.raises(InstanceError, match="not a gzip file"):
        read_round(path)
    write_round(small, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InstanceError, match="the file is truncated"):
        read_round(path)
    damaged = bytearray(gzip.compress(b'{"a": 1}'))
    damaged[12] ^= 0xFF
    path.write_bytes(bytes(damaged))
    with pytest.raises(InstanceError, match=r"round\.json\.gz: "):
        read_round(path)
    with pytest.raises(InstanceError, match="cannot be written"):
        write_round(small, tmp_path / "nowhere" / "round.json")


def test_a_failed_write_leaves_the_old_file(tmp_path: Any, small: TrainingRound) -> None:
    path = tmp_path / "round.json"
    path.write_text("old")
    broken = TrainingRound(small.cluster, small.jobs, tenants=small.tenants)
    broken.__dict__["now_s"] = float("nan")
    with pytest.raises(InstanceError, match="cannot be written as JSON"):
        write_round(broken, path)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_older_versions_are_migrated() -> None:
    def renamed(content: dict[str, Any]) -> dict[str, Any]:
        content["now_s"] = content.pop("now")
        return content

    old = {"schema": "apportion/round/1", "now": 5}
    assert migrated(old, "round", 2, {1: renamed}) == {"now_s": 5}
    assert old["now"] == 5
    with pytest.raises(InstanceError, match="version 1 is no longer read"):
        migrated(old, "round", 2, {})


def test_a_large_round_reads_fast(tmp_path: Any) -> None:
    import time

    rng = np.random.default_rng(0)
    n, k = 4000, 8
    cluster = Cluster.uniform({f"T{index}": 125 for index in range(k)})
    jobs = Jobs(
        id=[f"job-{index}" for index in range(n)],
        gang=rng.choice([1, 2, 4, 8], n),
        work=rng.uniform(1, 200, n),
        throughput_per_s=rng.uniform(0, 3, (n, k)),
        previous_type=rng.integers(-1, k, n),
    )
    path = tmp_path / "round.json"
    write_round(TrainingRound(cluster, jobs), path)
    began = time.process_time()
    read_round(path)
    assert time.process_time() - began < 1.0
