"""Which files of a selected directory hold rows, and which layouts are refused.

Names are taken from the listing and never built: an attempt suffix may differ or be absent between
a delta and its delete_delta (F23).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.layout.names import (
    FLUSH_LENGTH_SUFFIX,
    claims_to_be_acid,
    is_hidden,
    original_bucket,
    parse_bucket_file,
)
from acid_platform.snapshot.listing import FileEntry


@dataclass(frozen=True, slots=True)
class Contents:
    """Data files of one base, delta or delete_delta, by path."""

    files: tuple[FileEntry, ...]
    raw: bool
    """Files without ACID columns (`000000_0`): LOAD DATA, or an insert-only table."""
    zero_length: tuple[str, ...]
    """Bucket files of no bytes: not valid ORC, taken as absent."""
    side_files: tuple[FileEntry, ...] = ()
    """`_flush_length` files: they say how much of their data file counts (F9)."""


def data_files(
    location: str, directory: str, files: Iterable[FileEntry], insert_only: bool = False
) -> Contents:
    """The data files among `files`, all of which lie below `directory`.

    Hidden files and nested ACID directories (a rename onto an existing directory nests it, trap 7)
    are ignored. `insert_only`: a file of any name is a data file, at any depth. Raises
    UnsupportedLayout for a file of unknown kind, whose rows would be missing in silence;
    CorruptFile for two attempts of one bucket, for a mixture of bucket files and files without
    ACID columns, and for a side file without its data file.
    """
    sides: dict[str, FileEntry] = {}
    buckets: dict[int, FileEntry] = {}
    plain: list[FileEntry] = []
    empty: list[str] = []
    for entry in sorted(files, key=lambda one: one.path):
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
                    " remove the one that its writer did not commit"
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
            f"{location}/{directory} mixes bucket files and files without ACID columns, such as"
            f" {plain[0].path}; only one kind may be there: restore the directory"
        )
    data = {entry.path for entry in buckets.values()}
    for path, side in sides.items():
        # A writer makes both files, the side file with a first value of 0: nothing committed.
        if path not in data and side.size > 8:
            raise CorruptFile(
                f"{location}/{side.path} tells of rows in {path.rpartition('/')[2]}, which is"
                " missing or empty; restore that file"
            )
    return Contents(
        tuple(plain or buckets.values()),
        bool(plain),
        tuple(empty),
        tuple(side for path, side in sides.items() if path in data),
    )
