"""A warehouse of an older version (schema 6), which recorded no files (P26, P31)."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import duckdb
import pytest

from acid_platform.errors import CorruptFile
from tests.conftest import temporary_warehouse

FIXTURE = Path(__file__).parents[1] / "fixtures" / "warehouse_version_6.tar.xz"
MADE_AT = "/tmp/lead/fx/warehouse"
"""The path at which it was created: that version recorded absolute paths."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The warehouse, as if it had been created at this root."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    made = tmp_path / "warehouse"
    with duckdb.connect(str(made / "_metastore" / "metastore.duckdb")) as raw:
        raw.execute("UPDATE tables SET location = replace(location, $1, $2)", [MADE_AT, str(made)])
    return made


def expected(root: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads((root.parent / "expected.json").read_text())
    return found


def rows(table: Any) -> list[dict[str, Any]]:
    return sorted(
        (json.loads(json.dumps(row, default=str)) for row in table.to_arrow().to_pylist()), key=str
    )


def test_P26_an_upgraded_warehouse_reads_as_before_and_has_its_files_recorded(root: Path) -> None:
    with temporary_warehouse(root) as warehouse:
        assert warehouse.metastore.unrecorded() == []
        wanted = expected(root)
        assert {name: rows(warehouse.table(name)) for name in wanted} == wanted
        assert {name: warehouse.table(name).count() for name in wanted} == {
            name: len(found) for name, found in wanted.items()
        }
        _, files = warehouse.metastore.query(
            'SELECT "table", count(*), sum("rows") FROM v_files GROUP BY 1 ORDER BY 1'
        )
        assert files == [
            ["db.changed", 12, 30],
            ["db.compacted", 5, 15],
            ["db.emptied", 1, 1],
            ["db.plain", 2, 2],
            ["db.replaced", 3, 4],
        ]


@pytest.mark.parametrize("damage", ["gone", "cut", "empty"])
def test_P26_a_file_that_was_lost_before_the_upgrade_is_missed(root: Path, damage: str) -> None:
    """Its commit counted files and bytes but did not list the files."""
    (file,) = (root / "db.db" / "replaced" / "base_0000002").glob("bucket_*")
    match damage:
        case "gone":
            file.unlink()
        case "cut":
            file.write_bytes(file.read_bytes()[:-20])
        case "empty":
            file.write_bytes(b"")
    with temporary_warehouse(root) as warehouse:
        with pytest.raises(CorruptFile, match="base_0000002"):
            warehouse.table("db.replaced").count()
        assert rows(warehouse.table("db.changed")) == expected(root)["db.changed"]


def test_P8_the_history_of_an_upgraded_warehouse_names_the_engines_of_new_writes(
    root: Path,
) -> None:
    with temporary_warehouse(root, engine="local") as warehouse:
        table = warehouse.table("db.changed")
        before = table.history()
        assert before and all((row["engine"], row["reason"]) == ("", "") for row in before)
        assert table.delete() > 0
        told = table.history()
        assert told[: len(before)] == before
        new = told[len(before) :]
        assert new and all(
            (row["engine"], row["reason"]) == ("local", "engine=local") for row in new
        )
