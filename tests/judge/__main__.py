"""`python -m tests.judge FILES`: judges a recorded history; ends with 1 if its level excludes it.

`--elle elle-cli.jar` and `--dbcop dbcop` print what those published checkers say of the same files.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.judge.published_checkers import ask_dbcop, ask_elle
from tests.judge.recorded import load
from tests.judge.verdict import LEVELS, PROMISED, judge


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.judge", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="JSON lines, of one history")
    parser.add_argument("--level", choices=sorted(LEVELS), default=PROMISED)
    parser.add_argument("--elle", type=Path, help="elle-cli's jar")
    parser.add_argument("--dbcop", type=Path, help="the program dbcop")
    chosen = parser.parse_args()
    history = load(*chosen.files)
    verdict = judge(history)
    print(verdict)
    excluded = verdict.against(chosen.level)
    print(f"{len(excluded)} anomalies that {chosen.level} excludes")
    with tempfile.TemporaryDirectory(prefix="acid-judge-") as name:
        scratch = Path(name)
        if chosen.elle:
            level = chosen.level.replace(" ", "-")
            for model, answer in ask_elle(chosen.elle, history, level, scratch).items():
                print(f"Elle, {model}: {answer}")
        if chosen.dbcop:
            level = chosen.level.removeprefix("strong ").removeprefix("strict ").replace(" ", "-")
            print(f"dbcop: {ask_dbcop(chosen.dbcop, history, level, scratch / 'dbcop')}")
    return 1 if excluded else 0


if __name__ == "__main__":
    sys.exit(main())
