"""Notebooks are stored without output and run on this interpreter. pytest itself runs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_output_and_the_default_kernel(path: Path) -> None:
    notebook = json.loads(path.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


def test_the_default_kernel_is_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")  # as make does
    assert KernelManager(kernel_name="python3").format_kernel_cmd()[0] == sys.executable
