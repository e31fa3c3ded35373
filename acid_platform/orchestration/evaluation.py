"""Evaluating expectations on the committed or uncommitted rows of a table.

What SQL says is asked in SQL (`sql_checks`), so small tables need no JVM; the rest is evaluated by
Great Expectations on a Spark frame. Importing Great Expectations takes seconds, so only the
functions that need it import it. An expectation that can't be evaluated is an error, not a failed
check.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.

import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import dagster as dg

from acid_platform.engine.choice import Choice
from acid_platform.errors import AcidError, CheckErrored, NeedsSpark
from acid_platform.handles.transaction import Transaction, TransactionTable
from acid_platform.handles.warehouse import Warehouse
from acid_platform.orchestration.check_results import DocsSite, Finding, data_docs
from acid_platform.orchestration.checks import (
    Expectation,
    expectations_of,
    refuse_quarantine,
    require_columns,
    require_known,
    require_names,
)
from acid_platform.orchestration.metadata import asset_key
from acid_platform.orchestration.resources import SparkResource, WarehouseResource
from acid_platform.orchestration.sql_checks import Rows, dotted, evaluated, unlike

if TYPE_CHECKING:
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
    findings = _findings(expectations, results, _written(site, lambda: validator.context))
    page = data_docs(findings)
    return [replace(finding, docs=page) for finding in findings]


def _findings(
    expectations: Sequence[Expectation], results: Mapping[str, Mapping[str, Any]], site: str
) -> list[Finding]:
    return [
        Finding(
            expectation.name,
            bool(results[expectation.name]["success"]),
            expectation.blocking,
            details_of(expectation, results[expectation.name]),
            site=site,
        )
        for expectation in expectations
    ]


def _written(site: DocsSite | None, context: Callable[[], Any]) -> str:
    """Where the pages of a context of Great Expectations were written; "" if nowhere."""
    if site is None:
        return ""
    try:
        return site.write(context())
    except (AcidError, OSError) as error:  # what was found is not lost for that
        dg.get_dagster_logger().warning(f"no Data Docs in {site.place}: {error}")
        return ""


def _validated(
    name: str, expectations: Sequence[Expectation], results: Mapping[str, Mapping[str, Any]]
) -> Any:
    """A context of Great Expectations that holds results which queries found."""
    import great_expectations as gx
    from great_expectations.core import ExpectationSuiteValidationResult as SuiteResult
    from great_expectations.core import ExpectationValidationResult as Result
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    context = gx.get_context(mode="ephemeral")
    classes = [
        _class(each.kind)(**each.arguments, meta={"check": each.name}) for each in expectations
    ]
    context.suites.add(gx.ExpectationSuite(name=name, expectations=classes))
    nothing = {"raised_exception": False, "exception_message": None, "exception_traceback": None}
    found = [
        Result(
            success=bool(results[each.name]["success"]),
            expectation_config=configured.configuration,
            result={**results[each.name]},
            exception_info=nothing,
        )
        for each, configured in zip(expectations, classes, strict=True)
    ]
    passed = sum(bool(result.success) for result in found)
    statistics = {
        "evaluated_expectations": len(found),
        "successful_expectations": passed,
        "unsuccessful_expectations": len(found) - passed,
        "success_percent": 100.0 * passed / len(found),
    }
    identifier = ValidationResultIdentifier(
        ExpectationSuiteIdentifier(name), RunIdentifier(run_name="sql"), name
    )
    context.validation_results_store.set(
        identifier,
        SuiteResult(
            success=passed == len(found), results=found, suite_name=name, statistics=statistics
        ),
    )
    return context


def evaluate_profile(
    frame: Any,
    aggregates: Mapping[str, str],
    expectations: Sequence[Expectation],
    source: str = "",
) -> list[Finding]:
    """`evaluate` on a single row of SQL aggregates.

    `aggregates` maps column names to SQL expressions. `frame` is a Spark frame, or, with `source`,
    `sql` of a transaction or warehouse: what follows FROM, such as `shop.orders WHERE id > 3`. Then
    most expectations need neither a JVM nor Great Expectations. Raises CheckErrored.
    """
    named = [f"{text} AS {name}" for name, text in aggregates.items()]
    if not source:
        profile = frame.selectExpr(*named).first().asDict()
        findings = _of_row(profile, expectations)
    else:

        def query(text: str) -> Rows:
            rows: Rows = frame(text).to_arrow().to_pylist()
            return rows

        row = f"SELECT {', '.join(named)} FROM {source}"
        (profile,) = query(row)
        types = {name.lower(): _KINDS.get(type(value), "") for name, value in profile.items()}
        if any(unlike(expectation, types) for expectation in expectations):
            findings = _of_row(profile, expectations)
        else:
            results = evaluated(query, f"({row}) AS profile WHERE true", expectations)
            findings = _findings(expectations, results, "")
            page = data_docs(findings)
            findings = [replace(finding, docs=page) for finding in findings]
    return [
        replace(finding, details={**finding.details, "profile": profile}) for finding in findings
    ]


_KINDS: Mapping[type, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    Decimal: "decimal",
    str: "string",
    datetime.date: "date",
    datetime.datetime: "timestamp",
}


def _of_row(row: Mapping[str, Any], expectations: Sequence[Expectation]) -> list[Finding]:
    import pandas as pd

    return evaluate(pd.DataFrame([row]), expectations)


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
            opened.notice = context.log.info
            rows = CheckedRows(opened, opened.table(table).name, columns=columns)
            for finding in rows.evaluate(chosen):
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


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Rows of a table, and where they are read from."""

    warehouse: Warehouse
    table: str
    where: str | None = None
    columns: Sequence[str] | None = None
    """The columns that may be read; None: all."""
    txn: Transaction | None = None
    """Whose uncommitted rows are read, too."""

    def evaluate(
        self, expectations: Sequence[Expectation], key: Sequence[str] = ()
    ) -> list[Finding]:
        """As `evaluate`, at one snapshot: in SQL what SQL says, the others with Great Expectations
        in Spark. Raises CheckErrored, NeedsSpark, NoSuchTable.
        """
        if self.txn is None:
            with self.warehouse.transaction() as txn:
                return replace(self, txn=txn).evaluate(expectations, key)
        table = self.txn.table(self.table)
        names = None if self.columns is None else {name.lower() for name in self.columns}
        types = {
            column.name: column.type.kind
            for column in table.all_columns
            if names is None or column.name in names
        }
        left = {each.name: why for each in expectations if (why := unlike(each, types))}
        findings = self._in_sql([each for each in expectations if each.name not in left], key)
        findings += self._in_spark(
            table, [*types], [each for each in expectations if each.name in left], key, left
        )
        order = [each.name for each in expectations]
        findings.sort(key=lambda finding: order.index(finding.name))
        page = data_docs(findings)
        return [replace(finding, docs=page) for finding in findings]

    def _in_sql(self, expectations: Sequence[Expectation], key: Sequence[str]) -> list[Finding]:
        if not expectations:
            return []
        site = DocsSite.of(self.table, self.warehouse.run_id)
        assert self.txn is not None
        source = f"{dotted(self.table)} WHERE ({self.where or 'true'})"
        session = self.txn

        def query(text: str) -> Rows:
            answer: Any = session.sql(text)
            rows: Rows = answer.to_arrow().to_pylist()
            return rows

        results = evaluated(query, source, expectations, key)
        where = _written(site, lambda: _validated(self.table, expectations, results))
        return _findings(expectations, results, where)

    def _in_spark(
        self,
        table: TransactionTable,
        names: Sequence[str],
        expectations: Sequence[Expectation],
        key: Sequence[str],
        why: Mapping[str, str],
    ) -> list[Finding]:
        if not expectations:
            return []
        site = DocsSite.of(self.table, self.warehouse.run_id)

        def work(choice: Choice) -> list[Finding]:
            if choice.engine.name != "spark":
                first = expectations[0].name
                raise NeedsSpark(f"{why[first]} in the check {first}")
            return evaluate(table.read(names, self.where), expectations, key, site)

        return self.warehouse.engines.run(work, self.warehouse.metastore.in_force)
