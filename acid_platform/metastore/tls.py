"""TLS of a metastore that listens on TCP: the two ends' settings, and one connection's encryption.

Whoever connects verifies the certificate and the host's name; nothing turns that off. The key of
the metastore is proved inside of the connection, as without TLS.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from acid_platform.errors import MetastoreRefused
from acid_platform.metastore.endpoint import SYSTEM, TLS_CA, TLS_CERTIFICATE, TLS_KEY

MAKE = "`acid metastore certificate HOST…` on the service's machine"
_READ = 1 << 18
_EXPIRED, _WRONG_HOST, _WRONG_ADDRESS = 10, 62, 64
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED, …_HOSTNAME_MISMATCH and …_IP_ADDRESS_MISMATCH."""

_LOG = logging.getLogger("acid_platform.metastore")


# --- whoever connects ---------------------------------------------------------------------------


@lru_cache(8)
def trusting(named: str) -> ssl.SSLContext:
    """Trusts the authority in a file, in the text of one, or all that this machine trusts.

    Raises MetastoreRefused.
    """
    text = named if named.startswith("-----BEGIN") else None
    file = None if text or named == SYSTEM else named
    try:
        context = ssl.create_default_context(cafile=file, cadata=text)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise MetastoreRefused(
            f"{TLS_CA} {named} can't be read: {error}; it must name the file ca.pem that {MAKE}"
            f" wrote, or be {SYSTEM!r}"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def refuse(error: OSError, where: str) -> None:
    """Raises MetastoreRefused if it is not the connection that broke, but the trust."""
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        raise MetastoreRefused(_explain(error, where)) from error


def _explain(error: ssl.SSLError, where: str) -> str:
    """Why a metastore was not trusted, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == _EXPIRED:
            return (
                f"the certificate of {where} has expired; renew it there: `acid metastore"
                " certificate --renew`"
            )
        if error.verify_code in (_WRONG_HOST, _WRONG_ADDRESS):
            return (
                f"the certificate of {where} is for other names ({error.verify_message}); connect"
                f" by one of its names, or make one with this name: {MAKE}"
            )
        return (
            f"the certificate of {where} is not trusted ({error.verify_message}): {TLS_CA} must"
            " name the ca.pem of that service"
        )
    return (
        f"{where} does not speak TLS ({error.reason or error}), but {TLS_CA} asks for it; give that"
        f" service a certificate ({MAKE}) and start it again, or unset {TLS_CA}"
    )


# --- the service --------------------------------------------------------------------------------


class Served:
    """The certificate of a service. When its files change, new connections get the new one.

    Raises MetastoreRefused if the files can't be used.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._paths = certificate, key
        self._loaded = self._stamps()
        self._context, self.expires = self._load()
        if self.expires <= datetime.now(UTC):
            raise MetastoreRefused(
                f"{certificate} has expired on {self.expires:%Y-%m-%d}; renew it: `acid metastore"
                " certificate --renew`"
            )

    @classmethod
    def configured(cls, directory: Path, environment: Mapping[str, str]) -> Served | None:
        """The certificate that the environment names, else that in the directory, else None.

        Raises MetastoreRefused.
        """
        named = [environment.get(name, "").strip() for name in (TLS_CERTIFICATE, TLS_KEY)]
        if all(named):
            return cls(Path(named[0]), Path(named[1]))
        if any(named):
            raise MetastoreRefused(f"set both {TLS_CERTIFICATE} and {TLS_KEY}, or neither")
        made = directory / "certificate.pem", directory / "key.pem"
        return cls(*made) if any(path.exists() for path in made) else None

    def layer(self) -> Layer:
        """The encryption of a new connection."""
        stamps = self._stamps()
        if stamps != self._loaded:
            self._loaded = stamps
            try:
                self._context, self.expires = self._load()
                _LOG.info("the certificate was renewed: it is valid until %s", self.expires)
            except MetastoreRefused as error:  # perhaps only one of the two files is new by now
                _LOG.warning("the old certificate stays in use: %s", error)
        return Layer(self._context)

    def _stamps(self) -> list[tuple[int, int] | None]:
        stamps: list[tuple[int, int] | None] = []
        for path in self._paths:
            try:
                info = os.stat(path)
                stamps.append((info.st_ino, info.st_mtime_ns))
            except OSError:
                stamps.append(None)
        return stamps

    def _load(self) -> tuple[ssl.SSLContext, datetime]:
        from cryptography import x509

        certificate, key = self._paths
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Each connection lasts long, and a client looks for bytes that it did not ask for.
        context.num_tickets = 0
        try:
            # Without a password it would be asked for on the terminal.
            context.load_cert_chain(certificate, key, password="")
            expires = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
        except (OSError, ValueError) as error:
            raise MetastoreRefused(
                f"the certificate {certificate} with the key {key} can't be used: {error}; make"
                f" both anew ({MAKE}), or remove them to serve without TLS"
            ) from error
        return context, expires


class Layer:
    """One connection's encryption at the service's end, in memory: the caller moves the bytes.

    Raises ssl.SSLError for bytes that are not TLS.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._arrived, self._leaving, server_side=True)
        self._agreed = False
        self._early = bytearray()
        self.heard = False
        """Whether anything has arrived."""

    def opened(self, data: bytes) -> bytes:
        """The plain bytes in what has arrived; `leaving` may have an answer to it."""
        self.heard = True
        self._arrived.write(data)
        plain = bytearray()
        try:
            if not self._agreed:
                self._object.do_handshake()
                self._agreed = True
                self._write(bytes(self._early))
                self._early.clear()
            while part := self._object.read(_READ):
                plain += part
        except ssl.SSLWantReadError:
            pass
        return bytes(plain)

    def sealed(self, data: bytes) -> bytes:
        """The bytes to send for plain ones, which wait for the end of the handshake."""
        if self._agreed:
            self._write(data)
        else:
            self._early += data
        return self.leaving()

    def leaving(self) -> bytes:
        """Takes the encrypted bytes that have to be sent next."""
        return self._leaving.read()

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._object.write(rest) :]
