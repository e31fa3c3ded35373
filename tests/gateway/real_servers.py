"""A metastore with a port, a gateway and a catalog with users, in processes of their own, and
clients that commit meanwhile: for floods and for an hour of generated calls."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TFramedTransport, TSocket

from acid_platform import Warehouse
from acid_platform.gateway import framing, logins
from acid_platform.metastore import endpoint
from acid_platform.metastore.client.metastore import Metastore
from tests.gateway.certificates import Authority
from tests.gateway.clients import m
from tests.metastore.processes import free_port

KEY = "0123456789abcdef-of-a-test"
PASSWORD = "secret of the test"


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"nobody listens on {port}")


class RealServers:
    """The processes; `with RealServers(directory) as servers`."""

    def __init__(self, directory: Path, *, tls: bool = False) -> None:
        self.directory, self.home = directory, directory / "wh"
        self.metastore_port, self.gateway_port = free_port(), free_port()
        self.catalog_port, self.postgres_port = free_port(), free_port()
        self.metrics = {"metastore": free_port(), "gateway": free_port()}
        self.environment = {**os.environ, endpoint.KEY: KEY, "ACID_WAREHOUSE": str(self.home)}
        self.authority = Authority(directory) if tls else None
        self._arguments: list[str] = []
        if self.authority is not None:
            pair = self.authority.signs("gateway")
            self._arguments = ["--tls-certificate", pair.certificate, "--tls-key", pair.key]

    def __enter__(self) -> RealServers:
        with Warehouse.open(str(self.home), engine="local") as warehouse:
            for name in ("shown.own", "hidden.secret_table"):
                warehouse.create_table(name, "id int, v string").insert([{"id": 1, "v": "a"}])
            warehouse.metastore.stop()
        people = self.directory / "users"
        for name in ("ann", "eve"):
            logins.add(str(people), name, PASSWORD)
        grants = self.directory / "grants"
        grants.write_text("ann all *\neve read shown.own\n")
        self.metastore = self._start(
            ["acid_platform.metastore", "--dir", str(self.home / "_metastore"), "--without-tls"],
            ["--listen", f"127.0.0.1:{self.metastore_port}"],
            ["--metrics", f"127.0.0.1:{self.metrics['metastore']}"],
        )
        await_port(self.metastore_port, self.metastore)
        self.gateway = self._start(
            ["acid_platform", "gateway", "--listen", f"127.0.0.1:{self.gateway_port}"],
            ["--users", str(people), "--grants", str(grants), *self._arguments],
            ["--metrics", f"127.0.0.1:{self.metrics['gateway']}"],
        )
        await_port(self.gateway_port, self.gateway)
        self.catalog = self._start(
            ["acid_platform", "serve", "--listen", f"127.0.0.1:{self.catalog_port}"],
            ["--postgres", f"127.0.0.1:{self.postgres_port}"],
            ["--users", str(people), "--grants", str(grants), *self._arguments],
        )
        await_port(self.catalog_port, self.catalog)
        await_port(self.postgres_port, self.catalog)
        return self

    def _start(self, *arguments: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", *(one for part in arguments for one in part)]
        with open(self.directory / "log", "ab") as log:
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def __exit__(self, *_: object) -> None:
        for process in (self.catalog, self.gateway, self.metastore):
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()

    def memory(self) -> dict[str, int]:
        """MiB of each process."""
        processes = {"metastore": self.metastore, "gateway": self.gateway, "catalog": self.catalog}
        return {
            name: psutil.Process(process.pid).memory_info().rss >> 20
            for name, process in processes.items()
        }

    def logged_in(self, user: str) -> socket.socket:
        """A connection to the gateway on which the user has logged in."""
        return logged_in(self.gateway_port, user, self.authority)

    def client(self, user: str) -> Any:
        handle = TSocket("127.0.0.1", self.gateway_port, socket_timeout=60_000)
        handle.set_handle(self.logged_in(user))
        return TClient(m.ThriftHiveMetastore, TBinaryProtocol(TFramedTransport(handle)))


def logged_in(port: int, user: str, authority: Authority | None = None) -> socket.socket:
    """A connection to a gateway of this machine on which the user has logged in, with TLS if an
    authority signed its certificate."""
    raw = socket.create_connection(("127.0.0.1", port), 60)
    if authority is not None:
        context = ssl.create_default_context(cafile=authority.path)
        raw = context.wrap_socket(raw, server_hostname="localhost")
    raw.sendall(framing.client_opening(user, PASSWORD))
    status, size = struct.unpack("!BI", _exactly(raw, 5))
    said = _exactly(raw, size)
    if status != framing.SaslStatus.COMPLETE:
        raise PermissionError(said.decode())
    return raw


def _exactly(raw: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = raw.recv(size - len(content))
        if not part:
            raise EOFError("the connection was closed")
        content += part
    return content


def framed_answer(raw: socket.socket, payload: bytes) -> bytes:
    """What is answered to one call. Raises EOFError, OSError."""
    raw.sendall(struct.pack("!I", len(payload)) + payload)
    (size,) = struct.unpack("!I", _exactly(raw, 4))
    return _exactly(raw, size)


@dataclass
class Seen:
    """What clients that commit have seen in a phase."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def p99(self) -> float:
        ordered = sorted(self.seconds) or [float("inf")]
        return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]

    def report(self) -> dict[str, Any]:
        return {
            "commits": len(self.seconds),
            "failures": len(self.failures),
            "first_failures": self.failures[:3],
            "p99_ms": round(1000 * self.p99(), 1),
            "longest_ms": round(1000 * max(self.seconds, default=float("inf")), 1),
        }


class Committers:
    """Clients that commit all the time, half of them by the gateway; each connects anew now and
    then."""

    def __init__(self, servers: RealServers, count: int) -> None:
        self._servers, self._count = servers, count
        self._stop = threading.Event()
        self.seen = Seen()

    @contextmanager
    def running(self) -> Iterator[Committers]:
        os.environ[endpoint.KEY] = KEY
        loops = (self._by_metastore, self._by_gateway)
        threads = [
            threading.Thread(target=loops[number % 2], daemon=True) for number in range(self._count)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(90)

    def phase(self, seconds: float) -> Seen:
        """What is seen from now on for so many seconds."""
        self.seen = seen = Seen()
        time.sleep(seconds)
        return seen

    def _timed(self, work: Any) -> None:
        seen, began = self.seen, time.perf_counter()
        try:
            work()
            seen.seconds.append(time.perf_counter() - began)
        except Exception as error:
            seen.failures.append(f"{type(error).__name__}: {error}"[:200])
            raise

    def _by_metastore(self) -> None:
        while not self._stop.is_set():
            address = f"tcp://127.0.0.1:{self._servers.metastore_port}"
            with suppress(Exception), Metastore.connect(address) as client:
                for _ in range(200):
                    if self._stop.is_set():
                        return
                    self._timed(lambda: client.begin().commit())
                    time.sleep(0.02)

    def _by_gateway(self) -> None:
        def commit() -> None:
            (txn,) = client.open_txns(m.OpenTxnRequest(1, "ann", "host", "")).txn_ids
            client.commit_txn(m.CommitTxnRequest(txnid=txn))

        while not self._stop.is_set():
            try:
                client = self._servers.client("ann")
            except Exception as error:
                self.seen.failures.append(f"login: {type(error).__name__}: {error}"[:200])
                time.sleep(0.5)
                continue
            with suppress(Exception):
                for _ in range(200):
                    if self._stop.is_set():
                        return
                    self._timed(commit)
                    time.sleep(0.02)
