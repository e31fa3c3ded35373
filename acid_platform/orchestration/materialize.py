"""Materializing assets in a transaction: write, check its snapshot, commit or abort, and report.

An IO manager (`io_manager`) could not do that: it stores rows before the checks run, and can't put
several statements or tables into one commit. The report is from the metastore's counts; it reads no
file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dagster as dg

from acid_platform.errors import AcidError, CheckErrored, InvalidDefinition
from acid_platform.handles.transaction import Transaction
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.names import table_name
from acid_platform.metastore.records import WriteReport
from acid_platform.orchestration.body_rows import Quarantined
from acid_platform.orchestration.check_results import Finding, data_docs
from acid_platform.orchestration.evaluation import CheckedRows
from acid_platform.orchestration.metadata import TableStats, declared_metadata, table_metadata
from acid_platform.orchestration.original_values import with_originals
from acid_platform.orchestration.outputs import AcidOut, ensure_table, require_whole, write
from acid_platform.orchestration.partition_keys import PartitionExpr, PartitionScope
from acid_platform.orchestration.resources import progress_in
from acid_platform.orchestration.retries import RETRY, retried
from acid_platform.values.coercion import Coerced

CheckEvent: TypeAlias = dg.AssetCheckResult | dg.AssetCheckEvaluation | dg.Output[None]
Result: TypeAlias = CheckEvent | dg.MaterializeResult[None]


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table of an asset and its partitioning, as checked by the decorator."""

    out: AcidOut
    partitioning: PartitionExpr | None
    driven: bool = False
    """Whether the body takes the transaction, so that it may write itself and return nothing."""

    def scope(self, context: dg.AssetExecutionContext) -> PartitionScope | None:
        """The partitions that the run replaces; None if there is no partition_expr."""
        return self.partitioning.scope(context.partition_keys) if self.partitioning else None


@dataclass(slots=True)
class _Output:
    """What the transaction wrote to a table, and the findings of its checks."""

    planned: PlannedTable
    scope: PartitionScope | None
    findings: list[Finding] = field(default_factory=list)
    results: tuple[CheckEvent, ...] = ()
    quarantined: Quarantined = field(default_factory=Quarantined)
    uncommitted: Uncommitted | None = None

    def set_results(self, context: dg.AssetExecutionContext) -> None:
        """Build the results of the selected checks; an error here still stops the commit."""
        key, selected = self.planned.out.asset_key, context.selected_asset_check_keys
        self.results = tuple(
            event
            for finding in self.findings
            if dg.AssetCheckKey(key, finding.name) in selected
            for event in _events(context, finding.result(key))
        )


def _events(context: dg.AssetExecutionContext, result: dg.AssetCheckResult) -> Sequence[CheckEvent]:
    """The result, and of a run for several partitions an evaluation of each (P56).

    They were checked and are committed together: if a check refuses one, it refuses all.
    """
    assert result.asset_key and result.check_name
    check = dg.AssetCheckKey(result.asset_key, result.check_name)
    spec = context.assets_def.get_spec_for_check_key(check)
    if not context.has_partition_key_range or getattr(spec, "partitions_def", None) is None:
        return (result,)
    keys = context.partition_keys
    together = {"checked together": len(keys)} if len(keys) > 1 else {}
    name = context.job_def.asset_layer.get_op_output_name(check)
    evaluations = [
        dg.AssetCheckEvaluation(
            asset_key=check.asset_key,
            check_name=check.name,
            passed=result.passed,
            metadata={**result.metadata, **together},
            severity=result.severity,
            blocking=spec.blocking,
            partition=key,
        )
        for key in keys
    ]
    return (dg.Output(None, name), *evaluations)


_TEMPORARY = ".tmp_dagster_home_"
"""In the name of the directory that `dg` and `dagster` use without DAGSTER_HOME, and remove."""
_NO_HOME = (
    "DAGSTER_HOME is not set: this run writes into the warehouse, but Dagster forgets it, and no"
    " page will show it; export DAGSTER_HOME, an absolute path (make dev uses var/dagster)"
)


def materialize(
    context: dg.AssetExecutionContext,
    warehouse: Warehouse,
    planned: Sequence[PlannedTable],
    produce: Callable[[Transaction], object],
    retry_policy: dg.RetryPolicy | None = RETRY,
) -> Iterator[Result]:
    """Run the body in a transaction; yields check results, then a materialization for each table.

    The transaction commits only if all blocking checks pass on its own snapshot; otherwise it is
    aborted, the check results are yielded, and dg.Failure is raised. The data version is the
    committed write id. Transient errors become dg.RetryRequested, except OutcomeUnknown, which a
    person has to resolve.

    Checks that the run selects without their table are evaluated on the committed rows.
    """
    plans_to_run = [plan for plan in planned if plan.out.asset_key in context.selected_asset_keys]
    if _TEMPORARY in context.instance.root_directory:
        context.log.warning(_NO_HOME)
    with progress_in(context.log):
        if plans_to_run:
            yield from _in_one_transaction(
                context, warehouse, planned, plans_to_run, produce, retry_policy
            )
        for plan in planned:
            if plan not in plans_to_run:
                yield from _checked_alone(context, warehouse, plan)


def _checked_alone(
    context: dg.AssetExecutionContext, warehouse: Warehouse, plan: PlannedTable
) -> Iterator[CheckEvent]:
    """Evaluate selected checks on the committed rows. Raises InvalidDefinition, CheckErrored."""
    out = plan.out
    chosen = {key for key in context.selected_asset_check_keys if key.asset_key == out.asset_key}
    if not chosen:
        return
    chosen_names = {check.name for check in chosen}
    # The button *Execute* names no partition: check the whole table.
    scope = plan.scope(context) if _has_partitions(context) else None
    output = _Output(plan, scope)
    expectations = [
        expectation for expectation in out.expectations if expectation.name in chosen_names
    ]
    if expectations:
        rows = CheckedRows(warehouse, out.name, scope.where if scope else None)
        output.findings.extend(rows.evaluate(expectations, out.key))
    if body_checks := sorted(chosen_names & {check.name for check in out.checks}):
        if out.recheck is None:
            raise InvalidDefinition(
                f"only the body of {out.name} evaluates {', '.join(body_checks)}; materialize the"
                " asset, or give it a function recheck= that evaluates its checks"
            )
        output.findings.extend(out.recheck(context, warehouse.table(out.name)))
        _require_findings(out, output.findings, body_checks)
    output.set_results(context)
    yield from output.results


def _has_partitions(context: dg.AssetExecutionContext) -> bool:
    return bool(context.has_partition_key or context.has_partition_key_range)


def _require_findings(out: AcidOut, findings: Sequence[Finding], names: Sequence[str]) -> None:
    """Raises CheckErrored if a check has no finding."""
    if missing := sorted(set(names) - {finding.name for finding in findings}):
        raise CheckErrored(
            f"recheck of {out.name} must return a Finding for each of its checks, but returned none"
            f" for {', '.join(missing)}"
        )


def _in_one_transaction(
    context: dg.AssetExecutionContext,
    warehouse: Warehouse,
    planned: Sequence[PlannedTable],
    plans_to_run: Sequence[PlannedTable],
    produce: Callable[[Transaction], object],
    retry_policy: dg.RetryPolicy | None,
) -> Iterator[Result]:
    with retried(context, retry_policy):
        for plan in plans_to_run:
            ensure_table(warehouse, plan.out)
            require_whole(warehouse, plan.out, plan.scope(context))
        levels = {plan.out.isolation for plan in plans_to_run}
        serializable = "serializable" in levels
        txn = warehouse.transaction(isolation="serializable" if serializable else "snapshot")
    txn.derived.job = ", ".join(plan.out.asset_key.to_user_string() for plan in plans_to_run)
    context.log.info(f"transaction {txn.id} of run {context.run.run_id} began")
    txn.when_lost(
        lambda reason: context.log.warning(
            f"{reason}: nothing that this attempt writes will be committed"
        )
    )
    outputs: list[_Output] = []
    try:
        with retried(context, retry_policy), txn:
            txn.lent = True
            produced = _by_table(produce(txn), planned)
            _refuse_unselected(txn, planned, plans_to_run)
            for plan in plans_to_run:
                output = _Output(plan, plan.scope(context))
                outputs.append(output)
                _take(warehouse, txn, output, produced.get(plan.out.name), context.run.run_id)
                _check(warehouse, txn, output)
                output.set_results(context)
            if broken := [
                (output.planned.out.name, finding)
                for output in outputs
                for finding in output.findings
                if finding.blocks
            ]:
                raise ChecksFailed(
                    " and ".join(f"{finding.name} of {table}" for table, finding in broken)
                )
            for output in outputs:
                output.uncommitted = Uncommitted.of(
                    warehouse, txn, output.planned.out.name, context.run.run_id
                )
    except ChecksFailed as failed:
        for output in outputs:
            yield from output.results
        raise dg.Failure(
            f"nothing was written: transaction {txn.id} was aborted because it failed {failed};"
            " look at the checks of this run, then materialize again",
            metadata={
                "transaction": txn.id,
                "data docs": dg.MetadataValue.md(
                    "\n\n".join(
                        f"## {output.planned.out.name}\n\n{data_docs(output.findings)}"
                        for output in outputs
                        if output.findings
                    )
                ),
            },
            allow_retries=False,
        ) from None
    for output in outputs:
        yield from output.results
        yield _result(context, warehouse, output)


class ChecksFailed(Exception):
    """The text names the blocking checks that failed; it is also the reason of the abort."""


def _by_table(produced: object, planned: Sequence[PlannedTable]) -> Mapping[str, Any]:
    """What the body returned, by table. Raises InvalidDefinition."""
    names = {plan.out.name for plan in planned}
    if len(names) == 1:
        by_table: Mapping[str, Any] = dict.fromkeys(names, produced)
    elif produced is None or isinstance(produced, Mapping):
        by_table = {table_name(name): rows for name, rows in (produced or {}).items()}
    else:
        raise InvalidDefinition(
            f"the body returned {type(produced).__name__}, but it fills {', '.join(sorted(names))};"
            " return a mapping from table name to rows"
        )
    if unknown := set(by_table) - names:
        raise InvalidDefinition(
            f"the body returned rows for {', '.join(sorted(unknown))}, which is not one of its"
            f" tables: {', '.join(sorted(names))}"
        )
    return by_table


def _refuse_unselected(
    txn: Transaction, planned: Sequence[PlannedTable], plans_to_run: Sequence[PlannedTable]
) -> None:
    """Raises InvalidDefinition if the body wrote tables that the run does not check or select."""
    left_out = {plan.out.name for plan in planned} - {plan.out.name for plan in plans_to_run}
    if written := sorted(left_out & {report.table for report in txn.reports}):
        raise InvalidDefinition(
            f"the body wrote {', '.join(written)}, which this run does not materialize; write only"
            " the tables in context.selected_asset_keys, or leave can_subset out"
        )


def _take(
    warehouse: Warehouse, txn: Transaction, output: _Output, returned: Any, run_id: str
) -> None:
    """Write the rows that the body returned, or keep the findings that it returned instead.

    Raises InvalidDefinition if it returned nothing that can be understood.
    """
    out, driven = output.planned.out, output.planned.driven
    if returned is None and not driven:
        raise InvalidDefinition(
            f"the body returned nothing for {out.name}; return rows (an empty list for none), or"
            " take the parameter txn and write to it"
        )
    if driven and isinstance(returned, Sequence) and not returned:
        raise InvalidDefinition(
            f"the body took txn and returned an empty list for {out.name}, which could mean no rows"
            " or no findings; return None, or a frame without rows"
        )
    if out.quarantines and any(report.table == out.name for report in txn.reports):
        raise InvalidDefinition(
            f"the body wrote {out.name} by itself, and quarantine=True sets aside rows that it"
            " returns: return the rows, or do without quarantine"
        )
    if (
        isinstance(returned, Sequence)
        and returned
        and all(isinstance(item, Finding) for item in returned)
    ):
        output.findings.extend(returned)
    elif returned is not None:
        output.quarantined = write(warehouse, txn, out, returned, output.scope, run_id)


def _check(warehouse: Warehouse, txn: Transaction, output: _Output) -> None:
    """Evaluate the expectations on what would be committed. Raises CheckErrored."""
    out = output.planned.out
    named = {finding.name for finding in output.findings}
    if named != {check.name for check in out.checks}:
        raise CheckErrored(
            f"the body of {out.name} must return a Finding for each of its checks"
            f" {sorted(check.name for check in out.checks)}, but returned {sorted(named)}"
        )
    if out.expectations:
        where = output.scope.where if output.scope else None
        rows = CheckedRows(warehouse, out.name, where, txn=txn)
        findings = rows.evaluate(out.expectations, out.key)
        findings = with_originals(findings, txn.coerced(out.name))
        output.findings.extend(output.quarantined.with_warnings(findings))


def _result(
    context: dg.AssetExecutionContext, warehouse: Warehouse, output: _Output
) -> dg.MaterializeResult[None]:
    assert output.uncommitted
    key = output.planned.out.asset_key
    ours = output.uncommitted
    metadata, rows_by_key = ours.committed(warehouse, output.scope, context.log)
    for partition_key, rows in rows_by_key.items():
        context.add_asset_metadata(
            {"dagster/partition_row_count": rows}, key, partition_key=partition_key
        )
    return dg.MaterializeResult(
        asset_key=key,
        metadata=metadata | output.quarantined.metadata,
        data_version=ours.data_version,
    )


MOST_PARTITIONS = 100
"""The most written partitions that a materialization lists."""


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """What a transaction has done to a table, determined under its locks just before the commit."""

    table: str
    transaction: int
    run_id: str
    previous: int
    """The table's highest write id before the transaction."""
    write_id: int
    counts: dict[str, int]
    reports: tuple[WriteReport, ...]
    engines: tuple[tuple[str, str], ...]
    """The engine of each statement of the transaction, and why it was chosen."""
    replaced: int | None
    """Rows that its overwrites replace; None if they were never counted: adopted files (P24), and
    those that a branch shows."""
    coerced: Mapping[str, Coerced] = field(default_factory=dict)
    """What `coerce=True` has changed, by column."""
    branch: str = ""
    """The branch on which it is committed; empty if everybody sees it."""

    @property
    def data_version(self) -> dg.DataVersion:
        """The write id; on a branch another one than what everybody sees after the merge."""
        return dg.DataVersion(f"{self.branch}:{self.write_id}".lstrip(":"))

    @classmethod
    def of(cls, warehouse: Warehouse, txn: Transaction, table: str, run_id: str) -> Uncommitted:
        reports = tuple(report for report in txn.reports if report.table == table)
        entities = warehouse.metastore.entities(table)
        previous = TableStats.of(entities).write_id
        hidden = [
            TableStats.of(entities, partition)
            for partition in {report.partition for report in reports if report.overwrite}
        ]
        counted = all(stats.counted for stats in hidden) and not warehouse.metastore.branch
        replaced = sum(stats.rows for stats in hidden) if counted else None
        return cls(
            table,
            txn.id,
            run_id,
            previous,
            txn.write_ids.get(table, previous),
            txn.row_counts(table),
            reports,
            txn.engines,
            replaced,
            txn.coerced(table),
            warehouse.metastore.branch,
        )

    def metadata(self) -> dict[str, dg.MetadataValue]:
        """Ids, rows by operation, and the difference to the previous write id."""
        metadata: dict[str, dg.MetadataValue] = {
            "write id": dg.MetadataValue.int(self.write_id),
            "previous write id": dg.MetadataValue.int(self.previous),
            "transaction": dg.MetadataValue.int(self.transaction),
            "engines": dg.MetadataValue.text(
                "; ".join(dict.fromkeys(f"{name}: {reason}" for name, reason in self.engines))
            ),
            "run id": dg.MetadataValue.dagster_run(self.run_id),
            "written directories": dg.MetadataValue.int(len(self.reports)),
            "written bytes": dg.MetadataValue.int(sum(report.bytes for report in self.reports)),
            **{f"rows {name}": dg.MetadataValue.int(rows) for name, rows in self.counts.items()},
        }
        if self.branch:
            metadata["branch"] = dg.MetadataValue.text(self.branch)
        if self.coerced:
            metadata["coerced values"] = dg.MetadataValue.table(
                [
                    dg.TableRecord(
                        {
                            "column": column,
                            "changed": count.changed,
                            "became NULL": count.nulled,
                            "for example": next((each.given for each in count.originals), ""),
                        }
                    )
                    for column, count in self.coerced.items()
                ]
            )
        if self.replaced is not None:  # an overwrite deletes all rows that it replaces
            count = self.counts.get
            metadata["difference to the previous write id"] = dg.MetadataValue.md(
                f"{count('inserted', 0) + count('overwritten', 0):,} inserted,"
                f" {count('updated', 0):,} updated,"
                f" {count('deleted', 0) + self.replaced:,} deleted"
            )
        return metadata

    def committed(
        self, warehouse: Warehouse, scope: PartitionScope | None, log: dg.DagsterLogManager
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """After the commit: the metadata of the materialization, and the rows of each partition
        key of the run.

        Fails in no case: a retry would append the rows once more.
        """
        log.info(
            f"transaction {self.transaction} committed write id {self.write_id} of {self.table}"
        )
        try:
            return self._with_its_table(warehouse, scope)
        except AcidError as error:
            log.warning(f"can't read the table's current statistics: {error}")
            return self.metadata(), {}

    def _with_its_table(
        self, warehouse: Warehouse, scope: PartitionScope | None
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """As `committed`. Raises AcidError if the metastore can't be asked."""
        record = warehouse.metastore.table(self.table)
        if self.branch:  # the metastore counts what everybody sees
            return {**declared_metadata(record), **self.metadata()}, {}
        entities = warehouse.metastore.entities(self.table)
        metadata = table_metadata(record, TableStats.of(entities)) | self.metadata()
        written = sorted({report.partition for report in self.reports if report.partition})
        partitions = [
            dg.TableRecord(
                {
                    "partition": name,
                    "rows": stats.rows,
                    "bytes": stats.bytes,
                    "deltas": stats.deltas,
                    "delete_deltas": stats.delete_deltas,
                }
            )
            for name in written[:MOST_PARTITIONS]
            for stats in (TableStats.of(entities, name),)
        ]
        if partitions:
            metadata["partitions written"] = dg.MetadataValue.table(partitions)
        if scope is None:
            return metadata, {}
        names = [entity.partition for entity in entities if entity.partition]
        return metadata, {
            key: sum(TableStats.of(entities, name).rows for name in scope.of_key(key, names))
            for key in scope.values
        }
