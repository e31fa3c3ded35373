"""What depends on the version of Spark stands in one table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from xml.sax.saxutils import quoteattr

import pyspark
import pytest

from acid_platform import SparkMisconfigured
from acid_platform.engine.spark import VERSIONS, session, spark_version, version_of
from tests.sparks import report
from tests.sparks.environments import needed

JAVA = Path(session.__file__).parent / "java"


def test_P17_a_version_has_its_row_and_a_newer_one_that_of_the_newest() -> None:
    for (major, minor), row in VERSIONS.items():
        assert spark_version(f"{major}.{minor}.0") is row
        assert spark_version(f"{major}.{minor}.7-SNAPSHOT") is row
    newest = VERSIONS[max(VERSIONS)]
    assert spark_version("4.99.0") is newest
    assert spark_version("5.0.0.dev1") is newest


def test_P17_an_old_version_is_refused_by_name() -> None:
    with pytest.raises(SparkMisconfigured, match=r"this is Spark 3\.5\.9, .* needs Spark 4\.0 or"):
        spark_version("3.5.9")


def test_P17_an_old_PySpark_is_refused_before_anything_of_it_is_used() -> None:
    script = (
        "import pyspark; pyspark.__version__ = '3.5.9'; import acid_platform.engine.spark.few_calls"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "SparkMisconfigured: this is Spark 3.5.9" in done.stderr


def test_P17_each_version_has_the_same_classes_of_ours() -> None:
    """And no class is in the common directory too."""
    common = {path.name for path in (JAVA / "acidplatform").glob("*.java")}
    directories = {row.java for row in VERSIONS.values()}
    special = {name: {path.name for path in (JAVA / name).iterdir()} for name in directories}
    assert len({frozenset(names) for names in special.values()}) == 1
    assert not common & set.union(*special.values())
    assert {path.name for path in JAVA.iterdir()} == {"acidplatform", *special}


def test_P17_a_client_and_a_server_of_two_versions_have_what_both_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Server:
        version = "4.1.4"

    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    assert version_of(cast(Any, Server())) is VERSIONS[4, 1]
    Server.version = "4.9.0"
    assert version_of(cast(Any, Server())) is VERSIONS[4, 3]


class Executors:
    """A session whose executors answer with these rows, or fail with this text."""

    version = "4.1.4"

    def __init__(self, *versions: str, error: str = "") -> None:
        self._rows = [{"host": "h", "spark": version, "problem": ""} for version in versions]
        self._error = error

    def range(self, *_: object) -> Executors:
        return self

    selectExpr = mapInArrow = range

    def collect(self) -> list[dict[str, str]]:
        if self._error:
            raise RuntimeError(self._error)
        return self._rows


def test_P17_executors_with_another_version_are_refused_by_name() -> None:
    session.check_executors(cast(Any, Executors("4.1.4", "4.1.4")))
    with pytest.raises(SparkMisconfigured, match=r"Spark 4\.1\.4, and its executors 4\.1\.3: "):
        session.check_executors(cast(Any, Executors("4.1.4", "4.1.3")))
    error = (
        "Job aborted\nCaused by: java.io.InvalidClassException: org.apache.spark.sql.X; local class"
    )
    with pytest.raises(SparkMisconfigured, match="its executors another version"):
        session.check_executors(cast(Any, Executors(error=error)))
    with pytest.raises(RuntimeError, match="the disk is full"):
        session.check_executors(cast(Any, Executors(error="the disk is full")))


# --- make lab-test-sparks -------------------------------------------------------------------------


def test_an_environment_has_the_lock_but_another_PySpark() -> None:
    lock = (
        "pyreadline3==3.5.6 \\\n    --hash=sha256:1\n    # via x\n"
        "pyspark[connect]==4.3.0 \\\n    --hash=sha256:2\n    # via\n    #   dagster-pyspark\n"
        "pytest==9.2.0 \\\n    --hash=sha256:3\n"
    )
    changed = needed("4.1.4", lock)
    assert "pyspark[connect]==4.1.4\npytest==9.2.0" in changed
    assert re.findall(r"sha256:(\d)", changed) == ["1", "3"]
    with pytest.raises(ValueError, match="0 entries"):
        needed("4.1.4", "pytest==9.2.0\n")


def test_the_table_tells_what_failed_and_what_was_refused(tmp_path: Path) -> None:
    refusal = "InvalidDefinition: maxCommitsPerTrigger needs Spark 4.2 or newer, and this is 4.1.4"
    path = tmp_path / "report.xml"
    path.write_text(
        '<testsuites><testsuite time="12.4">'
        '<testcase classname="tests.a" name="good"/>'
        f'<testcase classname="tests.a" name="old"><failure message={quoteattr(refusal)}/>'
        "</testcase>"
        '<testcase classname="tests.a" name="bad"><error message="KeyError: 1">x</error></testcase>'
        '<testcase classname="tests.a" name="not"><skipped message="no server"/></testcase>'
        "</testsuite></testsuites>"
    )
    found = report.outcome(path)
    assert found == {
        "passed": 1,
        "failed": {"tests/a::bad": "KeyError: 1"},
        "refused": {"tests/a::old": refusal},
        "skipped": {"tests/a::not": "no server"},
        "seconds": 12,
    }
    first = {"date": "2026-11-27", "sparks": {"4.1.4": {"engine": found, "sql": found}}}
    again = {"date": "2026-11-27", "sparks": {"4.0.5": {"sql": found}, "4.1.4": {"sql": found}}}
    both = report.merged(first, again)
    assert list(both["sparks"]) == ["4.0.5", "4.1.4"]
    assert list(both["sparks"]["4.1.4"]) == ["engine", "sql"]
    shown = report.table(both)
    assert "| 4.1.4 | engine | 1 | 1 | 1 | 1 | 12 |" in shown
    assert "- 4.0.5, sql, failed: `tests/a::bad`: KeyError: 1" in shown
