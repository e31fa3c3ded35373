"""Access to the metastore: Unix socket and TCP, keys, sizes, malformed bytes."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from acid_platform import (
    InvalidDefinition,
    MetastoreIncompatible,
    MetastoreRefused,
    MetastoreUnavailable,
    Terminal,
)
from acid_platform.base.location import Location
from acid_platform.cli.main import main
from acid_platform.metastore import endpoint, wire
from acid_platform.metastore.client import link
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import Endpoint, Home, require_tls
from acid_platform.metastore.records import LockRequest
from acid_platform.metastore.server import connections
from acid_platform.metastore.server.metrics import Histogram
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from tests.crowds import held
from tests.declared import declare
from tests.metastore.processes import ask, end, gone, until

KEY = "0123456789abcdef-the-key"
WRITE = LockRequest("t", LockType.SHARED_WRITE, RowOperation.INSERT)


class Service:
    """A metastore that listens on a port.

    `inside`: the beginning of a command that starts another in a network namespace.
    """

    def __init__(
        self, home: Path, port: int = 0, host: str = "127.0.0.1", inside: tuple[str, ...] = ()
    ) -> None:
        self.home = home
        command = [
            *inside,
            sys.executable,
            "-m",
            "acid_platform.metastore",
            "--dir",
            str(home),
            "--listen",
            f"{host}:{port}",
            "--without-tls",
        ]
        environment = {**os.environ, endpoint.KEY: KEY}
        self.process = subprocess.Popen(command, env=environment)
        until(self._published, 30)
        with Metastore.connect(home, autostart=False) as local:
            self.address = local.status()["listen"]

    def _published(self) -> bool:
        found = Endpoint.read(Home(self.home))
        return found is not None and found.pid == self.process.pid

    @property
    def uri(self) -> str:
        return f"tcp://{self.address}"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("service") / "metastore")
    yield made
    made.process.terminate()
    made.process.wait()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(endpoint.KEY_FILE, raising=False)
    monkeypatch.setenv(endpoint.KEY, KEY)


Connect = Callable[[], socket.socket]


@pytest.fixture(params=["unix", "tcp"])
def raw(request: pytest.FixtureRequest, service: Service) -> Connect:
    """Connects without any handshake."""

    def connect() -> socket.socket:
        if request.param == "tcp":
            made = socket.create_connection(("127.0.0.1", service.port))
        else:
            found = Endpoint.read(Home(service.home))
            assert found is not None
            made = socket.socket(socket.AF_UNIX)
            made.connect(found.address)
        made.settimeout(15)
        return made

    return connect


def greeted(raw: Connect, request: pytest.FixtureRequest, service: Service) -> socket.socket:
    """Connects and completes the handshake."""
    peer = raw()
    unix = peer.family == socket.AF_UNIX
    secret = Home(service.home).authkey() if unix else KEY.encode()
    wire.Channel(peer, secret)
    peer.settimeout(15)
    return peer


def ended(peer: socket.socket) -> bool:
    """Whether the other end closes the connection without another answer."""
    try:
        while data := peer.recv(4096):
            assert len(data) < 4096
        return True
    except ConnectionResetError:
        return True


# --- TCP ----------------------------------------------------------------------------------------


@pytest.mark.more
def test_a_service_serves_over_tcp_what_it_serves_at_home(service: Service) -> None:
    with Metastore.connect(service.uri) as far, Metastore.connect(service.home) as near:
        declare(far, "shared", "/w/shared", [("id", "int")])
        assert near.table("shared") == far.table("shared")
        with far.begin(locks=[LockRequest("shared", LockType.SHARED_WRITE)]) as txn:
            assert near.status()["open"] == 1
        assert near.outcome(txn.id)["state"] == "c"
        far.drop("shared")


def test_a_key_may_be_in_a_file(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(endpoint.KEY)
    with pytest.raises(MetastoreRefused, match="ACID_METASTORE_KEY"):
        Metastore.connect(service.uri)
    file = tmp_path / "key"
    monkeypatch.setenv(endpoint.KEY_FILE, str(file))
    with pytest.raises(MetastoreRefused, match="can't be read"):
        Metastore.connect(service.uri)
    file.write_text("short\n")
    with pytest.raises(MetastoreRefused, match="5 characters; a key needs 16"):
        Metastore.connect(service.uri)
    file.write_text(f"{KEY}\n")
    Metastore.connect(service.uri).close()


def test_a_wrong_key_is_refused_and_named(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(endpoint.KEY, KEY + "x")
    with pytest.raises(MetastoreRefused, match="the key is wrong"):
        Metastore.connect(service.uri)


def test_a_missing_service_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(MetastoreUnavailable, match=rf"--listen 127\.0\.0\.1:{port}"):
        Metastore.connect(f"tcp://127.0.0.1:{port}")


def test_another_program_on_the_port_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        import threading

        def answer() -> None:
            peer, _ = other.accept()
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(MetastoreIncompatible, match="no metastore listens at"):
            Metastore.connect(f"tcp://127.0.0.1:{other.getsockname()[1]}")


def test_another_protocol_version_is_refused_by_both_ends(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        frames = wire.Frames(wire.LARGEST_GREETING)
        asked = json.loads(next(frames.feed(peer.recv(4096))))
        said = {
            "acid": 2,
            "challenge": "0",
            "proof": wire.proof(KEY.encode(), "client", asked["challenge"], "0"),
        }
        peer.sendall(wire.frame(json.dumps(said).encode()))
        assert b"protocol 2 is not 1" in peer.recv(4096)
    monkeypatch.setattr(wire, "PROTOCOL", 2)
    with pytest.raises(MetastoreIncompatible, match="speaks protocol 1, this program 2"):
        Metastore.connect(service.uri)


@pytest.mark.parametrize(
    "text", ["tcp://", "tcp://host", "tcp://host:x", "tcp://:1", "tcp://::1:5", "tcp://host:70000"]
)
def test_malformed_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidDefinition, match="write host:port"):
        Metastore.connect(text)


def test_addresses() -> None:
    assert endpoint.parse_address("[::1]:5") == ("::1", 5)
    assert endpoint.show_address("::1", 5) == "[::1]:5"
    place = Location.of("/w", "tcp://h:1")
    assert place.metastore == "tcp://h:1" and place.shared and place.made


@pytest.mark.more
def test_P3_a_client_waits_for_a_service_that_comes_back(tmp_path: Path) -> None:
    first = Service(tmp_path / "m")
    with Metastore.connect(first.uri) as client:
        declare(client, "t", "/w/t", [("id", "int")])
        txn = client.begin(locks=[WRITE])
        first.kill()
        second = Service(tmp_path / "m", first.port)
        txn.commit()
        assert client.outcome(txn.id)["state"] == "c"
        client.stop()
    assert second.process.wait(10) == 0


@pytest.mark.parametrize(
    ("listen", "tls", "without_tls", "refused"),
    [
        ("0.0.0.0:7433", False, False, True),
        ("[::]:7433", False, False, True),
        ("192.0.2.7:7433", False, False, True),
        ("db.example:7433", False, False, True),
        ("127.example.org:7433", False, False, True),
        ("127.0.0.1.nip.io:7433", False, False, True),
        ("localhost:7433", False, False, False),
        ("127.0.0.1:7433", False, False, False),
        ("127.3.2.1:7433", False, False, False),
        ("[::1]:7433", False, False, False),
        ("0.0.0.0:7433", True, False, False),
        ("0.0.0.0:7433", False, True, False),
    ],
)
def test_other_machines_are_served_with_tls_or_on_request_only(
    listen: str, tls: bool, without_tls: bool, refused: bool
) -> None:
    with pytest.raises(InvalidDefinition, match="--without-tls") if refused else nullcontext():
        require_tls(listen, tls=tls, without_tls=without_tls, certificate="make one")


@pytest.mark.more
def test_start_and_serve_ask_for_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACID_WAREHOUSE", str(tmp_path / "w"))
    for command in ("start", "serve"):
        refused = CliRunner().invoke(main, ["metastore", command, "--listen", "0.0.0.0:0"])
        assert refused.exit_code == 1
        assert "acid metastore certificate HOST" in refused.stderr
    started = CliRunner().invoke(
        main, ["metastore", "start", "--listen", "0.0.0.0:0", "--without-tls"]
    )
    assert started.exit_code == 0, started.stderr
    CliRunner().invoke(main, ["metastore", "stop"])


@pytest.mark.more
def test_the_commands_of_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACID_WAREHOUSE", str(tmp_path / "w"))

    def acid(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["metastore", *arguments])

    started = json.loads(acid("start", "--listen", "127.0.0.1:0", "--json").stdout)
    busy = acid("start", "--listen", started["listen"])
    assert busy.exit_code == 0 and f"listens on {started['listen']}" in busy.stdout
    monkeypatch.setenv("ACID_METASTORE", f"tcp://{started['listen']}")
    assert json.loads(acid("status", "--json").stdout)["pid"] == started["pid"]
    assert "is a service: start it on its machine" in acid("start").stderr
    assert "is a service: restore on its machine" in acid("restore", __file__).stderr
    text = acid("status", "--prometheus").stdout
    assert (
        "\nacid_metastore_up 1.0\n" in text and "\nacid_metastore_open_transactions 0.0\n" in text
    )
    assert f"process {started['pid']} has ended" in acid("stop").stdout
    until(lambda: gone(started["pid"]))
    assert acid("status", "--prometheus").stdout.endswith("acid_metastore_up 0.0\n")
    monkeypatch.delenv("ACID_METASTORE")
    acid("start")
    assert "does not listen on" in acid("start", "--listen", "127.0.0.1:0").stderr
    acid("stop")


# --- both transports ----------------------------------------------------------------------------


def test_the_socket_is_for_its_owner_only(service: Service) -> None:
    found = Endpoint.read(Home(service.home))
    assert found is not None
    assert stat.S_IMODE(os.stat(found.address).st_mode) == 0o600


def test_a_request_without_handshake_is_refused(raw: Connect, service: Service) -> None:
    peer = raw()
    request = {"id": "1", "op": "create_database", "args": {"name": "x", "if_not_exists": False}}
    peer.sendall(wire.frame(json.dumps(request).encode()))
    assert ended(peer)
    with Metastore.connect(service.home) as client:
        assert "x" not in client.databases()


def test_a_length_is_refused_before_any_byte_is_stored(
    raw: Connect, request: pytest.FixtureRequest, service: Service
) -> None:
    with Metastore.connect(service.home) as client:
        before = client.status()
        stranger = raw()
        stranger.sendall((wire.LARGEST_GREETING + 1).to_bytes(4, "big"))
        assert ended(stranger)
        known = greeted(raw, request, service)
        known.sendall((0xFFFFFFFF).to_bytes(4, "big") + b"x")
        assert ended(known)
        after = client.status()
    assert after["refused"] == before["refused"] + 2
    assert after["resident_bytes"] < before["resident_bytes"] + (8 << 20)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"id": 1, "op": "tables", "args": {}}',
        b'{"id": [], "op": "tables", "args": {}}',
        b'{"id": "1", "op": "tables", "args": []}',
        b'{"id": "1", "op": ["tables"], "args": {}}',
        b"[" * 100_000,
        b'{"id": "' + b"1" * 65 + b'"}',
        b'{"op": "tables", "args": {}}',
    ],
)
def test_a_malformed_message_ends_its_connection_and_no_other(
    raw: Connect, request: pytest.FixtureRequest, service: Service, payload: bytes
) -> None:
    with Metastore.connect(service.home) as client:
        pid = client.status()["pid"]
        peer = greeted(raw, request, service)
        peer.sendall(wire.frame(payload))
        assert ended(peer)
        assert client.status()["pid"] == pid


@pytest.mark.parametrize(
    "op",
    [
        "begin",
        "commit",
        "query",
        "backup_part",
        "heartbeat",
        "outcome",
        "history",
        "nonsense",
        "lock",
        "set",
        "create_table",
    ],
)
def test_wrong_arguments_are_answered(service: Service, op: str) -> None:
    with Metastore.connect(service.home) as client:
        txn = client.begin()
        for args in ({}, {"txn": [], "sql": 1, "txns": 5, "name": {}, "request_id": []}):
            with pytest.raises(Terminal):
                ask(client, op, args)
        txn.heartbeat()
        txn.commit()


def test_a_silent_or_slow_peer_blocks_no_other(
    raw: Connect, request: pytest.FixtureRequest, service: Service
) -> None:
    silent = [raw() for _ in range(20)]
    half = greeted(raw, request, service)
    half.sendall((5000).to_bytes(4, "big") + b'{"id"')
    greedy = greeted(raw, request, service)
    sql = "SELECT repeat('x', 100) FROM range(99999)"
    question = {"id": "g", "op": "query", "args": {"sql": sql}}
    greedy.sendall(wire.frame(json.dumps(question).encode()))  # and reads nothing of the answer
    with Metastore.connect(service.uri) as client, Metastore.connect(service.home) as other:
        for connected in (client, other):
            connected.begin().commit()
    for peer in (*silent, half, greedy):
        peer.close()


@pytest.mark.more
def test_unfinished_handshakes_are_limited_in_number_and_time(
    raw: Connect, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = raw()
    crowd = [raw() for _ in range(connections.MOST_STRANGERS)]
    assert ended(first)
    Metastore.connect(service.home).close()
    for peer in crowd:
        peer.close()


@pytest.mark.more
@pytest.mark.parametrize("sent", [b"", b"\0\0\0\x40", b'\0\0\0\x40{"acid": 1, "challenge": '])
def test_P75_a_crowd_of_strangers_keeps_no_client_out(service: Service, sent: bytes) -> None:
    host, port = endpoint.parse_address(service.address)
    with Metastore.connect(service.uri) as early, held((host, port), 600, sent):
        for _ in range(3):
            with Metastore.connect(service.uri) as late:
                late.begin().commit()
        early.begin().commit()
        assert early.status()["clients"] <= 3


def test_P75_without_a_descriptor_left_clients_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 3)
    listener = socket.create_server(("127.0.0.1", 0))
    served = connections.Connections([connections.Listener(listener, KEY.encode())])
    stop = threading.Event()
    thread = threading.Thread(target=lambda: [served.wait(0.01) for _ in iter(stop.is_set, True)])
    thread.start()
    host, port = listener.getsockname()
    clients = [wire.dial_tcp(host, port, KEY.encode()) for _ in range(2)]
    silent = socket.create_connection((host, port), 10)
    clients.append(wire.dial_tcp(host, port, KEY.encode()))  # the stranger makes room
    assert silent.recv(1000) and ended(silent)
    with pytest.raises((OSError, EOFError)):
        wire.dial_tcp(host, port, KEY.encode())
    assert not any(client.ended for client in clients)
    stop.set()
    thread.join()
    for client in clients:
        client.close()
    served.close()


def test_an_unfinished_handshake_is_dropped_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "GREETING_SECONDS", 0.05)
    monkeypatch.setattr(connections, "SLOW_READER_SECONDS", 0.05)
    listener = socket.create_server(("127.0.0.1", 0))
    served = connections.Connections([connections.Listener(listener, KEY.encode())])
    stranger = socket.create_connection(listener.getsockname())
    until(lambda: served.wait(0.01) == [] and len(served))
    until(lambda: served.wait(0.01) == [] and not len(served))
    assert served.refused == 1
    stranger.close()
    served.close()


def served_here(clients: int = 1) -> tuple[connections.Connections, list[wire.Channel]]:
    """Connections in this thread, and clients who have proved the key."""
    listener = socket.create_server(("127.0.0.1", 0))
    served = connections.Connections([connections.Listener(listener, KEY.encode())])
    made: list[wire.Channel] = []
    host, port = listener.getsockname()
    for number in range(1, clients + 1):
        dial = threading.Thread(target=lambda: made.append(wire.dial_tcp(host, port, KEY.encode())))
        dial.start()
        until(lambda number=number: served.wait(0.01) == [] and len(made) == number)
        dial.join()
    return served, made


def test_P75_a_message_has_a_time_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a client with the key, which sends a byte of it now and then."""
    monkeypatch.setattr(connections, "MESSAGE_SECONDS", 0.2)
    served, (client,) = served_here()
    whole = wire.frame(b"{}" * 10_000)
    client._sock.sendall(wire.frame(b"{}") + whole[:3])
    until(lambda: [payload for _, payload in served.wait(0.01)] == [b"{}"])
    sent = iter(range(3, len(whole)))

    def dropped() -> bool:
        at = next(sent)
        client._sock.sendall(whole[at : at + 1])
        assert served.wait(0.01) == []
        return not len(served)

    until(dropped)
    served.close()
    client.close()


def test_P75_ten_thousand_requests_in_a_row_give_others_their_turn() -> None:
    served, (client, other) = served_here(2)
    client._sock.sendall(wire.frame(b"{}") * 10_000)
    rounds: list[list[bytes]] = [[payload for _, payload in served.wait(1)]]
    other._sock.sendall(wire.frame(b'{"other":1}'))
    while sum(map(len, rounds)) < 10_001:
        rounds.append([payload for _, payload in served.wait(1)])
    assert max(map(len, rounds)) <= connections.MESSAGES_AT_ONCE + 1
    assert any(b'{"other":1}' in found for found in rounds[:10])
    assert served.wait(0.01) == []
    served.close()
    for each in (client, other):
        each.close()


def test_P3_an_interrupted_call_never_gets_the_answer_of_another(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Metastore.connect(service.home) as client:
        receive = wire.Channel._receive

        def interrupted(*_: object) -> bytes:
            raise KeyboardInterrupt

        monkeypatch.setattr(wire.Channel, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.databases()
        monkeypatch.setattr(wire.Channel, "_receive", receive)
        assert client.tables() == []


def test_a_message_that_is_too_large_is_refused_by_the_client(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LARGEST_MESSAGE", 1000)
    with Metastore.connect(service.home) as client:
        with pytest.raises(Terminal, match="accepts 1,000; report fewer"):
            client.create_database("x" * 1000)
        client.begin().commit()


@pytest.mark.more
def test_a_stale_endpoint_and_socket_are_replaced(tmp_path: Path) -> None:
    home = Home(tmp_path / "m")
    home.prepare()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(home.socket()))
    dead.close()  # the socket's name stays, but no process listens
    Endpoint(str(home.socket()), 2**22 - 1, 7).publish(home)
    with Metastore.connect(home.path) as client:
        assert client.status()["pid"] != 2**22 - 1
        end(client)
    old = {"address": "", "pid": 2**22 - 1, "epoch": 1, "what another version adds": 2}
    home.endpoint.write_text(json.dumps(old))
    with Metastore.connect(home.path) as client:
        end(client)


# --- counters -----------------------------------------------------------------------------------


@pytest.mark.more
def test_quantiles_and_prometheus_counts() -> None:
    one = Histogram()
    for seconds in (0.0004, 0.0015, 0.0016, 0.03, 7.0):
        one.add(seconds)
    assert (one.quantile(0.2), one.quantile(0.5), one.quantile(1.0)) == (0.0005, 0.002, 5.0)
    counts = one.cumulative()
    assert (counts["0.0005"], counts["0.002"], counts["0.05"], counts["5.0"]) == (1, 3, 4, 4)
    assert counts["+Inf"] == one.count == 5
