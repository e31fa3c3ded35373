"""The benchmark `transports`: the metastore with eight clients over a Unix socket, TCP and TLS, and
over TCP while it archives its journal, in alternating slices.

Writes `<date>-transports.json` to benchmarks/results.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from acid_platform.metastore import endpoint
from acid_platform.metastore.certificates import make_certificate
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.target import start
from acid_platform.metastore.endpoint import Home
from benchmarks.contenders import OurMetastore, Session
from benchmarks.metastore import Run, _together, run_clients
from benchmarks.results import options, saved

HOST = "127.0.0.1"


class Service(OurMetastore):
    """A metastore that listens on TCP."""

    def __init__(
        self, name: str, directory: Path, *, tls: bool = False, archive: Path | None = None
    ) -> None:
        super().__init__(directory)
        self.name, self._archive = name, archive
        self._certificate = make_certificate(directory / "tls", [HOST]) if tls else None
        self._uri = ""

    def start(self) -> None:
        start(Home(self.home), f"{HOST}:0")
        super().start()
        self._uri = f"tcp://{self.status()['listen']}"
        if self._archive:
            with Metastore.connect(self.home) as client:
                client.set("acid.metastore.archive", str(self._archive))

    def open_session(self) -> Session:
        # In the process of one client.
        if self._certificate:
            os.environ[endpoint.TLS_CA] = self._certificate.ca
        os.environ[endpoint.KEY] = (self.home / "authkey").read_text()
        return self.session_of(self._uri)


def main() -> None:
    given = options(__doc__, clients=8, rounds=4, seconds=8.0)
    with TemporaryDirectory() as made:
        root = Path(made)
        contenders = [
            OurMetastore(root / "socket"),
            Service("tcp", root / "tcp"),
            Service("tcp with TLS", root / "tls", tls=True),
            Service("tcp with archive", root / "archiving", archive=root / "archive"),
        ]
        contenders[0].name = "unix socket"
        runs: dict[str, list[Run]] = {each.name: [] for each in contenders}
        for each in contenders:
            each.start()
        connecting = {each.name: _connecting(each.open_session) for each in contenders[1:]}
        for number in range(given.rounds):
            turn = number % len(contenders)
            for each in contenders[turn:] + contenders[:turn]:
                run = run_clients(each, given.clients, given.seconds)
                runs[each.name].append(run)
                print(f"  {each.name}: {run.rate:.0f}/s, p50 {run.percentile(0.5):.2f} ms")
        found: dict[str, Any] = {}
        for each in contenders:
            durable = each.stop()
            found[each.name] = {
                **_together(runs[each.name]).summary(),
                "slices_per_second": [round(run.rate, 1) for run in runs[each.name]],
                "connect_ms": connecting.get(each.name),
                "lost": sum(txn not in durable for run in runs[each.name] for txn in run.ids),
            }
    print(saved(given, "transports", **found))


def _connecting(connect: Callable[[], Session]) -> float:
    """Milliseconds until a client is connected: the median of 21."""
    taken = []
    before = dict(os.environ)
    for _ in range(21):
        began = time.perf_counter()
        connect()
        taken.append(time.perf_counter() - began)
    os.environ.clear()
    os.environ.update(before)
    return round(1000 * sorted(taken)[10], 2)
