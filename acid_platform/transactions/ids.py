"""States, types and operations of transactions, and what a snapshot sees: ValidTxnList and
ValidWriteIdList, in exactly Hive's text forms.

Rules S2, S3, S5, S6 (transactions) and S11 to S16 (write ids).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import (
    Literal,
)

from acid_platform.errors import Terminal

BRIEF = {"brief": True}
"""Field metadata: the field is omitted while it is empty."""


NONE_OPEN = (1 << 63) - 1
"""Hive's value of `minOpen` when no transaction is open."""


class TxnState(Enum):
    OPEN = "o"
    ABORTED = "a"
    COMMITTED = "c"


Isolation = Literal["snapshot", "serializable"]
"""What a transaction promises: it reads one snapshot, or also that nobody has changed what it read
when it commits (P52)."""


class TxnType(Enum):
    """The supported types of transactions."""

    DEFAULT = 0
    READ_ONLY = 2
    COMPACTION = 4


class RowOperation(Enum):
    """What a transaction does to an entity; the letters are Hive's."""

    SELECT = "s"
    INSERT = "i"
    UPDATE = "u"
    DELETE = "d"
    OVERWRITE = "o"
    """INSERT OVERWRITE and TRUNCATE. Hive records them as updates; here they have their own
    operation, since they also replace concurrently inserted rows."""
    COMPACT = "c"

    @property
    def writes(self) -> bool:
        return self is RowOperation.INSERT or self.changes

    @property
    def changes(self) -> bool:
        """Whether the operation touches existing rows."""
        return self in (RowOperation.UPDATE, RowOperation.DELETE, RowOperation.OVERWRITE)


class RangeResponse(Enum):
    """How much of an id range is valid, or aborted."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


class MalformedList(Terminal):
    """The text is not a transaction list or write id list in Hive's form."""


def _ids(text: str, whole: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",") if part}))
    except ValueError as error:
        raise MalformedList(f"{whole!r} has an id that is not a number: {text!r}") from error


def _count_between(ids: tuple[int, ...], low: int, high: int) -> int:
    """The number of the sorted ids in low..high."""
    return bisect_left(ids, high + 1) - bisect_left(ids, low)


def _contains(ids: tuple[int, ...], id_: int) -> bool:
    at = bisect_left(ids, id_)
    return at < len(ids) and ids[at] == id_


@dataclass(frozen=True, slots=True)
class _IdList:
    """A high watermark and exceptions below it, ascending; ids above the watermark are invalid."""

    high_watermark: int
    open: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    min_open: int = NONE_OPEN

    def is_valid(self, id_: int) -> bool:
        """Whether the id is visible: not above the watermark, open or aborted (S3, S11)."""
        return (
            id_ <= self.high_watermark
            and not _contains(self.open, id_)
            and not _contains(self.aborted, id_)
        )

    def is_aborted(self, id_: int) -> bool:
        return _contains(self.aborted, id_)

    def range_valid(self, low: int, high: int) -> RangeResponse:
        """How many of low..high are valid (S6, S14)."""
        if low > self.high_watermark:
            return RangeResponse.NONE
        top = min(high, self.high_watermark)
        invalid = _count_between(self.open, low, top) + _count_between(self.aborted, low, top)
        invalid += high - top
        if invalid == 0:
            return RangeResponse.ALL
        return RangeResponse.NONE if invalid == high - low + 1 else RangeResponse.SOME

    def range_aborted(self, low: int, high: int) -> RangeResponse:
        """How many of low..high are aborted (S6, S14)."""
        count = _count_between(self.aborted, low, high)
        if count == 0:
            return RangeResponse.NONE
        return RangeResponse.ALL if count == high - low + 1 else RangeResponse.SOME

    def aborted_between(self, low: int, high: int) -> tuple[int, ...]:
        """The aborted ids in low..high, including those above the watermark, ascending."""
        return self.aborted[bisect_left(self.aborted, low) : bisect_left(self.aborted, high + 1)]

    def open_between(self, low: int, high: int) -> tuple[int, ...]:
        """The open ids in low..high, including those above the watermark, ascending."""
        return self.open[bisect_left(self.open, low) : bisect_left(self.open, high + 1)]

    def _body(self) -> str:
        opened, aborted = (",".join(map(str, ids)) for ids in (self.open, self.aborted))
        return f"{self.high_watermark}:{self.min_open}:{opened}:{aborted}"


def _parse_body(fields: list[str], whole: str) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
    if len(fields) != 4:
        raise MalformedList(
            f"{whole!r} is not a list of high watermark:lowest open id:open ids:aborted ids,"
            " such as 12:5:5,9:7,10"
        )
    try:
        high_watermark, min_open = int(fields[0]), int(fields[1])
    except ValueError as error:
        raise MalformedList(f"{whole!r} does not start with two numbers") from error
    return high_watermark, _ids(fields[2], whole), _ids(fields[3], whole), min_open


@dataclass(frozen=True, slots=True)
class ValidTxnList(_IdList):
    """Which transactions a snapshot sees. `str()` and `parse()` use Hive's form (S5)."""

    @classmethod
    def of(
        cls, high_watermark: int, open: Iterable[int] = (), aborted: Iterable[int] = ()
    ) -> ValidTxnList:
        opened = tuple(sorted(open))
        least = opened[0] if opened else NONE_OPEN
        return cls(high_watermark, opened, tuple(sorted(aborted)), least)

    @classmethod
    def everything(cls) -> ValidTxnList:
        """A list in which every transaction is committed (S5)."""
        return cls(NONE_OPEN)

    @classmethod
    def parse(cls, text: str) -> ValidTxnList:
        """Parses Hive's form. Raises MalformedList."""
        return cls(*_parse_body(text.split(":"), text))

    def for_reader(self, me: int) -> ValidTxnList:
        """The list as transaction `me` sees it: it ends at `me` and includes it (S2)."""
        if me <= 0:
            return self
        return ValidTxnList(
            min(me, self.high_watermark),
            self.open[: bisect_left(self.open, me)],
            self.aborted[: bisect_left(self.aborted, me)],
            self.min_open if self.min_open < me else NONE_OPEN,
        )

    def __str__(self) -> str:
        return self._body()


@dataclass(frozen=True, slots=True)
class ValidWriteIdList(_IdList):
    """Which write ids of one table a snapshot sees. `str()` and `parse()` use Hive's form (S13).

    `table` is `db.name`. Data from before the table became transactional has write id 0 and is
    always valid.
    """

    table: str = ""

    @classmethod
    def of(
        cls,
        table: str,
        high_watermark: int,
        open: Iterable[int] = (),
        aborted: Iterable[int] = (),
    ) -> ValidWriteIdList:
        opened = tuple(sorted(open))
        least = opened[0] if opened else NONE_OPEN
        return cls(high_watermark, opened, tuple(sorted(aborted)), least, table)

    @classmethod
    def parse(cls, text: str) -> ValidWriteIdList:
        """Parses Hive's form. Raises MalformedList."""
        table, _, body = text.partition(":")
        return cls(*_parse_body(body.split(":"), text), table)

    def is_valid_base(self, write_id: int) -> bool:
        """Whether a compacted base holds no open write id and none above the watermark (S12)."""
        return write_id < 0 or (write_id < self.min_open and write_id <= self.high_watermark)

    def seeing(self, own: int) -> ValidWriteIdList:
        """The list for the transaction that holds write id `own` and so sees its own writes.

        The watermark rises to `own`; the ids in between stay invisible, as exceptions.
        """
        hidden = set(range(self.high_watermark + 1, own)).difference(self.aborted)
        return ValidWriteIdList.of(
            self.table,
            max(self.high_watermark, own),
            {i for i in (*self.open, *hidden) if i != own},
            self.aborted,
        )

    def for_compactor(self) -> CompactorWriteIdList:
        """The compactor's list, which ends below the lowest open write id (S16)."""
        top = min(self.min_open - 1, self.high_watermark) if self.open else self.high_watermark
        return CompactorWriteIdList(
            top, (), tuple(i for i in self.aborted if i <= top), NONE_OPEN, self.table
        )

    def capped(self, high_watermark: int) -> ValidWriteIdList:
        """The list cut off at a lower watermark (S17)."""
        top = min(self.high_watermark, high_watermark)
        return ValidWriteIdList.of(
            self.table, top, (i for i in self.open if i <= top), self.aborted
        )

    def __str__(self) -> str:
        return f"{self.table}:{self._body()}"


@dataclass(frozen=True, slots=True)
class CompactorWriteIdList(ValidWriteIdList):
    """What a compaction may merge (S16): only whole ranges at or below the watermark."""

    def range_valid(self, low: int, high: int) -> RangeResponse:  # noqa: ARG002, it overrides
        return RangeResponse.ALL if high <= self.high_watermark else RangeResponse.NONE
