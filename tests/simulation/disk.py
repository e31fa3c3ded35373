"""The files of the tables, as far as the metastore's promises are about them.

Each directory knows which writes are in it. `read` answers what a snapshot finds, `removable` what
a Cleaner would take away with the lists that it was given. Written from the rules alone (C, F and
S), without the code that the platform does it with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from acid_platform.transactions import RangeResponse, ValidTxnList, ValidWriteIdList

Tag = tuple[int, int, bool]
"""One write: write id, transaction, and whether it is a delete event."""

Place = tuple[str, str | None]
"""Location of a table, and partition."""


@dataclass(frozen=True, slots=True)
class Directory:
    """`low` = `high` for what a writer made; `visibility` is the compaction's transaction or 0."""

    base: bool
    deletes: bool
    low: int
    high: int
    visibility: int
    tags: frozenset[Tag]

    @property
    def name(self) -> str:
        suffix = f"_v{self.visibility:07d}" if self.visibility else ""
        if self.base:
            return f"base_{self.high:07d}{suffix}"
        kind = "delete_delta" if self.deletes else "delta"
        statement = "" if self.visibility else "_0000"
        return f"{kind}_{self.low:07d}_{self.high:07d}{suffix}{statement}"


@dataclass(slots=True)
class Selection:
    """What a pair of lists makes of a place."""

    base: Directory | None = None
    deltas: list[Directory] = field(default_factory=list)
    obsolete: list[Directory] = field(default_factory=list)
    aborted: list[Directory] = field(default_factory=list)
    low: int = 0

    def tags(self, write_ids: ValidWriteIdList) -> set[Tag]:
        found = set(self.base.tags) if self.base else set()
        for one in self.deltas:
            found |= {
                tag
                for tag in one.tags
                if tag[0] > self.low and (one.visibility or write_ids.is_valid(tag[0]))
            }
        return found


class Disk:
    def __init__(self) -> None:
        self.places: dict[Place, dict[str, Directory]] = {}

    def publish(self, place: Place, one: Directory) -> None:
        self.places.setdefault(place, {})[one.name] = one

    def remove(self, place: Place, names: Iterable[str]) -> None:
        known = self.places.get(place, {})
        for name in names:
            known.pop(name, None)

    def remove_location(self, place: Place, up_to: int | None) -> None:
        """A dropped table or partition: all of it, or what has write ids up to `up_to`."""
        location, partition = place
        for other in list(self.places):
            if other[0] == location and partition in (None, other[1]):
                known = self.places[other]
                self.remove(
                    other,
                    [
                        name
                        for name, one in list(known.items())
                        if up_to is None or one.high <= up_to
                    ],
                )

    def partitions(self, location: str) -> list[str | None]:
        return [place[1] for place in self.places if place[0] == location]

    def read(
        self, place: Place, write_ids: ValidWriteIdList, txns: ValidTxnList, floor: int, me: int
    ) -> set[Tag]:
        """The writes of others that transaction `me` finds."""
        return self._select(place, write_ids, txns, floor, me).tags(write_ids)

    def needed(
        self, place: Place, write_ids: ValidWriteIdList, txns: ValidTxnList, floor: int, me: int
    ) -> dict[str, Directory]:
        """The directories in which it finds them, by name."""
        found = self._select(place, write_ids, txns, floor, me)
        return {one.name: one for one in (*found.deltas, *([found.base] if found.base else []))}

    def _select(
        self, place: Place, write_ids: ValidWriteIdList, txns: ValidTxnList, floor: int, me: int
    ) -> Selection:
        known = [
            one
            for one in self.places.get(place, {}).values()
            if one.visibility or all(tag[1] != me for tag in one.tags)
        ]
        return select(known, write_ids, txns, floor)

    def removable(
        self,
        place: Place,
        write_ids: ValidWriteIdList,
        txns: ValidTxnList,
        floor: int,
        highest: int,
        aborted_only: bool,
    ) -> list[str]:
        """C46: what is obsolete, with nothing open or too high in it, and what is aborted."""
        found = select(self.places.get(place, {}).values(), write_ids, txns, floor)
        gone = [one.name for one in found.aborted]
        if not aborted_only:
            gone += [
                one.name
                for one in found.obsolete
                if one.high <= highest
                and (one.base or not write_ids.open_between(one.low, one.high))
            ]
        return gone


def settled(write_ids: ValidWriteIdList, *floors: int) -> int:
    """P22: who sees a drop sees nothing of before it; who does not, sees what he saw."""
    return max(
        (
            one
            for one in floors
            if one <= write_ids.high_watermark and not write_ids.open_between(one, one)
        ),
        default=0,
    )


def select(
    known: Iterable[Directory], write_ids: ValidWriteIdList, txns: ValidTxnList, floor: int
) -> Selection:
    """The best base, the deltas above it, and what these make superfluous."""
    found = Selection()
    bases, deltas = [], []
    for one in known:
        if one.visibility:
            if txns.is_aborted(one.visibility):
                found.aborted.append(one)
            elif not txns.is_valid(one.visibility):
                continue
            elif one.base and write_ids.is_valid_base(one.high):
                bases.append(one)
            elif not one.base:
                deltas.append(one)
        elif write_ids.range_aborted(one.low, one.high) is RangeResponse.ALL:
            found.aborted.append(one)
        elif one.base and write_ids.is_valid(one.high):
            bases.append(one)
        elif not one.base:
            deltas.append(one)
    bases.sort(key=lambda one: (one.high, one.visibility))
    found.obsolete += [one for one in bases if one.high <= floor]
    bases = [one for one in bases if one.high > floor]
    if bases:
        found.base = bases.pop()
        found.obsolete += bases
    found.low = max(found.base.high if found.base else 0, floor)
    deltas.sort(key=lambda one: (one.low, -one.high, -one.visibility))
    wide: dict[bool, Directory] = {}
    for one in deltas:
        cover = wide.get(one.deletes)
        if one.high <= found.low or (cover and cover.low <= one.low and one.high <= cover.high):
            found.obsolete.append(one)
        elif write_ids.range_valid(one.low, one.high) is not RangeResponse.NONE:
            found.deltas.append(one)
            if one.visibility:
                wide[one.deletes] = one
    return found
