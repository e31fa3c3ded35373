"""Running a query: translated, and bound by DuckDB before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from acid_platform.base.recent import Recent
from acid_platform.engine.local.duckdb_connection import reading
from acid_platform.engine.local.duckdb_result import LocalResult
from acid_platform.engine.local.query_sources import QuerySource
from acid_platform.engine.local.translation.duckdb_types import duckdb_type, of_value
from acid_platform.engine.local.translation.queries import QueryTranslator
from acid_platform.engine.local.translation.relations import QueryBlock
from acid_platform.engine.reads import Sources, columns_of
from acid_platform.errors import NeedsSpark, UnknownColumn, UnsupportedStatement
from acid_platform.layout.sql_text import canonical
from acid_platform.predicates.char_literals import comparable
from acid_platform.predicates.grammar import SparkSql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def query(
    text: str, sources: Sources, session: Callable[[], SparkSession], reason: str
) -> LocalResult:
    """The result of a query in Spark's SQL, whose tables are the keys of `sources`.

    Raises NeedsSpark, InvalidExpression.
    """
    tables = tuple((name, columns_of(read), read.file_name) for name, read in sources.items())
    accepted = _TRANSLATED.get((text, tables))
    translated = accepted or _translate(text, sources)
    opened = {
        name: partial(QuerySource, sources[placeholder], translated.filtered)
        for name, placeholder in translated.opened.items()
    }
    block = translated.block
    result = LocalResult(block.sql, block.columns, opened, session, reason)
    if accepted is None:
        _bind(result)
        _TRANSLATED.put((text, tables), translated)
    return result


@dataclass(frozen=True, slots=True)
class _Translated:
    """A query in DuckDB's SQL, which DuckDB has accepted; `opened` and `filtered` are those of
    QueryTranslator."""

    block: QueryBlock
    opened: dict[str, str]
    filtered: bool


_TRANSLATED: Recent[object, _Translated] = Recent(256)
"""By the text and what it reads: names, columns with their types, and whether by the file's name.
"""


def _translate(text: str, sources: Sources) -> _Translated:
    # Types tell the rest; this is for the names of columns, which are those of Spark's text.
    with suppress(UnsupportedStatement):
        text = comparable(text, {name: columns_of(one) for name, one in sources.items()})
    try:
        tree = sqlglot.parse_one(canonical(text), dialect=SparkSql)
    except SqlglotError as error:
        raise NeedsSpark("a query that sqlglot can't parse") from error
    except RecursionError as error:
        raise NeedsSpark("a query that is nested so deeply") from error
    if any(read.file_name for read in sources.values()):
        raise NeedsSpark("the name of a row's file")
    translator = QueryTranslator(sources)
    try:
        block = translator.query(tree, {})
        if tree.find(exp.SetOperation):
            block = _as_strings(block)
    except RecursionError as error:
        raise NeedsSpark("a query that is nested so deeply") from error
    except UnknownColumn as error:  # Spark has the last word; misspelt names were found before
        raise NeedsSpark(str(error)) from error
    return _Translated(block, translator.opened, translator.filtered)


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
            types = [str(kind) for kind in connection.sql(result.sql).types]
        except duckdb.Error as error:
            line = str(error).partition("\n")[0]
            raise NeedsSpark(f"a query that DuckDB refuses ({line})") from error
    for (name, kind), own in zip(result.named, types, strict=True):
        sparks = duckdb_type(kind)
        if own.replace(" ", "").replace('"', "") != sparks.replace(" ", "").replace('"', ""):
            raise NeedsSpark(f"the column {name}, which is {own} and not {sparks}")
