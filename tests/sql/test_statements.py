"""A text is parsed into a statement, or refused with an error that names it. No Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from inspect import Parameter, signature

import pytest

from acid_platform import InvalidDefinition, InvalidExpression, UnsupportedStatement
from acid_platform.compaction.states import CompactionKind
from acid_platform.engine.merge_clauses import MergeAction
from acid_platform.metastore.records import OwnerKind
from acid_platform.sql.column_lists import Compared, PartitionSpec
from acid_platform.sql.parse import parse, split
from acid_platform.sql.run_columns import COLUMNS
from acid_platform.sql.run_definitions import DEFINITIONS
from acid_platform.sql.run_operations import OPERATIONS
from acid_platform.sql.run_shows import SHOWS
from acid_platform.sql.statements import (
    Assignment,
    Command,
    Commands,
    CreateTable,
    CreateView,
    Delete,
    Insert,
    LoadData,
    MergeInto,
    MultiInsert,
    Truncate,
    Update,
    When,
)
from acid_platform.sql.text import Query, expression

X_SPEC = PartitionSpec({"a": "x)"})


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("SHOW DATABASES", "SHOW DATABASES", {}),
        ("show schemas like 'fl*';", "SHOW DATABASES", {"like": "fl*"}),
        ("SHOW TABLES", "SHOW TABLES", {}),
        (
            "-- all\nshow tables in Flights 'd*'",
            "SHOW TABLES",
            {"database": "flights", "like": "d*"},
        ),
        ("show partitions `db`.`T`", "SHOW PARTITIONS", {"table": "db.t"}),
        ("SHOW CREATE TABLE t", "SHOW CREATE TABLE", {"table": "t"}),
        ("show transactions", "SHOW TRANSACTIONS", {}),
        ("show /* who? */ locks", "SHOW LOCKS", {}),
        ("SHOW LOCKS db.t", "SHOW LOCKS", {"table": "db.t"}),
        ("Show Compactions ;", "SHOW COMPACTIONS", {}),
        ("show locks t partition (a='x)') extended", "SHOW LOCKS", {"table": "t", "spec": X_SPEC}),
        ("SHOW LOCKS EXTENDED", "SHOW LOCKS", {}),
        ("SHOW LOCKS SCHEMA d EXTENDED", "SHOW LOCKS", {"database": "d"}),
        ("show compactions compact_id = 7", "SHOW COMPACTIONS", {"version": 7}),
        ("show compactions type 'minor'", "SHOW COMPACTIONS", {"type_name": "minor"}),
        (
            "SHOW COMPACTIONS db.t PARTITION (a='x)') POOL 'p' TYPE 'MAJOR' STATUS 'failed'"
            ' ORDER BY cc_table DESC, "CC_ID" LIMIT 10',
            "SHOW COMPACTIONS",
            {
                "table": "db.t",
                "spec": X_SPEC,
                "pool": "p",
                "type_name": "MAJOR",
                "status": "failed",
                "order": "cc_table DESC, 'CC_ID'",
                "limit": "10",
            },
        ),
        (
            "SHOW COMPACTIONS SCHEMA d STATUS 'initiated'",
            "SHOW COMPACTIONS",
            {"database": "d", "status": "initiated"},
        ),
        ("SHOW VIEWS IN d 'a*|b'", "SHOW VIEWS", {"database": "d", "like": "a*|b"}),
        ("show columns from t in D", "SHOW COLUMNS", {"table": "t", "database": "d"}),
        ("SHOW PARTITIONS t PARTITION (a='x)')", "SHOW PARTITIONS", {"table": "t", "spec": X_SPEC}),
        ("show table extended like 't*'", "SHOW TABLE EXTENDED", {"like": "t*"}),
        ('SHOW TBLPROPERTIES t("comment")', "SHOW TBLPROPERTIES", {"table": "t", "key": "comment"}),
        ("SHOW FUNCTIONS LIKE 'date_*'", "SHOW FUNCTIONS", {"like": "date_*"}),
        (
            "desc function extended `Upper`",
            "DESCRIBE FUNCTION",
            {"function": "`Upper`", "extended": True},
        ),
        (
            "DESCRIBE SCHEMA EXTENDED d",
            "DESCRIBE DATABASE",
            {"database": "d", "extended": True},
        ),
        ("describe database", "DESCRIBE TABLE", {"table": "database"}),
        ("DESCRIBE EXTENDED t", "DESCRIBE FORMATTED", {"table": "t"}),
        (
            "DESC FORMATTED t PARTITION (a='x)')",
            "DESCRIBE FORMATTED",
            {"table": "t", "spec": X_SPEC},
        ),
        ("describe db.t `Id`", "DESCRIBE TABLE", {"table": "db.t", "field": "id"}),
        ("DESCRIBE t PARTITION (a='x)')", "DESCRIBE TABLE", {"table": "t", "spec": X_SPEC}),
        ("SET -v", "SET", {}),
        ("set hiveconf:hive.a-b = c", "SET", {"key": "hive.a-b", "value": "c"}),
        ("SET hivevar:day=2024-01-01", "SET", {"space": "hivevar"}),
        ("RESET", "RESET", {}),
        ("reset -d hive.a", "RESET", {"key": "hive.a"}),
        ("ANALYZE TABLE t COMPUTE STATISTICS", "ANALYZE TABLE", {"table": "t"}),
        (
            "analyze table db.t partition (a='x)') compute statistics for columns b, `c` noscan",
            "ANALYZE TABLE",
            {"table": "db.t", "spec": X_SPEC, "fields": "b, `c`"},
        ),
        ("SHOW TAGS db.t", "SHOW TAGS", {"table": "db.t"}),
        ("DESC db.t", "DESCRIBE TABLE", {"table": "db.t"}),
        ("describe table t", "DESCRIBE TABLE", {"table": "t"}),
        ("describe formatted t", "DESCRIBE FORMATTED", {"table": "t"}),
        ("DESC HISTORY db.t", "DESCRIBE HISTORY", {"table": "db.t"}),
        ("describe history", "DESCRIBE TABLE", {"table": "history"}),
        ("use Test_DB", "USE", {"database": "test_db"}),
        ("SET hive.a.b = c d", "SET", {"key": "hive.a.b", "value": "c d"}),
        ("set hive.a", "SET", {"key": "hive.a"}),
        ("SET", "SET", {}),
        ("START TRANSACTION", "START TRANSACTION", {}),
        ("commit", "COMMIT", {}),
        ("ROLLBACK WORK", "ROLLBACK", {}),
        ("ABORT TRANSACTIONS 1, 2 3", "ABORT TRANSACTIONS", {"ids": (1, 2, 3)}),
        ("abort compactions 7", "ABORT COMPACTIONS", {"ids": (7,)}),
        (
            "CREATE SCHEMA IF NOT EXISTS d",
            "CREATE DATABASE",
            {"database": "d", "if_not_exists": True},
        ),
        (
            "CREATE DATABASE d COMMENT 'it''s \\'d\\'' WITH DBPROPERTIES ('a'='b')",
            "CREATE DATABASE",
            {"database": "d", "comment": "it's 'd'", "properties": {"a": "b"}},
        ),
        (
            "ALTER SCHEMA d SET DBPROPERTIES ('a'='b', 'c'='d')",
            "ALTER DATABASE SET DBPROPERTIES",
            {"database": "d", "properties": {"a": "b", "c": "d"}},
        ),
        (
            "alter database d set owner role `Admins`",
            "ALTER DATABASE SET OWNER",
            {"database": "d", "owner_kind": OwnerKind.ROLE, "owner": "Admins"},
        ),
        ("DESC DATABASE d", "DESCRIBE DATABASE", {"database": "d"}),
        ("DESCRIBE EXTENDED t", "DESCRIBE FORMATTED", {"table": "t"}),
        (
            "DROP DATABASE IF EXISTS d CASCADE",
            "DROP DATABASE",
            {"database": "d", "if_exists": True, "cascade": True},
        ),
        ("DROP TABLE db.t PURGE", "DROP TABLE", {"table": "db.t"}),
        ("drop view if exists v", "DROP VIEW", {"table": "v", "if_exists": True}),
    ],
)
def test_commands(text: str, name: str, arguments: dict[str, object]) -> None:
    command = parse(text)
    assert isinstance(command, Command)
    assert (command.name, command.arguments) == (name, arguments)


@pytest.mark.parametrize(
    ("text", "action", "arguments"),
    [
        ("ROLLBACK TO 3", "ROLLBACK", {"version": 3}),
        ("rollback to version 3", "ROLLBACK", {"version": 3}),
        ("rollback to tag `A b`", "ROLLBACK", {"label": "A b"}),
        (
            "rollback to timestamp '1970-01-01 00:00:01.5'",
            "ROLLBACK",
            {"time": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)},
        ),
        ("CREATE TAG x", "CREATE TAG", {"tag": "x"}),
        (
            "create tag 'x y' for system_version as of 7 retain 2 days",
            "CREATE TAG",
            {"tag": "x y", "version": 7, "days": 2},
        ),
        (
            "create tag x as of timestamp '1970-01-01 00:00:01'",
            "CREATE TAG",
            {"tag": "x", "time": datetime(1970, 1, 1, 0, 0, 1, 0, UTC)},
        ),
        ("create tag x as of tag y", "CREATE TAG", {"tag": "x", "label": "y"}),
        ("DROP TAG IF EXISTS `X`", "DROP TAG", {"tag": "X", "if_exists": True}),
        (
            "ADD COLUMNS (a int, b struct<x:int>)",
            "ADD COLUMNS",
            {"columns": "a int, b struct<x:int>"},
        ),
        (
            "CHANGE COLUMN a b decimal(7,2) AFTER c",
            "CHANGE",
            {"old": "a", "column": "b decimal(7,2)", "after": "c"},
        ),
        (
            "change a a bigint first",
            "CHANGE",
            {"old": "a", "column": "a bigint", "after": ""},
        ),
        ("ADD COLUMN a int", "ADD COLUMNS", {"column": "a int"}),
        ("ADD COLUMN (a decimal(7,2))", "ADD COLUMNS", {"listed": "a decimal(7,2)"}),
        ("RENAME COLUMN a TO `B c`", "RENAME COLUMN", {"old": "a", "new": "b c"}),
        ("drop column A", "DROP COLUMN", {"old": "a"}),
        ("DROP COLUMNS (a, `b c`)", "DROP COLUMN", {"names": ("a", "b c")}),
        (
            "REPLACE COLUMNS (a int, b string COMMENT 'x') CASCADE",
            "REPLACE COLUMNS",
            {"columns": "a int, b string COMMENT 'x'"},
        ),
        ("ALTER COLUMN a TYPE bigint", "ALTER COLUMN", {"old": "a", "type": "bigint"}),
        ("ALTER COLUMN a COMMENT 'x'", "ALTER COLUMN", {"old": "a", "comment": "x"}),
        ("alter a first", "ALTER COLUMN", {"old": "a", "after": ""}),
        ("ALTER COLUMN a AFTER b", "ALTER COLUMN", {"old": "a", "after": "b"}),
        ("RENAME TO db.u", "RENAME", {"to": "db.u"}),
        ("CONVERT TO ACID", "CONVERT TO ACID", {}),
        (
            "ADD IF NOT EXISTS PARTITION (a=1, b='x,)') PARTITION (a=-2, b=NULL)",
            "ADD PARTITION",
            {
                "specs": (
                    PartitionSpec({"a": "1", "b": "x,)"}),
                    PartitionSpec({"a": "-2", "b": None}),
                ),
                "if_not_exists": True,
            },
        ),
        (
            "DROP PARTITION (d=DATE '2013-01-01'), PARTITION (d='__HIVE_DEFAULT_PARTITION__')",
            "DROP PARTITION",
            {"compared_specs": (PartitionSpec({"d": "2013-01-01"}), PartitionSpec({"d": None}))},
        ),
        (
            "DROP IF EXISTS PARTITION (d<'2024-01-01', h >= -3, e=1), PARTITION (d != 'x') PURGE",
            "DROP PARTITION",
            {
                "if_exists": True,
                "compared_specs": (
                    PartitionSpec(
                        {"e": "1"},
                        compared=(Compared("d", "<", "2024-01-01"), Compared("h", ">=", "-3")),
                    ),
                    PartitionSpec(compared=(Compared("d", "<>", "x"),)),
                ),
            },
        ),
        (
            "PARTITION (d='a', h=1) RENAME TO PARTITION (d='a', h=2)",
            "RENAME PARTITION",
            {
                "spec": PartitionSpec({"d": "a", "h": "1"}),
                "new_spec": PartitionSpec({"d": "a", "h": "2"}),
            },
        ),
        (
            "PARTITION (d, h=1) COMPACT 'major'",
            "COMPACT",
            {"spec": PartitionSpec({"h": "1"}, ("d",)), "kind": CompactionKind.MAJOR},
        ),
        (
            "SET TBLPROPERTIES ('a'='b;c', 'd'='e=f')",
            "SET TBLPROPERTIES",
            {"properties": {"a": "b;c", "d": "e=f"}},
        ),
        ("COMPACT 'MAJOR'", "COMPACT", {"kind": CompactionKind.MAJOR}),
        (
            "COMPACT 'major' AND WAIT POOL 'p' WITH OVERWRITE TBLPROPERTIES ('a'='b')",
            "COMPACT",
            {
                "kind": CompactionKind.MAJOR,
                "wait": True,
                "pool": "p",
                "properties": {"a": "b"},
            },
        ),
        ("CONCATENATE", "CONCATENATE", {}),
        ("partition (a='x)') concatenate", "CONCATENATE", {"spec": X_SPEC}),
        ("UPDATE STATISTICS SET ('numRows'='1')", "UPDATE STATISTICS", {}),
        (
            "update statistics for column b set ('numDVs'='1')",
            "UPDATE STATISTICS",
            {"fields": "b"},
        ),
        (
            "UNSET TBLPROPERTIES IF EXISTS ('a', 'b')",
            "UNSET TBLPROPERTIES",
            {"keys": ("a", "b"), "if_exists": True},
        ),
        (
            "partition (m=3) compact 'minor' and wait",
            "COMPACT",
            {
                "kind": CompactionKind.MINOR,
                "spec": PartitionSpec({"m": "3"}),
                "wait": True,
            },
        ),
    ],
)
def test_commands_of_a_table(text: str, action: str, arguments: dict[str, object]) -> None:
    command = parse(f"ALTER TABLE db.T {text}")
    assert isinstance(command, Command)
    assert command.name == f"ALTER TABLE {action}"
    assert command.arguments == {"table": "db.t", **arguments}


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


def test_truncate() -> None:
    assert parse("TRUNCATE TABLE t PARTITION (month = 3)") == Truncate(
        "t", PartitionSpec({"month": "3"})
    )
    assert parse("truncate db.T") == Truncate("db.t")


@pytest.mark.parametrize(
    ("text", "declared"),
    [
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
        ("CREATE TRANSACTIONAL TABLE t (a int)", CreateTable("t", "`a` INT")),
        (
            "CREATE TABLE IF NOT EXISTS t LIKE db.U LOCATION '/x' TBLPROPERTIES ('a'='b')",
            CreateTable(
                "t", "", properties={"a": "b"}, location="/x", if_not_exists=True, like="db.u"
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
        (
            "CREATE TABLE t (a map<string,array<int>> COMMENT 'a, b',"
            " comment string comment 'it\\'s', s struct<x:int>) COMMENT 'all'"
            "\nPARTITIONED\nBY (d date COMMENT 'day', e int)",
            CreateTable(
                "t",
                "`a` MAP<STRING, ARRAY<INT>>, `comment` STRING, `s` STRUCT<x: INT>",
                ("`d` DATE", "`e` INT"),
                properties={"comment": "all"},
                comments={"a": "a, b", "comment": "it's", "d": "day"},
            ),
        ),
    ],
)
def test_declarations_of_tables(text: str, declared: CreateTable) -> None:
    command = parse(text)
    assert isinstance(command, Command)
    assert (command.name, command.arguments) == ("CREATE TABLE", {"declared": declared})
    assert command.alone


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
    merge = parse(
        "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY"
        " TARGET THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.a = 1 THEN UPDATE SET s.b = 2"
        " WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )
    assert isinstance(merge, MergeInto)
    assert merge.whens == (
        When(MergeAction.UPDATE, assignments=None),
        When(MergeAction.INSERT, values=None),
        When(
            MergeAction.UPDATE,
            expression("t.a = 1"),
            (Assignment(("s", "b"), expression("2")),),
            by_source=True,
        ),
        When(MergeAction.DELETE, by_source=True),
    )
    create = parse("CREATE OR REPLACE VIEW v (a) AS SELECT id FROM t")
    assert isinstance(create, Command) and create.alone
    view = create.arguments["declared"]
    assert isinstance(view, CreateView)
    assert (view.name, view.columns, view.or_replace) == ("v", ("a",), True)
    for text, inner in (("explain select 1", Query), ("EXPLAIN\nDELETE FROM t", Delete)):
        explain = parse(text)
        assert isinstance(explain, Command) and explain.name == "EXPLAIN"
        assert isinstance(explain.arguments["statement"], inner)


def test_files_whose_rows_are_inserted() -> None:
    text = r"LOAD DATA LOCAL INPATH '/in/it\'s' {}INTO TABLE db.t PARTITION (ds='a')"
    spec = PartitionSpec({"ds": "a"})
    assert parse(text.format("")) == LoadData("db.t", "/in/it's", spec)
    assert parse(text.format("OVERWRITE ")) == LoadData("db.t", "/in/it's", spec, overwrite=True)


def test_a_merge_whose_source_with_names() -> None:
    text = "MERGE INTO db.t x USING s ON x.a = s.a WHEN NOT MATCHED THEN INSERT (x.a) VALUES (s.a)"
    merged = parse(f"WITH s AS (SELECT 1 AS a) {text}")
    assert isinstance(merged, MergeInto)
    assert " ".join(merged.source.text.split()) == "WITH s AS (SELECT 1 AS a) SELECT * FROM s"
    assert [when.columns for when in merged.whens] == [("a",)]
    for name in ("merge", "delete", "update"):  # no words of SQL, but names
        assert isinstance(parse(f"WITH {name} AS (SELECT 1 AS a) SELECT a FROM {name}"), Query)


def test_inserts_that_share_their_rows() -> None:
    multi = parse(
        "WITH x AS (SELECT 1 AS a) FROM x y\nINSERT INTO t SELECT y.a WHERE a IS DISTINCT FROM 2"
        " INSERT OVERWRITE TABLE db.u PARTITION (p='b') (a) SELECT a, CASE WHEN a THEN 1 END AS c"
    )
    assert isinstance(multi, MultiInsert)
    assert " ".join(multi.rows.text.split()) == "WITH x AS (SELECT 1 AS a) SELECT * FROM x y"
    assert [(one.table, one.overwrite, one.columns) for one in multi.inserts] == [
        ("t", False, ()),
        ("db.u", True, ("a",)),
    ]
    sources = [one.source for one in multi.inserts]
    assert [source.text for source in sources if isinstance(source, Query)] == [
        "WITH x AS (SELECT 1 AS a)\nFROM x y\nSELECT y.a WHERE a IS DISTINCT FROM 2",
        "WITH x AS (SELECT 1 AS a)\nFROM x y\nSELECT a, CASE WHEN a THEN 1 END AS c",
    ]
    assert isinstance(parse("FROM u INSERT INTO t SELECT id"), Insert)


def test_the_number_of_a_group_is_that_of_spark() -> None:
    text = "SELECT g, GROUPING__ID FROM t GROUP BY g WITH ROLLUP HAVING grouping__id < 1"
    grouped = parse(f"{text} ORDER BY GROUPING__ID, g")
    assert isinstance(grouped, Query)
    assert grouped.text == (
        "SELECT g, grouping_id() AS grouping__id FROM t GROUP BY g WITH ROLLUP"
        " HAVING grouping_id() < 1 ORDER BY grouping_id(), g"
    )


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
        ("INSERT INTO t BY NAME SELECT 1 AS b", "BY NAME is not supported; name the columns"),
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
