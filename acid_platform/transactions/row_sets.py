"""Sets of rows of one entity as text, and the rows that two of them share (P38)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, islice, repeat

from acid_platform.errors import MalformedRows

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
            firsts, lengths = _runs(body)
            if lengths and len(lengths) != len(firsts):
                raise MalformedRows(f"{body[:80]!r}: {len(lengths)} lengths, {len(firsts)} runs")
            ends = map(int.__add__, firsts, lengths or repeat(1))
            if not all(map(int.__ge__, firsts, chain((0,), ends))) or 0 in lengths:
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
    """A row of each two runs that overlap."""
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
            yield max(first, b[at])
            at += 1


def _ends(firsts: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """The rowId after each run."""
    return list(map(int.__add__, firsts, lengths or repeat(1)))
