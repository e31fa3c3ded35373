"""ORC files that others wrote, where Arrow's reader needs care (P64): checks before one is opened,
errors of damaged ones, other footers, a stripe as a file of its own, and in parts.

ORC's library for C++ is right only about files that say enough of themselves. What others left out
is told here: that timestamps are to be taken for UTC (`writer_clocks`), and the scale of decimals.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from acid_platform.base.file_bounds import LARGEST_FOOTER, LARGEST_PIECE
from acid_platform.base.object_store import store_fault
from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.formats.orc.protobuf import (
    UnreadableMessage,
    delimited,
    fields,
    number,
    unpacked,
)
from acid_platform.formats.orc.pyorc_rows import JAVA_SCALE
from acid_platform.formats.orc.runs import StoredRun, unsigned_runs
from acid_platform.formats.orc.tail import (
    KIND,
    KINDS,
    MAGIC,
    ROWS,
    STATISTICS,
    STRIPES,
    SUBTYPES,
    TYPES,
    USER_METADATA,
    Postscript,
    Stripe,
    require_bounds,
    require_shallow,
    stripes,
    value_of,
    with_scale,
)
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from acid_platform.formats.orc.orc_file import OrcFile


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Arrow's errors inside the block become CorruptFile with the file and the next step, or
    StoreRefused and StoreUnavailable if the store is to blame."""
    try:
        yield
    except FileNotFoundError as error:
        raise CorruptFile(
            f"{path} was listed but is gone; read again if the Cleaner removed it, else restore it"
        ) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, UnreadableMessage) as error:
        if fault := store_fault(error, path):
            raise fault from error
        if isinstance(error, pa.ArrowNotImplementedError):
            raise UnsupportedLayout(f"{path} holds what is not read: {error}") from error
        raise CorruptFile(
            f"{path} can't be read: {error}; restore it or drop its transaction"
        ) from error


def require_shallow_types(files: Files, path: str, length: int | None = None) -> None:
    """Raises CorruptFile for an ORC file whose types would crash Arrow and pyorc, before they see
    them; also for a footer that can't be opened. Raises UnsupportedLayout for a file of values that
    are no rows, StoreRefused, StoreUnavailable."""
    with reading(path), files.open(path) as stream:
        size = stream.size() if length is None else length
        postscript, tail = Postscript.read(stream, size, path)
        whole = postscript.footer_length + postscript.size
        if whole > min(size, LARGEST_FOOTER):
            raise CorruptFile(f"{path} has an ORC footer of {whole:,} bytes")
        if whole > len(tail):
            stream.seek(size - whole)
            tail = bytes(stream.read(whole))
    footer = tail[len(tail) - whole : len(tail) - postscript.size]
    opened = postscript.opened(footer, path)
    require_shallow(opened, path)
    require_bounds(opened, size, path)


_SMALL_STRIPE = 4 << 20
_STREAMS, _ENCODINGS = 1, 2
"""Fields of a stripe's footer; each stream has a kind, a column and a length, each encoding a kind
and the size of its dictionary."""
_INDEXES, _LENGTHS = 1, 2
"""Kinds of streams: the places of values in a dictionary, and the lengths of texts and lists."""
_DICTIONARIES, _VERSION_2 = (1, 3), (2, 3)
_TEXTS = tuple(KINDS[kind] for kind in ("string", "binary", "varchar", "char"))
_LISTS = tuple(KINDS[kind] for kind in ("array", "map"))


def require_bounded_stripes(file: OrcFile) -> None:
    """Raises CorruptFile for a stripe whose texts and lists would take far more memory than it
    takes bytes, by the lengths that it has: those are what a reader makes room for. What the
    footer says in its statistics is not believed (P65).

    In an object store that is a request for a small stripe, and one for each column with texts or
    lists of a larger one.
    """
    with file.files.open(file.path) as stream:
        for index, stripe in enumerate(stripes(file.footer)):
            try:
                size = _StripeLengths(file, stripe, stream).size()
            except (ValueError, IndexError, OSError, zlib.error) as error:
                if fault := store_fault(error, file.path):
                    raise fault from error
                raise CorruptFile(
                    f"{file.path}: stripe {index} can't be read: {error}; restore the file"
                ) from error
            if stripe.unpacks_to_much(size):
                raise stripe.too_large(index, size, file.path)


class _StripeLengths:
    _few = 0  # what need not be known exactly

    def __init__(self, file: OrcFile, stripe: Stripe, stream: pa.NativeFile) -> None:
        self._file, self._stripe, self._stream, self._start = file, stripe, stream, 0
        described = _described(file, stripe, stream)
        self._postscript = _postscript(stream, file)
        if not file.files.local and stripe.stored <= _SMALL_STRIPE:
            stream.seek(stripe.offset)
            self._start = stripe.offset
            self._stream = pa.BufferReader(stream.read(stripe.stored))
        self._places: dict[tuple[int, int], tuple[int, int]] = {}
        self._encodings: list[dict[int, int]] = []
        at = self._stripe.offset
        for part in fields(described):
            if part.number not in (_STREAMS, _ENCODINGS):
                continue
            inside = {field.number: field.value for field in fields(part.payload)}
            if part.number == _ENCODINGS:
                self._encodings.append(inside)
                continue
            key, length = (inside.get(2, 0), inside.get(1, 0)), inside.get(3, 0)
            self._places.setdefault(key, (at, length))
            at += length
        if at > self._stripe.footer_offset:
            raise ValueError("its streams are longer than it is")

    def size(self) -> int:
        """The bytes of texts, and eight for each value in lists, or a little more."""
        types = [field.payload for field in fields(self._file.footer) if field.number == TYPES]
        self._few = LARGEST_PIECE // max(1, 8 * len(types))
        counts, listed = [0] * len(types), [False] * len(types)
        counts[:1] = [self._stripe.rows]
        size = 0
        for column, content in enumerate(types):
            kind, count = value_of(content, KIND), counts[column]
            size += 8 * count * listed[column]
            if kind in _TEXTS:
                size += self._texts(column, count)
            inner = self._sum(column, count) if kind in _LISTS else count
            for child in unpacked(content, SUBTYPES):
                counts[child] = inner
                listed[child] = listed[column] or kind in _LISTS
        return size

    def _texts(self, column: int, count: int) -> int:
        encoding = self._encodings[column]
        if encoding.get(1, 0) not in _DICTIONARIES:
            return self._sum(column, count)
        size = encoding.get(2, 0)
        longest = max((run.most for run in self._runs(column, _LENGTHS, size)), default=0)
        if (size + count) * longest <= self._few:
            return self._sum(column, size) + count * longest
        # Which of them the values are: a long one may be rare.
        found = [run.values() for run in self._runs(column, _LENGTHS, size)]
        lengths = np.concatenate([*found, [0]]).astype(np.float64)
        total = float(lengths.sum())
        for run in self._runs(column, _INDEXES, count):
            total += lengths[np.minimum(run.values(), len(lengths) - 1).astype(np.int64)].sum()
        return int(total)

    def _sum(self, column: int, count: int) -> int:
        total = sum(run.count * run.most for run in self._runs(column, _LENGTHS, count))
        if total <= self._few:
            return total
        return int(sum(float(run.values().sum()) for run in self._runs(column, _LENGTHS, count)))

    def _runs(self, column: int, kind: int, count: int) -> Iterator[StoredRun]:
        at, length = self._places.get((column, kind), (0, 0))
        self._stream.seek(at - self._start)
        blocks = self._postscript.blocks(bytes(self._stream.read(length)))
        version = 2 if self._encodings[column].get(1, 0) in _VERSION_2 else 1
        return unsigned_runs(blocks, count, version)


def require_found_by_name(fields: Iterable[pa.Field], path: str) -> None:
    """Raises UnsupportedLayout for a column `a.b` before a struct `a` with a field `b`: Arrow finds
    columns by such paths, and would read the field."""
    seen: set[str] = set()
    for field in fields:
        for name in sorted(seen.intersection(_paths_below(field))):
            raise UnsupportedLayout(
                f"{path}, column `{name}` is named as a field of the struct `{field.name}`, which"
                " comes after it: ORC's readers can't tell them apart; rename one of them"
            )
        if "." in field.name:
            seen.add(field.name)


def _paths_below(field: pa.Field) -> Iterator[str]:
    for inner in field.type if pa.types.is_struct(field.type) else ():
        path = inner.with_name(f"{field.name}.{inner.name}")
        yield path.name
        yield from _paths_below(path)


def replace_footer(files: Files, path: str, footer: bytes) -> None:
    """Give another footer to a finished ORC file that nobody reads yet. Raises CorruptFile."""
    size = files.system.get_file_info(path).size
    with files.system.open_input_file(path) as stream:
        old, _ = Postscript.read(stream, size, path)
    start, chunks = size - old.footer_length - old.size, old.chunks(footer)
    tail = chunks + old.renewed(len(chunks))
    if files.local:
        with open(path, "r+b") as handle:
            handle.truncate(start)
            handle.seek(0, 2)
            handle.write(tail)
    else:  # only a local file can be truncated: rewrite it
        files.write(path, files.read(path)[:start] + tail)


_GMT = "GMT"
_HEADER_LENGTH, _CONTENT_LENGTH = 1, 2
_LEFT_OUT = (_HEADER_LENGTH, _CONTENT_LENGTH, STRIPES, USER_METADATA, ROWS, STATISTICS)
ZONE = 3
"""The field of a stripe's footer that names the zone of its timestamps."""


def stripe_footer(file: OrcFile, index: int) -> tuple[Stripe, bytes]:
    """Where a stripe is, and its footer. Raises CorruptFile."""
    with file.files.open(file.path) as stream:
        try:
            stripe = next(itertools.islice(stripes(file.footer), index, None))
            return stripe, _described(file, stripe, stream)
        except (StopIteration, IndexError, ValueError) as error:
            raise CorruptFile(
                f"{file.path} has an unreadable footer of a stripe: {error}; restore the file"
            ) from error


def _described(file: OrcFile, stripe: Stripe, stream: pa.NativeFile) -> bytes:
    """The footer of a stripe. Raises ValueError, IndexError, CorruptFile."""
    if stripe.footer_offset + stripe.footer > stream.size():
        raise ValueError("the file ends before it")
    stream.seek(stripe.footer_offset)
    content = bytes(stream.read(stripe.footer))
    described = _postscript(stream, file).opened(content, file.path)
    _ = list(fields(described))
    return described


def lone_stripe(file: OrcFile, index: int, in_utc: bool, scale: int | None = None) -> bytes:
    """A file of this stripe alone. Raises CorruptFile.

    `in_utc`: its timestamps are taken for UTC. `scale`: that of decimals that have none.
    """
    stripe, described = stripe_footer(file, index)
    with file.files.open(file.path) as stream:
        stream.seek(stripe.offset)
        body = bytes(stream.read(stripe.index + stripe.data))
        postscript = _postscript(stream, file)
    if in_utc:
        described = b"".join(field.raw for field in fields(described) if field.number != ZONE)
        described += delimited(ZONE, _GMT.encode())
    described = postscript.chunks(described)
    start = len(MAGIC)
    lengths = (start, stripe.index, stripe.data, len(described), stripe.rows)
    footer = file.footer if scale is None else with_scale(file.footer, scale)
    tail = postscript.chunks(
        number(_HEADER_LENGTH, start)
        + number(_CONTENT_LENGTH, start + len(body) + len(described))
        + delimited(STRIPES, b"".join(number(key, length) for key, length in enumerate(lengths, 1)))
        + b"".join(field.raw for field in fields(footer) if field.number not in _LEFT_OUT)
        + number(ROWS, stripe.rows)
    )
    return MAGIC + body + described + tail + postscript.renewed(len(tail), metadata=0)


def _postscript(stream: pa.NativeFile, file: OrcFile) -> Postscript:
    size = stream.size() if file.length is None else file.length
    return Postscript.read(stream, size, file.path)[0]


def exact_decimals(decoded: Callable[[int], pa.RecordBatch], path: str) -> pa.RecordBatch:
    """`decoded(JAVA_SCALE)`, where `decoded` makes a batch with a scale for decimals without one.

    ORC's library cuts digits off, and multiplies beyond 128 bits. So the values are also decoded
    without digits after the point, and, modulo 2 ** 128, with as many as there can be. Raises
    UnsupportedLayout for a value that decimal(38,10) can't hold.
    """
    result, whole, finest = decoded(JAVA_SCALE), decoded(0), decoded(38)
    for columns in zip(result.columns, whole.columns, finest.columns, strict=True):
        for parts in zip(*map(leaves, columns), strict=True):
            if parts[0].type == parts[1].type:
                continue
            for value, integer, fine in zip(*map(_numbers, parts), strict=True):
                lost = (fine - value * 10 ** (38 - JAVA_SCALE)) % (1 << 128)
                if lost or abs(integer) >= 10 ** (38 - JAVA_SCALE):
                    raise UnsupportedLayout(
                        f"{path} has decimals without a scale, as Hive 0.11 wrote them, and one of"
                        f" them is no decimal(38,{JAVA_SCALE}), which all readers take them for;"
                        " copy the table with Hive, as strings"
                    )
    return result


def _numbers(decimals: pa.Array) -> list[int]:
    """The numbers without their points, of the values that are not NULL."""
    there = decimals.drop_null()
    content = there.buffers()[1].to_pybytes() if len(there) else b""
    begin = there.offset * 16
    return [
        int.from_bytes(content[at : at + 16], "little", signed=True)
        for at in range(begin, begin + len(there) * 16, 16)
    ]


def beyond_nanoseconds(error: pa.ArrowInvalid) -> bool:
    """Whether Arrow gave up on a timestamp that its nanoseconds can't hold."""
    return "nanosecond" in str(error)


BATCH_ROWS = 1 << 17
"""Rows to decode at a time; a stripe may have millions."""


def scanned(content: pa.NativeFile, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """These root columns of a file, so many rows of a stripe at a time."""
    from pyarrow import dataset  # imports pandas, which takes long

    fragment = dataset.OrcFileFormat().make_fragment(content)
    yield from fragment.to_batches(
        columns=list(names),
        batch_size=rows,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """A stripe by its number, or a part of it."""

    stripe: int
    rows: int
    part: int | None = None


class StripePieces:
    """The stripes of a file; those whose values would take far more memory than they have bytes, as
    those of nothing but NULL, in parts."""

    def __init__(self, file: OrcFile) -> None:
        self._file = file
        self._next: tuple[Any, ...] = ()
        self._parts: Iterator[pa.RecordBatch] = iter(())
        self.stripes = list(itertools.islice(stripes(file.footer), file.nstripes))

    @cached_property
    def all(self) -> list[Piece]:
        """What can be decoded by itself."""
        pieces = list[Piece]()
        for index, stripe in enumerate(self.stripes):
            if self._too_large(index, self._file.schema.types) is None:
                pieces.append(Piece(index, stripe.rows))
                continue
            most = self._rows_of_a_part
            starts = enumerate(range(0, stripe.rows, most))
            pieces += [Piece(index, min(most, stripe.rows - at), part) for part, at in starts]
        return pieces

    @cached_property
    def _rows_of_a_part(self) -> int:
        return max(1, min(BATCH_ROWS, LARGEST_PIECE // 4 // self._row_bytes))

    @cached_property
    def _row_bytes(self) -> int:
        return 8 * sum(map(_stored_columns, self._file.schema.types))

    def _too_large(self, index: int, types: Iterable[pa.DataType]) -> int | None:
        """The bytes that such columns of a stripe take, if that is far more than it has."""
        stripe = self.stripes[index]
        if not stripe.unpacks_to_much(stripe.rows * self._row_bytes):
            return None
        size = 8 * stripe.rows * sum(map(_stored_columns, types))
        return size if stripe.unpacks_to_much(size) else None

    def require_room(self, index: int, names: Sequence[str]) -> None:
        """Raises CorruptFile if these columns of a stripe are too large to be decoded whole."""
        if (size := self._too_large(index, self._file.types(names))) is not None:
            raise self.stripes[index].too_large(index, size, self._file.path)

    def decode(self, number: int, names: Sequence[str], as_stored: bool) -> pa.RecordBatch:
        """These columns of a piece, of a part perhaps with others. The part after it goes on from
        there, others begin anew."""
        piece = self.all[number]
        key = (piece.stripe, *names, as_stored)
        if piece.part is None:
            return self._file.stripe(piece.stripe, names, as_stored)
        if self._next != (number, key):
            parts = self._parts_of(piece.stripe, names, as_stored)
            self._parts = itertools.islice(parts, piece.part, None)
        self._next = (number + 1, key)
        part = next(self._parts, None)
        if part is None or part.num_rows != piece.rows:
            raise CorruptFile(
                f"{self._file.path}: stripe {piece.stripe} does not have as many rows as the footer"
                " says; restore it or drop its transaction"
            )
        return part

    def _parts_of(
        self, index: int, names: Sequence[str], as_stored: bool
    ) -> Iterator[pa.RecordBatch]:
        file, rows = self._file, self._rows_of_a_part
        if self._too_large(index, file.types(names)) is None:
            whole = file.stripe(index, names, as_stored)
            yield from (whole.slice(at, rows) for at in range(0, whole.num_rows, rows))
            return
        if file.with_old_decimals(names):
            self.require_room(index, names)
        schema = file.schema.names
        roots = [name if name in schema else name.partition(".")[0] for name in names]
        zone = file.zone(index, names)
        stripe = pa.BufferReader(lone_stripe(file, index, bool(zone)))
        try:
            for batch in scanned(stripe, list(dict.fromkeys(roots)), rows):
                yield file.in_time(batch, zone, as_stored)
        except pa.ArrowInvalid as error:
            if beyond_nanoseconds(error):
                self.require_room(index, names)
            raise


def _stored_columns(kind: pa.DataType) -> int:
    """The columns that ORC stores for a column of this type."""
    return 1 + sum(_stored_columns(kind.field(at).type) for at in range(kind.num_fields))
