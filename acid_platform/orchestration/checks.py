"""Data quality by Great Expectations, on Spark frames and on one-row profiles.

Great Expectations takes seconds to import: only functions that evaluate do so. An expectation that
can't be evaluated is an error, never a failed check.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg

from acid_platform.errors import CheckErrored
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

    def spec(self, key: dg.AssetKey) -> dg.AssetCheckSpec:
        return dg.AssetCheckSpec(
            self.name, asset=key, description=self.description, blocking=self.blocking)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one expectation says about the data."""

    name: str
    passed: bool
    blocking: bool = True
    details: Mapping[str, Any] = field(default_factory=dict)
    docs: str = ""
    """Address of the page of Data Docs that shows it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "passed", bool(self.passed))  # pandas and numpy have their own

    @property
    def blocks(self) -> bool:
        return self.blocking and not self.passed

    def result(self, key: dg.AssetKey) -> dg.AssetCheckResult:
        severity = dg.AssetCheckSeverity.ERROR if self.blocking else dg.AssetCheckSeverity.WARN
        return dg.AssetCheckResult(
            passed=self.passed, asset_key=key, check_name=self.name, severity=severity,
            metadata=self.metadata)

    @property
    def metadata(self) -> dict[str, dg.MetadataValue]:
        metadata: dict[str, dg.MetadataValue] = {
            "details": dg.MetadataValue.json(
                json.loads(json.dumps(dict(self.details), default=_plain)))}
        if samples := self.samples:
            metadata["unexpected rows"] = dg.MetadataValue.table(
                [dg.TableRecord(one) for one in samples])
        if self.docs:
            metadata["data docs"] = dg.MetadataValue.url(self.docs)
        return metadata

    @property
    def samples(self) -> list[dict[str, str]]:
        """Some rows that failed: the asset's key columns and the column looked at, or its values
        alone where the asset has no key."""
        column = str(self.details.get("column", "value"))
        rows = self.details.get("unexpected_rows") or self.details.get("partial_unexpected_list")
        return [{name: str(value) for name, value in one.items()} if isinstance(one, Mapping)
                else {column: str(one)} for one in rows or ()]

    def __str__(self) -> str:
        told = "passed" if self.passed else "FAILED"
        return f"{self.name} {told}" + (f" {dict(self.details)}" if self.details else "")


def _plain(value: Any) -> Any:
    """What JSON does not have: numpy's numbers, and anything else as its text."""
    return value.item() if hasattr(value, "item") else str(value)


def data_docs(context: dg.OpExecutionContext | dg.AssetExecutionContext, name: str) -> Path:
    """Where Data Docs of a step go: beside its compute logs, and removed with its run's."""
    return Path(context.instance.storage_directory(), context.run.run_id, "data_docs", name)


def evaluate(
    frame: Any, expectations: Sequence[Expectation], key: Sequence[str] = (),
    docs: Path | None = None,
) -> list[Finding]:
    """A finding for each expectation, in their order, over a Spark or pandas frame.

    The data is looked at once for all; those that fail are looked at again for the counts and
    examples that explain why, with the columns of `key`. Great Expectations writes its Data Docs
    below `docs`. Raises CheckErrored when one can't be evaluated.
    """
    validator = _Validator(frame, docs)
    results = validator.run(expectations, {"result_format": "BOOLEAN_ONLY"})
    failed = [one for one in expectations if not results[one.name]["success"]]
    if failed:
        results |= validator.run(failed, {
            "result_format": "SUMMARY",
            **({"unexpected_index_column_names": list(key)} if key else {})})
    return [
        Finding(one.name, bool(results[one.name]["success"]), one.blocking,
                _details(one, results[one.name]), validator.address)
        for one in expectations
    ]


def evaluate_profile(
    frame: Any, aggregates: Mapping[str, str], expectations: Sequence[Expectation]
) -> list[Finding]:
    """As `evaluate`, on the single row of SQL aggregates: one Spark job for all of them."""
    import pandas as pd

    profile = frame.selectExpr(
        *(f"{text} AS {name}" for name, text in aggregates.items())).first().asDict()
    findings = evaluate(pd.DataFrame([profile]), expectations)
    return [replace(one, details={**one.details, "profile": profile}) for one in findings]


def table_checks(
    name: str, table: str, expectations: Sequence[Expectation],
    columns: Sequence[str] | None = None,
) -> dg.AssetChecksDefinition:
    """The checks of a whole table, as one op that reads the columns at one snapshot."""
    key = asset_key(table)

    @dg.multi_asset_check(name=name, specs=[one.spec(key) for one in expectations])
    def checks(
        context: dg.AssetCheckExecutionContext, warehouse: dg.ResourceParam[WarehouseAccess],
        spark: dg.ResourceParam[SparkAccess],
    ) -> Iterator[dg.AssetCheckResult]:
        with warehouse.open(context.run.run_id, spark.spark_session) as opened:
            frame = opened.table(table).read(columns)
            for finding in evaluate(frame, expectations):
                yield finding.result(key)

    return checks


class _Validator:
    """Great Expectations over one frame."""

    def __init__(self, frame: Any, docs: Path | None) -> None:
        os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # read when GX is imported
        import great_expectations as gx
        import pandas as pd

        self.frame, self.docs = frame, docs
        self.context = gx.get_context(mode="ephemeral")
        self.context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
        sources: Any = self.context.data_sources
        source = sources.add_pandas("frame") if isinstance(frame, pd.DataFrame) \
            else sources.add_spark("frame", persist=False)
        self.batch = source.add_dataframe_asset("frame").add_batch_definition_whole_dataframe("all")
        if docs:
            self.context.add_data_docs_site("checks", {
                "class_name": "SiteBuilder",
                "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
                "store_backend": {"class_name": "TupleFilesystemStoreBackend",
                                  "base_directory": str(docs)},
            })

    @property
    def address(self) -> str:
        return (self.docs / "index.html").absolute().as_uri() if self.docs else ""

    def run(
        self, expectations: Sequence[Expectation], detail: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Results by the name of the expectation: they do not come back in order."""
        import great_expectations as gx
        from great_expectations.checkpoint.actions import UpdateDataDocsAction

        name = str(detail["result_format"]).lower()
        suite = self.context.suites.add(gx.ExpectationSuite(name=name, expectations=[
            getattr(gx.expectations, one.kind)(**one.arguments, meta={"check": one.name})
            for one in expectations
        ]))
        validation = self.context.validation_definitions.add(gx.ValidationDefinition(
            name=name, data=self.batch, suite=suite))
        checkpoint = self.context.checkpoints.add(gx.Checkpoint(
            name=name, validation_definitions=[validation], result_format=dict(detail),
            actions=[UpdateDataDocsAction(name="docs", site_names=["checks"])]
            if self.docs else []))
        done = checkpoint.run(batch_parameters={"dataframe": self.frame})
        results = {}
        for report in done.run_results.values():
            for one in report.results:
                config: Any = one.expectation_config
                check = config.meta["check"]
                if message := errored(one.exception_info):
                    raise CheckErrored(
                        f"expectation {check!r} could not be evaluated: {message}; correct the"
                        " expectation or the columns that it names")
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
    told = {key: value for key, value in result.items()
            if key in ("observed_value", "unexpected_count", "unexpected_percent",
                       "partial_unexpected_list")}
    rows = result.get("partial_unexpected_index_list", ())
    if rows and isinstance(rows[0], Mapping):  # without key columns they are mere positions
        told["unexpected_rows"] = rows
    return {"expectation": expectation.kind, **expectation.arguments, **told}
