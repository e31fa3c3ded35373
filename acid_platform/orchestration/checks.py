"""Data quality checks with Great Expectations, on Spark frames and on one-row profiles.

Importing Great Expectations takes seconds, so only the functions that evaluate import it. An
expectation that can't be evaluated is an error, not a failed check.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from inspect import signature
from math import isfinite
from typing import TYPE_CHECKING, Any

import dagster as dg

from acid_platform.base.visible import nearest_name
from acid_platform.errors import AcidError, CheckErrored, InvalidDefinition
from acid_platform.orchestration import markdown
from acid_platform.orchestration.docs_site import DocsSite
from acid_platform.orchestration.metadata import asset_key
from acid_platform.orchestration.resources import SparkResource, WarehouseResource

if TYPE_CHECKING:
    from acid_platform.orchestration.suites import Given


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation and the asset check that it becomes.

    `kind` is the class name in Great Expectations, `arguments` are those of the class. A failure
    aborts the transaction or stops downstream assets if `blocking`, otherwise it only warns. With
    `quarantine`, of an asset's `expectations` alone, the returned rows that fail are written to the
    table `…_quarantine` instead.
    """

    name: str
    kind: str
    arguments: Mapping[str, Any]
    description: str = ""
    blocking: bool = True
    quarantine: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """The columns that its arguments name."""
        single = (self.arguments.get(name) for name in ("column", "column_A", "column_B"))
        return frozenset(filter(None, (*single, *self.arguments.get("column_list", ()))))

    def spec(
        self, key: dg.AssetKey, partitions_def: dg.PartitionsDefinition[str] | None = None
    ) -> dg.AssetCheckSpec:
        """The check; with partitions, each evaluation is of one of them (P56)."""
        about: dict[str, Any] = {"description": self.description, "blocking": self.blocking}
        if partitions_def is not None and _CHECKS_HAVE_PARTITIONS:
            about["partitions_def"] = partitions_def
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.PreviewWarning)
            return dg.AssetCheckSpec(self.name, asset=key, **about)


_CHECKS_HAVE_PARTITIONS = "partitions_def" in signature(dg.AssetCheckSpec.__new__).parameters
"""Not in the first versions of Dagster 1.13."""
_PLOTTED = {
    "unexpected_count": "failed rows",
    "unexpected_percent": "failed rows, percent",
    "observed_value": "observed value",
}
_OBSERVED = (
    "observed_value",
    "unexpected_count",
    "unexpected_percent",
    "partial_unexpected_list",
    "unexpected_rows",
    "profile",
)
"""Details of a Finding that come from the data; the others are arguments of the expectation."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one expectation on the data."""

    name: str
    passed: bool
    blocking: bool = True
    details: Mapping[str, Any] = field(default_factory=dict)
    docs: str = ""
    """A Markdown page about all expectations that were evaluated together (see `data_docs`)."""
    site: str = ""
    """Where the same is as HTML (see `DocsSite`)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "passed", bool(self.passed))  # it may be a numpy.bool

    @property
    def blocks(self) -> bool:
        return self.blocking and not self.passed

    def result(self, key: dg.AssetKey) -> dg.AssetCheckResult:
        severity = dg.AssetCheckSeverity.ERROR if self.blocking else dg.AssetCheckSeverity.WARN
        return dg.AssetCheckResult(
            passed=self.passed,
            asset_key=key,
            check_name=self.name,
            severity=severity,
            metadata=self.metadata,
        )

    @property
    def metadata(self) -> dict[str, dg.MetadataValue]:
        metadata: dict[str, dg.MetadataValue] = {
            name: dg.MetadataValue.float(value)
            if isinstance(value, float)
            else dg.MetadataValue.int(value)
            for name, value in self.numbers.items()
        }
        metadata["details"] = dg.MetadataValue.json(
            json.loads(json.dumps(dict(self.details), default=_plain))
        )
        if samples := self.samples:
            metadata["unexpected rows"] = dg.MetadataValue.table(
                [dg.TableRecord(sample) for sample in samples]
            )
        if self.docs:
            metadata["data docs"] = dg.MetadataValue.md(self.docs)
        if self.site:
            served = self.site.startswith(("http://", "https://"))
            metadata["data docs site"] = (
                dg.MetadataValue.url(self.site) if served else dg.MetadataValue.path(self.site)
            )
        return metadata

    @property
    def numbers(self) -> dict[str, int | float]:
        """What Dagster plots by run: failed rows, their share, the observed value; of a check that
        a body evaluated, each number of its details."""
        found = {}
        for name, detail in self.details.items():
            shown = _PLOTTED.get(name) or ("" if self.kind else name)
            value = float(detail) if isinstance(detail, Decimal) else detail
            value = value.item() if hasattr(value, "item") else value
            whole = isinstance(value, int) and not isinstance(value, bool)
            if shown and (whole or (isinstance(value, float) and isfinite(value))):
                found[shown] = value
        return found

    @property
    def samples(self) -> list[dict[str, str]]:
        """Some failing rows: the checked column and the asset's key columns, if it has a key."""
        column = str(self.details.get("column", "value"))
        rows = self.details.get("unexpected_rows") or self.details.get("partial_unexpected_list")
        return [
            {name: str(value) for name, value in row.items()}
            if isinstance(row, Mapping)
            else {column: str(row)}
            for row in rows or ()
        ]

    @property
    def kind(self) -> str:
        """The class name of the expectation, if Great Expectations evaluated it."""
        return str(self.details.get("expectation", ""))

    @property
    def arguments(self) -> str:
        return ", ".join(
            f"{name}={value!r}"
            for name, value in self.details.items()
            if name not in _OBSERVED and name != "expectation"
        )

    @property
    def observed(self) -> str:
        """What was observed in the data; if the check passed, little is known."""
        observations = []
        if (count := self.details.get("unexpected_count")) is not None:
            share = self.details.get("unexpected_percent")
            observations.append(f"{count:,} unexpected" + (f" ({share:.3g} %)" if share else ""))
        if (value := self.details.get("observed_value")) is not None:
            observations.append(f"observed {value}")
        return ", ".join(observations)

    def __str__(self) -> str:
        result = "passed" if self.passed else "FAILED"
        return f"{self.name} {result}" + (f" {dict(self.details)}" if self.details else "")


def _plain(value: Any) -> Any:
    """A value that JSON lacks: numpy numbers as Python's, anything else as text."""
    return value.item() if hasattr(value, "item") else str(value)


def data_docs(findings: Sequence[Finding]) -> str:
    """The content of Great Expectations' Data Docs as a Markdown page.

    The page becomes metadata of the run, so every reader of Dagster's pages sees it. A link to a
    file would only open on the machine of the run.
    """
    failed = [finding for finding in findings if not finding.passed]
    lines = [
        f"{len(findings) - len(failed)} of {len(findings)} expectations hold.",
        "",
        "| result | check | expectation | arguments | found |",
        "|---|---|---|---|---|",
        *(
            _row(
                (
                    "passed" if finding.passed else "**FAILED**" if finding.blocking else "warns",
                    finding.name,
                    finding.kind,
                    finding.arguments,
                    finding.observed,
                )
            )
            for finding in findings
        ),
    ]
    for finding in failed:
        if samples := finding.samples:
            lines += [
                "",
                f"### Some rows that fail {markdown.as_line(finding.name)}",
                "",
                _row(samples[0]),
                "|" + "---|" * len(samples[0]),
                *(_row(sample.values()) for sample in samples),
            ]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return "".join(f"| {markdown.as_line(cell)} " for cell in cells) + "|"


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
    from acid_platform.orchestration.suites import expectations_of, require_known, require_names

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
        from acid_platform.orchestration.checked_rows import CheckedRows

        selected = {check.name for check in context.selected_asset_check_keys}
        chosen = [expectation for expectation in expectations if expectation.name in selected]
        with warehouse.open(context.run.run_id, lambda: spark.spark_session) as opened:
            for finding in CheckedRows.of_table(opened, table, columns=columns).evaluate(chosen):
                yield finding.result(key)

    return checks


def refuse_quarantine(expectations: Sequence[Expectation], owner: str) -> None:
    """Raises InvalidDefinition for checks of rows that are written already."""
    for expectation in expectations:
        if expectation.quarantine:
            raise InvalidDefinition(
                f"{owner}: the check {expectation.name} can't set rows aside; quarantine=True is"
                " for the expectations of an asset"
            )


def require_columns(
    expectations: Sequence[Expectation], columns: Iterable[str], owner: str, advice: str = ""
) -> None:
    """Raises InvalidDefinition, with the advice, if an expectation names an unknown column.

    It is called when a module is loaded, so a misspelt column is found before a run starts.
    """
    names = {column.lower() for column in columns}
    for expectation in expectations:
        if unknown := sorted(
            column for column in expectation.columns if column.lower() not in names
        ):
            near = nearest_name(unknown[0].lower(), names)
            raise InvalidDefinition(
                f"{owner}: the expectation {expectation.name} names the column"
                f" {', '.join(map(repr, unknown))}; the columns are {', '.join(sorted(names))}"
                f"{advice}{f'; did you mean {near}?' if near else ''}"
            )


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
