"""What a query needs of each table: its columns, and the conditions to push down to its scan.

Pushed conditions also stay in the query, so only deterministic ones are pushed: comparisons of the
table's own columns with literals. They never pass an outer join to the side that it fills with
NULL, and they enter a subquery only through plain columns. Anything that is not understood is not
pushed, which costs time but never changes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from acid_platform.predicates.analysis import conjuncts
from acid_platform.sql.scopes import cte_of, members

ColumnsByTable = Mapping[int, Collection[str]]
"""Columns of the stored tables, by the `id` of the table's node."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_ROWS_MATTER = ("group", "having", "distinct", "limit", "offset", "qualify", "windows", "match")
_VOLATILE = (exp.AggFunc, exp.Window, exp.Anonymous, exp.Rand, exp.Randn, exp.Uuid)


def needed_columns(tree: exp.Expr, table: exp.Table, columns: Collection[str]) -> list[str] | None:
    """The columns of the table that the query names anywhere; None: all columns."""
    select = table.find_ancestor(exp.Select)
    if (
        select is None
        or table.args.get("pivots")
        or any(join.method == "NATURAL" for join in tree.find_all(exp.Join))
    ):
        return None
    if any(call.name.lower() == "identifier" for call in tree.find_all(exp.Anonymous)):
        return None
    stars = (star for star in select.find_all(exp.Star) if not isinstance(star.parent, exp.Count))
    if any(stars):
        return None
    named = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    return [name for name in columns if name in named]


def conditions(tree: exp.Expr, columns_of: ColumnsByTable) -> dict[int, list[exp.Expr]]:
    """Conditions to push to each stored table, by the `id` of its node, over bare column names."""
    push = _PushDown(columns_of, _references(tree), {})
    for select in tree.find_all(exp.Select):
        push.select(select)
    return push.pushed


def bare_condition(condition: exp.Expr, table: exp.Table) -> exp.Expr | None:
    """The condition over bare column names, if it compares columns of this table with literals and
    with each other; None for any other."""
    if not _simple(condition):
        return None
    name = table.alias_or_name.lower()

    def bare(column: exp.Column) -> exp.Expr | None:
        foreign = column.args.get("db") or column.table.lower() not in ("", name)
        return None if foreign else exp.column(column.name, quoted=True)

    return _renamed(condition, bare)


def _references(tree: exp.Expr) -> dict[int, int]:
    """The number of references to each CTE, by its `id`."""
    counts: dict[int, int] = {}
    for table in tree.find_all(exp.Table):
        cte = cte_of(table)
        if cte is not None:
            counts[id(cte)] = counts.get(id(cte), 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class _PushDown:
    columns_of: ColumnsByTable
    references: Mapping[int, int]
    pushed: dict[int, list[exp.Expr]]

    def select(self, select: exp.Select) -> None:
        """Push each condition of a SELECT to the member of FROM whose columns it compares."""
        if select.find(exp.TableSample, exp.Pivot) is not None:
            return
        sides = list(members(select))
        for condition, allowed in _applied(select, sides):
            if _simple(condition):
                self._push(condition, sides, allowed)

    def _push(self, condition: exp.Expr, sides: list[exp.Expr], allowed: Collection[int]) -> None:
        owners = {self._owner(column, sides) for column in condition.find_all(exp.Column)}
        if len(owners) != 1:
            return
        (owner,) = owners
        if owner is None or owner not in allowed:
            return
        member = sides[owner]
        if id(member) in self.columns_of:
            bare = _renamed(condition, lambda column: exp.column(column.name, quoted=True))
            if bare is not None:
                self.pushed.setdefault(id(member), []).append(bare)
            return
        inner = self._inside(member)
        if inner is not None:
            translated = _renamed(condition, lambda column: _projected(inner, member, column))
            if translated is not None:
                below = list(members(inner))
                nested = any(member.args.get("joins") for member in below)
                self._push(translated, below, () if nested else _never_filled(inner, below))

    def _owner(self, column: exp.Column, sides: list[exp.Expr]) -> int | None:
        """The index of the member that a column belongs to; None if that is ambiguous."""
        if column.args.get("db"):
            return None
        name = column.name.lower()
        if column.table:
            named = [
                i
                for i, side in enumerate(sides)
                if side.alias_or_name.lower() == column.table.lower()
            ]
            return named[0] if len(named) == 1 and self._may_have(sides[named[0]], name) else None
        if len(sides) == 1:
            return 0 if self._may_have(sides[0], name) else None
        if not all(id(side) in self.columns_of for side in sides):
            return None
        having = [i for i, side in enumerate(sides) if name in self.columns_of[id(side)]]
        return having[0] if len(having) == 1 else None

    def _may_have(self, member: exp.Expr, name: str) -> bool:
        columns = self.columns_of.get(id(member))
        return columns is None or name in columns

    def _inside(self, member: exp.Expr) -> exp.Select | None:
        """The SELECT of a subquery, or of a CTE with one reference, if it passes rows unchanged."""
        inner: exp.Expr | None = None
        if isinstance(member, exp.Subquery) and not member.args.get("joins"):
            inner = member.this
        elif isinstance(member, exp.Table) and isinstance(member.this, exp.Identifier):
            cte = cte_of(member)
            if (
                cte is not None
                and self.references.get(id(cte)) == 1
                and not cte.args["alias"].columns
            ):
                inner = cte.this
        if not isinstance(inner, exp.Select) or any(
            inner.args.get(clause) for clause in _ROWS_MATTER
        ):
            return None
        if inner.find(exp.TableSample, exp.Pivot) or any(
            item.find(*_VOLATILE) for item in inner.expressions
        ):
            return None
        return inner


def _applied(
    select: exp.Select, sides: list[exp.Expr]
) -> Iterator[tuple[exp.Expr, Collection[int]]]:
    """Each condition of WHERE and ON, with the members to which it may be pushed."""
    if any(side.args.get("joins") for side in sides):  # joins in parentheses are not followed
        return
    where = select.args.get("where")
    for conjunct in conjuncts(where.this if where else None):
        yield conjunct, _never_filled(select, sides)
    filled: set[int] = set()
    for number, join in enumerate(select.args.get("joins") or (), start=_first_join(select)):
        side, kind = join.side.upper(), join.kind.upper()
        earlier = set(range(number))
        if side == "LEFT":
            allowed = {number}
        elif not side and kind in ("", "INNER", "CROSS"):
            allowed = (earlier | {number}) - filled
        else:
            allowed = set()
        for conjunct in conjuncts(join.args.get("on")):
            yield conjunct, allowed
        filled |= _filled_by(side, kind, number)


def _never_filled(select: exp.Select, sides: list[exp.Expr]) -> Collection[int]:
    """The members that no join fills with NULL, to which WHERE may be pushed."""
    filled: set[int] = set()
    for number, join in enumerate(select.args.get("joins") or (), start=_first_join(select)):
        filled |= _filled_by(join.side.upper(), join.kind.upper(), number)
    return set(range(len(sides))) - filled


def _filled_by(side: str, kind: str, number: int) -> set[int]:
    """The members whose rows a join may replace by NULL, or hide from WHERE."""
    if side == "LEFT":
        return {number}
    if not side and kind in ("", "INNER", "CROSS"):
        return set()
    return set(range(number + 1))


def _first_join(select: exp.Select) -> int:
    return 1 if select.args.get("from_") else 0


def _simple(node: exp.Expr) -> bool:
    match node:
        case exp.Paren() | exp.Not():
            return _simple(node.this)
        case exp.And() | exp.Or():
            return _simple(node.left) and _simple(node.right)
        case exp.In():
            return (
                bool(node.expressions)
                and not node.args.get("query")
                and all(_operand(operand) for operand in (node.this, *node.expressions))
            )
        case exp.Between():
            return all(
                _operand(operand) for operand in (node.this, node.args["low"], node.args["high"])
            )
        case exp.Is():
            return _operand(node.this) and isinstance(node.expression, exp.Null | exp.Boolean)
        case exp.Binary() if type(node) in _COMPARISONS:
            return _operand(node.left) and _operand(node.right)
    return False


def _operand(node: exp.Expr) -> bool:
    match node:
        case exp.Column():
            return isinstance(node.this, exp.Identifier)
        case exp.Literal():
            return not node.is_string or _means_itself(node.name)
        case exp.Null() | exp.Boolean():
            return True
        case exp.Neg() | exp.Cast():
            return isinstance(node.this, exp.Literal) and _operand(node.this)
    return False


def _means_itself(text: str) -> bool:
    """Whether a literal is the same text to every parser: nothing in it was or looks escaped."""
    return text.isprintable() and not set(text) & set("\\'\"$")


def _renamed(
    condition: exp.Expr, rename: Callable[[exp.Column], exp.Expr | None]
) -> exp.Expr | None:
    """A copy with each column replaced by `rename`; None if a column has no counterpart."""
    copy = exp.Paren(this=condition.copy())
    for column in list(copy.find_all(exp.Column)):
        other = rename(column)
        if other is None:
            return None
        column.replace(other)
    renamed: exp.Expr = copy.this
    return renamed


def _projected(inner: exp.Select, member: exp.Expr, column: exp.Column) -> exp.Expr | None:
    """The column inside a subquery for one of its result columns; None if it is not a column."""
    name = column.name.lower()
    items = inner.expressions
    alias = member.args.get("alias")
    if alias is not None and alias.columns:
        names = [column_name.name.lower() for column_name in alias.columns]
        if any(item.is_star for item in items) or names.count(name) != 1:
            return None
        item = items[names.index(name)]
        return item.unalias().copy() if isinstance(item.unalias(), exp.Column) else None
    if len(items) == 1 and isinstance(items[0], exp.Star):
        plain = not any(value for value in items[0].args.values())
        return exp.column(name, quoted=True) if plain and len(list(members(inner))) == 1 else None
    if any(item.is_star for item in items):
        return None
    named = [item for item in items if item.alias_or_name.lower() == name]
    if len(named) != 1 or not isinstance(named[0].unalias(), exp.Column):
        return None
    projected: exp.Expr = named[0].unalias().copy()
    return projected
