"""A gateway in this process, before a warehouse that needs no Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from acid_platform import Warehouse
from acid_platform.gateway.authorization import Authorizer
from acid_platform.gateway.client_connection import Bounds
from acid_platform.gateway.gateway import Gateway
from acid_platform.gateway.gateway_server import Entry, GatewayServer
from tests.conftest import a_warehouse
from tests.gateway.clients import connected


@contextmanager
def serving(
    warehouse: Warehouse,
    bounds: Bounds | None = None,
    wait: float = 0.05,
    entry: Entry | None = None,
    authorizer: Authorizer | None = None,
) -> Iterator[GatewayServer]:
    """A gateway that answers during the block."""
    gateway = Gateway(warehouse.metastore, wait, authorizer)
    server = GatewayServer(gateway, "127.0.0.1", 0, bounds, entry)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


warehouse = a_warehouse("local")


@pytest.fixture(scope="module")
def server(warehouse: Warehouse) -> Iterator[GatewayServer]:
    with serving(warehouse) as running:
        yield running


@pytest.fixture
def client(server: GatewayServer) -> Iterator[Any]:
    with connected(server.address) as opened:
        yield opened
