"""From what the metastore knows of a table's changes to the files that they are read from (P39).

A change is read from the directories that its own commit has published, whatever compactions have
merged since: the Cleaner keeps them as long as the history reaches back before them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from acid_platform.errors import InvalidDefinition, UnsupportedLayout
from acid_platform.layout.file_entries import EntityListing
from acid_platform.layout.names import BaseName, parse_directory
from acid_platform.metastore.client.metastore import OpenTransaction
from acid_platform.metastore.pasts import TableCommit, before_commits
from acid_platform.metastore.records import PartitionRecord, TableChanges
from acid_platform.scan.change_events import NO_ROWS, MarkedKeys, RemovedKeys, merged, write_events
from acid_platform.scan.change_scan import (
    CHANGE_COLUMNS,
    DELETE,
    INSERT,
    ChangeReader,
    ChangeScan,
    EntityParts,
    LiveRows,
    NewRows,
    RemovedRows,
    Stamp,
)
from acid_platform.scan.deletes import NO_DELETES, DeleteKeys, kept_keys
from acid_platform.scan.open import TableLayout, numbered_as_deleted, open_entity
from acid_platform.scan.selection import highest_floor, select
from acid_platform.scan.source_files import EntitySources, SourceFile
from acid_platform.tables.record_layout import recorded_listings, table_layout
from acid_platform.transactions import ValidTxnList, ValidWriteIdList


def open_changes(changes: TableChanges, txn: OpenTransaction) -> ChangeScan:
    """The files that the changes are read from; delete events are read here.

    `txn` keeps the files. Raises NotEnoughHistory, CorruptFile,
    UnsupportedLayout, InvalidDefinition if the table has a column with a name of CHANGE_COLUMNS.
    """
    layout = table_layout(changes.table, txn, changes.entities)
    every = (*layout.columns, *layout.partition_columns)
    taken = {column.name for column in every} & {column.name for column in CHANGE_COLUMNS}
    if taken:
        raise InvalidDefinition(
            f"{layout.name} has the column {', '.join(sorted(taken))}, which its changes add;"
            " they can't be read with both"
        )
    commits = [commit for commit in changes.commits if changes.before is None or commit.write_id]
    names = sorted({partition.name for partition in changes.entities})
    opening = _Opening(layout, changes)
    entities = tuple(
        opening.entity(name, listing)
        for name, listing in recorded_listings(layout, txn, names).items()
    )
    reader = ChangeReader(
        layout.files,
        layout.columns,
        layout.partition_columns,
        _stamps(commits, changes.same_time),
        tuple(column.name for column in (*every, *CHANGE_COLUMNS)),
        layout.format,
    )
    return ChangeScan(
        layout.name,
        reader,
        tuple(each for each in entities if each.parts),
        changes.after.moment,
        changes.cursor.moment if changes.cursor else 0,
    )


def _stamps(commits: Sequence[TableCommit], same_time: int) -> tuple[Stamp, ...]:
    """Commits of the same millisecond get one microsecond each, in their order."""
    stamps, at = [], None
    for commit in commits:
        same_time = same_time + 1 if at is not None and commit.at == at else same_time
        if at is not None and commit.at != at:
            same_time = 0
        at = commit.at
        micros = at * 1000 + min(same_time, 999)
        stamps.append(Stamp(max(commit.write_id, 0), commit.txn_id, micros))
    return tuple(stamps)


@dataclass(slots=True)
class _Opening:
    layout: TableLayout
    changes: TableChanges

    def entity(self, name: str, listing: EntityListing) -> EntityParts:
        """What a partition ('' for an unpartitioned table) has of the changes."""
        own = [partition for partition in self.changes.entities if partition.name == name]
        before = self.changes.before
        if before is None:
            parts = [
                part
                for partition in own
                if partition.there_at(self.changes.after.moment)
                for part in self.live(listing, partition, self.lists(), 0, INSERT)
            ]
            return EntityParts(name, self.layout.values(name), tuple(parts))
        work = _EntityWork(self, listing, own)
        return work.parts(name)

    def lists(self, later: Sequence[TableCommit] = ()) -> tuple[ValidWriteIdList, ValidTxnList]:
        """Those of a snapshot before some of the commits."""
        after = self.changes.after
        return before_commits(after.write_ids, after.txns, later)

    def live(
        self,
        listing: EntityListing,
        partition: PartitionRecord,
        lists: tuple[ValidWriteIdList, ValidTxnList],
        stamp: int,
        kind: str,
    ) -> Iterator[LiveRows]:
        """The rows that a snapshot sees of a partition."""
        sources, gone = self.opened(listing, partition, lists)
        for source in sources.inserts:
            touched = gone.may_touch(source.low, source.high, source.number)
            yield LiveRows(source, lists[0], stamp, gone if touched else NO_DELETES, kind)

    def opened(
        self,
        listing: EntityListing,
        partition: PartitionRecord,
        lists: tuple[ValidWriteIdList, ValidTxnList],
    ) -> tuple[EntitySources, DeleteKeys]:
        layout, write_ids = self.layout, lists[0]
        floor = highest_floor(write_ids, layout.floor, *partition.floors)
        directory = select(listing, *lists, floor=floor, insert_only=layout.insert_only)
        return open_entity(layout.files, directory, write_ids, layout.name, load=kept_keys)


@dataclass(slots=True)
class _EntityWork:
    """Collects the parts of an entity, commit by commit."""

    opening: _Opening
    listing: EntityListing
    incarnations: Sequence[PartitionRecord]
    removed: list[tuple[int, RemovedKeys]] = field(default_factory=list)
    added: list[NewRows] = field(default_factory=list)
    replaced: list[LiveRows] = field(default_factory=list)

    def parts(self, name: str) -> EntityParts:
        changes = self.opening.changes
        assert changes.before is not None
        own = self._own_listings()
        dropped = self._drops()
        stamp = -1
        for index, commit in enumerate(changes.commits):
            if not commit.write_id:
                continue
            stamp += 1
            mine = own.get(commit.write_id)
            gone = dropped.get(index)
            if gone is None and mine is not None and _overwrites(mine):
                gone = self._there(commit)
            if gone is not None:
                lists = self.opening.lists(changes.commits[index:])
                self.replaced += self.opening.live(self.listing, gone, lists, stamp, DELETE)
            if mine is not None:
                self._write(mine, commit.write_id, stamp)
        keys = merged(self.removed)
        images: list[RemovedRows] = []
        if len(keys):
            keys, images = self._images(keys)
        return EntityParts(
            name,
            self.opening.layout.values(name),
            (*images, *self.replaced, *self.added),
            len(keys),
        )

    def _there(self, commit: TableCommit) -> PartitionRecord | None:
        """The partition that an overwrite has replaced, if there was one."""
        before = (each for each in self.incarnations if each.there_at(commit.moment))
        return next(before, None)

    def _drops(self) -> dict[int, PartitionRecord]:
        """The partition that each commit has dropped, by the place of the commit."""
        commits = self.opening.changes.commits
        moments = [commit.moment for commit in commits]
        drops = {}
        for partition in self.incarnations:
            if not partition.dropped:
                continue
            number = bisect_left(moments, partition.dropped)
            if number < len(commits):
                drops[number] = partition
        return drops

    def _own_listings(self) -> Mapping[int, EntityListing]:
        """The directories that each write id itself has published."""
        writes = {commit.write_id for commit in self.opening.changes.commits if commit.write_id}
        children: dict[str, int] = {}
        for child in {
            *self.listing.directories,
            *(file.path.partition("/")[0] for file in self.listing.files if "/" in file.path),
        }:
            name = parse_directory(child)
            if name is None or self.listing.data_formats.get(child) == "compacted":
                continue
            if name.visibility:
                continue
            if isinstance(name, BaseName):
                low = high = name.write_id
            else:
                low, high = name.low, name.high
            if low == high:
                if low in writes:
                    children[child] = low
            elif any(low <= write_id <= high for write_id in writes):
                raise UnsupportedLayout(
                    f"{self.listing.location}/{child} has several write ids and no compaction wrote"
                    " it, so that its changes can't be told apart; ask for changes since then"
                )
        own: dict[int, EntityListing] = {}
        for write_id in set(children.values()):
            mine = {child for child, of in children.items() if of == write_id}
            own[write_id] = EntityListing(
                self.listing.location,
                tuple(
                    file
                    for file in self.listing.files
                    if "/" in file.path and file.path.partition("/")[0] in mine
                ),
                tuple(sorted(mine)),
                {},
                self.listing.versioned & mine,
            )
        return own

    def _write(self, listing: EntityListing, write_id: int, stamp: int) -> None:
        """The rows that a write id has added, and the keys of those that it removed."""
        layout = self.opening.layout
        lists = ValidWriteIdList.of(layout.name, write_id), self.opening.changes.after.txns
        directory = select(listing, *lists, insert_only=layout.insert_only)
        sources, _ = open_entity(
            layout.files, directory, lists[0], layout.name, load=lambda *_: NO_DELETES
        )
        events = write_events(layout.files, sources, write_id)
        if len(events.removed):
            self.removed.append((stamp, events.removed))
        events = replace(events, removed=NO_ROWS)
        for source in sources.inserts:
            self.added.append(NewRows(source, lists[0], stamp, events))

    def _images(self, keys: MarkedKeys) -> tuple[MarkedKeys, list[RemovedRows]]:
        """The keys of rows that were there at first or were added since, and where they are."""
        changes = self.opening.changes
        assert changes.before is not None
        pin = changes.before
        sources: list[tuple[SourceFile, ValidWriteIdList]] = []
        for partition in self.incarnations:
            if not partition.there_at(pin.moment):
                continue
            lists = (pin.write_ids, pin.txns)
            then, gone = self.opening.opened(self.listing, partition, lists)
            keys = keys.without(gone)
            sources += [(source, pin.write_ids) for source in then.inserts]
        sources += [(part.source, part.write_ids) for part in self.added]
        together = EntitySources(self.listing.location, tuple(source for source, _ in sources), ())
        numbered = numbered_as_deleted(together, keys.as_deleted()).inserts
        images = []
        for source, (_, write_ids) in zip(numbered, sources, strict=True):
            mine = keys.of_file(source)
            if len(mine):
                images.append(RemovedRows(source, write_ids, mine))
        return keys, images


def _overwrites(listing: EntityListing) -> bool:
    return any(isinstance(parse_directory(child), BaseName) for child in listing.directories)
