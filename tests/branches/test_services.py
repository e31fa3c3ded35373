"""Services, the gateway and the catalog work without a branch, whatever ACID_BRANCH says (P80)."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from acid_platform import Warehouse
from acid_platform.cli.main import main
from tests.conftest import temporary_warehouse
from tests.gateway.clients import connected, m

pytestmark = pytest.mark.more


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    """A warehouse with a row in db.t, and ACID_BRANCH of a branch that deleted it."""
    with temporary_warehouse(tmp_path / "wh") as warehouse:
        table = warehouse.create_table("db.t", "id int", properties={"acid.format": "parquet"})
        table.insert([{"id": 1}])
        warehouse.branches.create("dev")
        with Warehouse.open(warehouse.path, branch="dev") as dev:
            dev.table("db.t").delete("id = 1")
        monkeypatch.setenv("ACID_BRANCH", "dev")
        yield warehouse


@contextmanager
def serving(warehouse: Warehouse, command: str) -> Iterator[tuple[str, int]]:
    """Where the process of this command of `acid` listens."""
    line = [sys.executable, "-m", "acid_platform", command, "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(
        [*line, "--warehouse", warehouse.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        listens = json.loads(process.stdout.readline())["listens"]
        host, _, port = listens.rpartition("//")[2].rpartition(":")
        yield host, int(port)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("service", ["initiator", "worker", "cleaner"])
def test_P80_a_service_works_without_a_branch(parent: Warehouse, service: str) -> None:
    arguments = ["--warehouse", parent.path, "run", service, "--once"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output  # on the branch its calls are refused


def test_P80_the_catalog_tells_what_everybody_sees(parent: Warehouse) -> None:
    pytest.importorskip("fastavro", reason="pip install 'acid-platform[export]'")
    with serving(parent, "serve") as (host, port):
        path = f"http://{host}:{port}/v1/namespaces/db/tables/t"
        with urllib.request.urlopen(path, timeout=60) as answer:
            metadata = json.load(answer)["metadata"]
    assert [each["summary"]["acid.write-id"] for each in metadata["snapshots"]] == ["0", "1"]


def test_P80_the_gateway_shows_what_everybody_sees(parent: Warehouse) -> None:
    pytest.importorskip("thriftpy2", reason="pip install 'acid-platform[gateway]'")
    with serving(parent, "gateway") as address, connected(address) as client:
        request = m.GetValidWriteIdsRequest(fullTableNames=["db.t"])
        [listed] = client.get_valid_write_ids(request).tblValidWriteIds
    assert (listed.writeIdHighWaterMark, list(listed.invalidWriteIds)) == (2, [2])
