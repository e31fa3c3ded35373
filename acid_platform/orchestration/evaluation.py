"""Evaluating expectations with Great Expectations, on the committed or uncommitted rows of a table.

That is done in pandas, without a JVM, if the table is small and the result is the same, which a
test compares for each expectation and type of column in `PANDAS`; else on a Spark frame. Importing
Great Expectations takes seconds, so only the functions that evaluate import it. An expectation that
can't be evaluated is an error, not a failed check.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.choice import Choice
from acid_platform.errors import AcidError, CheckErrored, NeedsSpark, UnsupportedStatement
from acid_platform.handles.table import Table
from acid_platform.handles.transaction import Transaction, TransactionTable
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.types import INTEGRAL, Column
from acid_platform.orchestration.check_results import DocsSite, Finding, data_docs
from acid_platform.orchestration.checks import (
    Expectation,
    expectations_of,
    refuse_quarantine,
    require_columns,
    require_known,
    require_names,
)
from acid_platform.orchestration.metadata import TableStats, asset_key
from acid_platform.orchestration.resources import SparkResource, WarehouseResource

if TYPE_CHECKING:
    import pandas as pd

    from acid_platform.orchestration.checks import Given


def evaluate(
    frame: Any,
    expectations: Sequence[Expectation],
    key: Sequence[str] = (),
    site: DocsSite | None = None,
) -> list[Finding]:
    """Evaluate expectations on a Spark or pandas frame; returns a finding for each, in order.

    The first pass over the data evaluates all of them. A second pass collects counts and examples
    for those that fail or allow failing rows, with the columns of `key`; for HTML pages in `site`,
    one pass collects them for all. Raises CheckErrored if an expectation can't be evaluated.
    """
    validator = _Validator(frame, site.table if site else "frame")
    summary = {
        "result_format": "SUMMARY",
        **({"unexpected_index_column_names": list(key)} if key else {}),
    }
    results = validator.run(expectations, summary if site else {"result_format": "BOOLEAN_ONLY"})
    unknown = [
        expectation
        for expectation in expectations
        if not results[expectation.name]["success"] or "mostly" in expectation.arguments
    ]
    if unknown and not site:
        results |= validator.run(unknown, summary)
    for expectation in expectations:
        if expectation not in unknown and _judges_rows(expectation.kind):
            results[expectation.name].setdefault("unexpected_count", 0)
    where = ""
    if site:
        try:
            where = site.write(validator.context)
        except (AcidError, OSError) as error:  # what was found is not lost for that
            dg.get_dagster_logger().warning(f"no Data Docs in {site.place}: {error}")
    findings = [
        Finding(
            expectation.name,
            bool(results[expectation.name]["success"]),
            expectation.blocking,
            details_of(expectation, results[expectation.name]),
            site=where,
        )
        for expectation in expectations
    ]
    page = data_docs(findings)
    return [replace(finding, docs=page) for finding in findings]


def evaluate_profile(
    frame: Any, aggregates: Mapping[str, str], expectations: Sequence[Expectation]
) -> list[Finding]:
    """`evaluate` on a single row of SQL aggregates, which one Spark job computes.

    `aggregates` maps column names to SQL expressions.
    """
    import pandas as pd

    profile = (
        frame.selectExpr(*(f"{text} AS {name}" for name, text in aggregates.items()))
        .first()
        .asDict()
    )
    findings = evaluate(pd.DataFrame([profile]), expectations)
    return [
        replace(finding, details={**finding.details, "profile": profile}) for finding in findings
    ]


def table_checks(
    name: str, table: str, expectations: Sequence["Given"], columns: Sequence[str] | None = None
) -> dg.AssetChecksDefinition:
    """Checks of a whole table, as one op that reads `columns` (None: all) at one snapshot.

    A run may select some of the checks, so each can be executed from its own page. Raises
    InvalidDefinition if an expectation names a column that is not among `columns`, a class or an
    argument that Great Expectations does not have.
    """
    key = asset_key(table)
    owner = f"the checks {name} of {table}"
    expectations = expectations_of(expectations, owner)
    require_names(expectations, owner)
    refuse_quarantine(expectations, owner)
    require_known(expectations, owner)
    if columns is not None:
        require_columns(expectations, columns, owner)

    @dg.multi_asset_check(
        name=name, specs=[expectation.spec(key) for expectation in expectations], can_subset=True
    )
    def checks(
        context: dg.AssetCheckExecutionContext,
        warehouse: dg.ResourceParam[WarehouseResource],
        spark: dg.ResourceParam[SparkResource],
    ) -> Iterator[dg.AssetCheckResult]:
        selected = {check.name for check in context.selected_asset_check_keys}
        chosen = [expectation for expectation in expectations if expectation.name in selected]
        with warehouse.open(context.run.run_id, spark) as opened:
            for finding in CheckedRows.of_table(opened, table, columns=columns).evaluate(chosen):
                yield finding.result(key)

    return checks


class _Validator:
    """Great Expectations on one frame."""

    def __init__(self, frame: Any, name: str) -> None:
        os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # must be set before the import
        import great_expectations as gx
        import pandas as pd

        self.frame, self.name = frame, name
        self.context = gx.get_context(mode="ephemeral")
        self.context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
        sources: Any = self.context.data_sources
        source = (
            sources.add_pandas("frame")
            if isinstance(frame, pd.DataFrame)
            else sources.add_spark("frame", persist=False)
        )
        self.batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")

    def run(
        self, expectations: Sequence[Expectation], detail: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Results by the name of the expectation, since GX does not keep their order."""
        import great_expectations as gx

        name = self.name if detail["result_format"] == "SUMMARY" else "success"
        suite = self.context.suites.add(
            gx.ExpectationSuite(
                name=name,
                expectations=[
                    _class(expectation.kind)(
                        **expectation.arguments, meta={"check": expectation.name}
                    )
                    for expectation in expectations
                ],
            )
        )
        validation = self.context.validation_definitions.add(
            gx.ValidationDefinition(name=name, data=self.batch, suite=suite)
        )
        checkpoint = self.context.checkpoints.add(
            gx.Checkpoint(
                name=name, validation_definitions=[validation], result_format=dict(detail)
            )
        )
        report = checkpoint.run(batch_parameters={"dataframe": self.frame})
        results = {}
        for suite_result in report.run_results.values():
            for result in suite_result.results:
                config: Any = result.expectation_config
                check = config.meta["check"]
                if message := errored(result.exception_info):
                    raise CheckErrored(
                        f"expectation {check!r} could not be evaluated: {message}; correct its"
                        " arguments or the columns that it names"
                    )
                results[check] = {"success": result.success, **(result.result or {})}
        return results


def _class(kind: str) -> Any:
    """The class of an expectation, which may be one of the user's that was imported."""
    import great_expectations as gx
    from great_expectations.expectations.registry import get_expectation_impl

    return getattr(gx.expectations, kind, None) or get_expectation_impl(kind)


def _judges_rows(kind: str) -> bool:
    """Whether the expectation passes only if no row fails it, unless it has `mostly`."""
    from great_expectations.expectations import expectation as classes

    maps = (
        classes.ColumnMapExpectation,
        classes.ColumnPairMapExpectation,
        classes.MulticolumnMapExpectation,
    )
    return issubclass(_class(kind), maps)


def errored(info: Mapping[str, Any] | None) -> str | None:
    """The message of an expectation that raised an error; None if it did not.

    GX's `exception_info` is either flat or has such a dict for each metric.
    """
    if not info:
        return None
    shapes = [info] if "raised_exception" in info else list(info.values())
    for shape in shapes:
        if isinstance(shape, Mapping) and shape.get("raised_exception"):
            return str(shape.get("exception_message") or "no message")
    return None


def details_of(expectation: Expectation, result: Mapping[str, Any]) -> dict[str, Any]:
    details = {
        key: value
        for key, value in result.items()
        if key
        in ("observed_value", "unexpected_count", "unexpected_percent", "partial_unexpected_list")
    }
    rows = result.get("partial_unexpected_index_list", ())
    if rows and isinstance(rows[0], Mapping):  # without key columns they are only positions
        details["unexpected_rows"] = rows
    return {"expectation": expectation.kind, **expectation.arguments, **details}


_KEYS = (*INTEGRAL, "string", "boolean", "date")
_NUMBERS = (*INTEGRAL, "double")
PANDAS: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "ExpectColumnValuesToNotBeNull": ((*_KEYS, "decimal", "double"), frozenset({"mostly"})),
    "ExpectColumnValuesToBeNull": ((*_KEYS, "double"), frozenset({"mostly"})),
    "ExpectColumnValuesToBeBetween": (
        _NUMBERS,
        frozenset({"min_value", "max_value", "strict_min", "strict_max", "mostly"}),
    ),
    "ExpectColumnMinToBeBetween": (INTEGRAL, frozenset({"min_value", "max_value"})),
    "ExpectColumnMaxToBeBetween": (INTEGRAL, frozenset({"min_value", "max_value"})),
    "ExpectColumnValuesToBeInSet": ((*INTEGRAL, "string"), frozenset({"value_set", "mostly"})),
    "ExpectColumnValuesToBeUnique": ((*INTEGRAL, "string"), frozenset({"mostly"})),
    "ExpectCompoundColumnsToBeUnique": ((*INTEGRAL, "string"), frozenset()),
    "ExpectColumnPairValuesAToBeGreaterThanB": (_NUMBERS, frozenset({"or_equal"})),
    "ExpectColumnPairValuesToBeEqual": ((*INTEGRAL, "string"), frozenset()),
    "ExpectTableRowCountToBeBetween": ((), frozenset({"min_value", "max_value"})),
    "ExpectTableRowCountToEqual": ((), frozenset({"value"})),
}
"""The expectations whose results were shown to be equal: types of their columns, and arguments."""
_OF_NULL = ("ExpectColumnValuesToNotBeNull", "ExpectColumnValuesToBeNull")
_COLUMNS = frozenset({"column", "column_A", "column_B", "column_list"})


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Rows of a table, and where they are read from."""

    warehouse: Warehouse
    table: Table | TransactionTable
    columns: tuple[Column, ...]
    """Those of the table that are read."""
    where: str | None
    bytes: int
    """The size of the table's files."""

    @classmethod
    def of_table(
        cls,
        warehouse: Warehouse,
        name: str,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> "CheckedRows":
        """The committed rows; `columns` None: all. Raises NoSuchTable."""
        table = warehouse.table(name)
        every = (*table.columns, *table.partition_columns)
        names = None if columns is None else {column.lower() for column in columns}
        chosen = tuple(column for column in every if names is None or column.name in names)
        stats = TableStats.of(warehouse.metastore.entities(table.name))
        return cls(warehouse, table, chosen, where, stats.bytes)

    @classmethod
    def of_transaction(
        cls, warehouse: Warehouse, txn: Transaction, name: str, where: str | None = None
    ) -> "CheckedRows":
        """What the transaction would commit. Raises NoSuchTable."""
        table = txn.table(name)
        stats = TableStats.of(warehouse.metastore.entities(table.name))
        own = sum(report.bytes for report in txn.reports if report.table == table.name)
        return cls(warehouse, table, table.all_columns, where, stats.bytes + own)

    def evaluate(
        self, expectations: Sequence[Expectation], key: Sequence[str] = ()
    ) -> list[Finding]:
        """As checks.evaluate. Raises CheckErrored, NeedsSpark."""
        site = DocsSite.of(self.table.name, self.warehouse.run_id)

        def work(choice: Choice) -> list[Finding]:
            names = [column.name for column in self.columns]
            if choice.engine.name == "spark":
                return evaluate(self.table.read(names, self.where), expectations, key, site)
            if unlike := next(self._unlike(expectations), ""):
                raise NeedsSpark(unlike)
            try:
                rows = self.table.to_arrow(names, self.where)
            except UnsupportedStatement as error:
                raise NeedsSpark(str(error)) from error
            return evaluate(in_pandas(rows, expectations), expectations, key, site)

        return self.warehouse.engines.run(
            work, self.warehouse.metastore.in_force, read_bytes=self.bytes
        )

    def _unlike(self, expectations: Sequence[Expectation]) -> Iterator[str]:
        """What pandas may evaluate in another way than Spark."""
        kinds = {column.name: column.type.kind for column in self.columns}
        for expectation in expectations:
            if expectation.kind not in PANDAS:
                yield f"{expectation.kind} of the check {expectation.name}"
                continue
            values = expectation.arguments
            if "column_A" in values and values["column_A"] == values.get("column_B"):
                yield f"a column beside itself in the check {expectation.name}"
            types, arguments = PANDAS[expectation.kind]
            for name in values:
                if name not in arguments | _COLUMNS:
                    yield f"the argument {name} of the check {expectation.name}"
            for name in expectation.columns:
                if kinds.get(name) not in types:
                    kind = kinds.get(name, "unknown")
                    yield f"{expectation.kind} of {name} ({kind}) in the check {expectation.name}"


def in_pandas(rows: pa.Table, expectations: Sequence[Expectation]) -> "pd.DataFrame":
    """The rows as Great Expectations takes them: NULL is None, and a number stays one beside it.

    Raises NeedsSpark for NULL or NaN in a column of double whose values are compared, and for NaN
    in one that is looked through for NULL, since both are one to pandas; and for NULL in a pair of
    columns that are compared, which pandas can't do.
    """
    import pandas as pd

    pairs: set[str] = set()
    compared: set[str] = set()
    nullable: set[str] = set()
    for expectation in expectations:
        names = {name.lower() for name in expectation.columns}
        (nullable if expectation.kind in _OF_NULL else compared).update(names)
        if "column_A" in expectation.arguments:
            pairs.update(names)
    frame: pd.DataFrame = rows.to_pandas(integer_object_nulls=True, date_as_object=True)
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name in pairs and column.null_count:
            raise NeedsSpark(f"NULL in a pair of columns, {name}, of a check")
        if pa.types.is_string(column.type):  # in a text column of pandas 3 it would be NaN
            frame[name] = pd.Series(column.to_numpy(), dtype=object)
        if not pa.types.is_floating(column.type):
            continue
        nan = pc.any(pc.is_nan(column)).as_py()
        if (name in compared and (nan or column.null_count)) or (name in nullable and nan):
            raise NeedsSpark(f"NULL or NaN in the column {name} of a check")
        if column.null_count:
            frame[name] = pd.Series(column.to_pylist(), dtype=object)
    return frame
