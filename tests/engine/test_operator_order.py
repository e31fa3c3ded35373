"""Operators without parentheses are grouped as Spark's parser groups them, or refused as there."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from sqlglot import exp

from acid_platform import InvalidExpression
from acid_platform.predicates.analysis import parsed

pytestmark = pytest.mark.spark

BINARY = {
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "DIV",
    exp.Add: "+",
    exp.Sub: "-",
    exp.DPipe: "||",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    exp.BitwiseAnd: "&",
    exp.BitwiseXor: "^",
    exp.BitwiseOr: "|",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.Like: "LIKE",
    exp.ILike: "ILIKE",
    exp.RegexpLike: "RLIKE",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.And: "AND",
    exp.Or: "OR",
}
OTHERS = (
    ">>>",
    "==",
    "!=",
    "!<",
    "!>",
    "NOT LIKE",
    "REGEXP",
    "IS NOT DISTINCT FROM",
    "BETWEEN e AND",
)
POSTFIX = ("IS NULL", "IS TRUE", "IS NOT FALSE", "IN (e, f)", "NOT IN (e)", "NOT BETWEEN e AND f")
PREFIX = ("-", "~", "+", "NOT ", "!")
NOT_SPARK = (
    "??",
    "**",
    "&&",
    "XOR",
    "//",
    "@>",
    "~~",
    "->>",
    "SIMILAR TO",
    "GLOB",
    "< <",
    "> >",
    "||/",
)
NOT_SPARK_EITHER = (
    "a NOTNULL", "a IS NULL IS NULL", "a IN b", "a IN ()", "a IN [b]", "a IN UNNEST(b)", "a &< b",
    "a &> b", "a ~* b", "a <-> b", "a -|- b", "a ~~~ b", "a ~~* b", "a := b",
)  # fmt: skip
OPERATORS = (*BINARY.values(), *OTHERS)


def grouped(node: exp.Expr) -> str:
    """The expression with all of its parentheses."""
    match node:
        case exp.Paren():
            return grouped(node.this)
        case exp.Not():
            return f"(NOT {grouped(node.this)})"
        case exp.Neg():
            return f"(- {grouped(node.this)})"
        case exp.BitwiseNot():
            return f"(~ {grouped(node.this)})"
        case exp.Anonymous() if node.name == "positive":
            return f"(+ {grouped(node.expressions[0])})"
        case exp.Anonymous() if node.name == "shiftrightunsigned":
            return f"({' >>> '.join(map(grouped, node.expressions))})"
        case exp.Between():
            low, high = grouped(node.args["low"]), grouped(node.args["high"])
            return f"({grouped(node.this)} BETWEEN {low} AND {high})"
        case exp.In():
            return f"({grouped(node.this)} IN ({', '.join(map(grouped, node.expressions))}))"
        case exp.Is():
            return f"({grouped(node.this)} IS {node.expression.sql()})"
        case exp.Connector():  # Spark halves a chain of them, which means the same
            return f"({f' {BINARY[type(node)]} '.join(map(grouped, node.flatten(unnest=False)))})"
        case exp.Binary() if type(node) in BINARY:
            word = "NOT " if node.args.get("negate") else ""
            return f"({grouped(node.left)} {word}{BINARY[type(node)]} {grouped(node.right)})"
    return node.sql("spark")


def differences(spark: SparkSession, texts: Iterable[str]) -> list[str]:
    """One line for each text that sqlglot, as we use it, and Spark group differently."""
    parser: Any = spark._jsparkSession.sessionState().sqlParser()

    def by_spark(text: str) -> str | None:
        try:
            # A text alone may have a name: `a ** b` is `a * *` with the name `b`.
            shown = str(parser.parseExpression(f"CASE WHEN {text}\nTHEN 1 END").toString())
        except ParseException:
            return None
        # Spark has nodes of its own for these; sqlglot has NOT before the others.
        return shown.replace("isnotnull(", "NOT isnull(")

    found = []
    for text in texts:
        try:
            ours = grouped(parsed(text))
        except InvalidExpression:
            ours = None
        theirs = by_spark(text)
        if (theirs is None) != (ours is None) or (ours is not None and by_spark(ours) != theirs):
            found.append(f"{text}: {theirs} in Spark, not {ours}")
    return found


def chains(count: int) -> Iterable[str]:
    """`a OP b OP c …` for all choices of that many operators."""
    for operators in itertools.product(OPERATORS, repeat=count):
        yield "a" + "".join(
            f" {operator} {name}" for operator, name in zip(operators, "bcd", strict=False)
        )


def test_P33_pairs_of_operators(spark: SparkSession) -> None:
    assert differences(spark, chains(2)) == []


def test_P33_operators_before_and_after_an_operand(spark: SparkSession) -> None:
    texts = [
        *(f"{prefix}a {operator} b" for prefix in PREFIX for operator in OPERATORS),
        *(f"a {operator} {prefix}b" for prefix in PREFIX[:3] for operator in OPERATORS),
        *(f"a {operator} b {postfix}" for postfix in POSTFIX for operator in OPERATORS),
        *(f"a {postfix} {operator} b" for postfix in POSTFIX for operator in OPERATORS),
        *(f"{prefix}a {postfix}" for prefix in PREFIX for postfix in POSTFIX),
        *(f"{one}{other}a" for one in PREFIX[:3] for other in PREFIX[:3] if one + other != "--"),
        *(f"{one}{other}a" for one in PREFIX[3:] for other in PREFIX),
        *(f"a {operator}~~b" for operator in OPERATORS),
    ]
    assert differences(spark, texts) == []


def test_P33_operators_of_other_systems_are_refused(spark: SparkSession) -> None:
    texts = [f"a {operator} b" for operator in NOT_SPARK]
    assert differences(spark, [*texts, *NOT_SPARK_EITHER]) == []


def test_P33_longer_expressions(spark: SparkSession) -> None:
    chosen = random.Random(36).sample(list(chains(3)), 500)
    assert differences(spark, chosen) == []


@pytest.mark.slow
def test_P33_triples_of_operators(spark: SparkSession) -> None:
    assert differences(spark, chains(3)) == []
