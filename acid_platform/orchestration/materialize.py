"""A materialization is a transaction: write, check that snapshot, commit or abort (decision 4).

An IO manager would store before the checks run, and could not hold several statements in one
commit; so assets get the warehouse as a resource and say here what they write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import dagster as dg

from acid_platform.orchestration.checks import Finding
from acid_platform.orchestration.metadata import TableDeclaration, TableStats, table_metadata
from acid_platform.transaction import Transaction, TransactionTable
from acid_platform.transactions import Operation
from acid_platform.warehouse import Warehouse

Write = Callable[[Transaction], object]
"""All statements of one materialization."""

Check = Callable[[TransactionTable], Sequence[Finding]]
"""Looks at what the open transaction has written; only a failed finding that blocks aborts it."""


def materialize_table(
    context: dg.AssetExecutionContext, warehouse: Warehouse, table: TableDeclaration,
    write: Write, check: Check | None = None,
) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult[None]]:
    """Yield from it in the asset's body: check results, then one materialization.

    Nothing is committed unless every blocking check has passed on the transaction's own snapshot;
    otherwise the transaction is aborted, the check results are kept, and the step fails with
    dg.Failure. The materialization's data version is the committed write id. An asset yields all
    results of `check`, so their names are the asset's `check_specs`.
    """
    warehouse.create_table(table.name, table.columns, table.partitioned_by,
                           properties=table.properties, if_not_exists=True)
    findings: Sequence[Finding] = ()
    txn = warehouse.transaction()
    try:
        with txn:
            write(txn)
            findings = check(txn.table(table.name)) if check else ()
            if broken := [one for one in findings if one.blocks]:
                raise _Blocked(broken)
    except _Blocked as blocked:
        yield from (one.result(table.key) for one in findings)
        raise dg.Failure(
            f"{table.name}: nothing was written, as transaction {txn.id} did not pass "
            + ", ".join(one.name for one in blocked.findings)
            + "; look at the checks of this run, then materialize again",
            metadata={"transaction": txn.id}, allow_retries=False,
        ) from None
    context.log.info(f"transaction {txn.id} committed write id {txn.write_ids.get(table.name)}")
    yield from (one.result(table.key) for one in findings)
    yield _result(warehouse, table, txn)


class _Blocked(Exception):
    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(findings)
        self.findings = findings


def _result(
    warehouse: Warehouse, table: TableDeclaration, txn: Transaction
) -> dg.MaterializeResult[None]:
    stats = TableStats.of(warehouse.metastore.entities(), table.name)
    metadata = table_metadata(warehouse.metastore.table(table.name), stats)
    mine = [one for one in txn.reports if one.table == table.name]
    write_id = txn.write_ids.get(table.name, 0)
    metadata |= {
        "write id": dg.MetadataValue.int(write_id),
        "transaction": dg.MetadataValue.int(txn.id),
        "written directories": dg.MetadataValue.int(len(mine)),
        "written bytes": dg.MetadataValue.int(sum(one.bytes for one in mine)),
    }
    for name, rows in operation_counts(txn, table.name).items():
        metadata[f"rows {name}"] = dg.MetadataValue.int(rows)
    return dg.MaterializeResult(
        asset_key=table.key, metadata=metadata, data_version=dg.DataVersion(str(write_id)))


_WORDS = {
    Operation.INSERT: "inserted", Operation.UPDATE: "updated", Operation.DELETE: "deleted",
}


def operation_counts(txn: Transaction, table: str) -> dict[str, int]:
    """Rows by what was done to them: an update's two events are one row, an overwrite's rows are
    `overwritten`."""
    counts: Counter[str] = Counter()
    for one in txn.reports:
        is_delete_delta = one.directory.startswith("delete_delta_")
        if one.table != table or (one.operation is Operation.UPDATE and is_delete_delta):
            continue
        counts["overwritten" if one.overwrite else _WORDS[one.operation]] += one.rows
    return dict(counts)
