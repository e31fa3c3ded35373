"""Wrong arguments: each has an error of the platform that names it, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acid_platform import (
    Constraint,
    InvalidDefinition,
    InvalidExpression,
    MergeAction,
    MergeClause,
    NoSuchPartition,
    Table,
    UnsupportedStatement,
    Warehouse,
    WrongType,
)
from tests.conftest import temporary_warehouse


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    path = tmp_path_factory.mktemp("wrong") / "wh"
    with temporary_warehouse(path, None, "local") as opened:
        made = opened.create_table("db.t", "id int, v string", partitioned_by=["p int"])
        made.insert([{"id": 1, "v": "a", "p": 1}])
        yield opened


@pytest.mark.more
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


ROW = [{"id": 1, "v": "a", "p": 1}]
ON = "t.id = s.id"
SQL_TEXT = "pass SQL text such as 'id > 5'"
SELECT = "SELECT * FROM db.t"


@pytest.mark.more
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.update({"v": 5}), InvalidExpression, r"assignments\['v'\]=5: pass a dict"),
        (lambda t: t.update({1: "5"}), InvalidExpression, "a name in assignments=1: pass a dict"),
        (lambda t: t.update("v = 5"), InvalidExpression, "assignments='v = 5': pass a dict"),
        (lambda t: t.update(None), InvalidExpression, "assignments=None: pass a dict"),
        (lambda t: t.update({"v": "'b'"}, 5), InvalidExpression, f"where=5: {SQL_TEXT}"),
        (lambda t: t.delete(True), InvalidExpression, f"where=True: {SQL_TEXT}"),
        (lambda t: t.delete(f"id IN ({SELECT})"), UnsupportedStatement, r'sql\("DELETE FROM db.t'),
        (
            lambda t: t.update({"v": "'b'"}, f"EXISTS ({SELECT} AS o WHERE o.id = 2)"),
            UnsupportedStatement,
            r'has a subquery, .* wh\.sql\("UPDATE db\.t …"\)',
        ),
        (lambda t: t.update({"v": f"({SELECT})"}), UnsupportedStatement, r'sql\("UPDATE db.t'),
        (lambda t: t.count(5), InvalidExpression, f"where=5: {SQL_TEXT}"),
        (lambda t: t.to_arrow(where=["id = 1"]), InvalidExpression, SQL_TEXT),
        (lambda t: t.batches(where=b"id = 1").read_all(), InvalidExpression, SQL_TEXT),
        (lambda t: t.head(where=5), InvalidExpression, SQL_TEXT),
        (lambda t: t.read(where=5), InvalidExpression, SQL_TEXT),
        (lambda t: t.erase(5), InvalidExpression, SQL_TEXT),
        (lambda t: t.request_erasure(None), InvalidExpression, SQL_TEXT),
        (lambda t: t.merge(ROW, 5, "*"), InvalidExpression, "on=5: pass SQL text"),
        (lambda t: t.merge(ROW, ON, "v"), InvalidExpression, "when_matched_update='v': pass '.'"),
        (
            lambda t: t.merge(ROW, ON, when_not_matched_insert={"v": 5}),
            InvalidExpression,
            r"when_not_matched_insert\['v'\]=5: pass '.', or a dict",
        ),
        (
            lambda t: t.merge(ROW, ON, clauses=[MergeClause(MergeAction.UPDATE, {"v": 5})]),  # type: ignore[dict-item]
            InvalidExpression,
            r"values\['v'\]=5: pass a dict",
        ),
        (lambda t: t.merge(ROW, ON, clauses=[5]), WrongType, "clauses=5: pass a list of MergeCl"),
        (lambda t: t.merge(ROW, ON, "*", aliases="ts"), WrongType, "aliases='ts': pass two names"),
        (lambda t: t.insert(ROW, fixed="p=1"), WrongType, "fixed='p=1': pass a dict of partition"),
        (lambda t: t.overwrite(ROW, fixed=1), WrongType, "fixed=1: pass a dict of partition"),
        (lambda t: t.insert([{"id": 1}], fixed={"p": [1]}), NoSuchPartition, r"p=\[1\] is not"),
        (lambda t: t.overwrite([], partition=1), NoSuchPartition, "1 is not .*use the form p=…"),
        (lambda t: t.overwrite([], partition={"p": [1]}), NoSuchPartition, r"p=\[1\] is not"),
        (lambda t: t.truncate(["p=1"]), NoSuchPartition, "use the form p=…"),
        (lambda t: t.drop_partition(1), NoSuchPartition, "use the form p=…"),
        (lambda t: t.rename_partition("p=1", 2), NoSuchPartition, "use the form p=…"),
        (lambda t: t.compact("major", 1), NoSuchPartition, "use the form p=…"),
        (lambda t: t.erase("id = 1", 1), NoSuchPartition, "use the form p=…"),
        (lambda t: t.to_arrow("id"), WrongType, "columns='id': pass a list of names"),
        (lambda t: t.to_pandas(["id", 5]), WrongType, "one of columns=5: pass a list of names"),
        (lambda t: t.read(5), WrongType, "columns=5: pass a list of names"),
        (lambda t: t.changes_arrow(columns="id"), WrongType, "columns='id': pass a list of names"),
        (lambda t: t.to_arrow(snapshot=5), WrongType, "snapshot=5: pass a write id list"),
        (lambda t: t.head(-1), WrongType, "limit=-1: pass a whole number that is not negative"),
        (lambda t: t.head("x"), WrongType, "limit='x': pass a whole number"),
        (lambda t: t.diff(1, limit=2.5), WrongType, "limit=2.5: pass a whole number"),
        (lambda t: t.change_column("id", "a int, b int"), InvalidDefinition, "declares 2 columns"),
        (lambda t: t.change_column("id", 5), InvalidDefinition, "columns=5: pass a text such as"),
        (lambda t: t.change_column(5, "id int"), InvalidDefinition, "old=5: pass the name of a"),
        (lambda t: t.change_column("id", "id int", 5), InvalidDefinition, "after=5: pass the na"),
        (lambda t: t.rename_column("id", None), InvalidDefinition, "new=None: pass the name"),
        (lambda t: t.drop_columns(["v"]), InvalidDefinition, "each name as an argument of its own"),
        (lambda t: t.add_columns("w int", {"w": 5}), InvalidDefinition, r"comments\['w'\]=5: pass"),
        (lambda t: t.replace_columns(["id int"]), InvalidDefinition, "pass a text such as 'id int"),
        (lambda t: t.rename(5), InvalidDefinition, "table=5: pass a name such as 'db.t'"),
    ],
)
def test_a_verb_names_the_wrong_argument(
    local: Warehouse, call: Callable[[Table], object], error: type[Exception], message: str
) -> None:
    table = local.table("db.t")
    before = table.record, table.to_arrow()
    with pytest.raises(error, match=message):
        call(table)
    assert (table.record, table.to_arrow()) == before


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda w: w.table(None), InvalidDefinition, "table=None: pass a name such as 'db.t'"),
        (lambda w: w.drop_table(5), InvalidDefinition, "table=5: pass a name such as 'db.t'"),
        (lambda w: w.sql(SELECT).head(-1), WrongType, "limit=-1: pass a whole number"),
        (lambda w: w.sql(SELECT).head("x"), WrongType, "limit='x': pass a whole number"),
        (lambda w: w.sql(SELECT).head(True), WrongType, "limit=True: pass a whole number"),
        (lambda w: w.sql(SELECT).show(1.5), WrongType, "limit=1.5: pass a whole number"),
        (lambda w: w.sql(SELECT).to_arrow("1; x"), WrongType, "limit='1; x': pass a whole number"),
    ],
)
def test_a_warehouse_names_the_wrong_argument(
    local: Warehouse, call: Callable[[Warehouse], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(local)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["id int"]}, "columns are a text such as"),
        ({"partitioned_by": "p int"}, r"partitioned_by='p int': pass a list, such as \['p int'\]"),
        ({"partitioned_by": [5]}, "one of partitioned_by=5: pass a list"),
        ({"clustered_by": (["id"], "4")}, "the buckets of clustered_by='4': pass columns and a"),
        ({"clustered_by": ("id", 4)}, "the columns of clustered_by='id': pass columns and a"),
        ({"clustered_by": "id"}, "clustered_by='id': pass columns and a number of buckets"),
        ({"clustered_by": ["id"]}, r"clustered_by=\['id'\]: pass columns and a number of buckets"),
        ({"properties": {"orc.compress": None}}, r"properties\['orc.compress'\]=None: pass a dict"),
        ({"properties": {"a": 5}, "comment": "x"}, r"properties\['a'\]=5: pass a dict of texts"),
        ({"properties": "a=b"}, "properties='a=b': pass a dict of texts"),
        ({"comments": {"id": 5}}, r"comments\['id'\]=5: pass a dict of columns and texts"),
        ({"constraints": Constraint.check("id > 0")}, "pass a list of Constraint"),
        ({"location": Path("x")}, "location=.*: pass a path or URI"),
    ],
)
def test_a_declaration_names_the_wrong_argument(
    local: Warehouse, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidDefinition, match=message):
        local.create_table("db.wrong", **{"columns": "id int", **arguments})
    assert local.tables() == ["db.t"]


@pytest.mark.parametrize(
    "call",
    [
        lambda w: w.table("db.t").rename_column("v", "a`b"),
        lambda w: w.table("db.t").add_columns("`a``b` int"),
        lambda w: w.table("db.t").add_columns(pa.schema({"a`b": pa.int32()})),
        lambda w: w.table("db.t").change_column("v", "`a``b` string"),
        lambda w: w.table("db.t").replace_columns("id int, `a``b` int"),
        lambda w: w.create_table("db.u", "`a``b` int"),
        lambda w: w.create_table("db.u", "id int", ["`a``b` int"]),
        lambda w: w.sql("CREATE TABLE db.u AS SELECT 1 AS `a``b`"),
        lambda w: w.sql("CREATE TABLE db.u (`a``b` int)"),
        lambda w: w.create_table("db.a`b", "id int"),
        lambda w: w.table("db.t").rename("db.a`b"),
    ],
)
def test_a_name_that_no_statement_can_say(
    local: Warehouse, call: Callable[[Warehouse], object]
) -> None:
    with pytest.raises(InvalidDefinition, match="contains '`', which ends a name in SQL"):
        call(local)
    assert local.tables() == ["db.t"]
    assert [column.name for column in local.table("db.t").columns] == ["id", "v"]
