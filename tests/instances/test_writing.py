"""Writing files: what is there already keeps its kind, its links and its permissions."""

from __future__ import annotations

import gzip
import os
import stat
import threading

import pytest

from apportion.instances import InstanceError
from apportion.instances.files import write_bytes, write_json

pytestmark = pytest.mark.quick


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "deep").mkdir()
    target = tmp_path / "deep" / "target.json"
    target.write_text("old")
    link, further = tmp_path / "link.json", tmp_path / "further.json"
    link.symlink_to("deep/target.json")
    further.symlink_to(link)
    write_json(further, [1])
    assert further.is_symlink()
    assert link.is_symlink()
    assert target.read_text() == "[1]\n"
    assert sorted(path.name for path in target.parent.iterdir()) == ["target.json"]


def test_a_link_to_nothing_makes_its_file(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("new")
    write_bytes(link, b"x")
    assert link.is_symlink()
    assert (tmp_path / "new").read_bytes() == b"x"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_permissions_are_kept(tmp_path, mode):
    path = tmp_path / "secret.json.gz"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_bytes(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert gzip.decompress(path.read_bytes()) == b"new"


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_bytes(link, b"x" * 200_000)
    reader.join(20)
    assert got == [b"x" * 200_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_links_in_a_circle_are_refused_in_a_line(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(InstanceError, match="a: cannot be written: "):
        write_bytes(tmp_path / "a", b"x")
    assert (tmp_path / "a").is_symlink()
