"""Records of a run while it grows, turned into columns at the end."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from apportion.executor.microservices.records import (
    ClassRecords,
    MicroserviceRecords,
    RoundRecords,
    ServiceRecords,
)
from apportion.instances.columns import freeze

_KINDS = {"Ints": np.int64, "Floats": np.float64, "Bools": np.bool_, "Names": np.str_}


class Recorder:
    """Rows of the four tables."""

    def __init__(self) -> None:
        self._rows: dict[type[Any], dict[str, list[Any]]] = {
            table: {entry.name: [] for entry in fields(table)}
            for table in (RoundRecords, ServiceRecords, MicroserviceRecords, ClassRecords)
        }

    def add(self, table: type[Any], **row: Any) -> None:
        """Enter one round into a table: a value or a row for each of its columns."""
        columns = self._rows[table]
        if columns.keys() != row.keys():
            raise TypeError(f"{table.__name__}: {sorted(columns.keys() ^ row.keys())}")
        for name, value in row.items():
            columns[name].append(value)

    def records(self, table: type[Any], width: int | None = None) -> Any:
        """Turn a table into columns of shape (T,), or (T, width)."""
        columns: dict[str, Any] = {}
        for entry in fields(table):
            values = self._rows[table][entry.name]
            column = np.array(values, dtype=_KINDS[str(entry.type)])
            columns[entry.name] = column if width is None else column.reshape(len(values), width)
            freeze(columns[entry.name])
        return table(**columns)
