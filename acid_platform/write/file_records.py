"""Records of finished data files, from which readers take what to open (P26)."""

from __future__ import annotations

from acid_platform.formats.orc import (
    AcidWriter,
    OrcWriter,
    column_ranges,
    key_ranges,
    open_strange_orc,
    reading,
)
from acid_platform.layout.file_entries import ColumnRange, FileEntry, Footer, RangeKind
from acid_platform.layout.formats import ORC, FileFormat
from acid_platform.scan.row_counts import count_rows
from acid_platform.storage.files import Files


def recorded_file(
    files: Files,
    path: str,
    name: str,
    stored: FileFormat = ORC,
    deletes: bool = False,
    rows: int | None = None,
    length: int | None = None,
) -> FileEntry:
    """The record of the file at `path` under the relative path `name`; reads its footer.

    `deletes`: the file holds delete events, whose columns have no values. `rows` is the row count
    if the format can't be counted here; `length` is the committed length of a streaming writer's
    file. Raises CorruptFile, UnsupportedLayout.
    """
    with reading(path):
        size = int(files.system.get_file_info(path).size)
        if length == 0:
            return FileEntry(name, size, Footer(0, True), 0)
        if stored.name != "orc":
            counted = count_rows(files, path, stored) if rows is None else rows
            return FileEntry(name, size, Footer(counted, False))
        file = open_strange_orc(files, path, length)
        footer = file.summary
        if deletes or footer.positional:
            return FileEntry(name, size, footer, length)
        keys = key_ranges(file.footer) if footer.acid else None
        ranges = column_ranges(file.footer, footer.acid)
        if file.writer_version == "ORIGINAL":  # the maximum of several stripes may be too low
            ranges = {
                column: ColumnRange(RangeKind.OTHER, None, None, each.nulls, each.values)
                for column, each in ranges.items()
            }
        return FileEntry(name, size, footer, length, ranges, keys)


def record_as_written(writer: OrcWriter, name: str, deletes: bool = False) -> FileEntry:
    """The record of the file that `writer` has closed, equal to that of `recorded_file`.

    Nothing is read: the writer has counted the rows and knows its footer.
    """
    acid = isinstance(writer, AcidWriter)
    footer = Footer(writer.rows, acid)
    if deletes:
        return FileEntry(name, writer.size, footer)
    keys = key_ranges(writer.footer) if acid else None
    ranges = column_ranges(writer.footer, acid)
    return FileEntry(name, writer.size, footer, None, ranges, keys)
