"""CASE, and the functions that choose one of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, as_condition, cast, compared
from acid_platform.engine.local.translation.duckdb_types import (
    BOOLEAN,
    VOID,
    ordered,
    spark_name,
    widest,
)
from acid_platform.errors import InvalidExpression, NeedsSpark
from acid_platform.predicates.grammar import CALLED

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.expressions import Translator


def case(translator: Translator, node: exp.Case) -> Typed:
    def test(branch: exp.If) -> Typed:
        if node.this is None:
            return translator.condition(branch.this)
        return compared("=", translator.value(node.this), translator.value(branch.this))

    branches = [(test(one), translator.value(one.args["true"])) for one in node.args["ifs"]]
    return _cases(translator, branches, node.args.get("default"))


def if_(translator: Translator, node: exp.If) -> Typed:
    if node.args.get("false") is None:
        raise InvalidExpression("if takes three arguments: if(condition, value, other value)")
    condition = as_condition(translator.value(node.this), node.this.sql("spark"), null=True)
    branch = (condition, translator.value(node.args["true"]))
    return _cases(translator, [branch], node.args.get("false"))


def nvl2(translator: Translator, node: exp.Nvl2) -> Typed:
    value = translator.value(node.this)
    test = Typed(f"({value.sql} IS NOT NULL)", BOOLEAN, value.fails)
    return _cases(translator, [(test, translator.value(node.args["true"]))], node.args.get("false"))


def _cases(
    translator: Translator, branches: Sequence[tuple[Typed, Typed]], default: exp.Expr | None
) -> Typed:
    other = Typed("NULL", VOID) if default is None else translator.value(default)
    *values, last = _in_one_type([*(value for _, value in branches), other], "CASE")
    whens = " ".join(
        f"WHEN {test.sql} THEN {value.sql}"
        for (test, _), value in zip(branches, values, strict=True)
    )
    fails = any(one.fails for one in (*(test for test, _ in branches), *values, last))
    return Typed(f"(CASE {whens} ELSE {last.sql} END)", last.type, fails)


def coalesce(translator: Translator, node: exp.Coalesce) -> Typed:
    if node.meta.get(CALLED) in ("nvl", "ifnull") and len(node.expressions) != 1:
        raise InvalidExpression(f"{node.meta[CALLED]} takes two arguments")
    values = _in_one_type(_all(translator, node), "coalesce")
    # Not DuckDB's coalesce: CASE is known to evaluate what it needs and no more.
    whens = " ".join(f"WHEN {value.sql} IS NOT NULL THEN {value.sql}" for value in values[:-1])
    choice = f"(CASE {whens} ELSE {values[-1].sql} END)" if whens else values[-1].sql
    return Typed(choice, values[-1].type, any(value.fails for value in values))


def nullif(translator: Translator, node: exp.Nullif) -> Typed:
    value = translator.value(node.this)
    test = compared("=", value, translator.value(node.expression))
    choice = f"(CASE WHEN {test.sql} THEN NULL ELSE {value.sql} END)"
    return Typed(choice, value.type, value.fails or test.fails)


def greatest(translator: Translator, node: exp.Expr) -> Typed:
    if not node.expressions:
        raise InvalidExpression("greatest and least take two arguments or more")
    values = _in_one_type(_all(translator, node), "greatest and least")
    if not ordered(values[0].type):
        raise NeedsSpark(f"greatest and least of {spark_name(values[0].type)}")
    name = "greatest" if isinstance(node, exp.Greatest) else "least"
    call = f"{name}({', '.join(value.sql for value in values)})"
    return Typed(call, values[0].type, any(value.fails for value in values))


def _all(translator: Translator, node: exp.Expr) -> list[Typed]:
    return [translator.value(part) for part in (node.this, *node.expressions)]


def _in_one_type(values: Sequence[Typed], shown: str) -> list[Typed]:
    kind = widest(value.type for value in values)
    if kind is None:
        kinds = ", ".join(spark_name(value.type) for value in values)
        raise NeedsSpark(f"{shown} of {kinds}")
    return [value if kind == VOID else cast(value, kind) for value in values]
