"""How often one compaction run opens its entities and reads their delete files in the driver."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from acid_platform import Warehouse
from acid_platform.scan import deletes
from acid_platform.scan import open as entity
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.source_files import EntitySources, SourceFile
from acid_platform.services.worker import work_once
from acid_platform.storage.files import Files
from tests.conftest import COMPACTORS, a_warehouse, compact_with

pytestmark = pytest.mark.spark

warehouse = a_warehouse(in_spark=True, scope="function")


class Reads:
    """Counts what this process does; Spark tasks run in processes of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entities: Counter[str] = Counter()
        """By location: the table's directory, or the staging directory."""
        self.delete_files: Counter[str] = Counter()
        """By path below the entity."""
        resolve, events = entity.resolve, deletes.file_events

        def resolving(files: Files, directory: AcidDirectory, *rest: Any) -> EntitySources:
            place = "staging" if "/_tmp_" in directory.location else "table"
            self.entities[place] += 1
            return resolve(files, directory, *rest)

        def reading(files: Files, source: SourceFile, *rest: Any) -> Any:
            self.delete_files[source.path] += 1
            return events(files, source, *rest)

        monkeypatch.setattr(entity, "resolve", resolving)
        monkeypatch.setattr(deletes, "file_events", reading)


@COMPACTORS
@pytest.mark.parametrize("kind", ["major", "minor"])
def test_a_compaction_opens_its_inputs_once_and_its_output_once(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, kind: str, compactor: str
) -> None:
    compact_with(warehouse, compactor)
    table = warehouse.create_table("db.t", "id int, v string")
    table.insert([{"id": number, "v": "a"} for number in range(6)])
    table.delete("id = 1")
    table.update({"v": "'b'"}, "id = 2")
    warehouse.metastore.request_compaction("db.t", None, kind)
    reads = Reads(monkeypatch)
    outcome = work_once(warehouse)
    assert outcome is not None and outcome.state == "published", outcome
    assert reads.entities == {"table": 1, "staging": 1}
    merged_here = {"spark": 0, "local": 1}[compactor]
    outputs = {path: count for path, count in reads.delete_files.items() if "/_tmp_" in path}
    inputs = {path: count for path, count in reads.delete_files.items() if path not in outputs}
    assert set(inputs.values()) == {1 + merged_here}, "for the profile, and by each merge task"
    assert (len(inputs), list(outputs.values())) == (2, [] if kind == "major" else [1])
    assert [row["id"] for row in table.to_arrow().sort_by("id").to_pylist()] == [0, 2, 3, 4, 5]


def test_an_insert_only_compaction_opens_its_inputs_once_and_its_output_once(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its timestamps are looked at first, since Spark would cut nanoseconds."""
    table = warehouse.create_table(
        "db.p", "at timestamp", properties={"transactional_properties": "insert_only"}
    )
    for _ in range(2):
        table.insert(warehouse.spark.sql("SELECT TIMESTAMP_NTZ '2000-01-01 00:00:00' AS at"))
    warehouse.metastore.request_compaction("db.p", None, "major")
    reads = Reads(monkeypatch)
    outcome = work_once(warehouse)
    assert outcome is not None and outcome.state == "published", outcome
    assert reads.entities == {"table": 1, "staging": 1}
    assert not reads.delete_files
