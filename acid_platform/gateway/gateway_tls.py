"""The server's side of TLS: its certificate, and whom a client's certificate names."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509

from acid_platform.base.clock import wall_ms
from acid_platform.errors import InvalidDefinition
from acid_platform.gateway.users import require_name

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
    def stamp(self) -> tuple[int, ...]:
        """Changes when the certificate or the key is replaced. Raises OSError."""
        return tuple(Path(path).stat().st_mtime_ns for path in (self.certificate, self.key))

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
