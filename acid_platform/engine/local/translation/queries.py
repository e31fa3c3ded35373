"""From a query of any form in Spark's SQL to one in DuckDB's.

The shape of a query stays as it is. What is judged are its expressions, its names, and the few
things that both engines know and mean otherwise. Tables are called m1, m2 and so on, CTEs w1, and
columns c0, c1, since Spark's names may occur twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.interface import Sources, columns_of
from acid_platform.engine.local.translation.casts import Typed, as_condition, as_key, cast
from acid_platform.engine.local.translation.column_names import (
    NameScope,
    ScopeColumn,
    columns_under,
)
from acid_platform.engine.local.translation.duckdb_sql import (
    VOID,
    identifier,
    spark_name,
    translating,
    wider,
    widest,
)
from acid_platform.engine.local.translation.expressions import Translator
from acid_platform.engine.local.translation.pivots import grouped_before, without_pivot
from acid_platform.engine.local.translation.query_clauses import (
    QueryBlock,
    Relation,
    direction,
    keeps_zeros,
    limit_of,
    order_by_positions,
    ordinal,
    require_parts,
    sortable,
)
from acid_platform.engine.local.translation.selects import Select
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType, of_value

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.select_expressions import Expressions


@dataclass(slots=True)
class _Cte:
    """A query of WITH; `block` once it was named, and `above` are those that it may name."""

    query: exp.Expr
    columns: tuple[str, ...]
    above: Mapping[str, _Cte]
    stored: str
    block: QueryBlock | None = None


Ctes = Mapping[str, _Cte]
"""The queries of WITH that may be named, by name."""


@dataclass(slots=True)
class QueryTranslator:
    """Translates one query over its sources.

    `in_order`: whether AND and OR evaluate their conditions one after another, as Spark does, which
    hides them from DuckDB's optimizer.
    """

    sources: Sources
    in_order: bool = False
    opened: dict[str, str] = field(default_factory=dict)
    """The placeholder of each table of DuckDB's SQL; what is named twice is opened twice."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    unread: list[_Cte] = field(default_factory=list)
    """The queries of WITH that may be named by nothing so far."""
    begun: bool = False

    def query(
        self, node: exp.Expr, ctes: Ctes, outer: Expressions | None = None, named: bool = True
    ) -> QueryBlock:
        """A query of any form. Raises NeedsSpark, UnknownColumn, InvalidExpression.

        `outer`: where a subquery stands. `named`: whether somebody reads the names of its columns.
        """
        require_parts(node)
        outermost, self.begun = not self.begun, True
        own, ctes = self._with(node, ctes)
        match node:
            case exp.Select():
                block = Select(self, node, ctes, outer, named).block()
            case exp.Subquery() if not node.alias:
                block = self.query(node.this, ctes, outer, named)
            case exp.SetOperation():
                block = self._set_operation(node, ctes, named)
            case exp.Values():
                block = _values(node)
            case _:
                raise NeedsSpark(f"{type(node).__name__.upper()}")
        written = [f"{cte.stored} AS ({cte.block.sql})" for cte in own if cte.block is not None]
        if outermost:
            self._check_unread()
        return replace(block, sql=f"WITH {', '.join(written)} {block.sql}") if written else block

    def _check_unread(self) -> None:
        """Translates what nobody names, too: Spark refuses what is wrong in it."""
        known = len(translating().constants)
        apart = replace(self, opened={})
        while self.unread:
            cte = self.unread.pop()
            if cte.block is None:
                cte.block = apart.query(cte.query, cte.above)
        del translating().constants[known:]  # which nobody computes

    def _with(self, node: exp.Expr, ctes: Ctes) -> tuple[list[_Cte], Ctes]:
        """The queries of its own WITH, and all that it may name."""
        clause = node.args.get("with_")
        own: list[_Cte] = []
        if clause is None:
            return own, ctes
        require_parts(clause)
        for cte in clause.expressions:
            require_parts(cte)
            own.append(_Cte(cte.this, _alias_columns(cte), ctes, f"w{next(self.numbers)}"))
            ctes = {**ctes, cte.alias.lower(): own[-1]}
        self.unread += own
        return own, ctes

    # --- FROM ----------------------------------------------------------------------------------

    def relation(self, node: exp.Select, ctes: Ctes) -> Relation:
        """All members of FROM."""
        clause = node.args.get("from_")
        if clause is None:
            return Relation("", NameScope(()), ())
        left = self._member(clause.this, ctes)
        for join in node.args.get("joins") or ():
            left = self._joined(left, join, ctes)
        return left

    def _member(self, node: exp.Expr, ctes: Ctes) -> Relation:
        if node.args.get("pivots"):
            return self._pivoted(node, ctes)
        require_parts(node)
        alias, name, names = f"m{next(self.numbers)}", node.alias_or_name, _alias_columns(node)
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                cte = ctes.get(node.name.lower())
                if cte is not None:
                    if cte.block is None:
                        cte.block = _renamed(self.query(cte.query, cte.above), cte.columns)
                    return _derived(cte.stored, alias, name, _renamed(cte.block, names))
                read = self.sources.get(node.name)
                if read is None or names:
                    raise NeedsSpark(f"the table {node.sql('spark')}")
                stored = f"t{alias[1:]}"
                self.opened[stored] = node.name
                columns = columns_under(alias, columns_of(read))
                return _single(f"{identifier(stored)} AS {alias}", name, columns)
            case exp.Table() if isinstance(node.this, exp.Anonymous):
                return _range(node, alias, name, names)
            case exp.Subquery() if isinstance(node.this, exp.Table):
                first = node.this.copy()
                joins = first.args.pop("joins", None)
                if node.alias or not joins:
                    raise NeedsSpark(f"{node.sql('spark')} in FROM")
                select = exp.Select(from_=exp.From(this=first), joins=joins)
                relation = self.relation(select, ctes)
                return replace(relation, sql=f"({relation.sql})")
            case exp.Subquery() | exp.Values():
                if isinstance(node, exp.Values):
                    block = _values(node)
                else:
                    block = self.query(node.this, ctes)
                return _derived(f"({block.sql})", alias, name, _renamed(block, names))
        raise NeedsSpark(f"{node.sql('spark')} in FROM")

    def _pivoted(self, node: exp.Expr, ctes: Ctes) -> Relation:
        """A member with PIVOT or UNPIVOT, under the alias behind that."""
        plain = node.copy()
        plain.set("pivots", None)
        known = QueryTranslator(self.sources, self.in_order, numbers=self.numbers)
        ((_, columns),) = known._member(plain, ctes).starred
        alias = node.args["pivots"][0].args.get("alias")
        if alias is not None and alias.columns:
            raise NeedsSpark("a pivot with names for its columns")
        block = self.query(without_pivot(node, columns), ctes)
        if not grouped_before(node, (kind for _, kind in block.columns)):
            block = self.query(without_pivot(node, columns, grouped_first=False), ctes)
        name = alias.name if alias is not None else ""
        return _derived(f"({block.sql})", f"m{next(self.numbers)}", name, block)

    def _joined(self, left: Relation, node: exp.Join, ctes: Ctes) -> Relation:
        right = self._member(node.this, ctes)
        side, kind = (node.side or "").upper(), (node.kind or "").upper()
        natural = node.method == "NATURAL"
        if (node.method and not natural) or node.args.get("global_") or node.args.get("hint"):
            raise NeedsSpark(f"a {node.method or 'hinted'} join")
        word = _JOINS.get((side, kind))
        if word is None or right.scope.merged:
            raise NeedsSpark(f"a {side} {kind} join")
        both = NameScope((*left.scope.members, *right.scope.members), left.scope.merged)
        on = node.args.get("on")
        if natural:
            return _using(left, right, _common_names(left, right), word)
        if using := node.args.get("using"):
            return _using(left, right, [str(name.name) for name in using], word)
        if on is None and word == "JOIN":
            word = "CROSS JOIN"
        if (on is None) != (word == "CROSS JOIN"):
            raise NeedsSpark(f"a {word} {'without' if on is None else 'with'} ON")
        sql = f"{left.sql} {word} {right.sql}"
        if on is not None:
            condition = Translator(both, self.in_order).value(on)
            sql += f" ON {as_condition(condition, on.sql('spark')).sql}"
        if word in ("SEMI JOIN", "ANTI JOIN"):
            return Relation(sql, left.scope, left.starred, True)
        return Relation(sql, both, (*left.starred, *right.starred), True)

    # --- UNION and the like --------------------------------------------------------------------

    def _set_operation(self, node: exp.SetOperation, ctes: Ctes, named: bool) -> QueryBlock:
        left = self.query(node.this, ctes, named=named)
        right = self.query(node.expression, ctes, named=False)
        word = type(node).__name__.upper()
        if len(left.columns) != len(right.columns):
            raise NeedsSpark(node.sql("spark"))
        every = not node.args.get("distinct")
        kept = every and isinstance(node, exp.Union)  # INTERSECT ALL counts equal rows
        columns = []
        for (name, a), (_, b) in zip(left.columns, right.columns, strict=True):
            kind = wider(of_value(a), of_value(b))
            if kind in (None, VOID) or (kind.nested and (not kept or a.has_char or b.has_char)):
                raise NeedsSpark(f"{word} of {a} and {b}")
            columns.append((name, kind))
        as_shown = None if kept else partial(as_key, as_is=keeps_zeros(node))
        foldable = left.foldable | right.foldable
        sides = [
            _in_types(replace(side, foldable=foldable), columns, as_shown) for side in (left, right)
        ]
        sql = f"({sides[0]}) {word}{' ALL' if every else ''} ({sides[1]})"
        block = QueryBlock(sql, tuple(columns), foldable)
        tail = self._tail(node, block)
        return replace(block, sql=f"SELECT * FROM ({sql}) AS u{tail}") if tail else block

    def _tail(self, node: exp.Expr, block: QueryBlock) -> str:
        columns = (ScopeColumn(n, k, f"u.c{i}") for i, (n, k) in enumerate(block.columns))
        translator = Translator(NameScope((("", tuple(columns)),)), self.in_order)
        terms = []
        for term in order_by_positions(node, [name for name, _ in block.columns]):
            position = ordinal(term.this, len(block.columns))
            value = translator.value(term.this) if position is None else None
            key = str(position) if value is None else sortable(value)
            terms.append(key + direction(term))
        return (f" ORDER BY {', '.join(terms)}" if terms else "") + limit_of(node)


_JOINS = {
    ("", ""): "JOIN",
    ("", "INNER"): "JOIN",
    ("", "CROSS"): "CROSS JOIN",
    ("LEFT", ""): "LEFT JOIN",
    ("LEFT", "OUTER"): "LEFT JOIN",
    ("RIGHT", ""): "RIGHT JOIN",
    ("RIGHT", "OUTER"): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN",
    ("FULL", "OUTER"): "FULL JOIN",
    **{(side, "SEMI"): "SEMI JOIN" for side in ("", "LEFT")},
    **{(side, "ANTI"): "ANTI JOIN" for side in ("", "LEFT")},
}
"""By side and kind. A comma is a join, so that it binds as in Spark: not later than JOIN."""


def _alias_columns(node: exp.Expr) -> tuple[str, ...]:
    alias = node.args.get("alias")
    return tuple(column.name for column in alias.columns) if alias is not None else ()


def _range(node: exp.Table, alias: str, name: str, names: Sequence[str]) -> Relation:
    """`range(end)` or `range(start, end, step)` of literals."""
    call = node.this
    values = [Translator(NameScope(())).value(part) for part in call.expressions]
    given = [value.literal for value in values]
    whole = [number for number in given if isinstance(number, int) and abs(number) < 1 << 40]
    if call.name.lower() != "range" or not 1 <= len(given) <= 3 or len(whole) < len(given):
        raise NeedsSpark(f"{node.sql('spark')} in FROM")
    start, end, step = (0, *whole, 1) if len(whole) == 1 else (*whole, 1)[:3]
    if step == 0:
        raise NeedsSpark("range by a step of 0")
    sql = f"SELECT range AS c0 FROM range({start}, {end}, {step})"
    block = QueryBlock(sql, (("id", HiveType("bigint")),))
    return _derived(f"({sql})", alias, name, _renamed(block, names))


def _renamed(block: QueryBlock, names: Sequence[str]) -> QueryBlock:
    """The block with these names for its columns, if there are any."""
    if not names:
        return block
    if len(names) != len(block.columns):
        raise NeedsSpark(f"{len(names)} names for {len(block.columns)} columns")
    kinds = (kind for _, kind in block.columns)
    return replace(block, columns=tuple(zip(names, kinds, strict=True)))


def _derived(sql: str, alias: str, name: str, block: QueryBlock) -> Relation:
    """A subquery or CTE."""
    columns = (
        ScopeColumn(n, kind, f"{alias}.c{i}", i in block.foldable)
        for i, (n, kind) in enumerate(block.columns)
    )
    return _single(f"{sql} AS {alias}", name, tuple(columns))


def _single(sql: str, name: str, columns: tuple[ScopeColumn, ...]) -> Relation:
    members = ((name, columns),)
    return Relation(sql, NameScope(members), members)


def _common_names(left: Relation, right: Relation) -> list[str]:
    """The columns by which a NATURAL JOIN joins, in the order of the left side."""
    names = [column.name for _, columns in left.starred for column in columns]
    return [name for name in names if right.scope.named(name)]


def _using(left: Relation, right: Relation, names: Sequence[str], word: str) -> Relation:
    """A join by columns of the same name and type, which `*` shows once, first."""
    if word not in ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN") or not names:
        raise NeedsSpark(f"{'USING' if names else 'NATURAL'} in a {word}")
    merged, tests = [], []
    for name in names:
        a, b = left.scope.unqualified(name), right.scope.named(name)
        if len(a) != 1 or len(b) != 1 or a[0].type != b[0].type or a[0].type.nested:
            raise NeedsSpark(f"USING ({name}) of columns that are not of one type")
        if word == "FULL JOIN" and a[0].type.is_told:
            raise NeedsSpark(f"USING ({name}) of {a[0].type} in a FULL JOIN")
        both = f"coalesce({a[0].sql}, {b[0].sql})"
        shown = {"RIGHT JOIN": b[0].sql, "FULL JOIN": both}.get(word, a[0].sql)
        foldable = a[0].foldable or b[0].foldable
        merged.append(ScopeColumn(a[0].name, a[0].type, shown, foldable))
        tests.append(f"{a[0].value.sql} = {b[0].value.sql}")
    hidden = {name.lower() for name in names}
    rest = tuple(
        (member, tuple(column for column in columns if column.name.lower() not in hidden))
        for member, columns in (*left.starred, *right.starred)
    )
    others = (column for column in left.scope.merged if column.name.lower() not in hidden)
    scope = NameScope((*left.scope.members, *right.scope.members), (*merged, *others))
    sql = f"{left.sql} {word} {right.sql} ON {' AND '.join(tests)}"
    return Relation(sql, scope, (("", tuple(merged)), *rest), True)


def _values(node: exp.Values) -> QueryBlock:
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


def _in_types(
    block: QueryBlock,
    columns: Sequence[tuple[str, HiveType]],
    as_shown: Callable[[Typed], Typed] | None,
) -> str:
    """The rows in these types; `as_shown` gives the values of rows of which each is shown once."""
    own = [Typed(f"q.c{i}", of_value(kind)) for i, (_, kind) in enumerate(block.columns)]
    values = [cast(value, kind) for value, (_, kind) in zip(own, columns, strict=True)]
    if as_shown:
        values = [
            as_shown(replace(value, foldable=i in block.foldable)) for i, value in enumerate(values)
        ]
    if [value.sql for value in values] == [value.sql for value in own]:
        return block.sql
    items = ", ".join(f"{value.sql} AS c{i}" for i, value in enumerate(values))
    return f"SELECT {items} FROM ({block.sql}) AS q"
