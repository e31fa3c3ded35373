"""A materialization is a transaction: write, check that snapshot, commit or abort (decision 4).

An IO manager would store before the checks run, and could not put several statements or tables into
one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dagster as dg

from acid_platform.errors import (
    AcidError,
    CheckErrored,
    InvalidDefinition,
    OutcomeUnknown,
    Transient,
)
from acid_platform.metastore.names import table_name
from acid_platform.orchestration.checks import Finding, data_docs, evaluate
from acid_platform.orchestration.materialized import Uncommitted
from acid_platform.orchestration.outputs import AcidOut
from acid_platform.orchestration.partitions import PartitionExpr, Scope
from acid_platform.orchestration.writing import ensure_table, write
from acid_platform.transaction import LentTransaction, Transaction
from acid_platform.warehouse import Warehouse

Result: TypeAlias = dg.AssetCheckResult | dg.MaterializeResult[None]

RETRY = dg.RetryPolicy(
    max_retries=3, delay=1, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)
"""Of Transient errors, such as a WriteConflict: the step begins again with a fresh snapshot."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One table of an asset with its partitioning, as the decorator has checked them."""

    out: AcidOut
    partitioning: PartitionExpr | None
    driven: bool = False
    """The body takes the transaction, so that it may write by itself and return nothing."""

    def scope(self, context: dg.AssetExecutionContext) -> Scope | None:
        """The partitions that this run replaces; None: the asset's partitions say nothing."""
        return self.partitioning.scope(context.partition_keys) if self.partitioning else None


@dataclass(slots=True)
class _Written:
    """What the transaction has done to one table, and what was found there."""

    planned: Planned
    scope: Scope | None
    findings: list[Finding] = field(default_factory=list)
    results: tuple[dg.AssetCheckResult, ...] = ()
    uncommitted: Uncommitted | None = None

    def tell(self, selected: frozenset[dg.AssetCheckKey]) -> None:
        """Makes the check results, of which one that can't be told has to stop the commit."""
        key = self.planned.out.asset_key
        self.results = tuple(
            one.result(key) for one in self.findings if dg.AssetCheckKey(key, one.name) in selected
        )


def materialize(
    context: dg.AssetExecutionContext,
    warehouse: Warehouse,
    planned: Sequence[Planned],
    produce: Callable[[Transaction], object],
    retry_policy: dg.RetryPolicy | None = RETRY,
) -> Iterator[Result]:
    """Check results, then a materialization for each table whose transaction was committed.

    Nothing is committed unless every blocking check has passed on the transaction's own snapshot;
    otherwise it is aborted, the check results are kept, and the step fails with dg.Failure. The
    data version is the committed write id. Transient errors become dg.RetryRequested, but for
    OutcomeUnknown, after which a person has to look.

    A run that selects checks without their table has them evaluated on the rows that are committed.
    """
    wanted = [one for one in planned if one.out.asset_key in context.selected_asset_keys]
    if wanted:
        yield from _in_one_transaction(context, warehouse, planned, wanted, produce, retry_policy)
    for plan in planned:
        if plan not in wanted:
            yield from _checked_alone(context, warehouse, plan)


def _checked_alone(
    context: dg.AssetExecutionContext, warehouse: Warehouse, plan: Planned
) -> Iterator[dg.AssetCheckResult]:
    """Raises InvalidDefinition, CheckErrored."""
    out = plan.out
    chosen = {one for one in context.selected_asset_check_keys if one.asset_key == out.asset_key}
    if not chosen:
        return
    chosen_names = {check.name for check in chosen}
    # A click on *Execute* names no partition: the whole table then.
    scope = plan.scope(context) if _has_partitions(context) else None
    done = _Written(plan, scope)
    expectations = [one for one in out.expectations if one.name in chosen_names]
    if expectations:
        frame = warehouse.table(out.name).read(where=scope.where if scope else None)
        done.findings.extend(evaluate(frame, expectations, out.key))
    if found_by_body := sorted(chosen_names & {one.name for one in out.checks}):
        if out.recheck is None:
            raise InvalidDefinition(
                f"{', '.join(found_by_body)} of {out.name} is found by the body that writes the"
                " table: materialize the asset, or say by recheck= how it is found without it"
            )
        done.findings.extend(out.recheck(context, warehouse.table(out.name)))
        _require_findings(out, done.findings, found_by_body)
    done.tell(frozenset(chosen))
    yield from done.results


def _has_partitions(context: dg.AssetExecutionContext) -> bool:
    return bool(context.has_partition_key or context.has_partition_key_range)


def _require_findings(out: AcidOut, findings: Sequence[Finding], names: Sequence[str]) -> None:
    """Raises CheckErrored."""
    if missing := sorted(set(names) - {finding.name for finding in findings}):
        raise CheckErrored(
            f"recheck of {out.name} has to return a Finding for each of its checks, and returned"
            f" none for {', '.join(missing)}"
        )


def _in_one_transaction(
    context: dg.AssetExecutionContext,
    warehouse: Warehouse,
    planned: Sequence[Planned],
    wanted: Sequence[Planned],
    produce: Callable[[Transaction], object],
    retry_policy: dg.RetryPolicy | None,
) -> Iterator[Result]:
    selected = frozenset(context.selected_asset_check_keys)
    with retried(context, retry_policy):
        for plan in wanted:
            ensure_table(warehouse, plan.out)
        txn = warehouse.transaction()
    txn.when_lost(
        lambda reason: context.log.warning(
            f"{reason}: nothing that this attempt writes will be committed"
        )
    )
    written: list[_Written] = []
    try:
        with retried(context, retry_policy), txn:
            produced = _by_table(produce(LentTransaction(txn)), planned)
            _refuse_unselected(txn, planned, wanted)
            for plan in wanted:
                done = _Written(plan, plan.scope(context))
                written.append(done)
                _take(warehouse, txn, done, produced.get(plan.out.name))
                _check(txn, done)
                done.tell(selected)
            if broken := [
                (done.planned.out.name, one)
                for done in written
                for one in done.findings
                if one.blocks
            ]:
                raise ChecksFailed(" and ".join(f"{one.name} of {table}" for table, one in broken))
            for done in written:
                done.uncommitted = Uncommitted.of(
                    warehouse, txn, done.planned.out.name, context.run.run_id
                )
    except ChecksFailed as failed:
        for done in written:
            yield from done.results
        raise dg.Failure(
            f"nothing was written: transaction {txn.id} was aborted, as it did not pass {failed};"
            " look at the checks of this run, then materialize again",
            metadata={
                "transaction": txn.id,
                "data docs": dg.MetadataValue.md(
                    "\n\n".join(
                        f"## {done.planned.out.name}\n\n{data_docs(done.findings)}"
                        for done in written
                        if done.findings
                    )
                ),
            },
            allow_retries=False,
        ) from None
    for done in written:
        yield from done.results
        yield _result(context, warehouse, txn, done)


class ChecksFailed(Exception):
    """Names the blocking checks that did not pass: also the reason of the transaction's abort."""


def _by_table(produced: object, planned: Sequence[Planned]) -> Mapping[str, Any]:
    """What the body returned, for each table. Raises InvalidDefinition."""
    names = {one.out.name for one in planned}
    if len(names) == 1:
        by_table: Mapping[str, Any] = dict.fromkeys(names, produced)
    elif produced is None or isinstance(produced, Mapping):
        by_table = {table_name(name): one for name, one in (produced or {}).items()}
    else:
        raise InvalidDefinition(
            f"the body returned {type(produced).__name__}; it fills {', '.join(sorted(names))}, so"
            " it has to return a mapping from table name to rows"
        )
    if unknown := set(by_table) - names:
        raise InvalidDefinition(
            f"the body returned rows for {', '.join(sorted(unknown))}, which is none of its tables"
        )
    return by_table


def _refuse_unselected(
    txn: Transaction, planned: Sequence[Planned], wanted: Sequence[Planned]
) -> None:
    """Nobody would check what a body wrote into tables that the run leaves out."""
    left_out = {one.out.name for one in planned} - {one.out.name for one in wanted}
    if written := sorted(left_out & {one.table for one in txn.reports}):
        raise InvalidDefinition(
            f"the body wrote {', '.join(written)}, which this run does not materialize: look at"
            " context.selected_asset_keys, or leave can_subset out"
        )


def _take(warehouse: Warehouse, txn: Transaction, done: _Written, given: Any) -> None:
    """Writes rows that the body returned, or keeps the findings that it returned instead."""
    out, driven = done.planned.out, done.planned.driven
    if given is None and not driven:
        raise InvalidDefinition(
            f"the body returned nothing for {out.name}: return rows (an empty list for none), or"
            " take the parameter txn and write"
        )
    if driven and isinstance(given, Sequence) and not given:
        raise InvalidDefinition(
            f"the body took txn and returned an empty list for {out.name}, which may mean no rows"
            " or no findings: return None, or a frame without rows"
        )
    if isinstance(given, Sequence) and given and all(isinstance(one, Finding) for one in given):
        done.findings.extend(given)
    elif given is not None:
        write(warehouse, txn, out, given, done.scope)


def _check(txn: Transaction, done: _Written) -> None:
    """Evaluates the expectations on what would be committed. Raises CheckErrored."""
    out = done.planned.out
    named = {one.name for one in done.findings}
    if named != {one.name for one in out.checks}:
        raise CheckErrored(
            f"the body of {out.name} has to return a Finding for each of its checks"
            f" {sorted(one.name for one in out.checks)}, and returned {sorted(named)}"
        )
    if out.expectations:
        frame = txn.table(out.name).read(where=done.scope.where if done.scope else None)
        done.findings.extend(evaluate(frame, out.expectations, out.key))


@contextmanager
def retried(context: dg.AssetExecutionContext, policy: dg.RetryPolicy | None) -> Iterator[None]:
    """Transient errors of the block become dg.RetryRequested while the policy allows another
    attempt; OutcomeUnknown never does. Nothing may be committed when the block raises."""
    try:
        yield
    except OutcomeUnknown:
        raise
    except Transient as error:
        attempt = context.retry_number + 1
        if policy is None or attempt > policy.max_retries:
            raise
        context.log.warning(
            f"nothing was committed ({type(error).__name__}: {error}); attempt {attempt} of"
            f" {policy.max_retries} begins again with a fresh snapshot"
        )
        seconds = max(0, policy.calculate_delay(attempt))
        raise dg.RetryRequested(policy.max_retries, seconds) from error


def _result(
    context: dg.AssetExecutionContext, warehouse: Warehouse, txn: Transaction, done: _Written
) -> dg.MaterializeResult[None]:
    assert done.uncommitted
    key = done.planned.out.asset_key
    ours = done.uncommitted
    context.log.info(f"transaction {txn.id} committed write id {ours.write_id} of {ours.table}")
    version = dg.DataVersion(str(ours.write_id))
    try:
        committed = ours.committed(warehouse)
    except AcidError as error:
        # The step has done its work: if it failed now, the rows would be appended once more.
        context.log.warning(f"the table as it is now can't be told: {error}")
        return dg.MaterializeResult(asset_key=key, metadata=ours.metadata(), data_version=version)
    for partition_key, rows in committed.rows_by_key(done.scope).items():
        context.add_asset_metadata(
            {"dagster/partition_row_count": rows}, key, partition_key=partition_key
        )
    return dg.MaterializeResult(asset_key=key, metadata=committed.metadata(), data_version=version)
