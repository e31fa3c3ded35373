"""Hive's protocol: decodes calls and encodes answers with thriftpy2; our records in its structs.

The interface is in hive_metastore.thrift."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

from acid_platform.base.paths import absolute, as_uri, is_uri, local_path
from acid_platform.errors import InvalidDefinition, NoSuchPartition, UnsupportedStatement
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import DEFAULT_PARTITION, parse_partition, partition_name
from acid_platform.layout.table_properties import (
    FIELD_DELIMITER,
    NULL_TEXT,
    TRANSACTIONAL,
    TRANSACTIONAL_KIND,
)
from acid_platform.metastore.records import (
    PLATFORM_OWNER,
    DatabaseRecord,
    OwnerKind,
    TableRecord,
    ViewRecord,
)
from acid_platform.transactions import RowOperation, TxnState, ValidTxnList, ValidWriteIdList
from acid_platform.transactions.concurrency import LockType

_IDL = Path(__file__).with_name("hive_metastore.thrift")
_NAME = re.compile(rb"\w{1,100}", re.ASCII)
_REPLY, _EXCEPTION, _ONEWAY = 2, 3, 4
UNKNOWN_METHOD, INTERNAL_ERROR, PROTOCOL_ERROR = 1, 6, 7


@cache
def load() -> Any:
    """The module with the protocol's structs, exceptions and service.

    Raises UnsupportedStatement if the package of the extra `gateway` is not installed.
    """
    try:
        import thriftpy2
    except ImportError as error:
        raise UnsupportedStatement(
            "the gateway needs the package thriftpy2: pip install 'acid-platform[gateway]'"
        ) from error
    return thriftpy2.load(str(_IDL), module_name="acid_hive_metastore_thrift")


def known_calls() -> frozenset[str]:
    """The calls that the interface declares."""
    return frozenset(load().ThriftHiveMetastore.thrift_services)


class Undecodable(Exception):
    """The message is well-formed, but its fields have other types than the call's, or a text is not
    UTF-8."""


@dataclass
class Call:
    """A decoded call: its name, sequence number and arguments in the order of their numbers.

    A client that sends a `oneway` call reads no answer.
    """

    name: str
    sequence: int
    arguments: list[Any]
    oneway: bool = False

    @classmethod
    def decode(cls, payload: bytes) -> Call:
        """Decodes a message that `framing` has let through.

        The arguments of a call that the interface does not have stay undecoded. Raises Undecodable.
        """
        from thriftpy2.protocol.binary import TBinaryProtocol
        from thriftpy2.transport import TMemoryBuffer

        # Else a text that is not UTF-8 stays bytes, which nobody expects.
        protocol = TBinaryProtocol(TMemoryBuffer(payload), strict_decode=True)
        try:
            name, kind, sequence = protocol.read_message_begin()
            if name not in known_calls():
                return cls(str(name), sequence, [], kind == _ONEWAY)
            arguments = getattr(load().ThriftHiveMetastore, f"{name}_args")()
            arguments.read(protocol)
        except Exception as error:  # whatever a decoder raises for unexpected bytes
            raise Undecodable(f"{type(error).__name__}: {error}") from error
        spec = arguments.thrift_spec
        values = [getattr(arguments, spec[number][1]) for number in sorted(spec)]
        return cls(name, sequence, values)

    @classmethod
    def named(cls, payload: bytes) -> Call | None:
        """The call without its arguments, which a stranger sent; None if it has no proper name."""
        kind, size = struct.unpack_from("!xxxBi", payload)
        name, end = payload[8 : 8 + size], 8 + size
        if not _NAME.fullmatch(name) or len(payload) < end + 4:
            return None
        (sequence,) = struct.unpack_from("!i", payload, end)
        return cls(name.decode(), sequence, [], kind == _ONEWAY)

    # --- answers --------------------------------------------------------------------------------

    def answer(self, value: Any) -> bytes:
        result = self._result()
        if value is not None:
            result.success = value
        return self._written(_REPLY, result)

    def declared(self) -> Mapping[str, str]:
        """The exceptions that the call may answer with: the field of each, by its class name."""
        spec = self._result().thrift_spec
        return {spec[number][2].__name__: spec[number][1] for number in spec if number}

    def raised(self, field: str, kind: str, message: str) -> bytes:
        """Answers with a declared exception."""
        result = self._result()
        setattr(result, field, getattr(load(), kind)(message=message))
        return self._written(_REPLY, result)

    def failed(self, message: str, kind: int = INTERNAL_ERROR) -> bytes:
        """Answers that the call failed in a way that its declaration does not foresee."""
        from thriftpy2.thrift import TApplicationException

        return self._written(_EXCEPTION, TApplicationException(kind, message))

    def _result(self) -> Any:
        return getattr(load().ThriftHiveMetastore, f"{self.name}_result")()

    def _written(self, kind: int, body: Any) -> bytes:
        from thriftpy2.protocol.binary import TBinaryProtocol
        from thriftpy2.transport import TMemoryBuffer

        buffer = TMemoryBuffer()
        protocol = TBinaryProtocol(buffer)
        protocol.write_message_begin(self.name, kind, self.sequence)
        body.write(protocol)
        protocol.write_message_end()
        return bytes(buffer.getvalue())


class HiveLockState(IntEnum):
    ACQUIRED = 1
    WAITING = 2
    ABORT = 3
    NOT_ACQUIRED = 4


class CompactionType(IntEnum):
    MINOR = 1
    MAJOR = 2


INSERT_ONLY_TABLES = 2
"""The capability with which a client says that it goes by write ids."""

USER, ROLE = 1, 2
"""Kinds of principals."""

LOCK_TYPES = {
    1: LockType.SHARED_READ,
    2: LockType.SHARED_WRITE,
    3: LockType.EXCLUSIVE,
    4: LockType.EXCL_WRITE,
}
LOCK_NUMBERS = {lock: number for number, lock in LOCK_TYPES.items()} | {LockType.PUBLICATION: 3}
"""A publication keeps other engines out, as EXCLUSIVE does."""

OPERATIONS = {
    1: RowOperation.SELECT,
    2: RowOperation.INSERT,
    3: RowOperation.UPDATE,
    4: RowOperation.DELETE,
}
"""What a lock is for. Other numbers (5: not said, 6: no transaction) stand for no operation."""

TXN_STATES = {TxnState.COMMITTED: 1, TxnState.ABORTED: 2, TxnState.OPEN: 3}

LONGEST_RANGE = 10_000
"""The most transactions in one heartbeat."""


CATALOG = "hive"
"""The only catalog."""
VERSION = "acid.declaration"
"""The parameter that names the declaration that a client has seen."""
_HIVE = "org.apache.hadoop.hive"
_TEXT_IN = "org.apache.hadoop.mapred.TextInputFormat"
_TEXT_OUT = f"{_HIVE}.ql.io.HiveIgnoreKeyTextOutputFormat"


@dataclass(frozen=True, slots=True)
class Storage:
    """The classes by which Hive's clients know a file format."""

    reads: str
    writes: str
    serde: str


STORAGE = {
    "orc": Storage(
        f"{_HIVE}.ql.io.orc.OrcInputFormat",
        f"{_HIVE}.ql.io.orc.OrcOutputFormat",
        f"{_HIVE}.ql.io.orc.OrcSerde",
    ),
    "parquet": Storage(
        f"{_HIVE}.ql.io.parquet.MapredParquetInputFormat",
        f"{_HIVE}.ql.io.parquet.MapredParquetOutputFormat",
        f"{_HIVE}.ql.io.parquet.serde.ParquetHiveSerDe",
    ),
    "avro": Storage(
        f"{_HIVE}.ql.io.avro.AvroContainerInputFormat",
        f"{_HIVE}.ql.io.avro.AvroContainerOutputFormat",
        f"{_HIVE}.serde2.avro.AvroSerDe",
    ),
    "text": Storage(_TEXT_IN, _TEXT_OUT, f"{_HIVE}.serde2.lazy.LazySimpleSerDe"),
    "json": Storage(_TEXT_IN, _TEXT_OUT, f"{_HIVE}.serde2.JsonSerDe"),
}
"""CSV is not there: Hive's SerDe for it reads every column as a string."""


def path(location: str) -> str:
    """The inverse of `as_uri`; `file:/x` is understood too.

    Raises InvalidDefinition for a relative path, and a file of another machine.
    """
    if not is_uri(location) and not local_path(location).startswith("/"):
        raise InvalidDefinition(f"{location!r} is not an absolute path")
    return absolute(location)


def split(name: str) -> tuple[str, str]:
    database, _, short = name.partition(".")
    return database, short


def _columns(record: TableRecord | ViewRecord, columns: Sequence[tuple[str, str]]) -> list[Any]:
    m, comments = load(), record.comments
    return [
        m.FieldSchema(name=name, type=kind, comment=comments.get(name, ""))
        for name, kind in columns
    ]


def columns_of(record: TableRecord | ViewRecord) -> list[Any]:
    return _columns(record, record.columns)


def all_columns_of(record: TableRecord) -> list[Any]:
    return _columns(record, (*record.columns, *record.partition_columns))


def nobody() -> Any:
    """An empty set of privileges."""
    return load().PrincipalPrivilegeSet({}, {}, {})


def storage_of(record: TableRecord) -> Storage:
    """Raises UnsupportedStatement."""
    stored = FileFormat.of(record.properties)
    if stored.name not in STORAGE or not stored.is_hives:
        raise UnsupportedStatement(
            f"{record.name}: its files are {stored.name}, whose values Hive's clients would not"
            " read as declared; read it with this platform"
        )
    return STORAGE[stored.name]


def descriptor(record: TableRecord, location: str) -> Any:
    storage = storage_of(record)
    stored = FileFormat.of(record.properties)
    parameters = {"serialization.format": "1"}
    if stored.name == "text":
        delimiter = stored.options["delimiter"]
        parameters = {
            FIELD_DELIMITER.name: delimiter,
            "serialization.format": delimiter,
            NULL_TEXT.name: stored.options["null"],
        }
    serde = load().SerDeInfo(
        name=split(record.name)[1], serializationLib=storage.serde, parameters=parameters
    )
    return _descriptor(record, as_uri(location), storage.reads, storage.writes, serde)


def _descriptor(
    record: TableRecord | ViewRecord, location: str, reads: str, writes: str, serde: Any
) -> Any:
    buckets, columns = (
        (record.bucket_count, record.bucket_columns) if isinstance(record, TableRecord) else (0, ())
    )
    return load().StorageDescriptor(
        cols=columns_of(record),
        location=location,
        inputFormat=reads,
        outputFormat=writes,
        compressed=False,
        numBuckets=buckets or -1,
        serdeInfo=serde,
        bucketCols=list(columns),
        sortCols=[],
        parameters={},
        skewedInfo=load().SkewedInfo([], [], {}),
        storedAsSubDirectories=False,
    )


def parameters_of(record: TableRecord) -> dict[str, str]:
    """The properties, with those that Hive's clients expect of a transactional table."""
    defaults = {each.name: each.values.default for each in (TRANSACTIONAL, TRANSACTIONAL_KIND)}
    own = {name: value for name, value in record.properties.items() if value is not None}
    created = str(record.created // 1000)
    return {**defaults, **own, "transient_lastDdlTime": created, VERSION: version_of(record)}


def version_of(record: TableRecord) -> str:
    """Which declaration it is. Clients that alter a table send its parameters back (P28)."""
    return f"{record.table_id}.{record.version}"


def table(record: TableRecord) -> Any:
    """Raises UnsupportedStatement."""
    shown = _table(record, descriptor(record, record.location), "MANAGED_TABLE")
    shown.partitionKeys = _columns(record, record.partition_columns)
    shown.parameters = parameters_of(record)
    shown.writeId = 0
    return shown


def view(record: ViewRecord) -> Any:
    reads = "org.apache.hadoop.mapred.SequenceFileInputFormat"
    writes = f"{_HIVE}.ql.io.HiveSequenceFileOutputFormat"
    stored = _descriptor(record, "", reads, writes, load().SerDeInfo(parameters={}))
    shown = _table(record, stored, "VIRTUAL_VIEW")
    shown.viewOriginalText = shown.viewExpandedText = record.query
    shown.parameters |= record.properties
    return shown


def _table(record: TableRecord | ViewRecord, stored: Any, kind: str) -> Any:
    database, name = split(record.name)
    return load().Table(
        tableName=name,
        dbName=database,
        owner=PLATFORM_OWNER,
        createTime=record.created // 1000,
        lastAccessTime=0,
        retention=0,
        sd=stored,
        partitionKeys=[],
        parameters={"transient_lastDdlTime": str(record.created // 1000)},
        tableType=kind,
        privileges=nobody(),
        temporary=False,
        catName=CATALOG,
        ownerType=USER,
    )


OWNER_KINDS = {OwnerKind.USER: USER, OwnerKind.ROLE: ROLE}


def database(record: DatabaseRecord, root: str) -> Any:
    return load().Database(
        name=record.name,
        description=record.comment,
        locationUri=as_uri(f"{root}/{record.name}.db"),
        parameters=dict(record.properties),
        privileges=nobody(),
        ownerName=record.owner,
        ownerType=OWNER_KINDS[record.owner_kind],
        catalogName=CATALOG,
    )


# --- partitions ---------------------------------------------------------------------------------


def values_of(record: TableRecord, partition: str) -> list[str]:
    """The values in the protocol's form: NULL is the name of Hive's default partition."""
    values = parse_partition(partition, [column for column, _ in record.partition_columns])
    return [DEFAULT_PARTITION if value is None else value for value in values or ()]


def name_of(record: TableRecord, values: Sequence[str]) -> str:
    """The partition's name. Raises NoSuchPartition."""
    columns = [column for column, _ in record.partition_columns]
    if len(values) != len(columns) or not columns:
        raise NoSuchPartition(
            f"{list(values)} are not the values of a partition of {record.name}, which is"
            f" partitioned by {columns or 'nothing'}"
        )
    nulls: Mapping[str, str | None] = {DEFAULT_PARTITION: None}
    return partition_name(
        {column: nulls.get(value, value) for column, value in zip(columns, values, strict=True)}
    )


def normal(record: TableRecord, partition: str) -> str:
    """The registered spelling of a partition's name. Raises NoSuchPartition."""
    if parse_partition(partition, [column for column, _ in record.partition_columns]) is None:
        raise NoSuchPartition(f"{partition!r} is no partition of {record.name}")
    return name_of(record, values_of(record, partition))


def partition(record: TableRecord, name: str) -> Any:
    """Raises UnsupportedStatement."""
    database, short = split(record.name)
    return load().Partition(
        values=values_of(record, name),
        dbName=database,
        tableName=short,
        createTime=record.created // 1000,
        lastAccessTime=0,
        sd=descriptor(record, f"{record.location}/{name}"),
        parameters={},
        privileges=nobody(),
        catName=CATALOG,
        writeId=0,
    )


# --- lists of ids -------------------------------------------------------------------------------


def txn_list(listed: ValidTxnList) -> Any:
    ids = sorted({*listed.open, *listed.aborted})
    return load().GetOpenTxnsResponse(
        txn_high_water_mark=listed.high_watermark,
        open_txns=ids,
        min_open_txn=listed.open[0] if listed.open else None,
        abortedBits=_bits(ids, listed),
    )


def write_id_list(name: str, listed: ValidWriteIdList) -> Any:
    ids = sorted({*listed.open, *listed.aborted})
    return load().TableValidWriteIds(
        fullTableName=name,
        writeIdHighWaterMark=listed.high_watermark,
        invalidWriteIds=ids,
        minOpenWriteId=listed.open[0] if listed.open else None,
        abortedBits=_bits(ids, listed),
    )


def _bits(ids: Sequence[int], listed: ValidTxnList | ValidWriteIdList) -> bytes:
    """One bit for each id, the lowest bit first: set if the id is aborted (java.util.BitSet)."""
    bits = bytearray((len(ids) + 7) // 8)
    for number, id_ in enumerate(ids):
        if listed.is_aborted(id_):
            bits[number // 8] |= 1 << (number % 8)
    return bytes(bits)
