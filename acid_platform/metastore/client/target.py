"""The metastore that a client talks to: that of a local directory, or a service (P10).

`tcp://host:port` names a service that somebody started; clients never start it. Its key is
ACID_METASTORE_KEY, or the content of the file that ACID_METASTORE_KEY_FILE names. A directory has
its own key.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from acid_platform.errors import (
    MetastoreIncompatible,
    MetastoreRefused,
    MetastoreUnavailable,
    WarehouseMoved,
)
from acid_platform.metastore import wire
from acid_platform.metastore.address import (
    KEY,
    KEY_FILE,
    TCP,
    given_key,
    is_remote,
    parse_address,
    show_address,
)
from acid_platform.metastore.client.start import start
from acid_platform.metastore.endpoint import Endpoint, Home


class Target(Protocol):
    """How to reach a metastore."""

    @property
    def startable(self) -> bool:
        """Whether a client may start it."""

    @property
    def patient(self) -> bool:
        """Whether a client whose connection broke waits for the metastore to come back."""

    def dial(self) -> wire.Channel:
        """Opens a connection.

        Raises OSError, EOFError, Refused or Malformed if nothing answers now, or an AcidError if
        another attempt is useless.
        """

    def start(self, *, alone: bool = True) -> None:
        """Starts the metastore, unless (`alone`) another client is starting it.

        Raises MetastoreIncompatible, MetastoreUnavailable.
        """

    def require_same(self) -> None:
        """Raises WarehouseMoved if the metastore that was reached before is no longer there."""

    def runs(self, pid: int) -> bool:
        """Whether the metastore's process still runs; `pid` is its process id on its machine."""

    @property
    def advice(self) -> str:
        """What to do if nothing answers."""


@dataclass(slots=True)
class Local:
    """The metastore of a directory, found by its `endpoint.json`.

    After the first connection the `authkey` identifies it, since the key moves with the directory.
    """

    home: Home
    startable: bool
    _key: bytes = field(default=b"", repr=False)

    @property
    def patient(self) -> bool:
        return self.startable

    def dial(self) -> wire.Channel:
        self.require_same()
        endpoint = Endpoint.read(self.home)
        # In a copied or moved directory it may name the process of the original directory.
        if endpoint is None or Path(endpoint.address).name != self.home.socket().name:
            raise FileNotFoundError("none is running")
        key = self.home.authkey()
        channel = wire.dial_unix(endpoint.address, key)
        self._key = key
        return channel

    def start(self, *, alone: bool = True) -> None:
        self.require_same()
        start(self.home, alone=alone)

    def require_same(self) -> None:
        """Raises WarehouseMoved: another metastore at this path belongs to somebody else (P31)."""
        if not self._key or self.home.unfinished.exists():
            return
        try:
            same = self.home.made and self.home.read_authkey() == self._key
        except FileNotFoundError:
            same = False
        if not same:
            raise WarehouseMoved(
                f"{self.home.path} no longer holds the metastore that this handle was opened"
                " with: the warehouse was moved, removed or replaced; open it where it is now"
            )

    def runs(self, pid: int) -> bool:
        if pid == os.getpid():
            return False  # the server runs in this process: whoever started it waits for its end
        import psutil

        try:
            return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    @property
    def advice(self) -> str:
        return f"start one with `python -m acid_platform.metastore --dir {self.home.path}`"

    def __str__(self) -> str:
        return str(self.home.path)


@dataclass(frozen=True, slots=True)
class Remote:
    """A metastore that was started as a service."""

    host: str
    port: int
    key: bytes = field(repr=False)
    startable: bool = False
    patient: bool = True

    def dial(self) -> wire.Channel:
        try:
            return wire.dial_tcp(self.host, self.port, self.key)
        except wire.Refused as error:
            raise MetastoreRefused(
                f"the metastore at {self} refuses this client: {error}; {KEY} or {KEY_FILE} must"
                " hold the key that the service was started with"
            ) from error
        except wire.Malformed as error:
            raise MetastoreIncompatible(f"no metastore listens at {self}: {error}") from error

    def start(self, *, alone: bool = True) -> None:  # noqa: ARG002 (Target declares it)
        raise MetastoreUnavailable(f"the metastore at {self} is a service: {self.advice}")

    def require_same(self) -> None:
        """Does nothing: a service has one address, wherever its directory is."""

    def runs(self, pid: int) -> bool:  # noqa: ARG002 (Target declares it)
        """Whether anything answers at the address: `pid` may be an id on another machine."""
        try:
            self.dial().close()
        except (OSError, EOFError, wire.Malformed):
            return False
        except MetastoreIncompatible:
            return False
        return True

    @property
    def advice(self) -> str:
        return (
            f"start it on its machine with `python -m acid_platform.metastore --dir DIR"
            f" --listen {show_address(self.host, self.port)}`"
        )

    def __str__(self) -> str:
        return TCP + show_address(self.host, self.port)


def find(where: str | os.PathLike[str], *, autostart: bool) -> Target:
    """The metastore of a directory, or of `tcp://host:port`.

    Raises InvalidDefinition, and MetastoreRefused if there is no key.
    """
    text = os.fspath(where)
    if not is_remote(text):
        return Local(Home(Path(text).resolve()), autostart)
    host, port = parse_address(text.removeprefix(TCP))
    key = given_key(os.environ)
    if key is None:
        raise MetastoreRefused(
            f"{text} asks for a key: set {KEY}, or {KEY_FILE} to a file that holds it (`authkey` in"
            " the metastore's directory, unless the service was given another)"
        )
    return Remote(host, port, key)
