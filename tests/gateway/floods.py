"""Floods of connections on each port, while eight clients commit.

`python -m tests.gateway.floods --connections 5000 --seconds 20` prints for each port, without and
with a flood of silent or half-sent connections, how many commits and failures there were, and the
99th percentile of their times. A flood takes processors of its own, so one is sent to a process
that only accepts and closes, too. The exit code is 1 if a commit failed, or if a flood of one of
our ports made them more than three times as slow as no flood and as that one.
"""

from __future__ import annotations

import argparse
import errno
import json
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.gateway.real_servers import Committers, RealServers

HALF = {
    "metastore": b'\0\0\0\x60{"acid": 1, "challenge": "',
    "gateway": b"\x01\0\0\0\x05PLA",
    "catalog": b"GET /v1/config HTTP/1.1\r\nHost: ",
    "postgres": b"\0\0\0\x20\0\x03\0\0user\0ann\0",
    "metastore metrics": b"GET /metrics HTTP/1.1\r\nHost: ",
    "gateway metrics": b"GET /metrics HTTP/1.1\r\nHost: ",
}
"""The beginning of what a client of each port sends."""


def flood(port: int, connections: int, sent: bytes) -> None:
    """Holds so many connections until it is ended, and opens a new one for each that ends."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ready, held = selectors.DefaultSelector(), 0
    while True:
        while held < connections:
            one = socket.socket()
            one.setblocking(False)
            if one.connect_ex(("127.0.0.1", port)) not in (0, errno.EINPROGRESS):
                one.close()
                break
            ready.register(one, selectors.EVENT_WRITE)
            held += 1
            if held % 100 == 0:
                break
        for key, events in ready.select(0.01):
            one = key.fileobj  # type: ignore[assignment]
            try:
                if events & selectors.EVENT_WRITE:
                    one.send(sent)
                    ready.modify(one, selectors.EVENT_READ)
                elif not one.recv(4096):
                    raise OSError
            except OSError:
                ready.unregister(one)
                one.close()
                held -= 1


@contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kills the process when the block ends."""
    try:
        yield
    finally:
        process.kill()
        process.wait()


def sink(listener: socket.socket) -> None:
    """Accepts each connection and closes it, until it is ended."""
    while True:
        listener.accept()[0].close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tls", action="store_true", help="the gateway speaks TLS")
    parser.add_argument("--flood", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--sent", default="", help=argparse.SUPPRESS)
    parser.add_argument("--sink", type=int, metavar="DESCRIPTOR", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.flood:
        flood(chosen.flood, chosen.connections, bytes.fromhex(chosen.sent))
    if chosen.sink:
        sink(socket.socket(fileno=chosen.sink))
    failed, elsewhere = False, 0.0
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    nothing = subprocess.Popen(
        [sys.executable, "-m", "tests.gateway.floods", "--sink", str(listener.fileno())],
        pass_fds=[listener.fileno()],
    )
    with (
        ending(nothing),
        tempfile.TemporaryDirectory() as directory,
        RealServers(Path(directory), tls=chosen.tls) as servers,
        Committers(servers, chosen.clients).running() as committers,
    ):
        time.sleep(5)
        ports = {
            "a process that accepts and closes": listener.getsockname()[1],
            "metastore": servers.metastore_port,
            "gateway": servers.gateway_port,
            "catalog": servers.catalog_port,
            "postgres": servers.postgres_port,
            "metastore metrics": servers.metrics["metastore"],
            "gateway metrics": servers.metrics["gateway"],
        }
        for name, port in ports.items():
            quiet = committers.phase(chosen.seconds)
            print(json.dumps({"port": "none", **quiet.report()}), flush=True)
            for sent in (b"", HALF[name]) if name in HALF else (b"",):
                command = [sys.executable, "-m", "tests.gateway.floods", "--flood", str(port)]
                command += ["--connections", str(chosen.connections), "--sent", sent.hex()]
                process = subprocess.Popen(command)
                with ending(process):
                    time.sleep(3)
                    seen = committers.phase(chosen.seconds)
                if name not in HALF:
                    elsewhere = seen.p99()
                slow = seen.p99() > 3 * max(quiet.p99(), elsewhere)
                failed = failed or slow or bool(seen.failures) or not seen.seconds
                told = {"port": name, "sent": len(sent), **seen.report(), **servers.memory()}
                print(json.dumps({**told, "too_slow": slow}), flush=True)
                time.sleep(2)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
