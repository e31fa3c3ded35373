"""Faults that a run injects into its readers: the checker must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.metastore.operations.tables import GetPartitions
from acid_platform.storage.files import Files
from acid_platform.tables import record_layout
from tests.acid_files import listed


def directory_listings() -> None:
    """A reader lists directories instead of using the committed files (P26)."""

    def listings(record: Any, txn: Any) -> Any:
        files, root = Files.of(record.location)
        return listed(files, root)

    record_layout.recorded_listings = listings  # type: ignore[attr-defined]


def partitions_of_today() -> None:
    """A reader uses the present partitions instead of those of its snapshot (P28)."""

    def today(self: Any, name: str) -> Any:
        return self._metastore.call(GetPartitions(name))

    OpenTransaction.partition_records = today  # type: ignore[method-assign]


MUTATIONS: dict[str, Callable[[], None]] = {
    "listing": directory_listings,
    "partitions": partitions_of_today,
}
