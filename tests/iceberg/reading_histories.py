"""Random histories of ten tables, and the rows that each reader of Iceberg and DuckLake finds."""

from __future__ import annotations

import datetime
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.table import StaticTable

from acid_platform import Warehouse
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import AsOf
from acid_platform.services import cleaner
from tests.gateway.test_rest_catalog import serving
from tests.iceberg.histories import History
from tests.iceberg.plain_duckdb import PlainDuckDB

KINDS = (
    *(("", False, "7d"), ("p int", False, "7d"), ("p string", False, "7d")),
    *(("p date", False, "7d"), ("p decimal(5,2)", False, "7d"), ("", True, "7d")),
    *(("p int", True, "7d"), ("", False, "0"), ("p string", False, "0"), ("p date", True, "0")),
)
"""The partition column of each table, whether it is insert-only, and how long its past is kept."""
_EVERY, _OLDER = 10, 3
_NOT_TOLD = (
    "does not exist at version",
    "Snapshot not found",
    "snapshot ID not found",
    "snapshot with id",
    "No snapshot",
)
"""What readers say of a snapshot of an insert-only table whose columns had other names then."""

Finds = Callable[[str, int | None], pa.Table]
"""The rows of a table, now or at a snapshot."""


def texts(rows: pa.Table) -> list[str]:
    """The rows in an order of their own, with columns in the order of their names."""
    names = sorted(rows.column_names)
    return sorted(repr([_plain(row[name]) for name in names]) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value


class ReadHistories:
    """Tables that change, and what readers have found."""

    def __init__(
        self,
        warehouse: Warehouse,
        duckdb: PlainDuckDB | None,
        seed: int,
        log: Callable[[str], object] = lambda _: None,
        kinds: Sequence[tuple[str, bool, str]] = KINDS,
    ) -> None:
        self._warehouse, self._duckdb, self._log = warehouse, duckdb, log
        self._dice, self.seed = random.Random(seed), seed
        self._histories = {
            f"i.t{number}": History(warehouse, f"i.t{number}", seed * 100 + number, *kind)
            for number, kind in enumerate(kinds)
        }
        self._kept = [f"i.t{n}" for n, (_, _, retention) in enumerate(kinds) if retention != "0"]
        self.read = Counter[str]()
        """How many snapshots each reader read."""
        self.steps = Counter[str]()
        self.wrong: list[str] = []

    def commits(self, count: int) -> None:
        done, checked = 0, 0
        while done < count:
            name = self._dice.choice([*self._histories])
            kind = self._histories[name].step()
            done += bool(kind)
            self.steps[kind] += bool(kind)
            if done % _EVERY == 0 and done > checked:
                checked = done
                self._check(done)

    def _check(self, done: int) -> None:
        expected: dict[tuple[str, int], list[str]] = {}

        def ours(name: str, moment: int) -> list[str]:
            if (name, moment) not in expected:
                table = self._histories[name].table
                expected[name, moment] = texts(table.to_arrow(as_of=AsOf(moment=moment)))
            return expected[name, moment]

        turn = done // _EVERY % 3
        if turn == 1:  # what is not kept goes, and no reader may be told of it
            self._clean()
        older: dict[str, list[int]] = {}
        for name in self._histories if turn < 2 else self._kept:
            *past, newest = self._moments(name)
            older[name] = [*self._dice.sample(past, min(_OLDER, len(past))), newest]
        with self._readers() as readers:
            if turn == 2:  # who has loaded tables whose past is kept may go on
                self._clean()
            for reader, find in readers.items():
                for name, moments in older.items():
                    for moment in moments:
                        self._compare(reader, find, name, moment, ours)
        self._log(f"{done} commits: {dict(self.read)}, wrong: {len(self.wrong)}")

    def _clean(self) -> None:
        cleaner.run(self._warehouse.metastore)
        self.steps["clean"] += 1

    def _compare(
        self,
        reader: str,
        find: Finds,
        name: str,
        moment: int,
        ours: Callable[[str, int], list[str]],
    ) -> None:
        where = f"{reader} {name} at {moment}"
        try:
            found = texts(find(name, moment))
        except Exception as error:
            if self._histories[name].insert_only and _is_not_told(error):
                return
            self.wrong.append(f"{where}: {type(error).__name__}: {str(error)[:300]}")
        else:
            self.read[reader] += 1
            if found != ours(name, moment):
                self.wrong.append(f"{where}: {len(found)} rows")
        if self.wrong and self.wrong[-1].startswith(where):
            self._log(self.wrong[-1])

    def _moments(self, name: str) -> list[int]:
        return [each.moment for each in self._warehouse.metastore.call(ops.GetCommits(name))]

    @contextmanager
    def _readers(self) -> Iterator[dict[str, Finds]]:
        """Readers that have loaded all tables."""
        warehouse, readers = self._warehouse, dict[str, Finds]()
        files = {name: warehouse.export_iceberg(name).metadata for name in self._histories}
        with warnings.catch_warnings(), serving(warehouse) as server:
            warnings.simplefilter("ignore")
            loaded = {name: StaticTable.from_metadata(file) for name, file in files.items()}
            readers["pyiceberg"] = lambda name, at: loaded[name].scan(snapshot_id=at).to_arrow()
            readers["Polars"] = lambda name, at: (
                pl.scan_iceberg(loaded[name], snapshot_id=at).collect().to_arrow()
            )
            if self._duckdb is not None:
                readers |= self._of_duckdb(self._duckdb, server.address)
            yield readers

    def _of_duckdb(self, duckdb: PlainDuckDB, address: str) -> dict[str, Finds]:
        catalog = self._warehouse.export_ducklake().catalog
        by_rest = f"TYPE iceberg, ENDPOINT '{address}', AUTHORIZATION_TYPE 'none'"
        places = {
            "DuckDB by REST": ("acid", by_rest, ("avro", "httpfs", "iceberg")),
            "DuckDB by DuckLake": (f"ducklake:{catalog}", "READ_ONLY", ("ducklake",)),
        }
        attached = ""

        def find(reader: str, name: str, at: int | None) -> pa.Table:
            nonlocal attached
            if attached != reader:
                place, options, extensions = places[reader]
                duckdb.attach(place, options, *extensions)
                attached = reader
            return duckdb.table(f"lake.{name} AT (VERSION => {at})")

        return {reader: partial(find, reader) for reader in places}

    def page(self, commits: int) -> str:
        """What was found, in Markdown."""
        lines = [
            f"{commits} commits on {len(self._histories)} tables, seed {self.seed}:"
            f" {', '.join(f'{kind} {count}' for kind, count in sorted(self.steps.items()))}.",
            "",
            "| reader | snapshots read | wrong |",
            "|---|---|---|",
        ]
        for reader, count in self.read.items():
            wrong = sum(each.startswith(f"{reader} ") for each in self.wrong)
            lines.append(f"| {reader} | {count} | {wrong} |")
        return "\n".join([*lines, "", *self.wrong]).rstrip() + "\n"


def _is_not_told(error: Exception) -> bool:
    return any(each in str(error) for each in _NOT_TOLD)
