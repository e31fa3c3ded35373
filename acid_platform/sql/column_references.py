"""What the names of columns in a query mean: those that say the database of their table, such as
`db.t.id`, and those that no table has.

An engine knows a table of a query under one name, so `db.t.id` becomes `t.id` where it stands, and
a table whose name alone would mean another one gets an alias that nobody else has. Names are
resolved by Spark's rules. The scopes are asked from the inside out, and each is asked for a column
of `db.t`, then for one of the alias `t`, then for a column whose fields the other parts are.
All other names are left to the engine, which gets them as they were written.

A name is refused before Spark starts only if the columns of all that it could refer to are known.
Functions, and queries with a star, are left to Spark (P33).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from sqlglot import exp

from acid_platform.errors import InvalidExpression, UnknownColumn, UnsupportedStatement
from acid_platform.layout.acid_keys import VIRTUAL_COLUMNS
from acid_platform.layout.sql_text import quoted
from acid_platform.predicates.known_columns import is_word, unresolved_column
from acid_platform.sql.scopes import (
    ColumnsOf,
    cte_of,
    full_name,
    members,
    stored_tables,
    visible_selects,
)
from acid_platform.sql.text import CURRENT_DATABASE, Edit, Expression, edited, place, span
from acid_platform.sql.time_travel import changes_between

ANY = "*"
UNNAMED = ""
"""Stands for the columns of a query whose names only an engine knows."""


@dataclass(frozen=True, slots=True, eq=False)
class FromMember:
    """What stands in FROM: a name, and its database unless an alias hides it; in lower case.

    `columns` None: not known.
    """

    name: str
    database: str | None
    columns: frozenset[str] | None
    table: exp.Table | None = None
    virtual: bool = False
    """Whether it has the virtual columns."""

    def has(self, column: str) -> bool | None:
        """Whether it has the column; None if that is not known."""
        if column == ANY or (self.virtual and column in VIRTUAL_COLUMNS):
            return True
        return None if self.columns is None else column in self.columns

    def may_have(self, column: str) -> bool:
        return self.has(column) is not False

    def names(self, parts: Sequence[str]) -> bool:
        """Whether the parts are those of a column that is known to it, or of a field of one."""
        own = self.columns or ()
        return (
            parts[0] in own
            or (parts[0] == self.name and parts[1:2] and parts[1] in own)
            or (tuple(parts[:2]) == (self.database, self.name) and bool({*own} & {*parts[2:3]}))
        )


@dataclass(frozen=True, slots=True)
class Reference:
    """A column in the tree with its parts in lower case, and the scopes that it is looked up in."""

    column: exp.Column
    parts: tuple[str, ...]
    scopes: tuple[tuple[FromMember, ...], ...]

    def without(self, parts: int) -> Edit:
        """The edit that leaves out the first parts of the name."""
        start = span(self.column.parts[0])[0]
        return Edit(start, span(self.column.parts[parts])[0], "")

    def headed(self, parts: int, name: str) -> Edit:
        """The edit that puts a name in the place of the first parts."""
        start = span(self.column.parts[0])[0]
        return Edit(start, span(self.column.parts[parts - 1])[1], quoted(name))

    def __str__(self) -> str:
        return ".".join(part.name for part in self.column.parts)


@dataclass(frozen=True, slots=True)
class Names:
    """Edits of a query's columns, and the names that its tables have after them, by `id`."""

    edits: tuple[Edit, ...]
    aliases: dict[int, str]


def resolve(
    tree: exp.Expr, tables: Sequence[exp.Table], columns_of: ColumnsOf, database: str
) -> Names:
    """The names of a query whose stored tables and views are `tables`.

    Raises InvalidExpression for an ambiguous name, UnsupportedStatement for one that needs an
    alias.
    """
    aliases = {id(table): table.alias_or_name for table in tables}
    full = {_qualified(table, database) for table in tables}
    written = [*_columns(tree)]
    if not any(_parts(column)[:2] in full and len(column.parts) > 2 for column in written):
        return Names((), aliases)  # the usual case
    work = _Scopes.of(tables, columns_of, database)
    references = [work.reference(column) for column in written if len(column.parts) > 1]
    edits, owners = [], dict[int, FromMember]()
    for reference in references:
        if (member := _with_database(reference)) is not None:
            owners[id(reference.column)] = member
    renamed: dict[FromMember, str] = {}
    for reference in references:
        member = owners.get(id(reference.column))
        if member is not None and not _means(reference, member):
            assert member.table is not None
            renamed[member] = aliases[id(member.table)] = _unused(member.name, tree, renamed)
    for reference in references:
        member = owners.get(id(reference.column))
        if member is not None:
            name = renamed.get(member)
            edits.append(reference.without(1) if name is None else reference.headed(2, name))
            continue
        member = _with_alias(reference, renamed)
        if member in renamed:
            edits.append(reference.headed(1, renamed[member]))
    return Names(tuple(edits), aliases)


def _unused(name: str, tree: exp.Expr, others: Mapping[FromMember, str]) -> str:
    """An alias that the query does not have."""
    used = {*others.values(), *(part.name.lower() for part in tree.find_all(exp.Identifier))}
    return next(alias for n in count(2) if (alias := f"{name}__{n}") not in used)


def _qualified(table: exp.Table, database: str) -> tuple[str, ...]:
    return (table.db or database).lower(), table.alias_or_name.lower()


def _columns(tree: exp.Expr) -> Iterator[exp.Column]:
    """The names of columns; those in hints are names of tables."""
    return (column for column in tree.find_all(exp.Column) if not column.find_ancestor(exp.Hint))


def _parts(column: exp.Column) -> tuple[str, ...]:
    return tuple(ANY if isinstance(part, exp.Star) else part.name.lower() for part in column.parts)


def _with_database(reference: Reference) -> FromMember | None:
    """The table that `db.t.c` names; None if the name means anything else."""
    parts = reference.parts
    if len(parts) < 3:
        return None
    for scope in reference.scopes:
        hits = [m for m in scope if (m.database, m.name) == parts[:2] and m.may_have(parts[2])]
        if len(hits) > 1:
            raise InvalidExpression(
                f"{reference} is ambiguous: {'.'.join(parts[:2])} is named twice; give each an"
                " alias"
            )
        if hits:
            return hits[0]
        if any(m.may_have(parts[0]) for m in scope):
            return None
        if any(m.name == parts[0] and m.may_have(parts[1]) for m in scope):
            return None
    return None


def _means(reference: Reference, member: FromMember) -> bool:
    """Whether `t.c` means this member where the name `db.t.c` stands."""
    name, column = reference.parts[1:3]
    if name in parameters(reference.column):
        return False
    for scope in reference.scopes:
        hits = [m for m in scope if m.name == name and m.may_have(column)]
        if hits:
            return hits == [member]
        if any(m.may_have(name) for m in scope):
            return False
    return False


def _with_alias(reference: Reference, renamed: Mapping[FromMember, str]) -> FromMember | None:
    """The member that `t.c` names, if one that is renamed could be meant."""
    name, column = reference.parts[:2]
    if name not in {member.name for member in renamed} or name in parameters(reference.column):
        return None
    for scope in reference.scopes:
        hits = [m for m in scope if m.name == name and m.may_have(column)]
        if len(hits) > 1 or any(m.has(column) is None for m in hits):
            if not any(member in renamed for member in hits):
                return None
            raise UnsupportedStatement(
                f"{reference} may be of several tables called {name}; give each an alias, and name"
                " columns by it"
            )
        if hits:
            return hits[0]
        if any(m.may_have(name) for m in scope):
            return None
    return None


def parameters(node: exp.Expr) -> set[str]:
    """The parameters of the lambdas around a node, in lower case."""
    names: set[str] = set()
    around = node.find_ancestor(exp.Lambda)
    while around is not None:
        names |= {parameter.name.lower() for parameter in around.expressions}
        around = around.find_ancestor(exp.Lambda)
    return names


@dataclass(frozen=True, slots=True)
class _Scopes:
    """The members of each SELECT of a query; `tables` are its stored tables, by `id`."""

    tables: set[int]
    columns_of: ColumnsOf
    database: str
    scopes: dict[int, tuple[FromMember, ...]] = field(default_factory=dict)
    selected: dict[int, tuple[bool, frozenset[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Sequence[exp.Table], columns_of: ColumnsOf, database: str) -> _Scopes:
        return cls({id(table) for table in tables}, columns_of, database)

    def reference(self, column: exp.Column) -> Reference:
        scopes = tuple(self.members_of(select) for select in visible_selects(column))
        return Reference(column, _parts(column), scopes)

    def members_of(self, select: exp.Select) -> tuple[FromMember, ...]:
        if id(select) not in self.scopes:
            self.scopes[id(select)] = ()  # what a CTE would find if it named itself
            self.scopes[id(select)] = tuple(self._members(select))
        return self.scopes[id(select)]

    def selection_of(self, select: exp.Select) -> tuple[bool, frozenset[str]]:
        """Whether all its columns have names, and their aliases: read once, not for each column."""
        if id(select) not in self.selected:
            named = all(map(_is_named, select.expressions))
            self.selected[id(select)] = named, frozenset(_aliases(select))
        return self.selected[id(select)]

    def _members(self, select: exp.Select) -> Iterator[FromMember]:
        waiting = [*members(select), *(select.args.get("laterals") or ())]
        for node in waiting:
            yield self._member(node)
            waiting.extend(join.this for join in node.args.get("joins") or ())

    def _member(self, node: exp.Expr) -> FromMember:
        name = node.alias_or_name.lower()
        alias = node.args.get("alias")
        renamed = [column.name for column in alias.columns] if alias is not None else []
        if isinstance(node, exp.Table) and id(node) in self.tables:
            own = self.columns_of(full_name(node, self.database))
            hidden = place(node).alias is None or changes_between(node.name) is not None
            database = None if hidden else _qualified(node, self.database)[0]
            return FromMember(name, database, _lower(renamed or own), node, True)
        return FromMember(name, None, _lower(renamed or self._result(node)))

    def _result(self, node: exp.Expr) -> Sequence[str] | None:
        """The names of a query's columns; None if they are not known."""
        match node:
            case exp.Table() if (cte := cte_of(node)) is not None:
                alias = cte.args["alias"]
                return [column.name for column in alias.columns] or self._result(cte.this)
            case exp.Subquery() | exp.SetOperation():
                return self._result(node.this)
            case exp.Select():
                names: list[str] = []
                for item in node.expressions:
                    if isinstance(item, exp.Star) and not any(item.args.values()):
                        for member in self.members_of(node):
                            if member.columns is None:
                                return None
                            names += member.columns
                    elif item.is_star or isinstance(item, exp.Aliases):
                        return None
                    else:
                        named = isinstance(item, exp.Column | exp.Alias)
                        names.append(item.alias_or_name if named else UNNAMED)
                return names
        return None


def _lower(names: Sequence[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(name.lower() for name in names)


# --- names that no table has ----------------------------------------------------------------------

_PLAIN = re.compile(r"[A-Za-z_]\w*")
_AFTER_SELECTION = (
    *(exp.Order, exp.Having, exp.Group, exp.Sort, exp.Cluster, exp.Distribute, exp.Qualify),
)


def refuse_unknown_names(query: exp.Query, columns_of: ColumnsOf, database: str) -> None:
    """Raises UnknownColumn for the first name that no table has as a column, and
    UnsupportedStatement for one that is a column two queries further out."""
    if query.find(exp.Lateral, exp.Unnest, exp.Pivot, exp.MatchRecognize):
        return
    scopes = _Scopes.of(stored_tables(query), columns_of, database)
    for column in query.find_all(exp.Column):
        if error := _unknown(column, scopes):
            raise error


def _unknown(column: exp.Column, scopes: _Scopes) -> UnknownColumn | UnsupportedStatement | None:
    parts = _parts(column)
    if (
        isinstance(column.this, exp.Star)
        or column.find_ancestor(exp.Lambda, exp.Hint)
        or is_word(column)
        or not all(map(_PLAIN.fullmatch, parts))
    ):
        return None
    by_name: dict[str, set[str]] = {}
    is_alias = False
    level = 0  # of the query that has the column; 0 if it is where the name stands
    for distance, select in enumerate(visible_selects(column)):
        members_here = scopes.members_of(select)
        for member in members_here:
            if member.columns is None or UNNAMED in member.columns:
                return None
            by_name.setdefault(member.name, set()).update(member.columns)
        if level == distance and not any(member.names(parts) for member in members_here):
            level += 1
        named, aliases = scopes.selection_of(select)
        if not named and column.find_ancestor(*_AFTER_SELECTION):
            return None
        is_alias = is_alias or parts[0] in aliases
    written = ".".join(part.name for part in column.parts)
    if 1 < level <= distance and not is_alias:
        return UnsupportedStatement(
            f"{written} is a column of a query further out than the one directly around its"
            " subquery, which Spark does not resolve; join the tables in one of the queries between"
        )
    every = set().union(*by_name.values())
    if len(parts) > 2 or not by_name or is_alias or parts[0] in every:
        return None
    if len(parts) == 2:
        if parts[0] not in by_name or parts[1] in by_name[parts[0]]:
            return None
        every = by_name[parts[0]]
    return unresolved_column(written, sorted(every))


def _is_named(item: exp.Expr) -> bool:
    """Whether the names of the columns stand there, or are those of tables."""
    return isinstance(item, exp.Column | exp.Alias | exp.Aliases) or item.is_star


def _aliases(select: exp.Select) -> Iterator[str]:
    for item in select.expressions:
        if isinstance(item, exp.Aliases):
            yield from (name.name.lower() for name in item.aliases)
        elif item.alias:
            yield item.alias.lower()


# --- statements without inner scopes --------------------------------------------------------------


def bare(written: Expression, member: FromMember) -> str:
    """An expression over the rows of one table, whose columns have no qualifier.

    Raises UnsupportedStatement where a column without its qualifier would mean something else.
    """
    edits = []
    for reference in _references(written, (member,)):
        hidden = 2 if _with_database(reference) else 1 if _is_alias(reference, member) else 0
        if not hidden:
            continue
        if reference.parts[hidden] in parameters(reference.column):
            raise UnsupportedStatement(
                f"{reference} stands in a function whose parameter is called like that column;"
                " rename the parameter"
            )
        edits.append(reference.without(hidden))
    return edited(written.text, edits)


def called(written: Expression, names: Mapping[FromMember, str]) -> str:
    """An expression over several members that an engine knows under other names.

    Raises InvalidExpression, UnsupportedStatement for a name that may be of several members.
    """
    others = {member: name for member, name in names.items() if name.lower() != member.name}
    edits = []
    for reference in _references(written, tuple(names)):
        member = _with_database(reference)
        if member is not None:
            edits.append(reference.headed(2, names[member]))
        elif (member := _with_alias(reference, others)) in others:
            edits.append(reference.headed(1, others[member]))
    return edited(written.text, edits)


def assigned_column(target: Sequence[str], member: FromMember) -> str:
    """What SET gives a value: the column of `c`, `t.c` or `db.t.c`, with the field behind it if
    there is one, such as `c.a`.

    Raises UnknownColumn.
    """
    hidden = 0
    if len(target) > 2 and tuple(target[:2]) == (member.database, member.name):
        hidden = 2
    elif len(target) > 1 and target[0] == member.name and member.has(target[1]):
        hidden = 1
    if not member.has(target[hidden]):
        raise unresolved_column(".".join(target), sorted(member.columns or ()))
    return ".".join(target[hidden:])


def _references(written: Expression, scope: tuple[FromMember, ...]) -> Iterator[Reference]:
    if written.tree.find(*CURRENT_DATABASE):
        raise UnsupportedStatement(
            "current_database() is supported in queries only; write the name of the database"
        )
    for column in _columns(written.tree):
        if len(column.parts) > 1:
            yield Reference(column, _parts(column), (scope,))


def _is_alias(reference: Reference, member: FromMember) -> bool:
    name, column = reference.parts[:2]
    return (
        name == member.name
        and name not in parameters(reference.column)
        and bool(member.has(column))
    )
