"""Splitting a script into its statements, and parsing each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from acid_platform.errors import UnsupportedStatement
from acid_platform.layout.sql_text import pieces, refuse_half_characters
from acid_platform.sql import split_dml, split_merge
from acid_platform.sql.commands import NAME, Command
from acid_platform.sql.declarations import parse_create
from acid_platform.sql.run_columns import COLUMNS
from acid_platform.sql.run_databases import DATABASES
from acid_platform.sql.run_definitions import DEFINITIONS, alter_view, create_table, create_view
from acid_platform.sql.run_explain import explain
from acid_platform.sql.run_exports import directory_insert, writes_directory
from acid_platform.sql.run_external import EXTERNAL, create_external
from acid_platform.sql.run_listings import LISTINGS
from acid_platform.sql.run_operations import OPERATIONS
from acid_platform.sql.run_partitions import PARTITIONS
from acid_platform.sql.run_settings import SETTINGS
from acid_platform.sql.run_shows import SHOWS
from acid_platform.sql.statements import (
    Change,
    CreateExternal,
    CreateTable,
    CreateView,
    Statement,
)
from acid_platform.sql.text import Query, query
from acid_platform.sql.unsupported import advice_on, refusal

NO_STATEMENT = "there is no statement; write one, such as SHOW TABLES"
_TABLES = (
    SHOWS,
    LISTINGS,
    SETTINGS,
    OPERATIONS,
    DATABASES,
    COLUMNS,
    PARTITIONS,
    EXTERNAL,
    DEFINITIONS,
)
_CHANGES: dict[str, Callable[[str], Change]] = {
    "INSERT": split_dml.insert,
    "UPDATE": split_dml.update,
    "DELETE": split_dml.delete,
    "MERGE": split_merge.merge,
    "TRUNCATE": split_dml.truncate,
    "LOAD": split_dml.load_data,
}
_OTHERS = (
    *("SELECT", "INSERT INTO", "INSERT OVERWRITE", "UPDATE", "DELETE", "MERGE INTO"),
    *("TRUNCATE TABLE", "LOAD DATA", "CREATE TABLE", "CREATE VIEW", "EXPLAIN"),
    *("CREATE EXTERNAL TABLE", "INSERT OVERWRITE DIRECTORY", "ALTER VIEW"),
)
"""The statements that are in none of the tables."""
_ALTER_VIEW = re.compile(rf"alter view ({NAME}) as ", re.IGNORECASE)
_EXPLAIN = re.compile(r"^.*?\bexplain\b(?:\s+(?:extended|formatted|locks)\b)?", re.I | re.S)


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """A statement as the user wrote it, in its canonical form (`layout.sql_text`)."""

    text: str
    plain: str
    """The text on one line, by which commands are recognised."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the statement in upper case."""
        return tuple(word.upper() for word in re.findall(r"[A-Za-z_]+", self.plain))


def split(script: str) -> tuple[ScriptStatement, ...]:
    """The statements between semicolons that are not in quotes or comments.

    Raises InvalidExpression for a comment that is not closed.
    """
    return tuple(_split(script))


def _split(script: str) -> Iterator[ScriptStatement]:
    text: list[str] = []
    for piece in (*pieces(script, several=True), ";"):
        if piece != ";":
            text.append(piece)
            continue
        plain = "".join(" " if part == "\n" else part for part in text).strip()
        if plain:
            yield ScriptStatement("".join(text).strip(), plain)
        text = []


def parse(text: str | ScriptStatement) -> Statement:
    """Parses one statement of Hive SQL, with or without a final semicolon.

    Raises UnsupportedStatement for a statement that is not supported, and if there is not exactly
    one statement; InvalidExpression for text that is not SQL.
    """
    written = text if isinstance(text, ScriptStatement) else _only(text)
    refuse_half_characters(written.text)
    for commands in _TABLES:
        if command := commands.parse(written.plain):
            return command
    match written.words[0] if written.words else "":
        case "SELECT":
            return query(written.text)
        case "WITH" | "FROM":
            parts = split_dml.Parts.of(written.text)
            if not parts.has("INSERT"):
                return query(written.text)
            from_first = parts.find("FROM") < parts.find("INSERT")
            return (split_dml.insert_from if from_first else split_dml.insert)(written.text)
        case "INSERT" if writes_directory(written.plain):
            return directory_insert(written.text)
        case word if word in _CHANGES:
            return _CHANGES[word](written.text)
        case "CREATE":
            return _create(written)
        case "ALTER" if match := _ALTER_VIEW.match(written.plain):
            return _alter_view(written, match[1])
        case "EXPLAIN":
            return _explain(written)
    raise unsupported(written)


def _only(text: str) -> ScriptStatement:
    statements = split(text)
    if len(statements) != 1:
        what = f"{len(statements)} statements in one text" if statements else NO_STATEMENT
        raise UnsupportedStatement(what)
    return statements[0]


def unsupported(written: ScriptStatement) -> UnsupportedStatement:
    """The error that names the statement, and says what to write instead."""
    names = (name for commands in _TABLES for name in commands.names)
    return refusal(written.plain, written.words, (*_OTHERS, *names))


def _create(written: ScriptStatement) -> Command:
    if advice_on(written.plain) is not None:
        raise unsupported(written)
    match parse_create(written.text):
        case CreateTable() as table:
            return Command("CREATE TABLE", create_table, {"declared": table}, alone=True)
        case CreateExternal() as external:
            return Command(
                "CREATE EXTERNAL TABLE", create_external, {"declared": external}, alone=True
            )
        case CreateView() as view:
            return Command("CREATE VIEW", create_view, {"declared": view}, alone=True)
    raise unsupported(written)


def _alter_view(written: ScriptStatement, name: str) -> Command:
    """ALTER VIEW … AS, which gives a view another query."""
    parts = split_dml.Parts.of(written.text)
    parts.until("AS")
    view = parse_create(f"CREATE VIEW {name} {parts.rest()}")
    return Command("ALTER VIEW", alter_view, {"declared": view}, alone=True)


def _explain(written: ScriptStatement) -> Command:
    if advice_on(written.plain) is not None:
        raise unsupported(written)
    inner = parse(_EXPLAIN.sub("", written.text, count=1))
    if isinstance(inner, Command) and inner.explain is not None:
        return Command("EXPLAIN", inner.explain, inner.arguments)
    if not isinstance(inner, Query | Change):
        raise UnsupportedStatement(
            "EXPLAIN takes a SELECT, INSERT, UPDATE, DELETE, MERGE or TRUNCATE, and ALTER TABLE"
            " for columns"
        )
    return Command("EXPLAIN", explain, {"statement": inner})
