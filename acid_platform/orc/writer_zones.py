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
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.orc.java_zones import JavaZone, fixed_zone, java_zone, zone_rules
from acid_platform.orc.protobuf import delimited, fields, number
from acid_platform.orc.tail import (
    MAGIC,
    ROWS,
    STATISTICS,
    STRIPES,
    TAIL_BYTES,
    USER_METADATA,
    Postscript,
    Stripe,
    is_ours,
    stripes,
)
from acid_platform.storage.arrow_types import has_leaf, with_leaves

if TYPE_CHECKING:
    from acid_platform.orc.orc_file import OrcFile

_UTC = "GMT"
_HEADER_LENGTH, _CONTENT_LENGTH = 1, 2
_LEFT_OUT = (_HEADER_LENGTH, _CONTENT_LENGTH, STRIPES, USER_METADATA, ROWS, STATISTICS)
_ZONE = 3
_BASE = 1_420_070_400
"""2015-01-01 in seconds since 1970: ORC counts timestamps from there, in the writer's zone."""
_UNITS = {"ns": 1_000_000_000, "us": 1_000_000}
_FINE = {"ns": 999_999, "us": 999}
"""ORC corrects seconds before 1970 only of timestamps with a larger fraction."""
_SAME = ("", _UTC, "UTC", "Etc/UTC", "Etc/GMT", "Etc/UCT", "UCT", "Zulu")


def has_wall_clocks(kind: pa.DataType) -> bool:
    """Whether the type is or contains a timestamp that is a wall clock time, not an instant."""
    return has_leaf(kind, lambda leaf: pa.types.is_timestamp(leaf) and leaf.tz is None)


def stripe_in_utc(file: OrcFile, index: int) -> tuple[bytes, str] | None:
    """The stripe alone as a file whose timestamps are taken for UTC, and the zone that they are in.

    None if its timestamps are in UTC anyway. Raises CorruptFile.
    """
    located = zone_of(file, index)
    if located is None:
        return None
    zone, stripe, stripe_footer = located
    with file.files.open(file.path) as stream:
        stream.seek(stripe.offset)
        body = bytes(stream.read(stripe.index + stripe.data))
        postscript = _postscript(stream, file)
    described = postscript.chunks(
        b"".join(field.raw for field in fields(stripe_footer) if field.number != _ZONE)
        + delimited(_ZONE, _UTC.encode())
    )
    start = len(MAGIC)
    lengths = (start, stripe.index, stripe.data, len(described), stripe.rows)
    tail = postscript.chunks(
        number(_HEADER_LENGTH, start)
        + number(_CONTENT_LENGTH, start + len(body) + len(described))
        + delimited(STRIPES, b"".join(number(key, one) for key, one in enumerate(lengths, 1)))
        + b"".join(field.raw for field in fields(file.footer) if field.number not in _LEFT_OUT)
        + number(ROWS, stripe.rows)
    )
    return MAGIC + body + described + tail + postscript.renewed(len(tail), metadata=0), zone


def zone_of(file: OrcFile, index: int) -> tuple[str, Stripe, bytes] | None:
    """The zone of a stripe, where it is, and its footer; None for UTC. Raises CorruptFile."""
    footer = file.footer
    if is_ours(footer):
        return None
    try:
        stripe = stripes(footer)[index]
        with file.files.open(file.path) as stream:
            postscript = _postscript(stream, file)
            stream.seek(stripe.footer_offset)
            described = postscript.opened(bytes(stream.read(stripe.footer)), file.path)
        zones = [field.payload for field in fields(described) if field.number == _ZONE]
        zone = next(filter(None, zones), b"").decode()
    except (IndexError, ValueError) as error:
        raise CorruptFile(
            f"{file.path} has an unreadable footer of a stripe: {error}; restore the file"
        ) from error
    return None if zone in _SAME else (zone, stripe, described)


def _postscript(stream: pa.NativeFile, file: OrcFile) -> Postscript:
    end = stream.size() if file.length is None else file.length
    stream.seek(max(end - TAIL_BYTES, 0))
    return Postscript.of(bytes(stream.read(min(end, TAIL_BYTES))), file.path)


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
