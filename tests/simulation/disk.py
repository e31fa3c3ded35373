"""The files of the tables, as far as the metastore makes promises about them.

Each directory knows its writes. `read` returns what a snapshot finds, `removable` what a Cleaner
would remove with the lists that it was given. It is written from the rules (C, F and S), without
the platform's code.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from acid_platform.transactions import RangeResponse, ValidTxnList, ValidWriteIdList

Tag = tuple[int, int, bool]
"""A write: write id, transaction, and whether it is a delete event."""

Place = tuple[str, str | None]
"""The location of a table, and a partition."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A writer's directory has `low` = `high`; `visibility` is a compaction's transaction or 0."""

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
    """What a pair of lists selects in a place."""

    base: Directory | None = None
    deltas: list[Directory] = field(default_factory=list)
    obsolete: list[Directory] = field(default_factory=list)
    aborted: list[Directory] = field(default_factory=list)
    low: int = 0

    def tags(self, write_ids: ValidWriteIdList) -> set[Tag]:
        found = set(self.base.tags) if self.base else set()
        for delta in self.deltas:
            found |= {
                tag
                for tag in delta.tags
                if tag[0] > self.low and (delta.visibility or write_ids.is_valid(tag[0]))
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
        """Removes a dropped table or partition: all of it, or what has write ids up to `up_to`."""
        location, partition = place
        for other in list(self.places):
            if other[0] == location and partition in (None, other[1]):
                known = self.places[other]
                self.remove(
                    other,
                    [
                        name
                        for name, directory in list(known.items())
                        if up_to is None or directory.high <= up_to
                    ],
                )

    def partitions(self, location: str) -> list[str | None]:
        return [place[1] for place in self.places if place[0] == location]

    def read(
        self,
        place: Place,
        write_ids: ValidWriteIdList,
        txns: ValidTxnList,
        floor: int,
        me: int,
        recorded: Container[str] | None = None,
    ) -> set[Tag]:
        """The writes of others that transaction `me` finds, in `recorded` directories or in all."""
        return self._select(place, write_ids, txns, floor, me, recorded).tags(write_ids)

    def needed(
        self, place: Place, write_ids: ValidWriteIdList, txns: ValidTxnList, floor: int, me: int
    ) -> dict[str, Directory]:
        """The directories in which transaction `me` finds them, by name."""
        found = self._select(place, write_ids, txns, floor, me)
        return {
            delta.name: delta for delta in (*found.deltas, *([found.base] if found.base else []))
        }

    def _select(
        self,
        place: Place,
        write_ids: ValidWriteIdList,
        txns: ValidTxnList,
        floor: int,
        me: int,
        recorded: Container[str] | None = None,
    ) -> Selection:
        known = [
            directory
            for directory in self.places.get(place, {}).values()
            if (directory.visibility or all(tag[1] != me for tag in directory.tags))
            and (recorded is None or directory.name in recorded)
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
        """What is aborted, and what is obsolete without an open or too high write id (C46)."""
        found = select(self.places.get(place, {}).values(), write_ids, txns, floor)
        gone = [directory.name for directory in found.aborted]
        if not aborted_only:
            gone += [
                directory.name
                for directory in found.obsolete
                if directory.high <= highest
                and (directory.base or not write_ids.open_between(directory.low, directory.high))
            ]
        return gone


def settled(write_ids: ValidWriteIdList, *floors: int) -> int:
    """The highest floor that the list sees: older snapshots still see what was dropped (P22)."""
    return max(
        (
            floor
            for floor in floors
            if floor <= write_ids.high_watermark and not write_ids.open_between(floor, floor)
        ),
        default=0,
    )


def select(
    known: Iterable[Directory], write_ids: ValidWriteIdList, txns: ValidTxnList, floor: int
) -> Selection:
    """The best base, the deltas above it, and what they make obsolete."""
    found = Selection()
    bases, deltas = [], []
    for directory in known:
        if directory.visibility:
            if txns.is_aborted(directory.visibility):
                found.aborted.append(directory)
            elif not txns.is_valid(directory.visibility):
                continue
            elif directory.base and write_ids.is_valid_base(directory.high):
                bases.append(directory)
            elif not directory.base:
                deltas.append(directory)
        elif write_ids.range_aborted(directory.low, directory.high) is RangeResponse.ALL:
            found.aborted.append(directory)
        elif directory.base and write_ids.is_valid(directory.high):
            bases.append(directory)
        elif not directory.base:
            deltas.append(directory)
    bases.sort(key=lambda base: (base.high, base.visibility))
    found.obsolete += [base for base in bases if base.high <= floor]
    bases = [base for base in bases if base.high > floor]
    if bases:
        found.base = bases.pop()
        found.obsolete += bases
    found.low = max(found.base.high if found.base else 0, floor)
    deltas.sort(key=lambda delta: (delta.low, -delta.high, -delta.visibility))
    wide: dict[bool, Directory] = {}
    for delta in deltas:
        cover = wide.get(delta.deletes)
        if delta.high <= found.low or (
            cover and cover.low <= delta.low and delta.high <= cover.high
        ):
            found.obsolete.append(delta)
        elif write_ids.range_valid(delta.low, delta.high) is not RangeResponse.NONE:
            found.deltas.append(delta)
            if delta.visibility:
                wide[delta.deletes] = delta
    return found
