"""Resolving the files of an entity that only footers and side files can classify."""

from __future__ import annotations

from pyarrow import orc

from acid_platform.layout import schema
from acid_platform.layout.file_entries import Footer
from acid_platform.orc.reader import open_orc, open_strange_orc, reading
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.source_files import (
    EntitySources,
    SourceFile,
    entity_sources,
    flush_length,
    missing_footers,
    side_files,
)
from acid_platform.storage.files import Files, in_threads

_POSITIONAL = "_col"


def resolve(files: Files, directory: AcidDirectory) -> EntitySources:
    """The files that a snapshot reads, as sources; opens only the footers that it needs.

    Raises CorruptFile, also if a listed file is gone.
    """
    footers: dict[str, Footer] = {}
    while paths := missing_footers(directory, footers):
        opened = in_threads(lambda path: read_footer(files, f"{directory.location}/{path}"), paths)
        footers |= zip(paths, opened, strict=True)
    lengths = {}
    for path, side in side_files(directory):
        with reading(f"{directory.location}/{side.path}"):
            lengths[path] = flush_length(files.read(f"{directory.location}/{side.path}"))
    return entity_sources(directory, footers, lengths)


def read_footer(files: Files, path: str) -> Footer:
    """The footer of an ORC file. Raises CorruptFile."""
    with reading(path):
        file = open_strange_orc(files, path)
    names = list(file.schema.names)
    return Footer(int(file.nrows), is_acid(names), is_positional(names))


def is_acid(names: list[str]) -> bool:
    """Whether these are the six ACID columns; some writers use lower case."""
    return [name.lower() for name in names] == [name.lower() for name in schema.ACID_COLUMNS]


def is_positional(names: list[str]) -> bool:
    """Whether all columns are named `_col0`, `_col1`, …, as old writers named them."""
    return bool(names) and all(
        name.startswith(_POSITIONAL) and name[len(_POSITIONAL) :].isdigit() for name in names
    )


def open_source(files: Files, source: SourceFile) -> orc.ORCFile:
    """The ORC file of a source, up to its flush length. Raises as `open_orc`."""
    return open_orc(files, source.path, source.length)
