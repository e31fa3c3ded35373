"""Servers on which a log may lie, for tests and measurements."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from tests.log.postgres_server import PostgresServer, missing
from tests.stores.server import S3Server


@contextmanager
def serving(log: str) -> Iterator[tuple[str, PostgresServer | S3Server | None]]:
    """The address of a log, and its server: `postgres` and `s3` start one for as long as the block
    lasts."""
    if log == "postgres":
        if why := missing():
            raise SystemExit(f"no PostgreSQL can run here: {why}")
        server = PostgresServer()
        try:
            server.start()
            yield server.url(), server
        finally:
            server.close()
    elif log == "s3":
        store = S3Server()
        try:
            bucket = f"log-{uuid.uuid4().hex[:8]}"  # ACID_TEST_S3 keeps those of earlier runs
            store.make_bucket(bucket)
            with mock.patch.dict(os.environ, store.environment):
                yield f"s3://{bucket}/metastore", store
        finally:
            store.close()
    else:
        yield log, None
