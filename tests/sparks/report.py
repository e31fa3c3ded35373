"""What the suites did with each version of Spark: read from pytest's reports, shown as a table."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_REFUSED = re.compile(r"\bneeds? Spark \d\.\d or newer\b")
"""In the message of a test that failed since the platform refuses something with this version."""

Outcome = dict[str, Any]
"""`passed` and `seconds`, and by test what `failed`, was `refused` or `skipped`."""


def outcome(report: Path) -> Outcome:
    """The outcome of a suite from its report in JUnit's format."""
    found: Outcome = {"passed": 0, "failed": {}, "refused": {}, "skipped": {}, "seconds": 0}
    for suite in ET.parse(report).getroot().iter("testsuite"):
        found["seconds"] += round(float(suite.get("time", 0)))
        for case in suite.iter("testcase"):
            name = f"{case.get('classname', '').replace('.', '/')}::{case.get('name')}"
            for kind, message, text in _marks(case):
                refused = _REFUSED.search(message) or _REFUSED.search(text)
                found["refused" if kind == "failed" and refused else kind][name] = message[:300]
                break
            else:
                found["passed"] += 1
    return found


def _marks(case: ET.Element) -> Iterator[tuple[str, str, str]]:
    kinds = {"failure": "failed", "error": "failed", "skipped": "skipped"}
    for mark in case:
        if mark.tag in kinds:
            yield kinds[mark.tag], mark.get("message", ""), mark.text or ""


def merged(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """A result with what a later run of the same day measured put in its place."""
    sparks = {version: dict(suites) for version, suites in before.get("sparks", {}).items()}
    for version, suites in now["sparks"].items():
        sparks.setdefault(version, {}).update(suites)
    return {**now, "sparks": dict(sorted(sparks.items()))}


def table(result: Mapping[str, Any]) -> str:
    """The result as Markdown."""
    lines = [
        f"# Suites by version of Spark, {result['date']}",
        "",
        "| Spark | suite | passed | refused | skipped | failed | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    reasons: list[str] = []
    for version, suites in result["sparks"].items():
        for name, one in suites.items():
            numbers = [one["passed"], *(len(one[kind]) for kind in _TOLD), one["seconds"]]
            lines.append(f"| {version} | {name} | {' | '.join(map(str, numbers))} |")
            reasons += [
                f"- {version}, {name}, {kind}: `{test}`: {why.splitlines()[0] if why else ''}"
                for kind in _TOLD
                for test, why in one[kind].items()
            ]
    return "\n".join([*lines, *(["", *reasons] if reasons else [])]) + "\n"


_TOLD = ("refused", "skipped", "failed")
