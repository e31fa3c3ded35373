"""The values that name past snapshots of tables, and say what keeping them costs (P36)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, Union

from acid_platform.errors import WrongType
from acid_platform.transactions import ValidTxnList, ValidWriteIdList
from acid_platform.transactions.ids import BRIEF

SnapshotName: TypeAlias = Union[int, datetime, str, "AsOf"]
"""A past snapshot of a table: a write id, a time (UTC if it has no zone), a tag, or an AsOf."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A past snapshot of one table, whose files stay as long as somebody holds the pin (P36).

    It sees the commits up to `moment`: a number of the metastore, not a time.
    """

    table_id: int
    moment: int
    write_ids: ValidWriteIdList
    txns: ValidTxnList
    onward: bool = field(default=False, metadata=BRIEF)
    """It also keeps what every later snapshot of the table shows (P39)."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit that may have changed what a table shows (P36).

    `write_id` 0: a compaction, or with `txn_id` 0 a change of the declaration. `at`: milliseconds
    UTC, never before the time of an earlier commit. `rewrite`: it wrote every file again, for
    other columns or another format, and changed no row.
    """

    moment: int
    write_id: int
    txn_id: int
    at: int
    rewrite: bool = field(default=False, metadata=BRIEF)

    @property
    def changes_rows(self) -> bool:
        return self.write_id > 0 and not self.rewrite


def before_commits(
    write_ids: ValidWriteIdList, txns: ValidTxnList, later: Iterable[TableCommit]
) -> tuple[ValidWriteIdList, ValidTxnList]:
    """The lists of a snapshot that sees the same, except for these commits, which count as open."""
    later = tuple(later)
    hidden = {commit.txn_id for commit in later if commit.txn_id and not commit.write_id}
    opened = {commit.write_id for commit in later if commit.write_id}.union(write_ids.open)
    # Aborted ids at the top stay: the base of a compaction may have such a number.
    top, aborted = write_ids.high_watermark, set(write_ids.aborted)
    while top > 0 and top in opened:
        top -= 1
    return (
        ValidWriteIdList.of(write_ids.table, top, _up_to(opened, top), _up_to(aborted, top)),
        ValidTxnList.of(txns.high_watermark, hidden.union(txns.open), txns.aborted),
    )


def _up_to(ids: Iterable[int], top: int) -> set[int]:
    return {write_id for write_id in ids if write_id <= top}


@dataclass(frozen=True, slots=True)
class Tag:
    """A named past snapshot of a table (P36).

    `write_id`: the last one that it sees; -1 if that is not known. `at`: when that was committed.
    `expires`: 0 means never.
    """

    name: str
    pin: Pin
    write_id: int
    at: int
    created: int
    expires: int = 0
    user: str = ""


@dataclass(frozen=True, slots=True)
class AsOf:
    """Names a past snapshot: exactly one of a write id, a time, a tag, a consumer and a moment."""

    write_id: int | None = None
    time: int | None = None
    """Milliseconds UTC."""
    tag: str | None = None
    consumer: str | None = None
    """Where a consumer of changes has come to (P39)."""
    moment: int | None = None
    """A number of the metastore that an earlier answer about the table's changes has told."""

    @classmethod
    def of(cls, past: SnapshotName) -> AsOf:
        """A write id, a time (UTC if it has no zone) or the name of a tag. Raises WrongType."""
        match past:
            case AsOf():
                return past
            case bool():
                pass
            case int():
                return cls(write_id=past)
            case datetime():
                zoned = past.replace(tzinfo=UTC) if past.tzinfo is None else past
                return cls(time=(zoned - _EPOCH) // timedelta(milliseconds=1))
            case str():
                return cls(tag=past)
        raise WrongType(
            f"as_of={past!r}: pass a write id (int), a time (datetime) or the name of a tag (str)"
        )

    def __str__(self) -> str:
        if self.write_id is not None:
            return f"write id {self.write_id}"
        if self.time is not None:
            return utc_text(self.time)
        if self.tag is not None:
            return f"tag {self.tag}"
        if self.moment is not None:
            return f"moment {self.moment} of the metastore"
        return f"the last run of {self.consumer}"


def past_named(text: str) -> int | datetime | str:
    """What people mean by a write id, a time (UTC if it has no zone) or the name of a tag."""
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


NOW = "now"
"""The word of commands and options for the present snapshot."""


def tag_mistaken_for(name: str) -> str:
    """What else than a tag of this name people could mean by it; empty: nothing."""
    if name == NOW:
        return "the present snapshot"
    return {int: "a write id", datetime: "a time"}.get(type(past_named(name)), "")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def utc_text(milliseconds: int) -> str:
    """`2026-11-23 17:05:09.123 UTC`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d} UTC"


@dataclass(frozen=True, slots=True)
class KeptHistory:
    """Since when a table's history is kept, and what that costs (P36).

    `directories` and `bytes` are those that only past snapshots and open readers need. `write_id`:
    the oldest that can be read; -1 if that is not known. `retention`: milliseconds; 0: until the
    next cleaning.
    """

    table: str
    retention: int
    since: int
    write_id: int
    directories: int
    bytes: int
    tags: tuple[Tag, ...]


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a consumer has read the changes of a table (P39).

    `moment`: its snapshot has seen everything up to it. `write_id` and `at`: the last commit up to
    then, for people. `txn_id`: the transaction that moved the cursor. `table`: the name that the
    table had then; empty if an earlier version wrote the cursor.
    """

    consumer: str
    table_id: int
    moment: int
    write_id: int
    at: int
    txn_id: int
    table: str = field(default="", metadata=BRIEF)


@dataclass(frozen=True, slots=True)
class CursorMove:
    """What a commit says of a cursor: it was at the moment `before` (0: nowhere) and goes to
    `after`."""

    consumer: str
    table: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class CursorRow:
    """A cursor with the name of its table.

    `behind`: how many commits of the table it has not seen, of which `last` is the last one's
    moment; all that are forgotten count as one. `refused`: why its next run gets an error instead
    of the changes, and what to do; empty if it gets them.
    """

    table: str
    cursor: Cursor
    behind: int
    last: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Sink:
    """How far a streaming query has written a table (P42).

    `sink`: the name under which it writes. `query`: its id, which its checkpoint keeps. `batch`:
    the number of its last batch, whose `rows` the transaction `txn_id` has committed at `at`,
    milliseconds UTC.
    """

    sink: str
    table_id: int
    query: str
    batch: int
    rows: int
    txn_id: int
    at: int


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """The batch of a streaming query that a commit writes into a table (P42).

    `any_rows`: a repetition may have another number of rows; those of the first attempt count.
    """

    sink: str
    table: str
    query: str
    batch: int
    rows: int
    any_rows: bool = False


@dataclass(frozen=True, slots=True)
class SinkRow:
    """A sink with the name of its table."""

    table: str
    sink: Sink
