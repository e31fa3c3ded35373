"""A serializable transaction commits only if nobody has changed what it has read (P52)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acid_platform import Transaction, Warehouse
from acid_platform.errors import InvalidDefinition, WriteConflict
from acid_platform.services import cleaner
from tests.conftest import few_then_more

ROWS = [{"id": i, "v": "white" if i % 2 else "black", "p": "ab"[i // 4]} for i in range(8)]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with Warehouse.open(tmp_path_factory.mktemp("serializable") / "wh", engine="local") as made:
        made.sql("CREATE DATABASE db")
        yield made


@pytest.fixture
def warehouse(opened: Warehouse) -> Iterator[Warehouse]:
    for name in ("t", "log"):
        opened.sql(f"DROP TABLE IF EXISTS db.{name}")
    opened.create_table("db.t", "id int, v string", partitioned_by=["p string"]).insert(ROWS)
    opened.create_table("db.log", "n bigint")
    yield opened
    opened.sql("SET acid.isolation=snapshot")


Do = Callable[[Transaction], Any]
READS: dict[str, Do] = {
    "to_arrow": lambda txn: txn.table("db.t").to_arrow(["id"], where="id = 1 AND p = 'a'"),
    "count": lambda txn: txn.table("db.t").count("id = 1 AND p = 'a'"),
    "SELECT": lambda txn: txn.sql("SELECT v FROM db.t WHERE id = 1 AND p = 'a'").collect(),
    "subquery": lambda txn: txn.sql(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM db.t WHERE id = 1 AND p = 'a')"
    ).collect(),
    "update": lambda txn: txn.table("db.t").update(
        {"v": "'x'"}, "id = 1 AND p = 'a' AND v = 'green'"
    ),
    "merge": lambda txn: txn.table("db.t").merge(
        [{"id": 1, "p": "a"}],
        "t.id = s.id AND t.p = s.p AND t.v = 'green'",
        when_matched_delete="true",
    ),
}
LOCKING = ("update", "merge")
CHANGES: dict[str, tuple[Do, bool]] = {
    "insert of the row": (
        lambda txn: txn.table("db.t").insert([{"id": 1, "v": "green", "p": "a"}]),
        True,
    ),
    "insert of another row": (
        lambda txn: txn.table("db.t").insert([{"id": 77, "v": "new", "p": "a"}]),
        False,
    ),
    "insert into another partition": (
        lambda txn: txn.table("db.t").insert([{"id": 1, "v": "new", "p": "b"}]),
        False,
    ),
    "update": (lambda txn: txn.table("db.t").update({"v": "'x'"}, "id = 1"), True),
    "update of another partition": (
        lambda txn: txn.table("db.t").update({"v": "'x'"}, "p = 'b'"),
        False,
    ),
    "delete": (lambda txn: txn.table("db.t").delete("id = 1"), True),
    "overwrite": (lambda txn: txn.table("db.t").overwrite([ROWS[0]], "p=a"), True),
    "overwrite of another partition": (
        lambda txn: txn.table("db.t").overwrite([ROWS[7]], "p=b"),
        False,
    ),
    "truncate": (lambda txn: txn.table("db.t").truncate("p=a"), True),
    "another table": (lambda txn: txn.table("db.log").insert([{"n": 9}]), False),
}


@pytest.mark.parametrize("change", few_then_more(CHANGES, 1))
@pytest.mark.parametrize("read", READS)
def test_P52_what_was_read_may_not_be_changed_before_the_commit(
    warehouse: Warehouse, read: str, change: str
) -> None:
    do, conflicts = CHANGES[change]
    if read in LOCKING and change.startswith(("overwrite", "truncate")):
        pytest.skip("its lock keeps the overwrite waiting")
    txns = {level: warehouse.transaction(isolation=level) for level in ("snapshot", "serializable")}
    idle = warehouse.transaction(isolation="serializable")
    for txn in (*txns.values(), idle):
        READS[read](txn)
    with warehouse.transaction() as other:
        do(other)
    for txn in txns.values():
        txn.table("db.log").insert([{"n": 1}])
    txns["snapshot"].commit()
    idle.commit()  # it writes nothing
    if conflicts:
        with pytest.raises(WriteConflict, match="has changed some since"):
            txns["serializable"].commit()
    else:
        txns["serializable"].commit()


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE db.t DROP PARTITION (p='a')",
        "ALTER TABLE db.t ADD COLUMNS (w int)",
        "DROP TABLE db.t",
        "ALTER TABLE db.t RENAME TO db.u",
    ],
)
def test_P52_a_declaration_that_was_read_counts_too(warehouse: Warehouse, statement: str) -> None:
    warehouse.sql("DROP TABLE IF EXISTS db.u")
    txn = warehouse.transaction(isolation="serializable")
    READS["count"](txn)
    warehouse.sql(statement)
    txn.table("db.log").insert([{"n": 1}])
    with pytest.raises(WriteConflict, match="since"):
        txn.commit()


def test_P52_a_compaction_changes_nothing(warehouse: Warehouse) -> None:
    txn = warehouse.transaction(isolation="serializable")
    READS["count"](txn)
    warehouse.table("db.t").compact("major", partition="p=a")
    txn.table("db.log").insert([{"n": 1}])
    txn.commit()


def test_P52_a_change_is_known_after_it_was_compacted(warehouse: Warehouse) -> None:
    txn = warehouse.transaction(isolation="serializable")
    READS["count"](txn)
    warehouse.table("db.t").insert([{"id": 1, "v": "new", "p": "a"}])
    warehouse.table("db.t").compact("major", partition="p=a")
    cleaner.run(warehouse.metastore)
    txn.table("db.log").insert([{"n": 1}])
    with pytest.raises(WriteConflict):
        txn.commit()


def black_and_white(warehouse: Warehouse, first: Transaction, second: Transaction) -> list[bool]:
    """Each makes the rows that it read as of one colour those of the other: who runs alone leaves
    one colour. An UPDATE that itself looked for the colour would conflict at each level (P51)."""
    for txn, old, new in ((first, "black", "white"), (second, "white", "black")):
        read = txn.table("db.t").to_arrow(["id", "v"]).to_pylist()
        ids = ", ".join(str(row["id"]) for row in read if row["v"] == old)
        txn.table("db.t").update({"v": f"'{new}'"}, f"id IN ({ids})")
    done = []
    for txn in (first, second):
        try:
            txn.commit()
            done.append(True)
        except WriteConflict:
            done.append(False)
    return done


def colours(warehouse: Warehouse) -> set[str]:
    return {row["v"] for row in warehouse.table("db.t").to_arrow(["v"]).to_pylist()}


@pytest.mark.more
@pytest.mark.parametrize("by", ["argument", "setting", "property", "SQL", "nothing"])
def test_P52_write_skew_needs_a_level_that_excludes_it(warehouse: Warehouse, by: str) -> None:
    if by == "setting":
        warehouse.sql("SET acid.isolation=serializable")
    if by == "property":
        warehouse.sql("ALTER TABLE db.t SET TBLPROPERTIES ('acid.isolation'='serializable')")
    if by == "SQL":
        with warehouse.transaction() as other:
            other.table("db.log").insert([{"n": 1}])
        warehouse.sql("START TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        warehouse.sql("UPDATE db.t SET v = 'white' WHERE v = 'black'")
        warehouse.table("db.t").update({"v": "'black'"}, "v = 'white'")
        with pytest.raises(WriteConflict):
            warehouse.sql("COMMIT")
        assert colours(warehouse) == {"black"}
        return
    level = "serializable" if by == "argument" else "snapshot"
    txns = [warehouse.transaction(isolation=level) for _ in range(2)]
    expected = [True, by == "nothing"]
    assert black_and_white(warehouse, *txns) == expected
    assert len(colours(warehouse)) == (2 if by == "nothing" else 1)


def test_P52_T40_a_single_statement_begins_again(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.sql("SET acid.isolation=serializable")
    begin, attempts = warehouse.transaction, []

    def late(**how: Any) -> Transaction:
        txn = begin(**how)
        attempts.append(txn)
        if len(attempts) == 1:
            with begin() as other:
                other.table("db.t").insert([{"id": 50, "v": "new", "p": "a"}])
        return txn

    monkeypatch.setattr(warehouse, "transaction", late)
    warehouse.sql("INSERT INTO db.log SELECT count(*) FROM db.t")
    assert len(attempts) == 2
    assert warehouse.table("db.log").to_arrow()["n"].to_pylist() == [9]


def test_P52_another_level_is_refused_by_name(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidDefinition, match="choose one of snapshot, serializable"):
        warehouse.transaction(isolation="repeatable read")  # type: ignore[arg-type]
    with pytest.raises(InvalidDefinition, match=r"acid\.isolation"):
        warehouse.create_table("db.x", "id int", properties={"acid.isolation": "loose"})
