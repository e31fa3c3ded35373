"""Which base, deltas and original files of one entity a snapshot sees, and what may go.

The selection (F12) is that of Hive's AcidUtils.getAcidState. It serves readers, the compactor
(through a `CompactorWriteIdList`) and the Cleaner (through the list of S17) alike. Order of work
for all of them: take both lists first, list the directory after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from acid_platform.errors import CorruptFile, MalformedName, NotEnoughHistory, UnsupportedLayout
from acid_platform.layout.names import (
    AcidName,
    BaseName,
    DeltaName,
    claims_to_be_acid,
    is_hidden,
    original_bucket,
    parse_directory,
)
from acid_platform.snapshot.contents import Contents, data_files
from acid_platform.snapshot.listing import EntityListing, FileEntry
from acid_platform.transactions import RangeResponse, ValidTxnList, ValidWriteIdList


@dataclass(frozen=True, slots=True)
class VisibleBase:
    """The base that the snapshot reads; `directory` is its name as found on disk."""

    name: BaseName
    directory: str
    files: tuple[FileEntry, ...]
    test_rows: bool = False
    """Some write id at or below the base is invalid: test each row by currentTransaction."""
    above: int = -1
    """Always -1: nothing lies below a base. Here so that bases and deltas are read alike."""
    raw: bool = False
    """Files are not named `bucket_N`: LOAD DATA OVERWRITE, or an insert-only table."""
    compacted: bool = False
    """Made by a compactor, so that rows of aborted write ids are not in it."""
    versioned: bool = False
    """Holds a version file: an ACID writer made it, not LOAD DATA."""
    side_files: tuple[FileEntry, ...] = ()
    """`_flush_length` files of a streaming writer, one per data file that has one."""


@dataclass(frozen=True, slots=True)
class VisibleDelta:
    """A delta or delete_delta that the snapshot reads."""

    name: DeltaName
    directory: str
    files: tuple[FileEntry, ...]
    test_rows: bool = False
    """The range is not ALL valid: test each row or event by its own currentTransaction (S15)."""
    above: int = -1
    """Drop insert rows with currentTransaction <= above: an earlier directory holds them too."""
    raw: bool = False
    """Files are not named `bucket_N`: LOAD DATA, or an insert-only table."""
    compacted: bool = False
    """Made by a compactor, so that rows and events of aborted write ids are not in it."""
    versioned: bool = False
    """Holds a version file: an ACID writer made it, not LOAD DATA."""
    side_files: tuple[FileEntry, ...] = ()
    """`_flush_length` files of a streaming writer, one per data file that has one."""


@dataclass(frozen=True, slots=True)
class Removable:
    """A directory or original file that this snapshot does not need any more, and why (C46)."""

    path: str
    reason: str
    rule: str


@dataclass(frozen=True, slots=True)
class Invisible:
    """A directory that is neither read nor removable: a later or older snapshot may need it."""

    path: str
    name: AcidName
    reason: str


@dataclass(frozen=True, slots=True)
class AcidDirectory:
    """One entity as one snapshot sees it; every ACID directory is in exactly one of the lists.

    `deltas` are in the order of the algorithm, delete_deltas before deltas of the same range.
    `originals` are in the order that fixes their row ids, and empty when there is a base.
    """

    location: str
    base: VisibleBase | None
    deltas: tuple[VisibleDelta, ...]
    originals: tuple[FileEntry, ...]
    obsolete: tuple[Removable, ...]
    aborted: tuple[Removable, ...]
    invisible: tuple[Invisible, ...] = ()
    zero_length: tuple[str, ...] = ()
    """Bucket files without a byte in what is read: taken as absent, worth a warning."""
    insert_only: bool = False
    """Selected as an insert-only table: its files are plain files in the table's format."""

    @property
    def sources(self) -> tuple[VisibleBase | VisibleDelta, ...]:
        """All ACID directories that are read: the base, then the deltas."""
        return self.deltas if self.base is None else (self.base, *self.deltas)

    @property
    def names(self) -> frozenset[str]:
        """Of all ACID directories that were looked at, whether they are read or not."""
        return frozenset(
            {
                *(one.directory for one in self.sources),
                *(one.path for one in self.obsolete),
                *(one.path for one in self.aborted),
                *(one.path for one in self.invisible),
            }
        )

    @property
    def inserts(self) -> tuple[VisibleDelta, ...]:
        return tuple(delta for delta in self.deltas if not delta.name.deletes)

    @property
    def delete_deltas(self) -> tuple[VisibleDelta, ...]:
        return tuple(delta for delta in self.deltas if delta.name.deletes)


def select(
    listing: EntityListing,
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    *,
    floor: int = 0,
    cleaning: bool = False,
    insert_only: bool = False,
) -> AcidDirectory:
    """What a snapshot of `write_ids` and `txns` sees of one entity (F12).

    The result does not depend on the order of the listing. A transaction passes a list that sees
    its own write id. `floor` is the write id that dropped an earlier partition of this name: what
    lies at or below it is obsolete for every snapshot that sees the drop (P22). `cleaning`: the
    Cleaner reads no rows, and its list stops below the base of a later compaction that waits for
    cleaning too (C39), so that missing history is no error. `insert_only`: files may have any name
    and lie in sub-directories; a directory counts as a whole (F17).

    Raises MalformedName, UnsupportedLayout and CorruptFile for files that can't be read rightly,
    and NotEnoughHistory when compacted bases are all newer than the snapshot (not if `cleaning`).
    """
    found = _children(listing)
    work = _Selection(
        listing, write_ids, txns, highest_floor(write_ids, floor), cleaning, insert_only
    )
    base = work.choose_base(found.bases)
    originals = work.choose_originals(found.originals, base)
    deltas = work.choose_deltas(found.deltas, base)
    return AcidDirectory(
        listing.location,
        base,
        deltas,
        originals,
        tuple(work.obsolete),
        tuple(work.aborted),
        tuple(work.invisible),
        tuple(work.zero_length),
        insert_only,
    )


def highest_floor(write_ids: ValidWriteIdList, *floors: int) -> int:
    """Of the floors of a partition and its table the highest that the snapshot sees (P22).

    One of forgotten write ids is aborted in an older list, and covers them there too (P4).
    """
    return max(
        (one for one in floors if write_ids.is_valid(one) or write_ids.is_aborted(one)), default=0
    )


_Name = TypeVar("_Name", BaseName, DeltaName, AcidName)


@dataclass(frozen=True, slots=True)
class _Directory(Generic[_Name]):
    path: str
    name: _Name
    files: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True)
class _Children:
    bases: tuple[_Directory[BaseName], ...]
    deltas: tuple[_Directory[DeltaName], ...]
    originals: tuple[FileEntry, ...]


def _children(listing: EntityListing) -> _Children:
    """Parses the direct children, by name; hidden ones are left out. Raises MalformedName."""
    inside: dict[str, list[FileEntry]] = defaultdict(list)
    originals: list[FileEntry] = []
    for entry in listing.files:
        child, slash, _ = entry.path.partition("/")
        if slash:
            inside[child].append(entry)
        elif claims_to_be_acid(child):
            raise MalformedName(
                f"{listing.location}/{child} is a file with the name of an ACID directory; move it"
                " out of the table"
            )
        elif not is_hidden(child):
            originals.append(entry)
    bases: list[_Directory[BaseName]] = []
    deltas: list[_Directory[DeltaName]] = []
    for child in sorted({*listing.directories, *inside}):
        if is_hidden(child):
            continue
        name = parse_directory(child, f"{listing.location}/{child}")
        if isinstance(name, BaseName):
            bases.append(_Directory(child, name, tuple(inside[child])))
        elif isinstance(name, DeltaName):
            deltas.append(_Directory(child, name, tuple(inside[child])))
        else:
            originals += [one for one in inside[child] if not _hidden_below(one.path)]
    full = sorted((one for one in originals if one.size > 0), key=lambda one: one.path)
    return _Children(tuple(bases), tuple(deltas), tuple(full))


def _hidden_below(path: str) -> bool:
    return any(is_hidden(part) for part in path.split("/"))


@dataclass(slots=True)
class _Selection:
    """One run of the algorithm; collects what is not selected, and why."""

    listing: EntityListing
    write_ids: ValidWriteIdList
    txns: ValidTxnList
    floor: int
    cleaning: bool
    insert_only: bool
    obsolete: list[Removable] = field(default_factory=list)
    aborted: list[Removable] = field(default_factory=list)
    invisible: list[Invisible] = field(default_factory=list)
    zero_length: list[str] = field(default_factory=list)

    def choose_base(self, bases: Iterable[_Directory[BaseName]]) -> VisibleBase | None:
        """The usable base of the highest write id; a compacted one wins over an overwrite.

        A compacted base needs every write id up to its own resolved (S12), an overwrite only its
        own committed. Each base is judged alone, so that the order does not matter.
        """
        usable: list[_Directory[BaseName]] = []
        history: list[_Directory[BaseName]] = []
        for one in bases:
            write_id = one.name.write_id
            if not self._compaction_visible(one):
                continue
            if write_id < 0 or self._compacted(one):
                if self.write_ids.is_valid_base(write_id):
                    usable.append(one)
                else:
                    history.append(one)
                    self._hide(one, f"merges write ids that {self.write_ids} does not see")
            elif self.write_ids.is_aborted(write_id):
                self._abort(one, f"write id {write_id} aborted", "C46")
            elif self.write_ids.is_valid(write_id):
                usable.append(one)
            else:
                if one.path in self.listing.adopted:
                    history.append(one)
                self._hide(one, f"write id {write_id} is open or above the high watermark")
        above_floor: list[_Directory[BaseName]] = []
        for one in usable:
            if self.floor and one.name.write_id <= self.floor:
                self._cover(one, self._dropped(), "P22")
            else:
                above_floor.append(one)
        if not above_floor:
            self._require_history([one for one in history if one.name.write_id > self.floor])
            return None
        # Of two finished compactions of one range the later attempt is read, as for deltas (F12).
        *losers, best = sorted(
            above_floor,
            key=lambda one: (
                one.name.write_id,
                self._compacted(one),
                one.name.visibility,
                one.path,
            ),
        )
        for loser in losers:
            self._cover(loser, f"older than {best.path}", "C46")
        contents = self._contents(best)
        lowest = best.name.write_id if contents.raw else 1
        partly = self.write_ids.range_valid(lowest, best.name.write_id) is not RangeResponse.ALL
        return VisibleBase(
            best.name,
            best.path,
            contents.files,
            partly,
            raw=contents.raw,
            compacted=self._compacted(best),
            versioned=self._versioned(best),
            side_files=contents.side_files,
        )

    def choose_originals(
        self, files: tuple[FileEntry, ...], base: VisibleBase | None
    ) -> tuple[FileEntry, ...]:
        """Files from before the conversion count only without a base (write id 0).

        A file whose name gives no bucket can't have row ids: it is refused where it would be read,
        and left alone, not offered for removal, where a base stands for the originals.
        """
        used = base is None and not self.floor
        reason = f"original file, older than {base.directory}" if base else self._dropped()
        for one in files:
            if self.insert_only or original_bucket(one.name) is not None:
                if not used:
                    self.obsolete.append(Removable(one.path, reason, "C46" if base else "P22"))
            elif used:
                raise UnsupportedLayout(
                    f"{self.listing.location}/{one.path} is no original file (NNNNNN_N[_copy_K]),"
                    " so its rows can have no identity; rename it or move it out of the table"
                )
        return files if used else ()

    def choose_deltas(
        self, directories: Iterable[_Directory[DeltaName]], base: VisibleBase | None
    ) -> tuple[VisibleDelta, ...]:
        """Deltas above the base, widest first, without those that a wider one contains."""
        selected: list[VisibleDelta] = []
        current = max(base.name.write_id if base else 0, self.floor)
        below = current
        cover, rule = (f"within {base.directory}", "C46") if base else (self._dropped(), "P22")
        last_statement: int | None = None
        for one in self._visible_deltas(directories):
            name = one.name
            if name.high > current:
                if self.write_ids.range_valid(current + 1, name.high) is RangeResponse.NONE:
                    self._hide(one, f"adds no visible write id above {current}")
                    continue
                below, current, last_statement = current, name.high, name.statement
                cover, rule = f"within {one.path}", "C46"
            elif not (
                # Other statements of one transaction, or the twin of the other kind.
                (name.high == current and last_statement is not None)
                or (selected and _same_work(name, selected[-1].name))
            ):
                self._cover(one, cover, rule)
                continue
            # Rows at or below `below` are in the base or an earlier delta too (F13).
            straddles = name.low <= below and not name.deletes
            selected.append(self._delta(one, below if straddles else -1))
        return tuple(selected)

    def _visible_deltas(
        self, directories: Iterable[_Directory[DeltaName]]
    ) -> list[_Directory[DeltaName]]:
        """Committed as far as the lists say, in the order of the algorithm."""
        visible: list[_Directory[DeltaName]] = []
        for one in directories:
            name = one.name
            if not self._compaction_visible(one):
                continue
            if self.write_ids.range_aborted(name.low, name.high) is RangeResponse.ALL:
                ids = (
                    f"write id {name.low}"
                    if name.low == name.high
                    else (f"all write ids {name.low} to {name.high}")
                )
                self._abort(one, f"{ids} aborted", "C46")
            elif self.write_ids.range_valid(name.low, name.high) is RangeResponse.NONE:
                self._hide(one, "holds no visible write id")
            else:
                visible.append(one)
        return sorted(
            visible,
            key=lambda one: (
                one.name.low,
                -one.name.high,
                -1 if one.name.statement is None else one.name.statement,
                -one.name.visibility,
                one.path,
            ),
        )

    def _delta(self, one: _Directory[DeltaName], above: int) -> VisibleDelta:
        name = one.name
        if self.insert_only:
            self._require_whole(one)
        contents = self._contents(one)
        if contents.raw and name.deletes:
            raise CorruptFile(
                f"{self.listing.location}/{contents.files[0].path}: a delete_delta may hold only"
                " bucket files; restore the directory or abort its writer"
            )
        partly = self.write_ids.range_valid(name.low, name.high) is not RangeResponse.ALL
        return VisibleDelta(
            name,
            one.path,
            contents.files,
            partly,
            above,
            contents.raw,
            self._compacted(one),
            self._versioned(one),
            contents.side_files,
        )

    def _require_whole(self, one: _Directory[DeltaName]) -> None:
        """Rows of an insert-only table carry no write id, so no part of a delta can be hidden."""
        name = one.name
        if name.deletes:
            raise UnsupportedLayout(
                f"{self.listing.location}/{one.path}: an insert-only table has no delete_delta;"
                " move it out of the table"
            )
        top = self.write_ids.high_watermark
        if not self.cleaning and (name.high > top or self.write_ids.open_between(name.low, top)):
            raise NotEnoughHistory(
                f"{self.listing.location}/{one.path} merges write ids that {self.write_ids} does"
                " not see; read a newer snapshot"
            )

    def _contents(self, one: _Directory[_Name]) -> Contents:
        contents = data_files(self.listing.location, one.path, one.files, self.insert_only)
        self.zero_length += contents.zero_length
        return contents

    def _compacted(self, one: _Directory[_Name]) -> bool:
        formats = self.listing.data_formats
        return one.name.visibility > 0 or formats.get(one.path) == "compacted"

    def _versioned(self, one: _Directory[_Name]) -> bool:
        return one.path in self.listing.versioned

    def _compaction_visible(self, one: _Directory[_Name]) -> bool:
        """S18: a compactor's directory exists only for who sees the compaction's transaction."""
        txn = one.name.visibility
        if txn == 0 or self.txns.is_valid(txn):
            return True
        if self.txns.is_aborted(txn):
            self._abort(one, f"compaction transaction {txn} aborted", "S18")
        else:
            self._hide(one, f"compaction transaction {txn} is not committed for this snapshot")
        return False

    def _require_history(self, unusable: list[_Directory[BaseName]]) -> None:
        """Without a usable base a visible compacted one says that older inputs may be gone (F14,
        P13). So does any base of a table that was adopted with it.

        Any of them counts, also behind an unusable overwrite base of a lower write id: missing
        rows are worse than an error.
        """
        if unusable and not self.cleaning:
            raise NotEnoughHistory(
                f"{self.listing.location}: the snapshot {self.write_ids} is older than"
                f" {unusable[0].path}, and what that base merged may be gone; read a newer snapshot"
            )

    def _dropped(self) -> str:
        return f"dropped with the partition at write id {self.floor}"

    def _cover(self, one: _Directory[_Name], reason: str, rule: str) -> None:
        self.obsolete.append(Removable(one.path, reason, rule))

    def _abort(self, one: _Directory[_Name], reason: str, rule: str) -> None:
        self.aborted.append(Removable(one.path, reason, rule))

    def _hide(self, one: _Directory[_Name], reason: str) -> None:
        self.invisible.append(Invisible(one.path, one.name, reason))


def _same_work(name: DeltaName, other: DeltaName) -> bool:
    """One statement's, or one compaction's, pair of delta and delete_delta."""
    return (name.low, name.high, name.statement, name.visibility) == (
        other.low,
        other.high,
        other.statement,
        other.visibility,
    )
