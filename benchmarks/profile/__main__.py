"""The driver of `make lab-bench NAME=profile STATEMENT=...`; see the package.

Prints a table for each statement and writes it as JSON and Markdown; flame graphs of Python's main
thread and of the JVM's threads go to `build/profile`. Needs a JDK for the samples of the JVM.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.comparison import rows as source_rows
from benchmarks.comparison.driver import ROOT
from benchmarks.peers.__main__ import WARM_ROWS, absolute, interpreter
from benchmarks.peers.contenders import CONTENDERS
from benchmarks.peers.versions import CACHE, cache_directory
from benchmarks.profile import flame
from benchmarks.profile.report import markdown
from benchmarks.profile.worker import READS, STATEMENTS
from benchmarks.results import machine, save

CHOICES = ("all", *STATEMENTS, *READS)


def measure(arguments: argparse.Namespace, contender: str) -> dict[str, Any] | None:
    """The profile of a contender; None if its packages can't be had, or if it failed."""
    python = interpreter(contender, arguments.cache)
    if python is None:
        print(f"{contender} is left out: its packages can't be installed into {arguments.cache}")
        return None
    warm = min(arguments.rows, arguments.warm)
    for rows in {arguments.rows, warm}:
        source_rows.make(arguments.data / str(rows), rows)
    out = arguments.work / "profile" / f"{contender}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    wanted = [*STATEMENTS, *READS] if "all" in arguments.statement else arguments.statement
    command = [str(python), "-m", "benchmarks.profile.worker", contender, str(out)]
    for option in ("rows", "rounds", "reads", "data", "work"):
        command += [f"--{option}", str(getattr(arguments, option))]
    command += ["--warm", str(warm), "--statements", *wanted]
    environment = {
        "ACID_SPARK_MEMORY": "2g",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
        "PYSPARK_PYTHON": str(python),
        CACHE: str(arguments.cache),
    }
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}).returncode
    if code or not out.exists():
        print(f"{contender} failed with {code}: see above")
        return None
    content: dict[str, Any] = json.loads(out.read_text())
    for statement, profile in content["statements"].items():
        for kind, stacks in profile.pop("stacks").items():
            name = f"{contender}-{statement}-{kind}.svg".replace(", ", "-").replace(" ", "-")
            flame.write(out.parent / name, f"{contender}: {statement}", stacks)
    return content


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--statement", nargs="+", default=["all"], choices=CHOICES)
    parser.add_argument("--contenders", nargs="+", default=["ours"], choices=list(CONTENDERS))
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--warm", type=int, default=WARM_ROWS, help="rows of the warm-up")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--reads", type=int, default=5, help="repetitions of a read in a round")
    parser.add_argument("--add", action="store_true", help="to the results of the day and size")
    parser.add_argument("--cache", type=absolute, default=cache_directory(), help=f"or {CACHE}")
    parser.add_argument("--data", type=absolute, default=ROOT / "build" / "comparison")
    parser.add_argument("--work", type=absolute, default=ROOT / "build")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    today = datetime.date.today().isoformat()
    path = arguments.out / f"{today}-profile-{arguments.rows}.json"
    known = json.loads(path.read_text())["contenders"] if arguments.add and path.exists() else {}
    text = ""
    for contender in arguments.contenders:
        found = measure(arguments, contender)
        if not found:
            continue
        older = known.get(contender, {}).get("statements", {})
        found["statements"] = {**older, **found["statements"]}
        known[contender] = found
        content = {"date": today, "rows": arguments.rows, "contenders": known}
        content["machine"] = machine()
        save(path, content)
        text = markdown(content)
        path.with_suffix(".md").write_text(text)
    if not text:
        sys.exit("nothing was measured")
    print(text)
    print(f"Flame graphs: {arguments.work / 'profile'}")


if __name__ == "__main__":
    main()
