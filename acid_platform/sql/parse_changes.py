"""Dividing statements that change rows into the parts that their user wrote.

Only words and parentheses are looked at; each part is then parsed alone. So no part is generated
anew, and what follows a part that can be parsed is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sqlglot import Token, TokenType, exp

from acid_platform.engine.merge_clauses import MergeAction
from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.sql.column_lists import PartitionSpec
from acid_platform.sql.statements import (
    Assignment,
    Change,
    Delete,
    Insert,
    LoadData,
    MergeInto,
    MultiInsert,
    Truncate,
    Update,
    ValuesRows,
    When,
)
from acid_platform.sql.text import (
    Expression,
    Parts,
    Query,
    closing,
    depth_change,
    expression,
    is_query,
    place,
    query,
    selected,
    word,
)

_NOT_WITH_INSERT = {
    "REPLACE": "DELETE the rows that go in the same transaction, or use INSERT OVERWRITE",
}


def insert(text: str) -> Insert:
    """Raises InvalidExpression, UnsupportedStatement."""
    parts = Parts.of(text)
    return _insert(parts, parts.until("INSERT") + "\n" if parts.comes("WITH") else "")


def insert_from(text: str) -> Insert | MultiInsert:
    """`[WITH …] FROM … INSERT … SELECT … [INSERT …]`. Raises as `insert`."""
    parts = Parts.of(text)
    with_clause = parts.until("FROM") + "\n" if parts.comes("WITH") else ""
    members = parts.until("INSERT") + "\n"
    inserts = []
    while not parts.ended:
        start = parts.at
        parts.need("INSERT", members.strip())
        parts.until("INSERT")
        branch = Parts.of(parts.slice(start, parts.at))
        inserts.append(_insert(branch, with_clause + members, selects=True))
    if len(inserts) == 1:
        return inserts[0]
    rows = query(f"{with_clause}SELECT * {members}")
    return MultiInsert(inserts[0].table, rows, tuple(inserts))


def _insert(parts: Parts, before: str, selects: bool = False) -> Insert:
    """One INSERT, whose query begins with `before`; `selects`: only a SELECT without a FROM of its
    own may follow."""
    parts.need("INSERT", "this")
    overwrite = parts.skip("OVERWRITE")
    what = "INSERT OVERWRITE" if overwrite else "INSERT"
    if not overwrite:
        parts.need("INTO", what)
    if parts.comes("LOCAL", "DIRECTORY") or (parts.comes("DIRECTORY") and parts.text_comes(1)):
        raise UnsupportedStatement(
            f"{what} DIRECTORY is not supported; take the rows by wh.sql('SELECT …').to_arrow(),"
            " and write them with pyarrow or another library"
        )
    parts.skip("TABLE")
    table = ".".join(changed_table(parts))
    spec = _partition(parts)
    if_not_exists = parts.skip("IF", "NOT", "EXISTS")
    if if_not_exists and (not overwrite or spec is None or spec.dynamic):
        raise InvalidExpression(
            f"{what} into {table} with IF NOT EXISTS: it belongs to INSERT OVERWRITE … PARTITION"
            " with a value for every partition column"
        )
    for clause, instead in _NOT_WITH_INSERT.items():
        if parts.comes(*clause.split()):
            raise UnsupportedStatement(f"{what} with {clause} is not supported; {instead}")
    columns: tuple[str, ...] = ()
    by_name = parts.skip("BY", "NAME")
    if by_name and parts.comes("VALUES"):
        raise InvalidExpression(f"{what} into {table} BY NAME needs a query, which names columns")
    inside = Parts(parts.text, parts.tokens, parts.at + 1)
    if parts.comes("(") and not is_query(inside) and not by_name:
        columns = tuple(only_name(token) for token in parts.in_parentheses())
        if parts.comes("PARTITION"):
            raise InvalidExpression(
                f"{what} into {table}: PARTITION (…) stands before the list of columns"
            )
    source: Query | ValuesRows
    if selects and not parts.comes("SELECT"):
        raise InvalidExpression(f"{what} into {table} after FROM needs a SELECT {parts.here}")
    if selects and (other := _own_from(parts)) is not None:
        raise InvalidExpression(
            f"{what} into {table} has a FROM of its own, line {other.line}, beside the one that all"
            " these INSERTs share; leave one out"
        )
    if parts.skip("VALUES"):
        if before:
            raise UnsupportedStatement(f"{what} of VALUES with WITH is not supported; leave it out")
        source = ValuesRows(tuple(_row(piece) for piece in parts.between_commas()))
    elif not is_query(parts):
        raise InvalidExpression(f"{what} into {table} needs VALUES or a SELECT")
    else:
        source = query(before + selected(parts.rest()))
    return Insert(table, source, columns, spec, overwrite, if_not_exists, by_name)


def _own_from(parts: Parts) -> Token | None:
    """The FROM of a SELECT, but for that of IS DISTINCT FROM; None if there is none."""
    ahead = Parts(parts.text, parts.tokens, parts.at)
    while (number := ahead.find("FROM")) < len(parts.tokens):
        if word(parts.tokens, number - 1) != "DISTINCT":
            return parts.tokens[number]
        ahead.at = number + 1
    return None


def _partition(parts: Parts) -> PartitionSpec | None:
    if not parts.skip("PARTITION"):
        return None
    start = parts.at
    parts.in_parentheses()
    return PartitionSpec.of(f"PARTITION {parts.slice(start, parts.at)}")


def truncate(text: str) -> Truncate:
    """Raises InvalidExpression, UnsupportedStatement."""
    parts = Parts.of(text)
    parts.need("TRUNCATE", "this")
    parts.skip("TABLE")
    return Truncate(*_whole(parts, "TRUNCATE"))


def load_data(text: str) -> LoadData:
    """Raises InvalidExpression, UnsupportedStatement."""
    parts = Parts.of(text)
    parts.need("LOAD DATA", "this")
    if not parts.skip("LOCAL"):
        raise UnsupportedStatement(
            "LOAD DATA INPATH would move the files, and nothing is moved here; write LOAD DATA"
            " LOCAL INPATH, which copies their rows, and remove them after it"
        )
    parts.need("INPATH", "LOAD DATA LOCAL")
    if not parts.text_comes():
        raise InvalidExpression(f"not Hive SQL: LOAD DATA needs a path in quotes {parts.here}")
    source = parts.tokens[parts.at].text
    parts.at += 1
    overwrite = parts.skip("OVERWRITE")
    parts.need("INTO TABLE", "LOAD DATA")
    table, spec = _whole(parts, "LOAD DATA")
    return LoadData(table, source, spec, overwrite)


def _whole(parts: Parts, what: str) -> tuple[str, PartitionSpec | None]:
    """The table or partition with which a statement ends. Raises UnsupportedStatement."""
    table, spec = ".".join(changed_table(parts)), _partition(parts)
    if not parts.ended:
        raise UnsupportedStatement(
            f"{what} with {parts.rest()} is not supported; leave that part out"
        )
    return table, spec


def changed_table(parts: Parts) -> tuple[str, ...]:
    """The name of the table to change. Raises UnsupportedStatement for a snapshot of it."""
    name = parts.name()
    first = parts.at + parts.comes("FOR")
    if word(parts.tokens, first + 1) == "AS" and word(parts.tokens, first + 2) == "OF":
        raise UnsupportedStatement(
            f"{'.'.join(name)} can't be changed as of a snapshot; ALTER TABLE … ROLLBACK TO undoes"
            " changes"
        )
    return name


def only_name(text: str) -> str:
    parts = Parts.of(text)
    name = parts.name()
    if not parts.ended or len(name) > 1:
        raise InvalidExpression(f"not Hive SQL: {text!r} is not the name of a column")
    return name[0]


def _row(text: str) -> tuple[Expression, ...]:
    """A row of VALUES: a list in parentheses, or one value."""
    parts = Parts.of(text)
    values = [text]
    if parts.comes("(") and closing(parts.tokens, 0) == len(parts.tokens) - 1:
        values = parts.in_parentheses()
    return tuple(map(expression, values))


def update(text: str) -> Update:
    """Raises InvalidExpression, UnsupportedStatement."""
    parts = Parts.of(text)
    parts.need("UPDATE", "this")
    _refuse_choice(parts, "UPDATE")
    name = changed_table(parts)
    alias = parts.alias("SET")
    parts.need("SET", "UPDATE")
    assignments = assignments_of(parts, ("WHERE",), "UPDATE")
    where = _where(parts)
    return Update(".".join(name), alias or name[-1], assignments, where, alias is not None)


def delete(text: str) -> Delete:
    """Raises InvalidExpression, UnsupportedStatement."""
    parts = Parts.of(text)
    parts.need("DELETE", "this")
    if not parts.skip("FROM"):
        raise InvalidExpression("DELETE needs FROM: DELETE FROM t WHERE …")
    _refuse_choice(parts, "DELETE")
    name = changed_table(parts)
    alias = parts.alias("WHERE")
    where = _where(parts)
    return Delete(".".join(name), alias or name[-1], where, alias is not None)


def _refuse_choice(parts: Parts, what: str) -> None:
    """Raises UnsupportedStatement for ORDER BY and LIMIT, which would choose some rows."""
    depth = 0
    for number in range(parts.at, len(parts.tokens)):
        following = word(parts.tokens, number + 1)
        ordered = parts.tokens[number].token_type is TokenType.ORDER_BY
        limited = word(parts.tokens, number) == "LIMIT" and (
            following == "ALL" or following.isdigit()
        )
        if not depth and (ordered or limited):
            raise UnsupportedStatement(
                f"{what} with {'ORDER BY' if ordered else 'LIMIT'} is not supported; choose the"
                " rows by a condition, such as WHERE id IN (SELECT id FROM t ORDER BY id LIMIT 10)"
            )
        depth += depth_change(parts.tokens[number])


def _where(parts: Parts) -> Expression | None:
    if parts.ended:
        return None
    parts.need("WHERE", "this")
    return expression(parts.rest())


def assignments_of(parts: Parts, ends: Sequence[str], what: str) -> tuple[Assignment, ...]:
    """The assignments of SET, up to one of the words of `ends`. Raises InvalidExpression."""
    assignments: list[Assignment] = []
    while True:
        start = parts.at
        target = () if parts.comes("*") else parts.name()
        if not target or not (parts.skip("=") or parts.skip("==")):
            parts.at = start
            raise InvalidExpression(f"{what} SET {parts.until(',', *ends)!r} is not column = value")
        if target in (assigned.target for assigned in assignments):
            raise InvalidExpression(f"{what} SET names column {'.'.join(target)!r} twice")
        assignments.append(Assignment(target, expression(parts.until(",", *ends))))
        if not parts.skip(","):
            return tuple(assignments)


def merge(text: str) -> MergeInto:
    """Raises InvalidExpression, UnsupportedStatement."""
    parts = Parts.of(text)
    with_clause = parts.until("MERGE") + "\n" if parts.comes("WITH") else ""
    if parts.comes("MERGE", "WITH"):
        raise UnsupportedStatement(
            "MERGE WITH SCHEMA EVOLUTION is not supported; ALTER TABLE … ADD COLUMNS gives the"
            " table the columns before"
        )
    parts.need("MERGE INTO", "this")
    name = changed_table(parts)
    alias = parts.alias("USING")
    parts.need("USING", "MERGE")
    source = query(f"{with_clause}SELECT * FROM {parts.until('ON', 'WHEN')}")
    source_alias, database = _source_name(source)
    if not parts.skip("ON"):
        raise InvalidExpression("MERGE needs ON: MERGE INTO t USING s ON t.id = s.id WHEN …")
    on = _no_subquery(expression(parts.until("WHEN")), "MERGE ON")
    whens = tuple(_whens(parts, alias or name[-1]))
    if not whens:
        raise InvalidExpression("MERGE needs WHEN: … WHEN MATCHED THEN UPDATE SET v = s.v")
    return MergeInto(
        ".".join(name),
        alias or name[-1],
        source,
        source_alias,
        on,
        whens,
        alias is not None,
        database,
    )


def _source_name(source: Query) -> tuple[str, str | None]:
    """The name by which columns of a MERGE's source are called; with its database, '' for the
    current one, unless an alias hides it."""
    tree = source.tree
    member = tree.args["from_"].this
    if {part for part, value in tree.args.items() if value} - {"expressions", "from_", "with_"} or (
        member.args.get("joins")
    ):
        raise InvalidExpression("MERGE: the source of USING is one table or one (SELECT …) AS s")
    name = member.alias_or_name
    if not name:
        raise InvalidExpression("MERGE: give the source an alias: USING (SELECT …) AS s")
    named = isinstance(member, exp.Table) and "place" in member.meta
    hidden = not named or place(member).alias is None
    return name.lower(), None if hidden else member.db.lower()


def _whens(parts: Parts, table: str) -> Iterator[When]:
    while not parts.ended:
        start = parts.at
        parts.need("WHEN", "MERGE")
        matched = not parts.skip("NOT")
        parts.need("MATCHED", "WHEN")
        by_source = not matched and parts.skip("BY", "SOURCE")
        changes = matched or by_source
        if not changes and parts.skip("BY"):
            parts.need("TARGET", "WHEN NOT MATCHED BY")
        condition = None
        if parts.skip("AND"):
            condition = _no_subquery(expression(parts.until("THEN")), "MERGE WHEN")
        parts.need("THEN", "WHEN")
        if changes and parts.skip("DELETE"):
            when = When(MergeAction.DELETE, condition, by_source=by_source)
        elif changes and parts.skip("UPDATE", "SET"):
            when = When(MergeAction.UPDATE, condition, _set(parts), by_source=by_source)
        elif not changes and parts.skip("INSERT"):
            when = _when_insert(parts, condition, table)
        else:
            parts.at = start + 1
            parts.until("WHEN")
            raise InvalidExpression(
                f"MERGE: {parts.slice(start, parts.at)!r} is not possible; use UPDATE SET or DELETE"
                " for rows of the table, INSERT for those of the source"
            )
        if not parts.ended and not parts.comes("WHEN"):
            raise InvalidExpression(f"not Hive SQL: MERGE needs WHEN {parts.here}")
        yield when


def _set(parts: Parts) -> tuple[Assignment, ...] | None:
    """The assignments after SET; None for `*`."""
    after = parts.at + 1
    if parts.comes("*") and (after == len(parts.tokens) or word(parts.tokens, after) == "WHEN"):
        parts.at = after
        return None
    assignments = assignments_of(parts, ("WHEN",), "MERGE")
    for assignment in assignments:
        _no_subquery(assignment.value, "MERGE SET")
    return assignments


def _when_insert(parts: Parts, condition: Expression | None, table: str) -> When:
    if parts.skip("*"):
        return When(MergeAction.INSERT, condition, values=None)
    columns: tuple[str, ...] = ()
    if parts.comes("("):
        columns = tuple(_inserted(token, table) for token in parts.in_parentheses())
        if twice := [name for name in columns if columns.count(name) > 1]:
            raise InvalidExpression(f"MERGE INSERT names column {twice[0]!r} twice")
    parts.need("VALUES", "MERGE INSERT")
    if not parts.comes("("):
        raise InvalidExpression(f"not Hive SQL: VALUES needs ( {parts.here}")
    values = tuple(
        _no_subquery(expression(token), "MERGE INSERT VALUES") for token in parts.in_parentheses()
    )
    if columns and len(columns) != len(values):
        raise InvalidExpression(
            f"MERGE INSERT has {len(columns)} columns but {len(values)} values; give each column"
            " one value"
        )
    return When(MergeAction.INSERT, condition, columns=columns, values=values)


def _inserted(text: str, table: str) -> str:
    """The column that INSERT names, alone or by the name of the table."""
    parts = Parts.of(text)
    first, *rest = parts.name()
    return rest[0] if parts.ended and len(rest) == 1 and first == table else only_name(text)


def _no_subquery(written: Expression, where: str) -> Expression:
    if written.tree.find(exp.Query):
        raise UnsupportedStatement(
            f"a subquery in {where} is not supported; join it to the source of USING (SELECT …)"
        )
    return written


PARSERS: Mapping[str, Callable[[str], Change]] = {
    "INSERT": insert,
    "UPDATE": update,
    "DELETE": delete,
    "MERGE": merge,
    "TRUNCATE": truncate,
    "LOAD": load_data,
}
"""By the first word of the statement."""
