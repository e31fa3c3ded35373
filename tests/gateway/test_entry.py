"""Who comes in: TLS, certificates, passwords, Kerberos, limits (P34)."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from thriftpy2.thrift import TApplicationException

from acid_platform import AcidError, InvalidDefinition, MetastoreUnavailable, Warehouse
from acid_platform.cli.main import main
from acid_platform.gateway import framing, logins
from acid_platform.gateway.client_connection import Bounds, CallRates
from acid_platform.gateway.gateway_process import GatewaySettings
from acid_platform.gateway.gateway_server import Entry, GatewayServer
from acid_platform.gateway.hive_client import PASSWORD, Address, Hive, HiveRefused
from acid_platform.gateway.logins import Tls, Users
from tests.gateway.certificates import Authority, Pair
from tests.gateway.clients import connected, m
from tests.gateway.conftest import serving
from tests.gateway.test_protocol import CALLS, await_connections, framed


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Tls:
    pair = authority.signs("gateway")
    return Tls(pair.certificate, pair.key)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("people") / "users")
    assert logins.add(path, "ann", "secret")
    assert logins.add(path, "bob", "hidden")
    return path


@pytest.fixture(scope="module")
def both(
    warehouse: Warehouse, authority: Authority, tls: Tls, people: str
) -> Iterator[GatewayServer]:
    """A gateway with TLS that takes certificates and passwords."""
    entry = Entry(Tls(tls.certificate, tls.key, authority.path), Users(people))
    with serving(warehouse, entry=entry) as server:
        yield server


def at(server: GatewayServer, **more: str) -> Address:
    host, port = server.address
    return Address(host, port, **more)


# --- TLS ----------------------------------------------------------------------------------------


def test_P34_a_client_that_trusts_the_authority_gets_in_by_tls(
    warehouse: Warehouse, authority: Authority, tls: Tls
) -> None:
    with serving(warehouse, entry=Entry(tls)) as server:
        with Hive(at(server, ca=authority.path)) as hive:
            assert "default" in hive.call("get_all_databases")
        with Hive(at(server)) as plain, pytest.raises(MetastoreUnavailable, match="--tls-ca"):
            plain.call("get_all_databases")
        with socket.create_connection(server.address, timeout=10) as web:
            web.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert not web.recv(1000).startswith(b"HTTP")


def test_P34_a_certificate_of_a_stranger_or_for_another_name_is_not_accepted(
    warehouse: Warehouse, tls: Tls, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    with serving(warehouse, entry=Entry(tls)) as server:
        with pytest.raises(InvalidDefinition, match=r"not accepted: .*local issuer"):
            Hive(at(server, ca=stranger.path))
        context = ssl.create_default_context(cafile=authority.path)
        with (
            socket.create_connection(server.address, timeout=10) as wire,
            pytest.raises(ssl.SSLCertVerificationError, match="elsewhere"),
        ):
            context.wrap_socket(wire, server_hostname="elsewhere")


def test_P34_certificates_that_are_wrong_are_refused_at_the_start(
    authority: Authority, tmp_path: Path
) -> None:
    good, expired = authority.signs("good"), authority.signs("old", days=-1)
    other = authority.signs("other")
    with pytest.raises(InvalidDefinition, match=r"old\.crt: certificate has expired"):
        Tls(expired.certificate, expired.key).context(False)
    with pytest.raises(InvalidDefinition, match="not a certificate and its key"):
        Tls(good.certificate, other.key).context(False)
    with pytest.raises(InvalidDefinition, match="there is no file"):
        Tls(str(tmp_path / "none"), good.key).context(False)
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with pytest.raises(InvalidDefinition, match="not a PEM file of certificates"):
        Tls(good.certificate, good.key, str(wrong)).context(True)
    assert 29 < Tls(good.certificate, good.key).days_left() < 31


def test_P34_a_client_with_a_revoked_certificate_is_not_let_in(
    authority: Authority, tls: Tls
) -> None:
    taken, kept = authority.signs("taken"), authority.signs("kept")
    for days, told in ((30, ""), (-1, "CRL has expired")):
        server = Tls(tls.certificate, tls.key, authority.revokes(taken, days)).context(True)
        with pytest.raises(ssl.SSLError, match=told or "revoked"):
            _shake_hands(server, authority, taken)
        if told:
            with pytest.raises(ssl.SSLError, match=told):
                _shake_hands(server, authority, kept)
        else:
            _shake_hands(server, authority, kept)


def _shake_hands(context: ssl.SSLContext, authority: Authority, pair: Pair) -> None:
    """A handshake of both sides in memory. Raises SSLError as the server does."""
    client_context = ssl.create_default_context(cafile=authority.path)
    client_context.load_cert_chain(pair.certificate, pair.key)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(back, there, server_hostname="localhost")
    server = context.wrap_bio(there, back, server_side=True)
    done = 0
    while done < 2:
        done = 0
        for side in (client, server):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue


def test_P34_a_renewed_certificate_is_taken_without_a_restart(
    warehouse: Warehouse, authority: Authority
) -> None:
    pair = authority.signs("renewed", days=3)
    with serving(warehouse, entry=Entry(Tls(pair.certificate, pair.key))) as server:
        before = _presented(server, authority)
        Path(pair.certificate).write_text("half written")
        server._tick()  # a broken file does not replace the certificate that is in use
        assert _presented(server, authority) == before
        authority.signs("renewed", days=20)
        server._tick()
        assert _presented(server, authority) != before


def test_P34_a_new_list_of_revoked_certificates_counts_without_a_restart(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair, ann, bob = (authority.signs(name) for name in ("gateway", "ann", "bob"))
    file = tmp_path / "clients.pem"
    file.write_bytes(Path(authority.path).read_bytes())
    with serving(warehouse, entry=Entry(Tls(pair.certificate, pair.key, str(file)))) as server:

        def client(of: Pair) -> Hive:
            return Hive(at(server, ca=authority.path, certificate=of.certificate, key=of.key))

        with client(ann) as old:
            assert old.call("get_all_databases")
            file.write_text("half written")
            server._tick()
            assert old.call("get_all_databases")
            file.write_bytes(Path(authority.revokes(ann)).read_bytes())
            server._tick()
            await_connections(server, 0)
        with pytest.raises((AcidError, OSError)):
            client(ann).call("get_all_databases")
        with client(bob) as kept:
            assert kept.call("get_all_databases")


def _presented(server: GatewayServer, authority: Authority) -> object:
    context = ssl.create_default_context(cafile=authority.path)
    with (
        socket.create_connection(server.address, timeout=10) as wire,
        context.wrap_socket(wire, server_hostname="127.0.0.1") as secured,
    ):
        return (secured.getpeercert() or {})["notAfter"]


@pytest.mark.more
def test_P34_a_client_by_tls_makes_many_calls_without_a_pause(
    both: GatewayServer, authority: Authority
) -> None:
    """A connection that waits for a full buffer, which is empty, ends after a minute."""
    trino = authority.signs("trino")
    for _ in range(5):
        where = at(both, ca=authority.path, certificate=trino.certificate, key=trino.key)
        with Hive(where) as hive:
            for _ in range(20):
                request = m.OpenTxnRequest(num_txns=1, user="ann", hostname="h", agentInfo="x")
                (txn,) = hive.call("open_txns", request).txn_ids
                hive.abort([txn])


# --- certificates and passwords -----------------------------------------------------------------


def test_P34_the_common_name_of_a_clients_certificate_is_its_user(
    both: GatewayServer, authority: Authority, warehouse: Warehouse
) -> None:
    trino = authority.signs("trino")
    with Hive(at(both, ca=authority.path, certificate=trino.certificate, key=trino.key)) as hive:
        request = m.OpenTxnRequest(num_txns=1, user="ann", hostname="h", agentInfo="x")
        (txn,) = hive.call("open_txns", request).txn_ids
        (row,) = [one for one in warehouse.metastore.transactions() if one["txnid"] == txn]
        assert row["user"] == "trino for ann"
        hive.abort([txn])


@pytest.mark.parametrize(
    ("name", "days", "signed"), [("late", -1, "here"), ("Ann Smith", 30, "here"), ("t", 30, "else")]
)
def test_P34_a_certificate_that_is_expired_of_nobody_or_of_another_authority_is_refused(
    both: GatewayServer, authority: Authority, tmp_path: Path, name: str, days: int, signed: str
) -> None:
    signing = authority if signed == "here" else Authority(tmp_path, "another")
    pair = signing.signs(name, days=days)
    address = at(both, ca=authority.path, certificate=pair.certificate, key=pair.key)
    refused = MetastoreUnavailable if signed == "else" else (MetastoreUnavailable, HiveRefused)
    with pytest.raises(refused), Hive(address) as hive:
        hive.call("get_all_databases")


@pytest.mark.more
def test_P34_a_password_lets_in_and_without_one_no_call_is_answered(
    both: GatewayServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, "secret")
    with Hive(at(both, ca=authority.path, user="ann")) as hive:
        assert "default" in hive.call("get_all_databases")
    with Hive(at(both, ca=authority.path)) as nobody:
        with pytest.raises(HiveRefused, match="log in first"):
            nobody.call("get_all_databases")
        with pytest.raises(MetastoreUnavailable):
            nobody.call("get_all_databases")


@pytest.mark.more
@pytest.mark.parametrize(
    "change", ["removed", pytest.param("another password", marks=pytest.mark.slow)]
)
def test_P34_the_connections_of_a_former_user_are_closed(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    file = tmp_path / "users"
    for name in ("ann", "bob"):
        logins.add(str(file), name, "secret")
    monkeypatch.setenv(PASSWORD, "secret")
    with (
        serving(warehouse, entry=Entry(users=Users(str(file)))) as server,
        Hive(at(server, user="ann")) as ann,
        Hive(at(server, user="bob")) as bob,
    ):
        server._tick()
        assert ann.call("get_all_databases") and bob.call("get_all_databases")
        if change == "removed":
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join(line for line in lines if not line.startswith("ann:")))
        else:
            logins.add(str(file), "ann", "new")
        server._tick()
        await_connections(server, 1)
        with pytest.raises(MetastoreUnavailable):
            ann.call("get_all_databases")
        assert bob.call("get_all_databases")
        monkeypatch.setenv(PASSWORD, "new")
        if change == "removed":
            with pytest.raises(InvalidDefinition, match="wrong user or password"):
                Hive(at(server, user="ann"))
        else:
            Hive(at(server, user="ann")).__exit__()


@pytest.mark.more
def test_P34_a_hash_that_is_replaced_at_the_login_closes_no_connection(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, salt = tmp_path / "users", bytes(16)
    hashed = hashlib.scrypt(b"secret", salt=salt, n=1 << 14, r=8, p=1, dklen=32)
    file.write_text(f"ann:{logins.Secret(1 << 14, 8, 1, salt, hashed)}\n")
    monkeypatch.setenv(PASSWORD, "secret")
    with serving(warehouse, entry=Entry(users=Users(str(file)))) as server:
        server._tick()
        with Hive(at(server, user="ann")) as ann:
            assert "$131072$" in file.read_text()
            server._tick()
            server._tick()
            assert ann.call("get_all_databases")


@pytest.mark.more
@pytest.mark.parametrize(("user", "password"), [("ann", "hidden"), ("eve", "secret"), ("ann", "s")])
def test_P34_a_wrong_user_or_password_is_told_apart_by_nobody(
    warehouse: Warehouse, people: str, monkeypatch: pytest.MonkeyPatch, user: str, password: str
) -> None:
    monkeypatch.setenv(PASSWORD, password)
    with (
        serving(warehouse, entry=Entry(users=Users(people))) as server,
        pytest.raises(InvalidDefinition, match="wrong user or password"),
    ):
        Hive(at(server, user=user))


def test_P34_a_certificate_and_another_users_password_do_not_mix(
    both: GatewayServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, "hidden")
    pair = authority.signs("ann", file="ann-2")
    with pytest.raises(InvalidDefinition, match="of 'ann', not of 'bob'"):
        Hive(at(both, ca=authority.path, certificate=pair.certificate, key=pair.key, user="bob"))


def negotiation(mechanism: bytes, *response: bytes, status: str = "OK") -> bytes:
    """What a client sends before its first call."""
    content = framing.written(framing.SaslStatus.START, mechanism)
    return content + b"".join(framing.written(framing.SaslStatus[status], one) for one in response)


@pytest.mark.parametrize(
    ("opening", "told"),
    [
        (negotiation(b"GSSAPI"), b"Kerberos (GSSAPI) is not spoken"),
        (negotiation(b"DIGEST-MD5"), b"delegation tokens"),
        (negotiation(b"\xff\x00X"), b"is not spoken; use PLAIN"),
        (negotiation(b"PLAIN", b"root\0ann\0secret"), b"may not act as"),
        (negotiation(b"PLAIN", b"secret"), b"NUL user NUL password"),
        (negotiation(b"PLAIN", b"\0ann\0"), b"may not be empty"),
        (negotiation(b"PLAIN", b"bye", status="ERROR"), b"ended the negotiation: bye"),
    ],
)
@pytest.mark.parametrize("pieces", [1, 1000])
def test_P34_other_negotiations_are_refused_with_their_reason(
    warehouse: Warehouse, people: str, opening: bytes, told: bytes, pieces: int
) -> None:
    with (
        serving(warehouse, entry=Entry(users=Users(people))) as server,
        socket.create_connection(server.address, timeout=10) as raw,
    ):
        for start in range(0, len(opening), pieces):
            raw.sendall(opening[start : start + pieces])
            time.sleep(0.001)
        answer = b""
        while part := raw.recv(1000):
            answer += part
    assert answer[0] == framing.SaslStatus.BAD and told in answer


def test_P34_kerberos_is_refused_with_its_reason_by_an_open_gateway_too(
    server: GatewayServer,
) -> None:
    with socket.create_connection(server.address, timeout=10) as raw:
        raw.sendall(negotiation(b"GSSAPI"))
        assert b"hive.metastore.sasl.enabled=false" in raw.recv(1000)


@pytest.mark.more
def test_P34_after_a_login_every_message_has_to_be_framed(
    warehouse: Warehouse, people: str
) -> None:
    with (
        serving(warehouse, entry=Entry(users=Users(people))) as server,
        socket.create_connection(server.address, timeout=10) as raw,
    ):
        raw.sendall(framing.client_opening("ann", "secret"))
        assert raw.recv(1000) == framing.written(framing.SaslStatus.COMPLETE)
        raw.sendall(framed(CALLS[0]))
        assert b"default" in raw.recv(1000)
        raw.sendall(CALLS[0])
        assert raw.recv(1000) == b""


def test_P34_who_does_not_log_in_in_time_is_disconnected(warehouse: Warehouse, people: str) -> None:
    with serving(warehouse, Bounds(login_seconds=0.2), entry=Entry(users=Users(people))) as server:
        for opening in (b"", b"\x01", negotiation(b"PLAIN")):
            with socket.create_connection(server.address, timeout=10) as slow:
                slow.sendall(opening)
                assert slow.recv(10) == b""


def test_P34_an_address_that_fails_too_often_has_to_wait() -> None:
    pace = CallRates(Bounds(failures=3))
    for _ in range(3):
        assert pace.begin_login("1.2.3.4")
        pace.end_login("1.2.3.4", failed=True)
    assert not pace.begin_login("1.2.3.4") and pace.begin_login("1.2.3.5")


# --- the file of users --------------------------------------------------------------------------


@pytest.mark.more
def test_P34_passwords_are_hashed_with_a_salt_and_the_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "users"
    assert logins.add(str(path), "ann", "secret") and logins.add(str(path), "bob", "secret")
    hashes = {line.partition(":")[2] for line in path.read_text().splitlines()}
    assert len(hashes) == 2 and "secret" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    known = Users(str(path))
    assert known.verify("ann", "secret") and not known.verify("ann", "")
    assert not logins.add(str(path), "ann", "changed")
    assert known.verify("ann", "changed") and not known.verify("ann", "secret")
    path.write_text("ann:changed\n")
    with pytest.raises(InvalidDefinition, match="line 1: a line is NAME:HASH"):
        known.verify("ann", "changed")
    path.unlink()
    with pytest.raises(InvalidDefinition, match="can't be read"):
        known.verify("ann", "changed")


@pytest.mark.parametrize("hashed", ["scrypt$1048576$8$1$c2FsdHNhbHQ=$" + "A" * 44, "md5$x", ""])
def test_P34_a_hash_that_is_weak_or_costs_too_much_is_refused(hashed: str) -> None:
    with pytest.raises(InvalidDefinition, match="line 1"):
        logins.parse(f"ann:{hashed}", "users")


@pytest.mark.more
def test_P34_the_command_adds_a_user(tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    run = CliRunner().invoke
    command = ["gateway", "add-user", path]
    assert "added ann" in run(main, [*command, "ann", "--password-stdin"], input="pw\n").output
    told = run(main, [*command, "ann"], input="other\nother\n")
    assert "changed ann" in told.output and "other" not in told.output
    assert Users(path).verify("ann", "other")
    assert "not the name of a user" in run(main, [*command, "a b"], input="x\nx\n").output


# --- what the gateway is started with -----------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tls.certificate": "/c.pem"}, "are needed together"),
        ({"tls.ca": "/c.pem"}, "are needed together"),
        ({"users": "/users"}, "would send passwords in clear text"),
        ({"users": "users"}, "is not an absolute path"),
        ({"grants": "/grants"}, "needs to know who calls"),
        ({"grants": "/grants", "authorizer": "a:b"}, "not both"),
        ({"authorizer": "os.path:nothing"}, "can't be imported"),
        ({"authorizer": "os.path:sep"}, "is no function"),
        ({"threads": "0"}, "acid.gateway.threads='0' is refused"),
    ],
)
def test_P34_settings_that_leave_a_door_open_are_refused(
    options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        GatewaySettings.of({}, options, "0.0.0.0")


def test_P68_no_setting_of_the_metastore_names_code() -> None:
    stored = {"acid.gateway.authorizer": "os:system"}
    for options in ({}, {"authorizer": "os.path:exists"}):
        with pytest.raises(InvalidDefinition, match="only who starts the gateway may"):
            GatewaySettings.of(stored, options, "127.0.0.1")


def test_P34_settings_and_options_choose(tls: Tls, people: str) -> None:
    settings = {
        "acid.gateway.tls.certificate": tls.certificate,
        "acid.gateway.tls.key": tls.key,
        "acid.gateway.connections": "5",
        "acid.gateway.rate": "7",
    }
    chosen = GatewaySettings.of(settings, {"users": people, "connections": "6"}, "0.0.0.0")
    assert chosen.entry.tls == tls and chosen.entry.closed and chosen.authorizer is None
    assert (chosen.bounds.connections, chosen.bounds.rate) == (6, 7)


# --- many and slow clients ----------------------------------------------------------------------


@pytest.mark.more
def test_P34_2000_idle_connections_need_no_thread_of_their_own(warehouse: Warehouse) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 5000
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    before = threading.active_count()
    sockets: list[socket.socket] = []
    with serving(warehouse, Bounds(connections=2000, threads=8)) as server:
        try:
            for _ in range(2000):
                sockets.append(socket.create_connection(server.address, timeout=10))
            await_connections(server, 2000)
            for one in sockets:  # who has sent no call would make room for others
                one.sendall(CALLS[0])
            assert all(b"default" in one.recv(1000) for one in sockets)
            assert threading.active_count() - before <= 1 + 8
            with connected(server.address) as more, pytest.raises(TApplicationException) as told:
                more.get_all_databases()
            assert "too many connections: 2000 are open" in told.value.message
            sockets.pop().close()
            await_connections(server, 1999)
            with connected(server.address) as again:
                assert "default" in again.get_all_databases()
        finally:
            for one in sockets:
                one.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_P34_slow_clients_hold_up_nobody_and_are_disconnected(warehouse: Warehouse) -> None:
    with serving(warehouse, Bounds(threads=2, message_seconds=0.5)) as server:
        slow = [socket.create_connection(server.address, timeout=10) for _ in range(50)]
        for one in slow:
            one.sendall(CALLS[1][:7])
        with connected(server.address) as quick:
            began = time.monotonic()
            assert "default" in quick.get_all_databases()
            assert time.monotonic() - began < 0.4
        for step, one in enumerate(slow):
            if step % 2:
                one.sendall(CALLS[1][7:8])  # a byte now and then gives no more time
        for one in slow:
            assert one.recv(10) == b""
            one.close()
        await_connections(server, 0)


def test_P34_unfinished_messages_share_a_bounded_memory(warehouse: Warehouse) -> None:
    with serving(warehouse, Bounds(buffer=200_000)) as server:  # half of it for one address
        large = framed(b"\x80\x01\0\1" + b"\0" * 1_000_000)[:60_000]
        with (
            socket.create_connection(server.address, timeout=10) as one,
            socket.create_connection(server.address, timeout=10) as two,
        ):
            one.sendall(large)
            deadline = time.monotonic() + 10
            while server.waiting_bytes < len(large):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            two.sendall(large)
            with pytest.raises((ConnectionError, AssertionError)):
                assert two.recv(1)
            assert server.waiting_bytes <= 100_000
        await_connections(server, 0)
        assert server.waiting_bytes == 0


def test_P34_a_user_above_the_rate_waits_and_loses_nothing(warehouse: Warehouse) -> None:
    with serving(warehouse, Bounds(rate=20)) as server, connected(server.address) as client:
        began = time.monotonic()
        for _ in range(26):
            client.getMetaConf("x")
        assert time.monotonic() - began > 0.2
        assert server.counters.slowed > 0


def test_P34_the_answer_to_a_client_that_does_not_read_is_dropped(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(warehouse, Bounds(message_seconds=0.3)) as server:
        monkeypatch.setattr(server._gateway, "begin", lambda *_: b"x" * 50_000_000)
        with socket.create_connection(server.address, timeout=10) as deaf:
            deaf.sendall(CALLS[0])
            await_connections(server, 1)
            await_connections(server, 0)


@pytest.mark.more
def test_doctor_tells_what_a_gateway_does_and_whether_it_is_open(warehouse: Warehouse) -> None:
    from acid_platform.base.location import Location
    from acid_platform.gateway.gateway_process import GatewayStatus, examined, running

    place = Location.of(warehouse.path)
    status = GatewayStatus(place)
    with serving(warehouse) as server, connected(server.address) as client:
        client.get_all_databases()
        status.write(server)
        (told,) = running(warehouse.metastore)
        healthy, text = examined(told)
        assert healthy and "1 of 1000 connections" in text and "1 calls" in text
        result = CliRunner().invoke(
            main, ["doctor", "--no-settings", "--json", "--warehouse", str(warehouse.path)]
        )
        assert "1 of 1000 connections" in result.output
        open_to_all = {**told, "address": "0.0.0.0:9083"}
        assert "whoever reaches it" in examined(open_to_all)[1]
        ends = {**told, "certificate_days": 3.0}
        assert "certificate ends in 3 days" in examined(ends)[1]
    status.remove()
    assert not [*running(warehouse.metastore)]
