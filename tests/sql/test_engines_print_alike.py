"""`acid sql` and `%%acid` print the same text whichever engine computes the rows (P33)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from acid_platform import Warehouse
from acid_platform.sql.present import rows_of
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark

COLUMNS = (
    "id int, t tinyint, l bigint, f float, d double, n decimal(9,2), s string, c char(4),"
    " w varchar(4), b binary, k boolean, e date, m timestamp, a array<int>,"
    " p map<string,int>, r struct<x:int,y:string>"
)
ROWS = """
INSERT INTO db.t SELECT 1, CAST(2 AS tinyint), 3L, CAST(0.1 AS float), 0.1D, 1.50, 'x|y', 'ab', 'c',
  unhex('00ff'), true, DATE'2024-02-29', TIMESTAMP'2024-02-29 01:02:03.004',
  array(1, null), map('a', 1), named_struct('x', 1, 'y', 'z');
INSERT INTO db.t (id, d, f) VALUES (2, 1e300, CAST('NaN' AS float));
"""
QUERIES = [
    "SELECT * FROM db.t ORDER BY id",
    "SELECT id, id FROM db.t ORDER BY 1",
    "SELECT d, n, m, e FROM db.t WHERE id = 1",
    "SELECT count(*) AS time, sum(l) AS bytes, max(m) AS created FROM db.t",
    "SELECT id FROM db.t WHERE id > 9",
]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Warehouse]:
    path = tmp_path_factory.mktemp("alike") / "wh"
    with temporary_warehouse(path, spark) as opened:
        opened.create_table("db.t", COLUMNS)
        opened.sql(ROWS, engine="spark")
        yield opened


def printed(warehouse: Warehouse, query: str, engine: str) -> tuple[str, str, str]:
    """As a table, as HTML and as JSON."""
    [(_, answer)] = warehouse.session.steps(query, engine)
    assert answer.engine == engine  # type: ignore[union-attr]
    rows = rows_of(answer, 1)
    assert rows is not None
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(rows.listing())
    return console.export_text(), rows.listing()._repr_html_(), json.dumps(rows.rows, default=str)


@pytest.mark.parametrize("query", QUERIES)
def test_P33_both_engines_print_the_same(warehouse: Warehouse, query: str) -> None:
    assert printed(warehouse, query, "local") == printed(warehouse, query, "spark")
