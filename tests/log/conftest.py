"""Every kind of log, for the suite that all of them pass."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from acid_platform.metastore.log.contract import Batch, Log, segment_name
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.log.objects import ObjectLog, objects_at
from acid_platform.metastore.log.postgres import PostgresLog
from tests.log.postgres_server import PostgresServer, missing
from tests.stores.conftest import a_server
from tests.stores.server import S3Server, StoreServer

_NUMBERS = count(1)
_RUN = secrets.token_hex(4)
_BUCKET = f"logs-{_RUN}"
CLOUDS = tuple(pytest.param(name, marks=pytest.mark.slow) for name in ("in_google", "in_azure"))
"""With emulators, if they are there."""
AnyLog = LocalLog | ObjectLog | PostgresLog


@dataclass
class Place:
    """Where one log is, and how a test damages it."""

    kind: str
    url: str
    open: Callable[[], AnyLog]
    """A log with connections of its own."""
    change: Callable[[int, bytes, bytes], None]
    """Replaces bytes of the batch at a position, behind the back of the log."""
    remove: Callable[[int], None]
    """Removes the batch at a position."""
    server: StoreServer | None = None
    """The store's, if it fails when it is told to."""

    @property
    def watched(self) -> StoreServer:
        assert self.server is not None, "this store is not ours"
        return self.server

    @property
    def remote(self) -> bool:
        """Whether several processes may append."""
        return self.kind != "local"

    def created(self, batches: int = 0, after: int = 0) -> AnyLog:
        """A log that holds so many batches and can be appended to."""
        log = self.open()
        log.create(after)
        log.open_to_append()
        for position in range(after + 1, after + batches + 1):
            log.append(batch(position))
        return log

    def writer(self) -> AnyLog:
        log = self.open()
        log.open_to_append()
        return log


def batch(position: int, epoch: int = 1, text: str | None = None) -> Batch:
    """It was made 1 second after the one before it."""
    return Batch(position, epoch, 1000 * position, text if text is not None else f'["{position}"]')


def positions(log: Log, after: int = 0) -> list[int]:
    return [each.position for each in log.read(after)]


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    started = S3Server()
    started.make_bucket(_BUCKET)
    yield started
    started.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    if why := missing():
        pytest.skip(f"PostgreSQL: {why}")
    started = PostgresServer()
    started.start()
    yield started
    started.close()


@pytest.fixture
def in_directory(tmp_path: Path) -> Place:
    return _place_of_files("local", tmp_path / "log", lambda: LocalLog(tmp_path / "log"))


@pytest.fixture
def in_archive(tmp_path: Path) -> Place:
    url = f"file://{tmp_path}/log"
    return _place_of_files("file", tmp_path / "log", lambda: ObjectLog(url))


def _place_of_files(kind: str, directory: Path, opened: Callable[[], AnyLog]) -> Place:
    directory.mkdir()

    def change(position: int, before: bytes, after: bytes) -> None:
        name = segment_name(1 if kind == "local" else position)
        path = directory / name
        data = path.read_bytes()
        assert before in data
        path.write_bytes(data.replace(before, after, 1))

    def remove(position: int) -> None:
        (directory / segment_name(position)).unlink()

    return Place(kind, f"file://{directory}", opened, change, remove)


@pytest.fixture
def in_bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """In a bucket of the S3 server, or below the prefix that ACID_TEST_BUCKET names."""
    below = os.environ.get("ACID_TEST_BUCKET")
    return _place_in_store(
        "s3", None if below else request.getfixturevalue("server"), below or "", monkeypatch
    )


@pytest.fixture(scope="session")
def google_server() -> Iterator[StoreServer]:
    with a_server("google") as started:
        started.make_bucket(_BUCKET)
        yield started


@pytest.fixture(scope="session")
def azure_server() -> Iterator[StoreServer]:
    with a_server("azure") as started:
        started.make_bucket(_BUCKET)
        yield started


@pytest.fixture
def in_google(google_server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Place:
    return _place_in_store("google", google_server, "", monkeypatch)


@pytest.fixture
def in_azure(azure_server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Place:
    return _place_in_store("azure", azure_server, "", monkeypatch)


def _place_in_store(
    kind: str, server: StoreServer | None, below: str, patch: pytest.MonkeyPatch
) -> Place:
    """`below`: the prefix, without a server of ours."""
    if server is not None:
        for name in server.hidden:
            patch.delenv(name, raising=False)
        for name, value in server.environment.items():
            patch.setenv(name, value)
        below = server.uri(_BUCKET, "log")
    url = f"{below.rstrip('/')}/{_RUN}-{next(_NUMBERS)}"
    objects = objects_at(url, 10)

    def change(position: int, before: bytes, after: bytes) -> None:
        data, version = objects.get(segment_name(position))
        assert before in data
        objects.replace(segment_name(position), data.replace(before, after, 1), version)

    def remove(position: int) -> None:
        objects.delete([segment_name(position)])

    return Place(kind, url, lambda: ObjectLog(url), change, remove, server)


@pytest.fixture(params=["in_bucket", *CLOUDS])
def in_store(request: pytest.FixtureRequest) -> Place:
    """An empty place in each kind of object store."""
    chosen: Place = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def in_postgres(postgres_server: PostgresServer) -> Iterator[Place]:
    import psycopg

    schema = f"log_{next(_NUMBERS)}"
    url = postgres_server.url(acid_schema=schema)
    opened: list[PostgresLog] = []

    def execute(text: str, *values: object) -> None:
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute(text.format(s=schema), values)

    def change(position: int, before: bytes, after: bytes) -> None:
        execute(
            "UPDATE {s}.batches SET body = convert_to(replace(convert_from(body, 'UTF8'), %s, %s),"
            " 'UTF8') WHERE position = %s",
            before.decode(),
            after.decode(),
            position,
        )

    def remove(position: int) -> None:
        execute("DELETE FROM {s}.batches WHERE position = %s", position)

    def open_one() -> PostgresLog:
        opened.append(PostgresLog(url))
        return opened[-1]

    yield Place("postgresql", url, open_one, change, remove)
    for log in opened:
        log.close()


ALL = ("in_directory", "in_archive", "in_bucket", "in_postgres")
REMOTE = ALL[1:]


@pytest.fixture(params=[*ALL, *CLOUDS])
def place(request: pytest.FixtureRequest) -> Place:
    """An empty place of each kind."""
    chosen: Place = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(params=[*REMOTE, *CLOUDS])
def shared(request: pytest.FixtureRequest) -> Place:
    """An empty place of each kind at which several processes may append."""
    chosen: Place = request.getfixturevalue(request.param)
    return chosen
