"""What the commit of a transaction tells, so that conflicts are found: the rows that it changed
(P38), what it looked for in order to write, and which rows it brought (P51)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from acid_platform.base.config import Settings
from acid_platform.engine.interface import Condition, Where
from acid_platform.engine.merge_clauses import SourceKeys, region_of_keys
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.layout.table_properties import CONFLICT_DETECTION
from acid_platform.metastore.records import RegionReport, RowReport, TableRecord
from acid_platform.scan.row_regions import region_of_files, region_of_partition
from acid_platform.storage.files import Files
from acid_platform.tables.record_layout import all_columns_of, columns_of_record
from acid_platform.transactions import RowOperation
from acid_platform.transactions.row_sets import EVERY, KeyHashes, Region, united
from acid_platform.values.rows import Rows
from acid_platform.write.publishing import NO_ROWS, ChangedRows, WrittenDirectory, deleted_rows


class _Condition(NamedTuple):
    record: TableRecord
    region: Callable[[], Region]


class _Brought(NamedTuple):
    record: TableRecord
    partition: str | None
    contents: RecordedFiles
    keys: Callable[[], KeyHashes | None]
    assigned: frozenset[str]
    """The columns that an UPDATE assigned; without any, the rows are new."""


class LookedFor:
    """The conditions of one transaction, and the rows that it inserted or updated, as they came.

    The commit tells of them only if there are both; nothing is computed before.
    """

    def __init__(self, settings: Settings) -> None:
        self._limit = settings.integer("acid.conflict.rows.bytes")
        self._conditions: list[_Condition] = []
        self._brought: list[_Brought] = []
        self._reads: dict[tuple[str, str | None], _Condition] = {}
        """What was read besides, by table and condition."""
        self._key_columns: dict[str, Sequence[str]] = {}
        """The columns by which the last MERGE into a table looked for its rows."""

    def condition(self, record: TableRecord, where: str | None) -> None:
        """Notes that a query looked for the rows of a table that fulfil a condition."""
        self._conditions.append(_of_where(record, where))

    def change(self, record: TableRecord, where: Where) -> None:
        """Notes an UPDATE or DELETE: nothing but its condition decides which rows it finds."""
        found = _of_where(record, pruning_part(where))

        def region() -> Region:
            from acid_platform.scan.recorded_ranges import columns_read  # sqlglot

            if isinstance(where, Condition):
                compared = where.columns or ()
            else:
                compared = columns_read([where or "true"], all_columns_of(record))
            return replace(found.region(), compared=compared)

        self._conditions.append(_Condition(record, region))

    def read(self, record: TableRecord, where: str | None) -> None:
        """Notes rows that were read, and by themselves change nothing (P52)."""
        self._reads.setdefault((record.name, where), _of_where(record, where))

    def merge(self, record: TableRecord, keys: SourceKeys, on: str, every_row: bool) -> None:
        """Notes a MERGE that has run; `every_row`: it also looked at rows without a match."""

        def region() -> Region:
            from acid_platform.scan.recorded_ranges import columns_read, region_of_condition

            columns, (own, source) = all_columns_of(record), keys.aliases
            conditions = [on, *(clause.condition for clause in keys.clauses if clause.condition)]
            known = region_of_condition(on, columns, own)
            found = EVERY if every_row else known.both(keys.sought())
            return replace(found, compared=columns_read(conditions, columns, source))

        self._conditions.append(_Condition(record, region))
        self._key_columns[record.name] = [*keys.pairs]

    def keys_of(self, record: TableRecord, rows: Rows) -> Callable[[], KeyHashes | None]:
        """The keys of rows that are inserted, by which a MERGE before has looked for them."""
        columns = self._key_columns.get(record.name)
        if not columns or not isinstance(rows, pa.Table):
            return no_keys
        names = {name.lower(): index for index, name in enumerate(rows.column_names)}
        if any(column not in names for column in columns):
            return no_keys
        known = pa.table({column: rows.column(names[column]) for column in columns})
        return lambda: region_of_keys(known, all_columns_of(record), stored=True).keys

    def wrote(
        self,
        record: TableRecord,
        written: Sequence[WrittenDirectory],
        keys: Callable[[], KeyHashes | None],
        overwrite: bool,
        assigned: Collection[str] = (),
    ) -> None:
        """Notes rows that were inserted, or updated in the columns `assigned`. An overwrite has
        looked for all rows that it replaces."""
        for file in written:
            partition = file.partition or None
            if overwrite:
                self._conditions.append(_Condition(record, _of_partition(record, partition)))
            if file.rows and not file.deletes:
                brought = _Brought(record, partition, file.contents, keys, frozenset(assigned))
                self._brought.append(brought)

    def reports(self) -> tuple[list[RegionReport], list[RegionReport]]:
        """What was looked for, and which rows were brought; nothing unless there are both."""
        if not self._conditions or not self._brought:
            return [], []
        sought = [(condition.record.name, condition.region()) for condition in self._conditions]
        return self._reports(sought), self._reports([*self._regions_of_brought(sought)])

    @property
    def tables_read(self) -> list[TableRecord]:
        return [read.record for read in (*self._conditions, *self._reads.values())]

    def every_read(self) -> list[RegionReport]:
        """All that was read, to write or not."""
        every = (*self._conditions, *self._reads.values())
        return self._reports([(read.record.name, read.region()) for read in every])

    def _regions_of_brought(
        self, sought: Sequence[tuple[str, Region]]
    ) -> Iterator[tuple[str, Region]]:
        """By the columns by which this transaction has looked for rows, and those that it assigned,
        if they are few: another one that may bring the same rows mostly looks by them too, and the
        statistics of all columns would be long."""
        columns: dict[str, set[str]] = {}
        for table, region in sought:
            columns.setdefault(table, set()).update(region.columns)
        for record, partition, contents, keys, assigned in self._brought:
            own, _ = columns_of_record(record)
            told = columns.get(record.name, set()) | (assigned if len(assigned) < _MANY else set())
            region = region_of_files(contents, own, told)
            region = region.both(_of_partition(record, partition)())
            yield record.name, Region(region.columns, keys(), tuple(sorted(assigned)))

    def _reports(self, regions: Sequence[tuple[str, Region]]) -> list[RegionReport]:
        distinct: list[tuple[str, Region]] = []
        for region in regions:
            if len(distinct) > 8 or region not in distinct:
                distinct.append(region)
        return [RegionReport(*region) for region in united(distinct, self._limit // 2)]


def pruning_part(where: Where) -> str | None:
    """The part of a condition that only reads the table itself."""
    return where.pruning if isinstance(where, Condition) else where


def _of_where(record: TableRecord, where: str | None) -> _Condition:
    def region() -> Region:
        from acid_platform.scan.recorded_ranges import region_of_condition  # sqlglot

        return region_of_condition(where, all_columns_of(record))

    return _Condition(record, region if where is not None else lambda: EVERY)


def no_keys() -> None:
    """Nothing is known of the keys of new rows."""


def _of_partition(record: TableRecord, partition: str | None) -> Callable[[], Region]:
    return lambda: region_of_partition(partition, columns_of_record(record)[1])


_MANY = 8
"""A MERGE that sets more columns mostly sets all of them: no one looks by the values of each."""

_Entity = tuple[str, str | None, RowOperation]
"""A table, a partition of it, and an operation."""


class RowReports:
    """The changed rows of each table, partition and operation of one transaction.

    What is not reported conflicts by partition, such as the rows of foreign writers.
    """

    def __init__(self, settings: Settings) -> None:
        self._detection = settings.text(CONFLICT_DETECTION.name)
        self._limit = settings.integer("acid.conflict.rows.bytes")
        self._rows: dict[_Entity, ChangedRows] = {}
        self._unknown: set[_Entity] = set()

    def begun(self, record: TableRecord, partition: str | None, operation: RowOperation) -> None:
        """Notes an UPDATE or DELETE that locks this entity, where it may match no row."""
        self._rows.setdefault((record.name, partition, operation), NO_ROWS)

    def unknown(self, record: TableRecord, partition: str | None, operation: RowOperation) -> None:
        """Notes a change of rows that can't be named."""
        self._unknown.add((record.name, partition, operation))

    def add(
        self,
        record: TableRecord,
        operation: RowOperation,
        written: Sequence[WrittenDirectory],
    ) -> None:
        """Adds what an UPDATE, DELETE or MERGE has published. A MERGE that only inserted rows in a
        partition changed none there.

        Raises CorruptFile if a file of delete events can't be read.
        """
        detection = CONFLICT_DETECTION.stated(record.properties) or self._detection
        if detection.lower() != "row":
            return
        for published in written:
            entity = (record.name, published.partition or None, operation)
            rows = NO_ROWS
            if published.deletes:
                rows = published.changed or self._read(record, published)
            self._rows[entity] = ChangedRows.union([self._rows.get(entity, NO_ROWS), rows])

    def reports(self) -> list[RowReport]:
        """The reports for the commit; all together have `acid.conflict.rows.bytes` at most."""
        counted = {
            entity: rows for entity, rows in self._rows.items() if entity not in self._unknown
        }
        texts = {entity: rows.row_set(self._limit) for entity, rows in counted.items()}
        if sum(len(rows.text) if rows else self._limit for rows in texts.values()) > self._limit:
            share = self._limit // len(texts)
            texts = {
                entity: rows if rows and len(rows.text) <= share else counted[entity].row_set(share)
                for entity, rows in texts.items()
            }
        return [RowReport(*entity, rows) for entity, rows in texts.items() if rows is not None]

    @staticmethod
    def _read(record: TableRecord, published: WrittenDirectory) -> ChangedRows:
        files, location = Files.of(record.location)
        directory = f"{location}/{published.partition}/{published.directory}".replace("//", "/")
        return deleted_rows(files, directory, published.contents)
