"""Certificates for metastores that listen on TCP, signed by an authority of their own.

A directory holds `ca.pem`, which clients get; `ca.key`, which signs; and the service's
`certificate.pem` and `key.pem`. A renewed certificate has the same authority, so clients need
nothing new.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from acid_platform.base.local_files import draft_beside, make_directory, sync_path
from acid_platform.errors import InvalidDefinition, MetastoreRefused

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
