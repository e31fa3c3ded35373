"""From a query of any form in Spark's SQL to one in DuckDB's, names resolved as Spark does.

A block whose expressions may fail for some rows is only translated where both engines evaluate it
for the same rows: not below LIMIT, HAVING or another block, unless that does nothing but cast
columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from acid_platform.engine.interface import Sources, columns_of
from acid_platform.engine.local.translation import relations
from acid_platform.engine.local.translation.casts import Typed, as_condition, as_key, cast
from acid_platform.engine.local.translation.duckdb_types import VOID, wider
from acid_platform.engine.local.translation.expressions import Translator
from acid_platform.engine.local.translation.relations import NOTHING, QueryBlock, Relation
from acid_platform.engine.local.translation.scope import (
    NameScope,
    ScopeColumn,
    columns_of_alias,
    direction,
    limit_of,
    order_of,
    ordinal,
    require_parts,
    sortable,
)
from acid_platform.engine.local.translation.select_clauses import Select
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType, of_value


@dataclass(frozen=True, slots=True)
class _Cte:
    query: exp.Expr
    columns: tuple[str, ...]
    above: Mapping[str, _Cte]


Ctes = Mapping[str, _Cte]
"""The queries of WITH that may be named, by name."""


@dataclass(slots=True)
class QueryTranslator:
    """Translates one query over its sources."""

    sources: Sources
    opened: dict[str, str] = field(default_factory=dict)
    """The placeholder of each table of DuckDB's SQL; what is named twice is opened twice."""
    filtered: bool = True
    """Whether scans may leave out rows that WHERE drops: not if it may fail for such a row."""
    members: int = 0

    def query(
        self, node: exp.Expr, ctes: Ctes, outer: NameScope | None = None, named: bool = True
    ) -> QueryBlock:
        """A query of any form. Raises NeedsSpark, UnknownColumn, InvalidExpression.

        `named`: whether somebody reads the names of its columns.
        """
        require_parts(node)
        ctes = self._with(node, ctes)
        match node:
            case exp.Select():
                return Select(self, node, ctes, outer, named).block()
            case exp.Subquery() if not node.alias:
                return self.query(node.this, ctes, outer, named)
            case exp.Union() | exp.Intersect() | exp.Except():
                return self._set_operation(node, ctes, named)
            case exp.Values():
                return relations.values(node)
        raise NeedsSpark(f"{type(node).__name__.upper()}")

    def _with(self, node: exp.Expr, ctes: Ctes) -> Ctes:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        require_parts(clause)
        for cte in clause.expressions:
            require_parts(cte)
            ctes = {**ctes, cte.alias.lower(): _Cte(cte.this, columns_of_alias(cte), ctes)}
        return ctes

    # --- FROM ----------------------------------------------------------------------------------

    def relation(self, node: exp.Expr, ctes: Ctes) -> Relation:
        """A member of FROM."""
        require_parts(node)
        self.members += 1
        alias, name = f"m{self.members}", node.alias_or_name
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                cte = ctes.get(node.name.lower())
                if cte is not None:
                    block = relations.renamed(self.query(cte.query, cte.above), cte.columns)
                    return relations.subquery(alias, name, block, columns_of_alias(node))
                read = self.sources.get(node.name)
                if read is None or columns_of_alias(node):
                    raise NeedsSpark(f"the table {node.sql('spark')}")
                stored = f"t{self.members}"
                self.opened[stored] = node.name
                return relations.table(alias, name, stored, columns_of(read))
            case exp.Subquery():
                block = self.query(node.this, ctes)
                return relations.subquery(alias, name, block, columns_of_alias(node))
            case exp.Values():
                block = relations.values(node)
                return relations.subquery(alias, name, block, columns_of_alias(node))
        raise NeedsSpark(f"{node.sql('spark')} in FROM")

    def joins(self, node: exp.Select, ctes: Ctes) -> Relation:
        """All members of FROM."""
        clause = node.args.get("from_")
        if clause is None:
            return NOTHING
        left = self.relation(clause.this, ctes)
        for join in node.args.get("joins") or ():
            left = relations.joined(left, self.relation(join.this, ctes), join, _join_condition)
        return left

    # --- UNION and the like --------------------------------------------------------------------

    def _set_operation(self, node: exp.SetOperation, ctes: Ctes, named: bool) -> QueryBlock:
        left = self.query(node.this, ctes, named=named)
        right = self.query(node.expression, ctes, named=False)
        every = not node.args.get("distinct")
        if len(left.columns) != len(right.columns) or (every and not isinstance(node, exp.Union)):
            raise NeedsSpark(node.sql("spark"))
        columns = []
        for (name, a), (_, b) in zip(left.columns, right.columns, strict=True):
            kind = wider(of_value(a), of_value(b))
            if kind in (None, VOID) or (kind.nested and (not every or a.has_char or b.has_char)):
                raise NeedsSpark(f"{type(node).__name__.upper()} of {a} and {b}")
            columns.append((name, kind))
        word = type(node).__name__.upper() + (" ALL" if every else "")
        sides = (_in_types(left, columns, not every), _in_types(right, columns, not every))
        sql = f"({sides[0]}) {word} ({sides[1]})"
        block = QueryBlock(sql, tuple(columns), left.fails or right.fails)
        tail = self._tail(node, block)
        return replace(block, sql=f"SELECT * FROM ({sql}) AS u{tail}") if tail else block

    def _tail(self, node: exp.Expr, block: QueryBlock) -> str:
        scope = NameScope(
            (("", tuple(ScopeColumn(n, k, f"u.c{i}") for i, (n, k) in enumerate(block.columns))),)
        )
        translator = Translator(scope)
        terms = []
        for term in order_of(node):
            position = ordinal(term.this, len(block.columns))
            value = translator.value(term.this) if position is None else None
            key = str(position) if value is None else sortable(value)
            terms.append(key + direction(term))
        limit = limit_of(node)
        if limit and block.fails:
            raise NeedsSpark("LIMIT over an expression that may fail for some rows")
        return (f" ORDER BY {', '.join(terms)}" if terms else "") + limit


def _in_types(block: QueryBlock, columns: Sequence[tuple[str, HiveType]], distinct: bool) -> str:
    """The rows in these types; `distinct`: as those of which each is shown once."""
    own = [Typed(f"q.c{i}", of_value(kind)) for i, (_, kind) in enumerate(block.columns)]
    values = [cast(value, kind) for value, (_, kind) in zip(own, columns, strict=True)]
    values = [*map(as_key, values)] if distinct else values
    if values == own:
        return block.sql
    items = ", ".join(f"{value.sql} AS c{i}" for i, value in enumerate(values))
    return f"SELECT {items} FROM ({block.sql}) AS q"


def _join_condition(node: exp.Expr, scope: NameScope) -> str:
    condition = as_condition(Translator(scope).value(node), node.sql("spark"))
    if condition.fails:
        raise NeedsSpark("ON with an expression that may fail for some rows")
    return condition.sql
