"""INSERT statements of a transaction without a JVM: lock, write beside the table, rename, report.

They do the same as `TransactionTable.insert`, with files written by `tests.acid_files`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from acid_platform import Transaction
from acid_platform.layout.names import temporary_name
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import Statement
from acid_platform.write.publishing import WrittenDirectory
from tests.acid_files import AcidTable, P, contents_of, full


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged delta of a table with the column `v string`; no reader looks there."""

    txn: Transaction
    table: str
    staging: Path
    directory: str
    rows: int


def stage(txn: Transaction, table: str, statement: int, values: Sequence[str]) -> Staged:
    record = txn.table(table).record
    txn.lock(record, Statement.INSERT)
    write_id = txn.write_ids[table]
    name = f"d{write_id}.{statement}"
    staging = Path(record.location, temporary_name(txn.id, uuid.uuid4().hex[:8]))
    AcidTable(staging).inserts(
        name, [(write_id, P + statement, number, one) for number, one in enumerate(values)]
    )
    return Staged(txn, table, staging, full(name).partition("/")[0], len(values))


def publish(staged: Staged) -> None:
    source = staged.staging / staged.directory
    contents = contents_of(source)
    source.rename(staged.staging.parent / staged.directory)
    staged.staging.rmdir()
    staged.txn.report(
        staged.txn.table(staged.table).record,
        RowOperation.INSERT,
        [WrittenDirectory("", staged.directory, False, contents)],
    )


def insert(txn: Transaction, table: str, values: Sequence[str]) -> None:
    """One statement; the transaction's first and only."""
    publish(stage(txn, table, 0, values))
