"""Each commit is told to a collector of OpenLineage, by the official client."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acid_platform import Warehouse
from acid_platform.metastore.client import lineage_events
from tests.conftest import temporary_warehouse
from tests.gateway.clients import connected, trino_insert
from tests.gateway.conftest import serving
from tests.lineage_collector import Collector, collecting, columns_of, sent

pytest.importorskip("openlineage.client")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting(monkeypatch) as server:
        yield server


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", engine="local") as made:
        made.create_table("shop.orders", "id int, amount decimal(9,2)", partitioned_by=["day date"])
        yield made


def rows_of(event: dict[str, Any]) -> int:
    (output,) = event["outputs"]
    rows: int = output["outputFacets"]["outputStatistics"]["rowCount"]
    return rows


@pytest.mark.more
def test_statements_tell_their_tables_and_columns(wh: Warehouse, collector: Collector) -> None:
    wh.table("shop.orders").insert([{"id": 1, "amount": "2.50", "day": "2026-11-30"}])
    wh.sql(
        "CREATE TABLE shop.totals AS SELECT day, sum(amount) AS total FROM shop.orders GROUP BY day"
    )
    wh.sql("INSERT OVERWRITE TABLE shop.totals SELECT day, count(id) FROM shop.orders GROUP BY day")
    wh.sql("UPDATE shop.orders SET amount = 3 WHERE id = 1")
    wh.sql("INSERT INTO shop.totals SELECT max(day), 7 FROM shop.orders WHERE id > 0")
    wh.sql("DELETE FROM shop.orders WHERE id = 1")
    first, made, replaced, updated, added, deleted = sent(collector)
    space = f"file://{wh.path}"
    assert {first["eventType"], made["eventType"]} == {"COMPLETE"}
    assert (first["job"]["namespace"], first["job"]["name"]) == (space, "statement shop.orders")
    (output,) = first["outputs"]
    assert first["inputs"] == [] and output["name"] == "shop.orders"
    fields = [(one["name"], one["type"]) for one in output["facets"]["schema"]["fields"]]
    assert fields == [("id", "int"), ("amount", "decimal(9,2)"), ("day", "date")]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1
    (output,) = made["outputs"]
    assert [one["name"] for one in made["inputs"]] == ["shop.orders"]
    orders = "shop.orders"
    assert columns_of(output) == {"day": [(orders, "day")], "total": [(orders, "amount")]}
    assert "sum(amount)" in made["job"]["facets"]["sql"]["query"]
    (output,) = replaced["outputs"]
    assert columns_of(output) == {"day": [(orders, "day")], "total": [(orders, "id")]}
    assert output["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"
    assert [one["name"] for one in updated["outputs"]] == [orders]
    assert rows_of(updated) == 1 and rows_of(deleted) == 0
    assert columns_of(added["outputs"][0]) == {"day": [(orders, "day")], "total": []}
    assert [one["name"] for one in added["inputs"]] == [orders]
    assert len({one["run"]["runId"] for one in collector.events}) == 6


@pytest.mark.more
def test_a_commit_of_another_engine_is_told_by_the_gateway(
    wh: Warehouse, collector: Collector
) -> None:
    wh.create_table("db.t", "id int, v string")
    with serving(wh) as server, connected(server.address) as client:
        trino_insert(client, "db.t", [(1, "a"), (2, "b")])
    (event,) = sent(collector)
    assert event["job"]["name"] == "gateway db.t"
    (output,) = event["outputs"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert [one["name"] for one in output["facets"]["schema"]["fields"]] == ["id", "v"]


@pytest.mark.more
def test_what_was_not_sent_is_in_the_log_and_the_commit_is_done(
    wh: Warehouse, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    wh.table("shop.orders").insert([{"id": 1, "amount": "2.50", "day": "2026-11-30"}])
    sent(collector)
    assert wh.table("shop.orders").count() == 1 and not collector.events
    assert "OpenLineage: not sent: transaction" in caplog.text
    collector.status = 201
    wh.table("shop.orders").insert([{"id": 2, "amount": "2.50", "day": "2026-11-30"}])
    assert len(sent(collector)) == 1


@pytest.mark.more
def test_two_queries_in_one_commit_are_both_sources(wh: Warehouse, collector: Collector) -> None:
    wh.create_table("shop.old", "key int")
    wh.create_table("shop.ids", "id int")
    wh.sql("INSERT INTO shop.orders VALUES (1, 2.5, DATE'2026-11-30')")
    wh.sql("INSERT INTO shop.old VALUES (2)")
    with wh.transaction() as txn:
        txn.sql("INSERT INTO shop.ids SELECT key FROM shop.old")
        txn.sql("INSERT INTO shop.ids SELECT id FROM shop.orders")
    *_, event = sent(collector)
    assert columns_of(event["outputs"][0]) == {"id": [("shop.old", "key"), ("shop.orders", "id")]}
    assert [one["name"] for one in event["inputs"]] == ["shop.old", "shop.orders"]


@pytest.mark.more
def test_what_a_branch_shows_is_a_dataset_of_its_own_until_the_merge(
    wh: Warehouse, collector: Collector
) -> None:
    wh.branches.create("dev")
    with Warehouse.open(wh.path, engine="local", branch="dev") as dev:
        dev.sql("INSERT INTO shop.orders VALUES (1, 2.5, DATE'2026-11-30')")
    wh.branches.merge("dev")
    written, merged = sent(collector)
    assert [one["name"] for one in written["outputs"]] == ["shop.orders@dev"]
    assert [one["name"] for one in merged["inputs"]] == ["shop.orders@dev"]
    assert [one["name"] for one in merged["outputs"]] == ["shop.orders"]
    assert merged["job"]["name"] == "merge shop.orders"


@pytest.mark.more
def test_a_process_ends_soon_although_the_collector_does_not_answer(
    wh: Warehouse, tmp_path: Path
) -> None:
    """The commit is made before anybody connects; the end of the process names what is left."""
    insert = "INSERT INTO shop.orders VALUES (1, 2.5, DATE'2026-11-30')"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        ended = subprocess.run(
            [*(sys.executable, "-m", "acid_platform", "sql", "--warehouse", str(wh.path)), insert],
            env={**os.environ, lineage_events.URL: address, "ACID_ENGINE": "local"},
            capture_output=True,
            text=True,
        )
    assert ended.returncode == 0 and wh.table("shop.orders").count() == 1
    assert "OpenLineage: not sent at the end: transaction" in ended.stderr


@pytest.mark.more
def test_no_line_of_the_log_shows_a_password(caplog: pytest.LogCaptureFixture) -> None:
    error = OSError("no answer of http://me:secret@host:1/api\x1b[2J")
    assert lineage_events._shown(error) == "OSError: no answer of http://***@host:1/api\\x1b[2J"


def test_nothing_is_made_without_a_url(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(lineage_events.URL, raising=False)
    monkeypatch.setattr(lineage_events, "_start", lambda: pytest.fail("a thread was started"))
    wh.table("shop.orders").insert([{"id": 1, "amount": "2.50", "day": "2026-11-30"}])
    assert "OpenLineage" not in caplog.text


def test_what_does_not_fit_into_the_queue_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(lineage_events.URL, "http://127.0.0.1:1")
    monkeypatch.setattr(lineage_events, "_start", lambda: None)
    monkeypatch.setattr(lineage_events, "_WAITING", type(lineage_events._WAITING)(1))
    for number in (1, 2):
        lineage_events.tell(number, lambda: pytest.fail("nobody asks"))
    assert "not sent: transaction 2" in caplog.text
    lineage_events.flush(0)
    assert "not sent at the end: transaction 1" in caplog.text
