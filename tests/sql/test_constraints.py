"""NOT NULL, CHECK and DEFAULT hold for every write, in both engines; keys are only declared."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pandas as pd
import pytest

from acid_platform import (
    Constraint,
    ConstraintViolated,
    DeclarationChanged,
    UnknownColumn,
    Warehouse,
)
from acid_platform.engine.interface import Result
from acid_platform.handles.table import Table

PERSON = """CREATE TABLE {name} (id int CONSTRAINT has_id NOT NULL, name string DEFAULT 'nobody',
 age int CONSTRAINT age_known CHECK (age >= 0), since date DEFAULT '2024-01-02',
 PRIMARY KEY (id) DISABLE NOVALIDATE RELY)"""

_numbers = count(1)


@pytest.fixture
def person(warehouse: Warehouse) -> Table:
    name = f"person_{next(_numbers)}"
    warehouse.sql(PERSON.format(name=name))
    warehouse.sql(f"INSERT INTO {name} VALUES (1, 'ann', 30, NULL), (2, DEFAULT, NULL, DEFAULT)")
    return warehouse.table(name)


def rows(warehouse: Warehouse, table: Table, columns: str = "id, name, age") -> list[object]:
    answer = warehouse.sql(f"SELECT {columns} FROM {table.name} ORDER BY id")
    assert isinstance(answer, Result)
    return [tuple(row) for row in answer.collect()]


BEFORE = [(1, "ann", 30), (2, "nobody", None)]


@pytest.mark.more
def test_columns_that_are_left_out_get_their_default(warehouse: Warehouse, person: Table) -> None:
    assert [str(row[-1]) for row in rows(warehouse, person, "id, since")] == ["None", "2024-01-02"]
    name = person.name
    warehouse.sql(f"INSERT INTO {name} (id) VALUES (3)")
    warehouse.sql(f"INSERT INTO {name} (age, id) SELECT 5, 4")
    person.insert([{"id": 5}])
    person.insert(pd.DataFrame({"ID": [6], "NAME": ["given"]}))
    person.insert([{"id": 7, "name": None}])
    warehouse.sql(f"UPDATE {name} SET name = DEFAULT, age = DEFAULT WHERE id = 1")
    warehouse.sql(
        f"MERGE INTO {name} t USING (SELECT 8 AS id UNION ALL SELECT 2) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET name = 'was ' || t.name"
        " WHEN NOT MATCHED THEN INSERT (id, age) VALUES (s.id, DEFAULT)"
    )
    person.merge([{"id": 9}], "t.id = s.id", when_not_matched_insert="*")
    with pytest.raises(UnknownColumn, match="the source has no name, age, since"):
        warehouse.sql(
            f"MERGE INTO {name} t USING (SELECT 10 AS id) s ON t.id = s.id"
            " WHEN NOT MATCHED THEN INSERT *"
        )
    assert rows(warehouse, person) == [
        (1, "nobody", None),
        (2, "was nobody", None),
        (3, "nobody", None),
        (4, "nobody", 5),
        (5, "nobody", None),
        (6, "given", None),
        (7, None, None),
        (8, "nobody", None),
        (9, "nobody", None),
    ]


def test_each_dict_gets_the_default_of_what_it_leaves_out(
    warehouse: Warehouse, person: Table
) -> None:
    since = {"since": None}
    mixed = [{"id": 3}, {"id": 4, "NAME": "dan", **since}, {"id": 5, "NAME": None}]
    person.insert(mixed)
    kept = [(3, "nobody", "2024-01-02"), (4, "dan", "None"), (5, "None", "2024-01-02")]

    def stored() -> list[object]:
        found = person.to_arrow(["id", "name", "since"], "id > 2").to_pylist()
        return sorted((row["id"], str(row["name"]), str(row["since"])) for row in found)

    assert stored() == kept
    person.overwrite(mixed)
    assert stored() == kept
    person.overwrite([{**row, "id": str(row["id"])} for row in mixed], coerce=True)
    assert stored() == kept
    with warehouse.transaction() as txn:
        txn.table(person.name).overwrite(mixed)
    assert stored() == kept
    name = f"default.first_{next(_numbers)}"
    warehouse.sql(f"CREATE TABLE {name} (n int DEFAULT 7, k int DEFAULT 8, id int)")
    warehouse.table(name).insert([{}])
    warehouse.table(name).insert([{"id": 1, "k": 2}, {}])
    answer = warehouse.table(name).to_arrow().to_pylist()
    assert sorted(str(tuple(row.values())) for row in answer) == [
        "(7, 2, 1)",
        "(7, 8, None)",
        "(7, 8, None)",
    ]


def test_a_merge_refuses_dicts_of_which_some_leave_out_a_column_with_a_default(
    person: Table,
) -> None:
    source = [{"id": 8, "name": "ann"}, {"id": 9}]
    with pytest.raises(UnknownColumn, match=r"row 2 lacks 'name', which has a DEFAULT"):
        person.merge(source, "t.id = s.id", when_not_matched_insert="*")
    with pytest.raises(UnknownColumn, match=r"row 2 lacks 'name', which has a DEFAULT"):
        person.merge(source, "t.id = s.id", when_not_matched_insert="*", coerce=True)
    named = {"id": "s.id", "name": "coalesce(s.name, 'none')"}
    person.merge(source, "t.id = s.id", when_not_matched_insert=named)
    person.merge([{"id": 7}, {"id": 6, "age": 5}], "t.id = s.id", when_not_matched_insert="*")
    found = person.to_arrow(["id", "name"], "id > 5").to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [
        (6, "nobody"),
        (7, "nobody"),
        (8, "ann"),
        (9, "none"),
    ]


VERBS: list[Callable[[Table], object]] = [
    lambda table: table.insert([{"id": 3, "age": -1}]),
    lambda table: table.insert(pd.DataFrame({"id": [None], "age": [1]}, dtype="Int64")),
    lambda table: table.overwrite([{"name": "x"}]),
    lambda table: table.update({"age": "-1"}, "id = 1"),
]


@pytest.mark.parametrize("number", range(4))
def test_verbs_of_python_are_held_to_it(warehouse: Warehouse, person: Table, number: int) -> None:
    with pytest.raises(ConstraintViolated, match=f"of {person.name}"):
        VERBS[number](person)
    assert rows(warehouse, person) == BEFORE


def test_a_transaction_goes_on_without_the_statement(warehouse: Warehouse, person: Table) -> None:
    with warehouse.transaction() as txn:
        table = txn.table(person.name)
        table.insert([{"id": 3}])
        with pytest.raises(ConstraintViolated):
            table.insert([{"id": None}])
    assert [row[0] for row in rows(warehouse, person, "id")] == [1, 2, 3]


def test_a_writer_from_before_a_constraint_begins_again(
    warehouse: Warehouse, person: Table
) -> None:
    txn = warehouse.transaction()
    table = txn.table(person.name)
    assert table.count() == 2
    person.add_constraint(Constraint.check("id < 10"))
    with pytest.raises(DeclarationChanged, match="constraints of"):
        table.insert([{"id": 11}])
    txn.abort()
    assert rows(warehouse, person) == BEFORE


def test_a_rollback_to_rows_without_a_column_gives_them_no_default(
    warehouse: Warehouse, person: Table
) -> None:
    person.add_columns("more string")
    warehouse.sql(f"ALTER TABLE {person.name} CHANGE more more string DEFAULT 'new'")
    warehouse.sql(f"INSERT INTO {person.name} (id) VALUES (3)")
    person.rollback_to(1)
    assert rows(warehouse, person, "id, more") == [(1, None), (2, None)]


def test_show_create_table_declares_the_same(warehouse: Warehouse, person: Table) -> None:
    warehouse.sql(
        f"ALTER TABLE {person.name} ADD CONSTRAINT fk FOREIGN KEY (age) REFERENCES other(x)"
        " DISABLE NOVALIDATE"
    )
    record = person.record
    created = "\n".join(warehouse.sql(f"SHOW CREATE TABLE {person.name}")["createtab_stmt"])
    again = created.replace(record.location, f"{record.location}_again")
    again = again.replace(person.name.replace(".", "`.`"), "again")
    warehouse.sql("DROP TABLE IF EXISTS again")
    warehouse.sql(again)
    other = warehouse.table("again").record
    assert {*other.constraints} == {*record.constraints}
    described = warehouse.sql(f"DESCRIBE FORMATTED {person.name}").to_dict("records")
    assert {"col_name": "age_known", "data_type": "CHECK (age >= 0)", "comment": ""} in described
    warehouse.sql("DROP TABLE again")


@pytest.mark.more
def test_constraints_from_python(warehouse: Warehouse) -> None:
    table = warehouse.create_table(
        f"py_{next(_numbers)}",
        "id int, n decimal(5,2), c char(3)",
        constraints=[
            Constraint.not_null("ID"),
            Constraint.check("n > 0 AND id <> 7", "n_large"),
            Constraint.default("n", "1.5"),
            Constraint.default("c", "'x'"),
        ],
    )
    table.insert([{"id": 1}, {"id": 2}])
    assert [tuple(map(str, row)) for row in rows(warehouse, table, "id, n, c")] == [
        ("1", "1.50", "x  "),
        ("2", "1.50", "x  "),
    ]
    with pytest.raises(ConstraintViolated, match=r"n_large.*n=1\.50, id=7"):
        table.insert([{"id": 7}])
