"""Every example of Spark's documentation means in our texts what it means in Spark (P33)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NoReturn

import duckdb
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from acid_platform import (
    AcidError,
    InvalidExpression,
    NeedsSpark,
    UnknownColumn,
    UnsupportedStatement,
)
from acid_platform.engine.local.translation.batch_functions import add_functions
from acid_platform.engine.local.translation.casts import Typed
from acid_platform.engine.local.translation.column_names import NameScope
from acid_platform.engine.local.translation.duckdb_sql import NTZ, VARIANT, translated
from acid_platform.engine.local.translation.expressions import translate_value
from acid_platform.engine.local.translation.signatures import WANTED
from acid_platform.engine.spark.query import SparkResult
from acid_platform.layout.sql_text import for_spark
from acid_platform.layout.types import Column
from tests.engine.function_examples import MOVING, Example, as_typed, examples
from tests.engine.local.differential import equal, plain

pytestmark = pytest.mark.spark


SAMPLE = 12
"""The default tests take the examples of every 12th function, the slow ones all."""


def same(one: Any, other: Any) -> bool:
    """Whether two plans of Spark's parser are the same but for the numbers of their names."""
    try:
        return bool(one.sameResult(other))
    except Py4JJavaError:  # an unresolved UNION can't be compared so
        one, other = (re.sub(r"#\d+", "#", plan.toString()) for plan in (one, other))
        return bool(one == other)


def is_expression(parser: Any, text: str) -> bool:
    """Whether the text of an example is one expression, without a name and a FROM."""
    try:
        parser.parseExpression(f"CASE WHEN {text}\nTHEN 1 END")
    except ParseException:
        return False
    return True


def require_same_plans(spark: SparkSession, documented: Iterable[Example]) -> None:
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    wrong = []
    for example in documented:
        theirs = parser.parsePlan(example.statement)
        if not same(theirs, parser.parsePlan(for_spark(example.statement))):
            wrong.append(example.statement)
        if is_expression(parser, example.expression):
            one, other = map(
                parser.parseExpression, (example.expression, for_spark(example.expression))
            )
            if one.toString() != other.toString():
                wrong.append(example.expression)
    assert wrong == []


def test_P33_the_text_that_Spark_gets_means_the_example(spark: SparkSession) -> None:
    documented = list(examples(spark, SAMPLE))
    assert len(documented) > 80
    require_same_plans(spark, documented)


@pytest.mark.slow
def test_P33_the_text_that_Spark_gets_means_every_example(spark: SparkSession) -> None:
    documented = list(examples(spark))
    assert len(documented) > 1200
    require_same_plans(spark, documented)


def computed(expression: str, literals: list[str]) -> tuple[Typed, object] | AcidError | None:
    """What the local engine gives for an expression over columns with these values; None if it
    leaves the expression to Spark."""
    try:
        values = [translate_value(literal, NameScope.of({})) for literal in literals]
        columns = [Column(f"c{i}", value.type) for i, value in enumerate(values)]
        typed = translate_value(expression, NameScope.of({"t": columns}))
        if {NTZ, VARIANT} & {*typed.type.walk()}:  # which no result has
            return None
    except (NeedsSpark, UnsupportedStatement):
        return None
    except (InvalidExpression, UnknownColumn) as error:
        return error
    with duckdb.connect() as connection:
        add_functions(connection, WANTED)
        named = ", ".join(f"{value.sql} AS c{i}" for i, value in enumerate(values)) or "1 AS one"
        connection.execute(f"CREATE TABLE t AS SELECT {named}")
        try:
            found = connection.sql(f"SELECT {typed.sql} AS v FROM t").to_arrow_table()
        except duckdb.Error as error:
            ours = translated(error)
            assert ours is not None, (expression, error)
            return None if isinstance(ours, NeedsSpark) else ours
    return typed, plain(found.column(0))[0]


THE_TIME = ("current_timestamp", "current_timestamp()", "now()")
"""Each of the two statements has its own moment."""
A_MINUTE = 60_000_000


def same_value(expression: str, value: Any, ours: Any) -> bool:
    if expression in THE_TIME:
        return abs(value - ours) < A_MINUTE
    return equal(value, ours)


def require_same_values(spark: SparkSession, documented: Iterable[Example], at_least: int) -> None:
    """`at_least`: how many values the local engine must give, and not leave to Spark."""
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    wrong, computed_here = [], 0
    for example in documented:
        for expression, literals in filter(
            None, [(example.expression, []), example.with_columns()]
        ):
            if not is_expression(parser, expression):
                continue
            ours = computed(expression, literals)
            if ours is None:
                continue
            source = ""
            if literals:
                names = ", ".join(f"c{i}" for i in range(len(literals)))
                source = f" FROM VALUES ({', '.join(literals)}) AS t({names})"
            try:
                frame = spark.sql(f"SELECT {expression} AS v{source}")
                kind = frame.schema.fields[0].dataType.simpleString()
                value = plain(frame.toArrow().column(0))[0]
            except PySparkException as error:
                if not isinstance(ours, AcidError):
                    wrong.append(f"{expression} {literals}: {ours[1]!r}, in Spark {error!s:.200}")
                continue
            if isinstance(ours, AcidError):
                wrong.append(f"{expression} {literals}: {value!r} in Spark, not {ours!r}")
            else:
                computed_here += 1
                if not same_value(expression, value, ours[1]) or kind.replace("void", "") != str(
                    ours[0].type
                ).replace("void", ""):
                    wrong.append(f"{expression} {literals}: {value!r} ({kind}), not {ours}")
    assert wrong == []
    assert computed_here > at_least


def test_P33_the_local_engine_gives_the_value_of_each_example_or_leaves_it(
    spark: SparkSession,
) -> None:
    require_same_values(spark, examples(spark, SAMPLE), at_least=8)


@pytest.mark.slow
def test_P33_the_local_engine_gives_the_value_of_every_example_or_leaves_it(
    spark: SparkSession,
) -> None:
    require_same_values(spark, examples(spark), at_least=200)


def require_as_typed(spark: SparkSession, documented: Iterable[Example], at_least: int) -> None:
    """No example that is typed as documented has other names, types or rows; `at_least` are right,
    the others are refused."""
    states = {
        example.statement: as_typed(spark, example)
        for example in documented
        if not MOVING.search(example.statement)
    }
    wrong = {text: why for text, (state, why) in states.items() if state == "wrong"}
    assert wrong == {}
    assert sum(state == "right" for state, _ in states.values()) >= at_least


def test_P33_a_documented_statement_as_typed_has_the_names_types_and_rows_of_Spark(
    spark: SparkSession,
) -> None:
    require_as_typed(spark, examples(spark, SAMPLE), at_least=50)


@pytest.mark.slow
def test_P33_every_documented_statement_as_typed_has_the_names_types_and_rows_of_Spark(
    spark: SparkSession,
) -> None:
    require_as_typed(spark, examples(spark), at_least=860)


def test_P33_a_failure_inside_of_spark_is_an_error_that_says_so() -> None:
    class Inside(Py4JJavaError):  # type: ignore[misc]
        def __init__(self) -> None:
            Exception.__init__(self)

        def __str__(self) -> str:
            return "while calling o1\nCaused by: java.util.NoSuchElementException: x#1\n\tat scala"

    class Frame:
        schema = StructType()

        def toArrow(self) -> NoReturn:
            raise Inside

    with pytest.raises(InvalidExpression, match=r"Spark failed inside: java\.\S+: x#1; "):
        SparkResult(Frame()).to_arrow()  # type: ignore[arg-type]
