"""Timestamps of stripes that name another time zone than UTC, as ORC's Java reader shows them.

Hive 2 and others store an instant, and the wall clock time follows from the writer's zone. Arrow's
library takes the offsets from the operating system, where they begin long before 1900, and moves
some fractions of a second by a second near 1970. So Arrow is given such a stripe as if it were in
UTC, and the wall clock times are computed here (P17).
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import orc

from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.orc.java_zones import JavaZone, fixed_zone, java_zone, zone_rules
from acid_platform.orc.pyorc_rows import stripe_zone
from acid_platform.orc.stripes import (
    UTC,
    Stripe,
    alone_in_utc,
    decompressed,
    is_ours,
    stripes,
    writer_zone,
)
from acid_platform.orc.tail import TAIL_BYTES, Postscript, footer_of
from acid_platform.storage.arrow_types import with_leaves
from acid_platform.storage.files import Files

_BASE = 1_420_070_400
"""2015-01-01 in seconds since 1970: ORC counts timestamps from there, in the writer's zone."""
_UNITS = {"ns": 1_000_000_000, "us": 1_000_000}
_FINE = {"ns": 999_999, "us": 999}
"""ORC corrects seconds before 1970 only of timestamps with a larger fraction."""
_SAME = ("", UTC, "UTC", "Etc/UTC", "Etc/GMT", "Etc/UCT", "UCT", "Zulu")


def has_wall_clocks(kind: pa.DataType) -> bool:
    """Whether the type is or contains a timestamp that is a wall clock time, not an instant."""
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(has_wall_clocks(kind.field(i).type) for i in range(kind.num_fields))


def foreign_zones(files: Files, path: str, length: int | None, file: orc.ORCFile) -> bool:
    """Whether a stripe of the file has wall clock times of another zone than UTC.

    Raises as `stripe_in_utc`.
    """
    return any(has_wall_clocks(field.type) for field in file.schema) and any(
        _zone(files, path, length, file, index) is not None for index in range(file.nstripes)
    )


def stripe_in_utc(
    files: Files, path: str, length: int | None, file: orc.ORCFile, index: int
) -> tuple[bytes, str] | None:
    """The stripe alone as a file whose timestamps are taken for UTC, and the zone that they are in.

    None if its timestamps are in UTC anyway. Raises CorruptFile, UnsupportedLayout.
    """
    found = _zone(files, path, length, file, index)
    if found is None:
        return None
    zone, stripe, described, footer = found
    with files.open(path) as stream:
        stream.seek(stripe.offset)
        body = bytes(stream.read(stripe.index + stripe.data))
        tail = _tail(stream, length)
    return alone_in_utc(stripe, body, described, footer, Postscript.of(tail, path)), zone


def _zone(
    files: Files, path: str, length: int | None, file: orc.ORCFile, index: int
) -> tuple[str, Stripe, bytes, bytes] | None:
    """The zone of a stripe, where it is, its footer and the file's; None if it is in UTC."""
    footer = footer_of(file.reader.serialized_file_tail())
    if is_ours(footer):
        return None
    with files.open(path) as stream:
        try:
            stripe = list(stripes(footer))[index]
            compression = Postscript.of(_tail(stream, length), path).compression
            stream.seek(stripe.footer_offset)
            described = decompressed(bytes(stream.read(stripe.footer)), compression)
            zone = None if described is None else writer_zone(described)
        except (IndexError, ValueError, zlib.error) as error:
            raise CorruptFile(
                f"{path} has an unreadable footer of a stripe: {error}; restore the file"
            ) from error
        if zone is None:
            stream.seek(0)
            zone = stripe_zone(stream.read(length), path, index)
    if zone in _SAME:
        return None
    if described is None:
        raise UnsupportedLayout(
            f"{path} has timestamps of the time zone {zone} in a compression that only Spark reads:"
            " read it with engine='spark'"
        )
    return zone, stripe, described, footer


def _tail(stream: pa.NativeFile, length: int | None) -> bytes:
    end = stream.size() if length is None else length
    stream.seek(max(end - TAIL_BYTES, 0))
    return bytes(stream.read(min(end, TAIL_BYTES)))


def on_the_clock(batch: pa.RecordBatch, zone: str, path: str) -> pa.RecordBatch:
    """The batch of `stripe_in_utc` with its timestamps as the wall clocks of the zone showed them.

    Raises UnsupportedLayout for a zone that Java's table does not have, and OverflowError if
    nanoseconds can't hold a time.
    """
    rules = _java_zone(zone, path)
    shift = rules.instant(_BASE) - _BASE

    def shown(array: pa.Array) -> pa.Array:
        if array.type.tz is not None:
            return array
        per_second = _UNITS[array.type.unit]
        values = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        seconds, fractions = np.divmod(values, per_second)
        fine = fractions > _FINE[array.type.unit]
        seconds += (fine & (seconds < 0)) + shift  # as they are stored
        seconds -= fine & (seconds * 1000 + fractions * 1000 // per_second < 0)
        try:
            seconds += rules.at(seconds)
        except ValueError as error:
            raise UnsupportedLayout(
                f"{path} has timestamps of the time zone {zone}, and {error}: read it with"
                " engine='spark'"
            ) from error
        if len(seconds) and max(-seconds.min(), seconds.max()) >= (1 << 63) // per_second - 1:
            raise OverflowError(f"{path}: a timestamp is beyond {array.type}")
        missing = array.is_null().to_numpy(zero_copy_only=False)
        return pa.array(seconds * per_second + fractions, pa.int64(), mask=missing).cast(array.type)

    return pa.RecordBatch.from_arrays(
        [with_leaves(column, pa.types.is_timestamp, shown) for column in batch.columns],
        schema=batch.schema,
    )


def _java_zone(zone: str, path: str) -> JavaZone:
    if fixed := fixed_zone(zone):
        return fixed
    table = _table(os.environ.get("JAVA_HOME", ""))
    if table is None:
        raise UnsupportedLayout(
            f"{path} has timestamps of the time zone {zone}, whose offsets are read from the table"
            " of a Java installation, and none was found: set JAVA_HOME"
        )
    if zone not in table:
        raise UnsupportedLayout(
            f"{path} has timestamps of the time zone {zone}, which Java's table does not have: read"
            " it with engine='spark'"
        )
    return java_zone(table[zone])


@lru_cache(1)
def _table(home: str) -> dict[str, bytes] | None:
    """The rules of zones of the Java in `home`, or of the one on the PATH; None without Java."""
    java = shutil.which("java")
    homes = [Path(home)] if home else [Path(java).resolve().parents[1]] if java else []
    for place in (path / below for path in homes for below in ("lib", "jre/lib")):
        if (place / "tzdb.dat").is_file():
            try:
                return zone_rules((place / "tzdb.dat").read_bytes())
            except (ValueError, IndexError, struct.error):
                return None
    return None
