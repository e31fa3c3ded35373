"""What a query needs of each table: columns, and conditions that its rows alone decide. Pure.

Conditions go down to the scan and stay in the query too, so only such are taken as give the same
answer twice: comparisons of the table's own columns with literals. They never pass an outer join
to the side that it fills with NULL, nor anything but plain columns of a subquery. What is not
understood is left out, which costs time and never changes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from acid_platform.sql.scopes import conjuncts, cte_of, members

Known = Mapping[int, Collection[str]]
"""Columns of the stored tables, by the identity of their node."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_ROWS_MATTER = ("group", "having", "distinct", "limit", "offset", "qualify", "windows", "match")
_VOLATILE = (exp.AggFunc, exp.Window, exp.Anonymous, exp.Rand, exp.Randn, exp.Uuid)


def needed_columns(tree: exp.Expr, table: exp.Table, columns: Collection[str]) -> list[str] | None:
    """Those of the table's columns that any part of the query names; None: all."""
    select = table.find_ancestor(exp.Select)
    if (
        select is None
        or table.args.get("pivots")
        or any(join.method == "NATURAL" for join in select.args.get("joins") or ())
    ):
        return None
    stars = (star for star in select.find_all(exp.Star) if not isinstance(star.parent, exp.Count))
    if any(stars):
        return None
    named = {one.name.lower() for one in tree.find_all(exp.Identifier)}
    return [name for name in columns if name in named]


def conditions(tree: exp.Expr, known: Known) -> dict[int, list[exp.Expr]]:
    """By the identity of a stored table's node: conditions over its bare column names."""
    push = _Push(known, _references(tree), {})
    for select in tree.find_all(exp.Select):
        push.select(select)
    return push.found


def _references(tree: exp.Expr) -> dict[int, int]:
    """How often each CTE is read."""
    counts: dict[int, int] = {}
    for table in tree.find_all(exp.Table):
        cte = cte_of(table)
        if cte is not None:
            counts[id(cte)] = counts.get(id(cte), 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class _Push:
    known: Known
    references: Mapping[int, int]
    found: dict[int, list[exp.Expr]]

    def select(self, select: exp.Select) -> None:
        """The conditions of one SELECT, each to the member whose columns it compares."""
        if select.find(exp.TableSample) is not None:
            return
        sides = list(members(select))
        for condition, allowed in _applied(select, sides):
            if _simple(condition):
                self._give(condition, sides, allowed)

    def _give(self, condition: exp.Expr, sides: list[exp.Expr], allowed: Collection[int]) -> None:
        owners = {self._owner(one, sides) for one in condition.find_all(exp.Column)}
        if len(owners) != 1:
            return
        (owner,) = owners
        if owner is None or owner not in allowed:
            return
        member = sides[owner]
        if id(member) in self.known:
            bare = _renamed(condition, lambda column: exp.column(column.name, quoted=True))
            if bare is not None:
                self.found.setdefault(id(member), []).append(bare)
            return
        inner = self._inside(member)
        if inner is not None:
            translated = _renamed(condition, lambda column: _projected(inner, member, column))
            if translated is not None:
                below = list(members(inner))
                nested = any(one.args.get("joins") for one in below)
                self._give(translated, below, () if nested else _never_filled(inner, below))

    def _owner(self, column: exp.Column, sides: list[exp.Expr]) -> int | None:
        """Which member a column belongs to, if there is no doubt."""
        if column.args.get("db"):
            return None
        name = column.name.lower()
        if column.table:
            named = [
                i
                for i, one in enumerate(sides)
                if one.alias_or_name.lower() == column.table.lower()
            ]
            return named[0] if len(named) == 1 and self._may_have(sides[named[0]], name) else None
        if len(sides) == 1:
            return 0 if self._may_have(sides[0], name) else None
        if not all(id(one) in self.known for one in sides):
            return None
        having = [i for i, one in enumerate(sides) if name in self.known[id(one)]]
        return having[0] if len(having) == 1 else None

    def _may_have(self, member: exp.Expr, name: str) -> bool:
        columns = self.known.get(id(member))
        return columns is None or name in columns

    def _inside(self, member: exp.Expr) -> exp.Select | None:
        """The SELECT behind a subquery or a CTE that is read once, if rows pass it unchanged."""
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
        if not isinstance(inner, exp.Select) or any(inner.args.get(one) for one in _ROWS_MATTER):
            return None
        if inner.find(exp.TableSample) or any(item.find(*_VOLATILE) for item in inner.expressions):
            return None
        return inner


def _applied(
    select: exp.Select, sides: list[exp.Expr]
) -> Iterator[tuple[exp.Expr, Collection[int]]]:
    """Each condition with the members to which it may go down."""
    if any(one.args.get("joins") for one in sides):  # in parentheses: not followed
        return
    where = select.args.get("where")
    for one in conjuncts(where.this if where else None):
        yield one, _never_filled(select, sides)
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
        for one in conjuncts(join.args.get("on")):
            yield one, allowed
        filled |= _filled_by(side, kind, number)


def _never_filled(select: exp.Select, sides: list[exp.Expr]) -> Collection[int]:
    """The members that no join of the SELECT fills with NULL: what WHERE may go down to."""
    filled: set[int] = set()
    for number, join in enumerate(select.args.get("joins") or (), start=_first_join(select)):
        filled |= _filled_by(join.side.upper(), join.kind.upper(), number)
    return set(range(len(sides))) - filled


def _filled_by(side: str, kind: str, number: int) -> set[int]:
    """Members whose rows a join may replace by NULL, or hide from WHERE."""
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
                and all(_operand(one) for one in (node.this, *node.expressions))
            )
        case exp.Between():
            return all(_operand(one) for one in (node.this, node.args["low"], node.args["high"]))
        case exp.Is():
            return _operand(node.this) and isinstance(node.expression, exp.Null | exp.Boolean)
        case exp.Binary() if type(node) in _COMPARISONS:
            return _operand(node.left) and _operand(node.right)
    return False


def _operand(node: exp.Expr) -> bool:
    match node:
        case exp.Column():
            return isinstance(node.this, exp.Identifier)
        case exp.Literal() | exp.Null() | exp.Boolean():
            return True
        case exp.Neg() | exp.Cast():
            return isinstance(node.this, exp.Literal)
    return False


def _renamed(
    condition: exp.Expr, rename: Callable[[exp.Column], exp.Expr | None]
) -> exp.Expr | None:
    """A copy whose columns are others, or None where one has no counterpart."""
    copy = exp.Paren(this=condition.copy())
    for column in list(copy.find_all(exp.Column)):
        other = rename(column)
        if other is None:
            return None
        column.replace(other)
    renamed: exp.Expr = copy.this
    return renamed


def _projected(inner: exp.Select, member: exp.Expr, column: exp.Column) -> exp.Expr | None:
    """What a column of a subquery is inside it: a plain column, or nothing that may be used."""
    name = column.name.lower()
    items = inner.expressions
    alias = member.args.get("alias")
    if alias is not None and alias.columns:
        names = [one.name.lower() for one in alias.columns]
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
    found: exp.Expr = named[0].unalias().copy()
    return found
