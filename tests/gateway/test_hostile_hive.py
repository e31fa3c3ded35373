"""A Hive metastore of a stranger, which `acid register` and `acid adopt` ask, is bounded (P65)."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from acid_platform.errors import MetastoreUnavailable
from acid_platform.gateway import hive_client
from acid_platform.gateway.hive_client import Address, Hive
from acid_platform.gateway.protocol import load
from acid_platform.transactions.concurrency import LockType

_HEAD = struct.pack("!I", 0x80010002)


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[Address]:
    """A server that does this with each call."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            try:
                client, _ = listener.accept()
                with client:
                    while client.recv(65536):
                        answer(client)
            except OSError:
                pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Address("127.0.0.1", listener.getsockname()[1])
    thread.join(10)


def reply(name: str, field: bytes) -> bytes:
    """An answer whose field 0 begins so."""
    return _HEAD + struct.pack("!i", len(name)) + name.encode() + struct.pack("!i", 0) + field


ANSWERS = {
    "a long text": (b"\x0b\0\0" + struct.pack("!i", 20 << 20), "a text has 20,971,520 bytes"),
    "many elements": (b"\x0f\0\0\x0b" + struct.pack("!i", (1 << 31) - 1), "more than 5,000,000"),
    "nothing many times": (b"\x0f\0\0\x0c" + struct.pack("!i", 6_000_000), "more than 5,000,000"),
    "structs in structs": (b"\x0c\0\0" * 1000, "is nested deeper than 40 levels"),
    "a negative size": (b"\x0b\0\0" + struct.pack("!i", -1), "has a negative size"),
    "an unknown type": (b"\x63\0\0", "of the unknown type 99"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_P65_an_answer_of_hive_is_looked_at_before_it_is_decoded(case: str) -> None:
    field, why = ANSWERS[case]
    with (
        answering(lambda client: client.sendall(reply("get_all_databases", field))) as address,
        Hive(address) as hive,
        pytest.raises(MetastoreUnavailable, match=why),
    ):
        hive.call("get_all_databases")


@pytest.mark.parametrize(
    "sent", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\0\x02\x02\x16"]
)
def test_P65_what_is_no_answer_of_hive_is_told(sent: bytes) -> None:
    with (
        answering(lambda client: client.sendall(sent)) as address,
        Hive(address) as hive,
        pytest.raises(MetastoreUnavailable, match="is no answer"),
    ):
        hive.call("get_all_databases")


def test_P65_an_answer_of_hive_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hive_client, "_SECONDS", 0.5)

    def slow(client: socket.socket) -> None:
        for byte in reply("get_all_databases", b"\x0f\0\0\x0b\0\0\0\x02\0\0\0\x09abcdefghi"):
            client.sendall(bytes([byte]))
            time.sleep(0.05)

    with answering(slow) as address, Hive(address) as hive:
        began = time.monotonic()
        with pytest.raises(MetastoreUnavailable, match="no whole answer within"):
            hive.call("get_all_databases")
        assert time.monotonic() - began < 5


def test_P65_a_login_at_hive_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hive_client, "_SECONDS", 0.5)
    monkeypatch.setenv(hive_client.PASSWORD, "secret")

    def slow(client: socket.socket) -> None:
        client.sendall(b"\x05\0\0\xff\xff")
        while True:
            client.sendall(b"x")
            time.sleep(0.05)

    with answering(slow) as address, pytest.raises(MetastoreUnavailable, match="no connect"):
        Hive(Address(address.host, address.port, user="ann"))


def test_P65_the_partitions_of_a_table_of_hive_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hive_client, "_MOST_OF_TABLE", 1000)
    names = b"\x0f\0\0\x0b" + struct.pack("!i", 1000) + (b"\0\0\0\x03p=1" * 1000) + b"\0"
    answers = iter(
        [
            reply("get_partition_names", names),
            *[
                reply("get_partitions_by_names", b"\x0f\0\0\x0c\0\0\x01\0" + b"\0" * 256 + b"\0")
                for _ in range(100)
            ],
        ]
    )
    with (
        answering(lambda client: client.sendall(next(answers))) as address,
        Hive(address) as hive,
        pytest.raises(MetastoreUnavailable, match=r"1,000 partitions of db\.t take more"),
    ):
        hive.partitions("db", "t")


def calls() -> dict[str, tuple[Callable[[Hive], object], list[Any]]]:
    """What is asked, and answers that lack something, or have too much of it."""
    m = load()
    ids = m.TableValidWriteIds(fullTableName="d.t", writeIdHighWaterMark=1, invalidWriteIds=[])
    given = m.TxnToWriteId(txnId=7, writeId=1)
    bare = m.Table(dbName="d", tableName="t")
    cut = m.Table(dbName="d", tableName=b"\xff", sd=m.StorageDescriptor(cols=[], location="/x"))
    return {
        "table": (lambda hive: hive.table("d", "t"), [*map(m.GetTableResult, (None, bare, cut))]),
        "open": (
            lambda hive: hive.open(1, "me"),
            [m.OpenTxnsResponse(), m.OpenTxnsResponse(txn_ids=[]), m.OpenTxnsResponse([1, 2])],
        ),
        "transactions": (lambda hive: hive.transactions(), [m.GetOpenTxnsResponse()]),
        "write ids": (
            lambda hive: hive.write_ids("d", "t", hive_client.ValidTxnList.of(1, [], [])),
            [m.GetValidWriteIdsResponse(tables) for tables in (None, [], [ids, ids])]
            + [m.GetValidWriteIdsResponse([m.TableValidWriteIds()])],
        ),
        "allocate": (
            lambda hive: hive.allocate("d", "t", [5]),
            [m.AllocateTableWriteIdsResponse(found) for found in (None, [], [given])],
        ),
        "lock": (
            lambda hive: hive.lock(1, "d", "t", LockType.EXCLUSIVE, 6),
            [m.LockResponse(), m.LockResponse(lockid=1)],
        ),
        "a text": (lambda hive: hive.call("get_all_databases"), [["d", b"\xff"]]),
    }


@pytest.mark.parametrize("name", calls())
def test_P65_an_answer_of_hive_that_lacks_something_is_no_raw_error(name: str) -> None:
    ask, answers = calls()[name]
    for answer in answers:
        hive = Hive.__new__(Hive)
        hive.address = Address("h", 1)
        hive._client = SimpleNamespace(
            **dict.fromkeys(
                (
                    *("get_table_req", "open_txns", "get_open_txns", "get_valid_write_ids"),
                    *("allocate_table_write_ids", "lock", "get_all_databases"),
                ),
                lambda *_, answer=answer: answer,
            )
        )
        with pytest.raises(MetastoreUnavailable, match="no answer of a Hive metastore"):
            ask(hive)
