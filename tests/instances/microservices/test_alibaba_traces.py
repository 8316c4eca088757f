"""Alibaba's tables: call graphs by hand, windows, containers and rates, and bad files."""

from __future__ import annotations

import gzip
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.microservices.alibaba import read_call_graphs
from apportion.instances.microservices.alibaba_loads import read_containers, read_loads
from apportion.instances.microservices.model_file import files_by_kind
from apportion.instances.microservices.raw_spans import Faults
from apportion.instances.microservices.span_trees import TracedCalls, traced_calls
from apportion.instances.microservices.spans import Spans

pytestmark = pytest.mark.quick

HEAD_2021 = ",traceid,timestamp,rpcid,um,rpctype,dm,interface,rt"
HEAD_2022 = "timestamp,traceid,service,rpc_id,um,uminstanceid,rpctype,interface,dm,dminstanceid,rt"


def table(tmp_path: Path, head: str, *rows: str, name: str = "graph.csv") -> Path:
    path = tmp_path / name
    lines = [f"{at},{row}" for at, row in enumerate(rows)] if head.startswith(",") else list(rows)
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def one(path: Path, faults: Faults | None = None) -> Spans:
    windows = list(read_call_graphs([path], faults=faults))
    assert len(windows) == 1
    return windows[0]


def calls(traced: TracedCalls) -> list[tuple[str, int, int, float]]:
    trees = traced.trees
    return [
        (str(traced.microservice_id[m]), int(p), int(s), float(own))
        for m, p, s, own in zip(
            trees.microservice, trees.parent, trees.stage, traced.own_ms, strict=True
        )
    ]


def test_graph_of_2021_by_hand(tmp_path: Path) -> None:
    # entry answers in 100 ms, its caller waits 104; A takes 30 (caller 32), then the database 8
    path = table(
        tmp_path, HEAD_2021,
        "t1,1000,0,(?),http,entry,front,104", "t1,1002,0,(?),http,entry,front,-100",
        "t1,1010,0.1,entry,rpc,A,get,32", "t1,1011,0.1,entry,rpc,A,get,-30",
        "t1,1050,0.2,entry,db,DB,,8",
        "t1,1015,0.1.1,A,mc,CACHE,,3",
    )  # fmt: skip
    traced = traced_calls(one(path))
    assert calls(traced) == [
        ("entry", -1, 0, 64.0), ("A", 0, 0, 29.0), ("DB", 0, 1, 8.0), ("CACHE", 1, 0, 3.0),
    ]  # fmt: skip
    assert traced.latency_ms.tolist() == [104.0]
    assert traced.service.tolist() == ["entry front"]
    apart = traced_calls(one(path), network=False)
    # what A and the entry recorded themselves, less what they waited for
    assert [own for *_, own in calls(apart)] == [60.0, 27.0, 8.0, 3.0]


def test_graph_of_2022_by_hand(tmp_path: Path) -> None:
    path = table(
        tmp_path, HEAD_2022,
        "100,T,S_1,0,USER,,http,x,entry,p1,50.0", "101,T,S_1,0,USER,,http,x,entry,p1,48.0",
        "110,T,S_1,0.1,entry,p1,rpc,y,A,p2,20.0", "111,T,S_1,0.1,entry,p1,rpc,y,A,p2,18.0",
        "110,T,S_1,0.2,entry,p1,rpc,y,B,p2,12.0",
        "120,T,S_1,0.3,entry,p1,mq,y,LATE,p2,900.0",
    )  # fmt: skip
    traced = traced_calls(one(path))
    assert calls(traced) == [
        ("entry", -1, 0, 30.0), ("A", 0, 0, 20.0), ("B", 0, 0, 12.0), ("LATE", -1, 0, 900.0),
    ]  # fmt: skip
    assert traced.service.tolist() == ["S_1", "background LATE"]


def test_missing_callers_give_way_to_the_nearest_known(tmp_path: Path) -> None:
    faults = Faults()
    path = table(
        tmp_path, HEAD_2021,
        "t,0,0,(?),http,entry,i,100", "t,10,0.1.2.3,x,rpc,deep,i,40", "t,60,0.10,entry,rpc,ten,i,5",
    )  # fmt: skip
    traced = traced_calls(one(path, faults))
    assert calls(traced) == [("entry", -1, 0, 55.0), ("deep", 0, 0, 40.0), ("ten", 0, 1, 5.0)]
    assert faults.warnings == ("1 calls whose caller was not recorded",)


def test_entry_that_was_not_recorded(tmp_path: Path) -> None:
    path = table(
        tmp_path, HEAD_2021,
        "t,0,0.1,entry,rpc,A,i,10", "t,10,0.2,entry,rpc,B,i,20", "t,12,0.2.1,B,rpc,C,i,5",
    )  # fmt: skip
    faults = Faults()
    traced = traced_calls(one(path, faults))
    assert calls(traced) == [("A", -1, 0, 10.0), ("B", -1, 1, 15.0), ("C", 1, 0, 5.0)]
    assert traced.service.tolist() == ["entry"]
    assert traced.latency_ms.tolist() == [30.0]
    assert faults.warnings == ()


def test_calls_that_one_side_recorded(tmp_path: Path) -> None:
    # at 150 the entry has answered: by its own clock it did not wait, by A's clock nothing is known
    top = "t,0,0,(?),http,entry,i,100"
    called = table(tmp_path, HEAD_2021, top, "t,150,0.1,entry,rpc,A,i,-30")
    assert calls(traced_calls(one(called))) == [("entry", -1, 0, 70.0), ("A", 0, 0, 30.0)]
    caller = table(tmp_path, HEAD_2021, top, "t,150,0.1,entry,rpc,A,i,30")
    assert calls(traced_calls(one(caller))) == [("entry", -1, 0, 100.0), ("A", -1, 0, 30.0)]


def test_names_that_one_side_does_not_know(tmp_path: Path) -> None:
    path = table(
        tmp_path, HEAD_2021,
        "t,0,0,(?),http,(?),i,10", "t,0,0,(?),http,entry,i,-10", "t,1,0.1,entry,rpc,,i,2",
    )  # fmt: skip
    assert [name for name, *_ in calls(traced_calls(one(path)))] == ["entry", "unknown"]


def test_strange_traces_are_left_out_and_told(tmp_path: Path) -> None:
    faults = Faults()
    path = table(
        tmp_path, HEAD_2021,
        "bad,0,0.x,a,rpc,b,i,1", "void,0,0,a,rpc,b,i,", "good,0,0,a,rpc,b,i,7",
        "good,0,0,a,rpc,b,i,-5", "good,0,0,a,rpc,c,i,6",
    )  # fmt: skip
    traced = traced_calls(one(path, faults))
    assert traced.trace_id.tolist() == ["good"]
    assert calls(traced) == [("b", -1, 0, 7.0)]
    assert faults.warnings == (
        "1 traces left out: rpcid is not numbers and dots (first: trace 'bad', rpcid '0.x')",
        "1 traces left out: rt is missing (first: trace 'void', rpcid '0')",
        "1 calls recorded more than twice",
        "1 rows that give a call another microservice",
    )
    with pytest.raises(InstanceError, match="rpcid is not numbers and dots"):
        list(read_call_graphs([path], faults=Faults(strict=True)))


@pytest.mark.parametrize("seed", range(5))
def test_windows_hold_whole_requests(tmp_path: Path, seed: int) -> None:
    # requests of 3 calls within 50 s, over 40 windows of 60 s in 5 files: rows are shuffled inside
    # each file and blocks are small, and still every request is whole and in the window it began
    rng = np.random.default_rng(seed)
    begin = np.sort(rng.integers(0, 2_400_000, 300))
    rows = [
        (int(time + more), f"q{at},{time + more},{rpc},a,rpc,m{rpc},i,5")
        for at, time in enumerate(begin.tolist())
        for rpc, more in (("0", 0), ("0.1", 20_000), ("0.2", 50_000))
    ]
    paths = []
    for part in range(5):
        mine = [row for time, row in rows if part * 500_000 <= time < (part + 1) * 500_000]
        rng.shuffle(mine)
        paths.append(table(tmp_path, HEAD_2021, *mine, name=f"graph{part}.csv"))
    faults = Faults()
    windows = list(read_call_graphs(paths, window_s=60.0, block_rows=50, faults=faults))
    assert len(windows) > 20
    found: dict[str, int] = {}
    for spans in windows:
        for trace in range(len(spans.trace_id)):
            mine = spans.trace == trace
            found[str(spans.trace_id[trace])] = int(mine.sum())
        first = spans.start_ms[spans.parent < 0]
        assert np.unique(first // 60_000).size == 1
    assert found == {f"q{at}": 3 for at in range(300)}
    assert faults.warnings == ()


def test_sample_keeps_whole_requests_whatever_the_order(tmp_path: Path) -> None:
    rows = [f"t{at},{at},{rpc},a,rpc,b,i,1" for at in range(400) for rpc in ("0", "0.1")]
    kept = []
    for order in (rows, rows[::-1]):
        path = table(tmp_path, HEAD_2021, *order)
        (spans,) = read_call_graphs([path], sample=0.25)
        assert np.bincount(spans.trace).tolist() == [2] * len(spans.trace_id)
        kept.append(sorted(spans.trace_id.tolist()))
    assert kept[0] == kept[1]
    assert 60 < len(kept[0]) < 140


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        (HEAD_2021, "only a header"),
        (f"{HEAD_2021}\n0,t,soon,0,a,rpc,b,i,1\n", "line 2: timestamp = \"soon\": must be a number"),
        (f"{HEAD_2021}\n0,t,1,0,a,rpc,b,i,1\n1,t,1,0,a,rpc,b,i,x\n", "line 3: rt = \"x\""),
        (HEAD_2021.replace("rpcid", "rpcids") + "\n", "the column 'rpcid' is missing; did you mean 'rpcids'?"),
        (HEAD_2021.replace("dm", "callee") + "\n", "the column 'dm' is missing"),
        (f"{HEAD_2021}\n0,t,1,0,a,rpc,b,i,1,2,3\n", "not a CSV table"),
    ],
)  # fmt: skip
def test_bad_tables(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "graph.csv"
    path.write_text(text)
    with pytest.raises(InstanceError, match=re.escape(message)) as caught:
        list(read_call_graphs([path]))
    assert str(path) in str(caught.value)


def test_truncated_and_missing_files(tmp_path: Path) -> None:
    rows = "\n".join(f"{at},t{at},{at},0,a,rpc,b,i,{at % 7}" for at in range(5000))
    packed = gzip.compress(f"{HEAD_2021}\n{rows}\n".encode())
    path = tmp_path / "graph.csv.gz"
    for bad, message in (
        (packed[:-2000], "truncated"), (b"not gzip", "not a gzip file"), (b"", "empty"),
    ):  # fmt: skip
        path.write_bytes(bad)
        with pytest.raises(InstanceError, match=message):
            list(read_call_graphs([path]))
    with pytest.raises(InstanceError, match="no such file"):
        list(read_call_graphs([tmp_path / "none.csv"]))
    with pytest.raises(InstanceError, match="sample = 0"):
        list(read_call_graphs([path], sample=0))


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tgz"])
def test_tables_are_read_as_they_are_shipped(tmp_path: Path, ending: str) -> None:
    rows = ["t1,1000,0,(?),http,entry,front,104", "t1,1002,0,(?),http,entry,front,-100"]
    plain = table(tmp_path, HEAD_2021, *rows)
    packed = tmp_path / f"MSCallGraph_0{ending}"
    with tarfile.open(packed, "w" if ending == ".tar" else "w:gz") as archive:
        archive.add(plain, arcname="MSCallGraph_0.csv")
    assert calls(traced_calls(one(packed))) == calls(traced_calls(one(plain)))
    assert files_by_kind([packed]).call_graphs
    with tarfile.open(packed, "w" if ending == ".tar" else "w:gz") as archive:
        archive.add(plain, arcname="one.csv")
        archive.add(plain, arcname="two.csv")
    with pytest.raises(InstanceError, match="several files"):
        list(read_call_graphs([packed]))
    packed.write_bytes(b"no archive")
    for read in (lambda: list(read_call_graphs([packed])), lambda: files_by_kind([packed])):
        with pytest.raises(InstanceError, match="not a tar archive"):
            read()


RESOURCE = "timestamp,msname,msinstanceid,nodeid,cpu_utilization,memory_utilization"


def test_containers_by_minute(tmp_path: Path) -> None:
    path = table(
        tmp_path, RESOURCE,
        "0,A,a1,n1,0.2,0.5", "0,A,a2,n1,0.4,0.7", "0,B,b1,n2,0.9,0.1", "60000,A,a1,n1,0.3,0.5",
        name="resource.csv",
    )  # fmt: skip
    for rows in (1, 100):
        found = read_containers([path], block_rows=rows)
        assert found["containers"].tolist() == [2, 1, 1]
        assert found["cpu"].tolist() == pytest.approx([0.3, 0.9, 0.3])


def test_loads_of_2021(tmp_path: Path) -> None:
    path = table(
        tmp_path, ",timestamp,msname,msinstanceid,metric,value",
        "0,A,a1,providerRPC_MCR,10", "0,A,a2,providerRPC_MCR,20", "0,A,a1,providerRPC_RT,3.5",
        "0,A,a1,HTTP_MCR,6", "0,A,a1,consumerRPC_MCR,500", "60000,A,a1,providerRPC_MCR,8",
        name="rates.csv",
    )  # fmt: skip
    loads = read_loads([path])
    assert loads.load_per_s.tolist() == pytest.approx([18, 8])
    assert loads.containers.tolist() == [2, 1]
    resource = table(tmp_path, RESOURCE, *[f"0,A,a{at},n,0,0" for at in range(4)], name="r.csv")
    loads = read_loads([path], [resource], block_rows=2)
    assert loads.load_per_s.tolist() == pytest.approx([9])
    ids = np.array(["B", "A"])
    rows = loads.row_of(np.array([5.0, 59_999.0, 60_000.0, 5.0]), np.array([1, 1, 1, 0]), ids)
    assert rows.tolist() == [0, 0, -1, -1]


def test_loads_of_2022_need_a_peak(tmp_path: Path) -> None:
    path = table(
        tmp_path, "timestamp,msname,msinstanceid,nodeid,providerrpc_rt,providerrpc_mcr,http_mcr",
        "0,A,a1,n,5,0.2,0.0", "0,A,a2,n,5,0.4,0.2", "0,B,b1,n,5,0.8,0.0",
        name="rates.csv",
    )  # fmt: skip
    with pytest.raises(InstanceError, match="normalised"):
        read_loads([path])
    loads = read_loads([path], peak_per_s=100.0)
    assert loads.load_per_s.tolist() == pytest.approx([50, 100])
