"""An archive of the metastore's log in each kind of store (P40)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from acid_platform.cli.main import main
from acid_platform.metastore.client.metastore import Metastore
from tests.log.test_archive import archived, archiving
from tests.metastore.processes import until
from tests.stores.conftest import Bucket
from tests.stores.server import Fault

pytestmark = pytest.mark.slow


def test_P40_a_metastore_is_restored_from_an_archive_in_a_store(
    bucket: Bucket, tmp_path: Path
) -> None:
    where = bucket.at("archive")
    with Metastore.connect(bucket.metastore) as client:
        archiving(client, where)
        until(lambda: archived(client))
        with bucket.server.fails(Fault("AccessDenied", "PUT", "/archive/")):
            client.create_database("first")
            until(lambda: bool(client.status()["archive_error"]))
        with bucket.server.fails(Fault("lost", "PUT", "/archive/", times=1)):
            client.create_database("second")
            until(lambda: not client.status()["archive_error"], 40)
            until(lambda: archived(client), 20)
        client.stop()
    bucket.metastore.rename(tmp_path / "lost")
    done = CliRunner().invoke(
        main, ["metastore", "restore", "--archive", where, "--until", "latest"]
    )
    assert done.exit_code == 0, done.output
    with Metastore.connect(bucket.metastore) as client:
        assert {"first", "second"} <= set(client.databases())
        client.stop()
