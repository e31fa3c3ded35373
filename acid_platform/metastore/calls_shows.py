"""The calls of a client that looks: shows, history, status, queries."""

from __future__ import annotations

from typing import Any

from acid_platform.metastore.rpc import Caller

Json = dict[str, Any]


class ShowCalls(Caller):
    """Part of `Metastore`."""

    def transactions(self) -> list[Json]:
        """SHOW TRANSACTIONS."""
        return self._rows("transactions")

    def locks(self) -> list[Json]:
        """SHOW LOCKS."""
        return self._rows("locks")

    def compactions(self) -> list[Json]:
        """SHOW COMPACTIONS: the queue and the history (C61)."""
        return self._rows("compactions")

    def history(self, table: str) -> list[Json]:
        """Committed directories of the table, oldest first; fields as in HistoryRow."""
        return self._rows("history", name=table)

    def _rows(self, op: str, **args: Any) -> list[Json]:
        rows: list[Json] = self._call(op, **args)["rows"]
        return rows

    def status(self) -> Json:
        """Process, epoch and counters of the metastore."""
        return self._call("status")

    def query(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows of one SELECT over the metastore's own tables."""
        answer = self._call("query", sql=sql)
        return answer["columns"], answer["rows"]
