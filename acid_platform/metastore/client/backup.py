"""A backup of the metastore in one file, made while the metastore runs (P24).

The backup is a DuckDB file with the same tables and every event folded into them. The server reads
the rows, since no other process may open its file; the client writes them to the new file.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from acid_platform.base.disk import sync_path
from acid_platform.errors import BackupRefused
from acid_platform.metastore.operations.shows import (
    BackupBegun,
    BeginBackup,
    EndBackup,
    GetBackupPart,
)

if TYPE_CHECKING:
    from acid_platform.metastore.client.metastore import Metastore


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup contains."""

    path: str
    made: int
    rows: int
    bytes: int
    last_txn: int
    last_event: int
    """The number of the last event of the journal in it."""


def backup(metastore: Metastore, file: str | os.PathLike[str]) -> Backup:
    """Writes everything that is committed now to a new file, while others go on working.

    Raises BackupRefused if the file exists or can't be written, MetastoreUnavailable if the
    metastore restarts in the meantime.
    """
    path = Path(file).absolute()
    if path.exists():
        raise BackupRefused(f"{path} exists; name a new file")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink()
    begun = metastore.call(BeginBackup())
    try:
        with duckdb.connect(str(draft)) as target:
            draft.chmod(0o600)
            for statement in begun.statements:
                target.execute(statement)
            for table, rows in begun.rows.items():
                for part in _parts(metastore, begun, table):
                    _write(target, table, part)
                [(came,)] = target.execute(f'SELECT count(*) FROM "{table}"').fetchall()
                if came != rows:
                    raise BackupRefused(
                        f"{table} came with {came} rows instead of {rows};"
                        " the backup was dropped, make it again"
                    )
            target.execute(
                "INSERT INTO meta SELECT unnest($1), unnest($2)",
                [[*begun.meta], [*begun.meta.values()]],
            )
        sync_path(draft)
        os.link(draft, path)
        sync_path(path.parent)
    except FileExistsError as error:
        raise BackupRefused(f"{path} exists; name a new file") from error
    except (OSError, duckdb.Error) as error:
        raise BackupRefused(f"{path} can't be written: {error}; name another file") from error
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
        metastore.call(EndBackup())
    last = int(begun.meta.get("next_txn", "1")) - 1
    rows, size = sum(begun.rows.values()), path.stat().st_size
    return Backup(str(path), begun.made, rows, size, last, int(begun.meta["log_seq"]))


def _parts(metastore: Metastore, begun: BackupBegun, table: str) -> Iterator[str]:
    """The table's rows as Arrow IPC in base64. Raises MetastoreUnavailable."""
    for number in count():
        part = metastore.call(GetBackupPart(begun.token, table, number))
        if part is None:
            return
        yield part


def _write(target: duckdb.DuckDBPyConnection, table: str, part: str) -> None:
    import pyarrow as pa

    with pa.ipc.open_stream(base64.b64decode(part)) as stream:
        rows = stream.read_all()
    target.register("part", rows)
    target.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM part')
    target.unregister("part")
