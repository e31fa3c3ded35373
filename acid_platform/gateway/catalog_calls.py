"""Calls that read declarations (databases, tables, views, partitions), settings and rights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from acid_platform.base.arguments import dotted_pattern, name_pattern
from acid_platform.base.paths import as_uri
from acid_platform.errors import (
    NoSuchPartition,
    NoSuchTable,
    NotCleaned,
    UnsupportedStatement,
    WarehouseNotWritable,
)
from acid_platform.gateway import protocol
from acid_platform.gateway.authorization import CallHandler, limited
from acid_platform.gateway.partition_calls import counts_of
from acid_platform.gateway.protocol import INSERT_ONLY_TABLES, load
from acid_platform.layout.names import (
    DEFAULT_PARTITION,
    DeltaName,
    parse_directory,
    parse_partition,
    table_name,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.records import TableRecord, ViewRecord
from acid_platform.storage.durability import make_root
from acid_platform.storage.files import Files

_NAME_LIKE = re.compile(r'hive_filter_field_tableName__ like "(?:\(\?i\))?((?:\w|\.\*|\.)*)"')
"""Hive's filter by name; its pattern has letters, digits, `.` and `.*` only."""
MANAGED, EXTERNAL, VIEW = "MANAGED_TABLE", "EXTERNAL_TABLE", "VIRTUAL_VIEW"


class CatalogCalls(CallHandler):
    """Reading declarations."""

    # --- databases ------------------------------------------------------------------------------

    def get_all_databases(self) -> list[str]:
        """Those in which the caller may see something, as in every list (P77)."""
        return [*filter(self._sight.database, self._metastore.databases())]

    def get_databases(self, pattern: str | None) -> list[str]:
        chosen = name_pattern(pattern)
        return [name for name in self.get_all_databases() if chosen.matches(name)]

    def get_database(self, name: str) -> Any:
        if not self._sight.database(name.lower()):
            raise NoSuchTable(f"there is no database {name.lower()}; see databases()")
        record = self._metastore.call(ops.GetDatabase(name))
        root = self._metastore.places.root
        with suppress(WarehouseNotWritable):
            # Trino makes no table in a database whose directory is missing, as it is until this
            # platform has made a table in it.
            make_root(*Files.of(f"{root}/{record.name}.db"))
        return protocol.database(record, root)

    def get_databases_req(self, request: Any) -> Any:
        databases = [self.get_database(name) for name in self.get_databases(request.pattern)]
        return load().GetDatabaseObjectsResponse(databases=databases)

    def get_catalogs(self) -> Any:
        return load().GetCatalogsResponse(names=[protocol.CATALOG])

    def get_catalog(self, request: Any) -> Any:
        root = as_uri(self._metastore.places.root)
        if request.name != protocol.CATALOG:
            raise NoSuchTable(f"there is no catalog {request.name}; the only one is hive")
        m = load()
        return m.GetCatalogResponse(
            catalog=m.Catalog(name=protocol.CATALOG, description="", locationUri=root)
        )

    # --- tables and views -----------------------------------------------------------------------

    def _views(self) -> dict[str, ViewRecord]:
        """By name; other engines are not told of external tables, which need a serde of theirs."""
        return {view.name: view for view in self._metastore.views() if view.external is None}

    def _names(self, kind: str | None = None) -> list[tuple[str, str, str]]:
        """(database, name, kind) of the tables and views that the caller may see, sorted."""
        sees = self._sight.table
        names = []
        if kind in (None, MANAGED):
            tables = [table.name for table in self._metastore.tables() if sees(table.name)]
            names += [(*protocol.split(name), MANAGED) for name in tables]
        if kind in (None, VIEW):
            names += [(*protocol.split(name), VIEW) for name in self._views() if sees(name)]
        return sorted(names)

    def get_all_tables(self, database: str) -> list[str]:
        return [name for db, name, _ in self._names() if db == database.lower()]

    def get_tables(self, database: str, pattern: str | None) -> list[str]:
        chosen = name_pattern(pattern)
        return [name for name in self.get_all_tables(database) if chosen.matches(name)]

    def get_tables_by_type(self, database: str, pattern: str | None, kind: str) -> list[str]:
        chosen = name_pattern(pattern)
        return [
            name
            for db, name, _ in self._names(kind or None)
            if db == database.lower() and chosen.matches(name)
        ]

    def get_table_meta(
        self, databases: str | None, tables: str | None, kinds: Sequence[str] | None
    ) -> list[Any]:
        in_databases, in_tables = name_pattern(databases), name_pattern(tables)
        wanted = {*(kinds or ())}
        return [
            load().TableMeta(dbName=db, tableName=name, tableType=kind, catName=protocol.CATALOG)
            for db, name, kind in self._names()
            if (not wanted or kind in wanted)
            and in_databases.matches(db)
            and in_tables.matches(name)
        ]

    def get_table_names_by_filter(self, database: str, text: str, limit: int) -> list[str]:
        """Hive 4.2 asks so for tables whose names match a pattern, and Trino for the views that
        Presto made; there are none. Raises UnsupportedStatement for other filters."""
        text = text or ""
        if "presto_view" in text or "table_type" in text:
            return []
        if pattern := _NAME_LIKE.fullmatch(text):
            chosen = dotted_pattern(pattern[1])
            names = self.get_all_tables(database)
            return limited([name for name in names if chosen.matches(name)], limit)
        raise UnsupportedStatement(f"tables of {database} can't be chosen by the filter {text!r}")

    def _shown(self, database: str, name: str) -> Any:
        full = table_name(f"{database}.{name}")
        try:
            record = self._metastore.table(full)
        except NoSuchTable:
            view = self._views().get(full)
            if view is None:
                raise
            return protocol.view(view)
        shown = protocol.table(record)
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
        capabilities = request.capabilities.values if request.capabilities else []
        shown = self._understood(request.dbName, request.tblName, capabilities)
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
        present = {name for db, name, _ in self._names() if db == database.lower()}
        return [self._shown(database, name) for name in names if name.lower() in present]

    def get_table_objects_by_name_req(self, request: Any) -> Any:
        names = request.tblNames
        if names is None:
            names = self.get_tables(request.dbName, request.tablesPattern)
        return load().GetTablesResult(tables=self.get_table_objects_by_name(request.dbName, names))

    def get_fields(self, database: str, name: str) -> list[Any]:
        return protocol.columns_of(self._record(database, name))

    def get_schema(self, database: str, name: str) -> list[Any]:
        return protocol.all_columns_of(self._record(database, name))

    # --- partitions -----------------------------------------------------------------------------

    def _shapes(self, record: TableRecord, names: Sequence[str]) -> list[Any]:
        """What the protocol tells of these partitions. Raises NotCleaned."""
        requested = set(names)
        for partition in self._metastore.call(ops.GetPartitions(record.name)):
            if partition.floors and partition.name in requested:
                _require_cleaned(f"{record.location}/{partition.name}", partition.floors[-1])
        shown = [protocol.partition(record, name) for name in names]
        for name, partition in zip(names, shown, strict=True):
            partition.parameters |= counts_of(record, name)
        return shown

    def get_partition_names(self, database: str, name: str, limit: int | None) -> list[str]:
        return limited(self._metastore.partitions(self._record(database, name).name), limit)

    def get_partition_names_ps(
        self, database: str, name: str, values: Sequence[str] | None, limit: int | None
    ) -> list[str]:
        """The partitions that begin with these values; an empty text stands for any value."""
        record = self._record(database, name)

        def begins(partition: str) -> bool:
            pairs = zip(values or (), protocol.values_of(record, partition), strict=False)
            return all(not requested or requested == value for requested, value in pairs)

        return limited([*filter(begins, self._metastore.partitions(record.name))], limit)

    def get_partitions(self, database: str, name: str, limit: int | None) -> list[Any]:
        record = self._record(database, name)
        return self._shapes(record, self.get_partition_names(database, name, limit))

    def get_partitions_ps(
        self, database: str, name: str, values: Sequence[str] | None, limit: int | None
    ) -> list[Any]:
        record = self._record(database, name)
        return self._shapes(record, self.get_partition_names_ps(database, name, values, limit))

    def get_partition_by_name(self, database: str, name: str, partition: str) -> Any:
        """Raises NoSuchPartition."""
        record = self._record(database, name)
        return self.get_partition(database, name, protocol.values_of(record, partition))

    def get_partition(self, database: str, name: str, values: Sequence[str]) -> Any:
        """Raises NoSuchPartition."""
        record = self._record(database, name)
        partition = protocol.name_of(record, values)
        if partition not in self._metastore.partitions(record.name):
            raise NoSuchPartition(f"{record.name} has no partition {partition}")
        (shown,) = self._shapes(record, [partition])
        return shown

    def get_partitions_by_names(
        self, database: str, name: str, names: Sequence[str] | None
    ) -> list[Any]:
        """Those of them that exist, in the order asked for."""
        record = self._record(database, name)
        present = set(self._metastore.partitions(record.name))
        return self._shapes(record, [name for name in names or () if name in present])

    def get_partitions_by_expr(self, request: Any) -> Any:
        """All partitions, and word that they were not chosen by the expression.

        The expression is a Java object; Hive then chooses by itself.
        """
        partitions = self.get_partitions(request.dbName, request.tblName, None)
        return load().PartitionsByExprResult(partitions=partitions, hasUnknownPartitions=True)

    def get_partitions_spec_by_expr(self, request: Any) -> Any:
        m, record = load(), self._record(request.dbName, request.tblName)
        spec = m.PartitionSpec(
            dbName=request.dbName,
            tableName=request.tblName,
            rootPath=as_uri(record.location),
            catName=protocol.CATALOG,
            partitionList=m.PartitionListComposingSpec(
                partitions=self.get_partitions(request.dbName, request.tblName, None)
            ),
        )
        return m.PartitionsSpecByExprResult(partitionsSpec=[spec], hasUnknownPartitions=True)

    def get_partitions_by_filter(
        self, database: str, name: str, text: str | None, limit: int | None
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
        if not partition:
            return {}
        columns = [segment.partition("=")[0] for segment in partition.split("/")]
        if len({*columns}) < len(columns):
            raise NoSuchPartition(f"{partition[:200]!r} names a column twice")
        values = parse_partition(partition, columns)
        if values is None:
            raise NoSuchPartition(f"{partition!r} is not the name of a partition")
        return {
            column: DEFAULT_PARTITION if value is None else value
            for column, value in zip(columns, values, strict=True)
        }


def _require_cleaned(location: str, floor: int) -> None:
    """Other engines read every directory of a partition, also those of a dropped one (P22).

    `floor` is the highest write id at the last drop. Raises NotCleaned.
    """
    files, path = Files.of(location)
    if not files.is_directory(path):
        return
    for child in files.children(path):
        name = parse_directory(child.base_name)
        if name is None:
            continue
        if (name.high if isinstance(name, DeltaName) else name.write_id) <= floor:
            raise NotCleaned(
                f"{location} still has {name} of a partition that was dropped, which would be"
                " read with the new one: run the Cleaner (acid run cleaner); acid run cleaner"
                " --explain says what it waits for"
            )


class SessionCalls(CallHandler):
    """What clients ask besides. It grants no privileges: engines that check them themselves have to
    be told to allow all."""

    def get_config_value(self, name: str, default: str | None) -> str:
        """One of Hive's settings; `metastore.x` is another name of `hive.x`. `default` for all
        others: they may hold places and credentials."""
        settings = self._metastore.settings()
        hives = name if name.startswith("hive.") else f"hive.{name.removeprefix('metastore.')}"
        return settings.get(hives) or default or ""

    def getMetaConf(self, name: str) -> str:
        return self.get_config_value(name, "")

    def set_ugi(self, user: str, _groups: Sequence[str]) -> list[str]:
        return [user]

    def get_metastore_db_uuid(self) -> str:
        return self._metastore.call(ops.GetIdentity()).id

    def get_privilege_set(self, _thing: Any, _user: str, _groups: Sequence[str]) -> Any:
        return protocol.nobody()

    def get_function(self, database: str, name: str) -> Any:
        raise NoSuchTable(f"there is no function {database}.{name}")
