"""Calls that read declarations: databases, tables, views, partitions, constraints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from acid_platform.errors import (
    NoSuchPartition,
    NoSuchTable,
    UnsupportedStatement,
    WarehouseNotWritable,
)
from acid_platform.gateway import shapes
from acid_platform.gateway.codes import INSERT_ONLY_TABLES
from acid_platform.gateway.dropped_rows import require_cleaned
from acid_platform.gateway.protocol import load
from acid_platform.gateway.statistics_calls import counts_of
from acid_platform.layout.partition_names import DEFAULT_PARTITION, parse_partition
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.tables import GetPartitions
from acid_platform.metastore.records import TableRecord, ViewRecord
from acid_platform.metastore.table_names import table_name
from acid_platform.storage.durability import make_root
from acid_platform.storage.files import Files

_NAME_LIKE = re.compile(r'hive_filter_field_tableName__ like "(?:\(\?i\))?((?:\w|\.\*|\.)*)"')
"""Hive's filter by name; its pattern has letters, digits, `.` and `.*` only."""
MANAGED, EXTERNAL, VIEW = "MANAGED_TABLE", "EXTERNAL_TABLE", "VIRTUAL_VIEW"


def like(pattern: str | None) -> re.Pattern[str]:
    """Hive's patterns: `*` and `%` stand for any text, `|` separates alternatives."""
    alternatives = (pattern or "*").split("|")
    texts = (
        "".join(".*" if char in "*%" else re.escape(char) for char in alternative.strip())
        for alternative in alternatives
    )
    return re.compile("|".join(f"(?:{text})" for text in texts), re.IGNORECASE)


class CatalogCalls:
    """The part of the gateway that reads declarations. Method names are the protocol's."""

    _metastore: Metastore

    # --- databases ------------------------------------------------------------------------------

    def get_all_databases(self) -> list[str]:
        return self._metastore.databases()

    def get_databases(self, pattern: str | None) -> list[str]:
        return [name for name in self._metastore.databases() if like(pattern).fullmatch(name)]

    def get_database(self, name: str) -> Any:
        database = name.lower()
        if database not in self._metastore.databases():
            raise NoSuchTable(f"there is no database {database}")
        root = self._metastore.places.root
        with suppress(WarehouseNotWritable):
            # Trino makes no table in a database whose directory is missing, as it is until this
            # platform has made a table in it.
            make_root(*Files.of(f"{root}/{database}.db"))
        return shapes.database(database, root)

    def get_database_req(self, request: Any) -> Any:
        return self.get_database(request.name)

    def get_catalogs(self) -> Any:
        return load().GetCatalogsResponse(names=[shapes.CATALOG])

    def get_catalog(self, request: Any) -> Any:
        root = shapes.uri(self._metastore.places.root)
        if request.name != shapes.CATALOG:
            raise NoSuchTable(f"there is no catalog {request.name}; the only one is hive")
        m = load()
        return m.GetCatalogResponse(
            catalog=m.CatalogCalls(name=shapes.CATALOG, description="", locationUri=root)
        )

    # --- tables and views -----------------------------------------------------------------------

    def _record(self, database: str, name: str) -> TableRecord:
        """Raises NoSuchTable."""
        return self._metastore.table(f"{database}.{name}")

    def _views(self) -> dict[str, ViewRecord]:
        return {view.name: view for view in self._metastore.views()}

    def _names(self, kind: str | None = None) -> list[tuple[str, str, str]]:
        """(database, name, kind) of tables and views, sorted."""
        found = []
        if kind in (None, MANAGED):
            found += [(*shapes.split(one.name), MANAGED) for one in self._metastore.tables()]
        if kind in (None, VIEW):
            found += [(*shapes.split(name), VIEW) for name in self._views()]
        return sorted(found)

    def get_all_tables(self, database: str) -> list[str]:
        return [name for db, name, _ in self._names() if db == database.lower()]

    def get_tables(self, database: str, pattern: str | None) -> list[str]:
        return [name for name in self.get_all_tables(database) if like(pattern).fullmatch(name)]

    def get_tables_by_type(self, database: str, pattern: str | None, kind: str) -> list[str]:
        return [
            name
            for db, name, _ in self._names(kind or None)
            if db == database.lower() and like(pattern).fullmatch(name)
        ]

    def get_materialized_views_for_rewriting(self, _database: str) -> list[str]:
        return []

    def get_all_materialized_view_objects_for_rewriting(self) -> list[Any]:
        return []

    def get_table_meta(
        self, databases: str | None, tables: str | None, kinds: Sequence[str] | None
    ) -> list[Any]:
        return [
            load().TableMeta(dbName=db, tableName=name, tableType=kind, catName=shapes.CATALOG)
            for db, name, kind in self._names()
            if (not kinds or kind in kinds)
            and like(databases).fullmatch(db)
            and like(tables).fullmatch(name)
        ]

    def get_table_names_by_filter(self, database: str, text: str, limit: int) -> list[str]:
        """Hive 4.2 asks so for tables whose names match a pattern, and Trino for the views that
        Presto made; there are none. Raises UnsupportedStatement for other filters."""
        text = text or ""
        if "presto_view" in text or "table_type" in text:
            return []
        if pattern := _NAME_LIKE.fullmatch(text):
            wanted = re.compile(pattern[1], re.IGNORECASE)
            found = [name for name in self.get_all_tables(database) if wanted.fullmatch(name)]
            return found if limit < 0 else found[:limit]
        raise UnsupportedStatement(f"tables of {database} can't be chosen by the filter {text!r}")

    def _shown(self, database: str, name: str) -> Any:
        full = table_name(f"{database}.{name}")
        try:
            record = self._metastore.table(full)
        except NoSuchTable:
            view = self._views().get(full)
            if view is None:
                raise
            return shapes.view(view)
        shown = shapes.table(record)
        shown.parameters |= counts_of(record, None)
        return shown

    def get_table(self, database: str, name: str) -> Any:
        """A view. With this call a client can't say that it understands transactional tables.

        Spark's Hive client and Hive 2 ask so; they would read every directory as plain files, also
        what was aborted, deleted or replaced. Raises UnsupportedStatement for a table.
        """
        return self._understood(database, name, [])

    def get_table_req(self, request: Any) -> Any:
        """Raises UnsupportedStatement for a client without the capability, see `get_table`.

        Clients that do not say who they are, as Hive does, are told that tables are external. Trino
        then refuses DELETE without a condition of an insert-only table: of a managed one it deletes
        the files itself, without a transaction and without a call.
        """
        said = request.capabilities.values if request.capabilities else []
        shown = self._understood(request.dbName, request.tblName, said)
        is_hive = request.catName or request.engine or request.processorIdentifier
        if shown.tableType == MANAGED and not is_hive:
            shown.tableType = EXTERNAL
        return load().GetTableResult(table=shown)

    def _understood(self, database: str, name: str, capabilities: Sequence[int]) -> Any:
        shown = self._shown(database, name)
        if shown.tableType != VIEW and INSERT_ONLY_TABLES not in capabilities:
            raise UnsupportedStatement(
                f"{database}.{name} is a transactional table, and this client did not say that it"
                " understands such tables, as Trino and Hive 4 do: it might read rows that were"
                " deleted or never committed; read it with this platform's own Spark reader"
            )
        return shown

    def get_table_objects_by_name(self, database: str, names: Sequence[str]) -> list[Any]:
        known = {name for db, name, _ in self._names() if db == database.lower()}
        return [self._shown(database, name) for name in names if name.lower() in known]

    def get_table_objects_by_name_req(self, request: Any) -> Any:
        names = request.tblNames
        if names is None:
            pattern = like(request.tablesPattern)
            names = [name for name in self.get_all_tables(request.dbName) if pattern.match(name)]
        return load().GetTablesResult(tables=self.get_table_objects_by_name(request.dbName, names))

    def get_fields(self, database: str, name: str) -> list[Any]:
        return shapes.columns_of(self._record(database, name))

    def get_schema(self, database: str, name: str) -> list[Any]:
        return shapes.all_columns_of(self._record(database, name))

    # --- partitions -----------------------------------------------------------------------------

    def _partitions(self, record: TableRecord, limit: int | None = None) -> list[str]:
        names = self._metastore.partitions(record.name)
        return names if limit is None or limit < 0 else names[:limit]

    def _shapes(self, record: TableRecord, names: Sequence[str]) -> list[Any]:
        """What the protocol tells of these partitions. Raises NotCleaned."""
        wanted = set(names)
        for partition in self._metastore.call(GetPartitions(record.name)):
            if partition.floors and partition.name in wanted:
                require_cleaned(f"{record.location}/{partition.name}", partition.floors[-1])
        return [self._partition(record, name) for name in names]

    def _partition(self, record: TableRecord, name: str) -> Any:
        shown = shapes.partition(record, name)
        shown.parameters |= counts_of(record, name)
        return shown

    def get_partition_names(self, database: str, name: str, limit: int | None) -> list[str]:
        return self._partitions(self._record(database, name), limit)

    def fetch_partition_names_req(self, request: Any) -> list[str]:
        return self.get_partition_names(request.dbName, request.tblName, request.maxParts)

    def get_partition_names_ps(
        self, database: str, name: str, values: Sequence[str], limit: int | None
    ) -> list[str]:
        """The partitions that begin with these values; an empty text stands for any value."""
        record = self._record(database, name)
        found = [
            partition
            for partition in self._partitions(record)
            if all(
                not wanted or wanted == value
                for wanted, value in zip(values, shapes.values_of(record, partition), strict=False)
            )
        ]
        return found if limit is None or limit < 0 else found[:limit]

    def get_partition_names_ps_req(self, request: Any) -> Any:
        names = self.get_partition_names_ps(
            request.dbName, request.tblName, request.partValues or [], request.maxParts
        )
        return load().GetPartitionNamesPsResponse(names=names)

    def get_partitions(self, database: str, name: str, limit: int | None) -> list[Any]:
        record = self._record(database, name)
        return self._shapes(record, self._partitions(record, limit))

    def get_partitions_with_auth(
        self, database: str, name: str, limit: int | None, _user: str, _groups: Sequence[str]
    ) -> list[Any]:
        return self.get_partitions(database, name, limit)

    def get_partitions_req(self, request: Any) -> Any:
        found = self.get_partitions(request.dbName, request.tblName, request.maxParts)
        return load().PartitionsResponse(partitions=found)

    def get_partitions_ps(
        self, database: str, name: str, values: Sequence[str], limit: int | None
    ) -> list[Any]:
        record = self._record(database, name)
        return self._shapes(record, self.get_partition_names_ps(database, name, values, limit))

    def get_partitions_ps_with_auth(
        self,
        database: str,
        name: str,
        values: Sequence[str],
        limit: int | None,
        _user: str,
        _groups: Sequence[str],
    ) -> list[Any]:
        return self.get_partitions_ps(database, name, values, limit)

    def get_partitions_ps_with_auth_req(self, request: Any) -> Any:
        found = self.get_partitions_ps(
            request.dbName, request.tblName, request.partVals or [], request.maxParts
        )
        return load().GetPartitionsPsWithAuthResponse(partitions=found)

    def get_partition_by_name(self, database: str, name: str, partition: str) -> Any:
        """Raises NoSuchPartition."""
        record = self._record(database, name)
        values = parse_partition(partition, [column for column, _ in record.partition_columns])
        texts = shapes.values_of(record, partition) if values is not None else []
        return self.get_partition(database, name, texts)

    def get_partition(self, database: str, name: str, values: Sequence[str]) -> Any:
        """Raises NoSuchPartition."""
        record = self._record(database, name)
        wanted = shapes.name_of(record, values)
        if wanted not in self._partitions(record):
            raise NoSuchPartition(f"{record.name} has no partition {wanted}")
        (shown,) = self._shapes(record, [wanted])
        return shown

    def get_partition_with_auth(
        self, database: str, name: str, values: Sequence[str], _user: str, _groups: Sequence[str]
    ) -> Any:
        return self.get_partition(database, name, values)

    def get_partitions_by_names(self, database: str, name: str, names: Sequence[str]) -> list[Any]:
        """Those of them that exist, in the order asked for."""
        record = self._record(database, name)
        known = set(self._partitions(record))
        return self._shapes(record, [partition for partition in names if partition in known])

    def get_partitions_by_names_req(self, request: Any) -> Any:
        found = self.get_partitions_by_names(request.db_name, request.tbl_name, request.names or [])
        return load().GetPartitionsByNamesResult(partitions=found)

    def get_partitions_by_expr(self, request: Any) -> Any:
        """All partitions, and word that they were not chosen by the expression.

        The expression is a Java object; Hive then chooses by itself.
        """
        found = self.get_partitions(request.dbName, request.tblName, None)
        return load().PartitionsByExprResult(partitions=found, hasUnknownPartitions=True)

    def get_partitions_spec_by_expr(self, request: Any) -> Any:
        """As `get_partitions_by_expr`."""
        m, record = load(), self._record(request.dbName, request.tblName)
        spec = m.PartitionSpec(
            dbName=request.dbName,
            tableName=request.tblName,
            rootPath=shapes.uri(record.location),
            catName=shapes.CATALOG,
            partitionList=m.PartitionListComposingSpec(
                partitions=self._shapes(record, self._partitions(record))
            ),
        )
        return m.PartitionsSpecByExprResult(partitionsSpec=[spec], hasUnknownPartitions=True)

    def get_partitions_by_filter(
        self, database: str, name: str, text: str, limit: int | None
    ) -> list[Any]:
        """Raises UnsupportedStatement unless the filter is empty."""
        if text:
            raise UnsupportedStatement(
                f"{database}.{name}: partitions can't be chosen by the filter {text!r}; ask for"
                " their names"
            )
        return self.get_partitions(database, name, limit)

    def get_num_partitions_by_filter(self, database: str, name: str, text: str) -> int:
        return len(self.get_partitions_by_filter(database, name, text, None))

    def partition_name_to_vals(self, partition: str) -> list[str]:
        return list(self.partition_name_to_spec(partition).values())

    def partition_name_to_spec(self, partition: str) -> dict[str, str]:
        columns = [segment.partition("=")[0] for segment in partition.split("/")]
        values = parse_partition(partition, columns) if partition else ()
        if values is None:
            raise NoSuchPartition(f"{partition!r} is not the name of a partition")
        return {
            column: DEFAULT_PARTITION if value is None else value
            for column, value in zip(columns, values, strict=True)
        }

    def partition_name_has_valid_characters(self, _values: Sequence[str], _raise: bool) -> bool:
        """Every text may be a partition's value: its name escapes what a path can't have (F4)."""
        return True

    # --- constraints: there are none ------------------------------------------------------------

    def get_primary_keys(self, _request: Any) -> Any:
        return load().PrimaryKeysResponse(primaryKeys=[])

    def get_foreign_keys(self, _request: Any) -> Any:
        return load().ForeignKeysResponse(foreignKeys=[])

    def get_unique_constraints(self, _request: Any) -> Any:
        return load().UniqueConstraintsResponse(uniqueConstraints=[])

    def get_not_null_constraints(self, _request: Any) -> Any:
        return load().NotNullConstraintsResponse(notNullConstraints=[])

    def get_default_constraints(self, _request: Any) -> Any:
        return load().DefaultConstraintsResponse(defaultConstraints=[])

    def get_check_constraints(self, _request: Any) -> Any:
        return load().CheckConstraintsResponse(checkConstraints=[])

    def get_all_table_constraints(self, _request: Any) -> Any:
        m = load()
        return m.AllTableConstraintsResponse(
            allTableConstraints=m.SQLAllTableConstraints([], [], [], [], [], [])
        )
