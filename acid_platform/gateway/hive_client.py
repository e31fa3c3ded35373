"""A client of a Hive metastore of others, in its Thrift protocol."""

from __future__ import annotations

import getpass
import io
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Self

from acid_platform.errors import (
    AcidError,
    InvalidDefinition,
    LockTimeout,
    MetastoreUnavailable,
    Terminal,
)
from acid_platform.gateway import framing
from acid_platform.gateway.framing import ANSWERS, Cutter, Limits, MalformedMessage
from acid_platform.gateway.protocol import (
    CATALOG,
    INSERT_ONLY_TABLES,
    LOCK_NUMBERS,
    HiveLockState,
    load,
)
from acid_platform.transactions import ValidTxnList, ValidWriteIdList
from acid_platform.transactions.concurrency import LockType

_SECONDS = 120.0
"""How long an answer may take, or the way to the first call."""
_ANSWER = Limits(bytes=256 << 20, values=5_000_000, text=16 << 20, kinds=ANSWERS)
_MOST_OF_TABLE = 512 << 20
"""Bytes of the partitions of a table, all of which are held."""
_PORT = 9083
_BATCH = 200
"""Partitions in one call."""
PASSWORD = "ACID_HIVE_PASSWORD"
_TABLE_LEVEL, _NO_OPERATION = 2, 6


class HiveRefused(Terminal):
    """The Hive metastore answered with an error. `kind` is its class there."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Address:
    """Where a Hive metastore is, and how to get in."""

    host: str
    port: int
    ca: str = ""
    """With a PEM file of authorities, or `system`, the connection has TLS."""
    certificate: str = ""
    key: str = ""
    user: str = ""
    """For SASL PLAIN; the password is in ACID_HIVE_PASSWORD."""

    @classmethod
    def of(cls, text: str, **more: str | None) -> Address:
        """From `thrift://host[:port]`. Raises InvalidDefinition."""
        scheme, _, address = text.partition("://")
        host, colon, port = address.rpartition(":")
        if not colon:
            host, port = address, str(_PORT)
        if scheme != "thrift" or not host or not port.isdigit() or "/" in address:
            raise InvalidDefinition(
                f"{text!r} is not the address of a Hive metastore, such as thrift://host:{_PORT}"
            )
        return cls(
            host.strip("[]"), int(port), **{name: value or "" for name, value in more.items()}
        )

    def __str__(self) -> str:
        return f"thrift://{self.host}:{self.port}"


class Hive:
    """A connection; use it as a context manager. Calls are made by one thread."""

    def __init__(self, address: Address) -> None:
        """Raises MetastoreUnavailable, InvalidDefinition."""
        from thriftpy2.protocol.binary import TBinaryProtocol
        from thriftpy2.thrift import TClient

        self.address = address
        self._socket = _connected(address)
        self._wire = _Wire(self._socket, framed=bool(address.user))
        self._client = TClient(load().ThriftHiveMetastore, TBinaryProtocol(self._wire))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.close()

    def call(self, name: str, *arguments: Any) -> Any:
        """Makes a call. Raises HiveRefused, and MetastoreUnavailable if the connection ends."""
        from thriftpy2.thrift import TException
        from thriftpy2.transport import TTransportException

        try:
            answer = getattr(self._client, name)(*arguments)
            _require_complete(answer)
            return answer
        except (TTransportException, OSError, EOFError, struct.error) as error:
            raise MetastoreUnavailable(
                f"{self.address} ended the connection during {name} ({error}); if it wants TLS give"
                " --tls-ca, if it wants a user give --user; Kerberos is not spoken"
            ) from error
        except TException as error:
            text = getattr(error, "message", None) or str(error)
            raise HiveRefused(type(error).__name__, f"{name}: {text}") from error
        except Exception as error:  # the decoder has no common class for what is no answer
            raise self._no_answer(name, f"{type(error).__name__}: {error}") from error

    def _no_answer(self, name: str, why: str) -> MetastoreUnavailable:
        return MetastoreUnavailable(
            f"{self.address} answers {name} with what is no answer of a Hive metastore: {why}"
        )

    @property
    def answers(self) -> bool:
        """Whether the metastore can be asked still, so that a failure was of one table alone."""
        try:
            self.call("get_all_databases")
        except AcidError:
            return False
        return True

    # --- declarations ---------------------------------------------------------------------------

    def table(self, database: str, name: str) -> Any | None:
        """A table or view; None if there is none. Raises HiveRefused."""
        m = load()
        request = m.GetTableRequest(
            dbName=database,
            tblName=name,
            catName=CATALOG,
            capabilities=m.ClientCapabilities(values=[INSERT_ONLY_TABLES]),
        )
        try:
            table = self.call("get_table_req", request).table
        except HiveRefused as error:
            if error.kind == "NoSuchObjectException":
                return None
            raise
        for lacks in ("sd", "sd.cols", "sd.serdeInfo"):
            if attrgetter(lacks)(table) is None:
                raise self._no_answer("get_table_req", f"a table without {lacks}")
        return table

    def partitions(self, database: str, name: str) -> list[Any]:
        """Raises MetastoreUnavailable for more than a process can hold."""
        names = self.call("get_partition_names", database, name, -1)
        before, found = self._wire.received, list[Any]()
        for at in range(0, len(names), _BATCH):
            found += self.call("get_partitions_by_names", database, name, names[at : at + _BATCH])
            if self._wire.received - before > _MOST_OF_TABLE:
                raise MetastoreUnavailable(
                    f"{self.address}: the {len(names):,} partitions of {database}.{name} take more"
                    f" than {_MOST_OF_TABLE >> 20} MB: drop columns' statistics and properties"
                    " there, or copy the table by INSERT … SELECT from an external one"
                )
        return found

    # --- transactions ---------------------------------------------------------------------------

    def open(self, count: int, agent: str) -> list[int]:
        """Opens transactions, ascending. Raises HiveRefused.

        A metastore of Hive 4.0.1 whose database is Derby fails to open several in one call.
        """
        request = load().OpenTxnRequest(
            num_txns=count, user=_me(), hostname=socket.gethostname(), agentInfo=agent
        )
        try:
            opened = list(self.call("open_txns", request).txn_ids)
            if len(opened) != count:
                raise self._no_answer("open_txns", f"{len(opened)} transactions, not {count}")
            return opened
        except HiveRefused as error:
            if error.kind != "TApplicationException" or count < 2:
                raise
        return [txn for _ in range(count) for txn in self.open(1, agent)]

    def commit(self, txn: int) -> None:
        self.call("commit_txn", load().CommitTxnRequest(txnid=txn))

    def abort(self, txns: Sequence[int]) -> None:
        if txns:
            self.call("abort_txns", load().AbortTxnsRequest(txn_ids=list(txns)))

    def transactions(self) -> ValidTxnList:
        """As Hive's clients make the list of the answer."""
        answer = self.call("get_open_txns")
        opened, aborted = _parted(answer.open_txns, answer.abortedBits)
        return ValidTxnList.of(answer.txn_high_water_mark, opened, aborted)

    def write_ids(self, database: str, name: str, txns: ValidTxnList) -> ValidWriteIdList:
        """What a snapshot with this list sees of the table. Raises HiveRefused."""
        request = load().GetValidWriteIdsRequest(
            fullTableNames=[f"{database}.{name}"], validTxnList=str(txns)
        )
        tables = self.call("get_valid_write_ids", request).tblValidWriteIds
        if len(tables) != 1:
            raise self._no_answer("get_valid_write_ids", f"the write ids of {len(tables)} tables")
        listed = tables[0]
        opened, aborted = _parted(listed.invalidWriteIds, listed.abortedBits)
        return ValidWriteIdList.of(
            f"{database}.{name}", listed.writeIdHighWaterMark, opened, aborted
        )

    def allocate(self, database: str, name: str, txns: Sequence[int]) -> dict[int, int]:
        """The write id of each transaction; those that had one keep it."""
        request = load().AllocateTableWriteIdsRequest(
            dbName=database, tableName=name, txnIds=list(txns)
        )
        answer = self.call("allocate_table_write_ids", request)
        found = {given.txnId: given.writeId for given in answer.txnToWriteIds}
        if found.keys() != {*txns}:
            raise self._no_answer("allocate_table_write_ids", "other transactions than were named")
        return found

    def lock(self, txn: int, database: str, name: str, kind: LockType, operation: int) -> Any:
        m = load()
        component = m.LockComponent(
            type=LOCK_NUMBERS[kind],
            level=_TABLE_LEVEL,
            dbname=database,
            tablename=name,
            operationType=operation,
            isTransactional=True,
            isDynamicPartitionWrite=False,
        )
        return self.call(
            "lock",
            m.LockRequest(
                component=[component], txnid=txn, user=_me(), hostname=socket.gethostname()
            ),
        )

    @contextmanager
    def locked(self, database: str, name: str, seconds: float, agent: str) -> Iterator[int]:
        """A transaction with the exclusive lock of a table: nobody reads or writes it meanwhile.

        Raises LockTimeout, and HiveRefused at the end if the transaction did not live so long.
        """
        (txn,) = self.open(1, agent)
        try:
            state = self.lock(txn, database, name, LockType.EXCLUSIVE, _NO_OPERATION)
            deadline = time.monotonic() + seconds
            while state.state == HiveLockState.WAITING and time.monotonic() < deadline:
                time.sleep(0.2)
                state = self.call(
                    "check_lock", load().CheckLockRequest(lockid=state.lockid, txnid=txn)
                )
            if state.state != HiveLockState.ACQUIRED:
                raise LockTimeout(
                    f"{database}.{name} is used at {self.address}: its exclusive lock was not"
                    f" granted within {seconds:g} s; run it again when that ended"
                )
            yield txn
        except BaseException:
            with suppress(Exception):
                self.abort([txn])
            raise
        self.commit(txn)

    def keep_alive(self, txn: int) -> None:
        self.call("heartbeat", load().HeartbeatRequest(txnid=txn))


def _require_complete(value: Any, name: str = "the answer") -> None:
    """Raises ValueError for a struct that lacks what its definition requires, and for a text that
    is not UTF-8: the decoder hands them on as None and as bytes."""
    if isinstance(value, bytes) and name != "abortedBits":
        raise ValueError(f"{name} is no text of UTF-8")
    if isinstance(value, list | set):
        for each in value:
            _require_complete(each, name)
    elif isinstance(value, dict):
        for each in (*value, *value.values()):
            _require_complete(each, name)
    for _, field, *_, required in getattr(value, "thrift_spec", {}).values():
        found = getattr(value, field)
        if found is None and required:
            raise ValueError(f"{type(value).__name__} lacks {field}")
        _require_complete(found, field)


class _Wire:
    """Sends calls; hands on an answer when all of it is there, in time and within bounds (P65).

    Whoever decodes bytes of a stranger as they come holds what their heads only promise.
    """

    def __init__(self, wire: socket.socket, framed: bool) -> None:
        self._socket, self._framed = wire, framed
        self._out, self._answer = bytearray(), io.BytesIO()
        self.received = 0
        """Bytes of all answers."""

    def write(self, content: bytes) -> None:
        self._out += content

    def flush(self) -> None:
        head = len(self._out).to_bytes(4, "big") if self._framed else b""
        content, self._out, self._answer = head + bytes(self._out), bytearray(), io.BytesIO()
        self._socket.settimeout(_SECONDS)
        self._socket.sendall(content)

    def read(self, size: int) -> bytes:
        """Raises MalformedMessage, OSError, EOFError."""
        content = self._answer.read(size)
        if len(content) < size and not content:
            self._answer = io.BytesIO(self._whole())
            content = self._answer.read(size)
        if len(content) < size:
            raise EOFError("the answer ends within a value")
        return content

    def _whole(self) -> bytes:
        cutter, deadline = Cutter(_ANSWER, self._framed), time.monotonic() + _SECONDS
        while (message := cutter.next()) is None:
            if cutter.has_more:
                continue
            try:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                content = self._socket.recv(1 << 18)
            except TimeoutError:
                raise TimeoutError(f"no whole answer within {_SECONDS:g} s") from None
            if not content:
                raise EOFError("it was closed")
            self.received += len(content)
            cutter.feed(content)
        if cutter.pending:
            raise MalformedMessage("more bytes follow the answer")
        return message.payload


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _parted(ids: Sequence[int], bits: bytes | None) -> tuple[list[int], list[int]]:
    """The open and the aborted ids: a set bit stands for an aborted one (java.util.BitSet)."""
    opened: list[int] = []
    aborted: list[int] = []
    padded = (bits or b"").ljust(len(ids) // 8 + 1, b"\0")
    for number, id_ in enumerate(ids):
        (aborted if padded[number // 8] >> number % 8 & 1 else opened).append(id_)
    return opened, aborted


def _connected(address: Address) -> socket.socket:
    """Raises MetastoreUnavailable, InvalidDefinition."""
    context = _context(address)
    try:
        wire = socket.create_connection((address.host, address.port), timeout=_SECONDS)
    except OSError as error:
        raise MetastoreUnavailable(f"{address} can't be reached: {error}") from error
    same = wire.dup()
    late = threading.Timer(_SECONDS, _shut, [same])  # whoever sends a byte now and then
    late.daemon = True
    late.start()
    try:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            wire = context.wrap_socket(wire, server_hostname=address.host)
        if address.user:
            _log_in(wire, address)
    except ssl.SSLCertVerificationError as error:
        wire.close()
        raise InvalidDefinition(
            f"{address}: its certificate is not accepted: {error.verify_message} (--tls-ca"
            f" {address.ca})"
        ) from error
    except OSError as error:
        wire.close()
        raise MetastoreUnavailable(f"{address}: no connection with TLS: {error}") from error
    except BaseException:
        wire.close()
        raise
    finally:
        late.cancel()
        same.close()
    return wire


def _shut(wire: socket.socket) -> None:
    with suppress(OSError):
        wire.shutdown(socket.SHUT_RDWR)


def _context(address: Address) -> ssl.SSLContext | None:
    if not address.ca:
        if address.certificate:
            raise InvalidDefinition("--tls-certificate needs --tls-ca: a file, or system")
        return None
    try:
        context = ssl.create_default_context(cafile=None if address.ca == "system" else address.ca)
        if address.certificate:
            context.load_cert_chain(address.certificate, address.key or None, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise InvalidDefinition(f"--tls-ca, --tls-certificate, --tls-key: {error}") from error
    return context


def _log_in(wire: socket.socket, address: Address) -> None:
    """Raises InvalidDefinition, OSError."""
    password = os.environ.get(PASSWORD)
    if not password:
        raise InvalidDefinition(f"--user {address.user} needs the password in {PASSWORD}")
    wire.sendall(framing.client_opening(address.user, password))
    with wire.makefile("rb") as answer:  # nothing follows it before our first call
        head = answer.read(5)
        size = min(int.from_bytes(head[1:], "big"), 1 << 16)
        content = answer.read(size)
    if len(head) < 5 or len(content) < size:
        raise OSError("it ended the connection instead of an answer")
    if head[0] != framing.SaslStatus.COMPLETE:
        raise InvalidDefinition(
            f"{address} does not let {address.user} in: {content.decode(errors='replace')}"
        )
