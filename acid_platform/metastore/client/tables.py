"""The client's calls for declarations: databases, tables, partitions, settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from acid_platform.base.config import Settings
from acid_platform.metastore.client.link import Caller
from acid_platform.metastore.operations.tables import (
    AddPartitions,
    AdoptTable,
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateView,
    DropDatabase,
    DropView,
    GetDatabases,
    GetDoubtful,
    GetDropped,
    GetLastWriteId,
    GetPartitions,
    GetRecorded,
    GetSettings,
    GetTable,
    GetTables,
    GetUnrecorded,
    GetViews,
    RecordFiles,
    ResolveDoubtful,
)
from acid_platform.metastore.records import (
    PartitionRecord,
    RecordedDirectory,
    TableRecord,
    ViewRecord,
    WriteReport,
)


class TableCalls(Caller):
    """The part of `Metastore` for declarations."""

    def create_database(self, name: str, if_not_exists: bool = False) -> None:
        self._call(CreateDatabase(name, if_not_exists))

    def databases(self) -> list[str]:
        return self._call(GetDatabases())

    def drop_database(self, name: str) -> None:
        """Raises NoSuchTable, and InvalidDefinition while the database holds tables or views."""
        self._call(DropDatabase(name))

    def create_table(
        self,
        name: str,
        location: str,
        columns: Sequence[tuple[str, str]],
        partition_columns: Sequence[tuple[str, str]] = (),
        properties: Mapping[str, str] | None = None,
        bucket_columns: Sequence[str] = (),
        bucket_count: int = 0,
        if_not_exists: bool = False,
    ) -> TableRecord:
        """Raises TableExists, InvalidDefinition."""
        table = _declared(
            name,
            self.places.inward(location),
            columns,
            partition_columns,
            properties,
            bucket_columns,
            bucket_count,
        )
        return self.places.table(self._call(CreateTable(table, if_not_exists)))

    def adopt_table(
        self,
        name: str,
        location: str,
        columns: Sequence[tuple[str, str]],
        partition_columns: Sequence[tuple[str, str]] = (),
        properties: Mapping[str, str] | None = None,
        bucket_columns: Sequence[str] = (),
        bucket_count: int = 0,
        *,
        write_id: int = 0,
        txn_id: int = 0,
        aborted: Iterable[int] = (),
        partitions: Iterable[str] = (),
        directories: Sequence[WriteReport] = (),
    ) -> TableRecord:
        """Registers a table whose files exist; counters start above `write_id` and `txn_id` (P24).

        `aborted` are the write ids that count as aborted. A directory named "" reports original
        files. Raises TableExists, InvalidDefinition.
        """
        table = _declared(
            name,
            self.places.inward(location),
            columns,
            partition_columns,
            properties,
            bucket_columns,
            bucket_count,
        )
        record = self._call(
            AdoptTable(
                table,
                write_id,
                txn_id,
                tuple(sorted(aborted)),
                tuple(partitions),
                tuple(directories),
            )
        )
        return self.places.table(record)

    def table(self, name: str) -> TableRecord:
        """Raises NoSuchTable."""
        return self.places.table(self._call(GetTable(name)))

    def tables(self) -> list[TableRecord]:
        return [self.places.table(record) for record in self._call(GetTables())]

    def dropped_below(self, location: str) -> int | None:
        """The highest write id of a dropped table's files that wait there for the
        Cleaner, or None."""
        return self._call(GetDropped(self.places.inward(location)))

    def alter_table(
        self,
        name: str,
        columns: Sequence[tuple[str, str]] | None = None,
        properties: Mapping[str, str | None] | None = None,
        rename: str | None = None,
        read: TableRecord | None = None,
    ) -> TableRecord:
        """Changes columns, properties (merged; None removes one) or the name; the location stays.

        `read` is the declaration that the change is based on: DeclarationChanged is raised if it
        has changed (P28). Also raises NoSuchTable, TableExists, InvalidDefinition.
        """
        change = AlterTable(
            name,
            None if columns is None else tuple(columns),
            None if properties is None else dict(properties),
            rename,
            None if read is None else (read.table_id, read.version),
        )
        return self.places.table(self._call(change))

    def create_view(
        self,
        name: str,
        query: str,
        columns: Sequence[tuple[str, str]],
        reads: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (),
        if_not_exists: bool = False,
        or_replace: bool = False,
    ) -> None:
        """`query` and `reads`: see ViewRecord. Raises TableExists, InvalidDefinition."""
        view = ViewRecord(name, query, tuple(columns), reads=reads)
        self._call(CreateView(view, if_not_exists, or_replace))

    def drop_view(self, name: str) -> None:
        """Raises NoSuchTable."""
        self._call(DropView(name))

    def views(self) -> list[ViewRecord]:
        return self._call(GetViews())

    def partitions(self, name: str) -> list[str]:
        return [partition.name for partition in self.partition_records(name)]

    def partition_records(self, name: str) -> list[PartitionRecord]:
        """The registered partitions with their floors (P22)."""
        return self._call(GetPartitions(name))

    def add_partitions(self, name: str, partitions: Sequence[str]) -> list[str]:
        """Registers partitions and returns those that are new. Raises NoSuchPartition."""
        return self._call(AddPartitions(name, tuple(partitions)))

    def recorded(
        self, name: str, partitions: Sequence[str | None], table_id: int = 0
    ) -> list[list[RecordedDirectory]]:
        """Every recorded directory of each partition (None: the unpartitioned table), including
        obsolete ones that wait for the Cleaner (P26).

        `table_id`: of a table that may have been dropped since. Raises NoSuchTable.
        """
        return self._call(GetRecorded(name, tuple(partitions), table_id))

    def unrecorded(self) -> list[tuple[str, str | None, list[str]]]:
        """(table, partition, directories) whose files an older version did not record (P26)."""
        return self._call(GetUnrecorded())

    def record_files(
        self, name: str, partition: str | None, directories: Sequence[WriteReport]
    ) -> int:
        """Records the files of directories whose commit did not record them; returns of how many.

        Raises NoSuchTable, and InvalidDefinition if the files differ from those that the commit
        counted.
        """
        return self._call(RecordFiles(name, partition, tuple(directories)))

    def last_write_id(self, table_id: int) -> int:
        """The highest write id of a table that was allocated to a transaction; 0 if there is none.

        Raises NoSuchTable.
        """
        return self._call(GetLastWriteId(table_id))

    def settings(self) -> dict[str, str]:
        """Every setting with its value as text."""
        return self._call(GetSettings()).settings

    @property
    def in_force(self) -> Settings:
        """Every setting with its value, now; a transaction brings those of its beginning."""
        return Settings.of(self._call(GetSettings()).set)

    # --- after a restore ------------------------------------------------------------------------

    def doubtful(self) -> dict[str, list[tuple[int, int]]]:
        """By table, the ranges of write ids that a restore left in doubt (P24)."""
        return self._call(GetDoubtful())

    def resolve_doubtful(
        self, name: str, committed: Iterable[int] = (), aborted: Iterable[int] = ()
    ) -> None:
        """Decides write ids in doubt. Raises NoSuchTable, InvalidDefinition."""
        self._call(ResolveDoubtful(name, tuple(sorted(committed)), tuple(sorted(aborted))))


def _declared(
    name: str,
    location: str,
    columns: Sequence[tuple[str, str]],
    partition_columns: Sequence[tuple[str, str]],
    properties: Mapping[str, str] | None,
    bucket_columns: Sequence[str],
    bucket_count: int,
) -> TableRecord:
    return TableRecord(
        0,
        name,
        location,
        tuple(columns),
        tuple(partition_columns),
        dict(properties or {}),
        tuple(bucket_columns),
        bucket_count,
    )
