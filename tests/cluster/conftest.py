"""A cluster of a master and two workers, and a session on it, for the tests of `on_cluster.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acid_platform.engine.spark import jvm, session
from scripts import cluster_package
from scripts.cluster import LocalCluster, running
from tests.conftest import without_variables
from tests.metastore.processes import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EAGER = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.4",
    "spark.speculation.minTaskRuntime": "300ms",
    "spark.task.maxFailures": "8",
    "spark.network.timeout": "60s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.executor.memory": "1g",
    # Executors would read the shuffle files of one that died, since they are on the same disk.
    "spark.shuffle.readHostLocalDisk": "false",
}
"""Second attempts of slow tasks begin soon, so that two attempts are often alive at once."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running(tmp_path_factory.mktemp("cluster") / "processes", free_port(), 2) as started:
        yield started


@pytest.fixture(scope="session")
def spark(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session of this process, which must have no other."""
    from pyspark.sql import SparkSession

    archive = tmp_path_factory.mktemp("package") / "environment.tar.gz"
    cluster_package.make(archive)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACID_SPARK_ARCHIVE", str(archive))
        without_variables(patch, "PYSPARK_PYTHON", "PYTHONPATH", "ACID_SPARK_REMOTE")
        session.prepare_environment(cluster.url)
        settings = {**session.spark_config(cluster.url, "1g"), **EAGER}
        jvm.launch(settings)
        builder = SparkSession.builder
        for name, value in settings.items():
            builder = builder.config(name, value)
        started = session.check_session(builder.getOrCreate())
        yield started
        started.stop()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"
