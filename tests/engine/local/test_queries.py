"""P33: a SELECT gives the same columns, rows and errors in both engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acid_platform import (
    NeedsSpark,
    UnsupportedStatement,
    Warehouse,
)
from tests.conftest import slow_then_soak, temporary_warehouse
from tests.engine.local import generated
from tests.engine.local.answers import answer, disagreement, of_needless_rows
from tests.engine.local.generated import Generator, Query
from tests.engine.local.query_shapes import SHAPES, WITHS
from tests.engine.local.refused_texts import REFUSED, TAKEN, texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SLICES = 25
"""Parts of the test of 5,000 queries, which can run on their own."""


@dataclass
class Engines:
    """Two handles of a warehouse."""

    local: Warehouse
    spark: Warehouse
    refused: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def one_job(spark: SparkSession) -> Iterator[None]:
    """Each query is one Spark job: adaptive plans of these small tables are one for each stage."""
    settings = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, kept in before.items():
        spark.conf.set(name, str(kept))


@pytest.fixture(scope="module")
def engines(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, one_job: None
) -> Iterator[Engines]:
    path: Path = tmp_path_factory.mktemp("engines")
    with temporary_warehouse(path, spark) as through_spark:
        through_spark.engines.preference = "spark"
        for seed, name in enumerate(("t", "u")):
            table = through_spark.create_table(f"both.{name}", generated.SCHEMA)
            table.insert(generated.table(seed, 40))
            table.insert(generated.table(seed + 10, 9, 40))
            table.delete("id = 4")
        with Warehouse.open(path, engine="local") as local:
            yield Engines(local, through_spark)


def difference(engines: Engines, query: Query) -> str | None:
    """How the engines differ; None if they agree, or if the query only runs in Spark."""
    here = answer(engines.local, query.text)
    if here.error == "NeedsSpark":
        engines.refused.append(f"{query.text}: {here.why}")
        return None
    there = answer(engines.spark, query.text)
    return None if of_needless_rows(here, there) else disagreement(query, here, there)


def differences(engines: Engines, queries: Sequence[Query]) -> list[str]:
    found = []
    for query in queries:
        if (what := difference(engines, query)) is not None:
            found.append(f"{query.text}\n    {what}")
    return found


@pytest.mark.spark
def test_P33_generated_queries_agree(engines: Engines) -> None:
    generator = Generator(17)
    queries = [generator.query() for _ in range(20)]
    engines.refused.clear()
    found = differences(engines, queries)
    assert not found, "\n".join(found)
    assert len(engines.refused) < 0.1 * len(queries), "\n".join(engines.refused)


@pytest.mark.slow
@pytest.mark.spark
def test_P33_the_columns_of_stars_over_joins_agree(engines: Engines) -> None:
    """`a.*` has the columns of USING too, which `*` shows once."""
    joins = (
        "a JOIN both.u b USING (id)",
        "a LEFT JOIN both.u b USING (h, id)",
        "a LEFT JOIN both.u b USING (id) JOIN both.t c ON c.id = a.id",
        "a LEFT SEMI JOIN both.u b ON a.id = b.id",
    )
    stars = ("*", "a.*", "b.*", "b.*, a.*", "a.* EXCEPT (w)", "c.*, *")
    queries = [
        Query(f"SELECT {star} FROM (SELECT w, id, h FROM both.t) {join.replace('both.t', inner)}")
        for join in joins
        for star in stars
        if ("c." in star) <= ("c ON" in join) and ("b." in star) <= ("SEMI" not in join)
        for inner in ["(SELECT i, id FROM both.t)"]
    ]
    engines.refused.clear()
    found = differences(engines, queries)
    assert not found, "\n".join(found)
    assert not engines.refused


@pytest.mark.spark
def test_P33_columns_of_nothing_but_null_agree(engines: Engines) -> None:
    texts = (
        "NULL AS n, 1 AS a",
        "* FROM VALUES (1, NULL), (2, NULL) AS v(a, n)",
        "v.n, coalesce(n, a) AS c, n + a AS s FROM (SELECT id AS a, NULL AS n FROM both.t) v",
        "count(n) AS c, count(*) AS d FROM VALUES (1, NULL) AS v(a, n)",
        "n = 1 AS e, n IN (1, 2) AS i, n IS NULL AS z FROM VALUES (1, NULL) AS v(a, n)",
        "a FROM VALUES (1, NULL) AS v(a, n) WHERE n > 1",
        "x.a FROM VALUES (1, NULL) AS x(a, n) LEFT JOIN both.t y ON x.n = y.id",
        "CASE WHEN a > 1 THEN n END AS c, concat('x', n) AS s FROM VALUES (1, NULL) AS v(a, n)",
    )
    engines.refused.clear()
    different = differences(engines, [Query(f"SELECT {text}") for text in texts])
    assert not different, "\n".join(different)
    assert not engines.refused


CLAUSES = """
    i, sum(h) AS a FROM both.t GROUP BY i HAVING sum(h) > 1 ORDER BY sum(h), 1
    i, sum(h) AS a FROM both.t GROUP BY i HAVING a > 1 ORDER BY sum(h), max(h), 1
    i, max(h) AS a FROM both.t GROUP BY i HAVING count(*) > 1 ORDER BY a, 1
    i AS a FROM both.t GROUP BY i HAVING max(h) > 1 ORDER BY i
    i, s, sum(h) AS a, grouping(i), grouping(s) FROM both.t GROUP BY i, s WITH ROLLUP
    c, e, count(DISTINCT i), grouping_id() FROM both.t GROUP BY CUBE (c, e)
    z, y, k, count(*), grouping_id(y, z, k) AS g FROM both.t GROUP BY GROUPING SETS ((y, z), z, k)
    y, count(*) AS n FROM both.t GROUP BY y, z GROUPING SETS (z, (y, z), ()) ORDER BY n, y LIMIT 4
    y, z, max(y) AS n FROM both.t GROUP BY ROLLUP ((y, z), x) ORDER BY y, z, n
    coalesce(y, -1), x, d, m, min(s) FROM both.t GROUP BY CUBE (x, d, m, v, y)
    i, count(*), sum(h), grouping(i) FROM both.t WHERE id < 0 GROUP BY ROLLUP (i)
    a, n + 1 FROM (SELECT z AS a, count(i) AS n FROM both.t GROUP BY CUBE (z)) q WHERE a IS NULL
    DISTINCT y, grouping(z) FROM both.t GROUP BY y, z WITH CUBE
    i FROM both.t UNION ALL SELECT nvl(h, 0) FROM both.t
    i FROM both.t WHERE nvl(s, '') IN (SELECT nvl(s, '') FROM both.u)
"""


@pytest.mark.slow
@pytest.mark.spark
def test_P33_clauses_agree(engines: Engines) -> None:
    queries = [Query(f"SELECT {line.strip()}") for line in CLAUSES.strip().splitlines()]
    engines.refused.clear()
    found = differences(engines, queries)
    assert not found, "\n".join(found)
    assert not engines.refused, "\n".join(engines.refused)


@pytest.mark.spark
def test_P33_shapes_agree(engines: Engines) -> None:
    lines = SHAPES.replace("\n        ", " ").strip().splitlines()
    queries = [*(Query(f"SELECT {line.strip()}") for line in lines), *map(Query, WITHS)]
    engines.refused.clear()
    found = differences(engines, queries)
    assert not found, "\n".join(found)
    assert not engines.refused, "\n".join(engines.refused)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "text",
    [
        "i, sum(h) AS a FROM both.t GROUP BY i HAVING max(h) > 1 ORDER BY sum(h)",
        "sum(h) AS a FROM both.t GROUP BY i HAVING i > 1 ORDER BY max(h)",
        "sum(h) + 1 AS a FROM both.t GROUP BY i HAVING sum(h) > 1 ORDER BY sum(h)",
        "i FROM both.t GROUP BY i HAVING max(h) > 1 ORDER BY count(*)",
    ],
)
def test_P33_an_order_that_spark_refuses_is_refused(engines: Engines, text: str) -> None:
    for warehouse in (engines.local, engines.spark):
        with pytest.raises(UnsupportedStatement):
            warehouse.sql(f"SELECT {text}")


SPELT = """
    date_trunc('month', m) | date_trunc('Month', m) | date_trunc('DAY', m) | trunc(e, 'month')
    trunc(e, 'YEAR') | UPPER(s) | Lower(s) | TRUE | False | null | NULL | 1.50 | 1e3 | 1E3 | 007
    1L | i And z | z OR z | NOT z | not (z) | i BETWEEN 1 and 2 | i In (1, 2) | i not in (1,2)
    Cast(i AS BigInt) | CAST(d as Decimal(8, 1)) | cast(i AS int) | s Like 'a%' | s is null
    s IS NOT NULL | CASE when z then 1 else 2 end | case i WHEN 1 THEN 'a' END
    Case (i) WHEN 1 THEN z ELSE null end | if(z, 1, 2)
    IF(z, i, 0) | Coalesce(i, 0) | nvl(i, 0) | NULLIF(i, 1) | Concat(s, 'X') | s || 'Y' | i+1
    i  +  1 | -i | - 1 | +i | i DIV 2 | i % 3 | d/2 | (i) | ((i + 1)) | i <> 1 | i != 1 | i == 1
    i <=> Null | Round(d) | round(d, 1) | COUNT(*) | Count(i) | count(DISTINCT i) | Sum(i)
    MAX(s) | avg(i) | Year(e) | EXTRACT(year FROM e) | extract(YEAR from e) | substr(s, 1, 2)
    SUBSTRING(s, 2) | Length(s) | Greatest(i, 1) | DATE '2024-01-01' | date_add(e, 1)
    e + INTERVAL 1 DAY | e - interval '1' day | current_date IS NULL | `i` + 1 | t.i + 1
    (s IS NULL) IS NOT NULL | NOT s IS NULL | both.t.i | `both`.`t`.`s` | I + 1 | S | "a"
    c = 'ab' | NOT (c <=> 'abc') | c IN ('a', 'b') | s = 'a '
    'it\\'s' | sum(i) FILTER (WHERE i > 1) | Any_Value(i) IS NULL
"""


@pytest.mark.slow
@pytest.mark.spark
def test_P33_a_column_is_named_by_what_was_written(engines: Engines) -> None:
    spelt = [each.strip() for line in SPELT.strip().splitlines() for each in line.split(" | ")]
    engines.refused.clear()
    queries = [Query(f"SELECT {each} FROM both.t") for each in spelt]
    found = differences(engines, queries)
    assert not found, "\n".join(found)
    assert len(engines.refused) < 0.3 * len(queries), "\n".join(engines.refused)


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("slice_", slow_then_soak(range(SLICES), 4))
def test_P33_five_thousand_generated_queries_agree(engines: Engines, slice_: int) -> None:
    generator = Generator(4711 + slice_)
    queries = [generator.query() for _ in range(5000 // SLICES)]
    engines.refused.clear()
    found = differences(engines, queries)
    print(f"{len(queries) - len(engines.refused)} of {len(queries)} ran locally")
    assert not found, "\n".join(found[:20])
    assert len(engines.refused) < 0.1 * len(queries), "\n".join(engines.refused[:50])


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", slow_then_soak(range(4), 1))
def test_P62_in_with_a_subquery_is_true_false_or_unknown_wherever_it_stands(
    engines: Engines, seed: int
) -> None:
    generator = Generator(6200 + seed)
    queries = [generator.unknown() for _ in range(60)]
    engines.refused.clear()
    found = differences(engines, queries)
    assert not found, "\n".join(found[:20])
    assert not engines.refused, "\n".join(engines.refused)


@pytest.mark.spark
def test_P62_delete_and_update_change_the_rows_that_a_query_would_give(engines: Engines) -> None:
    generator = Generator(62)
    for number in range(8):
        where = generator.uncertain(2)
        change = ("DELETE FROM both.t AS a", "UPDATE both.t AS a SET y = 5")[number % 2]
        counts = []
        for warehouse in (engines.local, engines.spark):
            counts.append(warehouse.sql(f"SELECT a.id FROM both.t a WHERE {where}").count())
            with warehouse.transaction() as transaction:
                counts.append(transaction.sql(f"{change} WHERE {where}").rows)
                transaction.abort()
        assert len({*counts}) == 1, (where, counts)


UNKNOWN_IN_SPARK = {
    "i, count(*) AS n FROM both.t GROUP BY i HAVING coalesce(max(i) IN (SELECT NULL), true)": (
        "i, count(*) AS n FROM both.t GROUP BY i"
    ),
    "count_if((i NOT IN (SELECT NULL)) IS NULL) AS n FROM both.t": "count(*) AS n FROM both.t",
    "a.id FROM both.t a LEFT JOIN both.u b ON (a.i IN (SELECT NULL)) IS NULL AND b.id = a.id"
    " WHERE b.id IS NOT NULL": "a.id FROM both.t a JOIN both.u b ON b.id = a.id",
    "id, ((i, h) IN (SELECT i, h FROM both.u)) IS NULL AS x FROM both.t WHERE i IS NULL": (
        "id, true AS x FROM both.t WHERE i IS NULL"
    ),
    "id, ((i, h) IN (SELECT i, h FROM both.u WHERE id < 0)) IS NULL AS x FROM both.t": (
        "id, false AS x FROM both.t"
    ),
}
"""Places where only Spark takes the predicate, each with a query of the same rows."""


@pytest.mark.spark
def test_P62_spark_finds_unknown_rows_below_having_on_and_in_aggregates(engines: Engines) -> None:
    for text, other in UNKNOWN_IN_SPARK.items():
        rows = [sorted(map(repr, engines.spark.sql(f"SELECT {one}").collect()))
                for one in (text, other)]  # fmt: skip
        assert rows[0] == rows[1], text


@pytest.mark.spark
def test_P33_what_spark_refuses_is_refused_and_what_it_takes_is_taken(engines: Engines) -> None:
    for several, taken in ((REFUSED, False), (TAKEN, True)):
        for text in texts(several, "both.t"):
            here, there = answer(engines.local, text), answer(engines.spark, text)
            assert (not there.error) is taken, (text, there)
            if here.error != "NeedsSpark":
                assert (not here.error) is taken, (text, here)
    engines.refused.clear()
    found = differences(engines, [Query(text) for text in texts(TAKEN, "both.t")])
    assert not found, "\n".join(found)


ZEROS = """
    n, count(*) AS c FROM both.t GROUP BY n
    -n AS m, n + 1 AS o FROM both.t GROUP BY n
    n AS nn, max(id) AS o FROM both.t GROUP BY nn HAVING n = 0
    * FROM (SELECT n FROM both.t) q GROUP BY n
    n * -1 AS m, count(*) AS c FROM both.t GROUP BY n * -1
    n, f, count(*) AS c FROM both.t GROUP BY CUBE (n, f)
    DISTINCT n, f FROM both.t
    DISTINCT x FROM VALUES (-0.0D), (0.0D) AS v(x)
    DISTINCT x FROM VALUES (-0.0D) AS v(x)
    DISTINCT -0.0D AS x
    n FROM both.t UNION SELECT f FROM both.u
    n FROM both.t INTERSECT SELECT n FROM both.u
    n FROM both.t EXCEPT SELECT 1.5D
    n FROM both.t UNION ALL SELECT n FROM both.u
    count(DISTINCT n) AS a, count(DISTINCT f) AS b FROM both.t
    a.id, a.n, b.n AS m FROM both.t a JOIN both.u b ON a.n = b.n
    a.id, a.n, b.f FROM both.t a LEFT JOIN both.u b ON a.n <=> b.f AND a.id = b.id
    a.id, n FROM both.t a JOIN both.u b USING (n)
    id, n FROM both.t WHERE n IN (SELECT n FROM both.u WHERE n = 0)
    id, count(*) OVER (PARTITION BY n) AS c, rank() OVER (ORDER BY n) AS r FROM both.t
    id, count(*) OVER (PARTITION BY sn) AS c, count(*) OVER (PARTITION BY an) AS d FROM both.t
    id, n, sn, an FROM both.t WHERE n = 0
"""


@pytest.mark.spark
def test_P63_as_a_key_both_zeros_are_one_value_and_nan_is_one(engines: Engines) -> None:
    queries = [Query(f"SELECT {line.strip()}") for line in ZEROS.strip().splitlines()]
    engines.refused.clear()
    found = differences(engines, queries)
    assert not found, "\n".join(found)
    assert {line.partition(":")[0] for line in engines.refused} == {  # where Spark may keep -0.0
        "SELECT DISTINCT x FROM VALUES (-0.0D) AS v(x)",
        "SELECT DISTINCT -0.0D AS x",
        "SELECT n FROM both.t EXCEPT SELECT 1.5D",
    }


_WOULD_BE_A_KEY = (
    "(SELECT s FROM z.t WHERE k = 1)",
    "first(s)",
    "last(a) IGNORE NULLS",
    "max_by(s, k)",
    "min_by(map(k, v), k)",
)
_KEPT = (
    "max_by(v, k) AS v FROM z.t",
    "collect_list(a)[0] AS v FROM z.t",
    "last(v) AS v FROM z.t",
    "lag(s) OVER (ORDER BY k) AS v FROM z.t ORDER BY k DESC LIMIT 1",
    "v FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY k DESC) AS n"
    " FROM (SELECT * FROM z.t WHERE k < 9 UNION ALL SELECT * FROM z.t)) WHERE n = 1",
)


def test_P63_the_value_of_one_row_keeps_the_sign_of_zero(zeros: Warehouse) -> None:
    """DuckDB keeps a nested value of one row as a key for sorting, which has no -0.0."""
    for query in _WOULD_BE_A_KEY:
        with pytest.raises(NeedsSpark):
            zeros.sql(f"SELECT {query} FROM z.t")
    for query in _KEPT:
        assert "-0.0" in repr(answer(zeros, f"SELECT {query}").rows.to_pylist()), query


@pytest.fixture(scope="module")
def zeros(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("zeros"), engine="local") as warehouse:
        columns = "id int, k int, v double, s struct<v:double>, a array<double>"
        rows = [{"id": 1, "k": k, "v": -0.0, "s": {"v": -0.0}, "a": [-0.0]} for k in range(3)]
        warehouse.create_table("z.t", columns).insert(rows)
        yield warehouse
