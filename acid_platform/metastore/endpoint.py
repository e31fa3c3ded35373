"""The files by which clients find the metastore process: directory, lock, key and socket.

The directory holds the log (log/local.py), `server.lock` (locked for the life of the process),
`endpoint.json` (address, process id, epoch), `authkey` and `server.log`. Only its owner may read
it. The socket itself is in a run directory with a short path, since a socket's path has at most 107
bytes.

Metastores that run as services have addresses, and a key that their clients need (P10).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TextIO

from acid_platform.base.local_files import (
    make_directory,
    own_directory,
    parents,
    require_own,
    sync_data,
    sync_path,
)
from acid_platform.base.location import holds_log
from acid_platform.base.paths import user_path, without_credentials
from acid_platform.errors import (
    InvalidDefinition,
    MetastoreIncompatible,
    MetastoreInUse,
    MetastoreRefused,
)

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
        name: user_path(environment[name])
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


_LONGEST_SOCKET_PATH = 107
_NETWORK = re.compile(
    r"nfs4?|cifs|smb3|smbfs|afs|afpfs|lustre|gpfs|beegfs|(fuse\.)?(ceph|glusterfs)|fuse\.sshfs"
)


class Home:
    """The directory of one metastore."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "server.lock"
        self.starting = path / "starting.lock"
        """A client locks it while it starts a process."""
        self.unfinished = path / "restore.unfinished"
        """Exists while a restore replaces the log, and after an interrupted restore."""
        self.endpoint = path / "endpoint.json"
        self.log = path / "server.log"
        self.tls = path / "tls"
        """The directory of the certificate of a service."""

    @property
    def made(self) -> bool:
        """Whether the directory holds a metastore."""
        return holds_log(self.path)

    def prepare(self) -> None:
        """Creates the directory for its owner only. Raises MetastoreIncompatible, OwnedByOthers."""
        require_own(self.path)
        try:
            make_directory(self.path, 0o700)
            self.path.chmod(0o700)
        except OSError as error:
            raise MetastoreIncompatible(
                f"the metastore can't use {self.path}: {error}; choose a directory of your own"
            ) from error

    def read_authkey(self) -> bytes:
        """Raises FileNotFoundError, OwnedByOthers, and MetastoreRefused if it holds no key."""
        require_own(self.path, "authkey")
        file = self.path / "authkey"
        try:
            return usable_key(file.read_text().strip(), str(file))
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise MetastoreRefused(
                f"{file} holds no key ({error}): stop the metastore, remove the file, and start it"
                " again; it makes a new key, which clients on other machines need then"
            ) from error

    def authkey(self) -> bytes:
        """The secret that clients and server share; created once, readable by the owner only."""
        key = self.path / "authkey"
        if not key.exists():
            # A name of its own for each attempt: a client and a server may share one process.
            draft = self.path / f"authkey.{secrets.token_hex(8)}"
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_hex(32).encode())
                file.flush()
                sync_data(file.fileno())
            # If several clients get here first, only one of them creates the name.
            try:
                with suppress(FileExistsError):
                    os.link(draft, key)
            finally:
                draft.unlink()
        return self.read_authkey()

    def socket(self) -> Path:
        """The path of this directory's socket; it never changes.

        Raises MetastoreIncompatible, OwnedByOthers.
        """
        name = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:16] + ".sock"
        for parent in parents():
            run = Path(parent) / f"acid-{os.getuid()}"
            if len(os.fsencode(run / name)) <= _LONGEST_SOCKET_PATH - len(".000000"):
                return own_directory(run) / name
        raise MetastoreIncompatible("no directory for the socket has a path short enough")


@dataclass(frozen=True, slots=True)
class Ground:
    """The place of the metastore's directory. A copy has another place; a moved directory keeps its
    inode (P31)."""

    inode: int
    device: int
    path: str

    @classmethod
    def of(cls, directory: Path) -> Ground:
        info = os.stat(directory)
        return cls(info.st_ino, info.st_dev, str(directory))

    def holds(self, other: Ground) -> bool:
        """Whether both describe the same directory. A device number may change when the machine
        restarts, and the path changes with a move."""
        return self.inode == other.inode and (
            self.device == other.device or self.path == other.path
        )

    @classmethod
    def parse(cls, text: str) -> Ground:
        inode, device, path = text.split(" ", 2)
        return cls(int(inode), int(device), path)

    def __str__(self) -> str:
        return f"{self.inode} {self.device} {self.path}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The content of `endpoint.json`."""

    address: str
    pid: int
    epoch: int

    def publish(self, home: Home) -> None:
        """Replaces the file atomically, so that nobody reads half of it."""
        draft = home.endpoint.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(asdict(self)))
        sync_path(draft)
        draft.chmod(0o600)
        draft.rename(home.endpoint)

    @classmethod
    def read(cls, home: Home) -> Endpoint | None:
        """None if no process has published an endpoint. Raises MetastoreIncompatible,
        OwnedByOthers."""
        require_own(home.path, home.endpoint.name)
        try:
            content = json.loads(home.endpoint.read_text())
            endpoint = cls(content["address"], content["pid"], content["epoch"])
            if [type(value) for value in astuple(endpoint)] != [str, int, int]:
                raise TypeError("it is not an address and two numbers")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise MetastoreIncompatible(
                f"{home.endpoint} is damaged ({error}): remove it; if `{home.lock}` names a process"
                " that runs, stop that too, and the next client starts another"
            ) from error
        return endpoint


def take_lock(home: Home) -> TextIO:
    """Takes the lock that a metastore process holds all its life.

    Raises MetastoreInUse, which names the owner.
    """
    file = open(os.open(home.lock, os.O_RDWR | os.O_CREAT, 0o600), "r+")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = file.read().strip() or "unknown"
        file.close()
        raise MetastoreInUse(
            f"{home.path} is served by process {owner}; connect to it, or stop it first"
        ) from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def refuse_network_file_system(home: Home) -> None:
    """Raises MetastoreIncompatible: on a network mount, locks and fsync can't be relied on."""
    kind = _file_system(home.path.resolve())
    if _NETWORK.fullmatch(kind):
        raise MetastoreIncompatible(
            f"{home.path} is on a network file system ({kind}); set ACID_METASTORE to a local disk"
        )


def mounts() -> list[tuple[str, str]]:
    """Mount points and their file system types."""
    import psutil

    return [(mount.mountpoint, mount.fstype) for mount in psutil.disk_partitions(all=True)]


def _file_system(path: Path) -> str:
    above = {str(directory) for directory in (path, *path.parents)}
    covering = [(point, kind) for point, kind in mounts() if point in above]
    # The longest; if two file systems are mounted on one point, the later mount hides the earlier.
    return max(reversed(covering), key=lambda mount: len(mount[0]))[1]
