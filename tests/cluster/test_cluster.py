"""Spark on a cluster: a standalone master and two workers, which know nothing of this project.

A process has one Spark session, and that of the other tests is local, so the tests of
`on_cluster.py` run in a pytest of their own.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from acid_platform import SparkMisconfigured
from acid_platform.engine.spark import session
from scripts import cluster_package
from tests.conftest import without_variables
from tests.metastore.processes import free_port, listens

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(*words: str) -> None:
    """Runs tests of `on_cluster.py`; fails with their output."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", str(HERE / "on_cluster.py"), *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout, done.stdout


@pytest.mark.slow
def test_P12_rows_are_written_changed_and_read_on_a_cluster() -> None:
    run("-m", "not slow and not soak")


@pytest.mark.slow
@pytest.mark.timeout(960)
def test_P12_P19_P21_every_statement_runs_on_a_cluster_whose_executors_die() -> None:
    run("-m", "slow")


@pytest.mark.slow
def test_a_cluster_ends_with_its_workers_when_it_is_terminated() -> None:
    port = free_port()
    words = ["-m", "scripts.cluster", "--port", str(port), "--workers", "1"]
    with subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any("ACID_SPARK_MASTER" in line for line in process.stdout)
        parts = psutil.Process(process.pid).children(recursive=True)
        assert len(parts) >= 2, "the master and a worker"
        process.terminate()
        assert process.wait(30) == 0
    assert not [part for part in parts if part.is_running() and part.status() != "zombie"]
    assert not listens("127.0.0.1", port)


@pytest.mark.more
def test_P17_the_archive_has_every_package_that_tasks_import() -> None:
    """At once, and later inside functions of what they import."""
    script = f"import sys, {', '.join(session.TASK_MODULES)}; print(*sys.modules)"
    shown = subprocess.check_output([sys.executable, "-c", script], text=True)
    ours = {name for name in shown.split() if name.startswith("acid_platform.")}
    assert "acid_platform.compaction.rewrite" in ours
    files = [path for name in ours if (path := find_spec(name)) and path.origin]
    imported = set()
    for spec in files:
        for node in ast.walk(ast.parse(Path(str(spec.origin)).read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").partition(".")[0])
    others = imported - set(sys.stdlib_module_names) - {"acid_platform", "pyspark"}
    assert others <= set(cluster_package.TASK_PACKAGES)
    assert "duckdb" in others, "which is imported inside a function"


def test_P17_an_archive_that_is_missing_is_an_error_before_the_session_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACID_SPARK_ARCHIVE", str(tmp_path / "none.tar.gz"))
    with pytest.raises(SparkMisconfigured, match="there is no such file: make the archive again"):
        session.spark_config("spark://host:7077")
    assert "spark.archives" not in session.spark_config("local[2]")


def test_P17_executors_get_the_archive_and_no_path_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "environment.tar.gz"
    archive.touch()
    monkeypatch.setenv("ACID_SPARK_ARCHIVE", str(archive))
    without_variables(monkeypatch, "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP")
    settings = session.spark_config("spark://host:7077")
    assert settings["spark.archives"] == f"{archive.as_uri()}#{session.UNPACKED}"
    named = settings["spark.executorEnv.PYTHONPATH"].split(":")
    assert named == [session.UNPACKED, f"../{session.UNPACKED}"], "Connect runs tasks one below"
    session.prepare_environment("spark://host:7077")
    assert os.environ["PYSPARK_PYTHON"] == session.executor_python()
    assert "SPARK_LOCAL_IP" not in os.environ
