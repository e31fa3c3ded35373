"""Who may come in: the file of users, and the certificates of the server and of clients.

The file has a line `name:scrypt$N$r$p$salt$hash` for each user, salt and hash in Base64. It is read
again when it changes. A file that can't be read lets nobody in."""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from cryptography import x509

from acid_platform.base.clock import wall_ms
from acid_platform.base.local_files import draft_beside, sync_data, sync_path
from acid_platform.errors import InvalidDefinition

_Stamp = tuple[int, int, int]
Content = TypeVar("Content")


class ReloadedFile(Generic[Content]):
    """The parsed content of a file. It may be used from several threads."""

    def __init__(self, path: str, parse: Callable[[str, str], Content], what: str) -> None:
        """`parse` gets the text and the path, and raises InvalidDefinition. `what` names the file
        in errors."""
        self._path, self._parse, self._what = path, parse, what
        self._guard = threading.Lock()
        self._stamp: _Stamp | None = None
        self._content: Content | InvalidDefinition | None = None

    def content(self) -> Content:
        """Raises InvalidDefinition as long as the file is missing or wrong."""
        with self._guard:
            try:
                info = Path(self._path).stat()
                stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
                if stamp != self._stamp or self._content is None:
                    self._content = self._parse(Path(self._path).read_text("utf-8"), self._path)
                    self._stamp = stamp
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidDefinition(
                    f"{self._what} {self._path} can't be read: {error}"
                ) from error
            except InvalidDefinition as error:
                self._content, self._stamp = error, stamp
            if isinstance(self._content, InvalidDefinition):
                raise InvalidDefinition(str(self._content))
            return self._content


_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,128}", re.ASCII)
_COST, _BLOCK, _LANES = 1 << 17, 8, 1
"""The cost of a new hash; OWASP's cheat sheet asks for as much. A check takes 128 MiB of memory and
some 0.4 s."""
_LEAST, _DEAREST = 1 << 14, 1 << 18
"""A hash of a lower cost than `_COST` is accepted, and replaced when its user logs in."""
_LENGTH = 32


def require_name(name: str) -> str:
    """The name of a user, if it can be one. Raises InvalidDefinition."""
    if not _NAME.fullmatch(name):
        raise InvalidDefinition(
            f"{name!r} is not the name of a user: 1 to 128 letters, digits and _ . @ - without"
            " blanks"
        )
    return name


@dataclass(frozen=True, slots=True)
class Secret:
    cost: int
    block: int
    lanes: int
    salt: bytes
    hashed: bytes

    @classmethod
    def of(cls, password: str, salt: bytes = b"") -> Secret:
        """Hashes a password, with a new salt if none is given."""
        salt = salt or secrets.token_bytes(16)
        empty = cls(_COST, _BLOCK, _LANES, salt, b"\0" * _LENGTH)
        return cls(_COST, _BLOCK, _LANES, salt, empty._hash(password))

    @classmethod
    def parse(cls, text: str) -> Secret:
        """Raises ValueError."""
        kind, cost, block, lanes, salt, hashed = text.split("$")
        if kind != "scrypt":
            raise ValueError(f"unknown hash {kind!r}")
        parsed = cls(int(cost), int(block), int(lanes), _from_base64(salt), _from_base64(hashed))
        weak = parsed.cost < _LEAST or parsed.block < _BLOCK or parsed.lanes < _LANES
        if weak or len(parsed.hashed) < _LENGTH // 2 or len(parsed.salt) < 8:
            raise ValueError("the hash is weaker than scrypt with N=16384, r=8, p=1")
        if (
            parsed.cost & (parsed.cost - 1)
            or parsed.cost > _DEAREST
            or parsed.block > 16
            or parsed.lanes > 4
        ):
            raise ValueError("parameters of scrypt out of range")
        return parsed

    def __str__(self) -> str:
        salt, hashed = (base64.b64encode(part).decode() for part in (self.salt, self.hashed))
        return f"scrypt${self.cost}${self.block}${self.lanes}${salt}${hashed}"

    @property
    def outdated(self) -> bool:
        """Whether a new hash would cost more to guess."""
        return self.cost < _COST

    @property
    def price(self) -> tuple[int, int, int, int]:
        """What the time of a check depends on."""
        return self.cost, self.block, self.lanes, len(self.hashed)

    def matches(self, password: str) -> bool:
        """Whether this is the password; a wrong one takes as long as a right one."""
        return hmac.compare_digest(self._hash(password), self.hashed)

    def _hash(self, password: str) -> bytes:
        return hashlib.scrypt(
            password.encode(),
            salt=self.salt,
            n=self.cost,
            r=self.block,
            p=self.lanes,
            maxmem=256 * self.cost * self.block + (1 << 20),
            dklen=len(self.hashed),
        )


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text.encode(), validate=True)


@dataclass(frozen=True, slots=True)
class Proof:
    """That somebody knew the password of a user, which the salt tells from a later one."""

    user: str
    salt: bytes

    def is_in(self, present: Mapping[str, Secret]) -> bool:
        """Whether the user has this password still."""
        secret = present.get(self.user)
        return secret is not None and secret.salt == self.salt


_NOBODY = Secret(_COST, _BLOCK, _LANES, b"\0" * 16, b"\0" * _LENGTH)
"""What passwords are compared with that are no user's."""


def parse(text: str, where: str) -> dict[str, Secret]:
    """Raises InvalidDefinition, which names the line."""
    users: dict[str, Secret] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, _, hashed = line.partition(":")
        try:
            users[require_name(name)] = Secret.parse(hashed)
        except (ValueError, binascii.Error, InvalidDefinition) as error:
            raise InvalidDefinition(
                f"{where}, line {number}: a line is NAME:HASH, as `acid gateway add-user` writes"
                f" it ({error})"
            ) from error
    return users


class Users:
    def __init__(self, path: str) -> None:
        """Raises InvalidDefinition if the file can't be read or is wrong."""
        self._path = path
        self._file = ReloadedFile(path, parse, "the file of users")
        self._file.content()

    def secrets(self) -> Mapping[str, Secret]:
        """The users and their passwords' hashes. Raises InvalidDefinition for a wrong file."""
        return self._file.content()

    def verify(self, name: str, password: str) -> Proof | None:
        """What proves that it is the user's password; None if it is not.

        It takes as long for every user, and for names of none (P77): one hash of each cost in the
        file.
        A hash of less than today's cost is replaced afterwards. Raises InvalidDefinition for a file
        that is wrong.
        """
        present = self._file.content()
        secret = present.get(name)
        costs = {known.price: known for known in (_NOBODY, *present.values())}
        if secret is not None:
            costs[secret.price] = secret
        matches = [cost.matches(password) and cost is secret for cost in costs.values()]
        if secret is None or not any(matches):
            return None
        if secret.outdated:
            try:
                _renew(self._path, name, secret, password)
            except InvalidDefinition as error:  # the user may log in all the same
                _LOG.warning("the hash of user %s stays as it is: %s", name, error)
        return Proof(name, secret.salt)


def add(path: str, name: str, password: str) -> bool:
    """Adds a user to the file, or changes the password; returns whether the user is new.

    A new file can be read by its owner only; the file is replaced in one step. Raises
    InvalidDefinition.
    """
    require_name(name)
    if not password or "\0" in password:
        raise InvalidDefinition("a password may not be empty, and has no NUL")
    with _alone(path):
        before = _put(path, name, Secret.of(password))
    return name not in before


def _renew(path: str, name: str, old: Secret, password: str) -> None:
    """Replaces a hash by one of today's cost and the same salt, by which gateways see that it is
    the same password. Raises InvalidDefinition."""
    new = Secret.of(password, old.salt)
    with _alone(path):
        if parse(Path(path).read_text(), path).get(name) == old:  # else it was changed meanwhile
            _put(path, name, new)


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Nobody else changes the file of users meanwhile. Raises InvalidDefinition."""
    try:
        directory = os.open(Path(path).parent, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)
    except OSError as error:
        raise InvalidDefinition(f"{path} can't be written: {error}") from error


def _put(path: str, name: str, secret: Secret) -> Mapping[str, Secret]:
    """Replaces the file by one with this line; returns who was in it before."""
    file = Path(path)
    text = file.read_text() if file.exists() else ""
    users = parse(text, path)
    others = [line for line in text.splitlines() if line.strip().partition(":")[0] != name]
    content = "".join(f"{line}\n" for line in (*others, f"{name}:{secret}"))
    stream, temporary = draft_beside(file)
    try:
        with stream:
            stream.write(content.encode())
            stream.flush()
            sync_data(stream.fileno())
        if file.exists():
            present = file.stat()
            temporary.chmod(present.st_mode & 0o777)
            if (present.st_uid, present.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(temporary, present.st_uid, present.st_gid)
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_path(file.parent)
    return users


_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the server's certificate and key, and the authority of clients' certificates, with
    its list of revoked ones if there is one."""

    certificate: str
    key: str
    ca: str = ""

    def context(self, required: bool) -> ssl.SSLContext:
        """What the server accepts connections with; `required`: clients need a certificate.

        Raises InvalidDefinition for files that are missing, don't belong together or have expired.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load(context)
        if self.ca:
            try:
                context.load_verify_locations(self.ca)
            except (OSError, ssl.SSLError) as error:
                raise InvalidDefinition(
                    f"acid.gateway.tls.ca: {self.ca} is not a PEM file of certificates: {error}"
                ) from error
            if b"-----BEGIN X509 CRL-----" in Path(self.ca).read_bytes():
                context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        if self.days_left() <= 0:
            raise InvalidDefinition(
                f"{self.certificate}: certificate has expired; give the gateway a valid"
                " certificate (acid.gateway.tls.certificate)"
            )
        return context

    def load(self, context: ssl.SSLContext) -> None:
        """Takes certificate and key, also into a context that is in use. Raises
        InvalidDefinition."""
        for name, path in (("certificate", self.certificate), ("key", self.key)):
            if not Path(path).is_file():
                raise InvalidDefinition(f"acid.gateway.tls.{name}: there is no file {path!r}")
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            raise InvalidDefinition(
                f"{self.certificate} and {self.key} are not a certificate and its key in PEM,"
                f" without a password: {error}"
            ) from error

    @property
    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Changes when a file is replaced; the third part is of the clients' authority. Raises
        OSError."""
        paths = (self.certificate, self.key, *([self.ca] if self.ca else ()))
        return tuple((info.st_mtime_ns, info.st_ino) for info in map(os.stat, paths))

    def days_left(self) -> float:
        """How long the server's certificate is valid; below 0 if it has expired.

        Raises InvalidDefinition for a file that can't be read.
        """
        try:
            content = Path(self.certificate).read_bytes()
            end = x509.load_pem_x509_certificate(content).not_valid_after_utc
        except (OSError, ValueError) as error:
            raise InvalidDefinition(f"{self.certificate} can't be read: {error}") from error
        return end.timestamp() / _DAY - wall_ms() / 1000 / _DAY


def _no_password() -> str:
    """Instead of a question at the terminal, which a service has nobody to answer."""
    return ""


def user_of(certificate: dict[str, Any] | None) -> str:
    """The common name of a client's verified certificate; empty without a certificate.

    Raises InvalidDefinition for a name that no user can have.
    """
    if not certificate:
        return ""
    names = [
        value
        for parts in certificate.get("subject", ())
        for kind, value in parts
        if kind == "commonName"
    ]
    if len(names) != 1:
        raise InvalidDefinition("the client's certificate needs one common name (CN), its user")
    return require_name(names[0])


def reason_of(error: BaseException) -> str:
    """Why a handshake failed, in words."""
    text = str(getattr(error, "verify_message", "") or getattr(error, "reason", "") or error)
    if text in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG"):
        return (
            "the client does not speak TLS; set hive.metastore.use.SSL=true (Trino:"
            " hive.metastore.thrift.client.ssl.enabled=true)"
        )
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in text:
        return "the client sent no certificate"
    if text.startswith(("TLSV1_ALERT", "SSLV3_ALERT", "TLSV13_ALERT")):
        return f"the client did not accept our certificate ({text})"
    return text or type(error).__name__
