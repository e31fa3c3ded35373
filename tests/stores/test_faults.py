"""Failures of the store: each is named, loses nothing, shows nothing half, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest
from click.testing import CliRunner

from acid_platform import (
    AcidError,
    InvalidDefinition,
    StoreRefused,
    StoreUnavailable,
    Table,
    TxnAborted,
    Warehouse,
)
from acid_platform.cli.main import main
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from tests.stores.conftest import ONLY_S3, Bucket
from tests.stores.server import Fault, S3Server, StoreServer

pytestmark = pytest.mark.slow  # each test waits for clients that try again


@pytest.fixture(autouse=True)
def impatient(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.hurry(monkeypatch)


def rows(count: int = 3) -> pa.Table:
    return pa.table({"id": list(range(count)), "v": [f"v{i}" for i in range(count)]})


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def files(bucket: Bucket) -> list[str]:
    return [key for key in bucket.keys("db.t") if not key.endswith("/")]


@pytest.fixture
def table(warehouse: Warehouse) -> Table:
    made = warehouse.create_table("db.t", "id bigint, v string")
    made.insert(rows())
    return made


# --- opening ------------------------------------------------------------------------------------


def test_P41_a_missing_bucket_is_named(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreRefused, match=r"no-such-bucket.*bucket"):
        Warehouse.open(bucket.server.uri("no-such-bucket", "warehouse"), engine="local")
    assert not bucket.metastore.exists()


def test_P41_the_doctor_names_a_missing_bucket(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACID_WAREHOUSE", bucket.server.uri("no-such-bucket", "warehouse"))
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 1
    assert "no such bucket" in " ".join(done.output.split())


def test_P41_a_store_that_is_away_is_named(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in bucket.server.environment_at("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreUnavailable, match=bucket.server.names_place):
        Warehouse.open(engine="local")


@pytest.mark.parametrize(
    "code", ["InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "ExpiredToken"]
)
def test_P41_refused_credentials_are_named(bucket: Bucket, code: str) -> None:
    with (
        bucket.server.fails(Fault(code)),
        pytest.raises(StoreRefused, match=bucket.server.names_credentials),
    ):
        Warehouse.open(engine="local")


def test_a_warehouse_in_a_store_needs_ACID_METASTORE(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACID_METASTORE")
    with pytest.raises(InvalidDefinition, match="ACID_METASTORE"):
        Warehouse.open(engine="local")


@ONLY_S3
@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("s3:///path", "s3://bucket/path"),
        ("s3://bucket/w?region=eu-west-1", "s3://bucket/path"),
        ("s3://key:secret@bucket/w", r"'s3://\*\*\*@bucket/w' is refused: .* no password"),
    ],
)
def test_what_a_uri_cant_say_is_refused(bucket: Bucket, uri: str, reason: str) -> None:
    with pytest.raises(InvalidDefinition, match=reason):
        Warehouse.open(uri, engine="local")


# --- while it works -----------------------------------------------------------------------------


def test_P41_a_store_that_is_slow_for_a_moment_is_asked_again(table: Table, bucket: Bucket) -> None:
    with bucket.server.fails(Fault("SlowDown", times=1)):
        table.insert(rows())
    with bucket.server.fails(Fault("InternalError", "GET|HEAD", times=1)):
        assert ids(table) == [0, 0, 1, 1, 2, 2]


def test_P41_a_lost_answer_to_a_PUT_writes_the_same_object_again(
    table: Table, bucket: Bucket
) -> None:
    with bucket.server.fails(Fault("lost", "PUT", "bucket_00000", times=1)):
        table.insert(rows())
    assert ids(table) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("SlowDown", "PUT"), StoreUnavailable),
        (Fault("ExpiredToken", "PUT"), StoreRefused),
        (Fault("hang", "PUT", seconds=5.0), StoreUnavailable),
        (Fault("AccessDenied", "PUT", "_orc_acid_version"), StoreRefused),
    ],
    ids=lambda value: value.error if isinstance(value, Fault) else "",
)
def test_P41_a_write_that_fails_shows_and_leaves_nothing(
    table: Table, bucket: Bucket, fault: Fault, error: type[AcidError]
) -> None:
    if fault.error == "hang" and not bucket.server.gives_up_silence:
        pytest.skip("Arrow has no limit for a connection to this store on which nothing comes")
    before = files(bucket)
    with bucket.server.fails(fault), pytest.raises(error):
        table.insert(rows())
    assert ids(table) == [0, 1, 2]
    assert files(bucket) == before
    table.insert(rows(1))
    assert ids(table) == [0, 0, 1, 2]


@pytest.mark.parametrize("operations", ["GET|HEAD", "GET"])
@pytest.mark.parametrize("error", ["SlowDown", "ExpiredToken", "AccessDenied"])
def test_P41_a_read_blames_the_store_and_no_file(
    warehouse: Warehouse, table: Table, bucket: Bucket, error: str, operations: str
) -> None:
    warehouse.release()
    with (
        bucket.server.fails(Fault(error, operations)),
        pytest.raises((StoreUnavailable, StoreRefused)),
    ):
        table.to_arrow()
    assert ids(table) == [0, 1, 2]


def test_P41_what_credentials_that_expired_left_is_cleaned_later(
    warehouse: Warehouse, table: Table, bucket: Bucket
) -> None:
    before = files(bucket)
    with (
        bucket.server.fails(Fault("ExpiredToken", after=bucket.server.first_file)),
        pytest.raises(StoreRefused),
    ):
        table.insert(rows())
    left = files(bucket)
    assert left != before
    assert ids(table) == [0, 1, 2]
    warehouse.release()
    for _ in range(2):
        cleaner.run(warehouse.metastore)
    assert files(bucket) == left, "as with every aborted transaction, Hive's thresholds say when"
    warehouse.metastore.set("hive.compactor.aborted.txn.time.threshold", "1ms")
    cleaner.run(warehouse.metastore)
    assert files(bucket) == before
    assert examine(warehouse.metastore, warehouse=bucket.uri).findings == ()


def test_P41_a_transaction_does_not_commit_over_files_that_cant_be_removed(
    warehouse: Warehouse, table: Table, bucket: Bucket
) -> None:
    txn = warehouse.transaction()
    txn.table("db.t").insert(rows(1))
    with bucket.server.fails(Fault("ExpiredToken", after=2)), pytest.raises(StoreRefused):
        txn.table("db.t").insert(rows())
    with pytest.raises(TxnAborted, match="can't be removed"):
        txn.commit()
    assert ids(table) == [0, 1, 2]


def test_P41_a_compaction_that_fails_keeps_its_inputs(
    warehouse: Warehouse, table: Table, bucket: Bucket
) -> None:
    table.insert(rows())
    before = files(bucket)
    with (
        bucket.server.fails(Fault("SlowDown", "PUT")),
        pytest.raises(AcidError, match="object store"),
    ):
        table.compact("major")
    assert files(bucket) == before
    table.compact("major")
    assert ids(table) == [0, 0, 1, 1, 2, 2]


def test_P41_a_cleaning_that_fails_is_tried_again(
    warehouse: Warehouse, table: Table, bucket: Bucket
) -> None:
    table.insert(rows())
    table.compact("major")
    warehouse.release()
    warehouse.metastore.set("hive.compactor.cleaner.retry.retention.time", "1ms")
    with bucket.server.fails(Fault("AccessDenied", "DELETE.*")):
        (failed,) = cleaner.run(warehouse.metastore)
    assert bucket.server.names_credentials in failed.error
    assert ids(table) == [0, 0, 1, 1, 2, 2]
    warehouse.release()
    time.sleep(0.1)
    cleaner.run(warehouse.metastore)
    assert {key.split("/")[0] for key in files(bucket)} == {"base_0000002_v0000003"}


# --- processes that die -------------------------------------------------------------------------


_WRITER = """
import random
import pyarrow as pa
from acid_platform import Warehouse
noise = [random.randbytes(64).hex() for _ in range(400_000)]  # more than a part of 10 MB
with Warehouse.open(engine="local") as warehouse:
    warehouse.table("db.t").insert(pa.table({"v": noise}))
"""


@ONLY_S3
def test_P41_what_a_killed_writer_left_is_cleaned_but_for_its_unfinished_upload(
    warehouse: Warehouse, table: Table, bucket: Bucket
) -> None:
    """Google and Azure forget such an upload after a week, and their emulators list none."""
    before = files(bucket)
    server = bucket.server
    assert isinstance(server, S3Server)
    warehouse.metastore.set("hive.txn.timeout", "2s")
    with server.fails(Fault("hang", "PART", seconds=30)):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER], env=dict(os.environ))
        until = time.monotonic() + 60
        while not server.uploads(bucket.name) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert ids(table) == [0, 1, 2]
    assert len(server.uploads(bucket.name)) == 1, "a lifecycle rule removes it"
    assert files(bucket) == before
    until = time.monotonic() + 30
    while warehouse.metastore.transactions() and time.monotonic() < until:
        cleaner.run(warehouse.metastore)
        time.sleep(0.5)
    table.insert(rows(1))
    assert ids(table) == [0, 0, 1, 2]
