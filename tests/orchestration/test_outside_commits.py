"""Commits that no run of Dagster shows become events of their assets, each exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from acid_platform.cli.main import main
from acid_platform.orchestration import (
    SparkResource,
    Transaction,
    acid_asset,
    asset_key,
    outside_commits,
)
from acid_platform.orchestration.outside_commits import CommitCursor, commit_sensor
from tests.orchestration.conftest import Place, quiet, run, succeeded

ORDERS, STAFF = asset_key("shop.orders"), asset_key("hr.staff")


@acid_asset(table="shop.orders", write_mode="append")
def orders() -> list[dict[str, int]]:
    return [{"id": 1}]


class Daemon:
    """Evaluates the sensor as Dagster's daemon does: it records the events, then the cursor."""

    def __init__(self, place: Place, *specs: dg.AssetSpec) -> None:
        self.instance = place.instance
        self.cursor: str | None = None
        self.definitions = dg.Definitions(
            assets=[orders, *specs],
            resources={"warehouse": place.resource, "spark": SparkResource()},
        )
        self.resource = place.resource

    def tick(self, records: int = 1_000_000, stores_cursor: bool = True) -> dg.SensorResult:
        """`records`: how many events it records before it dies."""
        result = commit_sensor(
            dg.build_sensor_context(
                instance=self.instance,
                cursor=self.cursor,
                definitions=self.definitions,
                resources={"warehouse": self.resource},
            )
        )
        assert isinstance(result, dg.SensorResult)
        for event in result.asset_events[:records]:
            self.instance.report_runless_asset_event(event)
        if stores_cursor:
            self.cursor = result.cursor
        return result

    def events(self, key: dg.AssetKey = ORDERS) -> list[dict[str, Any]]:
        """What the observations of an asset say, in order."""
        records = self.instance.fetch_observations(key, limit=1000, ascending=True).records
        return [
            {name: value.value for name, value in record.asset_observation.metadata.items()}
            for record in records
            if record.asset_observation
        ]

    def transactions(self) -> list[int]:
        return [event["transaction"] for event in self.events()]


@pytest.fixture
def daemon(place: Place) -> Iterator[Daemon]:
    place.warehouse.create_table("shop.orders", "id int")
    yield Daemon(place)


def insert(place: Place, number: int = 1, table: str = "shop.orders") -> int:
    """A commit from a notebook; the id of its transaction."""
    with place.warehouse.transaction() as txn:
        txn.table(table).insert([{"id": number}])
    return txn.id


def materialize(daemon: Daemon, **more: Any) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [orders],
        instance=daemon.instance,
        run_config=quiet(),
        resources=daemon.definitions.resources,
        **more,
    )


@pytest.mark.more
def test_a_commit_is_shown_once_with_who_wrote_what(place: Place, daemon: Daemon) -> None:
    txn = insert(place)
    place.warehouse.table("shop.orders").update({"id": "id + 1"}, "id = 1")
    daemon.tick()
    first, second = daemon.events()
    committed = place.warehouse.table("shop.orders").history()
    assert first.pop("committed") * 1000 == committed[0]["time"]
    assert first.pop("user") and first.pop("written bytes") > 0
    assert first == {
        "transaction": txn,
        "write id": 1,
        "rows written": 1,
        "rows deleted": 0,
        "overwrites": False,
        "engine": "local",
    }
    assert (second["rows written"], second["rows deleted"]) == (1, 1)
    assert not daemon.tick().asset_events


@pytest.mark.more
def test_what_runs_show_is_not_repeated(place: Place, daemon: Daemon) -> None:
    assert materialize(daemon).success
    txn = insert(place)
    daemon.tick()
    daemon.cursor = None
    daemon.tick()
    assert daemon.transactions() == [txn]


@pytest.mark.more
def test_a_run_of_another_code_location_that_fills_the_table_is_shown(
    place: Place, daemon: Daemon
) -> None:
    @dg.asset(key=["shop", "Orders"])
    def others() -> list[dict[str, int]]:
        return [{"id": 5}]

    result = run(place, others)
    assert succeeded(result)
    daemon.tick()
    [event] = daemon.events()
    assert (event["run id"], event["overwrites"]) == (result.run_id, True)


@pytest.mark.more
def test_a_commit_whose_run_died_before_its_event_is_shown_when_the_run_has_ended(
    place: Place, daemon: Daemon
) -> None:
    dead = daemon.instance.create_run_for_job(
        daemon.definitions.resolve_implicit_global_asset_job_def(),
        status=dg.DagsterRunStatus.STARTED,
    )
    with place.resource.open(dead.run_id) as opened:
        opened.table("shop.orders").insert([{"id": 1}])
    after = insert(place)
    daemon.tick()
    daemon.tick()
    assert daemon.transactions() == [after]
    daemon.instance.report_run_failed(dead)
    daemon.tick()
    daemon.tick()
    assert daemon.transactions() == [after, after - 1]
    assert daemon.events()[1]["run id"] == dead.run_id


@pytest.mark.more
def test_a_transaction_that_commits_after_later_ones_is_not_missed(
    place: Place, daemon: Daemon
) -> None:
    slow = place.warehouse.transaction()
    slow.table("shop.orders").insert([{"id": 1}])
    quick = insert(place)
    daemon.tick()
    assert daemon.transactions() == [quick]
    slow.commit()
    daemon.tick()
    daemon.tick()
    assert daemon.transactions() == [quick, slow.id]


@pytest.mark.more
def test_a_daemon_that_dies_before_it_stores_the_cursor_repeats_nothing(
    place: Place, daemon: Daemon
) -> None:
    txns = [insert(place, number) for number in range(3)]
    daemon.tick(2, stores_cursor=False)
    txns.append(insert(place))
    daemon.tick()
    daemon.cursor = None  # somebody resets it on the sensor's page
    daemon.tick()
    assert daemon.transactions() == txns


@pytest.mark.more
@pytest.mark.parametrize(
    ("cursor", "why"),
    [
        ("0", "none of this sensor"),
        ("2024-01-01T00:00:00", "none of this sensor"),
        ("[1, 2]", "none of this sensor"),
        ("null", "none of this sensor"),
        ('{"next_txn": 7}', "none of this sensor"),
        ('{"other": 1, "waiting": []}', "none of this sensor"),
        ('{"history": "x", "next_txn": "7", "waiting": []}', "none of this sensor"),
        ('{"history": 3, "waiting": []}', "none of this sensor"),
        ('{"history": "x", "next_txn": 900, "waiting": []}', "of another metastore"),
    ],
)
def test_a_foreign_cursor_begins_anew_and_says_so(
    place: Place, daemon: Daemon, cursor: str, why: str
) -> None:
    """Such as that of an earlier sensor of this name, or somebody's hand."""
    txn = insert(place)
    daemon.cursor = cursor
    assert why in str(daemon.tick().skip_reason)
    assert daemon.transactions() == [txn]
    assert "anew" not in str(daemon.tick().skip_reason) and daemon.transactions() == [txn]


@pytest.mark.more
def test_a_week_of_commits_comes_in_parts(
    place: Place, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside_commits, "MOST_COMMITS", 2)
    slow = place.warehouse.transaction()
    slow.table("shop.orders").insert([{"id": 1}])
    txns = [insert(place, number) for number in range(3)]
    assert len(daemon.tick().asset_events) == 2
    slow.commit()
    daemon.tick(), daemon.tick()
    assert sorted(daemon.transactions()) == sorted([slow.id, *txns])
    cursor = CommitCursor.parse(daemon.cursor)
    assert cursor and cursor.waiting == ()


@pytest.mark.more
def test_aborted_transactions_compactions_and_other_tables_are_not_shown(
    place: Place, daemon: Daemon
) -> None:
    place.warehouse.create_table("hr.staff", "id int").insert([{"id": 1}])
    aborted = place.warehouse.transaction()
    aborted.table("shop.orders").insert([{"id": 1}])
    daemon.tick()
    aborted.abort("not wanted")
    txns = [insert(place), insert(place)]
    place.warehouse.table("shop.orders").compact("major")
    daemon.tick()
    assert daemon.transactions() == txns
    assert not daemon.events(STAFF)


@pytest.mark.more
def test_a_table_that_was_dropped_and_made_again(place: Place, daemon: Daemon) -> None:
    txns = [insert(place)]
    place.warehouse.drop_table("shop.orders")
    place.warehouse.create_table("shop.orders", "id int")
    txns.append(insert(place))
    daemon.tick()
    daemon.tick()
    assert daemon.transactions() == txns
    assert [event["write id"] for event in daemon.events()] == [1, 2]


@pytest.mark.more
def test_external_assets_are_materialized_with_their_data_version(place: Place) -> None:
    place.warehouse.create_table("hr.staff", "id int")
    daemon = Daemon(place, dg.AssetSpec("people", metadata={"dagster/table_name": "hr.staff"}))
    insert(place, table="hr.staff")
    daemon.tick()
    daemon.tick()
    [record] = place.instance.fetch_materializations(dg.AssetKey("people"), limit=9).records
    event = record.asset_materialization
    assert event and event.metadata["write id"].value == 1
    assert event.tags == {"dagster/data_version": "1"}


@pytest.mark.slow
def test_what_a_run_writes_besides_the_table_of_its_asset_is_shown(place: Place) -> None:
    """As rows that fail, in the table of rejected rows."""
    daemon = Daemon(place, dg.AssetSpec(asset_key("shop.side")))
    for table in ("shop.orders", "shop.side"):
        place.warehouse.create_table(table, "id int")

    @acid_asset(table="shop.orders")
    def both(txn: Transaction) -> None:
        for table in ("shop.orders", "shop.side"):
            txn.table(table).insert([{"id": 1}])

    result = dg.materialize(
        [both],
        instance=place.instance,
        run_config=quiet(),
        resources=daemon.definitions.resources,
    )
    daemon.tick()
    [record] = place.instance.fetch_materializations(asset_key("shop.side"), limit=9).records
    event = record.asset_materialization
    assert event and event.metadata["run id"].value == result.run_id
    assert not daemon.events()


@pytest.mark.slow
def test_a_metastore_that_was_restored_to_the_past(
    place: Place, daemon: Daemon, tmp_path: Path
) -> None:
    """What it lost stays in Dagster's log, what it still has is not repeated, and a transaction
    with the id of a lost one is another."""
    file = str(tmp_path / "backup.duckdb")

    def acid(*arguments: str) -> None:
        result = CliRunner().invoke(
            main, ["metastore", *arguments, "--warehouse", str(place.resource.path)]
        )
        assert result.exit_code == 0, result.output

    txns = [insert(place)]
    acid("backup", file)
    place.warehouse.create_table("shop.other", "id int")
    elsewhere = insert(place, table="shop.other")
    txns.append(insert(place))
    daemon.tick()
    acid("stop")
    acid("restore", file, "--replace")
    daemon.tick()
    assert daemon.transactions() == txns
    with place.resource.open() as opened:
        opened.table("shop.orders").insert([{"id": 3}])
        txns.append(opened.table("shop.orders").history()[-1]["txn"])
    assert txns[-1] >= elsewhere
    daemon.tick()
    daemon.tick()
    assert daemon.transactions() == txns
