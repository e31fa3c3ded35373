"""Who may be connected to a port before it has said who it is, and for whom room is kept (P75).

Every port that we listen on asks this module: the metastore's, the gateway's, and the page of
numbers. A stranger holds a place until a newer one needs it; whoever has logged in stays.
"""

from __future__ import annotations

import ipaddress
import logging
import resource
import time
from collections.abc import Iterator
from typing import Generic, TypeVar

KEPT_BACK = 128
"""Descriptors that no connection gets: they are for files, the log and the process's own links."""
_MOST_NOTED, _NOTED_SECONDS = 100, 10.0
"""The most refusals that are logged in so many seconds."""

Connection = TypeVar("Connection")


def most_connections() -> int:
    """How many descriptors connections may take, once the limit is as high as we may set it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return 1_000_000 if soft == resource.RLIM_INFINITY else max(1, soft - KEPT_BACK)


def network_of(host: str) -> str:
    """What is counted together: an address of IPv4, or the 2^64 addresses that one host may take in
    IPv6."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class Strangers(Generic[Connection]):
    """The connections of a port that have not said yet who they are, oldest first."""

    def __init__(self, most: int, most_of_one: int) -> None:
        """`most_of_one`: how many one address may have."""
        self._most, self._most_of_one = most, most_of_one
        self._hosts: dict[Connection, str] = {}
        self._of: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[Connection]:
        return iter([*self._hosts])

    def __contains__(self, one: Connection) -> bool:
        return one in self._hosts

    def come(self, one: Connection, host: str) -> Connection | None:
        """Takes a new connection, and returns the one that has to end for it, if any."""
        network = network_of(host)
        present = self._of.setdefault(network, {})
        gone = None
        if len(present) >= self._most_of_one:
            gone = next(iter(present))
        elif len(self._hosts) >= self._most:
            gone = self.oldest()
        self._hosts[one] = network
        self._of.setdefault(network, {})[one] = None
        if gone is not None:
            self.leave(gone)
        return gone

    def leave(self, one: Connection) -> None:
        """The connection has ended, or is no stranger any more."""
        network = self._hosts.pop(one, None)
        if network is not None:
            of_network = self._of[network]
            del of_network[one]
            if not of_network:
                del self._of[network]

    def oldest(self) -> Connection | None:
        """The oldest connection of the address that has the most of them."""
        most = max(self._of.values(), key=len, default=None)
        return next(iter(most), None) if most else None


class Pace:
    """How fast connections of strangers are taken: a crowd at once, then some hundreds a second, so
    that a flood takes a small share of the time of the process that others wait for."""

    def __init__(self, a_second: float = 300.0, at_once: int = 200) -> None:
        self._every, self._credit = 1 / a_second, at_once / a_second
        self._due = float("-inf")

    def took(self) -> float:
        """Counts a connection that was taken: the seconds to wait before the next one."""
        now = time.monotonic()
        self._due = max(self._due, now - self._credit) + self._every
        return max(0.0, self._due - now)


class FewLines:
    """Logs refusals, unless strangers fill the log: then the number of others is logged later."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._noted, self._since = 0, float("-inf")

    def note(self, text: str, *arguments: object) -> None:
        now = time.monotonic()
        if now - self._since >= _NOTED_SECONDS:
            if self._noted > _MOST_NOTED:
                self._log.warning("refused %d more connections", self._noted - _MOST_NOTED)
            self._since, self._noted = now, 0
        self._noted += 1
        if self._noted <= _MOST_NOTED:
            self._log.warning(text, *arguments)
