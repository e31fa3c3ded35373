"""A statement that is not supported is told what to write instead, in at most two lines."""

from __future__ import annotations

import re

import pytest

from acid_platform import AcidError, InvalidExpression, UnsupportedStatement
from acid_platform.predicates.grammar import require_interpreted
from acid_platform.sql.parse import ADVICE, parse

REFUSED: tuple[tuple[str, str], ...] = (
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
    ("CREATE OR REPLACE TABLE t (a int)", "INSERT OVERWRITE"),
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
    ("OPTIMIZE t", "OPTIMIZE is not supported; write ALTER TABLE … COMPACT"),
    ("VACUUM t", "VACUUM is not supported; leave it out"),
    ("CREATE INDEX i ON TABLE t (a) AS 'COMPACT'", "CREATE INDEX is not supported; leave it out"),
    ("CREATE RESOURCE PLAN p", "Dagster limits"),
    ("CREATE TABLE t (k int) SKEWED BY (k) ON (1, 2)", "leave SKEWED BY out"),
    ("ALTER VIEW v SET TBLPROPERTIES ('a'='b')", "CREATE OR REPLACE VIEW"),
    ("ALTER TABLE t SET FILEFORMAT PARQUET", "ALTER TABLE … SET FILEFORMAT is not supported; make"),
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


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_known_statement_gets_advice(text: str, message: str) -> None:
    with pytest.raises(UnsupportedStatement) as refused:
        parse(text)
    assert message in str(refused.value)
    assert len(str(refused.value)) <= 200 and "\n" not in str(refused.value)


def test_each_advice_has_its_statement() -> None:
    plain = [text.lower() for text, _ in REFUSED]
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
        ("CREATE TABLE t (a int) STORED AS ORK", "formats are ORC, PARQUET, TEXTFILE, JSONFILE"),
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
        *(text for text, _ in REFUSED),
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
