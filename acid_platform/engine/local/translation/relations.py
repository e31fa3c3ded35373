"""What stands in FROM: tables, subqueries, VALUES, and joins of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from acid_platform.engine.local.translation.casts import cast
from acid_platform.engine.local.translation.duckdb_types import identifier, spark_name, widest
from acid_platform.engine.local.translation.expressions import Translator
from acid_platform.engine.local.translation.scope import NameScope, ScopeColumn, columns_under
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import Column, HiveType


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """A translated query: DuckDB's SQL with the columns c0, c1, ... and their names in Spark."""

    sql: str
    columns: tuple[tuple[str, HiveType], ...]
    fails: bool = False
    """Whether an expression of it may fail for some rows."""
    failing: frozenset[int] | None = None
    """If nothing but these columns may fail, and both engines compute them only for the rows of
    the block around this one, they are as if they stood there."""
    one_row: bool = False
    """Whether it is an aggregate without GROUP BY, which has exactly one row."""
    top: TopRows | None = None
    """For ORDER BY … LIMIT over one table."""
    row_by_row: bool = False
    """Whether each row of one table gives one row, so that the first rows need no others."""
    most_rows: int | None = None
    """How many rows of the table LIMIT and OFFSET then need."""


@dataclass(frozen=True, slots=True)
class TopRows:
    """ORDER BY … LIMIT in two steps: which rows are the first, then their other columns."""

    stored: str
    """The table in DuckDB's SQL."""
    places: str
    """A SELECT of PLACE, which returns the rows of the result."""
    reads: frozenset[str]
    """The columns that it may read, and names of others."""
    rest: str
    """The SELECT without LIMIT, over these rows alone."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A FROM clause: DuckDB's SQL, and the columns that expressions may name."""

    sql: str
    scope: NameScope
    starred: tuple[tuple[str, tuple[ScopeColumn, ...]], ...]
    """The members whose columns `*` means; a semi join hides its right side."""
    joined: bool = False


NOTHING = Relation("", NameScope(()), ())


def table(alias: str, name: str, stored: str, columns: Sequence[Column]) -> Relation:
    """A stored table: `alias` in DuckDB, `name` in Spark's SQL, `stored` the registered source."""
    return _single(f"{identifier(stored)} AS {alias}", name, columns_under(alias, columns))


def renamed(block: QueryBlock, names: Sequence[str]) -> QueryBlock:
    """The block with these names for its columns, if there are any."""
    if not names:
        return block
    if len(names) != len(block.columns):
        raise NeedsSpark(f"{len(names)} names for {len(block.columns)} columns")
    kinds = (kind for _, kind in block.columns)
    return replace(block, columns=tuple(zip(names, kinds, strict=True)))


def subquery(alias: str, name: str, block: QueryBlock, names: Sequence[str]) -> Relation:
    """A subquery or CTE, whose columns the alias may rename."""
    if block.fails and block.failing is None:
        raise NeedsSpark("a subquery with an expression that may fail for some rows")
    columns = tuple(
        ScopeColumn(column, kind, f"{alias}.c{i}", i in (block.failing or ()))
        for i, (column, kind) in enumerate(renamed(block, names).columns)
    )
    return _single(f"({block.sql}) AS {alias}", name, columns)


def _single(sql: str, name: str, columns: tuple[ScopeColumn, ...]) -> Relation:
    members = ((name, columns),)
    return Relation(sql, NameScope(members), members)


def values(node: exp.Values) -> QueryBlock:
    """VALUES; its columns are col1, col2, ... unless an alias renames them."""
    translator = Translator(NameScope(()))
    rows = [
        [
            translator.value(value)
            for value in (row.expressions if isinstance(row, exp.Tuple) else [row])
        ]
        for row in node.expressions
    ]
    if len({len(row) for row in rows}) != 1:
        raise NeedsSpark("VALUES with rows of different lengths")
    if any(value.fails for row in rows for value in row):
        raise NeedsSpark("VALUES with an expression that may fail")
    columns = []
    for position, column in enumerate(zip(*rows, strict=True)):
        kind = widest(value.type for value in column)
        if kind is None:
            kinds = ", ".join(sorted({spark_name(value.type) for value in column}))
            raise NeedsSpark(f"a column of VALUES of {kinds}")
        columns.append((f"col{position + 1}", kind))
    cells = (
        [cast(value, kind).sql for value, (_, kind) in zip(row, columns, strict=True)]
        for row in rows
    )
    tuples = ", ".join(f"({', '.join(row)})" for row in cells)
    names = ", ".join(f"c{i}" for i in range(len(columns)))
    return QueryBlock(f"SELECT * FROM (VALUES {tuples}) AS v({names})", tuple(columns))


def joined(
    left: Relation, right: Relation, node: exp.Join, condition: Callable[[exp.Expr, NameScope], str]
) -> Relation:
    """`left JOIN right`; `condition` translates ON in a scope."""
    side, kind = (node.side or "").upper(), (node.kind or "").upper()
    if node.method or node.args.get("global_") or node.args.get("hint"):
        raise NeedsSpark(f"a {node.method or 'hinted'} join")
    word = {
        ("", ""): "JOIN",
        ("", "INNER"): "JOIN",
        ("", "CROSS"): "CROSS JOIN",
        ("LEFT", ""): "LEFT JOIN",
        ("LEFT", "OUTER"): "LEFT JOIN",
        ("RIGHT", ""): "RIGHT JOIN",
        ("RIGHT", "OUTER"): "RIGHT JOIN",
        ("FULL", ""): "FULL JOIN",
        ("FULL", "OUTER"): "FULL JOIN",
        ("LEFT", "SEMI"): "SEMI JOIN",
        ("LEFT", "ANTI"): "ANTI JOIN",
    }.get((side, kind))
    if word is None:
        raise NeedsSpark(f"a {side} {kind} join")
    both = NameScope((*left.scope.members, *right.scope.members), left.scope.merged)
    using, on = node.args.get("using") or (), node.args.get("on")
    if using:
        return _using(left, right, [str(name.name) for name in using], word)
    if on is None and word == "JOIN":
        word = "CROSS JOIN"
    if (on is None) != (word == "CROSS JOIN"):
        raise NeedsSpark(f"a {word} {'without' if on is None else 'with'} ON")
    clause = "" if on is None else f" ON {condition(on, both)}"
    sql = f"{left.sql} {word} {right.sql}{clause}"
    if word in ("SEMI JOIN", "ANTI JOIN"):
        return Relation(sql, left.scope, left.starred, True)
    return Relation(sql, both, (*left.starred, *right.starred), True)


def _using(left: Relation, right: Relation, names: Sequence[str], word: str) -> Relation:
    """An inner or left join by columns of the same name and type, which `*` shows once, first."""
    if word not in ("JOIN", "LEFT JOIN") or left.scope.merged:
        raise NeedsSpark(f"USING in a {word}")
    merged, tests = [], []
    for name in names:
        a, b = left.scope.named(name), right.scope.named(name)
        if len(a) != 1 or len(b) != 1 or a[0].type != b[0].type or a[0].type.nested:
            raise NeedsSpark(f"USING ({name}) of columns that are not of one type")
        merged.append(ScopeColumn(a[0].name, a[0].type, a[0].sql))
        tests.append(f"{a[0].value.sql} = {b[0].value.sql}")
    hidden = {name.lower() for name in names}
    rest = tuple(
        (member, tuple(column for column in columns if column.name.lower() not in hidden))
        for member, columns in (*left.starred, *right.starred)
    )
    scope = NameScope((*left.scope.members, *right.scope.members), tuple(merged))
    sql = f"{left.sql} {word} {right.sql} ON {' AND '.join(tests)}"
    return Relation(sql, scope, (("", tuple(merged)), *rest), True)
