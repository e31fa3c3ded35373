"""The metastore that a client talks to: that of a local directory, or a service (P10).

`tcp://host:port` names a service that somebody started; clients never start it. Its key is
ACID_METASTORE_KEY, or the content of the file that ACID_METASTORE_KEY_FILE names. A directory has
its own key, and a log that services share tells address and key of the one that leads.

A client of a directory starts its metastore, in a process that outlives the client.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from acid_platform.base.local_files import scratch_file
from acid_platform.base.location import metastore_place
from acid_platform.base.paths import without_credentials
from acid_platform.errors import (
    AcidError,
    InvalidDefinition,
    MetastoreIncompatible,
    MetastoreInUse,
    MetastoreRefused,
    MetastoreUnavailable,
    WarehouseMoved,
    error_class,
)
from acid_platform.metastore import wire
from acid_platform.metastore.endpoint import (
    KEY,
    KEY_FILE,
    SILENCE,
    TCP,
    TLS_CA,
    Endpoint,
    Home,
    absolute_files,
    configured_key,
    is_remote,
    parse_address,
    show_address,
)

if TYPE_CHECKING:
    import ssl

    from acid_platform.metastore.log.contract import SharedLog

START_SECONDS = 30.0
"""How long to wait for a metastore that is starting or restarting."""


def start(
    home: Home,
    listen: str | None = None,
    *,
    without_tls: bool = False,
    metrics: str = "",
    alone: bool = True,
) -> bool:
    """Starts a metastore process; returns False if another process was faster, which is fine.

    If many clients find no metastore, only one starts it (`alone`): with one process per client the
    machine would be too busy to start any. `listen` (`host:port`), `without_tls` and `metrics`
    are those of `acid metastore start`. Raises InvalidDefinition, and MetastoreIncompatible or
    MetastoreUnavailable if it can't serve the directory.
    """
    home.prepare()
    with open(os.open(home.starting, os.O_RDWR | os.O_CREAT, 0o600), "r+") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if alone:
                return False
        try:
            return _start(home, listen, without_tls, metrics)
        finally:
            # Unlocked explicitly: a child that is forked in the meantime has a copy of the file.
            fcntl.flock(turn, fcntl.LOCK_UN)


def environment() -> dict[str, str]:
    """That of a process of this program whose current directory is another one."""
    root = Path(__file__).resolve().parents[3]
    paths = [str(root), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, **absolute_files(os.environ), "PYTHONPATH": os.pathsep.join(paths)}


def _start(home: Home, listen: str | None, without_tls: bool, metrics: str) -> bool:
    # -P: a file duckdb.py in the current directory must not be imported as DuckDB.
    command = [sys.executable, "-P", "-m", "acid_platform.metastore"]
    command += ["--dir", str(home.path), "--detach"]
    command += ["--listen", listen] if listen else []
    command += ["--without-tls"] if without_tls else []
    command += ["--metrics", metrics] if metrics else []
    # Files, not pipes: a pipe ends only once every copy of it is closed, and processes that other
    # threads fork in the meantime may keep a copy for ever.
    with scratch_file() as out, scratch_file() as err:
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd="/",
                env=environment(),
                timeout=START_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise MetastoreUnavailable(
                f"a metastore for {home.path} did not start in {START_SECONDS:.0f} s;"
                f" see {home.log}"
            ) from error
        out.seek(0)
        err.seek(0)
        result, complaint = out.read(), err.read().strip()
    try:
        answer = json.loads(result)
    except ValueError as error:
        raise MetastoreUnavailable(
            f"a metastore for {home.path} did not start: {complaint}; see {home.log}"
        ) from error
    if "error" not in answer:
        return True
    name, text = answer["error"]
    if name == MetastoreInUse.__name__:
        return False
    raise error_class(name)(f"a metastore for {home.path} did not start: {text}")


FAILOVER_SECONDS = 15.0

_CONNECT_SECONDS = 3.0
"""How long one of several addresses may take for each step until the next is tried."""


class Target(ABC):
    """How to reach a metastore. The defaults are those of a service."""

    startable = False
    """Whether a client may start it."""
    failover_seconds = 0.0
    """How long a new connection waits for another metastore to take over."""

    @property
    def patient(self) -> bool:
        """Whether a client whose connection broke waits for the metastore to come back."""
        return True

    @abstractmethod
    def dial(self) -> wire.Channel:
        """Opens a connection.

        Raises OSError, EOFError, Refused or Malformed if nothing answers now, or an AcidError if
        another attempt is useless.
        """

    def start(self, *, alone: bool = True) -> None:  # noqa: ARG002 (Local needs it)
        """Starts the metastore, unless (`alone`) another client is starting it.

        Raises MetastoreIncompatible, MetastoreUnavailable.
        """
        raise MetastoreUnavailable(f"the metastore at {self} is a service: {self.advice}")

    def replaced(self, epoch: int) -> bool:  # noqa: ARG002 (others need it)
        """Whether another metastore leads since the one of this epoch."""
        return False

    def require_same(self) -> None:
        """Raises WarehouseMoved if the metastore that was reached before is no longer there."""
        return  # a service has one address, wherever its directory is

    @abstractmethod
    def runs(self, pid: int) -> bool:
        """Whether the metastore's process still runs; `pid` is its process id on its machine."""

    @property
    @abstractmethod
    def advice(self) -> str:
        """What to do if nothing answers."""


class Local(Target):
    """The metastore of a directory, found by its `endpoint.json`.

    After the first connection the `authkey` identifies it, since the key moves with the directory.
    """

    def __init__(self, home: Home, startable: bool) -> None:
        self.home, self.startable = home, startable
        self._key = b""

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


class Remote(Target):
    """A metastore that was started as a service; of several addresses, one leads."""

    def __init__(self, addresses: tuple[tuple[str, int], ...], key: bytes) -> None:
        self.addresses, self.key = addresses, key
        self.tls = _tls()
        self.silence = _silence(os.environ.get(SILENCE, ""))
        """Seconds without a sign of life of the machine after which a connection ends."""
        self.failover_seconds = FAILOVER_SECONDS if len(addresses) > 1 else 0.0
        self._epoch = 0
        """The highest epoch that a leader told; one with a lower epoch was replaced."""
        self._reached: tuple[str, int] | None = None
        """The address of that leader, which is tried first."""

    def dial(self) -> wire.Channel:
        """Connects to the first address whose metastore leads.

        Raises OSError if none does, MetastoreRefused, MetastoreIncompatible, and EOFError.
        """
        reasons: list[str] = []
        refusals: list[AcidError] = []
        for host, port in sorted(self.addresses, key=lambda address: address != self._reached):
            try:
                channel = self._dial(host, port)
            except (OSError, EOFError) as error:
                if len(self.addresses) == 1:
                    raise
                reasons.append(f"{show_address(host, port)}: {error}")
                continue
            except (MetastoreRefused, MetastoreIncompatible) as error:
                refusals.append(error)
                continue
            if channel.role == wire.LEADER and channel.epoch >= self._epoch:
                self._epoch, self._reached = channel.epoch, (host, port)
                return channel
            channel.close()
            reasons.append(f"{show_address(host, port)} {_why_not(channel.role)}")
        if refusals and not reasons:
            raise refusals[0]
        raise ConnectionError("; ".join([*reasons, *map(str, refusals)]))

    def replaced(self, epoch: int) -> bool:
        """Whether another address leads in a later epoch."""
        for host, port in self.addresses:
            if self._epoch > epoch:
                return True
            if (host, port) == self._reached:
                continue
            try:
                channel = self._dial(host, port)
            except (OSError, EOFError, AcidError):
                continue
            channel.close()
            if channel.role == wire.LEADER and channel.epoch > epoch:
                self._epoch, self._reached = channel.epoch, (host, port)
        return self._epoch > epoch

    def _dial(self, host: str, port: int) -> wire.Channel:
        where = show_address(host, port)
        seconds = wire.GREETING_SECONDS if len(self.addresses) == 1 else _CONNECT_SECONDS
        try:
            return wire.dial_tcp(host, port, self.key, self.tls, seconds, self.silence)
        except wire.NoTls as error:
            raise MetastoreRefused(
                f"the metastore at {where} asks for TLS: set {TLS_CA} to the file ca.pem of that"
                " service, or to 'system' if this machine trusts its certificate"
            ) from error
        except wire.Refused as error:
            raise MetastoreRefused(
                f"the metastore at {where} refuses this client: {error}; {KEY} or {KEY_FILE} must"
                " hold the key that the service was started with"
            ) from error
        except wire.Malformed as error:
            raise MetastoreIncompatible(f"no metastore listens at {where}: {error}") from error
        except OSError as error:
            if self.tls is not None:
                from acid_platform.metastore import tls

                tls.refuse(error, where)
            raise

    def runs(self, pid: int) -> bool:  # noqa: ARG002 (Target declares it)
        """Whether anything answers at the address: `pid` may be an id on another machine."""
        try:
            self.dial().close()
        except (OSError, EOFError, wire.Malformed, MetastoreIncompatible):
            return False
        return True

    @property
    def advice(self) -> str:
        return (
            f"start it on its machine with `python -m acid_platform.metastore --dir DIR"
            f" --listen {show_address(*self.addresses[0])}`"
        )

    def __str__(self) -> str:
        return TCP + ",".join(show_address(host, port) for host, port in self.addresses)


def _why_not(role: str) -> str:
    reasons = {wire.LEADER: "was replaced by another one", wire.STANDBY: "stands by"}
    return reasons.get(role, f"has the unknown role {role!r}")


class Elected(Remote):
    """The leader of a log that several services share; the log tells its address and key."""

    def __init__(self, where: str) -> None:
        super().__init__((), b"")
        self.failover_seconds = FAILOVER_SECONDS
        self._where = where
        self._log: SharedLog | None = None
        self._authority = ""
        """The one that the log told and `tls` trusts."""

    def dial(self) -> wire.Channel:
        self._look()
        try:
            return super().dial()
        except MetastoreRefused as error:
            if configured_key():
                raise
            # A process that was started again at this address has another key until it leads.
            raise ConnectionError(f"the leader that the log names is gone: {error}") from error

    def _look(self) -> None:
        """Raises ConnectionError if nobody leads, and what the log raises."""
        from acid_platform.metastore.log.contract import open_log  # loads a driver

        if self._log is None:
            self._log = open_log(self._where)
        leader = self._log.leader() if self._log.exists else None
        if leader is None or not leader.address:
            raise ConnectionError(f"no metastore leads {self._where} now")
        self.addresses = (parse_address(leader.address),)
        self.key = configured_key() or leader.key.encode()
        if leader.authority != self._authority and (self._authority or self.tls is None):
            from acid_platform.metastore.tls import trusting

            self.tls = trusting(leader.authority) if leader.authority else None
            self._authority = leader.authority

    def replaced(self, epoch: int) -> bool:
        """Whether the log names a later leader; no, as long as the log can't be reached."""
        try:
            leader = self._log.leader() if self._log else None
        except (AcidError, OSError):  # what became of the request is still to be asked
            return False
        return leader is not None and leader.epoch > epoch

    def runs(self, pid: int) -> bool:  # noqa: ARG002 (Target declares it)
        """Whether the log names the leader that was reached last."""
        leader = self._log.leader() if self._log else None
        return leader is not None and bool(leader.address) and leader.epoch == self._epoch

    @property
    def advice(self) -> str:
        return "start one with `acid metastore serve --listen HOST:PORT`"

    def __str__(self) -> str:
        return without_credentials(self._where)


def find(where: str | os.PathLike[str], *, autostart: bool) -> Target:
    """The metastore of a directory, of `tcp://host:port`, or of a log that services share.

    Raises InvalidDefinition, and MetastoreRefused if there is no key.
    """
    text = os.fspath(where)
    if is_remote(text):
        return remote(text)
    address = metastore_place(text)
    return Elected(address) if "://" in address else Local(Home(Path(address)), autostart)


def remote(text: str) -> Remote:
    """The service at `tcp://host:port`, or at one of several addresses with commas between them.

    Raises InvalidDefinition, and MetastoreRefused if there is no key.
    """
    addresses = tuple(parse_address(each) for each in text.removeprefix(TCP).split(","))
    key = configured_key()
    if key is None:
        raise MetastoreRefused(
            f"{without_credentials(text)} asks for a key: set {KEY}, or {KEY_FILE} to a file that"
            " holds it (`authkey` in the metastore's directory, unless the service was given"
            " another)"
        )
    return Remote(addresses, key)


def _tls() -> ssl.SSLContext | None:
    named = os.environ.get(TLS_CA, "").strip()
    if not named:
        return None
    from acid_platform.metastore.tls import trusting  # takes 20 ms

    return trusting(named)


def _silence(text: str) -> float:
    """Raises InvalidDefinition."""
    try:
        seconds = float(text) if text.strip() else wire.SILENCE_SECONDS
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise InvalidDefinition(
            f"{SILENCE}={text!r} is refused; it is a number of seconds from 1 to 3600"
        )
    return seconds
