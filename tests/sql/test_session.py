"""What lasts between statements: the database, a transaction, one snapshot; and the magic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from IPython.core.interactiveshell import InteractiveShell
from pyspark.sql import SparkSession

from acid_platform import (
    InvalidDefinition,
    InvalidExpression,
    NoSuchTable,
    NoSuchTxn,
    NoSuchWarehouse,
    UnsupportedStatement,
    Warehouse,
    WriteConflict,
)
from acid_platform.cli.main import main
from acid_platform.engine.interface import Result
from acid_platform.sql import Done
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("session") / "wh", spark) as opened:
        opened.sql("CREATE TABLE a (id int); CREATE TABLE b (id int);INSERT INTO a VALUES (1), (2)")
        yield opened


def ids(warehouse: Warehouse, text: str) -> list[int]:
    answer = warehouse.sql(text)
    assert isinstance(answer, Result)
    return sorted(row[0] for row in answer.collect())


def test_S4_a_transaction_sees_its_own_writes_and_nobody_elses(warehouse: Warehouse) -> None:
    with Warehouse.open(warehouse.path, spark=warehouse.spark) as other:
        begun = warehouse.sql(
            "START TRANSACTION; INSERT INTO b SELECT id + 10 FROM a;DELETE FROM a WHERE id = 1"
        )
        assert begun == Done("DELETE", "1 row affected", 1)
        other.sql("INSERT INTO b VALUES (99)")
        assert ids(warehouse, "SELECT id FROM b UNION ALL SELECT id FROM a") == [2, 11, 12]
        assert ids(other, "SELECT id FROM a") == [1, 2]
        assert str(warehouse.sql("COMMIT")).endswith("is committed")
        assert ids(other, "SELECT b.id FROM b LEFT ANTI JOIN a ON b.id = a.id") == [11, 12, 99]
        warehouse.sql("START TRANSACTION; INSERT INTO a VALUES (1); ROLLBACK")
        assert ids(warehouse, "SELECT id FROM a") == [2]


def test_T31_the_second_committer_of_a_script_loses(warehouse: Warehouse) -> None:
    with Warehouse.open(warehouse.path, spark=warehouse.spark) as other:
        warehouse.sql("START TRANSACTION; UPDATE b SET id = 100 WHERE id = 99")
        other.sql("UPDATE b SET id = 98 WHERE id = 99")
        with pytest.raises(WriteConflict):
            warehouse.sql("COMMIT")
    assert not warehouse.session.in_transaction
    assert ids(warehouse, "SELECT id FROM b WHERE id > 90") == [98]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("SELECT nope FROM a", Exception),
        ("CREATE TABLE c (id int)", UnsupportedStatement),
        ("INSERT INTO nope VALUES (1)", NoSuchTable),
        ("START TRANSACTION", UnsupportedStatement),
    ],
)
def test_a_failed_statement_rolls_its_transaction_back(
    warehouse: Warehouse, script: str, error: type[Exception]
) -> None:
    opened = str(warehouse.sql("START TRANSACTION")).split()[1]
    with pytest.raises(error) as raised:
        warehouse.sql(script)
    assert raised.value.__notes__ == [f"transaction {opened} was rolled back"]
    with pytest.raises(NoSuchTxn):
        warehouse.sql("COMMIT")


def test_a_script_that_does_not_parse_does_nothing(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidExpression):
        warehouse.sql("CREATE TABLE half (id int); SELECT (1")
    assert "default.half" not in warehouse.tables()


def test_use_lasts_and_a_view_keeps_its_database(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE a (id int);"
        "CREATE VIEW both AS SELECT id FROM a UNION ALL SELECT id FROM default.a"
    )
    assert ids(warehouse, "SELECT * FROM both") == [2]
    assert ids(warehouse, "USE default; SELECT count(*) FROM d.both") == [1]
    with pytest.raises(InvalidDefinition, match="reads itself"):
        warehouse.sql("CREATE OR REPLACE VIEW d.both AS SELECT * FROM d.both")
    warehouse.sql("DROP DATABASE d CASCADE")
    assert "d" not in warehouse.metastore.databases()


def test_input__file__name_is_the_file_of_each_row(warehouse: Warehouse) -> None:
    table = warehouse.create_table("p", "id int", partitioned_by=["m int"])
    table.insert([{"id": 1, "m": 1}, {"id": 2, "m": 2}])
    answer = warehouse.sql("SELECT id, INPUT__FILE__NAME FROM p")
    assert isinstance(answer, Result)
    found = {row[0]: str(row[1]) for row in answer.collect()}
    for id in (1, 2):
        assert found[id].endswith(f"/p/m={id}/delta_0000001_0000001_0000/bucket_00000")
        assert Path(found[id].removeprefix("file:")).is_file()
    star = warehouse.sql("SELECT *, input__file__name FROM p WHERE INPUT__FILE__NAME LIKE '%m=2%'")
    assert isinstance(star, Result)
    assert star.columns == ["id", "m", "input__file__name"]
    assert [row[0] for row in star.collect()] == [2]


def test_explain_says_what_would_be_locked_and_read(warehouse: Warehouse) -> None:
    text = "EXPLAIN UPDATE p SET id = 3 WHERE m = 2 AND id > 0"
    answer = warehouse.sql(text, engine="spark")
    assert isinstance(answer, Result)
    lines = list(answer["Explain"])
    assert lines[:3] == [
        "write default.p: lock SHARED_WRITE, operation update",
        "  first committer wins per partition",
        "read default.p at default.p:1:9223372036854775807::",
    ]
    assert lines[3] == "  partitions: 1 (m=2)"
    assert lines[6] == "  condition in the scan: `m` = 2 AND `id` > 0"
    assert "== Physical Plan ==" in lines
    assert ids(warehouse, "SELECT id FROM p") == [1, 2]


def test_acid_sql_prints_each_answer_and_ends_at_the_first_error(warehouse: Warehouse) -> None:
    def acid(text: str, *options: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(main, ["sql", text, *options, "--warehouse", warehouse.path])
        return done.exit_code, done.stdout, done.stderr

    code, out, _ = acid("USE default; SELECT named_struct('a', 1, 'b', 'x') s, NULL n, true t")
    assert code == 0 and out.splitlines()[0] == "OK"
    assert out.split()[-3:] == ['{"a":1,"b":"x"}', "NULL", "true"]
    code, out, _ = acid("USE default; SELECT 1 AS one", "--json")
    assert out.splitlines()[1] == '[{"one": 1}]'
    code, out, err = acid("START TRANSACTION; SELECT 1 AS one; SELECT * FROM nope; SELECT 2")
    assert code == 1 and "one" in out
    assert "there is no table default.nope" in err and "was rolled back" in err
    code, _, err = acid("START TRANSACTION")
    assert code == 1 and "ended inside of a transaction, which is rolled back" in err


def test_the_magic_shows_each_answer_of_a_cell(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import IPython.display

    shown: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "acid_platform")
    shell.user_ns.update(wh=warehouse, number=3)
    shell.run_cell_magic("acid", "", "USE default; SELECT id FROM a; SHOW TABLES LIKE 'p'")
    html = [one._repr_html_() for one in shown]
    assert "<pre>OK</pre>" in html[0]
    assert "<th" in html[1] and ">2</td>" in html[1]
    assert "tab_name" in html[2] and ">p</td>" in html[2]
    with pytest.raises(NoSuchTable, match=r"no table default\.nope"):
        shell.run_cell_magic("acid", "wh", "SELECT * FROM nope")
    with pytest.raises(NoSuchWarehouse, match="number is a int"):
        shell.run_cell_magic("acid", "number", "SHOW TABLES")
    with pytest.raises(NoSuchWarehouse, match="is not a warehouse"):
        shell.run_cell_magic("acid", str(tmp_path / "none"), "SHOW TABLES")
    shell.run_cell_magic("acid", warehouse.path, "SHOW DATABASES")
    assert "database_name" in shown[-1]._repr_html_()
