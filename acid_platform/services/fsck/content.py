"""Checks the content of a snapshot's files: schema, row keys, key index, deletes, counts.

Files are read one at a time: their key columns, and all others where the format adds checksums to
what it writes (Parquet). Memory holds the deleted keys and, for
each file, write id and bucket, the lowest and highest rowId.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np

from acid_platform.errors import AcidError, CorruptFile, UnsupportedLayout
from acid_platform.formats.data_file import (
    DELETE_EVENT,
    INSERT_EVENT,
    DataFile,
    FilePath,
    KeyPart,
)
from acid_platform.formats.file_access import WRITTEN_FORMATS, count_rows, open_file, reading
from acid_platform.layout.acid_keys import RowKey, ascending_steps, decode_bucket
from acid_platform.layout.file_entries import FileEntry
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import FLUSH_LENGTH_SUFFIX, parse_bucket_file
from acid_platform.metastore.records import EntityDirectory
from acid_platform.scan.acid_directory import AcidDirectory, VisibleBase, VisibleDelta
from acid_platform.scan.deletes import NO_DELETES, DeleteKeys, valid_ids
from acid_platform.scan.open import open_entity
from acid_platform.scan.source_files import RowIdentity, SourceFile, open_source
from acid_platform.services.fsck.findings import RESTORE, REWRITE, Check, Findings
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_types import group_begins

_NOTHING = np.empty(0, np.int64)

Group = tuple[int, int]
"""Write id and bucket property; rowIds are unique within a group."""


@dataclass(slots=True)
class EntityContents:
    """Checks the files of one entity.

    `recorded` has the directories that writers reported; `buckets` is the table's bucket count, 0
    without CLUSTERED BY; `rows` False skips row keys.
    """

    out: Findings
    files: Files
    write_ids: ValidWriteIdList
    recorded: Mapping[str, EntityDirectory]
    buckets: int
    format: FileFormat
    rows: bool
    _counted: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _spans: dict[Group, list[tuple[int, int, SourceFile]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _deleted: DeleteKeys = NO_DELETES
    _unmatched_bits: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    """The deleted keys of which no row was found yet."""

    def look(self, entity: AcidDirectory) -> None:
        """Reports everything that is wrong with the files that the snapshot reads."""
        readable = self._openable(entity)
        try:
            sources, self._deleted = open_entity(
                self.files, readable, self.write_ids, entity.location
            )
        except AcidError as error:
            self.out.error(Check.CONTENT, "", str(error), "until then reading the table fails")
            return
        self._unmatched_bits = self._deleted.bits.copy()
        for source in (*sources.deletes, *sources.inserts):
            self._file(source)
        self._collisions()
        self._unmatched()
        for part in readable.sources:
            self._counts(part.directory, [file.size for file in part.files])

    def _openable(self, entity: AcidDirectory) -> AcidDirectory:
        """The directory without files that can't be opened, which are reported."""
        base = None if entity.base is None else self._whole(entity.base, entity)
        deltas = tuple(self._whole(delta, entity) for delta in entity.deltas)
        originals = tuple(file for file in entity.originals if self._opens(entity, file))
        return replace(entity, base=base, deltas=deltas, originals=originals)

    def _whole(self, part: _Part, entity: AcidDirectory) -> _Part:
        sides = {file.path for file in part.side_files}
        files = tuple(
            file
            for file in part.files
            if f"{file.path}{FLUSH_LENGTH_SUFFIX}" in sides or self._opens(entity, file)
        )
        if len(files) < len(part.files):
            self._counted[part.directory] = -1  # reported already: no second finding for its rows
        return replace(part, files=files)

    def _opens(self, entity: AcidDirectory, file: FileEntry) -> bool:
        self.out.files += 1
        path, where = file.path, f"{entity.location}/{file.path}"
        try:
            if entity.insert_only:
                count_rows(self.files, where, self.format)
            else:
                open_file(self.files, FilePath(where, file.keyed_format), strange=True)
        except (CorruptFile, UnsupportedLayout, FileNotFoundError) as error:
            if entity.insert_only and isinstance(
                error, UnsupportedLayout
            ):  # Avro: Spark alone opens it
                return True
            self.out.error(Check.CONTENT, path, str(error), RESTORE)
            return False
        return True

    # --- one file ------------------------------------------------------------------------------

    def _file(self, source: SourceFile) -> None:
        path = self._relative(source)
        if source.identity is not RowIdentity.STORED:
            self._without_keys(source)
            return
        try:
            events = read_events(self.files, source, self.rows)
        except AcidError as error:
            self.out.error(Check.SCHEMA, path, str(error), RESTORE)
            self._counted[source.directory] = -1
            return
        self._add(source.directory, events.rows)
        if not self.rows:
            return
        self.out.rows += events.rows
        deletes = source.directory.startswith("delete_")
        self._operations(events, path, deletes)
        self._order(events, path)
        self._buckets_of(events, source, path, deletes)
        self._ids_of(events, source, path, deletes)
        self._index(events, source, path)
        if not deletes:
            self._collect(events, source)

    def _without_keys(self, source: SourceFile) -> None:
        """Counts the rows of files that store no keys; notes the runs of row ids."""
        if source.identity is RowIdentity.NONE:
            try:
                self._add(source.directory, count_rows(self.files, source.path, self.format))
                self._require_whole(source)
            except UnsupportedLayout:
                self._counted[source.directory] = -1
            except CorruptFile as error:
                self.out.error(Check.CONTENT, self._relative(source), str(error), RESTORE)
            return
        rows = source.rows or 0
        self._add(source.directory, rows)
        if rows:
            last = source.first_row_id + rows - 1
            group = (source.write_id, source.bucket)
            self._spans[group].append((source.first_row_id, last, source))
            self._match(group, np.arange(source.first_row_id, last + 1))

    def _require_whole(self, source: SourceFile) -> None:
        """Raises CorruptFile if rows without keys are not what their checksums say."""
        if self.rows and self.format.name in WRITTEN_FORMATS:
            with reading(source.path):
                require_whole(open_source(self.files, source))

    def _operations(self, events: EventKeys, path: str, deletes: bool) -> None:
        expected = DELETE_EVENT if deletes else INSERT_EVENT
        wrong = events.operation[events.operation != expected]
        if len(wrong):
            what = (
                f"{len(wrong)} events have operation {int(wrong[0])}, but all must have {expected}"
            )
            self.out.error(Check.OPERATION, path, what, RESTORE)

    def _order(self, events: EventKeys, path: str) -> None:
        at = None if events.by_columns else events.first_descent()
        if at is not None:
            what = (
                f"the key of row {at + 1}, {events.key(at + 1)}, is not above that of row {at},"
                f" {events.key(at)}: Hive misses deletes there"
            )
            self.out.error(Check.ORDER, path, what, REWRITE)

    def _buckets_of(self, events: EventKeys, source: SourceFile, path: str, deletes: bool) -> None:
        parsed = parse_bucket_file(path.rpartition("/")[2])
        if parsed is None:
            return
        try:
            numbers = {decode_bucket(int(bucket)).number for bucket in np.unique(events.bucket)}
        except CorruptFile as error:
            self.out.error(Check.BUCKET, path, str(error), RESTORE)
            return
        if self.buckets and parsed.bucket >= self.buckets:
            what = f"the table has {self.buckets} buckets, 0 to {self.buckets - 1}"
            self.out.error(Check.BUCKET, path, what, RESTORE)
        # Without CLUSTERED BY, delete files and outputs of Hive's query-based compaction may hold
        # rows of any bucket.
        strict = self.buckets or (source.number is not None and not deletes)
        others = sorted(numbers - {parsed.bucket})
        if strict and others:
            what = (
                f"rows say bucket {', '.join(map(str, others))}, but the name says"
                f" {parsed.bucket}: readers look for deletes by the name"
            )
            self.out.error(Check.BUCKET, path, what, REWRITE)

    def _ids_of(self, events: EventKeys, source: SourceFile, path: str, deletes: bool) -> None:
        names = events.names
        checked = [(names[KeyPart.CHANGED_BY], events.current)]
        if not deletes:
            checked.append((names[KeyPart.WRITE_ID], events.original))
        for name, ids in checked:
            outside = ids[(ids < source.low) | (ids > source.high)]
            if len(outside):
                what = (
                    f"{len(outside)} rows have {name} {int(outside[0])}"
                    f" outside of the {source.low} to {source.high} of the directory's name:"
                    " snapshots see too many rows or too few"
                )
                self.out.error(Check.WRITE_IDS, path, what, RESTORE)

    def _index(self, events: EventKeys, source: SourceFile, path: str) -> None:
        if source.length is not None or not events.rows:
            return
        if events.index_flaw is None:
            return
        text, harmful = events.index_flaw
        if harmful and source.directory.startswith("delete_"):
            # Trino gives the file's last row the file's own write id and row count.
            what = f"{text}, as Trino writes it: readers use it only in files of inserted rows"
            self.out.warning(Check.KEY_INDEX, path, what, REWRITE)
        elif harmful:
            what = f"{text}: Hive ignores delete events outside the ranges in it"
            self.out.error(Check.KEY_INDEX, path, what, REWRITE)
        elif self._ours(source.directory):
            what = f"{text}: Hive 3 and older treat the file as one without ACID columns"
            self.out.warning(Check.KEY_INDEX, path, what, REWRITE)

    # --- over all files ------------------------------------------------------------------------

    def _collect(self, events: EventKeys, source: SourceFile) -> None:
        visible = _visible(events, source, self.write_ids)
        for group, row_ids in events.groups():
            self._match(group, row_ids)
        for group, row_ids in events.groups(visible):
            self._spans[group].append((int(row_ids.min()), int(row_ids.max()), source))

    def _match(self, group: Group, row_ids: np.ndarray) -> None:
        """Marks the deleted keys that belong to these rows."""
        mine = self._deleted.group(*group)
        deleted = self._deleted.words[mine]
        write_id, bucket = (np.full(len(row_ids), part) for part in group)
        rows = DeleteKeys.of(write_id, bucket, row_ids)
        _, of_deleted, of_rows = np.intersect1d(
            deleted, rows.words, assume_unique=True, return_indices=True
        )
        self._unmatched_bits[mine][of_deleted] &= ~rows.bits[of_rows]

    def _collisions(self) -> None:
        """Reports row keys that two files share (P14).

        Only files whose ranges of rowIds overlap are read again.
        """
        for group, spans in self._spans.items():
            spans.sort(key=lambda span: span[:2])
            for former, other in _overlapping(spans):
                twice = np.intersect1d(self._row_ids(group, former), self._row_ids(group, other))
                if len(twice):
                    key = (*group, int(twice[0]))
                    what = (
                        f"{len(twice)} rows have the keys of rows in {self._relative(former)},"
                        f" such as {key}: a delete of one removes the other"
                    )
                    step = "remove the file if it is a copy of the other; otherwise restore both"
                    self.out.error(Check.UNIQUENESS, self._relative(other), what, step)

    def _row_ids(self, group: Group, source: SourceFile) -> np.ndarray:
        if source.identity is RowIdentity.RUN:
            return np.arange(source.first_row_id, source.first_row_id + (source.rows or 0))
        events = read_events(self.files, source, True)
        visible = _visible(events, source, self.write_ids)
        mine = visible & (events.original == group[0]) & (events.bucket == group[1])
        return np.asarray(events.row_id[mine])

    def _unmatched(self) -> None:
        left = np.flatnonzero(self._unmatched_bits)
        if self.rows and len(left):
            keys = replace(self._deleted, bits=self._unmatched_bits)
            write_ids, buckets, row_ids = next(part for part in keys.parts() if len(part[0]))
            key = (int(write_ids[0]), int(buckets[0]), int(row_ids[0]))
            what = f"{len(keys)} delete events match no row, such as {key}"
            step = (
                "nothing to do: a row that was compacted away, or whose insert aborted, leaves"
                " such events until the next major compaction"
            )
            self.out.note(Check.DELETES, "", what, step)

    def _counts(self, directory: str, sizes: list[int]) -> None:
        """Compares the writer's counts with the files (P8)."""
        if not self._ours(directory) or self._counted.get(directory, 0) < 0:
            return
        report = self.recorded[directory]
        counts = [
            ("rows", self._counted.get(directory, 0), report.rows),
            ("files", len(sizes), report.files),
            ("bytes", sum(sizes), report.bytes),
        ]
        unlike = [
            f"{counted} {name} instead of {reported}"
            for name, counted, reported in counts
            if counted != reported
        ]
        if unlike:
            what = f"holds {', '.join(unlike)} that transaction {report.txn} reported"
            step = "restore the directory from a copy of the warehouse"
            self.out.error(Check.COUNTS, directory, what, step)

    # --- small things --------------------------------------------------------------------------

    def _ours(self, directory: str) -> bool:
        """Whether a transaction of this metastore wrote it; otherwise it was adopted with its
        table."""
        return directory in self.recorded and self.recorded[directory].txn > 0

    def _add(self, directory: str, rows: int) -> None:
        if self._counted[directory] >= 0:
            self._counted[directory] += rows

    def _relative(self, source: SourceFile) -> str:
        *_, directory, name = source.path.split("/")
        return f"{directory}/{name}" if source.directory else name


_Part = TypeVar("_Part", VisibleBase, VisibleDelta)


def _visible(events: EventKeys, source: SourceFile, write_ids: ValidWriteIdList) -> np.ndarray:
    """Mask (n,) of the events of the file that the snapshot sees (S15, F13)."""
    visible: np.ndarray = events.current > source.above
    if source.test_rows:
        visible &= valid_ids(events.current, write_ids)
    return visible


def _overlapping(
    spans: Iterable[tuple[int, int, SourceFile]],
) -> Iterator[tuple[SourceFile, SourceFile]]:
    """Pairs of files whose ranges of rowIds overlap; `spans` are in ascending order."""
    before: list[tuple[int, SourceFile]] = []
    for low, high, source in spans:
        before = [pair for pair in before if pair[0] >= low]
        yield from ((other, source) for _, other in before)
        before.append((high, source))


# --- keys ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventKeys:
    """The five id columns of a file, int64 arrays (n,) in file order."""

    rows: int
    names: Sequence[str]
    """What the file calls these columns."""
    by_columns: bool
    """Whether its rows are in the order of columns, and these in any."""
    index_flaw: tuple[str, bool] | None
    """What is wrong with the file's index of keys, and whether it does harm."""
    operation: np.ndarray
    original: np.ndarray
    bucket: np.ndarray
    row_id: np.ndarray
    current: np.ndarray

    def key(self, at: int) -> RowKey:
        return int(self.original[at]), int(self.bucket[at]), int(self.row_id[at])

    def first_descent(self) -> int | None:
        """The first row whose key is not below the next row's key; None if all ascend (P15)."""
        steps = ascending_steps(self.original, self.bucket, self.row_id)
        return None if steps.all() else int(np.argmin(steps))

    def groups(
        self, mask: np.ndarray | None = None
    ) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
        """((write id, bucket property), rowIds) of all rows, or of the rows in `mask`."""
        chosen = slice(None) if mask is None else mask
        original, bucket, row_id = (
            ids[chosen] for ids in (self.original, self.bucket, self.row_id)
        )
        order = np.lexsort((bucket, original))
        original, bucket, row_id = original[order], bucket[order], row_id[order]
        starts = np.flatnonzero(group_begins(original, bucket))
        for low, high in pairwise([*starts, len(row_id)]):
            yield (int(original[low]), int(bucket[low])), row_id[low:high]


def read_events(files: Files, source: SourceFile, rows: bool = True) -> EventKeys:
    """The event keys of an ACID source; with `rows` False only their number is read.

    Raises CorruptFile, also for rows that are not what their checksums say.
    """
    with reading(source.path):
        file = open_source(files, source)
        names = tuple(file.key_columns)  # raises without them
        if not rows:
            return EventKeys(file.rows, names, file.by_columns, None, *[_NOTHING] * 5)
        require_whole(file)
        batches = [[_NOTHING] * 5, *file.key_parts(*KeyPart)]
        ids = [np.concatenate(column) for column in zip(*batches, strict=True)]
        whole = len(ids[0]) and source.length is None
        flaw = file.key_index_flaw(ids[1:4]) if whole else None
    return EventKeys(len(ids[0]), names, file.by_columns, flaw, *ids)


def require_whole(file: DataFile) -> None:
    """Reads all values of a file with checksums (P64). Raises CorruptFile, and Arrow's errors: call
    it inside of `reading`."""
    if file.has_checksums:
        for piece in range(len(file.piece_rows)):
            file.decode(piece, file.names, as_stored=True, coded=True)
