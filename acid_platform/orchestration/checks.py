"""Data quality by Great Expectations, on Spark frames and on one-row profiles.

Great Expectations takes seconds to import: only functions that evaluate do so. An expectation that
can't be evaluated is an error, never a failed check.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg

from acid_platform.errors import CheckErrored, InvalidDefinition
from acid_platform.orchestration.access import SparkAccess, WarehouseAccess
from acid_platform.orchestration.metadata import asset_key


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation by its class name in Great Expectations, and the asset check it becomes.

    `blocking`: a failure stops the transaction or the downstream assets; else it only warns.
    """

    name: str
    kind: str
    arguments: Mapping[str, Any]
    description: str = ""
    blocking: bool = True

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the data that its arguments name."""
        one = (self.arguments.get(name) for name in ("column", "column_A", "column_B"))
        return frozenset(filter(None, (*one, *self.arguments.get("column_list", ()))))

    def spec(self, key: dg.AssetKey) -> dg.AssetCheckSpec:
        return dg.AssetCheckSpec(
            self.name, asset=key, description=self.description, blocking=self.blocking
        )


_FOUND = (
    "observed_value",
    "unexpected_count",
    "unexpected_percent",
    "partial_unexpected_list",
    "unexpected_rows",
    "profile",
)
"""Details of a Finding that come from the data; the others are the expectation's arguments."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one expectation says about the data."""

    name: str
    passed: bool
    blocking: bool = True
    details: Mapping[str, Any] = field(default_factory=dict)
    docs: str = ""
    """A page in Markdown about all expectations that were evaluated together (`data_docs`)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "passed", bool(self.passed))  # pandas and numpy have their own

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
            "details": dg.MetadataValue.json(
                json.loads(json.dumps(dict(self.details), default=_plain))
            )
        }
        if samples := self.samples:
            metadata["unexpected rows"] = dg.MetadataValue.table(
                [dg.TableRecord(one) for one in samples]
            )
        if self.docs:
            metadata["data docs"] = dg.MetadataValue.md(self.docs)
        return metadata

    @property
    def samples(self) -> list[dict[str, str]]:
        """Some rows that failed: the asset's key columns and the column looked at, or its values
        alone where the asset has no key."""
        column = str(self.details.get("column", "value"))
        rows = self.details.get("unexpected_rows") or self.details.get("partial_unexpected_list")
        return [
            {name: str(value) for name, value in one.items()}
            if isinstance(one, Mapping)
            else {column: str(one)}
            for one in rows or ()
        ]

    @property
    def kind(self) -> str:
        """The expectation's class name, if Great Expectations found it."""
        return str(self.details.get("expectation", ""))

    @property
    def arguments(self) -> str:
        return ", ".join(
            f"{name}={value!r}"
            for name, value in self.details.items()
            if name not in _FOUND and name != "expectation"
        )

    @property
    def observed(self) -> str:
        """What was found in the data, as far as it is known: little of what passed."""
        told = []
        if (count := self.details.get("unexpected_count")) is not None:
            share = self.details.get("unexpected_percent")
            told.append(f"{count:,} unexpected" + (f" ({share:.3g} %)" if share else ""))
        if (value := self.details.get("observed_value")) is not None:
            told.append(f"observed {value}")
        return ", ".join(told)

    def __str__(self) -> str:
        told = "passed" if self.passed else "FAILED"
        return f"{self.name} {told}" + (f" {dict(self.details)}" if self.details else "")


def _plain(value: Any) -> Any:
    """What JSON does not have: numpy's numbers, and anything else as its text."""
    return value.item() if hasattr(value, "item") else str(value)


def data_docs(findings: Sequence[Finding]) -> str:
    """What Data Docs of Great Expectations show, as one page in Markdown.

    It is metadata of the run, so that a browser shows it wherever Dagster's pages are read: a link
    to a file on the machine of the run would open nowhere else.
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
                f"### Some rows that fail {_cell(finding.name)}",
                "",
                _row(samples[0]),
                "|" + "---|" * len(samples[0]),
                *(_row(sample.values()) for sample in samples),
            ]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return "".join(f"| {_cell(cell)} " for cell in cells) + "|"


def _cell(text: str) -> str:
    """A value of the data must neither end its cell nor become markup."""
    return re.sub(r"([\\|<>`\[\]])", r"\\\1", " ".join(text.split()))


def evaluate(
    frame: Any, expectations: Sequence[Expectation], key: Sequence[str] = ()
) -> list[Finding]:
    """A finding for each expectation, in their order, over a Spark or pandas frame.

    The data is looked at once for all; those that fail are looked at again for the counts and
    examples that explain why, with the columns of `key`. Raises CheckErrored when one can't be
    evaluated.
    """
    validator = _Validator(frame)
    results = validator.run(expectations, {"result_format": "BOOLEAN_ONLY"})
    failed = [one for one in expectations if not results[one.name]["success"]]
    if failed:
        results |= validator.run(
            failed,
            {
                "result_format": "SUMMARY",
                **({"unexpected_index_column_names": list(key)} if key else {}),
            },
        )
    findings = [
        Finding(
            one.name,
            bool(results[one.name]["success"]),
            one.blocking,
            _details(one, results[one.name]),
        )
        for one in expectations
    ]
    page = data_docs(findings)
    return [replace(finding, docs=page) for finding in findings]


def evaluate_profile(
    frame: Any, aggregates: Mapping[str, str], expectations: Sequence[Expectation]
) -> list[Finding]:
    """As `evaluate`, on the single row of SQL aggregates: one Spark job for all of them."""
    import pandas as pd

    profile = (
        frame.selectExpr(*(f"{text} AS {name}" for name, text in aggregates.items()))
        .first()
        .asDict()
    )
    findings = evaluate(pd.DataFrame([profile]), expectations)
    return [replace(one, details={**one.details, "profile": profile}) for one in findings]


def table_checks(
    name: str,
    table: str,
    expectations: Sequence[Expectation],
    columns: Sequence[str] | None = None,
) -> dg.AssetChecksDefinition:
    """The checks of a whole table, as one op that reads the columns at one snapshot.

    A run may select some of them, so that each can be executed from its own page. Raises
    InvalidDefinition for an expectation about a column that is not among `columns`.
    """
    key = asset_key(table)
    if columns is not None:
        require_columns(expectations, columns, f"the checks {name} of {table}")

    @dg.multi_asset_check(name=name, specs=[one.spec(key) for one in expectations], can_subset=True)
    def checks(
        context: dg.AssetCheckExecutionContext,
        warehouse: dg.ResourceParam[WarehouseAccess],
        spark: dg.ResourceParam[SparkAccess],
    ) -> Iterator[dg.AssetCheckResult]:
        selected = {check.name for check in context.selected_asset_check_keys}
        wanted = [one for one in expectations if one.name in selected]
        with warehouse.open(context.run.run_id, spark.spark_session) as opened:
            frame = opened.table(table).read(columns)
            for finding in evaluate(frame, wanted):
                yield finding.result(key)

    return checks


def require_columns(
    expectations: Sequence[Expectation], columns: Iterable[str], owner: str
) -> None:
    """When a module is loaded: no run has to start for a misspelt column.

    Raises InvalidDefinition.
    """
    known = {column.lower() for column in columns}
    for expectation in expectations:
        if unknown := sorted(one for one in expectation.columns if one.lower() not in known):
            raise InvalidDefinition(
                f"{owner}: the expectation {expectation.name} names the column"
                f" {', '.join(map(repr, unknown))}; the columns are {', '.join(sorted(known))}"
            )


class _Validator:
    """Great Expectations over one frame."""

    def __init__(self, frame: Any) -> None:
        os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # read when GX is imported
        import great_expectations as gx
        import pandas as pd

        self.frame = frame
        self.context = gx.get_context(mode="ephemeral")
        self.context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
        sources: Any = self.context.data_sources
        source = (
            sources.add_pandas("frame")
            if isinstance(frame, pd.DataFrame)
            else sources.add_spark("frame", persist=False)
        )
        self.batch = source.add_dataframe_asset("frame").add_batch_definition_whole_dataframe("all")

    def run(
        self, expectations: Sequence[Expectation], detail: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Results by the name of the expectation: they do not come back in order."""
        import great_expectations as gx

        name = str(detail["result_format"]).lower()
        suite = self.context.suites.add(
            gx.ExpectationSuite(
                name=name,
                expectations=[
                    getattr(gx.expectations, one.kind)(**one.arguments, meta={"check": one.name})
                    for one in expectations
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
        done = checkpoint.run(batch_parameters={"dataframe": self.frame})
        results = {}
        for report in done.run_results.values():
            for one in report.results:
                config: Any = one.expectation_config
                check = config.meta["check"]
                if message := errored(one.exception_info):
                    raise CheckErrored(
                        f"expectation {check!r} could not be evaluated: {message}; correct the"
                        " expectation or the columns that it names"
                    )
                results[check] = {"success": one.success, **(one.result or {})}
        return results


def errored(info: Mapping[str, Any] | None) -> str | None:
    """The message of an expectation that raised, in either shape of `exception_info`: flat, or one
    such dict per metric."""
    if not info:
        return None
    shapes = [info] if "raised_exception" in info else list(info.values())
    for one in shapes:
        if isinstance(one, Mapping) and one.get("raised_exception"):
            return str(one.get("exception_message") or "no message")
    return None


def _details(expectation: Expectation, result: Mapping[str, Any]) -> dict[str, Any]:
    told = {
        key: value
        for key, value in result.items()
        if key
        in ("observed_value", "unexpected_count", "unexpected_percent", "partial_unexpected_list")
    }
    rows = result.get("partial_unexpected_index_list", ())
    if rows and isinstance(rows[0], Mapping):  # without key columns they are mere positions
        told["unexpected_rows"] = rows
    return {"expectation": expectation.kind, **expectation.arguments, **told}
