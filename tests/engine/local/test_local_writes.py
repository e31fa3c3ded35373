"""What the local engine writes: files as good as Spark's, and statements that can be stopped."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from acid_platform import NeedsSpark, PublicationFailed, Table, TxnAborted, Warehouse, WrongType
from acid_platform.engine.interface import ArrowResult
from acid_platform.engine.local import engine
from acid_platform.engine.local.engine import RunningStatement
from acid_platform.engine.local.event_files import in_files
from acid_platform.formats.file_access import recorded_file
from acid_platform.formats.orc import AcidWriter, open_orc, user_metadata
from acid_platform.handles.transaction import TransactionTable
from acid_platform.layout.formats import ACID_FORMAT
from acid_platform.layout.types import parse_columns, parse_type
from acid_platform.metastore.operations.transactions import AbortMany
from acid_platform.services.fsck import examine
from acid_platform.storage import durability
from acid_platform.storage.files import Files
from acid_platform.values import local_rows
from acid_platform.values.arrow_types import arrow_type
from acid_platform.values.partition_texts import (
    RowPartitions,
    fixed_value,
    places_of,
    text_of,
)
from acid_platform.values.stored_values import assigned
from acid_platform.write import publishing, task_files
from tests.conftest import IN_ORC, temporary_warehouse
from tests.finishing import stripe_ends

INSERT_ONLY = {"transactional_properties": "insert_only"}
COLUMNS = "id bigint, v string, c char(4), d decimal(7,2), t timestamp, e date, l array<int>"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("local") / "wh", engine="local") as opened:
        yield opened
        opened.release()
        # Everything that these tests have written.
        assert examine(opened.metastore, warehouse=opened.path).findings == ()


def many(count: int) -> pa.Table:
    ids = np.arange(count)
    return pa.table(
        {
            "id": ids,
            "v": pa.array([f"v{i % 7}" for i in range(count)]),
            "c": pa.array(["ab" if i % 3 else None for i in range(count)]),
            "d": pa.array([Decimal(i % 100) / 4 for i in range(count)], pa.decimal128(7, 2)),
            "t": pa.array(ids * 1_000_003, pa.timestamp("us")),
            "e": pa.array(ids % 10_000, pa.int32()).cast(pa.date32()),
            "l": pa.array([[i, None] for i in range(count)], pa.list_(pa.int32())),
        }
    )


def recorded(table: Table) -> Iterator[tuple[str, Any, bool]]:
    """The path of each file, its record, and whether it holds delete events."""
    for partition, directory in table.snapshot().directories.items():
        deletes = {delta.directory for delta in directory.delete_deltas}
        for source in (*directory.sources, *directory.delete_deltas):
            for entry in source.files:
                where = Path(table.location, partition, source.directory, entry.name)
                yield str(where), entry, source.directory in deletes


@pytest.mark.more
def test_F7_F8_P26_files_have_their_footer_key_index_order_and_record(
    warehouse: Warehouse,
) -> None:
    table = warehouse.create_table(
        "db.good", COLUMNS, ["p int"], clustered_by=(["id"], 2), properties=IN_ORC
    )
    rows = many(5000)
    table.insert(rows.append_column("p", pa.array(np.arange(5000) % 2)))
    table.update({"v": "upper(v)"}, "id % 5 = 0")
    table.delete("id % 7 = 0")
    files, _ = Files.of(table.location)
    kinds = set()
    for path, entry, deletes in recorded(table):
        kinds.add((entry.name, deletes))
        file = open_orc(files, path)
        ends = stripe_ends(file)
        counts = (0, file.nrows) if deletes else (file.nrows, 0)
        found = {key.decode(): value for key, value in file.metadata.items()}
        assert found | user_metadata(ends, *counts) == found
        read = recorded_file(files, path, entry.name, ACID_FORMAT, deletes, exact=True)
        assert (read.size, read.footer, read.ranges) == (entry.size, entry.footer, entry.ranges)
        assert read.keys == entry.keys and (entry.keys is None) is deletes
    assert kinds == {(f"bucket_0000{n}", deletes) for n in (0, 1) for deletes in (True, False)}
    left = sorted(i for i in range(5000) if i % 7)
    assert sorted(table.to_arrow(["id"])["id"].to_pylist()) == left


def test_P15_row_ids_count_over_the_partitions_of_a_statement(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.ids", "id int", partitioned_by=["k string"])
    table.insert([{"id": i, "k": k} for i, k in enumerate(["b", "é", None, "a", "b", "Z"])])
    found = {row["id"]: row["row__id"]["rowid"] for row in table.to_arrow(row_id=True).to_pylist()}
    assert found == {5: 0, 2: 1, 3: 2, 0: 3, 4: 4, 1: 5}  # in the order of the texts' bytes
    table.update({"id": "id + 10"}, "id > 2")
    found = {row["id"]: row["row__id"]["rowid"] for row in table.to_arrow(row_id=True).to_pylist()}
    assert found == {2: 1, 0: 3, 1: 5, 15: 0, 13: 1, 14: 2}


@pytest.mark.parametrize(
    ("known", "sizes"), [(25, [9, 8, 8]), (None, [10, 10, 5]), (0, []), (9, [9])]
)
def test_rows_beyond_a_million_go_into_several_files(
    monkeypatch: pytest.MonkeyPatch, known: int | None, sizes: list[int]
) -> None:
    monkeypatch.setattr(task_files, "_ROWS_PER_FILE", 10)
    monkeypatch.setattr(task_files, "_MOST_FILES", 3)
    given = pa.table({"a": np.arange(sum(sizes))})
    pieces = list(in_files(given.to_batches(4), known))
    assert pa.Table.from_batches([piece for _, piece in pieces], given.schema).equals(given)
    numbers = [number for number, piece in pieces for _ in range(len(piece))]
    assert np.bincount(np.array(numbers, np.int64)).tolist() == sizes
    # Of very many rows a file gets more, so that the numbers of buckets suffice.
    assert [task_files.file_rows(number) for number in (0, 2, 3, 6)] == [10, 10, 20, 40]


@pytest.mark.parametrize("stored", ["orc", "parquet"])
def test_insert_only_tables_are_written_as_their_format_says(
    warehouse: Warehouse, stored: str
) -> None:
    columns = "id int, v varchar(5), d decimal(7,2), l array<int>, m map<string,int>"
    properties = {**INSERT_ONLY, "acid.format": stored}
    table = warehouse.create_table(f"db.plain_{stored}", columns, ["p int"], None, properties)
    row = {"id": 1, "v": "ab", "d": Decimal("1.50"), "l": [1, None], "m": {"a": 1}, "p": 1}
    table.insert([row, {"p": 2}])
    table.overwrite([{"id": 5}], "p=2")
    read = {one["p"]: one for one in table.to_arrow().to_pylist()}
    assert read[1] == {**row, "m": [("a", 1)]}
    assert read[2]["id"] == 5
    (first, _, _), *_ = recorded(table)
    assert first.endswith("000000_0")
    if stored == "parquet":  # as Spark and Hive write decimals of up to nine digits
        assert parquet.ParquetFile(first).schema.column(2).physical_type == "INT32"


# --- what goes to Spark --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "partition", "properties", "row"),
    [
        ("e date", "", IN_ORC, {"e": datetime.date(1500, 1, 1)}),
        ("m map<string,timestamp>", "", IN_ORC, {"m": {"a": datetime.datetime(2020, 1, 1)}}),
        ("m map<char(2),int>", "", {}, {"m": {"a": 1}}),
        ("id int", "f double", {}, {"f": 0.5}),
        ("id int", "f float", {}, {"f": 1e7}),
        ("id int", "b binary", {}, {"b": b"x"}),
        ("id int", "", {**INSERT_ONLY, "acid.format": "csv"}, {"id": 1}),
        (
            "t timestamp",
            "",
            {**INSERT_ONLY, "acid.format": "parquet"},
            {"t": datetime.datetime(2020, 1, 1)},
        ),
    ],
)
def test_P33_what_was_not_shown_equal_needs_spark_and_leaves_nothing(
    warehouse: Warehouse,
    request: pytest.FixtureRequest,
    columns: str,
    partition: str,
    properties: dict[str, str],
    row: dict[str, Any],
) -> None:
    name = f"db.s{abs(hash(request.node.name))}"
    keys = [partition] if partition else []
    table = warehouse.create_table(name, columns, keys, None, properties)
    with pytest.raises(NeedsSpark):
        table.insert([row])
    assert list(Path(table.location).iterdir()) == []


def result(rows: pa.Table) -> ArrowResult:
    def no_session() -> Any:
        raise AssertionError("Spark must not start")

    return ArrowResult(rows, no_session, "test")


def test_no_name_is_asked_for_where_nobody_reads_it(warehouse: Warehouse) -> None:
    warehouse.create_table("db.unnamed", "v string, id int")
    warehouse.sql("INSERT INTO db.unnamed SELECT CAST('7' AS string), CAST('7' AS int)")
    warehouse.sql(
        "INSERT INTO db.unnamed (id, v) SELECT nvl(id, 0), nvl(v, '-') FROM db.unnamed"
        " UNION ALL SELECT id + 1, nvl(v, '-') FROM db.unnamed"
        " WHERE nvl(v, '-') IN (SELECT nvl(v, '-') FROM db.unnamed)"
    )
    found = warehouse.table("db.unnamed").to_arrow().to_pylist()
    assert sorted((row["v"], row["id"]) for row in found) == [("7", 7), ("7", 7), ("7", 8)]
    for text in ("SELECT id > 1.5 FROM db.unnamed", "CREATE TABLE db.c AS SELECT 2 > 1.5"):
        with pytest.raises(NeedsSpark, match="the name of the column"):
            warehouse.sql(text)


def test_columns_that_are_taken_as_they_are(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.taken", "a int, b int, s string, c char(4), w string")
    table.insert([{"a": 1, "b": 2, "s": "x ", "c": "y"}, {"a": 3, "b": None, "s": None, "c": None}])
    table.update({"a": "b", "b": "a", "s": "c", "w": "s"})
    assert table.to_arrow().to_pylist() == [
        {"a": 2, "b": 1, "s": "y", "c": "y   ", "w": "x "},
        {"a": None, "b": 3, "s": None, "c": None, "w": None},
    ]
    source = pa.table({"A": [2, 7], "Other": ["new", "more"], "more": [5, 6]})
    counts = table.merge(
        source,
        "t.a = s.a",
        {"w": "s.other", "b": "s.A", "s": "t.w"},
        None,
        {"a": "s.a", "w": "s.other", "c": "s.other", "b": "s.more + 1"},
    )
    assert (counts.inserted, counts.updated) == (1, 1)
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["b"]) == [
        {"a": 2, "b": 2, "s": "x ", "c": "y   ", "w": "new"},
        {"a": None, "b": 3, "s": None, "c": None, "w": None},
        {"a": 7, "b": 7, "s": None, "c": "more", "w": "more"},
    ]


def test_a_result_is_stored_by_the_types_of_the_columns(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.widened", "a bigint, f double, d decimal(9,3), s string")
    cents = pa.array([Decimal("1.10"), Decimal("-0.30"), None], pa.decimal128(5, 2))
    rows = pa.table(
        {"A": pa.array([1, 2, None], pa.int8()), "f": cents, "d": cents, "S": [7, 8, 9]}
    )
    assert table.insert(result(rows)) == 3
    assert [tuple(row.values()) for row in table.to_arrow().to_pylist()] == [
        (1, 1.1, Decimal("1.100"), "7"),
        (2, -0.3, Decimal("-0.300"), "8"),
        (None, None, None, "9"),
    ]


EXACT = pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(38, 2))


@pytest.mark.parametrize(
    ("kind", "values", "stored"),
    [
        ("decimal(5,2)", EXACT, [Decimal("1.50"), Decimal("-2.00")]),
        ("decimal(5,1)", EXACT, [Decimal("1.5"), Decimal("-2.0")]),
        ("double", EXACT, [1.5, -2.0]),
        ("decimal(5,2)", pa.array([7, -999]), [Decimal("7.00"), Decimal("-999.00")]),
        ("int", pa.array([Decimal(7)], pa.decimal128(20, 0)), [7]),
        ("string", pa.array([True, False]), ["true", "false"]),
        ("tinyint", pa.array([127, -128]), [127, -128]),
        # Spark rounds these values, spells them in its own way, or says why it can't store them.
        ("decimal(5,1)", pa.array([Decimal("1.25")], pa.decimal128(5, 2)), None),
        ("decimal(5,2)", pa.array([1000]), None),
        ("decimal(3,2)", EXACT.cast(pa.decimal128(38, 4)).take(pa.array([0, 1])), [1.5, -2]),
        ("decimal(2,2)", EXACT, None),
        ("int", pa.array([1 << 40]), None),
        ("int", pa.array([0.5]), None),
        ("int", pa.array([Decimal("1.5")]), None),
        ("int", pa.array([Decimal(1 << 40)], pa.decimal128(20, 0)), None),
        ("float", EXACT, None),
        ("double", pa.array([Decimal("1234567890123456.7")], pa.decimal128(20, 1)), None),
        ("string", pa.array([1.5]), None),
        ("string", EXACT, None),
        ("int", pa.array(["1"]), None),
    ],
)
def test_P33_conversions_that_are_exact_are_made_here_and_others_by_spark(
    kind: str, values: pa.Array, stored: list[object] | None
) -> None:
    [column] = parse_columns(f"a {kind}")
    given = pa.chunked_array([values])
    if stored is None:
        with pytest.raises(NeedsSpark):
            assigned(given, column)
    else:
        made = assigned(given, column)
        assert made.type == arrow_type(column.type)
        assert made.to_pylist() == stored


@pytest.mark.parametrize("keys", [[], ["p int"]], ids=["plain", "partitioned"])
def test_P59_a_result_of_any_size_is_inserted_and_merged(
    warehouse: Warehouse, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acid_platform.values.row_streams._SPILLED_BYTES", 100_000)
    table = warehouse.create_table(f"db.limit{len(keys)}", "id bigint", keys)
    rows = pa.table({"id": np.arange(300_000)})
    if keys:
        rows = rows.append_column("p", pa.array(np.zeros(300_000, np.int32)))
    assert table.insert(result(rows.slice(0, 200_000))) == 200_000
    merged = table.merge(
        result(rows.slice(100_000)), "t.id = s.id", None, "true", when_not_matched_insert="*"
    )
    assert (merged.deleted, merged.inserted) == (100_000, 100_000)
    left = np.r_[0:100_000, 200_000:300_000]
    assert np.sort(table.to_arrow()["id"].to_numpy()).tolist() == left.tolist()


# --- texts of partitions -------------------------------------------------------------------------


@pytest.mark.more
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "b/c", "é", None]), st.integers(-2, 2) | st.none())
    )
)
def test_places_are_the_partitions_of_the_rows_in_order(
    pairs: list[tuple[str | None, int | None]],
) -> None:
    columns = parse_columns("k string, n int")
    rows = pa.table(
        {
            "k": pa.array([k for k, _ in pairs], pa.string()),
            "n": pa.array([n for _, n in pairs], pa.int32()),
        }
    )
    places = places_of(rows, columns)
    escaped = {"": None, "b/c": "b%2Fc"}
    default = "__HIVE_DEFAULT_PARTITION__"
    wanted = [
        f"k={escaped.get(k or '', k) or default}/n={default if n is None else n}" for k, n in pairs
    ]
    assert [places.names[i] for i in places.index] == wanted
    assert len(set(places.names)) == len(places.names)
    twice = RowPartitions.joined([places, places])
    assert [twice.names[i] for i in twice.index] == [*wanted, *wanted]
    assert twice.names == places.names


def test_too_many_partitions_need_spark() -> None:
    rows = pa.table({"n": pa.array(np.arange(5000), pa.int32())})
    with pytest.raises(NeedsSpark, match="4096 partitions"):
        places_of(rows, parse_columns("n int"))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "03"),
        ("decimal(5,2)", "1.5"),
        ("decimal(5,2)", "-0.00"),
        ("date", "2024-1-5"),
        ("double", "0.5"),
    ],
)
def test_a_fixed_text_that_spark_would_spell_in_another_way_needs_spark(
    kind: str, text: str
) -> None:
    [column] = parse_columns(f"p {kind}")
    with pytest.raises(NeedsSpark):
        fixed_value(text, column)
    assert fixed_value(None, column).as_py() is None


# --- stopping ------------------------------------------------------------------------------------


def test_P4_a_lost_transaction_stops_its_write_between_two_batches(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement is in the middle of its rows, and gives up at the next piece of them."""
    monkeypatch.setattr(local_rows, "_PART_BYTES", 4000)
    table = warehouse.create_table("db.stopped", "id bigint")
    written = threading.Event()
    stop = RunningStatement.check
    checks = 0

    def slow(statement: RunningStatement) -> None:
        nonlocal checks
        checks += 1
        if checks == 5:
            written.set()
            for _ in range(1000):
                if statement._stopped:
                    break
                time.sleep(0.01)
        stop(statement)

    monkeypatch.setattr(engine.RunningStatement, "check", slow)
    txn = warehouse.transaction()

    def abort() -> None:
        assert written.wait(30)
        warehouse.metastore.call(AbortMany((txn.id,), "an operator"))
        txn.begun.found_lost("an operator aborted it")

    other = threading.Thread(target=abort)
    other.start()
    with pytest.raises(TxnAborted):
        txn.table("db.stopped").insert(pa.table({"id": np.arange(100_000)}))
    other.join()
    assert 5 <= checks < 10
    assert list(Path(table.location).iterdir()) == []


VERBS: dict[str, Callable[[TransactionTable], object]] = {
    "insert": lambda table: table.insert([{"id": 3, "v": "c"}]),
    "overwrite": lambda table: table.overwrite([{"id": 3, "v": "c"}]),
    "update": lambda table: table.update({"v": "'x'"}, "id = 1"),
    "delete": lambda table: table.delete("id = 1"),
    "merge": lambda table: table.merge([{"id": 1, "v": "y"}], "t.id = s.id", {"v": "s.v"}),
    "truncate": lambda table: table.truncate(),
    "rollback": lambda table: table.rollback_to(1),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("ended", [True, False])
def test_P4_an_error_in_a_transaction_that_has_ended_is_reported_as_that(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, verb: str, ended: bool
) -> None:
    """A process that was stopped for too long finds its files gone, or others in their place."""
    kept = {"acid.history.retention": "1h"}
    name = f"db.reaped_{verb}_{ended}"
    table = warehouse.create_table(name, "id bigint, v string", properties=kept)
    table.insert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    table.insert([{"id": 4, "v": "d"}])
    txn = warehouse.transaction()

    def publish(*_: Any) -> None:
        if ended:
            warehouse.metastore.call(AbortMany((txn.id,), "the reaper"))
        raise OSError("a file is gone")

    monkeypatch.setattr(publishing.Staging, "publish", publish)
    expected, said = (TxnAborted, "the reaper") if ended else (PublicationFailed, "a file is gone")
    with pytest.raises(expected, match=said), txn:
        VERBS[verb](txn.table(table.name))
    assert table.count() == 3


@pytest.mark.more
def test_P4_a_lost_transaction_interrupts_duckdb(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.interrupted", "id bigint, v string")
    table.insert(pa.table({"id": np.arange(20_000)}))
    txn = warehouse.transaction()
    timer = threading.Timer(1.0, lambda: warehouse.engines.cancel(txn.id))
    timer.start()
    started = time.monotonic()
    # Every pair of rows is joined: that would take minutes.
    source = pa.table({"id": np.arange(20_000)})
    with pytest.raises(TxnAborted):
        txn.table("db.interrupted").merge(
            source,
            "concat(cast(t.id as string), cast(s.id as string), 'x') like '%9%8%7%6%5%y'",
            when_matched_delete="s.id < 0",
        )
    assert time.monotonic() - started < 20
    txn.abort("test")


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda t: t.insert([{"c": "abc   "}, {"c": "abcd "}], {"p": "1"}),
            "takes char.3., .* 4 characters",
        ),
        (
            lambda t: t.insert([{"n": [{"x": "abcd"}]}], {"p": "1"}),
            r"column n of .* takes varchar\(2\)",
        ),
        (
            lambda t: t.insert(
                [{"n": [{"t": datetime.datetime(1969, 12, 31, 23, 59, 59, 2000)}]}], {"p": "1"}
            ),
            r"column n has 1969-12-31 23:59:59\.002, which ORC",
        ),
        (lambda t: t.overwrite([{"c": "a", "p": 2}], "p=1"), "has p=2, the partition has 1;"),
        (lambda t: t.overwrite([{"c": "a", "p": None}], "p=1"), "has p=NULL, the partition has 1"),
        (lambda t: t.update({"c": "'abcd'"}), "takes char.3., a value has 4 characters"),
    ],
)
def test_a_value_that_can_not_be_stored_is_refused(
    warehouse: Warehouse, write: Callable[[Table], object], message: str
) -> None:
    name = "db.refused"
    if name not in warehouse.tables():
        columns = "c char(3), n array<struct<x:varchar(2),t:timestamp>>"
        table = warehouse.create_table(name, columns, ["p int"], properties=IN_ORC)
        table.insert([{"c": "abc    ", "p": 1}])
    with pytest.raises(WrongType, match=message):
        write(warehouse.table(name))
    assert warehouse.table(name).to_arrow().to_pylist() == [{"c": "abc", "n": None, "p": 1}]


@pytest.mark.parametrize(
    ("owner", "name"), [(Files, "write"), (AcidWriter, "_put"), (durability, "sync")]
)
def test_P19_a_full_disk_leaves_nothing(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    table = warehouse.create_table(f"db.full{name}", "id int", properties=IN_ORC)
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(owner, name, full)
    with pytest.raises(PublicationFailed, match="No space left"):
        table.insert([{"id": 1}])
    monkeypatch.undo()
    assert list(Path(table.location).iterdir()) == []
    assert table.insert([{"id": 1}]) == 1


def test_P19_a_count_that_differs_publishes_nothing(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.create_table("db.counted", "id int", properties=IN_ORC)
    close = AcidWriter.close

    def forgetful(writer: AcidWriter) -> int:
        rows = close(writer)
        writer.rows -= 1
        return rows

    monkeypatch.setattr(AcidWriter, "close", forgetful)
    with pytest.raises(PublicationFailed, match="nothing was published"):
        table.insert([{"id": 2}, {"id": 3}])
    monkeypatch.undo()
    assert list(Path(table.location).iterdir()) == []
    assert table.history() == []


@pytest.mark.more
def test_text_of_says_no_for_what_java_spells_in_its_own_way() -> None:
    for value in (0.1, -0.0, 1e7, float("nan"), float("inf")):
        with pytest.raises(NeedsSpark):
            text_of(value, parse_type("double"))
    assert RowPartitions.ranked(["k=b", "k=a"], np.array([0, 1])).names == ("k=a", "k=b")
