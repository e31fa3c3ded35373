"""The metastore's archive in S3 (P40)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from acid_platform import BackupRefused, Warehouse
from acid_platform.cli.main import main
from acid_platform.metastore.server.archive import BASE, Archive
from tests.metastore.processes import until
from tests.stores.conftest import Bucket
from tests.stores.server import Fault

pytestmark = pytest.mark.slow


def _archived(warehouse: Warehouse) -> bool:
    status = warehouse.metastore.status()
    last = warehouse.metastore.query("SELECT value FROM meta WHERE key = 'log_seq'")[1][0][0]
    return bool(status["archived_event"] == int(last) and not status["unarchived_segments"])


def test_P40_a_metastore_is_restored_from_an_archive_in_s3(bucket: Bucket, tmp_path: Path) -> None:
    where = f"s3://{bucket.name}/archive"
    with Warehouse.open(engine="local") as warehouse:
        for name, value in (
            ("acid.metastore.archive", where),
            ("acid.metastore.archive.interval", "0.1s"),
            ("acid.metastore.fold.transactions", "5"),
            ("acid.metastore.fold.interval", "0.3s"),
        ):
            warehouse.metastore.set(name, value)
        until(lambda: _archived(warehouse))
        with bucket.server.fails(Fault("AccessDenied", "PUT", "/archive/")):
            warehouse.metastore.create_database("first")
            until(lambda: bool(warehouse.metastore.status()["archive_error"]))
            assert "ACCESS_DENIED" in warehouse.metastore.status()["archive_error"]
        with bucket.server.fails(Fault("lost", "PUT", "/archive/", times=1)):
            warehouse.metastore.create_database("second")
            until(lambda: _archived(warehouse))
        # A restore begins with a backup, which comes after the first segments.
        until(lambda: any(item.kind == BASE for item in Archive(where).items()))
        warehouse.metastore.stop()
    bucket.metastore.rename(tmp_path / "lost")
    done = CliRunner().invoke(
        main, ["metastore", "restore", "--archive", where, "--until", "latest"]
    )
    assert done.exit_code == 0, done.output
    with Warehouse.open(engine="local") as warehouse:
        names = {name for name in warehouse.metastore.databases()}
        assert {"first", "second"} <= names
        warehouse.metastore.stop()


def test_an_archive_whose_uri_says_too_much_is_refused(bucket: Bucket) -> None:
    with pytest.raises(BackupRefused, match="AWS_ENDPOINT_URL"):
        Archive(f"s3://{bucket.name}/archive?endpoint_override=store:9000")
