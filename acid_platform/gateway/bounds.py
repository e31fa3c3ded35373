"""What clients may use of the gateway's process."""

from __future__ import annotations

from dataclasses import dataclass, field

from acid_platform.gateway.framing import Limits


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one gateway."""

    connections: int = 1000
    message_seconds: float = 60.0
    """How long a message may take to arrive once its first bytes are there, and an answer to
    leave."""
    message: Limits = field(default_factory=Limits)
    login_seconds: float = 10.0
    """How long a client that has to log in may take, the handshake of TLS included or not."""
    threads: int = 64
    """Calls that are answered at the same time."""
    buffer: int = 256 << 20
    """Bytes of unfinished messages in all connections together."""
    rate: int = 0
    """Calls per second of one user, or of one address without login; 0 for any number."""
    failures: int = 10
    """Failed logins per minute of one address; further ones are not checked."""
