"""INSERT OVERWRITE DIRECTORY: the rows of a query as files that belong to no table."""

from __future__ import annotations

import re

from sqlglot import exp

from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.handles.file_rows import export_rows
from acid_platform.layout.external_formats import external_format
from acid_platform.layout.formats import FileFormat
from acid_platform.predicates.grammar import HiveSql
from acid_platform.sql import run_queries
from acid_platform.sql.answers import Done
from acid_platform.sql.commands import Command, CommandRun
from acid_platform.sql.declarations import row_format
from acid_platform.sql.split_dml import Parts, selected
from acid_platform.sql.text import Query, parsed, query

_NAME = "INSERT OVERWRITE DIRECTORY"
_BEGIN = re.compile(r"insert overwrite (?:local )?directory '", re.IGNORECASE)
_QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "(")


def writes_directory(plain: str) -> bool:
    """Whether a statement, given on one line, is INSERT OVERWRITE [LOCAL] DIRECTORY."""
    return _BEGIN.match(plain) is not None


def directory_insert(text: str) -> Command:
    """Parses `INSERT OVERWRITE [LOCAL] DIRECTORY '…' [ROW FORMAT …] [STORED AS …] SELECT …`.

    LOCAL says nothing: a path is one of this machine, and a URI names a store. Raises
    InvalidExpression, UnsupportedStatement.
    """
    parts = Parts.of(text)
    parts.need("INSERT OVERWRITE", _NAME)
    parts.skip("LOCAL")
    parts.need("DIRECTORY", _NAME)
    directory = parts.tokens[parts.at].text
    parts.at += 1
    clauses = _clauses(parts)
    if parts.ended:
        raise InvalidExpression(f"{_NAME} needs a SELECT")
    stated = row_format(_NAME, clauses)
    stored = external_format(_NAME, stated.stored, stated.serde, stated.options, {})
    if stored.name not in ("text", "orc", "parquet"):
        raise UnsupportedStatement(
            f"{_NAME} writes text with delimiters, ORC and Parquet, and no {stored.name}"
        )
    arguments = {
        "directory": directory,
        "stored": stored,
        "written": query(selected(parts.rest())),
    }
    return Command(_NAME, write_directory, arguments)


def _clauses(parts: Parts) -> list[exp.Expr]:
    """What stands before the query: an opening parenthesis of WITH SERDEPROPERTIES is none."""
    start = parts.at
    while not parts.ended:
        parts.until(*_QUERY_WORDS)
        if not parts.skip("WITH"):
            break
        if not parts.comes("SERDEPROPERTIES"):
            parts.at -= 1
            break
        parts.at += 1
        parts.in_parentheses()
    text = parts.slice(start, parts.at)
    if not text:
        return []
    tree = parsed(f"CREATE TABLE t (c int) {text}", dialect=HiveSql)
    properties = tree.args.get("properties")
    return list(properties.expressions) if properties else []


def write_directory(run: CommandRun, directory: str, stored: FileFormat, written: Query) -> Done:
    with run.session.reading(run.catalog, [written]) as at_snapshot:
        result = run_queries.run(run.warehouse, at_snapshot, written)
        return Done.changed(_NAME, export_rows(run.warehouse, result, directory, stored))
