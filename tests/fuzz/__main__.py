"""`make lab-fuzz MINUTES=5 DOOR=orc`: feeds doors with inputs that coverage guides.

Each door runs in a process of its own, under atheris, with limits of memory and time. Exceptions of
Python are counted by the place that raises them, and the process goes on. If it ends, such as by a
crash or by an input that takes too long, another one goes on. Inputs that find something stay in
`--home`, which also keeps what the doors have learnt. The last line is JSON, and the exit code is 1
if anything was found.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fuzz.doors import CORPUS, DOORS, LARGEST_MEMORY, LONGEST_SECONDS

_MOST_ENDS = 10
"""After so many ends of its process a door is left."""
_ENDED = {
    "timeout": f"took longer than {LONGEST_SECONDS} s",
    "oom": f"needed more than {LARGEST_MEMORY >> 20} MiB",
    "crash": "ended the process",
}


def fuzz(door: str, seconds: float, home: Path) -> dict[str, Any]:
    """What became of a door's inputs within so many seconds."""
    learnt, found = home / door / "learnt", home / door / "found"
    for directory in (learnt, found):
        directory.mkdir(parents=True, exist_ok=True)
    inputs, ends, end = 0, dict[str, int](), time.monotonic() + seconds
    while (left := end - time.monotonic()) > 1 and sum(ends.values()) < _MOST_ENDS:
        log = home / door / "log"
        command = [
            sys.executable, "-m", "tests.fuzz.guided", door, str(found), str(learnt),
            str(CORPUS / door), f"-max_total_time={max(1, int(left))}",
            f"-timeout={LONGEST_SECONDS}", f"-rss_limit_mb={LARGEST_MEMORY >> 20}",
            f"-max_len={DOORS[door].longest}", f"-artifact_prefix={found}/", "-print_final_stats=1",
        ]  # fmt: skip
        with log.open("wb") as stream:
            code = subprocess.run(
                command, stdout=stream, stderr=stream, cwd=CORPUS.parents[2], check=False
            ).returncode
        text = log.read_text(errors="replace")
        counted = [int(number) for number in re.findall(r"^(?:counted |#)(\d+)", text, re.M)]
        inputs += max(counted, default=0)
        if code == 0:
            break
        artifact = re.search(r"written to \S*/(timeout|oom|crash)-", text)
        kind = _ENDED[artifact[1]] if artifact else f"did not run: {text[-500:]}"
        ends[kind] = ends.get(kind, 0) + 1
        if artifact is None:
            break
    raised: dict[str, int] = {}
    for file in found.glob("*.kind"):
        kind, _, count = file.read_text().rpartition(" ")
        raised[kind] = int(count)
    return {"inputs": inputs, "learnt": len([*learnt.iterdir()]), "found": {**raised, **ends}}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make lab-fuzz", description=__doc__)
    parser.add_argument("doors", nargs="*", metavar="DOOR", help=f"of {', '.join(DOORS)}; or all")
    parser.add_argument("--minutes", type=float, default=1, help="for each door")
    parser.add_argument("--home", type=Path, default=Path("build/fuzz"))
    chosen = parser.parse_args()
    if unknown := sorted({*chosen.doors} - {*DOORS}):
        parser.error(f"there is no door {unknown[0]}; doors are {', '.join(DOORS)}")
    told = {}
    for door in chosen.doors or DOORS:
        told[door] = fuzz(door, 60 * chosen.minutes, chosen.home.absolute())
        print(door, json.dumps(told[door]), file=sys.stderr, flush=True)
    print(json.dumps({"minutes": chosen.minutes, "doors": told}))
    return int(any(one["found"] for one in told.values()))


if __name__ == "__main__":
    for name in ("ACID_WAREHOUSE", "ACID_METASTORE", "DAGSTER_HOME"):
        os.environ.pop(name, None)
    sys.exit(main())
