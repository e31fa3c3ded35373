"""`make lab-interop`: real engines use our tables through the gateway, and both sides agree.

    python -m tests.interop [--home DIR] [--engines NAMES] [--races N] [--record] [--out FILE]
    python -m tests.interop --races N --only-races [--home DIR] [--engines NAMES]
    python -m tests.interop --history MINUTES [--home DIR] [--engines NAMES] [--seed N] [--out FILE]

Maven fetches the engines once into `--home` (Trino: 821 MB). An engine that can't be had is
skipped, and a message says what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random, SystemRandom

from acid_platform import AlreadyScheduled, Warehouse
from acid_platform.gateway.protocol import load
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from tests.conftest import temporary_warehouse
from tests.interop import (
    history,
    hive3,
    hive_statements,
    participants,
    publications,
    trino_statements,
)
from tests.interop.checks import Checks, record
from tests.interop.gateways import Observed, serving
from tests.interop.history import History, gate_of
from tests.interop.hive import VERSIONS, Hive
from tests.interop.racing import ours, races
from tests.interop.report import Report
from tests.interop.tables import KINDS, make_of_two_statements, make_tables
from tests.interop.trino import VERSION, Trino, Unavailable
from tests.interop.values import hive_rows, trino_rows

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDED = ROOT / "tests" / "gateway" / "recorded"


def compact_and_clean(warehouse: Warehouse, report: Report) -> None:
    """Compacts every table with our Worker, and removes what was replaced."""
    for number, name in enumerate(KINDS):
        table = warehouse.table(f"db.{name}")
        for partition in table.partitions() or [None]:
            with suppress(AlreadyScheduled):  # nothing was written since the last one
                table.compact("minor" if number % 3 == 0 else "major", partition=partition)
    cleaner.run(warehouse.metastore)
    found = examine(warehouse.metastore, warehouse=warehouse.path).findings
    errors = [str(one) for one in found if str(one).startswith("error")]
    report.check("fsck finds no error", not errors, errors)


def with_trino(chosen: argparse.Namespace, work: Path) -> Report:
    """Raises Unavailable."""
    report = Report(f"Trino {VERSION}", chosen.log)
    with (
        temporary_warehouse(work / "wh") as warehouse,
        temporary_warehouse(work / "fresh", engine="local") as other,
        serving(warehouse) as (gateway, address),
        serving(other) as (second, recorded),
    ):
        trino = Trino(chosen.home, work / "trino", {"acid": address, "recorded": recorded})
        try:
            filled(warehouse, report)
            trino.await_start()
            checks = Checks(warehouse, gateway, report, trino.sql, trino_rows)
            checks.reads("as written,", trino_statements.UNREADABLE)
            checks.changes(trino_statements.CHANGES)
            checks.refuses(trino_statements.REFUSED)
            make_of_two_statements(warehouse, "two_statements")
            checks.fails("two_statements", "UPDATE two_statements SET v = v + 1")
            compact_and_clean(warehouse, report)
            checks.reads("compacted and cleaned,", trino_statements.UNREADABLE)
            publications.checked(checks, long_reads=True)
            checks.runs(trino_statements.DEFINITIONS)
            if chosen.record:
                run = partial(trino.sql, catalog="recorded", schema="made")
                statements = trino_statements.RECORDED
                target = RECORDED / f"trino-{VERSION}.jsonl"
                record(other, second, report.engine, statements, run, target)
            theirs = (trino.sql, "evolved")
            checks.races(chosen.races, "two of Trino", [theirs, theirs])
            checks.races(chosen.races, "Trino and this platform", [theirs, ours(warehouse)])
            show_latency(gateway)
        finally:
            trino.stop()
    return report


def with_hive(version: str, chosen: argparse.Namespace, work: Path) -> Report:
    """Raises Unavailable."""
    report = Report(f"Hive {version}", chosen.log)
    with (
        temporary_warehouse(work / "wh") as warehouse,
        serving(warehouse) as (gateway, address),
    ):
        hive = Hive(chosen.home, work / "hive", version, address, work / "wh")
        try:
            filled(warehouse, report)
            hive.sql("USE db")
            checks = Checks(warehouse, gateway, report, hive.sql, hive_rows)
            checks.reads("as written,")
            checks.changes(hive_statements.CHANGES)
            checks.refuses(hive_statements.REFUSED)
            compact_and_clean(warehouse, report)
            checks.reads("compacted and cleaned,")
            publications.checked(checks)
            checks.runs(hive_statements.STATEMENTS)
            theirs, second = (hive.sql, "db.evolved"), (hive.session().sql, "db.evolved")
            checks.races(chosen.races, "two of Hive", [theirs, second])
            checks.races(chosen.races, "Hive and this platform", [theirs, ours(warehouse)])
            show_latency(gateway)
        finally:
            hive.stop()
    if chosen.record:
        with (
            temporary_warehouse(work / "fresh", engine="local") as other,
            serving(other) as (second, recorded),
        ):
            hive = Hive(chosen.home, work / "recorded", version, recorded, work / "fresh")
            try:
                target = RECORDED / f"hive-{version}.jsonl"
                record(other, second, report.engine, hive_statements.RECORDED, hive.sql, target)
            finally:
                hive.stop()
    return report


def mixed(chosen: argparse.Namespace, work: Path) -> Report:
    """A history of all chosen engines and this platform. Raises Unavailable."""
    report = Report("mixed history", chosen.log)
    names = [name for name in chosen.engines.split(",") if name]
    os.environ.setdefault("ACID_SPARK_MEMORY", "1500m")
    with (
        temporary_warehouse(work / "wh", engine="local") as warehouse,
        gate_of(work / "wh", chosen.log.with_suffix(".gateway.log")) as gate,
        ExitStack() as running,
    ):
        for name, value in history.SETTINGS.items():
            warehouse.metastore.set(name, value)
        engines = [
            participants.ours("ours", work / "wh"),
            participants.ours("ours too", work / "wh"),
        ]
        for name in names:
            if name == "trino":
                trino = Trino(chosen.home, work / "trino", {"acid": gate.address})
                running.callback(trino.stop)
                trino.await_start()
                engines += [participants.of_trino(trino)]
            elif name == "spark":
                engines += [participants.ours("our Spark", work / "wh", "spark")]
            else:
                version = name.removeprefix("hive-")
                settings = history.SETTINGS
                hive = Hive(chosen.home, work / name, version, gate.address, work / "wh", settings)
                running.callback(shutil.copy, hive.log, chosen.log.with_suffix(f".{name}.log"))
                running.callback(hive.stop)
                engines += [participants.of_hive(f"Hive {version}", hive.session())]
        seed = chosen.seed if chosen.seed is not None else SystemRandom().randrange(10**6)
        told = History(warehouse, gate, engines, report, Random(seed))
        began = time.monotonic()
        try:
            told.run(60 * chosen.history)
        finally:
            minutes = round((time.monotonic() - began) / 60, 1)
            report.more |= {"seed": seed, "minutes": minutes, "counts": told.shown()}
            report.more["errors"] = dict(told.errors.most_common(20))
    return report


def filled(warehouse: Warehouse, report: Report) -> None:
    refused = make_tables(warehouse)
    report.check(f"{len(KINDS)} kinds of tables are made", not refused, refused)


def show_latency(gateway: Observed) -> None:
    for name, (count, median) in gateway.medians().items():
        print(f"     {name:40} {count:6} calls, median {median:6.1f} ms")


ENGINES: dict[str, Callable[[argparse.Namespace, Path], Report]] = {
    "trino": with_trino,
    **{f"hive-{version}": partial(with_hive, version) for version in VERSIONS},
    f"hive-{hive3.VERSION}": hive3.with_hive3,
}
MIXED = "trino,hive-4.0.1,spark"
"""The engines of a mixed history beside this platform's engine without a JVM."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make lab-interop")
    parser.add_argument("--home", type=Path, default=ROOT / "var" / "interop")
    parser.add_argument("--engines", help=f"default: {','.join(ENGINES)}; with --history {MIXED}")
    parser.add_argument("--races", type=int, default=5)
    parser.add_argument("--only-races", action="store_true", help="of all engines at once")
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "interop.jsonl")
    parser.add_argument("--out", type=Path, help="write the result as JSON there")
    parser.add_argument("--history", type=float, help="instead, a mixed history of so many minutes")
    parser.add_argument("--seed", type=int, help="of the mixed history")
    parser.add_argument("--record", action="store_true", help="renew the recordings for make test")
    chosen = parser.parse_args()
    chosen.engines = chosen.engines or (MIXED if chosen.history else ",".join(ENGINES))
    load()
    # Otherwise a SIGTERM, as of `timeout`, would leave the engines running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen.home.mkdir(parents=True, exist_ok=True)
    chosen.log.parent.mkdir(parents=True, exist_ok=True)
    chosen.log.write_text("")
    RECORDED.mkdir(exist_ok=True)
    reports: list[Report] = []
    if chosen.history:
        tasks = {"history": mixed}
    elif chosen.only_races:
        tasks = {"races": races}
    else:
        tasks = {name: ENGINES[name] for name in chosen.engines.split(",")}
    for name, task in tasks.items():
        # A metastore that was killed may be started again while the directory is removed.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            try:
                reports.append(task(chosen, Path(scratch)))
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
