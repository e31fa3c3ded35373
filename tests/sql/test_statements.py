"""A text is parsed into a statement, or refused with an error that names it. No Spark."""

from __future__ import annotations

import pytest

from acid_platform import InvalidDefinition, InvalidExpression, UnsupportedStatement
from acid_platform.compaction.states import CompactionKind
from acid_platform.engine.merge_clauses import MergeAction
from acid_platform.metastore.pasts import AsOf
from acid_platform.sql.parse import parse
from acid_platform.sql.run_shows import matches
from acid_platform.sql.script import split
from acid_platform.sql.statements import (
    AbortTransactions,
    AddColumns,
    AddPartitions,
    Assignment,
    ChangeColumn,
    Compact,
    Control,
    CreateDatabase,
    CreateTable,
    CreateTag,
    CreateView,
    Delete,
    DropDatabase,
    DropPartitions,
    DropTable,
    DropTag,
    Explain,
    Insert,
    MergeInto,
    PartitionSpec,
    RenameTable,
    RollBack,
    SetProperties,
    SetValue,
    Show,
    ShowKind,
    Statement,
    Truncate,
    Update,
    Use,
    When,
)
from acid_platform.sql.text import Query, expression


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SHOW DATABASES", Show(ShowKind.DATABASES)),
        ("show schemas like 'fl*';", Show(ShowKind.DATABASES, like="fl*")),
        ("SHOW TABLES", Show(ShowKind.TABLES)),
        ("-- all\nshow tables in Flights 'd*'", Show(ShowKind.TABLES, "flights", "d*")),
        ("show partitions `db`.`T`", Show(ShowKind.PARTITIONS, "db.t")),
        ("SHOW CREATE TABLE t", Show(ShowKind.CREATE_TABLE, "t")),
        ("show transactions", Show(ShowKind.TRANSACTIONS)),
        ("show /* who? */ locks", Show(ShowKind.LOCKS)),
        ("SHOW LOCKS db.t", Show(ShowKind.LOCKS, "db.t")),
        ("Show Compactions ;", Show(ShowKind.COMPACTIONS)),
        ("SHOW TAGS db.t", Show(ShowKind.TAGS, "db.t")),
        ("ALTER TABLE T ROLLBACK TO 3", RollBack("t", AsOf(write_id=3))),
        ("alter table t rollback to version 3", RollBack("t", AsOf(write_id=3))),
        ("alter table t rollback to tag `A b`", RollBack("t", AsOf(tag="A b"))),
        (
            "alter table t rollback to timestamp '1970-01-01 00:00:01.5'",
            RollBack("t", AsOf(time=1500)),
        ),
        ("ALTER TABLE t CREATE TAG x", CreateTag("t", "x")),
        (
            "alter table t create tag 'x y' for system_version as of 7 retain 2 days",
            CreateTag("t", "x y", AsOf(write_id=7), 2),
        ),
        (
            "alter table t create tag x as of timestamp '1970-01-01 00:00:01'",
            CreateTag("t", "x", AsOf(time=1000)),
        ),
        ("alter table t create tag x as of tag y", CreateTag("t", "x", AsOf(tag="y"))),
        ("ALTER TABLE t DROP TAG IF EXISTS `X`", DropTag("t", "X", True)),
        ("DESC db.t", Show(ShowKind.COLUMNS, "db.t")),
        ("describe table t", Show(ShowKind.COLUMNS, "t")),
        ("describe formatted t", Show(ShowKind.FORMATTED, "t")),
        ("DESC HISTORY db.t", Show(ShowKind.HISTORY, "db.t")),
        ("describe history", Show(ShowKind.COLUMNS, "history")),
        ("use Test_DB", Use("test_db")),
        ("SET hive.a.b = c d", SetValue("hive.a.b", "c d")),
        ("set hive.a", SetValue("hive.a")),
        ("SET", SetValue()),
        ("START TRANSACTION", Control.START),
        ("commit", Control.COMMIT),
        ("ROLLBACK WORK", Control.ROLLBACK),
        ("CREATE SCHEMA IF NOT EXISTS d", CreateDatabase("d", True)),
        ("DROP DATABASE IF EXISTS d CASCADE", DropDatabase("d", True, True)),
        ("DROP TABLE db.t PURGE", DropTable("db.t")),
        ("drop view if exists v", DropTable("v", True, True)),
        ("TRUNCATE TABLE t PARTITION (month = 3)", Truncate("t", PartitionSpec({"month": "3"}))),
        (
            "ALTER TABLE t ADD COLUMNS (a int, b struct<x:int>)",
            AddColumns("t", "a int, b struct<x:int>"),
        ),
        (
            "ALTER TABLE t CHANGE COLUMN a b decimal(7,2) AFTER c",
            ChangeColumn("t", "a", "b decimal(7,2)", "c"),
        ),
        ("alter table t change a a bigint first", ChangeColumn("t", "a", "a bigint", "")),
        ("ALTER TABLE db.t RENAME TO db.u", RenameTable("db.t", "db.u")),
        (
            "ALTER TABLE t ADD IF NOT EXISTS PARTITION (a=1, b='x,)') PARTITION (a=-2, b=NULL)",
            AddPartitions(
                "t",
                (PartitionSpec({"a": "1", "b": "x,)"}), PartitionSpec({"a": "-2", "b": None})),
                True,
            ),
        ),
        (
            "ALTER TABLE t DROP PARTITION (d=DATE '2013-01-01'),"
            " PARTITION (d='__HIVE_DEFAULT_PARTITION__')",
            DropPartitions("t", (PartitionSpec({"d": "2013-01-01"}), PartitionSpec({"d": None}))),
        ),
        (
            "ALTER TABLE t SET TBLPROPERTIES ('a'='b;c', 'd'='e=f')",
            SetProperties("t", {"a": "b;c", "d": "e=f"}),
        ),
        ("ALTER TABLE t COMPACT 'MAJOR'", Compact("t", CompactionKind.MAJOR)),
        (
            "alter table t partition (m=3) compact 'minor' and wait",
            Compact("t", CompactionKind.MINOR, PartitionSpec({"m": "3"}), True),
        ),
        ("ABORT TRANSACTIONS 1, 2 3", AbortTransactions((1, 2, 3))),
        ("abort compactions 7", AbortTransactions((7,), True)),
        (
            "CREATE TABLE IF NOT EXISTS db.T (id int, v array<string>) PARTITIONED BY (m int)"
            " CLUSTERED BY (id) INTO 4 BUCKETS STORED AS ORC LOCATION '/x'"
            " TBLPROPERTIES ('transactional'='true')",
            CreateTable(
                "db.t",
                "`id` INT, `v` ARRAY<STRING>",
                ("`m` INT",),
                (("id",), 4),
                {"transactional": "true"},
                "/x",
                True,
            ),
        ),
        (
            "CREATE TABLE t (a int) ROW FORMAT DELIMITED FIELDS TERMINATED BY '|'"
            " STORED AS TEXTFILE"
            " TBLPROPERTIES ('transactional_properties'='insert_only')",
            CreateTable(
                "t",
                "`a` INT",
                properties={
                    "field.delim": "|",
                    "acid.format": "text",
                    "transactional_properties": "insert_only",
                },
            ),
        ),
    ],
)
def test_statements_that_are_known_by_their_words(text: str, wanted: Statement) -> None:
    assert parse(text) == wanted


@pytest.mark.parametrize(
    ("text", "table", "columns", "partition", "overwrite", "source"),
    [
        ("INSERT INTO TABLE t VALUES (1, 'A')", "t", (), None, False, "VALUES (1, 'A')"),
        ("INSERT INTO db.T (id, v) SELECT 1, 2", "db.t", ("id", "v"), None, False, "SELECT 1, 2"),
        (
            "INSERT OVERWRITE TABLE t PARTITION (y=2013, m) SELECT a, b FROM u",
            "t",
            (),
            PartitionSpec({"y": "2013"}, ("m",)),
            True,
            "SELECT a, b FROM u",
        ),
        (
            "WITH x AS (SELECT 1 AS a) INSERT INTO t SELECT a FROM x",
            "t",
            (),
            None,
            False,
            "WITH x AS (SELECT 1 AS a)\nSELECT a FROM x",
        ),
        ("INSERT INTO t TABLE u", "t", (), None, False, "SELECT * FROM u"),
    ],
)
def test_inserts(
    text: str,
    table: str,
    columns: tuple[str, ...],
    partition: PartitionSpec | None,
    overwrite: bool,
    source: str,
) -> None:
    found = parse(text)
    assert isinstance(found, Insert)
    assert (found.table, found.columns, found.partition, found.overwrite) == (
        table,
        columns,
        partition,
        overwrite,
    )
    if isinstance(found.source, Query):
        assert found.source.text == source
    else:
        assert found.source.rows == ((expression("1"), expression("'A'")),)


def test_updates_deletes_merges_views_and_explain() -> None:
    update = parse("UPDATE db.t SET a = upper(b), `C` = 3 WHERE id IN (SELECT id FROM u)")
    assert isinstance(update, Update) and update.where is not None
    assert (update.table, update.alias, update.aliased) == ("db.t", "t", False)
    assert update.assignments == (
        Assignment(("a",), expression("upper(b)")),
        Assignment(("c",), expression("3")),
    )
    delete = parse("DELETE FROM t")
    assert delete == Delete("t", "t")
    merge = parse(
        "MERGE INTO db.t AS x USING u y ON x.id = y.id WHEN MATCHED AND y.op = 'd' THEN"
        " DELETE WHEN MATCHED THEN UPDATE SET v = y.v WHEN NOT MATCHED THEN INSERT (id)"
        " VALUES (y.id)"
    )
    assert isinstance(merge, MergeInto)
    assert (merge.table, merge.alias, merge.source_alias) == ("db.t", "x", "y")
    assert merge.whens == (
        When(MergeAction.DELETE, expression("y.op = 'd'")),
        When(MergeAction.UPDATE, None, (Assignment(("v",), expression("y.v")),)),
        When(MergeAction.INSERT, None, (), ("id",), (expression("y.id"),)),
    )
    view = parse("CREATE OR REPLACE VIEW v (a) AS SELECT id FROM t")
    assert isinstance(view, CreateView)
    assert (view.name, view.columns, view.or_replace) == ("v", ("a",), True)
    assert isinstance(parse("explain select 1"), Explain)
    assert isinstance(parse("EXPLAIN\nDELETE FROM t"), Explain)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SHOW VIEWS", "SHOW VIEWS"),
        ("LOAD DATA INPATH 'x' INTO TABLE t", "LOAD DATA"),
        ("ALTER TABLE t TOUCH", "ALTER TABLE … TOUCH"),
        ("ALTER TABLE t PARTITION (a=1) SET LOCATION 'x'", "ALTER TABLE … SET LOCATION"),
        ("ALTER TABLE t COMPACT 'rebalance'", "ALTER TABLE … COMPACT"),
        ("GRANT SELECT ON t TO u", "GRANT"),
        ("VALUES (1)", "VALUES"),
        ("ANALYZE TABLE t COMPUTE STATISTICS", "ANALYZE TABLE"),
        ("FROM u INSERT INTO t SELECT id", "FROM"),
    ],
)
def test_other_statements_are_refused_by_name_with_what_is_supported(text: str, name: str) -> None:
    with pytest.raises(UnsupportedStatement) as error:
        parse(text)
    assert str(error.value).startswith(f"{name} is not supported; supported: SELECT, INSERT")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE EXTERNAL TABLE t (a int)", "CREATE TABLE with EXTERNAL"),
        ("CREATE TEMPORARY TABLE t (a int)", "CREATE TABLE with TEMPORARY"),
        ("CREATE TABLE t LIKE u", "CREATE TABLE with LIKE u"),
        ("CREATE TABLE t (a int NOT NULL)", "column 'a' of t with NOT NULL"),
        ("CREATE TABLE t (a int) CLUSTERED BY (a) SORTED BY (a) INTO 2 BUCKETS", "SORTED BY"),
        ("CREATE TABLE t (a int) STORED AS RCFILE", "STORED AS RCFILE"),
        ("UPDATE t SET a = (SELECT max(b) FROM u)", "subquery in UPDATE SET"),
        ("MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED BY SOURCE THEN DELETE", "BY SOURCE"),
        ("EXPLAIN SHOW TABLES", "EXPLAIN takes a SELECT"),
        ("SELECT TRANSFORM(a) USING 'rm' FROM t", "does more than read"),
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
        ("ALTER TABLE t DROP PARTITION (a > 3)", "neither column=value nor a column"),
        ("INSERT INTO t PARTITION (a, b=1) SELECT 1", "write fixed values first"),
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


@pytest.mark.parametrize(
    ("pattern", "name", "wanted"),
    [
        ("", "any", True),
        ("f*", "flights", True),
        ("F%", "flights", True),
        ("a|f*", "flights", True),
        ("f", "flights", False),
        ("x*", "flights", False),
        ("a.c", "abc", False),
    ],
)
def test_patterns_of_show(pattern: str, name: str, wanted: bool) -> None:
    assert matches(pattern, name) is wanted
