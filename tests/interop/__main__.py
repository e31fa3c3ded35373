"""`make interop`: real engines read and write our tables through the gateway, and both sides agree.

    python -m tests.interop [--home DIR] [--engines NAMES] [--races N] [--record] [--out FILE]

Maven fetches the engines once into `--home` (Trino: 821 MB). An engine that can't be had is
skipped, and a message says what is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from acid_platform.gateway.protocol import load
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from acid_platform.warehouse import Warehouse
from tests.conftest import temporary_warehouse
from tests.interop.gateways import Observed, serving
from tests.interop.report import Report
from tests.interop.tables import KINDS, make_tables
from tests.interop.trino import Trino, Unavailable
from tests.interop.with_trino import WithTrino, record

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDED = ROOT / "tests" / "gateway" / "recorded"


def compact_and_clean(warehouse: Warehouse, report: Report) -> None:
    """Compacts every table with our Worker, and removes what was replaced."""
    for number, name in enumerate(KINDS):
        table = warehouse.table(f"db.{name}")
        for partition in table.partitions() or [None]:
            table.compact("minor" if number % 3 == 0 else "major", partition=partition)
    cleaner.run(warehouse.metastore)
    found = examine(warehouse.metastore, warehouse=warehouse.path).findings
    errors = [str(one) for one in found if str(one).startswith("error")]
    report.check("fsck finds no error", not errors, errors)


def with_trino(chosen: argparse.Namespace, work: Path) -> Report:
    """Raises Unavailable."""
    report = Report("Trino 476", chosen.log)
    fresh = work / "fresh"
    with (
        temporary_warehouse(work / "wh") as warehouse,
        temporary_warehouse(fresh, engine="local") as other,
        serving(warehouse) as (gateway, address),
        serving(other) as (second, recorded),
    ):
        trino = Trino(chosen.home, work / "trino", {"acid": address, "recorded": recorded})
        try:
            refused = make_tables(warehouse)
            report.check(f"{len(KINDS)} kinds of tables are made", not refused, refused)
            trino.await_start()
            began = time.perf_counter()
            checks = WithTrino(warehouse, trino, gateway, report)
            checks.reads("as written,")
            checks.changes()
            compact_and_clean(warehouse, report)
            checks.reads("compacted and cleaned,")
            checks.definitions()
            checks.races(chosen.races)
            print(f"{time.perf_counter() - began:.0f} s with Trino")
            if chosen.record:
                record(other, trino, second, RECORDED / "trino-476.jsonl")
            show_latency(gateway)
        finally:
            trino.stop()
    return report


def show_latency(gateway: Observed) -> None:
    for name, (count, median) in gateway.medians().items():
        print(f"     {name:40} {count:6} calls, median {median:6.1f} ms")


ENGINES: dict[str, Callable[[argparse.Namespace, Path], Report]] = {"trino": with_trino}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make interop")
    parser.add_argument("--home", type=Path, default=ROOT / "var" / "interop")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--races", type=int, default=5)
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "interop.jsonl")
    parser.add_argument("--out", type=Path, help="write the result as JSON there")
    parser.add_argument("--record", action="store_true", help="renew the recordings for make test")
    chosen = parser.parse_args()
    load()
    chosen.home.mkdir(parents=True, exist_ok=True)
    chosen.log.parent.mkdir(parents=True, exist_ok=True)
    chosen.log.write_text("")
    RECORDED.mkdir(exist_ok=True)
    reports: list[Report] = []
    for name in chosen.engines.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                reports.append(ENGINES[name](chosen, Path(scratch)))
            except Unavailable as missing:
                print(f"interop: {name} is skipped: {missing}", file=sys.stderr)
    for one in reports:
        print(json.dumps(one.shown()))
    if chosen.out:
        chosen.out.write_text(json.dumps([one.shown() for one in reports], indent=1) + "\n")
    passed = sum(one.equal + one.done for one in reports)
    failed = sum(len(one.failures) for one in reports)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
