"""Predicates whose meaning never changes, so that what was made of one can be used again."""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql import SparkSession
from sqlglot import exp

from acid_platform.errors import InvalidExpression
from acid_platform.predicates.analysis import parse
from acid_platform.predicates.known_columns import is_word

_TIMELESS = (
    exp.And,
    exp.Or,
    exp.Not,
    exp.Paren,
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.Between,
    exp.In,
    exp.Is,
    exp.Null,
    exp.Boolean,
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Neg,
    exp.Cast,
    exp.DataType,
)
_MOMENTS = ("epoch", "now", "today", "tomorrow", "yesterday")
"""Texts that Spark takes for a time if it casts them to one."""
_SETTINGS = ("spark.sql.ansi.enabled", "spark.sql.caseSensitive")
"""Settings on which the meaning of a comparison depends."""


def settings_of(spark: SparkSession) -> tuple[str | None, ...]:
    """The session's settings on which the meaning of a comparison depends."""
    return tuple(spark.conf.get(name) for name in _SETTINGS)


@lru_cache(maxsize=256)
def timeless(where: str) -> bool:
    """Whether a predicate only compares columns with literals, so that it never changes."""
    try:
        nodes = list(parse(where).walk())
    except InvalidExpression:
        return False
    return all(
        isinstance(node, _TIMELESS)
        and not (isinstance(node, exp.Column) and is_word(node))
        and not (isinstance(node, exp.Literal) and _is_moment(node))
        for node in nodes
    )


def _is_moment(literal: exp.Literal) -> bool:
    return literal.is_string and literal.this.strip().lower().startswith(_MOMENTS)
