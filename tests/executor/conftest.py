"""Helpers of these tests, loaded by path: the folder is no package."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def load(path: Path):
    name = f"apportion_test_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def load_helper():
    return lambda name: load(HERE / name)


@pytest.fixture(scope="session")
def toys():
    return load(HERE / "toys.py")


@pytest.fixture(scope="session")
def oracle():
    return load(HERE / "oracle.py")


@pytest.fixture(scope="session")
def replay():
    return load(ROOT / "benchmarks" / "replay.py")


@pytest.fixture(scope="session")
def philly():
    data = Path(os.environ.get("APPORTION_DATA", ROOT.parent / "shared" / "data"))
    path = data / "philly" / "philly_jobs.csv.gz"
    if not path.exists():
        pytest.skip(f"no Philly table at {path}")
    return path
