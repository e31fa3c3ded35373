"""`make lab-cluster-package`: an archive of our code and its packages for Spark's executors.

It holds `acid_platform` and those installed packages of this environment that tasks import, in the
versions of this environment. Spark copies it to every executor when ACID_SPARK_ARCHIVE names it
(docs/grow.md). The executors' machines need Python of the same minor version and Java.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import acid_platform

ROOT = Path(__file__).resolve().parent.parent
TASK_PACKAGES = ("duckdb", "isal", "numpy", "pandas", "pyarrow", "pyorc", "sqlglot")
"""What tasks import, besides what these need. PySpark itself is part of a Spark installation."""
_TESTS = re.compile(r"(^|/)(tests|__pycache__|include)(/|$)")
"""Half of these packages' bytes, which no task needs."""


def needed() -> list[metadata.Distribution]:
    """The installed packages that tasks need, with those that they depend on."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(TASK_PACKAGES)
    while waiting:
        name = _plain(waiting.pop())
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        for requirement in found[name].requires or ():
            if ";" not in requirement:  # conditions are extras here, or other systems
                waiting.append(requirement)
    return [found[name] for name in sorted(found)]


def _plain(requirement: str) -> str:
    matched = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert matched
    return re.sub(r"[-_.]+", "-", matched[0]).lower()


def files() -> Iterator[tuple[Path, str]]:
    """Each file, and its path in the archive."""
    (package,) = map(Path, acid_platform.__path__)
    for path in sorted(package.rglob("*")):
        name = str(path.relative_to(package.parent))
        if path.is_file() and not _TESTS.search(name):
            yield path, name
    for distribution in needed():
        for entry in distribution.files or ():
            name, path = str(entry), Path(str(distribution.locate_file(entry)))
            if not name.startswith("..") and not _TESTS.search(name) and path.is_file():
                yield path, name


def make(out: Path) -> int:
    """Writes the archive, which appears when it is complete; returns its bytes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f"{out.name}.part")
    with gzip.open(part, "wb", compresslevel=1) as stream, tarfile.open(None, "w", stream) as tar:
        for path, name in files():
            tar.add(path, name, recursive=False)
    part.replace(out)
    return out.stat().st_size


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.cluster_package", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "cluster" / "acid-environment.tar.gz"
    )
    out: Path = parser.parse_args(arguments).out.resolve()
    size = make(out)
    packages = ", ".join(f"{found.name} {found.version}" for found in needed())
    print(f"acid_platform, {packages}: {size / 1e6:.0f} MB")
    print(f"export ACID_SPARK_ARCHIVE={out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
