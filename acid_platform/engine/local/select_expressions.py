"""The expressions of a SELECT: aggregates, windows and subqueries where they may stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local import windows
from acid_platform.engine.local.casts import Typed
from acid_platform.engine.local.clauses import window_term
from acid_platform.engine.local.duckdb_types import BOOLEAN, duckdb_type, of_value, spark_name
from acid_platform.engine.local.expressions import Translator, ordered
from acid_platform.engine.local.functions import AGGREGATES, Function
from acid_platform.errors import NeedsSpark

if TYPE_CHECKING:
    from acid_platform.engine.local.queries import Select


class Expressions(Translator):
    """The expressions of one clause: aggregates, windows and subqueries where they may stand."""

    def __init__(
        self,
        select: Select,
        known: frozenset[str] = frozenset(),
        aggregates: bool | None = None,
        windows: bool = False,
        where: bool = False,
        by_alias: bool = False,
    ) -> None:
        super().__init__(select.relation.scope)
        self.select, self.known = select, known
        self.aggregates = select.grouped if aggregates is None else aggregates
        self.windows, self.where, self.by_alias = windows, where, by_alias

    def value(self, node: exp.Expr) -> Typed:
        match node:
            case exp.Window():
                return self._window(node)
            case exp.Filter():
                condition = self._inside().condition(node.expression.this)
                if condition.fails or node.find(exp.Distinct):
                    raise NeedsSpark(node.sql("spark"))
                done = self._call(node.this, f" FILTER (WHERE {condition.sql})")
                if done.fails:  # DuckDB computes the arguments of the other rows, too
                    raise NeedsSpark(f"{node.sql('spark')}, which may fail for some rows")
                return done
            case exp.Exists() if self.where:
                return self._exists(node)
            case exp.Subquery():
                return self._scalar(node)
        return super().value(node)

    def resolve(self, parts: Sequence[str]) -> Typed:
        outer = self.select.outer
        alias = self.select.by_alias(parts[0]) if self.by_alias and len(parts) == 1 else None
        found = self.scope.find(parts)
        if alias is not None and not (isinstance(alias, exp.Column) and found is not None):
            if found is not None:
                raise NeedsSpark(f"{parts[0]}, which names a column and an expression")
            return Expressions(self.select, aggregates=self.aggregates).value(alias)
        if found is not None:
            return found
        if outer is not None and (above := outer.find(parts)) is not None:
            if not self.where:
                raise NeedsSpark("a column of the outer query outside of WHERE")
            return above
        if parts[0].lower() in self.known:
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
        over = windows.over(node, plain.value, lambda term: window_term(term, plain))
        done = windows.ranked(node.this, node, over) or windows.shifted(
            node.this, node, over, plain.value
        )
        if done is not None:
            return done
        if node.this.find(exp.Distinct):
            raise NeedsSpark(node.sql("spark"))
        return Expressions(self.select, aggregates=True)._call(node.this, over)

    def in_query(self, node: exp.In) -> Typed:
        if not self.where:
            raise NeedsSpark("IN with a subquery outside of WHERE")
        value = self.value(node.this)
        block = self.select.queries.query(node.args["query"], self.select.ctes)
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
        block = self.select.queries.query(inner, self.select.ctes, self.scope)
        if block.fails or block.one_row:
            raise NeedsSpark("EXISTS with a subquery that may fail, or that aggregates")
        return Typed(f"EXISTS ({block.sql})", BOOLEAN)

    def _scalar(self, node: exp.Subquery) -> Typed:
        block = self.select.queries.query(node, self.select.ctes)
        if len(block.columns) != 1 or not block.one_row or block.fails:
            raise NeedsSpark("a scalar subquery that is no plain aggregate")
        kind = of_value(block.columns[0][1])
        return Typed(f"CAST(({block.sql}) AS {duckdb_type(kind)})", kind)
