"""Tables of Iceberg, opened by pyiceberg so that nothing in the table chooses code, and their files
within our bounds (P65, P67).

pyiceberg imports and calls what some properties name, such as `py-io-impl`, and takes properties
from the table's metadata and from the catalog's server. Here a table's files are opened with the
properties of the catalog alone, and of these only the importing user's own configuration may name
code. pyiceberg unpacks what a file says, however much that is, and opens a file by a name that
others may make a link meanwhile. So it gets its files from here: each is looked at before it is
handed on."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa

from acid_platform.base.file_bounds import LARGEST_FOOTER, MOST_UNPACKED
from acid_platform.base.local_files import require_regular
from acid_platform.base.paths import is_uri
from acid_platform.errors import ImportRefused
from acid_platform.formats.data_file import FilePath
from acid_platform.formats.file_access import open_file
from acid_platform.formats.parquet_files import require_bounded
from acid_platform.handles.import_sources import OwnFiles
from acid_platform.storage.files import Files

_SMALL = 16 << 20
"""Bytes that metadata of any size may unpack to."""
_MOST_DELETED = 1 << 26
"""Rows that one file deletes by their positions, each an object of Python in pyiceberg."""
_AVRO, _GZIP, _PUFFIN = b"Obj\x01", b"\x1f\x8b", b"PFA1"
_STREAMS = {"gzip": "gzip", "bzip2": "bz2", "zstandard": "zstd"}
"""Arrow's names of what Avro calls a codec."""


class BoundedFiles:
    """What pyiceberg calls a FileIO, around the one that a catalog has chosen."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self.own: OwnFiles | None = None
        """Where local files may lie; known when the table's metadata have been read."""

    @property
    def properties(self) -> dict[str, Any]:
        found: dict[str, Any] = self._files.properties
        return found

    def new_input(self, location: str) -> _BoundedFile:
        return _BoundedFile(self._files.new_input(location), self)


@dataclass(frozen=True, slots=True)
class _BoundedFile:
    """What pyiceberg calls an InputFile."""

    file: Any
    files: BoundedFiles

    @property
    def location(self) -> str:
        return str(self.file.location)

    def open(self, _seekable: bool = True) -> Any:
        """Raises ImportRefused for a file that is not the table's, or would take more memory than a
        file may, CorruptFile, OSError."""
        path, own = plain_place(self.location), self.files.own
        if is_uri(path):
            return _bounded(self.file.open(), path, path)
        with nullcontext(path) if own is None else own.opened(path) as held:
            require_regular(held)
            return _bounded(pa.OSFile(held), path, held)


def plain_place(location: str) -> str:
    """A path or URI as pyiceberg understands it when it opens the file."""
    files = import_module("pyiceberg.io.pyarrow").PyArrowFileIO
    scheme, host, path = files.parse_location(location)
    if scheme == "file":
        return os.path.abspath(str(path))
    return f"{scheme}://{path if path.startswith(host) else host + path}"


def _bounded(stream: Any, path: str, held: str) -> Any:
    """The stream of a data file, or the bytes of another one."""
    try:
        head, size = bytes(stream.read(4)), int(stream.size())
        stream.seek(0)
        if head == b"PAR1":
            require_bounded(stream, path)
            return stream
        if head[:3] == b"ORC":
            files, inside = Files.of(held)
            open_file(files, FilePath(inside), strange=True)
            return stream
        if size > LARGEST_FOOTER:
            raise _too_large(path)
        content = bytes(stream.read())
    except BaseException:
        stream.close()
        raise
    stream.close()
    most = min(LARGEST_FOOTER, max(_SMALL, MOST_UNPACKED * size))
    if head == _AVRO:
        _require_bounded_avro(content, path, most)
    elif head[:2] == _GZIP and _unpacked_size("gzip", content, most) > most:
        raise _too_large(path)
    elif head == _PUFFIN:
        _require_bounded_puffin(content, path)
    return pa.BufferReader(content)


def _too_large(path: str) -> ImportRefused:
    return ImportRefused(
        f"{path} unpacks to more than {LARGEST_FOOTER >> 20} MB, or to more than {MOST_UNPACKED}"
        " times its bytes, as no metadata of a table do; nothing was imported: have them written"
        " anew, as by Iceberg's rewrite_manifests"
    )


def _unpacked_size(codec: str, content: bytes, most: int) -> int:
    """How many bytes it unpacks to, or more than `most`. Raises ValueError, zlib.error."""
    if codec == "null":
        return len(content)
    if codec == "snappy":
        return _number(content, 0)[0]
    if codec == "deflate":
        return len(zlib.decompressobj(-15).decompress(content, most + 1))
    if codec not in _STREAMS:
        raise ValueError(f"{codec!r} is no codec of Avro")
    with pa.CompressedInputStream(pa.BufferReader(content), _STREAMS[codec]) as unpacked:
        return len(unpacked.read(most + 1))


def _require_bounded_avro(content: bytes, path: str, most: int) -> None:
    """Raises ImportRefused for rows that take more than `most` bytes, ValueError for no Avro."""
    at, codec, total = len(_AVRO), "null", 0
    while (count := (read := _signed(content, at))[0]) != 0:
        at = read[1] if count > 0 else _signed(content, read[1])[1]
        for _ in range(abs(count)):
            key, at = _text(content, at)
            value, at = _text(content, at)
            if key == b"avro.codec":
                codec = value.decode()
    at = read[1] + _SYNC
    while at < len(content):
        rows, at = _signed(content, at)
        block, at = _text(content, at)
        size = _unpacked_size(codec, block, most)
        total, at = total + size, at + _SYNC
        if total > most or rows > size:
            raise _too_large(path)


_SYNC = 16
"""Bytes between the blocks of a file of Avro."""


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = shift = 0
    while at < len(content) and shift < 64:
        byte, at = content[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a file of Avro ends within a number")


def _signed(content: bytes, at: int) -> tuple[int, int]:
    value, at = _number(content, at)
    return value >> 1 ^ -(value & 1), at


def _text(content: bytes, at: int) -> tuple[bytes, int]:
    size, at = _signed(content, at)
    if not 0 <= size <= len(content) - at:
        raise ValueError("a file of Avro ends within a text")
    return content[at : at + size], at + size


def _require_bounded_puffin(content: bytes, path: str) -> None:
    """Raises ImportRefused for deletion vectors that would be too many objects."""
    bitmap, puffin = import_module("pyroaring").BitMap, import_module("pyiceberg.table.puffin")
    file, rows = puffin.PuffinFile(content), 0
    for blob in file.footer.blobs:
        if blob.compression_codec is not None:
            raise ImportRefused(f"{path}: its deletion vectors are compressed, which is not read")
        payload = memoryview(file.get_blob_payload(blob))[8:]
        number, at = int.from_bytes(payload[:8], "little"), 8
        for _ in range(number):
            if payload[at + 1 : at + 4].tobytes() != bytes(3):  # a row behind 2^40 others
                raise _too_large(path)
            found = bitmap.deserialize(bytes(payload[at + 4 :]))
            at, rows = at + 4 + len(found.serialize()), rows + len(found)
            if rows > _MOST_DELETED:
                raise _too_large(path)


_METADATA = ".metadata.json"


def of_file(location: str) -> Any:
    """The table of a metadata file, or of a directory whose `version-hint.text` names one."""
    table, serializers = import_module("pyiceberg.table"), import_module("pyiceberg.serializers")
    noop = import_module("pyiceberg.catalog.noop")
    files = BoundedFiles(import_module("pyiceberg.io").load_file_io({}, location))
    if not location.endswith(_METADATA):
        location = _newest(files, location)
    return table.StaticTable(
        identifier=("static-table", location),
        metadata=serializers.FromInputFile.table_metadata(files.new_input(location)),
        metadata_location=location,
        io=files,
        catalog=noop.NoopCatalog("static-table"),
    )


def _newest(files: Any, directory: str) -> str:
    """The metadata file that the hint of a directory names. Raises ImportRefused."""
    hint = f"{directory.rstrip('/')}/metadata/version-hint.text"
    with files.new_input(hint).open() as stream:
        text = stream.read(1 << 12).decode("utf-8").strip()
    name = text if text.endswith(_METADATA) else f"{'v' * text.isnumeric()}{text}{_METADATA}"
    if "/" in name:
        raise ImportRefused(f"{hint} names {name!r}, which is no file beside it")
    return f"{directory.rstrip('/')}/metadata/{name}"


def catalog_of(name: str) -> Any:
    """The catalog that the user's configuration describes."""
    catalog = import_module("pyiceberg.catalog").load_catalog(name)
    config = import_module("pyiceberg.utils.config").Config()
    own = config.get_catalog_config(name) or {}

    def without_code(properties: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: value
            for key, value in properties.items()
            if not _names_code(key) or own.get(key) == value
        }

    open_files = catalog._load_file_io
    catalog.properties = without_code(catalog.properties)
    catalog._load_file_io = lambda properties=None, location=None: BoundedFiles(
        open_files(without_code(properties or {}), location)
    )
    catalog.own_settings = own
    return catalog


def of_catalog(catalog: Any, name: str, files_in: Iterable[str]) -> Any:
    """A table of `catalog_of`.

    Raises ImportRefused for a metadata file on this machine: whoever serves the catalog may name
    any, so it has to be below a place that the user has named.
    """
    table = catalog.load_table(name)
    location = plain_place(table.metadata_location)
    own = catalog.own_settings
    if not is_uri(location) and not str(own.get("uri")).startswith("sqlite:"):
        allowed = [plain_place(path) for path in (own.get("warehouse"), *files_in) if path]
        if not allowed:
            raise ImportRefused(
                f"iceberg {name}: its catalog names the file {location} of this machine, and could"
                " name any: if it belongs to the table, allow its place by --files-in PLACE"
                " (files_in=[…]), or set the catalog's warehouse in pyiceberg's configuration"
            )
        OwnFiles(f"iceberg {name}", tuple(allowed)).require(location)
    known = {**catalog.properties, **getattr(table, "config", {})}
    kept = {
        key: value
        for key, value in table.io.properties.items()
        if known.get(key) == value or table.properties.get(key) != value
    }
    table.io = catalog._load_file_io(kept, table.metadata_location)
    return table


def _names_code(key: str) -> bool:
    """Whether a property may name a class or function."""
    return "impl" in key.lower() or key.lower().partition(".")[0] == "auth"


def place_of(table: Any) -> str:
    """The directory above that of the metadata file: a location in the metadata proves nothing.

    Raises ImportRefused for a metadata file in no directory, as a catalog's server may call it.
    """
    directory, _, _ = plain_place(table.metadata_location).rpartition("/")
    if not (parent := directory.removesuffix("/metadata")).strip("/"):
        raise ImportRefused(f"its metadata file {table.metadata_location} is in no directory of it")
    return parent


def rows_of(table: Any, scan: Any, snapshots: Iterable[Any], own: OwnFiles) -> pa.RecordBatchReader:
    """The rows of a scan that reads these snapshots. Raises ImportRefused for a file elsewhere."""
    module = import_module("pyiceberg.io.pyarrow")
    table.io.own = own
    for snapshot in snapshots:
        own.require(plain_place(snapshot.manifest_list))
        own.require_all(plain_place(each.manifest_path) for each in snapshot.manifests(table.io))
    tasks = list(scan.plan_files())
    for task in tasks:
        own.require_all(plain_place(file.file_path) for file in (task.file, *task.delete_files))
    projection = scan.projection()
    schema = module.schema_to_pyarrow(projection)
    reader = module.ArrowScan(table.metadata, table.io, projection, scan.row_filter)
    batches = reader.to_record_batches(tasks)
    return pa.RecordBatchReader.from_batches(schema, batches).cast(schema)
