"""What a log does: append, read, keep snapshots, and name one leader at a time (P10).

Batches have positions without gaps. A log never holds two batches at one position: `append` of a
position that exists is refused. So no clock decides whether a commit counts. A leader that was
replaced finds its next position taken, since a new leader first appends a batch of its own epoch.
The lease in `Leader` only tells others when to try, and a leader whether it may answer reads.

The file of a log is a segment: a header, then batches as lines of text (P3).

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
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from acid_platform.base.object_store import BY_SCHEME
from acid_platform.base.paths import as_uri, user_path, without_credentials
from acid_platform.errors import InvalidDefinition, MetastoreDamaged, MetastoreUnavailable


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that became durable together."""

    position: int
    epoch: int
    """That of the leader that appended it; it never falls."""
    made: int
    """When it was decided, in milliseconds UTC."""
    text: str
    """The events as JSON. The first batch of an epoch has none."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The process that may append, as it wrote itself into the log."""

    epoch: int
    address: str = ""
    """`host:port` at which clients reach it; empty if it has ended."""
    beat: int = 0
    """Counts the renewals of the lease."""
    lease: int = 0
    """Milliseconds for which others do nothing after they have seen a renewal."""
    key: str = field(default="", repr=False)
    """The key of the clients; who may read the log may know it."""
    authority: str = ""
    """The certificate of the authority (PEM) if the leader uses TLS."""


class PositionTaken(MetastoreUnavailable):
    """Another leader has appended: whoever gets this no longer leads."""


class BatchesForgotten(MetastoreDamaged):
    """Batches that are asked for are gone because a snapshot has replaced them: begin with that."""


class Log(Protocol):
    """A log, for one thread, except that `set_leader` may run in another.

    All methods raise OSError, or MetastoreUnavailable if the log can't be reached, and
    MetastoreDamaged if its content can't be right.
    """

    where: str
    """The address by which another process opens it; a path for a local directory."""

    @property
    def place(self) -> str:
        """Where the log is. A copy of the log has another place (P31)."""

    @property
    def history(self) -> str:
        """The id of this sequence of batches: 16 hexadecimal digits."""

    @property
    def exists(self) -> bool:
        """Whether it was created."""

    def create(self, after: int = 0) -> None:
        """Begins a new history, whose first position is the one after `after`."""

    def open_to_append(self) -> None:
        """Finds the end of the log. To be called before the first append, and after a failed one.

        Whatever can be read afterwards is durable.
        """

    def append(self, batch: Batch) -> None:
        """Makes a batch durable.

        If this raises PositionTaken, the batch is not in the log. After another error it may be.
        """

    def read(self, after: int) -> Iterator[Batch]:
        """The batches after this position, in order."""

    def snapshots(self) -> list[int]:
        """The positions of the snapshots, lowest first."""

    def get_snapshot(self, position: int, directory: Path) -> Path:
        """The DuckDB file with the state after the batch at this position.

        It is below `directory` if the log is elsewhere. Raises FileNotFoundError if it is gone.
        """

    def put_snapshot(self, position: int, file: Path, keep_since: int | None = None) -> None:
        """Moves a DuckDB file into the log, and forgets what it replaces.

        Batches up to `position` and older snapshots are kept as far as they are needed to restore
        to a moment from `keep_since` on (milliseconds UTC); None: they are not needed.
        """

    def leader(self) -> Leader | None:
        """Who leads, or led last; None if nobody ever did."""

    def set_leader(self, before: Leader | None, after: Leader) -> bool:
        """Replaces the leader if it still is `before`; returns whether it was."""

    def close(self) -> None:
        """Ends the use of the log."""


def first_after(log: Log, position: int) -> Batch | None:
    """The batch after a position; None if there is none, or if a snapshot has replaced it."""
    try:
        return next(iter(log.read(position)), None)
    except MetastoreDamaged:
        return None


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a log says of itself since it was created."""

    history: str
    place: str
    """Where it was then."""
    after: int
    """Its first position is the next one."""

    @classmethod
    def new(cls, place: str, after: int) -> Beginning:
        return cls(secrets.token_hex(8), place, after)


class SharedLog(Log):
    """Append, leader and snapshots may each be used by a thread of its own."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._number = secrets.token_hex(8)
        """Tells this writer's batches from those of others."""
        self._last: int | None = None
        """The position of the last batch; None if it has to be looked up."""
        self._epoch = 0

    @cached_property
    @abstractmethod
    def beginning(self) -> Beginning:
        """Raises MetastoreDamaged if there is no log."""

    @abstractmethod
    def remove_unused(self) -> bool:
        """Removes the log if it was made by a restore and no metastore ever led it; returns whether
        it did."""

    @property
    def history(self) -> str:
        return self.beginning.history

    def _saved(self) -> int:
        """The position that the newest snapshot has, or with which the log begins."""
        return max([self.beginning.after, *self.snapshots()])

    def _end_at(self, newest: int, last: int, epoch: int) -> None:
        """Appends go on after this batch, or after the newest snapshot if that is later."""
        self._last, self._epoch = (last, epoch) if last >= newest else (newest, 0)

    def _is_next(self, batch: Batch) -> bool:
        """Whether the batch comes next; no if the log has one at its position, which is perhaps an
        earlier attempt of ours. Raises PositionTaken if it can't be appended."""
        if self._last is None:
            self.open_to_append()
            assert self._last is not None
        if batch.position > self._last + 1 or batch.epoch < self._epoch:
            raise PositionTaken(
                f"{self.place} ends with batch {self._last} of epoch {self._epoch}, so batch"
                f" {batch.position} of epoch {batch.epoch} is not the next one"
            )
        return batch.position > self._last

    def _taken(self, position: int) -> PositionTaken:
        return PositionTaken(f"{self.place}: another process has appended batch {position}")

    def _lacks(self, position: int) -> MetastoreDamaged:
        newest = max(self.snapshots(), default=0)
        if position <= newest:
            return BatchesForgotten(
                f"{self.place} no longer holds batch {position}, which the snapshot at {newest}"
                " replaces: begin with that"
            )
        return MetastoreDamaged(
            f"{self.place} lacks batch {position}; put back what is missing, or restore a backup"
        )

    def close(self) -> None:
        self._last = None


_POSTGRES = ("postgresql", "postgres")


def open_log(where: str, patience: float = 10) -> SharedLog:
    """The log at an address; nothing is asked yet, but the region of a bucket.

    `patience`: for how many seconds failing requests are tried again. Raises InvalidDefinition, as
    for an address of another kind, and if a needed package is missing.
    """
    scheme = where.partition("://")[0]
    if scheme in _POSTGRES:
        try:
            from acid_platform.metastore.log.postgres import PostgresLog
        except ModuleNotFoundError as error:
            raise _missing(error, where, "psycopg", "postgres") from error
        return PostgresLog(where, patience)
    if scheme in BY_SCHEME or where.startswith("file:"):
        from acid_platform.metastore.log.objects import ObjectLog

        try:
            return ObjectLog(where, patience)
        except ModuleNotFoundError as error:
            raise _missing(error, where, "obstore", "bucket") from error
    schemes = ", ".join(f"{scheme}://" for scheme in ("postgresql", *BY_SCHEME, "file"))
    raise InvalidDefinition(
        f"{without_credentials(where)} is no place of a log: it begins with none of {schemes}"
    )


def archived_logs(archive: str) -> dict[str, SharedLog]:
    """The logs of an archive by their histories, or the one log at this path or URI."""
    from acid_platform.metastore.log.objects import logs_below

    where = as_uri(user_path(archive))
    log = open_log(where)
    if log.exists:
        return {log.history: log}
    return {history: open_log(f"{where}/{history}") for history in logs_below(where)}


def _missing(error: ModuleNotFoundError, where: str, package: str, extra: str) -> Exception:
    if error.name != package:
        return error
    return InvalidDefinition(
        f"{without_credentials(where)} needs {package}: pip install acid-platform[{extra}]"
    )


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


def encode_batch(batch: Batch, seed: int) -> bytes:
    body = f"{batch.position} {batch.epoch} {batch.made} {batch.text}".encode()
    return b"%b%08x %b%b" % (_RS, zlib.crc32(body, seed), body, _NEWLINE)


def encode_segment(header: Header, batches: Iterable[Batch]) -> bytes:
    return header.line + b"".join(encode_batch(batch, header.seed) for batch in batches)


def decode_batches(data: bytes, header: Header) -> tuple[list[Batch], int]:
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


def batch_after(data: bytes, at: int, header: Header, last: int) -> Batch | None:
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
