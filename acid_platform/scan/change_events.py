"""What one write id did to the rows of an entity, as its own files tell (P39).

Rows that the transaction inserted and removed again leave no trace. A row that it changed several
times was changed once: from what it was before the transaction to what it was at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from acid_platform.errors import CorruptFile
from acid_platform.formats.data_file import DELETE_EVENT, KeyPart, require_operation
from acid_platform.formats.file_access import reading
from acid_platform.layout.acid_keys import Bucket
from acid_platform.layout.names import DeltaName, parse_directory
from acid_platform.scan.deletes import NO_DELETES, DeletedRows, DeleteKeys
from acid_platform.scan.source_files import EntitySources, RowIdentity, SourceFile, open_source
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import group_begins

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class RemovedKeys:
    """Keys of rows that others had inserted, int64 arrays (n,), in no order.

    `updated`, a mask (n,): the row lives on with new values.
    """

    write_ids: np.ndarray
    buckets: np.ndarray
    row_ids: np.ndarray
    updated: np.ndarray

    def __len__(self) -> int:
        return len(self.row_ids)


NO_ROWS = RemovedKeys(_NONE, _NONE, _NONE, np.empty(0, bool))


@dataclass(frozen=True, slots=True)
class WriteEvents:
    """The events of a write id in an entity."""

    removed: RemovedKeys = NO_ROWS
    own: DeleteKeys = NO_DELETES
    """Rows that the transaction inserted and removed again."""
    updated_from: dict[int, int] | None = None
    """By bucket property: from this rowId on, inserted rows are new values of updated rows."""
    inserted: DeleteKeys = NO_DELETES
    """Exceptions: updated rows that the transaction itself had inserted, so that they are new."""


NO_EVENTS = WriteEvents()


@dataclass(frozen=True, slots=True)
class _Events:
    """Delete events; those of updates name the row that took the place of theirs."""

    write_ids: np.ndarray
    buckets: np.ndarray
    row_ids: np.ndarray
    updated: np.ndarray
    new_buckets: np.ndarray
    new_rows: np.ndarray


def write_events(files: Files, sources: EntitySources, write_id: int) -> WriteEvents:
    """Reads the delete events of a write id; `sources` are the files of that write id alone.

    Raises CorruptFile, UnsupportedLayout.
    """
    if not sources.deletes:
        return WriteEvents()
    inserts = {
        (_statement(source), source.number): source
        for source in sources.inserts
        if source.identity is RowIdentity.STORED
    }
    updated_from: dict[int, int] = {}
    parts = []
    for source in sources.deletes:
        keys, updated = _read(files, source, write_id)
        new_buckets, new_rows = np.zeros(len(updated), np.int64), np.zeros(len(updated), np.int64)
        count = int(updated.sum())
        if count:
            statement, number = _statement(source), source.number
            last = _last_row(files, inserts.get((statement, number)), count, source)
            bucket = Bucket(number or 0, statement).property
            updated_from[bucket] = last - count + 1
            new_buckets[updated] = bucket
            new_rows[updated] = np.arange(last - count + 1, last + 1)
        parts.append((*keys, updated, new_buckets, new_rows))
    events = _Events(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    own = events.write_ids == write_id
    if not own.any():
        removed = RemovedKeys(events.write_ids, events.buckets, events.row_ids, events.updated)
        return WriteEvents(removed, updated_from=updated_from)
    return _resolved(events, own, write_id, updated_from)


def _resolved(
    events: _Events, own: np.ndarray, write_id: int, updated_from: dict[int, int]
) -> WriteEvents:
    """Follows each row through the statements that changed it."""
    count = len(own)
    last = np.arange(count)
    following = _following(events, own)
    while True:
        after = following[last]
        moves = after >= 0
        if not moves.any():
            break
        last = np.where(moves, after, last)
    first = ~own
    lives = events.updated[last]
    removed = RemovedKeys(
        events.write_ids[first], events.buckets[first], events.row_ids[first], lives[first]
    )
    gone = _keys(write_id, events.buckets[own], events.row_ids[own])
    followed = np.zeros(count, bool)
    followed[following[following >= 0]] = True
    # Rows of the transaction's own inserts that it changed: their last values are inserted.
    fresh = last[own & ~followed & lives]
    inserted = _keys(write_id, events.new_buckets[fresh], events.new_rows[fresh])
    return WriteEvents(removed, gone, updated_from, inserted)


def _following(events: _Events, own: np.ndarray) -> np.ndarray:
    """For each event the event that removes the row that took the place of its row; -1: none."""
    following = np.full(len(own), -1)
    later, updated = np.flatnonzero(own), np.flatnonzero(events.updated)
    order = later[np.lexsort((events.row_ids[later], events.buckets[later]))]
    buckets, rows = events.buckets[order], events.row_ids[order]
    for bucket in np.unique(events.new_buckets[updated]).tolist():
        low, high = np.searchsorted(buckets, [bucket, bucket + 1])
        mine = updated[events.new_buckets[updated] == bucket]
        at = low + np.searchsorted(rows[low:high], events.new_rows[mine])
        present = at < high
        present[present] = rows[at[present]] == events.new_rows[mine][present]
        following[mine[present]] = order[at[present]]
    return following


def _keys(write_id: int, buckets: np.ndarray, row_ids: np.ndarray) -> DeleteKeys:
    return DeleteKeys.of(np.full(len(row_ids), write_id), buckets, row_ids)


def _statement(source: SourceFile) -> int:
    name = parse_directory(source.directory)
    return (name.statement or 0) if isinstance(name, DeltaName) else 0


def _read(files: Files, source: SourceFile, write_id: int) -> tuple[list[np.ndarray], np.ndarray]:
    """The keys of a file of delete events, and which of them belong to updates."""
    path = source.path
    parts = []
    with reading(path):
        file = open_source(files, source)
        for operation, *columns in file.key_parts(*KeyPart):
            require_operation(operation, DELETE_EVENT, path)
            parts.append(columns)
    if not parts:
        return [_NONE, _NONE, _NONE], np.empty(0, bool)
    *keys, current = (np.concatenate(each) for each in zip(*parts, strict=True))
    if (current != write_id).any():
        raise CorruptFile(
            f"{path} has events of other write ids than {write_id}, which its name tells; restore"
            " the file"
        )
    return keys, file.updates(len(current))


def _last_row(files: Files, source: SourceFile | None, count: int, deletes: SourceFile) -> int:
    """The highest rowId of the file with the new values of `count` updated rows."""
    if source is None:
        raise CorruptFile(
            f"{deletes.path} says that {count} rows were updated, and the file with their new"
            " values is missing; restore it"
        )
    if source.keys is not None:
        first, last = source.keys.row_ids
        rows = source.rows
    else:
        with reading(source.path):
            ids = np.concatenate(
                [_NONE, *(ids for (ids,) in open_source(files, source).key_parts(KeyPart.ROW_ID))]
            )
        first, last, rows = int(ids.min()), int(ids.max()), len(ids)
    if rows is None or last - first + 1 != rows or rows < count:
        raise CorruptFile(
            f"{source.path} should end with the new values of {count} updated rows; its {rows} rows"
            f" have the rowIds {first} to {last}; restore the file"
        )
    return last


def merged(parts: Sequence[tuple[int, RemovedKeys]]) -> MarkedKeys:
    """The keys that several writes removed, with the number of each write; the first one counts."""
    if not parts:
        return MarkedKeys(_NONE, _NONE, _NONE, _NONE, np.empty(0, bool))
    keys = [
        np.concatenate([getattr(rows, name) for _, rows in parts])
        for name in ("write_ids", "buckets", "row_ids")
    ]
    marks = np.concatenate([np.full(len(rows), number) for number, rows in parts])
    updated = np.concatenate([rows.updated for _, rows in parts])
    order = np.lexsort((marks, *keys[::-1]))
    order = order[group_begins(*(key[order] for key in keys))]
    w, b, r = (key[order] for key in keys)
    return MarkedKeys(w, b, r, marks[order], updated[order])


@dataclass(frozen=True, slots=True)
class MarkedKeys:
    """Keys of removed rows, int64 arrays (n,), unique, by write id, bucket property and rowId.

    `writes` (n,) numbers the write that removed each, and `updated` (n,) tells whether the row
    lives on with new values.
    """

    write_ids: np.ndarray
    buckets: np.ndarray
    row_ids: np.ndarray
    writes: np.ndarray
    updated: np.ndarray

    def __len__(self) -> int:
        return len(self.row_ids)

    def as_deleted(self) -> DeleteKeys:
        """The keys alone."""
        return DeleteKeys.of(self.write_ids, self.buckets, self.row_ids)

    def chosen(self, which: np.ndarray) -> MarkedKeys:
        """Some of them, by a mask or places in ascending order."""
        return MarkedKeys(
            self.write_ids[which],
            self.buckets[which],
            self.row_ids[which],
            self.writes[which],
            self.updated[which],
        )

    def without(self, gone: DeleteKeys) -> MarkedKeys:
        """Those that are not among other keys."""
        if not len(gone) or not len(self):
            return self
        left = DeletedRows(gone).survivors(self.write_ids, self.buckets, self.row_ids)
        return self.chosen(left)

    def of_file(self, source: SourceFile) -> MarkedKeys:
        """Those of rows that may be in a file."""
        low, high = np.searchsorted(self.write_ids, [source.low, source.high + 1])
        mine = self.chosen(np.arange(low, high))
        ranges = source.keys
        if ranges is None:
            return mine
        keep = np.ones(len(mine), bool)
        for values, (first, last) in (
            (mine.write_ids, ranges.write_ids),
            (mine.buckets, ranges.buckets),
            (mine.row_ids, ranges.row_ids),
        ):
            keep &= (values >= first) & (values <= last)
        return mine if keep.all() else mine.chosen(keep)


def places(keys: MarkedKeys, w: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
    """The place of each row key (n,) among the keys; -1 if it is not there."""
    found_at = np.full(len(r), -1)
    if not len(keys) or not len(r):
        return found_at
    order = np.lexsort((b, w))
    ws, bs = w[order], b[order]
    for start, end in pairwise([*np.flatnonzero(group_begins(ws, bs)).tolist(), len(order)]):
        low, high = np.searchsorted(keys.write_ids, [ws[start], ws[start] + 1])
        within = np.searchsorted(keys.buckets[low:high], [bs[start], bs[start] + 1])
        low, high = low + within[0], low + within[1]
        if low == high:
            continue
        mine = order[start:end]
        at = low + np.searchsorted(keys.row_ids[low:high], r[mine])
        inside = at < high
        inside[inside] = keys.row_ids[at[inside]] == r[mine][inside]
        found_at[mine[inside]] = at[inside]
    return found_at
