"""What assets return: texts, indexes, rows without a partition; and `txn.sql` in their bodies."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from acid_platform import Constraint, Transaction, ValuesCoerced
from acid_platform.engine.local import event_files
from acid_platform.orchestration import Expectation, TableDeclaration, acid_asset
from acid_platform.values import local_rows, row_streams
from tests.orchestration.conftest import Place, failure, run

pytestmark = pytest.mark.more

ORDERS = TableDeclaration("shop.orders", "id int, amount decimal(5,2)", ("day date",))


def stored(place: Place) -> list[tuple[object, ...]]:
    rows = place.warehouse.table("shop.orders").to_arrow().to_pylist()
    return sorted(tuple(row.values())[:2] for row in rows)


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    [event] = result.get_asset_materialization_events()
    return {
        name: getattr(value, "records", value.value)
        for name, value in event.materialization.metadata.items()
    }


@pytest.mark.parametrize("write_mode", ["overwrite", "append", "upsert", "delete+insert"])
def test_coerce_says_what_it_changed(place: Place, write_mode: str) -> None:
    by_key = write_mode in ("upsert", "delete+insert")

    @acid_asset(
        table=ORDERS,
        write_mode=write_mode,  # type: ignore[arg-type]
        key=["id", "day"] if by_key else [],
        coerce=True,
    )
    def orders() -> pd.DataFrame:
        rows = pd.DataFrame({"id": ["1", "2"], "amount": ["1.005", "x"], "day": "2024-02-29"})
        return rows.set_index("id")

    with pytest.warns(ValuesCoerced, match=r"shop\.orders: amount: 1 changed, 1 became NULL"):
        result = run(place, orders)
    assert result.success and stored(place) == [(1, Decimal("1.01")), (2, None)]
    [record] = metadata(result)["coerced values"]
    counted = {"column": "amount", "changed": 1, "became NULL": 1}
    assert record.data == {**counted, "for example": "'1.005' (str)"}


GIVEN = [
    {"id": 1, "amount": "2.50", "day": "2024-02-29"},
    {"id": 2, "amount": "n/a", "day": "2024-02-29"},
    {"id": 3, "amount": None, "day": "2024-02-29"},
    {"id": 4, "amount": "?", "day": "2024-02-29"},
]


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (
            ["id"],
            [
                {"amount": "None", "id": "2", "amount as given": "'n/a' (str)"},
                {"amount": "None", "id": "3", "amount as given": ""},
                {"amount": "None", "id": "4", "amount as given": "'?' (str)"},
            ],
        ),
        ([], [{"amount": "None", "amount as given": "'n/a' (str), '?' (str)"}] * 3),
    ],
)
def test_a_failed_row_shows_what_its_value_was(
    place: Place, key: list[str], shown: list[dict[str, str]]
) -> None:
    given = Expectation("given", "ExpectColumnValuesToNotBeNull", {"column": "amount"})

    @acid_asset(table=ORDERS, key=key, coerce=True, expectations=[given])
    def orders() -> list[dict[str, object]]:
        return GIVEN

    with pytest.warns(ValuesCoerced):
        result = run(place, orders)
    [check] = result.get_asset_check_evaluations()
    samples = check.metadata["unexpected rows"]
    assert isinstance(samples, dg.TableMetadataValue)
    found = sorted((each.data for each in samples.records), key=lambda row: str(row.get("id")))
    assert found == shown
    assert "amount as given" in str(check.metadata["data docs"].value)


def test_a_row_set_aside_keeps_what_its_values_were(place: Place) -> None:
    given = Expectation(
        "given", "ExpectColumnValuesToNotBeNull", {"column": "amount"}, quarantine=True
    )

    @acid_asset(table=ORDERS, coerce=True, expectations=[given])
    def orders() -> list[dict[str, object]]:
        return GIVEN

    with pytest.warns(ValuesCoerced):
        assert run(place, orders).success
    assert stored(place) == [(1, Decimal("2.50"))]
    rows = place.warehouse.table("shop.orders_quarantine").to_arrow(["id", "quarantined_given"])
    kept = [(2, "amount: 'n/a' (str)"), (3, None), (4, "amount: '?' (str)")]
    assert sorted(tuple(row.values()) for row in rows.to_pylist()) == kept


def test_a_week_is_not_put_beside_its_days(place: Place) -> None:
    def orders(context: dg.AssetExecutionContext) -> list[dict[str, object]]:
        return [{"id": int(context.partition_key[-2:]), "amount": 1}]

    daily = acid_asset(
        table=ORDERS,
        partition_expr="day",
        partitions_def=dg.DailyPartitionsDefinition("2024-01-01"),
    )(orders)
    weekly = acid_asset(
        table=ORDERS,
        partition_expr="day",
        partitions_def=dg.WeeklyPartitionsDefinition("2024-01-07"),
    )(orders)
    for day in ("2024-01-07", "2024-01-08"):
        assert run(place, daily, partition_key=day).success
    refused = run(place, weekly, partition_key="2024-01-07")
    told = failure(refused)
    assert not refused.success and "a daily asset that became weekly?" in told
    place.warehouse.sql(told[told.index("ALTER TABLE") : told.rindex(")") + 1])
    assert run(place, weekly, partition_key="2024-01-07").success
    assert stored(place) == [(7, Decimal("1.00"))]


@pytest.mark.parametrize("write_mode", ["overwrite", "append", "upsert", "delete+insert"])
def test_each_dict_gets_the_default_of_what_it_leaves_out(place: Place, write_mode: str) -> None:
    by_key = write_mode in ("upsert", "delete+insert")
    declared = TableDeclaration(
        "shop.orders", "id int, amount int", constraints=[Constraint.default("amount", "7")]
    )

    @acid_asset(
        table=declared,
        write_mode=write_mode,  # type: ignore[arg-type]
        key=["id"] if by_key else [],
    )
    def orders() -> list[dict[str, object]]:
        return [{"id": 1}, {"id": 2, "amount": 1}, {"id": 3, "amount": None}]

    assert run(place, orders).success
    assert stored(place) == [(1, 7), (2, 1), (3, None)]


@pytest.mark.parametrize("write_mode", ["upsert", "delete+insert"])
@pytest.mark.parametrize("coerce", [False, True])
def test_no_rows_change_nothing_by_key(place: Place, write_mode: str, coerce: bool) -> None:
    table = place.warehouse.create_table("shop.orders", "id int, amount int")
    table.insert([{"id": 1, "amount": 5}])

    @acid_asset(
        table=TableDeclaration("shop.orders", "id int, amount int"),
        write_mode=write_mode,  # type: ignore[arg-type]
        key=["amount"],
        coerce=coerce,
    )
    def orders() -> list[dict[str, object]]:
        return []

    assert run(place, orders).success
    assert stored(place) == [(1, 5)]


def test_rows_without_their_partition_are_refused_unless_the_run_gives_it(place: Place) -> None:
    def rows() -> list[dict[str, object]]:
        return [{"id": 1, "amount": 1}]

    @acid_asset(table=ORDERS)
    def whole() -> list[dict[str, object]]:
        return rows()

    @acid_asset(
        table=ORDERS,
        partitions_def=dg.DailyPartitionsDefinition("2024-01-01"),
        partition_expr="day",
    )
    def daily() -> list[dict[str, object]]:
        return rows()

    result = run(place, whole)
    assert not result.success and stored(place) == []
    [failure] = result.get_step_failure_events()
    assert "'day', a partition column" in str(failure.step_failure_data.error_display_string)
    assert run(place, daily, partition_key="2024-02-29").success
    assert place.warehouse.table("shop.orders").partitions() == ["day=2024-02-29"]


def test_a_body_writes_by_sql(place: Place) -> None:
    place.warehouse.create_table("shop.orders", "id int, amount decimal(5,2)").insert(
        [{"id": 1, "amount": 1}]
    )

    @acid_asset(table="shop.orders")
    def orders(txn: Transaction) -> None:
        txn.sql("INSERT INTO shop.orders VALUES (2, 2.5); UPDATE shop.orders SET amount = 9")

    @acid_asset(table="shop.orders")
    def committing(txn: Transaction) -> None:
        txn.sql("DELETE FROM shop.orders; COMMIT")

    result = run(place, orders)
    assert result.success and metadata(result)["rows updated"] == 2
    nines = [(1, Decimal("9.00")), (2, Decimal("9.00"))]
    assert stored(place) == nines
    assert not run(place, committing).success and stored(place) == nines


@pytest.mark.parametrize("write_mode", ["overwrite", "append", "upsert", "delete+insert"])
@pytest.mark.parametrize("daily", [False, True], ids=["whole", "daily"])
@pytest.mark.parametrize("quarantine", [False, True], ids=["all", "quarantine"])
def test_P59_a_stream_of_rows_is_written_as_one(
    place: Place, write_mode: str, daily: bool, quarantine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are many for the limits of memory that the test sets; twice, as runs come again."""
    monkeypatch.setattr(row_streams, "HELD_BYTES", 100)
    monkeypatch.setattr(row_streams, "_SPILLED_BYTES", 200)
    monkeypatch.setattr(event_files, "_SORTED_BYTES", 300)
    monkeypatch.setattr(local_rows, "_PART_BYTES", 100)
    kind, column = "ExpectColumnValuesToNotBeNull", {"column": "amount"}
    given = Expectation("amounts_are_given", kind, column, quarantine=True)
    rows = pa.table({"ID": range(100), "amount": [None, *range(1, 100)]})
    if not daily:
        rows = rows.append_column("day", pa.array(["2024-02-29"] * 100))

    @acid_asset(
        table=ORDERS,
        write_mode=write_mode,  # type: ignore[arg-type]
        key=["id", "day"] if write_mode in ("upsert", "delete+insert") else [],
        expectations=[given] if quarantine else [],
        partitions_def=dg.DailyPartitionsDefinition("2024-01-01") if daily else None,
        partition_expr="day" if daily else None,
    )
    def orders() -> Any:
        return rows.to_reader(7) if quarantine else iter(rows.to_batches(9))

    for _ in range(2):
        assert run(place, orders, **{"partition_key": "2024-02-29"} if daily else {}).success
    times = 2 if write_mode == "append" else 1
    kept = range(1 if quarantine else 0, 100)
    expected = [(number, number or None) for number in kept for _ in range(times)]
    assert stored(place) == [(one, two and Decimal(two)) for one, two in expected]
    if quarantine:
        assert place.warehouse.table("shop.orders_quarantine").count() == 2
