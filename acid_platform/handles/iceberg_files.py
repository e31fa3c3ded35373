"""The files of a table of Iceberg, opened for pyiceberg within our bounds (P65, P67).

pyiceberg unpacks what a file says, however much that is, and opens a file by a name that others may
make a link meanwhile. It gets its files from here: each is looked at before it is handed on.
"""

from __future__ import annotations

import os
import zlib
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa

from acid_platform.base.file_bounds import LARGEST_FOOTER, MOST_UNPACKED
from acid_platform.base.paths import is_uri
from acid_platform.errors import ImportRefused
from acid_platform.formats.data_file import FilePath
from acid_platform.formats.file_access import open_file
from acid_platform.formats.parquet_files import require_bounded
from acid_platform.handles.own_files import OwnFiles
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
