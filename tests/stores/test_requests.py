"""How many requests each operation sends to S3, and that reads and writes list nothing (P41).

The numbers are exact, so that no change adds a request without being noticed.
docs/internal/object-stores.md has the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from acid_platform import Warehouse
from acid_platform.base.object_store import STORES
from acid_platform.services import cleaner
from acid_platform.storage import files as storage
from tests.stores.conftest import ONLY_S3, Bucket

pytestmark = ONLY_S3


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "v": [f"v{one}" for one in ids]})


def test_P41_no_request_is_more_than_the_operation_needs(
    warehouse: Warehouse, bucket: Bucket
) -> None:
    server = bucket.server
    table = warehouse.create_table("db.t", "id bigint, v string")
    told: dict[str, Counter[str]] = {}

    def counted(what: str, work: object) -> None:
        with server.counted() as told[what]:
            assert callable(work)
            work()

    counted("open", lambda: Warehouse.open(engine="local").close())
    counted("insert", lambda: table.insert(rows(1, 2, 3)))
    counted("read", lambda: table.to_arrow())
    counted("read again", lambda: table.to_arrow())
    counted("read where nothing matches", lambda: table.to_arrow(where="id > 10"))
    counted("delete", lambda: table.delete("id = 1"))
    counted("read with deletes", lambda: table.to_arrow())
    counted("update", lambda: table.update({"v": "'x'"}, "id = 2"))
    counted("compaction", lambda: table.compact("major"))
    warehouse.release()
    counted("cleaning", lambda: cleaner.run(warehouse.metastore))
    counted("read of the base", lambda: table.to_arrow())
    assert {what: dict(sorted(counter.items())) for what, counter in told.items()} == {
        "open": {"DELETE": 1, "GET": 2, "HEAD": 3, "PUT": 2},
        "insert": {"LIST": 1, "PUT": 2},
        "read": {"GET": 1, "HEAD": 2},
        "read again": {"GET": 1, "HEAD": 2},
        "read where nothing matches": {},
        "delete": {"GET": 1, "HEAD": 2, "LIST": 1, "PUT": 2},
        "read with deletes": {"GET": 2, "HEAD": 4},
        "update": {"GET": 1, "HEAD": 3, "LIST": 2, "PUT": 4},
        "compaction": {"GET": 11, "HEAD": 16, "LIST": 1, "PUT": 2},
        "cleaning": {"DELETE": 4, "DELETE_MANY": 4, "GET": 2, "HEAD": 6, "LIST": 13, "PUT": 4},
        "read of the base": {"GET": 1, "HEAD": 2},
    }


@pytest.mark.more
def test_P41_a_read_asks_for_one_of_many_files_if_only_that_may_match(
    warehouse: Warehouse, bucket: Bucket
) -> None:
    table = warehouse.create_table("db.many", "id bigint, v string")
    with warehouse.transaction() as txn:
        for number in range(25):
            txn.table("db.many").insert(rows(number))
    with bucket.server.counted() as counter:
        found = table.to_arrow(where="id = 17")
    assert found.to_pylist() == [{"id": 17, "v": "v17"}]
    assert counter == {"GET": 1, "HEAD": 2}


@pytest.mark.more
def test_P41_a_file_that_s3_does_not_copy_goes_through_the_process(
    warehouse: Warehouse, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one COPY, S3 takes files of up to 5 GB."""
    files, content = warehouse.files, bytes(range(256)) * 1000
    files.write(f"{warehouse.path}/written", content)
    for limit, operation in ((len(content), "COPY"), (len(content) - 1, "PUT")):
        monkeypatch.setattr(
            storage, "store_of", lambda _, most=limit: replace(STORES[0], largest_copy=most)
        )
        with bucket.server.counted() as counter:
            files.place(f"{warehouse.path}/written", f"{warehouse.path}/placed", len(content))
        assert counter[operation] == 1
        assert counter["COPY"] == (operation == "COPY")
        assert files.read(f"{warehouse.path}/placed") == content
