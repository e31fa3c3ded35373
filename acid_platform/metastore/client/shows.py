"""The calls of a client that looks: shows, history, status, queries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from acid_platform.metastore.client.link import Caller

if TYPE_CHECKING:
    from acid_platform.metastore.client.backup import Backup
    from acid_platform.metastore.client.metastore import Metastore

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Begun:
    """A backup that is going on: what is in `meta`, and how many rows each table has."""

    token: str
    meta: dict[str, str]
    rows: dict[str, int]


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

    # --- backup ---------------------------------------------------------------------------------

    def backup(self, file: str | os.PathLike[str]) -> Backup:
        """Writes everything that is committed now to a new file on this machine.

        Raises BackupRefused, MetastoreUnavailable.
        """
        from acid_platform.metastore.client.backup import backup

        return backup(cast("Metastore", self), file)

    def backup_begin(self) -> Begun:
        return Begun(**self._call("backup_begin"))

    def backup_parts(self, begun: Begun, table: str) -> Iterator[str]:
        """The table's rows as Arrow IPC in base64. Raises MetastoreUnavailable."""
        number = 0
        while True:
            part = self._call("backup_part", token=begun.token, table=table, part=number)["part"]
            if part is None:
                return
            yield part
            number += 1

    def backup_end(self) -> None:
        self._call("backup_end")
