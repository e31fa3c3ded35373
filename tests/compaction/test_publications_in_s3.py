"""Other engines and compactions in an object store, where nothing can be renamed (P46)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import Warehouse
from acid_platform.compaction import execution as compaction
from acid_platform.layout.table_properties import PUBLICATION_WAIT
from acid_platform.metastore.operations.compaction import GetUnpublished
from acid_platform.services.worker import work_once
from tests.compaction.test_publications import NAME, Foreigner, changed, rows
from tests.stores.conftest import Bucket, a_bucket, opened
from tests.stores.server import S3Server

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    server = S3Server()
    with a_bucket(server, tmp_path) as made:
        yield made
    server.close()


@pytest.fixture
def warehouse(bucket: Bucket) -> Iterator[Warehouse]:
    with opened() as made:
        yield made


def compacted(bucket: Bucket) -> list[str]:
    return [key for key in bucket.keys(NAME) if "_v0" in key]


@pytest.mark.parametrize("kind", ["minor", "major"])
@pytest.mark.parametrize("fails", [False, True], ids=["to its end", "with an error"])
def test_P46_nobody_reads_while_a_compaction_writes(
    warehouse: Warehouse,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    fails: bool,
) -> None:
    """A Worker that fails has removed its files before others read."""
    table = changed(warehouse)
    before, readers = rows(table), []
    finish = compaction._finished

    def finished(*arguments: object) -> object:
        readers.append(Foreigner(warehouse))
        assert not readers[0].reads and compacted(bucket)
        if fails:
            raise OSError("the connection was reset")
        return finish(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compaction, "_finished", finished)
    warehouse.metastore.request_compaction(NAME, None, kind)
    outcome = work_once(warehouse)
    assert outcome is not None and outcome.state == ("failed" if fails else "published")
    assert readers[0].reads and bool(compacted(bucket)) is not fails
    assert not warehouse.metastore.call(GetUnpublished()) and rows(table) == before


def test_P46_a_major_compaction_waits_for_readers_before_it_writes(
    warehouse: Warehouse, bucket: Bucket
) -> None:
    table = changed(warehouse)
    warehouse.metastore.set(PUBLICATION_WAIT, "0s")
    reader = Foreigner(warehouse)
    warehouse.metastore.request_compaction(NAME, None, "major")
    outcome = work_once(warehouse)
    assert outcome is not None and outcome.state == "refused"
    assert f"transaction {reader.txn})" in outcome.reason and not compacted(bucket)
    reader.ends()
    (row,) = table.compact("major")
    assert row["state"] == "ready for cleaning" and compacted(bucket)
