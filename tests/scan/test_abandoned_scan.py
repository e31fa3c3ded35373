"""A reader that stops early does not wait for the threads that read ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from acid_platform.scan.scans import ArrowScan, Scan
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList


def test_closing_a_scan_waits_for_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector may close it in a thread that has just begun, and that holds the lock
    which every end of a thread needs: a scan that waited for its threads then waited for ever."""
    released = threading.Event()

    def slow() -> list[pa.RecordBatch]:
        released.wait(60)
        return []

    def work(_scan: ArrowScan, _workers: int) -> Iterator[Callable[[], list[pa.RecordBatch]]]:
        yield lambda: [pa.record_batch({"n": [1]})]
        yield slow
        yield slow

    monkeypatch.setattr(ArrowScan, "_joined_work", work)
    files, _ = Files.of("/")
    scan = ArrowScan(Scan(files, "", (), (), (), ValidWriteIdList("db.t", 1)), ())
    batches = scan.batches(threads=2)
    assert next(iter(batches)).num_rows == 1
    closing = threading.Thread(target=batches.close)  # type: ignore[attr-defined]
    closing.start()
    closing.join(10)
    waited = closing.is_alive()
    released.set()
    closing.join()
    assert not waited
