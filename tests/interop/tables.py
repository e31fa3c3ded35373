"""Tables of every kind, as this platform writes them, for other engines to read.

Those in text and JSON are written by Spark, all others without a JVM.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from acid_platform import Table, Warehouse
from acid_platform.storage.files import Files
from tests.acid_files import AcidTable, P

ALL = (
    "id int, b boolean, ti tinyint, si smallint, bi bigint, f float, d double, x decimal(20,4),"
    " s string, vc varchar(20), ch char(8), dy date, ts timestamp, bin binary"
)
_TYPES = (
    pa.int32(),
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(20, 4),
    pa.string(),
    pa.string(),
    pa.string(),
    pa.date32(),
    pa.timestamp("us"),
    pa.binary(),
)
SMALL = "id int, s string, d double"
HIVE3 = {"acid.layout": "hive3"}


def wide(first: int, last: int) -> pa.Table:
    """Rows with a value of every primitive type, also with nulls, zeros and text of two bytes."""
    ids = range(first, last)
    columns: tuple[list[Any], ...] = (
        list(ids),
        [None if n % 11 == 0 else n % 2 == 0 for n in ids],
        [n % 120 - 60 for n in ids],
        [n % 30000 - 100 for n in ids],
        [n * 10_000_000_019 for n in ids],
        [n / 8 for n in ids],
        [None if n % 13 == 0 else n / 7 for n in ids],
        [(Decimal(n) * Decimal("3.1257") - 900).quantize(Decimal("0.0001")) for n in ids],
        [None if n % 7 == 0 else f"näme {n} " + "x" * (n % 30) for n in ids],
        [f"vc{n % 100}" for n in ids],
        [f"c{n % 10}" for n in ids],
        [datetime.date(1969, 6, 1) + datetime.timedelta(days=n % 30000) for n in ids],
        [
            datetime.datetime(1970, 1, 2) + datetime.timedelta(microseconds=n * 86_400_123_456)
            for n in ids
        ],
        [f"bin{n}".encode() for n in ids],
    )
    names = [one.strip().split(" ")[0] for one in _split(ALL)]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, _TYPES, strict=True)]
    return pa.table(dict(zip(names, arrays, strict=True)))


def _split(columns: str) -> list[str]:
    """The columns of a declaration; a comma in `decimal(20,4)` separates none."""
    return columns.replace("(20,4)", "").split(",")


def small(first: int, last: int) -> pa.Table:
    ids = range(first, last)
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "s": [None if n % 7 == 0 else f"n{n}" for n in ids],
            "d": [n / 8 for n in ids],
        }
    )


class Maker:
    """Makes tables in the database `db`."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def _new(self, name: str, columns: str, **more: Any) -> Table:
        return self._warehouse.create_table(f"db.{name}", columns, **more)

    def _changed(self, name: str, properties: Mapping[str, str], **more: Any) -> Table:
        """A table after an insert, an update and a delete."""
        table = self._new(name, ALL, properties=properties, **more)
        table.insert(wide(0, 120))
        table.update({"s": "upper(s)", "bi": "-bi"}, "id % 10 = 3")
        table.delete("id % 9 = 0")
        return table

    def _aborts(self, name: str, rows: pa.Table, condition: str | None = None) -> None:
        """A transaction that writes and is aborted."""
        try:
            with self._warehouse.transaction() as txn:
                txn.table(f"db.{name}").insert(rows)
                if condition:
                    txn.table(f"db.{name}").delete(condition)
                raise _Abort
        except _Abort:
            pass

    # --- kinds ----------------------------------------------------------------------------------

    def plain(self, name: str, properties: Mapping[str, str]) -> None:
        self._changed(name, properties).insert(wide(1000, 1050))

    def minor(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._changed(name, properties)
        table.compact("minor")
        table.update({"s": "'after'"}, "id % 50 = 1")
        table.delete("id = 119")

    def major(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._changed(name, properties)
        table.compact("major")
        table.update({"s": "'after'"}, "id % 50 = 1")
        table.delete("id = 119")
        table.insert(wide(2000, 2010))

    def parts(self, name: str, properties: Mapping[str, str]) -> None:
        """Partitions with odd values, compacted differently."""
        table = self._new(
            name,
            "id int, s string",
            partitioned_by=["month int", "city string"],
            properties=properties,
        )
        cities = ("a b", "x/y=1", "Zürich", None, "100%", 'it\'s: "q"')
        table.insert(_cities(0, 120, cities))
        table.update({"s": "upper(s)"}, "id % 10 = 3")
        table.delete("id % 9 = 0")
        table.insert(_cities(120, 140, cities))
        table.compact("minor", partition={"month": 0, "city": "a b"})
        table.compact("major", partition=table.partitions()[3])
        table.delete("month = 2 and id < 50")

    def dated(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._new(
            name,
            "id int, s string",
            partitioned_by=["dy date", "n bigint"],
            properties=properties,
        )
        rows = [(n, f"s{n}", datetime.date(2024, 1 + n % 3, 1), n % 2 * 10**10) for n in range(30)]
        names = ("id", "s", "dy", "n")
        kinds = (pa.int32(), pa.string(), pa.date32(), pa.int64())
        columns = zip(names, zip(*rows, strict=True), kinds, strict=True)
        table.insert(pa.table({one: pa.array(values, kind) for one, values, kind in columns}))
        table.update({"s": "'u'"}, "id = 7")

    def bucketed(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._changed(name, properties, clustered_by=(["id"], 4))
        table.compact("major")
        table.insert(wide(3000, 3040))
        table.delete("id % 17 = 0")

    def bucketed_by_text(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._new(name, ALL, properties=properties, clustered_by=(["s", "dy"], 3))
        table.insert(wide(0, 120))
        table.update({"bi": "0"}, "id % 10 = 3")
        table.delete("id % 9 = 0")

    def aborted(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._new(name, ALL, properties=properties)
        table.insert(wide(0, 50))
        for number in range(2):
            self._aborts(name, wide(5000, 5020), "id < 20")
            table.insert(wide(100 + 10 * number, 110 + 10 * number))
        table.delete("id % 9 = 0")

    def overwritten(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._new(name, ALL, properties=properties)
        table.insert(wide(0, 100))
        table.overwrite(wide(10, 60))
        table.delete("id < 20")
        table.insert(wide(70, 80))

    def emptied(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._new(name, ALL, properties=properties)
        table.insert(wide(0, 50))
        table.delete()
        table.compact("major")

    def truncated(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._new(name, ALL, properties=properties)
        table.insert(wide(0, 50))
        table.truncate()
        table.insert(wide(1, 4))

    def fresh(self, name: str, properties: Mapping[str, str]) -> None:
        self._new(name, ALL, properties=properties)

    def evolved(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._new(name, "id int, s string", properties=properties)
        table.insert(small(0, 50).select(["id", "s"]))
        table.add_columns("note string, n bigint")
        more = small(50, 80).select(["id", "s"])
        more = more.append_column("note", pa.array(["new"] * 30))
        table.insert(more.append_column("n", pa.array(range(30), pa.int64())))
        table.update({"note": "concat('u', s)"}, "id % 10 = 0")
        table.delete("id % 9 = 0")
        table.change_column("id", "id bigint")

    def spread(self, name: str, properties: Mapping[str, str]) -> None:
        """Rows in four buckets of a table that has none, as Spark and Hive write them (P45)."""
        _, plain = Files.of(self._warehouse.metastore.table("db.plain").location)
        root = Path(plain).with_name(f"{name}_files")
        written = AcidTable(root, "id int, s string")
        for bucket in range(4):
            key = P + (bucket << 16)
            rows = [(1, key, row, 10 * bucket + row, f"s{row}") for row in range(10)]
            written.inserts(f"d1/bucket_{bucket:05d}", rows)
        written.marker("d1")  # as Hive and Spark write it: Trino wants to know the version
        table = self._warehouse.adopt_table(
            f"db.{name}", root, snapshot=f"db.{name}:1:9223372036854775807::", properties=properties
        )
        table.update({"s": "'ours'"}, "id % 10 = 3")

    def nested(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._new(
            name,
            "id int, a array<int>, m map<string,bigint>,"
            " st struct<x:int,y:string,z:array<struct<q:double>>>",
            properties=properties,
        )
        pair = pa.struct([("q", pa.float64())])
        struct = pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.list_(pair))])
        ids = range(60)
        table.insert(
            pa.table(
                {
                    "id": pa.array(ids, pa.int32()),
                    "a": pa.array(
                        [None if n % 5 == 0 else list(range(n % 4)) for n in ids],
                        pa.list_(pa.int32()),
                    ),
                    "m": pa.array(
                        [[(f"k{n % 3}", n)] for n in ids], pa.map_(pa.string(), pa.int64())
                    ),
                    "st": pa.array(
                        [
                            {"x": n, "y": None if n % 6 == 0 else f"y{n}", "z": [{"q": n / 4}]}
                            for n in ids
                        ],
                        struct,
                    ),
                }
            )
        )
        table.delete("id % 9 = 0")
        table.compact("minor")
        table.delete("id = 1")

    def insert_only(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._new(
            name, SMALL, properties={**properties, "transactional_properties": "insert_only"}
        )
        table.insert(small(0, 50))
        table.insert(small(50, 90))
        table.compact("major" if "major" in name else "minor")
        table.insert(small(90, 100))
        self._aborts(name, small(900, 910))

    def insert_only_parts(self, name: str, properties: Mapping[str, str]) -> None:
        table = self._new(
            name,
            SMALL,
            partitioned_by=["p int"],
            properties={**properties, "transactional_properties": "insert_only"},
        )

        def halves(first: int, last: int) -> pa.Table:
            rows = small(first, last)
            return rows.append_column(
                "p", pa.array([n % 2 for n in range(first, last)], pa.int32())
            )

        table.insert(halves(0, 60))
        table.overwrite(halves(11, 12))
        table.insert(halves(100, 110))


class _Abort(Exception):
    pass


def _cities(first: int, last: int, cities: tuple[str | None, ...]) -> pa.Table:
    ids = range(first, last)
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "s": [None if n % 7 == 0 else f"n{n}" for n in ids],
            "month": pa.array([n % 3 for n in ids], pa.int32()),
            "city": pa.array([cities[n % len(cities)] for n in ids], pa.string()),
        }
    )


def _kinds() -> dict[str, tuple[Callable[[Maker, str, Mapping[str, str]], None], dict[str, str]]]:
    """Each table's name, how it is made, and its properties."""
    found: dict[str, Any] = {}
    for make in (
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
        Maker.spread,
        Maker.nested,
    ):
        found[make.__name__] = (make, {})
    for make in (Maker.plain, Maker.minor, Maker.major, Maker.parts, Maker.bucketed, Maker.aborted):
        found[f"{make.__name__}_hive3"] = (make, HIVE3)
    for stored in ("orc", "parquet", "text", "json"):
        found[f"{stored}_minor"] = (Maker.insert_only, {"acid.format": stored})
    for stored in ("orc", "parquet"):
        found[f"{stored}_major"] = (Maker.insert_only, {"acid.format": stored})
        found[f"{stored}_parts"] = (Maker.insert_only_parts, {"acid.format": stored})
    return found


KINDS = _kinds()


def make_of_two_statements(warehouse: Warehouse, name: str) -> None:
    """A table whose buckets have rows of two statements of a transaction, which Trino can't change
    with two writers."""
    table = f"db.{name}"
    warehouse.create_table(table, "id int, v int", clustered_by=(["id"], 2))
    with warehouse.transaction() as txn:
        for first in (0, 10):
            rows = [{"id": first + number, "v": 0} for number in range(10)]
            txn.table(table).insert(rows)


def make_tables(warehouse: Warehouse) -> dict[str, str]:
    """Makes a table of each kind. Returns those that could not be made, each with its error."""
    maker, refused = Maker(warehouse), {}
    for name, (make, properties) in KINDS.items():
        try:
            make(maker, name, properties)
        except Exception as error:
            refused[name] = f"{type(error).__name__}: {error}"
    return refused
