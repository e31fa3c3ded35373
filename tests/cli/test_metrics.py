"""The numbers of metastore, gateway and services are served for Prometheus."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families as parsed

from acid_platform import InvalidDefinition, Warehouse
from acid_platform.base.ports import serve_metrics
from acid_platform.cli.main import main
from acid_platform.cli.runner import Runner, ServiceMetrics
from acid_platform.errors import LeaseHeld, MetastoreUnavailable
from acid_platform.gateway.gateway import Gateway
from acid_platform.gateway.gateway_process import GatewayMetrics
from acid_platform.gateway.gateway_server import GatewayServer
from acid_platform.metastore.client.target import start
from acid_platform.metastore.endpoint import Home
from tests.conftest import temporary_warehouse
from tests.gateway.clients import connected


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh") as warehouse:
        yield warehouse


def numbers(page: str) -> dict[str, float]:
    """The samples of a page, by their names and labels."""
    with urllib.request.urlopen(page) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    return {
        ",".join([sample.name, *map("=".join, sorted(sample.labels.items()))]): sample.value
        for family in parsed(text)
        for sample in family.samples
    }


@pytest.mark.more
def test_the_metastore_serves_what_its_status_says(tmp_path: Path) -> None:
    def acid(*words: str) -> Any:
        return CliRunner().invoke(main, ["--warehouse", str(tmp_path), "metastore", *words])

    started = acid("start", "--metrics", ":0")
    page = started.stdout.split()[-1]
    assert page.startswith("http://127.0.0.1:")
    with Warehouse.open(tmp_path) as warehouse:
        table = warehouse.create_table("db.t", "id int")
        with warehouse.transaction() as txn:
            table.insert([{"id": 1}], engine="local")
            table.compact("major", wait=False)
            assert numbers(page)["acid_metastore_open_transactions"] >= 1
            txn.abort()
        found = numbers(page)
    assert found["acid_metastore_up"] == found["acid_metastore_leads"] == 1
    assert found["acid_metastore_tables"] == found["acid_metastore_compactions_queued"] == 1
    assert found["acid_metastore_durable_write_seconds_bucket,le=+Inf"] > 0
    text = {line.split()[0] for line in acid("status", "--prometheus").stdout.splitlines()}
    assert {name for name in found if "," not in name} <= text
    assert json.loads(acid("status", "--json").stdout)["metrics"] == page
    acid("stop")


def test_an_address_that_can_t_be_had_is_told(tmp_path: Path) -> None:
    registry = ServiceMetrics("worker").registry
    server = serve_metrics("127.0.0.1:0", registry)
    taken = f"127.0.0.1:{server.port}"
    for address in (taken, "9464", "host:port", "a@b:1", ":70000"):
        with pytest.raises(InvalidDefinition, match=f"--metrics {address}: can't listen there"):
            serve_metrics(address, registry)
    with pytest.raises(InvalidDefinition, match="can't listen there"):
        start(Home(tmp_path / "metastore"), metrics=taken)
    server.close()


def test_a_gateway_counts_its_calls_by_name(warehouse: Warehouse) -> None:
    warehouse.create_table("db.t", "id int")  # makes the database
    calls, metrics = Gateway(warehouse.metastore), GatewayMetrics()
    calls.observe = metrics.observe
    server = GatewayServer(calls, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    page = serve_metrics(":0", metrics.registry(server))
    with connected(server.address) as client:
        assert client.get_database("db").name == "db"
        with pytest.raises(Exception, match="gone"):
            client.get_database("gone")
        found = numbers(page.address)
    page.close()
    server.stop()
    thread.join()
    assert found["acid_gateway_call_seconds_count,call=get_database"] == 2
    assert found["acid_gateway_failed_calls_total,call=get_database,error=NoSuchTable"] == 1
    assert found["acid_gateway_connections"] == found["acid_gateway_accepted_total"] == 1
    assert found["acid_gateway_calls_total"] >= 2


def test_a_service_counts_its_cycles(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = warehouse.create_table("db.t", "id int")
    for number in range(2):
        table.insert([{"id": number}], engine="local")
    table.compact("major", wait=False)
    said: list[dict[str, Any]] = []
    with warehouse.using("local"):
        runner = Runner(warehouse, "worker", said.append)
        cycle = runner._measured(runner._work, ":0")
        assert cycle() and not cycle()
    runner._failed(MetastoreUnavailable("gone"))
    runner._failed(LeaseHeld("another one works"))
    found = numbers(said[0]["metrics"])
    assert found["acid_service_compactions_total,state=published"] == 1
    assert found["acid_service_cycle_seconds_count,service=worker"] == 2
    assert found["acid_service_errors_total,service=worker"] == 1
    last = found["acid_service_last_cycle_timestamp_seconds,service=worker"]
    assert abs(time.time() - last) < 60
