"""Traces as CSV files: columns by name, bad values by line, other traces recognised."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pandas as pd

from apportion.instances.columns import Floats, Ints
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, read_bytes, shown

KNOWN_TRACES: Mapping[str, tuple[str, ...]] = {
    "a Gavel trace": ("job_type", "total_steps", "scale_factor", "arrival_time_s"),
    "a Shockwave trace": ("job_type", "total_steps", "scale_factor", "arrival_time_s", "mode"),
    "the flat Philly table": ("timestamp", "duration", "num_gpus", "gpu_time", "cluster"),
    "a Helios trace": ("job_id", "user", "vc", "gpu_num", "node_num", "submit_time", "queue"),
    "a Chronus trace": ("job_id", "num_gpu", "submit_time", "model_name", "expect_time_list"),
    "an ElasticFlow trace": ("job_id", "num_gpu", "submit_time", "model_name", "ddl"),
    "a Tiresias trace": ("job_id", "num_gpu", "submit_time", "iterations", "model_name"),
    "an Alibaba openb pod list": ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    "a table of GPU nodes": ("sn", "cpu_milli", "memory_mib", "gpu", "model"),
}
"""Columns by which a trace is recognised; those with more to tell come first."""


class Trace:
    """The columns of a trace file, still as text.

    Parameters
    ----------
    path
        The file, packed where its name ends in ``.gz``.
    kind
        Key of ``KNOWN_TRACES`` that is expected.

    Raises
    ------
    InstanceError
        On empty files, missing columns (with the trace it looks like instead), and rows with
        too many fields.
    """

    def __init__(self, path: PathLike, kind: str) -> None:
        self.path = path
        with naming(path):
            table = _parsed(read_bytes(path))
            _recognise([str(name) for name in table.columns], kind)
            filled = (table != "").any(axis=1).to_numpy()  # blank lines hold no job
            self.line: Ints = np.flatnonzero(filled) + 2  # after the header, counted from 1
            self._table = table[filled]
            if not self.line.size:
                raise InstanceError("the trace holds no jobs, only a header")

    def __len__(self) -> int:
        return int(self.line.size)

    def __contains__(self, name: str) -> bool:
        return name in self._table.columns

    def text(self, name: str) -> list[str]:
        """List a column that must not be empty anywhere."""
        values: list[str] = self._table[name].to_list()
        if "" in values:
            self.refuse(values.index(""), name, "is empty")
        return values

    def numbers(self, name: str, *, positive: bool = False, whole: bool = False) -> Floats:
        """Read a column of finite numbers."""
        column = cast(Any, pd.to_numeric(self._table[name], errors="coerce"))
        values = cast(Floats, column.to_numpy(dtype=np.float64))
        self._require(name, np.isfinite(values), "must be a number")
        if whole:
            self._require(name, values == np.round(values), "must be a whole number")
        if positive:
            self._require(name, values > 0, "must be positive")
        return values

    def refuse(self, row: int, name: str, rule: str) -> None:
        """Raise on one value, naming file, line, column and value."""
        value = shown(self._table[name].iloc[row])
        raise InstanceError(f"{self.path}: line {self.line[row]}: {name} = {value}: {rule}")

    def _require(self, name: str, good: Any, rule: str) -> None:
        bad = np.flatnonzero(~good)
        if bad.size:
            self.refuse(int(bad[0]), name, rule)


def _parsed(data: bytes) -> Any:
    try:
        with warnings.catch_warnings():
            # told where a row has more fields than the header: they would be dropped
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                io.BytesIO(data), dtype=str, keep_default_na=False, skip_blank_lines=False,
                encoding="utf-8-sig", index_col=False,
            )  # fmt: skip
    except UnicodeDecodeError as error:
        raise InstanceError(f"not UTF-8 text (byte {error.start})") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError) as error:
        reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise InstanceError(f"not a CSV table: {reason}") from None
    return table.fillna("")


def _recognise(columns: list[str], kind: str) -> None:
    wanted = KNOWN_TRACES[kind]
    absent = [name for name in wanted if name not in columns]
    for other, own in KNOWN_TRACES.items():
        if other != kind and set(own) <= set(columns) and (absent or set(wanted) < set(own)):
            reason = f"{absent[0]!r} is missing" if absent else f"{own[-1]!r} is another's"
            raise InstanceError(f"this looks like {other}, not {kind}: the column {reason}")
    if not absent:
        return
    hint = nearest(absent[0], [name for name in columns if name not in wanted])
    raise InstanceError(f"not {kind}: the column {absent[0]!r} is missing{hint}")
