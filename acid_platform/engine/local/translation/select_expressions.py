"""The expressions of a SELECT: aggregates, windows and subqueries where they may stand, and calls
that make several rows and columns of one (`explode`, `inline`, `stack`).

Each of these has a row of the table, named `rows of …`. Its value is an array of structs: the
columns, and in DuckDB's SQL the fields f0, f1 and so on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, cast, in_one_type, typed_as
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    BOOLEAN,
    INT,
    STRING,
    TINYINT,
    VOID,
    array_of,
    duckdb_type,
    keeps_zeros,
    may_fail,
    needs_spark,
    not_volatile,
    ordered,
    spark_name,
    text,
    translating,
    wider,
)
from acid_platform.engine.local.translation.expressions import Translator
from acid_platform.engine.local.translation.json_urls import json_part
from acid_platform.engine.local.translation.library import arguments_of
from acid_platform.engine.local.translation.query_clauses import (
    QueryBlock,
    direction,
    require_parts,
    sortable,
)
from acid_platform.engine.local.translation.signatures import SIGNATURES, add, called, row
from acid_platform.errors import InvalidExpression, NeedsSpark
from acid_platform.layout.types import HiveType, of_value

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.selects import Select

FRAMED = ("first", "first_value", "any_value", "last", "last_value", "nth_value")
"""Functions of windows alone that take a frame."""
OF_WHOLE_PARTITIONS = frozenset(
    ("listagg", "median", "mode", "percentile", "percentile_cont", "percentile_disc", "string_agg")
)
"""Aggregates that Spark refuses, some in some forms, in a window with an order or a frame."""


class Expressions(Translator):
    """The expressions of one clause: aggregates, windows and subqueries where they may stand.

    `nested`: whether the argument of an aggregate may have one, since it is the function of a
    window. `by_alias`: whether names are also those of the result. `queries`: which subqueries may
    stand here: `any`, in a `window` all but IN, or only `values` without columns of this query.
    """

    def __init__(
        self,
        select: Select,
        earlier: frozenset[str] = frozenset(),
        aggregates: bool | None = None,
        windows: bool = False,
        where: bool = False,
        by_alias: bool = False,
        nested: bool = False,
        queries: Literal["any", "window", "values"] = "any",
    ) -> None:
        super().__init__(select.relation.scope, select.queries.in_order)
        self.select, self.earlier, self.nested = select, earlier, nested
        self.aggregates = select.grouped if aggregates is None else aggregates
        self.windows, self.where, self.by_alias = windows, where, by_alias
        self.queries = queries
        self.filter = ""
        """The condition of the FILTER of an aggregate."""

    def value(self, node: exp.Expr) -> Typed:
        value = self._value(node)
        return self.select.as_grouped(value) if self.aggregates else value

    def _value(self, node: exp.Expr) -> Typed:
        match node:
            case exp.Window():
                return self._window(node)
            case exp.Filter():
                condition = self._inside().condition(node.expression.this)
                if node.find(exp.Distinct):
                    raise NeedsSpark(node.sql("spark"))
                call = Expressions(self.select, aggregates=self.aggregates)
                call.filter = condition.sql
                return call.call(node.this, f" FILTER (WHERE {condition.sql})")
            case exp.Exists():
                return self._exists(node)
            case exp.Subquery():
                return self._scalar(node)
            case exp.Grouping() | exp.GroupingId():
                return self._grouping(node)
        return super().value(node)

    def resolve(self, parts: Sequence[str]) -> Typed:
        alias = self.select.by_alias(parts[0]) if self.by_alias and len(parts) == 1 else None
        if alias is not None:
            return self._aliased(parts[0], alias)
        column = self.scope.find(parts)
        if column is not None:
            return column
        outer = self.select.outer
        if outer is not None and (above := outer.scope.find(parts)) is not None:
            if not self.where:
                raise NeedsSpark("a column of the outer query outside of WHERE")
            self.select.correlated = True
            return outer.select.as_grouped(above) if outer.aggregates else above
        if parts[0].lower() in self.earlier:
            raise NeedsSpark(f"{parts[0]}, which names an earlier column of the same SELECT")
        return super().resolve(parts)

    def _aliased(self, name: str, alias: exp.Expr) -> Typed:
        """The value that SELECT calls `name`, unless that also names another column.

        Spark takes the one in ORDER BY, the other in HAVING, and neither inside of an aggregate.
        """
        value = Expressions(self.select, aggregates=self.aggregates, windows=True).value(alias)
        try:
            column = self.scope.find([name])
        except InvalidExpression as error:
            raise NeedsSpark(str(error)) from error
        if column is not None and self.select.as_grouped(column).sql != value.sql:
            raise NeedsSpark(f"{name}, which names a column and another value of SELECT")
        if column is None and self.select.grouped and not self.aggregates:
            raise NeedsSpark(f"{name}, a value of SELECT, in an aggregate")
        return value

    def require_aggregates(self, name: str) -> None:
        if not self.aggregates:
            raise NeedsSpark(f"{name} here")

    def argument(self, node: exp.Expr, aggregate: bool) -> Typed:
        if not aggregate:
            return super().argument(node, aggregate)
        value = self._inside().value(node)
        if self.filter and may_fail(value.sql):  # DuckDB computes it of the other rows, too
            return replace(value, sql=f"(CASE WHEN {self.filter} THEN {value.sql} END)")
        return value

    def _inside(self) -> Expressions:
        """For the arguments of an aggregate."""
        by_alias = self.by_alias and self.queries == "values"  # in ORDER BY, not in HAVING
        return Expressions(
            self.select, aggregates=self.nested, by_alias=by_alias, queries=self.queries
        )

    # --- windows -------------------------------------------------------------------------------

    def _window(self, node: exp.Window) -> Typed:
        translating().varying += 1
        if not self.windows:
            raise NeedsSpark("a window function here")
        node = self._named(node)
        require_parts(node)
        name = node.this.sql("spark").partition("(")[0].strip().lower()
        if name in OF_WHOLE_PARTITIONS and (node.args.get("order") or node.args.get("spec")):
            raise NeedsSpark(f"{name} over an ordered window")
        grouped = self.select.grouped
        plain = Expressions(self.select, aggregates=grouped, queries="window")
        over = self._over(node, plain)
        value = _of_window(node, over, plain)
        if value is not None:
            return value
        if node.this.find(exp.Distinct):
            raise NeedsSpark(node.sql("spark"))
        function = Expressions(self.select, aggregates=True, nested=grouped, queries="window")
        value = function.call(node.this, over)
        if node.args.get("order") and isinstance(node.this, exp.Min | exp.Max):
            return _first_zero(node, value)
        return value

    def _named(self, node: exp.Window) -> exp.Window:
        """The window with the parts of the one that it names, of the clause WINDOW."""
        alias = node.args.get("alias")
        if alias is None:
            return node
        named = [
            window
            for window in self.select.node.args.get("windows") or ()
            if window.this.name.lower() == alias.name.lower()
        ]
        if len(named) != 1 or any(named[0].args.get(part) for part in ("alias", "over")):
            raise NeedsSpark(f"the window {alias.name}")
        if any(node.args.get(part) for part in ("partition_by", "order", "spec")):
            raise NeedsSpark(f"the window {alias.name} with more clauses")
        return exp.Window(**{**named[0].copy().args, "this": node.this.copy()})

    def _over(self, node: exp.Window, plain: Expressions) -> str:
        """DuckDB's OVER clause. Raises NeedsSpark for frames that are not known to be equal."""
        parts = []
        if keys := node.args.get("partition_by"):
            values = [plain.value(key) for key in keys]
            if any(kind.kind == "map" for value in values for kind in value.type.walk()):
                raise NeedsSpark("PARTITION BY of a map")
            _require_digits(values)
            parts.append(f"PARTITION BY {', '.join(not_volatile(value.sql) for value in values)}")
        if order := node.args.get("order"):
            if any(isinstance(term.this.unnest(), exp.Literal) for term in order.expressions):
                raise NeedsSpark(f"a window with {order.sql('spark').strip()}")
            values = [plain.value(by.this) for by in order.expressions]
            _require_digits(values)
            terms = (
                not_volatile(sortable(value)) + direction(by)
                for value, by in zip(values, order.expressions, strict=True)
            )
            parts.append(f"ORDER BY {', '.join(terms)}")
        if spec := node.args.get("spec"):
            require_parts(spec)
            bounds = [spec.args[end] for end in ("start", "end") if spec.args.get(end) is not None]
            kind = spec.args["kind"].upper()
            if (
                kind not in ("ROWS", "RANGE")
                or not all(
                    isinstance(bound, str)
                    or (kind == "ROWS" and isinstance(bound, exp.Literal) and bound.this.isdigit())
                    for bound in bounds
                )
                or not _is_frame(spec, bool(order))
            ):
                raise NeedsSpark(f"the window frame {spec.sql('spark')}")
            parts.append(spec.sql("duckdb"))
        return f" OVER ({' '.join(parts)})"

    # --- subqueries ----------------------------------------------------------------------------

    def _subquery(self, node: exp.Expr, shown: str, form: str) -> QueryBlock:
        """A subquery; `form` is the one in which it may name columns of this query."""
        translating().varying += 1
        if isinstance(node, exp.Subquery) and not node.alias:
            require_parts(node)
        queries = self.select.queries
        block = queries.query(node, self.select.ctes, self, named=False)
        if block.correlated and block.form != form:
            raise NeedsSpark(f"{shown} with columns of the query around it that is more than WHERE")
        return block

    def in_query(self, node: exp.In) -> Typed:
        value = self.value(node.this)
        inner = node.args["query"]
        if isinstance(inner.this, exp.Subquery):
            raise NeedsSpark("IN with a subquery in two parentheses, which is one value")
        if self.queries in ("values", "window"):
            raise NeedsSpark("IN with a subquery here")
        block = self._subquery(inner, "IN with a subquery", "plain")
        if len(block.columns) != 1:
            raise NeedsSpark("IN with a subquery of several columns")
        kind = block.columns[0][1]
        common = wider(value.type, of_value(kind))
        if common is None or not ordered(common):
            raise NeedsSpark(f"{spark_name(value.type)} IN a subquery of {kind}")
        if common != of_value(kind):
            if block.correlated:
                raise NeedsSpark(f"{spark_name(value.type)} IN a correlated subquery of {kind}")
            member = cast(Typed("q.c0", of_value(kind)), common)
            block = replace(block, sql=f"SELECT {member.sql} AS c0 FROM ({block.sql}) AS q")
        value = cast(value, common)
        if block.correlated and "error(" in block.sql:  # DuckDB then takes false for unknown
            raise NeedsSpark(
                "IN with a subquery that may fail, with columns of the query around it"
            )
        return Typed(f"({value.sql} IN ({block.sql}))", BOOLEAN)

    def _exists(self, node: exp.Exists) -> Typed:
        if self.queries == "values":
            raise NeedsSpark("EXISTS here")
        block = self._subquery(node.this, "EXISTS", "plain")
        if block.correlated and self.aggregates and self.select.set_keys:  # Spark fails inside
            raise NeedsSpark("EXISTS with columns of the query around it beside ROLLUP or the like")
        return Typed(f"EXISTS ({block.sql})", BOOLEAN)

    def _scalar(self, node: exp.Subquery) -> Typed:
        block = self._subquery(node, "a scalar subquery", "one row")
        of_group = self.aggregates and not self.by_alias  # by_alias: in HAVING it may be
        if block.correlated and (of_group or self.queries == "values"):
            raise NeedsSpark("a scalar subquery here with columns of the query around it")
        kind = block.columns[0][1]
        if len(block.columns) != 1 or kind != of_value(kind) or not keeps_zeros(kind):
            raise NeedsSpark(f"a scalar subquery of {kind}, or of several columns")
        return typed_as(f"({block.sql})", kind)

    def _grouping(self, node: exp.Grouping | exp.GroupingId) -> Typed:
        """Which keys the set of a row lacks: 1 for such a key, or a bit for each."""
        translating().varying += 1
        keys = self.select.set_keys
        given = tuple(self.value(key).sql for key in node.expressions)
        kind = TINYINT if isinstance(node, exp.Grouping) else BIGINT
        right = given in [(key,) for key in keys] if kind == TINYINT else given in ((), keys)
        if not keys or not self.aggregates or not right:
            raise NeedsSpark(node.sql("spark"))
        call = f"grouping({', '.join(given or keys)})"
        return typed_as(f"{call}", kind)


def _require_digits(keys: Sequence[Typed]) -> None:
    """Raises NeedsSpark for a decimal that may be a constant: where it sorts rows by one of more
    than 18 digits, Spark cuts it, and computes with what is left."""
    for key in keys:
        if key.foldable and key.type.kind == "decimal" and key.type.sizes[0] > 18:
            raise NeedsSpark("a window by a constant decimal of more than 18 digits")


def _is_frame(spec: exp.WindowSpec, ordered: bool) -> bool:
    """Whether Spark takes the frame: one of RANGE has an order, or all rows; it begins first."""
    start, end = spec.args.get("start"), spec.args.get("end")
    if spec.args["kind"].upper() == "RANGE":
        return ordered or start == end == "UNBOUNDED"
    sides = {spec.args.get("start_side"), spec.args.get("end_side")}
    bounds = [int(bound.this) for bound in (start, end) if isinstance(bound, exp.Literal)]
    if any(bound >= 1 << 31 for bound in bounds):
        return False
    if len(bounds) < 2 or len(sides) > 1:
        return True
    return bounds[0] >= bounds[1] if sides == {"PRECEDING"} else bounds[0] <= bounds[1]


def _of_window(window: exp.Window, over: str, plain: Expressions) -> Typed | None:
    """`row_number()`, `lag` and the like; None for what is an aggregate elsewhere."""
    call, nulls = arguments_of(window.this), ""
    if isinstance(window.this, exp.IgnoreNulls | exp.RespectNulls):
        nulls = " IGNORE NULLS" if isinstance(window.this, exp.IgnoreNulls) else ""
        call = arguments_of(window.this.this) or (call and (call[0], call[1][:1]))
    if call is None or f"over {call[0]}" not in SIGNATURES:
        return None
    if not window.args.get("order") or (window.args.get("spec") and call[0] not in FRAMED):
        raise NeedsSpark(f"{call[0]} without ORDER BY, or with a frame")
    value = called(f"over {call[0]}", *map(plain.value, call[1]), over=over)
    if nulls and "{nulls}" not in value.sql:
        raise NeedsSpark(window.sql("spark"))
    return replace(value, sql=value.sql.replace("{nulls}", nulls))


def _first_zero(window: exp.Window, value: Typed) -> Typed:
    """`min` or `max`: of 0.0 and -0.0, which are equal, Spark keeps the first and DuckDB either."""
    if not any(kind.kind in ("float", "double") for kind in value.type.walk()):
        return value
    if value.type.kind not in ("float", "double"):
        raise NeedsSpark(window.sql("spark"))
    failure = needs_spark("which of the equal zeros is the first of a window")
    return replace(value, sql=f"(CASE WHEN {value.sql} = 0 THEN {failure} ELSE {value.sql} END)")


_PARAMETERS = ("collection", "input")
"""What Spark calls the one argument, where it is given by name."""
Columns = Sequence[tuple[str, HiveType]]


def generator_name(node: exp.Expr) -> str | None:
    """The row of the table with the call, if it makes rows."""
    name = f"rows of {(arguments_of(node) or ('',))[0]}"
    return name if name in SIGNATURES else None


def generated(translator: Translator, node: exp.Expr, outer: bool = False) -> Typed:
    """The rows of such a call; `outer`: at least one, of NULLs. Raises NeedsSpark."""
    call, parts = arguments_of(node) or ("", ())
    if len(parts) == 1 and isinstance(parts[0], exp.Kwarg) and parts[0].name.lower() in _PARAMETERS:
        parts = (parts[0].expression,)
    if outer and not call.endswith("_outer"):
        call += "_outer"
    if f"rows of {call}" not in SIGNATURES:
        raise NeedsSpark(f"LATERAL VIEW {'OUTER ' * outer}{node.sql('spark')}")
    return called(f"rows of {call}", *map(translator.value, parts))


def _rows(sql: str, columns: Columns) -> Typed:
    row_type = HiveType("struct", (), tuple(columns))
    return Typed(sql, HiveType("array", (), (("element", row_type),)))


def _struct(cells: Sequence[str]) -> str:
    return (
        f"struct_pack({', '.join(f'f{position} := {cell}' for position, cell in enumerate(cells))})"
    )


def _exploded(value: Typed, name: str) -> Typed:
    outer, numbered = name.endswith("_outer"), name.startswith("pos")
    fields = _fields(name, value)
    columns = [("pos", INT)] * numbered + [(column, kind) for column, kind, _ in fields]
    made = ["CAST(i - 1 AS INTEGER)"] * numbered + [sql for _, _, sql in fields]
    cells = (
        f"CAST({sql} AS {duckdb_type(kind)})" for sql, (_, kind) in zip(made, columns, strict=True)
    )
    entries = f"map_entries({value.sql})" if value.type.kind == "map" else value.sql
    rows = f"list_transform({entries}, lambda e, i: {_struct([*cells])})"
    if outer:
        empty = f"{value.sql} IS NULL OR len({entries}) = 0"
        rows = f"CASE WHEN {empty} THEN [NULL] ELSE {rows} END"
    return _rows(rows, columns)


def _fields(name: str, value: Typed) -> list[tuple[str, HiveType, str]]:
    """The columns of a row: their names, types and DuckDB's SQL of them, of an element `e`."""
    kind = value.type
    if kind.kind == "map" and not name.startswith("inline"):
        return [(part, child, f"struct_extract(e, '{part}')") for part, child in kind.children]
    if kind.kind == "array":
        element = kind.children[0][1]
        if not name.startswith("inline"):
            return [("col", element, "e")]
        if element.kind == "struct" and not translating().told_fields:
            return [
                (field, child, f"struct_extract(e, {text(field)})")
                for field, child in element.children
            ]
    raise NeedsSpark(f"{name} of {spark_name(kind)}")


for _name in ("explode", "posexplode", "inline"):
    for _end in ("", "_outer"):
        add(f"rows of {_name}{_end}(nested)", "", partial(_exploded, name=_name + _end))


@row("rows of stack(digits, any, any*)")
def _stacked(count: Typed, *values: Typed) -> Typed:
    rows = count.literal
    if not isinstance(rows, int) or not 0 < rows <= len(values):
        raise NeedsSpark(f"stack of {rows} rows")
    width = -(-len(values) // rows)
    sides = (in_one_type(values[position::width], "stack") for position in range(width))
    columns = [(f"col{position}", side[0].type) for position, side in enumerate(sides)]
    for _, kind in columns:
        array_of(kind)  # which has a type
    missing = [Typed("NULL", VOID)] * (rows * width - len(values))
    cells = [
        cast(value, columns[position % width][1]).sql
        for position, value in enumerate((*values, *missing))
    ]
    made = (_struct(cells[start : start + width]) for start in range(0, len(cells), width))
    return _rows(f"[{', '.join(made)}]", columns)


@row("rows of json_tuple(text, word, word*)")
def _json_fields(value: Typed, *given: Typed) -> Typed:
    names = [str(name.literal) for name in given]
    if not all(re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) for name in names):
        raise NeedsSpark(f"json_tuple of {', '.join(names)}")
    cells = [json_part(value.sql, text(f"$.{name}")) for name in names]
    return _rows(
        f"[{_struct(cells)}]", [(f"c{position}", STRING) for position in range(len(names))]
    )
