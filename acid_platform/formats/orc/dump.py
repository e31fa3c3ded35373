"""ORC files as JSON for people: every event, and the footer."""

from __future__ import annotations

import datetime
import decimal
import io
from collections.abc import Iterator
from typing import Any

import pyorc

from acid_platform.formats.orc.orc_file import OrcFile, open_strange_orc
from acid_platform.formats.orc.pyorc_rows import JAVA_SCALE, TIMESTAMPS, parsing
from acid_platform.formats.orc.strange_files import lone_stripe, reading, require_shallow_types
from acid_platform.formats.orc.tail import is_proleptic
from acid_platform.formats.orc.writer_clocks import shown_day
from acid_platform.storage.files import Files


class _ShownDate(pyorc.converters.DateConverter):
    @staticmethod
    def from_orc(days: int) -> datetime.date:
        return pyorc.converters.DateConverter.from_orc(shown_day(days))


class _ShownTimestamp(pyorc.converters.TimestampConverter):
    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, zone: Any) -> datetime.datetime:
        days, rest = divmod(seconds, 86_400)
        return pyorc.converters.TimestampConverter.from_orc(
            shown_day(days) * 86_400 + rest, nanoseconds, zone
        )


def events(files: Files, path: str) -> Iterator[dict[str, Any]]:
    """Every row of a file as a dict for JSON; rows of ACID files are the five ids and `row`.

    Raises CorruptFile.
    """
    julian: dict[pyorc.TypeKind, type[pyorc.converters.ORCConverter]] = {
        pyorc.TypeKind.DATE: _ShownDate,
        **dict.fromkeys(TIMESTAMPS, _ShownTimestamp),
    }
    file = open_strange_orc(files, path)
    if is_proleptic(file.footer):
        julian = {}
    with parsing(path), files.open(path) as stream:
        for part in [stream] if not file.has_old_decimals else _with_scales(file):
            reader = pyorc.Reader(
                part, struct_repr=pyorc.StructRepr.DICT, converters=julian or None
            )
            for row in reader:
                yield {key: _plain(value) for key, value in row.items()}


def _with_scales(file: OrcFile) -> Iterator[io.BytesIO]:
    """Its stripes, each as a file whose decimals have a scale."""
    for index in range(file.nstripes):
        with reading(file.path):
            file.stripe(index, file.schema.names, as_stored=True)  # raises if a digit would be lost
            yield io.BytesIO(lone_stripe(file, index, in_utc=False, scale=JAVA_SCALE))


def metadata(files: Files, path: str) -> dict[str, Any]:
    """Schema, stripes, compression and user metadata of a file, for JSON. Raises CorruptFile."""
    require_shallow_types(files, path)
    with parsing(path), files.open(path) as stream:
        reader = pyorc.Reader(stream)
        return {
            "schema": str(reader.schema),
            "rows": len(reader),
            "compression": pyorc.CompressionKind(reader.compression).name.lower(),
            "stripes": [
                {"offset": stripe.bytes_offset, "bytes": stripe.bytes_length, "rows": len(stripe)}
                for stripe in reader.iter_stripes()
            ],
            "user_metadata": {
                key: value.decode("utf-8", "replace")
                for key, value in sorted(reader.user_metadata.items())
            },
        }


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case decimal.Decimal() | datetime.date():
            return str(value)
        case bytes():
            return value.hex()
        case _:
            return value
