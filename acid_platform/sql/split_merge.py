"""Dividing MERGE into the parts that its user wrote, as `split_dml` does other statements."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from acid_platform.engine.merge_clauses import MergeAction
from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.sql.split_dml import Parts, assignments_of, changed_table, only_name
from acid_platform.sql.statements import Assignment, MergeInto, When
from acid_platform.sql.text import Expression, Query, expression, place, query, word


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
        columns = tuple(_inserted(one, table) for one in parts.in_parentheses())
        if twice := [name for name in columns if columns.count(name) > 1]:
            raise InvalidExpression(f"MERGE INSERT names column {twice[0]!r} twice")
    parts.need("VALUES", "MERGE INSERT")
    if not parts.comes("("):
        raise InvalidExpression(f"not Hive SQL: VALUES needs ( {parts.here}")
    values = tuple(
        _no_subquery(expression(one), "MERGE INSERT VALUES") for one in parts.in_parentheses()
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
