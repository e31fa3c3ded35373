"""An environment for each version of Spark: the packages of the lock, but that PySpark."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from scripts.packages import STORED, chosen_extras, requirements

ROOT = Path(__file__).resolve().parents[2]


def needed(version: str, lock: str) -> str:
    """The part of a lock with PySpark in this version, of whose file no hash is known."""
    entry = re.compile(r"^pyspark\[connect\]==.*?(?=^[a-z0-9])", re.MULTILINE | re.DOTALL)
    changed, count = entry.subn(f"pyspark[connect]=={version}\n", lock)
    if count != 1:
        raise ValueError(f"the lock has {count} entries of pyspark[connect]")
    return changed


def environment(version: str, cache: Path) -> Path | None:
    """The Python of this version's environment, which is made if needed.

    None if a package can't be had; uv has said why on stderr.
    """
    directory = cache / f"spark-{version}"
    python, stamp = directory / "bin" / "python", directory / "stamp"
    packages = needed(version, requirements(ROOT, chosen_extras(ROOT, os.environ)))
    digest = hashlib.sha256(packages.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return python
    cache.mkdir(parents=True, exist_ok=True)
    listed = cache / f"spark-{version}.txt"
    listed.write_text(packages)
    uv = [sys.executable, "-m", "uv"]
    for command in (
        [*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(directory)],
        [
            *(*uv, "pip", "sync", "--quiet", "--python", str(python)),
            *("--config-settings-package", f"pyspark:{STORED}", str(listed)),
        ],
    ):
        if subprocess.run(command, check=False).returncode:
            return None
    stamp.write_text(digest)
    return python
