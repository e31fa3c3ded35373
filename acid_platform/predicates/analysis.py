"""Parsing predicates with sqlglot, however nested, and what the tree tells without Spark, such as
the values of its literals.

Such a value is exact, or an error is raised: Python's `decimal` never rounds it, and texts that
Spark would parse differently are refused. In expressions a CHAR is its value without trailing
blanks, so a literal with some would equal none: it is refused. The local engine knows the types of
what it compares; in a text for Spark names tell it.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache

import sqlglot
from sqlglot import TokenType, exp, parse_one, tokenize
from sqlglot.errors import SqlglotError

from acid_platform.base.arguments import refuse_half_characters
from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.layout.names import partition_segment
from acid_platform.layout.sql_text import canonical, quoted, sql_string
from acid_platform.layout.types import INTEGRAL, Column, HiveType
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


MOST_DIGITS = 38
"""The precision of Spark's widest decimal."""
_INTEGRAL_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Digits:
    """The digits before and after the point of a decimal(whole + scale, scale)."""

    whole: int
    scale: int


def digits_of_type(hive: HiveType) -> Digits | None:
    """The digits of a type of whole numbers or decimals; None for any other type."""
    if hive.kind == "decimal":
        precision, scale = hive.sizes
        return Digits(precision - scale, scale)
    whole = _INTEGRAL_DIGITS.get(hive.kind)
    return None if whole is None else Digits(whole, 0)


def digits_of_value(value: Decimal) -> Digits:
    """The digits of a literal without its trailing zeros, which change no comparison."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") if exponent < 0 else ""
    scale = max(0, -exponent - (len(digits) - len(text))) if exponent < 0 else 0
    return Digits(max(0, len(digits) + exponent), scale)


def compared_exactly(numbers: Iterable[Digits]) -> bool:
    """Whether Spark's common decimal type holds all these numbers; otherwise it rounds.

    For example, `d = 1.5` is true for the value 2 of a decimal(38,0).
    """
    every = list(numbers)
    whole = max((digits.whole for digits in every), default=0)
    scale = max((digits.scale for digits in every), default=0)
    return whole + scale <= MOST_DIGITS


def beyond_bigint(value: int | Decimal) -> bool:
    """Whether a bigint can't hold the literal: Spark then decides by the literal alone, even for
    NULL."""
    return not -(1 << 63) <= value <= (1 << 63) - 1


def number(text: str) -> int | Decimal | float:
    """The value of an unquoted number: int, Decimal, or float if it has an exponent.

    Raises InvalidExpression if Spark has no such number.
    """
    if "e" in text.lower():
        try:
            value = float(text)
        except ValueError as error:
            raise InvalidExpression(f"{text!r} is not a number") from error
        if not math.isfinite(value):
            raise InvalidExpression(
                f"{text} is beyond the range of a double; write a smaller number"
            )
        return value
    try:
        exact = Decimal(text)
    except InvalidOperation as error:
        raise InvalidExpression(f"{text!r} is not a number") from error
    digits = digits_of_value(exact)
    _, all_digits, _ = exact.as_tuple()
    if max(len(all_digits), digits.scale) > MOST_DIGITS:
        raise InvalidExpression(
            f"{text} has more than the {MOST_DIGITS} digits of a decimal; write a shorter number"
        )
    return exact if "." in text else int(exact)


def negated(value: int | Decimal | float) -> int | Decimal | float:
    """`-value`, exactly: Python's unary minus rounds a Decimal to 28 digits."""
    return value.copy_negate() if isinstance(value, Decimal) else -value


def whole_number(text: str, shown: str) -> int:
    """Parses a string literal that is compared with a whole number.

    `shown` is the comparison as SQL, for errors. Raises InvalidExpression, as all functions below.
    """
    stripped = text.strip(" ")
    # Spark compares as bigint, and refuses what is none.
    digits = stripped.lstrip("+-0")
    if not _WHOLE.fullmatch(stripped) or len(digits) > 19 or beyond_bigint(int(stripped)):
        raise _refused(text, "whole number", shown)
    return int(stripped)


def finite_float(text: str, shown: str) -> float:
    stripped = text.strip(" ")
    if not _FLOAT.fullmatch(stripped):
        raise _refused(text, "number", shown)
    value = float(stripped)
    if not math.isfinite(value):
        raise _refused(text, "finite number", shown)
    return value


def date(text: str, shown: str) -> datetime.date:
    stripped = text.strip(" ")
    try:
        if not _DATE.fullmatch(stripped):
            raise ValueError(text)
        return datetime.date.fromisoformat(stripped)
    except ValueError:
        raise _refused(text, "date (YYYY-MM-DD)", shown) from None


def timestamp(text: str, shown: str) -> datetime.datetime:
    stripped = text.strip(" ")
    try:
        if not _TIMESTAMP.fullmatch(stripped):
            raise ValueError(text)
        moment = datetime.datetime.fromisoformat(stripped)
    except ValueError:
        raise _refused(text, "timestamp (YYYY-MM-DD HH:MM:SS)", shown) from None
    if moment.tzinfo is not None:  # P17: timestamps without a zone are in UTC
        return moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return moment


def _refused(text: str, kind: str, shown: str) -> InvalidExpression:
    return InvalidExpression(
        f"{shown}: {text!r} is not a {kind}; write a literal of the column's type"
    )


_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Nullif,
    exp.In, exp.Between,
)  # fmt: skip


def refused_blanks(literal: str) -> UnsupportedStatement:
    """The error for a literal with trailing blanks that is compared with a CHAR."""
    return UnsupportedStatement(
        f"{literal!r} is compared with a char, of which trailing blanks don't count: write the"
        " literal without them"
    )


def refuse_blanks(text: str, columns: Iterable[Column]) -> None:
    """Raises UnsupportedStatement for a query or an expression in Spark's SQL that compares a CHAR
    with a literal that has trailing blanks; also if another column has the name of a CHAR.

    `columns` are those that the text may read.
    """
    if " '" not in text and ' "' not in text:
        return
    chars = {name for column in columns for name in _chars(column.name, column.type)}
    if not chars:
        return
    try:
        tokens = tokenize(text := canonical(text), read=SparkSql)
    except SqlglotError:  # Spark says what is wrong with it
        return
    blank = [t.text for t in tokens if t.token_type is TokenType.STRING and t.text.endswith(" ")]
    if not blank:
        return
    try:
        tree = parse_one(text, read=SparkSql)
    except SqlglotError as error:
        raise refused_blanks(blank[0]) from error
    for renamed in tree.find_all(exp.TableAlias, exp.Lambda):  # for what, is not followed
        names = renamed.columns if isinstance(renamed, exp.TableAlias) else renamed.expressions
        chars.update(name.name.lower() for name in names)
    aliases = [*tree.find_all(exp.Alias)]
    known = 0
    while known < len(chars):
        known = len(chars)
        chars.update(alias.alias.lower() for alias in aliases if _name(alias.this) in chars)
    for literal in tree.find_all(exp.Literal):
        written = str(literal.this)
        if literal.is_string and written.endswith(" ") and chars & set(_compared_with(literal)):
            raise refused_blanks(written)


def _chars(name: str, kind: HiveType) -> Iterator[str]:
    """The names of a column and of the fields inside of it that are a CHAR."""
    while kind.kind in ("array", "map"):
        kind = kind.children[-1][1]
    if kind.kind == "char":
        yield name.lower()
    for field, child in kind.children:
        yield from _chars(field, child)


def _name(node: exp.Expr | None) -> str:
    """The name of a column, of a field or of what has an element like this one; else none."""
    while isinstance(node, exp.Paren | exp.Bracket):
        node = node.this
    return node.name.lower() if isinstance(node, exp.Column | exp.Dot | exp.Identifier) else ""


def _compared_with(literal: exp.Expr) -> Iterator[str]:
    """The names of the columns that the literal is compared with."""
    while isinstance(literal.parent, exp.Paren):
        literal = literal.parent
    parent = literal.parent
    if isinstance(parent, exp.If) and isinstance(parent.parent, exp.Case):
        if literal.arg_key == "this":
            yield _name(parent.parent.this)
    elif isinstance(parent, exp.Case):
        if literal.arg_key == "this":
            yield from (_name(branch.this) for branch in parent.args["ifs"])
    elif isinstance(parent, exp.Tuple | exp.DecodeCase):
        yield from map(_name, (parent.parent or parent).find_all(exp.Column))
    elif isinstance(parent, exp.In) and (query := parent.args.get("query")):
        yield from map(_name, query.find_all(exp.Column))
    elif isinstance(parent, _COMPARISONS):
        yield from map(_name, parent.iter_expressions())
