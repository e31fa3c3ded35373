"""An ORC file, opened through Arrow: its rows, row keys and statistics, and its declared types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import islice

import numpy as np
import pyarrow as pa
from pyarrow import orc

from acid_platform.base.file_bounds import LARGEST_FOOTER
from acid_platform.base.object_store import store_fault
from acid_platform.errors import CompactionRefused, CorruptFile, UnsupportedLayout
from acid_platform.formats.keyed import (
    DELETE_EVENT,
    INSERT_EVENT,
    Keyed,
    KeyPart,
    KeyRun,
    StoredKeys,
    require_operation,
)
from acid_platform.formats.orc.calendars import as_written
from acid_platform.formats.orc.events import KEY_INDEX, RAW_TEXT, UPDATES, is_acid
from acid_platform.formats.orc.lone_stripes import exact_decimals, lone_stripe
from acid_platform.formats.orc.protobuf import UnreadableMessage
from acid_platform.formats.orc.pyorc_rows import (
    beyond_nanoseconds,
    has_nanoseconds,
    in_microseconds,
    wide_timestamps,
)
from acid_platform.formats.orc.ranges import column_ranges
from acid_platform.formats.orc.tail import (
    Postscript,
    declared_footer,
    footer_of,
    has_declared,
    has_old_decimals,
    is_ours,
    is_proleptic,
    read_updates,
    require_bounds,
    require_shallow,
    stripes,
)
from acid_platform.formats.orc.writer_zones import has_wall_clocks, on_the_clock, zone_of
from acid_platform.layout.file_entries import Footer
from acid_platform.layout.schema import is_positional
from acid_platform.layout.types import Column
from acid_platform.storage.files import Files
from acid_platform.values.arrow_numpy import filled, values_of
from acid_platform.values.arrow_types import has_ancient, leaves

BATCH_ROWS = 1 << 17
"""Rows to decode at a time; a stripe may have millions."""


class WideTimestamps(Exception):
    """A file holds timestamps that do not fit nanoseconds: read it again with unit `us`."""


class OrcFile(orc.ORCFile):  # type: ignore[misc]
    """The file at `path`, or its first `length` bytes, if a streaming writer committed those.

    Arrow's class has `nrows`, `nstripes`, `schema`, `metadata` and `read`. What is named here
    raises Arrow's errors: call it inside of `reading`.
    """

    def __init__(self, files: Files, path: str, length: int | None) -> None:
        super().__init__(_content(files, path, length))
        self.files, self.path, self.length = files, path, length

    @cached_property
    def schema(self) -> pa.Schema:
        """As Arrow's, which makes another object each time."""
        return super().schema

    @cached_property
    def footer(self) -> bytes:
        """The footer as ORC defines it, before compression."""
        return footer_of(self.reader.serialized_file_tail())

    @cached_property
    def is_ours(self) -> bool:
        """Whether this platform wrote the file."""
        return is_ours(self.footer)

    @cached_property
    def has_old_decimals(self) -> bool:
        """Whether it has decimals without a scale, see `tail.has_old_decimals`."""
        return has_old_decimals(self.footer)

    @cached_property
    def has_checked_text(self) -> bool:
        """Whether it is known that its texts are UTF-8: those of others may hold any bytes."""
        return self.is_ours and RAW_TEXT.encode() not in (self.metadata or {})

    @property
    def summary(self) -> Footer:
        """What a record says of the file."""
        names = self.schema.names
        return Footer(int(self.nrows), is_acid(names), is_positional(names))

    @property
    def stripe_rows(self) -> list[int]:
        """The number of rows of each stripe."""
        return [stripe.rows for stripe in islice(stripes(self.footer), self.nstripes)]

    @property
    def key_columns(self) -> list[str]:
        """The name of each KeyPart in the file. Raises CorruptFile as `acid_columns`."""
        return self.acid_columns()[:5]

    def acid_columns(self) -> list[str]:
        """The names of the six ACID columns as this file spells them; some writers use lower case.

        Raises CorruptFile if the file does not have the ACID schema.
        """
        names = list(self.schema.names)
        if not is_acid(names):
            raise CorruptFile(
                f"{self.path} does not have the six ACID columns but {', '.join(names)}; restore it"
                " or drop its transaction"
            )
        kinds = [field.type for field in self.schema]
        if not (all(map(pa.types.is_integer, kinds[:5])) and pa.types.is_struct(kinds[5])):
            raise CorruptFile(
                f"{self.path} has ACID columns of the types {', '.join(map(str, kinds[:5]))}, which"
                " have to be whole numbers, and a row that has to be a struct; restore it or drop"
                " its transaction"
            )
        return names

    def bounds(self, part: KeyPart) -> tuple[int, int]:
        """The lowest and the highest of a part of the keys; read if no statistics tell them.

        Raises CorruptFile for a row without it.
        """
        name = self.acid_columns()[part]
        bounds = column_ranges(self.footer, acid=False).get(name.lower())
        if bounds is not None and isinstance(bounds.low, int) and isinstance(bounds.high, int):
            return bounds.low, bounds.high
        (values,) = self._ids(self.read(columns=[name]))
        if not len(values):
            raise CorruptFile(f"{self.path} has no row that tells {name}; restore the file")
        return int(values.min()), int(values.max())

    @property
    def has_key_index(self) -> bool:
        """Whether the footer has an index of keys, which is written only if they ascend."""
        return KEY_INDEX.encode() in (self.metadata or {})

    def key_index_flaw(self, ids: Sequence[np.ndarray]) -> tuple[str, bool] | None:
        """What is wrong with the index of keys, and whether it does harm; `ids`: write ids, bucket
        properties and rowIds of all rows.

        Hive 4 copes with a missing index, not with a wrong one. None if the index lists the last
        key of every stripe.
        """
        text = (self.metadata or {}).get(KEY_INDEX.encode(), b"").decode()
        if not text:
            return f"no {KEY_INDEX} in the footer", False
        try:
            index = [
                tuple(int(number) for number in entry.split(","))
                for entry in text.split(";")
                if entry
            ]
        except ValueError:
            return f"{KEY_INDEX} is {text[:60]!r}, which is not a list of row keys", True
        ends = np.cumsum(self.stripe_rows) - 1
        expected = list(zip(*(part[ends].tolist() for part in ids), strict=True))
        if len(index) != len(expected):
            return f"{KEY_INDEX} has {len(index)} keys for {len(expected)} stripes", False
        for indexed, actual in zip(index, expected, strict=True):
            if indexed != actual:
                return f"{KEY_INDEX} says {indexed}, but the stripe ends with {actual}", True
        return None

    def updates(self, events: int) -> np.ndarray:
        """Mask (events,): which of its delete events belong to updates. Raises CorruptFile."""
        return read_updates((self.metadata or {}).get(UPDATES.encode()), events, self.path)

    # --- rows ----------------------------------------------------------------------------------

    def key_parts(self, *parts: KeyPart) -> Iterator[list[np.ndarray]]:
        """These parts of the keys of all rows, int64 (n,) each, in batches in file order.

        Raises CorruptFile, also for a row without a key.
        """
        names = self.acid_columns()
        for batch in self.batches([names[part] for part in parts]):
            yield [ids.astype(np.int64, copy=False) for ids in self._ids(batch)]

    def _ids(self, rows: pa.Table | pa.RecordBatch) -> list[np.ndarray]:
        if any(column.null_count for column in rows.columns):
            raise CorruptFile(f"{self.path} has an event without a row key; restore the file")
        return list(map(values_of, rows.columns))

    def changes(
        self,
        run: KeyRun | None = None,
        deletes: bool = False,
        timestamps: str = "ns",
        values: bool = True,
    ) -> Iterator[Keyed]:
        """All rows, or delete events if it is a file of these, in batches in file order.

        `run`: the keys of the rows, if the file stores none. `values` False: they are not needed.
        `timestamps`: see `batches`. Raises CorruptFile, UnsupportedLayout for events of another
        kind, CompactionRefused for Gregorian days before 1582, WideTimestamps.
        """
        with reading(self.path):
            names = list(self.schema.names) if run else self.acid_columns()
        wanted = names[: 1 if run else 5] if not values else names
        batches = self.batches(wanted, timestamps)
        event = DELETE_EVENT if deletes else INSERT_EVENT
        while True:
            with reading(self.path):
                batch = next(batches, None)
                if batch is None:
                    return
                self.refuse_gregorian(batch)
                if run is None:
                    ids = self._ids(batch.select(wanted[:5]))
            if not batch.num_rows:
                continue
            if run is not None:
                yield Keyed(run, run.write_id, batch, self.has_checked_text)
                run = replace(run, first=run.first + batch.num_rows)
                continue
            require_operation(ids[KeyPart.EVENT], event, self.path)
            rows = _fields(batch.column(5)) if values and not deletes else None
            keys = StoredKeys(*ids[1:4])
            yield Keyed(keys, ids[KeyPart.CHANGED_BY], rows, self.has_checked_text)

    def stripe(self, index: int, names: Sequence[str], as_stored: bool = False) -> pa.RecordBatch:
        """These columns (`root` or `root.field`) of one stripe.

        Timestamps are in nanoseconds if all of them fit, else in microseconds, and wall clock times
        are those of the writer's time zone. Days before 15 October 1582 are those that the writer
        meant, unless `as_stored`. Raises CorruptFile, UnsupportedLayout.
        """
        batch = self._decoded(index, names)
        if as_stored or not any(map(has_ancient, batch.columns)) or is_proleptic(self.footer):
            return batch
        return as_written(batch)

    def _decoded(self, index: int, names: Sequence[str]) -> pa.RecordBatch:
        if self.has_old_decimals:
            return exact_decimals(lambda scale: self._scaled(index, names, scale), self.path)
        return self._scaled(index, names)

    def _scaled(self, index: int, names: Sequence[str], scale: int | None = None) -> pa.RecordBatch:
        file, content, place = self, None, index
        zone = zone_of(self, index) if self._with_wall_clocks(names) else ""
        if zone or scale is not None:
            content = lone_stripe(self, index, bool(zone), scale)
            file, place = orc.ORCFile(pa.BufferReader(content)), 0
        try:
            batch = file.read_stripe(place, columns=list(names))
            return on_the_clock(batch, zone, self.path) if zone else batch
        except (pa.ArrowInvalid, OverflowError) as error:
            if isinstance(error, pa.ArrowInvalid) and not beyond_nanoseconds(error):
                raise
        # Arrow reads ORC timestamps in nanoseconds, which end in 2262: decode row by row instead.
        batch = wide_timestamps(content or self._bytes(), self.path, place, self.schema, names)
        return on_the_clock(batch, zone, self.path) if zone else batch

    def batches(self, names: Sequence[str], timestamps: str = "ns") -> Iterator[pa.RecordBatch]:
        """These root columns of all rows, as they are stored, at most BATCH_ROWS rows at a time.

        `timestamps` `us` decodes by whole stripes, and also years after 2262, for which `ns` raises
        WideTimestamps.
        """
        zoned = self._with_wall_clocks(names) and self._has_zones()
        if timestamps == "us" or zoned or self.has_old_decimals:
            for index in range(self.nstripes):
                batch = self._decoded(index, names)
                if timestamps == "ns" and any(map(in_microseconds, batch.schema.types)):
                    raise WideTimestamps
                yield batch
            return
        try:
            if self.nstripes <= 1 and self.nrows <= BATCH_ROWS:
                # A scanner takes longer than such a file, of which there may be hundreds.
                if self.nrows:
                    yield self.read_stripe(0, columns=list(names)).select(list(names))
                return
            from pyarrow import dataset  # imports pandas, which takes long

            content = _content(self.files, self.path, self.length)
            yield from (
                dataset.OrcFileFormat()
                .make_fragment(content)
                .to_batches(
                    columns=list(names),
                    batch_size=BATCH_ROWS,
                    batch_readahead=1,
                    fragment_readahead=1,
                    use_threads=False,
                )
            )
        except pa.ArrowInvalid as error:
            if beyond_nanoseconds(error):
                raise WideTimestamps from error
            raise

    def has_nanoseconds(self, names: Sequence[str]) -> bool:
        """Whether a timestamp in these columns (`root` or `root.field`) has digits below the
        microsecond. Raises CorruptFile, UnsupportedLayout."""
        return any(self._stripe_has_nanoseconds(index, names) for index in range(self.nstripes))

    def _stripe_has_nanoseconds(self, index: int, names: Sequence[str]) -> bool:
        content = lone_stripe(self, index, True) if zone_of(self, index) else None
        file = self if content is None else orc.ORCFile(pa.BufferReader(content))
        try:
            batch = file.read_stripe(index if content is None else 0, columns=list(names))
        except pa.ArrowInvalid as error:
            if not beyond_nanoseconds(error):
                raise
            roots = {name.partition(".")[0] for name in names}
            return has_nanoseconds(content or self._bytes(), self.path, roots)
        return any(
            (filled(leaf, 0) % 1000 != 0).any()
            for column in batch.columns
            for leaf in leaves(column)
            if pa.types.is_timestamp(leaf.type)
        )

    def refuse_gregorian(self, batch: pa.RecordBatch) -> None:
        """Raises CompactionRefused if the batch has Gregorian days before 15 October 1582.

        The compacted file would not name that calendar, so readers would shift those days.
        """
        if any(map(has_ancient, batch.columns)) and is_proleptic(self.footer):
            raise CompactionRefused(
                f"{self.path} counts days before 15 October 1582 in the Gregorian calendar, which"
                " this compaction would lose; compact the table with Hive"
            )

    def _bytes(self) -> bytes:
        with self.files.open(self.path) as stream:
            return bytes(stream.read(self.length))

    def _has_zones(self) -> bool:
        return any(zone_of(self, index) for index in range(self.nstripes))

    def _with_wall_clocks(self, names: Sequence[str]) -> bool:
        kinds = self.schema
        for name in names:
            root, _, field = name.partition(".")
            kind = kinds.field(name if name in kinds.names else root).type
            if name not in kinds.names and field:
                kind = kind.field(field).type
            if has_wall_clocks(kind):
                return True
        return False


def _fields(row: pa.StructArray) -> pa.RecordBatch:
    """The fields of a struct as columns, which are NULL where it is."""
    columns = row.flatten() if row.null_count else [row.field(i) for i in range(len(row.type))]
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in row.type])


def _content(files: Files, path: str, length: int | None) -> pa.NativeFile:
    """The file, or its first `length` bytes. Raises CorruptFile if the file is shorter."""
    if length is None:
        return files.open(path)
    with files.open(path) as stream:
        content = stream.read_buffer(length)
    if content.size < length:
        raise CorruptFile(
            f"{path} has fewer than the {length} bytes that were committed; restore the file"
        )
    return pa.BufferReader(content)


def open_orc(files: Files, path: str, length: int | None = None) -> OrcFile:
    """Open the file, or its first `length` bytes, if a streaming writer committed those.

    Raises CorruptFile if they do not end in an ORC tail, UnsupportedLayout for a type that Arrow
    does not read, FileNotFoundError if there is no file, StoreRefused, StoreUnavailable.
    """
    try:
        file = OrcFile(files, path, length)
        _ = file.schema  # column names that are not UTF-8 fail here, not later
        return file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        if fault := store_fault(error, path):
            raise fault from error
        if isinstance(error, pa.ArrowNotImplementedError):
            raise UnsupportedLayout(f"{path} is an ORC file that is not read: {error}") from error
        with files.open(path) as stream:  # raises if there is no tail
            Postscript.read(stream, stream.size() if length is None else length, path)
        raise CorruptFile(
            f"{path} can't be opened as ORC: {error}; restore it or drop its transaction"
        ) from error


def open_strange_orc(files: Files, path: str, length: int | None = None) -> OrcFile:
    """As `open_orc`, for a file that another program wrote and that was not recorded yet."""
    require_shallow_types(files, path, length)
    return open_orc(files, path, length)


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


def finish_plain_file(files: Files, path: str, columns: Sequence[Column]) -> None:
    """Declare the column types in a file of an insert-only table that Spark or Arrow wrote.

    Raises CorruptFile.
    """
    if has_declared(columns):
        replace_footer(files, path, declared_footer(open_orc(files, path).footer, columns, path))


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
