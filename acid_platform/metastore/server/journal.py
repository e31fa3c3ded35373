"""The journal: batches of events that are not in the tables yet, in a file of their own (P3).

An INSERT into DuckDB costs 1 ms of CPU, an append with fdatasync 0.05 ms. The file is text: a
header with its identity, then a record for each batch:

    RS  checksum  number of the first event  of the last  JSON  newline

JSON contains neither a raw RS nor a raw newline, so records can be found again after damage.
Numbers have no gaps and never restart. Once the tables have all events, the next record overwrites
the first: writing to blocks that the file already has is durable sooner (0.17 ms instead of 0.32).
So older records, with lower numbers, may follow the last record.

Detected: any changed bit of a record (CRC-32), a missing number, records of another log. If a later
record follows, the log is damaged and is refused. If none follows, the broken record is the last
write, torn by a power cut before it was acknowledged, and the log ends before it.

Not detected: that this last record was acknowledged and damaged afterwards; and that the log was
cut off after a whole record.
"""

from __future__ import annotations

import os
import re
import secrets
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from acid_platform.base.disk import sync_data, sync_path
from acid_platform.errors import MetastoreDamaged

_RS, _NEWLINE = b"\x1e", b"\n"
_HEADER = re.compile(rb"acid metastore log 1 ([0-9a-f]{32}) ([0-9a-f]{8})\n")
_HEADER_SIZE = 63
_KEPT_SIZE = 16 << 20
"""A log that has grown beyond this size is truncated once the tables have its events."""
_NEXT_STEP = (
    "restore a backup (`acid metastore restore FILE --replace` puts these files aside);"
    " what came after it will be in doubt"
)


@dataclass(frozen=True, slots=True)
class Record:
    """A batch of events that became durable together."""

    first: int
    last: int
    text: str
    """The events as JSON."""


def beside(database: Path) -> Path:
    """The path of a metastore file's log."""
    return database.with_suffix(".log")


def create(path: Path, records: Sequence[Record] = ()) -> str:
    """Writes a log, replacing any other, and returns its identity. Raises OSError."""
    identity = secrets.token_hex(16)
    header = _header(identity)
    draft = path.with_name(path.name + ".new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(header + b"".join(_encode(record, zlib.crc32(header)) for record in records))
        file.flush()
        sync_data(file.fileno())
    os.replace(draft, path)
    sync_path(path.parent)
    return identity


class Log:
    """An open log, for one thread.

    `identity` is what `create` returned, and `folded` the number of the last event in the tables.
    Every record that is found is made durable, even if its writer was killed before it synced it.
    Raises MetastoreDamaged if the log is missing, damaged or another one, and OSError.
    """

    def __init__(self, path: Path, identity: str, folded: int) -> None:
        self._path, self._folded = path, folded
        self._seed = zlib.crc32(_header(identity))
        try:
            self._file = os.open(path, os.O_RDWR)
        except FileNotFoundError as error:
            raise MetastoreDamaged(
                f"{path} is missing, which holds commits that {path.stem}.duckdb does not; put it"
                f" back, or {_NEXT_STEP}"
            ) from error
        try:
            data = self._read()
            self._refuse_another(data, identity)
            run, self._end = self._run(data)
            self._last = max(folded, run[-1].last if run else 0)
            late = [record for record in run if record.first > folded]
            self._refuse_damage(data, late)
            if late:
                # After a failed fdatasync the page cache may still show it, so it is written again.
                last = _encode(late[-1], self._seed)
                _write(self._file, last, self._end - len(last))
                sync_data(self._file)
            else:
                self._end = _HEADER_SIZE
        except BaseException:
            self.close()
            raise

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._last

    @property
    def length(self) -> int:
        """The number of events that the tables lack."""
        return self._last - self._folded

    def append(self, count: int, text: str) -> Record:
        """Makes a batch of `count` events durable: one write, one fdatasync.

        Raises OSError; then the batch is not in the log. If it can't be removed from the log
        either, the log is closed: whoever opens it again learns what it holds.
        """
        record = Record(self._last + 1, self._last + count, text)
        data = _encode(record, self._seed)
        try:
            _write(self._file, data, self._end)
            sync_data(self._file)
        except BaseException:
            self._take_back()
            raise
        self._end += len(data)
        self._last = record.last
        return record

    def records(self) -> list[Record]:
        """The records that the tables lack, in order. Raises MetastoreDamaged, OSError."""
        run, end = self._run(self._read()[: self._end])
        if end != self._end:
            raise MetastoreDamaged(
                f"{self._path} was changed at byte {end} by another program; {_NEXT_STEP}"
            )
        return [record for record in run if record.first > self._folded]

    def rewind(self) -> None:
        """Makes the next record overwrite the first; the tables must have all events."""
        self._end, self._folded = _HEADER_SIZE, self._last

    def shrink(self) -> None:
        """Truncates a log that has grown long, if the tables have all events.

        Only once DuckDB has checkpointed them: the records stand in for a torn write-ahead log.
        """
        if self._end == _HEADER_SIZE and os.fstat(self._file).st_size > _KEPT_SIZE:
            # Otherwise the records stay, and their numbers tell readers to skip them.
            with suppress(OSError):
                os.ftruncate(self._file, _HEADER_SIZE)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._file, self._end)
            sync_data(self._file)
        except OSError:
            self.close()

    # --- reading ------------------------------------------------------------------------------

    def _read(self) -> bytes:
        parts, size = [], 0
        while part := os.pread(self._file, 1 << 20, size):
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def _run(self, data: bytes) -> tuple[list[Record], int]:
        """The records from the first one on, as long as their numbers are consecutive, and their
        end."""
        run: list[Record] = []
        at = _HEADER_SIZE
        while (decoded := _decode(data, at, self._seed)) is not None:
            record, end = decoded
            if run and record.first != run[-1].last + 1:
                break
            run.append(record)
            at = end
        return run, at

    def _refuse_another(self, data: bytes, identity: str) -> None:
        if data.startswith(_header(identity)):
            return
        said = _HEADER.match(data)
        if said and said[0] == _header(said[1].decode()):
            raise MetastoreDamaged(
                f"{self._path} is the log of another metastore file than the one beside it; put the"
                f" files together that belong together, or {_NEXT_STEP}"
            )
        raise MetastoreDamaged(f"{self._path} is damaged at byte 0, its header; {_NEXT_STEP}")

    def _refuse_damage(self, data: bytes, late: Sequence[Record]) -> None:
        if late and late[0].first > self._folded + 1:
            raise MetastoreDamaged(
                f"{self._path} begins with event {late[0].first}, but the tables beside it end with"
                f" event {self._folded}: the two files are not of the same moment; {_NEXT_STEP}"
            )
        at = self._end
        while (at := data.find(_RS, at)) >= 0:
            decoded = _decode(data, at, self._seed)
            if decoded is not None and decoded[0].last > self._last:
                raise MetastoreDamaged(
                    f"{self._path} is damaged at byte {self._end}: event {self._last + 1} can't be"
                    f" read, and event {decoded[0].last} comes after it; {_NEXT_STEP}"
                )
            at += 1


def _header(identity: str) -> bytes:
    text = f"acid metastore log 1 {identity} ".encode()
    return b"%b%08x\n" % (text, zlib.crc32(text))


def _encode(record: Record, seed: int) -> bytes:
    body = f"{record.first} {record.last} {record.text}".encode()
    return b"%b%08x %b%b" % (_RS, zlib.crc32(body, seed), body, _NEWLINE)


def _decode(data: bytes, at: int, seed: int) -> tuple[Record, int] | None:
    """The record at this byte and its end; None if there is no complete record."""
    end = data.find(_NEWLINE, at)
    if end < 0 or data[at : at + 1] != _RS:
        return None
    checksum, body = data[at + 1 : at + 9], data[at + 10 : end]
    # Compared as text: a changed bit may turn a hexadecimal digit into its other case.
    if data[at + 9 : at + 10] != b" " or checksum != b"%08x" % zlib.crc32(body, seed):
        return None
    first, last, text = body.split(b" ", 2)
    return Record(int(first), int(last), text.decode()), end + 1


def _write(file: int, data: bytes, at: int) -> None:
    # On a full disk a write may succeed in part, and only the next write fails.
    while data:
        done = os.pwrite(file, data, at)
        data, at = data[done:], at + done
