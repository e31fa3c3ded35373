"""What an archive can restore: which backup, and which segments after it (P40). It reads no file.

After a promotion the events of the new term count from its first number on: what the old primary
wrote under these numbers was lost. Within a term each number stands for one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acid_platform.metastore.server.archive import BASE, SEGMENT, Item


@dataclass(frozen=True, slots=True)
class Part:
    """A segment, of which the events up to `last` count."""

    item: Item
    last: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A backup and the segments that follow it without a gap."""

    base: Item
    parts: tuple[Part, ...]
    """In the order of their events; several may hold the same events."""
    last: int
    """The number of the last event."""
    until: int
    """The moment up to which it has every event, in milliseconds UTC; 0 if that is not known."""
    missing: tuple[int, int] | None
    """The first and last number of the gap after which more is archived."""


def chains(items: Sequence[Item]) -> list[Chain]:
    """One for each backup of a history, oldest first; those of lost events are left out."""
    begins = _begins(items)
    bases = [item for item in items if item.kind == BASE]
    valid = [base for base in bases if base.last < _end(begins, base.term)]
    ordered = sorted(valid, key=lambda base: (base.last, base.made))
    return [_chain(base, items, begins) for base in ordered]


@dataclass(frozen=True, slots=True)
class Window:
    """A time to every moment of which one can restore, in milliseconds UTC, and its events."""

    begin: int
    until: int
    first: int
    last: int
    bases: int


def windows(items: Sequence[Item]) -> list[Window]:
    """Those of one history, oldest first."""
    found: list[Window] = []
    for chain in chains(items):
        base = chain.base
        if found and base.last <= found[-1].last:
            before = found.pop()
            found.append(
                Window(
                    before.begin,
                    max(before.until, chain.until),
                    before.first,
                    max(before.last, chain.last),
                    before.bases + 1,
                )
            )
        else:
            found.append(Window(base.made, chain.until, base.last, chain.last, 1))
    return found


def covers(items: Sequence[Item], wanted: Item) -> bool:
    """Whether the archive has the events of this segment, so that nobody else need keep them."""
    missing = wanted.first
    same = [item for item in items if item.kind == SEGMENT and item.term == wanted.term]
    for item in sorted(same, key=lambda item: item.first):
        if item.first <= missing <= item.last:
            missing = item.last + 1
    return missing > wanted.last


def obsolete(items: Sequence[Item], before: int) -> list[Item]:
    """What is not needed to restore to any moment from `before` on (milliseconds UTC)."""
    older = [chain.base for chain in chains(items) if chain.base.made <= before]
    if not older:
        return []
    kept = older[-1]
    return [
        item
        for item in items
        if item != kept
        and (item.made < kept.made if item.kind == BASE else item.last <= kept.last)
        and item.term <= kept.term
    ]


def _begins(items: Sequence[Item]) -> dict[int, int]:
    """The number of the first event of each term, as far as the archive knows."""
    begins: dict[int, int] = {}
    for item in items:
        first = item.first if item.kind == SEGMENT else item.last + 1
        begins[item.term] = min(first, begins.get(item.term, first))
    return begins


def _end(begins: dict[int, int], term: int) -> int | float:
    """The number from which on a later term counts instead of this one."""
    return min((first for each, first in begins.items() if each > term), default=float("inf"))


def _chain(base: Item, items: Sequence[Item], begins: dict[int, int]) -> Chain:
    parts = [
        Part(item, int(min(item.last, _end(begins, item.term) - 1)))
        for item in items
        if item.kind == SEGMENT
    ]
    counting = [part for part in parts if part.last >= part.item.first]
    # The events of a term come before those of the next one.
    counting.sort(key=lambda part: (part.item.term, part.item.first, part.last))
    last, taken, missing = base.last, list[Part](), None
    for part in counting:
        if part.last <= base.last:
            continue
        if part.item.first > last + 1:
            missing = (last + 1, part.item.first - 1)
            break
        taken.append(part)
        last = max(last, part.last)
    # A backup does not tell: other events may have come while it was made.
    until = max(
        (part.item.made for part in counting if part.last == part.item.last <= last), default=0
    )
    return Chain(base, tuple(taken), last, until, missing)
