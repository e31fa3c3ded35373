"""What arrives at the port: frames, limits, nonsense, unknown calls, many clients (P34)."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TApplicationException, TMessageType, TType
from thriftpy2.transport import TMemoryBuffer

from acid_platform import Warehouse
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.client_connection import Bounds
from acid_platform.gateway.framing import Cutter, Limits, MalformedMessage
from acid_platform.gateway.gateway import Gateway
from acid_platform.gateway.gateway_server import GatewayServer
from acid_platform.gateway.protocol import Call, known_calls
from tests.gateway.clients import connected, m
from tests.gateway.conftest import serving
from tests.metastore.local import local_metastore
from tests.metastore.world import World

FEW = Limits(bytes=4096, values=100, depth=10)


def message(name: str, *arguments: Any, sequence: int = 7) -> bytes:
    """A call as a client writes it."""
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer)
    protocol.write_message_begin(name, TMessageType.CALL, sequence)
    given = getattr(m.ThriftHiveMetastore, f"{name}_args", None)
    if given is not None:
        fields = [given.thrift_spec[number][1] for number in sorted(given.thrift_spec)]
        given(**dict(zip(fields, arguments, strict=True))).write(protocol)
    else:
        buffer.write(b"\0")
    protocol.write_message_end()
    return bytes(buffer.getvalue())


def framed(content: bytes) -> bytes:
    return struct.pack("!I", len(content)) + content


def cut(content: bytes, limits: Limits = FEW, pieces: int = 1 << 20) -> list[bytes]:
    """The messages in a stream that arrives in pieces of so many bytes."""
    cutter, found = Cutter(limits), []
    for at in range(0, len(content), pieces):
        cutter.feed(content[at : at + pieces])
        while (one := cutter.next()) is not None:
            found.append(one.payload)
    cutter.end()
    return found


CALLS = (
    message("get_all_databases"),
    message("get_table_req", m.GetTableRequest(dbName="db", tblName="t")),
    message("get_partitions_by_names", "db", "t", ["p=1", "p=2"]),
    message("add_write_ids_to_min_history", 3, {"db.t": 4}),
    message(
        "lock",
        m.LockRequest(
            component=[m.LockComponent(type=1, level=2, dbname="db", tablename="t")],
            txnid=1,
            user="a",
            hostname="b",
        ),
    ),
    message("heartbeat_txn_range", m.HeartbeatTxnRangeRequest(min=1, max=3)),
)


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 64, 100_000])
def test_P34_messages_are_cut_out_of_a_stream_whole(pieces: int) -> None:
    assert cut(b"".join(CALLS), FEW, pieces) == [*CALLS]
    assert cut(b"".join(map(framed, CALLS)), FEW, pieces) == [*CALLS]
    assert cut(CALLS[0] + framed(CALLS[1]), FEW, pieces) == [*CALLS[:2]]


def test_P34_a_message_in_many_pieces_is_walked_over_once() -> None:
    """A slow client must not cost a walk for each of its pieces."""
    large = message("get_partitions_by_names", "db", "t", [f"p={n}" for n in range(20_000)])
    cutter, steps = Cutter(Limits()), 0
    for at in range(0, len(large), 16):
        cutter.feed(large[at : at + 16])
        before = cutter._walk.at if cutter._walk else 0
        found = cutter.next()
        steps += (cutter._walk.at if cutter._walk else len(large)) - before
    assert found is not None and found.payload == large
    assert steps == len(large)


def field(kind: int, content: bytes) -> bytes:
    """A call with one argument of this wire type."""
    return CALLS[0][:-1] + struct.pack("!BH", kind, 1) + content + b"\0"


@pytest.mark.parametrize(
    ("stream", "told"),
    [
        (CALLS[1][:-3], "ended inside a message"),
        (b"\x80\x01", "ended inside a message"),
        (framed(CALLS[1])[:-3], "ended inside a frame"),
        (framed(CALLS[1] + b"xx"), "2 bytes after its message"),
        (framed(b"GET / HTTP/1.1\r\n\r\n"), "not with a message"),
        (b"GET / HTTP/1.1\r\n\r\n", "not HTTP or TLS"),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00", "not HTTP or TLS"),
        (framed(b"\x80\x01\0\1\0\0\0\1x\0\0\0\7\x0b\0\1\0\0\0\5ab"), "not end inside"),
        (struct.pack("!I", 5000), "at most 4,096 bytes"),
        (b"\x80\x01\x00\x02" + CALLS[0][4:], "type 2 is not a call"),
        (b"\x80\x01\x00\x01" + struct.pack("!i", 3000), "the name of a call has 3,000 bytes"),
        (b"\x80\x01\x00\x01" + struct.pack("!i", -1), "negative size"),
        (field(11, struct.pack("!i", -5)), "negative size"),
        (field(11, struct.pack("!i", 1 << 30)), "more than 4,096 bytes"),
        (field(15, struct.pack("!bi", 10, 1 << 29)), "more than 100 values"),
        (field(15, struct.pack("!bi", 10, 99) + b"x" * 80), "ended inside a message"),
        (field(13, struct.pack("!bbi", 11, 11, 51)), "more than 100 values"),
        (field(15, struct.pack("!bi", 1, 5)), "unknown type 1"),
        (field(16, b""), "unknown type 16"),
        (field(12, b"\x0c\0\1" * 30 + b"\0" * 31), "deeper than 10 levels"),
        (field(15, b"\x0f\0\0\0\1" * 30), "deeper than 10 levels"),
        (field(12, b"\2\0\1\0" * 200 + b"\0"), "more than 100 values"),
    ],
)
def test_P34_what_is_no_message_within_the_limits_is_refused(stream: bytes, told: str) -> None:
    with pytest.raises(MalformedMessage, match=told):
        cut(stream)


class _Silent:
    """A metastore that refuses every call."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            from acid_platform import NoSuchTable

            raise NoSuchTable(f"no {name}")

        return refuse


@pytest.mark.parametrize("given", ["nothing", "empty structs"])
def test_P34_a_call_that_lacks_what_it_needs_is_decoded_and_a_named_error(
    given: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.create("t", partitioned=True)
    gateway = Gateway(local_metastore(world), lock_wait=0)
    for name in sorted(known_calls()):
        spec = getattr(m.ThriftHiveMetastore, f"{name}_args").thrift_spec
        sent = [
            field[2]() if field[0] == TType.STRUCT and given == "empty structs" else None
            for _, field in sorted(spec.items())
        ]
        payload = message(name, *sent)
        assert Call.decode(payload).name == name
        assert gateway.answer(payload, Caller("10.0.0.7:1"))[3] in (2, 3)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_P34_an_unknown_call_is_named_in_the_answer(client: Any, server: GatewayServer) -> None:
    with socket.create_connection(server.address) as raw:
        for name in ("get_time_machine", "answer", "_metastore", "listen"):
            raw.sendall(message(name))
            protocol = TBinaryProtocol(TMemoryBuffer(raw.recv(65536)))
            told, kind, sequence = protocol.read_message_begin()
            assert (told, kind, sequence) == (name, TMessageType.EXCEPTION, 7)
            error = TApplicationException()
            error.read(protocol)
            assert error.type == TApplicationException.UNKNOWN_METHOD and name in error.message
    assert "default" in client.get_all_databases()


def test_P34_framed_and_unframed_clients_are_served_at_one_port(server: GatewayServer) -> None:
    for frames in (False, True):
        with connected(server.address, frames) as opened:
            assert "default" in opened.get_all_databases()
            assert opened.get_databases("def*") == ["default"]


def test_P34_nonsense_ends_only_its_own_connection(client: Any, server: GatewayServer) -> None:
    with socket.create_connection(server.address, timeout=10) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert raw.recv(100) == b""
    assert client.get_all_databases()


def test_P34_connections_are_limited_and_slow_messages_end(warehouse: Warehouse) -> None:
    with serving(warehouse, Bounds(connections=2, message_seconds=0.2)) as few:
        with connected(few.address) as one, connected(few.address) as two:
            assert one.get_all_databases() == two.get_all_databases()
            with connected(few.address) as third, pytest.raises(TApplicationException) as told:
                third.get_all_databases()
            assert "2 are open (--connections)" in told.value.message
        await_connections(few, 0)
        with socket.create_connection(few.address, timeout=10) as slow:
            slow.sendall(CALLS[0][:5])
            assert slow.recv(1) == b""
        with connected(few.address) as idle:
            time.sleep(0.4)  # an idle connection is no slow message
            assert idle.get_all_databases()


def await_connections(server: GatewayServer, count: int) -> None:
    deadline = time.monotonic() + 10
    while server.connections != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_P34_many_clients_at_once(server: GatewayServer) -> None:
    told: list[list[str]] = []

    def ask() -> None:
        with connected(server.address) as opened:
            told.extend(opened.get_all_databases() for _ in range(5))

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 150 and all("default" in answer for answer in told)


def test_P34_stop_ends_idle_connections_at_once(warehouse: Warehouse) -> None:
    with serving(warehouse) as server, connected(server.address) as idle:
        assert idle.get_all_databases()
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 5


@pytest.mark.more
def test_P34_the_interface_is_part_of_the_package() -> None:
    import acid_platform.gateway as package

    assert (Path(package.__file__).parent / "hive_metastore.thrift").exists()
