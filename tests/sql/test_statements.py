"""A text is parsed into a statement, or refused with an error that names it. No Spark."""

from __future__ import annotations

from inspect import Parameter, signature

import pytest

from acid_platform import InvalidDefinition, InvalidExpression, UnsupportedStatement
from acid_platform.sql.column_lists import PartitionSpec
from acid_platform.sql.parse import parse, split
from acid_platform.sql.run_columns import COLUMNS
from acid_platform.sql.run_definitions import DEFINITIONS
from acid_platform.sql.run_operations import OPERATIONS
from acid_platform.sql.run_shows import SHOWS
from acid_platform.sql.statements import (
    Commands,
    LoadData,
)
from acid_platform.sql.text import Query


@pytest.mark.parametrize("commands", [SHOWS, OPERATIONS, COLUMNS, DEFINITIONS])
def test_the_groups_of_each_pattern_are_the_arguments_of_its_function(commands: Commands) -> None:
    for pattern, command in commands.entries:
        name, function = command.name, command.function
        _run, *parameters = signature(function).parameters.values()
        others = [each for each in parameters if each.kind is not Parameter.VAR_KEYWORD]
        needed = {each.name for each in others if each.default is Parameter.empty}
        groups = set(pattern.groupindex)
        assert needed <= groups, name
        assert len(others) < len(parameters) or groups <= {each.name for each in others}, name


def test_files_whose_rows_are_inserted() -> None:
    text = r"LOAD DATA LOCAL INPATH '/in/it\'s' {}INTO TABLE db.t PARTITION (ds='a')"
    spec = PartitionSpec({"ds": "a"})
    assert parse(text.format("")) == LoadData("db.t", "/in/it's", spec)
    assert parse(text.format("OVERWRITE ")) == LoadData("db.t", "/in/it's", spec, overwrite=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE EXTERNAL TABLE t (a int) CLUSTERED BY (a) INTO 2 BUCKETS", "EXTERNAL TABLE with"),
        ("INSERT INTO DIRECTORY '/x' SELECT 1", "INSERT DIRECTORY is not supported"),
        ("CREATE TABLE t LIKE u STORED AS PARQUET", "CREATE TABLE … LIKE with STORED AS PARQUET"),
        ("CREATE TABLE t (a int) LIKE u", "LIKE with columns or a query"),
        ("CREATE TABLE t LIKE u AS SELECT 1", "LIKE with columns or a query"),
        ("CREATE TRANSACTIONAL VIEW v AS SELECT 1", "CREATE TRANSACTIONAL"),
        ("CREATE TABLE t (a int) PARTITIONED BY (b int NOT NULL)", "about a partition column"),
        ("CREATE TABLE t (a int) CLUSTERED BY (a) SORTED BY (a) INTO 2 BUCKETS", "SORTED BY"),
        ("CREATE TABLE t (a int) STORED AS RCFILE", "STORED AS RCFILE"),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN UPDATE SET v = (SELECT 1)",
            "subquery in MERGE SET",
        ),
        (
            "MERGE WITH SCHEMA EVOLUTION INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE",
            "MERGE WITH SCHEMA EVOLUTION",
        ),
        ("WITH x AS (SELECT 1 AS a) DELETE FROM t WHERE a IN (SELECT a FROM x)", "before DELETE"),
        ("WITH x AS (SELECT 1 AS a) UPDATE t SET a = 1", "WITH before UPDATE"),
        ("INSERT INTO t REPLACE WHERE a = 1 SELECT 1", "DELETE the rows that go"),
        ("DELETE FROM t ORDER BY a", "DELETE with ORDER BY"),
        ("LOAD DATA INPATH 'x' INTO TABLE t", "write LOAD DATA LOCAL INPATH"),
        ("LOAD DATA LOCAL INPATH 'x' INTO TABLE t SERDE 's'", "LOAD DATA with SERDE 's'"),
        ("UPDATE t SET a = 1 WHERE b = 2 LIMIT 3", "UPDATE with LIMIT"),
        ("SELECT * FROM t TABLESAMPLE (BUCKET 3 OUT OF 4 ON a, b) s", "BUCKET x OUT OF y"),
        ("SELECT * FROM t TABLESAMPLE (10M) s", "TABLESAMPLE by size"),
        ("EXPLAIN SHOW TABLES", "EXPLAIN takes a SELECT"),
        ("SELECT TRANSFORM(a) USING 'rm' FROM t", "compute rows in Python"),
        ("SELECT * INTO x FROM t", "does more than read"),
        ("SELECT 1; SELECT 2", "2 statements in one text"),
        ("", "there is no statement"),
        ("-- nothing", "there is no statement"),
    ],
)
def test_parts_that_are_not_built_are_named(text: str, message: str) -> None:
    with pytest.raises(UnsupportedStatement, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO t BY NAME VALUES (1)", "needs a query, which names columns"),
        ("SELECT id FROM t WHERE", "not Hive SQL"),
        ("SELECT (1", "not Hive SQL"),
        ("SELECT 'a", "a quote is not closed"),
        ("DELETE t WHERE a = 1", "DELETE needs FROM"),
        ("MERGE INTO t USING (SELECT 1 AS a) ON a = 1 WHEN MATCHED THEN DELETE", "an alias"),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN INSERT VALUES (1)",
            "is not possible",
        ),
        ("UPDATE t SET a = 1, a = 2", "column 'a' twice"),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED THEN INSERT (b, B) VALUES (1, 2)",
            "column 'b' twice",
        ),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED THEN INSERT (b, t.b) VALUES (1, 2)",
            "column 'b' twice",
        ),
        (
            "MERGE INTO t x USING u ON x.a = u.a WHEN NOT MATCHED THEN INSERT (t.b) VALUES (1)",
            "'t.b' is not the name of a column",
        ),
        ("ALTER TABLE t ADD PARTITION (a > 3)", "neither column=value nor a column"),
        ("ALTER TABLE t DROP PARTITION (a > b)", "'b' is not a literal"),
        ("ALTER TABLE t DROP PARTITION (a + 1 > 2)", "that is compared with a literal"),
        ("ALTER TABLE t DROP PARTITION (a < NULL)", "is true for no partition"),
        ("ALTER TABLE t DROP PARTITION (a = 1, a = 2)", "a has two values"),
        ("INSERT INTO t (a) PARTITION (b=1) SELECT 1", "stands before the list of columns"),
        ("INSERT INTO t PARTITION (b=1) IF NOT EXISTS SELECT 1", "IF NOT EXISTS"),
        ("INSERT OVERWRITE t PARTITION (b) IF NOT EXISTS SELECT 1, 2", "IF NOT EXISTS"),
        ("FROM u INSERT INTO t VALUES (1) INSERT INTO t SELECT 1", "needs a SELECT before"),
        ("FROM u INSERT INTO t SELECT a FROM v INSERT INTO t SELECT a", "a FROM of its own"),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED BY SOURCE THEN INSERT *",
            "is not possible",
        ),
        ("ALTER TABLE t DROP PARTITION (a='')", "an empty text is stored as NULL"),
        ("TRUNCATE TABLE t PARTITION (a='')", "an empty text is stored as NULL"),
        ("INSERT OVERWRITE TABLE t PARTITION (a='') SELECT 1", "an empty text is stored as NULL"),
    ],
)
def test_what_is_no_sql_is_an_invalid_expression(text: str, message: str) -> None:
    with pytest.raises(InvalidExpression, match=message):
        parse(text)


def test_columns_come_from_a_list_or_a_query_and_not_from_both() -> None:
    for text in ("CREATE TABLE t", "CREATE TABLE t (a int) AS SELECT 1 AS a"):
        with pytest.raises(InvalidDefinition):
            parse(text)


def test_a_script_ends_statements_at_semicolons_outside_of_quotes_and_comments() -> None:
    script = """
        use d; -- first; not a statement
        INSERT INTO t VALUES ('a;b', "c;d"), ('it\\'s;'); /* ; */
        SELECT `x;y` FROM t /*+ BROADCAST(t) */ ;;
    """
    assert [one.plain for one in split(script)] == [
        "use d",
        """INSERT INTO t VALUES ('a;b', 'c;d'), ('it\\'s;')""",
        "SELECT `x;y` FROM t",
    ]
    assert isinstance(parse(split(script)[2]), Query)


@pytest.mark.parametrize("end", ["-- done", "--", "/* done */", "; -- done", " -- 'done; "])
def test_a_comment_at_the_end_of_a_script_belongs_to_its_last_statement(end: str) -> None:
    for before in ("", "DELETE FROM t; "):
        statements = split(f"{before}INSERT INTO t SELECT 1 {end}")
        assert statements[-1].plain == "INSERT INTO t SELECT 1"
        assert len(statements) == 1 + bool(before)
