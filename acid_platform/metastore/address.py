"""Addresses of metastores that run as services, and the key that their clients need (P10)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

from acid_platform.base.location import without_credentials
from acid_platform.errors import InvalidDefinition, MetastoreRefused

TCP = "tcp://"
KEY, KEY_FILE = "ACID_METASTORE_KEY", "ACID_METASTORE_KEY_FILE"
TLS_CA = "ACID_METASTORE_TLS_CA"
TLS_CERTIFICATE, TLS_KEY = "ACID_METASTORE_TLS_CERTIFICATE", "ACID_METASTORE_TLS_KEY"
SILENCE = "ACID_METASTORE_SILENCE"
FILES = (KEY_FILE, TLS_CA, TLS_CERTIFICATE, TLS_KEY)
"""The variables that name files."""
SYSTEM = "system"
"""As TLS_CA: the authorities that the machine trusts."""
SHORTEST_KEY = 16
_HOST = re.compile(r"[\w.:%-]+")
"""A name, or an address of IPv4 or IPv6."""


def is_remote(where: str) -> bool:
    return where.startswith(TCP)


def parse_address(text: str) -> tuple[str, int]:
    """`host:port` or `[::1]:port`. Raises InvalidDefinition."""
    host, colon, port = text.rstrip("/").rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if (
        not colon
        or not bare
        or not re.fullmatch("[0-9]{1,5}", port)
        or int(port) > 65535
        or (":" in bare and not host.startswith("["))
        or not _HOST.fullmatch(bare)
    ):
        shown = without_credentials(text)
        raise InvalidDefinition(f"{shown!r} is no address; write host:port, or [address]:port")
    return bare, int(port)


def show_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address of `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_tls(listen: str, *, tls: bool, without_tls: bool, certificate: str) -> None:
    """Refuses to serve other machines in clear text, unless that was asked for.

    `listen` is `host:port`; `certificate` says how to give one. Raises InvalidDefinition.
    """
    host, _ = parse_address(listen)
    if not (tls or without_tls or is_loopback(host)):
        raise InvalidDefinition(
            f"--listen {listen} would serve other machines without TLS, so whoever reads the"
            f" network reads keys and names of files; {certificate}, listen on 127.0.0.1, or say"
            " --without-tls if you trust the network"
        )


def absolute_files(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that name files, for a process in another directory."""
    return {
        name: str(Path(environment[name]).absolute())
        for name in FILES
        if environment.get(name) and not (name == TLS_CA and environment[name] == SYSTEM)
    }


def configured_key() -> bytes | None:
    """The key in the environment, or in the file that it names. Raises MetastoreRefused."""
    key, file = os.environ.get(KEY, "").strip(), os.environ.get(KEY_FILE)
    if key:
        return usable_key(key, KEY)
    if not file:
        return None
    try:
        return usable_key(Path(file).read_text().strip(), f"{KEY_FILE} {file}")
    except (OSError, ValueError) as error:
        raise MetastoreRefused(f"{KEY_FILE} {file} can't be read: {error}") from error


def usable_key(key: str, source: str) -> bytes:
    """The key as bytes. Raises MetastoreRefused for one that is too short to be a secret."""
    if len(key) < SHORTEST_KEY:
        raise MetastoreRefused(
            f"{source} holds {len(key)} characters; a key needs {SHORTEST_KEY} or more, for example"
            " what `openssl rand -hex 32` prints"
        )
    return key.encode()
