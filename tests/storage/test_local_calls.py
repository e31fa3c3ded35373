"""How many calls to a local file system each operation needs, and that none lists to read (P26).

The numbers are exact, so that no change adds a call without being noticed; docs/internal/scale.md
has the same. tests/stores/test_requests.py counts the requests of these operations in S3.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from acid_platform import Warehouse
from acid_platform.base import local_files
from acid_platform.services import cleaner
from acid_platform.storage import files as module
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="it syncs by another call")

CALLS: Counter[str] = Counter()


class Counted(fs.LocalFileSystem):  # type: ignore[misc]
    """Counts the calls, by what they do."""

    def get_file_info(self, what: Any) -> Any:
        if isinstance(what, fs.FileSelector):
            CALLS["list"] += 1
        else:
            CALLS["look"] += len(what) if isinstance(what, list) else 1
        return super().get_file_info(what)


def counted(name: str, kind: str) -> Callable[..., Any]:
    real = getattr(fs.LocalFileSystem, name)

    def call(self: Counted, *words: Any, **named: Any) -> Any:
        CALLS[kind] += 1
        return real(self, *words, **named)

    return call


for _name, _kind in (
    ("open_input_file", "open"),
    ("open_output_stream", "create"),
    ("create_dir", "mkdir"),
    ("move", "rename"),
    ("delete_file", "delete"),
    ("delete_dir", "delete"),
):
    setattr(Counted, _name, counted(_name, _kind))


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    monkeypatch.setattr(module.fs, "LocalFileSystem", Counted)
    real = os.fsync, os.fdatasync

    def synced(number: int) -> Callable[[int], None]:
        def call(file: int) -> None:
            CALLS["sync"] += 1
            real[number](file)

        return call

    for number, name in enumerate(("fsync", "fdatasync")):
        monkeypatch.setattr(local_files.os, name, synced(number))
    with temporary_warehouse(tmp_path / "wh", engine="local") as opened:
        yield opened


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "v": [f"v{one}" for one in ids]})


@pytest.mark.more
def test_P26_no_call_is_more_than_the_operation_needs(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.t", "id bigint, v string")
    told: dict[str, dict[str, int]] = {}

    def measure(what: str, work: Callable[[], object]) -> None:
        CALLS.clear()
        work()
        told[what] = {kind: count for kind, count in sorted(CALLS.items()) if count}

    measure("insert", lambda: table.insert(rows(1, 2, 3)))
    measure("read", table.to_arrow)
    measure("read where nothing matches", lambda: table.to_arrow(where="id > 10"))
    measure("delete", lambda: table.delete("id = 1"))
    measure("read with deletes", table.to_arrow)
    measure("update", lambda: table.update({"v": "'x'"}, "id = 2"))
    measure("compaction", lambda: table.compact("major"))
    warehouse.release()
    measure("cleaning", lambda: cleaner.run(warehouse.metastore))
    measure("read of the base", table.to_arrow)
    assert told["compaction"].pop("open") <= 5  # 4 of Parquet
    assert told == {
        "insert": {"create": 2, "delete": 1, "look": 2, "mkdir": 2, "rename": 1, "sync": 4},
        "read": {"look": 1, "open": 1},
        "read where nothing matches": {},
        "delete": {
            "create": 2,
            "delete": 1,
            "look": 4,
            "mkdir": 2,
            "open": 1,
            "rename": 1,
            "sync": 4,
        },
        "read with deletes": {"look": 2, "open": 1},
        "update": {
            "create": 4,
            "delete": 1,
            "look": 6,
            "mkdir": 4,
            "rename": 2,
            "sync": 7,
        },
        "compaction": {
            "create": 1,
            "delete": 1,
            "list": 1,
            "look": 7,
            "mkdir": 2,
            "rename": 1,
            "sync": 4,
        },
        "cleaning": {"list": 5, "open": 2, "sync": 1},  # removals go by open directories
        "read of the base": {"look": 1, "open": 1},
    }
