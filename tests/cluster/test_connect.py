"""A Spark Connect server whose executors are on a cluster and get our code from the archive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scripts import cluster_package
from scripts.cluster import running
from tests.conftest import without_variables
from tests.connect_server import connect_server, told_by_client
from tests.engine.test_connect import EXPECTED
from tests.metastore.processes import free_port


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What each step of tests/engine/over_connect.py gave."""
    root = tmp_path_factory.mktemp("connect_on_cluster")
    archive = root / "environment.tar.gz"
    cluster_package.make(archive)
    with (
        running(root / "cluster", free_port(), 2) as started,
        pytest.MonkeyPatch.context() as patch,
    ):
        without_variables(patch, "PYSPARK_PYTHON", "PYTHONPATH", "ACID_SPARK_REMOTE")
        with pytest.MonkeyPatch.context() as server:
            server.setenv("ACID_SPARK_MASTER", started.url)
            server.setenv("ACID_SPARK_ARCHIVE", str(archive))
            with connect_server(root / "server.log") as (remote, _):
                server.undo()  # clients need to know the server only
                yield told_by_client(remote, root / "wh")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("step", EXPECTED)
def test_P17_over_spark_connect_on_a_cluster_with_the_archive(
    told: dict[str, Any], step: str
) -> None:
    assert told[step] == EXPECTED[step]
