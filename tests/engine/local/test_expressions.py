"""P33: every operator and function that runs locally means the same in both engines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from acid_platform import InvalidExpression, NeedsSpark
from acid_platform.engine.local.computation import compute
from acid_platform.engine.local.translation.arithmetic import quotient
from acid_platform.engine.local.translation.column_names import NameScope
from acid_platform.engine.local.translation.expressions import CONSTRUCTS, translate_value
from acid_platform.engine.local.translation.select_expressions import OF_WHOLE_PARTITIONS
from acid_platform.engine.local.translation.signatures import KINDS, SIGNATURES
from acid_platform.layout.types import HiveType, parse_columns
from tests.engine.local import samples
from tests.engine.local.differential import (
    Local,
    LocalTable,
    alike,
    differences,
    error_differences,
    name_differences,
    near,
    query_differences,
    spark_table,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def computed(table: LocalTable, entries: Iterator[tuple[str, list[str]]]) -> list[Local]:
    """What the local engine computes; each entry has at least one expression that it does."""
    found = []
    for entry, expressions in entries:
        before = len(found)
        for expression in expressions:
            try:
                found.append(table.compute(expression))
            except NeedsSpark:
                continue
        assert len(found) > before, f"{entry} is in the table, but no expression of it runs"
    return found


def test_P33_a_comparison_never_rounds_a_literal() -> None:
    """Spark compares with 1.01 here; a scan leaves out files by 1.005."""
    scope = NameScope.of({"t": parse_columns("k decimal(38,2), l decimal(38,6)")})
    for condition in ("k <= 1.005", "k IN (1.5, 1.005)", "k BETWEEN 0 AND 1.005", "1.005 = k"):
        with pytest.raises(NeedsSpark, match=r"rounds 1\.005"):
            translate_value(condition, scope)
    assert "DECIMAL(38,2)" in translate_value("k < l", scope).sql
    assert "1.00" in translate_value("k <= 1.0000", scope).sql


def test_P33_the_keys_of_a_window_may_fail_as_other_values_do() -> None:
    """DuckDB takes no volatile key, which a call of `error` is."""
    table = LocalTable()
    ordered = "rank() OVER (PARTITION BY ib / ia ORDER BY 1.5 / ia) AS r"
    assert table.query(f"SELECT {ordered} FROM t WHERE ia = 5")
    with pytest.raises(InvalidExpression, match=r"\[DIVIDE_BY_ZERO\] Division by zero; leave"):
        table.query(f"SELECT {ordered} FROM t")


def test_every_construct_has_samples() -> None:
    assert samples.CONSTRUCTS.keys() == CONSTRUCTS.keys()
    assert samples.CALLS.keys() <= SIGNATURES.keys()
    rows = itertools.chain(*SIGNATURES.values())
    taken = {takes.removesuffix("*") for row in rows for takes in row.takes}
    assert taken <= samples.ARGUMENTS.keys() <= KINDS.keys()
    assert not {name for name, rows in SIGNATURES.items() if len({r.aggregate for r in rows}) > 1}


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Spark evaluates expressions without compiling them: two thousand take long to compile."""
    settings = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, kept in before.items():
            if kept is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, kept)


@pytest.fixture(scope="module")
def local() -> list[Local]:
    return computed(LocalTable(), samples.scalar())


@pytest.mark.slow
def test_P33_products_of_the_largest_decimals_are_exact() -> None:
    table = LocalTable()
    kinds = [(p, s) for p in (1, 5, 9, 10, 17, 18, 19, 28) for s in {0, p // 2, p}]
    for (p, s), (q, r) in itertools.product(kinds, kinds):
        if p + q + 1 > 38:
            continue
        for sign in ("", "-"):
            a, b = Decimal(f"{sign}{'9' * p}E-{s}"), Decimal(f"{'9' * q}E-{r}")
            factors = f"CAST('{a:f}' AS decimal({p},{s}))", f"CAST('{b:f}' AS decimal({q},{r}))"
            found = table.compute(" * ".join(factors))
            with localcontext(prec=76):
                assert set(found.rows.values()) == {a * b}, (found.expression, found.errors)


def test_P33_a_quotient_of_decimals_is_rounded_half_away_from_zero() -> None:
    most = 10**38 - 1
    small, large = range(-11, 12), [most, most - 1, most // 2, most // 2 + 1, 10**20, 3]
    pairs = [*itertools.product(small, small), *itertools.product(large, large)]
    pairs += [(sign * (most // 2 * 2 + odd), 2) for sign in (1, -1) for odd in (0, 1)]
    asked = [(x, y) for x, y in pairs if y]
    rows = pa.table({"x": [str(x) for x, _ in asked], "y": [str(y) for _, y in asked]})
    digits = "SELECT CAST(x AS HUGEINT) AS x, CAST(y AS HUGEINT) AS y FROM given"
    kind = HiveType("decimal", sizes=(38, 1))
    found = compute(f"SELECT {quotient('x', 'y', kind)} AS q FROM ({digits})", {"given": rows})
    with localcontext(prec=90, rounding=ROUND_HALF_UP):
        for (x, y), q in zip(asked, found.column("q").to_pylist(), strict=True):
            assert q * 10 == (Decimal(x) / y).to_integral_value(), (x, y)


def test_P33_a_literal_divisor_needs_no_CASE() -> None:
    scope = NameScope.of({"t": parse_columns("a bigint")})
    given = "SELECT * FROM (VALUES (-7), (NULL), (-9223372036854775808)) AS t(a)"

    def of(text: str) -> list[object]:
        value = translate_value(text, scope).sql
        assert ("CASE" in value) == (text[-1] in "01"), value
        return list(compute(f"SELECT {value} AS q FROM ({given}) AS t", {})["q"].to_pylist())

    assert of("a % 3") == [-1, None, -2]
    assert of("a DIV 2") == [-3, None, -(1 << 62)]
    assert of("a / 2") == [-3.5, None, -float(1 << 62)]
    assert of("a % -1") == [0, None, 0]
    with pytest.raises(InvalidExpression, match="REMAINDER_BY_ZERO"):
        of("a % 0")


@pytest.mark.parametrize("divided", ["a / b", "a / 3", "(a / b) / b", "1 / (a / b)"])
def test_P33_a_quotient_of_NULL_is_NULL_whatever_divides_it(divided: str) -> None:
    scope = NameScope.of({"t": parse_columns("a decimal(12,2), b decimal(7,3)")})
    value = translate_value(divided, scope).sql
    given = (
        "SELECT * FROM (VALUES (NULL::DECIMAL(12,2), 0::DECIMAL(7,3)), (NULL, NULL), (NULL, -2))"
        " AS t(a, b)"
    )
    assert compute(f"SELECT {value} AS q FROM ({given}) AS t", {})["q"].null_count == 3
    if "b" in divided:
        with pytest.raises(InvalidExpression, match="DIVIDE_BY_ZERO"):
            compute(f"SELECT {value} FROM ({given.replace('NULL::', '1::')}) AS t", {})


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_P33_every_function_gives_the_values_and_errors_of_Spark(
    spark: SparkSession, local: list[Local]
) -> None:
    with interpreted(spark):
        table = spark_table(spark)
        found = [*differences(table, local), *name_differences(table, local)]
        found += error_differences(table, [one for one in local if one.errors][::5])
        table.unpersist()
    assert not found, f"{len(found)} of {len(local)}:\n" + "\n".join(found)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_P33_every_function_gives_the_values_and_every_error_of_compiled_Spark(
    spark: SparkSession, local: list[Local]
) -> None:
    table = spark_table(spark)
    found: list[str] = []
    for start in range(0, len(local), 250):
        found += differences(table, local[start : start + 250])
    found += error_differences(table, [one for one in local if one.errors])
    table.unpersist()
    assert not found, f"{len(found)} of {len(local)}:\n" + "\n".join(found)


@pytest.mark.slow
@pytest.mark.spark
def test_P33_every_aggregate_gives_the_values_and_errors_of_Spark(spark: SparkSession) -> None:
    local, table = LocalTable(), spark_table(spark)
    loose = samples.without_order()
    pairs = samples.of_pairs()
    items = [
        call for _, calls in samples.aggregates() for call in calls if call not in (*loose, *pairs)
    ]
    plain = [
        item
        for item in items
        if "DISTINCT" not in item and item.partition("(")[0] not in OF_WHOLE_PARTITIONS
    ]
    forms = {
        "SELECT za, {} FROM t GROUP BY za ORDER BY za": items,
        "SELECT hb, {} FROM t GROUP BY hb ORDER BY hb": items,
        "SELECT 1 AS one, {} FROM t WHERE id < 0": items,
        "SELECT 1 AS one, {} FROM t": items,
        "SELECT id, {} OVER (PARTITION BY za ORDER BY id) FROM t ORDER BY id": plain,
    }
    found = []
    for form, chosen in forms.items():
        less, few = loose, pairs
        if "OVER" in form:
            over = form.partition("{}")[2].partition(" FROM")[0]
            less = [item for item in loose if item.partition("(")[0] not in OF_WHOLE_PARTITIONS]
            chosen, less, few = ([item + over for item in each] for each in (chosen, less, pairs))
            form = "SELECT id, {} FROM t ORDER BY id"
        found += query_differences(local, table, chosen, form)
        found += query_differences(local, table, less, form, alike)
        found += query_differences(local, table, few, form, near)
    windows = [
        f"{function} OVER (PARTITION BY zb ORDER BY {order}{frame})"
        for function, frames in samples.WINDOWS.items()
        for order in ("id", "ib, id", "sa DESC, id", "xa NULLS LAST, id")
        for frame in frames
    ]
    form = "SELECT id, {} FROM t ORDER BY id"
    found += query_differences(local, table, windows, form)
    table.unpersist()
    assert not found, f"{len(found)}:\n" + "\n".join(found)
