"""Every door through which bytes of others come in: one function from bytes to an outcome each.

A door returns, or raises one of the errors that it names. Anything else is a finding: another
exception, an end of the process, more than LARGEST_MEMORY bytes, more than LONGEST_SECONDS.
`python -m tests.fuzz` feeds the doors with inputs that coverage guides; `make test` replays
tests/fuzz/corpus. tests/fuzzing.py sends wrong bytes to whole processes instead.
"""

from __future__ import annotations

import io
import json
import logging
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from acid_platform import AcidError
from acid_platform.formats.data_file import KeyPart
from acid_platform.formats.file_access import count_rows
from acid_platform.formats.orc import open_strange_orc, reading
from acid_platform.formats.orc.column_statistics import column_ranges, key_ranges
from acid_platform.gateway import framing
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.framing import Cutter, Limits, MalformedMessage
from acid_platform.gateway.gateway import Gateway
from acid_platform.handles.csv_files import CsvFormat, TypeOfTexts, type_of
from acid_platform.layout import names, table_properties
from acid_platform.layout.formats import FileFormat, compression
from acid_platform.layout.names import (
    DEFAULT_PARTITION,
    parse_partition,
    partition_name,
    partition_values,
)
from acid_platform.layout.types import Column, parse_columns
from acid_platform.metastore import wire
from acid_platform.metastore.endpoint import Endpoint, Home
from acid_platform.metastore.log import contract
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.messages import json_text, read_operation
from acid_platform.metastore.records import LockRequest
from acid_platform.metastore.rules.turn import HANDLERS
from acid_platform.metastore.server import connections
from acid_platform.metastore.server.state_tables import Origin, open_state, write_state
from acid_platform.metastore.server.store import Store, machine_at
from acid_platform.predicates import analysis
from acid_platform.predicates.arrow_predicates import arrow_predicate, may_match
from acid_platform.scan import text_values
from acid_platform.scan.deletes import load_keys
from acid_platform.scan.recorded_ranges import proves
from acid_platform.scan.scans import ArrowScan, EntityScan, Scan
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.scan.text_lines import fitting
from acid_platform.sql import parse as sql_parse
from acid_platform.sql.text import Query
from acid_platform.storage.files import Files
from acid_platform.tables.joining import IdentityFile
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.partition_texts import partition_value
from tests.metastore.local import local_metastore
from tests.metastore.world import INSERT, W, World

CORPUS = Path(__file__).with_name("corpus")
LARGEST_MEMORY = 1 << 30
LONGEST_SECONDS = 10


class Wrong(Exception):
    """A door let something through that it must not."""


@dataclass(frozen=True, slots=True)
class Door:
    """`enter` raises `refused` for bytes that are not accepted."""

    enter: Callable[[bytes], object]
    refused: tuple[type[Exception], ...] = (AcidError,)
    longest: int = 4096
    """Bytes of an input."""


@cache
def _room() -> Path:
    """A directory for the files that doors read; in memory where there is such a place."""
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(prefix="acid-fuzz-", dir=memory if memory.is_dir() else None)
    return Path(made)


def leave() -> None:
    """Removes the files."""
    if _room.cache_info().currsize:
        shutil.rmtree(_room(), ignore_errors=True)
        _room.cache_clear()


def _file(name: str, content: bytes) -> str:
    path = _room() / name
    path.write_bytes(content)
    return str(path)


# --- the metastore's connections ----------------------------------------------------------------


def _greeting(data: bytes) -> None:
    """Frames of somebody who has not proved that he knows the key."""
    for payload in wire.Frames(wire.LARGEST_GREETING).feed(data):
        greeting = wire.read_greeting(payload)
        greeting.proves("0" * 64)


_NOT_OF_ITS_TYPE = (TypeError, KeyError, ValueError, AttributeError, IndexError, RecursionError)
"""What `codec.decode` says that it raises; the process answers, or ends the connection."""


def _requests(data: bytes) -> None:
    """Frames of a client that knows the key: each request, up to the rules that decide it."""
    world = World()
    for name, partitioned in (("t", True), ("u", False)):
        world.create(name, partitioned)
    world.begin(LockRequest("u", W, INSERT))
    for payload in wire.Frames(wire.LARGEST_MESSAGE).feed(data):
        try:
            request_id, op, args = connections._message(payload)
            operation = read_operation(op, args)
        except _NOT_OF_ITS_TYPE:
            continue
        except AcidError:
            continue
        if type(operation) not in HANDLERS:
            continue  # the process answers it from its files
        handled = world.machine.handle(operation, request_id, world.clock.moment())
        world.take(handled)
        for reply in handled.replies:
            json_text(reply.value)
        for event in handled.events:
            json.dumps(event.as_json())
    world.tick(1000)


# --- the gateway's connections ------------------------------------------------------------------


class _Raise(logging.Handler):
    """Raises what the gateway answers with its class name only."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], Exception):
            raise record.exc_info[1]


@cache
def _gateway() -> Gateway:
    log = logging.getLogger("acid_platform.gateway.gateway")
    log.handlers, log.propagate = [_Raise(level=logging.ERROR)], False
    world = World()
    root = _room() / "warehouse"
    (root / "default.db").mkdir(parents=True, exist_ok=True)
    for name, partitioned in (("t", True), ("u", False)):
        world.create(name, partitioned, location=f"{root}/default.db/{name}")
    return Gateway(local_metastore(world), 0)


def _thrift(data: bytes) -> None:
    """Messages of a client, framed and not, and what the calls answer."""
    cutter = Cutter(Limits(bytes=1 << 20, values=10_000))
    cutter.feed(data)
    while (message := cutter.next()) is not None:
        _gateway().answer(message.payload, Caller("10.0.0.7:1", "ann"))
        _gateway().refuse(message.payload, "log in first")
    cutter.end()


def _login(data: bytes) -> None:
    """What precedes the first call of a client that logs in."""
    if framing.begins(data[:5].ljust(5)):
        framing.login(data)


# --- files of tables ----------------------------------------------------------------------------

_WRITE_IDS = ValidWriteIdList.of("db.t", 100)


def _rows(
    path: str,
    identity: RowIdentity,
    columns: Sequence[Column],
    stored: FileFormat,
    by_arrow: bool = False,
) -> None:
    """Reads a file as scans do."""
    files, inside = Files.of(path)
    size = Path(path).stat().st_size
    keyed = identity is RowIdentity.STORED
    source = SourceFile(
        inside,
        identity,
        size,
        "delta_0000001_0000001_0000",
        1,
        1,
        test_rows=keyed,
        format=stored.name if by_arrow or keyed else None,
        by_arrow=by_arrow,
    )
    entity = EntityScan.of_file(source)
    scan = Scan(files, "/", tuple(columns), (), (entity,), _WRITE_IDS, stored)
    read = ArrowScan(scan, tuple(column.name for column in columns))
    for batch in read.batches(threads=1):
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):  # texts are not looked into
                raise


def _orc(data: bytes) -> None:
    """A file that others wrote: looked into as at a commit or an adoption, then read."""
    path = _file("bucket_00000", data)
    files, inside = Files.of(path)
    file = open_strange_orc(files, inside)
    with reading(inside):
        summary, footer = file.summary, file.footer
        _ = file.piece_rows
        column_ranges(footer, summary.acid)
        if summary.acid:
            key_ranges(footer)
            for ids in file.key_parts(*KeyPart):
                assert len(ids) == 5
            if file.nrows:
                file.bounds(KeyPart.CHANGED_BY)
            file.updates(int(file.nrows))
    columns = parse_columns("id int, v string, x double")
    _rows(
        path, RowIdentity.STORED if summary.acid else RowIdentity.NONE, columns, FileFormat("orc")
    )
    if summary.acid:
        source = SourceFile(
            inside, RowIdentity.STORED, len(data), "delete_delta_0000001_0000001", 1, 1
        )
        load_keys(files, [source], _WRITE_IDS)


def _parquet(data: bytes) -> None:
    """A file of an insert-only or an external table."""
    path = _file("part.parquet", data)
    files, inside = Files.of(path)
    stored = FileFormat("parquet")
    count_rows(files, inside, stored)
    columns = parse_columns("id int, v string, x double")
    for by_arrow in (False, True):
        _rows(path, RowIdentity.NONE, columns, stored, by_arrow)


def _json(data: bytes) -> None:
    """A file of JSON that is imported: each row, and the types of a new table."""
    kinds: dict[str, Any] = {}
    for _, row, _ in text_values.rows(io.BytesIO(data)):
        for name, value in row.items():
            kinds[name] = type_of(value, kinds.get(name))
        for column in parse_columns("a int, b double, c decimal(9,2), d string, e array<date>"):
            fitting(row.get(column.name), column.type, column.name)


def _csv(data: bytes) -> None:
    """A file of CSV that is imported."""
    form = CsvFormat()
    names = form.names(io.BytesIO(data))
    types = dict(zip(names, (pa.int32(), pa.string(), pa.decimal128(9, 2)), strict=False))
    for batch in form.batches(io.BytesIO(data), types, names):
        for column in batch.columns:
            TypeOfTexts().add(column.cast(pa.string()))


# --- names, properties and conditions -----------------------------------------------------------


def _directory(data: bytes) -> None:
    """Names below a table's directory, one a line."""
    for name in data.decode("utf-8", "surrogateescape").split("\n"):
        try:
            parsed = names.parse_directory(name)
        except names.MalformedName:
            parsed = None
        if parsed is not None and names.parse_directory(str(parsed)) != parsed:
            raise Wrong(f"{name!r} reads as {parsed}")
        bucket = names.parse_bucket_file(name)
        if bucket is not None and names.parse_bucket_file(str(bucket)) != bucket:
            raise Wrong(f"{name!r} reads as {bucket}")
        names.original_bucket(name)
        names.temporary_owner(name)
        parse_partition(name, ["p", "q"])


def _property(data: bytes) -> None:
    """Properties of a table, `name=value` a line."""
    pairs = [line.partition("=") for line in data.decode("utf-8", "surrogatepass").split("\n")]
    properties = {name: value for name, _, value in pairs}
    try:
        table_properties.check("db.t", properties)
    except AcidError:
        pass
    else:
        FileFormat.of(properties)
        compression(properties)
    table_properties.check_change("db.t", {}, properties)


_KINDS = (
    "tinyint smallint int bigint float double decimal(10,2) date timestamp boolean string"
    " varchar(3)"
)
_PARTITIONED = [parse_columns(f"p {kind}")[0] for kind in _KINDS.split()]


def _partition(data: bytes) -> None:
    """The value of a partition column, as a user gives it and as a directory's name has it."""
    text = data.decode("utf-8", "surrogateescape")
    for column in _PARTITIONED:
        for given in ({"p": text}, text):
            try:
                values = partition_values(given, [column], "db.t")
                name = partition_name(values)
            except AcidError:
                continue
            again = parse_partition(name, ["p"])
            # Hive's word for NULL can't be told from the text.
            kept = [None if one == DEFAULT_PARTITION else one for one in values.values()]
            if again != tuple(kept) or "/" in name:
                raise Wrong(f"{given!r} is written {name!r}, which reads as {again}")
            partition_value(kept[0], column.type)
            if partition_values(name, [column], "db.t") != {"p": kept[0]}:
                raise Wrong(f"{name!r} of {column} is written in another way again")


_COLUMNS = tuple(
    parse_columns(
        "a int, b string, c decimal(10,2), d date, e timestamp, f double, g boolean, h char(3),"
        " i bigint, j struct<k:int,l:array<string>>"
    )
)


@cache
def _batch() -> dict[str, pa.Array]:
    from acid_platform.values.arrow_types import arrow_type

    return {column.name: pa.nulls(2, arrow_type(column.type)) for column in _COLUMNS}


def _predicate(data: bytes) -> None:
    """A condition, over rows, partitions and the ranges of files."""
    text = data.decode("utf-8", "surrogatepass")
    analysis.parsed(text)
    analysis.columns_of(text)
    analysis.paths_of(text)
    for decide in (
        lambda: arrow_predicate(text, _COLUMNS, "db.t").mask(_batch()),
        lambda: may_match(text, _COLUMNS[:4], [("1", "x", "1.50", "2024-01-02"), (None,) * 4]),
        lambda: proves({}, text, _COLUMNS),
    ):
        with suppress(AcidError):
            decide()


# --- statements ---------------------------------------------------------------------------------


@cache
def _warehouse() -> Any:
    from acid_platform import Warehouse

    warehouse = Warehouse.open(str(_room() / "sql"), engine="local")
    table = warehouse.create_table("default.t", "id int, v string, x double, d date")
    table.insert([{"id": 1, "v": "a", "x": 0.5, "d": None}, {"id": None, "v": "é", "x": None}])
    return warehouse


def _sql(data: bytes) -> None:
    """A script; its first query is run on a tiny table, if only the local engine is needed."""
    text = data.decode("utf-8", "surrogatepass")
    with analysis.shallow("the script"):  # as `acid sql` does
        statements = sql_parse.split(text)
        parsed = [sql_parse.parse(one) for one in statements[:5]]
    if parsed and isinstance(parsed[0], Query):
        _warehouse().sql(statements[0].text).to_arrow()


# --- files of the metastore and the warehouse ---------------------------------------------------


def _endpoint(data: bytes) -> None:
    _file("endpoint.json", data)
    Endpoint.read(Home(_room()))


def _marker(data: bytes) -> None:
    _file("_acid_warehouse.json", data)
    IdentityFile.read(str(_room()))


_HEADER = contract.Header("0123456789abcdef", 1, "", "0123456789abcdef")


def _journal(data: bytes) -> None:
    """A segment as it is; or, after a first byte `+`, lines of a segment with right checksums."""
    room = _room() / "log"
    shutil.rmtree(room, ignore_errors=True)
    room.mkdir()
    if data[:1] == b"+":
        lines = data[1:].split(b"\n")
        bodies = [
            b"%d 1 %d " % (number, 1000 * number) + line for number, line in enumerate(lines, 1)
        ]
        data = _HEADER.line + b"".join(
            b"\x1e%08x %b\n" % (zlib.crc32(body, _HEADER.seed), body) for body in bodies
        )
    (room / contract.segment_name(1)).write_bytes(data)
    log = LocalLog(room)
    store = Store(log, room)
    try:
        machine_at(store)
        log.open_to_append()
    finally:
        store.close()


@cache
def _snapshot_bytes() -> bytes:
    world = World()
    for name, partitioned in (("t", True), ("u", False)):
        world.create(name, partitioned)
    world.insert("u")
    world.begin(LockRequest("u", W, INSERT))
    path = _room() / "whole.duckdb"
    write_state(path, world.state, Origin(7, 1, 1000, "0123456789abcdef"), None)
    return path.read_bytes()


def _snapshot(data: bytes) -> None:
    """Changes of a whole snapshot: eight bytes each, the place and four new bytes.

    Places count from the first byte; those of the first 4 KiB are hit more often, since DuckDB's
    headers are there.
    """
    content = bytearray(_snapshot_bytes())
    for at in range(0, len(data) - 7, 8):
        place, new = struct.unpack_from("!I4s", data, at)
        place %= 4096 if place & 1 << 31 else len(content) - 4
        content[place : place + 4] = new
    path = Path(_file(contract.snapshot_name(7), bytes(content)))
    file = open_state(path, _room())
    try:
        state = file.state()
        json.dumps(sorted(table.record.name for table in state.tables.values()))
        file.past_txn(1)
        file.past_outcome("x")
        file.recorded(1, [None])
        file.history(1)
    finally:
        file.close()


DOORS: dict[str, Door] = {
    "greeting": Door(_greeting, (wire.Malformed,), 1024),
    "requests": Door(_requests, (wire.Malformed,)),
    "thrift": Door(_thrift, (MalformedMessage,)),
    "login": Door(_login, (MalformedMessage, framing.LoginRefused), 512),
    "orc": Door(_orc),
    "parquet": Door(_parquet),
    "json": Door(_json, (ValueError, AcidError)),
    "csv": Door(_csv, (ValueError, pa.ArrowInvalid)),
    "directory": Door(_directory, longest=512),
    "property": Door(_property, (AcidError, UnicodeDecodeError), 512),
    "partition": Door(_partition, longest=300),
    "predicate": Door(_predicate, (AcidError, UnicodeDecodeError), 512),
    "sql": Door(_sql, (AcidError, UnicodeDecodeError), 512),
    "endpoint": Door(_endpoint, longest=512),
    "marker": Door(_marker, longest=512),
    "journal": Door(_journal),
    "snapshot": Door(_snapshot, longest=256),
}
"""Each door with the errors by which it refuses. Texts arrive decoded in `property`, `predicate`
and `sql`, so what is no UTF-8 does not count there."""
