"""Running a query: translated, and bound by DuckDB before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import sqlglot
from sqlglot.errors import SqlglotError

from acid_platform.engine.local.connection import reading
from acid_platform.engine.local.queries import QueryTranslator
from acid_platform.engine.local.results import LocalResult
from acid_platform.engine.local.sources import Source
from acid_platform.engine.local.types import duckdb_type
from acid_platform.engine.queries import Sources
from acid_platform.errors import NeedsSpark, UnknownColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def query(
    text: str, sources: Sources, session: Callable[[], SparkSession], reason: str
) -> LocalResult:
    """The result of a query in Spark's SQL, whose tables are the keys of `sources`.

    Raises NeedsSpark, InvalidExpression.
    """
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        raise NeedsSpark("a query that sqlglot can't parse") from error
    if any(read.file_name for read in sources.values()):
        raise NeedsSpark("the name of a row's file")
    translator = QueryTranslator(sources)
    try:
        block = translator.query(tree, {})
    except UnknownColumn as error:  # Spark has the last word; misspelt names were found before
        raise NeedsSpark(str(error)) from error
    opened = {
        name: partial(Source, sources[placeholder], translator.filtered)
        for name, placeholder in translator.opened.items()
    }
    result = LocalResult(block.sql, block.columns, opened, session, reason)
    _bind(result)
    return result


def _bind(result: LocalResult) -> None:
    """Raises NeedsSpark if DuckDB refuses the query, or types it otherwise than Spark does."""
    import duckdb

    with reading(result.sources) as connection:
        try:
            types = [str(kind) for kind in connection.sql(result.sql).types]
        except duckdb.Error as error:
            line = str(error).partition("\n")[0]
            raise NeedsSpark(f"a query that DuckDB refuses ({line})") from error
    for (name, kind), found in zip(result.named, types, strict=True):
        wanted = duckdb_type(kind)
        if found.replace(" ", "").replace('"', "") != wanted.replace(" ", "").replace('"', ""):
            raise NeedsSpark(f"the column {name}, which is {found} and not {wanted}")
