"""The clauses of a query that pass through, what they are made of, and the blocks that result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed
from acid_platform.engine.local.translation.column_names import NameScope, ScopeColumn
from acid_platform.engine.local.translation.duckdb_sql import ordered, spark_name
from acid_platform.engine.local.translation.library import is_aggregate
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType
from acid_platform.predicates.grammar import SIGNED


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """A translated query: DuckDB's SQL with the columns c0, c1, ... and their names in Spark."""

    sql: str
    columns: tuple[tuple[str, HiveType], ...]
    foldable: frozenset[int] = frozenset()
    """The positions of columns that Spark's optimizer may find constant."""
    correlated: bool = False
    """Whether its WHERE names a column of the query around it."""
    form: str = ""
    """`one row` for an aggregate without GROUP BY, HAVING and LIMIT, `plain` for a SELECT that has
    nothing but FROM and WHERE."""
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


_SETS: dict[str, type[exp.Expr]] = {
    "rollup": exp.Rollup,
    "cube": exp.Cube,
    "grouping_sets": exp.GroupingSets,
}
"""By the name of the part of a GROUP BY that has it behind its keys."""
_MOST_OF_CUBE = 12
_OPERATION = {"this", "expression", "distinct", "order", "limit", "offset", "with_"}
_PARTS: dict[type[exp.Expr], set[str]] = {
    exp.Select: {"expressions", "from_", "joins", "where", "group", "having", "distinct", "order",
                 "sort", "cluster", "distribute", "limit", "offset", "with_", "windows",
                 "hint", "qualify", "laterals"},
    exp.Union: _OPERATION,
    exp.Intersect: _OPERATION,
    exp.Except: _OPERATION,
    exp.Subquery: {"this", "alias"},
    exp.Table: {"this", "alias"},
    exp.Values: {"expressions", "alias"},
    exp.Group: {"expressions", "all", *_SETS},
    exp.Lateral: {"this", "view", "outer", "alias"},
    exp.Distinct: set(),
    exp.With: {"expressions"},
    exp.CTE: {"this", "alias"},
    exp.Window: {"this", "partition_by", "order", "spec", "over", "alias"},
    exp.WindowSpec: {"kind", "start", "start_side", "end", "end_side"},
}  # fmt: skip
"""The clauses that are translated; any other needs Spark. A hint says how, and not what."""


def require_parts(node: exp.Expr) -> None:
    """Raises NeedsSpark if the query has a clause that is not translated."""
    allowed = _PARTS.get(type(node))
    for part, value in node.args.items():
        if value and (allowed is None or part not in allowed):
            raise NeedsSpark(f"{part.strip('_').upper()} of {type(node).__name__.upper()}")


def order_of(node: exp.Expr) -> list[exp.Ordered]:
    """The order of ORDER BY, or of SORT BY and CLUSTER BY, which demand less than a total one."""
    clauses = [node.args[name] for name in ("order", "sort", "cluster") if node.args.get(name)]
    if not clauses:
        return []
    (order, *others), total = clauses, node.args.get("order") is not None
    if others or (node.args.get("distribute") and not node.args.get("sort")):
        raise NeedsSpark(f"{order.sql('spark').strip()} beside another order")
    terms = [
        term if isinstance(term, exp.Ordered) else exp.Ordered(this=term.copy(), nulls_first=True)
        for term in order.expressions
    ]
    if any(
        term.args.get("with_fill") or (isinstance(term.this.unnest(), exp.Literal) and not total)
        for term in terms
    ):
        raise NeedsSpark(order.sql("spark").strip())
    return terms


def order_by_positions(node: exp.Expr, names: Sequence[str]) -> list[exp.Ordered]:
    """The terms of ORDER BY over a result with these columns; those of ALL are positions.

    Raises NeedsSpark for ALL beside another term, or beside a column of that name.
    """
    terms = order_of(node)
    if not any(isinstance(term.this, exp.Var) for term in terms):
        return terms
    [term, *others] = terms
    if others or "all" in map(str.lower, names):
        raise NeedsSpark("ORDER BY ALL beside another term or a column of that name")
    positions = range(1, len(names) + 1)
    return [exp.Ordered(**{**term.args, "this": exp.Literal.number(n)}) for n in positions]


def ordinal(node: exp.Expr, count: int) -> int | None:
    """The position that a literal number means in GROUP BY and ORDER BY, also in parentheses."""
    number = node.unnest()
    signed = isinstance(number, exp.Neg) and isinstance(number.this, exp.Literal)
    if not isinstance(number, exp.Literal) and not signed:
        return None
    if (
        signed
        or SIGNED in number.meta
        or number.is_string
        or not number.this.isdigit()
        or not 1 <= int(number.this) <= count
    ):
        raise NeedsSpark(f"the position {node.sql('spark')}")
    return int(number.this)


def sortable(value: Typed) -> str:
    if not ordered(value.type):
        raise NeedsSpark(f"grouping or sorting by {spark_name(value.type)}")
    return value.sql


def keeps_zeros(query: exp.Expr) -> bool:
    """Whether a key of -0.0 may stay as it is in Spark, in the query that this belongs to.

    Spark does not group a single row, nor rows of which LIMIT 1 takes one, nor again the rows that
    another GROUP BY or DISTINCT made.
    """
    parts = [*query.root().walk()]
    return sum(map(_groups, parts)) > 1 or any(
        (isinstance(part, exp.Limit) and part.expression == exp.Literal.number(1))
        or (isinstance(part, exp.Values) and len(part.expressions) == 1)
        or (isinstance(part, exp.Table) and isinstance(part.this, exp.Anonymous))
        or (
            isinstance(part, exp.Select)
            and not _has_keys(part)
            and (
                part.args.get("from_") is None
                or any(map(aggregated, (*part.expressions, part.args.get("having"))))
            )
        )
        for part in parts
    )


def _groups(part: exp.Expr) -> bool:
    """Whether it is a GROUP BY, or the DISTINCT of a SELECT or of a set operation."""
    if isinstance(part, exp.Distinct):
        return isinstance(part.parent, exp.Select)
    return isinstance(part, exp.Group) or (
        isinstance(part, exp.SetOperation) and bool(part.args.get("distinct"))
    )


def _has_keys(select: exp.Select) -> bool:
    """Whether it has a GROUP BY of something: ALL may be nothing."""
    group = select.args.get("group")
    if group is None or not group.args.get("all"):
        return group is not None
    return not all(map(aggregated, select.expressions))


def direction(term: exp.Ordered) -> str:
    way = "DESC" if term.args.get("desc") else "ASC"
    return f" {way} NULLS {'FIRST' if term.args.get('nulls_first') else 'LAST'}"


def limit_of(node: exp.Expr) -> str:
    """LIMIT and OFFSET, which must be literals."""
    sql = ""
    for part in ("limit", "offset"):
        clause = node.args.get(part)
        if clause is None:
            continue
        number = clause.expression
        if not (isinstance(number, exp.Literal) and number.this.isdigit()):
            raise NeedsSpark(clause.sql("spark"))
        sql += f" {part.upper()} {number.this}"
    return sql


def grouping_sets(group: exp.Group) -> list[list[exp.Expr]] | None:
    """The keys of each set, all keys in their order before them; None for a plain GROUP BY.

    Raises NeedsSpark for several of ROLLUP, CUBE and GROUPING SETS, or for one beside other keys.
    """
    words = tuple(_SETS.values())
    before: list[exp.Expr] = [node for node in group.expressions if isinstance(node, words)]
    behind: list[exp.Expr] = [node for word in _SETS for node in group.args.get(word) or ()]
    if not before and not behind:
        return None
    if len(before + behind) > 1 or (before and len(group.expressions) > 1):
        raise NeedsSpark(f"{group.sql('spark').strip()} of several parts")
    [word] = before + behind
    given = [
        [*part.unnest().expressions] if isinstance(part.unnest(), exp.Tuple) else [part.unnest()]
        for part in word.expressions or group.expressions
    ]
    keys = group.expressions if behind and word.expressions else [*chain(*given)]
    counts = range(len(given), -1, -1)
    if isinstance(word, exp.Rollup):
        given = [[*chain(*given[:count])] for count in counts]
    elif isinstance(word, exp.Cube):
        if len(given) > _MOST_OF_CUBE:
            raise NeedsSpark(f"CUBE of {len(given)} keys, each more of which doubles its groups")
        given = [[*chain(*some)] for count in counts for some in combinations(given, count)]
    return [keys, *given]


def aggregated(node: exp.Expr | ScopeColumn | None) -> bool:
    """Whether an expression has an aggregate that is not inside of a subquery, or one that is the
    function of a window."""
    if not isinstance(node, exp.Expr) or isinstance(node, exp.Query):
        return False
    if isinstance(node, exp.Window):
        parts = [*node.this.iter_expressions(), *(v for k, v in node.args.items() if k != "this")]
        inner = chain.from_iterable(part if isinstance(part, list) else [part] for part in parts)
        return any(aggregated(part) for part in inner)
    if isinstance(node, exp.AggFunc) or is_aggregate(node):
        return True
    return any(map(aggregated, node.iter_expressions()))
