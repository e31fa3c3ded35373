"""Random histories: what pyiceberg, Polars and a plain DuckDB find is what the tables have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import temporary_warehouse

pytest.importorskip("fastavro", reason="pip install 'acid-platform[export]'")
pytest.importorskip("pyiceberg.table", reason="pip install pyiceberg")
pytest.importorskip("polars", reason="pip install polars")

from tests.gateway.test_rest_catalog import serving
from tests.iceberg.asked_readers import in_duckdb, in_python
from tests.iceberg.plain_duckdb import PlainDuckDB
from tests.iceberg.reading_histories import KINDS, Loads, ReadHistories


@pytest.mark.more
def test_readers_find_the_rows_of_random_histories(tmp_path: Path) -> None:
    duckdb = PlainDuckDB.start(tmp_path)
    with (
        temporary_warehouse(tmp_path / "wh", None, "local") as warehouse,
        serving(warehouse) as rest,
    ):
        readers: list[Loads] = [in_python]
        if duckdb is not None:
            readers.append(
                lambda files: in_duckdb(
                    duckdb, files, rest.address, warehouse.export_ducklake().catalog
                )
            )
        kinds = [KINDS[n] for n in (0, 1, 6, 8)]
        run = ReadHistories(warehouse, 7, readers, kinds=kinds)
        run.commits(30)
    if duckdb is not None:
        duckdb.close()
    assert not run.wrong
    assert len(run.read) == (5 if duckdb else 2)
    assert min(run.read.values()) > 20
