"""Aggregates, and calls that are more than a text with their arguments in it.

What is neither here, nor in library.py, nor among the operators of expressions.py needs Spark.
"""

from __future__ import annotations

import re
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
from acid_platform.predicates.grammar import ARGUMENTS, CALLED, SparkSql

FUNCTIONS = (*MOMENTS, *AGGREGATES)
CALLS = {**DATE_CALLS, **UNIT_CALLS, **ARRAY_CALLS, **LAMBDA_CALLS, **TEXT_CALLS}
"""Calls that are more than a text with their arguments in it, by the name of the function."""


def is_momentary(node: exp.Expr) -> bool:
    """Whether the value depends on the moment of the statement."""
    return any(function in MOMENTS for function, _ in calls_of(node))


# --- finding the function of a node ---------------------------------------------------------------


def arguments_of(node: exp.Expr) -> tuple[str, tuple[exp.Expr, ...]] | None:
    """The name of a call as it was written, in lower case, and its arguments; None for others."""
    called, given = node.meta.get(CALLED), node.meta.get(ARGUMENTS)
    parts: tuple[str, ...]
    match node:
        case exp.GroupConcat() if isinstance(node.this, exp.Order):
            return None
        case exp.Anonymous() if node.name == "shiftrightunsigned" and not called:
            return ">>>", tuple(node.expressions)
        case exp.Anonymous():
            return node.name.lower(), tuple(node.expressions)
        case _ if called and given is not None:
            return called, tuple(given)
        case exp.Transform():
            return "transform", (node.this, node.expression)
        case exp.Overlay():
            parts = ("this", "expression", "from_", "for_")
        case exp.StrPosition() if called == "position":
            called, parts = "locate", ("substr", "this")
        case exp.Substring():
            parts = ("this", "start", "length")
        case exp.Ceil() | exp.Floor():
            parts = ("this", "decimals")
        case exp.Initcap():
            parts = ("this",)
        case exp.Chr() | exp.DecodeCase():
            return called or "", tuple(node.expressions)
        case exp.Decode() | exp.Encode():
            parts = ("this", "charset")
        case exp.Trim() if node.args.get("expression") or node.args.get("position"):
            word = (node.args.get("position") or "BOTH").upper()
            given = [node.args["expression"]] if node.args.get("expression") else []
            return f"trim {word.lower()}", (*given, node.this)
        case exp.Trim():
            return "trim", (node.this,)
        case exp.BitwiseLeftShift() | exp.BitwiseRightShift():
            word = "<<" if isinstance(node, exp.BitwiseLeftShift) else ">>"
            return word, (node.this, node.expression)
        case _:
            return None
    return called or "", tuple(node.args[part] for part in parts if node.args.get(part))


def calls_of(node: exp.Expr) -> Iterator[tuple[Function, dict[str, exp.Expr]]]:
    """The functions whose call the node is, with the arguments by their letter."""
    named, plain = _named(), True
    if (written := arguments_of(node)) is not None and written[0] in named:
        name, given = written
        distinct = bool(given) and isinstance(given[0], exp.Distinct)
        if distinct:
            given = (*given[0].expressions, *given[1:])
        if not any(isinstance(part, exp.Star) for part in given):
            found = named[name].get((distinct, len(given)), ())
            yield from ((function, dict(zip("abcdefg", given, strict=False))) for function in found)
            if found:
                return
            plain = False
    for pattern, function in _patterns().get(_kind(node), ()):
        if _CALL.fullmatch(function.call) and (
            not plain or (node.meta.get(CALLED) in named and node.meta[CALLED] != function.name)
        ):
            continue
        arguments: dict[str, exp.Expr] = {}
        if _matches(pattern, node, arguments):
            yield function, arguments


_CALL = re.compile(r"(\w+)\((DISTINCT )?(?:a((?:, [b-g])*))?\)")


@cache
def _named() -> dict[str, dict[tuple[bool, int], list[Function]]]:
    """The functions whose call has no other form than names and letters: by their name, whether of
    distinct values, and how many arguments they take."""
    named: dict[str, dict[tuple[bool, int], list[Function]]] = {}
    for function in FUNCTIONS:
        if match := _CALL.fullmatch(function.call):
            count = 0 if match[3] is None else 1 + match[3].count(",")
            by_count = named.setdefault(match[1], {})
            by_count.setdefault((match[2] is not None, count), []).append(function)
    return named


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
        if isinstance(node, exp.Distinct | exp.Star | exp.Order):
            return False
        return arguments.setdefault(pattern.name, node) == node
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
