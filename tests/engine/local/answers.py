"""What an engine answers to a SELECT, and how the answers of two engines differ."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from acid_platform import AcidError, InvalidDefinition, SparkLost, Warehouse
from acid_platform.engine.interface import Result
from acid_platform.layout.types import Column
from tests.engine.local.generated import Query


@dataclass(frozen=True)
class Answer:
    """Rows with the names and declared types of their columns, or the class of an error and why."""

    rows: pa.Table = field(default_factory=lambda: pa.table({}))
    columns: tuple[str, ...] = ()
    declared: tuple[Column, ...] | None = None
    """None for a column of nothing but NULL, which no table declares."""
    error: str = ""
    why: str = ""


def answer(warehouse: Warehouse, text: str) -> Answer:
    """The result and its rows, computed once."""
    try:
        result = warehouse.sql(text)
        assert isinstance(result, Result)
        return Answer(result.to_arrow(), tuple(result.columns), _declared(result))
    except SparkLost:
        raise
    except AcidError as error:
        return Answer(error=type(error).__name__, why=str(error))


def disagreement(query: Query, here: Answer, there: Answer) -> str | None:
    """How the local answer and Spark's differ; None if they don't."""
    if here.error or there.error:
        if alike(here, there):
            return None
        shown = (each.why if each.error else f"{len(each.rows)} rows" for each in (here, there))
        return "local: {}, Spark: {}".format(*shown)
    a, b = here.rows, there.rows
    if here.columns != there.columns:
        return f"columns are {there.columns} in Spark, not {here.columns}"
    if a.schema.types != b.schema.types:
        return f"types are {b.schema.types} in Spark, not {a.schema.types}"
    if here.declared != there.declared:
        return f"declared as {there.declared} in Spark, not {here.declared}"
    ours, theirs = (rows_of(table, _either_zero(query.text)) for table in (a, b))
    if Counter(ours) != Counter(theirs):
        only = list((Counter(ours) - Counter(theirs)).elements())[:3]
        other = list((Counter(theirs) - Counter(ours)).elements())[:3]
        return f"only local: {only}, only Spark: {other}"

    def keys(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        zero = {"-0.0": "0.0"}  # they are equal, and either may come first
        return [
            tuple(zero.get(row[i], row[i]) for i in query.sorted_by)  # type: ignore[call-overload]
            for row in rows
        ]

    if keys(ours) != keys(theirs):
        return f"the order is {theirs[:5]} in Spark, not {ours[:5]}"
    return None


def alike(here: Answer, there: Answer) -> bool:
    """Whether both refuse a query for one reason, or each for another of several that it has.

    `SELECT CAST(x AS int), id / 0` has two faulty values: neither engine promises which it meets
    first, and what a single expression raises is compared in `test_expressions.py`.
    """
    reasons = [re.search(r"\[([A-Z_]+)\]", each.why) for each in (here, there)]
    if all(reasons) and len({reason[1] for reason in reasons if reason}) == 2:
        return bool(here.error and there.error)
    if {here.error, there.error} == {"InvalidExpression", "WrongType"}:
        return all(_OF_A_VALUE.match(each.why) for each in (here, there))
    return here.error == there.error


def of_needless_rows(here: Answer, there: Answer) -> bool:
    """Whether Spark alone meets an error of a value, in rows that the answer does not need."""
    return not here.error and bool(_OF_A_VALUE.match(there.why))


_OF_A_VALUE = re.compile("an expression has no value for a row|a value does not fit its column")


def _declared(result: Result) -> tuple[Column, ...] | None:
    try:
        return result.declared()
    except InvalidDefinition:
        return None


def _either_zero(text: str) -> bool:
    """Whether 0.0 and -0.0 are as good: `min` and `max` give that of either row, LIMIT either row
    of two that are sorted alike, and Spark computes `greatest(a, b)` and `greatest(b, a)` once."""
    choices = re.findall(r"\b(?:greatest|least)\(", text)
    return len(choices) > 1 or re.search(r"\b(?:min|max)\(| LIMIT ", text) is not None


def rows_of(table: pa.Table, either_zero: bool = False) -> list[tuple[object, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    rows = zip(*columns, strict=True)
    return [tuple(_comparable(value, either_zero) for value in row) for row in rows]


def _comparable(value: object, either_zero: bool) -> object:
    """0.0 is not -0.0, and NaN is NaN."""
    if isinstance(value, float) and either_zero:
        value += 0.0
    return repr(value) if isinstance(value, list | dict | float) else value
