"""Large CSV tables of other people in blocks of rows: columns by name, values by line."""

from __future__ import annotations

import gzip
import tarfile
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.instances.columns import Floats, Ints
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, shown

BLOCK_ROWS = 200_000
"""Rows read at once: some 200 MB of text in the widest of the tables."""


@dataclass(frozen=True)
class Block:
    """Some rows of a file, still as text."""

    first_line: int
    table: Any

    def __len__(self) -> int:
        return len(self.table)

    def __contains__(self, name: str) -> bool:
        return name in self.table.columns

    def coded(self, name: str) -> tuple[Ints, list[str]]:
        """Give a column of strings as numbers and what they stand for; empty: nothing there."""
        codes, known = cast("tuple[Ints, Any]", cast(Any, pd).factorize(self.table[name]))
        return codes, [str(one) for one in known]

    def text(self, name: str) -> NDArray[Any]:
        """Give a column of strings as objects."""
        return cast("NDArray[Any]", self.table[name].to_numpy(dtype=object))

    def numbers(self, name: str, *, empty: bool = False) -> Floats:
        """Read a column of finite numbers.

        Parameters
        ----------
        name
            The column.
        empty
            True: nothing, NaN and the like are NaN.

        Raises
        ------
        InstanceError
            Naming line, column and value.
        """
        raw = self.table[name]
        column = cast(Any, pd.to_numeric(raw, errors="coerce"))
        values = cast(Floats, column.to_numpy(dtype=np.float64))
        good = np.isfinite(values)
        if empty:
            nothing = raw.str.strip().str.lower().isin(("", "nan", "null", "none"))
            good |= nothing.to_numpy()
        bad = np.flatnonzero(~good)
        if bad.size:
            row = int(bad[0])
            raise InstanceError(
                f"line {self.first_line + row}: {name} = {shown(raw.iloc[row])}: must be a number"
            )
        return values


def header(path: PathLike) -> list[str]:
    """Read the names of a table's columns.

    Raises
    ------
    InstanceError
        Where there is no such file or it is empty; the file is not named.
    """
    return [name.strip() for name in _frame(path, nrows=0).columns]


def columns_of(
    found: Sequence[str], wanted: Mapping[str, tuple[str, ...]], what: str
) -> dict[str, str]:
    """Match the columns of a table with those that are wanted.

    Parameters
    ----------
    found
        Names in the file.
    wanted
        For each column its spellings; one whose spellings end in an empty one may be missing.
    what
        What the table should be, for the message.

    Returns
    -------
    dict
        Name in the file by wanted name.
    """
    out: dict[str, str] = {}
    folded = {name.lower(): name for name in reversed(found)}
    for name, spellings in wanted.items():
        here = [folded[one] for one in spellings if one and one in folded]
        if here:
            out[name] = here[0]
        elif "" not in spellings:
            rest = [one for one in found if one not in out.values()]
            raise InstanceError(f"not {what}: the column {name!r} is missing{nearest(name, rest)}")
    return out


def blocks(
    path: PathLike,
    wanted: Mapping[str, tuple[str, ...]],
    what: str,
    rows: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Read a table block by block; see ``columns_of``.

    Parameters
    ----------
    path, wanted, what
        The file, and as in ``columns_of``.
    rows
        Rows of a block.

    Raises
    ------
    InstanceError
        Naming the file: truncated, empty, with rows of too many fields or missing columns.
    """
    with naming(path):
        named = columns_of(header(path), wanted, what)
        back = {there: here for here, there in named.items()}
        line = 2
        with _frame(path, chunksize=rows) as reader:
            while True:
                part = _next(reader)
                if part is None:
                    break
                part.columns = [str(name).strip() for name in part.columns]
                yield Block(line, part[list(back)].rename(columns=back).fillna(""))
                line += len(part)
        if line == 2:  # the header only
            raise InstanceError("the table holds no rows, only a header")


def _next(reader: Any) -> Any:
    with _told():
        return next(reader, None)


def _frame(path: PathLike, **options: Any) -> Any:
    place = Path(path)
    if place.is_dir():
        raise InstanceError("is a folder, not a file")
    if not place.exists():
        raise InstanceError("no such file")
    with _told():
        return cast(Any, pd).read_csv(
            place, dtype=str, keep_default_na=False, encoding="utf-8-sig", index_col=False,
            compression=_packing(place), **options,
        )  # fmt: skip


def is_tar(path: PathLike) -> bool:
    """Tell whether a file is an archive, by its name."""
    return Path(path).name.endswith((".tar", ".tar.gz", ".tgz"))


def _packing(place: Path) -> Any:
    if is_tar(place):  # Alibaba packs each table alone
        return {"method": "tar", "mode": "r:*"}
    return "gzip" if place.suffix == ".gz" else None


class _told:  # noqa: N801  # used as a statement
    """Turn what pandas raises into errors of one line."""

    def __enter__(self) -> None:
        self.caught = warnings.catch_warnings()
        self.caught.__enter__()
        warnings.simplefilter("error", pd.errors.ParserWarning)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.caught.__exit__(kind, error, trace)
        if isinstance(error, UnicodeDecodeError):
            raise InstanceError(f"not UTF-8 text (byte {error.start})") from None
        if isinstance(error, EOFError):
            raise InstanceError("the file is truncated: its gzip data end early") from None
        if isinstance(error, gzip.BadGzipFile | zlib.error):
            raise InstanceError(f"not a gzip file: {error}") from None
        if isinstance(error, pd.errors.EmptyDataError):
            raise InstanceError("the file is empty") from None
        if isinstance(error, pd.errors.ParserError | pd.errors.ParserWarning):
            reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
            raise InstanceError(f"not a CSV table: {reason}") from None
        if isinstance(error, tarfile.TarError):
            raise InstanceError(f"not a tar archive: {error}") from None
        if isinstance(error, ValueError) and "TAR archive" in str(error):
            raise InstanceError(
                "an archive of several files, or of none: unpack it first"
            ) from None
        if isinstance(error, OSError):
            raise InstanceError(f"cannot be read: {error.strerror or error}") from None
