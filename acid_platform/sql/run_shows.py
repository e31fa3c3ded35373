"""SHOW and DESCRIBE, with the column names and the filters of Hive."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acid_platform.base.arguments import name_pattern
from acid_platform.compaction.states import CompactionKind, CompactionState
from acid_platform.errors import InvalidExpression, NeedsSpark, NoSuchPartition, UnknownColumn
from acid_platform.layout.sql_text import sql_string
from acid_platform.metastore import operations as ops
from acid_platform.metastore.branches import refuse_on_branch
from acid_platform.metastore.operations import listings
from acid_platform.metastore.operations.listings import Shown
from acid_platform.sql.column_lists import PartitionSpec, fits, matching, whole_name
from acid_platform.sql.declarations import (
    column_rows,
    create_table,
    create_view,
    described,
    detail_rows,
    heading,
    view_rows,
)
from acid_platform.sql.run_columns import partition_names
from acid_platform.sql.statements import LIKE, NAME, ONE, SPEC, TABLE, CommandRun, Commands

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.operations.compaction import EntityState
    from acid_platform.metastore.records import TableRecord

SHOWS = Commands()
_IN = "(?:in|from)"


@SHOWS("SHOW DATABASES", rf"show (?:databases|schemas){LIKE}")
def show_databases(run: CommandRun, like: str = "") -> Shown:
    chosen = name_pattern(like)
    names = run.metastore.databases()
    return Shown.lines("database_name", [name for name in names if chosen.matches(name)])


@SHOWS("SHOW TABLES", rf"show tables(?: {_IN} (?P<database>{NAME}))?{LIKE}")
def show_tables(run: CommandRun, database: str = "", like: str = "") -> Shown:
    """Names of tables and views, as in Hive."""
    chosen = name_pattern(like)
    database = run.catalog.require_database(database or run.catalog.current_database)
    every = (*run.warehouse.tables(), *run.catalog.views, *run.catalog.externals)
    names = [name.rpartition(".") for name in every]
    here = sorted(table for db, _, table in names if db in ("", database))
    others = sorted({db for db, _, _ in names})
    note = ""
    if not here and others:
        places = ", ".join(others[:5]) + (", …" if len(others) > 5 else "")
        note = f"the database {database} has no table; there are some in {places}"
    return Shown.lines("tab_name", [name for name in here if chosen.matches(name)], note)


@SHOWS("SHOW TABLES DROPPED", r"show tables dropped")
def show_dropped(run: CommandRun) -> Shown:
    """The dropped tables whose files are still there, and until when (P83)."""
    _refuse_branch(run, "show tables dropped")
    tables = run.metastore.call(ops.GetDroppedTables())
    return Shown(listings.DROPPED, tuple(listings.dropped_rows(tables)))


@SHOWS("SHOW VIEWS", rf"show views(?: {_IN} (?P<database>{NAME}))?{LIKE}")
def show_views(run: CommandRun, database: str = "", like: str = "") -> Shown:
    chosen = name_pattern(like)
    database = run.catalog.require_database(database or run.catalog.current_database)
    names = [name.rpartition(".") for name in run.catalog.views]
    here = (table for db, _, table in names if db in ("", database))
    return Shown.lines("tab_name", sorted(filter(chosen.matches, here)))


@SHOWS("SHOW COLUMNS", rf"show columns {_IN} {TABLE}(?: {_IN} (?P<database>{ONE}))?{LIKE}")
def show_columns_of(run: CommandRun, table: str, database: str = "", like: str = "") -> Shown:
    """The names of the columns, those of partitions last, as they are declared."""
    chosen = name_pattern(like)
    if database and "." in table:
        raise InvalidExpression(f"SHOW COLUMNS: {table} has a database already; leave one out")
    full = run.catalog.full(f"{database}.{table}" if database else table)
    names = run.catalog.columns(full)
    return Shown.lines("field", [name for name in names if chosen.matches(name)])


@SHOWS("SHOW PARTITIONS", rf"show partitions {TABLE}(?: {SPEC})?")
def show_partitions(run: CommandRun, table: str, spec: PartitionSpec | None = None) -> Shown:
    """All partitions, or those that a spec leaves; it may omit columns."""
    record, external = run.declared(table)
    if not record.partitioned:
        raise NoSuchPartition(
            f"{record.name} is not partitioned; DESCRIBE {record.name} shows its columns"
        )
    names = partition_names(run.metastore, record, external)
    if spec is not None:
        names = list(filter(fits(record, spec), names))
    return Shown.lines("partition", sorted(names))


@SHOWS("SHOW TABLE EXTENDED", rf"show table extended(?: {_IN} (?P<database>{NAME}))?{LIKE}")
def show_table_extended(run: CommandRun, database: str = "", like: str = "") -> Shown:
    """Where tables are and how large, line by line as in Hive; views have no files."""
    chosen = name_pattern(like)
    _refuse_branch(run, "show table extended")
    database = run.catalog.require_database(database or run.catalog.current_database)
    metastore = run.metastore
    lines: list[str] = []
    for record in sorted(metastore.tables(), key=lambda record: record.name):
        table = record.name.removeprefix(f"{database}.")
        if table != record.name and chosen.matches(table):
            lines += _extended(record, metastore.entities(record.name))
    return Shown.lines("tab_name", lines)


def _refuse_branch(run: CommandRun, what: str) -> None:
    """For what is counted, or kept, of the tables of everybody. Raises InvalidDefinition."""
    if branch := run.metastore.branch:
        refuse_on_branch(what, branch)


def _extended(record: TableRecord, entities: Sequence[EntityState]) -> list[str]:
    directories = [
        directory
        for entity in entities
        for directory in entity.directories
        if not directory.obsolete
    ]
    return [
        f"tableName:{record.name.partition('.')[2]}",
        f"location:{record.location}",
        f"columns:struct columns {{ {_thrift(record.columns)}}}",
        f"partitioned:{str(record.partitioned).lower()}",
        f"partitionColumns:struct partition_columns {{ {_thrift(record.partition_columns)}}}",
        f"totalNumberFiles:{sum(directory.files for directory in directories)}",
        f"totalFileSize:{sum(directory.bytes for directory in directories)}",
        "",
    ]


def _thrift(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{kind} {name}" for name, kind in columns)


@SHOWS("SHOW TBLPROPERTIES", rf"show tblproperties {TABLE}(?: ?\( ?'(?P<key>[^']+)' ?\))?")
def show_tblproperties(run: CommandRun, table: str, key: str | None = None) -> Shown:
    """The properties of a table, or one of them; a row says if it has no such property."""
    is_view = run.catalog.full(table) in run.catalog.views
    properties = {} if is_view else run.declared(table)[0].properties
    pairs = sorted(properties.items())
    if key is not None:
        missing = f"Table {run.catalog.full(table)} does not have property: {key}"
        pairs = [(key, properties[key])] if key in properties else [(missing, "")]
    columns = ("prpt_name", "prpt_value")
    return Shown(columns, tuple(dict(zip(columns, pair, strict=True)) for pair in pairs))


@SHOWS("SHOW FUNCTIONS", rf"show functions{LIKE}")
def show_functions(run: CommandRun, like: str = "") -> Shown:
    chosen = name_pattern(like)
    names = _functions(run.warehouse)
    return Shown.lines("tab_name", [name for name in names if chosen.matches(name)])


@SHOWS(
    "DESCRIBE FUNCTION",
    rf"desc(?:ribe)? function (?P<extended>extended )?(?P<function>{ONE}|'[^']+')",
)
def describe_function(run: CommandRun, function: str, extended: bool = False) -> Shown:
    """What Spark says of one of its functions. Raises InvalidExpression for an unknown one."""
    name = function.strip("`'").lower()
    functions = _functions(run.warehouse)
    if name not in functions:
        raise InvalidExpression(f"there is no function {name!r}; SHOW FUNCTIONS lists them")
    words = "DESCRIBE FUNCTION EXTENDED" if extended else "DESCRIBE FUNCTION"
    rows = run.warehouse.spark.sql(f"{words} {sql_string(name)}").collect()
    return Shown.lines("tab_name", [line for row in rows for line in row[0].splitlines()])


def _functions(warehouse: Warehouse) -> list[str]:
    """The names of Spark's functions, sorted. Raises NeedsSpark."""
    if warehouse.engines.preferred_here == "local":
        raise NeedsSpark("functions are listed by Spark; use engine='auto' or engine='spark'")
    return sorted(row[0] for row in warehouse.spark.sql("SHOW SYSTEM FUNCTIONS").collect())


@SHOWS("SHOW CREATE TABLE", rf"show create table {TABLE}")
def show_create_table(run: CommandRun, table: str) -> Shown:
    view = run.catalog.views.get(run.catalog.full(table))
    text = create_view(view) if view else create_table(*run.declared(table))
    return Shown.lines("createtab_stmt", text.splitlines())


@SHOWS("SHOW TAGS", rf"show tags {TABLE}")
def show_tags(run: CommandRun, table: str) -> Shown:
    from acid_platform.display import tag_rows

    (history,) = run.metastore.call(ops.GetKept(run.catalog.target(table).name))
    return Shown(listings.TAGS, tuple(tag_rows(history)))


@SHOWS("DESCRIBE HISTORY", rf"desc(?:ribe)? history {TABLE}")
def describe_history(run: CommandRun, table: str) -> Shown:
    rows = run.metastore.history(run.catalog.target(table).name)
    return Shown(listings.HISTORY, tuple(rows))


@SHOWS(
    "DESCRIBE DATABASE",
    rf"desc(?:ribe)? (?:database|schema) (?P<extended>extended )?(?P<database>{ONE})",
)
def describe_database(run: CommandRun, database: str, extended: bool = False) -> Shown:
    """What is known of a database; EXTENDED shows its properties too."""
    metastore = run.metastore
    record = metastore.call(ops.GetDatabase(run.catalog.require_database(database)))
    pairs = (f"{name}={text}" for name, text in sorted(record.properties.items()))
    row = {
        "db_name": record.name,
        "comment": record.comment,
        "location": f"{metastore.places.root}/{record.name}.db",
        "owner_name": record.owner,
        "owner_type": record.owner_kind.value,
        "parameters": f"{{{', '.join(pairs)}}}" if extended and record.properties else "",
    }
    return Shown(tuple(row), (row,))


@SHOWS("DESCRIBE FORMATTED", rf"desc(?:ribe)? (?:formatted|extended) {TABLE}(?: {SPEC})?")
def describe_formatted(run: CommandRun, table: str, spec: PartitionSpec | None = None) -> Shown:
    """The columns, and how the table or a partition is stored; EXTENDED says the same."""
    view = run.catalog.views.get(run.catalog.full(table))
    if view is not None and spec is None:
        text = ("View Expanded Text:", view.query, "")
        parameters = [("", name, value) for name, value in sorted(view.properties.items())]
        if parameters:
            parameters.insert(0, ("Table Parameters:", "", ""))
        return described([*view_rows(view), *heading("# View Information"), *parameters, text])
    record, external = run.declared(table)
    rows = detail_rows(run.warehouse, record, external)
    if spec is not None:
        name = _existing_partition(run, table, spec)
        where = external.external.partitions[name] if external and external.external else ""
        rows = [
            *heading("# Detailed Partition Information"),
            ("Partition:", name, ""),
            ("Database:", record.name.partition(".")[0], ""),
            ("Table:", record.name.partition(".")[2], ""),
            ("Location:", where or record.place_of(name), ""),
        ]
    return described([*column_rows(record), *rows])


@SHOWS(
    "DESCRIBE TABLE",
    r"desc(?:ribe)? (?:table )?(?!(?:database|extended|formatted|function|history|schema) )"
    rf"{TABLE}(?: (?:{SPEC}|(?P<field>{ONE})))?",
)
def describe(
    run: CommandRun,
    table: str,
    spec: PartitionSpec | None = None,
    field: str = "",
) -> Shown:
    """The columns of a table or view, of a partition, which has them too, or one column.

    Raises NoSuchPartition, UnknownColumn.
    """
    if spec is not None:
        _existing_partition(run, table, spec)
    view = run.catalog.views.get(run.catalog.full(table))
    rows = view_rows(view) if view else column_rows(run.declared(table)[0])
    if field:
        rows = [row for row in rows if row[0] == field][:1]
        if not rows:
            full = run.catalog.full(table)
            raise UnknownColumn(f"{full} has no column {field!r}; DESCRIBE {full} lists them")
    return described(rows)


def _existing_partition(run: CommandRun, table: str, spec: PartitionSpec) -> str:
    """The name of the partition that a spec names. Raises NoSuchPartition."""
    record, external = run.declared(table)
    whole_name(spec, record)  # it names all columns
    return matching(partition_names(run.metastore, record, external), record, spec)[0]


Row = Mapping[str, Any]


@SHOWS("SHOW TRANSACTIONS", r"show transactions")
def show_transactions(run: CommandRun) -> Shown:
    return Shown(listings.TRANSACTIONS, tuple(run.metastore.transactions()))


@SHOWS("SHOW LOCKS", rf"show locks (?:database|schema) (?P<database>{ONE})(?: extended)?")
@SHOWS("SHOW LOCKS", rf"show locks(?: (?!extended$){TABLE}(?: {SPEC})?)?(?: extended)?")
def show_locks(
    run: CommandRun,
    table: str = "",
    spec: PartitionSpec | None = None,
    database: str = "",
) -> Shown:
    """The locks of everybody, or of a table, a partition or a database; EXTENDED adds nothing."""
    rows = run.metastore.locks()
    if database:
        run.catalog.require_database(database)
        rows = [row for row in rows if row["database"] == database]
    if table:
        is_of = _of_table(run, table, spec)
        rows = [row for row in rows if is_of(row["database"], row["table"], row["partition"])]
    return Shown(listings.LOCKS, tuple(rows))


_ORDER = r"(?: order by (?P<order>.+?))?(?: limit (?P<limit>\d+))?"
_FILTERS = (
    r"(?: pool '(?P<pool>[^']*)')?(?: type '(?P<type_name>[^']*)')?(?: status '(?P<status>[^']*)')?"
    + _ORDER
)


@SHOWS("SHOW COMPACTIONS", r"show compactions compact_?id(?: ?= ?| )(?P<version>\d+)")
@SHOWS(
    "SHOW COMPACTIONS",
    rf"show compactions (?:database|schema) (?P<database>{ONE}){_FILTERS}",
)
@SHOWS(
    "SHOW COMPACTIONS",
    rf"show compactions(?: (?!(?:pool|type|status|order|limit) )(?:table )?{TABLE}(?: {SPEC})?)?"
    rf"{_FILTERS}",
)
def show_compactions(
    run: CommandRun,
    table: str = "",
    spec: PartitionSpec | None = None,
    database: str = "",
    version: int | None = None,
    pool: str | None = None,
    type_name: str | None = None,
    status: str | None = None,
    order: str = "",
    limit: str = "",
) -> Shown:
    """The queue and the history of compactions that fulfil all filters; `version` is an id.

    Raises InvalidExpression for a type, status or column that does not exist.
    """
    filters: dict[str, object] = {}
    if version is not None:
        filters["compactionid"] = version
    if database:
        filters["dbname"] = run.catalog.require_database(database)
    if pool is not None:
        filters["poolname"] = pool
    if type_name is not None:
        filters["type"] = _one_of("TYPE", type_name, [kind.name for kind in CompactionKind])
    if status is not None:
        filters["state"] = _one_of("STATUS", status, [state.text for state in CompactionState])
    rows = [
        row
        for row in run.metastore.compactions()
        if all(row[name] == value for name, value in filters.items())
    ]
    if table:
        is_of = _of_table(run, table, spec)
        rows = [row for row in rows if is_of(row["dbname"], row["tabname"], row["partname"])]
    for column, descending in reversed(_ordering(order)):
        rows.sort(key=_in_order_of(column), reverse=descending)
    return Shown(listings.COMPACTIONS, tuple(rows[: int(limit)] if limit else rows))


def _of_table(
    run: CommandRun, table: str, spec: PartitionSpec | None
) -> Callable[[str, str | None, str | None], bool]:
    """Tells whether a row is about the table, or about a partition of it that fits.

    Raises NoSuchTable, and NoSuchPartition for a column that does not partition the table.
    """
    record = run.catalog.record(table)
    names = record.name.split(".", 1)
    in_spec = None if spec is None else fits(record, spec)

    def is_of(database: str, short: str | None, partition: str | None) -> bool:
        if [database, short] != names:
            return False
        return in_spec is None or ("=" in (partition or "") and in_spec(partition or ""))

    return is_of


def _one_of(what: str, text: str, choices: list[str]) -> str:
    for choice in choices:
        if choice.lower() == text.lower():
            return choice
    raise InvalidExpression(
        f"SHOW COMPACTIONS {what} {text!r} does not exist; choose one of {', '.join(choices)}"
    )


_QUEUE_COLUMNS = {
    "cc_id": "compactionid",
    "cc_database": "dbname",
    "cc_table": "tabname",
    "cc_partition": "partname",
    "cc_type": "type",
    "cc_state": "state",
    "cc_worker_id": "workerid",
    "cc_enqueue_time": "enqueuetime",
    "cc_start": "starttime",
    "cc_initiator_id": "initiatorid",
    "cc_pool_name": "poolname",
    "cc_txn_id": "txnid",
    "cc_next_txn_id": "nexttxnid",
    "cc_commit_time": "committime",
    "cc_highest_write_id": "highestwriteid",
}
"""Hive's ORDER BY takes the columns of its metastore's table; those of the listing are as good."""
_ORDERED_BY = re.compile(rf"['\"]?({NAME})['\"]?(?: (asc|desc))?", re.IGNORECASE)


def _ordering(text: str) -> list[tuple[str, bool]]:
    """The columns of ORDER BY, and whether each descends. Raises InvalidExpression."""
    ordering = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _ORDERED_BY.fullmatch(part)
        name = match[1].strip("`").lower() if match else part
        column = _QUEUE_COLUMNS.get(name, name)
        if match is None or column not in listings.COMPACTIONS:
            raise InvalidExpression(
                f"SHOW COMPACTIONS ORDER BY {part}: there is no such column; columns are"
                f" {', '.join(_QUEUE_COLUMNS)}"
            )
        ordering.append((column, (match[2] or "").lower() == "desc"))
    return ordering


def _in_order_of(column: str) -> Callable[[Row], tuple[bool, float, str]]:
    """Numbers in their order, then texts: an empty field is a text."""

    def key(row: Row) -> tuple[bool, float, str]:
        value = row[column]
        return (False, value, "") if isinstance(value, int | float) else (True, 0.0, str(value))

    return key
