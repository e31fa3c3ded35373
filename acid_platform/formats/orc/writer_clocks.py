"""Days and times as the writer of a file meant them: its calendar, and the zone of its clock.

Days before 15 October 1582: Hive and Spark write Julian days and convert them back when they read.
A file's footer names its calendar only if it is the proleptic Gregorian one. Arrow treats every day
as Gregorian, so it would show 0001-01-01 two days early.

Timestamps of stripes that name another time zone than UTC: Hive 2 and others store an instant, and
the wall clock time follows from the writer's zone. Arrow's library takes the offsets from the
operating system, where they begin long before 1900, and moves some fractions of a second by a
second near 1970. So Arrow is given such a stripe as if it were in UTC, and the wall clock times are
computed here (P17), as ORC's Java reader does by `java.util.TimeZone`. That class knows no offset
before 1900 (it takes the present one), and after 2037 only what two yearly rules say. Its table,
`tzdb.dat`, is of another release of the tz database than that of the operating system or of Python.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.formats.orc.protobuf import fields
from acid_platform.formats.orc.strange_files import ZONE, stripe_footer
from acid_platform.values.arrow_types import (
    FIRST_GREGORIAN,
    has_ancient,
    has_leaf,
    integer_of,
    units_per_day,
    with_leaves,
)

if TYPE_CHECKING:
    from acid_platform.formats.orc.orc_file import OrcFile


def as_written(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch of a file that names no calendar, with its days as the writer meant them."""
    return pa.RecordBatch.from_arrays(
        [_mapped(column, from_julian) for column in batch.columns], schema=batch.schema
    )


def to_be_stored(array: pa.Array) -> pa.Array:
    """The array with its dates and timestamps as a file that names no calendar stores them.

    The days from 5 to 14 October 1582, which that calendar leaves out, become 15 October, as in
    Spark.
    """
    return _mapped(array, to_julian) if has_ancient(array) else array


def from_julian(days: np.ndarray) -> np.ndarray:
    """Julian days since 1970, int64 (n,), as Gregorian days that show the same date.

    29 February of a year that is not a Gregorian leap year becomes 1 March, as in Spark.
    """
    number = days + 2_440_588 + 32_082  # since 1 March of the year -4800
    year = (4 * number + 3) // 1461
    rest = number - 1461 * year // 4
    month = (5 * rest + 2) // 153
    day = rest - (153 * month + 2) // 5
    months = 12 * (year - 4800 - 1970) + month + 2
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return np.where(days < FIRST_GREGORIAN, first + day, days)


def to_julian(days: np.ndarray) -> np.ndarray:
    """Gregorian days since 1970, int64 (n,), as Julian days that show the same date."""
    ancient = np.minimum(days, FIRST_GREGORIAN).astype("datetime64[D]")
    first = ancient.astype("datetime64[M]")
    months = first.astype(np.int64) + 12 * 1970
    month = months % 12 + 1
    early = month < 3
    year = months // 12 + 4800 - early
    day = (ancient - first).astype(np.int64) + 1
    number = day + (153 * (month + 12 * early - 3) + 2) // 5 + 365 * year + year // 4 - 32_083
    return np.where(days < FIRST_GREGORIAN, np.minimum(number - 2_440_588, FIRST_GREGORIAN), days)


def shown_day(day: int) -> int:
    """A day of a file that does not name its calendar, as a Gregorian day since 1970."""
    return int(from_julian(np.array([day]))[0]) if day < FIRST_GREGORIAN else day


def _mapped(array: pa.Array, renumbered: Callable[[np.ndarray], np.ndarray]) -> pa.Array:
    def changed(leaf: pa.Array) -> pa.Array:
        kind, per_day = leaf.type, units_per_day(leaf.type)
        stored = leaf.cast(integer_of(kind)).fill_null(0).to_numpy(zero_copy_only=False)
        days, rest = np.divmod(stored.astype(np.int64), per_day)
        made = renumbered(days) * per_day + rest
        missing = leaf.is_null().to_numpy(zero_copy_only=False)
        return pa.array(made, integer_of(kind), mask=missing).cast(kind)

    return with_leaves(array, lambda kind: units_per_day(kind) > 0, changed)


_FIRST = -2_208_988_800
"""The beginning of 1900 in UTC, where the table of a `TimeZone` begins."""
_LAST_YEAR = 2037
_LAST = 2_145_916_799
"""The last second of 2037 in UTC, where it ends."""
_DAY_SECONDS = 86_400
_CYCLE = 146_097 * _DAY_SECONDS
"""The days of the Gregorian calendar repeat after 400 years."""
_EPOCH = date(1970, 1, 1)
_RULES = 1
_FIXED = re.compile(r"(?:GMT|UTC|UT)(?:([+-])(\d{1,2}):?(\d{2})?)?")
_UTC, _WALL, _STANDARD = range(3)


@dataclass(frozen=True, slots=True)
class JavaZone:
    """The offsets of a zone: `offsets[i]`, in seconds, up to the instant `starts[i]`.

    From `repeats`, the first instant of a cycle, on, they repeat every 400 years. `ends`: the first
    instant whose offset is not known.
    """

    starts: np.ndarray
    offsets: np.ndarray
    repeats: int | None = None
    ends: int | None = None

    def at(self, seconds: np.ndarray) -> np.ndarray:
        """The offsets in seconds at instants in seconds since 1970, int64 (n,).

        Raises ValueError for an instant whose offset is not known.
        """
        if self.ends is not None and len(seconds) and seconds.max() >= self.ends:
            raise ValueError("no rule tells its offsets from 2037 on")
        if self.repeats is not None:
            since = np.maximum(seconds - self.repeats, 0)
            seconds = seconds - since // _CYCLE * _CYCLE
        return np.asarray(self.offsets[np.searchsorted(self.starts, seconds, side="right")])

    def instant(self, wall: int) -> int:
        """The instant of a wall clock time that is far from any change."""
        offset = 0
        for _ in range(2):
            offset = int(self.at(np.array([wall - offset]))[0])
        return wall - offset


def fixed_zone(name: str) -> JavaZone | None:
    """A zone that is UTC or a distance from it, such as `GMT+05:30`; else None."""
    match = _FIXED.fullmatch(name)
    if match is None:
        return None
    sign, hours, minutes = match.groups()
    offset = int(hours or 0) * 3600 + int(minutes or 0) * 60
    return _of(-offset if sign == "-" else offset)


def zone_rules(table: bytes) -> dict[str, bytes]:
    """The rules of each zone in a `tzdb.dat`, by name. Raises ValueError, struct.error."""
    data = _Data(table)
    if data.numbers(">b") != (1,) or data.text() != "TZDB":
        raise ValueError("it is no table of time zones")
    versions = [data.text() for _ in range(data.short())]
    regions = [data.text() for _ in range(data.short())]
    rules = [data.take(data.short()) for _ in range(data.short())]
    rules_of: dict[str, bytes] = {}
    for _ in versions:
        for _ in range(data.short()):
            region, rule = data.short(), data.short()
            rules_of[regions[region]] = rules[rule]
    for _ in range(data.short()):
        alias, region = data.short(), data.short()
        rules_of[regions[alias]] = rules_of[regions[region]]
    return rules_of


def java_zone(rules: bytes) -> JavaZone:
    """A zone from its rules in `tzdb.dat`. Raises ValueError, struct.error."""
    data = _Data(rules)
    if data.numbers(">b") != (_RULES,):
        raise ValueError("it has no rules of a time zone")
    count = data.long_count()
    for _ in range(count):
        data.instant()
    raw = [data.offset() for _ in range(count + 1)][-1]
    count = data.long_count()
    changes = [data.instant() for _ in range(count)]
    offsets = [data.offset() for _ in range(count + 1)]
    yearly = [_Rule.read(data) for _ in range(*data.numbers(">b"))]
    listed = [
        (start, offset)
        for start, offset in zip(changes, offsets[1:], strict=True)
        if _FIRST <= start <= _LAST
    ]
    if not listed:
        return _of(raw)
    before = offsets[changes.index(listed[0][0])]
    table = [(_FIRST, before), *listed]
    cut = changes[-1] > _LAST
    last = _LAST_YEAR if cut else (_EPOCH + timedelta(seconds=changes[-1] + offsets[-1])).year
    if cut:  # Java guesses rules from the last two changes of its table
        return _of(raw, table, ends=_LAST + 1 - 365 * _DAY_SECONDS)
    if len(yearly) > 1:
        coming = [rule.change(year) for year in range(last + 1, last + 402) for rule in yearly]
        return _of(raw, [*table, *sorted(coming)], repeats=min(coming)[0])
    end = int((date(_LAST_YEAR, 1, 1) - _EPOCH).total_seconds()) - raw
    return _of(raw, [*table, (end, raw)])


def _of(
    first: int,
    changes: Sequence[tuple[int, int]] = (),
    repeats: int | None = None,
    ends: int | None = None,
) -> JavaZone:
    return JavaZone(
        np.array([start for start, _ in changes], np.int64),
        np.array([first, *(offset for _, offset in changes)], np.int64),
        repeats,
        ends,
    )


@dataclass(frozen=True, slots=True)
class _Rule:
    """A change of the offset in every year, from `before` to `after`."""

    month: int
    day: int
    """The day of the month; negative: from its end."""
    weekday: int
    """1: Monday; the first one not before the day, or not after a negative day. 0: any."""
    time: int
    clock: int
    standard: int
    before: int
    after: int

    @classmethod
    def read(cls, data: _Data) -> _Rule:
        (packed,) = data.numbers(">I")
        time, standard = packed >> 14 & 31, packed >> 4 & 255
        before, after = packed >> 2 & 3, packed & 3
        seconds = data.numbers(">i")[0] if time == 31 else time * 3600
        base = data.numbers(">i")[0] if standard == 255 else (standard - 128) * 900
        return cls(
            packed >> 28,
            (packed >> 22 & 63) - 32,
            packed >> 19 & 7,
            seconds,
            packed >> 12 & 3,
            base,
            data.numbers(">i")[0] if before == 3 else base + before * 1800,
            data.numbers(">i")[0] if after == 3 else base + after * 1800,
        )

    def change(self, year: int) -> tuple[int, int]:
        """The instant of the change in a year, and the offset after it."""
        if self.day < 0:
            following = date(year + self.month // 12, self.month % 12 + 1, 1)
            day = following + timedelta(days=self.day)
            if self.weekday:
                day -= timedelta(days=(day.isoweekday() - self.weekday) % 7)
        else:
            day = date(year, self.month, self.day)
            if self.weekday:
                day += timedelta(days=(self.weekday - day.isoweekday()) % 7)
        wall = (day - _EPOCH).days * _DAY_SECONDS + self.time
        shift = {_UTC: 0, _WALL: self.before, _STANDARD: self.standard}[self.clock]
        return wall - shift, self.after


class _Data:
    """Reads Java's big-endian numbers and texts one after another."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def take(self, size: int) -> bytes:
        start = self._at
        self._at += size
        return self._content[start : self._at]

    def short(self) -> int:
        return self.numbers(">H")[0]

    def text(self) -> str:
        return self.take(self.short()).decode()

    def long_count(self) -> int:
        return self.numbers(">i")[0]

    def offset(self) -> int:
        """An offset from UTC in seconds."""
        (quarters,) = self.numbers(">b")
        return self.numbers(">i")[0] if quarters == 127 else quarters * 900

    def instant(self) -> int:
        """Seconds since 1970."""
        high, middle, low = self.numbers(">BBB") if self._content[self._at] != 255 else (255, 0, 0)
        if high == 255:
            self._at += 1
            return self.numbers(">q")[0]
        return (high << 16 | middle << 8 | low) * 900 - 4_575_744_000


_BASE = 1_420_070_400
"""2015-01-01 in seconds since 1970: ORC counts timestamps from there, in the writer's zone."""
_UNITS = {"ns": 1_000_000_000, "us": 1_000_000}
_FINE = {"ns": 999_999, "us": 999}
"""ORC corrects seconds before 1970 only of timestamps with a larger fraction."""
_SAME = ("", "GMT", "UTC", "Etc/UTC", "Etc/GMT", "Etc/UCT", "UCT", "Zulu")


def has_wall_clocks(kind: pa.DataType) -> bool:
    """Whether the type is or contains a timestamp that is a wall clock time, not an instant."""
    return has_leaf(kind, lambda leaf: pa.types.is_timestamp(leaf) and leaf.tz is None)


def zone_of(file: OrcFile, index: int) -> str:
    """The zone of a stripe's timestamps; empty for UTC. Raises CorruptFile."""
    if file.is_ours:
        return ""
    _, described = stripe_footer(file, index)
    try:
        zones = [field.payload for field in fields(described) if field.number == ZONE]
        zone = next(filter(None, zones), b"").decode()
    except ValueError as error:
        raise CorruptFile(
            f"{file.path} has an unreadable footer of a stripe: {error}; restore the file"
        ) from error
    return "" if zone in _SAME else zone


def on_the_clock(batch: pa.RecordBatch, zone: str, path: str) -> pa.RecordBatch:
    """The batch of a stripe that was taken for UTC, with its timestamps as the wall clocks of the
    zone showed them.

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
    for directory in (path / below for path in homes for below in ("lib", "jre/lib")):
        if (directory / "tzdb.dat").is_file():
            try:
                return zone_rules((directory / "tzdb.dat").read_bytes())
            except (ValueError, IndexError, struct.error):
                return None
    return None
