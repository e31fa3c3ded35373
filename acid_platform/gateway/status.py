"""What a gateway says of itself to `acid doctor`: a small file beside the metastore's.

Only a metastore in a directory of this machine has one; a shared metastore's gateways write it
nowhere, and their log has the same figures.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acid_platform.clock import wall_ms
from acid_platform.location import Location

if TYPE_CHECKING:
    from acid_platform.gateway.server import Server

_PREFIX = "gateway-"
_STALE_MS = 30_000


class StatusFile:
    """The file of one gateway's process."""

    def __init__(self, place: Location) -> None:
        self._path = None if place.shared else Path(place.metastore, f"{_PREFIX}{os.getpid()}.json")
        self._since = wall_ms()
        if self._path is not None:
            for path in self._path.parent.glob(f"{_PREFIX}*.json"):
                with suppress(OSError, ValueError):
                    if not _runs(json.loads(path.read_text())):
                        path.unlink()

    def write(self, server: Server) -> None:
        """Replaces the file. Raises OSError."""
        if self._path is None:
            return
        counters, tls = server.counters, server.entry.tls
        host, port = server.address
        status = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "address": f"{host}:{port}",
            "tls": tls is not None,
            "certificate_days": round(tls.days_left(), 1) if tls else None,
            "login": server.entry.closed,
            "connections": server.connections,
            "connections_limit": server.bounds.connections,
            "threads": server.threads,
            "threads_limit": server.bounds.threads,
            "waiting_bytes": server.waiting_bytes,
            "rate": server.bounds.rate,
            "accepted": counters.accepted,
            "refused": counters.refused,
            "failed_logins": counters.failed_logins,
            "calls": counters.calls,
            "slowed": counters.slowed,
            "since": self._since,
            "at": wall_ms(),
        }
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(status))
        new.replace(self._path)

    def remove(self) -> None:
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()


def _runs(status: dict[str, Any]) -> bool:
    """Whether the gateway's process lives; one of another machine counts as alive for a while."""
    if status["host"] != socket.gethostname():
        return bool(wall_ms() - status["at"] < _STALE_MS)
    try:
        os.kill(status["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def running(place: Location) -> Iterator[dict[str, Any]]:
    """What the gateways of a metastore say that run now."""
    if place.shared:
        return
    for path in sorted(Path(place.metastore).glob(f"{_PREFIX}*.json")):
        with suppress(OSError, ValueError, KeyError):
            status = json.loads(path.read_text())
            if _runs(status):
                yield status


def examined(status: dict[str, Any]) -> tuple[bool, str]:
    """Whether the gateway is safe and alive, and a line about it."""
    hours = max(1, status["at"] - status["since"]) / 3_600_000
    entry = "TLS, " if status["tls"] else ""
    text = (
        f"process {status['pid']} listens on {status['address']} ({entry}"
        f"{'with' if status['login'] else 'without'} login):"
        f" {status['connections']} of {status['connections_limit']} connections,"
        f" {status['threads']} of {status['threads_limit']} threads,"
        f" {status['calls']:,} calls in {hours:.1f} h"
        f" ({status['slowed']:,} slowed by the limit of"
        f" {status['rate'] or 'any number of'} calls per second),"
        f" {status['refused']} connections and {status['failed_logins']} logins refused"
    )
    faults = []
    if wall_ms() - status["at"] > _STALE_MS:
        faults.append("it has said nothing for more than 30 s; see its log")
    days = status["certificate_days"]
    if days is not None and days < 14:
        ends = f"ends in {days:g} days" if days > 0 else "has expired"
        faults.append(f"its certificate {ends}; renew it")
    here = status["address"].startswith(("127.", "::1:"))
    if not status["login"] and not here:
        faults.append(
            "whoever reaches it may read, write and drop every table: set acid.gateway.users or"
            " acid.gateway.tls.ca"
        )
    return not faults, "; ".join([text, *faults])
