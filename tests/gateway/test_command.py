"""`acid gateway` as a process: it starts, survives nothing and loses nothing, and stops (P34)."""

from __future__ import annotations

import ctypes
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from acid_platform import Warehouse
from acid_platform.cli.main import main
from acid_platform.gateway import protocol
from acid_platform.metastore import endpoint as metastore_address
from tests.gateway.clients import INSERT, Statement, begun, connected, files, insert_events, m
from tests.metastore.processes import until
from tests.metastore.test_transport import KEY, Service

Running = tuple[subprocess.Popen[str], tuple[str, int]]


@contextmanager
def running(warehouse: Path) -> Iterator[Running]:
    """The command, and where it listens."""
    command = [sys.executable, "-m", "acid_platform", "gateway", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--warehouse", str(warehouse), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        host, _, port = json.loads(process.stdout.readline())["listens"][9:].rpartition(":")
        yield process, (host, int(port))
    finally:
        process.kill()
        process.wait()


def test_P34_a_killed_gateway_loses_nothing_and_a_stopped_one_ends_at_once(
    warehouse: Warehouse,
) -> None:
    table = warehouse.create_table("db.killed", "id int, v string")
    with running(Path(warehouse.path)) as (process, address), connected(address) as client:
        statement, write_id, where = begun(client, table.name, INSERT)
        rows = insert_events(write_id, [(1, "a")])
        where.inserts(f"d{write_id}", rows)
        process.kill()
        process.wait()
        with pytest.raises(Exception, match=r"."):
            statement.commit()
    assert table.count() == 0
    with running(Path(warehouse.path)) as (process, address), connected(address) as client:
        statement.client = client
        statement.commit()
        assert table.count() == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stdout is not None
        assert "stopped" in json.loads(process.stdout.readline())


@pytest.mark.slow
def test_P34_a_gateway_killed_during_commits_tells_the_outcome_by_the_transactions_id(
    warehouse: Warehouse,
) -> None:
    """Whatever the kill cut off: the client asks again with the id, and the answer is what is
    true of the rows."""
    table = warehouse.create_table("db.cut_off", "id int, v string")
    committed: set[int] = set()
    statements: list[Statement] = []
    pauses = (0.0, 0.004, 0.012)
    for pause in pauses:
        with running(Path(warehouse.path)) as (process, address), connected(address) as client:
            for statement in statements:
                statement.client = client
                try:
                    statement.commit()
                except m.TxnAbortedException:
                    continue
                committed.add(statement.id)
            statements = [Statement(client) for _ in range(3)]
            for statement in statements:
                statement.lock(table.name, INSERT)
                write_id = statement.allocate(table.name)
                rows = insert_events(write_id, [(statement.id, "a")])
                files(client, table.name).inserts(f"d{write_id}", rows)
            statements[2].abort()
            killer = threading.Timer(pause, process.kill)
            killer.start()
            for statement in statements[:2]:
                with suppress(Exception):
                    statement.commit()
            killer.join()
            process.wait()
    with running(Path(warehouse.path)) as (_, address), connected(address) as client:
        for statement in statements:
            statement.client = client
            if statement is statements[2]:
                with pytest.raises(m.TxnAbortedException):
                    statement.commit()
                continue
            statement.commit()
            statement.commit()  # a second time is no error, as in Hive
            committed.add(statement.id)
        open_now = client.get_open_txns()
        with pytest.raises(m.NoSuchTxnException):
            client.commit_txn(m.CommitTxnRequest(txnid=open_now.txn_high_water_mark + 100))
    assert len(committed) == 2 * len(pauses)
    assert set(table.to_arrow().column("id").to_pylist()) == committed


def thread_pools(process: int) -> int:
    """How many pools of memory glibc has made for threads: each has 64 MiB of addresses, of which
    the unused end can't be accessed."""
    pools, size, before = 0, 64 << 20, (0, 0)
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        addresses, rights, *_ = line.split()
        start, end = (int(each, 16) for each in addresses.split("-"))
        pools += rights == "---p" and before[1] == start and end == before[0] + size
        before = (start, end)
    return pools


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="tells no map of a process")
def test_the_threads_of_a_gateway_share_their_memory(warehouse: Warehouse) -> None:
    """What the largest messages of each thread took was kept for that thread."""
    with running(Path(warehouse.path)) as (process, address):
        for _ in range(4):
            with connected(address) as client:
                client.get_all_databases()
        assert thread_pools(process.pid) <= 1, "that of a thread which began before"


BLOCKS = """
import ctypes
from acid_platform.gateway.gateway_process import keep_little_memory
keep_little_memory()
class Told(ctypes.Structure):
    _fields_ = [(f"field_{number}", ctypes.c_size_t) for number in range(10)]
told = ctypes.CDLL(None).mallinfo2
told.restype = Told
content = bytearray(16 << 20)
del content
before = told().field_3
content = bytearray(4 << 20)
print(told().field_3 - before)
"""
"""How many blocks of memory are mapped by themselves for 4 MB, after 16 MB were freed."""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="another library of C")
def test_what_a_large_message_takes_is_mapped_by_itself() -> None:
    """By default it would lie in a pool, which gives nothing back from below its last used byte."""
    run = [sys.executable, "-c", BLOCKS]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "1\n"


@pytest.mark.parametrize("listen", ["9083", "localhost:", ":9083", "localhost:port", "x:99999"])
def test_an_address_that_is_none_is_refused(warehouse: Warehouse, listen: str) -> None:
    told = CliRunner().invoke(
        main, ["gateway", "--listen", listen, "--warehouse", str(warehouse.path)]
    )
    assert told.exit_code == 1 and "HOST:PORT" in told.output


def test_other_machines_are_served_with_tls_or_on_request_only(warehouse: Warehouse) -> None:
    told = CliRunner().invoke(
        main, ["gateway", "--listen", "0.0.0.0:0", "--warehouse", str(warehouse.path)]
    )
    assert told.exit_code == 1
    assert "give --tls-certificate and --tls-key" in told.output and "--without-tls" in told.output


@pytest.mark.more
def test_a_port_that_is_taken_is_named(warehouse: Warehouse) -> None:
    with running(Path(warehouse.path)) as (_, (host, port)):
        told = CliRunner().invoke(
            main, ["gateway", "--listen", f"{host}:{port}", "--warehouse", str(warehouse.path)]
        )
    assert told.exit_code == 1 and f"can't listen on {host}:{port}" in told.output


def test_without_the_extra_the_command_names_it(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol.load.cache_clear()
    monkeypatch.setitem(sys.modules, "thriftpy2", None)
    told = CliRunner().invoke(main, ["gateway", "--warehouse", str(warehouse.path)])
    monkeypatch.undo()
    protocol.load()
    assert told.exit_code == 1 and "acid-platform[gateway]" in told.output


@pytest.mark.more
def test_doctor_knows_the_gateways_of_a_shared_metastore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(metastore_address.KEY, KEY)
    service = Service(tmp_path / "metastore")
    monkeypatch.setenv("ACID_METASTORE", service.uri)

    def told() -> list[str]:
        result = CliRunner().invoke(
            main, ["doctor", "--no-settings", "--json", "--warehouse", str(tmp_path / "wh")]
        )
        checks = json.loads(result.output)["checks"]
        return [one["text"] for one in checks if one["check"] == "gateway"]

    try:
        with Warehouse.open(tmp_path / "wh", engine="local"):
            pass
        assert told() == []
        with running(tmp_path / "wh") as (process, (host, port)):
            until(lambda: bool(told()), 20)
            assert f"process {process.pid} on {socket.gethostname()} listens on" in told()[0]
            assert f"{host}:{port} (without login)" in told()[0]
            process.terminate()
            process.wait()
        until(lambda: not told(), 5)
    finally:
        service.process.terminate()
        service.process.wait()
