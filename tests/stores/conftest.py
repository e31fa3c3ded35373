"""A warehouse in an S3 bucket, with its metastore on the local disk."""

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
from tests.stores.server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = count(1)
_RUN = secrets.token_hex(4)
"""A real server keeps the buckets of earlier runs."""


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own, in which the environment says that its warehouse is."""

    server: S3Server
    name: str
    metastore: Path

    @property
    def uri(self) -> str:
        return f"s3://{self.name}/warehouse"

    def keys(self, table: str = "") -> list[str]:
        """The keys of the warehouse's files, or those of a table below its location."""
        below = "warehouse/" + (f"{table.replace('.', '.db/')}/" if table else "")
        return [
            key.removeprefix(below) for key in self.server.keys(self.name, below) if key != below
        ]


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    started = S3Server()
    yield started
    started.close()


@contextmanager
def a_bucket(server: S3Server, directory: Path) -> Iterator[Bucket]:
    """A new bucket, which the environment names during the block."""
    with pytest.MonkeyPatch.context() as patch:
        yield named_bucket(server, directory, patch)


def named_bucket(server: S3Server, directory: Path, patch: pytest.MonkeyPatch) -> Bucket:
    """A new bucket, which the environment names until `patch` is undone."""
    made = Bucket(server, f"bucket-{_RUN}-{next(_NUMBERS)}", directory / "metastore")
    server.make_bucket(made.name)
    for name, value in server.environment.items():
        patch.setenv(name, value)
    patch.delenv("AWS_PROFILE", raising=False)
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
def bucket(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    # With a patch of its own, a test that changes the variables would restore them after this did.
    return named_bucket(server, tmp_path, monkeypatch)


@pytest.fixture
def warehouse(bucket: Bucket) -> Iterator[Warehouse]:
    with opened() as warehouse:
        yield warehouse
