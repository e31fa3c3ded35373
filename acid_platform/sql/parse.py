"""Parsing the text of a statement."""

from __future__ import annotations

import re

from sqlglot import exp

from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.layout.sql_text import refuse_half_characters
from acid_platform.sql import split_dml
from acid_platform.sql.commands import command
from acid_platform.sql.declarations import table_declaration, view_declaration
from acid_platform.sql.script import ScriptStatement, split
from acid_platform.sql.statements import (
    SUPPORTED,
    Change,
    CreateTable,
    CreateView,
    Explain,
    Statement,
)
from acid_platform.sql.text import Query, parsed, query
from acid_platform.sql.time_travel import refuse_marks

_TWO_WORDS = {
    "ALTER",
    "ABORT",
    "CREATE",
    "DESC",
    "DESCRIBE",
    "DROP",
    "INSERT",
    "SHOW",
    "START",
    "LOAD",
    "LOCK",
    "UNLOCK",
    "ANALYZE",
    "MSCK",
}


def parse(text: str | ScriptStatement) -> Statement:
    """Parses one statement of Hive SQL, with or without a final semicolon.

    Raises UnsupportedStatement for a statement that is not in SUPPORTED, and if there is not
    exactly one statement; InvalidExpression for text that is not SQL.
    """
    written = text if isinstance(text, ScriptStatement) else _only(text)
    refuse_half_characters(written.text)
    known_command = command(written.plain)
    if known_command is not None:
        return known_command
    match written.words[0] if written.words else "":
        case "EXPLAIN":
            return _explain(written)
        case "SELECT":
            return query(written.text)
        case "WITH":
            parts = split_dml.Parts.of(written.text)
            inserts = parts.find("INSERT") < len(parts.tokens)
            return split_dml.insert(written.text) if inserts else query(written.text)
        case "FROM":
            parts = split_dml.Parts.of(written.text)
            if parts.find("INSERT") == len(parts.tokens):
                return query(written.text)
        case "INSERT":
            return split_dml.insert(written.text)
        case "UPDATE":
            return split_dml.update(written.text)
        case "DELETE":
            return split_dml.delete(written.text)
        case "MERGE":
            return split_dml.merge(written.text)
        case "CREATE":
            return _create(written)
    raise unsupported(written)


def _only(text: str) -> ScriptStatement:
    statements = split(text)
    if len(statements) != 1:
        what = (
            "there is no statement"
            if not statements
            else f"{len(statements)} statements in one text"
        )
        raise UnsupportedStatement(f"{what}; supported: {', '.join(SUPPORTED)}")
    return statements[0]


def unsupported(written: ScriptStatement) -> UnsupportedStatement:
    """The error that names the statement, and the supported ones."""
    words = written.words
    name = " ".join(words[:2] if words and words[0] in _TWO_WORDS else words[:1])
    if words[:2] == ("ALTER", "TABLE"):
        known = r"(?i)alter table \S+(?: partition ?\(.*?\))? (\w+(?: \w+)?)"
        action = re.match(known, written.plain)
        name += f" … {action[1].upper()}" if action else ""
    return UnsupportedStatement(
        f"{name or repr(written.plain)} is not supported; supported: {', '.join(SUPPORTED)}"
    )


def _explain(written: ScriptStatement) -> Explain:
    inner = parse(re.sub(r"(?is)^.*?\bexplain\b", "", written.text, count=1))
    if not isinstance(inner, Query | Change):
        raise UnsupportedStatement(
            "EXPLAIN takes a SELECT, INSERT, UPDATE, DELETE, MERGE or TRUNCATE"
        )
    return Explain(inner)


# --- declaring ------------------------------------------------------------------------------------


def _create(written: ScriptStatement) -> CreateTable | CreateView:
    """CREATE TABLE or VIEW; what follows AS is a query."""
    parts = split_dml.Parts.of(written.text)
    declaration = ""
    while not parts.ended:
        declaration += parts.until("AS")
        if not parts.skip("AS") or split_dml.is_query(parts):
            break
        declaration += " AS "
    defining = None if parts.ended else query(split_dml.selected(parts.rest()))
    is_view = "VIEW" in written.words[1:4]
    if is_view:
        if defining is None:
            raise InvalidExpression("CREATE VIEW … AS needs a SELECT")
        declaration += " AS SELECT 1"
    tree = parsed(declaration, dialect="hive")
    if not isinstance(tree, exp.Create):
        raise unsupported(written)
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if tree.kind == "VIEW" and defining is not None:
        refuse_marks(defining.tree, "a view")
        return view_declaration(tree, _table_name(target), defining)
    if tree.kind == "TABLE":
        return table_declaration(tree, _table_name(target), defining)
    raise unsupported(written)


def _table_name(table: exp.Expr) -> str:
    """`db.t` or `t`, in lower case. Raises InvalidExpression if it is not a name."""
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise InvalidExpression(f"{table.sql('hive')!r} is not the name of a table")
    return ".".join(part.name.lower() for part in table.parts)
