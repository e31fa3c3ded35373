"""Names on disk: of tables, which become parts of paths, of ACID directories and data files (F1,
F2), and of partitions, with their values, escaping and parsing (F4); timestamps as texts.

Ids are integers: any number of digits is accepted, at least seven are written.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import partial
from typing import Any

from acid_platform.base.arguments import refuse_half_characters, require_kind
from acid_platform.errors import InvalidDefinition, MalformedName, NoSuchPartition, WrongType
from acid_platform.layout.types import Column

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


_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)


def moment_of_text(text: str) -> datetime.datetime | None:
    """`2024-02-29`, `2024-02-29 12:30` or `2024-02-29T12:30:01.5`; with `Z` or `+02:00` in UTC.

    None for anything else, also for digits below a microsecond.
    """
    parts = _MOMENT.fullmatch(text)
    if parts is None:
        return None
    *numbers, fraction, zone = parts.groups()
    digits = (fraction or "").ljust(6, "0")
    if digits[6:].strip("0"):
        return None
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second, int(digits[:6]))
        if zone is None:
            return moment
        offset = datetime.datetime.fromisoformat(f"2000-01-01T00:00:00{zone}").utcoffset()
        assert offset is not None
        return (moment - offset).replace(tzinfo=datetime.UTC)
    except (ValueError, OverflowError):  # such as the 30th of February
        return None


def text_of_moment(moment: datetime.datetime) -> str:
    """`2024-02-29 12:30:01.5`, as Spark and Hive cast a timestamp to string."""
    whole = moment.replace(microsecond=0).isoformat(" ")
    return f"{whole}.{moment.microsecond:06d}".rstrip("0") if moment.microsecond else whole


DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED = frozenset("\"#%'*/:=?\\{[]^") | {chr(c) for c in (*range(32), 127)}
_SEQUENCE = re.compile(r"%([0-9A-Fa-f]{2})")


def escape(text: str) -> str:
    """Hive's escaping of one side of `column=value`."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)


def unescape(text: str) -> str:
    """The inverse of `escape`; a malformed sequence stays as it is."""
    return _SEQUENCE.sub(lambda match: chr(int(match[1], 16)), text)


def partition_name(values: Mapping[str, str | None]) -> str:
    """`month=3/day=4`; NULL and the empty string become the default partition.

    `values` maps partition columns, in order, to their texts; keys are written in lower case.
    Raises WrongType for a value that makes a longer name than file systems take.
    """
    segments = []
    for key, value in values.items():
        segment = f"{escape(key.lower())}={escape(value) if value else DEFAULT_PARTITION}"
        if len(segment) * 4 > LONGEST_NAME or not segment.isascii():
            _require_directory_name(segment, key)
        segments.append(segment)
    return "/".join(segments)


def _require_directory_name(segment: str, key: str) -> None:
    """Raises WrongType."""
    refuse_half_characters(segment, f"a value of the partition column {key!r},", WrongType)
    size = len(segment.encode())
    if size > LONGEST_NAME:
        raise WrongType(
            f"a value of the partition column {key!r} makes a directory name of {size} bytes, and"
            f" file systems take {LONGEST_NAME}: {ascii(segment)[:60]}…; shorten it, or partition"
            " by another column"
        )


def partition_segment(segment: str) -> tuple[str, str | None] | None:
    """Parses a directory name into (column, value or None for NULL); None if it is no partition."""
    key, equals, value = segment.partition("=")
    if not equals or not key:
        return None
    name = unescape(value)
    return unescape(key).lower(), None if name == DEFAULT_PARTITION else name


def parse_partition(name: str, columns: Sequence[str]) -> tuple[str | None, ...] | None:
    """The values of `month=3/day=4` in the order of `columns`; None if the columns differ."""
    pairs = [partition_segment(segment) for segment in name.split("/")]
    parsed = [pair for pair in pairs if pair is not None]
    keys = [key for key, _ in parsed]
    if len(parsed) < len(pairs) or keys != [column.lower() for column in columns]:
        return None
    return tuple(value for _, value in parsed)


def partition_values(
    partition: Mapping[str, Any] | str,
    columns: Sequence[Column],
    table: str,
    existing: Collection[str] = (),
) -> dict[str, str | None]:
    """The values of `"month=3"` or `{"month": 3}` by column, in order.

    A name in `existing` is taken as it is, even if another engine spelled its values in another way
    than `as_written`. Raises NoSuchPartition.
    """
    names = [column.name for column in columns]
    values_by_name: dict[str, Any] = {}
    if isinstance(partition, str):
        values = parse_partition(partition, names)
        values_by_name = dict(zip(names, values or (), strict=False))
        if partition in existing and set(values_by_name) == set(names):
            return values_by_name
    elif isinstance(partition, Mapping):
        values_by_name = {str(key).lower(): value for key, value in partition.items()}
    if names and set(values_by_name) == set(names):
        return written_values(values_by_name, columns, table)
    expected = "/".join(f"{name}=…" for name in names) or "none: it is not partitioned"
    raise NoSuchPartition(f"{partition!r} is not a partition of {table}; use the form {expected}")


def written_values(
    values: Mapping[str, Any], columns: Sequence[Column], table: str
) -> dict[str, str | None]:
    """The values of some of the columns `as_written`, in the order of the columns.

    Raises NoSuchPartition.
    """
    return {
        column.name: as_written(values[column.name], column, table)
        for column in columns
        if column.name in values
    }


def as_written(value: Any, column: Column, table: str) -> str | None:
    """The text that Spark writes into the directory name, so that each value has one directory.

    An int `03` becomes `3`, a decimal(10,2) `1.5` becomes `1.50`, a date `2024-1-5` becomes
    `2024-01-05`, a timestamp `2024-01-05T12:30` becomes `2024-01-05 12:30:00`. Raises
    NoSuchPartition if the value is none of the column's type: out of its range, longer than its
    texts, or one that would be rounded.
    """
    if value is None or value == "":
        return None
    write = _WRITTEN_MOMENT.get(column.type.kind)
    try:
        return str(value) if write is None else write(value, *column.type.sizes)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise NoSuchPartition(
            f"{column.name}={value!r} is not a partition of {table}: {column.name} has the type"
            f" {column.type}"
        ) from error


def _whole(value: Any, bits: int) -> str:
    if isinstance(value, bool) or (not isinstance(value, int | str) and value != int(value)):
        raise ValueError(value)
    if isinstance(value, str) and not re.fullmatch(r"\s*[+-]?\d+\s*", value, re.ASCII):
        raise ValueError(value)
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(value)
    return str(number)


def _decimal(value: Any, precision: int, scale: int) -> str:
    with localcontext(prec=2 * precision + 2):
        number = Decimal(str(value).strip())
        exact = number.quantize(Decimal(1).scaleb(-scale))
        if exact != number or len(exact.as_tuple().digits) > precision:
            raise ValueError(value)
    return f"{exact if exact else abs(exact):f}"


def _date(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        if value.time() != datetime.time():
            raise ValueError(value)
        value = value.date()
    if isinstance(value, datetime.date):
        return value.isoformat()
    parts = re.fullmatch(r"(\d{4})-(\d{1,2})-(\d{1,2})", str(value).strip(), re.ASCII)
    if parts is None:
        raise ValueError(value)
    return datetime.date(*map(int, parts.groups())).isoformat()


def _timestamp(value: Any) -> str:
    padded = re.sub(r"(?<![\d.])(\d)(?!\d)", r"0\1", str(value).strip(), flags=re.ASCII)
    moment = moment_of_text(padded)  # 2024-1-5 is 2024-01-05
    if moment is None:
        raise ValueError(value)
    return text_of_moment(moment.replace(tzinfo=None))


def _varchar(value: Any, longest: int) -> str:
    """Blanks beyond the length are cut, as those of rows are."""
    text = str(value)
    if len(text.rstrip(" ")) > longest:
        raise ValueError(value)
    return text[:longest]


def _boolean(value: Any) -> str:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(value)
    return text


def _floating(value: Any) -> str:
    """Java and Python print small whole numbers alike; others must be given as Java prints them."""
    number = float(value)
    if math.isinf(number) and "inf" not in str(value).lower():
        raise ValueError(value)
    return repr(number or 0.0) if number.is_integer() and abs(number) < 1e7 else str(value)


def _single(value: Any) -> str:
    struct.pack("<f", float(value))  # OverflowError outside of the range
    return _floating(value)


_WRITTEN_MOMENT: dict[str, Callable[..., str]] = {
    "tinyint": partial(_whole, bits=8),
    "smallint": partial(_whole, bits=16),
    "int": partial(_whole, bits=32),
    "bigint": partial(_whole, bits=64),
    "decimal": _decimal,
    "date": _date,
    "timestamp": _timestamp,
    "varchar": _varchar,
    "boolean": _boolean,
    "float": _single,
    "double": _floating,
}
"""Called with a value and the sizes of its type."""


def highest_write_id(path: str) -> int:
    """The highest write id in the names of the directories of a path; 0 for original files, also in
    the base of them, whose name has the least number of all."""
    parsed = map(parse_directory, path.split("/")[:-1])
    return max((0, *(span(name)[1] for name in parsed if name)))
