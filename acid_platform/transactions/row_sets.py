"""Which rows a transaction concerns: sets of rows as text, by their keys (P38), and regions of rows
by their values: what a condition looked for, what an INSERT brought (P51).

A region may have more rows than were looked for or inserted, never fewer: what is not known does
not narrow it.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache, reduce
from hashlib import blake2b
from itertools import accumulate, islice, product, repeat
from math import prod
from typing import NamedTuple

from acid_platform.errors import MalformedRows
from acid_platform.layout.file_entries import MOST_TEXT
from acid_platform.transactions.ids import BRIEF

RowKey = tuple[int, int, int]
"""Write id, bucket property, rowId."""

_N = r"(?:0|[1-9]\d*)"
_GROUP = rf"{_N}:{_N}(?:,{_N})*(?:/{_N}(?:,{_N})*)?"
_BUCKET = rf"{_N}@{_GROUP}(?:;{_GROUP})*"
_TEXT = re.compile(rf"~?(?:{_BUCKET}(?: {_BUCKET})*)?")


@dataclass(frozen=True, slots=True)
class RowSet:
    """The rows of one entity that a transaction updated or deleted; `parse` checks the text.

    The text lists runs of consecutive rowIds by bucket property and write id. In
    `536870912@3:0,7,2/5,1,1;4:8 536936448@3:1` the rows of bucket 536870912 and write id 3 are 0 to
    4, 7 and 9: the numbers before the slash are the distances between the first rows of the runs,
    those after it the lengths of the runs. Without a slash all lengths are 1. A leading `~` says
    that the set has been shortened, by rows that were not changed but lie between changed ones.
    """

    text: str = ""

    @classmethod
    def parse(cls, text: str) -> RowSet:
        """Raises MalformedRows."""
        if not _TEXT.fullmatch(text):
            raise MalformedRows(f"{text[:80]!r} is not a set of rows as RowSet writes it")
        return cls(text)

    def checked(self) -> RowSet:
        """Returns the set itself. Raises MalformedRows if its runs do not ascend, or overlap."""
        for body in _groups(self.text).values():
            steps, _, listed = body.partition("/")
            if not listed:  # runs of one row each: no distance but the first may be 0
                ascend = ",0," not in f"{steps},"
            else:
                _, *distances = map(int, steps.split(","))
                lengths = list(map(int, listed.split(",")))
                if len(lengths) != len(distances) + 1:
                    raise MalformedRows(
                        f"{body[:80]!r}: {len(lengths)} lengths, {len(distances) + 1} runs"
                    )
                ascend = 0 not in lengths and all(map(int.__ge__, distances, lengths))
            if not ascend:
                raise MalformedRows(f"{body[:80]!r}: its runs do not ascend")
        return self

    @property
    def exact(self) -> bool:
        """Whether each row of the set was changed."""
        return not self.text.startswith("~")

    def shared(self, other: RowSet, most: int = 3) -> list[RowKey]:
        """Rows that are in both sets, at most so many; none only if there are none."""
        mine, theirs = _groups(self.text), _groups(other.text)
        fewer, more = (mine, theirs) if len(mine) <= len(theirs) else (theirs, mine)
        rows = (
            (int(write_id), int(bucket), row)
            for bucket, write_id in fewer
            if (bucket, write_id) in more
            for row in _both(mine[bucket, write_id], theirs[bucket, write_id])
        )
        return list(islice(rows, most))

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=64)
def _groups(text: str) -> dict[tuple[str, str], str]:
    """The runs of each bucket and write id, as text. Each commit compares its set several times."""
    groups = {}
    for part in text.removeprefix("~").split():
        bucket, _, listed = part.partition("@")
        for group in listed.split(";"):
            write_id, _, body = group.partition(":")
            groups[bucket, write_id] = body
    return groups


def _runs(body: str) -> tuple[list[int], list[int]]:
    """The first rowIds of the runs, and their lengths; no lengths if all are 1."""
    steps, _, lengths = body.partition("/")
    firsts = list(accumulate(map(int, steps.split(","))))
    return firsts, list(map(int, lengths.split(","))) if lengths else []


def _both(mine: str, theirs: str) -> Iterator[int]:
    """The rows of both; of runs they come one by one."""
    (a, a_lengths), (b, b_lengths) = _runs(mine), _runs(theirs)
    if not a_lengths and not b_lengths:
        yield from sorted(set(a).intersection(b))
        return
    if len(a) > len(b):
        a, a_lengths, b, b_lengths = b, b_lengths, a, a_lengths
    b_ends = _ends(b, b_lengths)
    for first, end in zip(a, _ends(a, a_lengths), strict=True):
        at = bisect_left(b_ends, first + 1)
        while at < len(b) and b[at] < end:
            yield from range(max(first, b[at]), min(end, b_ends[at]))
            at += 1


def _ends(firsts: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """The rowId after each run."""
    return list(map(int.__add__, firsts, lengths or repeat(1)))


_PLAIN = re.compile(r"-?\d{1,40}(\.\d{1,40})?", re.ASCII)
"""A number without an exponent, which could stand for a billion digits."""
MOST_SPANS = 64
"""A column with more spans gets one, from the lowest to the highest value."""
MOST_KEYS = 1024
"""A region with more keys has none, and is told by its spans alone."""
MOST_REGIONS = 64
"""A transaction with more regions gets one for each table."""
_SIZE = 8
"""Bytes of a hash."""

Value = int | Decimal | str
"""A number, the days of a date since 1970, or a text, which is ordered by its code points."""


class Span(NamedTuple):
    """All values from `low` to `high`, both included; None: there is no bound on this side."""

    low: str | None
    high: str | None


@dataclass(frozen=True, slots=True)
class ColumnSpans:
    """A row has no value in the column, or one in one of the spans."""

    numbers: bool
    """Whether the bounds are numbers, or days, and no texts."""
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, bounds: Iterable[tuple[Value | None, Value | None]]) -> ColumnSpans:
        """Bounds are all numbers, or all texts; a long text is cut so that it stays a bound."""
        listed = list(bounds)
        texts = any(isinstance(bound, str) for pair in listed for bound in pair)
        return cls(not texts, tuple(Span(_low(low), _high(high)) for low, high in listed)).few()

    def few(self) -> ColumnSpans:
        """With at most MOST_SPANS spans."""
        if len(self.spans) <= MOST_SPANS:
            return self
        lows, highs = (
            [self._bound(bound) for bound in side] for side in zip(*self.spans, strict=True)
        )
        low = None if None in lows else str(min(lows))  # type: ignore[type-var]
        high = None if None in highs else str(max(highs))  # type: ignore[type-var]
        return ColumnSpans(self.numbers, (Span(low, high),))

    @property
    def values(self) -> list[Value]:
        """All its values; none if they can't be listed."""
        lows = [span.low for span in self.spans if span.low is not None and span.low == span.high]
        if len(lows) < len(self.spans) or (self.numbers and not all(map(_PLAIN.fullmatch, lows))):
            return []
        return [*map(_number, lows)] if self.numbers else [*lows]

    def meets(self, other: ColumnSpans) -> bool:
        """Whether a value may be in both."""
        if self.numbers != other.numbers and self.spans and other.spans:
            return True  # the column got another type in between
        return any(
            self._at_most(span.low, two.high) and self._at_most(two.low, span.high)
            for span in self.spans
            for two in other.spans
        )

    def _at_most(self, low: str | None, high: str | None) -> bool:
        if low is None or high is None:
            return True
        return self._bound(low) <= self._bound(high)  # type: ignore[operator]

    def _bound(self, text: str | None) -> Decimal | str | None:
        return text if text is None or not self.numbers else _number(text)

    def both(self, other: ColumnSpans) -> ColumnSpans:
        """Spans that have every value which is in both."""
        if self.numbers != other.numbers or len(self.spans) * len(other.spans) > MOST_SPANS:
            return self if len(self.spans) <= len(other.spans) else other
        return ColumnSpans(
            self.numbers,
            tuple(
                Span(self._larger(span.low, two.low), self._smaller(span.high, two.high))
                for span in self.spans
                for two in other.spans
                if self._at_most(span.low, two.high) and self._at_most(two.low, span.high)
            ),
        )

    def _larger(self, mine: str | None, other: str | None) -> str | None:
        if mine is None or other is None:
            return other if mine is None else mine
        return other if self._at_most(mine, other) else mine

    def _smaller(self, mine: str | None, other: str | None) -> str | None:
        if mine is None or other is None:
            return other if mine is None else mine
        return mine if self._at_most(mine, other) else other

    def either(self, other: ColumnSpans) -> ColumnSpans | None:
        """Spans that have the values of both; None if they can't be compared."""
        if not self.spans or not other.spans:
            return self if self.spans else other
        if self.numbers != other.numbers:
            return None
        return ColumnSpans(self.numbers, tuple(dict.fromkeys(self.spans + other.spans))).few()


@lru_cache(maxsize=4096)
def _number(text: str) -> Decimal:
    return Decimal(text)


def _low(bound: Value | None) -> str | None:
    return bound[:MOST_TEXT] if isinstance(bound, str) else None if bound is None else str(bound)


def _high(bound: Value | None) -> str | None:
    if bound is None or (isinstance(bound, str) and len(bound) > MOST_TEXT):
        return None
    return str(bound)


@dataclass(frozen=True, slots=True)
class KeyHashes:
    """The hashes of the values that rows have in these columns, in ascending order, as base64."""

    columns: tuple[str, ...]
    hashes: str

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> KeyHashes | None:
        """Hashes the values of rows in columns of any order; None if there are too many."""
        order = sorted(range(len(columns)), key=columns.__getitem__)
        hashes = set[bytes]()
        for row in rows:
            text = "\0".join(_hashed(row[index]) for index in order)
            hashes.add(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest())
            if len(hashes) > MOST_KEYS:
                return None
        named = tuple(columns[index] for index in order)
        return cls(named, _joined(hashes))

    def meets(self, other: KeyHashes) -> bool:
        """Whether a row may have a key in both."""
        if self.columns != other.columns:
            return True
        return not _each(self.hashes).isdisjoint(_each(other.hashes))

    def either(self, other: KeyHashes) -> KeyHashes | None:
        """The keys of both; None if they can't be told so."""
        hashes = _each(self.hashes) | _each(other.hashes)
        if self.columns != other.columns or len(hashes) > MOST_KEYS:
            return None
        return KeyHashes(self.columns, _joined(hashes))


def _hashed(value: Value) -> str:
    """A text that equal values share, and only they: 5 is 5.00, and no key ends inside another."""
    if isinstance(value, str):
        return f"s{len(value)}:{value}"
    if isinstance(value, Decimal):
        whole = value.to_integral_value()
        return f"n{int(whole)}" if whole == value else f"n{value.normalize():f}"
    return f"n{value}"


def _joined(hashes: Iterable[bytes]) -> str:
    return b64encode(b"".join(sorted(hashes))).decode()


@lru_cache(maxsize=64)
def _each(hashes: str) -> frozenset[bytes]:
    joined = b64decode(hashes, validate=True)
    return frozenset(joined[at : at + _SIZE] for at in range(0, len(joined), _SIZE))


@dataclass(frozen=True, slots=True)
class Region:
    """Rows that have, in each column of `columns`, NULL or a value in one of its spans, and a key
    among `keys`. A row that a condition looks for has no NULL there.

    `compared`: all the columns that the condition reads, or those that an UPDATE assigned. Without
    any, the condition may read all columns, or the rows are new.
    """

    columns: dict[str, ColumnSpans] = field(default_factory=dict)
    keys: KeyHashes | None = field(default=None, metadata=BRIEF)
    compared: tuple[str, ...] = field(default=(), metadata=BRIEF)

    def meets(self, other: Region) -> bool:
        """Whether a row that one of them looks for may be one that the other has brought: inserted,
        or updated in a column that the condition reads."""
        if self.compared and other.compared and set(self.compared).isdisjoint(other.compared):
            return False
        mine = self.keys or (other.keys and self._keys_in(other.keys.columns))
        theirs = other.keys or (self.keys and other._keys_in(self.keys.columns))
        if mine and theirs and not mine.meets(theirs):
            return False
        return all(
            spans.meets(other.columns[name])
            for name, spans in self.columns.items()
            if name in other.columns
        )

    def _keys_in(self, columns: Sequence[str]) -> KeyHashes | None:
        """The keys of all its rows; None unless each of the columns has few values."""
        values = [self.columns[name].values for name in columns if name in self.columns]
        if len(values) < len(columns) or prod(map(len, values)) > MOST_SPANS:
            return None
        return KeyHashes.of(columns, product(*values)) if all(values) else None

    @property
    def assigned(self) -> Region:
        """The rows that have the values which an UPDATE assigned, if it is what an UPDATE wrote."""
        spans = {name: each for name, each in self.columns.items() if name in self.compared}
        return Region(spans)

    def either(self, other: Region) -> Region:
        """A region that has the rows of both."""
        shared = self.columns.keys() & other.columns.keys()
        spans = {name: self.columns[name].either(other.columns[name]) for name in sorted(shared)}
        keys = self.keys and other.keys and self.keys.either(other.keys)
        known = {name: each for name, each in spans.items() if each is not None}
        return Region(known, keys, self._all_compared(other))

    def both(self, other: Region) -> Region:
        """A region that has every row that is in both."""
        spans = dict(self.columns)
        for name, theirs in other.columns.items():
            spans[name] = spans[name].both(theirs) if name in spans else theirs
        return Region(spans, self.keys or other.keys, self._all_compared(other))

    def _all_compared(self, other: Region) -> tuple[str, ...]:
        every = {*self.compared, *other.compared} if self.compared and other.compared else ()
        return tuple(sorted(every))

    def checked(self) -> Region:
        """Returns the region itself. Raises MalformedRows for bounds and hashes that are none, or
        too many: two regions are compared span by span."""
        try:
            for spans in self.columns.values():
                if len(spans.spans) > MOST_SPANS:
                    raise ValueError(f"{len(spans.spans)} spans, and {MOST_SPANS} at most")
                for bound in (bound for span in spans.spans for bound in span if spans.numbers):
                    if bound is not None and not _number(bound).is_finite():
                        raise ValueError(f"{bound!r} is no number")
            keys = b64decode(self.keys.hashes, validate=True) if self.keys else b""
            if len(keys) % _SIZE:
                raise ValueError("a hash is cut")
            if len(keys) > MOST_KEYS * _SIZE:
                raise ValueError(f"{len(keys) // _SIZE} keys, and {MOST_KEYS} at most")
        except (ValueError, InvalidOperation) as error:
            raise MalformedRows(
                f"not a region of rows: {str(error)[:80] or 'no number'}"
            ) from error
        return self

    @property
    def forgotten(self) -> Region:
        """What is left of it when there is no room: all rows of the table, by these columns."""
        return Region(compared=self.compared)

    @property
    def size(self) -> int:
        """About how many bytes it takes as JSON; few if it is forgotten."""
        spans = sum(
            len(name) + sum(8 + len(span.low or "") + len(span.high or "") for span in each.spans)
            for name, each in self.columns.items()
        )
        return spans + (len(self.keys.hashes) if self.keys else 0)

    def __str__(self) -> str:
        """Its rows, for messages."""
        parts = []
        for name, spans in sorted(self.columns.items()):
            shown = [
                f"{span.low}"
                if span.low == span.high
                else f"{span.low or '…'} to {span.high or '…'}"
                for span in spans.spans[:3]
            ]
            parts.append(f"{name} {', '.join(shown) or 'NULL'}{', …' * (len(spans.spans) > 3)}")
        return " and ".join(parts) or "any row"


EVERY = Region()
"""All rows of a table."""


def united(regions: Sequence[tuple[str, Region]], limit: int) -> list[tuple[str, Region]]:
    """Regions by their tables, at most MOST_REGIONS and about `limit` bytes: if there are more, one
    for each table, and if these are too large, all rows of each table."""

    def size() -> int:
        return sum(region.size + sum(map(len, region.compared)) for _, region in left)

    left = list(regions)
    if len(left) > MOST_REGIONS or size() > limit:
        by_table: dict[str, list[Region]] = {}
        for table, region in left:
            by_table.setdefault(table, []).append(region)
        left = [(table, reduce(Region.either, each)) for table, each in by_table.items()]
        if size() > limit:
            left = [(table, region.forgotten) for table, region in left]
    return left
