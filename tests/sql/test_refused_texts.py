"""What Spark's parser refuses is refused here, by a message of ours."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from acid_platform import AcidError, InvalidExpression, NeedsSpark, Warehouse
from acid_platform.sql.parse import parse
from tests.engine.local.refused_texts import REFUSED, TAKEN, texts

LIBRARY = re.compile(r"sqlglot|duckdb|py4j|pyspark|<class|TokenType|[a-z]\w*\.[a-z]\w*\.\w+")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    with Warehouse.open(tmp_path_factory.mktemp("texts"), engine="local") as opened:
        table = opened.create_table("d.t", "id int, i int")
        table.insert([{"id": 1, "i": 1}, {"id": 2, "i": None}, {"id": 3, "i": 2}])
        yield opened
        opened.metastore.stop()


@pytest.mark.parametrize("text", texts(REFUSED, "d.t"))
def test_P33_what_spark_refuses_names_no_class_of_a_library(
    warehouse: Warehouse, text: str
) -> None:
    with pytest.raises(AcidError) as refused:
        warehouse.sql(text)
    assert not LIBRARY.search(str(refused.value)), str(refused.value)


@pytest.mark.parametrize("text", texts(TAKEN, "d.t"))
def test_P33_what_spark_takes_is_computed_here(warehouse: Warehouse, text: str) -> None:
    with suppress(NeedsSpark):
        warehouse.sql(text).collect()


FUNCTIONS = "abs array_join coalesce concat_ws date_add date_format elt greatest if instr lag least"
FUNCTIONS += " left locate lower lpad max mod nullif nvl nvl2 pow regexp_extract regexp_replace"
FUNCTIONS += " replace round rpad split sum substring trim trunc upper year from_json explode"


@pytest.mark.more
@pytest.mark.parametrize("function", FUNCTIONS.split())
@pytest.mark.parametrize("arguments", ["", "1", "NULL", "1, 'a', NULL", "1, 2, 3, 4, 5, 6"])
def test_a_function_with_any_number_of_arguments_raises_our_errors(
    warehouse: Warehouse, function: str, arguments: str
) -> None:
    try:
        warehouse.sql(f"SELECT {function}({arguments}) AS x FROM d.t")
    except AcidError as error:
        assert not LIBRARY.search(str(error)), str(error)


@pytest.mark.more
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT upper()", "upper() has too few or too many arguments"),
        ("SELECT id FROM t LIMIT '1'", "LIMIT takes a whole number, without quotes"),
        ("SELECT id, FROM t", "nothing stands behind a comma near 'FROM'"),
        ("SELECT id FROM t ORDER BY id WHERE z", "WHERE stands behind a later clause"),
        ("WITH a AS (SELECT 1), A AS (SELECT 2) SELECT 1", "WITH names 'a' twice"),
        ("SELECT CAST(id AS text) FROM t", "did you mean string?"),
    ],
)
def test_the_message_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InvalidExpression, match=re.escape(message)):
        parse(text)
