"""The virtual environment of the peers, whose packages the project itself does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGES = (
    "deltalake==1.6.6",
    "pyarrow>=22",
    "pytz",
    "duckdb==1.5.5",
    "duckdb-extension-ducklake==1.5.5",
)
"""DuckLake's package is not DuckDB's own; its file carries DuckDB's signature, which LOAD checks,
and its Python code is not imported."""


def peers_python(directory: Path) -> Path | None:
    """The interpreter of the peers' environment, which is made if needed; None if it can't be."""
    python = directory / "bin" / "python"
    stamp = directory / "packages"
    if stamp.exists() and stamp.read_text() == "\n".join(PACKAGES):
        return python
    commands = (
        [sys.executable, "-m", "uv", "venv", "--quiet", "--clear", str(directory)],
        [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)],
    )
    for command, packages in zip(commands, ((), PACKAGES), strict=True):
        if subprocess.run([*command, *packages]).returncode:
            return None
    stamp.write_text("\n".join(PACKAGES))
    return python
