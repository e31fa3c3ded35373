"""What a gateway is started with: from the settings, and from the command's options before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from acid_platform.base.config import Settings
from acid_platform.base.paths import is_uri, local_path
from acid_platform.errors import InvalidDefinition
from acid_platform.gateway.authorization import Authorizer, GrantFile, imported
from acid_platform.gateway.call_handler import LOCATIONS
from acid_platform.gateway.gateway_server import Entry
from acid_platform.gateway.gateway_tls import Tls
from acid_platform.gateway.users import Users
from acid_platform.gateway.workers import Bounds
from acid_platform.metastore.endpoint import is_loopback

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
