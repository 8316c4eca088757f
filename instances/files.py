"""Reading and writing text files so that a bad one is told in a line and none is left half."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import stat
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeAlias, cast

from apportion.instances.errors import InstanceError

PathLike: TypeAlias = str | os.PathLike[str]

_DIGITS = 300  # whole numbers of more are beyond any float


@contextlib.contextmanager
def naming(what: PathLike) -> Generator[None]:
    """Put the name of a file, or of a part of one, before every error raised inside."""
    try:
        yield
    except InstanceError as error:
        raise InstanceError(f"{os.fspath(what)}: {error}") from None


def shown(value: object) -> str:
    """Show a value as JSON spells it, in at most 60 characters."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def spelt(key: object) -> str:
    """Spell a key as it is, or as JSON does where it would break the line of an error."""
    text = str(key)
    return text if text.isprintable() else shown(text)


def read_bytes(path: PathLike) -> bytes:
    """Read a file, unpacked where its name ends in ``.gz``.

    Raises
    ------
    InstanceError
        Where there is no such file, it is empty, or its packing is damaged. The file is not
        named: wrap the call in ``naming``.
    """
    place = Path(path)
    try:
        data = place.read_bytes()
    except FileNotFoundError:
        raise InstanceError("no such file") from None
    except IsADirectoryError:
        raise InstanceError("is a folder, not a file") from None
    except OSError as error:
        raise InstanceError(f"cannot be read: {error.strerror or error}") from None
    if place.suffix == ".gz" and data:
        try:
            data = gzip.decompress(data)
        except EOFError:
            raise InstanceError("the file is truncated: its gzip data end early") from None
        except (OSError, zlib.error) as error:
            raise InstanceError(f"not a gzip file: {error}") from None
    if not data.strip():
        raise InstanceError("the file is empty")
    return data


def read_text(path: PathLike) -> str:
    """Read a UTF-8 text file; errors as in ``read_bytes``."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InstanceError(f"not UTF-8 text (byte {error.start})") from None


def read_json(path: PathLike) -> Any:
    """Read a JSON file, strictly.

    Raises
    ------
    InstanceError
        Naming the file: on NaN, Infinity and numbers too large for a float, on keys that appear
        twice, on truncated and empty files.
    """
    with naming(path):
        return parse_json(read_text(path))


def parse_json(text: str) -> Any:
    """Read JSON text, strictly; see ``read_json``."""
    if not text.strip():
        raise InstanceError("the text is empty")
    try:
        odd: list[_Odd] = []

        def kept(text: str) -> _Odd:
            odd.append(_Odd(text))
            return odd[-1]

        def number(text: str) -> Any:
            value = float(text)
            return kept(text) if math.isinf(value) else value

        def whole(text: str) -> Any:
            return int(text) if len(text) <= _DIGITS else kept(text)

        data = json.loads(
            text, parse_constant=kept, parse_float=number, parse_int=whole,
            object_pairs_hook=_object,
        )  # fmt: skip
        if odd:
            _refuse_odd(data, "")
        return data
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            raise InstanceError(f"truncated JSON: the text ends early, at {where}") from None
        raise InstanceError(f"not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise InstanceError("not read: the JSON is nested too deeply") from None
    except InstanceError:
        raise
    except ValueError as error:  # integers of thousands of digits
        raise InstanceError(f"not read: {str(error).splitlines()[0]}") from None


class _Odd:
    """A number that JSON or a float cannot hold, as it is spelt, until its place is known."""

    def __init__(self, text: str) -> None:
        self.text = text


def _refuse_odd(data: Any, where: str) -> None:
    """Find the first such number and tell its place."""
    if isinstance(data, dict):
        for key, value in cast(dict[str, Any], data).items():
            _refuse_odd(value, f"{where}.{key}" if where else key)
    elif isinstance(data, list):
        for index, value in enumerate(cast(list[Any], data)):
            _refuse_odd(value, f"{where}[{index}]")
    elif isinstance(data, _Odd):
        text = data.text if len(data.text) <= 60 else data.text[:57] + "..."
        rule = "is too large" if text.lstrip("-")[0].isdigit() else "is not a JSON number"
        at = f"{where} = " if where else ""
        raise InstanceError(f"{at}{text}: {rule}; write null for infinity")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InstanceError(f"the key {key!r} appears twice in one object")
            seen.add(key)
    return out


def write_bytes(path: PathLike, data: bytes) -> None:
    """Write a file whole or not at all: to a temporary name beside it, then renamed.

    A link is followed, so that its file is written and the link stays; a file that is there keeps
    its permissions; and what is no regular file (a device, a pipe) is written to as it is.
    """
    place = Path(path)
    if place.suffix == ".gz":
        data = gzip.compress(data, 6, mtime=0)  # no time stamp: same content, same bytes
    try:
        if in_place(place):
            _pour(place, data)
        else:
            _put(Path(os.path.realpath(place)), data)
    except OSError as error:
        raise InstanceError(f"{place}: cannot be written: {error.strerror or error}") from None


def in_place(path: PathLike) -> bool:
    """Tell whether a name stands for a device, a pipe or the like, which no file may replace."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _pour(place: Path, data: bytes) -> None:
    with place.open("wb", buffering=0) as stream:
        left = memoryview(data)
        while left:
            left = left[stream.write(left) :]


def _put(target: Path, data: bytes) -> None:
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if mode is not None:  # before the content: a secret is never readable by others
            temporary.touch(mode=stat.S_IMODE(mode))
            temporary.chmod(stat.S_IMODE(mode))
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_json(path: PathLike, data: Any) -> None:
    """Write a JSON file, one column or row a line; NaN and Infinity are refused."""
    write_bytes(path, (json_text(data) + "\n").encode())


def json_text(data: Any) -> str:
    """Lay out JSON for people: one key, row or column a line.

    Raises
    ------
    InstanceError
        On NaN, Infinity, and what JSON cannot hold.
    """
    try:
        return _laid_out(data, "")
    except (TypeError, ValueError) as error:
        raise InstanceError(f"cannot be written as JSON: {error}") from None


def _laid_out(data: Any, indent: str) -> str:
    inner = indent + " "
    if isinstance(data, dict) and data:
        items = cast(dict[str, Any], data).items()
        lines = [f"{inner}{json.dumps(key)}: {_laid_out(value, inner)}" for key, value in items]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(data, list) and any(isinstance(row, (list, dict)) for row in cast(Any, data)):
        rows = [inner + json.dumps(row, allow_nan=False) for row in cast(list[Any], data)]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    return json.dumps(data, allow_nan=False)
