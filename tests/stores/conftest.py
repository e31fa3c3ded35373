"""A warehouse in a bucket of each kind of store, with its metastore on the local disk.

Tests of what only S3 has are marked by `ONLY_S3`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acid_platform import Warehouse
from tests.stores.clouds import SERVERS
from tests.stores.real import Unavailable
from tests.stores.server import S3Server, StoreServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = count(1)
_RUN = secrets.token_hex(4)
"""A real server keeps the buckets of earlier runs."""


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own, in which the environment says that its warehouse is."""

    server: StoreServer
    name: str
    metastore: Path

    @property
    def uri(self) -> str:
        return self.at("warehouse")

    def at(self, path: str) -> str:
        return self.server.uri(self.name, path)

    def keys(self, table: str = "") -> list[str]:
        """The keys of the warehouse's files, or those of a table below its location."""
        below = "warehouse/" + (f"{table.replace('.', '.db/')}/" if table else "")
        return [
            key.removeprefix(below) for key in self.server.keys(self.name, below) if key != below
        ]


KINDS = ["s3", *(pytest.param(name, marks=pytest.mark.slow) for name in SERVERS)]
ONLY_S3 = pytest.mark.parametrize("server", ["s3"], indirect=True)


@contextmanager
def a_server(kind: str) -> Iterator[StoreServer]:
    """The server of a kind of store; the test is skipped if its emulator is not there."""
    try:
        started = S3Server() if kind == "s3" else SERVERS[kind]()
    except Unavailable as why:
        pytest.skip(str(why))
    try:
        yield started
    finally:
        started.close()


@pytest.fixture(scope="session", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    with a_server(request.param) as started:
        yield started


@contextmanager
def a_bucket(server: StoreServer, directory: Path) -> Iterator[Bucket]:
    """A new bucket, which the environment names during the block."""
    with pytest.MonkeyPatch.context() as patch:
        yield named_bucket(server, directory, patch)


def named_bucket(server: StoreServer, directory: Path, patch: pytest.MonkeyPatch) -> Bucket:
    """A new bucket, which the environment names until `patch` is undone."""
    made = Bucket(server, f"bucket-{_RUN}-{next(_NUMBERS)}", directory / "metastore")
    server.make_bucket(made.name)
    for name in server.hidden:
        patch.delenv(name, raising=False)
    for name, value in server.environment.items():
        patch.setenv(name, value)
    patch.setenv("ACID_WAREHOUSE", made.uri)
    patch.setenv("ACID_METASTORE", str(made.metastore))
    return made


@contextmanager
def opened(spark: SparkSession | None = None, engine: str = "local") -> Iterator[Warehouse]:
    """The warehouse of the bucket; its metastore ends with the block."""
    with Warehouse.open(spark=spark, engine=engine) as warehouse:
        yield warehouse
        warehouse.release()
        warehouse.metastore.stop()


@pytest.fixture
def bucket(server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    # With a patch of its own, a test that changes the variables would restore them after this did.
    return named_bucket(server, tmp_path, monkeypatch)


@pytest.fixture
def warehouse(bucket: Bucket) -> Iterator[Warehouse]:
    with opened() as warehouse:
        yield warehouse
