"""Addresses of logs, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from acid_platform.base.s3 import _profile
from acid_platform.errors import (
    InvalidDefinition,
    MetastoreIncompatible,
    MetastoreRefused,
    MetastoreUnavailable,
    StoreRefused,
)
from acid_platform.metastore.log.contract import Leader, open_log
from acid_platform.metastore.log.objects import ObjectLog, objects_at
from acid_platform.metastore.log.postgres import PostgresLog
from tests.log.conftest import Place, batch, positions
from tests.log.postgres_server import PostgresServer
from tests.stores.server import Fault


def test_P10_the_scheme_says_which_log_it_is(tmp_path: Path) -> None:
    assert isinstance(open_log("postgresql://user@host/db"), PostgresLog)
    assert isinstance(open_log("postgres://host/db?acid_schema=other"), PostgresLog)
    assert isinstance(open_log(f"file://{tmp_path}/log"), ObjectLog)
    for wrong in ("http://host/x", "/var/log", "tcp://host:1", "s3://bucket", "s3://bucket/"):
        with pytest.raises(InvalidDefinition):
            open_log(wrong)


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://user:secret@host/db",
        "postgresql://user@host/db?password=secret",
        "postgresql://user@host/db?sslpassword=secret",
    ],
)
def test_P10_an_address_with_a_password_is_refused(where: str) -> None:
    with pytest.raises(InvalidDefinition, match="PGPASSWORD") as refused:
        open_log(where)
    assert "secret" not in str(refused.value)


def test_P10_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match="nonsense"):
        open_log("postgresql://user@host/db?nonsense=1")


@pytest.mark.parametrize(
    ("where", "package", "extra"),
    [("postgresql://host/db", "psycopg", "postgres"), ("s3://bucket/prefix", "obstore", "bucket")],
)
def test_P10_a_missing_extra_is_named(where: str, package: str, extra: str) -> None:
    """In a process of its own, which has imported neither package."""
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from acid_platform.errors import InvalidDefinition\n"
        "from acid_platform.metastore.log.contract import open_log\n"
        f"try: open_log({where!r})\n"
        "except InvalidDefinition as error: print(error)"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    assert f"pip install acid-platform[{extra}]" in output


@pytest.mark.more
def test_P10_a_store_that_ignores_conditions_is_refused(in_store: Place) -> None:
    server, ignored = in_store.watched, Fault("unconditional", "PUT")
    if server.signs_conditions:
        pytest.skip("a request of this store without its conditions has no valid signature")
    log = in_store.open()
    with server.fails(ignored), pytest.raises(MetastoreIncompatible, match="If-None-Match"):
        log.create()
    assert not log.exists, "nothing is left behind"
    log.create()
    log.append(batch(1))
    with server.fails(ignored), pytest.raises(MetastoreIncompatible, match="If-None-Match"):
        in_store.writer()
    assert positions(in_store.writer()) == [1]


def test_P10_a_prefix_with_other_objects_is_refused(in_bucket: Place) -> None:
    objects_at(in_bucket.url, 10).create("warehouse/db.db/t/part-0", b"1")
    with pytest.raises(FileExistsError, match="warehouse"):
        in_bucket.open().create()


def test_P41_a_store_that_refuses_is_named(in_store: Place) -> None:
    server, log = in_store.watched, in_store.created(1)
    for code in ("AccessDenied", "ExpiredToken", "InvalidAccessKeyId"):
        with server.fails(Fault(code)), pytest.raises(StoreRefused, match="credentials"):
            log.append(batch(2))
    log.append(batch(2))
    with pytest.raises(StoreRefused, match=r"NoSuchBucket|ContainerNotFound"):
        list(open_log(server.uri("there-is-none", "log")).read(0))


def test_P41_keys_of_a_profile_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "credentials"
    keys.write_text(
        "[default]\naws_access_key_id = A\n[other]\naws_access_key_id = B\n"
        "aws_secret_access_key = C%\nregion = x\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert _profile() == {"aws_access_key_id": "B", "aws_secret_access_key": "C%"}
    monkeypatch.delenv("AWS_PROFILE")
    assert _profile() == {"aws_access_key_id": "A"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    assert _profile() == {}


@pytest.mark.more
def test_P41_no_server_is_an_error_after_the_patience(postgres_server: PostgresServer) -> None:
    for log in (
        PostgresLog("postgresql://acid@127.0.0.1:1/none", patience=0.5),
        PostgresLog(postgres_server.url("no_such_database"), patience=0.5),
    ):
        begun = time.monotonic()
        with pytest.raises(MetastoreUnavailable):
            list(log.read(0))
        assert time.monotonic() - begun < 5


def test_P10_a_user_without_rights_needs_a_schema(postgres_server: PostgresServer) -> None:
    """As on a managed server: neither superuser nor owner of the database."""
    import psycopg

    with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
        admin.execute("CREATE ROLE guest LOGIN")
        admin.execute("CREATE SCHEMA given AUTHORIZATION guest")
    url = postgres_server.url().replace("acid@", "guest@")
    with pytest.raises(MetastoreRefused, match="grant"):
        PostgresLog(f"{url}?acid_schema=not_given").create()
    log = PostgresLog(f"{url}?acid_schema=given")
    log.create()
    log.append(batch(1))
    assert log.set_leader(None, Leader(1))
    assert positions(log) == [1]
    other = PostgresLog(f"{postgres_server.url()}?acid_schema=given")
    assert positions(other) == [1]
    assert "given" in log.place
    assert "guest" not in log.place
    assert log.place == other.place
    log.close()
    other.close()


def test_P3_a_commit_waits_for_the_disk(postgres_server: PostgresServer) -> None:
    import psycopg

    with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
        admin.execute("CREATE ROLE hasty LOGIN SUPERUSER")
        admin.execute("ALTER ROLE hasty SET synchronous_commit = off")
        admin.execute("CREATE ROLE careful LOGIN SUPERUSER")
        admin.execute("ALTER ROLE careful SET synchronous_commit = remote_apply")
    for name, expected in (("hasty", "on"), ("careful", "remote_apply")):
        log = PostgresLog(postgres_server.url().replace("acid@", f"{name}@"))
        (shown,) = log._rows("SHOW synchronous_commit")
        assert shown == (expected,)
        log.close()
