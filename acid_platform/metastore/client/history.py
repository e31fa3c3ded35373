"""The client's calls for past snapshots and tags (P36)."""

from __future__ import annotations

from acid_platform.metastore.client.link import Caller
from acid_platform.metastore.operations.history import (
    CreateTag,
    DropTag,
    ForgetCursor,
    ForgetSink,
    GetCursors,
    GetKept,
    GetSinks,
)
from acid_platform.metastore.pasts import AsOf, CursorRow, KeptHistory, SinkRow, Tag


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

    def cursors(self, table: str | None = None) -> list[CursorRow]:
        """How far the consumers of changes have come, of one table or of all (P39).

        Raises NoSuchTable.
        """
        return self._call(GetCursors(table))

    def forget_cursor(self, table: str, consumer: str) -> None:
        """Lets the consumer begin again with all rows of the table.

        Raises NoSuchTable, NoSuchPast.
        """
        self._call(ForgetCursor(table, consumer))

    def sinks(self, table: str | None = None) -> list[SinkRow]:
        """How far streaming queries have written one table, or all (P42). Raises NoSuchTable."""
        return self._call(GetSinks(table))

    def forget_sink(self, table: str, sink: str) -> None:
        """Lets a new query write under the name of the sink, from its first batch on.

        Raises NoSuchTable, NoSuchPast.
        """
        self._call(ForgetSink(table, sink))
