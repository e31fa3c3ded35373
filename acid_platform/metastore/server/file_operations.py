"""Operations on the file rather than the state: outcomes, queries, history, backups."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from acid_platform.errors import MetastoreUnavailable
from acid_platform.metastore.codec import encode
from acid_platform.metastore.operations import MetastoreOperation, Row
from acid_platform.metastore.operations.shows import (
    BackupBegun,
    BeginBackup,
    EndBackup,
    GetBackupPart,
    GetHistory,
    GetOutcome,
    QueryResult,
    RunQuery,
    SeenRequest,
)
from acid_platform.metastore.server.metastore_schema import MADE, NEW

if TYPE_CHECKING:
    from acid_platform.metastore.server.group_commit import GroupCommit


def outcome(group: GroupCommit, operation: GetOutcome) -> SeenRequest:
    request_id = operation.request_id
    if group.machine.waits(request_id):
        return SeenRequest("waiting")
    kept = group.state.outcomes.get(request_id) or group.store.past_outcome(request_id)
    if kept is None:
        return SeenRequest("unseen")
    return SeenRequest("done", group.machine.expand(kept.op, kept.reply))


def query(group: GroupCommit, operation: RunQuery) -> QueryResult:
    """Runs the query after a fold has updated the tables. Raises what `Store.query` raises."""
    group.fold()
    columns, rows = group.store.query(operation.sql)
    return QueryResult(columns, [[_plain(value) for value in row] for row in rows])


def history(group: GroupCommit, operation: GetHistory) -> list[Row]:
    """Raises NoSuchTable."""
    table_id = group.state.table(operation.name).record.table_id
    unfolded = [row for row in group.state.written if row.table_id == table_id]
    return [
        {**encode(row), "operation": row.operation.name.lower()}
        for row in (*group.store.history(table_id), *unfolded)
    ]


def begin_backup(group: GroupCommit, _operation: BeginBackup) -> BackupBegun:
    group.fold()
    export = group.store.export()
    made = group.now_wall
    meta = {**export.meta, MADE: str(made)}
    return BackupBegun(export.token, meta, export.rows, [*NEW], made)


def backup_part(group: GroupCommit, operation: GetBackupPart) -> str | None:
    """Raises MetastoreUnavailable if the backup is no longer running."""
    export = group.store.exported(operation.token)
    if export is None:
        raise MetastoreUnavailable(
            "the backup was interrupted: the metastore started again, or another backup began;"
            " begin it again"
        )
    return export.part(operation.table, operation.part)


def end_backup(group: GroupCommit, _operation: EndBackup) -> None:
    group.store.end_exports()


HANDLERS: dict[type[MetastoreOperation[object]], Callable[..., object]] = {
    GetOutcome: outcome,
    RunQuery: query,
    GetHistory: history,
    BeginBackup: begin_backup,
    GetBackupPart: backup_part,
    EndBackup: end_backup,
}


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str | None) else str(value)
