"""@acid_asset when a module is loaded: what Dagster learns of it, and what is refused. No JVM."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from acid_platform import InvalidDefinition
from acid_platform.orchestration import (
    AcidIOManager,
    AcidOut,
    Expectation,
    TableDeclaration,
    TableInput,
    Transaction,
    acid_asset,
    acid_multi_asset,
    change_sensor,
    table_checks,
    upstream_changed,
)
from acid_platform.orchestration.resources import SparkResource, WarehouseResource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DAILY = dg.DailyPartitionsDefinition("2024-01-01")
DAYS = TableDeclaration(
    "db.t", "id int, v string", ("day date",), comments={"V": "a name", "day": "of the sale"}
)
NAMED = Expectation("v_is_given", "ExpectColumnValuesToNotBeNull", {"column": "v"})


class Settings(dg.Config):
    limit: int = 3


def test_what_dagster_learns_of_an_asset() -> None:
    @acid_asset(
        table=DAYS,
        write_mode="upsert",
        key=["id", "day"],
        partitions_def=DAILY,
        partition_expr="day",
        expectations=[NAMED],
        ins={"other": TableInput("raw.other", ["id"])},
        group_name="sales",
        code_version="3",
        owners=["team:sales"],
        pool="heavy",
        automation_condition=upstream_changed(),
    )
    def t(
        context: dg.AssetExecutionContext,
        config: Settings,
        warehouse: WarehouseResource,
        customers: "DataFrame",
        other: object,
    ) -> list[dict[str, object]]:
        """Sales by day."""
        return []

    spec = t.get_asset_spec(dg.AssetKey(["db", "t"]))
    assert [one.asset_key.to_user_string() for one in spec.deps] == ["db/customers", "raw/other"]
    assert (spec.description, spec.group_name, spec.code_version, spec.owners) == (
        "Sales by day.",
        "sales",
        "3",
        ["team:sales"],
    )
    assert spec.metadata["dagster/table_name"] == "db.t"
    assert spec.metadata["partition_expr"] == "day"
    assert [(one.name, one.type) for one in spec.metadata["dagster/column_schema"].columns] == [
        ("id", "int"),
        ("v", "string"),
        ("day", "date"),
    ]
    assert [one.description for one in spec.metadata["dagster/column_schema"].columns] == [
        None,
        "a name",
        "of the sale",
    ]
    [check] = t.check_specs
    assert (check.name, check.blocking) == ("v_is_given", True)
    assert {"warehouse", "spark"} <= t.required_resource_keys
    assert t.op.name == "db__t" and t.op.pool == "heavy"
    assert set(t.op.input_dict) == {"db_customers", "raw_other"}  # nothing passes an IO manager
    assert all(one.dagster_type.is_nothing for one in t.op.input_defs)


def test_the_body_need_not_import_what_only_type_checkers_read() -> None:
    @acid_asset(table="db.t")
    def t(up: "DataFrame", more: "NotAnywhere") -> "DataFrame":  # type: ignore[name-defined] # noqa: F821
        return up

    assert {one.to_user_string() for one in t.dependency_keys} == {"db/up", "db/more"}


def make(**arguments: Any) -> Callable[[], object]:
    def build() -> object:
        return acid_asset(**{"table": DAYS, **arguments})(lambda: None)

    return build


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (make(write_mode="replace"), "write_mode is 'replace'; choose one of append, overwrite"),
        (make(schema_mode="merge"), "schema_mode is 'merge'; choose one of error, add"),
        (make(write_mode="upsert"), "write_mode upsert needs key=[…]"),
        (make(key=["di"]), "key column di is not in the table; its columns are day, id"),
        (make(write_mode="upsert", key="id"), "key must be a list: ['id']"),
        (
            make(write_mode="delete+insert", key=["idd"]),
            "idd is not in the table; its columns are day",
        ),
        (make(write_mode="upsert", key=["id"]), "can't move a row to another partition; add day"),
        (
            make(
                expectations=[Expectation("e", "ExpectColumnValuesToNotBeNull", {"column": "nmae"})]
            ),
            "the expectation e names the column 'nmae'; the columns are day, id",
        ),
        (lambda: table_checks("c", "db.t", [NAMED], columns=["id"]), "names the column 'v'"),
        (make(recheck=lambda context, table: []), "recheck evaluates the checks= of the body"),
        (make(expectations=[NAMED], checks=[NAMED]), "two checks have the name v_is_given"),
        (make(partition_expr="day"), "partition_expr needs partitions_def"),
        (make(partitions_def=DAILY), "partition_expr must say which partition of the table a run"),
        (
            make(partitions_def=DAILY, partition_expr="dya"),
            "'dya' is not a partition column of the table",
        ),
        (make(ins={"x": "db.up"}), "ins names x, but"),
        (make(writemode="append"), "no argument 'writemode'; did you mean write_mode?"),
        (make(grup_name="x"), "no argument 'grup_name'; did you mean group_name?"),
        (
            lambda: TableDeclaration("db.t", "id int", properties={"acid.history.retntion": "7d"}),
            "no table property 'acid.history.retntion'; did you mean acid.history.retention?",
        ),
        (
            lambda: TableDeclaration("db.t", "id int, Day date", ("day date",)),
            "db.t declares day twice; a partition column stands in partitioned_by alone",
        ),
        (lambda: change_sensor(["db/t"]), "change_sensor takes assets, not 'db/t'"),  # type: ignore[list-item]
        (lambda: WarehouseResource(pth="x"), "no setting 'pth'; it takes path, metastore, engine"),
        (lambda: WarehouseResource(engine="lokal"), "'lokal' is no engine"),
        (lambda: SparkResource(mster="local"), "no setting 'mster'; it takes spark_config"),
        (lambda: AcidIOManager(warehous=1), "no setting 'warehous'; it takes warehouse, spark"),
        (lambda: acid_multi_asset(outs=[AcidOut("db.a"), AcidOut("DB.A")]), "names db.a twice"),
    ],
)
def test_what_can_t_be_honoured_is_told_when_the_module_is_loaded(
    build: Callable[[], object], why: str
) -> None:
    with pytest.raises(InvalidDefinition) as told:
        build()
    assert why in str(told.value)


def test_a_body_that_drives_the_transaction_needs_no_partition_expr() -> None:
    @acid_asset(table=DAYS, partitions_def=DAILY)
    def t(txn: Transaction) -> None: ...

    assert t.partitions_def == DAILY


def test_several_tables_can_be_taken_apart_only_if_asked() -> None:
    def both() -> dict[str, object]:
        return {}

    outs = [AcidOut("db.a", spec={"group_name": "g"}), AcidOut("db.b", expectations=[NAMED])]
    whole, parts = (acid_multi_asset(outs=outs, can_subset=one)(both) for one in (False, True))
    assert (whole.can_subset, parts.can_subset) == (False, True)
    assert {one.to_user_string() for one in whole.keys} == {"db/a", "db/b"}
    assert whole.check_keys == {dg.AssetCheckKey(dg.AssetKey(["db", "b"]), "v_is_given")}


# --- automation: the write id is the data version -------------------------------------------------


def test_an_upstream_with_the_same_write_id_starts_nothing_downstream() -> None:
    @dg.asset(key=["db", "up"])
    def up() -> None: ...

    @acid_asset(table="db.down", automation_condition=upstream_changed())
    def down(up: "DataFrame") -> "DataFrame":
        return up

    defs = dg.Definitions(
        assets=[up, down], resources={"warehouse": WarehouseResource(), "spark": SparkResource()}
    )
    with dg.DagsterInstance.ephemeral() as instance:

        def materialized(key: str, write_id: str) -> None:
            instance.report_runless_asset_event(
                dg.AssetMaterialization(
                    dg.AssetKey(["db", key]), tags={"dagster/data_version": write_id}
                )
            )

        materialized("up", "1")
        materialized("down", "1")
        cursor, requested = None, []
        for write_id in (None, "1", "2", "2", "3"):
            if write_id:
                materialized("up", write_id)
            result = dg.evaluate_automation_conditions(defs, instance, cursor=cursor)
            cursor = result.cursor
            requested.append(result.total_requested)
            if result.total_requested:
                materialized("down", write_id or "")
    assert requested == [0, 0, 1, 0, 1]
