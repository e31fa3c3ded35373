"""Faults that a run injects into its readers: the checker must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acid_platform.handles import snapshot_views
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.metastore.operations.tables import GetPartitions


def directory_listings() -> None:
    """A reader lists directories instead of using the committed files (P26)."""

    def listings(layout: Any, _txn: Any, partitions: Any) -> Any:
        found = layout.files.entities([layout.place(name) for name in partitions])
        return dict(zip(partitions, found, strict=True))

    snapshot_views.recorded_listings = listings  # type: ignore[attr-defined]


def partitions_of_today() -> None:
    """A reader uses the present partitions instead of those of its snapshot (P28)."""

    def today(self: Any, name: str) -> Any:
        return self._metastore.call(GetPartitions(name))

    OpenTransaction.partition_records = today  # type: ignore[method-assign]


MUTATIONS: dict[str, Callable[[], None]] = {
    "listing": directory_listings,
    "partitions": partitions_of_today,
}
