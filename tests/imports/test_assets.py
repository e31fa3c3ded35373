"""An asset that imports a table, as the page about ingesting shows it."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import duckdb
import pytest

from acid_platform import DuckDBSource, ImportRows, Warehouse
from acid_platform.orchestration import TableDeclaration, Transaction, acid_asset
from acid_platform.orchestration.resources import SparkResource, WarehouseResource
from tests.imports.conftest import Place


@pytest.mark.slow
def test_an_asset_imports_a_table(place: Place, warehouse: Warehouse, tmp_path: Path) -> None:
    file = str(tmp_path / "shop.duckdb")

    @acid_asset(table=TableDeclaration(place.table, "id bigint, name string"))
    def customers(txn: Transaction) -> None:
        with DuckDBSource(file, "customers") as source:
            txn.run(ImportRows(place.table, source, overwrite=True))

    resources = {"warehouse": WarehouseResource(path=warehouse.path), "spark": SparkResource()}
    for last in (2, 3):
        with duckdb.connect(file) as shop:
            shop.execute(
                "CREATE OR REPLACE TABLE customers AS"
                f" SELECT i AS id, 'x' AS name FROM range({last}) t(i)"
            )
        run = dg.materialize([customers], resources=resources)
        assert [row["id"] for row in place.rows()] == list(range(last))
        [event] = run.asset_materializations_for_node("__".join(place.table.split(".")))
        assert event.metadata["dagster/row_count"].value == last
