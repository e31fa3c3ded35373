"""`python -m tests.interop.direct [--home DIR]`: register and adopt with a real metastore of Hive.

Our tables are registered in it, and a second warehouse adopts what it tells: it has to read the
same rows. Where it can't be had, nothing is tested and a message says so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from acid_platform import Warehouse
from acid_platform.gateway.adopting import adopt_database
from acid_platform.gateway.hive_client import Hive
from acid_platform.gateway.registering import Registered, register
from tests.conftest import temporary_warehouse
from tests.gateway.direct_tables import READABLE, make_tables, put, rows
from tests.interop.hive_metastore import VERSION, HiveMetastore
from tests.interop.trino import Unavailable

ROOT = Path(__file__).resolve().parent.parent.parent


class Checks:
    """Prints a line for each check."""

    def __init__(self) -> None:
        self.failed = 0

    def check(self, what: str, good: bool, detail: object = "") -> None:
        self.failed += not good
        print(f"{'ok  ' if good else 'BAD '} {what}" + ("" if good else f": {detail}"), flush=True)


def registered(ours: Warehouse, hive: Hive, again: bool = False) -> dict[str, Registered]:
    return {row.table: row for row in register(ours.metastore, hive, again=again)}


def run(checks: Checks, ours: Warehouse, scratch: Path, metastore: HiveMetastore) -> None:
    with Hive(metastore.address) as hive:
        began = time.monotonic()
        told = registered(ours, hive)
        seconds = time.monotonic() - began
        for name in READABLE:
            row = told[name]
            checks.check(f"{name} registered", row.result == "registered", row)
        checks.check(f"{len(told)} tables in {seconds:.1f} s", True)
        again = registered(ours, hive)
        unchanged = {again[name].result for name in READABLE} == {"up to date"}
        checks.check("a second run changes nothing", unchanged, again)
        _adopted(checks, ours, hive, scratch / "first")
        put(ours.table("s.plain"), (7, "late", None))
        put(ours.table("s.parts"), (8, "late", "new one"))
        ours.table("s.plain").compact("major", wait=True)
        later = registered(ours, hive)
        changed = [name for name in READABLE if later[name].result == "registered"]
        checks.check("what changed is brought up", changed == ["s.parts", "s.plain"], changed)
        _adopted(checks, ours, hive, scratch / "second")
        (txn,) = hive.open(1, "somebody")
        hive.allocate("s", "plain", [txn])
        hive.commit(txn)
        differs = registered(ours, hive)["s.plain"]
        checks.check("a foreign write is noticed", "--again" in differs.note, differs)
        anew = registered(ours, hive, again=True)
        others = [name for name in READABLE if name != "s.plain"]
        good = {anew[name].result for name in others} == {"registered"}
        checks.check("--again makes the others anew", good, anew)
        # Hive's metastore keeps the write ids of a table that is dropped without its files.
        kept = "rename the table here" in anew["s.plain"].note
        checks.check("a foreign write can't be undone there", kept, anew["s.plain"])
        ours.sql("ALTER TABLE s.plain RENAME TO s.renamed")
        renamed = registered(ours, hive)["s.renamed"]
        checks.check("under another name it is", renamed.result == "registered", renamed)
        _adopted(checks, ours, hive, scratch / "third")


def _adopted(checks: Checks, ours: Warehouse, hive: Hive, path: Path) -> None:
    """Another warehouse reads what Hive was told of."""
    with temporary_warehouse(path, engine="local") as other:
        began = time.monotonic()
        told = list(adopt_database(other.metastore, hive, "s", registered=True))
        seconds = time.monotonic() - began
        refused = [row for row in told if row.refused]
        checks.check(f"{len(told)} tables adopted in {seconds:.1f} s", not refused, refused)
        for name in READABLE:
            if name in other.tables():
                same = rows(other, name) == rows(ours, name)
                checks.check(f"{name} has the same rows", same, rows(other, name))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.direct")
    parser.add_argument("--home", type=Path, default=ROOT / "var" / "interop")
    chosen = parser.parse_args()
    chosen.home.mkdir(parents=True, exist_ok=True)
    checks = Checks()
    with tempfile.TemporaryDirectory() as name:
        scratch, metastore = Path(name), None
        try:
            metastore = HiveMetastore(chosen.home, scratch / "hive")
            metastore.await_start()
            print(f"Hive {VERSION}'s metastore at {metastore.address}", flush=True)
            with temporary_warehouse(scratch / "our wh", engine="local") as ours:
                make_tables(ours)
                run(checks, ours, scratch, metastore)
        except Unavailable as missing:
            print(f"direct: skipped: {missing}", file=sys.stderr)
            return 0
        finally:
            if metastore is not None:
                metastore.stop()
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
