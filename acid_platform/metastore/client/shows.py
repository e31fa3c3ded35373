"""The client's calls that only read: SHOW, history, status, queries, backups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from acid_platform.metastore.client.link import Caller
from acid_platform.metastore.operations import Row, Values
from acid_platform.metastore.operations.shows import (
    BackupBegun,
    BeginBackup,
    EndBackup,
    GetBackupPart,
    GetHistory,
    GetStatus,
    Query,
    ReportGateway,
    ShowCompactions,
    ShowLocks,
    ShowTransactions,
)

if TYPE_CHECKING:
    from acid_platform.metastore.client.backup import Backup
    from acid_platform.metastore.client.metastore import Metastore


class ShowCalls(Caller):
    """The part of `Metastore` that lists and reads."""

    def transactions(self) -> list[Row]:
        """SHOW TRANSACTIONS."""
        return self._call(ShowTransactions())

    def locks(self) -> list[Row]:
        """SHOW LOCKS."""
        return self._call(ShowLocks())

    def compactions(self) -> list[Row]:
        """SHOW COMPACTIONS: the queue and the history (C61)."""
        return self._call(ShowCompactions())

    def history(self, table: str) -> list[Row]:
        """The committed directories of the table, oldest first, with the fields of HistoryRow."""
        return self._call(GetHistory(table))

    def status(self) -> Row:
        """Process, epoch and counters of the metastore."""
        return self._call(GetStatus())

    def report_gateway(self, name: str, report: Row) -> None:
        """Shows a gateway in `status` for a minute. Raises MetastoreUnavailable."""
        self._call(ReportGateway(name, report))

    def query(self, sql: str) -> tuple[list[str], Values]:
        """Columns and rows of one SELECT over the metastore's own tables."""
        result = self._call(Query(sql))
        return result.columns, result.rows

    # --- backup ---------------------------------------------------------------------------------

    def backup(self, file: str | os.PathLike[str]) -> Backup:
        """Writes everything that is committed now to a new file on this machine.

        Raises BackupRefused, MetastoreUnavailable.
        """
        from acid_platform.metastore.client.backup import backup

        return backup(cast("Metastore", self), file)

    def backup_begin(self) -> BackupBegun:
        return self._call(BeginBackup())

    def backup_parts(self, begun: BackupBegun, table: str) -> Iterator[str]:
        """The table's rows as Arrow IPC in base64. Raises MetastoreUnavailable."""
        number = 0
        while True:
            part = self._call(GetBackupPart(begun.token, table, number))
            if part is None:
                return
            yield part
            number += 1

    def backup_end(self) -> None:
        self._call(EndBackup())
