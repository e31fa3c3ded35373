"""The lines of a text file, a block at a time, as Hadoop's line reader divides them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.storage.files import Files

BLOCK = 8 << 20
"""Bytes that are read at a time."""
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2"}
_UNREAD = (".deflate", ".snappy", ".lzo", ".lz4", ".zst", ".zstd", ".xz", ".zip")
"""Hadoop takes the end of a name for the codec; it reads these, or takes them for text."""
_MARK = b"\xef\xbb\xbf"


def line_blocks(files: Files, path: str, size: int, header: int = 0) -> Iterator[bytes]:
    """Whole lines, each with `\\n` at its end, without the first `header` lines of the file.

    A line ends at `\\n`, `\\r` or both; a byte order mark at the beginning is left out. Raises
    CorruptFile if the file does not have `size` bytes before and after, UnsupportedLayout for a
    compression that is not read.
    """
    if path.lower().endswith(_UNREAD):
        raise UnsupportedLayout(
            f"{path}: files of text that end in {path.rpartition('.')[2]!r} are not read; write"
            " them plain, or as .gz or .bz2"
        )
    _require_size(files, path, size)
    for block in _blocks(files, path):
        while header and block:
            block, header = block[block.index(b"\n") + 1 :], header - 1
        if block:
            yield block
    _require_size(files, path, size)


def _blocks(files: Files, path: str) -> Iterator[bytes]:
    codec = next((name for end, name in _COMPRESSED.items() if path.endswith(end)), None)
    with files.system.open_input_stream(path, compression=codec) as stream:
        rest, mark = b"", _MARK
        while data := bytes(stream.read(BLOCK)):
            data = rest + data
            # A `\r` at the end may be half of a line end.
            cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
            rest = data[cut:]
            if cut:
                yield _plain(data[:cut].removeprefix(mark))
                mark = b""
        if rest := rest.removeprefix(mark):
            yield _plain(rest if rest.endswith(b"\r") else rest + b"\n")


def _plain(block: bytes) -> bytes:
    if b"\r" not in block:
        return block
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _require_size(files: Files, path: str, size: int) -> None:
    if (now := files.system.get_file_info(path).size) != size:
        raise CorruptFile(
            f"{path} has {now} bytes, and had {size} when it was listed: it is being written; run"
            " the statement again"
        )


def lines_of(block: bytes, path: str) -> pa.StringArray:
    """The lines of a block, without their ends. Raises CorruptFile for bytes that are not UTF-8."""
    try:
        text = block[:-1].decode()
    except UnicodeDecodeError as error:
        raise CorruptFile(
            f"{path} is not UTF-8: {error.reason} at {block[error.start : error.start + 4]!r};"
            " convert it"
        ) from error
    return pc.split_pattern(pa.scalar(text), "\n").values
