"""Parsing predicates with sqlglot, however nested, and what the tree tells without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from acid_platform.base.arguments import refuse_half_characters
from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.layout.partition_names import partition_segment
from acid_platform.layout.sql_text import canonical, quoted, sql_string
from acid_platform.layout.types import INTEGRAL, Column
from acid_platform.predicates.grammar import SparkSql


@contextmanager
def shallow(what: str) -> Iterator[None]:
    """Raises UnsupportedStatement, which names `what`, if the block runs out of stack."""
    try:
        yield
    except RecursionError:
        raise UnsupportedStatement(
            f"{what} is nested too deeply; write IN (…) for a long chain of OR, or split it"
        ) from None


_BARE = (*INTEGRAL, "float", "double", "decimal", "boolean")
"""Kinds whose literals are written without quotes."""


@lru_cache(256)
def parsed(text: str) -> exp.Expr:
    """What a SQL condition says, in Spark's dialect: each text is parsed once, so nobody changes
    the tree. Raises InvalidExpression."""
    refuse_half_characters(text)
    try:
        with shallow("the condition"):
            tree = sqlglot.parse_one(canonical(text), dialect=SparkSql, into=exp.Condition)
            if len(text) > _LONG:
                _require_shallow(tree)
            return tree
    except SqlglotError as error:
        raise InvalidExpression(
            f"{text!r} is not a SQL condition: {_where(text, error)};"
            " write it as you would after WHERE" + _in_quotes(text)
        ) from error


def _in_quotes(text: str) -> str:
    """A hint for what looks like a text without its quotes."""
    looks = re.fullmatch(r"[^\W\d][\w .,:-]*", text.strip())
    return f"; a text stands in quotes: {sql_string(text.strip())}" if looks else ""


_LONG = 1000
"""Characters; a shorter text can't be nested too deeply for what follows its parser."""
_DEEPEST = 1000


def _require_shallow(tree: exp.Expr) -> None:
    """Raises RecursionError for a tree down which nobody could walk by functions that call
    themselves: everything that goes on from here does. AND and OR take less of the stack."""
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        depth += 1 if isinstance(node, exp.Connector) else 2
        if depth > _DEEPEST:
            raise RecursionError
        waiting += [(child, depth) for child in node.iter_expressions()]


def _where(text: str, error: SqlglotError) -> str:
    """Where the parser gave up; sqlglot's own error text names Python classes."""
    for problem in getattr(error, "errors", ()):
        return f"it can't be parsed from {problem['highlight']!r} on"
    return "a quote or a comment is not closed" if text.strip() else "it is empty"


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that AND combines."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return conjuncts(condition.this)
    if not isinstance(condition, exp.And):
        return [condition]
    return [part for term in condition.flatten() for part in conjuncts(term)]


def columns_of(text: str) -> frozenset[str] | None:
    """Lower-case names of the columns that an expression may read; None if it may read all."""
    paths = paths_of(text)
    return None if paths is None else frozenset(name for path in paths for name in path)


def paths_of(text: str) -> frozenset[tuple[str, ...]] | None:
    """The names that an expression reads, in lower case, with what qualifies them: a table, or the
    struct of a field; None if it may read all columns."""
    tree = parsed(text)
    if tree.find(exp.Star, exp.Select, exp.Lambda):
        return None
    return frozenset(
        tuple(part.name.lower() for part in column.parts) for column in tree.find_all(exp.Column)
    )


def partition_condition(name: str, columns: Sequence[Column]) -> str:
    """`month=3/day=__HIVE_DEFAULT_PARTITION__` → `` `month` = 3 AND `day` IS NULL ``.

    The name may omit trailing columns.
    """
    terms = []
    for segment, column in zip(name.split("/"), columns, strict=False):
        _, value = partition_segment(segment) or ("", None)
        if value is None:
            terms.append(f"{quoted(column.name)} IS NULL")
            continue
        literal = sql_string(value)
        prefix = {"date": "DATE ", "timestamp": "TIMESTAMP "}.get(column.type.kind, "")
        terms.append(
            f"{quoted(column.name)} = "
            + (value if column.type.kind in _BARE else f"{prefix}{literal}")
        )
    return " AND ".join(terms)
