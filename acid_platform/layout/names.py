"""Names of tables, which become parts of paths, and of ACID directories and data files (F1, F2).

Ids are integers: any number of digits is accepted, at least seven are written.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from acid_platform.base.arguments import refuse_half_characters, require_kind
from acid_platform.errors import InvalidDefinition, MalformedName

VERSION_FILE = "_orc_acid_version"
VERSION = b"2"
METADATA_FILE = "_metadata_acid"
TEMPORARY_PREFIX = "_tmp_"
FLUSH_LENGTH_SUFFIX = "_flush_length"
STATISTICS_DIRECTORY = "_statistics_of_engines"
"""In a table's directory: what engines told the gateway about its columns."""

CONVERTED_BASE = -(1 << 63)
"""Write id of the first compacted base of a converted table without deltas; always valid."""

# Without ASCII, \d matches the digits of every script.

_BASE = re.compile(r"base_(-?\d+)(?:_v(\d+))?", re.ASCII)
_DELTA = re.compile(r"(delete_)?delta_(\d+)_(\d+)(?:_(\d+))?(?:_v(\d+))?", re.ASCII)
_BUCKET = re.compile(r"bucket_(\d+)(?:_(\d+))?", re.ASCII)
_ORIGINAL = re.compile(r"(\d+)_\d+(?:_copy_\d+)?", re.ASCII)
_TEMPORARY = re.compile(rf"{TEMPORARY_PREFIX}(\d+)_[\w-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class BaseName:
    """`base_N[_vT]`."""

    write_id: int
    visibility: int = 0
    """Transaction id of the compaction that wrote it; 0: visible to everyone."""

    def __str__(self) -> str:
        return f"base_{self.write_id:07d}" + _suffix(self.visibility)


@dataclass(frozen=True, slots=True)
class DeltaName:
    """`[delete_]delta_A_B[_S][_vT]`."""

    low: int
    high: int
    statement: int | None = None
    visibility: int = 0
    deletes: bool = False

    def __str__(self) -> str:
        prefix = "delete_delta" if self.deletes else "delta"
        statement = "" if self.statement is None else f"_{self.statement:04d}"
        return f"{prefix}_{self.low:07d}_{self.high:07d}{statement}{_suffix(self.visibility)}"


AcidName = BaseName | DeltaName


def span(name: AcidName) -> tuple[int, int]:
    """The lowest and highest write id in a directory's name; a base has only one write id."""
    if isinstance(name, BaseName):
        return name.write_id, name.write_id
    return name.low, name.high


def _suffix(visibility: int) -> str:
    return f"_v{visibility:07d}" if visibility else ""


def is_hidden(name: str) -> bool:
    """Whether readers ignore a path component below the table root."""
    return name.startswith(("_", "."))


def claims_to_be_acid(name: str) -> bool:
    """Whether the name starts like that of an ACID directory; it may still be malformed."""
    return name.startswith(("base_", "delta_", "delete_delta_"))


def parse_directory(name: str, where: str = "") -> AcidName | None:
    """Parses the name of an ACID directory; None for any other name.

    Raises MalformedName if the name starts like an ACID directory but is not well-formed; `where`
    is the path to name in the error.
    """
    if not claims_to_be_acid(name):
        return None
    if match := _BASE.fullmatch(name):
        return BaseName(int(match[1]), int(match[2] or 0))
    if match := _DELTA.fullmatch(name):
        low, high = int(match[2]), int(match[3])
        if low <= high:
            statement = None if match[4] is None else int(match[4])
            return DeltaName(low, high, statement, int(match[5] or 0), match[1] is not None)
    raise MalformedName(
        f"{where or name} starts like an ACID directory but is not base_N[_vT] or"
        " [delete_]delta_A_B[_S][_vT]; move it out of the table"
    )


@dataclass(frozen=True, slots=True)
class BucketFile:
    """`bucket_NNNNN[_attempt]`."""

    bucket: int
    attempt: int | None = None

    def __str__(self) -> str:
        attempt = "" if self.attempt is None else f"_{self.attempt}"
        return f"bucket_{self.bucket:05d}{attempt}"


def parse_bucket_file(name: str) -> BucketFile | None:
    """Parses `bucket_NNNNN[_attempt]`; None for any other name."""
    match = _BUCKET.fullmatch(name)
    if not match:
        return None
    return BucketFile(int(match[1]), None if match[2] is None else int(match[2]))


def original_bucket(name: str) -> int | None:
    """The bucket number of an original file (`000000_0`, `000000_0_copy_1`); None for others."""
    match = _ORIGINAL.fullmatch(name)
    return int(match[1]) if match else None


def temporary_name(txn_id: int, token: str) -> str:
    """`_tmp_<txn>_<token>`: where a transaction writes files before it publishes them."""
    return f"{TEMPORARY_PREFIX}{txn_id:07d}_{token}"


def temporary_owner(name: str) -> int | None:
    """The id of the transaction that owns a temporary directory; None for other names."""
    match = _TEMPORARY.fullmatch(name)
    return int(match[1]) if match else None


_WRITTEN = re.compile(
    rf"{VERSION_FILE}|{METADATA_FILE}|bucket_\d+(?:_\d+)?(?:{FLUSH_LENGTH_SUFFIX})?"
    r"|\d{6,}_\d+(?:_copy_\d+)?(?:\.(?:gz|deflate|snappy|bz2|lz4|zst))?"
    r"|\d{8}_\d{6}_\d{5}_[a-z0-9]{5}_[0-9a-f-]{36}(?:\.[a-z0-9]+)?"  # Trino's of insert-only tables
    rf"|{TEMPORARY_PREFIX}\d{{7,}}_[0-9a-f]{{32}}",
    re.ASCII,
)


def is_written(name: str) -> bool:
    """Whether the name is one that this platform, Hive or Trino gives to a file in an ACID
    directory, or Hadoop to the checksum of such a file."""
    if name.startswith(".") and name.endswith(".crc"):
        name = name[1:].removesuffix(".crc")
    return _WRITTEN.fullmatch(name) is not None


LONGEST_NAME = 255
"""Bytes of one name in a path, on all usual file systems."""


def refuse_path_trouble(what: str, name: str) -> None:
    """Raises InvalidDefinition if the name can't be part of a path; `what` says whose name it is.

    That holds for `/`, `.`, `..`, control characters, leading or trailing blanks, and names longer
    than a file system allows.
    """
    trouble = ""
    if name != name.strip() or name in ("", ".", ".."):
        trouble = "is empty or a dot, or begins or ends with a blank"
    elif "/" in name or "\\" in name:
        trouble = "contains a path separator"
    elif any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in name):
        trouble = "contains a control character"
    elif len(name.encode()) > 240:
        trouble = "is longer than 240 bytes"
    if trouble:
        raise InvalidDefinition(
            f"{what} {_shown(name)} {trouble}, so it can't be part of a path; choose another name"
        )


BACKTICK = "ends a name in SQL, where nothing stands for it inside of one"


def refuse_shared_name(what: str, name: str) -> None:
    """As `refuse_path_trouble`, and for the characters that mean something in `db.table`.

    A dot separates the parts, and a star stands for all names: of tables in locks, in grants and in
    patterns of assets. No statement can name what has a backtick in its name.
    """
    refuse_path_trouble(what, name)
    for character, meaning in _MEANINGS.items():
        if character in name:
            raise InvalidDefinition(
                f"{what} {_shown(name)} contains {character!r}, which {meaning}; choose another"
                " name"
            )


_MEANINGS = {
    ".": "separates a database from its tables",
    "*": "stands for all names",
    "`": BACKTICK,
}


def refuse_names(table: str, location: str | None = None) -> None:
    """Checks the name `db.table` of a new table, and its location, before a path is looked at.

    Raises InvalidDefinition.
    """
    database, _, short = table.partition(".")
    refuse_shared_name("the name of a database", database)
    refuse_shared_name("the name of a table", short)
    for part in (location or "").split("/"):
        refuse_half_characters(part, f"{table}: the location", InvalidDefinition)
        if len(part.encode()) > LONGEST_NAME:
            raise InvalidDefinition(
                f"{table}: the location has a name of {len(part.encode())} bytes,"
                f" {_shown(part)}, and file systems take {LONGEST_NAME}; choose a shorter one"
            )


def _shown(name: str) -> str:
    return repr(name) if len(name) <= 80 else f"{name[:60]!a}… ({len(name)} characters)"


def table_name(name: str) -> str:
    """`db.t` in lower case; a name without a database is in `default`. Raises InvalidDefinition."""
    require_kind("table", name, str, "a name such as 'db.t'", InvalidDefinition)
    lower = name.strip().lower()
    return lower if "." in lower else f"default.{lower}"
