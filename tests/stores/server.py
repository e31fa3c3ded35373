"""Servers of object stores for tests, which count their requests and fail when they are told to.

Behind it is moto's server of S3, or another one, to which the requests are passed on: that of S3
which ACID_TEST_S3=http://KEY:SECRET@HOST:PORT names, or an emulator of `clouds.py`.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import SplitResult, parse_qs, urlsplit
from urllib.request import Request, urlopen

from acid_platform.base import s3

if TYPE_CHECKING:
    import pytest

CONTROL = "/-/"
"""Paths for the tests; no bucket has such a name."""

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Protocol:
    """How a kind of store speaks."""

    operation: Callable[[dict[str, Any], dict[str, list[str]]], str]
    """The name of what a request with such a query asks for: GET, HEAD, LIST, PUT (which makes an
    object visible), PART, COPY, DELETE, DELETE_MANY, …"""
    path: Callable[[str, dict[str, list[str]]], str]
    """`/bucket/key` of a request's path."""
    errors: dict[str, tuple[int, str]]
    """The status and code of each error that S3 names so."""
    answer: Callable[[int, str], tuple[Headers, bytes]]
    """The answer for a status and a code."""
    conditions: frozenset[str]
    """The headers that make a request conditional."""


def _s3_answer(_status: int, code: str) -> tuple[Headers, bytes]:
    body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>"
    return [("Content-Type", "application/xml")], body.encode()


@dataclass(frozen=True)
class Fault:
    """What happens to the next requests that fit."""

    error: str
    """A code of S3 such as SlowDown, for which other stores have another; `hang`: no answer;
    `lost`: done, but the answer is lost; `unconditional`: done, whatever the request's conditions
    say."""
    operation: str = ".*"
    """A pattern of `Protocol.operation`."""
    key: str = ".*"
    """A pattern of `/bucket/key`."""
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


S3 = Protocol(
    lambda environ, query: operation_of(
        environ["REQUEST_METHOD"], query, "HTTP_X_AMZ_COPY_SOURCE" in environ
    ),
    lambda path, _: path,
    {
        "SlowDown": (503, "SlowDown"),
        "AccessDenied": (403, "AccessDenied"),
        "InvalidAccessKeyId": (403, "InvalidAccessKeyId"),
        "SignatureDoesNotMatch": (403, "SignatureDoesNotMatch"),
        "ExpiredToken": (400, "ExpiredToken"),
        "InternalError": (500, "InternalError"),
    },
    _s3_answer,
    frozenset({"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"}),
)


class Watched:
    """A WSGI application before a store's."""

    def __init__(self, inner: Callable[..., Iterable[bytes]], protocol: Protocol = S3) -> None:
        self._inner = inner
        self._protocol = protocol
        self._guard = threading.Lock()
        self._conditional = threading.Lock()
        self._log: list[tuple[str, str]] = []
        self._faults: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith(CONTROL):
            return self._control(path.removeprefix(CONTROL), environ, start)
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        operation = self._protocol.operation(environ, query)
        path = self._protocol.path(path, query)
        with self._guard:
            self._log.append((operation, path))
            fault = self._next_fault(operation, path)
        if fault is None:
            return self._do(environ, start)
        if fault["error"] == "unconditional":
            for name in self._protocol.conditions:
                environ.pop(name, None)
                environ[_HEADERS].pop(name.removeprefix("HTTP_").replace("_", "-").lower(), None)
            return self._inner(environ, start)
        if fault["error"] == "hang":
            time.sleep(fault["seconds"])
            return self._cut(environ, start)
        if fault["error"] == "lost":
            list(self._do(environ, lambda *_: None))
            return self._cut(environ, start)
        read(environ)
        status, code = self._protocol.errors[fault["error"]]
        headers, body = self._protocol.answer(status, code)
        start(f"{status} {http.client.responses[status]}", headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def _do(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ.keys() & self._protocol.conditions and environ["REQUEST_METHOD"] == "PUT":
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
        content = read(environ)
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


def read(environ: dict[str, Any]) -> bytes:
    if environ.get("wsgi.input_terminated"):  # it came in chunks
        return bytes(environ["wsgi.input"].read())
    return bytes(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))


_OF_CONNECTIONS = ("connection", "keep-alive", "transfer-encoding", "expect")
"""Headers that are not passed on."""
_HEADERS = "acid.headers"


Answer = tuple[int, Headers, bytes]


def asked(
    server: SplitResult, method: str, target: str, headers: dict[str, str], content: bytes = b""
) -> Answer:
    """What the server answers to a request."""
    connection = http.client.HTTPConnection(server.hostname or "", server.port, timeout=60)
    connection.putrequest(method, target, skip_host="host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        if name not in (*_OF_CONNECTIONS, "content-length"):
            connection.putheader(name, value)
    connection.putheader("Content-Length", str(len(content)))
    connection.endheaders(content)
    answer = connection.getresponse()
    told = [(k, v) for k, v in answer.getheaders() if k.lower() not in _OF_CONNECTIONS]
    body = answer.read()
    connection.close()
    return answer.status, told, body


def headers_of(environ: dict[str, Any]) -> dict[str, str]:
    """The headers of a request, with small letters; WSGI has none with an underscore."""
    return dict(environ[_HEADERS])


def passing_on(server: SplitResult) -> Callable[..., Iterable[bytes]]:
    """An application that asks another server, with the headers that the client has signed."""

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, target, headers = (
            environ["REQUEST_METHOD"],
            environ["REQUEST_URI"],
            headers_of(environ),
        )
        status, told, body = asked(server, method, target, headers, read(environ))
        if "content-length" not in (name.lower() for name, _ in told):  # it came in chunks
            told.append(("Content-Length", str(len(body))))
        start(f"{status} {http.client.responses[status]}", told)
        return [body]

    return application


def real_server() -> SplitResult | None:
    """What ACID_TEST_S3 names."""
    named = os.environ.get("ACID_TEST_S3")
    return urlsplit(named) if named else None


class StoreServer:
    """The process of a server, seen from a test."""

    scheme: ClassVar[str]
    other_scheme: ClassVar[str]
    """Another spelling of the same."""
    hidden: ClassVar[tuple[str, ...]] = ()
    """Variables of the environment that would be taken instead."""
    names_credentials: ClassVar[str]
    """The variable that errors about credentials name."""
    names_place: ClassVar[str]
    """The variable that errors about the network name."""
    tells_types: ClassVar[bool] = True
    """Whether Arrow tells the type of an object's content, as it was given."""
    first_file: ClassVar[int] = 2
    """How many requests the first of the two files of an INSERT takes."""
    signs_conditions: ClassVar[bool] = False
    """Whether the signature of a request has its conditions, so that none can be taken away."""
    gives_up_silence: ClassVar[bool] = True
    """Whether Arrow has a limit for a connection on which nothing comes."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def environment_at(self, url: str) -> dict[str, str]:
        """The variables with which every tool of the cloud uses a server at this address."""
        raise NotImplementedError

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which every tool of the cloud uses the server."""
        return self.environment_at(self.url)

    def uri(self, bucket: str, path: str) -> str:
        return f"{self.scheme}://{bucket}/{path}"

    def make_bucket(self, name: str) -> None:
        raise NotImplementedError

    def keys(self, bucket: str, below: str = "") -> list[str]:
        """The keys in a bucket that begin with `below`, sorted."""
        raise NotImplementedError

    @staticmethod
    def hurry(patch: pytest.MonkeyPatch) -> None:
        """Has clients give up soon, so that the tests are short."""

    @contextmanager
    def on_spark(self, _directory: Path) -> Iterator[dict[str, str]]:
        """The other variables with which Spark reads from the server during the block, in a process
        of its own. What they need stands in the directory."""
        yield {"ACID_SPARK_PACKAGES": self.scheme}

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    def ask(self, path: str, method: str = "GET", content: bytes | None = None) -> bytes:
        """Sends one of the requests that only this server knows."""
        with urlopen(Request(f"{self.url}{path}", content, method=method), timeout=20) as answer:
            return bytes(answer.read())

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


class S3Server(StoreServer):
    """moto's server, or that which ACID_TEST_S3 names."""

    scheme = "s3"
    other_scheme = "s3a"
    hidden = ("AWS_PROFILE",)
    names_credentials = "AWS_ACCESS_KEY_ID"
    names_place = "AWS_ENDPOINT_URL"

    def __init__(self) -> None:
        super().__init__("tests.stores.server")
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

    def environment_at(self, url: str) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": self._key[0],
            "AWS_SECRET_ACCESS_KEY": self._key[1],
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def make_bucket(self, name: str) -> None:
        self._client.create_bucket(Bucket=name)

    def keys(self, bucket: str, below: str = "") -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=below)
        return sorted(found["Key"] for page in pages for found in page.get("Contents", ()))

    def uploads(self, bucket: str) -> list[str]:
        """The keys of multipart uploads that are not finished."""
        listed = self._client.list_multipart_uploads(Bucket=bucket)
        return [found["Key"] for found in listed.get("Uploads", ())]

    @staticmethod
    def hurry(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(s3, "_RETRIES", 2)
        patch.setattr(s3, "_SECONDS", 3.0)
        patch.setattr(s3, "_CONNECT_SECONDS", 1.0)
        s3._connected.cache_clear()


def serve(application: Callable[..., Iterable[bytes]]) -> None:
    """Prints the port, and ends with standard input."""
    import logging

    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        def make_environ(self) -> dict[str, Any]:
            headers = {name.lower(): value for name, value in self.headers.items()}
            return {**super().make_environ(), _HEADERS: headers}

        def handle_expect_100(self) -> bool:
            """Azure's client takes a second `100 Continue`, werkzeug's own, for the answer."""
            said = super().handle_expect_100()
            del self.headers["Expect"]
            return said

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    serving = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Handler)
    print(serving.server_port, flush=True)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    from moto.moto_server.werkzeug_app import create_backend_app

    real = real_server()
    serve(Watched(passing_on(real) if real else create_backend_app("s3")))


if __name__ == "__main__":
    main()
