"""Who calls: what the gateway knows of the client at the other end of a connection."""

from __future__ import annotations

from dataclasses import dataclass, field

THROUGH_GATEWAY = "through the gateway"
"""The description of every transaction that a client of the gateway opened."""


@dataclass(slots=True)
class Caller:
    address: str
    """`host:port`."""
    user: str = ""
    """Who has logged in, by a password or a certificate; empty if nobody has to."""
    txns: set[int] = field(default_factory=set)
    """The transactions for which this connection asked for locks."""

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    def __str__(self) -> str:
        return f"{self.user}@{self.address}" if self.user else self.address
