"""The file of a log: a header, then batches as lines of text (P3).

    RS  checksum  position  epoch  moment  JSON  newline

JSON contains neither a raw RS nor a raw newline, so batches can be found again after damage. The
checksums begin with that of the header, which has a number of its own: batches of another file, or
of an earlier use of the same file, don't match.
"""

from __future__ import annotations

import json
import re
import secrets
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property

from acid_platform.errors import MetastoreDamaged
from acid_platform.metastore.log.contract import Batch

_RS, _NEWLINE = b"\x1e", b"\n"
_HEADER = re.compile(rb"acid metastore log 1 (\{[^\n]*\}) ([0-9a-f]{8})\n")
_NAME = re.compile(r"journal-(\d{16})\.log")
_SNAPSHOT = re.compile(r"snapshot-(\d{16})\.duckdb")


def segment_name(first: int) -> str:
    return f"journal-{first:016}.log"


def snapshot_name(position: int) -> str:
    return f"snapshot-{position:016}.duckdb"


def segment_first(name: str) -> int | None:
    """The position of the first batch in a segment of this name; None for another file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def snapshot_position(name: str) -> int | None:
    """The position of a snapshot of this name; None for another file."""
    match = _SNAPSHOT.fullmatch(name)
    return int(match[1]) if match else None


def is_part(name: str) -> bool:
    """Whether a file of this name belongs to a log."""
    return name.startswith(("journal", "snapshot-"))


@dataclass(frozen=True)
class Header:
    """The first line of a segment."""

    history: str
    first: int
    """The position of the first batch."""
    place: str = ""
    """Where the log was when the segment began (P31)."""
    number: str = ""
    """Tells this use of the file from earlier ones."""
    follows: str = ""
    """The history of the batch before the first; empty if there is none."""

    @classmethod
    def new(cls, history: str, first: int, place: str = "", follows: str = "") -> Header:
        return cls(history, first, place, secrets.token_hex(8), follows)

    @classmethod
    def parse(cls, data: bytes) -> Header | None:
        """None if the data don't begin with a whole header."""
        match = _HEADER.match(data)
        if match is None or match[2] != _checksum(match[1]):
            return None
        try:
            return cls(**json.loads(match[1]))
        except (ValueError, TypeError, RecursionError):
            return None

    @cached_property
    def line(self) -> bytes:
        fields = json.dumps(asdict(self)).encode()
        return b"acid metastore log 1 %b %b\n" % (fields, _checksum(fields))

    @cached_property
    def seed(self) -> int:
        """With which the checksum of each batch begins."""
        return zlib.crc32(self.line)


def _checksum(fields: bytes) -> bytes:
    return b"%08x" % zlib.crc32(fields)


def encode(batch: Batch, seed: int) -> bytes:
    body = f"{batch.position} {batch.epoch} {batch.made} {batch.text}".encode()
    return b"%b%08x %b%b" % (_RS, zlib.crc32(body, seed), body, _NEWLINE)


def whole(header: Header, batches: Iterable[Batch]) -> bytes:
    return header.line + b"".join(encode(batch, header.seed) for batch in batches)


def run(data: bytes, header: Header) -> tuple[list[Batch], int]:
    """The batches from the first one on, as long as their positions are consecutive, and the byte
    after the last."""
    batches: list[Batch] = []
    at, expected = len(header.line), header.first
    while (decoded := _decode(data, at, header.seed)) is not None:
        batch, end = decoded
        if batch.position != expected:
            break
        batches.append(batch)
        at, expected = end, expected + 1
    return batches, at


def later(data: bytes, at: int, header: Header, last: int) -> Batch | None:
    """A batch after position `last` that stands anywhere after a byte that can't be read."""
    while (at := data.find(_RS, at)) >= 0:
        decoded = _decode(data, at, header.seed)
        if decoded is not None and decoded[0].position > last:
            return decoded[0]
        at += 1
    return None


def _decode(data: bytes, at: int, seed: int) -> tuple[Batch, int] | None:
    """The batch at this byte and its end; None if there is no complete batch.

    Raises MetastoreDamaged for one that no metastore wrote.
    """
    end = data.find(_NEWLINE, at)
    if end < 0 or data[at : at + 1] != _RS:
        return None
    checksum, body = data[at + 1 : at + 9], data[at + 10 : end]
    # Compared as text: a changed bit may turn a hexadecimal digit into its other case.
    if data[at + 9 : at + 10] != b" " or checksum != b"%08x" % zlib.crc32(body, seed):
        return None
    try:
        position, epoch, made, text = body.split(b" ", 3)
        return Batch(int(position), int(epoch), int(made), text.decode()), end + 1
    except ValueError as error:
        raise MetastoreDamaged(
            f"the batch at byte {at} of a segment has the right checksum, and is none of a"
            f" metastore's: {error}; restore a backup"
        ) from error
