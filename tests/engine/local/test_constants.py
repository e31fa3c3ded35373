"""P33: a constant that has no value fails a statement that finds no row, since Spark computes
constants first; but not where a branch might leave it out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from acid_platform import AcidError, InvalidExpression, NeedsSpark, Warehouse, WrongType
from tests.conftest import few_then_more, temporary_warehouse

CONSTANTS = {
    "1 / 0": InvalidExpression,
    "1 DIV 0": InvalidExpression,
    "7 % 0": InvalidExpression,
    "(2147483647 + 1)": WrongType,
    "CAST('x' AS INT)": WrongType,
    "CAST(300 AS TINYINT)": WrongType,
    "CAST(CAST('no' || 'number' AS BIGINT) AS INT)": WrongType,
    "abs(CAST(-2147483648 AS INT))": WrongType,
    "CASE WHEN true THEN 1 / 0 END": InvalidExpression,
}
QUERIES = (
    "SELECT {c} AS v FROM db.none",
    "SELECT id + {c} AS v FROM db.t WHERE false",
    "SELECT id FROM db.t WHERE id = 99 AND {c} = 1",
    "SELECT id FROM db.t WHERE {c} = 1 OR id = 99",
    "SELECT max(id) AS m FROM db.none GROUP BY {c}",
    "SELECT max(id + {c}) AS m FROM db.none",
    "SELECT max(id) AS m FROM db.none HAVING max(id) > {c}",
    "SELECT id FROM db.none ORDER BY id + {c}",
    "SELECT a.id FROM db.none a JOIN db.t b ON a.id = b.id AND {c} = 1",
    "SELECT id FROM db.p WHERE day = '2020-01-01' AND {c} = 1",
)
CHANGES = (
    "UPDATE db.t SET id = CAST({c} AS INT) WHERE id = 99",
    "UPDATE db.none SET id = CAST({c} AS INT)",
    "UPDATE db.p SET id = CAST({c} AS INT) WHERE day = '2020-01-01'",
    "DELETE FROM db.t WHERE id = 99 AND {c} = 1",
    "DELETE FROM db.none WHERE {c} = 1",
    "INSERT INTO db.t SELECT CAST({c} AS INT), 'x' FROM db.none",
    "MERGE INTO db.t USING db.none s ON db.t.id = s.id AND {c} = 1 WHEN MATCHED THEN DELETE",
    "MERGE INTO db.t USING db.none s ON db.t.id = s.id WHEN MATCHED AND {c} = 1 THEN DELETE",
    "MERGE INTO db.t USING db.none s ON db.t.id = s.id"
    " WHEN MATCHED THEN UPDATE SET id = CAST({c} AS INT)",
)
UNCERTAIN = (
    "SELECT {c} AS v FROM db.t LIMIT 0",
    "SELECT id FROM (SELECT id, {c} AS v FROM db.none)",
    "SELECT id FROM db.t WHERE id IN (SELECT id + {c} FROM db.none)",
    "SELECT id FROM db.none UNION ALL SELECT CAST({c} AS INT) FROM db.none",
)
"""Spark may leave out what nobody reads before it computes constants."""
BRANCHES = (
    "CASE WHEN id = 99 THEN {c} ELSE 5 END",
    "coalesce(id, {c})",
    "if(id < 99, 5, {c})",
    "nvl(id, {c} + 1)",
    "nvl2(id, 5, {c})",
    "CASE WHEN false THEN {c} ELSE 5 END",
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("constants"), engine="local") as warehouse:
        warehouse.create_table("db.none", "id int, s varchar(3)")
        warehouse.create_table("db.t", "id int, s varchar(3)").insert([{"id": 1, "s": "a"}])
        warehouse.create_table("db.p", "id int", partitioned_by=["day date"])
        yield warehouse


def outcome(warehouse: Warehouse, statement: str) -> type[AcidError] | int:
    try:
        rows = warehouse.sql(statement)
        return rows.to_arrow().num_rows if statement.startswith("SELECT") else 0  # type: ignore[union-attr]
    except AcidError as error:
        return type(error)


@pytest.mark.parametrize("form", few_then_more([*QUERIES, *CHANGES], 2))
def test_P33_a_constant_without_a_value_fails_where_there_is_no_row(
    warehouse: Warehouse, form: str
) -> None:
    for constant, error in list(CONSTANTS.items())[:5:2]:
        assert outcome(warehouse, form.format(c=constant)) is error, constant


@pytest.mark.parametrize("constant", CONSTANTS)
def test_P33_every_constant_that_may_fail_is_computed_once(
    warehouse: Warehouse, constant: str
) -> None:
    for form in (QUERIES[0], CHANGES[3]):
        assert outcome(warehouse, form.format(c=constant)) is CONSTANTS[constant]


@pytest.mark.parametrize("form", UNCERTAIN)
def test_P33_what_spark_may_leave_out_is_left_to_spark(warehouse: Warehouse, form: str) -> None:
    for constant in ("1 / 0", "CAST('x' AS INT)"):
        assert outcome(warehouse, form.format(c=constant)) is NeedsSpark


@pytest.mark.parametrize("branch", BRANCHES)
def test_P33_a_constant_in_a_branch_fails_only_for_a_row(warehouse: Warehouse, branch: str) -> None:
    for constant in ("1 / 0", "CAST('x' AS INT)"):
        value = branch.format(c=constant)
        assert outcome(warehouse, f"SELECT {value} AS v FROM db.t") == 1, value
        assert outcome(warehouse, f"UPDATE db.t SET id = CAST({value} AS INT) WHERE id = 99") == 0


@pytest.mark.parametrize("value", ["300 - 1", "2147483648", "1 / 0"])
def test_P33_a_constant_that_does_not_fit_its_column_fails_without_a_row(
    warehouse: Warehouse, value: str
) -> None:
    warehouse.sql("CREATE TABLE IF NOT EXISTS db.small (id int, t tinyint, f float)")
    with pytest.raises(WrongType):
        warehouse.sql(f"UPDATE db.small SET t = {value} WHERE id = 99")


STORING = (
    "INSERT INTO db.small (id, t) SELECT 1, {c} FROM db.none",
    "INSERT INTO db.small (id, t) SELECT 1, {c} FROM db.t WHERE id = 99",
    "INSERT INTO db.small (t) SELECT {c} AS v FROM db.none",
    "INSERT OVERWRITE TABLE db.small (id, t) SELECT 1, {c} FROM db.none",
    "INSERT INTO db.small (id, t) SELECT * FROM (SELECT 1 AS id, {c} AS t FROM db.none) q",
    "WITH q AS (SELECT 1, {c} AS t FROM db.none) INSERT INTO db.small (id, t) SELECT * FROM q",
    "INSERT INTO db.small (id, t) SELECT 1, id FROM db.none UNION ALL SELECT 1, {c} FROM db.none",
)
MERGING = (
    "MERGE INTO db.small USING db.none s ON db.small.id = s.id"
    " WHEN NOT MATCHED THEN INSERT (id, t) VALUES (1, {c})",
    "MERGE INTO db.one USING db.t s ON db.one.id = s.id"
    " WHEN NOT MATCHED THEN INSERT (id, t) VALUES (1, {c})",
)


@pytest.fixture
def small(warehouse: Warehouse) -> Warehouse:
    """Also with a table of tinyint without rows, and one whose row those of db.t match."""
    warehouse.sql("CREATE TABLE IF NOT EXISTS db.small (id int, t tinyint, f float)")
    warehouse.sql("CREATE TABLE IF NOT EXISTS db.one (id int, t tinyint)")
    warehouse.sql("INSERT OVERWRITE TABLE db.one VALUES (1, 1)")
    return warehouse


@pytest.mark.parametrize("form", few_then_more(STORING, 2))
def test_P33_a_constant_that_an_insert_can_not_store_fails_without_a_row(
    small: Warehouse, form: str
) -> None:
    """By Spark, which may leave it out."""
    for constant in ("300", "100 + 100", "CAST(300 AS SMALLINT)", "1.5", "'x'"):
        if "UNION" not in form or "'" not in constant:
            assert outcome(small, form.format(c=constant)) is NeedsSpark, constant
    assert outcome(small, form.format(c="CAST(5 AS INT)")) == 0
    assert small.table("db.small").count() == 0


@pytest.mark.parametrize("form", MERGING)
def test_P33_a_merge_refuses_a_type_without_a_row_and_a_constant_for_a_row(
    small: Warehouse, form: str
) -> None:
    assert outcome(small, form.format(c="1.5")) is WrongType
    assert outcome(small, form.format(c="300")) == 0
    with_row = form.replace("db.none", "db.t").replace("db.one.id", "7 + db.one.id")
    assert outcome(small, with_row.format(c="300")) is WrongType


def test_P33_a_type_that_an_insert_can_not_store_fails_without_a_row(small: Warehouse) -> None:
    for value in ("s", "CAST(id AS DOUBLE)", "array(id)"):
        assert outcome(small, f"INSERT INTO db.small (t) SELECT {value} FROM db.none") in (
            NeedsSpark,
            WrongType,
        )
    assert outcome(small, "INSERT INTO db.small (t) SELECT id FROM db.none") == 0


def test_P33_a_constant_beyond_float_fails_for_a_row_alone(small: Warehouse) -> None:
    assert outcome(small, "UPDATE db.small SET f = 1e300 WHERE id = 99") == 0


def test_P33_a_column_is_no_constant(small: Warehouse) -> None:
    for query in ("SELECT 300, id FROM db.none", "SELECT id + 300, id AS n FROM db.none"):
        assert outcome(small, f"INSERT INTO db.small (id, t) {query}") == 0, query


@pytest.mark.parametrize("kind", ["varchar(3)", "char(3)"])
@pytest.mark.parametrize("value", ["'abcd'", "'ab' || 'cd'"])
def test_P33_a_constant_text_that_is_too_long_fails_for_a_row_alone(
    warehouse: Warehouse, kind: str, value: str
) -> None:
    table = f"db.texts_{kind[:-3]}"
    warehouse.sql(f"CREATE TABLE IF NOT EXISTS {table} (id int, s {kind})")
    assert outcome(warehouse, f"UPDATE {table} SET s = {value} WHERE id = 99") == 0
    warehouse.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    assert outcome(warehouse, f"UPDATE {table} SET s = {value} WHERE id = 1") is WrongType


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM db.t WHERE id + 2147483647 = 5",
        "SELECT id FROM db.t WHERE -2 - id * 2147483647 > 7",
        "SELECT (id - -2147483647) <> 3 AS v FROM db.t",
        "SELECT a.id FROM db.t a JOIN db.t b ON a.id + 2147483647 = b.id",
        "SELECT sum(id + 2147483647) AS v FROM db.t",
        "SELECT avg(2147483647 + id) AS v FROM db.t",
        "SELECT count(*) AS v FROM db.t HAVING max(id) + 2147483647 < 0",
        "SELECT id FROM db.t WHERE id + 2147483647 IN (5, 6)",
        "SELECT id FROM db.t WHERE id + 2147483647 BETWEEN 5 AND 6",
        "SELECT CASE id + 2147483647 WHEN 5 THEN 1 END AS v FROM db.t",
        "SELECT id FROM db.t WHERE id + 9223372036854775807 = 5",
    ],
)
def test_P33_what_is_compared_or_added_up_overflows_as_in_spark(
    warehouse: Warehouse, query: str
) -> None:
    """DuckDB would move the constant to the other side, where nothing overflows."""
    assert outcome(warehouse, query) is WrongType


def test_P33_a_chain_of_sums_is_added_up_as_it_is_written(warehouse: Warehouse) -> None:
    """DuckDB would add up the constants first, which overflows here."""
    query = "SELECT (id + 2147483645) + (id * -2 + 2) AS v FROM db.t"
    assert warehouse.sql(query).to_arrow().to_pylist() == [{"v": 2147483646}]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "expression",
    [
        *("v ILIKE w", "ilike(v, w)", "v LIKE w", "like(v, w)", "v RLIKE w", "json_tuple(v, w)"),
        *("regexp_extract(v, w, 0)", "regexp_replace(v, w, 'x')", "regexp_count(v, w)"),
        *("regexp_substr(v, w)", "regexp_instr(v, w)", "regexp_extract_all(v, w, 0)"),
        *("format_string(w, v)", "to_binary(v, w)", "to_number(v, w)", "to_char(1, w)"),
        *("xpath_string(v, w)", "variant_get(parse_json('{}'), w, 'int')", "split(v, w)"),
        *("get_json_object(v, w)", "date_format(DATE'2020-01-01', w)", "to_date(v, w)"),
    ],
)
def test_P33_a_pattern_or_format_that_is_no_literal_is_left_to_spark(
    warehouse: Warehouse, expression: str
) -> None:
    """It is known when a statement is translated, or not at all: not as the text 'None'."""
    rows = "(VALUES ('None', 'N%'), ('{\"None\": 1}', 'a')) AS t(v, w)"
    with pytest.raises(NeedsSpark):
        warehouse.sql(f"SELECT {expression} FROM {rows}", engine="local").to_arrow()
