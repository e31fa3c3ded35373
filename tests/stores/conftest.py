"""A warehouse in an S3 bucket, with its metastore on the local disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from acid_platform.warehouse import Warehouse
from tests.stores.server import S3Server

_NUMBERS = count(1)


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


@pytest.fixture
def bucket(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    made = Bucket(server, f"bucket-{next(_NUMBERS)}", tmp_path / "metastore")
    server.make_bucket(made.name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("ACID_WAREHOUSE", made.uri)
    monkeypatch.setenv("ACID_METASTORE", str(made.metastore))
    yield made
    server.log()


@pytest.fixture
def warehouse(bucket: Bucket) -> Iterator[Warehouse]:
    with Warehouse.open(engine="local") as opened:
        yield opened
        opened.release()
        opened.metastore.stop()
