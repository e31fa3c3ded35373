"""The scopes of names in a query (its tables, its CTEs, the members of a FROM clause), and what it
needs of each table: its columns, and the conditions to push down to its scan.

Pushed conditions also stay in the query, so only deterministic ones are pushed: comparisons of the
table's own columns with literals. They never pass an outer join to the side that it fills with
NULL, and they enter a subquery only through plain columns. Anything that is not understood is not
pushed, which costs time but never changes a result.

The tree is that of all views: what is asked of it for each table or condition is read once (P78).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from acid_platform.predicates.analysis import conjuncts
from acid_platform.predicates.grammar import SCALARS

ColumnsOf = Callable[[str], Sequence[str]]
"""The columns of a table or view by its full name, those of partitions included."""


def stored_tables(tree: exp.Expr) -> list[exp.Table]:
    """The tables that are not CTEs where they stand, so the metastore must know them."""
    return [
        table
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier)
        and cte_of(table) is None
        and table.find_ancestor(exp.Hint) is None
    ]


def full_name(table: exp.Table, database: str) -> str:
    """`db.table` in lower case, after whatever else was written before it: such a name is of no
    table here."""
    *before, name = (part.name for part in table.parts)
    return ".".join((*(before or (database,)), name)).lower()


def cte_of(table: exp.Table) -> exp.CTE | None:
    """The CTE that a table name refers to, if any.

    As in Hive, a CTE sees the CTEs before it, one of WITH RECURSIVE also itself, and the body of
    the query sees all of them.
    """
    if table.db:
        return None
    name = table.name.lower()
    came_from: object = table
    node = table.parent
    while node is not None:
        visible: list[exp.CTE] = []
        if isinstance(node, exp.With):
            position = next(i for i, cte in enumerate(node.expressions) if cte is came_from)
            visible = node.expressions[: position + bool(node.recursive)]
        elif isinstance(node, exp.Query) and not isinstance(came_from, exp.With):
            visible = node.ctes
        for cte in visible:
            if cte.alias.lower() == name:
                return cte
        came_from, node = node, node.parent
    return None


def members(select: exp.Select) -> Iterator[exp.Expr]:
    """The members of FROM and JOIN of this SELECT, in order."""
    for clause in (select.args.get("from_"), *(select.args.get("joins") or ())):
        if clause is not None:
            yield clause.this


def direct_tables(select: exp.Select) -> list[exp.Table]:
    return [member for member in members(select) if isinstance(member, exp.Table)]


def visible_selects(node: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs whose members a name may mean where it stands, from the inside out.

    A subquery in FROM and a CTE don't see the members beside them; LATERAL and conditions of joins
    do.
    """
    beside = False
    below, around = node, node.parent
    while around is not None:
        match around:
            case exp.Select():
                if not beside:
                    yield around
                beside = False
            case exp.Lateral():
                beside = False
            case exp.CTE():
                beside = True
            case exp.From() | exp.Join() if around.this is below:
                beside = not isinstance(below, exp.Lateral)
        below, around = around, around.parent


ColumnsByTable = Mapping[int, Collection[str]]
"""Columns of the stored tables, by the `id` of the table's node."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_ROWS_MATTER = ("group", "having", "distinct", "limit", "offset", "qualify", "windows", "match")
_VOLATILE = (exp.AggFunc, exp.Window, exp.Rand, exp.Randn, exp.Uuid)


def _is_volatile(item: exp.Expr) -> bool:
    """Whether a part of it may have another value for the same row, or is of several rows."""
    return item.find(*_VOLATILE) is not None or any(
        call.name.upper() not in SCALARS for call in item.find_all(exp.Anonymous)
    )


@dataclass(frozen=True, slots=True)
class NamedColumns:
    """What a query names anywhere, from which follow the columns that it needs of each table."""

    names: frozenset[str] | None
    """None: all columns of every table."""
    starred: dict[int, bool] = field(default_factory=dict)
    """Whether a SELECT has a star, by its `id`."""

    @classmethod
    def of(cls, tree: exp.Expr) -> NamedColumns:
        if any(join.method == "NATURAL" for join in tree.find_all(exp.Join)) or any(
            call.name.lower() == "identifier" for call in tree.find_all(exp.Anonymous)
        ):
            return cls(None)
        found = tree.find_all(exp.Identifier)
        return cls(frozenset(identifier.name.lower() for identifier in found))

    def needed(self, table: exp.Table, columns: Collection[str]) -> list[str] | None:
        """The columns of the table that the query names anywhere; None: all columns."""
        select = table.find_ancestor(exp.Select)
        if self.names is None or select is None or table.args.get("pivots"):
            return None
        if id(select) not in self.starred:
            stars = select.find_all(exp.Star)
            self.starred[id(select)] = any(not isinstance(s.parent, exp.Count) for s in stars)
        if self.starred[id(select)]:
            return None
        return [name for name in columns if name in self.names]


def conditions(tree: exp.Expr, columns_of: ColumnsByTable) -> dict[int, list[exp.Expr]]:
    """Conditions to push to each stored table, by the `id` of its node, over bare column names."""
    push = _PushDown(tree, columns_of)
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


_MOST_STEPS = 20_000
"""Conditions times the SELECTs that they enter, in one query; what is left is not pushed."""


@dataclass(frozen=True, slots=True)
class _Members:
    """The members of FROM of a SELECT, and their positions by name."""

    sides: list[exp.Expr]
    named: Mapping[str, list[int]]

    @classmethod
    def of(cls, select: exp.Select) -> _Members:
        sides, named = list(members(select)), dict[str, list[int]]()
        for number, side in enumerate(sides):
            named.setdefault(side.alias_or_name.lower(), []).append(number)
        return cls(sides, named)


class _PushDown:
    def __init__(self, tree: exp.Expr, columns_of: ColumnsByTable) -> None:
        self._columns_of, self._references = columns_of, _references(tree)
        self.pushed: dict[int, list[exp.Expr]] = {}
        self._sampled = {
            id(above)
            for found in tree.find_all(exp.TableSample, exp.Pivot)
            for above in _upward(found)
        }
        """The nodes that have a sample or a pivot below them."""
        self._passing: dict[int, bool] = {}
        self._members: dict[int, _Members] = {}
        self._steps = 0

    def select(self, select: exp.Select) -> None:
        """Push each condition of a SELECT to the member of FROM whose columns it compares."""
        if id(select) in self._sampled:
            return
        for condition, allowed in _applied(select, self._members_of(select).sides):
            if _simple(condition):
                self._push(condition, select, allowed)

    def _push(self, condition: exp.Expr, select: exp.Select, allowed: Collection[int]) -> None:
        while self._steps < _MOST_STEPS:
            self._steps += 1
            of = self._members_of(select)
            owners = {self._owner(column, of) for column in condition.find_all(exp.Column)}
            (owner, *others) = owners or {None}
            if others or owner is None or owner not in allowed:
                return
            member = of.sides[owner]
            if id(member) in self._columns_of:
                bare = _renamed(condition, lambda column: exp.column(column.name, quoted=True))
                if bare is not None:
                    self.pushed.setdefault(id(member), []).append(bare)
                return
            inner = self._inside(member)
            translated = inner and _renamed(condition, _inward(inner, member))
            if inner is None or translated is None:
                return
            below = self._members_of(inner).sides
            nested = any(member.args.get("joins") for member in below)
            condition, select = translated, inner
            allowed = () if nested else _never_filled(inner, below)

    def _members_of(self, select: exp.Select) -> _Members:
        if id(select) not in self._members:
            self._members[id(select)] = _Members.of(select)
        return self._members[id(select)]

    def _owner(self, column: exp.Column, of: _Members) -> int | None:
        """The index of the member that a column belongs to; None if that is ambiguous."""
        if column.args.get("db"):
            return None
        name, sides = column.name.lower(), of.sides
        if column.table:
            named = of.named.get(column.table.lower(), [])
            return named[0] if len(named) == 1 and self._may_have(sides[named[0]], name) else None
        if len(sides) == 1:
            return 0 if self._may_have(sides[0], name) else None
        if not all(id(side) in self._columns_of for side in sides):
            return None
        having = [i for i, side in enumerate(sides) if name in self._columns_of[id(side)]]
        return having[0] if len(having) == 1 else None

    def _may_have(self, member: exp.Expr, name: str) -> bool:
        columns = self._columns_of.get(id(member))
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
                and self._references.get(id(cte)) == 1
                and not cte.args["alias"].columns
            ):
                inner = cte.this
        return inner if isinstance(inner, exp.Select) and self._passes(inner) else None

    def _passes(self, inner: exp.Select) -> bool:
        if id(inner) not in self._passing:
            self._passing[id(inner)] = (
                id(inner) not in self._sampled
                and not any(inner.args.get(clause) for clause in _ROWS_MATTER)
                and not any(map(_is_volatile, inner.expressions))
            )
        return self._passing[id(inner)]


def _upward(node: exp.Expr) -> Iterator[exp.Expr]:
    above: exp.Expr | None = node
    while above is not None:
        yield above
        above = above.parent


def _inward(inner: exp.Select, member: exp.Expr) -> Callable[[exp.Column], exp.Expr | None]:
    return lambda column: _projected(inner, member, column)


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
