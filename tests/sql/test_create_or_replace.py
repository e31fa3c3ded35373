"""CREATE OR REPLACE TABLE AS: other rows and columns in one commit, and the history stays."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from acid_platform import InvalidDefinition, NotEnoughHistory, Warehouse
from acid_platform.errors import AcidError, ConstraintViolated, DeclarationChanged, WrongType
from tests.conftest import a_warehouse
from tests.metastore.processes import until

here = a_warehouse(engine="local", scope="module")
_numbers = count(1)


@pytest.fixture
def table(here: Warehouse) -> Iterator[str]:
    name = f"made.t{next(_numbers)}"
    here.create_table(name, "id int, v string", comments={"id": "the key"})
    here.table(name).insert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    yield name


def rows(warehouse: Warehouse, query: str) -> list[tuple[object, ...]]:
    return sorted(warehouse.sql(query).collect(), key=str)  # type: ignore[union-attr]


def test_the_past_and_who_reads_it_see_the_old_table(here: Warehouse, table: str) -> None:
    before = here.sql(f"SELECT * FROM {table}")
    with here.transaction() as txn:
        old = txn.table(table)
        here.sql(f"CREATE OR REPLACE TABLE {table} AS SELECT v AS id, id * 2 AS n FROM {table}")
        assert old.count() == 2
        assert sorted(old.to_arrow().to_pylist(), key=str)[0] == {"id": 1, "v": "a"}
    assert sorted(before.collect()) == [(1, "a"), (2, "b")]  # type: ignore[union-attr]
    assert rows(here, f"SELECT * FROM {table}") == [("a", 2), ("b", 4)]
    assert rows(here, f"SELECT * FROM {table} VERSION AS OF 1") == [(1, "a"), (2, "b")]
    record = here.table(table).record
    assert record.columns == (("id", "string"), ("n", "int")) and record.comments == {
        "id": "the key"
    }
    here.table(table).compact("major")
    assert rows(here, f"SELECT * FROM {table}") == [("a", 2), ("b", 4)]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT CAST(v AS int) AS n FROM {}", WrongType),
        ("SELECT id, id FROM {}", InvalidDefinition),
        ("SELECT NULL AS n FROM {}", InvalidDefinition),
    ],
)
def test_a_query_that_fails_leaves_it_as_it_was(
    here: Warehouse, table: str, query: str, error: type[AcidError]
) -> None:
    record = here.table(table).record
    with pytest.raises(error):
        here.sql(f"CREATE OR REPLACE TABLE {table} AS {query.format(table)}")
    assert here.table(table).record == record
    assert rows(here, f"SELECT * FROM {table}") == [(1, "a"), (2, "b")]


def test_all_partitions_go_and_others_come(here: Warehouse) -> None:
    here.create_table("made.parts", "id int", partitioned_by=["p int"])
    here.sql("INSERT INTO made.parts VALUES (1, 1), (2, 2)")
    replace = "CREATE OR REPLACE TABLE made.parts PARTITIONED BY (p) AS SELECT p, 'x' AS w, id"
    here.sql(f"{replace} FROM made.parts WHERE id = 2 UNION ALL SELECT 3, 'y', 3")
    assert rows(here, "SELECT * FROM made.parts") == [("x", 2, 2), ("y", 3, 3)]
    here.sql(f"{replace} FROM made.parts WHERE false")
    assert rows(here, "SELECT * FROM made.parts") == []
    assert rows(here, "SELECT * FROM made.parts VERSION AS OF 1") == [(1, 1), (2, 2)]
    for clause, told in (
        ("", "PARTITIONED BY p int, and would have nothing"),
        ("PARTITIONED BY (w)", "would have w string"),
        ("PARTITIONED BY (p) CLUSTERED BY (w) INTO 2 BUCKETS", "CLUSTERED BY nothing"),
    ):
        with pytest.raises(InvalidDefinition, match=told):
            here.sql(f"CREATE OR REPLACE TABLE made.parts {clause} AS SELECT 1 AS p, 'x' AS w")


def test_constraints_stay(here: Warehouse) -> None:
    here.sql("CREATE TABLE made.checked (id int, n int CHECK (n > 0))")
    replace = "CREATE OR REPLACE TABLE made.checked AS SELECT"
    with pytest.raises(ConstraintViolated):
        here.sql(f"{replace} 1 AS id, -1 AS n")
    with pytest.raises(InvalidDefinition, match="DROP CONSTRAINT first"):
        here.sql(f"{replace} 1 AS id")
    here.sql(f"{replace} 1 AS n, 'x' AS w")
    with pytest.raises(ConstraintViolated):
        here.sql("INSERT INTO made.checked VALUES (-1, 'x')")


def test_rows_of_others_are_not_lost(here: Warehouse, table: str) -> None:
    """Its lock waits for them, and it sees what they brought; they can't write over it."""
    writer, late = here.transaction(), here.transaction()
    assert late.table(table).count() == 2
    writer.table(table).insert([{"id": 3, "v": "c"}])
    with ThreadPoolExecutor(1) as pool:
        replaced = pool.submit(
            here.sql, f"CREATE OR REPLACE TABLE {table} AS SELECT id FROM {table}"
        )
        until(lambda: any(lock["lock_state"] == "WAITING" for lock in here.metastore.locks()))
        writer.commit()
        replaced.result()
    assert rows(here, f"SELECT * FROM {table}") == [(1,), (2,), (3,)]
    with pytest.raises(DeclarationChanged), late:
        late.table(table).delete("id = 1")
    assert rows(here, f"SELECT * FROM {table}") == [(1,), (2,), (3,)]


def test_changes_go_over_it_only_where_the_columns_are_the_same(
    here: Warehouse, table: str
) -> None:
    with here.transaction() as txn:
        txn.table(table).changes_arrow(consumer="c").read_all()
    here.sql(f"CREATE OR REPLACE TABLE {table} AS SELECT id, 'z' AS v FROM {table} WHERE id = 1")
    changes = here.table(table).changes_arrow(since=1).read_all().to_pylist()
    assert sorted((row["_change_type"], row["id"], row["v"]) for row in changes) == [
        ("delete", 1, "a"), ("delete", 2, "b"), ("insert", 1, "z")
    ]  # fmt: skip
    here.sql(f"CREATE OR REPLACE TABLE {table} AS SELECT 'x' AS id, 'z' AS v")
    with pytest.raises(InvalidDefinition, match=r"was made anew at .*: ask for the changes until"):
        here.table(table).changes_arrow(since=2)
    assert here.table(table).changes_arrow(since=2, until=2).read_all().num_rows == 0
    with here.transaction() as txn, pytest.raises(NotEnoughHistory, match="--forget c"):
        txn.table(table).changes_arrow(consumer="c")
    here.sql(f"INSERT INTO {table} VALUES ('y', 'y')")
    assert here.table(table).changes_arrow(since=3).read_all().num_rows == 1
    here.sql(f"ALTER TABLE {table} RENAME COLUMN v TO w")
    with pytest.raises(InvalidDefinition, match="apart"):
        here.table(table).changes_arrow(since=1)
