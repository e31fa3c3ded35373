"""`acid import` of Iceberg and Delta: once for each snapshot, and only what was added since.

pyiceberg and deltalake are the extra `import`; without them these tests are left out.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.imports.conftest import Place

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.decimal128(18, 4)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "amount": Decimal(number) / 8,
                "day": dt.date(2024, 1, number),
                "at": dt.datetime(2024, 1, number, 12, tzinfo=dt.UTC),
                "tags": [str(number)],
            }
            for number in ids
        ],
        SCHEMA,
    )


def ids(place: Place) -> list[int]:
    return sorted(row["id"] for row in place.rows())


COLUMNS = "id bigint, amount decimal(18,4), day date, at timestamp, tags array<string>"


# --- Delta ----------------------------------------------------------------------------------------


def test_a_delta_table(place: Place, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="pip install 'acid-platform[import]'")
    lake = tmp_path / "customers"

    def written(*numbers: int, **options: Any) -> None:
        deltalake.write_deltalake(str(lake), rows(*numbers), **options)

    written(1, 2)
    done = place.run("delta", lake)
    assert (done["how"], done["rows"], done["snapshot"][:2]) == ("all", 2, "0@")
    assert place.columns() == COLUMNS
    first = place.rows()[0]
    assert (first["amount"], first["day"], first["at"]) == (
        Decimal("0.1250"),
        dt.date(2024, 1, 1),
        dt.datetime(2024, 1, 1, 12),
    )
    assert place.run("delta", lake)["how"] == "nothing new"

    written(3, mode="append")
    written(4, 5, mode="append")
    deltalake.DeltaTable(str(lake)).optimize.compact()
    written(6, mode="append")
    done = place.run("delta", lake)
    assert (done["how"], done["rows"], done["snapshot"][:2]) == ("added", 4, "4@")
    assert ids(place) == [1, 2, 3, 4, 5, 6]
    error = place.refused("delta", lake, "--snapshot", "0")
    assert "version 4 is newer than 0" in error

    deltalake.DeltaTable(str(lake)).delete("id = 1")
    error = place.refused("delta", lake)
    assert "its version 5 is DELETE" in error and "--overwrite" in error
    assert place.run("delta", lake, "--overwrite")["how"] == "all"
    assert ids(place) == [2, 3, 4, 5, 6]
    assert place.run("delta", lake, "--overwrite", "--snapshot", "1")["rows"] == 3
    assert ids(place) == [1, 2, 3]
    assert "can't be read" in place.refused("delta", tmp_path / "none")
    shutil.rmtree(lake)
    written(1)
    written(2, mode="append")
    assert "was made again" in place.refused("delta", lake)


def test_a_delta_table_with_another_column(place: Place, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="pip install 'acid-platform[import]'")
    lake = str(tmp_path / "t")
    deltalake.write_deltalake(lake, rows(1), partition_by=["day"])
    place.run("delta", lake, "--columns", "id,day")
    wider = rows(2).append_column("note", pa.array(["x"]))
    deltalake.write_deltalake(lake, wider, mode="append", schema_mode="merge")
    assert "has no column 'note'" in place.refused("delta", lake, "--columns", "id,note")
    done = place.run("delta", lake, "--columns", "id,day")
    assert (done["how"], ids(place)) == ("added", [1, 2])
    assert [row["day"].day for row in place.rows()] == [1, 2]


# --- Iceberg --------------------------------------------------------------------------------------


@pytest.fixture
def iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Loads the table `shop.customers` of a catalog that the environment describes."""
    pytest.importorskip("pyiceberg", reason="pip install 'acid-platform[import]'")
    pytest.importorskip("sqlalchemy", reason="pip install 'pyiceberg[sql-sqlite]'")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__WAREHOUSE", f"file://{tmp_path}/lake")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it was read at the import
    catalog = load_catalog("default")
    catalog.create_namespace("shop")
    catalog.create_table("shop.customers", schema=SCHEMA)
    yield lambda: catalog.load_table("shop.customers")
    catalog.close()


def test_an_iceberg_table(place: Place, iceberg: Callable[[], Any]) -> None:
    assert "it is empty" in place.refused("iceberg", "shop.customers")
    iceberg().append(rows(1, 2))
    first = iceberg().current_snapshot().snapshot_id
    done = place.run("iceberg", "shop.customers")
    assert (done["how"], done["rows"], done["snapshot"]) == ("all", 2, str(first))
    assert place.columns() == COLUMNS
    assert place.rows()[0]["amount"] == Decimal("0.1250")
    assert place.run("iceberg", "shop.customers")["how"] == "nothing new"

    iceberg().append(rows(3))
    iceberg().append(rows(4, 5))
    by_file = iceberg().metadata_location.removeprefix("file://")
    done = place.run("iceberg", by_file)
    assert (done["how"], done["rows"]) == ("added", 3)
    assert place.run("iceberg", "shop.customers")["how"] == "nothing new"
    assert ids(place) == [1, 2, 3, 4, 5]
    error = place.refused("iceberg", "shop.customers", "--snapshot", str(first))
    assert "is no ancestor of" in error

    iceberg().delete("id = 1")
    gone = iceberg().current_snapshot()
    error = place.refused("iceberg", "shop.customers")
    assert f"its snapshot {gone.snapshot_id} is {gone.summary.operation.value}" in error
    assert place.run("iceberg", "shop.customers", "--overwrite")["how"] == "all"
    assert ids(place) == [2, 3, 4, 5]
    done = place.run("iceberg", "shop.customers", "--overwrite", "--snapshot", str(first))
    assert ids(place) == [1, 2]
    assert "can't be read" in place.refused("iceberg", "shop.none")
    assert "has no snapshot 5" in place.refused("iceberg", "shop.customers", "--snapshot", "5")


def test_the_catalog_of_an_iceberg_table_is_closed(
    place: Place, iceberg: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr(
            "pyiceberg.catalog.sql.SqlCatalog.close", lambda catalog: closed.append(catalog)
        )
        assert "it is empty" in place.refused("iceberg", "shop.customers")
        assert "can't be read" in place.refused("iceberg", "shop.none")
        iceberg().append(rows(1))
        place.run("iceberg", "shop.customers")
    assert len(closed) == 3


def test_columns_of_iceberg_are_refused_by_name(place: Place, iceberg: Callable[[], Any]) -> None:
    from pyiceberg.types import TimeType

    with iceberg().update_schema() as update:
        update.add_column("opens", TimeType())
    iceberg().append(rows(1))
    assert "column 'opens': Arrow's time64[us]" in place.refused("iceberg", "shop.customers")
    place.run("iceberg", "shop.customers", "--columns", "id,tags")
    assert place.rows() == [{"id": 1, "tags": ["1"]}]
