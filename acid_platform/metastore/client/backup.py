"""A backup of the metastore in one file, made while the metastore runs (P24).

The backup is a DuckDB file with the same tables and every event folded into them. The server reads
the rows, since no other process may open its file; the client writes them to the new file.
"""

from __future__ import annotations

import base64
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from acid_platform.base.disk import sync_path
from acid_platform.base.errors import BackupRefused, MetastoreIncompatible
from acid_platform.metastore import schema

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
    begun = metastore.backup_begin()
    version = int(begun.meta["schema_version"])
    if version > schema.VERSION:
        raise MetastoreIncompatible(
            f"the metastore has schema version {version}, this program knows {schema.VERSION}: use"
            " the program that it runs with"
        )
    made = time.time_ns() // 1_000_000
    try:
        with duckdb.connect(str(draft)) as target:
            draft.chmod(0o600)
            for statements in schema.MIGRATIONS[:version]:
                for statement in statements:
                    target.execute(statement)
            for table, count in begun.rows.items():
                for part in metastore.backup_parts(begun, table):
                    _write(target, table, part)
                [(came,)] = target.execute(f'SELECT count(*) FROM "{table}"').fetchall()
                if came != count:
                    raise BackupRefused(
                        f"{table} came with {came} rows instead of {count};"
                        " the backup was dropped, make it again"
                    )
            meta = {**begun.meta, schema.MADE: str(made)}
            target.execute(
                "INSERT INTO meta SELECT unnest($1), unnest($2)", [[*meta], [*meta.values()]]
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
        metastore.backup_end()
    last = int(begun.meta.get("next_txn", "1")) - 1
    rows, size = sum(begun.rows.values()), path.stat().st_size
    return Backup(str(path), made, rows, size, last, int(begun.meta["log_seq"]))


def _write(target: duckdb.DuckDBPyConnection, table: str, part: str) -> None:
    import pyarrow as pa

    with pa.ipc.open_stream(base64.b64decode(part)) as stream:
        rows = stream.read_all()
    target.register("part", rows)
    target.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM part')
    target.unregister("part")
