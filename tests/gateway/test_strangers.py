"""Who holds what others need: connections before a login, threads, logins, at every port."""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import socket
import struct
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from thriftpy2.thrift import TApplicationException

from acid_platform import InvalidDefinition, Warehouse
from acid_platform.base import ports
from acid_platform.base.ports import (
    MOST_READERS,
    FewLines,
    Pace,
    Strangers,
    network_of,
    serve_metrics,
)
from acid_platform.gateway import framing, logins
from acid_platform.gateway.client_connection import Bounds, ClientConnection, Workers
from acid_platform.gateway.gateway_server import Entry, GatewayServer
from acid_platform.gateway.hive_client import PASSWORD, Hive
from acid_platform.gateway.logins import Tls, Users
from tests.crowds import held
from tests.gateway.certificates import Authority
from tests.gateway.clients import EXCL_WRITE, UPDATE, WAITING, Statement, connected, m
from tests.gateway.conftest import serving
from tests.gateway.test_entry import at
from tests.gateway.test_protocol import CALLS, await_connections


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("people") / "users")
    for name in ("ann", "bob"):
        logins.add(path, name, "secret")
    return path


# --- the rule, for every port --------------------------------------------------------------------


def test_P75_a_newcomer_takes_the_place_of_the_oldest_of_whoever_has_most() -> None:
    """Compared with a list of all who are there, over random arrivals and ends."""
    dice = random.Random(75)
    for _ in range(200):
        most, of_one = dice.randint(1, 8), dice.randint(1, 8)
        waiting, model = Strangers[int](most, of_one), list[tuple[int, str]]()
        for number in range(60):
            if model and dice.random() < 0.3:
                gone = dice.choice(model)
                waiting.leave(gone[0])
                model.remove(gone)
            host = dice.choice("aaabc")
            counts = Counter(of for _, of in model)
            evicted: int | None = None
            if counts[host] >= of_one:
                evicted = next(one for one, of in model if of == host)
            elif len(model) >= most:
                assert waiting.oldest() is not None
                evicted = waiting.oldest()
                (of_evicted,) = [of for one, of in model if one == evicted]
                assert counts[of_evicted] == max(counts.values())
                assert evicted == next(one for one, of in model if of == of_evicted)
            assert waiting.come(number, host) == evicted
            model = [(one, of) for one, of in model if one != evicted] + [(number, host)]
            assert [*waiting] == [one for one, _ in model] and len(waiting) <= most
            assert max(Counter(of for _, of in model).values()) <= of_one


def test_P75_an_address_is_a_network_in_ipv6() -> None:
    assert network_of("2001:db8:0:1::7") == network_of("[2001:db8:0:1:ff::9]")
    assert network_of("2001:db8:0:2::7") != network_of("2001:db8:0:1::7")
    assert network_of("2001:db8:0:2::7", 48) == network_of("2001:db8:0:1::7", 48)
    assert network_of("2001:db8:1::7", 48) != network_of("2001:db8::7", 48)
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") and network_of("") == ""


def test_P75_descriptors_are_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    assert ports.most_connections() == 4096 - ports.KEPT_BACK
    assert raised == [(4096, 4096)]


def test_P75_a_crowd_is_taken_at_once_and_a_flood_at_a_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pace = Pace(100, 20)
    for _ in range(2):
        assert not any(pace.took() for _ in range(20))
        for _ in range(100):
            pause = pace.took()
            assert 0 < pause <= 0.0101
            now[0] += pause
        now[0] += 1


def test_P75_strangers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    import logging

    lines = FewLines(logging.getLogger("acid_platform.few"))
    for number in range(1000):
        lines.note("refused %d", number)
    assert len(caplog.messages) == 100


# --- the gateway ---------------------------------------------------------------------------------


@pytest.mark.more
@pytest.mark.parametrize("sent", [b"", b"\x01", b"\x80\x01\x00"])
def test_P75_silent_connections_keep_no_user_out(
    warehouse: Warehouse, people: str, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setenv(PASSWORD, "secret")
    entry = Entry(users=Users(people))
    with serving(warehouse, Bounds(connections=400), entry=entry) as server:
        with Hive(at(server, user="bob")) as early, held(server.address, 250, sent):
            for _ in range(3):
                with Hive(at(server, user="ann")) as ann:
                    assert "default" in ann.call("get_all_databases")
            assert "default" in early.call("get_all_databases")
            assert server.connections <= 400
        await_connections(server, 0)


@pytest.mark.more
def test_P75_handshakes_that_are_not_finished_keep_no_user_out(
    warehouse: Warehouse, people: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, "secret")
    authority = Authority(tmp_path)
    pair = authority.signs("gateway")
    tls = Tls(pair.certificate, pair.key)
    with serving(warehouse, Bounds(connections=400), entry=Entry(tls, Users(people))) as server:
        with held(server.address, 250), Hive(at(server, ca=authority.path, user="ann")) as ann:
            assert "default" in ann.call("get_all_databases")
        await_connections(server, 0)


def test_P75_without_a_login_whoever_has_sent_no_call_makes_room(warehouse: Warehouse) -> None:
    with serving(warehouse, Bounds(connections=4)) as server:
        with connected(server.address) as early:
            assert early.get_all_databases()
            silent = [socket.create_connection(server.address, 5) for _ in range(4)]
            with connected(server.address) as late:
                assert late.get_all_databases() and early.get_all_databases()
                assert silent[0].recv(1) == b""
                others = [socket.create_connection(server.address, 5) for _ in range(2)]
                for one in others:
                    one.sendall(CALLS[0])
                    assert b"default" in one.recv(1000)
                with connected(server.address) as fifth, pytest.raises(TApplicationException):
                    fifth.get_all_databases()
            for one in (*silent, *others):
                one.close()
        await_connections(server, 0)


@pytest.mark.more
def test_P75_one_user_gets_half_of_the_connections(
    warehouse: Warehouse, people: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, "secret")
    entry = Entry(users=Users(people))
    with serving(warehouse, Bounds(connections=4), entry=entry) as server:
        with Hive(at(server, user="ann")), Hive(at(server, user="ann")):
            with pytest.raises(InvalidDefinition, match="user ann has 2 connections open"):
                Hive(at(server, user="ann"))
            with Hive(at(server, user="bob")) as bob:
                assert bob.call("get_all_databases")
        await_connections(server, 0)
        with Hive(at(server, user="ann")) as ann:
            assert ann.call("get_all_databases")


# --- the page of numbers -------------------------------------------------------------------------


@pytest.mark.more
def test_P75_half_sent_requests_keep_nobody_from_the_numbers() -> None:
    registry = CollectorRegistry()
    Gauge("here", "Whether it is here.", registry=registry).set(1)
    page = serve_metrics("127.0.0.1:0", registry)
    threads = threading.active_count()
    with held(("127.0.0.1", page.port), 200, b"GET /metrics HTTP/1.1\r\nHost: "):
        for _ in range(3):
            with urllib.request.urlopen(page.address, timeout=5) as answer:
                assert b"here 1.0" in answer.read()
        assert threading.active_count() - threads <= 2  # who holds them, and who reads
        assert len(page._strangers) <= MOST_READERS
    page.close()


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00" * 2000, b"x" * 20_000, b"PUT / HTTP/1.1\r\n\r\n", b"\r\n\r\n"]
)
def test_P75_what_is_no_request_for_the_numbers_ends_its_connection(sent: bytes) -> None:
    page = serve_metrics("127.0.0.1:0", CollectorRegistry())
    with socket.create_connection(("127.0.0.1", page.port), 5) as odd:
        try:
            odd.sendall(sent)
            told = odd.recv(1000)
        except ConnectionError:
            told = b""
        assert told == b"" or b" 404 " in told
    with urllib.request.urlopen(page.address, timeout=5) as answer:
        assert answer.status == 200
    page.close()


def test_P75_a_connection_that_is_reset_at_once_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    page = serve_metrics("127.0.0.1:0", CollectorRegistry())
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", page.port), 5) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with urllib.request.urlopen(page.address, timeout=5) as answer:
        assert answer.status == 200
    page.close()
    gc.collect()
    assert not caplog.records


def test_P75_a_connection_that_is_gone_before_it_is_read_ends_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, left = asyncio.open_connection, [1, 2, 3]

    async def gone(**asked: Any) -> Any:
        if left:
            left.pop()
            raise ConnectionResetError
        return await opened(**asked)

    monkeypatch.setattr(asyncio, "open_connection", gone)
    page = serve_metrics("127.0.0.1:0", CollectorRegistry())
    for _ in range(3):
        with pytest.raises(OSError):
            urllib.request.urlopen(page.address, timeout=5).close()
    with urllib.request.urlopen(page.address, timeout=5) as answer:
        assert answer.status == 200
    page.close()


# --- threads -------------------------------------------------------------------------------------


def test_P76_users_take_turns_and_have_a_share() -> None:
    workers, seen, gate = Workers(4, 2), list[str](), threading.Event()
    most: Counter[str] = Counter()
    running: Counter[str] = Counter()
    guard = threading.Lock()

    def work(user: str) -> None:
        with guard:
            running[user] += 1
            most[user] = max(most[user], running[user])
            seen.append(user)
        gate.wait(10)
        with guard:
            running[user] -= 1

    for _ in range(50):
        workers.submit(lambda: work("eve"), "eve")
    for _ in range(3):
        workers.submit(lambda: work("ann"), "ann")
    deadline = time.monotonic() + 10
    while len(seen) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert Counter(seen) == {"eve": 2, "ann": 2} and workers.waiting == 49
    gate.set()
    while len(seen) < 53 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert seen.count("ann") == 3 and most["eve"] == most["ann"] == 2 and len(seen) == 53
    workers.close()


def _waiting_locks(server: GatewayServer, holder: Any, count: int) -> list[threading.Thread]:
    """So many clients wait for a lock that another holds."""
    told = Statement(holder)
    assert told.lock("db.waited", UPDATE, EXCL_WRITE).state != WAITING

    def wait() -> None:
        with connected(server.address) as client:
            assert Statement(client).lock("db.waited", UPDATE, EXCL_WRITE).state == WAITING

    threads = [threading.Thread(target=wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.more
def test_P76_a_client_that_waits_for_a_lock_holds_no_thread(warehouse: Warehouse) -> None:
    warehouse.create_table("db.waited", "id int, v string")
    with (
        serving(warehouse, Bounds(threads=2), wait=3.0) as server,
        connected(server.address) as holder,
        connected(server.address) as other,
    ):
        threads = _waiting_locks(server, holder, 12)
        time.sleep(0.5)
        began = time.monotonic()
        for _ in range(10):
            assert other.get_all_databases()
        assert time.monotonic() - began < 2
        assert server.threads <= 3
        for thread in threads:
            thread.join()


@pytest.mark.more
def test_P76_drops_that_wait_keep_nobody_elses_call_waiting(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acid_platform.gateway import partition_calls

    monkeypatch.setattr(partition_calls, "_WAIT", 3.0)
    warehouse.create_table("db.dropped", "id int, v string")
    with (
        serving(warehouse, Bounds(threads=8)) as server,
        connected(server.address) as holder,
        connected(server.address) as other,
    ):
        Statement(holder).lock("db.dropped", UPDATE, EXCL_WRITE)

        def drop() -> None:
            with connected(server.address) as client, pytest.raises(m.MetaException):
                client.drop_table("db", "dropped", True)

        threads = [threading.Thread(target=drop) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        began = time.monotonic()
        for _ in range(10):
            assert other.get_all_databases()
        assert time.monotonic() - began < 2
        for thread in threads:
            thread.join()


def slow_checks(people: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Users, list[str]]:
    """Users of whom only ann's password is right, which takes a tenth of a second to see; and the
    names whose passwords were checked."""
    known, checked = Users(people), list[str]()

    def slow(name: str, _password: str) -> Any:
        checked.append(name)
        time.sleep(0.1)
        return logins.Proof(name, known.secrets()[name].salt) if name == "ann" else None

    monkeypatch.setattr(known, "verify", slow)
    monkeypatch.setenv(PASSWORD, "secret")
    return known, checked


def test_P75_wrong_passwords_of_many_addresses_keep_no_user_out(
    warehouse: Warehouse, people: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password that waits for its check holds a place, until a newer one needs it."""
    known, checked = slow_checks(people, monkeypatch)
    wrong = framing.written(framing.SaslStatus.START, b"PLAIN")
    wrong += framing.written(framing.SaslStatus.OK, b"\0eve\0wrong")
    with serving(warehouse, Bounds(connections=20), entry=Entry(users=known)) as server:
        strangers = [
            socket.create_connection(server.address, 5, (f"127.0.1.{host}", 0))
            for host in range(1, 9)
            for _ in range(4)
        ]
        for one in strangers:
            one.sendall(wrong)
        time.sleep(0.2)
        with Hive(at(server, user="ann")) as ann:
            assert ann.call("get_all_databases")
        for one in strangers:
            one.close()
        await_connections(server, 0)
    assert len(checked) < 20  # nobody checks what has gone


def test_P75_an_address_that_somebody_logged_in_from_is_not_behind_strangers(
    warehouse: Warehouse, people: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, checked = slow_checks(people, monkeypatch)
    wrong = framing.client_opening("eve", "wrong")
    with serving(warehouse, Bounds(connections=200), entry=Entry(users=known)) as server:
        for _ in range(2):
            with Hive(at(server, user="ann")) as ann:
                assert ann.call("get_all_databases")
            strangers = [
                socket.create_connection(server.address, 5, (f"127.0.1.{host}", 0))
                for host in range(1, 41)
            ]
            for one in strangers:
                one.sendall(wrong)
            time.sleep(0.2)
        for one in strangers:
            one.close()
    assert checked.count("ann") == 2 and checked.index("eve") < len(checked) - 1
    assert checked[1:].index("ann") < 20  # of 40 who came before


def wait_for(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not there() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert there()


def test_P75_an_address_that_never_guessed_is_before_those_that_did(
    warehouse: Warehouse, people: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in checks: a user from a new address waits for those under way, and for the first
    guess of addresses as new as the own one."""
    known, checked = slow_checks(people, monkeypatch)
    wrong = framing.client_opening("eve", "wrong")
    with serving(warehouse, Bounds(connections=400), entry=Entry(users=known)) as server:

        def guess(count: int) -> list[socket.socket]:
            made = [
                socket.create_connection(server.address, 5, (f"127.0.1.{host}", 0))
                for host in range(1, count + 1)
            ]
            for one in made:
                one.sendall(wrong)
            return made

        first = guess(30)
        for one in first:
            assert one.recv(5)  # each has been refused once
        second = guess(30)
        wait_for(lambda: server._logins.waiting >= 20)
        begun = len(checked)
        with Hive(at(server, user="ann")) as ann:
            assert ann.call("get_all_databases")
        assert checked.index("ann") <= begun + 4 < 50
        for one in (*first, *second):
            one.close()


def test_P76_whoever_has_a_lower_rank_is_before_others_who_take_turns() -> None:
    workers, gate, seen = Workers(1), threading.Event(), list[str]()
    workers.submit(partial(gate.wait, 10), "busy")
    wait_for(lambda: not workers.waiting)
    for user, rank in [("a", 2), ("a", 2), ("b", 2), ("c", 1), ("new", 0), ("known", -1)]:
        workers.submit(partial(seen.append, user), user, rank)
    gate.set()
    wait_for(lambda: len(seen) == 6)
    assert seen == ["known", "new", "c", "a", "b", "a"]
    workers.close()


def test_P75_one_user_gets_half_of_the_bytes_that_wait() -> None:
    """Whoever sends the first parts of large calls keeps others from sending theirs whole."""
    gateway: Any = SimpleNamespace(leave=lambda: None)
    server = GatewayServer(gateway, "127.0.0.1", 0, Bounds(buffer=100))
    eve, ann = (ClientConnection(server, f"10.0.0.{host}:1") for host in (1, 2))
    assert server.buffered(eve, 50) and not server.buffered(eve, 1)
    assert server.buffered(ann, 49) and not server.buffered(ann, 1)
    for one, waiting in ((eve, -51), (ann, -50)):
        server.buffered(one, waiting)
    assert server.waiting_bytes == 0
    server.stop()


# --- who leaves ----------------------------------------------------------------------------------


def _another_password(path: Path, name: str) -> None:
    """Without the time of a hash."""
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{one}\n" for one in lines if not one.startswith(f"{name}:")))


@pytest.mark.more
def test_P77_a_login_under_way_ends_with_the_user(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "users"
    logins.add(str(file), "ann", "secret")
    monkeypatch.setenv(PASSWORD, "secret")
    known = Users(str(file))
    verify = known.verify

    def slow(name: str, password: str) -> Any:
        proof = verify(name, password)
        _another_password(file, "ann")
        return proof

    monkeypatch.setattr(known, "verify", slow)
    with serving(warehouse, entry=Entry(users=known)) as server:
        with pytest.raises(InvalidDefinition, match="wrong user or password"):
            Hive(at(server, user="ann"))
        await_connections(server, 0)


@pytest.mark.more
def test_P77_a_missing_certificate_keeps_no_former_user_connected(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, authority = tmp_path / "users", Authority(tmp_path)
    logins.add(str(file), "ann", "secret")
    monkeypatch.setenv(PASSWORD, "secret")
    pair = authority.signs("gateway")
    told: list[GatewayServer] = []
    with serving(
        warehouse, entry=Entry(Tls(pair.certificate, pair.key), Users(str(file)))
    ) as server:
        server._report = told.append
        with Hive(at(server, ca=authority.path, user="ann")) as ann:
            assert ann.call("get_all_databases")
            Path(pair.certificate).rename(f"{pair.certificate}.away")
            _another_password(file, "ann")
            server._tick()
            await_connections(server, 0)
    assert told


def test_P77_every_login_costs_the_same_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of today's cost, an earlier one, and of nobody: the time tells no names."""
    path, salt = tmp_path / "users", b"0123456789abcdef"
    secrets = {
        name: logins.Secret(cost, 8, 1, salt, bytes(32))
        for name, cost in (("old", 1 << 14), ("new", 1 << 17), ("older", 1 << 15))
    }
    path.write_text("".join(f"{name}:{secret}\n" for name, secret in secrets.items()))
    known, hashed = Users(str(path)), list[int]()
    monkeypatch.setattr(
        logins.Secret, "_hash", lambda self, _: hashed.append(self.cost) or b"x" * 32
    )
    costs = set[tuple[int, ...]]()
    for name in ("old", "new", "older", "nobody", ""):
        hashed.clear()
        assert known.verify(name, "wrong") is None
        costs.add(tuple(sorted(hashed)))
    assert costs == {(1 << 14, 1 << 15, 1 << 17)}
