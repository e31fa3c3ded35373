"""An output of an asset: the table, the checks of its rows, and the modes of writing them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import dagster as dg
import pyarrow as pa

from acid_platform.engine.interface import Result
from acid_platform.errors import (
    InvalidDefinition,
    NoSuchTable,
    SourceRowsAmbiguous,
    UnknownColumn,
    WrongType,
)
from acid_platform.handles.table import Table
from acid_platform.handles.transaction import Transaction, TransactionTable
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column, parse_columns
from acid_platform.metastore.records import TableRecord
from acid_platform.orchestration.body_rows import (
    GIVEN,
    BodyRows,
    Quarantined,
    body_rows,
    require_row_level,
    set_aside,
)
from acid_platform.orchestration.check_results import Finding
from acid_platform.orchestration.checks import (
    Expectation,
    expectations_of,
    refuse_quarantine,
    require_columns,
    require_known,
    require_names,
)
from acid_platform.orchestration.history import (
    DECLARED,
    History,
    one_current_row,
    write_versions,
)
from acid_platform.orchestration.metadata import TABLE_KIND, TableDeclaration
from acid_platform.orchestration.original_values import originals_by_row
from acid_platform.orchestration.partition_keys import (
    PartitionExpr,
    PartitionScope,
    PartitionText,
    literal,
)
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.transactions import Isolation
from acid_platform.values.arrow_types import arrow_type
from acid_platform.values.rows import (
    Rows,
    are_none,
    column_names,
    columns_of_rows,
    is_spark_frame,
    plain_rows,
)

WriteMode = Literal["append", "overwrite", "upsert", "delete+insert", "history"]
KEYED_MODES = ("upsert", "delete+insert", "history")
"""The modes that need a `key`; those of others only tells failing rows apart."""
SchemaMode = Literal["error", "add"]
Recheck = Callable[[dg.AssetExecutionContext, Table], Sequence[Finding]]


@dataclass(frozen=True, slots=True)
class AcidOut:
    """A table of an asset. Raises InvalidDefinition for arguments that contradict each other.

    `write_mode` says how returned rows are written: `overwrite` replaces the table, or exactly the
    run's partitions if the asset is partitioned; `append` adds the rows; `upsert` is a MERGE by
    `key`; `delete+insert` deletes all rows with a key of the new rows, then inserts those;
    `history` keeps each version of a row, as `history` says. Samples of rows that fail a check
    have the columns of `key` in every mode.
    `partition_expr` maps the asset's partitions to the table's. `expectations` are evaluated on
    what the transaction would commit, in the run's partitions; `checks` are evaluated by the body,
    which returns Findings. `schema_mode="add"` adds columns that the table lacks.
    """

    table: TableDeclaration | str
    write_mode: WriteMode = "overwrite"
    key: Sequence[str] = ()
    partition_expr: PartitionText | None = None
    expectations: Sequence[Any] = ()
    """Expectation, or suites of Great Expectations, or the paths of their files."""
    checks: Sequence[Expectation] = ()
    schema_mode: SchemaMode = "error"
    recheck: Recheck | None = None
    """Evaluates the `checks` on the committed rows, for a run that selects only checks."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of dg.AssetSpec: description, deps, group_name, code_version, …"""
    coerce: bool = False
    """Convert returned values that do not fit, as Table.coerced; the metadata says which."""
    isolation: Isolation = "snapshot"
    """With `serializable`, the run begins again if others have changed what it read."""
    history: History | None = None

    def __post_init__(self) -> None:
        for name, chosen, kind in (
            ("write_mode", self.write_mode, WriteMode),
            ("schema_mode", self.schema_mode, SchemaMode),
            ("isolation", self.isolation, Isolation),
        ):
            allowed = get_args(kind)
            why = f"{name} is {chosen!r}; choose one of {', '.join(allowed)}"
            self._refuse(chosen not in allowed, why)
        self._refuse(isinstance(self.key, str), f"key must be a list: [{self.key!r}]")
        by_key = self.write_mode in KEYED_MODES
        self._refuse(by_key and not self.key, f"write_mode {self.write_mode} needs key=[…]")
        owner = f"asset of {self.declaration.name}"
        expectations = expectations_of(self.expectations, owner)
        versions = self.write_mode == "history"
        self._refuse(
            self.history is not None and not versions, "history= needs write_mode='history'"
        )
        if versions:
            expectations = (*expectations, one_current_row(self.key))
            self._declare_versions(owner)
        object.__setattr__(self, "expectations", expectations)
        require_names((*self.expectations, *self.checks), owner)
        require_known(self.expectations, owner)
        refuse_quarantine(self.checks, owner)
        columns = self.declaration.columns
        require_row_level(self.expectations, parse_columns(columns) if columns else (), owner)
        self._refuse(
            self.recheck is not None and not self.checks,
            "recheck evaluates the checks= of the body, but there are none",
        )
        if self.declaration.columns is not None:
            declared = {column.name for column in parse_columns(self.declaration.columns)}
            self._check_key(declared)
            if self.schema_mode == "error":
                partition = {column.name for column in self.partition_columns}
                require_columns(self.expectations, declared | partition, owner)

    def _declare_versions(self, owner: str) -> None:
        """Adds the columns of versions to those that are declared."""
        history = self.history or History()
        object.__setattr__(self, "history", history)
        self._refuse(
            history.full and self.partition_expr is not None,
            "the rows of a run with partition_expr are those of its partitions, so history can't"
            " be full",
        )
        declared = self.declaration
        if declared.columns is not None:
            own = parse_columns(declared.columns)
            history.require((*own, *self.partition_columns), owner)
            object.__setattr__(
                self, "table", replace(declared, columns=f"{declared.columns}, {DECLARED}")
            )

    def _check_key(self, columns: set[str]) -> None:
        partition = {column.name for column in self.partition_columns}
        key = {name.lower() for name in self.key}
        every = sorted(columns | partition)
        unknown = sorted(key - {*every})
        self._refuse(
            bool(unknown),
            f"key column {', '.join(unknown)} is not in the table; its columns are"
            f" {', '.join(every)}",
        )
        left = partition - key
        self._refuse(
            self.write_mode in ("upsert", "history") and bool(left),
            f"write_mode {self.write_mode} can't move a row to another partition; add"
            f" {', '.join(sorted(left))} to the key, or use delete+insert",
        )

    def _refuse(self, wrong: bool, why: str) -> None:
        if wrong:
            raise InvalidDefinition(f"asset of {self.declaration.name}: {why}")

    @property
    def declaration(self) -> TableDeclaration:
        """The declaration; a mere name declares a table with the columns of the first rows."""
        return (
            self.table if isinstance(self.table, TableDeclaration) else TableDeclaration(self.table)
        )

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def asset_key(self) -> dg.AssetKey:
        return self.declaration.key

    @property
    def partition_columns(self) -> tuple[Column, ...]:
        keys = self.declaration.partitioned_by
        return parse_columns(", ".join(keys)) if keys else ()

    @property
    def quarantines(self) -> list[Expectation]:
        """The expectations whose failing rows are set aside."""
        return [each for each in self.expectations if each.quarantine]

    def partitioning(
        self, definition: dg.PartitionsDefinition[str] | None, drives_itself: bool
    ) -> PartitionExpr | None:
        """How the asset's partition keys map to the table's partitions; None if they do not.

        Raises InvalidDefinition.
        """
        if definition is None:
            self._refuse(
                self.partition_expr is not None,
                "partition_expr needs partitions_def: the asset is not partitioned",
            )
            return None
        if self.partition_expr is None:
            self._refuse(
                self.write_mode == "overwrite" and not drives_itself,
                "it is partitioned, so partition_expr must say which partition of the table a run"
                " replaces, e.g. partition_expr='day'; or let the body take txn",
            )
            return None
        return PartitionExpr.parse(
            self.partition_expr, definition, self.partition_columns, self.name
        )

    def asset_spec(self, deps: Sequence[dg.AssetDep], description: str | None) -> dg.AssetSpec:
        arguments = {"kinds": {TABLE_KIND}, "description": description, **self.spec}
        metadata = {**self.declaration.metadata, **arguments.pop("metadata", {})}
        if self.partition_expr is not None:
            metadata["partition_expr"] = (
                self.partition_expr
                if isinstance(self.partition_expr, str)
                else dict(self.partition_expr)
            )
        return dg.AssetSpec(
            self.asset_key, deps=[*arguments.pop("deps", ()), *deps], metadata=metadata, **arguments
        )

    def check_specs(
        self, partitions_def: dg.PartitionsDefinition[str] | None
    ) -> list[dg.AssetCheckSpec]:
        every = (*self.expectations, *self.checks)
        return [expectation.spec(self.asset_key, partitions_def) for expectation in every]


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
    table = _table_of(warehouse, txn, out, rows)
    key = [name.lower() for name in out.key if out.write_mode in KEYED_MODES]
    if out.write_mode in KEYED_MODES and are_none(rows):
        if out.history is None or not out.history.full:
            return Quarantined()
        keys = [column for column in table.all_columns if column.name in key]
        rows = pa.table({column.name: pa.array([], arrow_type(column.type)) for column in keys})
    more = out.history.more_columns(table.all_columns) if out.history else ()
    _match_columns(table, out, rows, {column.name for column in more})
    rows = table.filled(rows)
    first = not txn.coerced(out.name)
    if out.coerce:
        rows = table.coerced(rows)
    columns = (*table.all_columns, *more)
    quarantined = Quarantined()
    if out.quarantines:
        kept = columns
        if first and isinstance(rows, pa.Table):
            given = originals_by_row(txn.coerced(out.name), len(rows))
            if given is not None:
                rows = rows.append_column(GIVEN, given)
                kept = (*columns, *parse_columns(f"{GIVEN} string"))
        returned = body_rows(warehouse, rows, kept, out.name, key)
        placed = _with_partition_columns(returned, out, scope)
        accepted, quarantined = set_aside(warehouse, txn, out.name, placed, out.quarantines, run_id)
        rows = accepted.rows
    if out.write_mode == "overwrite" and scope and scope.single:
        table.overwrite(rows, partition=scope.single)
        return quarantined
    returned = body_rows(warehouse, rows, columns, out.name, key)
    to_write = _with_partition_columns(returned, out, scope)
    match out.write_mode:
        case "append":
            table.insert(to_write.rows)
        case "overwrite":
            table.overwrite(to_write.rows)
        case "upsert":
            _upsert(table, to_write, key, out)
        case "delete+insert":
            columns_of_run = next(iter(scope.values.values())) if scope else ()
            every = list(dict.fromkeys((*key, *columns_of_run)))
            _delete_insert(table, to_write, every, scope)
        case "history":
            assert out.history is not None
            moment = out.history.changed_at
            unique = [*key, moment.lower()] if moment else key
            _unique(keyed := _with_keys(to_write, unique, out.name), unique, out)
            write_versions(warehouse, txn, table, keyed, key, out.history)
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


def require_whole(warehouse: Warehouse, out: AcidOut, scope: PartitionScope | None) -> None:
    """Raises InvalidDefinition if the table was filled by shorter times than those of the run."""
    if scope and scope.spans:
        with suppress(NoSuchTable):
            scope.require_whole(warehouse.metastore.partitions(out.name))


def _table_of(warehouse: Warehouse, txn: Transaction, out: AcidOut, rows: Rows) -> TransactionTable:
    """The output's table as the transaction sees it; one that is not there is made."""
    try:
        record = txn.view.table(out.name)
    except NoSuchTable:
        ensure_table(warehouse, out, rows)
    else:
        if out.declaration.columns is not None:
            _refuse_other_declaration(record, out, parse_columns(out.declaration.columns))
    return txn.table(out.name)


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
        if out.history:
            more = {column.name for column in out.history.more_columns(())} - {
                *(name.lower() for name in out.key)
            }
            own = [column for column in own if column.name not in more]
            out.history.require((*own, *out.partition_columns), f"asset of {out.name}")
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in own)
        columns = f"{columns}, {DECLARED}" if out.history else columns
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


def _match_columns(
    table: TransactionTable, out: AcidOut, rows: Rows, more: Collection[str]
) -> None:
    """Add columns that the table lacks, `more` not among them, or raise UnknownColumn."""
    columns = {column.name for column in table.all_columns} | {*more}
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


def _upsert(table: TransactionTable, rows: BodyRows, key: Sequence[str], out: AcidOut) -> None:
    keyed = _with_keys(rows, key, table.name)
    _unique(keyed, key, out)
    fixed = {*key, *(column.name for column in table.partition_columns)}
    updates = {name: f"s.{quoted(name)}" for name in keyed.names if name not in fixed}
    table.merge(
        keyed.rows, _on(key), when_matched_update=updates or None, when_not_matched_insert="*"
    )


def _unique(rows: BodyRows, key: Sequence[str], out: AcidOut) -> None:
    """Raises SourceRowsAmbiguous."""
    if (twice := rows.twice(key)) is not None:
        values = ", ".join(f"{name}={twice[name]!r}" for name in key)
        raise SourceRowsAmbiguous(
            f"{out.write_mode} into {out.name}: several rows have the key {values}; make the rows"
            f" unique in {', '.join(key)}"
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
