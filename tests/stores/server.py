"""An S3 server for tests: moto's, which counts its requests and fails when it is told to.

ACID_TEST_S3=http://KEY:SECRET@HOST:PORT names a real one, to which the requests are passed on.

It is a process of its own: pyarrow closes streams while it holds Python's lock, which a server in
the same process would need to answer. `python -m tests.stores.server` prints its port, and ends
with its standard input.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit
from urllib.request import Request, urlopen

CONTROL = "/-/"
"""Paths for the tests; no bucket has such a name."""

_CONDITIONS = {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"}
_ERRORS = {
    "SlowDown": (503, "Slow Down"),
    "AccessDenied": (403, "Forbidden"),
    "InvalidAccessKeyId": (403, "Forbidden"),
    "SignatureDoesNotMatch": (403, "Forbidden"),
    "ExpiredToken": (400, "Bad Request"),
    "InternalError": (500, "Internal Server Error"),
}


@dataclass(frozen=True)
class Fault:
    """What happens to the next requests that fit."""

    error: str
    """A code of S3 such as SlowDown; `hang`: no answer; `lost`: done, but the answer is lost;
    `unconditional`: done, whatever the request's conditions say."""
    operation: str = ".*"
    """A pattern of `operation_of`."""
    key: str = ".*"
    """A pattern of the whole path, `/bucket/key`."""
    times: int = 1 << 30
    after: int = 0
    """So many that fit are answered before."""
    seconds: float = 0
    """How long `hang` takes."""


def operation_of(method: str, query: dict[str, list[str]], copy: bool) -> str:
    """The S3 operation of a request, as this module names it."""
    if method == "PUT":
        return "PART" if "partNumber" in query else "COPY" if copy else "PUT"
    if method == "POST":
        return (
            "BEGIN" if "uploads" in query else "COMPLETE" if "uploadId" in query else "DELETE_MANY"
        )
    if method == "DELETE":
        return "ABORT" if "uploadId" in query else "DELETE"
    listing = {"list-type", "prefix", "delimiter", "uploads"} & query.keys()
    return "LIST" if method == "GET" and listing else method


class Watched:
    """A WSGI application before moto's."""

    def __init__(self, inner: Callable[..., Iterable[bytes]]) -> None:
        self._inner = inner
        self._guard = threading.Lock()
        self._conditional = threading.Lock()
        self._log: list[tuple[str, str]] = []
        self._faults: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith(CONTROL):
            return self._control(path.removeprefix(CONTROL), environ, start)
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        operation = operation_of(
            environ["REQUEST_METHOD"], query, "HTTP_X_AMZ_COPY_SOURCE" in environ
        )
        with self._guard:
            self._log.append((operation, path))
            fault = self._next_fault(operation, path)
        if fault is None:
            return self._do(environ, start)
        if fault["error"] == "unconditional":
            for name in _CONDITIONS:
                environ.pop(name, None)
            return self._inner(environ, start)
        if fault["error"] == "hang":
            time.sleep(fault["seconds"])
            return self._cut(environ, start)
        if fault["error"] == "lost":
            list(self._do(environ, lambda *_: None))
            return self._cut(environ, start)
        _read(environ)
        status, reason = _ERRORS[fault["error"]]
        body = f"<Error><Code>{fault['error']}</Code><Message>injected</Message></Error>".encode()
        start(f"{status} {reason}", [("Content-Type", "application/xml")])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def _do(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ.keys() & _CONDITIONS and environ["REQUEST_METHOD"] == "PUT":
            with self._conditional:  # moto looks first and writes later
                return self._inner(environ, start)
        return self._inner(environ, start)

    def _next_fault(self, operation: str, path: str) -> dict[str, Any] | None:
        for fault in self._faults:
            if not re.fullmatch(fault["operation"], operation) or not re.search(fault["key"], path):
                continue
            if fault["after"]:
                fault["after"] -= 1
            elif fault["times"]:
                fault["times"] -= 1
                return fault
        return None

    def _cut(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        environ["werkzeug.socket"].shutdown(2)
        start("500 Cut", [])
        return []

    def _control(
        self, what: str, environ: dict[str, Any], start: Callable[..., Any]
    ) -> Iterable[bytes]:
        content = _read(environ)
        with self._guard:
            answer: object = None
            if what == "log":
                answer, self._log = self._log, []
            elif what == "fault":
                self._faults.append(json.loads(content))
            elif what == "heal":
                self._faults = []
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]


def _read(environ: dict[str, Any]) -> bytes:
    if environ.get("wsgi.input_terminated"):  # it came in chunks
        return bytes(environ["wsgi.input"].read())
    return bytes(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))


_OF_CONNECTIONS = ("connection", "keep-alive", "transfer-encoding", "expect")
"""Headers that are not passed on."""


def passing_on(server: SplitResult) -> Callable[..., Iterable[bytes]]:
    """An application that asks a real server, with the headers that the client has signed."""

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        content = _read(environ)
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_") or (name == "CONTENT_TYPE" and value)
        }
        connection = http.client.HTTPConnection(server.hostname or "", server.port, timeout=60)
        connection.putrequest(
            environ["REQUEST_METHOD"],
            environ["REQUEST_URI"],
            skip_host=True,
            skip_accept_encoding=True,
        )
        for name, value in headers.items():
            if name not in _OF_CONNECTIONS:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(content)))
        connection.endheaders(content)
        answer = connection.getresponse()
        told = [(k, v) for k, v in answer.getheaders() if k.lower() not in _OF_CONNECTIONS]
        body = answer.read()
        connection.close()
        start(f"{answer.status} {answer.reason}", told)
        return [body]

    return application


def real_server() -> SplitResult | None:
    """What ACID_TEST_S3 names."""
    named = os.environ.get("ACID_TEST_S3")
    return urlsplit(named) if named else None


class S3Server:
    """The server's process, seen from a test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stores.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        real = real_server()
        self._key = (real.username or "", real.password or "") if real else ("test", "test")
        import boto3

        self._client: Any = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=self._key[0],
            aws_secret_access_key=self._key[1],
            region_name="us-east-1",
        )

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which every tool of AWS uses the server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self._key[0],
            "AWS_SECRET_ACCESS_KEY": self._key[1],
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    def ask(self, path: str, method: str = "GET", content: bytes | None = None) -> bytes:
        """Sends one of the requests that only this server knows."""
        with urlopen(Request(f"{self.url}{path}", content, method=method), timeout=20) as answer:
            return bytes(answer.read())

    def make_bucket(self, name: str) -> None:
        self._client.create_bucket(Bucket=name)

    def keys(self, bucket: str, below: str = "") -> list[str]:
        """The keys in a bucket that begin with `below`, sorted."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=below)
        return sorted(found["Key"] for page in pages for found in page.get("Contents", ()))

    def uploads(self, bucket: str) -> list[str]:
        """The keys of multipart uploads that are not finished."""
        listed = self._client.list_multipart_uploads(Bucket=bucket)
        return [found["Key"] for found in listed.get("Uploads", ())]

    @contextmanager
    def fails(self, fault: Fault) -> Iterator[None]:
        """Requests of the block that fit fail."""
        self.ask(f"{CONTROL}fault", "POST", json.dumps(asdict(fault)).encode())
        try:
            yield
        finally:
            self.ask(f"{CONTROL}heal", "POST", b"")

    def log(self) -> list[tuple[str, str]]:
        """The operation and path of each request since the last call."""
        return [(operation, path) for operation, path in json.loads(self.ask(f"{CONTROL}log"))]

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """After the block, the counter has the number of requests by operation."""
        self.log()
        counter: Counter[str] = Counter()
        yield counter
        counter.update(operation for operation, _ in self.log())


def main() -> None:
    import logging

    from moto.moto_server.werkzeug_app import create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    real = real_server()
    inner = passing_on(real) if real else create_backend_app("s3")
    serving = make_server("127.0.0.1", 0, Watched(inner), threaded=True)
    print(serving.server_port, flush=True)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
