"""The parts of the data source without Spark: what Spark calls, called in Spark's order (P42)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from acid_platform import (
    AlreadyScheduled,
    InvalidDefinition,
    NoSuchPast,
    NotEnoughHistory,
    PublicationFailed,
    SnapshotExpired,
    StreamRefused,
    TxnAborted,
    UnknownColumn,
    UnsupportedStatement,
    WrongType,
)
from acid_platform.base.location import Location
from acid_platform.metastore.operations.transactions import AbortMany
from acid_platform.metastore.pasts import SinkBatch
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from acid_platform.spark_source import batch_write, keeper, reads
from acid_platform.spark_source.options import Options
from acid_platform.spark_source.reads import NOTHING, Offset, TableStream
from acid_platform.spark_source.source import AcidStreamWriter
from tests.spark_source.places import KEPT, Place, place

SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.string()), ("p", pa.int32())])


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    with place(tmp_path) as made:
        columns = "id int, v string"
        made.warehouse.create_table("db.t", columns, partitioned_by=["p int"], properties=KEPT)
        made.warehouse.create_table("db.copy", f"{columns}, p int")
        yield made


def options(here: Place, table: str = "db.t", use: str = "any", **more: str) -> Options:
    return Options.of({"path": table, **here.options, **more}, use)


def sent(value: Any) -> Any:
    """As it arrives in another process."""
    return cloudpickle.loads(cloudpickle.dumps(value))


def tasks(
    write: batch_write.OpenWrite, parts: Sequence[Sequence[dict[str, Any]]], first: int = 0
) -> list[batch_write.TaskResult]:
    """Runs a task for each part; the numbers of attempts begin with `first`."""
    return [
        batch_write.write_rows(sent(write), number, first + number, as_batches(rows))
        for number, rows in enumerate(parts)
    ]


def as_batches(rows: Sequence[dict[str, Any]]) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = pa.Table.from_pylist([*rows], SCHEMA).to_batches(max_chunksize=2)
    return found


def put(
    here: Place,
    table: str,
    rows: Sequence[dict[str, Any]],
    batch: SinkBatch | None = None,
    overwrite: bool = False,
    **more: str,
) -> bool:
    write = batch_write.begin(options(here, table, **more), SCHEMA.names, overwrite)
    return batch_write.commit(write, sent(tasks(write, [rows[0::2], rows[1::2]])), batch)


def rows_between(stream: TableStream, start: Offset, end: Offset) -> list[tuple[Any, ...]]:
    parts = sent(stream.parts(start, end, SCHEMA.names))
    return sorted(
        tuple(row.values())
        for part in parts
        for batch in reads.change_batches(part, SCHEMA)
        for row in batch.to_pylist()
    )


def row(number: int, value: str = "a") -> dict[str, Any]:
    return {"id": number, "v": value, "p": number % 3}


def aborts(here: Place) -> list[str]:
    return [row["reason"] for row in here.warehouse.metastore.transactions() if row["reason"]]


def require_healthy(here: Place) -> None:
    """Layout, names, footers and row keys are as in every table."""
    report = examine(here.warehouse.metastore)
    assert [str(finding) for finding in report.findings if finding.severity.value != "note"] == []


actions = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "delete", "compact", "read", "crash", "late"]),
        st.integers(1, 5),
    ),
    min_size=3,
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=12, phases=[Phase.generate])
@given(actions, st.sampled_from([None, 1, 2]))
def test_P42_random_streams_lead_to_the_rows_of_the_table(
    tmp_path_factory: pytest.TempPathFactory, chosen: list[tuple[str, int]], most: int | None
) -> None:
    """A query that stops before or after its commits, and takes up its batch where it stopped."""
    with place(tmp_path_factory.mktemp("stream")) as here:
        wh = here.warehouse
        wh.create_table("db.t", "id int, v string", partitioned_by=["p int"], properties=KEPT)
        wh.create_table("db.copy", "id int, v string, p int")
        inserted: list[tuple[Any, ...]] = []
        number = batch = 0
        planned: Offset | None = None
        stream = TableStream(options(here))
        start = stream.first()

        def run(crash: bool = False) -> None:
            """One batch; with `crash` its end is not noted, and the process is another one."""
            nonlocal start, planned, batch, stream
            if planned is None:
                end = stream.latest(start, most)
                if end == start:
                    return
                planned = end
            found = rows_between(stream, start, planned)
            named = [dict(zip(SCHEMA.names, each, strict=True)) for each in found]
            put(here, "db.copy", named, SinkBatch("s", "db.copy", "q", batch, len(named)))
            if crash:
                stream.stop()
                stream = TableStream(options(here))
                return
            start, planned, batch = planned, None, batch + 1

        for action, count in [*chosen, *[("read", 9)] * (len(chosen) + 3)]:
            if action == "insert":
                new = [row(number + each) for each in range(count)]
                number += count
                put(here, "db.t", new)
                inserted += [tuple(each.values()) for each in new]
            elif action == "update" and start["moment"] != NOTHING:
                wh.sql(f"UPDATE db.t SET v = 'u' WHERE id % 5 = {count - 1}")
            elif action == "delete" and start["moment"] != NOTHING:
                wh.sql(f"DELETE FROM db.t WHERE id % 7 = {count}")
            elif action == "compact":
                with suppress(AlreadyScheduled):
                    wh.table("db.t").compact("major" if count % 2 else "minor")
                cleaner.run(wh.metastore)
            elif action in ("read", "crash"):
                run(action == "crash")
            elif action == "late":  # a copy of the process that still lives
                # More rows than any batch has: with as many it would be a repetition.
                others = [row(999)] * 100
                late = SinkBatch("s", "db.copy", "q", batch - 1, len(others))
                if batch > 1:
                    with pytest.raises(StreamRefused):
                        put(here, "db.copy", others, late)
        assert here.rows("db.copy") == sorted(inserted)
        stream.stop()
        require_healthy(here)


def test_a_task_says_that_its_transaction_has_ended(here: Place, tmp_path: Path) -> None:
    """A writer that was stopped for longer than the timeout finds its directory gone."""
    write = batch_write.begin(options(here), SCHEMA.names, False)
    shutil.rmtree(write.staging)
    with pytest.raises(PublicationFailed, match="can't be written"):
        tasks(write, [[row(1)]])
    elsewhere = tmp_path / "not mounted"
    unreached = replace(
        write,
        place=Location.of(elsewhere),
        task=replace(write.task, location=f"{elsewhere}/t", directory=f"{elsewhere}/t/d"),
    )
    with pytest.raises(PublicationFailed, match="every executor reaches the warehouse"):
        tasks(unreached, [[row(1)]])
    assert not elsewhere.exists()
    here.warehouse.metastore.call(AbortMany((write.txn,), "no heartbeat"))
    with pytest.raises(TxnAborted, match="no heartbeat"):
        tasks(write, [[row(1)]])
    assert here.rows("db.t") == [] and here.open_transactions() == []


@pytest.mark.more
def test_P42_only_what_the_commit_names_is_visible(here: Place) -> None:
    """Another attempt of a task, a task that failed, and a write that was given up."""
    write = batch_write.begin(options(here), SCHEMA.names, False)
    first = tasks(write, [[row(1)], [row(2)]])
    tasks(write, [[row(1)], [row(2)]], first=10)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from as_batches([row(3)])
        raise RuntimeError("the query failed")

    with pytest.raises(RuntimeError):
        batch_write.write_rows(write, 2, 20, broken())
    assert batch_write.commit(write, sent(first))
    assert here.rows("db.t") == [(1, "a", 1), (2, "a", 2)]
    given_up = batch_write.begin(options(here), SCHEMA.names, False)
    tasks(given_up, [[row(5)]])
    batch_write.abort(given_up, "a task failed")
    assert len(here.rows("db.t")) == 2 and aborts(here) == ["a task failed"]
    lost = batch_write.begin(options(here), SCHEMA.names, False)
    done = tasks(lost, [[row(5)]])
    for file in Path(lost.staging).rglob("000*"):
        file.unlink()
    with pytest.raises(PublicationFailed, match="here is no file"):
        batch_write.commit(lost, done)
    aborted = batch_write.begin(options(here), SCHEMA.names, False)
    here.warehouse.metastore.call(AbortMany((aborted.txn,), "by hand"))
    with pytest.raises(TxnAborted):
        batch_write.commit(aborted, tasks(aborted, [[row(5)]]))
    assert len(here.rows("db.t")) == 2 and here.open_transactions() == []
    assert list(Path(here.warehouse.path, "db.db", "t").glob("_tmp*")) == []
    require_healthy(here)


def test_P42_a_failed_batch_of_a_query_is_aborted_by_its_key(here: Place) -> None:
    """Its tasks told nobody which transaction it was."""
    own = batch_write.begin(options(here), SCHEMA.names, False, key="c1")
    other = batch_write.begin(options(here), SCHEMA.names, False, key="c2")
    again = batch_write.begin(options(here), SCHEMA.names, False, key="c1")
    left = {row["txnid"] for row in here.open_transactions()}
    assert left == {other.txn, again.txn}, own
    batch_write.abort_held(here.location, "c1")
    batch_write.abort_held(here.location, "")
    assert {row["txnid"] for row in here.open_transactions()} == {other.txn}
    batch_write.abort(other, "")


@pytest.mark.more
def test_P42_a_failed_batch_without_a_checkpoint_option_is_aborted_if_it_is_told_apart(
    here: Place,
) -> None:
    """Its tasks told nobody which transaction it was, and its key is made of its options."""
    one, other = options(here), options(here, replay="skip")
    assert one.key != other.key and one.key == options(here).key
    first, second = (batch_write.begin(g, SCHEMA.names, False, key=g.key) for g in (one, other))
    AcidStreamWriter(one, SCHEMA.names, False).abort([None, None], 0)
    assert {row["txnid"] for row in here.open_transactions()} == {second.txn}, first
    twin = batch_write.begin(other, SCHEMA.names, False, key=other.key)
    AcidStreamWriter(other, SCHEMA.names, False).abort([None], 0)
    left = {row["txnid"] for row in here.open_transactions()}
    assert left == {second.txn, twin.txn}, "nobody knows which of them failed"
    batch_write.abort(second, "")
    batch_write.abort(twin, "")


@pytest.mark.more
@pytest.mark.parametrize(
    ("fields", "values", "error", "text"),
    [
        ({"nmae": pa.int32()}, [1], UnknownColumn, "nmae"),
        ({"id": pa.float64()}, [1.5], UnsupportedStatement, "cast the column"),
        ({"v": pa.timestamp("us", "Europe/Berlin")}, [0], WrongType, "session.timeZone to UTC"),
    ],
)
def test_P42_rows_that_do_not_fit_are_refused(
    here: Place,
    fields: dict[str, pa.DataType],
    values: list[Any],
    error: type[Exception],
    text: str,
) -> None:
    batch = pa.RecordBatch.from_pydict(
        {name: pa.array(values, kind) for name, kind in fields.items()}
    )
    with pytest.raises(error, match=text):
        write = batch_write.begin(options(here), list(fields), False)
        try:
            batch_write.write_rows(write, 0, 0, [batch])
        finally:
            batch_write.abort(write, "refused")
    assert here.open_transactions() == []


def test_P42_tables_that_tasks_cannot_write_are_refused(here: Place) -> None:
    here.warehouse.create_table("db.b", "id int", clustered_by=(["id"], 2))
    with pytest.raises(UnsupportedStatement, match=r"clustered.*Table\.insert"):
        batch_write.begin(options(here, "db.b"), ["id"], False)
    assert here.open_transactions() == []


@pytest.mark.parametrize(
    ("given", "use", "text"),
    [
        ({}, "read", "no table is named"),
        ({"path": "t", "asof": "1"}, "write", "asOf is for read"),
        ({"path": "t", "chanegs": "true"}, "readStream", "did you mean changes"),
        ({"path": "t", "changes": "yes"}, "readStream", "set it to false or true"),
        ({"path": "t", "maxcommitspertrigger": "0"}, "readStream", "a number from 1 on"),
    ],
)
def test_P42_options_that_are_wrong_are_refused(given: dict[str, str], use: str, text: str) -> None:
    with pytest.raises(InvalidDefinition, match=text):
        Options.of({"warehouse": "/nowhere", **given}, use)


def test_P42_a_stream_says_what_to_do_when_it_cannot_go_on(here: Place) -> None:
    wh = here.warehouse
    put(here, "db.t", [row(1)])
    stream = TableStream(options(here))
    start = stream.first()
    end = stream.latest(start)
    stream.stop()
    with pytest.raises(NoSuchPast, match="restored"):
        stream.latest(Offset(moment=10_000, table_id=end["table_id"], write_id=9))
    with pytest.raises(StreamRefused, match="none of this data source"):
        reads.offset_of({"path": "x"})
    wh.sql("ALTER TABLE db.t SET TBLPROPERTIES ('acid.history.retention' = '0')")
    wh.sql("DELETE FROM db.t")
    put(here, "db.t", [row(2)])
    wh.table("db.t").compact("major")
    stream.stop()
    cleaner.run(wh.metastore)
    with pytest.raises(NotEnoughHistory, match=r"can't go on.*new checkpointLocation"):
        stream.latest(end)
    stream.stop()
    wh.drop_table("db.t")
    wh.create_table("db.t", "id int, v string, p int")
    with pytest.raises(StreamRefused, match="dropped and made again"):
        stream.latest(Offset(moment=NOTHING, table_id=end["table_id"], write_id=0))
    stream.stop()


def test_P42_an_idle_stream_asks_without_a_new_transaction(here: Place) -> None:
    put(here, "db.t", [row(1)])
    stream = TableStream(options(here, since="now"))
    start = stream.first()
    assert stream.latest(start) == start
    (before,) = here.open_transactions()
    for _ in range(3):
        assert stream.latest(start) == start
    assert [row["txnid"] for row in here.open_transactions()] == [before["txnid"]]
    put(here, "db.t", [row(2)])
    end = stream.latest(start)
    put(here, "db.t", [row(3)])
    assert rows_between(stream, start, end) == [(2, "a", 2)]
    later = stream.latest(end)
    assert rows_between(stream, end, later) == [(3, "a", 0)]
    stream.end_here()
    put(here, "db.t", [row(4)])
    assert rows_between(stream, later, stream.latest(later)) == [] or later == stream.latest(later)
    stream.stop()
    assert here.open_transactions() == []


def test_P42_a_read_fails_once_its_lease_has_ended(here: Place) -> None:
    put(here, "db.t", [row(1), row(2)])
    lease, _ = reads.take(options(here))
    names = ["p", "ID"]
    (part,) = sent(reads.parts(options(here), names, lease))
    wanted = pa.schema([("p", pa.int32()), ("ID", pa.int32())])
    found = [each for batch in reads.batches(part, wanted) for each in batch.to_pylist()]
    assert sorted(each["ID"] for each in found) == [1, 2]
    reads.release(here.location, lease)
    with pytest.raises(SnapshotExpired, match=r"call load\(\) again"):
        reads.parts(options(here), names, lease)
    here.warehouse.sql("ALTER TABLE db.t SET TBLPROPERTIES ('acid.history.retention' = '0')")
    here.warehouse.sql("DELETE FROM db.t WHERE id = 1")
    here.warehouse.table("db.t").compact("major")
    cleaner.run(here.warehouse.metastore)
    with pytest.raises(SnapshotExpired, match=r"call load\(\) again"):
        list(reads.batches(part, wanted))


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_P42_the_keeper_keeps_and_ends_transactions(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application is a process that sleeps; it is killed in the end."""
    here.warehouse.metastore.set("hive.txn.timeout", "3s")
    application = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    monkeypatch.setattr(keeper, "_owner", lambda: psutil.Process(application.pid))
    keeper._directory.cache_clear()
    try:
        lease, _ = reads.take(options(here))
        write = batch_write.begin(options(here), SCHEMA.names, False)
        done = tasks(write, [[row(1)]])
        time.sleep(8)
        assert batch_write.commit(write, done), "longer than the timeout"
        left = batch_write.begin(options(here), SCHEMA.names, False)
        assert {each["txnid"] for each in here.open_transactions()} == {lease, left.txn}
        application.kill()
        application.wait()
        wait_until(lambda: here.open_transactions() == [], 2.5)
        assert aborts(here) == ["its Spark application has ended"]
        wait_until(lambda: not keeper._directory(here.location).exists())
    finally:
        application.kill()
        application.wait()
        keeper._directory.cache_clear()
