"""The values that name past snapshots of tables, and say what keeping them costs (P36)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from acid_platform.errors import WrongType
from acid_platform.transactions import ValidTxnList, ValidWriteIdList


@dataclass(frozen=True, slots=True)
class Pin:
    """A past snapshot of one table, whose files stay as long as somebody holds the pin (P36).

    It sees the commits up to `moment`: a number of the metastore, not a time.
    """

    table_id: int
    moment: int
    write_ids: ValidWriteIdList
    txns: ValidTxnList


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
    """Names a past snapshot: exactly one of a write id, a time and a tag."""

    write_id: int | None = None
    time: int | None = None
    """Milliseconds UTC."""
    tag: str | None = None

    @classmethod
    def of(cls, past: int | datetime | str) -> AsOf:
        """A write id, a time (UTC if it has no zone) or the name of a tag. Raises WrongType."""
        match past:
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
        return f"tag {self.tag}"


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
