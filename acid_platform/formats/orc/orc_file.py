"""An ORC file, opened through Arrow: its rows, row keys and statistics, and its declared types."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyarrow import orc

from acid_platform.base.first_use import Recent
from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.base.object_store import store_fault
from acid_platform.errors import CompactionRefused, CorruptFile, UnsupportedLayout
from acid_platform.formats.data_file import (
    DELETE_EVENT,
    INSERT_EVENT,
    ColumnOfFile,
    DataFile,
    Keyed,
    KeyPart,
    KeyRun,
    StoredKeys,
    WideTimestamps,
    mixed_times,
    require_operation,
)
from acid_platform.formats.orc.column_statistics import column_ranges, key_ranges
from acid_platform.formats.orc.events import KEY_INDEX, RAW_TEXT, UPDATES, index_flaw, is_acid
from acid_platform.formats.orc.pyorc_rows import has_nanoseconds, in_microseconds, wide_timestamps
from acid_platform.formats.orc.strange_files import (
    BATCH_ROWS,
    StripePieces,
    beyond_nanoseconds,
    exact_decimals,
    lone_stripe,
    reading,
    replace_footer,
    require_bounded_stripes,
    require_found_by_name,
    require_shallow_types,
    scanned,
)
from acid_platform.formats.orc.tail import (
    Postscript,
    declared_footer,
    footer_of,
    has_declared,
    has_old_decimals,
    is_ours,
    is_proleptic,
    read_updates,
)
from acid_platform.formats.orc.writer_clocks import (
    as_written,
    has_wall_clocks,
    on_the_clock,
    zone_of,
)
from acid_platform.layout.file_entries import (
    ColumnRange,
    Footer,
    KeyRanges,
    RangeKind,
    is_positional,
)
from acid_platform.layout.types import Column
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import filled, has_ancient, has_leaf, leaves, values_of


class OrcFile(orc.ORCFile, DataFile):  # type: ignore[misc]
    """The file at `path`, or its first `length` bytes, if a streaming writer committed those.

    Arrow's class has `nrows`, `nstripes`, `schema`, `metadata` and `read`. Row ids follow from the
    positions of rows where the footer has an index of keys and the record has no gap (P15).
    """

    keyed: bool | None = None
    """Whether values are the fields of `row`, beside keys; None: if it has the six columns."""

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
    def has_old_decimals(self) -> bool:  # type: ignore[override]
        return has_old_decimals(self.footer)

    @cached_property
    def has_checked_text(self) -> bool:  # type: ignore[override]
        return self.is_ours and RAW_TEXT.encode() not in (self.metadata or {})

    @property
    def summary(self) -> Footer:
        names = self.schema.names
        keyed = is_acid(names)
        return Footer(self.rows, keyed, is_positional(names), None if keyed else "orc")

    @property
    def rows(self) -> int:
        return int(self.nrows)

    @property
    def piece_rows(self) -> list[int]:
        return [piece.rows for piece in self._pieces.all]

    @cached_property
    def _pieces(self) -> StripePieces:
        return StripePieces(self)

    @property
    def ranges(self) -> Mapping[str, ColumnRange]:
        ranges = column_ranges(self.footer, is_acid(self.schema.names))
        if self.writer_version == "ORIGINAL":  # the maximum of several stripes may be too low
            ranges = {
                column: ColumnRange(RangeKind.OTHER, None, None, each.nulls, each.values)
                for column, each in ranges.items()
            }
        return ranges

    @property
    def key_ranges(self) -> KeyRanges | None:
        return key_ranges(self.footer) if is_acid(self.schema.names) else None

    @property
    def key_columns(self) -> list[str]:
        return self.acid_columns()[:5]

    @cached_property
    def _before_values(self) -> str:
        """What stands before the name of a column of values: `row.` if the file stores keys."""
        keyed = is_acid(self.schema.names) if self.keyed is None else self.keyed
        return f"{self.acid_columns()[5]}." if keyed else ""

    @cached_property
    def names(self) -> list[str]:
        return [field.name for field in self._value_fields]

    @cached_property
    def _value_fields(self) -> list[pa.Field]:
        row = self._before_values.removesuffix(".")
        return list(self.schema.field(row).type if row else self.schema)

    def _stored_name(self, column: ColumnOfFile) -> str:
        """The name by which Arrow reads it: `root` or `root.field`. Raises UnsupportedLayout."""
        if isinstance(column, KeyPart):
            return self.key_columns[column]
        if "." in column:
            require_found_by_name(self._value_fields, self.path)
        return self._before_values + column

    def type_of(self, column: ColumnOfFile) -> pa.DataType:
        name = self._stored_name(column)
        at = self.schema.get_field_index(name)
        if at >= 0:
            return self.schema.field(at).type
        root, _, field = name.partition(".")
        return self.schema.field(root).type.field(field).type

    def decode(
        self,
        piece: int,
        columns: Collection[ColumnOfFile],
        as_stored: bool = False,
        coded: bool = False,  # noqa: ARG002, of a format whose reader tells codes
    ) -> dict[ColumnOfFile, pa.Array]:
        names = {column: self._stored_name(column) for column in columns}
        batch = self._pieces.decode(piece, list(names.values()), as_stored)
        return {column: _column(batch, name) for column, name in names.items()}

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
        name = self.acid_columns()[part]
        bounds = column_ranges(self.footer, acid=False).get(name.lower())
        if bounds is not None and isinstance(bounds.low, int) and isinstance(bounds.high, int):
            return bounds.low, bounds.high
        every = [values for (values,) in self.key_parts(part) if len(values)]
        if not every:
            raise CorruptFile(f"{self.path} has no row that tells {name}; restore the file")
        return min(int(each.min()) for each in every), max(int(each.max()) for each in every)

    @property
    def has_key_index(self) -> bool:  # type: ignore[override]
        return KEY_INDEX.encode() in (self.metadata or {})

    def key_index_flaw(self, ids: Sequence[np.ndarray]) -> tuple[str, bool] | None:
        ends = np.cumsum([stripe.rows for stripe in self._pieces.stripes]) - 1
        text = (self.metadata or {}).get(KEY_INDEX.encode(), b"").decode()
        return index_flaw(text, list(zip(*(part[ends].tolist() for part in ids), strict=True)))

    def updates(self, events: int) -> np.ndarray:
        return read_updates((self.metadata or {}).get(UPDATES.encode()), events, self.path)

    def holds_deletes(self) -> bool:
        operation, *_, row = self.acid_columns()
        kinds = (pc.unique(batch.column(0)).to_pylist() for batch in self.batches([operation]))
        if {kind for each in kinds for kind in each} != {DELETE_EVENT}:
            return False
        rows = (batch.column(0) for batch in self.batches([row], "us"))
        if any(row.null_count < len(row) for row in rows):
            raise UnsupportedLayout(
                f"{self.path} holds delete events with values, which no writer of ACID version 2"
                " writes; restore the file"
            )
        return True

    def has_fine_times(self) -> bool:
        names = [
            self._stored_name(name)
            for name in self.names
            if has_leaf(self.type_of(name), pa.types.is_timestamp)
        ]
        return any(self._stripe_has_nanoseconds(index, names) for index in range(self.nstripes))

    def finer_times(
        self, piece: int, decoded: Mapping[ColumnOfFile, pa.Array]
    ) -> Mapping[ColumnOfFile, pa.Array]:
        """Those of a piece with years that nanoseconds can't hold are decoded in microseconds."""
        cut = [
            self._stored_name(name)
            for name, array in decoded.items()
            if in_microseconds(array.type)
        ]
        if self._stripe_has_nanoseconds(self._pieces.all[piece].stripe, cut):
            raise mixed_times(self.path)
        return {}

    # --- rows ----------------------------------------------------------------------------------

    def key_parts(self, *parts: KeyPart) -> Iterator[list[np.ndarray]]:
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
        """These columns (`root` or `root.field`) of one stripe, as `decode` returns them."""
        return self._by_calendar(self._decoded(index, names), as_stored)

    def zone(self, index: int, names: Sequence[str]) -> str:
        """The zone of the writer of a stripe, if one of these columns has times of its clock."""
        return zone_of(self, index) if self._with_wall_clocks(names) else ""

    def in_time(self, batch: pa.RecordBatch, zone: str, as_stored: bool) -> pa.RecordBatch:
        """Rows of Arrow's with the times that the writer meant."""
        batch = on_the_clock(batch, zone, self.path) if zone else batch
        return self._by_calendar(batch, as_stored)

    def _by_calendar(self, batch: pa.RecordBatch, as_stored: bool) -> pa.RecordBatch:
        if as_stored or not any(map(has_ancient, batch.columns)) or is_proleptic(self.footer):
            return batch
        return as_written(batch)

    def _decoded(self, index: int, names: Sequence[str]) -> pa.RecordBatch:
        if self.with_old_decimals(names):
            return exact_decimals(lambda scale: self._scaled(index, names, scale), self.path)
        return self._scaled(index, names)

    def _scaled(self, index: int, names: Sequence[str], scale: int | None = None) -> pa.RecordBatch:
        self._pieces.require_room(index, names)
        file, content, stripe = self, None, index
        zone = self.zone(index, names)
        if zone or scale is not None:
            content = lone_stripe(self, index, bool(zone), scale)
            file, stripe = orc.ORCFile(pa.BufferReader(content)), 0
        try:
            batch = file.read_stripe(stripe, columns=list(names))
            return on_the_clock(batch, zone, self.path) if zone else batch
        except (pa.ArrowInvalid, OverflowError) as error:
            if isinstance(error, pa.ArrowInvalid) and not beyond_nanoseconds(error):
                raise
        # Arrow reads ORC timestamps in nanoseconds, which end in 2262: decode row by row instead.
        batch = wide_timestamps(content or self._bytes(), self.path, stripe, self.schema, names)
        return on_the_clock(batch, zone, self.path) if zone else batch

    def batches(self, names: Sequence[str], timestamps: str = "ns") -> Iterator[pa.RecordBatch]:
        """These root columns of all rows, as they are stored, at most BATCH_ROWS rows at a time.

        `timestamps` `us` decodes by whole stripes, and also years after 2262, for which `ns` raises
        WideTimestamps.
        """
        if any("." in name for name in names):
            require_found_by_name(self._value_fields, self.path)
        zoned = self._with_wall_clocks(names) and self._has_zones()
        if timestamps == "us" or zoned or self.with_old_decimals(names):
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
            yield from scanned(_content(self.files, self.path, self.length), names, BATCH_ROWS)
        except pa.ArrowInvalid as error:
            if beyond_nanoseconds(error):
                raise WideTimestamps from error
            raise

    def _stripe_has_nanoseconds(self, index: int, names: Sequence[str]) -> bool:
        if not names:
            return False
        self._pieces.require_room(index, names)
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
        return any(map(has_wall_clocks, self.types(names)))

    def with_old_decimals(self, names: Sequence[str]) -> bool:
        """Footers are long: that of a file is looked through only if a decimal may be an old one,
        for which Arrow's type has 38 digits."""
        wide = any(has_leaf(kind, _has_most_digits) for kind in self.types(names))
        return wide and self.has_old_decimals

    def types(self, names: Sequence[str]) -> Iterator[pa.DataType]:
        """The types of columns (`root` or `root.field`)."""
        for name in names:
            if name in self.schema.names:
                yield self.schema.field(name).type
            else:
                root, _, field = name.partition(".")
                kind = self.schema.field(root).type
                yield kind.field(field).type if field else kind


def _has_most_digits(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.Decimal128Type) and int(kind.precision) == 38


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names:
        return batch.column(name)
    root, _, field = name.partition(".")
    inner = batch.column(root)
    at = inner.type.get_field_index(field)
    # The function also sees to the NULLs of the struct, and takes longer than a small file.
    return pc.struct_field(inner, [at]) if inner.null_count else inner.field(at)


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
    file = open_orc(files, path, length)
    key = (path, hashlib.sha256(file.footer).digest())
    if files.local or not _LOOKED_AT.get(key):
        require_bounded_stripes(file)
        _LOOKED_AT.put(key, True)
    return file


_LOOKED_AT = Recent[tuple[str, bytes], bool](10_000)
"""Files of object stores, by their paths and footers: a process asks once for what is in them."""


def finish_plain_file(files: Files, path: str, columns: Sequence[Column]) -> None:
    """Declare the column types in a file of an insert-only table that Spark or Arrow wrote.

    Raises CorruptFile.
    """
    if has_declared(columns):
        replace_footer(files, path, declared_footer(open_orc(files, path).footer, columns, path))
