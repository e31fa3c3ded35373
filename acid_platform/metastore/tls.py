"""TLS of a metastore that listens on TCP: certificates, the two ends' settings, one connection's
encryption.

Whoever connects verifies the certificate and the host's name; nothing turns that off. The key of
the metastore is proved inside of the connection, as without TLS.

Certificates are signed by an authority of their own. A directory holds `ca.pem`, which clients get;
`ca.key`, which signs; and the service's `certificate.pem` and `key.pem`. A renewed certificate has
the same authority, so clients need nothing new.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from acid_platform.base.local_files import draft_beside, make_directory, sync_path
from acid_platform.errors import InvalidDefinition, MetastoreRefused
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


DAYS = 397
_CA_DAYS = 3650
_EARLIER = timedelta(hours=1)
"""Machines whose clock is slow accept a new certificate too."""


@dataclass(frozen=True, slots=True)
class Made:
    """A service's certificate."""

    certificate: str
    key: str
    ca: str
    hosts: tuple[str, ...]
    expires: datetime
    ca_expires: datetime


def make_certificate(directory: Path, hosts: Sequence[str], days: int = DAYS) -> Made:
    """Writes a certificate for the hosts, and an authority if the directory has none.

    Without hosts, the certificate that is there is renewed. Raises InvalidDefinition, and
    MetastoreRefused if files that are there can't be used.
    """
    hosts = tuple(dict.fromkeys(hosts)) or read_certificate(directory).hosts
    names = [_name(host) for host in hosts]
    make_directory(directory, 0o700)
    authority, signer = _authority(directory)
    expires = datetime.now(UTC) + timedelta(days=days)
    if expires > authority.not_valid_after_utc:
        raise InvalidDefinition(
            f"the certificate would outlive {directory / 'ca.pem'}, which is valid until"
            f" {authority.not_valid_after_utc:%Y-%m-%d}; ask for fewer --days, or remove ca.pem and"
            " ca.key, and give all clients the new ca.pem"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    made = (
        _builder(hosts[0], authority.subject, key, expires)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(signer, hashes.SHA256())
    )
    _write(directory / "key.pem", _private(key))
    _write(directory / "certificate.pem", made.public_bytes(serialization.Encoding.PEM))
    return read_certificate(directory)


def read_certificate(directory: Path) -> Made:
    """The directory's certificate. Raises MetastoreRefused."""
    path, ca = directory / "certificate.pem", directory / "ca.pem"
    try:
        made = x509.load_pem_x509_certificate(path.read_bytes())
        authority = x509.load_pem_x509_certificate(ca.read_bytes())
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise MetastoreRefused(
            f"{directory} holds no certificate that can be read ({error}); make one: `acid"
            " metastore certificate HOST…`"
        ) from error
    return Made(
        str(path),
        str(directory / "key.pem"),
        str(ca),
        tuple(str(name.value) for name in names),
        made.not_valid_after_utc,
        authority.not_valid_after_utc,
    )


def _authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Raises MetastoreRefused."""
    certificate, key = directory / "ca.pem", directory / "ca.key"
    if not certificate.exists() and not key.exists():
        _make_authority(certificate, key)
    try:
        signer = serialization.load_pem_private_key(key.read_bytes(), None)
        authority = x509.load_pem_x509_certificate(certificate.read_bytes())
        if not isinstance(signer, ec.EllipticCurvePrivateKey):
            raise ValueError("ca.key was not made by this command")
        if authority.public_key() != signer.public_key():
            raise ValueError("they do not belong together")
    except (OSError, ValueError, TypeError) as error:
        raise MetastoreRefused(
            f"{certificate} and {key} can't sign a certificate: {error}; run this where both were"
            " made, or remove them, and give all clients the new ca.pem"
        ) from error
    return authority, signer


def _make_authority(certificate: Path, key: Path) -> None:
    signer = ec.generate_private_key(ec.SECP256R1())
    name = _subject("metastore authority")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _builder("metastore authority", name, signer, datetime.now(UTC) + timedelta(_CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(signer, hashes.SHA256())
    )
    _write(key, _private(signer))
    _write(certificate, made.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, expires: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(subject))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _EARLIER)
        .not_valid_after(expires)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str) -> x509.Name:
    # A common name has at most 64 characters; programs look at the alternative names.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    if not host or ":" in host or "/" in host or not host.isascii():
        raise InvalidDefinition(
            f"{host!r} is no host; name hosts or addresses as clients write them, without a port"
        )
    return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    file, draft = draft_beside(path)
    with file:
        file.write(content)
    sync_path(draft)
    draft.rename(path)
    sync_path(path.parent)
