"""ORDER BY … LIMIT decodes the columns of its order, and others only of its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from acid_platform import Warehouse
from acid_platform.engine.local.run_query import LocalResult
from acid_platform.scan.decode import FileRead
from tests.conftest import IN_ORC, temporary_warehouse

ROWS = 3000


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("top") / "wh", engine="local") as opened:
        table = opened.create_table(
            "db.t", "id int, a int, s string, c char(4), x double", ["p int"], properties=IN_ORC
        )
        for first in range(0, ROWS, 500):
            table.insert(
                [
                    {
                        "id": i,
                        "a": i * 7919 % 3001 or None,
                        "s": f"s{i}",
                        "c": f"c{i % 9}",
                        "x": i / 4,
                        "p": i % 2,
                    }
                    for i in range(first, first + 500)
                ]
            )
        table.delete("id % 10 = 3")
        table.update({"s": "'u'"}, "id % 50 = 7")
        opened.sql(
            "CREATE TABLE db.plain (id int, s string) STORED AS PARQUET"
            " TBLPROPERTIES ('transactional_properties'='insert_only')"
        )
        opened.table("db.plain").insert([{"id": i, "s": f"s{i}"} for i in range(100)])
        yield opened


def select(warehouse: Warehouse, text: str) -> LocalResult:
    result = warehouse.sql(text)
    assert isinstance(result, LocalResult)
    return result


IN_TWO_STEPS = [
    "SELECT * FROM db.t ORDER BY a DESC NULLS LAST, id LIMIT 7",
    "SELECT * FROM db.t ORDER BY a, id LIMIT 5 OFFSET 100",
    "SELECT s, id AS n FROM db.t z WHERE z.p = 1 AND a > 100 ORDER BY z.a LIMIT 20",
    "SELECT s, coalesce(a, 0) AS b, c FROM db.t ORDER BY b, 1 LIMIT 9",
    "SELECT s, x, c FROM db.t ORDER BY 3 DESC, x LIMIT 11",
    "SELECT -a AS b, s, x FROM db.t ORDER BY b + 1, id LIMIT 5",
    "SELECT s, x, c FROM db.t WHERE a IN (5, 6) ORDER BY upper(c), id LIMIT 11",
    "SELECT x, row__id, s FROM db.t ORDER BY row__id.rowid, id LIMIT 4",
    "SELECT * FROM db.t ORDER BY id LIMIT 0",
    "SELECT * FROM db.plain WHERE id > 7 ORDER BY id DESC LIMIT 3",
]
IN_ONE = [
    "SELECT id FROM db.t ORDER BY id LIMIT 3",
    "SELECT * FROM db.t ORDER BY id LIMIT 20000",
    "SELECT * FROM db.t ORDER BY id OFFSET 2000",
    "SELECT s, sum(a) AS n FROM db.t GROUP BY s ORDER BY s LIMIT 3",
    "SELECT DISTINCT s, c FROM db.t ORDER BY s LIMIT 3",
    "SELECT s, row_number() OVER (ORDER BY id) AS n FROM db.t ORDER BY s, n LIMIT 3",
    "SELECT s FROM db.t WHERE id IN (SELECT a FROM db.t) ORDER BY id LIMIT 3",
    "SELECT t.s FROM db.t JOIN db.plain u ON t.id = u.id ORDER BY t.id LIMIT 3",
    "WITH t AS (SELECT * FROM db.plain) SELECT s FROM t ORDER BY id LIMIT 3",
    "SELECT s FROM db.t ORDER BY CAST(s AS int) LIMIT 3",
]


@pytest.mark.more
@pytest.mark.parametrize("text", IN_TWO_STEPS)
def test_the_first_rows_are_those_of_all_rows(warehouse: Warehouse, text: str) -> None:
    result = select(warehouse, text)
    assert result.first is not None
    if " LIMIT 0" not in text:
        assert result.to_arrow().num_rows
    whole = text.partition(" LIMIT ")[0]
    limit, _, offset = text.partition(" LIMIT ")[2].partition(" OFFSET ")
    rows = select(warehouse, whole).to_arrow()
    assert result.to_arrow() == rows.slice(int(offset or 0), int(limit))
    assert result.to_arrow(2) == result.to_arrow().slice(0, 2)
    assert result.count() == result.to_arrow().num_rows


@pytest.mark.parametrize("text", IN_ONE)
def test_other_queries_are_read_at_once(warehouse: Warehouse, text: str) -> None:
    if "CAST" in text:
        assert select(warehouse, text).first is None
    else:
        result = select(warehouse, text)
        assert result.first is None
        assert result.to_arrow().num_rows


@pytest.mark.parametrize(
    ("text", "limit", "pieces"),
    [
        ("SELECT * FROM db.t LIMIT 3", None, 1),
        ("SELECT s, length(s) AS n FROM db.t", 3, 1),
        ("SELECT s FROM db.t LIMIT 3 OFFSET 300", None, 2),
        ("SELECT s FROM db.t LIMIT 0", None, 0),
    ],
)
def test_a_limit_decodes_no_more_files_than_it_needs(
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    limit: int | None,
    pieces: int,
) -> None:
    whole, decoded = FileRead._whole, list[str]()

    def noted(read: FileRead) -> list[pa.RecordBatch]:
        decoded.append(read.source.path)
        return whole(read)

    result = select(warehouse, text)
    monkeypatch.setattr(FileRead, "_whole", noted)
    expected = 0 if text.endswith("LIMIT 0") else limit or int(text.split(" LIMIT ")[1].split()[0])
    assert result.to_arrow(limit).num_rows == expected
    assert len(decoded) == pieces


def test_the_first_step_reads_the_order_and_the_condition(warehouse: Warehouse) -> None:
    first = select(warehouse, "SELECT * FROM db.t WHERE p = 1 ORDER BY a LIMIT 3").first
    assert first is not None
    (early,) = (make() for make in first.early.values())
    assert [column.name for column in early.columns] == ["a", "p", "__place"]
    (late,) = (make() for make in first.late().values())
    assert sum(batch.num_rows for batch in late.batches()) == 3
