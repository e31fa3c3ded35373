"""Hive 3.1.3's own reader on the directories of tables with the layout hive3.

Hive 3 can't use the gateway: its client does not go by write ids that another metastore gives out.
So it gets directories, and the lists of valid write ids and transactions.
"""

from __future__ import annotations

import argparse
import subprocess
from contextlib import suppress
from pathlib import Path

from acid_platform import AlreadyScheduled, Table, Warehouse
from acid_platform.layout.names import parse_partition
from acid_platform.services import cleaner
from tests.conftest import temporary_warehouse
from tests.interop.hive import OPEN, jars
from tests.interop.report import Report
from tests.interop.tables import HIVE3, Maker
from tests.interop.trino import java_home
from tests.interop.values import hive_rows, our_rows

VERSION = "3.1.3"
_HERE = Path(__file__).parent / "hive"
_ALL_TXNS = "9223372036854775807:9223372036854775807::"
_KINDS = (
    Maker.plain,
    Maker.minor,
    Maker.major,
    Maker.parts,
    Maker.dated,
    Maker.bucketed,
    Maker.bucketed_by_text,
    Maker.aborted,
    Maker.overwritten,
    Maker.emptied,
    Maker.truncated,
    Maker.fresh,
    Maker.evolved,
)


class Reader:
    """A process with Hive's reader."""

    def __init__(self, home: Path) -> None:
        """Raises Unavailable."""
        lib, jdk = jars(home, VERSION), java_home(8, 17, f"Hive {VERSION}")
        command = [
            str(jdk / "bin" / "java"),
            "-Xmx1g",
            "-XX:TieredStopAtLevel=1",
            *(f"--add-opens={name}=ALL-UNNAMED" for name in OPEN),
            "-Duser.timezone=UTC",
            "-cp",
            f"{lib}/*",
            str(_HERE / "ReadDirectories.java"),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )

    def rows(self, directory: str, table: Table) -> list[str]:
        """The lines of a table or partition, without partition columns."""
        assert self._process.stdin is not None and self._process.stdout is not None
        names, kinds = zip(*table.record.columns, strict=True)
        seen = str(table.snapshot().write_ids)
        asked = [directory, ",".join(names), ":".join(kinds), seen, _ALL_TXNS]
        self._process.stdin.write("\t".join(asked) + "\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            text = line.rstrip("\n")
            if text in ("==ok", "==failed"):
                return lines
            lines.append(text)
        raise EOFError("Hive's reader ended")

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def with_hive3(chosen: argparse.Namespace, work: Path) -> Report:
    """Raises Unavailable."""
    report = Report(f"Hive {VERSION}", chosen.log)
    reader = Reader(chosen.home)
    try:
        with temporary_warehouse(work / "wh", engine="local") as warehouse:
            maker = Maker(warehouse)
            for make in _KINDS:
                make(maker, make.__name__, HIVE3)
            _read(warehouse, reader, report, "as written,")
            for number, make in enumerate(_KINDS):
                table = warehouse.table(f"db.{make.__name__}")
                for partition in table.partitions() or [None]:
                    kind = "minor" if number % 3 == 0 else "major"
                    with suppress(AlreadyScheduled):  # nothing was written since the last one
                        table.compact(kind, partition=partition)
            warehouse.release()
            cleaner.run(warehouse.metastore)
            _read(warehouse, reader, report, "compacted and cleaned,")
    finally:
        reader.stop()
    return report


def _read(warehouse: Warehouse, reader: Reader, report: Report, when: str) -> None:
    for make in _KINDS:
        table = warehouse.table(f"db.{make.__name__}")
        ours, schema = our_rows(warehouse, table.name)
        location = table.location
        theirs: list[str] = []
        for partition in table.partitions() or [""]:
            columns = [name for name, _ in table.record.partition_columns]
            parsed = parse_partition(partition, columns) if partition else ()
            values = "".join(f"\t{'NULL' if one is None else one}" for one in parsed or ())
            lines = reader.rows(f"{location}/{partition}".rstrip("/"), table)
            theirs += [line + values for line in lines]
        try:
            read = hive_rows(theirs, schema)
        except ValueError as error:  # a line of an error
            read = [f"{error}: {theirs[-1:]}"]
        report.compared(f"{when} {make.__name__}", ours, read)
