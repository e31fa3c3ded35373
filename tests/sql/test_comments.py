"""Comments of columns, tables, views and databases, and what a database is said to be."""

from __future__ import annotations

import pytest

from acid_platform import InvalidDefinition, UnknownColumn, Warehouse
from acid_platform.engine.interface import Result
from tests.conftest import a_warehouse

warehouse = a_warehouse("local")


def listed(warehouse: Warehouse, text: str) -> list[tuple[object, ...]]:
    answer = warehouse.sql(text)
    assert isinstance(answer, Result)
    return [tuple(row) for row in answer.itertuples(index=False)]


PAGES = """CREATE TABLE pages (`at` int COMMENT 'epoch',
ip string COMMENT 'it\\'s an IP, or ''not''')
COMMENT 'views of pages' PARTITIONED BY (dt string COMMENT 'day', country string)"""


def test_comments_are_shown_and_written_down(warehouse: Warehouse) -> None:
    """SHOW CREATE TABLE makes a table with the same comments."""
    warehouse.sql(PAGES)
    expected = [
        ("at", "int", "epoch"),
        ("ip", "string", "it's an IP, or 'not'"),
        ("dt", "string", "day"),
        ("country", "string", ""),
        ("", "", ""),
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("dt", "string", "day"),
        ("country", "string", ""),
    ]
    assert listed(warehouse, "DESCRIBE pages") == expected
    for word in ("FORMATTED", "EXTENDED"):
        rows = listed(warehouse, f"DESCRIBE {word} pages")
        assert rows[: len(expected)] == expected
        assert ("", "comment", "views of pages") in rows
    created = "\n".join(str(line) for (line,) in listed(warehouse, "SHOW CREATE TABLE pages"))
    assert ")\nCOMMENT 'views of pages'\nPARTITIONED BY (\n  `dt` string COMMENT 'day'," in created
    assert "'comment'=" not in created
    again = created.replace("`default`.`pages`", "again")
    place = warehouse.table("pages").record.location
    warehouse.sql(again.replace(place, f"{place}_again"))
    records = [warehouse.table(name).record for name in ("pages", "again")]
    assert records[0].comments == records[1].comments
    assert records[0].properties == records[1].properties


def test_views_have_comments(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE v_of (id int COMMENT 'not inherited', v string)")
    warehouse.sql(
        "CREATE VIEW w (k COMMENT 'the key', val) COMMENT 'a view' TBLPROPERTIES ('x'='y')"
        " AS SELECT id, v FROM v_of"
    )
    assert listed(warehouse, "DESCRIBE w") == [("k", "int", "the key"), ("val", "string", "")]
    assert ("", "comment", "a view") in listed(warehouse, "DESCRIBE EXTENDED w")
    created = "\n".join(str(line) for (line,) in listed(warehouse, "SHOW CREATE TABLE w"))
    warehouse.sql(created.replace("`default`.`w`", "w2"))
    views = {view.name: view for view in warehouse.metastore.views()}
    one, other = views["default.w"], views["default.w2"]
    assert (one.comments, one.properties) == (other.comments, other.properties)
    assert one.properties == {"comment": "a view", "x": "y"}
    warehouse.sql("CREATE OR REPLACE VIEW w AS SELECT id FROM v_of")
    assert listed(warehouse, "DESCRIBE w") == [("id", "int", "")]


def test_a_table_from_a_query_and_from_python_has_comments(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE TABLE q COMMENT 'made' PARTITIONED BY (d COMMENT 'day') AS SELECT 1 a, 2 d"
    )
    assert warehouse.table("q").record.comments == {"d": "day"}
    comments = {"ID": "the key", "p": "part", "v": ""}
    table = warehouse.create_table(
        "py", "id int, v string", ["p int"], comments=comments, comment="all"
    )
    assert table.record.comments == {"id": "the key", "p": "part"}
    assert table.record.properties["comment"] == "all"
    table.add_columns("w int", {"w": "new"})
    table.change_column("v", "v string", comment="text")
    assert table.record.comments == {"id": "the key", "p": "part", "w": "new", "v": "text"}
    with pytest.raises(UnknownColumn, match="no column 'x'"):
        warehouse.create_table("py2", "id int", comments={"x": "nothing"})
    with pytest.raises(UnknownColumn, match="no column 'id'"):
        table.add_columns("z int", {"id": "not new"})
    with pytest.raises(InvalidDefinition, match="half of a character"):
        table.add_columns("z int", {"z": "\ud800"})
