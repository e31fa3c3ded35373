"""Running statements that change rows: each ends in the value that the verb of its name runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from acid_platform.engine.interface import Condition, Result, Where
from acid_platform.engine.merge_clauses import MergeAction, MergeClause, values_of_all
from acid_platform.errors import (
    InvalidExpression,
    NoSuchPartition,
    UnsupportedStatement,
    WrongType,
)
from acid_platform.handles.row_statements import (
    DeleteRows,
    InsertRows,
    MergeRows,
    OverwriteRows,
    TruncateRows,
    UpdateRows,
)
from acid_platform.handles.transaction import Transaction
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import HiveType, matched_columns, require_columns
from acid_platform.metastore.records import TableRecord
from acid_platform.predicates.grammar import CALLED
from acid_platform.sql import run_queries
from acid_platform.sql.answers import Done
from acid_platform.sql.catalog import Catalog
from acid_platform.sql.column_lists import PartitionSpec, fixed_values, matching
from acid_platform.sql.column_references import FromMember, assigned_column, bare, called
from acid_platform.sql.query_tables import bind
from acid_platform.sql.statements import (
    Assignment,
    Change,
    Delete,
    Insert,
    LoadData,
    MergeInto,
    MultiInsert,
    Truncate,
    Update,
    ValuesRows,
    When,
    rows_of,
    subquery_values,
)
from acid_platform.sql.text import Expression, Query, expression, parsed, query
from acid_platform.tables.external_tables import rows_of_files
from acid_platform.tables.record_layout import all_columns_of
from acid_platform.tables.table_constraints import row_checks


@dataclass(frozen=True, slots=True)
class Changes:
    """Runs a change inside a transaction."""

    warehouse: Warehouse
    catalog: Catalog
    txn: Transaction
    checked: TableRecord | None = None
    rows: UpdateRows | DeleteRows | None = None
    """What the statement comes to while the table is declared as `checked`; see `checked_rows`."""

    def run(self, statement: Change) -> Done:
        """Runs the statement. Raises what the methods of Table raise."""
        record = self.catalog.target(statement.table)
        match statement:
            case Insert() | MultiInsert():
                return Done.changed("INSERT", self._insert(statement))
            case Update() | Delete():
                change = self.rows if record == self.checked else None
                change = change or _rows(statement, record, self._where)
                word = "UPDATE" if isinstance(statement, Update) else "DELETE"
                return Done.changed(word, self.txn.run(change, self.checked))
            case MergeInto():
                counts = self.txn.run(self._merged(statement, record))
                rows = counts.updated + counts.deleted + counts.inserted
                return Done.changed("MERGE", rows)
            case Truncate():
                for partition in self._truncated(statement, record):
                    self.txn.run(TruncateRows(record.name, partition))
                return Done("TRUNCATE")
            case LoadData():
                return Done.changed("LOAD DATA", self._load(statement, record))

    def _insert(self, statement: Insert | MultiInsert) -> int:
        """All rows are planned before any are written, so that they come from one snapshot."""
        if isinstance(statement, MultiInsert):
            refuse_changing_rows(statement.rows, self.catalog)
        inserts = statement.inserts if isinstance(statement, MultiInsert) else (statement,)
        planned = []
        for insert in inserts:
            record = self.catalog.target(insert.table)
            planned.append(
                (insert, record, *inserted_rows(self.warehouse, self.catalog, insert, record))
            )
        # A write after an overwrite is refused; one before it would be hidden.
        planned.sort(key=lambda each: not each[0].overwrite)
        written = 0
        for each in planned:
            with run_queries.deriving(self.catalog, each[0].source, each[3].columns):
                written += self._write(*each)
        return written

    def _write(
        self, insert: Insert, record: TableRecord, fixed: Mapping[str, str | None], rows: Result
    ) -> int:
        if insert.if_not_exists:
            if len(fixed) < len(record.partition_columns):
                raise NoSuchPartition(
                    f"INSERT OVERWRITE into {record.name} with IF NOT EXISTS needs a value for each"
                    f" partition column: {', '.join(name for name, _ in record.partition_columns)}"
                )
            if _is_there(self.txn.view.partitions(record.name), record, insert.partition):
                return 0
        return self._stored(rows, record, fixed, insert.overwrite)

    def _stored(
        self, rows: Result, record: TableRecord, fixed: Mapping[str, str | None], overwrite: bool
    ) -> int:
        if not overwrite:
            return self.txn.run(InsertRows(record.name, rows, fixed))
        whole = fixed and len(fixed) == len(record.partition_columns)
        return self.txn.run(OverwriteRows(record.name, rows, fixed if whole else None, fixed))

    def _load(self, statement: LoadData, record: TableRecord) -> int:
        fixed = {} if statement.partition is None else fixed_values(statement.partition, record)
        columns = [column for column in all_columns_of(record) if column.name not in fixed]
        rows = rows_of_files(
            self.warehouse.engines, self.warehouse.metastore.in_force, statement.source, columns
        )
        return self._stored(rows, record, fixed, statement.overwrite)

    def _truncated(self, statement: Truncate, record: TableRecord) -> Sequence[str | None]:
        if statement.partition is None:
            return [None]
        return matching(self.txn.view.partitions(record.name), record, statement.partition)

    def _where(self, statement: Update | Delete, record: TableRecord) -> Where:
        if not _asks(statement):
            return _bare_where(statement, record)
        bound = bind(
            rows_of(statement, record, "1"),
            run_queries.placeholder(),
            self.catalog.columns,
            self.catalog.current_database,
            self.catalog.view_query,
        )
        own, *others = bound.sources
        return Condition(
            bound.text.removeprefix(_ONE),
            own.placeholder,
            run_queries.reads_of(self.catalog, others),
            own.where,
            tuple(subquery_values(statement)),
            own.columns,
        )

    def _merged(self, statement: MergeInto, record: TableRecord) -> MergeRows:
        result = run_queries.run(self.warehouse, self.catalog, statement.source)
        target = _member(statement, record)
        database = statement.source_database
        source = FromMember(
            statement.source_alias,
            database if database is None else database or self.catalog.current_database,
            frozenset(name.lower() for name in result.columns),
        )
        aliases = (statement.alias, statement.source_alias)
        if aliases[0] == aliases[1]:
            aliases = (aliases[0], f"{aliases[1]} 2")
        both = dict(zip((target, source), aliases, strict=True))

        def clause(when: When) -> MergeClause:
            sides = {source: aliases[1]} if when.verb is MergeAction.INSERT else both
            if when.by_source:
                sides = {target: aliases[0]}
            condition = None if when.condition is None else called(when.condition, sides)
            assigned = _by_column(when.assignments or (), target, "MERGE")
            values: Mapping[str, Expression] = {
                name: assignment.value for name, assignment in assigned.items()
            }
            if when.verb is MergeAction.INSERT and when.values is not None:
                values = _inserted_by(when.columns, when.values, record)
            texts = {
                name: called(value, sides) for name, value in _as_in_values(values, record).items()
            }
            if when.verb is MergeAction.INSERT and when.values is None:
                columns = all_columns_of(record)
                texts = values_of_all(columns, result.columns, aliases[1], record.name)
            return MergeClause(when.verb, texts or None, condition, when.by_source)

        clauses = [clause(when) for when in statement.whens]
        return MergeRows(record.name, result, called(statement.on, both), clauses, aliases)


_ONE = "SELECT 1"


def checked_rows(statement: Change, record: TableRecord) -> UpdateRows | DeleteRows | None:
    """What an UPDATE or DELETE without subqueries comes to; None for any other statement.

    Raises what the verb of its name raises before it locks the table.
    """
    if not isinstance(statement, Update | Delete) or _asks(statement):
        return None
    rows = _rows(statement, record, _bare_where)
    rows.check(record)
    return rows


def _asks(statement: Update | Delete) -> bool:
    """Whether the statement has a subquery."""
    where = statement.where
    return bool(subquery_values(statement) or (where and where.tree.find(exp.Query)))


def _bare_where(statement: Update | Delete, record: TableRecord) -> str | None:
    return None if statement.where is None else bare(statement.where, _member(statement, record))


def _rows(
    statement: Update | Delete,
    record: TableRecord,
    where: Callable[[Update | Delete, TableRecord], Where],
) -> UpdateRows | DeleteRows:
    """A value of SET with a subquery is a column of the condition."""
    if isinstance(statement, Delete):
        return DeleteRows(record.name, where(statement, record))
    member = _member(statement, record)
    assigned = _by_column(statement.assignments, member, "UPDATE")
    values = _as_in_values({name: each.value for name, each in assigned.items()}, record)
    computed = {each.target: name for name, each in subquery_values(statement).items()}
    texts = {
        name: quoted(computed[each.target]) if each.asks else bare(values[name], member)
        for name, each in assigned.items()
    }
    return UpdateRows(record.name, texts, where(statement, record))


def _member(statement: Update | Delete | MergeInto, record: TableRecord) -> FromMember:
    """The table that a statement changes, under the name that its columns are called by."""
    columns = frozenset(name for name, _ in (*record.columns, *record.partition_columns))
    database = None if statement.aliased else record.name.partition(".")[0]
    return FromMember(statement.alias, database, columns, virtual=True)


def _by_column(
    assignments: Sequence[Assignment], member: FromMember, what: str
) -> dict[str, Assignment]:
    """The assignments of SET by what each target means: a column, or a field such as `s.a`.

    Raises InvalidExpression for one that is named twice, and as `assigned_column`.
    """
    values: dict[str, Assignment] = {}
    for assignment in assignments:
        name = assigned_column(assignment.target, member)
        if name in values:
            raise InvalidExpression(f"{what} SET names column {name!r} twice")
        values[name] = assignment
    return values


def _is_there(partitions: Sequence[str], record: TableRecord, spec: PartitionSpec | None) -> bool:
    try:
        return bool(spec and matching(partitions, record, spec))
    except NoSuchPartition:
        return False


def inserted_rows(
    warehouse: Warehouse, catalog: Catalog, statement: Insert, record: TableRecord
) -> tuple[dict[str, str | None], Result]:
    """The fixed partition values and the rows of an INSERT. Raises WrongType, NoSuchPartition."""
    source, by_name = statement.source, statement.by_name
    fixed, names = _target_columns(statement, record)
    if isinstance(source, ValuesRows):
        kinds = _kinds(record)
        source = _values(source, [(name, kinds.get(name, "string")) for name in names], record)
    result = run_queries.run(warehouse, catalog, source, named=by_name)
    if by_name:
        named = tuple(name.lower() for name in result.columns)
        matched_columns(named, all_columns_of(record), record.name)
        fixed, names = _target_columns(replace(statement, columns=named), record)
    if len(result.columns) != len(names):
        raise WrongType(
            f"INSERT into {record.name}: the query has {len(result.columns)} columns, and"
            f" {len(names)} are needed: {', '.join(names)}"
        )
    rows = result.renamed(names)
    if isinstance(statement.source, ValuesRows):
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
            f"PARTITION of {record.name} must name {', '.join(keys)}: those without a value in this"
            " order"
        )
    names = list(statement.columns or columns)
    require_columns(names, all_columns_of(record), record.name)
    if twice := [name for name in names if name in fixed]:
        raise NoSuchPartition(
            f"INSERT into {record.name}: PARTITION gives {', '.join(twice)} a value, and the list"
            " of columns names it; leave it out of the list"
        )
    if spec is None and statement.columns:
        if missing := [key for key in dynamic if key not in names]:
            raise NoSuchPartition(
                f"INSERT into {record.name} needs its partition columns: {', '.join(missing)}"
            )
        return {}, names
    return fixed, [*names, *(key for key in dynamic if key not in names)]


def _values(values: ValuesRows, places: list[tuple[str, str]], record: TableRecord) -> Query:
    """VALUES as a query; texts for numbers, dates and timestamps are cast, or are an error."""
    rows = []
    defaults = row_checks(record).defaults
    for row in values.rows:
        if len(row) != len(places):
            raise WrongType(
                f"INSERT into {record.name}: a row of VALUES has {len(row)} values, but needs"
                f" {len(places)}: {', '.join(name for name, _ in places)}"
            )
        texts = (
            _cast_text(_or_default(value, name, defaults), kind)
            for value, (name, kind) in zip(row, places, strict=True)
        )
        rows.append(f"({', '.join(texts)})")
    return query(f"SELECT * FROM VALUES {', '.join(rows)} AS v")


def _or_default(value: Expression, column: str, defaults: Mapping[str, str]) -> Expression:
    """The column's default for the word DEFAULT, NULL if it has none; other values as they are."""
    if not isinstance(value.tree, exp.Column) or value.text.strip().upper() != "DEFAULT":
        return value
    return expression(defaults.get(column, "NULL"))


def _as_in_values(values: Mapping[str, Expression], record: TableRecord) -> dict[str, Expression]:
    """The values with a default in place of the word DEFAULT, and a CAST of texts for numbers,
    dates and timestamps."""
    defaults, kinds = row_checks(record).defaults, _kinds(record)
    return {
        name: expression(_cast_text(_or_default(value, name, defaults), kinds.get(name, "string")))
        for name, value in values.items()
    }


def _kinds(record: TableRecord) -> dict[str, str]:
    """The kinds of types of the columns, and of the fields of structs, such as `s.a`."""
    columns = all_columns_of(record)
    return dict(kind for column in columns for kind in _kinds_below(column.name, column.type))


def _kinds_below(name: str, declared: HiveType) -> Iterator[tuple[str, str]]:
    yield name, declared.kind
    if declared.kind == "struct":
        for field, below in declared.children:
            yield from _kinds_below(f"{name}.{field}", below)


_CAST = ("tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp")


def _cast_text(value: Expression, kind: str) -> str:
    is_text = isinstance(value.tree, exp.Literal) and value.tree.is_string
    return f"CAST({value.text} AS {kind})" if is_text and kind in _CAST else value.text


def _inserted_by(
    columns: Sequence[str], values: Sequence[Expression], record: TableRecord
) -> dict[str, Expression]:
    """The values of WHEN NOT MATCHED by column; without `columns`, by position."""
    names = columns or [name for name, _ in (*record.columns, *record.partition_columns)]
    if len(names) != len(values):
        raise InvalidExpression(
            f"MERGE INSERT into {record.name} has {len(values)} values, but needs"
            f" {len(names)}: {', '.join(names)}"
        )
    return dict(zip(names, values, strict=True))


_NODES = (exp.Rand, exp.Randn, exp.Uuid, exp.TableSample, exp.CurrentTimestamp, exp.CurrentDate)
_FUNCTIONS = {
    *("rand", "randn", "random", "uniform", "randstr", "uuid", "shuffle"),
    *("now", "current_timestamp", "current_date", "localtimestamp"),
    *("monotonically_increasing_id", "spark_partition_id", "reflect", "java_method"),
}


def refuse_changing_rows(query: Query, catalog: Catalog) -> None:
    """Raises UnsupportedStatement if the rows of a query, views included, may differ when they are
    read again at the same snapshot."""
    bound = bind(query, "acid_rows", catalog.columns, catalog.current_database, catalog.view_query)
    for node in parsed(bound.text).walk():
        if _may_differ(node):
            raise UnsupportedStatement(
                f"FROM … INSERT … INSERT … reads its rows once for each INSERT, and"
                f" {node.sql('spark').strip()} may give others each time; insert the rows into a"
                " table first"
            )


def _may_differ(node: exp.Expr) -> bool:
    match node:
        case exp.Limit():
            return node.parent is not None and not node.parent.args.get("order")
        case exp.Func():
            return node.meta.get(CALLED) in _FUNCTIONS or isinstance(node, _NODES)
    return isinstance(node, _NODES)
