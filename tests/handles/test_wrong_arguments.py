"""Wrong arguments: each has an error of the platform that names it, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from acid_platform import InvalidDefinition, Table, Warehouse
from tests.conftest import temporary_warehouse


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    path = tmp_path_factory.mktemp("wrong") / "wh"
    with temporary_warehouse(path, None, "local") as opened:
        made = opened.create_table("db.t", "id int, v string", partitioned_by=["p int"])
        made.insert([{"id": 1, "v": "a", "p": 1}])
        yield opened


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.rename_column("id", ""), "the name of a column '' is empty"),
        (lambda t: t.rename_column("id", " "), "the name of a column ' ' is empty"),
        (lambda t: t.drop_columns(), "db.t: name the columns that go"),
        (lambda t: t.add_constraint(), "db.t: name the constraints"),
        (lambda t: t.add_columns(""), "unexpected end"),
        (lambda t: t.replace_columns(""), "unexpected end"),
    ],
)
def test_a_change_of_nothing(
    local: Warehouse, call: Callable[[Table], object], message: str
) -> None:
    table = local.table("db.t")
    before = table.record
    with pytest.raises(InvalidDefinition, match=message):
        call(table)
    assert table.record == before
