"""How materializations end, with bodies that write nothing and need no JVM."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from acid_platform import (
    LockTimeout,
    MetastoreUnavailable,
    OutcomeUnknown,
    Warehouse,
    WrongType,
)
from acid_platform.metastore.client.link import Link
from acid_platform.orchestration import (
    AcidOut,
    Expectation,
    Finding,
    TableDeclaration,
    Transaction,
    TransactionTable,
    acid_asset,
    acid_multi_asset,
)
from acid_platform.orchestration.materialize import Uncommitted
from acid_platform.orchestration.outputs import ensure_table
from acid_platform.orchestration.resources import WarehouseResource
from tests.orchestration.conftest import Place, failure, run, succeeded
from tests.orchestration.local_writes import insert

POSITIVE = Expectation(
    "ids_are_positive", "ExpectColumnValuesToBeBetween", {"column": "id", "min_value": 1}
)


def kinds(result: dg.ExecuteInProcessResult) -> list[dg.DagsterEventType | None]:
    return [one.event_type for one in result.all_events]


def driven(answer: object, **arguments: Any) -> dg.AssetsDefinition:
    @acid_asset(table="db.t", checks=[POSITIVE], **arguments)
    def t(txn: Transaction) -> object:
        txn.table("db.t")
        return answer

    return t


@pytest.mark.more
def test_a_failed_check_aborts_and_the_abort_says_which(place: Place) -> None:
    place.table()
    result = run(place, driven([Finding("ids_are_positive", False, True, {"seen": -4})]))
    assert "was aborted because it failed ids_are_positive of db.t" in failure(result)
    [check] = result.get_asset_check_evaluations()
    assert not check.passed and check.severity is dg.AssetCheckSeverity.ERROR
    assert check.metadata["details"].value == {"seen": -4}
    assert not result.get_asset_materialization_events()
    assert dg.DagsterEventType.STEP_UP_FOR_RETRY not in kinds(result)
    assert not [one for one in place.warehouse.metastore.transactions() if one["state"] == "OPEN"]


@pytest.mark.more
def test_findings_may_hold_what_pandas_and_numpy_answer(place: Place) -> None:
    place.table()
    ids = pd.Series([1, 2])
    details = {"least": ids.min(), "on": date(2024, 1, 2)}
    result = run(place, driven([Finding("ids_are_positive", (ids > 0).all(), details=details)]))
    assert result.success, failure(result)
    [check] = result.get_asset_check_evaluations()
    assert check.passed and check.metadata["details"].value == {"least": 1, "on": "2024-01-02"}


@pytest.mark.more
def test_a_finding_that_can_t_be_told_stops_the_commit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(finding: Finding, key: dg.AssetKey) -> dg.AssetCheckResult:
        raise ValueError("no metadata")

    monkeypatch.setattr(Finding, "result", broken)

    @acid_asset(table=TableDeclaration("db.t", "v string"), checks=[POSITIVE])
    def t(txn: Transaction) -> list[Finding]:
        insert(txn, "db.t", ["x"])
        return [Finding("ids_are_positive", True)]

    assert "no metadata" in failure(run(place, t))
    assert place.warehouse.table("db.t").history() == []


@pytest.mark.more
@pytest.mark.parametrize(
    ("columns", "keys", "message"),
    [
        ("id string", ("day date",), "has the column id int, but its asset declares string"),
        ("id int", ("day string",), "is partitioned by day date, but its asset declares day str"),
        ("id int, day date", (), "is partitioned by day date, but its asset declares no column"),
    ],
)
def test_a_table_that_was_declared_otherwise_is_refused(
    place: Place, columns: str, keys: tuple[str, ...], message: str
) -> None:
    place.warehouse.create_table("db.t", "id int, v string", ["day date"])

    @acid_asset(table=TableDeclaration("db.t", columns, keys))
    def t() -> list[object]:
        return []

    assert message in failure(run(place, t))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages to the metastore, by their names."""
    names, call = list[str](), Link.call

    def noted(link: Link, operation: Any) -> Any:
        names.append(operation.op)
        return call(link, operation)

    monkeypatch.setattr(Link, "call", noted)
    return names


def test_a_table_that_is_there_costs_one_message(place: Place, asked: list[str]) -> None:
    place.warehouse.create_table("db.t", "id int", ["day date"])
    asked.clear()
    ensure_table(place.warehouse, AcidOut(TableDeclaration("db.t", "id int", ("day date",))))
    assert asked == ["table"]


@pytest.mark.parametrize("columns", ["id int", None])
def test_a_run_asks_for_its_table_before_within_and_after_its_transaction(
    place: Place, asked: list[str], columns: str | None
) -> None:
    @acid_asset(table=TableDeclaration("db.t", columns), write_mode="append")
    def t() -> list[dict[str, int]]:
        return [{"id": 1}]

    for _ in range(2):
        asked.clear()
        assert succeeded(run(place, t, engine="local"))
    begun = asked.index("begin")
    before, after = asked[:begun].count("table"), asked[begun:].count("table")
    assert (before, after) == (0 if columns is None else 1, 2)


@pytest.mark.more
def test_what_writes_nothing_keeps_the_data_version(place: Place) -> None:
    place.table()
    place.write(times=2)
    result = run(place, driven([Finding("ids_are_positive", True)]))
    assert result.success, failure(result)
    [event] = result.get_asset_materialization_events()
    assert (event.materialization.tags or {})["dagster/data_version"] == "2"
    assert event.materialization.metadata["previous write id"].value == 2


@pytest.mark.more
def test_what_is_committed_does_not_fail_afterwards(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_reach(*_: object) -> None:
        raise MetastoreUnavailable("gone")

    monkeypatch.setattr(Uncommitted, "_with_its_table", out_of_reach)
    place.table()
    place.write()
    result = run(place, driven([Finding("ids_are_positive", True)]))
    assert result.success  # else it would be materialized again, and its rows appended twice
    [event] = result.get_asset_materialization_events()
    assert event.materialization.metadata["write id"].value == 1
    told = place.warehouse.metastore.outcome(event.materialization.metadata["transaction"].value)
    assert told["state"] == "c"


@pytest.mark.more
@pytest.mark.parametrize("end", ["commit", "abort", "__enter__"])
def test_a_body_can_t_end_the_transaction_before_its_checks(place: Place, end: str) -> None:
    @acid_asset(table=TableDeclaration("db.t", "v string"), checks=[POSITIVE])
    def t(txn: Transaction) -> list[Finding]:
        insert(txn, "db.t", ["unchecked"])
        getattr(txn, end)()
        return [Finding("ids_are_positive", False)]

    result = run(place, t)
    assert "is ended by the code that began it, after the checks" in failure(result)
    assert place.warehouse.table("db.t").history() == []


@pytest.mark.more
def test_a_table_that_the_run_leaves_out_is_not_written_unchecked(place: Place) -> None:
    tables = [TableDeclaration(f"db.{name}", "v string") for name in ("a", "b")]
    for one in tables:
        place.warehouse.create_table(one.name, "v string")

    @acid_multi_asset(outs=[AcidOut(one, checks=[POSITIVE]) for one in tables], can_subset=True)
    def both(txn: Transaction) -> dict[str, object]:
        for one in tables:
            insert(txn, one.name, ["x"])
        return {one.name: [Finding("ids_are_positive", one is tables[0])] for one in tables}

    result = run(place, both, selection=dg.AssetSelection.assets(tables[0].key))
    assert "wrote db.b, which this run does not materialize" in failure(result)
    assert [place.warehouse.table(one.name).history() for one in tables] == [[], []]


def test_a_name_without_a_database_is_in_default(place: Place) -> None:
    place.table("default.t")

    @acid_asset(table="T", ins={"other": "Other"})
    def t(txn: Transaction, other: TransactionTable) -> None:
        txn.table("t")

    place.table("default.other")
    assert t.key == dg.AssetKey(["default", "t"])
    assert t.dependency_keys == {dg.AssetKey(["default", "other"])}
    result = run(place, t)
    assert result.success, failure(result)
    [event] = result.get_asset_materialization_events()
    assert event.materialization.metadata["dagster/table_name"].value == "default.t"


@pytest.mark.more
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([], "could mean no rows or no findings"),
        (None, "must return a Finding for each of its checks"),
        ([Finding("other", True)], "must return a Finding for each of its checks"),
    ],
)
def test_an_answer_that_says_too_little_commits_nothing(
    place: Place, answer: object, why: str
) -> None:
    place.table()
    result = run(place, driven(answer))
    assert why in failure(result) and not result.get_asset_materialization_events()


@pytest.mark.more
def test_a_body_without_txn_has_to_return_rows(place: Place) -> None:
    @acid_asset(table="db.t")
    def t() -> None: ...

    assert "returned nothing for db.t; return rows" in failure(run(place, t))


@pytest.mark.more
@pytest.mark.parametrize(
    ("error", "policy", "attempts"),
    [
        (LockTimeout("busy"), dg.RetryPolicy(max_retries=2), 3),
        (LockTimeout("busy"), None, 1),
        (WrongType("bad"), dg.RetryPolicy(max_retries=2), 1),
        (OutcomeUnknown("lost"), dg.RetryPolicy(max_retries=2), 1),
    ],
)
def test_transient_errors_are_tried_again_as_the_policy_says(
    place: Place, error: Exception, policy: dg.RetryPolicy | None, attempts: int
) -> None:
    place.table()
    seen: list[int] = []

    @acid_asset(table="db.t", retry_policy=policy)
    def t(context: dg.AssetExecutionContext, txn: Transaction) -> None:
        seen.append(txn.id)
        raise error

    result = run(place, t)
    assert not result.success and str(error) in failure(result)
    assert len(set(seen)) == attempts  # each with a transaction, so a snapshot, of its own
    assert kinds(result).count(dg.DagsterEventType.STEP_UP_FOR_RETRY) == attempts - 1


@pytest.mark.more
@pytest.mark.parametrize(
    ("error", "policy", "attempts"),
    [
        (ConnectionError("no network"), {"retry_policy": dg.RetryPolicy(max_retries=2)}, 3),
        (dg.Failure("later"), {"retry_policy": dg.RetryPolicy(max_retries=1)}, 2),
        (dg.Failure("no", allow_retries=False), {"retry_policy": dg.RetryPolicy(max_retries=1)}, 1),
        (ConnectionError("no network"), {}, 1),
        (ConnectionError("no network"), {"retry_policy": None}, 1),
    ],
)
def test_a_policy_of_the_asset_repeats_what_its_function_raises(
    place: Place, error: Exception, policy: dict[str, Any], attempts: int
) -> None:
    place.table()
    seen: list[int] = []

    @acid_asset(table="db.t", write_mode="append", **policy)
    def t(txn: Transaction) -> None:
        seen.append(txn.id)
        txn.table("db.t").truncate()
        raise error

    result = run(place, t)
    assert not result.success and len(set(seen)) == attempts
    assert kinds(result).count(dg.DagsterEventType.STEP_UP_FOR_RETRY) == attempts - 1
    assert place.warehouse.metastore.history("db.t") == place.warehouse.metastore.locks() == []


@pytest.mark.more
def test_P30_an_overwrite_that_missed_an_insert_is_tried_again(place: Place) -> None:
    place.table()

    @acid_asset(table="db.t", retry_policy=dg.RetryPolicy(max_retries=2))
    def t(context: dg.AssetExecutionContext, txn: Transaction) -> None:
        if context.retry_number == 0:
            place.write()
        txn.table("db.t").truncate()

    result = run(place, t)
    assert result.success, failure(result)
    assert kinds(result).count(dg.DagsterEventType.STEP_UP_FOR_RETRY) == 1
    assert place.directories() == ["base_0000003", "delta_0000001_0000001_0000"]
    assert place.warehouse.metastore.locks() == []


@pytest.mark.more
def test_a_metastore_out_of_reach_is_tried_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.table()
    opening, beginning = WarehouseResource.open, Warehouse.transaction
    failing = [opening, beginning]

    def fails_once(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if real in failing:
                failing.remove(real)
                raise MetastoreUnavailable("gone")
            return real(*arguments, **options)

        return call

    monkeypatch.setattr(WarehouseResource, "open", fails_once(opening))
    monkeypatch.setattr(Warehouse, "transaction", fails_once(beginning))
    result = run(
        place,
        driven([Finding("ids_are_positive", True)], retry_policy=dg.RetryPolicy(max_retries=2)),
    )
    assert result.success, failure(result)
    assert kinds(result).count(dg.DagsterEventType.STEP_UP_FOR_RETRY) == 2


@pytest.mark.more
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"db.a": []}, "returned nothing for db.b"),
        ({"db.c": []}, "returned rows for db.c, which is not one of its tables"),
        ([], "return a mapping from table name to rows"),
    ],
)
def test_a_body_of_several_tables_has_to_name_them(place: Place, answer: object, why: str) -> None:
    def both() -> Mapping[str, object]:
        return answer  # type: ignore[return-value]

    asset = acid_multi_asset(outs=[AcidOut("db.b"), AcidOut("db.a")])(both)
    assert why in failure(run(place, asset))


def test_a_run_that_dagster_will_forget_says_so(place: Place, tmp_path: Path) -> None:
    place.table()
    home = tmp_path / ".tmp_dagster_home_1"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        forgotten = replace(place, instance=instance)
        result = run(forgotten, driven([Finding("ids_are_positive", True, True, {})]))
        said = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert [text for text in said if text.startswith("DAGSTER_HOME is not set")]
