"""From a snapshot's lists to a scan: prunes partitions, selects the directories of each, prunes
their files and loads deletes.

The files are those that the metastore recorded for the snapshot, and each must be there with its
recorded size. Both lists must be taken before the files are requested: then a compaction that
commits in between is invisible, and its inputs still exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, compress
from typing import NamedTuple

import numpy as np
from pyarrow import fs

from acid_platform.base.config import Settings
from acid_platform.errors import CorruptFile, NotEnoughHistory
from acid_platform.layout.acid_keys import codec_versions
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.file_entries import EntityListing, RecordedFiles
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.names import parse_partition
from acid_platform.layout.types import Column, require_columns
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.deletes import DeleteKeys, kept_keys, keys_up_to, load_keys
from acid_platform.scan.result_columns import Predicate
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.selection import highest_floor, select
from acid_platform.scan.source_files import EntitySources, RowIdentity, SourceFile, resolve
from acid_platform.storage.files import Files, asking, in_threads
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

Listings = Mapping[str, EntityListing]
"""The files of partitions, by name; '' is an unpartitioned table."""


class OwnDirectory(NamedTuple):
    """A directory that the reading transaction itself has written; '' if unpartitioned."""

    partition: str
    name: str
    contents: RecordedFiles


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a scan needs to know about a table; `partitions` maps names to floor write ids."""

    name: str
    files: Files
    path: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    partitions: Mapping[str, tuple[int, ...]]
    floor: int = 0
    format: FileFormat = ACID_FORMAT
    buckets: Bucketing | None = None
    rewritten: int = 0
    """Files with lower write ids have other columns, or another format; no snapshot of now sees
    them."""
    retyped: int = 0
    """Files with write ids up to this one may have other types of columns."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """The partitions ('' without partition columns) whose files of this past snapshot may be gone,
    since rows were erased from their history, and when: milliseconds UTC."""
    own: tuple[OwnDirectory, ...] = ()
    new: frozenset[str] = frozenset()
    """The partitions that only the reading transaction itself has written."""

    @property
    def insert_only(self) -> bool:
        return not self.format.keyed

    def values(self, partition: str) -> tuple[str | None, ...]:
        """The values of a partition's columns, in order.

        Raises CorruptFile if the partition does not have the table's partition columns.
        """
        if not self.partition_columns:
            return ()
        values = parse_partition(partition, [column.name for column in self.partition_columns])
        if values is None:
            raise CorruptFile(
                f"{self.path}/{partition} does not have the partition columns of {self.name}; move"
                " it away, or drop the partition"
            )
        return values

    def place(self, partition: str) -> str:
        """The path of a partition's directory; the table's path for ''."""
        return f"{self.path}/{partition}".rstrip("/")


def chosen_partitions(
    table: TableLayout, where: str | None = None, only: str | None = None
) -> list[str]:
    """The partitions whose files a read needs: those that may match `where`; '' if unpartitioned.

    `only` restricts it to one partition. Raises InvalidExpression, NotEnoughHistory, CorruptFile.
    """
    names = sorted(table.partitions) if table.partition_columns else [""]
    names = _matching(where, table, [name for name in names if only in (None, name)])
    for name in filter(table.ended.__contains__, names):
        at = datetime.fromtimestamp(table.ended[name] / 1000, UTC)
        raise NotEnoughHistory(
            f"{f'{table.name} {name}'.rstrip()} is kept since {at:%Y-%m-%d %H:%M:%S} UTC: rows were"
            " erased from its history then"
        )
    return names


def select_entities(
    table: TableLayout, listings: Listings, write_ids: ValidWriteIdList, txns: ValidTxnList
) -> dict[str, AcidDirectory]:
    """What the snapshot sees of each partition of `listings`.

    Raises NotEnoughHistory, MalformedName, UnsupportedLayout, CorruptFile.
    """
    return {
        name: select(
            listing,
            write_ids,
            txns,
            floor=highest_floor(write_ids, table.floor, *(table.partitions[name] if name else ())),
            insert_only=table.insert_only,
        )
        for name, listing in listings.items()
    }


def _matching(where: str | None, table: TableLayout, partitions: list[str]) -> list[str]:
    """Those that can have rows that `where` accepts.

    Raises CorruptFile if a partition does not have the table's partition columns.
    """
    values = [table.values(partition) for partition in partitions]
    if where is None:
        return partitions
    from acid_platform.predicates.arrow_predicates import may_match

    return list(compress(partitions, may_match(where, table.partition_columns, values)))


def open_entity(
    files: Files,
    directory: AcidDirectory,
    write_ids: ValidWriteIdList,
    what: str,
    load: Callable[[Files, Sequence[SourceFile], ValidWriteIdList], DeleteKeys] = load_keys,
    where: str | None = None,
    columns: Sequence[Column] = (),
    since: int | None = None,
) -> tuple[EntitySources, DeleteKeys]:
    """The files that a snapshot reads, and the deleted keys; `what` names the table in errors.

    `load` loads the deleted keys. Files in which no row can satisfy `where`, a condition over
    `columns`, are left out; `since`: see `resolve`. Raises CorruptFile, also if a file is gone or
    does not have the size that its commit recorded.
    """
    sources = resolve(files, directory, columns, since)
    if where is not None:  # the parser of predicates takes long to import
        from acid_platform.scan.recorded_ranges import pruned

        sources = pruned(sources, where, columns)
    infos = require_recorded(files, (*sources.inserts, *sources.deletes), what)
    deletes = tuple(
        replace(source, modified=info.mtime_ns)
        for source, info in zip(sources.deletes, infos[len(sources.inserts) :], strict=True)
    )
    keys = load(files, deletes, write_ids)
    return numbered_as_deleted(replace(sources, deletes=deletes), keys), keys


def numbered_as_deleted(sources: EntitySources, keys: DeleteKeys) -> EntitySources:
    """The sources, where runs of keys have the bucket codec that delete events use for their rows.

    These rows store no bucket property, so only the delete events tell it: codec 1, or
    codec 0 (the bare number, F10) if Hive 2 wrote the events. Raises CorruptFile if they mix.
    """
    raw = {source.write_id for source in sources.inserts if source.identity is RowIdentity.RUN}
    if not raw or not len(keys):
        return sources
    meant = keys.buckets[np.isin(keys.write_ids, np.array(sorted(raw), np.int64))]
    codecs = set(codec_versions(meant).tolist())
    if len(codecs) > 1:
        raise CorruptFile(
            f"{sources.location}: delete events identify rows of files without ACID columns by two"
            " different bucket codecs; run a major compaction with the Hive that wrote them"
        )
    if codecs != {0}:
        return sources
    return replace(
        sources,
        inserts=tuple(
            replace(source, bucket=source.number or 0)
            if source.identity is RowIdentity.RUN
            else source
            for source in sources.inserts
        ),
    )


def require_recorded(files: Files, sources: Iterable[SourceFile], what: str) -> list[fs.FileInfo]:
    """Checks that each file exists with the size that its commit recorded, and returns what the
    store says of them, in order.

    `what` names the table in the error. Raises CorruptFile for the first file that does not,
    StoreRefused, StoreUnavailable.
    """
    every = [*sources]
    with asking(what):
        infos = _infos(files, [source.path for source in every])
    for source, info in zip(every, infos, strict=True):
        if info.type != fs.FileType.File:
            raise CorruptFile(
                f"{what}: {source.path} is gone, though {_committed(source)} it; restore it from a"
                " copy of the warehouse"
            )
        if info.size != source.size:
            raise CorruptFile(
                f"{what}: {source.path} has {info.size} bytes, but {_committed(source)} it with"
                f" {source.size}; restore it from a copy of the warehouse"
            )
    return infos


def _committed(source: SourceFile) -> str:
    """Who recorded the file, as subject and verb."""
    if not source.high:
        return "the adoption of the table recorded"
    ids = (
        f"write id {source.high}"
        if source.low in (0, source.high)
        else (f"write ids {source.low} to {source.high}")
    )
    return f"{ids} committed"


def _infos(files: Files, paths: Sequence[str]) -> list[fs.FileInfo]:
    """File infos, in order; in parallel for stores, where each call is a round trip."""
    if files.local:
        return list(files.system.get_file_info(list(paths)))
    return in_threads(files.system.get_file_info, paths)


_BLOCKS = 64
DELETE_KEYS = "acid.delete.keys.max"
"""The setting of how many delete events of an entity are loaded; Spark's tasks read more."""


def open_scan(
    table: TableLayout,
    listings: Listings,
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    where: str | None = None,
    settings: Settings | None = None,
) -> Scan:
    """The scan of the listed partitions of a table at a snapshot; `where` only prunes files.

    Without `settings` all deleted keys are loaded. Raises as `select_entities` and `open_entity`.
    """
    selected = select_entities(table, listings, write_ids, txns)
    load = kept_keys if settings is None else partial(keys_up_to, settings.integer(DELETE_KEYS))

    def entity(name: str) -> EntityScan:
        directory = selected[name]
        sources, deletes = open_entity(
            table.files,
            directory,
            write_ids,
            table.name,
            load,
            where,
            table.columns,
            max(table.rewritten, 1 + table.retyped),
        )
        return EntityScan(sources, deletes, name, table.values(name), directory.paths)

    if len(selected) < 2:
        entities = tuple(map(entity, selected))
    else:  # a task for several of many partitions: a task costs more than a look at a local file
        names, size = list(selected), 1 + len(selected) // _BLOCKS
        blocks = [names[first : first + size] for first in range(0, len(names), size)]
        opened = in_threads(lambda block: [entity(name) for name in block], blocks)
        entities = tuple(chain.from_iterable(opened))
    return Scan(
        table.files,
        table.path,
        table.columns,
        table.partition_columns,
        entities,
        write_ids,
        table.format,
    )


def result_of(
    table: TableLayout, columns: Sequence[str] | None, where: str | None
) -> tuple[tuple[str, ...], Predicate | None]:
    """The names of an ArrowScan of these columns (None: all), and its predicate.

    Raises UnknownColumn, InvalidExpression, UnsupportedStatement (a predicate that only Spark can
    evaluate).
    """
    all_columns = (*table.columns, *table.partition_columns)
    names = [column.name for column in all_columns]
    column_names = tuple(names if columns is None else (name.lower() for name in columns))
    require_columns(column_names, all_columns, table.name)
    if where is None:
        return column_names, None
    # the parser of predicates takes long to import
    from acid_platform.predicates.arrow_predicates import arrow_predicate

    return column_names, arrow_predicate(where, all_columns, table.name)


def require_files(scan: Scan, what: str) -> None:
    """Checks again that each file of a scan is there with its recorded size.

    `what` names the table. Raises CorruptFile. Keys of deleted rows are in memory by now; their
    files are checked too, so that an answer does not depend on what was read before.
    """
    for entity in scan.entities:
        require_recorded(scan.files, (*entity.sources.inserts, *entity.sources.deletes), what)
