"""Running statements that change rows, with the methods of a transaction's table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.merge_clauses import MergeAction, MergeClause
from acid_platform.errors import AcidError, InvalidExpression, NoSuchPartition, WrongType
from acid_platform.group_commit import interval_ms
from acid_platform.reading.known_columns import require_columns
from acid_platform.sql import reading
from acid_platform.sql.answers import Done
from acid_platform.sql.partitions import fixed_values, matching
from acid_platform.sql.scopes import full_name
from acid_platform.sql.sources import bind
from acid_platform.sql.statements import (
    Change,
    Delete,
    Insert,
    MergeInto,
    Truncate,
    Update,
    When,
)
from acid_platform.sql.views import expand
from acid_platform.tables.context import columns_of_record

if TYPE_CHECKING:
    from acid_platform.engine.queries import Where
    from acid_platform.engine.results import Result
    from acid_platform.engine.scans import TableScan
    from acid_platform.metastore.records import TableRecord
    from acid_platform.sql.catalog import Catalog
    from acid_platform.tables.context import ScanRequest
    from acid_platform.transaction import Transaction
    from acid_platform.warehouse import Warehouse


def target_of(statement: Change, catalog: Catalog) -> TableRecord:
    """The table that a statement changes. Raises NoSuchTable, UnsupportedStatement for a view."""
    return catalog.target(statement.table)


@dataclass(frozen=True, slots=True)
class Changes:
    """Runs a change inside a transaction."""

    warehouse: Warehouse
    catalog: Catalog
    txn: Transaction

    def run(self, statement: Change) -> Done:
        """Runs the statement. Raises what the methods of Table raise."""
        record = target_of(statement, self.catalog)
        match statement:
            case Insert():
                return Done.changed("INSERT", self._insert(statement, record))
            case Update():
                texts = {
                    name: _bare(value, statement.alias, record.name)
                    for name, value in statement.assignments.items()
                }
                where = self._where(statement.where, statement.alias, record)
                rows = self.txn.table(record.name).update(texts, where)
                return Done.changed("UPDATE", rows)
            case Delete():
                where = self._where(statement.where, statement.alias, record)
                return Done.changed("DELETE", self.txn.table(record.name).delete(where))
            case MergeInto():
                return self._merge(statement, record)
            case Truncate():
                self._truncate(statement, record)
                return Done("TRUNCATE")

    def _insert(self, statement: Insert, record: TableRecord) -> int:
        fixed, rows = _inserted(self.warehouse, self.catalog, statement, record, self.txn.scans)
        target = self.txn.table(record.name)
        if not statement.overwrite:
            return target.insert(rows, fixed)
        if fixed and len(fixed) == len(record.partition_columns):
            return target.overwrite(rows, fixed)
        return target.overwrite(rows, fixed=fixed)

    def _truncate(self, statement: Truncate, record: TableRecord) -> None:
        target = self.txn.table(record.name)
        if statement.partition is None:
            target.truncate()
            return
        for name in matching(self.txn.declared, record, statement.partition):
            target.truncate(name)

    def _where(self, where: exp.Expr | None, alias: str, record: TableRecord) -> Where:
        from acid_platform.engine.queries import Condition

        if where is None:
            return None
        if not where.find(exp.Query):
            return _bare(where, alias, record.name)
        name = reading.placeholder()
        stand_in = exp.alias_(exp.to_table(name), alias, table=True)
        query = exp.select("*").from_(stand_in).where(_aliased(where, alias, record.name))
        whole = expand(query, self.catalog.current_database, self.catalog.view_query)
        columns = self.catalog.columns(record.name)
        target = full_name(exp.to_table(name), self.catalog.current_database)
        bound = bind(
            whole,
            reading.placeholder(),
            lambda name: columns if name == target else self.catalog.columns(name),
            self.catalog.current_database,
        )
        (own,) = [source for source in bound.sources if source.table == target]
        others = [source for source in bound.sources if source.table != target]
        return Condition(
            bound.text,
            own.placeholder,
            reading.reads_of(self.catalog, others, self.txn.scans),
            own.where,
        )

    def _merge(self, statement: MergeInto, record: TableRecord) -> Done:
        source = reading.run(self.warehouse, self.catalog, statement.source, self.txn.scans)

        def text(node: exp.Expr) -> str:
            return _aliased(node, statement.alias, record.name).sql(dialect="spark")

        counts = self.txn.table(record.name).merge(
            source,
            text(statement.on),
            clauses=[_clause(when, record, text) for when in statement.whens],
            aliases=(statement.alias, statement.source_alias),
        )
        rows = counts.updated + counts.deleted + counts.inserted
        return Done.changed("MERGE", rows)


def insert_with_others(warehouse: Warehouse, catalog: Catalog, statement: Insert) -> Done | None:
    """Commits INSERT … VALUES with small inserts of other threads (P44).

    None: nothing was written, and it has to run in a transaction of its own. Raises NoSuchTable,
    UnsupportedStatement for a view, and what a commit raises.
    """
    given = statement.source
    if statement.overwrite or not isinstance(given, exp.Values) or given.find(exp.Query):
        return None
    record = target_of(statement, catalog)
    if not interval_ms(record) or warehouse.engines.wanted_here == "spark":
        return None
    try:
        with warehouse.using("local"):
            fixed, rows = _inserted(warehouse, catalog, statement, record, _no_scans)
            found = rows.to_arrow()
    except AcidError:
        return None  # alone, it raises its error, or Spark computes it
    done = warehouse.groups.insert(record, found, fixed, computed=True)
    return None if done is None else Done.changed("INSERT", done)


def _no_scans(wanted: Sequence[ScanRequest]) -> list[TableScan]:
    """For a query that reads no table."""
    assert not wanted
    return []


def _inserted(
    warehouse: Warehouse,
    catalog: Catalog,
    statement: Insert,
    record: TableRecord,
    scans: reading.Scans,
) -> tuple[dict[str, str | None], Result]:
    """The fixed partition values and the rows of an INSERT. Raises WrongType, NoSuchPartition."""
    own, keys = columns_of_record(record)
    fixed, names = _target_columns(statement, record)
    query = statement.source
    if isinstance(query, exp.Values):
        kinds = {column.name: column.type.kind for column in (*own, *keys)}
        query = _rows(query, [(name, kinds.get(name, "string")) for name in names], record.name)
    result = reading.run(warehouse, catalog, query, scans)
    if len(result.columns) != len(names):
        raise WrongType(
            f"INSERT into {record.name}: the query has {len(result.columns)} columns, and"
            f" {len(names)} are needed: {', '.join(names)}"
        )
    rows = result.renamed(names)
    if isinstance(statement.source, exp.Values):
        rows = rows.in_one_file()  # a few rows, in the given order
    return fixed, rows


def _target_columns(
    statement: Insert, record: TableRecord
) -> tuple[dict[str, str | None], list[str]]:
    """The fixed partition values, and the table's columns for the query's columns, in order."""
    keys = [name for name, _ in record.partition_columns]
    columns = [name for name, _ in record.columns]
    spec = statement.partition
    fixed = fixed_values(spec, record) if spec else {}
    dynamic = [key for key in keys if key not in fixed]
    if spec and (spec.dynamic != tuple(dynamic)):
        raise NoSuchPartition(
            f"PARTITION of {record.name} must name {', '.join(keys)}: columns with fixed values"
            " first, then the others in this order"
        )
    names = list(statement.columns or columns)
    own, partition_columns = columns_of_record(record)
    require_columns(names, (*own, *partition_columns), record.name)
    if spec is None and statement.columns:
        if missing := [key for key in dynamic if key not in names]:
            raise NoSuchPartition(
                f"INSERT into {record.name} needs its partition columns: {', '.join(missing)}"
            )
        return {}, names
    return fixed, [*names, *(key for key in dynamic if key not in names)]


def _rows(values: exp.Values, places: list[tuple[str, str]], table: str) -> exp.Query:
    """VALUES as a query; texts for numbers, dates and timestamps are cast, or are an error."""
    rows = []
    for row in values.expressions:
        given = list(row.expressions) if isinstance(row, exp.Tuple) else [row]
        if len(given) != len(places):
            raise WrongType(
                f"INSERT into {table}: a row of VALUES has {len(given)} values, but needs"
                f" {len(places)}: {', '.join(name for name, _ in places)}"
            )
        rows.append(
            exp.Tuple(
                expressions=[
                    _cast_text(value, kind) for value, (_, kind) in zip(given, places, strict=True)
                ]
            )
        )
    alias = exp.TableAlias(this=exp.to_identifier("v"))
    return exp.select("*").from_(exp.Values(expressions=rows, alias=alias))


_CAST = ("tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp")


def _cast_text(value: exp.Expr, kind: str) -> exp.Expr:
    text = isinstance(value, exp.Literal) and value.is_string
    return exp.cast(value.copy(), kind, dialect="spark") if text and kind in _CAST else value.copy()


def _clause(when: When, record: TableRecord, text: Callable[[exp.Expr], str]) -> MergeClause:
    condition = None if when.condition is None else text(when.condition)
    if when.verb is MergeAction.DELETE:
        return MergeClause(MergeAction.DELETE, None, condition)
    if when.values is None:
        return MergeClause(MergeAction.INSERT, None, condition)
    every = [name for name, _ in (*record.columns, *record.partition_columns)]
    names = when.columns or every
    if len(names) != len(when.values):
        raise InvalidExpression(
            f"MERGE INSERT into {record.name} has {len(when.values)} values, but needs"
            f" {len(names)}: {', '.join(names)}"
        )
    values: Mapping[str, str] = {
        name: text(value) for name, value in zip(names, when.values, strict=True)
    }
    return MergeClause(when.verb, values, condition)


def _bare(node: exp.Expr, alias: str, table: str) -> str:
    """The expression in Spark SQL, with unqualified columns of the table."""
    copy = exp.Paren(this=node.copy())
    for column, rest in _qualified(copy, alias, table):
        last, *qualifiers = reversed(rest)
        column.replace(exp.column(last, *qualifiers, quoted=True))
    inner: exp.Expr = copy.this
    return inner.sql(dialect="spark")


def _aliased(node: exp.Expr, alias: str, table: str) -> exp.Expr:
    """A copy in which `db.t.c` is written `alias.c`."""
    copy = exp.Paren(this=node.copy())
    for column, rest in _qualified(copy, None, table):
        last, *qualifiers = reversed([alias, *rest])
        column.replace(exp.column(last, *qualifiers, quoted=True))
    inner: exp.Expr = copy.this
    return inner


def _qualified(
    node: exp.Expr, alias: str | None, table: str
) -> Iterable[tuple[exp.Column, list[str]]]:
    """Columns qualified by the table's alias or full name, with the parts after the qualifier."""
    full = table.split(".")
    for column in list(node.find_all(exp.Column)):
        parts = [part.name for part in column.parts]
        lower = [part.lower() for part in parts]
        if len(parts) > 2 and lower[:2] == full:
            yield column, parts[2:]
        elif len(parts) > 1 and alias is not None and lower[0] == alias:
            yield column, parts[1:]
