"""A stripe of an ORC file as a file of its own, whose footer says other things of it (P64).

ORC's library for C++ is right only about files that say enough of themselves. What others left out
is told here: that timestamps are to be taken for UTC (`writer_zones`), and the scale of decimals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.formats.orc.protobuf import delimited, fields, number
from acid_platform.formats.orc.tail import (
    MAGIC,
    ROWS,
    STATISTICS,
    STRIPES,
    USER_METADATA,
    Postscript,
    Stripe,
    stripes,
    with_scale,
)
from acid_platform.values.arrow_types import leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from acid_platform.formats.orc.orc_file import OrcFile

_GMT = "GMT"
_HEADER_LENGTH, _CONTENT_LENGTH = 1, 2
_LEFT_OUT = (_HEADER_LENGTH, _CONTENT_LENGTH, STRIPES, USER_METADATA, ROWS, STATISTICS)
ZONE = 3
"""The field of a stripe's footer that names the zone of its timestamps."""
JAVA_SCALE = 10
"""ORC's library for Java reads decimals without a scale as decimal(38,10)."""


def stripe_footer(file: OrcFile, index: int) -> tuple[Stripe, bytes]:
    """Where a stripe is, and its footer. Raises CorruptFile."""
    try:
        stripe = [*stripes(file.footer)][index]
        with file.files.open(file.path) as stream:
            if stripe.footer_offset + stripe.footer > stream.size():
                raise ValueError("the file ends before it")
            postscript = _postscript(stream, file)
            stream.seek(stripe.footer_offset)
            described = postscript.opened(bytes(stream.read(stripe.footer)), file.path)
        _ = list(fields(described))
    except (IndexError, ValueError) as error:
        raise CorruptFile(
            f"{file.path} has an unreadable footer of a stripe: {error}; restore the file"
        ) from error
    return stripe, described


def lone_stripe(file: OrcFile, index: int, in_utc: bool, scale: int | None = None) -> bytes:
    """A file of this stripe alone. Raises CorruptFile.

    `in_utc`: its timestamps are taken for UTC. `scale`: that of decimals that have none.
    """
    stripe, described = stripe_footer(file, index)
    with file.files.open(file.path) as stream:
        stream.seek(stripe.offset)
        body = bytes(stream.read(stripe.index + stripe.data))
        postscript = _postscript(stream, file)
    if in_utc:
        described = b"".join(field.raw for field in fields(described) if field.number != ZONE)
        described += delimited(ZONE, _GMT.encode())
    described = postscript.chunks(described)
    start = len(MAGIC)
    lengths = (start, stripe.index, stripe.data, len(described), stripe.rows)
    footer = file.footer if scale is None else with_scale(file.footer, scale)
    tail = postscript.chunks(
        number(_HEADER_LENGTH, start)
        + number(_CONTENT_LENGTH, start + len(body) + len(described))
        + delimited(STRIPES, b"".join(number(key, one) for key, one in enumerate(lengths, 1)))
        + b"".join(field.raw for field in fields(footer) if field.number not in _LEFT_OUT)
        + number(ROWS, stripe.rows)
    )
    return MAGIC + body + described + tail + postscript.renewed(len(tail), metadata=0)


def _postscript(stream: pa.NativeFile, file: OrcFile) -> Postscript:
    size = stream.size() if file.length is None else file.length
    return Postscript.read(stream, size, file.path)[0]


def exact_decimals(decoded: Callable[[int], pa.RecordBatch], path: str) -> pa.RecordBatch:
    """`decoded(JAVA_SCALE)`, where `decoded` makes a batch with a scale for decimals without one.

    ORC's library cuts digits off, and multiplies beyond 128 bits. So the values are also decoded
    without digits after the point, and, modulo 2 ** 128, with as many as there can be. Raises
    UnsupportedLayout for a value that decimal(38,10) can't hold.
    """
    result, whole, finest = decoded(JAVA_SCALE), decoded(0), decoded(38)
    for columns in zip(result.columns, whole.columns, finest.columns, strict=True):
        for parts in zip(*map(leaves, columns), strict=True):
            if parts[0].type == parts[1].type:
                continue
            for value, integer, fine in zip(*map(_numbers, parts), strict=True):
                lost = (fine - value * 10 ** (38 - JAVA_SCALE)) % (1 << 128)
                if lost or abs(integer) >= 10 ** (38 - JAVA_SCALE):
                    raise UnsupportedLayout(
                        f"{path} has decimals without a scale, as Hive 0.11 wrote them, and one of"
                        f" them is no decimal(38,{JAVA_SCALE}), which all readers take them for;"
                        " copy the table with Hive, as strings"
                    )
    return result


def _numbers(decimals: pa.Array) -> list[int]:
    """The numbers without their points, of the values that are not NULL."""
    there = decimals.drop_null()
    content = there.buffers()[1].to_pybytes() if len(there) else b""
    begin = there.offset * 16
    return [
        int.from_bytes(content[at : at + 16], "little", signed=True)
        for at in range(begin, begin + len(there) * 16, 16)
    ]
