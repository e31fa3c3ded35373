"""Random histories: what pyiceberg, Polars and a plain DuckDB find is what the tables have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import temporary_warehouse

pytest.importorskip("fastavro", reason="pip install 'acid-platform[export]'")
pytest.importorskip("pyiceberg.table", reason="pip install pyiceberg")
pytest.importorskip("polars", reason="pip install polars")

from tests.iceberg.plain_duckdb import PlainDuckDB
from tests.iceberg.reading_histories import KINDS, ReadHistories


@pytest.mark.more
def test_readers_find_the_rows_of_random_histories(tmp_path: Path) -> None:
    duckdb = PlainDuckDB.start(tmp_path)
    with temporary_warehouse(tmp_path / "wh", None, "local") as warehouse:
        run = ReadHistories(warehouse, duckdb, 7, kinds=[KINDS[n] for n in (0, 2, 5, 7)])
        run.commits(30)
    if duckdb is not None:
        duckdb.close()
    assert not run.wrong
    assert len(run.read) == (4 if duckdb else 2)
    assert min(run.read.values()) > 20
