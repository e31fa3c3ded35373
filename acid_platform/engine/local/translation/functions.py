"""Aggregates, and calls that are more than a text with their arguments in it.

What is neither here, nor in library.py, nor among the operators of expressions.py needs Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import sqlglot
from sqlglot import exp

from acid_platform.engine.local.translation.aggregates import AGGREGATES
from acid_platform.engine.local.translation.arrays import ARRAY_CALLS
from acid_platform.engine.local.translation.dates import DATE_CALLS, MOMENTS
from acid_platform.engine.local.translation.intervals import UNIT_CALLS
from acid_platform.engine.local.translation.json_urls import TEXT_CALLS
from acid_platform.engine.local.translation.lambdas import LAMBDA_CALLS
from acid_platform.engine.local.translation.signatures import Function
from acid_platform.predicates.grammar import SparkSql

FUNCTIONS = (*MOMENTS, *AGGREGATES)
CALLS = {**DATE_CALLS, **UNIT_CALLS, **ARRAY_CALLS, **LAMBDA_CALLS, **TEXT_CALLS}
"""Calls that are more than a text with their arguments in it, by the name of the function."""


def is_momentary(node: exp.Expr) -> bool:
    """Whether the value depends on the moment of the statement."""
    return any(function in MOMENTS for function, _ in calls_of(node))


# --- finding the function of a node ---------------------------------------------------------------


def calls_of(node: exp.Expr) -> Iterator[tuple[Function, dict[str, exp.Expr]]]:
    """The functions whose call the node is, with the arguments by their letter."""
    for pattern, function in _patterns().get(_kind(node), ()):
        arguments: dict[str, exp.Expr] = {}
        if _matches(pattern, node, arguments):
            yield function, arguments


def _kind(node: exp.Expr) -> tuple[type[exp.Expr], str]:
    """The class of a node, and the name of a function that sqlglot leaves as it is written."""
    return type(node), node.name.lower() if isinstance(node, exp.Anonymous) else ""


@cache
def _patterns() -> dict[tuple[type[exp.Expr], str], list[tuple[exp.Expr, Function]]]:
    """The calls as sqlglot parses them, as they are written here and as it writes them itself."""
    patterns: dict[tuple[type[exp.Expr], str], list[tuple[exp.Expr, Function]]] = {}
    for function in FUNCTIONS:
        written = sqlglot.parse_one(function.call, dialect=SparkSql)
        again = sqlglot.parse_one(written.sql("spark"), dialect=SparkSql)
        # sqlglot writes every percentile of a group as PERCENTILE_APPROX, which is another one.
        same = written == again or isinstance(written, exp.WithinGroup)
        for pattern in (written,) if same else (written, again):
            patterns.setdefault(_kind(pattern), []).append((pattern, function))
    return patterns


def _matches(pattern: object, node: object, arguments: dict[str, exp.Expr]) -> bool:
    if isinstance(pattern, exp.Column) and isinstance(node, exp.Expr):
        if isinstance(node, exp.Distinct | exp.Star):
            return False
        arguments[pattern.name] = node
        return True
    if isinstance(pattern, list) and isinstance(node, list):
        return len(pattern) == len(node) and all(
            _matches(a, b, arguments) for a, b in zip(pattern, node, strict=True)
        )
    if isinstance(pattern, exp.Expr) and type(pattern) is type(node):
        assert isinstance(node, exp.Expr)
        names = {name for name, value in (*pattern.args.items(), *node.args.items()) if value}
        if isinstance(pattern, exp.Anonymous):  # its name, in the letter case that was written
            names.discard("this")
            if pattern.name.lower() != node.name.lower():
                return False
        return all(_matches(pattern.args.get(n), node.args.get(n), arguments) for n in names)
    return pattern == node
