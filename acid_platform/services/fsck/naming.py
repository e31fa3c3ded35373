"""Checks names and places of files in one entity: what readers reject, and what they ignore."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from acid_platform.errors import AcidError
from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.layout.names import (
    BaseName,
    claims_to_be_acid,
    is_hidden,
    original_bucket,
    parse_directory,
)
from acid_platform.scan.data_files import data_files
from acid_platform.services.fsck.findings import Check, Findings

_MOVE = "move it out of the table"


def readable_part(out: Findings, listing: EntityListing, insert_only: bool) -> EntityListing:
    """The listing without entries that make a reader fail; each of those becomes a finding."""
    inside: dict[str, list[FileEntry]] = defaultdict(list)
    loose: list[FileEntry] = []
    for entry in listing.files:
        child, slash, _ = entry.path.partition("/")
        if slash and claims_to_be_acid(child):
            inside[child].append(entry)
        elif not is_hidden(child):
            loose.append(entry)
    bad = {
        child
        for child in sorted({*listing.directories, *inside})
        if claims_to_be_acid(child) and not _fit(out, listing, child, inside[child], insert_only)
    }
    based = any(
        isinstance(parse_directory(child), BaseName)
        for child in {*listing.directories, *inside} - bad
        if claims_to_be_acid(child)
    )
    bad |= {entry.path for entry in loose if not _loose(out, entry, insert_only, based)}
    return replace(
        listing,
        files=tuple(
            file for file in listing.files if not bad & {file.path, file.path.partition("/")[0]}
        ),
        directories=tuple(name for name in listing.directories if name not in bad),
    )


def _fit(
    out: Findings, listing: EntityListing, child: str, files: list[FileEntry], insert_only: bool
) -> bool:
    """Whether an ACID directory can be read, judged by names alone."""
    try:
        parse_directory(child, child)
        contents = data_files(listing.location, child, files, insert_only)
    except AcidError as error:
        out.error(Check.NAME, child, str(error), "until then the table can't be read")
        return False
    for path in contents.zero_length:
        out.warning(
            Check.CONTENT,
            path,
            "the file is empty; readers treat it as absent",
            "restore it if rows are missing, else remove it",
        )
    nested = {
        "/".join(parts[:2])
        for entry in files
        if len(parts := entry.path.split("/")) > 2 and claims_to_be_acid(parts[1])
    }
    for path in sorted(nested):
        out.error(
            Check.NAME,
            path,
            "an ACID directory inside another one: nobody reads its rows"
            " (a rename onto a directory that was there nests it)",
            "compare it with the outer directory, then move it out of the table",
        )
    return True


def _loose(out: Findings, entry: FileEntry, insert_only: bool, based: bool) -> bool:
    """Whether a file outside of ACID directories can be an original file."""
    child = entry.path.partition("/")[0]
    if claims_to_be_acid(child):
        out.error(Check.NAME, entry.path, "a file with the name of an ACID directory", _MOVE)
        return False
    if insert_only or original_bucket(entry.name) is not None or not entry.size:
        return True
    text = "no original file (NNNNNN_N[_copy_K]), so its rows can't have row ids"
    if based:
        out.warning(Check.NAME, entry.path, f"{text}; the base replaces it", _MOVE)
    else:
        out.error(Check.NAME, entry.path, f"{text}: reading the table fails", _MOVE)
    return False
