"""Faults that are put into the readers of a run: the checker must find each of them."""

from __future__ import annotations

from collections.abc import Callable

from acid_platform.metastore import Transaction


def no_lease_check() -> None:
    """A reader that does not ask whether its snapshot is still protected (P29)."""
    Transaction.check = lambda self: None  # type: ignore[method-assign]


MUTATIONS: dict[str, Callable[[], None]] = {"lease": no_lease_check}
