"""Faults that are put into the readers of a run: the checker must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acid_platform.errors import SnapshotExpired
from acid_platform.metastore import Transaction
from acid_platform.metastore.codec import decode
from acid_platform.metastore.records import PartitionRecord
from acid_platform.services import context, manifest
from acid_platform.storage.files import Files
from tests.acid_files import listed


def no_lease_check() -> None:
    """Nobody asks whether the snapshot is still protected; what is gone counts as empty (P29)."""
    Transaction.check = lambda self: None  # type: ignore[method-assign]
    real = manifest.recorded_listings

    def listings(metastore: Any, record: Any, txn: Any) -> Any:
        def without_error(partitions: Any) -> Any:
            try:
                return real(metastore, record, txn)(partitions)
            except SnapshotExpired:
                files, root = Files.of(record.location)
                return listed(files, root)(partitions)
        return without_error

    context.recorded_listings = listings  # type: ignore[attr-defined]


def directory_listings() -> None:
    """A reader takes what lies in the directories for what was committed (P26)."""

    def listings(metastore: Any, record: Any, txn: Any) -> Any:
        files, root = Files.of(record.location)
        return listed(files, root)

    context.recorded_listings = listings  # type: ignore[attr-defined]


def partitions_of_today() -> None:
    """A reader goes by the partitions that there are now, not by those of its snapshot (P28)."""

    def today(self: Any, name: str) -> Any:
        found = self._link.call("partitions", name=name)["partitions"]
        return [decode(PartitionRecord, one) for one in found]

    Transaction.partition_records = today  # type: ignore[method-assign]


MUTATIONS: dict[str, Callable[[], None]] = {
    "lease": no_lease_check, "listing": directory_listings, "partitions": partitions_of_today}
