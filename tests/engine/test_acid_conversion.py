"""Insert-only tables get full ACID, with either engine."""

from __future__ import annotations

import pytest

from acid_platform import InvalidDefinition, UnsupportedStatement, Warehouse
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.services import cleaner


@pytest.mark.more
@pytest.mark.parametrize("stored", ["orc", "parquet"])
@pytest.mark.parametrize("keys", [[], ["p int"]])
def test_an_insert_only_table_gets_full_acid(
    warehouse: Warehouse, stored: str, keys: list[str]
) -> None:
    table = warehouse.create_table(
        f"db.{stored}{len(keys)}",
        "id int, line string" + ("" if keys else ", p int"),
        keys,
        properties={
            "transactional_properties": "insert_only",
            "acid.format": stored,
            "acid.history.retention": "1h",
        },
    )
    warehouse.sql(f"INSERT INTO {table.name} VALUES (1, 'a', 1), (2, 'b', 2)")
    warehouse.sql(f"INSERT INTO {table.name} VALUES (3, NULL, 1)")
    rows = [(1, "a", 1), (2, "b", 2), (3, None, 1)]
    table.tag("then")
    with pytest.raises(UnsupportedStatement, match="CONVERT TO ACID"):
        table.delete("id = 1")
    text = "SET TBLPROPERTIES ('transactional_properties'='default', 'note'='x')"
    warehouse.sql(f"ALTER TABLE {table.name} {text if keys else 'CONVERT TO ACID'}")
    assert sorted(warehouse.sql(f"SELECT * FROM {table.name}").collect()) == rows
    assert table.changes_arrow("then").read_all().num_rows == 0
    assert table.update({"line": "'c'"}, "id = 2") == 1
    assert table.delete("id = 1") == 1
    assert sorted(warehouse.sql(f"SELECT * FROM {table.name}").collect()) == [(2, "c", 2), rows[2]]
    cleaner.run(warehouse.metastore)
    past = table.to_arrow(as_of="then").to_pylist()
    assert sorted(tuple(row.values()) for row in past) == rows
    changes = table.changes_arrow("then").read_all().to_pylist()
    assert {(row["_change_type"], row["id"]) for row in changes} == {
        ("delete", 1),
        ("update_preimage", 2),
        ("update_postimage", 2),
    }
    with pytest.raises(InvalidDefinition, match="ask for the changes until write id 2"):
        table.changes_arrow(0)
    assert table.record.properties.get("note") == ("x" if keys else None)
    table.rollback_to("then")
    assert sorted(warehouse.sql(f"SELECT * FROM {table.name}").collect()) == rows
    with pytest.raises(InvalidDefinition, match="has full ACID already"):
        table.convert_to_acid()
    with pytest.raises(InvalidDefinition, match="would misread the existing files"):
        warehouse.sql(
            f"ALTER TABLE {table.name} SET TBLPROPERTIES ('transactional_properties'='insert_only')"
        )


def test_nothing_has_changed_if_the_commit_fails(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.create_table(
        "db.crashed", "id int", properties={"transactional_properties": "insert_only"}
    )
    table.insert([{"id": 1}])
    with monkeypatch.context() as patched:

        def refused(*_: object, **__: object) -> None:
            raise InvalidDefinition("refused")

        patched.setattr(OpenTransaction, "commit", refused)
        with pytest.raises(InvalidDefinition, match="refused"):
            table.convert_to_acid()
    assert table.to_arrow().to_pylist() == [{"id": 1}]
    table.insert([{"id": 2}])
    assert table.convert_to_acid() == 2
    assert table.delete("id = 1") == 1
    assert table.to_arrow().to_pylist() == [{"id": 2}]
