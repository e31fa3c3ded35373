"""Branches (P80): what they show, what can be merged, and what others are kept from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from acid_platform import Warehouse
from acid_platform.cli.main import main
from acid_platform.errors import (
    AcidError,
    BranchInUse,
    DeclarationChanged,
    InvalidDefinition,
    NoSuchBranch,
    NoSuchTable,
    NotErased,
    SnapshotExpired,
    TableExists,
    UnknownColumn,
    WriteConflict,
)
from acid_platform.layout.types import Constraint, ConstraintKind
from acid_platform.services import worker
from tests.branches.histories import History
from tests.conftest import quick_then_slow
from tests.metastore.world import DELETE, INSERT, UPDATE, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def opened(place: Path, branch: str = "") -> Warehouse:
    return Warehouse.open(place, engine="local", branch=branch)


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Warehouse]:
    """A warehouse with the rows 1, 2 and 3 in db.t."""
    warehouse = opened(tmp_path)
    warehouse.create_table("db.t", "id int, v string")
    warehouse.sql("INSERT INTO db.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    yield warehouse
    warehouse.metastore.stop()
    warehouse.close()


def rows(warehouse: Warehouse, table: str = "db.t") -> list[tuple[object, ...]]:
    answer = warehouse.sql(f"SELECT * FROM {table} ORDER BY 1").to_arrow()
    return [tuple(row.values()) for row in answer.to_pylist()]


@pytest.mark.more
@pytest.mark.parametrize(
    "seed",
    [
        *quick_then_slow(range(24), 3),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(24, 200)),
    ],
)
def test_P80_random_histories_show_what_the_model_shows(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    try:
        history.run(25)
    finally:
        history.parent.warehouse.metastore.stop()


@pytest.mark.more
def test_P80_a_branch_is_compared_with_its_start(parent: Warehouse, tmp_path: Path) -> None:
    parent.branches.create("dev")
    with opened(tmp_path, "dev") as branch:
        branch.sql("UPDATE db.t SET v = 'x' WHERE id = 1; DELETE FROM db.t WHERE id = 2")
        parent.sql("INSERT INTO db.t VALUES (4, 'd')")
        difference = branch.branches.diff("db.t")
    assert (difference.added, difference.removed) == (1, 2)
    with pytest.raises(InvalidDefinition, match="open the warehouse on a branch"):
        parent.branches.diff("db.t")


@pytest.mark.more
def test_P80_two_branches_are_compared_by_key(parent: Warehouse, tmp_path: Path) -> None:
    parent.branches.create("one")
    parent.branches.create("two")
    with opened(tmp_path, "one") as one, opened(tmp_path, "two") as two:
        one.sql("UPDATE db.t SET v = 'x' WHERE id = 1; DELETE FROM db.t WHERE id = 2")
        one.sql("INSERT INTO db.t VALUES (NULL, 'n'), (8, 'a'), (8, 'a'), (9, 'p'), (9, 'q')")
        two.sql("UPDATE db.t SET v = NULL WHERE id = 1; INSERT INTO db.t VALUES (NULL, 'm')")
        two.sql("INSERT INTO db.t VALUES (8, 'b'), (9, 'r'); UPDATE db.t SET v = 'b' WHERE id = 3")
        by_key = one.branches.compare(two, "db.t", ["ID"])
        by_value = one.branches.compare(two, "db.t", limit=0)
        assert one.branches.compare(one, "db.t").differs is False
        with pytest.raises(UnknownColumn, match="w can't be of the key"):
            one.branches.compare(two, "db.t", ["w"])
        with pytest.raises(NoSuchTable):
            one.branches.compare(two, "db.none")
    # A key of which a side shows several differing rows pairs none.
    assert (by_key.only_here, by_key.only_there, by_key.changed) == (4, 3, 3)
    assert by_key.columns == {"v": 3}
    shown = [tuple(row.values()) for row in by_key.rows]
    assert ("there", 1, None, 1, "v") in shown and ("here", 1, "x", 1, "v") in shown
    assert ("there", None, "m", 1, "v") in shown and ("here", None, "n", 1, "v") in shown
    assert ("there", 2, "b", 1, "") in shown and ("here", 8, "a", 2, "") in shown
    assert len(shown) == 2 * 3 + 1 + 1 + 2 + 1 + 1
    assert (by_value.only_here, by_value.only_there, by_value.changed) == (7, 6, 0)
    assert by_value.rows == ()


@pytest.mark.more
def test_P80_a_branch_is_compared_with_what_everybody_sees(
    parent: Warehouse, tmp_path: Path
) -> None:
    parent.create_table(
        "db.keyed",
        "id int, v string, w string",
        constraints=[Constraint("", ConstraintKind.PRIMARY_KEY, ("id",), enabled=False)],
        properties={"acid.format": "parquet"},
    )
    parent.sql("INSERT INTO db.keyed VALUES (1, 'a', 'a'), (2, 'b', 'b')")
    for name in ("gone", "other", "renamed", "same"):
        parent.sql(f"CREATE TABLE db.{name} AS SELECT * FROM db.t")
    parent.branches.create("dev")
    with opened(tmp_path, "dev") as branch:
        branch.sql("UPDATE db.keyed SET w = 'x' WHERE id = 1")
        branch.sql("CREATE TABLE db.made AS SELECT * FROM db.t")
        parent.sql("DROP TABLE db.gone")
        parent.sql("DROP TABLE db.other; CREATE TABLE db.other (z string)")
        parent.sql("INSERT INTO db.other VALUES ('z')")
        parent.sql("ALTER TABLE db.renamed RENAME TO db.called")
        parent.sql("INSERT INTO db.keyed VALUES (3, 'c', 'c')")
        found = {each.table: each for each in branch.branches.compare_all(parent)}
        keyed = branch.branches.compare(parent, "db.keyed")
    counts = {name: (each.only_here, each.only_there) for name, each in found.items()}
    assert counts == {
        "db.called": (0, 3),
        "db.gone": (3, 0),
        "db.keyed": (0, 1),
        "db.made": (3, 0),
        "db.other": (3, 1),
        "db.renamed": (3, 0),
    }
    missing = {name: each.missing for name, each in found.items() if each.missing}
    assert missing == {"db.called": "here", "db.gone": "there", "db.renamed": "there"}
    assert (found["db.other"].columns_here, found["db.other"].columns_there) == (
        ("id", "v"),
        ("z",),
    )
    assert str(keyed) == "db.keyed: 0 rows only here, 1 only there, 1 changed (w in 1)"
    assert [(row["side"], row["id"], row["differs"]) for row in keyed.rows] == [
        ("there", 1, "w"),
        ("here", 1, "w"),
        ("there", 3, ""),
    ]


@pytest.mark.more
def test_P80_a_name_that_is_another_column_is_not_compared(
    parent: Warehouse, tmp_path: Path
) -> None:
    parent.create_table("db.c", "id int, v string, w string", properties={"acid.format": "parquet"})
    parent.sql("INSERT INTO db.c VALUES (1, 'a', 'b')")
    parent.branches.create("dev")
    parent.sql("ALTER TABLE db.c DROP COLUMN v")
    parent.sql("ALTER TABLE db.c RENAME COLUMN w TO v")
    with opened(tmp_path, "dev") as branch:
        found = branch.branches.compare(parent, "db.c")
    assert (found.only_here, found.only_there, found.changed) == (0, 0, 0)
    assert (found.columns_here, found.columns_there) == (("v", "w"), ("v",))


@pytest.mark.more
def test_P80_the_command_compares_branches(parent: Warehouse, tmp_path: Path) -> None:
    parent.branches.create("dev")
    parent.branches.create("two")
    with opened(tmp_path, "dev") as branch:
        branch.sql("UPDATE db.t SET v = 'x' WHERE id = 1")

    def acid(*arguments: str, code: int = 0) -> str:
        told = ["--warehouse", str(tmp_path), "branch", "diff", "dev", *arguments]
        done = CliRunner().invoke(main, told)
        assert done.exit_code == code, (arguments, done.output)
        return done.output

    with_two = acid("db.t", "--with", "two", "--key", "id", "--limit", "1")
    assert with_two.startswith("db.t: 0 rows only here, 0 only there, 1 changed (v in 1)\n")
    (row,) = json.loads(acid("--now", "--format", "json"))
    assert (row["table"], row["only_here"], row["only_there"]) == ("db.t", 1, 1)
    assert "name --with or --now" in acid("--now", "--with", "two", code=2)
    assert "--key needs TABLE" in acid("db.t", "--key", "id", code=2)
    parent.branches.merge("dev")
    parent.branches.create("dev")
    assert acid("--now") == "dev shows the same as what everybody sees\n"


def test_P80_what_a_branch_does_not_do(parent: Warehouse, tmp_path: Path) -> None:
    parent.branches.create("dev")
    refused = """DROP TABLE db.t
ALTER TABLE db.t ADD COLUMNS (w int)
ALTER TABLE db.t RENAME TO db.u
ALTER TABLE db.t CREATE TAG x
CREATE VIEW db.w AS SELECT * FROM db.t
SELECT * FROM db.t VERSION AS OF 1
CREATE OR REPLACE TABLE db.t AS SELECT 1 AS id
DROP DATABASE db"""
    with opened(tmp_path, "dev") as branch:
        for statement in refused.splitlines():
            with pytest.raises(InvalidDefinition, match="branch"):
                branch.sql(statement)
        refusal = pytest.raises(InvalidDefinition, match="a transaction is serializable")
        with refusal, branch.transaction(isolation="serializable") as txn:
            txn.sql("SELECT count(*) FROM db.t")
            txn.sql("INSERT INTO db.t VALUES (4, 'd')")
        with pytest.raises(InvalidDefinition, match="'request compaction' needs the warehouse"):
            branch.table("db.t").compact("major")
        with pytest.raises(InvalidDefinition, match="'create branch' needs the warehouse"):
            branch.branches.create("of_dev")  # it would begin with the parent's rows
        with pytest.raises(InvalidDefinition, match="'take compaction' needs the warehouse"):
            worker.work_once(branch)
        assert rows(branch) == rows(parent)
    for name in ("dev", "", "a b", "-x", "é", "x" * 101):
        with pytest.raises(InvalidDefinition):
            parent.branches.create(name)
    with pytest.raises(InvalidDefinition, match="in the past"):
        parent.branches.create("old", timedelta(seconds=-1))
    with pytest.raises(NoSuchBranch, match="did you mean 'dev'"):
        opened(tmp_path, "dve")
    for end in (parent.branches.merge, parent.branches.drop):
        with pytest.raises(NoSuchBranch, match="did you mean 'dev'"):
            end("dve")


@pytest.mark.more
@pytest.mark.parametrize(
    ("declared", "error"),
    [
        ("ALTER TABLE db.t RENAME TO db.u", NoSuchTable),
        ("DROP TABLE db.t", DeclarationChanged),
        ("DROP TABLE db.t; CREATE TABLE db.t (id int, v string)", DeclarationChanged),
        ("ALTER TABLE db.t ADD COLUMNS (w int)", None),
    ],
)
def test_P80_a_table_that_others_declared_anew_meanwhile(
    parent: Warehouse, tmp_path: Path, declared: str, error: type[AcidError] | None
) -> None:
    """Its branch goes on seeing the table of its start; only columns at the end do no harm."""
    parent.branches.create("dev")
    with opened(tmp_path, "dev") as branch:
        branch.sql("UPDATE db.t SET v = 'x' WHERE id = 1")
        parent.sql(declared)
        assert rows(branch) == [(1, "x"), (2, "b"), (3, "c")]
    if error is None:
        parent.branches.merge("dev")
        assert rows(parent) == [(1, "x", None), (2, "b", None), (3, "c", None)]
        return
    with pytest.raises(error):
        parent.branches.merge("dev")
    assert parent.branches.require("dev").refused
    if declared == "DROP TABLE db.t":
        with pytest.raises(InvalidDefinition, match="branch dev has written there before the drop"):
            parent.undrop("db.t")
    parent.branches.drop("dev")
    if declared == "DROP TABLE db.t":
        parent.undrop("db.t")
        assert len(rows(parent)) == 3


@pytest.mark.more
@pytest.mark.parametrize("stored", ["orc", "parquet"])
def test_P80_columns_renamed_meanwhile(parent: Warehouse, tmp_path: Path, stored: str) -> None:
    """What writes all files again waits for the branch that has written some; and a branch does not
    write a table whose columns have other names now."""
    parent.create_table("db.c", "id int, v string", properties={"acid.format": stored})
    parent.sql("INSERT INTO db.c VALUES (1, 'a')")
    parent.branches.create("early")
    parent.branches.create("late")
    rename = "ALTER TABLE db.c RENAME COLUMN v TO w"
    with opened(tmp_path, "early") as branch:
        branch.sql("UPDATE db.c SET v = 'x'")
    with pytest.raises(InvalidDefinition, match="branch early has written rows into"):
        parent.sql(rename)
    parent.branches.merge("early")
    parent.sql(rename)
    with opened(tmp_path, "late") as branch:
        assert branch.sql("SELECT v FROM db.c").to_arrow().to_pylist() == [{"v": "a"}]
        with pytest.raises(DeclarationChanged):
            branch.sql("UPDATE db.c SET v = 'y'")
    assert parent.sql("SELECT w FROM db.c").to_arrow().to_pylist() == [{"w": "x"}]


@pytest.mark.more
def test_P80_a_table_made_on_a_branch_is_empty_elsewhere(parent: Warehouse, tmp_path: Path) -> None:
    parent.branches.create("dev")
    with opened(tmp_path, "dev") as branch:
        branch.sql("CREATE TABLE db.n PARTITIONED BY (v) AS SELECT * FROM db.t")
        branch.sql("INSERT OVERWRITE TABLE db.n PARTITION (v = 'a') VALUES (7)")
        assert (len(rows(branch, "db.n")), rows(parent, "db.n")) == (3, [])
        assert branch.table("db.n").partitions() == ["v=a", "v=b", "v=c"]
        assert parent.table("db.n").partitions() == []
    parent.branches.merge("dev")
    assert rows(parent, "db.n") == [(2, "b"), (3, "c"), (7, "a")]


@pytest.mark.more
def test_P80_a_branch_lists_what_it_shows(parent: Warehouse, tmp_path: Path) -> None:
    """Whatever others have declared since; and what is known of the present alone is refused."""
    parent.sql("CREATE TABLE db.gone (id int); CREATE TABLE db.old (id int)")
    parent.sql("CREATE VIEW db.seen AS SELECT id FROM db.t; CREATE DATABASE empty")
    parent.create_table("other.x", "id int")
    parent.branches.create("dev")
    parent.sql("DROP TABLE db.gone; ALTER TABLE db.old RENAME TO db.fresh; DROP VIEW db.seen")
    parent.sql("DROP TABLE other.x; DROP DATABASE other; ALTER TABLE db.t ADD COLUMNS (w int)")
    parent.sql("CREATE VIEW db.later AS SELECT 1 AS a; CREATE TABLE db.new (id int)")

    def told(branch: Warehouse, statement: str) -> list[object]:
        return [next(iter(row.values())) for row in branch.sql(statement).to_arrow().to_pylist()]

    with opened(tmp_path, "dev") as branch:
        names = ["gone", "new", "old", "seen", "t"]
        assert told(branch, "SHOW TABLES IN db") == names
        assert branch.tables() == ["db.gone", "db.new", "db.old", "db.t", "other.x"]
        assert told(branch, "SHOW VIEWS IN db") == ["seen"]
        assert told(branch, "SHOW TABLES IN other") == ["x"]
        assert "other" in told(branch, "SHOW DATABASES")
        assert told(branch, "SHOW COLUMNS IN db.t") == ["id", "v"]
        schema = "FROM information_schema.tables WHERE table_schema = 'db'"
        assert sorted(map(str, told(branch, f"SELECT table_name {schema}"))) == names
        assert told(branch, "SELECT count(*) FROM db.seen") == [3]
        for statement in ("SHOW TAGS db.t", "SHOW TABLES DROPPED", "SHOW TABLE EXTENDED IN db"):
            with pytest.raises(InvalidDefinition, match="needs the warehouse without a branch"):
                branch.sql(statement)
        for name in ("db.gone", "db.old", "db.new"):
            with pytest.raises(TableExists):
                branch.sql(f"CREATE TABLE {name} (n int)")
        branch.sql("CREATE TABLE IF NOT EXISTS db.gone (n int)")
    assert "db.gone" not in parent.tables()


@pytest.mark.more
def test_P80_a_branch_refuses_declarations_before_it_waits(
    parent: Warehouse, tmp_path: Path
) -> None:
    parent.create_table("db.p", "id int", partitioned_by=["p int"])
    parent.sql("INSERT INTO db.p VALUES (1, 1)")
    parent.branches.create("dev")
    refused = """DROP TABLE db.t
ALTER TABLE db.t RENAME COLUMN v TO w
ALTER TABLE db.t SET FILEFORMAT PARQUET
CREATE OR REPLACE TABLE db.t AS SELECT 1 AS id
ALTER TABLE db.p DROP PARTITION (p = 1)
ALTER TABLE db.p PARTITION (p = 1) RENAME TO PARTITION (p = 2)"""
    with opened(tmp_path, "dev") as branch:
        with parent.transaction() as txn:
            txn.sql("UPDATE db.t SET v = 'x'; UPDATE db.p SET id = 2")
            for statement in refused.splitlines():
                with pytest.raises(InvalidDefinition, match="on branch dev"):
                    branch.sql(statement)
        assert branch.sql("SELECT p FROM db.p").to_arrow().to_pylist() == [{"p": 1}]


@pytest.mark.more
def test_P80_a_table_that_could_not_be_filled_on_a_branch_is_gone(
    parent: Warehouse, tmp_path: Path
) -> None:
    parent.branches.create("dev")
    with opened(tmp_path, "dev") as branch:
        with pytest.raises(AcidError, match="no"):
            branch.sql("CREATE TABLE db.n AS SELECT CAST(raise_error('no') AS int) AS n FROM db.t")
        assert parent.tables() == branch.tables() == ["db.t"]
        branch.sql("CREATE TABLE db.n AS SELECT id FROM db.t")
        parent.metastore.drop("db.n", unwritten=True)  # a branch has written it
    assert parent.tables() == ["db.n", "db.t"]


def test_P80_one_key_brought_on_both_sides_is_refused(parent: Warehouse, tmp_path: Path) -> None:
    """As of two transactions that look for a key and bring it (P51)."""
    merge = (
        "MERGE INTO db.t USING (SELECT 9 AS id, 'n' AS v) s ON t.id = s.id"
        " WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)"
    )
    parent.branches.create("one")
    parent.branches.create("two")
    for name in ("one", "two"):
        with opened(tmp_path, name) as branch:
            branch.sql(merge)
    parent.branches.merge("one")
    with pytest.raises(WriteConflict, match="branch two can't be merged"):
        parent.branches.merge("two")
    assert rows(parent)[-1] == (9, "n")


@pytest.mark.parametrize("stored", ["orc", pytest.param("parquet", marks=pytest.mark.more)])
def test_P80_a_refused_merge_names_the_rows(parent: Warehouse, tmp_path: Path, stored: str) -> None:
    """By their values when the branch was made, also where they are now in other files."""
    parent.sql(
        "CREATE TABLE db.k (v string, id int, PRIMARY KEY (id) NOT ENFORCED) PARTITIONED BY (p int)"
        f" TBLPROPERTIES ('acid.format' = '{stored}')"
    )
    parent.sql("INSERT INTO db.k VALUES ('a', 1, 1), ('b', 2, 1), ('c', 3, 2), ('d', 4, 2)")
    parent.branches.create("dev")
    with opened(tmp_path, "dev") as branch:
        branch.sql("UPDATE db.t SET v = 'x' WHERE id > 1")
        branch.sql("UPDATE db.k SET v = 'x' WHERE id < 4")
        branch.sql("DELETE FROM db.k WHERE id < 3")
    parent.sql("UPDATE db.t SET v = 'y' WHERE id < 3; DELETE FROM db.k WHERE id = 2 OR id = 4")
    parent.sql("UPDATE db.k SET v = 'y' WHERE id = 1")
    parent.table("db.k").compact("major", partition="p=1")
    worker.work_once(parent)
    with pytest.raises(WriteConflict) as refused:
        parent.branches.merge("dev")
    assert str(refused.value) == (
        "branch dev can't be merged, since both sides have changed db.t: (id = 2, v = 'b'); db.k"
        " p=1: (id = 1), (id = 2) (as it was when the branch was made); nothing was changed: make"
        " another branch, and do its work again there"
    )


def test_P80_transactions_on_one_branch_conflict(parent: Warehouse, tmp_path: Path) -> None:
    parent.branches.create("dev")
    with opened(tmp_path, "dev") as branch, opened(tmp_path, "dev") as other:
        with pytest.raises(WriteConflict), branch.transaction() as txn:
            txn.sql("UPDATE db.t SET v = 'x' WHERE id = 1")
            other.sql("UPDATE db.t SET v = 'y' WHERE id = 1")
        with branch.transaction() as txn:
            txn.sql("UPDATE db.t SET v = 'z' WHERE id = 2")
            other.sql("UPDATE db.t SET v = 'y' WHERE id = 3")
            assert [text for _, text in rows(other)] == ["y", "b", "y"]
            with pytest.raises(BranchInUse, match="still runs on branch dev"):
                parent.branches.merge("dev")
    parent.branches.merge("dev")
    assert [text for _, text in rows(parent)] == ["y", "z", "y"]


@pytest.mark.more
def test_P80_an_erasure_names_the_branch_that_has_the_rows(
    parent: Warehouse, tmp_path: Path
) -> None:
    parent.branches.create("dev")
    with opened(tmp_path, "dev") as branch:
        branch.sql("INSERT INTO db.t VALUES (1, 'again')")
        with pytest.raises(InvalidDefinition, match="an erasure is not done on branch dev"):
            branch.table("db.t").erase("id = 1")
    with pytest.raises(NotErased, match="written on branch dev") as refused:
        parent.table("db.t").erase("id = 1")
    assert "are open: 2, of branch dev" in str(refused.value)
    parent.branches.drop("dev")
    assert parent.table("db.t").erase("id = 1").erased


@pytest.mark.more
def test_P80_an_erasure_names_the_branch_that_only_reads_the_rows(parent: Warehouse) -> None:
    parent.branches.create("dev")
    with pytest.raises(NotErased, match="held by branch dev, transaction 2 of") as refused:
        parent.table("db.t").erase("id = 1")
    assert "erase again when that has been merged or dropped" in str(refused.value)
    parent.branches.drop("dev")
    assert parent.table("db.t").erase("id = 1").erased


@pytest.mark.more
def test_P80_the_history_of_a_branch_has_its_own_commits(parent: Warehouse, tmp_path: Path) -> None:
    """And what it started from, but nothing that others have done since, until it is merged."""

    def told(warehouse: Warehouse) -> list[int]:
        shown = warehouse.sql("DESCRIBE HISTORY db.t").to_arrow()["write_id"].to_pylist()
        assert shown == [row["write_id"] for row in warehouse.table("db.t").history()]
        return shown

    parent.branches.create("dev")
    parent.sql("INSERT INTO db.t VALUES (4, 'd')")
    with opened(tmp_path, "dev") as branch:
        branch.sql("INSERT INTO db.t VALUES (5, 'e')")
        parent.sql("INSERT INTO db.t VALUES (6, 'f')")
        branch.sql("DELETE FROM db.t WHERE id = 5")
        assert (told(branch), told(parent)) == ([1, 3, 5], [1, 2, 4])
        parent.sql("ALTER TABLE db.t RENAME TO db.u")
        assert told(branch) == [1, 3, 5]
        parent.sql("ALTER TABLE db.u RENAME TO db.t")
    parent.branches.merge("dev")
    assert told(parent) == [1, 2, 4, 3, 5]


@pytest.mark.more
def test_P80_who_reads_a_branch_that_ends_is_told(parent: Warehouse, tmp_path: Path) -> None:
    parent.branches.create("dev")
    with opened(tmp_path, "dev") as branch:
        with branch.snapshot() as snapshot:
            parent.branches.drop("dev")
            with pytest.raises(SnapshotExpired, match="its branch dev was dropped"):
                snapshot.table("db.t").to_arrow()
        with pytest.raises(NoSuchBranch):
            branch.sql("SELECT * FROM db.t")


@pytest.mark.more
def test_P80_what_a_branch_wrote_is_in_doubt_after_a_restore(
    parent: Warehouse, tmp_path: Path
) -> None:
    parent.branches.create("dev")
    with opened(tmp_path, "dev") as branch:
        branch.sql("INSERT INTO db.t VALUES (4, 'd')")

    def acid(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["--warehouse", str(tmp_path), "metastore", *arguments])
        assert done.exit_code == 0, (arguments, done.output)
        return done.output

    acid("backup", str(tmp_path / "copy.duckdb"))
    acid("stop")
    assert "write ids 2 are in doubt" in acid("restore", str(tmp_path / "copy.duckdb"), "--replace")
    with opened(tmp_path) as again:
        assert (again.branches.list(), len(rows(again))) == ([], 3)
        again.branches.create("dev")
        again.branches.merge("dev")


@pytest.mark.spark
def test_P80_spark_reads_and_writes_a_branch(
    parent: Warehouse, tmp_path: Path, spark: SparkSession
) -> None:
    parent.branches.create("dev")
    with Warehouse.open(tmp_path, spark, engine="spark", branch="dev") as branch:
        parent.sql("INSERT INTO db.t VALUES (4, 'd')")
        branch.sql("UPDATE db.t SET v = 'x' WHERE id = 1")
        branch.sql("INSERT INTO db.t VALUES (5, 'e')")
        shown = [(1, "x"), (2, "b"), (3, "c"), (5, "e")]
        assert rows(branch) == shown
        frame = branch.table("db.t").read()
        assert sorted(tuple(row) for row in frame.collect()) == shown
        assert branch.branches.diff("db.t").added == 2
        found = branch.branches.compare(parent, "db.t", ["id"])
        assert (found.only_here, found.only_there, found.columns) == (1, 1, {"v": 1})
        assert [row["side"] for row in found.rows] == ["there", "here", "there", "here"]
    parent.branches.merge("dev")
    assert rows(parent) == [(1, "x"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]


# --- the rules alone ------------------------------------------------------------------------------


def begun(world: World, branch: str, operation: object = INSERT) -> dict[str, object]:
    del operation
    return world.call(
        "begin",
        kind=0,
        locks=[],
        wait=0,
        zero_wait=None,
        info={},
        tables=None,
        branch=branch,
    )


def test_P80_a_branch_outlives_its_maker_and_ends_in_time() -> None:
    world = World()
    world.create()
    world.insert()
    hour = 3_600_000
    until = world.clock.moment().wall + hour
    made = world.call("create_branch", name="dev", info={"user": "ann"}, until=until)
    assert (made["user"], made["until"]) == ("ann", until)
    txn = begun(world, "dev")
    for _ in range(3):
        world.tick(hour // 4)
    assert [row["name"] for row in world.call("branches")["rows"]] == ["dev"]
    with pytest.raises(AcidError, match="no heartbeat"):
        world.call("heartbeat_one", txn=txn["txn"], read=False)
    world.tick(hour // 2)
    assert world.call("branches")["rows"] == []
    assert not [one for one in world.state.open_txns()]
    with pytest.raises(NoSuchBranch):
        begun(world, "dev")


def test_P80_its_transactions_are_ended_by_merge_or_drop_alone() -> None:
    world = World()
    world.create()
    made = world.call("create_branch", name="dev", info={})
    writer = world.write(branch="dev")
    world.commit(writer, world.report(writer, "t"))
    assert world.commit(writer) == {"commit_id": made["txn"] + 1}  # a second commit is no error
    for number in (made["txn"], writer.id):
        with pytest.raises(AcidError, match="branch"):
            world.call("abort", txn=number, reason="")
        assert world.call("abort_many", txns=[number], reason="")["aborted"] == []
        assert world.call("heartbeat", txns=[number])["unknown"] == [number]
    assert world.call("outcome_of_txn", txn=writer.id)["state"] == "c"
    assert not world.read().valid_txns.is_valid(writer.id)
    world.call("merge_branch", name="dev")
    assert world.read().valid_txns.is_valid(writer.id)


@pytest.mark.parametrize("operation", [INSERT, UPDATE, DELETE])
def test_P80_a_snapshot_of_the_metastore_keeps_branches(operation: object) -> None:
    from acid_platform.metastore.server import stored_kinds

    world = World()
    world.create()
    world.call("create_branch", name="dev", info={}, until=0)
    writer = world.write(operation=operation, branch="dev")  # type: ignore[arg-type]
    world.commit(writer, world.report(writer, "t"))
    world.read()
    state = world.state
    again = stored_kinds.restore(stored_kinds.live_rows(state), stored_kinds.counters(state))
    assert (again.branches, again.branch_commits) == (state.branches, state.branch_commits)
    assert again.txns == state.txns
