"""What a gateway is started with: from the settings, and from the command's options before them.

Its bounds keep a client that sends too much from taking the memory and the threads of others.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from acid_platform.base.config import Settings
from acid_platform.base.paths import is_uri, local_path
from acid_platform.base.strangers import network_of
from acid_platform.errors import InvalidDefinition
from acid_platform.gateway.authorization import Authorizer, GrantFile, imported
from acid_platform.gateway.call_handler import LOCATIONS
from acid_platform.gateway.framing import Limits
from acid_platform.gateway.gateway_server import Entry
from acid_platform.gateway.gateway_tls import Tls
from acid_platform.gateway.users import Users
from acid_platform.metastore.endpoint import is_loopback

_WINDOW = 60.0
_REMEMBERED = 10_000
"""Clients that are remembered."""


@dataclass(frozen=True, slots=True)
class Bounds:
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


class CallRates:
    """`pause` is used from the event loop only, the rest from any thread."""

    def __init__(self, bounds: Bounds) -> None:
        self._rate, self._failures = bounds.rate, bounds.failures
        self._next: dict[str, float] = {}
        self._failed: dict[str, deque[float]] = {}
        self._tried: Counter[str] = Counter()
        """Logins that are checked now."""
        self._guard = threading.Lock()

    def pause(self, who: str, now: float) -> float:
        """The seconds for which a call has to wait; 0 for a client that is within its rate.

        A client may be up to one second's calls ahead. Its later calls wait, so nothing fails.
        """
        if not self._rate:
            return 0.0
        if len(self._next) >= _REMEMBERED:
            self._next = {one: at for one, at in self._next.items() if at > now}
        due = max(self._next.get(who, 0.0), now - 1.0) + 1.0 / self._rate
        self._next[who] = due
        return max(0.0, due - now)

    def begin_login(self, host: str) -> bool:
        """Whether a login of this address is checked: so many may fail in a minute.

        One that is being checked counts as failed until `end_login`, so that guesses at the same
        time are not more than guesses one after the other.
        """
        network = network_of(host)
        with self._guard:
            if len(self._recent(network)) + self._tried[network] >= self._failures:
                return False
            self._tried[network] += 1
            return True

    def end_login(self, host: str, failed: bool) -> None:
        network = network_of(host)
        with self._guard:
            self._tried[network] -= 1
            if not self._tried[network]:
                del self._tried[network]
            if failed:
                if len(self._failed) >= _REMEMBERED:
                    self._failed = {
                        one: times for one in [*self._failed] if (times := self._recent(one))
                    }
                self._recent(network).append(time.monotonic())

    def _recent(self, network: str) -> deque[float]:
        times = self._failed.setdefault(network, deque())
        while times and times[0] < time.monotonic() - _WINDOW:
            times.popleft()
        return times


PREFIX = "acid.gateway."
AUTHORIZER = "acid.gateway.authorizer"
_FILES = (
    "acid.gateway.tls.certificate",
    "acid.gateway.tls.key",
    "acid.gateway.tls.ca",
    "acid.gateway.users",
    "acid.gateway.grants",
)


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Who may come in, who may do what, and how much."""

    entry: Entry
    bounds: Bounds
    authorizer: Authorizer | None
    locations: str
    """Directories outside of the warehouse in which clients may make tables, separated by
    commas."""

    @classmethod
    def of(
        cls, settings: Mapping[str, str], options: Mapping[str, str], host: str
    ) -> GatewaySettings:
        """`options` are named as the settings without `acid.gateway.`; `host` is where the gateway
        listens. Raises InvalidDefinition, SettingRefused."""
        in_force = Settings.of(
            {name: text for name, text in settings.items() if name.startswith(PREFIX)}
            | {PREFIX + name: text for name, text in options.items()}
        )
        text = in_force.text
        for name in _FILES:
            if text(name) and not Path(text(name)).is_absolute():
                raise InvalidDefinition(f"{name}: {text(name)!r} is not an absolute path")
        certificate, key, ca, users, file = map(text, _FILES)
        if bool(certificate) != bool(key) or (ca and not certificate):
            raise InvalidDefinition(
                "acid.gateway.tls.certificate and acid.gateway.tls.key are needed together;"
                " acid.gateway.tls.ca needs both of them"
            )
        if users and not certificate and not is_loopback(host):
            raise InvalidDefinition(
                "acid.gateway.users without acid.gateway.tls.certificate would send passwords in"
                f" clear text over the network to {host}; give a certificate, or listen on"
                " 127.0.0.1"
            )
        entry = Entry(
            Tls(certificate, key, ca) if certificate else None,
            Users(users) if users else None,
        )
        bounds = Bounds(
            connections=in_force.integer("acid.gateway.connections"),
            threads=in_force.integer("acid.gateway.threads"),
            rate=in_force.integer("acid.gateway.rate"),
        )
        stored = settings.get(AUTHORIZER)
        if stored and stored != options.get("authorizer"):
            raise InvalidDefinition(
                f"{AUTHORIZER} is set in the metastore, but it names code, which only who starts"
                f" the gateway may: give --authorizer {stored}, and SET"
                f" {AUTHORIZER}=''"
            )
        authorizer = _authorizer(file, text(AUTHORIZER), entry)
        for place in filter(None, (part.strip() for part in text(LOCATIONS).split(","))):
            if not is_uri(place) and not local_path(place).startswith("/"):
                raise InvalidDefinition(f"{LOCATIONS}: {place!r} is not an absolute path")
        return cls(entry, bounds, authorizer, text(LOCATIONS))


def _authorizer(file: str, function: str, entry: Entry) -> Authorizer | None:
    """Raises InvalidDefinition."""
    if file and function:
        raise InvalidDefinition(
            "give acid.gateway.grants or acid.gateway.authorizer, not both: the function can read a"
            " file too"
        )
    if file and not entry.closed:
        raise InvalidDefinition(
            "acid.gateway.grants needs to know who calls: set acid.gateway.users or"
            " acid.gateway.tls.ca"
        )
    if file:
        return GrantFile(file)
    return imported(function) if function else None
