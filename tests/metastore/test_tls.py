"""A metastore that listens with TLS (P10): real processes, and the certificates that they use."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from acid_platform import (
    InvalidDefinition,
    MetastoreRefused,
)
from acid_platform.cli.main import main
from acid_platform.metastore import endpoint, wire
from acid_platform.metastore.certificates import make_certificate
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.target import remote
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.tls import Served
from tests.metastore.test_transport import KEY, Service

HOST = "127.0.0.1"


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A metastore with TLS that runs, and whose authority this process trusts."""
    monkeypatch.setenv(endpoint.KEY, KEY)
    home = tmp_path / "first"
    make_certificate(Home(home).tls, [HOST])
    monkeypatch.setenv(endpoint.TLS_CA, str(Home(home).tls / "ca.pem"))
    made = Service(home)
    yield made
    made.kill()


def reason(member: Service) -> str:
    """Why no connection is made."""
    with pytest.raises(MetastoreRefused) as refused:
        Metastore.connect(member.uri)
    return str(refused.value)


@pytest.mark.more
def test_P10_clients_use_tls(trusted: Service) -> None:
    with Metastore.connect(trusted.home, autostart=False) as local:
        assert local.status()["tls_until"] > f"{datetime.now(UTC):%Y-%m-%d}"
    with Metastore.connect(trusted.uri) as client:
        client.create_database("kept")
        large = "x" * 1_000_000
        assert client.query(f"SELECT '{large}'") == (["'" + large + "'"], [[large]])
        assert "kept" in client.databases()


@pytest.mark.more
def test_P10_nothing_is_readable_and_whoever_waits_for_plain_bytes_is_told(
    trusted: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_connection((HOST, trusted.port), timeout=10) as silent:
        assert silent.recv(4096) == wire.frame(wire.NEEDS_TLS)
        assert silent.recv(1) == b""
    with socket.create_connection((HOST, trusted.port), timeout=10) as other:
        other.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert b"acid" not in other.recv(4096)
    monkeypatch.delenv(endpoint.TLS_CA)
    assert "asks for TLS: set ACID_METASTORE_TLS_CA to the file ca.pem" in reason(trusted)


def test_P10_a_client_with_tls_refuses_a_metastore_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(endpoint.KEY, KEY)
    plain = Service(tmp_path / "plain")
    made = make_certificate(tmp_path / "elsewhere", [HOST])
    monkeypatch.setenv(endpoint.TLS_CA, made.ca)
    try:
        assert "does not speak TLS" in reason(plain) and "acid metastore certificate" in reason(
            plain
        )
    finally:
        plain.kill()


def test_P10_a_certificate_is_verified_and_renewed_without_a_restart(
    trusted: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Metastore.connect(trusted.uri) as client:
        client.databases()
        make_certificate(Home(trusted.home).tls, ["elsewhere.example", "::1"])
        assert "is for other names" in reason(trusted) and "127.0.0.1" in reason(trusted)
        make_certificate(Home(trusted.home).tls, [HOST], days=0)
        assert "has expired; renew it" in reason(trusted)
        (Home(trusted.home).tls / "key.pem").write_text("half written")
        assert "has expired" in reason(trusted)  # the last pair that fits stays in use
        make_certificate(Home(trusted.home).tls, [], days=10)
        Metastore.connect(trusted.uri).close()
        client.databases()  # the connection from before
    monkeypatch.setenv(endpoint.TLS_CA, make_certificate(tmp_path / "other", [HOST]).ca)
    assert "is not trusted" in reason(trusted) and endpoint.TLS_CA in reason(trusted)
    monkeypatch.setenv(endpoint.TLS_CA, endpoint.SYSTEM)
    assert "is not trusted" in reason(trusted)


def test_P10_the_key_is_asked_for_inside_of_tls_too(
    trusted: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(endpoint.KEY, "another-key-of-enough-letters")
    assert "the key is wrong" in reason(trusted)


def test_P10_files_that_are_no_certificate_are_refused_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_certificate(tmp_path, [HOST])
    assert Served.configured(tmp_path / "nothing", {}) is None
    assert Served.configured(tmp_path, {}) is not None
    with pytest.raises(MetastoreRefused, match="set both ACID_METASTORE_TLS_CERTIFICATE and"):
        Served.configured(tmp_path, {endpoint.TLS_CERTIFICATE: made.certificate})
    with pytest.raises(MetastoreRefused, match=r"can't be used: .* make both anew"):
        Served(Path(made.certificate), Path(made.ca).with_name("ca.key"))
    with pytest.raises(MetastoreRefused, match="can't be used"):
        Served(Path(made.certificate), tmp_path / "missing")
    make_certificate(tmp_path, [], days=0)
    with pytest.raises(MetastoreRefused, match="has expired on"):
        Served.configured(tmp_path, {})
    monkeypatch.setenv(endpoint.KEY, KEY)
    for wrong in (made.key, str(tmp_path / "missing")):
        monkeypatch.setenv(endpoint.TLS_CA, wrong)
        with pytest.raises(MetastoreRefused, match="must name the file"):
            remote("tcp://127.0.0.1:1")
    with pytest.raises(InvalidDefinition, match="would outlive"):
        make_certificate(tmp_path, [HOST], days=3651)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(MetastoreRefused, match="can't sign a certificate"):
        make_certificate(tmp_path, [HOST])
    with pytest.raises(InvalidDefinition, match="'first:7433' is no host"):
        make_certificate(tmp_path, ["first:7433"])


def test_the_command_makes_shows_and_renews_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACID_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("ACID_METASTORE", str(tmp_path / "metastore"))

    def acid(*command: str) -> Result:
        return CliRunner().invoke(main, ["metastore", "certificate", *command, "--json"])

    assert "make one: `acid metastore certificate HOST" in acid().stderr
    made = json.loads(acid("first", "192.0.2.7").stdout)
    assert made["hosts"] == "first, 192.0.2.7"
    files = list((tmp_path / "metastore" / "tls").iterdir())
    assert {path.name for path in files} == {"ca.pem", "ca.key", "certificate.pem", "key.pem"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    authority = Path(made["ca"]).read_bytes()
    assert json.loads(acid().stdout) == made
    renewed = json.loads(acid("--renew", "--days", "30").stdout)
    assert renewed["hosts"] == made["hosts"] and renewed["expires"] < made["expires"]
    assert Path(made["ca"]).read_bytes() == authority
