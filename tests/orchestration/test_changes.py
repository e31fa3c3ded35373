"""Assets that consume the changes of a table, each change once (P39)."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import definitions
from acid_platform import (
    InvalidDefinition,
    NoSuchPast,
    NotEnoughHistory,
    WriteConflict,
    WrongType,
)
from acid_platform.cli.doctor import stuck
from acid_platform.metastore.operations.tables import ForgetCursor, GetCursors
from acid_platform.orchestration import (
    AcidOut,
    TableDeclaration,
    TableInput,
    TransactionTable,
    acid_asset,
    acid_multi_asset,
    change_sensor,
)
from acid_platform.orchestration.resources import SparkResource, WarehouseResource
from acid_platform.services import cleaner
from tests.conftest import temporary_warehouse
from tests.orchestration import consuming
from tests.orchestration.conftest import Place
from tests.orchestration.consuming import log, materialize

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with (
        temporary_warehouse(tmp_path / "wh", engine="local") as warehouse,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        warehouse.create_table(
            "db.t", "id int, v string", properties={"acid.history.retention": "1h"}
        )
        resource = WarehouseResource(path=str(tmp_path / "wh"), engine="local")
        yield Place(warehouse, resource, instance)


def consumed(place: Place) -> list[tuple[int, str, int]]:
    rows = place.warehouse.table("db.log").to_arrow().to_pylist()
    return sorted((row["write_id"], row["what"], row["id"]) for row in rows)


@pytest.mark.slow
def test_P39_a_killed_materialization_neither_loses_nor_repeats_a_change(place: Place) -> None:
    wh = place.warehouse
    expected: list[tuple[int, str, int]] = []
    for number, when in enumerate(["before", "after", "never"]):
        wh.sql(f"INSERT INTO db.t VALUES ({number}, 'a')")
        wh.sql(f"UPDATE db.t SET v = 'u{number}' WHERE id = {number}")
        if number == 2:
            wh.table("db.t").compact("major")
            cleaner.run(wh.metastore)
        expected.append((2 * number + 1, "insert", number))
        expected.append((2 * number + 2, "update_preimage", number))
        expected.append((2 * number + 2, "update_postimage", number))
        done = subprocess.run(
            [sys.executable, consuming.__file__, wh.path, when],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == (0 if when == "never" else -signal.SIGKILL), done.stderr
        if when != "before":
            seen = consumed(place)
            if number == 1:  # the first run sees the rows of now, which count as inserted
                expected = [(write_id, what, id) for write_id, what, id in seen]
                assert [(what, id) for _, what, id in seen] == [("insert", 0), ("insert", 1)]
            assert seen == sorted(expected), when
    [row] = wh.metastore.call(GetCursors("db.t"))
    assert (row.cursor.consumer, row.behind) == ("db.log", 0)


def test_P39_the_cursor_moves_with_the_commit_of_one_run(place: Place) -> None:
    wh = place.warehouse
    wh.create_table("db.log", "id int")
    wh.sql("INSERT INTO db.t VALUES (1, 'a')")
    first, second = wh.transaction(), wh.transaction()
    for txn in (first, second):
        found = txn.table("db.t").changes_arrow(columns=["id"], consumer="c").read_all()
        assert found.to_pylist() == [{"id": 1}]
        txn.table("db.log").insert(found)
    second.commit()
    with pytest.raises(WriteConflict, match=r"another run of c has consumed changes of db\.t"):
        first.commit()
    assert wh.table("db.log").count() == 1
    with wh.transaction() as third:
        assert third.table("db.t").changes_arrow(consumer="c").read_all().num_rows == 0
    wh.sql("DELETE FROM db.t")
    aborted = wh.transaction()
    assert aborted.table("db.t").changes_arrow(consumer="c").read_all().num_rows == 1
    aborted.abort()
    [row] = wh.metastore.call(GetCursors("db.t"))
    assert (row.behind, row.cursor.write_id) == (1, 1)
    with wh.transaction() as again:
        [change] = again.table("db.t").changes_arrow(consumer="c").read_all().to_pylist()
        assert (change["_change_type"], change["_write_id"]) == ("delete", 2)


def test_P39_a_consumer_that_came_too_late_is_told_how_to_begin_again(place: Place) -> None:
    wh = place.warehouse
    kept = {"acid.consumer.retention": "0s"}
    table = wh.create_table("db.short", "id int", properties=kept)
    wh.sql("INSERT INTO db.short VALUES (1)")
    with wh.transaction() as txn:
        txn.table("db.short").changes_arrow(consumer="c").read_all()
    for id in (2, 3):
        wh.sql(f"INSERT INTO db.short VALUES ({id})")
    table.compact("major")
    cleaner.run(wh.metastore)
    with wh.transaction() as txn, pytest.raises(NotEnoughHistory) as told:
        txn.table("db.short").changes_arrow(consumer="c")
    assert "acid changes db.short --forget c" in str(told.value)
    assert "'acid.history.retention'='7d'" in str(told.value)
    wh.metastore.call(ForgetCursor("db.short", "c"))
    with pytest.raises(NoSuchPast, match=r"c does not consume the changes of db\.short"):
        wh.metastore.call(ForgetCursor("db.short", "c"))
    with wh.transaction() as txn:
        assert txn.table("db.short").changes_arrow(consumer="c").read_all().num_rows == 3
    wh.drop_table("db.short")
    assert wh.metastore.call(GetCursors(None)) == []


def test_P55_a_cursor_passes_no_changes_that_nobody_has_read(place: Place) -> None:
    wh = place.warehouse
    wh.sql("INSERT INTO db.t VALUES (1, 'a'), (2, 'b')")
    for read in (lambda _: None, lambda reader: reader.close()):
        txn = wh.transaction()
        read(txn.table("db.t").changes_arrow(consumer="c"))
        with pytest.raises(InvalidDefinition, match=r"c asked for are not read to their end"):
            txn.commit()
    with wh.transaction() as txn:
        assert txn.table("db.t").changes_arrow(consumer="c").read_all().num_rows == 2
    for name in ("", "a\nb"):
        with wh.transaction() as txn, pytest.raises(InvalidDefinition, match="name of a consumer"):
            txn.table("db.t").changes_arrow(consumer=name)
    with wh.transaction() as txn, pytest.raises(WrongType, match="consumer=5: pass a name"):
        txn.table("db.t").changes_arrow(consumer=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", ["RENAME COLUMN v TO w", "DROP COLUMN v"])
def test_P55_a_consumer_of_changes_with_other_columns_is_told_how_to_begin_again(
    place: Place, change: str
) -> None:
    wh = place.warehouse
    with wh.transaction() as txn:
        txn.table("db.t").changes_arrow(consumer="c").read_all()
    wh.sql("INSERT INTO db.t VALUES (1, 'a')")
    wh.sql(f"ALTER TABLE db.t {change}")
    told = r"were changed at .*, and c has not read them; to begin again .* --forget c"
    with wh.transaction() as txn, pytest.raises(NotEnoughHistory, match=told):
        txn.table("db.t").changes_arrow(consumer="c")
    [row] = wh.metastore.call(GetCursors("db.t"))
    assert row.behind == 1 and "--forget c" in row.refused


def test_P55_assets_that_consume_together_with_others_get_no_row_twice(place: Place) -> None:
    def counting(*names: str) -> dg.AssetsDefinition:
        @acid_multi_asset(
            outs=[AcidOut(TableDeclaration(name, "id int"), write_mode="append") for name in names],
            ins={"t": TableInput("db.t", changes=True)},
        )
        def count(t: pa.Table) -> dict[str, pa.Table]:
            return {name: t.select(["id"]) for name in names}

        return count

    def run(assets: dg.AssetsDefinition) -> object:
        resources = {"warehouse": place.resource, "spark": SparkResource()}
        return dg.materialize([assets], resources=resources, instance=place.instance)

    place.warehouse.sql("INSERT INTO db.t VALUES (1, 'a')")
    run(counting("db.one", "db.two"))
    told = r"acid changes db\.t --forget db\.one\+db\.two"
    with pytest.raises(NotEnoughHistory, match=told):
        run(counting("db.one", "db.three"))
    assert place.warehouse.table("db.one").count() == 1
    place.warehouse.metastore.call(ForgetCursor("db.t", "db.one+db.two"))
    place.warehouse.sql("TRUNCATE TABLE db.one")
    run(counting("db.one", "db.three"))
    assert place.warehouse.table("db.one").count() == 1


def tick(place: Place, sensor: dg.SensorDefinition) -> Any:
    context = place.context()
    context.log.setLevel("CRITICAL")
    return sensor(context)


@pytest.mark.more
def test_P39_the_sensor_starts_consumers_when_something_changed(place: Place) -> None:
    wh, sensor = place.warehouse, change_sensor([log])

    def request() -> dg.RunRequest | None:
        return next(iter(tick(place, sensor).run_requests or ()), None)

    assert request() is None, "nothing was ever written"
    wh.sql("INSERT INTO db.t VALUES (1, 'a')")
    first = request()
    assert first and first.run_key == "db.log:db.t:new-1:1"
    assert first.asset_selection == [dg.AssetKey(["db", "log"])]
    assert materialize(place.resource).success
    assert request() is None
    assert "it has seen every change" in tick(place, sensor).skip_reason.skip_message
    wh.table("db.t").compact("major")
    assert request() is None, "a compaction changes no row"
    wh.sql("DELETE FROM db.t")
    second = request()
    assert second and second.run_key != first.run_key
    for _ in range(3):  # runs that did not consume it
        place.instance.create_run_for_job(
            definitions.defs().resolve_job_def("cleaning_job"),  # any job
            tags=second.tags,
            status=dg.DagsterRunStatus.FAILURE,
        )
    assert "3 runs have not consumed" in tick(place, sensor).skip_reason.skip_message


@pytest.mark.more
@pytest.mark.parametrize("how", ["cleaned", "made again", "dropped"])
def test_P55_a_lost_change_stays_visible_until_the_consumer_begins_again(
    place: Place, how: str
) -> None:
    wh, sensor, forget = place.warehouse, change_sensor([log]), "acid changes db.t --forget db.log"
    settings = "'acid.consumer.retention' = '0s', 'acid.history.retention' = '0s'"
    wh.sql(f"ALTER TABLE db.t SET TBLPROPERTIES ({settings})")
    wh.sql("INSERT INTO db.t VALUES (1, 'a')")
    assert materialize(place.resource).success
    if how == "cleaned":
        wh.sql("INSERT INTO db.t VALUES (2, 'b')")
        wh.table("db.t").compact("major")
        cleaner.run(wh.metastore)
    else:
        wh.drop_table("db.t")
    if how == "dropped":
        assert "there is no table db.t" in tick(place, sensor).skip_reason.skip_message
        return
    if how == "made again":
        wh.create_table("db.t", "id int, v string").insert([{"id": 2, "v": "b"}])
    [request] = tick(place, sensor).run_requests
    place.instance.create_run_for_job(
        definitions.defs().resolve_job_def("cleaning_job"),  # any job
        tags=request.tags,
        status=dg.DagsterRunStatus.FAILURE,
    )
    with pytest.raises(NotEnoughHistory, match=forget):
        materialize(place.resource)
    assert forget in tick(place, sensor).skip_reason.skip_message
    [shown] = [each for each in stuck(wh.metastore, 0) if "consumer" in each.what]
    assert shown.what == "consumer db.log of db.t" and forget in shown.why
    wh.metastore.call(ForgetCursor("db.t", "db.log"))
    wh.sql("TRUNCATE TABLE db.log")
    assert materialize(place.resource).success
    assert [id for _, _, id in consumed(place)] == ([1, 2] if how == "cleaned" else [2])
    assert "it has seen every change" in tick(place, sensor).skip_reason.skip_message


def test_P39_what_can_not_consume_changes_is_refused_when_the_module_is_loaded() -> None:
    changes = {"t": TableInput("db.t", changes=True)}
    with pytest.raises(InvalidDefinition, match="an asset with partitions can't consume"):

        @acid_asset(
            table=TableDeclaration("db.a", "id int", partitioned_by=("p string",)),
            partitions_def=dg.StaticPartitionsDefinition(["x"]),
            partition_expr="p",
            ins=changes,
        )
        def a(t: pa.Table) -> pa.Table:
            return t

    with pytest.raises(InvalidDefinition, match="assets with can_subset can't consume"):

        @acid_multi_asset(outs=[AcidOut("db.b"), AcidOut("db.c")], can_subset=True, ins=changes)
        def b(t: pa.Table) -> dict[str, object]:
            return {}

    with pytest.raises(InvalidDefinition, match=r"come as a frame, pyarrow.Table or"):

        @acid_asset(table="db.d", ins=changes)
        def d(t: TransactionTable) -> None: ...

    with pytest.raises(InvalidDefinition, match="leave where and partition_mapping out"):
        TableInput("db.t", where="id > 1", changes=True)

    @acid_asset(table="db.e")
    def e() -> None: ...

    with pytest.raises(InvalidDefinition, match=r"db.e consumes no changes"):
        change_sensor([e])
