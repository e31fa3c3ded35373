"""Which files of a selected directory hold rows, and which layouts are refused.

File names are taken from the listing, never constructed: the attempt suffix of a delta and of its
delete_delta may differ, or be absent from either (F23).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.layout.file_entries import FileEntry
from acid_platform.layout.names import (
    FLUSH_LENGTH_SUFFIX,
    claims_to_be_acid,
    is_hidden,
    original_bucket,
    parse_bucket_file,
)


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Data files of one base, delta or delete_delta, by path."""

    files: tuple[FileEntry, ...]
    raw: bool
    """Whether the files are named like `000000_0`: LOAD DATA, or an insert-only table."""
    zero_length: tuple[str, ...]
    """Empty bucket files, which are not valid ORC; treated as absent."""
    side_files: tuple[FileEntry, ...] = ()
    """`_flush_length` files, which hold the committed length of their data file."""


def data_files(
    location: str, directory: str, files: Iterable[FileEntry], insert_only: bool = False
) -> DataFiles:
    """The data files among `files`, all of which lie below `directory`.

    Hidden files are ignored, and so are nested ACID directories, which a rename onto an existing
    directory leaves behind. `insert_only`: a file of any name, at any depth, is a data file. Raises
    UnsupportedLayout for a file of unknown kind, whose rows would otherwise silently be missing;
    CorruptFile for two attempts of the same bucket, for a mixture of bucket files and files
    without ACID columns, and for a side file without its data file.
    """
    sides: dict[str, FileEntry] = {}
    buckets: dict[int, FileEntry] = {}
    plain: list[FileEntry] = []
    empty: list[str] = []
    for entry in sorted(files, key=lambda entry: entry.path):
        *parents, name = entry.path.removeprefix(f"{directory}/").split("/")
        if is_hidden(name) or any(is_hidden(p) or claims_to_be_acid(p) for p in parents):
            continue
        if insert_only:
            if entry.size:
                plain.append(entry)
            continue
        if name.endswith(FLUSH_LENGTH_SUFFIX):
            sides[entry.path.removesuffix(FLUSH_LENGTH_SUFFIX)] = entry
            continue
        bucket = parse_bucket_file(name) if not parents else None
        if bucket is not None and entry.size == 0:
            empty.append(entry.path)
        elif entry.size == 0:
            continue
        elif bucket is not None:
            other = buckets.setdefault(bucket.bucket, entry)
            if other is not entry:
                raise CorruptFile(
                    f"{location}: {other.path} and {entry.path} are two attempts of one bucket;"
                    " remove the file that its writer did not commit"
                )
        elif original_bucket(name) is not None:
            plain.append(entry)
        else:
            raise UnsupportedLayout(
                f"{location}/{entry.path} is neither a bucket file (bucket_NNNNN[_attempt]) nor"
                " NNNNNN_N[_copy_K]; move it out of the table"
            )
    if buckets and plain:
        raise CorruptFile(
            f"{location}/{directory} mixes bucket files with files without ACID columns, such as"
            f" {plain[0].path}; restore the directory"
        )
    data = {entry.path for entry in buckets.values()}
    for path, side in sides.items():
        # A writer creates the side file with a first value of 0: nothing is committed yet.
        if path not in data and side.size > 8:
            raise CorruptFile(
                f"{location}/{side.path} records committed rows of {path.rpartition('/')[2]}, which"
                " is missing or empty; restore that file"
            )
    return DataFiles(
        tuple(plain or buckets.values()),
        bool(plain),
        tuple(empty),
        tuple(side for path, side in sides.items() if path in data),
    )
