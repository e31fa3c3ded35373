"""What a check found, and the pages that show it: Markdown in Dagster, and Data Docs as HTML."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any

import dagster as dg

from acid_platform.base.clock import wall_ms
from acid_platform.base.local_files import scratch_directory
from acid_platform.base.paths import user_path
from acid_platform.display.markdown_text import escaped_line, table_line
from acid_platform.storage.files import Files, asking

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
            table_line(
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
                f"### Some rows that fail {escaped_line(finding.name)}",
                "",
                table_line(samples[0]),
                "|" + "---|" * len(samples[0]),
                *(table_line(sample.values()) for sample in samples),
            ]
    return "\n".join(lines)


PLACE = "ACID_DATA_DOCS"
"""A local folder or an URI such as s3://bucket/prefix."""
ADDRESS = "ACID_DATA_DOCS_URL"
"""Where a browser finds that place."""
_NAME = "evaluation"


@dataclass(frozen=True, slots=True)
class DocsSite:
    """Where the pages of one evaluation go."""

    place: str
    address: str
    """Its URL, or the place itself."""
    table: str

    @classmethod
    def of(cls, table: str, run_id: str) -> DocsSite | None:
        """None if no place is set."""
        named = os.environ.get(PLACE, "")
        if not named:
            return None
        directory = user_path(named)
        name = f"{table}/{wall_ms()}-{run_id or os.getpid()}"
        address = os.environ.get(ADDRESS, "").rstrip("/") or directory
        return cls(f"{directory}/{name}", f"{address}/{name}", table)

    def write(self, context: Any) -> str:
        """Writes the pages of a context of Great Expectations with one validation result; returns
        where the page of that result is.

        Raises OSError, WarehouseNotWritable, StoreRefused, StoreUnavailable.
        """
        _escape_results(context.validation_results_store)
        with scratch_directory("docs") as folder:
            backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": folder}
            context.add_data_docs_site(
                _NAME,
                {
                    "class_name": "SiteBuilder",
                    "show_how_to_buttons": False,
                    "store_backend": backend,
                },
            )
            context.build_data_docs(site_names=[_NAME])
            # The images and fonts beside them are not on these pages.
            pages = [page.relative_to(folder) for page in Path(folder).rglob("*.html")]
            files, root = Files.of(self.place)
            for page in pages:
                path = f"{root}/{page.as_posix()}"
                files.make_directory(path.rpartition("/")[0])
                with (
                    asking(path),
                    files.system.open_output_stream(
                        path, metadata={"Content-Type": "text/html; charset=utf-8"}
                    ) as stream,
                ):
                    stream.write(Path(folder, page).read_bytes())
        own = next(page for page in pages if page.parts[0] == "validations")
        return f"{self.address}/{own.as_posix()}"


def _escape_results(store: Any) -> None:
    """Great Expectations would put values of rows into its pages as they are, as HTML (P67)."""
    for key in store.list_keys():
        validated = store.get(key)
        for each in validated.results:
            each.result = _escaped(each.result)
        store.set(key, validated)


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return escape(value, quote=False)
        case dict():
            return {name: _escaped(item) for name, item in value.items()}
        case list() | tuple():
            return [_escaped(item) for item in value]
    return value
