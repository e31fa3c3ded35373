"""One SELECT with its clauses, from Spark's SQL to DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, as_condition, as_key, cast
from acid_platform.engine.local.translation.column_names import ScopeColumn
from acid_platform.engine.local.translation.duckdb_sql import (
    BOOLEAN,
    DATE,
    identifier,
    translating,
)
from acid_platform.engine.local.translation.expressions import Translator
from acid_platform.engine.local.translation.library import is_aggregate
from acid_platform.engine.local.translation.printed_names import column_name
from acid_platform.engine.local.translation.query_clauses import (
    QueryBlock,
    TopRows,
    aggregated,
    direction,
    grouping_sets,
    keeps_zeros,
    limit_of,
    order_by_positions,
    order_of,
    ordinal,
    require_parts,
    sortable,
)
from acid_platform.engine.local.translation.select_expressions import (
    Expressions,
    generated,
    generator_name,
)
from acid_platform.errors import NeedsSpark
from acid_platform.scan.result_columns import PLACE

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
        outer: Expressions | None,
        named: bool,
    ) -> None:
        self.queries, self.node, self.ctes, self.outer = queries, node, ctes, outer
        self.named, self.correlated = named, False
        self.relation = queries.relation(node, ctes)
        for view in node.args.get("laterals") or ():
            self._add_view(view)
        self.items = [*self._items()]
        self.aliases = [alias.lower() for alias, _ in self.items]
        later = [node.args.get("having"), node.args.get("qualify")]
        clauses = [*later, *(item for _, item in self.items), *order_of(node)]
        group = node.args.get("group")
        self.grouped = group is not None or any(map(aggregated, clauses))
        self.set_keys: tuple[str, ...] = ()
        """The columns of ROLLUP, CUBE or GROUPING SETS in DuckDB's SQL."""
        self.keys: dict[str, str] = {}
        """What GROUP BY groups by, for the SQL of each value that it names."""

    def block(self) -> QueryBlock:
        node = self.node
        where = node.args.get("where")
        if where is not None:
            condition = Expressions(self, aggregates=False, where=True).condition(where.this)
        filtered = "" if where is None else f" WHERE {condition.sql}"
        keys = self._keys()
        values = [self._item(position) for position in range(len(self.items))]
        having = self._having() + self._qualify()
        order, by_values = self._order(values)
        self._check_distribution()
        limit = limit_of(node)
        distinct = ""
        if node.args.get("distinct") is not None:
            require_parts(node.args["distinct"])
            distinct = "DISTINCT "
            values = [*map(self._as_key, values)]
        items = ", ".join(f"{value.sql} AS c{i}" for i, value in enumerate(values))
        source = f" FROM {self.relation.sql}" if self.relation.sql else ""
        sql = f"SELECT {distinct}{items}{source}{filtered}{keys}{having}{order}{limit}"
        form = ""
        if not (keys or having or limit or distinct or node.find(exp.Window)):
            form = "one row" if self.grouped else "plain"
        alike = not (self.grouped or distinct) and self._of_one_table()
        most, top = self._most_rows(), None
        if alike and order and most is not None and most <= MOST_TOP_ROWS:
            rest = f"SELECT {items}{source}{filtered}{order}"
            top = self._top(f"{source}{filtered}{by_values}{limit}", rest)
        names = (name for name, _ in self.items)
        types = (value.type if value.is_field else value.declared or value.type for value in values)
        columns = tuple(zip(names, types, strict=True))
        row_by_row = alike and not (filtered or order)
        foldable = frozenset(
            i
            for i, (value, (_, node)) in enumerate(zip(values, self.items, strict=True))
            if value.foldable and not (value.type.kind == "decimal" and _is_aggregated(node))
        )
        return QueryBlock(sql, columns, foldable, self.correlated, form, top, row_by_row, most)

    def _of_one_table(self) -> bool:
        """Whether all that it reads is one row of a stored table for each row."""
        stored = self.relation.sql.rpartition(" AS ")[0].strip('"')
        return (
            stored in self.queries.opened
            and not self.relation.joined
            and self.node.find(exp.Window) is None
            and len(list(self.node.find_all(exp.Query))) == 1
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
        for term in self._order_terms():
            position = self._position(term.this)
            item = term.this if position is None else self.items[position - 1][1]
            if isinstance(item, ScopeColumn):
                reads.add(item.name.lower())
            else:
                named += (term.this, item)
                aliases = (self.by_alias(name.name) for name in term.this.find_all(exp.Column))
                named += (alias for alias in aliases if alias is not None)
        for node in named:
            for name in node.find_all(exp.Identifier):
                reads.add(name.name.lower())
        stored, _, alias = self.relation.sql.rpartition(" AS ")
        places = f"SELECT {alias}.{identifier(PLACE.name)} AS c0{clauses}"
        return TopRows(stored.strip('"'), places, frozenset(reads), rest)

    # --- the select list -----------------------------------------------------------------------

    def _items(self) -> Iterator[tuple[str, exp.Expr | ScopeColumn]]:
        """The columns with their names; `*` becomes the columns that it means."""
        for item in self.node.expressions:
            star = item.this if isinstance(item, exp.Column) else item
            if isinstance(star, exp.Star):
                member = item.table if isinstance(item, exp.Column) else ""
                yield from self._starred(star, member)
            elif generator_name(item.this if isinstance(item, exp.Alias | exp.Aliases) else item):
                yield from self._generated(item)
            elif isinstance(item, exp.Alias):
                yield item.alias, item.this
            elif isinstance(item, exp.Aliases):
                raise NeedsSpark(item.sql("spark"))
            else:
                yield self._name(item), item

    def _generated(self, item: exp.Expr) -> Iterator[tuple[str, ScopeColumn]]:
        """The columns of a call that makes rows, which stand beside those of FROM."""
        named = isinstance(item, exp.Alias | exp.Aliases)
        names = []
        if isinstance(item, exp.Alias):
            names = [item.alias]
        elif isinstance(item, exp.Aliases):
            names = [name.name for name in item.expressions]
        count = sum(
            generator_name(part) is not None
            for other in self.node.expressions
            for part in other.find_all(exp.Func)
        )
        if count > 1 or self.node.args.get("group") is not None:
            raise NeedsSpark(item.sql("spark"))
        for column in self._joined_rows(item.this if named else item, names):
            yield column.name, column

    def _joined_rows(
        self, call: exp.Expr, names: Sequence[str], outer: bool = False
    ) -> tuple[ScopeColumn, ...]:
        """Joins the rows that a call makes of each row to FROM; returns their columns, with these
        names if there are any."""
        translator = Translator(self.relation.scope, self.queries.in_order)
        rows = generated(translator, call, outer)
        columns = rows.type.children[0][1].children
        names = names or [name for name, _ in columns]
        if len(names) != len(columns):
            raise NeedsSpark(f"{len(names)} names for the columns of {call.sql('spark')}")
        alias = f"g{next(self.queries.numbers)}"
        made = f"(SELECT unnest({rows.sql}) AS e) AS {alias}"
        joined = f"{self.relation.sql} CROSS JOIN LATERAL {made}" if self.relation.sql else made
        self.relation = replace(self.relation, sql=joined, joined=True)
        return tuple(
            ScopeColumn(name, kind, f"struct_extract({alias}.e, 'f{position}')")
            for position, (name, (_, kind)) in enumerate(zip(names, columns, strict=True))
        )

    def _add_view(self, view: exp.Lateral) -> None:
        """LATERAL VIEW, whose columns the later ones and all clauses may name."""
        require_parts(view)
        alias = view.args.get("alias")
        names = [column.name for column in alias.columns] if alias is not None else []
        columns = self._joined_rows(view.this, names, bool(view.args.get("outer")))
        member = (alias.name if alias is not None else "", columns)
        scope = self.relation.scope
        scope = replace(scope, members=(*scope.members, member))
        self.relation = replace(
            self.relation, scope=scope, starred=(*self.relation.starred, member)
        )

    def _name(self, item: exp.Expr) -> str:
        try:
            return column_name(item, self.relation.scope.path)
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
        earlier = frozenset(self.aliases[:position])
        translator = Expressions(self, earlier, windows=True)
        if isinstance(item, exp.Column) and not isinstance(item.this, exp.Star):
            column = translator.resolve([part.name for part in item.parts])
            if column.is_field and column.type.nested and column.declared is not None:
                raise NeedsSpark(f"a field of {column.declared}")
            return self.as_grouped(column)
        if self.named and item.parent is self.node:  # its name is what was written
            known = len(translating().constants)
            for sum_ in item.find_all(exp.Add):
                if sum_.find_ancestor(exp.Lambda):
                    continue
                if translator.value(sum_.left).type == DATE:  # Spark calls it date_add(…)
                    raise NeedsSpark(f"the name of the column {item.sql('spark')}")
            del translating().constants[known:]  # they may stand in a branch
        return translator.value(item)

    # --- the other clauses ---------------------------------------------------------------------

    def _keys(self) -> str:
        group = self.node.args.get("group")
        if group is None:
            return ""
        require_parts(group)
        if group.args.get("all"):
            return self._every_key(group)
        sets = grouping_sets(group)
        if sets is None:
            keys = [self._grouped_by(self._key(node)) for node in group.expressions]
            return f" GROUP BY {', '.join(keys)}"
        columns = {key: self._set_key(key) for keys in sets for key in keys}
        keys, *chosen = [[columns[key] for key in own] for own in sets]
        self.set_keys = tuple(dict.fromkeys(keys))
        chosen = [sorted({*own}) for own in chosen]
        distinct = len({*map(tuple, chosen)}) == len(chosen)
        if not keys or not distinct or {*chain(*chosen)} != {*self.set_keys}:
            raise NeedsSpark(
                "GROUPING SETS without keys, with a set twice, or with a key in no set"
            )
        listed = ", ".join(f"({', '.join(own)})" for own in chosen)
        return f" GROUP BY GROUPING SETS ({listed})"

    def _every_key(self, group: exp.Group) -> str:
        """The keys of GROUP BY ALL: what SELECT has without an aggregate."""
        self._require_no_all()
        keys = []
        for name, item in self.items:
            if isinstance(item, ScopeColumn):
                keys.append(self._grouped_by(item.value))
            elif not aggregated(item):
                if isinstance(item.unnest(), exp.Literal | exp.Null | exp.Neg) or item.find(
                    exp.Window, exp.Query
                ):
                    raise NeedsSpark(f"GROUP BY ALL with {item.sql('spark')}")
                translator = Expressions(self, aggregates=False, queries="values")
                keys.append(self._grouped_by(translator.value(item)))
            elif _has_key_inside(item):
                raise NeedsSpark(f"GROUP BY ALL with {name}, an aggregate beside a column")
        if group.expressions:
            raise NeedsSpark("GROUP BY ALL of keys")
        return f" GROUP BY {', '.join(keys)}" if keys else ""

    def _require_no_all(self) -> None:
        """Raises NeedsSpark if a column is called so, which Spark then takes."""
        if self._called_all() or "all" in self.aliases:
            raise NeedsSpark("ALL, which is the name of a column")

    def _qualify(self) -> str:
        clause = self.node.args.get("qualify")
        if clause is None:
            return ""
        items = [item for _, item in self.items if isinstance(item, exp.Expr)]
        if self.grouped:  # Spark finds no aggregate there, and few columns
            raise NeedsSpark("QUALIFY of groups")
        if not any(part.find(exp.Window) for part in (clause, *items)):
            raise NeedsSpark("QUALIFY without a window function")
        translator = Expressions(self, windows=True, by_alias=True, queries="values")
        condition = as_condition(translator.value(clause.this), "QUALIFY", null=True)
        return f" QUALIFY {condition.sql}"

    def _set_key(self, node: exp.Expr) -> str:
        value = Expressions(self, aggregates=False, queries="values").value(node)
        if not isinstance(node, exp.Column) or value.is_field:
            raise NeedsSpark(f"{node.sql('spark')} in ROLLUP, CUBE or GROUPING SETS")
        return self._grouped_by(value)

    def _grouped_by(self, value: Typed) -> str:
        return self.keys.setdefault(value.sql, self._as_key(value).sql)

    def _as_key(self, value: Typed) -> Typed:
        sortable(value)
        return as_key(value, keeps_zeros(self.node))

    def _key(self, node: exp.Expr) -> Typed:
        single = isinstance(node, exp.Column) and len(node.parts) == 1
        named = single and self.relation.scope.find([node.name]) is not None
        position = None if named else self._position(node)
        translator = Expressions(self, aggregates=False, queries="values")
        if position is None:
            return translator.value(node)
        item = self.items[position - 1][1]
        return item.value if isinstance(item, ScopeColumn) else translator.value(item)

    def _having(self) -> str:
        conditions = []
        if self.set_keys:
            conditions.append("count(*) > 0")  # of no rows Spark makes no total
        having = self.node.args.get("having")
        if having is not None:
            if not self.grouped:
                raise NeedsSpark("HAVING without a group")
            # Spark casts what is no predicate.
            condition = Expressions(self, by_alias=True).value(having.this)
            conditions.append(cast(condition, BOOLEAN).sql)
        return f" HAVING {' AND '.join(conditions)}" if conditions else ""

    def _order(self, values: Sequence[Typed]) -> tuple[str, str]:
        """ORDER BY, and the same with values in the place of positions."""
        terms, by_values = [], []
        for term in self._order_terms():
            node = term.this
            position = self._position(node)
            if position is not None:
                sortable(values[position - 1])
                terms.append(f"{position}{direction(term)}")
                by_values.append(values[position - 1].sql + direction(term))
                continue
            if self.node.args.get("distinct") is not None:
                raise NeedsSpark("ORDER BY of DISTINCT rows by anything but their columns")
            if self.set_keys and not self._of_columns(node):
                raise NeedsSpark("ORDER BY of no column of SELECT beside ROLLUP and the like")
            if aggregated(node) and self._having_adds():
                raise NeedsSpark("ORDER BY of an aggregate beside HAVING of what SELECT lacks")
            value = Expressions(self, by_alias=True, queries="values").value(node)
            terms.append(sortable(value) + direction(term))
            by_values.append(terms[-1])
        if not terms:
            return "", ""
        return f" ORDER BY {', '.join(terms)}", f" ORDER BY {', '.join(by_values)}"

    def _order_terms(self) -> list[exp.Ordered]:
        names = [name for name, _ in self.items]
        return order_by_positions(self.node, [*names, *self._called_all()])

    def _called_all(self) -> list[str]:
        return [column.name for column in self.relation.scope.unqualified("all")]

    def _of_columns(self, node: exp.Expr) -> bool:
        """Whether an expression has only columns of the result in it, and which keys they lack."""
        names = {name.lower() for name, _ in self.items}
        lacks = (exp.Grouping, exp.GroupingId)
        node = node.transform(lambda part: exp.null() if isinstance(part, lacks) else part)
        return not (aggregated(node) or node.find(exp.Window, exp.Query)) and all(
            len(column.parts) == 1 and column.name.lower() in names
            for column in node.find_all(exp.Column)
        )

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
        """DISTRIBUTE BY says where rows are computed, which changes none of them."""
        clause = self.node.args.get("distribute")
        for term in clause.expressions if clause is not None else ():
            if self.node.args.get("distinct") is not None:
                raise NeedsSpark("DISTRIBUTE BY of DISTINCT rows")
            node = term.this if isinstance(term, exp.Ordered) else term
            Expressions(self, by_alias=True).value(node)

    def _position(self, node: exp.Expr) -> int | None:
        """The position, from 1, of the column of the result that a number or an alias means."""
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            return self._alias(node.name)
        return ordinal(node, len(self.items))

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


def _has_key_inside(node: exp.Expr) -> bool:
    """Whether an expression with an aggregate has a column, window or query outside of it."""
    if isinstance(node, exp.Column | exp.Window | exp.Query | exp.Star):
        return True
    if isinstance(node, exp.AggFunc | exp.Filter) or is_aggregate(node):
        return False
    return any(map(_has_key_inside, node.iter_expressions()))


def _is_aggregated(item: exp.Expr | ScopeColumn) -> bool:
    """Whether it is computed of an aggregate, of which Spark's optimizer makes no constant."""
    return isinstance(item, exp.Expr) and item.find(exp.AggFunc) is not None
