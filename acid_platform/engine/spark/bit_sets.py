"""Tests of rows against bit sets that are objects of the JVM.

A set is a literal of the plan: its bits are neither in the code that Spark compiles nor in the text
of the plan, and no subquery has to be planned for them. A test compiles to a comparison and one
call. Needs the JVM of a classic session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

from acid_platform.engine.spark.few_calls import java_class, scala_object, scala_seq

_CLASS = "org.apache.spark.util.collection.BitSet"
"""Not java.util.BitSet, whose text has all of its bits, and Spark prints each plan that it runs."""
_CATALYST = "org.apache.spark.sql.catalyst.expressions"
_TYPES = "org.apache.spark.sql.types"


@dataclass(frozen=True, slots=True)
class BitTest:
    """Rows that `guard` accepts are in the set if their bit is set; no other row is.

    `guard` and `bit` are SQL and never NULL. Spark may compute `bit` for every row, so it must be
    an int without an error for all of them; for rows that `guard` accepts it is below
    64 * len(words).
    """

    guard: str
    bit: str
    words: np.ndarray
    """(n,) of 64 bits, the lowest bit first."""


def in_any(spark: SparkSession, tests: Sequence[BitTest]) -> Column:
    """A column that says whether a row is in one of the sets; never NULL.

    Raises Spark's exceptions.
    """
    parser = spark._jsparkSession.sessionState().sqlParser()
    boolean = scala_object(spark, f"{_TYPES}.BooleanType$")
    whole: Any = None
    for number, test in enumerate(tests):
        held = _bit_set(spark, test.words, number + 1)
        kind = java_class(spark, f"{_TYPES}.ObjectType")(held.getClass())
        literal = java_class(spark, f"{_CATALYST}.Literal")(held, kind)
        bit = scala_seq(spark, [parser.parseExpression(test.bit)])
        none = scala_seq(spark, [])
        found = java_class(spark, f"{_CATALYST}.objects.Invoke")(
            literal, "get", boolean, bit, none, True, False, True
        )
        guard = parser.parseExpression(test.guard)
        here = java_class(spark, f"{_CATALYST}.And")(guard, found)
        whole = here if whole is None else java_class(spark, f"{_CATALYST}.Or")(whole, here)
    return ClassicColumn(
        java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils").column(whole)
    )


def _bit_set(spark: SparkSession, words: np.ndarray, mark: int) -> Any:
    """A bit set of the JVM with these words, and with a last word that no row is tested by.

    Spark computes what occurs twice in a condition once, before the condition and so without its
    guard: `get` would fail for rows of other groups. By its `mark` no set equals another one.
    """
    content = np.append(words.view(np.uint64), np.uint64(mark)).astype("<u8").tobytes()
    given = java_class(spark, "java.util.BitSet").valueOf(content).toLongArray()
    held = java_class(spark, _CLASS)(64 * (len(words) + 1))
    inner = held.getClass().getDeclaredField("words")
    inner.setAccessible(True)
    java_class(spark, "java.lang.System").arraycopy(given, 0, inner.get(held), 0, len(words) + 1)
    return held
