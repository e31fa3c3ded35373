"""One of several processes that serve a log in PostgreSQL or in a bucket (P10)."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import tempfile
from pathlib import Path

from acid_platform.base.visible import log_to
from acid_platform.errors import InvalidDefinition
from acid_platform.metastore.__main__ import collect_rarely
from acid_platform.metastore.address import TLS_CERTIFICATE, TLS_KEY, configured_key
from acid_platform.metastore.log.contract import Leader
from acid_platform.metastore.log.open_log import open_log
from acid_platform.metastore.server.reception import ListeningService
from acid_platform.metastore.server.server import install_signals, member_of


def serve_log(where: str, listen: str, advertise: str = "") -> None:
    """Serves until SIGTERM. The process has no state of its own.

    `listen` and `advertise` are `host:port`; the log tells clients the second, or else the first.
    Raises InvalidDefinition, MetastoreUnavailable, MetastoreRefused.
    """
    os.umask(0o077)
    log_to(logging.StreamHandler(sys.stderr), "%(asctime)s %(process)d")
    if not advertise and listen.rpartition(":")[0] in ("", "0.0.0.0", "[::]", "::"):
        raise InvalidDefinition(
            f"--listen {listen} is no address for clients: name theirs with --advertise HOST:PORT"
        )
    key = configured_key(os.environ) or secrets.token_hex(32).encode()
    certificate, authority = None, ""
    if os.environ.get(TLS_CERTIFICATE) or os.environ.get(TLS_KEY):
        from acid_platform.metastore.tls import Served

        certificate = Served.configured(Path("/nonexistent"), os.environ)
        own = Path(os.environ[TLS_CERTIFICATE]).with_name("ca.pem")
        authority = own.read_text() if own.exists() else ""  # a known authority needs none
    service = ListeningService(listen, key, certificate)
    with tempfile.TemporaryDirectory(prefix="acid-metastore-") as scratch:
        offer = Leader(0, advertise, key=key.decode(), authority=authority)
        server = member_of(open_log(where), service, Path(scratch), offer)
        collect_rarely()
        install_signals(server)
        server.run()
