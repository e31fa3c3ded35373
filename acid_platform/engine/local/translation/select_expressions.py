"""The expressions of a SELECT: aggregates, windows and subqueries where they may stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_types import (
    BIGINT,
    BOOLEAN,
    INT,
    TINYINT,
    duckdb_type,
    ordered,
    spark_name,
    wider,
)
from acid_platform.engine.local.translation.expressions import Translator
from acid_platform.engine.local.translation.functions import AGGREGATES, Function
from acid_platform.engine.local.translation.scope import direction, sortable
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import of_value

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.select_clauses import Select

RANKS: dict[type[exp.Expr], str] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
}
SHIFTS: dict[type[exp.Expr], str] = {exp.Lag: "lag", exp.Lead: "lead"}
ENDS: dict[type[exp.Expr], str] = {exp.FirstValue: "first_value", exp.LastValue: "last_value"}
_FRAME_PARTS = {"kind", "start", "start_side", "end", "end_side"}


class Expressions(Translator):
    """The expressions of one clause: aggregates, windows and subqueries where they may stand."""

    def __init__(
        self,
        select: Select,
        earlier: frozenset[str] = frozenset(),
        aggregates: bool | None = None,
        windows: bool = False,
        where: bool = False,
        by_alias: bool = False,
    ) -> None:
        super().__init__(select.relation.scope)
        self.select, self.earlier = select, earlier
        self.aggregates = select.grouped if aggregates is None else aggregates
        self.windows, self.where, self.by_alias = windows, where, by_alias

    def value(self, node: exp.Expr) -> Typed:
        value = self._value(node)
        return self.select.as_grouped(value) if self.aggregates else value

    def _value(self, node: exp.Expr) -> Typed:
        match node:
            case exp.Window():
                return self._window(node)
            case exp.Filter():
                condition = self._inside().condition(node.expression.this)
                if condition.fails or node.find(exp.Distinct):
                    raise NeedsSpark(node.sql("spark"))
                value = self._call(node.this, f" FILTER (WHERE {condition.sql})")
                if value.fails:  # DuckDB computes the arguments of the other rows, too
                    raise NeedsSpark(f"{node.sql('spark')}, which may fail for some rows")
                return value
            case exp.Exists() if self.where:
                return self._exists(node)
            case exp.Subquery():
                return self._scalar(node)
            case exp.Grouping() | exp.GroupingId():
                return self._grouping(node)
        return super().value(node)

    def resolve(self, parts: Sequence[str]) -> Typed:
        outer = self.select.outer
        alias = self.select.by_alias(parts[0]) if self.by_alias and len(parts) == 1 else None
        column = self.scope.find(parts)
        if alias is not None and not (isinstance(alias, exp.Column) and column is not None):
            if column is not None:
                raise NeedsSpark(f"{parts[0]}, which names a column and an expression")
            return Expressions(self.select, aggregates=self.aggregates).value(alias)
        if column is not None:
            return column
        if outer is not None and (above := outer.find(parts)) is not None:
            if not self.where:
                raise NeedsSpark("a column of the outer query outside of WHERE")
            return above
        if parts[0].lower() in self.earlier:
            raise NeedsSpark(f"{parts[0]}, which names an earlier column of the same SELECT")
        return super().resolve(parts)

    def require_aggregates(self, name: str) -> None:
        if not self.aggregates:
            raise NeedsSpark(f"{name} here")

    def argument(self, function: Function, node: exp.Expr) -> Typed:
        return (self._inside() if function in AGGREGATES else self).value(node)

    def _inside(self) -> Expressions:
        """For the arguments of an aggregate."""
        return Expressions(self.select, aggregates=False)

    def _window(self, node: exp.Window) -> Typed:
        if not self.windows:
            raise NeedsSpark("a window function here")
        plain = self._inside()
        over = _over(node, plain.value)
        value = _ranked(node.this, node, over) or _shifted(node.this, node, over, plain.value)
        if value is not None:
            return value
        if node.this.find(exp.Distinct):
            raise NeedsSpark(node.sql("spark"))
        return Expressions(self.select, aggregates=True)._call(node.this, over)

    def in_query(self, node: exp.In) -> Typed:
        if not (self.where or self.windows):
            raise NeedsSpark("IN with a subquery outside of WHERE and the columns of plain rows")
        value = self.value(node.this)
        inner = node.args["query"]
        if isinstance(inner.this, exp.Subquery):
            raise NeedsSpark("IN with a subquery in two parentheses, which is one value")
        block = self.select.queries.query(inner, self.select.ctes, self.scope, named=False)
        if len(block.columns) != 1:
            raise NeedsSpark("IN with a subquery of several columns")
        kind = block.columns[0][1]
        if of_value(kind) != value.type:
            raise NeedsSpark(f"{spark_name(value.type)} IN a subquery of {kind}")
        if value.fails or block.fails or not ordered(kind):
            raise NeedsSpark("IN with a subquery that may fail")
        return Typed(f"({value.sql} IN ({block.sql}))", BOOLEAN)

    def _exists(self, node: exp.Exists) -> Typed:
        inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        if not isinstance(inner, exp.Select) or any(
            inner.args.get(part) for part in ("group", "having", "limit", "offset", "distinct")
        ):
            raise NeedsSpark("EXISTS with more than a plain SELECT")
        block = self.select.queries.query(inner, self.select.ctes, self.scope, named=False)
        if block.fails or block.one_row:
            raise NeedsSpark("EXISTS with a subquery that may fail, or that aggregates")
        return Typed(f"EXISTS ({block.sql})", BOOLEAN)

    def _grouping(self, node: exp.Grouping | exp.GroupingId) -> Typed:
        """Which keys the set of a row lacks: 1 for such a key, or a bit for each."""
        keys = self.select.set_keys
        given = tuple(self.value(key).sql for key in node.expressions)
        kind = TINYINT if isinstance(node, exp.Grouping) else BIGINT
        right = given in [(key,) for key in keys] if kind == TINYINT else given in ((), keys)
        if not keys or not self.aggregates or not right:
            raise NeedsSpark(node.sql("spark"))
        call = f"grouping({', '.join(given or keys)})"
        return Typed(f"CAST({call} AS {duckdb_type(kind)})", kind)

    def _scalar(self, node: exp.Subquery) -> Typed:
        block = self.select.queries.query(node, self.select.ctes, named=False)
        if len(block.columns) != 1 or not block.one_row or block.fails:
            raise NeedsSpark("a scalar subquery that is no plain aggregate")
        kind = of_value(block.columns[0][1])
        return Typed(f"CAST(({block.sql}) AS {duckdb_type(kind)})", kind)


# --- windows --------------------------------------------------------------------------------------


def _over(node: exp.Window, value: Callable[[exp.Expr], Typed]) -> str:
    """DuckDB's OVER clause. Raises NeedsSpark for frames that are not known to be equal."""
    for name, part in node.args.items():
        if part and name not in ("this", "partition_by", "order", "spec", "over"):
            raise NeedsSpark(f"{name.upper()} of a window")
    parts = []
    if keys := node.args.get("partition_by"):
        values = [value(key) for key in keys]
        if any(value.fails for value in values):
            raise NeedsSpark("PARTITION BY of an expression that may fail")
        parts.append(f"PARTITION BY {', '.join(value.sql for value in values)}")
    if order := node.args.get("order"):
        terms = []
        for term in order.expressions:
            key = value(term.this)
            if key.fails or isinstance(term.this, exp.Literal):
                raise NeedsSpark(f"a window ordered by {term.this.sql('spark')}")
            terms.append(sortable(key) + direction(term))
        parts.append(f"ORDER BY {', '.join(terms)}")
    if spec := node.args.get("spec"):
        parts.append(_frame(spec))
    return f" OVER ({' '.join(parts)})"


def _frame(spec: exp.WindowSpec) -> str:
    kind = str(spec.args.get("kind", "")).upper()
    bounds = [_bound(spec, "start", kind)]
    if spec.args.get("end") is not None:
        bounds.append(_bound(spec, "end", kind))
    parts = {name for name, part in spec.args.items() if part}
    if kind not in ("ROWS", "RANGE") or not parts <= _FRAME_PARTS:
        raise NeedsSpark(f"the window frame {spec.sql('spark')}")
    return f"{kind} BETWEEN {bounds[0]} AND {bounds[1] if bounds[1:] else 'CURRENT ROW'}"


def _bound(spec: exp.WindowSpec, name: str, kind: str) -> str:
    bound, side = spec.args.get(name), str(spec.args.get(f"{name}_side") or "").upper()
    if isinstance(bound, str):
        return f"{bound} {side}".strip().upper()
    if kind == "ROWS" and isinstance(bound, exp.Literal) and bound.this.isdigit():
        return f"{bound.this} {side}"
    raise NeedsSpark(f"the window frame {spec.sql('spark')}")


def _ranked(node: exp.Expr, window: exp.Window, clause: str) -> Typed | None:
    """`row_number()` and the like, which Spark returns as int; None for other functions."""
    if type(node) not in RANKS:
        return None
    if node.args.get("this") or node.expressions or window.args.get("spec"):
        raise NeedsSpark(window.sql("spark"))
    _require_order(window)
    return Typed(f"CAST({RANKS[type(node)]}(){clause} AS INTEGER)", INT)


def _shifted(
    node: exp.Expr, window: exp.Window, clause: str, value: Callable[[exp.Expr], Typed]
) -> Typed | None:
    """`lag`, `lead`, `first_value` and `last_value`; None for other functions."""
    name = {**SHIFTS, **ENDS}.get(type(node))
    if name is None:
        return None
    _require_order(window)
    if not {part for part, set_to in node.args.items() if set_to} <= {"this", "offset", "default"}:
        raise NeedsSpark(window.sql("spark"))
    column = value(node.this)
    if column.fails:
        raise NeedsSpark(f"{name} of an expression that may fail")
    arguments = [column.sql]
    if type(node) in SHIFTS:
        if window.args.get("spec"):
            raise NeedsSpark(f"{name} with a frame")
        offset = node.args.get("offset")
        if offset is not None:
            if not (isinstance(offset, exp.Literal) and offset.this.isdigit()):
                raise NeedsSpark(f"{name} by anything but a literal")
            arguments.append(offset.this)
        if node.args.get("default") is not None:
            default = value(node.args["default"])
            if wider(column.type, default.type) != column.type:
                raise NeedsSpark(f"{name} with a default of another type")
            arguments.append(cast(default, column.type).sql)
    call = f"{name}({', '.join(arguments)}){clause}"
    return Typed(f"CAST({call} AS {duckdb_type(column.type)})", column.type)


def _require_order(window: exp.Window) -> None:
    if not window.args.get("order"):
        raise NeedsSpark("a window function without ORDER BY")
