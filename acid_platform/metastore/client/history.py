"""The client's calls for past snapshots and tags (P36)."""

from __future__ import annotations

from acid_platform.metastore.client.link import Caller
from acid_platform.metastore.operations.history import CreateTag, DropTag, GetKept
from acid_platform.metastore.pasts import AsOf, KeptHistory, Tag


class HistoryCalls(Caller):
    """The part of `Metastore` for the histories of tables."""

    def create_tag(
        self, table: str, name: str, as_of: AsOf | None = None, expires: int = 0, user: str = ""
    ) -> Tag:
        """Names a snapshot of the table, the present one without `as_of`, and keeps its files.

        `expires`: milliseconds UTC; 0 means never. Raises NoSuchTable, NoSuchPast,
        NotEnoughHistory, InvalidDefinition.
        """
        return self._call(CreateTag(table, name, as_of, expires, user))

    def drop_tag(self, table: str, name: str) -> None:
        """Raises NoSuchTable, NoSuchPast."""
        self._call(DropTag(table, name))

    def kept_history(self, table: str | None = None) -> list[KeptHistory]:
        """Since when the history of one table, or of each, is kept, and what that costs.

        Raises NoSuchTable.
        """
        return self._call(GetKept(table))
