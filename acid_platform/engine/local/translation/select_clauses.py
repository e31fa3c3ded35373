"""One SELECT with its clauses, from Spark's SQL to DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, as_key, cast
from acid_platform.engine.local.translation.column_names import column_name
from acid_platform.engine.local.translation.duckdb_types import BOOLEAN, identifier
from acid_platform.engine.local.translation.grouping_sets import grouping_sets
from acid_platform.engine.local.translation.relations import QueryBlock, TopRows
from acid_platform.engine.local.translation.scope import (
    NameScope,
    ScopeColumn,
    aggregated,
    direction,
    limit_of,
    order_of,
    ordinal,
    require_parts,
    sortable,
)
from acid_platform.engine.local.translation.select_expressions import Expressions
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import FLOATING
from acid_platform.scan.decode import PLACE

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.queries import Ctes, QueryTranslator

MOST_TOP_ROWS = 10_000
"""So many rows of ORDER BY … LIMIT are found before their other columns are decoded."""


class Select:
    """One SELECT with its clauses."""

    def __init__(
        self,
        queries: QueryTranslator,
        node: exp.Select,
        ctes: Ctes,
        outer: NameScope | None,
        named: bool,
    ) -> None:
        self.queries, self.node, self.ctes, self.outer = queries, node, ctes, outer
        self.named = named
        self.relation = queries.joins(node, ctes)
        self.items = [*self._items()]
        clauses = [node.args.get("having"), *(item for _, item in self.items), *order_of(node)]
        group = node.args.get("group")
        self.grouped = group is not None or any(map(aggregated, clauses))
        self.fails = False
        self.set_keys: tuple[str, ...] = ()
        """The columns of ROLLUP, CUBE or GROUPING SETS in DuckDB's SQL."""
        self.keys: dict[str, str] = {}
        """What GROUP BY groups by, for the SQL of each value that it names."""

    def block(self) -> QueryBlock:
        node = self.node
        where = self._where()
        keys = self._keys()
        values = [self._item(position) for position in range(len(self.items))]
        having = self._having()
        order, by_values = self._order(values)
        self._check_distribution()
        limit = limit_of(node)
        self.fails |= any(value.fails for value in values)
        if self.fails and (having or (limit and not order)):
            raise NeedsSpark("LIMIT or HAVING with an expression that may fail for some rows")
        distinct = ""
        if node.args.get("distinct") is not None:
            require_parts(node.args["distinct"])
            distinct = "DISTINCT "
            values = [*map(self._as_key, values)]
        items = ", ".join(f"{value.sql} AS c{i}" for i, value in enumerate(values))
        source = f" FROM {self.relation.sql}" if self.relation.sql else ""
        sql = f"SELECT {distinct}{items}{source}{where}{keys}{having}{order}{limit}"
        alike = not (self.fails or self.grouped or distinct) and self._of_one_table()
        most, top = self._most_rows(), None
        if alike and order and most is not None and most <= MOST_TOP_ROWS:
            rest = f"SELECT {items}{source}{where}{order}"
            top = self._top(f"{source}{where}{by_values}{limit}", rest)
        names = (name for name, _ in self.items)
        types = (value.type if value.is_field else value.declared or value.type for value in values)
        alone = self.grouped and not keys and not having and not limit
        failing = self._failing(values) if self.fails else None
        columns = tuple(zip(names, types, strict=True))
        row_by_row = alike and not (where or order)
        return QueryBlock(sql, columns, self.fails, failing, alone, top, row_by_row, most)

    def _of_one_table(self) -> bool:
        """Whether all that it reads is one row of a stored table for each row."""
        node = self.node
        table = node.args["from_"].this if node.args.get("from_") else None
        return (
            isinstance(table, exp.Table)
            and not self.relation.joined
            and table.name.lower() not in self.ctes
            and node.find(exp.Window) is None
            and len(list(node.find_all(exp.Query))) == 1
        )

    def _most_rows(self) -> int | None:
        """How many rows LIMIT takes, with those that OFFSET skips; None without LIMIT."""
        if self.node.args.get("limit") is None:
            return None
        clauses = (self.node.args.get(part) for part in ("limit", "offset"))
        return sum(int(clause.expression.this) for clause in clauses if clause is not None)

    def _top(self, clauses: str, rest: str) -> TopRows:
        """How the first rows are found, and then read."""
        where = self.node.args.get("where")
        named: list[exp.Expr] = [] if where is None else [where]
        reads = set()
        for term in order_of(self.node):
            position = ordinal(term.this, len(self.items))
            if position is None and isinstance(term.this, exp.Column):
                position = self._alias(term.this.name)
            item = term.this if position is None else self.items[position - 1][1]
            if isinstance(item, ScopeColumn):
                reads.add(item.name.lower())
            else:
                named += (term.this, item)
        for node in named:
            for name in node.find_all(exp.Identifier):
                reads.add(name.name.lower())
        stored, _, alias = self.relation.sql.rpartition(" AS ")
        places = f"SELECT {alias}.{identifier(PLACE.name)} AS c0{clauses}"
        return TopRows(stored.strip('"'), places, frozenset(reads), rest)

    def _failing(self, values: Sequence[Typed]) -> frozenset[int] | None:
        """See QueryBlock: a SELECT that does nothing but cast columns of one relation."""
        clauses = {name for name, value in self.node.args.items() if value}
        if not clauses <= {"expressions", "from_"} or self.relation.joined:
            return None
        for _, item in self.items:
            value = item.this if isinstance(item, exp.Cast) else item
            if not isinstance(value, ScopeColumn | exp.Column):
                return None
        return frozenset(i for i, value in enumerate(values) if value.fails)

    # --- the select list -----------------------------------------------------------------------

    def _items(self) -> Iterator[tuple[str, exp.Expr | ScopeColumn]]:
        """The columns with their names; `*` becomes the columns that it means."""
        for item in self.node.expressions:
            star = item.this if isinstance(item, exp.Column) else item
            if isinstance(star, exp.Star):
                member = item.table if isinstance(item, exp.Column) else ""
                yield from self._starred(star, member)
            elif isinstance(item, exp.Alias):
                yield item.alias, item.this
            elif isinstance(item, exp.Aliases):
                raise NeedsSpark(item.sql("spark"))
            else:
                yield self._name(item), item

    def _name(self, item: exp.Expr) -> str:
        try:
            return column_name(item)
        except NeedsSpark:
            if self.named:
                raise
            return ""  # which no expression can name

    def _starred(self, star: exp.Star, member: str) -> Iterator[tuple[str, ScopeColumn]]:
        if star.args.get("replace") or star.args.get("rename"):
            raise NeedsSpark("* with REPLACE or RENAME")
        hidden = set()
        for name in star.args.get("except_") or ():
            parts = [part.name.lower() for part in name.parts]
            hidden.add((parts[-2] if len(parts) > 1 else member.lower(), parts[-1]))
        members = [
            (name, columns)
            for name, columns in self.relation.starred
            if not member or name.lower() == member.lower()
        ]
        if not members:
            raise NeedsSpark(f"{member}.*" if member else "* without FROM")
        for name, columns in members:
            if member:
                columns = (*self._keys_of_using(name, columns), *columns)
            for column in columns:
                own = column.name.lower()
                if not {(name.lower(), own), ("", own), (member.lower(), own)} & hidden:
                    yield column.name, column

    def _keys_of_using(self, name: str, shown: Sequence[ScopeColumn]) -> Iterator[ScopeColumn]:
        """The own columns of a member that `*` shows merged, which `member.*` shows first."""
        every = dict(self.relation.scope.members).get(name, ())
        for merged in self.relation.scope.merged:
            yield from (
                column
                for column in every
                if column not in shown and column.name.lower() == merged.name.lower()
            )

    def as_grouped(self, value: Typed) -> Typed:
        """The value of a row of the result: a key of GROUP BY is what the rows are grouped by."""
        key = self.keys.get(value.sql)
        return value if key is None else replace(value, sql=key)

    def _item(self, position: int) -> Typed:
        item = self.items[position][1]
        if isinstance(item, ScopeColumn):
            return self.as_grouped(item.value)
        earlier = frozenset(alias.lower() for alias, _ in self.items[:position])
        translator = Expressions(self, earlier, windows=not self.grouped)
        if isinstance(item, exp.Column) and not isinstance(item.this, exp.Star):
            column = translator.resolve([part.name for part in item.parts])
            if column.is_field and column.type.nested and column.declared is not None:
                raise NeedsSpark(f"a field of {column.declared}")
            return self.as_grouped(column)
        return translator.value(item)

    # --- the other clauses ---------------------------------------------------------------------

    def _where(self) -> str:
        where = self.node.args.get("where")
        if where is None:
            return ""
        translator = Expressions(self, aggregates=False, where=True)
        condition = translator.condition(where.this)
        if condition.fails:
            self.fails, self.queries.filtered = True, False
            if self.relation.joined:
                raise NeedsSpark("WHERE over a join with an expression that may fail")
        return f" WHERE {condition.sql}"

    def _keys(self) -> str:
        group = self.node.args.get("group")
        if group is None:
            return ""
        require_parts(group)
        if (sets := grouping_sets(group)) is not None:
            return self._grouping_sets(*sets)
        keys = []
        for node in group.expressions:
            value = self._key(node)
            self.fails |= value.fails
            keys.append(self._grouped_by(value))
        return f" GROUP BY {', '.join(keys)}"

    def _grouping_sets(self, keys: list[exp.Expr], *sets: list[exp.Expr]) -> str:
        """Sets of columns. Of no rows Spark makes no total."""
        columns = {key: self._set_key(key) for one in (keys, *sets) for key in one}
        self.set_keys = tuple(dict.fromkeys(columns[key] for key in keys))
        chosen = [tuple(sorted({columns[key] for key in set_})) for set_ in sets]
        if not keys or len({*chosen}) < len(chosen) or {*chain(*chosen)} != {*self.set_keys}:
            raise NeedsSpark(
                "GROUPING SETS without keys, with a set twice, or with a key in no set"
            )
        listed = ", ".join(f"({', '.join(one)})" for one in chosen)
        return f" GROUP BY GROUPING SETS ({listed}) HAVING count(*) > 0"

    def _set_key(self, node: exp.Expr) -> str:
        value = Expressions(self, aggregates=False).value(node)
        if not isinstance(node, exp.Column) or value.is_field or value.fails:
            raise NeedsSpark(f"{node.sql('spark')} in ROLLUP, CUBE or GROUPING SETS")
        return self._grouped_by(value)

    def _grouped_by(self, value: Typed) -> str:
        return self.keys.setdefault(value.sql, self._as_key(value).sql)

    def _as_key(self, value: Typed) -> Typed:
        sortable(value)
        source = self.node.args["from_"].this if self.node.args.get("from_") else None
        if value.type.kind in FLOATING and (
            source is None or (isinstance(source, exp.Values) and len(source.expressions) == 1)
        ):
            # Spark does not group a single row, so that -0.0 stays as it is.
            raise NeedsSpark(f"one row without a table, by a key of type {value.type}")
        return as_key(value)

    def _key(self, node: exp.Expr) -> Typed:
        position = ordinal(node, len(self.items))
        if (
            position is None
            and isinstance(node, exp.Column)
            and len(node.parts) == 1
            and self.relation.scope.find([node.name]) is None
        ):
            position = self._alias(node.name)
        translator = Expressions(self, aggregates=False)
        if position is None:
            return translator.value(node)
        item = self.items[position - 1][1]
        return item.value if isinstance(item, ScopeColumn) else translator.value(item)

    def _having(self) -> str:
        having = self.node.args.get("having")
        if having is None:
            return ""
        if not self.grouped or self.set_keys:
            raise NeedsSpark("HAVING without a group, or beside ROLLUP, CUBE or GROUPING SETS")
        # Spark casts what is no predicate.
        condition = cast(Expressions(self, by_alias=True).value(having.this), BOOLEAN)
        if condition.fails:
            raise NeedsSpark("HAVING with an expression that may fail for some rows")
        return f" HAVING {condition.sql}"

    def _order(self, values: Sequence[Typed]) -> tuple[str, str]:
        """ORDER BY, and the same with values in the place of positions."""
        terms, by_values = [], []
        for term in order_of(self.node):
            node = term.this
            position = ordinal(node, len(values))
            if position is None and isinstance(node, exp.Column) and len(node.parts) == 1:
                position = self._alias(node.name)
            if position is not None:
                sortable(values[position - 1])
                terms.append(f"{position}{direction(term)}")
                by_values.append(values[position - 1].sql + direction(term))
                continue
            if self.node.args.get("distinct") is not None:
                raise NeedsSpark("ORDER BY of DISTINCT rows by anything but their columns")
            if self.set_keys:
                raise NeedsSpark("ORDER BY of no column of SELECT beside ROLLUP and the like")
            if aggregated(node) and self._having_adds():
                raise NeedsSpark("ORDER BY of an aggregate beside HAVING of what SELECT lacks")
            value = Expressions(self, by_alias=True).value(node)
            self.fails |= value.fails
            terms.append(sortable(value) + direction(term))
            by_values.append(terms[-1])
        if not terms:
            return "", ""
        return f" ORDER BY {', '.join(terms)}", f" ORDER BY {', '.join(by_values)}"

    def _having_adds(self) -> bool:
        """Whether HAVING has an aggregate or a column that is no item of SELECT: Spark then refuses
        an aggregate in ORDER BY."""
        having = self.node.args.get("having")
        if having is None:
            return False
        names = {name.lower() for name, _ in self.items}
        items = [item for _, item in self.items]
        kinds = (exp.AggFunc, exp.Column)
        return any(
            part.name.lower() not in names if isinstance(part, exp.Column) else part not in items
            for part in having.walk(prune=lambda node: isinstance(node, kinds))
            if isinstance(part, kinds)
        )

    def _check_distribution(self) -> None:
        """DISTRIBUTE BY says where rows are computed, which changes none of them: its expressions
        only have to be some that never fail."""
        clause = self.node.args.get("distribute")
        for term in clause.expressions if clause is not None else ():
            node = term.this if isinstance(term, exp.Ordered) else term
            if self.node.args.get("distinct") is not None or (
                Expressions(self, by_alias=True).value(node).fails
            ):
                raise NeedsSpark("DISTRIBUTE BY of DISTINCT rows, or by what may fail for some")

    def _alias(self, name: str) -> int | None:
        """The position, from 1, of the column of the result with that name."""
        positions = [i for i, (own, _) in enumerate(self.items, 1) if own.lower() == name.lower()]
        if len(positions) > 1:
            raise NeedsSpark(f"{name}, which names several columns of the result")
        return positions[0] if positions else None

    def by_alias(self, name: str) -> exp.Expr | None:
        """The expression with that alias; None if there is none, or if it is just that column."""
        position = self._alias(name)
        item = None if position is None else self.items[position - 1][1]
        return item if isinstance(item, exp.Expr) else None
