"""P33: the local engine gives what Spark's documentation of its functions says, or leaves it."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

import duckdb
import pytest
import sqlglot

from acid_platform import NeedsSpark
from acid_platform.engine.interface import TableRead
from acid_platform.engine.local.run_query import query
from acid_platform.engine.local.translation.arithmetic import unscaled
from acid_platform.engine.local.translation.column_names import NameScope
from acid_platform.engine.local.translation.duckdb_sql import decimal, in_proportion
from acid_platform.engine.local.translation.expressions import translate_value
from acid_platform.engine.local.translation.printed_names import column_name
from acid_platform.engine.local.translation.queries import QueryTranslator
from acid_platform.engine.local.translation.text_patterns import re2_pattern
from acid_platform.layout.types import parse_columns
from acid_platform.predicates.grammar import SparkSql
from acid_platform.scan.scans import Scan
from tests.engine.local.refused_texts import OTHERWISE, texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = [
    ("date_format('2016-04-08', 'y')", "2016"),
    ("date_format(DATE'2016-04-08', 'yyyy/MM/dd')", "2016/04/08"),
    ("regexp_extract('100-200', '(\\\\d+)-(\\\\d+)', 1)", "100"),
    ("regexp_extract('100-200', r\"(\\d+)-(\\d+)\", 1)", "100"),
    ("regexp_replace('100-200', '(\\\\d+)', 'num')", "num-num"),
    ("regexp_replace('100-200', r\"(\\d+)\", 'num')", "num-num"),
    ("'%SystemDrive%\\\\Users\\\\John' RLIKE '%SystemDrive%\\\\\\\\Users.*'", True),
    ("CAST(-128 AS tinyint) % CAST(-1 AS tinyint)", 0),
    ("CAST('-9223372036854775808' AS bigint) % -1", 0),
    ("array_except(array(1, 2, 3), array(1, 3, 5))", [2]),
    ("array_insert(array(5, 3, 2, 1), -4, 4)", [5, 4, 3, 2, 1]),
    ("array_position(array(312, 773, 708, 708), 708)", 3),
    ("exists(array(1, null, 3), x -> x % 2 = 0)", None),
    ("forall(array(2, null, 8), x -> x % 2 = 0)", None),
    ("aggregate(array(1, 2, 3), 0, (acc, x) -> acc + x, acc -> acc * 10)", 60),
    ("slice(array(1, 2, 3, 4), -2, 2)", [3, 4]),
    ("sort_array(array('b', 'd', null, 'c', 'a'), false)", ["d", "c", "b", "a", None]),
    ("map_zip_with(map('a', 1), map('b', 3), (k, x, y) -> coalesce(x, y))", {"a": 1, "b": 3}),
    ("transform(array(1, 2, 3), (x, i) -> x + i)", [1, 3, 5]),
    ("zip_with(array(1, 2), array(3), (x, y) -> y)", [3, None]),
    ("months_between('1997-02-28 10:30:00', '1996-10-30')", 3.94959677),
    ("next_day('2015-01-14', 'TU')", datetime.date(2015, 1, 20)),
    ("make_timestamp(2019, 6, 30, 23, 59, 60)", datetime.datetime(2019, 7, 1)),
    ("timestampdiff(MONTH, timestamp'2022-01-31 10:00:00', timestamp'2022-03-01 09:00:00')", 0),
    ("unix_timestamp('2016-04-08', 'yyyy-MM-dd')", 1460073600),
    ("try_to_date('foo', 'yyyy-MM-dd')", None),
    ('get_json_object(\'[{"a":"b"},{"a":"c"}]\', \'$[0].a\')', "b"),
    ("to_json(named_struct('a', 1, 'b', cast(null as int)))", '{"a":1}'),
    ("parse_url('http://spark.apache.org/path?query=1', 'QUERY', 'query')", "1"),
    ("url_encode('a b*~')", "a+b*%7E"),
    ("regexp_like('%SystemDrive%\\\\Users\\\\John', '%SystemDrive%\\\\\\\\Users.*')", True),
    ("CAST(0.5 AS string) || CAST(-0.25 AS string) || 0.0", "0.5-0.250.0"),
    ("CAST(CAST(0.5 AS decimal(38,38)) AS string)", "0." + "5".ljust(38, "0")),
    ("CAST(16777216 AS float)", 16777216.0),
]
NAMES = [
    ("st.b", "b"),
    ("upper(st.b)", "upper(st.b)"),
    ("CAST(st.b AS int)", "CAST(st.b AS INT)"),
    ("array(-0, -0L, (-0), -0.0, -1)", "array(0, 0, 0, 0.0, -1)"),
    ("array(-0D, -0.0F, -0e0)", "array(-0.0, -0.0, -0.0)"),
    (
        "transform(a, x -> x.b || st.b)",
        "transform(a, lambdafunction(concat(namedlambdavariable().b, st.b),"
        " namedlambdavariable()))",
    ),
    (
        "first_value(k) IGNORE NULLS OVER (ORDER BY i)",
        "first(k) OVER (ORDER BY i ASC NULLS FIRST"
        " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    ),
    (
        "first_value(k, true) OVER (ORDER BY i)",
        "first_value(k) OVER (ORDER BY i ASC NULLS FIRST"
        " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    ),
    (
        "lead(k, 2) IGNORE NULLS OVER (ORDER BY i)",
        "lead(k, 2, NULL) OVER (ORDER BY i ASC NULLS FIRST"
        " ROWS BETWEEN 2 FOLLOWING AND 2 FOLLOWING)",
    ),
    ("positive(1)", "(+ 1)"),
    ("1e10", "1.0E10"),
    ("5L + 2.50", "(5 + 2.50)"),
    ("-5L", "-5"),
    ("'10' :: int", "CAST(10 AS INT)"),
    ("DATE'2016-04-08' = x'0a'", "(DATE '2016-04-08' = X'0A')"),
    ("shiftleft(2, 1)", "shiftleft(2, 1)"),
    ("2 << 1", "(2 << 1)"),
    ("4 >>> 1", "(4 >>> 1)"),
    ("sqrt(acos(4))", "SQRT(ACOS(4))"),
    ("ceil(5)", "CEIL(5)"),
    ("ceiling(5)", "ceiling(5)"),
    ("ceil(3.1411, -3)", "ceil(3.1411, -3)"),
    ("CHAR_LENGTH('Spark SQL ')", "char_length(Spark SQL )"),
    ("POSITION('bar' IN 'foobarbar')", "locate(bar, foobarbar, 1)"),
    ("position('bar', 'foobarbar', 5)", "position(bar, foobarbar, 5)"),
    ("substr('Spark SQL', 5)", "substr(Spark SQL, 5, 2147483647)"),
    ("substr('Spark SQL' FROM -3)", "substring(Spark SQL, -3, 2147483647)"),
    ("trim(LEADING FROM ' a ')", "ltrim( a )"),
    ("trim('SL' FROM 'SSparkSQLS')", "TRIM(BOTH SL FROM SSparkSQLS)"),
    ("overlay('Spark SQL' PLACING '_' FROM 6)", "overlay(Spark SQL, _, 6, -1)"),
    ("mask('AbCD123', NULL, 'q')", "mask(AbCD123, NULL, q, n, NULL)"),
    ("isnotnull(1)", "(1 IS NOT NULL)"),
    ("like('Spark', '_park')", "Spark LIKE _park"),
    ("'a' like '/%b' ESCAPE '/'", "a LIKE /%b ESCAPE '/'"),
    ("'Spark' ilike '_Park'", "ilike(Spark, _Park)"),
    ("MOD(2, 1.8)", "mod(2, 1.8)"),
    ("extract(week FROM DATE'2019-08-12')", "extract(week FROM DATE '2019-08-12')"),
    ("assert_true(0 < 1)", "assert_true((0 < 1), '(0 < 1)' is not true!)"),
    ("months_between('1997-02-28', '1996-10-30')", "months_between(1997-02-28, 1996-10-30, true)"),
    (
        "filter(array(1), x -> x > 1)",
        "filter(array(1), lambdafunction((namedlambdavariable() > 1), namedlambdavariable()))",
    ),
    (
        "row_number() OVER (PARTITION BY a ORDER BY b)",
        "row_number() OVER (PARTITION BY a ORDER BY b ASC NULLS FIRST"
        " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    ),
]
"""Names of columns as Spark 4.3 gave them."""
AGGREGATES = [
    ("SELECT collect_list(col) FROM VALUES (1), (2), (1) AS tab(col)", [1, 2, 1]),
    ("SELECT collect_list(col) FROM VALUES (1), (NULL), (1) AS tab(col)", [1, 1]),
    ("SELECT collect_set(col) FROM VALUES (1), (NULL), (1) AS tab(col)", [1]),
    ("SELECT collect_list(col) FROM VALUES (CAST(NULL AS INT)) AS tab(col)", []),
    ("SELECT sum(col) FROM VALUES (5e0), (10e0), (15e0) AS tab(col)", 30.0),
    ("SELECT sum(col) FROM VALUES (CAST(NULL AS DOUBLE)) AS tab(col)", None),
    ("SELECT avg(col) FROM VALUES (1e0), (2e0), (3e0) AS tab(col)", 2.0),
    ("SELECT avg(col) FROM VALUES (1e0), (2e0), (NULL) AS tab(col)", 1.5),
    ("SELECT percentile(col, 0.3) FROM VALUES (0), (10) AS tab(col)", 3.0),
    ("SELECT mode(col, true) AS m FROM VALUES (-10), (0), (10) AS tab(col)", -10),
    ("SELECT try_sum(col) FROM VALUES (9223372036854775807L), (1L) AS tab(col)", None),
    ("SELECT any_value(col, true) FROM VALUES (NULL), (5), (20) AS tab(col)", 5),
    ("SELECT sum(col) FROM (SELECT explode(array(1, 2, null)) AS col)", 3),
    (
        "SELECT sum(v) FROM (SELECT inline(array(named_struct('v', 5), named_struct('v', 6))))",
        11,
    ),
    ("SELECT max(col1) FROM (SELECT stack(2, 1, 2, 3))", 2),
]
ONE_ROW = [
    "SELECT DISTINCT x FROM v LIMIT 1",
    "SELECT DISTINCT x FROM (SELECT max(x) AS x FROM v) q",
    "SELECT DISTINCT max(x) AS x FROM v",
    "SELECT x, count(*) AS n FROM v WHERE x < (SELECT max(x) + 1 FROM v) GROUP BY x",
    "SELECT max(x) AS x FROM v UNION SELECT max(x) FROM v",
    "SELECT max(x) AS x FROM v EXCEPT SELECT 1e0",
]
"""Queries in which Spark may find nothing to group."""
FOLDED = [
    "SELECT DISTINCT -if(true, 0.0D, x) AS c, i FROM t",
    "SELECT DISTINCT -CAST(CAST(z AND false AS int) AS double) AS c, i FROM t",
    "SELECT DISTINCT CAST(c AS double) * -1 AS c FROM (SELECT 0 AS c, i FROM t) q",
    "SELECT DISTINCT get(array(x, -0.0D), 1) AS c, i FROM t",
    "SELECT DISTINCT q.s.b AS c FROM (SELECT named_struct('a', x, 'b', -0.0D) AS s FROM t) q",
    "SELECT DISTINCT x FROM t RIGHT JOIN (SELECT -0.0D AS x FROM t) q USING (x)",
    "WITH q AS (SELECT round(-0.1D) AS c, i FROM t) SELECT c, count(*) AS n FROM q GROUP BY c, i",
    "SELECT cos(3) * 0 AS c, i FROM t EXCEPT SELECT x, i FROM t",
    "SELECT DISTINCT max(x) AS c, i FROM t GROUP BY i",
]
"""Keys that Spark may leave as they are: constants, and what another key stands for."""
OF_ROWS = [
    "SELECT DISTINCT round(-x, 1) AS c, -0.0D > i AS n FROM t",
    "SELECT x * -1.0D AS c, count(*) AS n FROM (SELECT x + 1 AS x FROM t) q GROUP BY x * -1.0D",
    "SELECT x FROM t UNION SELECT -x FROM t",
    "SELECT x, -0.0D AS c, count(*) AS n FROM t WHERE x > -1 GROUP BY ROLLUP (x)",
]
REFUSED = [
    ("regexp_extract('ab', '(?i)A', 0)", r"with \(\?i"),
    ("regexp_extract('ab', 'a(?=b)', 0)", r"with \(\?="),
    ("regexp_extract('ab', '\\\\ba', 0)", r"with \\b"),
    ("regexp_extract('ab', '(a)\\\\1', 0)", r"with \\1"),
    ("regexp_extract('ab', '\\\\p{Alpha}', 0)", r"with \\p"),
    ("regexp_extract('ab', 'a++', 0)", r"with \+\+"),
    ("regexp_extract('ab', '(a*)*', 0)", r"with \* after what may be empty"),
    ("regexp_extract('ab', '((a)b)+', 0)", r"with \+ after groups in a group"),
    ("regexp_extract('ab', '[a&&[b]]', 0)", "in a class"),
    ("regexp_extract('ab', '[]a]', 0)", "in a class"),
    ("regexp_extract('ab', 'a{,2}', 0)", r"with this \{"),
    ("regexp_extract('ab', '(a', 0)", r"a \( without its \)"),
    ("regexp_extract('ab', 'a)', 0)", r"a \) without its \("),
    ("regexp_extract('ab', 'a', 1)", "whose pattern has 0 groups"),
    ("regexp_extract('ab', concat('a', 'b'), 0)", "no literal"),
    ("ilike('ab', 'a/%', '/')", "ilike"),  # whose column has a name that nothing here prints
    ("regexp_replace('ab', 'x*', '-')", "which may match nothing"),
    ("regexp_replace('ab', 'a', '$1')", r"\$1 names no group"),
    ("regexp_replace('ab', 'a', 'b', 2)", "another position"),
    ("date_format(DATE'2016-04-08', 'YYYY')", "date_format with YYYY"),
    ("date_format(DATE'2016-04-08', 'yyyy G')", "date_format with G"),
    ("date_format(DATE'2016-04-08', '[yyyy]')", r"date_format with \["),
    ("date_format(DATE'2016-04-08', concat('y', 'y'))", "no literal"),
    ("date_format(timestamp'2016-04-08 00:00:00', 'XXX')", "date_format with XXX"),
]


def value_of(sql: str) -> object:
    with duckdb.connect() as connection:
        ((value,),) = connection.execute(f"SELECT {sql}").fetchall()
        return value


@pytest.mark.parametrize(("expression", "value"), EXAMPLES)
def test_P33_an_expression_has_the_documented_value(expression: str, value: object) -> None:
    assert value_of(translate_value(expression, NameScope(())).sql) == value


def test_P33_the_digits_of_a_decimal_of_any_type_are_a_whole_number() -> None:
    kinds = [(p, s) for p in range(1, 39) for s in range(min(p, 38 - p) + 1)]
    most = (f"CAST('{'9' * (p - s)}.{'9' * s}' AS DECIMAL({p},{s}))" for p, s in kinds)
    digits = (unscaled(sql, decimal(*kind)) for sql, kind in zip(most, kinds, strict=True))
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT {', '.join(digits)}").fetchone()
    assert found == tuple(10**p - 1 for p, _ in kinds)


@pytest.mark.parametrize(("expression", "name"), NAMES)
def test_P33_a_column_has_the_name_that_Spark_prints(expression: str, name: str) -> None:
    assert column_name(sqlglot.parse_one(expression, dialect=SparkSql)) == name


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("call", ["greatest", "least"])
@pytest.mark.parametrize("zeros", [("-0.0", "0.0"), ("0.0", "-0.0"), ("-0.0", "-0.0")])
def test_P33_greatest_and_least_keep_the_first_of_equal_values(
    kind: str, call: str, zeros: tuple[str, str]
) -> None:
    given = ", ".join(f"CAST('{zero}' AS {kind})" for zero in zeros)
    assert repr(value_of(translate_value(f"{call}({given})", NameScope(())).sql)) == zeros[0]


@pytest.mark.parametrize(
    ("expression", "kind"),
    [("1.5 + 7L", "decimal(3,1)"), ("1.5 * -7S", "decimal(4,1)"), ("1.5 + 7Y", "decimal(5,1)")],
)
def test_P33_a_literal_beside_a_decimal_has_its_own_digits(expression: str, kind: str) -> None:
    assert str(translate_value(expression, NameScope(())).type) == kind


@pytest.mark.parametrize(("query", "value"), AGGREGATES)
def test_P33_an_aggregate_has_the_documented_value(query: str, value: object) -> None:
    block = QueryTranslator({}).query(sqlglot.parse_one(query, dialect=SparkSql), {})
    assert value_of(f"({block.sql})") == value


def test_P33_a_query_that_is_computed_again_has_the_moment_of_its_statement() -> None:
    def session() -> SparkSession:
        raise NotImplementedError

    first = query("SELECT now() AS n WHERE 1 = 1 AND 2 = 2", {}, session, "")
    assert first.in_order is not None
    assert first.in_order().to_arrow() == first.to_arrow()


@pytest.mark.parametrize(("expression", "reason"), REFUSED)
def test_P33_what_Java_and_RE2_or_the_formats_read_differently_is_refused_by_name(
    expression: str, reason: str
) -> None:
    with pytest.raises(NeedsSpark, match=reason):
        translate_value(expression, NameScope(()))


@pytest.mark.parametrize("text", texts(OTHERWISE, "t"))
def test_P33_a_query_that_Spark_answers_otherwise_is_refused(text: str) -> None:
    with pytest.raises(NeedsSpark):
        of_table(text)


def test_P33_all_queries_of_WITH_read_their_tables() -> None:
    """Also those that are translated before the query which names them."""
    text = "WITH a AS (SELECT i FROM t GROUP BY i), b AS (SELECT l FROM t) SELECT i FROM a JOIN b"
    scan = Scan(None, "", parse_columns("i int, l bigint"), (), (), None)  # type: ignore[arg-type]
    translator = QueryTranslator({"t": TableRead(scan)})
    with in_proportion(text):
        sql = translator.query(sqlglot.parse_one(text, dialect=SparkSql), {}).sql
    assert {*re.findall(r'FROM "(\w+)"', sql)} == {*translator.opened}
    assert len(translator.opened) == 2


def test_P33_a_window_by_a_sum_of_decimals_is_by_no_constant() -> None:
    of_table(
        "SELECT rank() OVER (ORDER BY s) AS r FROM"
        " (SELECT CAST(sum(coalesce(CAST(l AS decimal(20,2)), 0)) AS decimal(30,2)) AS s"
        " FROM t GROUP BY i) q"
    )


def of_table(text: str) -> str:
    columns = "i int, l bigint, x double, z boolean, e date, ms map<string,int>, c char(4)"
    scan = Scan(None, "", parse_columns(columns), (), (), None)  # type: ignore[arg-type]
    with in_proportion(text):
        node = sqlglot.parse_one(text, dialect=SparkSql)
        return QueryTranslator({"t": TableRead(scan)}).query(node, {}).sql


@pytest.mark.parametrize("text", [*FOLDED, *OF_ROWS])
def test_P63_minus_zero_as_a_key_needs_spark_where_its_optimizer_may_find_no_key(text: str) -> None:
    assert ("a key of -0.0" in of_table(text)) == (text in FOLDED)


@pytest.mark.parametrize("text", ONE_ROW)
def test_P63_minus_zero_as_a_key_where_a_part_of_the_query_has_one_row_needs_spark(
    text: str,
) -> None:
    def rows(x: str) -> list[tuple[object, ...]]:
        written = f"WITH v AS (SELECT CAST('{x}' AS double) AS x) {text}"
        block = QueryTranslator({}).query(sqlglot.parse_one(written, dialect=SparkSql), {})
        with duckdb.connect() as connection:
            return connection.execute(block.sql).fetchall()

    assert [row[0] for row in rows("1.5")] == [1.5]
    with pytest.raises(duckdb.Error, match="NEEDS_SPARK"):
        rows("-0.0")


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"a.b", "a\u2028b", False),  # a line ends there in Java
        (r"a.b", "a\rb", False),
        (r"a\sb", "a\x0bb", True),
        (r"[\s]", "\x0b", True),
        (r"\w", "\u00e4", False),
        (r"\d", "\u0663", False),
        (r"[^a]", "\n", True),
        (r"^\.$", ".", True),
        (r"\_\/", "_/", True),
        ("\U0001f3f3", "\U0001f3f3", True),
    ],
)
def test_P33_a_pattern_of_Java_keeps_its_meaning_in_RE2(
    pattern: str, text: str, found: bool
) -> None:
    with duckdb.connect() as connection:
        ((matches,),) = connection.execute(
            "SELECT regexp_matches($1, $2)", [text, re2_pattern(pattern).text]
        ).fetchall()
    assert matches == found


def test_P33_a_text_that_ends_a_line_is_left_to_Spark_for_a_pattern_with_an_end() -> None:
    sql = translate_value("'a\\n' RLIKE 'a$'", NameScope(())).sql
    with pytest.raises(duckdb.Error, match="NEEDS_SPARK"):
        value_of(sql)
