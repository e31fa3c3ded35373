"""A configuration of tests: `-p tests.on_parquet`, or `make test-parquet`. New tables with full
ACID are stored in Parquet unless they state a format: the suites of tables run once more.

A test about the bytes of ORC, or about what ORC can't do, states that its tables are in ORC
(`IN_ORC`), and so it is the same in both configurations. What is said at the end counts the tests
that worked on a table with full ACID in Parquet, in the process of the test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from acid_platform.base.config import REGISTRY
from acid_platform.layout import formats

_NAME = "acid.format.default"
REGISTRY[_NAME] = replace(REGISTRY[_NAME], default="parquet")
_FORMAT = "format"
"""The property of a test's report that says which formats its tables with full ACID had."""
_seen: set[str] = set()
_told = formats.FileFormat.of


def _noticed(properties: Mapping[str, str]) -> formats.FileFormat:
    found = _told(properties)
    if found.keyed:
        _seen.add(found.name)
    return found


formats.FileFormat.of = _noticed  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _seen.clear()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "call":
        item.user_properties.append((_FORMAT, " and ".join(sorted(_seen))))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ran = Counter(
        dict(report.user_properties).get(_FORMAT, "")
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call"
    )
    on = sum(count for formats, count in ran.items() if "parquet" in formats)
    terminalreporter.write_sep(
        "=",
        f"{ran.total()} tests ran, {on} of them on tables with full ACID in Parquet,"
        f" {ran['orc']} on such in ORC alone",
    )
