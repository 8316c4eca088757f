"""Notebooks run from top to bottom, and are kept without outputs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the kernel's own packages
        notebook = nbformat.read(path, as_version=4)
        client = NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
        )
        client.execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_outputs_are_stripped(path: Path) -> None:
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], f"{path.name}: cell {number} holds outputs"
            assert cell["execution_count"] is None, f"{path.name}: cell {number} is numbered"
            assert not cell["metadata"].get("execution"), f"{path.name}: cell {number} holds times"
