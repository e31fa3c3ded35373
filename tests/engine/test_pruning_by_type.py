"""What prunes by statistics leaves no row out: every type, operator and boundary value (F19).

Files' recorded ranges, stripes and row groups, in both engines and by each of Spark's readers, over
files of ours and of ORC's Java writer, against Python.
"""

from __future__ import annotations

import math
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform import NeedsSpark, Warehouse
from acid_platform.engine.spark.live_rows import READER_VARIABLE
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark

LONG = "x" * 1100
TEXTS = [
    "", "\0", "a", "a\0", "a ", "ab", "~", "\x7f", "é", "\u07ff", "\ud7ff", "\ue000", "ﬁ", "\uffff",
    "\U00010000", "😀", "\U0010ffff", "😀ﬁ", "ﬁ😀", LONG + "a", LONG + "z", "x" * 1023 + "é" * 40,
    "\uffff" * 400, "😀" * 260, "\U0010ffff" * 300,
]  # fmt: skip
"""Around the ends of one to four bytes, of one and two units of UTF-16, and beyond 1,024 bytes."""
FLOATS = [-math.inf, -1.5, -0.0, 0.0, 1e-30, 0.5, 1e30, math.inf, math.nan]
DAYS = [
    date(1, 1, 1), date(1500, 3, 1), date(1582, 10, 4), date(1582, 10, 15), date(1899, 12, 31),
    date(1969, 12, 31), date(1970, 1, 1), date(2015, 1, 1), date(9999, 12, 31),
]  # fmt: skip
MOMENTS = [
    *(datetime(day.year, day.month, day.day) for day in DAYS),
    datetime(1582, 10, 4, 23, 59, 59, 999999), datetime(1900, 1, 1), datetime(1900, 1, 1, 0, 0, 1),
    datetime(1969, 12, 31, 23, 59, 58, 999999), datetime(1970, 1, 1, 0, 0, 0, 1),
    datetime(1970, 1, 1, 0, 0, 0, 1000), datetime(2026, 3, 29, 2, 30, 0, 123456),
]  # fmt: skip


def _whole(bits: int) -> list[int]:
    end = 1 << bits - 1
    return [-end, 1 - end, -1, 0, 1, end - 1]


VALUES: dict[str, Sequence[Any]] = {
    "boolean": [False, True],
    "tinyint": _whole(8),
    "smallint": _whole(16),
    "int": _whole(32),
    "bigint": [*_whole(64), (1 << 53) + 1],
    "float": [struct.unpack("f", struct.pack("f", one))[0] for one in FLOATS],
    "double": [*FLOATS, 5e-324, 0.1],
    "decimal(5,2)": [Decimal(one) for one in ("-999.99", "-0.01", "0.00", "0.10", "999.99")],
    "decimal(38,10)": [
        Decimal(one) for one in ("-" + "9" * 28, "0.0000000001", "0", "12345678901234567890.5")
    ],
    "date": DAYS,
    "timestamp": MOMENTS,
    "string": TEXTS,
    "varchar(9)": [one for one in TEXTS if len(one) < 9],
    "binary": [b"", b"\0", b"a", b"\x7f", b"\x80", b"\xc3\xa9", b"\xff", b"\xff" * 1100],
}
COLUMNS = {kind: f"c{place}" for place, kind in enumerate(VALUES)}
ROWS = max(map(len, VALUES.values())) + 1
"""Each in a file of its own; the last one is NULL."""


def value_of(kind: str, row: int) -> Any:
    values = VALUES[kind]
    return None if row == ROWS - 1 else values[row % len(values)]


def literal(kind: str, value: Any) -> str:
    match kind.partition("(")[0]:
        case "float" | "double":
            cast = repr(value) if math.isfinite(value) else f"'{value}'".replace("inf", "Infinity")
            return f"CAST({cast} AS {kind})" if not math.isfinite(value) else f"{value!r}D"
        case "decimal":
            return f"{value:f}BD" if "." in f"{value:f}" else f"{value:f}.0BD"
        case "date":
            return f"DATE '{value.isoformat()}'"
        case "timestamp":
            return f"TIMESTAMP '{value.isoformat(' ')}'"
        case "string" | "varchar":
            return f"'{value}'"
        case "binary":
            return f"X'{value.hex()}'"
        case "bigint" if value == -(1 << 63):
            return "(-9223372036854775807 - 1)"
        case _:
            return str(value)


def key(value: Any) -> Any:
    """Orders values as SQL does: text by code points, NaN above all, both zeros equal."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


Test = Callable[[Any, Any], bool]
OPERATORS: dict[str, tuple[str, Test]] = {
    "eq": ("{c} = {v}", lambda a, b: a == b),
    "ne": ("{c} <> {v}", lambda a, b: a != b),
    "lt": ("{c} < {v}", lambda a, b: a < b),
    "le": ("{c} <= {v}", lambda a, b: a <= b),
    "gt": ("{c} > {v}", lambda a, b: a > b),
    "ge": ("{v} <= {c}", lambda a, b: a >= b),
    "in": ("{c} IN ({v})", lambda a, b: a == b),
    "notin": ("{c} NOT IN ({v})", lambda a, b: a != b),
    "between": ("{c} BETWEEN {v} AND {v}", lambda a, b: a == b),
    "outside": ("{c} NOT BETWEEN {v} AND {v}", lambda a, b: a != b),
    "safe": ("{c} <=> {v}", lambda a, b: a == b),
    "notle": ("NOT ({c} <= {v})", lambda a, b: a > b),
}


def cases(kind: str) -> Iterator[tuple[str, list[int]]]:
    """Predicates on the column of this type, and the rows that each accepts."""
    column = COLUMNS[kind]
    rows = [(row, value_of(kind, row)) for row in range(ROWS)]
    for value in VALUES[kind]:
        for text, accepts in OPERATORS.values():
            yield (
                text.format(c=column, v=literal(kind, value)),
                [row for row, one in rows if one is not None and accepts(key(one), key(value))],
            )
    yield f"{column} IS NULL", [row for row, one in rows if one is None]
    yield f"{column} IS NOT NULL", [row for row, one in rows if one is not None]
    if kind in ("string", "varchar(9)"):
        for start in ("a", "x", "é", "ﬁ", "😀", "\uffff", "\U0010ffff"):
            yield (
                f"{column} LIKE '{start}%'",
                [row for row, one in rows if one is not None and one.startswith(start)],
            )


def arrow_rows() -> pa.Table:
    kinds = {
        "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(),
        "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(), "date": pa.date32(),
        "decimal(5,2)": pa.decimal128(5, 2), "decimal(38,10)": pa.decimal128(38, 10),
        "timestamp": pa.timestamp("us"), "binary": pa.binary(),
    }  # fmt: skip
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int32()),
            **{
                COLUMNS[kind]: pa.array(
                    [value_of(kind, row) for row in range(ROWS)], kinds.get(kind, pa.string())
                )
                for kind in VALUES
            },
        }
    )


DECLARED = "id int, " + ", ".join(f"{name} {kind}" for kind, name in COLUMNS.items())


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Warehouse]:
    """Tables with a row in each file: our writer's, Java's, and of an insert-only table."""
    home = tmp_path_factory.mktemp("pruning")
    with temporary_warehouse(home / "warehouse", spark, "spark") as opened:
        frame = (
            spark.createDataFrame(arrow_rows())
            .repartitionByRange(ROWS, "id")
            .sortWithinPartitions("id")
        )
        for name, properties in (
            ("ours", {}),
            ("plain", {"transactional_properties": "insert_only"}),
        ):
            table = opened.create_table(f"db.{name}", DECLARED, properties=properties)
            table.insert(frame)
        frame.write.orc(str(home / "written"))
        (home / "java").mkdir()
        for place, file in enumerate(sorted((home / "written").glob("*.orc"))):
            shutil.copy(file, home / "java" / f"{place:06d}_0")
        opened.adopt_table("db.java", home / "java")
        yield opened


def wrong(warehouse: Warehouse, table: str, kind: str, engine: str) -> list[str]:
    """The predicates for which the engine answers other rows than Python.

    The local engine may refuse some, but not most.
    """
    asked = list(enumerate(cases(kind)))
    answers: dict[int, list[int]] = {}

    def ask(part: Sequence[tuple[int, tuple[str, list[int]]]]) -> None:
        query = " UNION ALL ".join(
            f"SELECT {place} AS place, id FROM db.{table} WHERE {where}"
            for place, (where, _) in part
        )
        try:
            rows = warehouse.sql(query, engine=engine).to_arrow().to_pylist()
        except NeedsSpark:
            for one in part if len(part) > 1 else ():
                ask([one])
            return
        answers.update((place, []) for place, _ in part)
        for row in rows:
            answers[row["place"]].append(row["id"])

    for first in range(0, len(asked), 40):
        ask(asked[first : first + 40])
    assert len(answers) > len(asked) / 2
    return [
        f"{where:.90}: {sorted(answers[place])} instead of {right}"
        for place, (where, right) in asked
        if sorted(answers.get(place, right)) != right
    ]


KINDS = pytest.mark.parametrize("kind", VALUES)
IN_SPARK = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.soak if kind == "varchar(9)" else pytest.mark.slow)
        for kind in VALUES
    ],
)
"""Spark prunes by a varchar as by a string, and its texts take minutes."""
TABLES = pytest.mark.parametrize("table", ["ours", "java", "plain"])


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["", "spark"])
def test_F19_spark_leaves_out_no_text(
    warehouse: Warehouse, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(READER_VARIABLE, reader)
    column = COLUMNS["string"]
    for table in ("ours", "java", "plain"):
        for text in ("ﬁ", "\uffff", "😀"):
            rows = warehouse.sql(f"SELECT id FROM db.{table} WHERE {column} = '{text}'").collect()
            right = [row for row in range(ROWS) if value_of("string", row) == text]
            assert sorted(row[0] for row in rows) == right, (table, text)


@pytest.mark.parametrize("reader", ["", "spark"])
@TABLES
@IN_SPARK
def test_F19_spark_leaves_out_no_row_of_any_type(
    warehouse: Warehouse, kind: str, table: str, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(READER_VARIABLE, reader)
    assert wrong(warehouse, table, kind, "spark") == []


@pytest.mark.slow
@TABLES
@KINDS
def test_F19_the_local_engine_leaves_out_no_row_of_any_type(
    warehouse: Warehouse, kind: str, table: str
) -> None:
    assert wrong(warehouse, table, kind, "local") == []
