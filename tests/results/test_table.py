"""One table in four formats, to the letter."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from apportion.results import Column, Spread, Table
from apportion.results.numbers import readable

pytestmark = pytest.mark.quick

COLUMNS = [
    Column("policy", "policy"),
    Column("jct_mean_s", "mean JCT", "s"),
    Column("busy_fraction", "busy", "fraction"),
    Column("preemptions", "preempted", "count"),
    Column("ftf", "FTF", "ratio", readers="machines"),
    Column("decide_s", "decide", "s", timing=True),
]
TABLE = Table(
    "Two policies",
    COLUMNS,
    [
        ["fft|x", Spread(5400.0, 3600.0, 7200.0), 0.5, 1200, 1.25, 0.012],
        ["fifo", 36000.0, None, 0, float("nan"), 0.0015],
    ],
    notes=["by hand"],
    best=frozenset({(0, "jct_mean_s")}),
)


def test_text():
    assert TABLE.to_text(width=80, timings=True) == (
        "Two policies\n"
        "\n"
        " policy        mean JCT (h)  busy (%)  preempted  decide (ms)\n"
        " ─────────────────────────────────────────────────────────────\n"
        " fft|x   1.50 (1.00..2.00)*      50.0      1,200        12.00\n"
        " fifo                 10.00         -          0         1.50\n"
        "\n"
        "by hand\n"
        "* best of its column\n"
    )


def test_markdown():
    assert TABLE.to_markdown() == (
        "**Two policies**\n"
        "\n"
        "| policy | mean JCT (h) | busy (%) | preempted |\n"
        "| :-- | --: | --: | --: |\n"
        "| fft\\|x | **1.50 (1.00..2.00)** | 50.0 | 1,200 |\n"
        "| fifo | 10.00 | - | 0 |\n"
        "\n"
        "- by hand\n"
        "- bold: best of its column\n"
    )


def test_csv():
    assert TABLE.to_csv() == (
        "policy,jct_mean_s,jct_mean_s_min,jct_mean_s_max,busy_fraction,preemptions,ftf\n"
        "fft|x,5400.0,3600.0,7200.0,0.5,1200,1.25\n"
        "fifo,36000.0,36000.0,36000.0,,0,\n"
    )
    assert TABLE.to_csv(timings=True).splitlines()[2].endswith(",0,,0.0015")


def test_json():
    assert json.loads(TABLE.to_json()) == {
        "schema": "apportion/table/1",
        "title": "Two policies",
        "columns": [
            {"key": "policy", "unit": ""},
            {"key": "jct_mean_s", "unit": "s"},
            {"key": "busy_fraction", "unit": "fraction"},
            {"key": "preemptions", "unit": "count"},
            {"key": "ftf", "unit": "ratio"},
        ],
        "rows": [
            {
                "policy": "fft|x",
                "jct_mean_s": {"mean": 5400.0, "min": 3600.0, "max": 7200.0},
                "busy_fraction": 0.5,
                "preemptions": 1200,
                "ftf": 1.25,
            },
            {
                "policy": "fifo",
                "jct_mean_s": 36000.0,
                "busy_fraction": None,
                "preemptions": 0,
                "ftf": None,
            },
        ],
        "notes": ["by hand"],
    }
    assert json.loads(TABLE.to_json(timings=True))["rows"][0]["decide_s"] == 0.012


@pytest.mark.parametrize("width", [30, 45, 60, 80, 200])
def test_no_value_is_cut_off_on_any_width(width: int):
    text = TABLE.to_text(width=width, timings=True)
    assert all(len(line) <= width for line in text.splitlines())
    for value in ("1.50", "(1.00..2.00)*", "10.00", "50.0", "1,200", "12.0", "1.5"):
        assert value in text


def test_the_table_prints_itself():
    stream = io.StringIO()
    Console(file=stream, width=80, color_system=None).print(TABLE)
    assert "decide (ms)" in stream.getvalue()


def test_brackets_are_no_markup():
    table = Table("[red]t", [Column("a", "[bold]a")], [["[x]"]], notes=["[y]"])
    for text in ("[red]t", "[bold]a", "[x]", "[y]"):
        assert text in table.to_text()


def test_an_empty_table():
    table = Table("", COLUMNS, [])
    assert table.to_csv().count("\n") == 1
    assert "policy" in table.to_text()
    assert table.to_markdown().startswith("| policy |")


def test_numpy_values_become_plain_ones():
    table = Table("t", COLUMNS[:3], [[np.str_("a"), np.float64(1.5), np.int64(1)]])
    assert table.to_csv().splitlines()[1] == "a,1.5,1"


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        ([COLUMNS[0], COLUMNS[0]], [], "keys repeat"),
        (COLUMNS[:2], [["a"]], "row 0 has 1 cells for 2 columns"),
        (COLUMNS[:2], [["a", float("inf")]], "must be finite"),
        (COLUMNS[:2], [["a", Spread(1.0, 0.0, float("inf"))]], "must be finite"),
    ],
)
def test_bad_tables(columns: list[Column], rows: list[list[object]], message: str):
    with pytest.raises(ValueError, match=message):
        Table("t", columns, rows)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.text(max_size=8), st.floats(0, 1e300)), min_size=1, max_size=4))
def test_csv_reads_back(rows: list[tuple[str, float]]):
    clean = [(text.replace("\r", "").replace("\0", ""), value) for text, value in rows]
    table = Table("t", COLUMNS[:2], clean)
    back = list(csv.reader(io.StringIO(table.to_csv())))[1:]
    assert [(text, float(value)) for text, value in back] == clean
    table.to_text()


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "-"),
        (0.0, "s", "0 s"),
        (0.0123, "s", "12.3 ms"),
        (45.0, "s", "45.0 s"),
        (150.0, "s", "2.50 min"),
        (7200.0, "s", "2.00 h"),
        (4.2e6, "s", "1,167 h"),
        (36000.0, "GPU s", "10.0 GPU h"),
        (0.4125, "fraction", "41.2 %"),
        (1234.0, "count", "1,234"),
        (1.2345, "ratio", "1.23"),
    ],
)
def test_numbers_as_people_read_them(value: float | None, unit: str, text: str):
    assert readable(value, unit) == text  # type: ignore[arg-type]
