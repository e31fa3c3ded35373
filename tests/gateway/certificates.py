"""Certificates for tests: an authority, and servers and clients that it signed."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: str
    key: str


class Authority:
    """Signs certificates. Its own is in `path`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory, self._key = directory, ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self.path = str(directory / f"{name}.pem")
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        own = (
            _unsigned(self._name, self._name, self._key, 30)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
        )
        _written(self.path, own.sign(self._key, hashes.SHA256()))

    def signs(self, name: str, days: float = 30, file: str = "") -> Pair:
        """A certificate for 127.0.0.1 with this common name; valid for `days` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _unsigned(_named(name), self._name, key, days)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
                ),
                critical=False,
            )
            .add_extension(  # Python 3.13 wants it
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        stem = self._directory / (file or name.replace(" ", "-"))
        pair = Pair(f"{stem}.crt", f"{stem}.key")
        _written(pair.certificate, certificate)
        Path(pair.key).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    def revokes(self, pair: Pair, days: float = 30) -> str:
        """The file of the authority with a list in which this certificate is revoked."""
        now = datetime.datetime.now(datetime.UTC)
        revoked = x509.load_pem_x509_certificate(Path(pair.certificate).read_bytes())
        entry = x509.RevokedCertificateBuilder().serial_number(revoked.serial_number)
        listed = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - 10 * _DAY)
            .next_update(now + days * _DAY)
            .add_revoked_certificate(entry.revocation_date(now - _DAY).build())
            .sign(self._key, hashes.SHA256())
        )
        file = Path(f"{self.path}.crl.pem")
        text = listed.public_bytes(serialization.Encoding.PEM)
        file.write_bytes(Path(self.path).read_bytes() + text)
        return str(file)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _unsigned(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 10 * _DAY)
        .not_valid_after(now + days * _DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _written(path: str, certificate: x509.Certificate) -> None:
    Path(path).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
