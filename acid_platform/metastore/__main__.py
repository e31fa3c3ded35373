"""`python -m acid_platform.metastore --dir DIR` serves a metastore until it is stopped or idle.

With `--detach` the process runs in the background. Once it serves, or has failed, the caller gets
one line of JSON: `{"pid": ...}` or `{"error": [class, text]}`. With `--listen` it is a service for
other machines: its clients need the key of ACID_METASTORE_KEY or ACID_METASTORE_KEY_FILE in this
process, or else the content of `authkey` in the directory. It uses TLS if there is a certificate:
ACID_METASTORE_TLS_CERTIFICATE and ACID_METASTORE_TLS_KEY, or the files in `tls` in the directory;
without one it serves other machines only with `--without-tls`.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from acid_platform.base.local_files import scratch_directory
from acid_platform.base.logs import log_to
from acid_platform.errors import AcidError, InvalidDefinition, MetastoreUnavailable
from acid_platform.metastore.endpoint import (
    TLS_CERTIFICATE,
    TLS_KEY,
    Home,
    configured_key,
    require_tls,
    take_lock,
)
from acid_platform.metastore.rules.turn import error_reply

if TYPE_CHECKING:
    from acid_platform.metastore.server.connections import ListeningService
    from acid_platform.metastore.tls import Served


def serve(
    home: Home,
    listen: str | None,
    ready: int | None = None,
    *,
    without_tls: bool = False,
    metrics: str = "",
) -> int:
    """Runs the server; writes the result of the start to the file descriptor `ready`, if any."""
    try:
        os.umask(0o077)  # whatever this process writes is for its owner only
        home.prepare()
        service = _service(home, listen, without_tls) if listen else None
        lock = take_lock(home)
        # Imported late: only the process that gets the lock loads the rest.
        from acid_platform.metastore.server.server import install_signals, server_of

        log_to(logging.FileHandler(home.log), "%(asctime)s %(process)d")
        server = server_of(home, service=service)
        if metrics:
            server.serve_metrics(metrics)
    except AcidError as error:
        tell(ready, error_reply(error))
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        logging.getLogger(__name__).exception("can't start")
        tell(ready, error_reply(MetastoreUnavailable(f"{type(error).__name__}: {error}")))
        raise
    collect_rarely()
    tell(ready, {"pid": os.getpid()})
    with lock:
        install_signals(server)
        server.run()
        if server.moved:
            logging.shutdown()
            # Closing would write and remove files at a path that may be another warehouse's.
            os._exit(0)
        return 0


def collect_rarely() -> None:
    """Requests leave no reference cycles; the default threshold would cost a fifth of the CPU."""
    gc.set_threshold(50_000, 20, 100)


def _service(home: Home, listen: str, without_tls: bool) -> ListeningService:
    """Raises InvalidDefinition, and MetastoreRefused for a key or a certificate that can't be
    used."""
    from acid_platform.metastore.server.connections import ListeningService

    key = configured_key() or home.authkey()
    certificate = _certificate(home.tls)
    require_tls(
        listen,
        tls=certificate is not None,
        without_tls=without_tls,
        certificate="make a certificate by `acid metastore certificate HOST`",
    )
    return ListeningService(listen, key, certificate)


def _certificate(directory: Path = Path("/nonexistent")) -> Served | None:
    """That of the service, in the environment or in a directory. Raises MetastoreRefused."""
    named = os.environ.get(TLS_CERTIFICATE) or os.environ.get(TLS_KEY)
    if not named and not directory.exists():
        return None
    from acid_platform.metastore.tls import Served

    return Served.configured(directory, os.environ)


def serve_log(
    where: str, listen: str, advertise: str = "", *, without_tls: bool = False, metrics: str = ""
) -> None:
    """Serves a log in PostgreSQL or in a bucket, as one of several processes (P10), until SIGTERM.

    The process has no state of its own. `listen` and `advertise` are `host:port`; the log tells
    clients the second, or else the first. Raises InvalidDefinition, MetastoreUnavailable,
    MetastoreRefused.
    """
    from acid_platform.metastore.log.contract import Leader, open_log
    from acid_platform.metastore.server.connections import ListeningService
    from acid_platform.metastore.server.server import install_signals, member_of

    os.umask(0o077)
    log_to(logging.StreamHandler(sys.stderr), "%(asctime)s %(process)d")
    if not advertise and listen.rpartition(":")[0] in ("", "0.0.0.0", "[::]", "::"):
        raise InvalidDefinition(
            f"--listen {listen} is no address for clients: name theirs with --advertise HOST:PORT"
        )
    key = configured_key() or secrets.token_hex(32).encode()
    certificate, authority = _certificate(), ""
    require_tls(
        listen,
        tls=certificate is not None,
        without_tls=without_tls,
        certificate="make a certificate by `acid metastore certificate HOST --to DIR`, name it"
        f" in {TLS_CERTIFICATE} and {TLS_KEY}",
    )
    if certificate is not None:
        own = Path(os.environ[TLS_CERTIFICATE]).with_name("ca.pem")
        authority = own.read_text() if own.exists() else ""  # a known authority needs none
    service = ListeningService(listen, key, certificate)
    with scratch_directory("metastore") as scratch:
        offer = Leader(0, advertise, key=key.decode(), authority=authority)
        server = member_of(open_log(where), service, Path(scratch), offer)
        if metrics:
            server.serve_metrics(metrics)
        collect_rarely()
        install_signals(server)
        server.run()


def tell(ready: int | None, message: object) -> None:
    if ready is not None:
        os.write(ready, json.dumps(message).encode() + b"\n")
        os.close(ready)


def detach(home: Home, listen: str | None, *, without_tls: bool, metrics: str) -> int:
    """Starts the server in a child; the parent exits once the child has reported the result."""
    reading, ready = os.pipe()
    if os.fork():
        os.close(ready)
        with open(reading) as answers:
            print(answers.read(), end="", flush=True)
        return 0
    os.close(reading)
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.chdir("/")
    return serve(home, listen, ready, without_tls=without_tls, metrics=metrics)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m acid_platform.metastore",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dir", type=Path, required=True, help="directory of the metastore")
    parser.add_argument("--detach", action="store_true", help="serve in the background")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="serve other machines too (port 0: any free port), and never end when idle",
    )
    parser.add_argument(
        "--without-tls",
        action="store_true",
        help="serve other machines in clear text, on a network that is trusted",
    )
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", default="", help="serve /metrics for Prometheus"
    )
    chosen = parser.parse_args()
    home = Home(chosen.dir.resolve())
    options = {"without_tls": chosen.without_tls, "metrics": chosen.metrics}
    if chosen.detach:
        return detach(home, chosen.listen, **options)
    return serve(home, chosen.listen, **options)


if __name__ == "__main__":
    sys.exit(main())
