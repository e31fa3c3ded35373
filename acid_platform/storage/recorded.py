"""Records of finished data files, and checks that recorded files are still there (P26)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyarrow import fs

from acid_platform.base.errors import CorruptFile
from acid_platform.layout.formats import ORC, FileFormat
from acid_platform.layout.orc_ranges import column_ranges, key_ranges
from acid_platform.layout.orc_tail import footer_of
from acid_platform.snapshot.listing import FileEntry, Footer
from acid_platform.snapshot.sources import Source
from acid_platform.storage.files import Files, asking
from acid_platform.storage.orc import open_strange_orc, reading
from acid_platform.storage.orc_writer import AcidWriter, OrcWriter
from acid_platform.storage.plain import count_rows
from acid_platform.storage.sources import is_acid, is_positional

_THREADS = 8


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
        names = list(file.schema.names)
        acid = is_acid(names)
        footer = Footer(int(file.nrows), acid, is_positional(names))
        if deletes or footer.positional:
            return FileEntry(name, size, footer, length)
        described = footer_of(file.reader.serialized_file_tail())
        keys = key_ranges(described) if acid else None
        return FileEntry(name, size, footer, length, column_ranges(described, acid), keys)


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


def require_recorded(files: Files, sources: Iterable[Source], what: str) -> None:
    """Check that each file exists with the size that its commit recorded.

    `what` names the table in the error. Raises CorruptFile for the first file that does not,
    StoreRefused, StoreUnavailable.
    """
    wanted = [*sources]
    with asking(what):
        infos = _infos(files, [source.path for source in wanted])
    for source, info in zip(wanted, infos, strict=True):
        if info.type != fs.FileType.File:
            raise CorruptFile(
                f"{what}: {source.path} is gone, though {_committed(source)} it; restore it from a"
                " copy of the warehouse"
            )
        if info.size != source.size:
            raise CorruptFile(
                f"{what}: {source.path} has {info.size} bytes, but {_committed(source)} it with"
                f" {source.size}; restore it from a copy of the warehouse"
            )


def _committed(source: Source) -> str:
    """Who recorded the file, as subject and verb."""
    if not source.high:
        return "the adoption of the table recorded"
    ids = (
        f"write id {source.high}"
        if source.low in (0, source.high)
        else (f"write ids {source.low} to {source.high}")
    )
    return f"{ids} committed"


def _infos(files: Files, paths: Sequence[str]) -> list[fs.FileInfo]:
    """File infos, in order; in parallel for stores, where each call is a round trip."""
    if files.local or len(paths) < 2:
        return list(files.system.get_file_info(list(paths)))
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(files.system.get_file_info, paths))
