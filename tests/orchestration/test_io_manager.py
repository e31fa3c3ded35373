"""`AcidIOManager`: assets of plain `@dg.asset` as tables, without Spark."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import datetime
from collections.abc import Callable
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from acid_platform import InvalidDefinition, OutcomeUnknown, Table
from acid_platform.handles.read_verbs import Reads
from acid_platform.handles.transaction import Transaction
from acid_platform.orchestration import AcidIOManager, TableDeclaration, TableInput, acid_asset
from acid_platform.orchestration.inputs import reader_of
from acid_platform.orchestration.resources import WarehouseResource
from tests.lineage_collector import collecting, sent
from tests.orchestration.conftest import Place, failure, quiet, run, stored, succeeded

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])
BOTH = dg.MultiPartitionsDefinition({"date": DAYS, "region": REGIONS})
Row = tuple[Any, ...]


@pytest.mark.more
def test_a_collector_is_told_the_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openlineage.client")

    @dg.asset(key_prefix="shop")
    def frame() -> pd.DataFrame:
        return pd.DataFrame({"id": [1, 2]})

    with collecting(monkeypatch) as collector:
        result = run(place, frame)
        assert succeeded(result)
        (event,) = sent(collector)
    assert event["job"]["name"] == "shop/frame"
    assert event["run"]["facets"]["parent"]["run"]["runId"] == result.run_id


def test_each_type_is_stored_and_loaded(place: Place) -> None:
    @dg.asset(key_prefix="shop")
    def frame() -> pd.DataFrame:
        return pd.DataFrame({"id": [1, 2], "name": ["a", None]})

    @dg.asset(key_prefix="shop", ins={"frame": dg.AssetIn(key_prefix="shop")})
    def arrow(frame: pa.Table) -> pa.Table:
        assert frame.schema.names == ["id", "name"] and frame.num_rows == 2
        return frame

    @dg.asset(
        ins={"arrow": dg.AssetIn(key=["shop", "arrow"], metadata={"columns": ["id"]})},
        metadata={"schema": "small"},
    )
    def dicts(arrow: pd.DataFrame) -> list[dict[str, Any]]:
        assert list(arrow.columns) == ["id"]
        return [{"total": int(arrow["id"].sum())}]

    @dg.asset
    def alone(dicts: pa.Table) -> pa.Table:
        return dicts

    result = run(place, frame, arrow, dicts, alone)
    assert succeeded(result)
    assert stored(place, "shop.arrow") == stored(place, "shop.frame") == [(1, "a"), (2, None)]
    assert stored(place, "small.dicts") == stored(place, "default.alone") == [(3,)]
    [event] = [
        event
        for event in result.get_asset_materialization_events()
        if event.asset_key == dg.AssetKey("alone")
    ]
    metadata = event.materialization.metadata
    assert metadata["dagster/table_name"].value == "default.alone"
    assert (metadata["dagster/row_count"].value, metadata["write id"].value) == (1, 1)
    assert (event.materialization.tags or {})["dagster/data_version"] == "1"
    [one] = place.warehouse.table("default.alone").history()
    assert one["run_id"] == result.run_id


@pytest.mark.slow
def test_all_kinds_of_assets_read_each_other_in_one_run(place: Place) -> None:
    @acid_asset(table=TableDeclaration("shop.a", "id int"))
    def a() -> pa.Table:
        return pa.table({"id": [1]})

    @dg.asset(key_prefix="shop", ins={"a": dg.AssetIn(key=["shop", "a"])})
    def b(a: pa.Table) -> pa.Table:
        return pa.concat_tables([a, a])

    @acid_asset(table="shop.c")
    def c(b: pa.Table) -> pa.Table:
        return b

    @dg.asset(key_prefix="shop", deps=[c])
    def d() -> None:
        place.warehouse.sql("CREATE TABLE shop.d AS SELECT count(*) AS n FROM shop.c")

    @dg.asset(key_prefix="shop", ins={"d": dg.AssetIn(key=["shop", "d"])})
    def e(d: pa.Table) -> pa.Table:
        return d

    assert succeeded(run(place, a, b, c, d, e)) and stored(place, "shop.e") == [(2,)]


def test_rows_are_read_as_the_class_says() -> None:
    polars = type("DataFrame", (), {"__module__": "polars.dataframe.frame"})
    assert reader_of(pa.Table) is Reads.to_arrow and reader_of(pd.DataFrame) is Reads.to_pandas
    assert reader_of(polars) is Reads.to_polars and reader_of(DataFrame) is Reads.read
    assert reader_of(None) is reader_of(Any) is reader_of(pd.Series) is reader_of(dict) is None


@pytest.mark.slow
def test_frames_of_polars(place: Place) -> None:
    polars = pytest.importorskip("polars")

    @dg.asset
    def t() -> polars.DataFrame:
        return polars.DataFrame({"id": [1, 2]})

    @dg.asset
    def doubled(t: polars.DataFrame) -> polars.DataFrame:
        return t.with_columns(id=polars.col("id") * 2)

    assert succeeded(run(place, t, doubled)) and stored(place, "doubled") == [(2,), (4,)]


@pytest.mark.spark
def test_frames_of_spark(place: Place, spark: SparkSession) -> None:
    @dg.asset
    def t() -> DataFrame:
        return spark.range(3).withColumnRenamed("id", "n")

    @dg.asset(metadata={"write_mode": "append"})
    def doubled(t: DataFrame) -> DataFrame:
        return t.selectExpr("n * 2 AS n").filter("n > 0")

    assert succeeded(run(place, t, doubled, engine="spark"))
    assert stored(place, "doubled") == [(2,), (4,)]


@pytest.mark.slow
def test_write_modes(place: Place) -> None:
    ids = [1, 2]

    def made(name: str, **metadata: Any) -> dg.AssetsDefinition:
        @dg.asset(name=name, metadata=metadata)
        def rows() -> pa.Table:
            return pa.table({"id": ids, "v": [name] * len(ids)})

        return rows

    options = {"join_cols": ["id"], "when_matched_update_all": True}
    assets = [
        made("replaced"),
        made("added", write_mode="append"),
        made("merged", write_mode="upsert", upsert_options=options),
        made("swapped", write_mode="delete+insert", upsert_options={"join_cols": ["id"]}),
    ]
    assert succeeded(run(place, *assets, settings={"schema": "modes"}))
    ids = [2, 3]
    assert succeeded(run(place, *assets, settings={"schema": "modes"}))
    read = {
        name: [row[0] for row in stored(place, f"modes.{name}")]
        for name in ("replaced", "added", "merged", "swapped")
    }
    assert read == {
        "replaced": [2, 3],
        "added": [1, 2, 2, 3],
        "merged": [1, 2, 3],
        "swapped": [1, 2, 3],
    }


@pytest.mark.slow
def test_columns_are_added_if_the_metadata_says_so(place: Place) -> None:
    columns = {"id": [1]}

    def made(**metadata: Any) -> dg.AssetsDefinition:
        @dg.asset(metadata={"write_mode": "append", **metadata})
        def t() -> pa.Table:
            return pa.table(columns)

        return t

    assert succeeded(run(place, made()))
    columns["more"] = [2]
    assert "has no column 'more'" in failure(run(place, made()))
    assert succeeded(run(place, made(schema_update_mode="update")))
    assert place.warehouse.table("t").to_arrow().to_pylist() == [
        {"id": 1, "more": None},
        {"id": 1, "more": 2},
    ]


# --- partitions ----------------------------------------------------------------------------------


def daily(**metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day", **metadata})
    def t(context: dg.AssetExecutionContext) -> pa.Table:
        days = [datetime.date.fromisoformat(key) for key in context.partition_keys]
        return pa.table({"n": [day.day for day in days], "day": days})

    return t


@pytest.mark.more
def test_time_windows_are_partitions(place: Place) -> None:
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def copied(t: pa.Table) -> pa.Table:
        assert t.num_rows == 1
        return t.drop_columns(["day"])

    @dg.asset
    def whole(t: pa.Table) -> pa.Table:
        return t

    t = daily()
    for day in ("2024-01-02", "2024-01-03", "2024-01-02"):
        assert succeeded(run(place, t, partition_key=day))
    assert place.warehouse.table("t").partitions() == ["day=2024-01-02", "day=2024-01-03"]
    second, third = datetime.date(2024, 1, 2), datetime.date(2024, 1, 3)
    assert stored(place, "t") == [(2, second), (3, third)]
    assert succeeded(run(place, t, copied, selection=[copied], partition_key="2024-01-03"))
    assert stored(place, "copied") == [(3, "2024-01-03")]  # the rows had no such column: a text
    assert succeeded(run(place, t, whole, selection=[whole]))
    assert len(stored(place, "whole")) == 2


@pytest.mark.slow
def test_one_run_for_a_range_of_partitions(place: Place) -> None:
    result = run(
        place,
        daily(),
        tags={
            "dagster/asset_partition_range_start": "2024-01-01",
            "dagster/asset_partition_range_end": "2024-01-03",
        },
    )
    assert succeeded(result) and len(stored(place, "t")) == 3
    counts = {
        event.partition: event.materialization.metadata["dagster/partition_row_count"].value
        for event in result.get_asset_materialization_events()
    }
    assert counts == {"2024-01-01": 1, "2024-01-02": 1, "2024-01-03": 1}


@pytest.mark.more
def test_mapped_partitions_are_read_also_by_an_asset_without_partitions(place: Place) -> None:
    latest = dg.AssetIn("t", partition_mapping=dg.LastPartitionMapping())

    @dg.asset(ins={"t": latest})
    def by_io_manager(t: pa.Table) -> pa.Table:
        return t

    @acid_asset(
        table="default.by_acid_asset",
        ins={"t": TableInput("default.t", partition_mapping=dg.LastPartitionMapping())},
    )
    def by_acid_asset(t: pa.Table) -> pa.Table:
        return t

    t = acid_asset(
        table=TableDeclaration("default.t", "n int", ("day date",)),
        partitions_def=DAYS,
        partition_expr="day",
    )(rows_of_day)
    for day in ("2024-01-02", "2024-01-04"):
        assert succeeded(run(place, t, partition_key=day))
    last = dg.AssetIn(key=["default", "t"], partition_mapping=dg.LastPartitionMapping())

    @dg.asset(ins={"t": last})
    def of_acid_asset(t: pd.DataFrame) -> pd.DataFrame:
        return t

    assert succeeded(run(place, t, by_acid_asset, selection=[by_acid_asset]))
    assert succeeded(
        run(place, t, of_acid_asset, selection=[of_acid_asset], settings={"schema": "other"})
    )
    expected = [(4, datetime.date(2024, 1, 4))]
    assert stored(place, "default.by_acid_asset") == stored(place, "other.of_acid_asset")
    assert stored(place, "other.of_acid_asset") == expected


def rows_of_day(context: dg.AssetExecutionContext) -> list[dict[str, int]]:
    return [{"n": int(context.partition_key[-2:])}]


@pytest.mark.slow
def test_static_multi_and_dynamic_partitions(place: Place) -> None:
    @dg.asset(partitions_def=REGIONS, metadata={"partition_expr": "region"})
    def static(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"key": [context.partition_key]})

    @dg.asset(partitions_def=BOTH, metadata={"partition_expr": {"date": "day", "region": "region"}})
    def multi(context: dg.AssetExecutionContext, static: pa.Table) -> pa.Table:
        assert static["region"].to_pylist() == [context.partition_key.keys_by_dimension["region"]]
        return static.select(["key"])

    @dg.asset(
        partitions_def=dg.DynamicPartitionsDefinition(name="tenants"),
        metadata={"partition_expr": "tenant"},
    )
    def dynamic(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"n": [len(context.partition_key)]})

    @dg.asset
    def tenants(dynamic: pa.Table) -> pa.Table:
        return dynamic

    for region in ("eu", "us"):
        assert succeeded(run(place, static, partition_key=region))
    key = dg.MultiPartitionKey({"date": "2024-01-01", "region": "us"})
    assert succeeded(run(place, static, multi, selection=[multi], partition_key=key))
    assert place.warehouse.table("multi").partitions() == ["day=2024-01-01/region=us"]
    place.instance.add_dynamic_partitions("tenants", ["acme", "bo"])
    for tenant in ("acme", "bo"):
        assert succeeded(run(place, dynamic, partition_key=tenant))
    assert succeeded(run(place, dynamic, tenants, selection=[tenants]))
    assert stored(place, "tenants") == [(2, "bo"), (4, "acme")]


def test_rows_of_another_partition_are_refused(place: Place) -> None:
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def t() -> pa.Table:
        return pa.table({"n": [1], "day": [datetime.date(2024, 1, 1)]})

    assert "2024-01-01" in failure(run(place, t, partition_key="2024-01-02"))
    assert stored(place, "t") == []


# --- snapshots -----------------------------------------------------------------------------------


def test_the_inputs_of_a_step_are_of_one_snapshot(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        place.warehouse.create_table(name, "n int").insert([{"n": 1}])

    def between(read: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
        def reading(table: Any, *arguments: Any) -> pa.Table:
            rows = read(table, *arguments)
            with place.warehouse.transaction() as txn:
                for name in ("a", "b"):
                    txn.table(name).insert([{"n": 2}])
            return rows

        return reading

    upstream = [dg.AssetSpec("a"), dg.AssetSpec("b")]

    @dg.asset
    def both(a: pa.Table, b: pa.Table) -> pa.Table:
        return pa.table({"n": [a.num_rows, b.num_rows]})

    @dg.asset
    def later(both: pa.Table, a: pa.Table) -> pa.Table:
        return pa.table({"n": [both.num_rows, a.num_rows]})

    from acid_platform.orchestration import inputs

    monkeypatch.setitem(
        inputs._READERS,  # type: ignore[arg-type]
        ("pyarrow", "Table"),
        between(inputs._READERS["pyarrow", "Table"]),
    )
    assert succeeded(run(place, *upstream, both, later))
    monkeypatch.undo()
    assert stored(place, "both") == [(1,), (1,)]
    assert stored(place, "later") == [(2,), (3,)]  # a new step sees its run, and what else came
    assert not [row for row in place.warehouse.metastore.transactions() if row["state"] == "OPEN"]


@pytest.mark.slow
def test_an_asset_that_reads_itself(place: Place) -> None:
    @dg.asset(
        partitions_def=DAYS,
        metadata={"partition_expr": "day"},
        ins={
            "total": dg.AssetIn(
                partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
            )
        },
    )
    def total(total: pa.Table) -> pa.Table:
        return pa.table({"n": [sum(total["n"].to_pylist()) + 1]})

    place.warehouse.create_table("total", "n int", ["day date"])
    for day in ("2024-01-02", "2024-01-03", "2024-01-04"):
        assert succeeded(run(place, total, partition_key=day))
    assert [row[0] for row in stored(place, "total")] == [1, 2, 3]


@pytest.mark.slow
def test_values_are_loaded_outside_of_runs(place: Place) -> None:
    warehouse = WarehouseResource(path=place.warehouse.path, engine="local")
    t = daily()
    definitions = dg.Definitions([t], resources={"io_manager": AcidIOManager(warehouse=warehouse)})
    for day in ("2024-01-02", "2024-01-03"):
        assert succeeded(run(place, t, partition_key=day))
    loaded = definitions.load_asset_value("t", python_type=pa.Table, instance=place.instance)
    assert loaded.num_rows == 2
    with pytest.raises(InvalidDefinition, match=r"t is loaded as .* name one by python_type"):
        definitions.load_asset_value("t", instance=place.instance)
    one = definitions.load_asset_value(
        "t", python_type=pd.DataFrame, instance=place.instance, partition_key="2024-01-03"
    )
    assert list(one["n"]) == [3]


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.slow
def test_settings_that_mean_something_else_are_refused(place: Place) -> None:
    def refused(metadata: dict[str, Any], **arguments: Any) -> str:
        @dg.asset(name="t", metadata=metadata, **arguments)
        def t() -> pa.Table:
            return pa.table({"id": [1]})

        return failure(run(place, t))

    assert "mode is called write_mode" in refused({"mode": "append"})
    assert "write_mode is 'merge'" in refused({"write_mode": "merge"})
    assert "write_mod is called write_mode" in refused({"write_mod": "append"})
    assert "needs key=[…]" in refused({"write_mode": "upsert"})
    assert "when_matched_update_all must be True" in refused(
        {
            "write_mode": "upsert",
            "upsert_options": {"join_cols": ["id"], "when_matched_update_all": False},
        }
    )
    assert "names 'join_col'; it takes join_cols, when_matched_update_all" in refused(
        {"write_mode": "upsert", "upsert_options": {"join_col": ["id"]}}
    )
    assert "schema_update_mode of default.t" in refused({"schema_update_mode": "add"})
    assert "the asset is not partitioned" in refused({"partition_expr": "day"})
    assert "has more parts" in refused({}, key_prefix=["a", "b"])
    assert place.warehouse.tables() == []


@pytest.mark.slow
def test_an_asset_without_rows(place: Place) -> None:
    rows: Any = []

    @dg.asset
    def t() -> Any:
        return rows

    assert "the rows have no columns; CREATE TABLE it" in failure(run(place, t))
    place.warehouse.create_table("t", "id int")
    for rows in (
        pa.table({"id": [1]}),
        [],
        pd.DataFrame(),
        pa.table({"id": pa.array([], "int32")}),
    ):
        assert succeeded(run(place, t)) and len(stored(place, "t")) == len(rows)


@pytest.mark.slow
def test_types_that_can_t_be_stored_or_loaded_are_refused(place: Place) -> None:
    @dg.asset
    def nothing():  # type: ignore[no-untyped-def]
        return None

    @dg.asset
    def number() -> int:
        return 1

    @dg.asset
    def rows() -> pa.Table:
        return pa.table({"id": [1]})

    @dg.asset
    def untyped(rows):  # type: ignore[no-untyped-def]
        return rows

    assert "nothing returned nothing" in failure(run(place, nothing))
    assert "int" in failure(run(place, number))
    assert "annotate the parameter with pandas.DataFrame" in failure(run(place, rows, untyped))


def test_an_unknown_outcome_is_not_tried_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.asset(metadata={"write_mode": "append"}, retry_policy=dg.RetryPolicy(max_retries=2))
    def t() -> pa.Table:
        return pa.table({"id": [1]})

    commit = Transaction.commit

    def lost(txn: Transaction) -> None:
        commit(txn)
        raise OutcomeUnknown("the answer was lost")

    monkeypatch.setattr(Transaction, "commit", lost)
    result = run(place, t)
    monkeypatch.undo()
    assert "the answer was lost" in failure(result)
    assert Table(place.warehouse, "default.t").count() == 1


def test_the_output_of_an_op_is_refused(place: Place) -> None:
    @dg.op(out=dg.Out(io_manager_key="io_manager"))
    def numbers() -> pa.Table:
        return pa.table({"id": [1]})

    @dg.job(resource_defs={"io_manager": AcidIOManager().get_resource_definition()})
    def job() -> None:
        numbers()

    result = job.execute_in_process(run_config=quiet(), raise_on_error=False)
    assert "the output 'result' of an op is none" in failure(result)
