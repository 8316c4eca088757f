"""Files of JSON lines that survive being killed, written by one process at a time."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from apportion.instances.errors import InstanceError

# only POSIX has it; elsewhere two runs in one folder are not kept apart
_fcntl: Any = importlib.import_module("fcntl") if find_spec("fcntl") else None


class Lines:
    """A file of JSON lines, one writer at a time.

    Parameters
    ----------
    path
        Made if it is not there.

    Raises
    ------
    InstanceError
        If it cannot be opened, or another process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+")
        except OSError as error:
            raise InstanceError(f"{path}: cannot be opened: {error.strerror or error}") from None
        if _fcntl is not None:
            try:
                _fcntl.flock(self._file, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
            except OSError:
                self._file.close()
                raise InstanceError(f"{path}: another run is writing to this folder") from None

    def read(self, *, strict: bool = True) -> list[dict[str, Any]]:
        """Read the whole lines and drop a torn last one, so that writing goes on behind them.

        Not strict: lines from the first unreadable one on are dropped too.
        """
        data = self._file.readall()
        whole, lines = 0, list[dict[str, Any]]()
        for number, text in enumerate(data[: data.rfind(b"\n") + 1].splitlines(True), start=1):
            try:
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise ValueError  # caught below: a line is an object
            except ValueError:
                if not strict:
                    break
                raise InstanceError(
                    f"{self.path}: line {number} is not JSON; the journal is damaged"
                ) from None
            lines.append(cast("dict[str, Any]", line))
            whole += len(text)
        self._file.truncate(whole)
        self._file.seek(whole)
        return lines

    def write(self, line: dict[str, Any]) -> None:
        """Add a line."""
        # one unbuffered write: after a kill the file ends with whole lines and at most one torn one
        text = json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        try:
            if self._file.write(text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise InstanceError(f"{self.path}: cannot be written: {error.strerror}") from None

    def close(self) -> None:
        """Close the file; another run may write then."""
        self._file.close()
