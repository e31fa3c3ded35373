"""Resolving the files of an entity that only footers and side files can classify."""

from __future__ import annotations

from acid_platform.layout.file_entries import Footer
from acid_platform.orc import OrcFile, open_orc, open_strange_orc, reading
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
        return open_strange_orc(files, path).summary


def open_source(files: Files, source: SourceFile) -> OrcFile:
    """The ORC file of a source, up to its flush length. Raises as `open_orc`."""
    return open_orc(files, source.path, source.length)
