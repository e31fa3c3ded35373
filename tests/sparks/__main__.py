"""`make lab-test-sparks`: the suites that use Spark, with each version that the platform serves.

    python -m tests.sparks [--versions 4.1.4 ...] [--suites engine ...] [--cache DIR] [-- PYTEST...]

Each version has an environment of its own in the cache: the packages of the lock, but that PySpark.
The result of the day gets what this run measured; what it did not measure stays.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import machine, save
from tests.sparks.environments import ROOT, environment
from tests.sparks.peers import peers_of
from tests.sparks.report import Outcome, merged, outcome, table

VERSIONS = ("4.0.5", "4.1.4", "4.2.1", importlib.metadata.version("pyspark"))
"""The newest of each minor version on 2026-11-27, and the one of the lock."""
FAST = "spark and not slow and not soak"
SUITES: dict[str, tuple[str, ...]] = {
    "engine": ("-m", FAST, "tests/engine"),
    "sql": ("-m", FAST, "tests/sql"),
    "compaction": ("-m", FAST, "tests/compaction"),
    "history": ("-m", FAST, "tests/history"),
    "stream": ("-m", "not soak", "tests/spark_source"),
    "cluster": ("-m", "not slow and not soak", "tests/cluster/on_cluster.py"),
    "peers": ("-m", "not soak", "tests/sparks/with_peers.py"),
}
"""What pytest runs in each, in a process of its own."""


def run(python: Path, suite: str, more: Sequence[str]) -> Outcome:
    """Runs a suite with this interpreter and prints what it prints."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        quiet = ("-q", "--no-header", "--tb=short", "-p", "no:cacheprovider")
        command = [str(python), "-m", "pytest", *quiet, f"--junitxml={report}", *SUITES[suite]]
        environ = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        environ["PATH"] = f"{python.parent}{os.pathsep}{environ.get('PATH', '')}"
        done = subprocess.run([*command, *more], cwd=ROOT, env=environ, check=False)
        if not report.exists():
            raise SystemExit(f"pytest ended with {done.returncode} and told nothing of {suite}")
        return outcome(report)


def main(arguments: Sequence[str] | None = None) -> int:
    """Answers 1 if a test failed or a version can't be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(
        prog="make lab-test-sparks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--versions", nargs="+", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--suites", nargs="+", default=list(SUITES), choices=SUITES)
    parser.add_argument("--cache", type=Path, default=cache / "acid-platform" / "sparks")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("more", nargs="*", metavar="-- PYTEST", help="more options of pytest")
    options = parser.parse_args(arguments)
    date = datetime.date.today().isoformat()
    path = options.out / f"{date}-sparks.json"
    failed = False
    for version in options.versions:
        python = environment(version, options.cache.absolute())
        if python is None:
            print(f"Spark {version} can't be had: see above", file=sys.stderr)
            failed = True
            continue
        for suite in options.suites:
            if suite == "peers" and not peers_of(version):
                print(f"--- Spark {version}: Iceberg and Delta have no build for it")
                continue
            print(f"--- Spark {version}: {suite}", flush=True)
            found = run(python, suite, options.more)
            failed |= bool(found["failed"]) or not found["passed"]
            now = {"date": date, "machine": machine(), "sparks": {version: {suite: found}}}
            before = json.loads(path.read_text()) if path.exists() else {}
            result = merged(before, now)
            save(path, result)
            path.with_suffix(".md").write_text(table(result))
    if path.exists():
        print(path.with_suffix(".md").read_text())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
