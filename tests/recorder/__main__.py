"""`make lab-judge MINUTES=5`: records histories for so many minutes under faults, and judges each.

Ends with 1 if a history has an anomaly that the promised level excludes, or a client got an error
that no fault explains. `--teeth` runs with each switched-off rule in turn, and ends with 1 if one
is overlooked. The result goes to benchmarks/results.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.results import machine, save
from tests.judge.verdict import LEVELS, ON_REQUEST, PROMISED
from tests.recorder.rounds import KINDS, OF_SPARK, SERIALIZABLE, Rounds, RunFailed
from tests.recorder.service import LOGS
from tests.recorder.switched_off import TEETH, caught

ROUND_SECONDS = 60.0
ROUND_SECONDS_WITH_SPARK = 600.0
"""Its JVM and its first query take many of them on a busy machine."""
_SHORTEST = 5.0
_SHOWN = 20


def record(
    place: Path,
    minutes: float,
    seed: int,
    log: str,
    kinds: tuple[str, ...],
    trusting: bool,
    level: str,
) -> dict[str, Any]:
    """Rounds until the time is over; the result of all. Raises RunFailed."""
    long = not {*kinds}.isdisjoint(OF_SPARK)
    rounds = Rounds(place, seed, kinds, log, trusting=trusting, level=level)
    allowed: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    texts: list[str] = []
    levels = {*LEVELS}
    deadline = time.monotonic() + 60 * minutes
    try:
        while (left := deadline - time.monotonic()) > _SHORTEST:
            result = rounds.run(min(ROUND_SECONDS_WITH_SPARK if long else ROUND_SECONDS, left))
            verdict = result.verdict
            levels &= {*verdict.levels()}
            allowed += Counter(verdict.counts()) - result.anomalies()
            findings += result.findings()
            texts += result.texts()
            print(
                f"{verdict.transactions} transactions, {verdict.committed} committed,"
                f" findings: {dict(result.findings()) or 0}",
                flush=True,
            )
    finally:
        rounds.close()
    return {
        "level": level,
        "minutes": minutes,
        "seed": seed,
        "log": log,
        "clients": [*rounds.kinds],
        "counts": dict(sorted(rounds.counts.items())),
        "errors": dict(rounds.errors.most_common()),
        "findings": dict(findings),
        "texts": texts[:_SHOWN],
        "anomalies that the level allows": dict(allowed),
        "levels that nothing speaks against": sorted(levels),
    }


def bite(place: Path, chosen: str) -> dict[str, dict[str, int]]:
    """What each switched-off rule is caught by, or those with the chosen id or name.

    Raises RunFailed, also if none has it.
    """
    results = {}
    for number, one in enumerate(TEETH):
        name = f"{one.rule}: {one.what}"
        if chosen in ("", one.rule, name):
            (place / str(number)).mkdir()
            results[name] = caught(one, place / str(number))
            print(f"{name}: {results[name] or 'OVERLOOKED'}", flush=True)
    if not results:
        raise RunFailed(f"no rule to be switched off is called {chosen!r}, such as {TEETH[0].rule}")
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.recorder", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--log", choices=LOGS, default="local", help="where the metastore's log lies"
    )
    parser.add_argument(
        "--spark", action="store_true", help="clients with Spark, and its streams, too"
    )
    parser.add_argument(
        "--clients",
        nargs="+",
        choices=sorted({*KINDS, *OF_SPARK}),
        help="the kinds of the clients, one word for each client",
    )
    parser.add_argument(
        "--serializable", action="store_true", help=f"all transactions are, which is {ON_REQUEST}"
    )
    parser.add_argument(
        "--trusting",
        action="store_true",
        help="reads by Thrift count even if their transaction was reaped meanwhile",
    )
    parser.add_argument(
        "--teeth", nargs="?", const="", help="with each switched-off rule instead, or with this one"
    )
    parser.add_argument("--keep", type=Path, help="an empty directory, which stays")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args()
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    with tempfile.TemporaryDirectory(prefix="acid-recorder-") as temporary:
        place = chosen.keep or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        try:
            if chosen.teeth is not None:
                results = bite(place, chosen.teeth)
                save(chosen.out / f"{day}-judge-teeth.json", {"caught": results})
                return 0 if all(results.values()) else 1
            usual = SERIALIZABLE if chosen.serializable else KINDS
            kinds = (*(chosen.clients or usual), *(OF_SPARK if chosen.spark else ()))
            level = ON_REQUEST if chosen.serializable else PROMISED
            result = record(
                place, chosen.minutes, chosen.seed, chosen.log, kinds, chosen.trusting, level
            )
        except RunFailed as failed:
            print(f"FAILED: {failed}")
            return 1
    for name in ("counts", "errors", "levels that nothing speaks against"):
        print(f"{name}: {result[name]}")
    name = f"{day}-judge-{chosen.log}{'-serializable' * chosen.serializable}.json"
    save(chosen.out / name, {"machine": machine(), **result})
    for text in result["texts"]:
        print(f"WRONG {text}")
    return 1 if result["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
