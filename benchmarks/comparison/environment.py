"""Virtual environments for packages that the project itself does not need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def python_with(directory: Path, packages: Sequence[str]) -> Path | None:
    """The interpreter of an environment with these packages, which is made if needed.

    None if a package can't be installed; uv has said why on stderr.
    """
    python = directory / "bin" / "python"
    stamp = directory / "packages"
    if stamp.exists() and stamp.read_text() == "\n".join(packages):
        return python
    directory.parent.mkdir(parents=True, exist_ok=True)
    uv = [sys.executable, "-m", "uv"]
    for command in (
        [*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(directory)],
        [*uv, "pip", "install", "--quiet", "--python", str(python), *packages],
    ):
        if subprocess.run(command).returncode:
            return None
    stamp.write_text("\n".join(packages))
    return python
