"""Finishing files that Spark wrote flat: one pass adds the struct `row` and the footer Hive needs.

The stripes of insert events are copied. Delete events are written anew, with their keys only: their
`row` is NULL.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from acid_platform.errors import CorruptFile
from acid_platform.layout import schema
from acid_platform.layout.orc_nesting import (
    nested_footer,
    nested_metadata,
    nested_stripe,
    stripes_of,
)
from acid_platform.layout.orc_tail import (
    TAIL_BYTES,
    Postscript,
    declared_footer,
    footer_of,
    has_declared,
    user_metadata_fields,
)
from acid_platform.layout.protobuf import read_varint
from acid_platform.layout.types import Column
from acid_platform.storage.files import Files
from acid_platform.storage.orc import acid_columns, open_orc, read_batches, reading, stripe_ends
from acid_platform.storage.orc_writer import AcidWriter, acid_schema

_COPIED = 4 << 20


def _snappy(chunk: bytes) -> bytes:
    size, _ = read_varint(chunk, 0)
    return bytes(pa.decompress(chunk, size, "snappy", asbytes=True))


def _zstd(chunk: bytes) -> bytes:
    return bytes(pa.CompressedInputStream(pa.BufferReader(chunk), "zstd").read())


_INFLATE: dict[int, Callable[[bytes], bytes]] = {
    1: lambda chunk: zlib.decompress(chunk, wbits=-zlib.MAX_WBITS),
    2: _snappy,
    5: _zstd,
}
"""Decompression of a chunk, by ORC's codec number."""
CODECS = ("uncompressed", "zlib", "snappy", "zstd")
"""Codecs whose footers can be read here; Spark has to write files of other codecs nested."""


def finish_flat_file(files: Files, path: str, target: str, columns: Sequence[Column]) -> int:
    """Copy the flat file of insert events at `path` to the ACID file `target`; returns its rows.

    `columns` are the fields of `row`, in order. Without rows no file is written. Raises CorruptFile
    if the keys do not ascend (F7) or the file is not as Spark writes it.
    """
    file = open_orc(files, path)
    rows = int(file.nrows)
    if not rows:
        return 0
    with reading(path):
        ends = stripe_ends(file, path, schema.ACID_COLUMNS[1:4])
    items = schema.user_metadata(ends, rows, 0)
    footer = footer_of(file.reader.serialized_file_tail())
    size = files.system.get_file_info(path).size
    with (
        files.system.open_input_file(path) as source,
        files.system.open_output_stream(target) as output,
    ):
        try:
            for part in _nested(source, size, footer, items, columns, path):
                output.write(part)
        except (IndexError, ValueError, zlib.error, pa.ArrowInvalid, KeyError) as error:
            raise CorruptFile(
                f"{path} is not a flat file as Spark writes it: {error!r}; run the statement again"
            ) from error
    written = open_orc(files, target)
    acid_columns(written, target)
    if written.nrows != rows:
        raise CorruptFile(
            f"{target} has {written.nrows} rows instead of {rows}; run the statement again"
        )
    return rows


def finish_delete_file(
    files: Files, path: str, target: str, columns: Sequence[Column], compression: str
) -> int:
    """Copy the delete events of the file at `path` to `target`; returns their number.

    Only the first five columns are read. Without events no file is written. Raises CorruptFile if
    the keys do not ascend (F7) or the file lacks these columns.
    """
    writer = AcidWriter(
        partial(files.system.open_output_stream, target), target, columns, compression, deletes=True
    )
    kind = acid_schema(columns, deletes=True)
    try:
        with reading(path):
            for batch in read_batches(files, path, None, schema.ACID_COLUMNS[:5]):
                writer.write(
                    pa.RecordBatch.from_arrays(
                        [*batch.columns, pa.nulls(batch.num_rows)], schema=kind
                    )
                )
        return writer.close()
    except BaseException:
        writer.give_up()
        raise


def _nested(
    source: pa.NativeFile,
    size: int,
    footer: bytes,
    items: dict[str, bytes],
    columns: Sequence[Column],
    path: str,
) -> Iterator[bytes]:
    """The content of the nested file, in pieces."""

    def read(start: int, stop: int) -> bytes:
        source.seek(start)
        return bytes(source.read(stop - start))

    def copied(start: int, stop: int) -> Iterator[bytes]:
        for at in range(start, stop, _COPIED):
            yield read(at, min(at + _COPIED, stop))

    postscript = Postscript.of(read(max(0, size - TAIL_BYTES), size), path)
    stripes, entries = stripes_of(footer), []
    at = stripes[0].offset
    yield from copied(0, at)
    for stripe in stripes:
        new = nested_stripe(stripe, _inflated(read(stripe.footer_at, stripe.end), postscript))
        own = postscript.chunks(new.footer)
        yield from copied(stripe.offset, new.cut)
        yield read(new.index_from, new.index_to)
        yield from copied(new.cut, stripe.footer_at)
        yield own
        index = stripe.index + new.index_to - new.index_from
        entries.append(stripe.moved(at, index, len(own)))
        at += index + stripe.data + len(own)
    end = size - postscript.size - postscript.footer_length
    metadata = postscript.chunks(
        nested_metadata(_inflated(read(end - postscript.metadata_length, end), postscript))
    )
    yield metadata
    nested = nested_footer(
        footer, entries, at - stripes[-1].end, [column.name for column in columns]
    )
    if has_declared(columns):
        nested = declared_footer(nested, columns, True, path)
    new_footer = postscript.chunks(nested + user_metadata_fields(items))
    yield new_footer
    yield postscript.renewed(len(new_footer), len(metadata))


def _inflated(content: bytes, postscript: Postscript) -> bytes:
    if not postscript.compression:
        return content
    inflate, at, parts = _INFLATE[postscript.compression], 0, []
    while at < len(content):
        head = int.from_bytes(content[at : at + 3], "little")
        chunk = content[at + 3 : at + 3 + (head >> 1)]
        parts.append(chunk if head & 1 else inflate(chunk))
        at += 3 + (head >> 1)
    return b"".join(parts)
