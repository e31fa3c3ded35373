"""The page docs/internal/published-tests.md: `python -m tests.published.page` prints it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.conformance.slt import PUBLISHED, Case, cases

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internal" / "published-tests.md"
_HEAD = """\
# Published tests of others

Cases of what the published tests of Hive, Trino, Delta Lake, Iceberg and Spark, and reports of
wrong answers, ask of a table and of a SELECT: what passes here, what is refused by name and
why, and what is answered otherwise on purpose. Each case stands for a published test or report
and is expressed anew: tables, names, values and texts are ours. The rows are those that the
published test wants, carried over to these values, or follow from the rules of SQL and Hive;
none comes from a run of ours.

The files are `tests/published/*.slt`, in the form of
[sqllogictest](https://www.sqlite.org/sqllogictest/doc/trunk/about.wiki), so that other engines can
run them, too; the docstring of `tests/conformance/slt.py` says which part of the form they use.
`make test-all` runs those of Hive, Trino and Spark in the local engine, and `make test-full` all of
them in both engines. These are all without a JVM:

```
.venv/bin/python -m pytest tests/conformance -k published -m "not spark"
```

A case passes if its rows are right, and if it gets an error where the published test wants one. In
Spark alone: the local engine refuses a statement of the case by NeedsSpark, as the run without a
JVM checks, and `engine="auto"` takes Spark.

Where the tests are:

| project | repository | directory |
| --- | --- | --- |
| Hive | apache/hive | ql/src/test/queries |
| Trino | trinodb/trino | testing/trino-product-tests: TestHiveMerge, TestHiveTransactionalTable |
| Delta | delta-io/delta | spark/src/test/scala |
| Iceberg | apache/iceberg | spark/v3.5: TestMerge, TestUpdate, TestDelete and others |
| Spark | apache/spark | sql/core/src/test: suites in Scala, and resources/sql-tests/inputs |
| Reports | as named, with a number | issues and pull requests |

This page is printed from the cases by `python -m tests.published.page`; a test fails when it is
older.

## What passes
"""


def render() -> str:
    found = cases(PUBLISHED)
    passing = [case for case in found if not (case.refused or case.differs)]
    refused = [case for case in found if case.refused]
    differing = [case for case in found if case.differs]
    projects = list(dict.fromkeys(case.project for case in found))
    counts = [
        (
            project,
            *(
                str(sum(case.project == project for case in some))
                for some in (found, passing, refused, differing)
            ),
            str(sum(case.project == project and case.needs_spark for case in passing)),
        )
        for project in projects
    ]
    total = ["**all**", *(str(sum(int(row[i]) for row in counts)) for i in range(1, 6))]
    heads = ("", "cases", "pass", "refused by name", "answered otherwise", "pass, in Spark alone")
    return "\n".join(
        [
            _HEAD,
            _table(heads, [*counts, total]),
            "## Refused by name\n",
            _table(("project", "test", "what it does", "why"), map(_reason, refused)),
            "## Answered otherwise\n",
            _table(("project", "test", "what it does", "here"), map(_reason, differing)),
            *_passing(projects, passing),
        ]
    )


def _reason(case: Case) -> tuple[str, ...]:
    return case.project, case.test, case.shows, case.refused or case.differs


def _passing(projects: Sequence[str], passing: Sequence[Case]) -> Iterator[str]:
    for project in projects:
        rows = [(case.test, case.shows) for case in passing if case.project == project]
        yield f"## {project}\n"
        yield _table(("test", "what it shows"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ((cell.replace("|", "\\|").replace("<", "&lt;") for cell in line) for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())
