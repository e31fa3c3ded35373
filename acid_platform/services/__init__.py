"""Initiator, Worker and Cleaner, what they would do next, erasure requests and fsck.

Only one process at a time runs a cycle of a service: it holds a lease (P9).
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore


@contextmanager
def leading(metastore: Metastore, service: str) -> Iterator[Callable[[], object]]:
    """Holds the lease of `service` during the block.

    Yields a function that renews the lease: call it between pieces of work, at least every
    `hive.txn.timeout`. Entering the block and renewing raise LeaseHeld if another process has the
    lease.
    """
    holder = worker_id()

    def renew() -> None:
        metastore.call(ops.HoldService(service, holder))

    renew()
    try:
        yield renew
    finally:
        metastore.call(ops.ReleaseService(service, holder))


def worker_id() -> str:
    """`host-pid.thread`: unique among the Workers that run at the same time (C26)."""
    return f"{socket.gethostname()}-{os.getpid()}.{threading.get_ident() % 100_000}"
