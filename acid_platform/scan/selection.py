"""Which files of an entity a snapshot sees, and what may be removed.

The algorithm (F12) is that of Hive's AcidUtils.getAcidState. Readers, the compactor (with a
`CompactorWriteIdList`) and the Cleaner (with the list of S17) all use it. Each of them must take
both lists before it asks for the directories. File names are taken from the listing, never
constructed: the attempt suffix of a delta and of its delete_delta may differ, or be absent from
either (F23)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from acid_platform.errors import CorruptFile, MalformedName, NotEnoughHistory, UnsupportedLayout
from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.layout.names import (
    FLUSH_LENGTH_SUFFIX,
    AcidName,
    BaseName,
    DeltaName,
    claims_to_be_acid,
    is_hidden,
    original_bucket,
    parse_bucket_file,
    parse_directory,
)
from acid_platform.scan.acid_directory import (
    AcidDirectory,
    Invisible,
    Removable,
    VisibleBase,
    VisibleDelta,
)
from acid_platform.transactions import RangeResponse, ValidTxnList, ValidWriteIdList


def shadows(one: AcidName | None, other: AcidName | None) -> bool:
    """Whether whoever sees both directories reads only `one`; None: the original files.

    A compaction replaces both deltas and delete_deltas, even if it wrote only one of the two: rows
    that were deleted by the same write id leave no delta. The statements of one write are equals,
    and so are the delta and delete_delta of one compaction. Of two bases with the same write id the
    later compaction counts.
    """
    if isinstance(one, BaseName):
        if isinstance(other, BaseName):
            return base_order(other) < base_order(one)
        return other is None or other.high <= one.write_id
    if not isinstance(one, DeltaName) or not isinstance(other, DeltaName):
        return False
    if not one.low <= other.low <= other.high <= one.high:
        return False
    if other.high == one.high and one.statement is not None:
        return False
    return one.low != other.low or other.high != one.high or _earlier(other, one)


def base_order(base: BaseName) -> tuple[int, int]:
    """The highest of an entity's bases is read."""
    return base.write_id, base.visibility


def _earlier(other: DeltaName, merged: DeltaName) -> bool:
    """Whether a delta of the same write ids was there before the compaction `merged`."""
    return other.statement is not None or other.visibility < merged.visibility


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Data files of one base, delta or delete_delta, by path."""

    files: tuple[FileEntry, ...]
    raw: bool
    """Whether the files are named like `000000_0`: LOAD DATA, or an insert-only table."""
    zero_length: tuple[str, ...]
    """Empty bucket files, which are not valid ORC; treated as absent."""
    side_files: tuple[FileEntry, ...] = ()
    """`_flush_length` files, which hold the committed length of their data file."""


def data_files(
    location: str, directory: str, files: Iterable[FileEntry], insert_only: bool = False
) -> DataFiles:
    """The data files among `files`, all of which lie below `directory`.

    Hidden files are ignored, and so are nested ACID directories, which a rename onto an existing
    directory leaves behind. `insert_only`: a file of any name, at any depth, is a data file. Raises
    UnsupportedLayout for a file of unknown kind, whose rows would otherwise silently be missing;
    CorruptFile for two attempts of the same bucket, for a mixture of bucket files and files
    without ACID columns, and for a side file without its data file.
    """
    sides: dict[str, FileEntry] = {}
    buckets: dict[int, FileEntry] = {}
    plain: list[FileEntry] = []
    empty: list[str] = []
    for entry in sorted(files, key=lambda entry: entry.path):
        *parents, name = entry.path.removeprefix(f"{directory}/").split("/")
        if is_hidden(name) or any(is_hidden(p) or claims_to_be_acid(p) for p in parents):
            continue
        if insert_only:
            if entry.size:
                plain.append(entry)
            continue
        if name.endswith(FLUSH_LENGTH_SUFFIX):
            sides[entry.path.removesuffix(FLUSH_LENGTH_SUFFIX)] = entry
            continue
        bucket = parse_bucket_file(name) if not parents else None
        if bucket is not None and entry.size == 0:
            empty.append(entry.path)
        elif entry.size == 0:
            continue
        elif bucket is not None:
            other = buckets.setdefault(bucket.bucket, entry)
            if other is not entry:
                raise CorruptFile(
                    f"{location}: {other.path} and {entry.path} are two attempts of one bucket;"
                    " remove the file that its writer did not commit"
                )
        elif original_bucket(name) is not None:
            plain.append(entry)
        else:
            raise UnsupportedLayout(
                f"{location}/{entry.path} is neither a bucket file (bucket_NNNNN[_attempt]) nor"
                " NNNNNN_N[_copy_K]; move it out of the table"
            )
    if buckets and plain:
        raise CorruptFile(
            f"{location}/{directory} mixes bucket files with files without ACID columns, such as"
            f" {plain[0].path}; restore the directory"
        )
    data = {entry.path for entry in buckets.values()}
    for path, side in sides.items():
        # A writer creates the side file with a first value of 0: nothing is committed yet.
        if path not in data and side.size > 8:
            raise CorruptFile(
                f"{location}/{side.path} records committed rows of {path.rpartition('/')[2]}, which"
                " is missing or empty; restore that file"
            )
    return DataFiles(
        tuple(plain or buckets.values()),
        bool(plain),
        tuple(empty),
        tuple(side for path, side in sides.items() if path in data),
    )


_Name = TypeVar("_Name", BaseName, DeltaName, AcidName)


def select(
    listing: EntityListing,
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    *,
    floor: int = 0,
    cleaning: bool = False,
    insert_only: bool = False,
) -> AcidDirectory:
    """What a snapshot of `write_ids` and `txns` sees of an entity (F12).

    The result does not depend on the order of the listing. A transaction passes a list that
    includes its own write id.

    `floor` is the write id that dropped an earlier partition of this name: everything at or below
    it is obsolete for snapshots that see the drop (P22). With `cleaning`, missing history is no
    error: the Cleaner reads no rows, and its list may end below the base of a later compaction that
    also waits for cleaning. With `insert_only`, files may have any name and lie in
    sub-directories, and a directory is visible as a whole or not at all (F17).

    Raises MalformedName; UnsupportedLayout and CorruptFile for files that can't be read correctly;
    NotEnoughHistory if all compacted bases are newer than the snapshot (unless `cleaning`).
    """
    bases, deltas, originals = _children(listing)
    work = _Selection(
        listing, write_ids, txns, highest_floor(write_ids, floor), cleaning, insert_only
    )
    base = work.choose_base(bases)
    originals = work.choose_originals(originals, base)
    return AcidDirectory(
        listing.location,
        base,
        work.choose_deltas(deltas, base),
        originals,
        tuple(work.obsolete),
        tuple(work.aborted),
        tuple(work.invisible),
        tuple(work.zero_length),
        insert_only,
    )


def highest_floor(write_ids: ValidWriteIdList, *floors: int) -> int:
    """The highest floor of a partition and its table that the snapshot sees (P22).

    A floor of a forgotten write id is aborted in an older list, and counts there as well.
    """
    return max(
        (floor for floor in floors if write_ids.is_valid(floor) or write_ids.is_aborted(floor)),
        default=0,
    )


@dataclass(frozen=True, slots=True)
class _Directory(Generic[_Name]):
    path: str
    name: _Name
    files: tuple[FileEntry, ...]
    compacted: bool
    versioned: bool


def _children(
    listing: EntityListing,
) -> tuple[list[_Directory[BaseName]], list[_Directory[DeltaName]], tuple[FileEntry, ...]]:
    """The bases, deltas and original files, without hidden ones. Raises MalformedName."""
    inside: dict[str, list[FileEntry]] = defaultdict(list)
    originals: list[FileEntry] = []
    for entry in listing.files:
        child, slash, _ = entry.path.partition("/")
        if slash:
            inside[child].append(entry)
        elif claims_to_be_acid(child):
            raise MalformedName(
                f"{listing.location}/{child} is a file, but has the name of an ACID directory; move"
                " it out of the table"
            )
        elif not is_hidden(child):
            originals.append(entry)
    bases: list[_Directory[BaseName]] = []
    deltas: list[_Directory[DeltaName]] = []

    def directory(child: str, name: _Name) -> _Directory[_Name]:
        compacted = name.visibility > 0 or listing.data_formats.get(child) == "compacted"
        files = tuple(inside[child])
        return _Directory(child, name, files, compacted, child in listing.versioned)

    for child in sorted({*listing.directories, *inside}):
        if is_hidden(child):
            continue
        name = parse_directory(child, f"{listing.location}/{child}")
        if isinstance(name, BaseName):
            bases.append(directory(child, name))
        elif isinstance(name, DeltaName):
            deltas.append(directory(child, name))
        else:
            originals += [
                entry
                for entry in inside[child]
                if not any(is_hidden(part) for part in entry.path.split("/"))
            ]
    full = sorted((entry for entry in originals if entry.size > 0), key=lambda entry: entry.path)
    return bases, deltas, tuple(full)


@dataclass(slots=True)
class _Selection:
    """A run of the algorithm; collects what is not selected, and why."""

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
        """The usable base with the highest write id; a compacted base wins over an overwrite.

        A compacted base is usable if every write id up to its own is resolved, an overwrite
        if its own write id is committed. Each base is judged alone, so their order does not matter.
        """
        usable: list[_Directory[BaseName]] = []
        history: list[_Directory[BaseName]] = []
        for base in bases:
            write_id = base.name.write_id
            if not self._compaction_visible(base):
                continue
            if write_id < 0 or base.compacted:
                if self.write_ids.is_valid_base(write_id):
                    usable.append(base)
                else:
                    history.append(base)
                    self._hide(base, f"merges write ids that {self.write_ids} does not see")
            elif self.write_ids.is_aborted(write_id):
                self._abort(base, f"write id {write_id} aborted", "C46")
            elif self.write_ids.is_valid(write_id):
                usable.append(base)
            else:
                if base.path in self.listing.adopted:
                    history.append(base)
                self._hide(base, f"write id {write_id} is open or above the high watermark")
        above_floor: list[_Directory[BaseName]] = []
        for base in usable:
            if self.floor and base.name.write_id <= self.floor:
                self._cover(base, self._dropped(), "P22")
            else:
                above_floor.append(base)
        if not above_floor:
            self._require_history([base for base in history if base.name.write_id > self.floor])
            return None
        # If two compactions of the same range finished, the later is read, as for deltas (F12).
        *losers, best = sorted(
            above_floor,
            key=lambda base: (*base_order(base.name), base.compacted, base.path),
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
            compacted=best.compacted,
            versioned=best.versioned,
            side_files=contents.side_files,
        )

    def choose_originals(
        self, files: tuple[FileEntry, ...], base: VisibleBase | None
    ) -> tuple[FileEntry, ...]:
        """The original files (write id 0), which are read only if there is no base.

        A file without a bucket number in its name can't have row ids. If it would be read it is
        refused; if a base replaces the originals it is left alone, not offered for removal.
        """
        used = base is None and not self.floor
        reason = f"original file, older than {base.directory}" if base else self._dropped()
        for file in files:
            if self.insert_only or original_bucket(file.name) is not None:
                if not used:
                    self.obsolete.append(Removable(file.path, reason, "C46" if base else "P22"))
            elif used:
                raise UnsupportedLayout(
                    f"{self.listing.location}/{file.path} is not named like an original file"
                    " (NNNNNN_N[_copy_K]), so its rows can't have row ids; rename it or move it out"
                    " of the table"
                )
        return files if used else ()

    def choose_deltas(
        self, directories: Iterable[_Directory[DeltaName]], base: VisibleBase | None
    ) -> tuple[VisibleDelta, ...]:
        """The deltas above the base, widest first, without deltas that a wider one contains."""
        selected: list[VisibleDelta] = []
        current = max(base.name.write_id if base else 0, self.floor)
        below = current
        widest: AcidName | None = base.name if base else None
        reason, rule = (f"within {base.directory}", "C46") if base else (self._dropped(), "P22")
        for delta in self._visible_deltas(directories):
            name = delta.name
            if name.high > current:
                if self.write_ids.range_valid(current + 1, name.high) is RangeResponse.NONE:
                    self._hide(delta, f"adds no visible write id above {current}")
                    continue
                below, current, widest = current, name.high, name
                reason, rule = f"within {delta.path}", "C46"
            elif widest is None or shadows(widest, name):
                self._cover(delta, reason, rule)
                continue
            # The base or an earlier delta also holds the rows at or below `below` (F13).
            straddles = name.low <= below and not name.deletes
            selected.append(self._delta(delta, below if straddles else -1))
        return tuple(selected)

    def _visible_deltas(
        self, directories: Iterable[_Directory[DeltaName]]
    ) -> list[_Directory[DeltaName]]:
        """The deltas with a visible write id, in the order of the algorithm."""
        visible: list[_Directory[DeltaName]] = []
        for delta in directories:
            name = delta.name
            if not self._compaction_visible(delta):
                continue
            if self.write_ids.range_aborted(name.low, name.high) is RangeResponse.ALL:
                ids = (
                    f"write id {name.low}"
                    if name.low == name.high
                    else (f"all write ids {name.low} to {name.high}")
                )
                self._abort(delta, f"{ids} aborted", "C46")
            elif self.write_ids.range_valid(name.low, name.high) is RangeResponse.NONE:
                self._hide(delta, "holds no visible write id")
            else:
                visible.append(delta)
        return sorted(
            visible,
            key=lambda delta: (
                delta.name.low,
                -delta.name.high,
                -1 if delta.name.statement is None else delta.name.statement,
                -delta.name.visibility,
                delta.path,
            ),
        )

    def _delta(self, delta: _Directory[DeltaName], above: int) -> VisibleDelta:
        name = delta.name
        if self.insert_only:
            self._require_whole(delta)
        contents = self._contents(delta)
        if contents.raw and name.deletes:
            raise CorruptFile(
                f"{self.listing.location}/{contents.files[0].path} is in a delete_delta, which may"
                " hold only bucket files; restore the directory or abort its writer"
            )
        partly = self.write_ids.range_valid(name.low, name.high) is not RangeResponse.ALL
        return VisibleDelta(
            name,
            delta.path,
            contents.files,
            partly,
            above,
            contents.raw,
            delta.compacted,
            delta.versioned,
            contents.side_files,
        )

    def _require_whole(self, delta: _Directory[DeltaName]) -> None:
        """Raises unless the whole delta is visible: insert-only rows have no write ids to test."""
        name = delta.name
        if name.deletes:
            raise UnsupportedLayout(
                f"{self.listing.location}/{delta.path} is a delete_delta, but the table is"
                " insert-only; move it out of the table"
            )
        write_ids = self.write_ids
        partly = name.high > write_ids.high_watermark or write_ids.open_between(name.low, name.high)
        if not self.cleaning and partly:
            raise NotEnoughHistory(
                f"{self.listing.location}/{delta.path} merges write ids that {self.write_ids} does"
                " not see; read a newer snapshot"
            )

    def _contents(self, directory: _Directory[_Name]) -> DataFiles:
        contents = data_files(
            self.listing.location, directory.path, directory.files, self.insert_only
        )
        self.zero_length += contents.zero_length
        return contents

    def _compaction_visible(self, directory: _Directory[_Name]) -> bool:
        """S18: a compactor's directory is visible only if its transaction is."""
        txn = directory.name.visibility
        if txn == 0 or self.txns.is_valid(txn):
            return True
        if self.txns.is_aborted(txn):
            self._abort(directory, f"compaction transaction {txn} aborted", "S18")
        else:
            self._hide(
                directory, f"compaction transaction {txn} is not committed for this snapshot"
            )
        return False

    def _require_history(self, unusable: list[_Directory[BaseName]]) -> None:
        """Raises NotEnoughHistory if none of the compacted or adopted bases is usable (F14, P13).

        The inputs of such a base may be gone, even if an overwrite of a lower write id is unusable
        too: an error is better than missing rows.
        """
        if unusable and not self.cleaning:
            raise NotEnoughHistory(
                f"{self.listing.location}: the snapshot {self.write_ids} is older than"
                f" {unusable[0].path}, and what that base merged may be gone; read a newer snapshot"
            )

    def _dropped(self) -> str:
        return f"dropped with the partition at write id {self.floor}"

    def _cover(self, directory: _Directory[_Name], reason: str, rule: str) -> None:
        self.obsolete.append(Removable(directory.path, reason, rule))

    def _abort(self, directory: _Directory[_Name], reason: str, rule: str) -> None:
        self.aborted.append(Removable(directory.path, reason, rule))

    def _hide(self, directory: _Directory[_Name], reason: str) -> None:
        self.invisible.append(Invisible(directory.path, directory.name, reason))
