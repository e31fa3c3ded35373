"""A collector of OpenLineage for tests: an HTTP server that stores events."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from acid_platform.metastore.client import lineage_events


class Collector(ThreadingHTTPServer):
    """Stores the events that are posted; answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.events: list[dict[str, Any]] = []
        self.status = 201

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Post(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.status == 201 and self.path == "/api/v1/lineage":
            self.server.events.append(body)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def collecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector to which all commits of this process are told."""
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv(lineage_events.URL, server.url)
    try:
        yield server
    finally:
        lineage_events.flush(30)
        server.shutdown()
        thread.join()
        server.server_close()


def sent(collector: Collector) -> list[dict[str, Any]]:
    lineage_events.flush(60)
    return collector.events


def columns_of(output: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    fields = output["facets"]["columnLineage"]["fields"]
    return {
        column: [(each["name"], each["field"]) for each in one["inputFields"]]
        for column, one in fields.items()
    }
