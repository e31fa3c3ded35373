"""The calls of a client about what is declared: databases, tables, partitions, settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from acid_platform.metastore.client.link import Caller
from acid_platform.metastore.codec import decode, encode
from acid_platform.metastore.records import (
    PartitionRecord,
    RecordedDirectory,
    TableRecord,
    ViewRecord,
    WriteReport,
)

Json = dict[str, Any]


class TableCalls(Caller):
    """Part of `Metastore`."""

    def create_database(self, name: str, if_not_exists: bool = False) -> None:
        self._call("create_database", name=name, if_not_exists=if_not_exists)

    def databases(self) -> list[str]:
        found: list[str] = self._call("databases")["databases"]
        return found

    def drop_database(self, name: str) -> None:
        """Raises InvalidDefinition while it holds tables or views, NoSuchTable."""
        self._call("drop_database", name=name)

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
        answer = self._call("create_table", table=table, if_not_exists=if_not_exists)
        return self.places.table(decode(TableRecord, answer["table"]))

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
        """A table whose files are there: counters start above `write_id` and `txn_id` (P24).

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
        answer = self._call(
            "adopt_table",
            table=table,
            write_id=write_id,
            txn_id=txn_id,
            aborted=sorted(aborted),
            partitions=list(partitions),
            directories=[encode(one) for one in directories],
        )
        return self.places.table(decode(TableRecord, answer["table"]))

    def table(self, name: str) -> TableRecord:
        """Raises NoSuchTable."""
        return self.places.table(decode(TableRecord, self._call("table", name=name)["table"]))

    def tables(self) -> list[TableRecord]:
        found = self._call("tables")["tables"]
        return [self.places.table(decode(TableRecord, one)) for one in found]

    def dropped_below(self, location: str) -> int | None:
        """Up to which write id the files of a dropped table wait there for the Cleaner, if any."""
        where = self.places.inward(location)
        found: int | None = self._call("location", location=where)["dropped"]
        return found

    def alter_table(
        self,
        name: str,
        columns: Sequence[tuple[str, str]] | None = None,
        properties: Mapping[str, str | None] | None = None,
        rename: str | None = None,
        read: TableRecord | None = None,
    ) -> TableRecord:
        """New columns, merged properties (None removes one), a new name; the location stays.

        `read` is what the change was worked out from: DeclarationChanged if it is no longer so
        (P28). Also raises NoSuchTable, TableExists, InvalidDefinition.
        """
        answer = self._call(
            "alter_table",
            name=name,
            columns=columns and [list(one) for one in columns],
            properties=None if properties is None else dict(properties),
            rename=rename,
            read=read and [read.table_id, read.version],
        )
        return self.places.table(decode(TableRecord, answer["table"]))

    def create_view(
        self,
        name: str,
        query: str,
        columns: Sequence[tuple[str, str]],
        if_not_exists: bool = False,
        or_replace: bool = False,
    ) -> None:
        """`query`: see ViewRecord. Raises TableExists, InvalidDefinition."""
        view = encode(ViewRecord(name, query, tuple(columns)))
        self._call("create_view", view=view, if_not_exists=if_not_exists, or_replace=or_replace)

    def drop_view(self, name: str) -> None:
        """Raises NoSuchTable."""
        self._call("drop_view", name=name)

    def views(self) -> list[ViewRecord]:
        return [decode(ViewRecord, one) for one in self._call("views")["views"]]

    def partitions(self, name: str) -> list[str]:
        return [one.name for one in self.partition_records(name)]

    def partition_records(self, name: str) -> list[PartitionRecord]:
        """With the floor of each (P22)."""
        found = self._call("partitions", name=name)["partitions"]
        return [decode(PartitionRecord, one) for one in found]

    def add_partitions(self, name: str, partitions: Sequence[str]) -> list[str]:
        """Registers them and answers which were new. Raises NoSuchPartition."""
        added: list[str] = self._call("add_partitions", name=name, partitions=list(partitions))[
            "added"
        ]
        return added

    def recorded(
        self, name: str, partitions: Sequence[str | None]
    ) -> list[list[RecordedDirectory]]:
        """Of each partition (None: the unpartitioned table) every directory that is recorded, also
        obsolete ones that wait for the Cleaner (P26). Raises NoSuchTable."""
        answer = self._call("recorded_now", table=name, partitions=list(partitions))
        return [[decode(RecordedDirectory, one) for one in entity] for entity in answer["entities"]]

    def unrecorded(self) -> list[tuple[str, str | None, list[str]]]:
        """(table, partition, directories) whose files an older version did not record (P26)."""
        return [
            (table, partition, names)
            for table, partition, names in self._call("unrecorded")["entities"]
        ]

    def record_files(
        self, name: str, partition: str | None, directories: Sequence[WriteReport]
    ) -> int:
        """Takes down the files of directories whose commit did not record them; answers of how
        many. Raises NoSuchTable, InvalidDefinition for other files than the commit counted."""
        return int(
            self._call(
                "record_files",
                table=name,
                partition=partition,
                directories=[encode(one) for one in directories],
            )["recorded"]
        )

    def settings(self) -> dict[str, str]:
        """Every setting with its value as text."""
        found: dict[str, str] = self._call("settings")["settings"]
        return found

    # --- after a restore ------------------------------------------------------------------------

    def doubtful(self) -> dict[str, list[tuple[int, int]]]:
        """Ranges of write ids by table whose outcome a restore left in doubt (P24)."""
        found = self._call("doubtful")["tables"]
        return {name: [(low, high) for low, high in ids] for name, ids in found.items()}

    def resolve_doubtful(
        self, name: str, committed: Iterable[int] = (), aborted: Iterable[int] = ()
    ) -> None:
        """Says what became of doubtful write ids. Raises NoSuchTable, InvalidDefinition."""
        self._call(
            "resolve_doubtful", name=name, committed=sorted(committed), aborted=sorted(aborted)
        )


def _declared(
    name: str,
    location: str,
    columns: Sequence[tuple[str, str]],
    partition_columns: Sequence[tuple[str, str]],
    properties: Mapping[str, str] | None,
    bucket_columns: Sequence[str],
    bucket_count: int,
) -> Json:
    return encode(
        TableRecord(
            0,
            name,
            location,
            tuple(columns),
            tuple(partition_columns),
            dict(properties or {}),
            tuple(bucket_columns),
            bucket_count,
        )
    )
