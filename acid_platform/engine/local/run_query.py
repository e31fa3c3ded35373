"""Running a query: translated, bound by DuckDB before anything is computed, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from acid_platform.base.arguments import require_limit
from acid_platform.base.first_use import Recent
from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.engine.interface import (
    ChangeRead,
    EngineName,
    Result,
    Sources,
    TableRead,
    columns_of,
    moment,
    one_moment,
)
from acid_platform.engine.local.computation import (
    QuerySource,
    compute,
    reading,
    require_values,
    rows_of,
    table_of,
    types_of,
)
from acid_platform.engine.local.direct_scans import UnreadFiles, direct_scan
from acid_platform.engine.local.translation.column_names import NameScope
from acid_platform.engine.local.translation.duckdb_sql import (
    NTZ,
    VARIANT,
    VOID,
    Constant,
    batches_of,
    duckdb_type,
    in_proportion,
)
from acid_platform.engine.local.translation.expressions import translate_value
from acid_platform.engine.local.translation.library import is_momentary
from acid_platform.engine.local.translation.queries import QueryTranslator
from acid_platform.engine.local.translation.query_clauses import QueryBlock, TopRows
from acid_platform.errors import (
    AcidError,
    InvalidDefinition,
    InvalidExpression,
    NeedsSpark,
    UnknownColumn,
    WrongType,
)
from acid_platform.formats.file_access import WRITTEN_FORMATS
from acid_platform.layout.acid_keys import ROW_ID_COLUMN
from acid_platform.layout.sql_text import canonical
from acid_platform.layout.types import INTEGRAL, Column, HiveType, of_value
from acid_platform.predicates.grammar import SparkSql
from acid_platform.values.arrow_types import HIVE_TYPE, arrow_type, declared_columns, values_of
from acid_platform.values.row_streams import frame_of
from acid_platform.values.stored_values import instants

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NOT_HERE = (NeedsSpark, WrongType, InvalidExpression, UnreadFiles)
"""Errors of values that DuckDB may have met only since it computes in another order than Spark, and
of files that it read itself."""


@dataclass(frozen=True, repr=False)
class LocalResult(Result):
    """The rows of a query that DuckDB computes over scans of one snapshot."""

    sql: str
    """DuckDB's SQL, whose columns have the names c0, c1 and so on."""
    named: tuple[tuple[str, HiveType], ...]
    """The columns as Spark names and types them."""
    sources: Mapping[str, Callable[..., QuerySource]]
    """Opens what the query reads, by the name of its table."""
    session: Callable[[], SparkSession]
    """Starts Spark, for `to_spark`."""
    reason: str
    engine: EngineName = "local"
    in_order: Callable[[], LocalResult] | None = None
    """Makes this query with conditions that DuckDB evaluates one after another, as Spark does."""
    instead: Callable[[AcidError], Result] | None = None
    """Makes the result of an engine that can compute what DuckDB can't, from the reason."""
    first: _FirstRows | None = None
    """How rows of ORDER BY … LIMIT are read in two steps, if that reads less."""
    row_by_row: bool = False
    most_rows: int | None = None
    """See QueryBlock."""
    no_value: tuple[str, ...] = ()
    """SQL of a constant without a value, if there is one: Spark fails by it without rows, too."""
    shown: tuple[tuple[str, ...], ...] = ()
    """For each column the constants that may be all its values, in Spark's SQL."""

    def or_else(self, make: Callable[[AcidError], Result]) -> LocalResult:
        return replace(self, instead=make)

    @property
    def columns(self) -> list[str]:
        return [name for name, _ in self.named]

    @property
    def schema(self) -> pa.Schema:
        """As Table.to_arrow returns the rows; CHAR and VARCHAR stand in the metadata."""
        return pa.schema([_field(name, kind) for name, kind in self.named])

    def declared(self) -> tuple[Column, ...]:
        for name, kind in self.named:
            if kind == VOID:
                raise InvalidDefinition(
                    f"column {name} of the query is NULL without a type; write CAST(NULL AS string)"
                )
        return declared_columns(self.schema)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        require_limit(limit)
        try:
            return pa.Table.from_batches(self._computed(limit), self.schema)
        except _NOT_HERE as error:
            return self._again(error).to_arrow(limit)

    def batches(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._restarted())

    def _restarted(self) -> Iterator[pa.RecordBatch]:
        """The batches; the other engine's if this one fails before the first."""
        begun = False
        try:
            for batch in self._computed():
                begun = True
                yield batch
        except _NOT_HERE as error:
            if begun:
                raise
            yield from self._again(error).batches()

    def _again(self, error: AcidError) -> Result:
        """The result after an error: of files that are read as streams; in order; then by the
        engine that can."""
        if isinstance(error, UnreadFiles):
            return as_streams(self)
        if self.in_order is None:
            return self._other(error)
        try:
            return replace(self.in_order(), instead=self.instead).renamed(self.columns)
        except NeedsSpark:
            return self._other(error)

    def _other(self, error: AcidError) -> Result:
        """The result of the engine that can. Raises the error if there is none."""
        if self.instead is None:
            raise error
        return self.instead(error).renamed(self.columns)

    def to_spark(self) -> DataFrame:
        session, schema = self.session(), self.schema
        tables = (pa.Table.from_batches([batch], schema) for batch in self._computed())
        try:
            return frame_of(
                session,
                chain([schema.empty_table()], tables),
                lambda few: session.createDataFrame(instants(few)),
            )
        except _NOT_HERE as error:
            return self._again(error).to_spark()

    def constants(self) -> Iterator[tuple[str, pa.Array]]:
        for (name, kind), texts in zip(self.named, self.shown, strict=True):
            for text in texts:
                value = None
                with suppress(AcidError):  # no value, but an aggregate or rows
                    value = translate_value(text, NameScope.of({}))
                if value and (value.type == kind or {value.type.kind, kind.kind} <= {*INTEGRAL}):
                    yield name, compute(f"SELECT {value.sql} AS v", {}).column("v")

    def renamed(self, names: Sequence[str]) -> LocalResult:
        kinds = (kind for _, kind in self.named)
        return replace(self, named=tuple(zip(names, kinds, strict=True)))

    def plan(self) -> str:
        sql, sources, then = self.sql, self.sources, ""
        if self.first is not None:
            sql, sources = self.first.top.places, self.first.early
            then = "\nthen the other columns of these rows"
        with reading(sources) as connection:
            (row,) = connection.execute(f"EXPLAIN {sql}").fetchall()
            return str(row[1]).strip() + then

    def count(self) -> int:
        try:
            require_values(self.no_value)
            with reading(self.sources, self.sql) as connection:
                row = connection.execute(f"SELECT count(*) FROM ({self.sql})").fetchone()
                assert row is not None
                return int(row[0])
        except _NOT_HERE as error:
            return self._again(error).count()

    def _computed(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        require_values(self.no_value)
        sql, sources = self.sql, self.sources
        if self.first is not None:
            sql, sources = self.first.top.rest, self.first.late()
        most = limit if self.most_rows is None else self.most_rows
        if self.row_by_row and most is not None:
            sources = {name: partial(make, most=most) for name, make in self.sources.items()}
        if limit is not None:
            sql = f"SELECT * FROM ({sql}) LIMIT {limit}"
        schema = self.schema
        with reading(sources, sql) as connection:
            for batch in batches_of(rows_of(connection, sql)):
                arrays = [
                    _shown(array, kind).cast(field.type)
                    for array, (_, kind), field in zip(
                        batch.columns, self.named, schema, strict=True
                    )
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_streams(result: LocalResult) -> LocalResult:
    """The result with the same rows, for which DuckDB reads no file itself."""
    streams = {name: partial(make, direct=None) for name, make in result.sources.items()}
    return replace(result, sources=streams)


@dataclass(frozen=True, slots=True)
class _FirstRows:
    """The first rows of a table in an order: found by the columns that this takes, then read."""

    top: TopRows
    early: Mapping[str, Callable[[], QuerySource]]
    read: TableRead

    @classmethod
    def of(cls, top: TopRows, read: TableRead | ChangeRead) -> _FirstRows | None:
        """None if no column would be decoded later, or if rows can't be found again."""
        if not isinstance(read, TableRead) or read.scan.format.name not in WRITTEN_FORMATS:
            return None
        names = [column.name for column in columns_of(read) if column.name != ROW_ID_COLUMN]
        early = tuple(name for name in names if name in top.reads)
        sources = (file for entity in read.scan.entities for file in entity.sources.inserts)
        if len(early) == len(names) or any(source.by_arrow for source in sources):
            return None
        row_id = read.row_id and ROW_ID_COLUMN in top.reads
        first = replace(read, columns=early, row_id=row_id, place=True)
        return cls(top, {top.stored: partial(QuerySource, first, keep=True)}, read)

    def late(self) -> dict[str, Callable[[], QuerySource]]:
        """The rows that come first, with all columns."""
        with reading(self.early, self.top.places) as connection:
            places = values_of(table_of(connection, self.top.places).column(0))
        return {
            self.top.stored: partial(
                QuerySource, replace(self.read, where=None), np.sort(places), keep=True
            )
        }


def _shown(array: pa.Array, kind: HiveType) -> pa.Array:
    """A CHAR padded to its length."""
    return pc.utf8_rpad(array, kind.sizes[0], " ") if kind.kind == "char" else array


def _field(name: str, kind: HiveType) -> pa.Field:
    metadata = {HIVE_TYPE: str(kind).encode()} if kind.is_told else None
    return pa.field(name, _arrow(kind), metadata=metadata)


def _arrow(kind: HiveType) -> pa.DataType:
    if kind == VOID:
        return pa.null()
    match kind.kind:
        case "array":
            return pa.list_(_arrow(kind.children[0][1]))
        case "map":
            return pa.map_(*(_arrow(child) for _, child in kind.children))
        case "struct":
            return pa.struct([(name, _arrow(child)) for name, child in kind.children])
    return arrow_type(kind)


def query(
    text: str,
    sources: Sources,
    session: Callable[[], SparkSession],
    reason: str,
    named: bool = True,
    in_order: bool = False,
) -> LocalResult:
    """The result of a query in Spark's SQL, whose tables are the keys of `sources`.

    `named`: whether the columns need the names that Spark gives them. `in_order`: see
    QueryTranslator.

    Raises NeedsSpark, InvalidExpression.
    """
    tables = tuple((name, columns_of(read), read.file_name) for name, read in sources.items())
    key = (text, tables, named, in_order)
    accepted = _TRANSLATED.get(key)
    with one_moment():
        began = moment()
        translated = accepted or _translate(text, sources, named, in_order)

    def ordered() -> LocalResult:
        with one_moment(began):
            return query(text, sources, session, reason, named, True)

    opened, block, first = dict[str, Callable[..., QuerySource]](), translated.block, None
    for name, placeholder in translated.opened.items():
        read = sources[placeholder]
        direct = direct_scan(read)
        if direct is not None and direct.is_better_kept:
            direct = None
        opened[name] = partial(QuerySource, read, keep=True, direct=direct)
        if block.top is not None and block.top.stored == name and direct is None:
            first = _FirstRows.of(block.top, read)
    result = LocalResult(
        block.sql,
        block.columns,
        opened,
        session,
        reason,
        first=first,
        row_by_row=block.row_by_row,
        most_rows=block.most_rows,
        no_value=translated.no_value,
        shown=translated.shown,
        in_order=ordered if translated.connected and not in_order else None,
    )
    if accepted is None:
        try:
            _bind(result)
        except UnreadFiles:
            result = as_streams(result)
            _bind(result)
        if not translated.momentary:
            _TRANSLATED.put(key, translated)
    return result


@dataclass(frozen=True, slots=True)
class _Translated:
    """A query in DuckDB's SQL, which DuckDB has accepted; `opened` is that of QueryTranslator.

    `momentary`: the time of its statement stands in it. `connected`: AND or OR does. `no_value`,
    `shown`: see LocalResult.
    """

    block: QueryBlock
    opened: dict[str, str]
    momentary: bool
    connected: bool
    no_value: tuple[str, ...]
    shown: tuple[tuple[str, ...], ...]


_TRANSLATED: Recent[object, _Translated] = Recent(256)
"""By the text and what it reads: names, columns with their types, and whether by the file's name.
"""


def _translate(text: str, sources: Sources, named: bool, in_order: bool) -> _Translated:
    try:
        tree = sqlglot.parse_one(canonical(text), dialect=SparkSql)
    except SqlglotError as error:
        raise NeedsSpark("a query of this form") from error
    except RecursionError as error:
        raise NeedsSpark("a query that is nested so deeply") from error
    if any(read.file_name for read in sources.values()):
        raise NeedsSpark("the name of a row's file")
    translator = QueryTranslator(sources, in_order)
    try:
        with in_proportion(text) as statement:
            block = translator.query(tree, {}, named=named)
        if tree.find(exp.SetOperation):
            block = _as_strings(block)
    except RecursionError as error:
        raise NeedsSpark("a query that is nested so deeply") from error
    except UnknownColumn as error:  # Spark has the last word; misspelt names were found before
        raise NeedsSpark(str(error)) from error
    for name, column in block.columns:
        if {NTZ, VARIANT} & {*column.walk()}:
            raise NeedsSpark(f"the column {name} of the type {column}")
    momentary = any(map(is_momentary, tree.walk()))
    connected = tree.find(exp.Connector) is not None
    no_value = _without_value(tree, statement.constants)
    shown = _shown_constants(tree, len(block.columns))
    return _Translated(block, translator.opened, momentary, connected, no_value, shown)


def _shown_constants(tree: exp.Expr, columns: int) -> tuple[tuple[str, ...], ...]:
    """For each column of a query the constants that may be all its values, in Spark's SQL: of one
    SELECT its own, of several any, as a subquery or a branch of UNION may show them."""
    selects = [*tree.find_all(exp.Select)]
    items = [item.unalias() for select in selects for item in select.expressions]
    texts = [
        () if item.find(exp.Column, exp.Star, exp.Query) else (item.sql(dialect=SparkSql),)
        for item in items
    ]
    if len(selects) == 1 and len(texts) == columns:
        return tuple(texts)
    return (tuple(dict.fromkeys(chain.from_iterable(texts))),) * columns


def _without_value(tree: exp.Expr, constants: Iterable[Constant]) -> tuple[str, ...]:
    """The first constant that has no value, in SQL; none if each has one.

    Raises NeedsSpark if Spark may leave it out, with a column of a subquery that nobody reads, or
    with LIMIT 0.
    """
    for constant in constants:
        try:
            require_values([constant.sql])
        except AcidError as error:
            if tree.args.get("limit") or constant.node.parent_select is not tree:
                raise NeedsSpark(f"a constant without a value ({error})") from error
            return (constant.sql,)
    return ()


def _as_strings(block: QueryBlock) -> QueryBlock:
    """The columns of a UNION and the like, where Spark does not tell which of them are CHAR."""
    if any(kind.nested and kind.has_char for _, kind in block.columns):
        raise NeedsSpark("a set operation beside a char in a nested value")
    return replace(block, columns=tuple((name, of_value(kind)) for name, kind in block.columns))


def _bind(result: LocalResult) -> None:
    """Raises NeedsSpark if DuckDB refuses the query, or types it otherwise than Spark does."""
    import duckdb

    with reading(result.sources) as connection:
        try:
            types = types_of(connection, result.sql)
        except duckdb.Error as error:
            line = str(error).partition("\n")[0]
            raise NeedsSpark(f"a query that DuckDB refuses ({line})") from error
    for (name, kind), own in zip(result.named, types, strict=True):
        sparks = duckdb_type(kind)
        if own.replace(" ", "").replace('"', "") != sparks.replace(" ", "").replace('"', ""):
            raise NeedsSpark(f"the column {name}, which is {own} and not {sparks}")
