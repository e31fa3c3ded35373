"""Writing rows into a table inside an open transaction, in one of the write modes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from acid_platform.engine.interface import Result
from acid_platform.errors import (
    InvalidDefinition,
    NoSuchTable,
    SourceRowsAmbiguous,
    UnknownColumn,
    WrongType,
)
from acid_platform.handles.transaction import Transaction, TransactionTable
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column, parse_columns
from acid_platform.metastore.records import TableRecord
from acid_platform.orchestration.body_rows import BodyRows, body_rows
from acid_platform.orchestration.outputs import AcidOut
from acid_platform.orchestration.partition_keys import PartitionScope, literal
from acid_platform.orchestration.quarantine import Quarantined, set_aside
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.values.rows import (
    Rows,
    are_none,
    column_names,
    columns_of_rows,
    is_spark_frame,
    plain_rows,
)


def write(
    warehouse: Warehouse,
    txn: Transaction,
    out: AcidOut,
    rows: Rows,
    scope: PartitionScope | None,
    run_id: str = "",
) -> Quarantined:
    """Write the rows that the body returned; with a scope, only into the run's partitions.

    Says which rows went to the table of rejected rows. Raises UnknownColumn, WrongType,
    SourceRowsAmbiguous, InvalidDefinition, NoSuchPartition, NeedsSpark.
    """
    rows = plain_rows(rows)
    ensure_table(warehouse, out, rows)
    table = txn.table(out.name)
    if out.write_mode in ("upsert", "delete+insert") and are_none(rows):
        return Quarantined()
    _match_columns(table, out, rows)
    rows = table.filled(rows)
    if out.coerce:
        rows = table.coerced(rows)
    key = [name.lower() for name in out.key]
    quarantined = Quarantined()
    if out.quarantines:
        returned = body_rows(warehouse, rows, table.all_columns, out.name, key)
        placed = _with_partition_columns(returned, out, scope)
        accepted, quarantined = set_aside(warehouse, txn, out.name, placed, out.quarantines, run_id)
        rows = accepted.rows
    if out.write_mode == "overwrite" and scope and scope.single:
        table.overwrite(rows, partition=scope.single)
        return quarantined
    returned = body_rows(warehouse, rows, table.all_columns, out.name, key)
    to_write = _with_partition_columns(returned, out, scope)
    match out.write_mode:
        case "append":
            table.insert(to_write.rows)
        case "overwrite":
            table.overwrite(to_write.rows)
        case "upsert":
            _upsert(table, to_write, key)
        case "delete+insert":
            columns_of_run = next(iter(scope.values.values())) if scope else ()
            columns = list(dict.fromkeys((*key, *columns_of_run)))
            _delete_insert(table, to_write, columns, scope)
    written = {
        report.partition for report in txn.reports if report.table == out.name and report.partition
    }
    if scope and (
        stray := sorted(partition for partition in written if not scope.holds(partition))
    ):
        raise WrongType(
            f"rows for {out.name} belong to {', '.join(stray)}, but this run replaces"
            f" {scope.where}; return only rows of the run's partitions"
        )
    if out.write_mode == "overwrite":
        for name in table.partitions():
            if name not in written and (scope is None or scope.holds(name)):
                table.truncate(name)
    return quarantined


def ensure_table(warehouse: Warehouse, out: AcidOut, rows: Rows | None = None) -> None:
    """Create the table if it does not exist, with the declared columns or those of the rows.

    Raises InvalidDefinition if there is one that was declared otherwise.
    """
    declared = out.declaration
    columns = declared.columns
    if columns is None:
        with suppress(NoSuchTable):
            if rows is None or warehouse.metastore.table(out.name):
                return
        keys = {column.name for column in out.partition_columns}
        own = [column for column in declared_by(rows) if column.name not in keys]
        if not own:
            raise InvalidDefinition(
                f"{out.name} does not exist and the rows have no columns; CREATE TABLE it, or"
                " declare it as TableDeclaration(name, columns)"
            )
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in own)
    table = warehouse.create_table(
        declared.name,
        columns,
        declared.partitioned_by,
        properties=declared.properties,
        if_not_exists=True,
        comments=declared.comments,
        comment=declared.comment,
        constraints=declared.constraints,
    )
    if declared.columns is not None:
        _refuse_other_declaration(table.known, out, parse_columns(declared.columns))


def _refuse_other_declaration(record: TableRecord, out: AcidOut, columns: Sequence[Column]) -> None:
    """Raises InvalidDefinition if the table is not what the asset declares, but for columns that
    only one of the two has."""
    own, keys = columns_of_record(record)
    if keys != out.partition_columns:
        stored, declared = (
            ", ".join(map(str, each)) or "no column" for each in (keys, out.partition_columns)
        )
        raise InvalidDefinition(
            f"{out.name} is partitioned by {stored}, but its asset declares {declared}: change the"
            " declaration, or give the asset another table"
        )
    types = {column.name: column.type for column in (*own, *keys)}
    for column in columns:
        if types.get(column.name, column.type) != column.type:
            raise InvalidDefinition(
                f"{out.name} has the column {column.name} {types[column.name]}, but its asset"
                f" declares {column.type}: change the declaration, or ALTER TABLE"
            )


def _match_columns(table: TransactionTable, out: AcidOut, rows: Rows) -> None:
    """Add columns that the table lacks, or raise UnknownColumn."""
    columns = {column.name for column in table.all_columns}
    new = [name for name in column_names(rows) if name.lower() not in columns]
    if not new:
        return
    if out.schema_mode == "error":
        raise UnknownColumn(
            f"{out.name} has no column {', '.join(map(repr, new))}; its columns are"
            f" {', '.join(sorted(columns))}; leave it out of the rows, or set schema_mode='add'"
        )
    table.add_columns(
        ", ".join(f"{quoted(column.name)} {column.type}" for column in declared_by(rows, new))
    )


def declared_by(rows: Rows, names: Sequence[str] | None = None) -> tuple[Column, ...]:
    """Some columns of the rows, or all, as a table would declare them. Raises InvalidDefinition."""
    if isinstance(rows, Result):
        chosen = {name.lower() for name in names or rows.columns}
        return tuple(column for column in rows.declared() if column.name in chosen)
    if is_spark_frame(rows):
        from acid_platform.engine.spark.input_rows import columns_of_frame

        return columns_of_frame(rows, names or column_names(rows))  # type: ignore[arg-type]
    return columns_of_rows(rows, names)


def _with_partition_columns(rows: BodyRows, out: AcidOut, scope: PartitionScope | None) -> BodyRows:
    """The rows, with the partition columns whose values the run determines."""
    if scope is None:
        return rows
    constants = {name: value for name, value in scope.constants.items() if name not in rows.names}
    for name in next(iter(scope.values.values())):
        if name not in rows.names and name not in constants:
            raise UnknownColumn(
                f"{out.name}: this run writes several partitions; return rows with the column"
                f" {name!r}"
            )
    return rows.with_constants(constants)


def _upsert(table: TransactionTable, rows: BodyRows, key: Sequence[str]) -> None:
    keyed = _with_keys(rows, key, table.name)
    if (twice := keyed.twice(key)) is not None:
        values = ", ".join(f"{name}={twice[name]!r}" for name in key)
        raise SourceRowsAmbiguous(
            f"upsert into {table.name}: several rows have the key {values}; make the rows unique in"
            f" {', '.join(key)}"
        )
    fixed = {*key, *(column.name for column in table.partition_columns)}
    updates = {name: f"s.{quoted(name)}" for name in keyed.names if name not in fixed}
    table.merge(
        keyed.rows, _on(key), when_matched_update=updates or None, when_not_matched_insert="*"
    )


def _delete_insert(
    table: TransactionTable, rows: BodyRows, key: Sequence[str], scope: PartitionScope | None
) -> None:
    keyed = _with_keys(rows, key, table.name)
    on = _on(key)
    if scope is not None:
        # A run of another partition looks for other rows, also where Spark alone knows them (P51).
        for name, value in scope.constants.items():
            on += f" AND t.{quoted(name)} = {literal(value, name in scope.quoted)}"
    table.merge(keyed.distinct(key), on, when_matched_delete="true")
    table.insert(keyed.rows)


def _with_keys(rows: BodyRows, key: Sequence[str], table: str) -> BodyRows:
    """The rows, computed once, as they are looked at several times (P20); every key is there.

    Raises UnknownColumn, SourceRowsAmbiguous.
    """
    if missing := [name for name in key if name not in rows.names]:
        raise UnknownColumn(f"rows for {table} lack the key column {', '.join(missing)}")
    computed = rows.computed()
    if (bad := computed.with_null(key)) is not None:
        raise SourceRowsAmbiguous(
            f"a row for {table} has NULL in its key, and NULL equals nothing: {bad}; fill"
            f" {', '.join(key)} or leave the row out"
        )
    return computed


def _on(key: Sequence[str]) -> str:
    return " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in key)
