"""A text that is not supported, or that Spark refuses, is told what to write instead, by a message
of ours; and no text calls a method of Java (P33, P67)."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from acid_platform import AcidError, InvalidExpression, NeedsSpark, UnsupportedStatement, Warehouse
from acid_platform.predicates.analysis import parsed
from acid_platform.predicates.grammar import require_interpreted
from acid_platform.sql.parse import ADVICE, parse
from acid_platform.sql.text import query
from tests.engine.local.refused_texts import REFUSED, TAKEN, texts

ADVISED: tuple[tuple[str, str], ...] = (
    ("GRANT SELECT ON TABLE t TO USER ann", "GRANT is not supported; rights on tables"),
    ("REVOKE ALL ON t FROM USER ann", "rights on tables"),
    ("CREATE ROLE r", "CREATE ROLE is not supported; rights on tables"),
    ("SET ROLE admin", "rights on tables"),
    ("SHOW GRANT ON TABLE t", "SHOW GRANT is not supported; rights on tables"),
    ("LOCK TABLE t SHARED", "LOCK TABLE is not supported; each statement locks"),
    ("UNLOCK TABLE t", "UNLOCK TABLE is not supported"),
    ("EXPORT TABLE t TO '/somewhere'", "CREATE TABLE … LOCATION"),
    (
        "INSERT OVERWRITE DIRECTORY '/x' STORED AS ORC SELECT 1",
        "DIRECTORY is not supported; take the rows by",
    ),
    ("INSERT OVERWRITE LOCAL DIRECTORY '/x' SELECT 1", "to_arrow()"),
    ("FROM src INSERT OVERWRITE DIRECTORY '/x' SELECT id", "to_arrow()"),
    ("IMPORT TABLE t FROM '/somewhere'", "wh.adopt_table"),
    ("CREATE FUNCTION f AS 'org.example.F' USING JAR 'f.jar'", "use Spark's functions"),
    ("DROP TEMPORARY FUNCTION f", "DROP TEMPORARY FUNCTION is not supported"),
    ("CREATE TEMPORARY EXTERNAL TABLE t (a int)", "leave one of both words out"),
    ("CREATE TABLE t SHALLOW CLONE u", "AS SELECT * FROM"),
    ("CREATE OR REPLACE TABLE t (a int)", "AS SELECT"),
    ("CREATE TABLE t (a int) STORED BY 'x.Handler'", "leave STORED BY out, and copy the rows"),
    ("CREATE DATABASE d LOCATION '/x'", "LOCATION '…' places a table elsewhere"),
    ("ALTER DATABASE d SET LOCATION '/x'", "make another database, or place a table elsewhere"),
    ("ALTER TABLE t SET OWNER USER ann", "tables have no owner; rights on tables are given"),
    ("EXPLAIN AST SELECT 1", "EXPLAIN AST is not supported; write EXPLAIN, which shows"),
    ("START TRANSACTION READ ONLY", "write START TRANSACTION, which reads one snapshot"),
    ("SET AUTOCOMMIT TRUE", "write START TRANSACTION, and COMMIT or ROLLBACK"),
    ("CREATE TEMPORARY MACRO twice(x int) x * 2", "write the expression where it is used"),
    ("CREATE MATERIALIZED VIEW m AS SELECT 1", "CREATE MATERIALIZED VIEW is not supported; use"),
    ("CREATE SCHEDULED QUERY q CRON '0 * * * *' AS SELECT 1", "schedule of Dagster"),
    ("REPL DUMP default", "acid metastore backup"),
    ("KILL QUERY 'x'", "use ABORT TRANSACTIONS"),
    ("RESTORE TABLE t TO VERSION AS OF 1", "RESTORE is not supported; write ALTER TABLE …"),
    ("REPLACE TABLE t AS SELECT 1", "REPLACE is not supported; use DROP TABLE and CREATE TABLE"),
    ("UPSERT INTO t VALUES (1)", "UPSERT is not supported; write MERGE INTO"),
    (
        "INSERT OR REPLACE INTO t VALUES (1)",
        "INSERT OR REPLACE INTO is not supported; write MERGE INTO",
    ),
    ("REPLACE INTO t VALUES (1)", "REPLACE is not supported; write MERGE INTO"),
    ("OPTIMIZE t", "OPTIMIZE is not supported; write ALTER TABLE … COMPACT"),
    ("VACUUM t", "VACUUM is not supported; leave it out"),
    ("CREATE INDEX i ON TABLE t (a) AS 'COMPACT'", "CREATE INDEX is not supported; leave it out"),
    ("CREATE RESOURCE PLAN p", "Dagster limits"),
    ("CREATE TABLE t (k int) SKEWED BY (k) ON (1, 2)", "leave SKEWED BY out"),
    ("ALTER VIEW v SET TBLPROPERTIES ('a'='b')", "CREATE OR REPLACE VIEW"),
    ("ALTER TABLE t SET INPUTFORMAT 'x'", "ALTER TABLE … SET INPUTFORMAT is not supported; make"),
    ("ALTER TABLE t PARTITION (a='x (1)') SET SERDEPROPERTIES ('a'='b')", "SET SERDEPROPERTIES is"),
    ("ALTER TABLE t SET LOCATION '/x'", "LOCATION … AS SELECT"),
    ("ALTER TABLE t CLUSTERED BY (id) INTO 8 BUCKETS", "ALTER TABLE … CLUSTERED BY is not"),
    ("ALTER TABLE t SKEWED BY (id) ON (1)", "ALTER TABLE … SKEWED BY is not supported; leave"),
    ("ALTER TABLE t TOUCH", "ALTER TABLE … TOUCH is not supported; leave it out"),
    ("ALTER TABLE t ARCHIVE PARTITION (a=1)", "use COMPACT 'major'"),
    ("ALTER TABLE t EXCHANGE PARTITION (a=1) WITH TABLE u", "move the rows in one transaction"),
    ("ALTER TABLE t RECOVER PARTITIONS", "use ALTER TABLE … ADD PARTITION"),
    ("ALTER TABLE t ADD PARTITION FIELD years(at)", "partitions are by columns"),
    ("ALTER TABLE t CREATE BRANCH b", "CREATE BRANCH is not supported; there are no branches"),
    ("ALTER TABLE t ENABLE NO_DROP", "a gateway's grants"),
    ("ALTER TABLE t COMPACT 'rebalance'", "write COMPACT 'major' or 'minor'"),
    ("DESCRIBE FORMATTED t id", "DESCRIBE t column"),
    ("ADD JAR x.jar", "ADD JAR is not supported; leave it out"),
    ("SOURCE x.sql", "acid sql -f FILE"),
    ("dfs -ls /", "use a shell"),
    ("EXECUTE q USING 1", "give parameters"),
    ("VALUES (1)", "write SELECT * FROM VALUES"),
    ("SET a b", "write SET name=value"),
)


@pytest.mark.parametrize(("text", "message"), ADVISED)
def test_a_known_statement_gets_advice(text: str, message: str) -> None:
    with pytest.raises(UnsupportedStatement) as refused:
        parse(text)
    assert message in str(refused.value)
    assert len(str(refused.value)) <= 200 and "\n" not in str(refused.value)


def test_each_advice_has_its_statement() -> None:
    plain = [text.lower() for text, _ in ADVISED]
    without = [start for start, _ in ADVICE if not any(re.match(start, text) for text in plain)]
    assert without == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELEC 1", "SELEC is not supported; did you mean SELECT?"),
        ("SHOW VEIWS", "SHOW VEIWS is not supported; did you mean SHOW VIEWS?"),
        ("DROP TABEL x", "DROP TABEL is not supported; did you mean DROP TABLE?"),
        ("ALTER TABLE t RENAMEE TO x", "did you mean ALTER TABLE RENAME?"),
        ("ALTER TABLE t FOO BAR", "ALTER TABLE … FOO BAR is not supported; ALTER TABLE takes ADD"),
        ("SHOW FOO", "SHOW FOO is not supported; SHOW takes COLUMNS, COMPACTIONS,"),
        ("SHOW PARTITIONS", "this form of SHOW PARTITIONS is not supported: 'SHOW PARTITIONS'"),
        ("FOO BAR", "FOO is not supported; no statement begins so"),
        ("CREATE TABLE t (a int) STORD AS ORC", "did you mean STORED by STORD?"),
        ("CREATE TABLE t (a int) STORED AS ORK", "formats are ORC, PARQUET, JSONFILE, TEXTFILE"),
    ],
)
def test_another_statement_gets_the_nearest(text: str, message: str) -> None:
    with pytest.raises(UnsupportedStatement) as refused:
        parse(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE t (a innt)", "near 'innt', line 1 column 22; did you mean int?"),
        ("SELECT * FROM table_change('t', 0)", "did you mean table_changes?"),
    ],
)
def test_a_misspelt_word_of_a_statement_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidExpression) as refused:
        parse(text)
    assert message in str(refused.value)


def test_no_warning_of_the_parser_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    for text in (
        *(text for text, _ in ADVISED),
        "CREATE TRANSACTIONAL TABLE t (a int)",
        "SELECT (",
    ):
        try:
            parse(text)
        except AcidError:
            continue
    assert caplog.records == []


def test_the_compiled_form_of_sqlglot_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sqlglot.tokens.SQLGLOTC_INSTALLED", True)
    with pytest.raises(UnsupportedStatement, match="pip uninstall sqlglotc"):
        require_interpreted()


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


@pytest.mark.parametrize("name", ["reflect", "java_method", "try_reflect", "REFLECT", "`reflect`"])
def test_P67_no_text_of_sql_calls_a_method_of_java(name: str) -> None:
    call = f"{name}('java.lang.System', 'load', '/theirs.so')"
    for text in (
        f"SELECT {call} AS y FROM t",
        f"SELECT * FROM (SELECT 1 WHERE {call} = 'x')",
        f"SELECT * FROM t LATERAL VIEW explode(array({call})) AS y",
        f"VALUES ({call})",
        f"SELECT upper( {name} ('java.lang.System', 'load'))",
    ):
        with pytest.raises(UnsupportedStatement, match="would run a method of Java"):
            query(text)
    for qualified in (f"builtin.{call}", f"system.builtin.{call}"):
        with pytest.raises(UnsupportedStatement):
            query(f"SELECT {qualified}")
    for statement in (
        f"INSERT INTO t SELECT {call}",
        f"DELETE FROM t WHERE x = {call}",
        f"CREATE VIEW v AS SELECT {call} AS y",
    ):
        with pytest.raises(UnsupportedStatement, match="would run a method of Java"):
            parse(statement)
    with pytest.raises(UnsupportedStatement):
        parsed(f"x = {call}")
    assert query("SELECT reflect, t.java_method FROM t").tree


@pytest.mark.parametrize("number", ["9" * 5000, "0." + "9" * 5000, "1e" + "9" * 5000])
@pytest.mark.parametrize(
    "form",
    [
        "SELECT {} AS v",
        "SELECT id FROM n LIMIT {}",
        "SELECT id FROM n WHERE id = {}",
        "INSERT INTO n VALUES ({})",
        "UPDATE n SET id = {}",
        "DELETE FROM n WHERE id = {}",
        "ALTER TABLE n ADD CONSTRAINT c CHECK (id < {})",
    ],
)
def test_P65_a_number_of_thousands_of_digits_is_an_error_of_ours(
    warehouse: Warehouse, form: str, number: str
) -> None:
    """Python makes no number of more than 4,300 digits, and says so in a ValueError."""
    warehouse.sql("CREATE TABLE IF NOT EXISTS n (id int)")
    with pytest.raises(InvalidExpression, match="characters is of no type; write a shorter one"):
        warehouse.sql(form.format(number))
    with pytest.raises(InvalidExpression):
        warehouse.table("n").to_arrow(where=f"id = {number}")
