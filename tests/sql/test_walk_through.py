"""The published walk-through as people type it: what is printed, and the files on disk."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from acid_platform import Warehouse
from acid_platform.cli.main import main
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark

SETTINGS = """use test_db;
SET hive.txn.manager=org.apache.hadoop.hive.ql.lockmgr.DbTxnManager;
SET hive.support.concurrency=true;"""
BUCKET_0, BUCKET_1 = 536870912, 536936448


@dataclass(frozen=True, slots=True)
class Variant:
    """What differs between the plain table of the walk-through and its variants."""

    name: str
    clauses: str
    values: str
    places: dict[int, tuple[str, int]]
    """For each id its partition directory and its bucket property."""
    extra: dict[int, str]
    """For each id the further columns that SELECT * prints."""
    compact: str = ""
    """PARTITION (…) of ALTER TABLE COMPACT."""

    def directory(self, id: int) -> str:
        return self.places[id][0]


PLAIN = Variant(
    "crud_table",
    "",
    "(1,'A'),(2,'B'),(3,'C')",
    dict.fromkeys((1, 2, 3), ("", BUCKET_0)),
    dict.fromkeys((1, 2, 3), ""),
)
PARTITIONED = Variant(
    "crud_by_month",
    "PARTITIONED BY (`month` int)",
    "(1,'A',1),(2,'B',2),(3,'C',2)",
    {1: ("month=1/", BUCKET_0), 2: ("month=2/", BUCKET_0), 3: ("month=2/", BUCKET_0)},
    {1: " 1", 2: " 2", 3: " 2"},
    " PARTITION (month=2)",
)
BUCKETED = Variant(
    "crud_bucketed",
    "CLUSTERED BY (`id`) INTO 2 BUCKETS",
    "(1,'A'),(2,'B'),(3,'C')",
    {1: ("", BUCKET_1), 2: ("", BUCKET_0), 3: ("", BUCKET_0)},
    dict.fromkeys((1, 2, 3), ""),
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("walk") / "wh", spark) as opened:
        opened.sql("CREATE DATABASE test_db")
        yield opened


@dataclass(frozen=True, slots=True)
class Typed:
    """Runs `acid sql` and similar commands on one warehouse; knows the directory of one table."""

    path: str
    table: Path

    def acid(self, *arguments: str) -> str:
        done = CliRunner().invoke(main, [*arguments, "--warehouse", self.path])
        assert done.exit_code == 0, done.stderr
        return done.stdout

    def sql(self, text: str) -> list[str]:
        """The printed lines, without rules and column widths; rows in order of their text."""
        lines = [
            " ".join(line.split())
            for line in self.acid("sql", f"use test_db; {text}").splitlines()
            if line.strip(" ─━")
        ]
        assert lines.pop(0) == "OK"  # of `use`
        return lines

    def rows(self, text: str) -> list[str]:
        head, *rows = self.sql(text)
        return [head, *sorted(rows)]

    def files(self) -> list[str]:
        """Bucket files below the table, with the visibility suffix left open."""
        found = (str(one.relative_to(self.table)) for one in self.table.rglob("bucket_*"))
        return sorted(re.sub(r"_v\d+", "_v", name) for name in found)

    def dump(self, pattern: str) -> list[list[object]]:
        """Each event in the files of a pattern: operation, write ids, place, row."""
        events = []
        for file in sorted(self.table.glob(f"{pattern}/bucket_*")):
            for line in self.acid("orcdump", str(file)).splitlines():
                one = json.loads(line)
                row = one["row"]
                events.append(
                    [
                        one["operation"],
                        one["originalTransaction"],
                        one["bucket"],
                        one["rowId"],
                        one["currentTransaction"],
                        row and [row["id"], row["value"]],
                    ]
                )
        return events


def row_id(write_id: int, bucket: int, number: int) -> str:
    return f'{{"writeid":{write_id},"bucketid":{bucket},"rowid":{number}}}'


@pytest.mark.parametrize("variant", [PLAIN, PARTITIONED, BUCKETED], ids=lambda one: one.name)
def test_the_published_walk_through(warehouse: Warehouse, variant: Variant) -> None:
    name, places, extra = variant.name, variant.places, variant.extra
    typed = Typed(warehouse.path, Path(warehouse.path, "test_db.db", name))
    columns = f"id value{' month' if any(extra.values()) else ''}"
    # rowId counts the rows of a writer, which has one bucket, over its partitions.
    numbers = {
        id: sum(places[other][1] == places[id][1] for other in range(1, id)) for id in places
    }

    def bucket(id: int) -> str:
        return f"bucket_{(places[id][1] >> 16) & 0xFFF:05d}"

    assert typed.acid("sql", SETTINGS).splitlines() == [
        *["OK"] * 3,
    ]
    assert typed.sql(
        f"CREATE TABLE `{name}` (`id` int, `value` string) {variant.clauses} STORED AS ORC"
        " TBLPROPERTIES ('transactional'='true')"
    ) == ["OK"]
    assert typed.files() == []

    created = typed.sql(f"SHOW CREATE TABLE {name}")
    assert created[:4] == [
        "createtab_stmt",
        f"CREATE TABLE `test_db`.`{name}`(",
        "`id` int,",
        "`value` string)",
    ]
    assert "'transactional'='true')" in created[-1]
    assert "STORED AS ORC" in created

    assert typed.sql(f"INSERT INTO {name} VALUES {variant.values}") == ["3 rows affected"]
    inserted = {f"{places[i][0]}delta_0000001_0000001_0000/{bucket(i)}" for i in places}
    assert typed.files() == sorted(inserted)
    assert sorted(
        (
            event
            for where in {places[i][0] for i in places}
            for event in typed.dump(f"{where}delta_0000001_0000001_0000")
        ),
        key=str,
    ) == [
        [0, 1, *one]
        for one in sorted(
            ([places[i][1], numbers[i], 1, [i, "ABC"[i - 1]]] for i in places), key=str
        )
    ]
    assert typed.rows(f"SELECT * FROM {name}") == [
        columns,
        f"1 A{extra[1]}",
        f"2 B{extra[2]}",
        f"3 C{extra[3]}",
    ]
    assert typed.rows(f"SELECT row__id, id, value FROM {name}") == [
        "row__id id value",
        *sorted(
            f"{row_id(1, places[i][1], numbers[i])} {i} {value}" for i, value in enumerate("ABC", 1)
        ),
    ]

    assert typed.sql(f"UPDATE {name} SET value='CUpdated' WHERE id=3") == ["1 row affected"]
    where = variant.directory(3)
    updated = {
        f"{where}delete_delta_0000002_0000002_0000/{bucket(3)}",
        f"{where}delta_0000002_0000002_0000/{bucket(3)}",
    }
    assert typed.files() == sorted(inserted | updated)
    assert typed.dump(f"{where}delete_delta_0000002_0000002_0000") == [
        [2, 1, places[3][1], numbers[3], 2, None]
    ]
    assert typed.dump(f"{where}delta_0000002_0000002_0000") == [
        [0, 2, places[3][1], 0, 2, [3, "CUpdated"]]
    ]
    assert typed.rows(f"SELECT row__id, id, value FROM {name} WHERE id = 3") == [
        "row__id id value",
        f"{row_id(2, places[3][1], 0)} 3 CUpdated",
    ]

    assert typed.sql(f"DELETE FROM {name} WHERE id=3") == ["1 row affected"]
    deleted = {f"{where}delete_delta_0000003_0000003_0000/{bucket(3)}"}
    assert typed.files() == sorted(inserted | updated | deleted)
    assert typed.dump(f"{where}delete_delta_0000003_0000003_0000") == [
        [2, 2, places[3][1], 0, 3, None]
    ]
    assert typed.rows(f"SELECT * FROM {name}") == [columns, f"1 A{extra[1]}", f"2 B{extra[2]}"]

    [queued] = typed.sql(f"ALTER TABLE {name}{variant.compact} COMPACT 'major'")
    number = re.fullmatch(r"Compaction enqueued with id (\d+)", queued)
    assert number is not None
    assert compaction(typed, number[1]) == (name, "MAJOR", "initiated")
    typed.acid("run", "worker", "--once")
    assert compaction(typed, number[1]) == (name, "MAJOR", "ready for cleaning")
    kept = [i for i in (1, 2) if variant.directory(i) == where]
    compacted = {f"{where}base_0000003_v/{bucket(i)}" for i in kept}
    assert typed.files() == sorted(inserted | updated | deleted | compacted)
    assert sorted(typed.dump(f"{where}base_*"), key=str) == sorted(
        ([0, 1, places[i][1], numbers[i], 1, [i, "AB"[i - 1]]] for i in kept), key=str
    )

    typed.acid("run", "cleaner", "--once")
    assert compaction(typed, number[1]) == (name, "MAJOR", "succeeded")
    assert typed.files() == sorted(
        {one for one in inserted if not one.startswith(where)} | compacted if where else compacted
    )
    assert typed.rows(f"SELECT row__id, id, value FROM {name}") == [
        "row__id id value",
        *sorted(
            f"{row_id(1, places[i][1], numbers[i])} {i} {value}" for i, value in enumerate("AB", 1)
        ),
    ]


def compaction(typed: Typed, number: str) -> tuple[str, str, str]:
    """Table, type and state as SHOW COMPACTIONS has them."""
    answer = typed.acid("sql", "SHOW COMPACTIONS", "--json")
    [row] = [one for one in json.loads(answer) if str(one["compactionid"]) == number]
    return row["tabname"], row["type"], row["state"]
