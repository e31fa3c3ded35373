"""@acid_asset: what a materialization commits, refuses, tells and tries again, through Spark."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import dataclasses
import datetime
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform import Table
from acid_platform.orchestration import (
    AcidOut,
    Expectation,
    Finding,
    TableDeclaration,
    TableInput,
    Transaction,
    TransactionTable,
    acid_asset,
    acid_multi_asset,
)
from acid_platform.orchestration.outputs import KEYED_MODES
from acid_platform.orchestration.resources import SparkResource
from acid_platform.services import cleaner
from tests.orchestration.conftest import Place, failure, run, stored, succeeded

pytestmark = pytest.mark.spark

TABLE = TableDeclaration("db.t", "id int, v string", partitioned_by=("p int",))
POSITIVE = Expectation(
    "ids_are_positive", "ExpectColumnValuesToBeBetween", {"column": "id", "min_value": 1}
)
NAMED = Expectation("v_is_given", "ExpectColumnValuesToNotBeNull", {"column": "v"}, blocking=False)


@pytest.fixture
def lake(place: Place, spark: SparkSession) -> Iterator[Place]:
    place.warehouse._given = spark
    yield place


def told(result: dg.ExecuteInProcessResult, key: str = "t") -> dict[str, Any]:
    """Metadata of the one materialization of an asset."""
    [event] = [
        one
        for one in result.get_asset_materialization_events()
        if one.asset_key == dg.AssetKey(["db", key])
    ]
    return {
        name: one.records if isinstance(one, dg.TableMetadataValue) else one.value
        for name, one in event.materialization.metadata.items()
    }


# --- a materialization is one transaction --------------------------------------------------------


def test_a_materialization_is_one_transaction_that_tells_what_it_did(lake: Place) -> None:
    new = pd.DataFrame({"id": [1, 2, 3], "v": "x", "p": [1, 1, 2]})

    @acid_asset(table=TABLE, write_mode="append", expectations=[POSITIVE, NAMED])
    def t() -> pd.DataFrame:
        """Some rows."""
        return new

    result = run(lake, t)
    assert succeeded(result)
    metadata = told(result)
    history = lake.warehouse.table("db.t").history()
    assert {one["txn"] for one in history} == {metadata["transaction"]}
    assert {one["run_id"] for one in history} == {result.run_id} == {metadata["run id"]}
    assert (metadata["previous write id"], metadata["write id"]) == (0, 1)
    assert metadata["dagster/row_count"] == metadata["rows inserted"] == 3
    assert metadata["difference to the previous write id"] == "3 inserted, 0 updated, 0 deleted"
    assert metadata["dagster/table_name"] == "db.t"
    assert [one.name for one in metadata["dagster/column_schema"].columns] == ["id", "v", "p"]
    assert (metadata["delta directories"], metadata["base directories"]) == (2, 0)
    assert metadata["written bytes"] == metadata["bytes"] > 0
    assert [
        (one.data["partition"], one.data["rows"]) for one in metadata["partitions written"]
    ] == [("p=1", 2), ("p=2", 1)]
    [event] = result.get_asset_materialization_events()
    assert (event.materialization.tags or {})["dagster/data_version"] == "1"
    assert t.descriptions_by_key == {dg.AssetKey(["db", "t"]): "Some rows."}
    passed = {one.check_name: one.passed for one in result.get_asset_check_evaluations()}
    assert passed == {"ids_are_positive": True, "v_is_given": True}


def test_a_reader_never_sees_what_a_blocking_check_refuses(lake: Place) -> None:
    bad = [{"id": 7, "v": "a", "p": 1}, {"id": -4, "v": "b", "p": 1}]

    @acid_asset(table=TABLE, write_mode="upsert", key=["id", "p"], expectations=[POSITIVE, NAMED])
    def t() -> list[dict[str, object]]:
        return bad

    lake.warehouse.create_table(TABLE.name, str(TABLE.columns), TABLE.partitioned_by).insert(
        [{"id": 7, "v": "before", "p": 1}]
    )
    ended, seen = threading.Event(), []

    def read() -> None:
        while not ended.is_set():
            seen.append(stored(lake, "db.t"))
            time.sleep(0.02)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        result = run(lake, t)
    finally:
        ended.set()
        reader.join()
    assert len(seen) > 3 and all(one == [(7, "before", 1)] for one in seen)
    assert not result.success and not result.get_asset_materialization_events()
    assert "nothing was written" in failure(result)
    assert "it failed ids_are_positive of db.t" in failure(result)
    checks = {one.check_name: one for one in result.get_asset_check_evaluations()}
    assert checks["v_is_given"].passed and not checks["ids_are_positive"].passed
    metadata = checks["ids_are_positive"].metadata
    samples = metadata["unexpected rows"]
    assert isinstance(samples, dg.TableMetadataValue)
    [sample] = samples.records
    assert sample.data == {"id": "-4", "p": "1"}
    page = metadata["data docs"]
    assert isinstance(page, dg.MarkdownMetadataValue)  # a browser shows it on any machine
    shown = str(page.value)
    assert "1 of 2 expectations hold" in shown and "| -4 | 1 |" in shown
    [step] = [one for one in result.all_events if one.is_step_failure]
    assert step.step_failure_data.user_failure_data
    assert shown in str(step.step_failure_data.user_failure_data.metadata["data docs"].value)
    # The transaction is aborted, and its files go at the next cleaning.
    [one] = [one for one in lake.warehouse.metastore.transactions() if one["state"] == "ABORTED"]
    assert (one["run_id"], one["reason"]) == (
        result.run_id,
        "ChecksFailed: ids_are_positive of db.t",
    )
    root = Path(lake.warehouse.table("db.t").location)
    assert list(root.glob("p=1/*delta_0000002_*"))
    lake.warehouse.release()
    lake.warehouse.metastore.set("hive.compactor.abortedtxn.threshold", "0")
    removed = [path for done in cleaner.run(lake.warehouse.metastore) for path in done.removed]
    assert removed and not list(root.glob("p=1/*delta_0000002_*"))
    assert stored(lake, "db.t") == [(7, "before", 1)]


def test_a_check_that_only_warns_lets_the_rows_in(lake: Place) -> None:
    @acid_asset(table="db.t", expectations=[NAMED])
    def t() -> list[dict[str, object]]:
        return [{"id": 1, "v": "x"}, {"id": 2, "v": None}]

    result = run(lake, t)
    assert succeeded(result) and stored(lake, "db.t") == [(1, "x"), (2, None)]
    [check] = result.get_asset_check_evaluations()
    assert not check.passed and check.severity is dg.AssetCheckSeverity.WARN


# --- write modes ---------------------------------------------------------------------------------

BEFORE = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
GIVEN = [{"id": 2, "v": "B"}, {"id": 3, "v": "C"}]


@pytest.mark.parametrize(
    ("mode", "key", "after", "difference"),
    [
        (
            "append",
            [],
            [(1, "a"), (2, "B"), (2, "b"), (3, "C")],
            "2 inserted, 0 updated, 0 deleted",
        ),
        ("overwrite", [], [(2, "B"), (3, "C")], "2 inserted, 0 updated, 2 deleted"),
        ("upsert", ["id"], [(1, "a"), (2, "B"), (3, "C")], "1 inserted, 1 updated, 0 deleted"),
        (
            "delete+insert",
            ["id"],
            [(1, "a"), (2, "B"), (3, "C")],
            "2 inserted, 0 updated, 1 deleted",
        ),
    ],
)
def test_what_a_write_mode_does(
    lake: Place, mode: Any, key: Sequence[str], after: list[tuple[Any, ...]], difference: str
) -> None:
    table = lake.warehouse.create_table("db.t", "id int, v string")
    table.insert(BEFORE)

    @acid_asset(table="db.t", write_mode=mode, key=key)
    def t() -> pa.Table:
        return pa.Table.from_pylist(GIVEN)

    result = run(lake, t)
    assert succeeded(result) and stored(lake, "db.t") == after
    metadata = told(result)
    assert metadata["difference to the previous write id"] == difference
    assert metadata["dagster/row_count"] == len(after)
    assert len({one["txn"] for one in table.history()}) == 2


def answering(given: object) -> Callable[[], object]:
    def body() -> object:
        return given

    return body


REFUSED: list[tuple[Any, object, str]] = [
    ("upsert", [{"id": 9, "v": "x"}, {"id": 9, "v": "y"}], "several rows have the key id=9"),
    ("upsert", [{"id": None, "v": "x"}], "has NULL in its key"),
    ("delete+insert", [{"id": None, "v": "x"}], "has NULL in its key"),
    ("upsert", [{"v": "x"}], "lack the key column id"),
    ("append", [{"id": 1, "w": 2}], "has no column 'w'; its columns are id, v"),
    ("overwrite", ({"id": one} for one in (1, 2)), "for dicts give list"),
    ("append", [{"id": 1, "ID": 2}], "the column id twice"),
]


def test_rows_that_a_mode_can_t_place_change_nothing(lake: Place) -> None:
    lake.warehouse.create_table("db.t", "id int, v string").insert(BEFORE)
    for mode, given, why in REFUSED:
        declared = acid_asset(
            table=TableDeclaration("db.t", "id int, v string"),
            write_mode=mode,
            key=["id"] if mode in KEYED_MODES else [],
        )
        result = run(lake, declared(answering(given)))
        assert not result.success and why in failure(result)
        kinds = {one.event_type for one in result.all_events}
        assert dg.DagsterEventType.STEP_UP_FOR_RETRY not in kinds
    assert stored(lake, "db.t") == [(1, "a"), (2, "b")]


def test_an_asset_without_partitions_replaces_every_partition_of_its_table(lake: Place) -> None:
    for numbers in ([1, 2], [2, 3]):
        given = [{"id": one, "v": "x", "p": one} for one in numbers]
        assert succeeded(run(lake, acid_asset(table=TABLE)(answering(given))))
    assert [row[0] for row in stored(lake, "db.t")] == [2, 3]


def test_new_columns_are_added_when_the_transaction_commits_and_only_then(lake: Place) -> None:
    table = lake.warehouse.create_table("db.t", "id int, v string")
    table.insert(BEFORE)
    wide = [{"id": 3, "v": "c", "share": 0.5}]

    def columns() -> list[str]:
        return [one.name for one in table.columns]

    for low, success in ((10, False), (1, True)):

        @acid_asset(
            table="db.t",
            write_mode="append",
            schema_mode="add",
            expectations=[
                Expectation(
                    "ids", "ExpectColumnMinToBeBetween", {"column": "id", "min_value": low}
                ),
                Expectation(
                    "shares", "ExpectColumnValuesToBeBetween", {"column": "share", "max_value": 1}
                ),
            ],
        )
        def t() -> list[dict[str, object]]:
            return wide

        assert run(lake, t).success is success
        assert columns() == (["id", "v", "share"] if success else ["id", "v"])
    assert stored(lake, "db.t") == [(1, "a", None), (2, "b", None), (3, "c", 0.5)]


# --- bodies --------------------------------------------------------------------------------------


def test_a_body_may_drive_the_transaction_and_check_by_itself(lake: Place) -> None:
    @acid_asset(table=TABLE, checks=[POSITIVE])
    def t(txn: Transaction) -> list[Finding]:
        table = txn.table("db.t")
        table.insert([{"id": 1, "v": "x", "p": 1}, {"id": 2, "v": "y", "p": 1}])
        table.update({"v": "upper(v)"}, "id = 2")
        return [Finding("ids_are_positive", table.read().count() == 2)]

    result = run(lake, t)
    assert succeeded(result) and stored(lake, "db.t") == [(1, "x", 1), (2, "Y", 1)]
    metadata = told(result)
    assert (metadata["rows inserted"], metadata["rows updated"]) == (2, 1)


def test_inputs_are_read_at_one_snapshot_as_they_are_annotated(lake: Place) -> None:
    @acid_asset(table="db.up", write_mode="append")
    def up() -> list[dict[str, int]]:
        return [{"n": 1}, {"n": 2}]

    got: dict[str, object] = {}

    @acid_asset(
        table="db.down",
        ins={"few": TableInput(up, ["n"], "n > 1"), "lazily": "db.up"}
        | dict.fromkeys(("frame", "batches", "polar"), up),
    )
    def down(
        context: dg.AssetExecutionContext,
        up: pd.DataFrame,
        few: pa.Table,
        lazily: TransactionTable,
        batches: pa.RecordBatchReader,
        polar: pl.DataFrame,
        frame,  # type: ignore[no-untyped-def]
    ) -> object:
        lake.warehouse.table("db.up").insert([{"n": 3}])  # after the snapshot
        got.update(up=sorted(up["n"]), few=few.to_pylist(), lazily=lazily.read().count())
        got.update(batches=batches.read_all().num_rows, polar=sorted(polar["n"]))
        return frame.selectExpr("n * 10 AS tens")

    result = run(lake, up, down)
    assert succeeded(result) and stored(lake, "db.down") == [(10,), (20,)]
    assert got == {"up": [1, 2], "few": [{"n": 2}], "lazily": 2, "batches": 2, "polar": [1, 2]}
    assert down.asset_deps[dg.AssetKey(["db", "down"])] == {dg.AssetKey(["db", "up"])}


BEATS = {
    "hive.txn.timeout": "2500ms",
    "acid.heartbeat.interval": "250ms",
    "hive.timedout.txn.reaper.start": "0s",
    "hive.timedout.txn.reaper.interval": "100ms",
}


@pytest.mark.slow
def test_P7_heartbeats_go_on_while_a_spark_job_is_longer_than_the_timeout(lake: Place) -> None:
    for name, value in BEATS.items():
        lake.warehouse.metastore.set(name, value)

    @acid_asset(table="db.t", write_mode="append")
    def t(spark: dg.ResourceParam[SparkResource]) -> object:
        return spark.spark_session.sql(
            "SELECT 1 AS id, reflect('java.lang.Thread', 'sleep', 4000L) AS v"
        )

    assert succeeded(run(lake, t)) and stored(lake, "db.t") == [(1, "null")]


# --- several tables ------------------------------------------------------------------------------


def pair(second: int, can_subset: bool = False) -> dg.AssetsDefinition:
    @acid_multi_asset(
        can_subset=can_subset,
        outs=[AcidOut("db.a"), AcidOut("db.b", expectations=[POSITIVE], spec={"group_name": "g"})],
    )
    def both() -> Mapping[str, object]:
        return {"db.a": [{"id": second}], "db.b": pd.DataFrame({"id": [second]})}

    return both


def test_several_tables_commit_together_or_not_at_all(lake: Place) -> None:
    assert succeeded(run(lake, pair(1)))
    result = run(lake, pair(-2))
    assert not result.success and "ids_are_positive of db.b" in failure(result)
    assert (stored(lake, "db.a"), stored(lake, "db.b")) == ([(1,)], [(1,)])
    again = run(lake, pair(3))
    assert told(again, "a")["transaction"] == told(again, "b")["transaction"]
    subset = run(lake, pair(4, can_subset=True), selection=[dg.AssetKey(["db", "a"])])
    assert succeeded(subset)
    assert (stored(lake, "db.a"), stored(lake, "db.b")) == ([(4,)], [(3,)])


def test_expectations_are_executed_alone_on_what_is_committed(lake: Place) -> None:
    @acid_asset(table="db.t", expectations=[POSITIVE])
    def t() -> object:
        raise AssertionError("the body is not run")

    def alone(asset: dg.AssetsDefinition, name: str) -> bool:
        key = dg.AssetKey(["db", name])
        result = run(lake, asset, selection=dg.AssetSelection.checks_for_assets(key))
        assert not result.get_asset_materialization_events()
        [evaluation] = result.get_asset_check_evaluations()
        assert result.success == evaluation.passed, "a blocking check fails its run"
        return evaluation.passed

    table = lake.warehouse.create_table("db.t", "id int")
    table.insert([{"id": 1}])
    assert alone(t, "t")
    table.insert([{"id": -1}])
    assert not alone(t, "t")
    assert len(table.history()) == 2
    assert succeeded(run(lake, pair(1)))
    assert alone(pair(-5, can_subset=True), "b") and stored(lake, "db.b") == [(1,)]


def test_checks_of_the_body_are_executed_alone_where_recheck_finds_them(lake: Place) -> None:
    lake.warehouse.create_table("db.t", "id int").insert([{"id": 1}, {"id": 2}])

    def recheck(context: dg.AssetExecutionContext, table: Table) -> list[Finding]:
        return [Finding("rows_are_as_sent", table.count() == 2)]

    @acid_asset(
        table="db.t",
        checks=[dataclasses.replace(POSITIVE, name="rows_are_as_sent")],
        expectations=[POSITIVE],
        recheck=recheck,
    )
    def t(txn: Transaction) -> object:
        raise AssertionError("the body is not run")

    for name in ("rows_are_as_sent", "ids_are_positive"):
        chosen = dg.AssetSelection.checks(dg.AssetCheckKey(dg.AssetKey(["db", "t"]), name))
        result = run(lake, t, selection=chosen)
        assert succeeded(result)
        assert [one.check_name for one in result.get_asset_check_evaluations()] == [name]


# --- partitions ----------------------------------------------------------------------------------

DAYS = TableDeclaration("db.t", "id int", partitioned_by=("day date",))
DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")


def daily(
    give: Callable[[Sequence[str]], object], expectations: Sequence[Expectation] = (), **more: Any
) -> dg.AssetsDefinition:
    @acid_asset(
        table=DAYS, partitions_def=DAILY, partition_expr="day", expectations=expectations, **more
    )
    def t(context: dg.AssetExecutionContext) -> object:
        return give(context.partition_keys)

    return t


def test_a_click_on_execute_names_no_partition_and_looks_at_all(lake: Place) -> None:
    asset = daily(lambda keys: [{"id": -1}], [POSITIVE])
    table = lake.warehouse.create_table(DAYS.name, str(DAYS.columns), DAYS.partitioned_by)
    table.insert(
        [{"id": number, "day": datetime.date(2024, 1, day)} for number, day in ((1, 1), (-1, 2))]
    )
    checks = dg.AssetSelection.checks_for_assets(asset.key)
    result = run(lake, asset, selection=checks)
    [evaluation] = result.get_asset_check_evaluations()
    assert not evaluation.passed
    table.delete("id < 0")
    assert run(lake, asset, selection=checks).success


def per_day(lake: Place) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, day in stored(lake, "db.t"):
        found.setdefault(str(day), []).append(number)
    return found


def test_materializing_a_partition_again_replaces_exactly_that_one(lake: Place) -> None:
    small = Expectation("small", "ExpectColumnValuesToBeBetween", {"column": "id", "max_value": 5})
    for key, ids in (("2024-01-01", [1, 2]), ("2024-01-02", [3]), ("2024-01-01", [4])):
        given = pd.DataFrame({"id": ids})
        result = run(lake, daily(lambda keys, given=given: given, [small]), partition_key=key)
        assert succeeded(result)
        assert told(result)["dagster/partition_row_count"] == len(ids)
    assert per_day(lake) == {"2024-01-01": [4], "2024-01-02": [3]}
    # The check looks at the run's partition only; the difference is that of the table.
    assert told(result)["difference to the previous write id"] == "1 inserted, 0 updated, 2 deleted"
    assert told(result)["dagster/row_count"] == 2
    # Rows of another day would be lost silently, so they are refused.
    day = pd.DataFrame({"id": [9], "day": [pd.Timestamp("2024-01-03").date()]})
    wrong = run(lake, daily(lambda keys: day), partition_key="2024-01-01")
    assert "a row for db.t has day=2024-01-03, the partition has 2024-01-01" in failure(wrong)
    assert succeeded(run(lake, daily(lambda keys: []), partition_key="2024-01-02"))  # none is fine
    assert per_day(lake) == {"2024-01-01": [4]}


def test_a_single_run_over_a_range_is_one_transaction(lake: Place) -> None:
    lake.warehouse.create_table(DAYS.name, str(DAYS.columns), DAYS.partitioned_by)
    lake.warehouse.table("db.t").insert(
        [{"id": one, "day": pd.Timestamp(f"2024-01-0{one}").date()} for one in (1, 2, 3)]
    )
    tags = {
        "dagster/asset_partition_range_start": "2024-01-01",
        "dagster/asset_partition_range_end": "2024-01-02",
    }

    def give(*days: int) -> object:
        return pd.DataFrame(
            {
                "id": [day * 10 for day in days],
                "day": [pd.Timestamp(f"2024-01-0{day}").date() for day in days],
            }
        )

    policy = {"backfill_policy": dg.BackfillPolicy.single_run()}
    result = run(lake, daily(lambda keys: give(*range(1, len(keys))), **policy), tags=tags)
    assert succeeded(result)
    # The second day has no rows any more, and the third is not in the run.
    assert per_day(lake) == {"2024-01-01": [10], "2024-01-03": [3]}
    counts = {
        one.materialization.partition: one.materialization.metadata[
            "dagster/partition_row_count"
        ].value
        for one in result.get_asset_materialization_events()
    }
    assert counts == {"2024-01-01": 1, "2024-01-02": 0}
    assert len({one["txn"] for one in lake.warehouse.table("db.t").history()}) == 2
    wrong = run(lake, daily(lambda keys: give(2, 3), **policy), tags=tags)
    assert not wrong.success and "belong to day=2024-01-03" in failure(wrong)
    bare = run(lake, daily(lambda keys: [{"id": 1}], **policy), tags=tags)
    assert not bare.success and "return rows with the column 'day'" in failure(bare)
    assert per_day(lake) == {"2024-01-01": [10], "2024-01-03": [3]}


def test_a_partition_of_the_asset_may_be_several_of_the_table(lake: Place) -> None:
    table = TableDeclaration("db.t", "n int", ("day date", "shop string"))
    declared = acid_asset(table=table, partitions_def=DAILY, partition_expr="day")
    for key, shops in (("2024-01-01", "ab"), ("2024-01-02", "a"), ("2024-01-01", "bc")):
        given = [{"n": len(shops), "shop": shop} for shop in shops]
        result = run(lake, declared(answering(given)), partition_key=key)
        assert succeeded(result)
    assert told(result)["dagster/partition_row_count"] == 2
    assert [(str(day), shop) for _, day, shop in stored(lake, "db.t")] == [
        ("2024-01-02", "a"),
        ("2024-01-01", "b"),
        ("2024-01-01", "c"),
    ]


def test_multi_and_dynamic_partitions_are_replaced_one_by_one(lake: Place) -> None:
    lake.instance.add_dynamic_partitions("shops", ["north", "south"])
    both = dg.MultiPartitionsDefinition(
        {"date": DAILY, "shop": dg.DynamicPartitionsDefinition(name="shops")}
    )

    @acid_asset(
        table=TableDeclaration("db.t", "n int", ("shop string", "day date")),
        partitions_def=both,
        partition_expr={"date": "day", "shop": "shop"},
    )
    def t(context: dg.AssetExecutionContext) -> list[dict[str, int]]:
        return [
            {
                "n": context.retry_number
                + len(
                    lake.instance.get_event_records(
                        dg.EventRecordsFilter(
                            dg.DagsterEventType.ASSET_MATERIALIZATION, asset_key=t.key
                        )
                    )
                )
            }
        ]

    for shop in ("north", "south", "north"):
        key = dg.MultiPartitionKey({"date": "2024-01-02", "shop": shop})
        assert succeeded(run(lake, t, partition_key=key))
    assert [(n, shop, str(day)) for n, shop, day in stored(lake, "db.t")] == [
        (1, "south", "2024-01-02"),
        (2, "north", "2024-01-02"),
    ]


def test_downstream_reads_the_partitions_that_dagster_maps(lake: Place) -> None:
    up = daily(lambda keys: [{"id": int(keys[0][-1])}])

    @acid_asset(
        table=TableDeclaration("db.sums", "total bigint", ("day date",)),
        partitions_def=DAILY,
        partition_expr="day",
        ins={"days": TableInput(up, partition_mapping=dg.TimeWindowPartitionMapping(-1, 0))},
    )
    def sums(days: pd.DataFrame) -> list[dict[str, int]]:
        return [{"total": int(days["id"].sum())}]

    for key in ("2024-01-01", "2024-01-02", "2024-01-03"):
        assert succeeded(run(lake, up, partition_key=key))
    assert succeeded(run(lake, up, sums, selection=[sums], partition_key="2024-01-03"))
    assert [one[0] for one in stored(lake, "db.sums")] == [5]


# --- trying again --------------------------------------------------------------------------------


def test_a_conflict_is_tried_again_with_a_fresh_snapshot(lake: Place) -> None:
    table = lake.warehouse.create_table("db.t", "id int, v string")
    table.insert(BEFORE)
    attempts: list[str] = []

    @acid_asset(
        table="db.t", write_mode="append", retry_policy=dg.RetryPolicy(max_retries=2, delay=0)
    )
    def t(context: dg.AssetExecutionContext, txn: Transaction) -> None:
        [value] = txn.table("db.t").to_arrow(where="id = 1")["v"].to_pylist()
        attempts.append(value)
        txn.table("db.t").update({"v": f"'{value}!'"}, "id = 1")
        if context.retry_number == 0:
            table.update({"v": "'other'"}, "id = 1")  # commits first

    result = run(lake, t)
    assert succeeded(result) and attempts == ["a", "other"]
    assert stored(lake, "db.t") == [(1, "other!"), (2, "b")]
    kinds = [one.event_type for one in result.all_events]
    assert kinds.count(dg.DagsterEventType.STEP_UP_FOR_RETRY) == 1
    assert kinds.count(dg.DagsterEventType.STEP_RESTARTED) == 1
