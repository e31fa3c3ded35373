"""Parsing the text of a statement, with sqlglot's Hive dialect."""

from __future__ import annotations

import re
from collections.abc import Iterator

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from acid_platform.engine.merge_clauses import MergeAction
from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.layout.sql_text import refuse_half_characters
from acid_platform.sql.commands import command, partition_spec
from acid_platform.sql.declarations import table_declaration, view_declaration
from acid_platform.sql.script import Written, split
from acid_platform.sql.statements import (
    SUPPORTED,
    Change,
    CreateTable,
    CreateView,
    Delete,
    Explain,
    Insert,
    MergeInto,
    Query,
    Statement,
    Update,
    When,
)
from acid_platform.sql.time_travel import mark, refuse_marks, with_known_words

_TREES = {"SELECT", "WITH", "FROM", "INSERT", "UPDATE", "DELETE", "MERGE", "CREATE"}
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


def parse(text: str | Written) -> Statement:
    """Parses one statement of Hive SQL, with or without a final semicolon.

    Raises UnsupportedStatement for a statement that is not in SUPPORTED, and if there is not
    exactly one statement; InvalidExpression for text that is not SQL.
    """
    written = text if isinstance(text, Written) else _only(text)
    refuse_half_characters(written.text)
    known_command = command(written.plain)
    if known_command is not None:
        return known_command
    first = written.words[0] if written.words else ""
    if first == "EXPLAIN":
        return _explain(written)
    if first not in _TREES:
        raise unsupported(written)
    tree = _tree(written.text)
    match tree:
        case exp.Insert():
            return _insert(tree)
        case exp.Update():
            return _update(tree)
        case exp.Delete():
            return _delete(tree)
        case exp.Merge():
            return _merge(tree)
        case exp.Create(kind="TABLE"):
            return _create_table(tree)
        case exp.Create(kind="VIEW"):
            return _create_view(tree, written.text)
        case exp.Query() if tree.find(exp.Select):
            return Query(_require_read_only(tree))
    raise unsupported(written)


def _only(text: str) -> Written:
    statements = split(text)
    if len(statements) != 1:
        what = (
            "there is no statement"
            if not statements
            else f"{len(statements)} statements in one text"
        )
        raise UnsupportedStatement(f"{what}; supported: {', '.join(SUPPORTED)}")
    return statements[0]


def _tree(text: str) -> exp.Expr:
    try:
        tree = sqlglot.parse_one(with_known_words(text), dialect="hive")
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        raise InvalidExpression(
            f"not Hive SQL: {first.get('description', error)} near {first.get('highlight', '')!r},"
            f" line {first.get('line', 1)} column {first.get('col', 1)}"
        ) from error
    except SqlglotError as error:
        raise InvalidExpression(f"not Hive SQL: {error}") from error
    mark(tree)
    return tree


def unsupported(written: Written) -> UnsupportedStatement:
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


def _explain(written: Written) -> Explain:
    inner = parse(re.sub(r"(?is)^.*?\bexplain\b", "", written.text, count=1))
    if not isinstance(inner, Query | Change):
        raise UnsupportedStatement(
            "EXPLAIN takes a SELECT, INSERT, UPDATE, DELETE, MERGE or TRUNCATE"
        )
    return Explain(inner)


def _require_read_only(tree: exp.Query) -> exp.Query:
    changing = tree.find(exp.Into, exp.Insert, exp.QueryTransform)
    if changing is not None:
        raise UnsupportedStatement(
            f"a SELECT with {changing.key.upper()} does more than read; leave that part out"
        )
    return tree


def table_name(table: exp.Expr) -> str:
    """`db.t` or `t`, in lower case. Raises InvalidExpression if it is not a name."""
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise InvalidExpression(f"{table.sql('hive')!r} is not the name of a table")
    return ".".join(part.name.lower() for part in table.parts)


def _leftovers(tree: exp.Expr, what: str, known: set[str]) -> None:
    for name, value in tree.args.items():
        if value and name not in known:
            raise UnsupportedStatement(
                f"{what} with {name.strip('_').upper()} is not supported; leave that part out"
            )


# --- changing rows --------------------------------------------------------------------------------


def _insert(tree: exp.Insert) -> Insert:
    what = "INSERT OVERWRITE" if tree.args.get("overwrite") else "INSERT"
    _leftovers(tree, what, {"this", "expression", "overwrite", "source", "with_"})
    table, columns = tree.this, ()
    if isinstance(table, exp.Schema):
        columns = tuple(column.name.lower() for column in table.expressions)
        table = table.this
    source = tree.expression
    if tree.args.get("source") is not None and isinstance(tree.args["source"], exp.Table):
        source = exp.select("*").from_(tree.args["source"])
    if not isinstance(source, exp.Query | exp.Values):
        raise InvalidExpression(f"{what} into {table.sql('hive')} needs VALUES or a SELECT")
    if isinstance(source, exp.Query):
        if tree.args.get("with_"):
            source.set("with_", tree.args["with_"])
        source = _require_read_only(source)
    partition = table.args.get("partition") if isinstance(table, exp.Table) else None
    spec = partition_spec(list(partition.expressions)) if partition else None
    return Insert(table_name(table), source, columns, spec, what == "INSERT OVERWRITE")


def _update(tree: exp.Update) -> Update:
    _leftovers(tree, "UPDATE", {"this", "expressions", "where"})
    name = table_name(tree.this)
    return Update(name, tree.this.alias_or_name.lower(), _assignments(tree, "UPDATE"), _where(tree))


def _delete(tree: exp.Delete) -> Delete:
    if not isinstance(tree.this, exp.Table):
        raise InvalidExpression("DELETE needs FROM: DELETE FROM t WHERE …")
    _leftovers(tree, "DELETE", {"this", "where"})
    return Delete(table_name(tree.this), tree.this.alias_or_name.lower(), _where(tree))


def _where(tree: exp.Expr) -> exp.Expr | None:
    where = tree.args.get("where")
    return where.this if where else None


def _assignments(tree: exp.Update, what: str) -> dict[str, exp.Expr]:
    assignments: dict[str, exp.Expr] = {}
    for assignment in tree.expressions:
        if not isinstance(assignment, exp.EQ) or not isinstance(assignment.this, exp.Column):
            raise InvalidExpression(f"{what} SET {assignment.sql('hive')!r} is not column = value")
        name = assignment.this.name.lower()
        if name in assignments:
            raise InvalidExpression(f"{what} SET names column {name!r} twice")
        _no_subquery(assignment.expression, f"{what} SET")
        assignments[name] = assignment.expression
    if not assignments:
        raise InvalidExpression(f"{what} without SET assigns nothing")
    return assignments


def _no_subquery(node: exp.Expr | None, where: str) -> None:
    if node is not None and node.find(exp.Query):
        raise UnsupportedStatement(
            f"a subquery in {where} is not supported; use MERGE, whose source may be a query"
        )


def _merge(tree: exp.Merge) -> MergeInto:
    if not tree.args.get("on"):
        raise InvalidExpression("MERGE needs ON: MERGE INTO t USING s ON t.id = s.id WHEN …")
    _leftovers(tree, "MERGE", {"this", "using", "on", "whens"})
    using = tree.args["using"]
    alias = using.alias_or_name
    if not alias:
        raise InvalidExpression("MERGE: give the source an alias: USING (SELECT …) AS s")
    on = tree.args["on"]
    _no_subquery(on, "MERGE ON")
    return MergeInto(
        table_name(tree.this),
        tree.this.alias_or_name.lower(),
        _require_read_only(exp.select("*").from_(using.copy())),
        alias.lower(),
        on,
        tuple(_whens(tree)),
    )


def _whens(tree: exp.Merge) -> Iterator[When]:
    for when in tree.args["whens"].expressions:
        if when.args.get("source"):
            raise UnsupportedStatement(
                "MERGE with WHEN NOT MATCHED BY SOURCE is not supported; add an UPDATE or DELETE"
                " to the same transaction"
            )
        condition, then = when.args.get("condition"), when.args.get("then")
        _no_subquery(condition, "MERGE WHEN")
        match then:
            case exp.Var() if then.name.upper() == "DELETE" and when.args["matched"]:
                yield When(MergeAction.DELETE, condition)
            case exp.Update() if when.args["matched"]:
                assigned = _assignments(then, "MERGE")
                yield When(MergeAction.UPDATE, condition, tuple(assigned), tuple(assigned.values()))
            case exp.Insert() if not when.args["matched"]:
                yield _when_insert(condition, then)
            case _:
                raise InvalidExpression(
                    f"MERGE: {when.sql('hive')!r} is not possible; use UPDATE or DELETE for matched"
                    " rows, INSERT for the others"
                )


def _when_insert(condition: exp.Expr | None, then: exp.Insert) -> When:
    if isinstance(then.this, exp.Star):
        return When(MergeAction.INSERT, condition, (), None)
    columns = tuple(column.name.lower() for column in then.this.expressions) if then.this else ()
    row = then.expression
    values = tuple(row.expressions) if isinstance(row, exp.Tuple) else (row.unnest(),)
    for value in values:
        _no_subquery(value, "MERGE INSERT VALUES")
    if columns and len(columns) != len(values):
        raise InvalidExpression(
            f"MERGE INSERT has {len(columns)} columns but {len(values)} values; give each column"
            " one value"
        )
    return When(MergeAction.INSERT, condition, columns, values)


# --- declaring ------------------------------------------------------------------------------------


def _create_table(tree: exp.Create) -> CreateTable:
    query = tree.expression
    if query is not None and not isinstance(query, exp.Query):
        raise InvalidExpression("CREATE TABLE … AS needs a SELECT")
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    return table_declaration(tree, table_name(target), query and _require_read_only(query))


def _create_view(tree: exp.Create, text: str) -> CreateView:
    if not isinstance(tree.expression, exp.Query):
        raise InvalidExpression("CREATE VIEW … AS needs a SELECT")
    refuse_marks(tree.expression, "a view")
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    _require_read_only(tree.expression)
    return view_declaration(tree, table_name(target), _after_as(text))


def _after_as(text: str) -> str:
    """The query of CREATE VIEW … AS, as it is written."""
    depth = 0
    for token in sqlglot.tokenize(text, dialect="hive"):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if not depth and token.token_type is TokenType.ALIAS:
            return text[token.end + 1 :].strip()
    raise InvalidExpression("CREATE VIEW … AS needs a SELECT")
