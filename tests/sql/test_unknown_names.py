"""A name that no table of a query has is refused before Spark starts; doubtful names are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from acid_platform import (
    AcidError,
    InvalidExpression,
    Table,
    UnknownColumn,
    UnsupportedStatement,
    Warehouse,
)
from acid_platform.base.arguments import nearest_name
from acid_platform.engine.spark.failures import translated
from acid_platform.handles.transaction import TransactionTable
from acid_platform.sql.column_references import refuse_unknown_names
from acid_platform.sql.text import query
from tests.conftest import temporary_warehouse

TABLES = {"default.t": ("id", "name", "at", "place"), "db.u": ("id", "n")}


def unknown(text: str) -> str | None:
    tree = query(text).tree
    try:
        refuse_unknown_names(tree, TABLES.__getitem__, "default")
    except UnknownColumn as error:
        return str(error).removeprefix("there is no column ").partition(";")[0]
    return None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SELECT nmae FROM t", "nmae"),
        ("SELECT id FROM t WHERE upper(NMAE) = 'A'", "NMAE"),
        ("SELECT t.nmae FROM t", "t.nmae"),
        ("SELECT x.id FROM t x JOIN db.u y ON x.id = y.idd", "y.idd"),
        ("SELECT count(*) FROM t GROUP BY nmae HAVING count(*) > 1", None),  # an unnamed count(*)
        ("SELECT name, count(*) AS c FROM t GROUP BY nmae", "nmae"),
        ("SELECT name FROM t ORDER BY idd", "idd"),
        ("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM db.u WHERE u.id = t.idd)", "t.idd"),
        ("SELECT id FROM t UNION ALL SELECT idd FROM db.u", "idd"),
        ("SELECT month FROM t", "month"),
        ("SELECT name FROM (SELECT id AS a FROM t) s", "name"),
        ("WITH c AS (SELECT id AS a FROM t) SELECT c.id FROM c", "c.id"),
        ("WITH c AS (SELECT * FROM t) SELECT other FROM c", "other"),
        ("SELECT id FROM t AS x (a, b, c, d)", "id"),
        ("SELECT 1 FROM db.u, (SELECT n FROM t) s", "n"),
    ],
)
def test_a_misspelt_name_is_found(text: str, name: str | None) -> None:
    assert unknown(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ID, t.Name, place.city, t.place.city, default.t.id FROM t",
        "SELECT *, t.* FROM t",
        "SELECT name AS n FROM t ORDER BY n",
        "SELECT upper(name) AS n, n || '!' FROM t",
        "SELECT explode(split(name, ' ')) FROM t ORDER BY col",
        "SELECT id FROM t WHERE id IN (SELECT n FROM db.u WHERE name = 'x')",
        "SELECT a FROM (SELECT id AS a FROM t) s",
        "WITH c AS (SELECT id AS a FROM t) SELECT a FROM c JOIN t ON c.a = t.id",
        "WITH c (b) AS (SELECT id AS a FROM t) SELECT b FROM c",
        "SELECT col FROM (SELECT explode(split(name, ' ')) FROM t) s",
        "SELECT transform(split(name, ' '), x -> upper(x)) FROM t",
        "SELECT e FROM t LATERAL VIEW explode(split(name, ' ')) v AS e",
        "SELECT a FROM t AS x (a, b, c, d)",
        "SELECT id FROM t WHERE at < current_date AND row__id.bucketid = 1",
        "SELECT timestampadd(DAY, 1, at), extract(YEAR FROM at), date_trunc('month', at) FROM t",
        "SELECT input__file__name, count(*) FROM t GROUP BY input__file__name",
        "SELECT count(*) FROM t GROUP BY name ORDER BY `count(1)`",
    ],
)
def test_what_may_be_right_is_left_to_spark(text: str) -> None:
    assert unknown(text) is None


@pytest.mark.parametrize(
    ("inner", "refused"),
    [
        ("x.at > now()", "x.at"),
        ("at > now()", "at"),
        ("place.city = 'X'", "place.city"),
        ("x.place.city = 'X'", "x.place.city"),
        ("x.id > 1", "x.id"),
        ("id > 1", None),  # of the nearest table
        ("y.n > 1", None),
    ],
)
@pytest.mark.parametrize(
    "outer",
    ["t AS x", "(SELECT id, at, place FROM t) AS x", "c AS x"],
    ids=["table", "subquery", "CTE"],
)
def test_a_column_two_queries_further_out_is_refused(
    outer: str, inner: str, refused: str | None
) -> None:
    text = (
        f"WITH c AS (SELECT id, at, place FROM t) SELECT 1 FROM {outer} WHERE EXISTS"
        f" (SELECT 1 FROM db.u AS y WHERE NOT EXISTS (SELECT 1 FROM db.u WHERE {inner}))"
    )
    tree = query(text).tree
    if refused is None:
        refuse_unknown_names(tree, TABLES.__getitem__, "default")
        return
    with pytest.raises(UnsupportedStatement, match=f"^{refused} is a column of a query further"):
        refuse_unknown_names(tree, TABLES.__getitem__, "default")


def test_an_outer_column_that_spark_can_not_evaluate_is_told() -> None:
    """Spark's words for `EXISTS (SELECT 1 FROM u JOIN w ON t.left.id = w.id)`."""
    error = RuntimeError("[INTERNAL_ERROR] Cannot generate code for expression: outer(left#141)")
    told = translated(error)
    assert isinstance(told, UnsupportedStatement) and "column left of the query around" in str(told)


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ('The query operator Sort contains one.\nInvalid expressions: ["count(1)"]', True),
        (
            'A query operator contains one.\nInvalid expressions: ["sum(w)"]; line 1 pos 9;\n'
            "GlobalLimit 3\n+- Sort [v#1 ASC, sum(w#12L) ASC NULLS FIRST], true\n  +- Project [v]",
            True,
        ),
        (
            'A query operator contains one.\nInvalid expressions: ["sum(w)"]; line 1 pos 9;\n'
            "Sort [w#12L ASC], true\n+- Join Inner, (sum(w#12L) > 1)",
            False,
        ),
    ],
    ids=["Spark 4.3", "Spark 4.1", "Spark 4.1, in a join"],
)
def test_an_aggregate_that_order_by_can_not_have_is_told(message: str, refusal: bool) -> None:
    told = translated(AnalysisException(f"[UNSUPPORTED_EXPR_FOR_OPERATOR] {message}"))
    assert isinstance(told, UnsupportedStatement if refusal else InvalidExpression)
    assert ("an expression of ORDER BY is not known" in str(told)) == refusal


def test_no_error_suggests_the_name_that_was_asked_for() -> None:
    assert nearest_name("nmae", ["id", "name"]) == "name"
    assert nearest_name("name", ["name", "names"]) is None
    for known in ("`v`", "`k`, `v`"):
        error = AnalysisException(
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `v` cannot be resolved. Did you"
            f" mean one of the following? [{known}]. SQLSTATE: 42703; line 1 pos 66"
        )
        told = translated(error)
        assert isinstance(told, UnsupportedStatement), told
        assert str(told).startswith("v is not known in that clause; compute the value in SELECT")


def test_P33_no_verb_starts_spark_for_a_column_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(self: Warehouse) -> object:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(Warehouse, "spark", property(started))
    with temporary_warehouse(tmp_path / "wh") as warehouse:
        table = warehouse.create_table("t", "id int, name string", partitioned_by=["p int"])
        with warehouse.snapshot() as held, warehouse.transaction() as txn:
            lent = txn.table("t")
            for reader in (table, held.table("t"), lent):
                for arguments in ({"columns": ["nmae"]}, {"where": "nmae = 'x' AND p = 1"}):
                    with pytest.raises(UnknownColumn, match=r"no column 'nmae'.* mean name\?"):
                        reader.read(**arguments)  # type: ignore[arg-type]
            for writer in (table, lent):
                _refuses_to_write(writer)
        for text in (
            "SELECT nmae FROM t",
            "INSERT INTO t SELECT idd, name, 1 FROM t",
            "UPDATE t SET nmae = 'x'",
            "UPDATE t SET name = nmae",
            "DELETE FROM t WHERE nmae = 'x'",
            "INSERT INTO t (idd, p) VALUES (1, 2)",
        ):
            with pytest.raises(UnknownColumn):
                warehouse.sql(text)
        assert table.history() == []


def _refuses_to_write(table: Table | TransactionTable) -> None:
    for statement in (
        lambda: table.insert([{"id": 1, "nmae": "x", "p": 1}]),
        lambda: table.overwrite([{"id": 1, "nmae": "x", "p": 1}]),
        lambda: table.update({"nmae": "'x'"}),
        lambda: table.update({"name": "upper(nmae)"}),
        lambda: table.update({"name": "'x'"}, "nmae = 'y'"),
        lambda: table.delete("nmae = 'y'"),
    ):
        with pytest.raises(UnknownColumn, match=r"no column 'nmae'.* mean name\?"):
            statement()


def test_a_database_that_is_not_there_is_named_with_the_next_step(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        warehouse.sql("CREATE DATABASE shop")
        for statement in ("CREATE TABLE {}.t (id int)", "USE {}", "SHOW TABLES IN {}"):
            with pytest.raises(AcidError, match="no database sohp; did you mean shop"):
                warehouse.sql(statement.format("sohp"))
            with pytest.raises(AcidError, match=r"CREATE DATABASE .raw. makes it"):
                warehouse.sql(statement.format("raw"))
