"""Stores and servers that fail: what was acknowledged is there, once, and nothing else is."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from acid_platform.errors import MetastoreUnavailable
from acid_platform.metastore.log.contract import Batch, Leader, Log, PositionTaken, open_log
from acid_platform.metastore.log.objects import ObjectLog
from acid_platform.metastore.log.postgres import PostgresLog
from tests.log.conftest import Place, batch, positions
from tests.log.cutting_proxy import CuttingProxy
from tests.log.postgres_server import PostgresServer
from tests.log.test_behaviour import a_file, at_once
from tests.stores.server import Fault

# --- an object store ------------------------------------------------------------------------------


@pytest.mark.more
@pytest.mark.parametrize("error", ["SlowDown", "InternalError", "lost"])
def test_P3_a_request_of_unknown_outcome_is_tried_again(
    in_store: Place, error: str, tmp_path: Path
) -> None:
    server, log = in_store.watched, in_store.created(1)
    with server.fails(Fault(error, "PUT", times=2)):
        log.append(batch(2))
    with server.fails(Fault(error, "GET|LIST", times=3)):
        assert positions(in_store.open()) == [1, 2]
    first, second = Leader(1, "host:1"), Leader(2, "host:2")
    for before, after in ((None, first), (first, second)):
        with server.fails(Fault(error, "PUT|GET", times=2)):
            assert log.set_leader(before, after)
    with server.fails(Fault(error, "PUT|DELETE.*|LIST", times=3)):
        log.put_snapshot(2, a_file(tmp_path / "files"))
    log.append(batch(3, 2))
    assert positions(in_store.open(), 2) == [3]


def test_P3_a_lost_answer_is_no_lost_leadership(in_store: Place) -> None:
    """The repetition finds its own batch; the other leader's is told apart from it."""
    old, new, server = in_store.created(1), in_store.writer(), in_store.watched
    with server.fails(Fault("lost", "PUT", "journal", times=1)):
        new.append(batch(2, 2, '["same"]'))
    with server.fails(Fault("lost", "PUT", "journal", times=1)), pytest.raises(PositionTaken):
        old.append(batch(2, 2, '["same"]'))
    assert positions(in_store.open()) == [1, 2]


@pytest.mark.more
def test_P3_a_store_that_does_not_answer_is_given_up(in_store: Place) -> None:
    server = in_store.watched
    in_store.created(1)
    log = ObjectLog(in_store.url, patience=1.2)
    log.open_to_append()
    with server.fails(Fault("hang", "PUT", seconds=0.6, times=1)):
        log.append(batch(2))
    for fault in (Fault("hang", "PUT", seconds=2), Fault("SlowDown", "PUT")):
        begun = time.monotonic()
        with server.fails(fault), pytest.raises(MetastoreUnavailable, match=r"failed for 1\.2 s"):
            log.append(batch(3))
        assert 0.5 < time.monotonic() - begun < 4
    log.append(batch(3))
    assert positions(in_store.open()) == [1, 2, 3]


# --- PostgreSQL -----------------------------------------------------------------------------------


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[CuttingProxy]:
    made = CuttingProxy(postgres_server.port)
    yield made
    made.close()


def test_P3_a_lost_answer_of_postgresql_is_no_lost_leadership(
    in_postgres: Place, proxy: CuttingProxy
) -> None:
    in_postgres.created()
    log = PostgresLog(in_postgres.url.replace(f":{_port(in_postgres)}", f":{proxy.port}"))
    log.open_to_append()
    for position in range(1, 10):
        text = f'["number {position}"]'
        if position % 2:
            proxy.lose_answer_to = text.encode()
        log.append(batch(position, 1, text))
    assert proxy.cuts == 5
    before = None
    for epoch in range(1, 4):
        proxy.lose_answer_to = f"host:{epoch}".encode()
        assert log.set_leader(before, Leader(epoch, f"host:{epoch}"))
        before = Leader(epoch, f"host:{epoch}")
    assert proxy.cuts == 8
    stale = in_postgres.writer()
    proxy.lose_answer_to = b'["same"]'
    log.append(batch(10, 2, '["same"]'))
    with pytest.raises(PositionTaken):
        stale.append(batch(10, 2, '["same"]'))
    log.close()
    assert positions(in_postgres.open()) == list(range(1, 11))


def _port(place: Place) -> str:
    return place.url.partition("127.0.0.1:")[2].partition("/")[0]


def test_P3_a_server_process_that_is_stopped_is_given_up(
    in_postgres: Place, postgres_server: PostgresServer
) -> None:
    in_postgres.created(1)
    log = PostgresLog(in_postgres.url, patience=3)
    log.open_to_append()
    ((process,),) = log._rows("SELECT pg_backend_pid()")
    os.kill(process, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        log.append(batch(2))
        assert 1 < time.monotonic() - begun < 3
    finally:
        os.kill(process, signal.SIGCONT)
    log.append(batch(3))
    time.sleep(0.1)
    assert list(in_postgres.open().read(0)) == [batch(n) for n in (1, 2, 3)]
    log.close()


# --- many who append while all fails --------------------------------------------------------------


class Appending:
    """Leaders that take turns, and what they were told."""

    def __init__(self, url: str, seed: int, patience: float = 60) -> None:
        self._url, self._patience = url, patience
        self._random = random.Random(seed)
        self._guard = threading.Lock()
        self.acknowledged: list[Batch] = []
        self.unclear: list[Batch] = []
        self.ended = threading.Event()

    def lead(self, number: int, count: int) -> None:
        """Appends so many batches, in as many epochs as it takes."""
        log = open_log(self._url, self._patience)
        appended = 0
        while appended < count:
            before = log.leader()
            mine = Leader((before.epoch if before else 0) + 1, f"host:{number}")
            if not log.set_leader(before, mine):
                continue
            log.open_to_append()
            last = max((each.position for each in log.read(0)), default=0)
            try:
                self._append(log, Batch(last + 1, mine.epoch, number, ""))
                for position in range(last + 2, last + 2 + self._random.randint(1, 6)):
                    self._append(
                        log, Batch(position, mine.epoch, number, f'["{number} {appended}"]')
                    )
                    appended += 1
                    time.sleep(self._random.choice((0, 0, 0.01)))
            except PositionTaken:
                continue
        log.close()

    def _append(self, log: Log, offered: Batch) -> None:
        try:
            log.append(offered)
        except PositionTaken:
            raise
        except MetastoreUnavailable:
            with self._guard:
                self.unclear.append(offered)
            raise
        with self._guard:
            self.acknowledged.append(offered)

    def run(self, leaders: int, count: int, disturb: Callable[[threading.Event], None]) -> None:
        """Ends when every leader has appended `count` batches; `disturb` runs beside them."""
        beside = threading.Thread(target=disturb, args=(self.ended,))
        beside.start()
        try:
            calls = [lambda n=n: self.lead(n, count) for n in range(leaders)]
            assert at_once(*calls) == [None] * leaders
        finally:
            self.ended.set()
            beside.join()

    def judge(self, log: Log) -> None:
        """The log is exactly what was acknowledged, in order."""
        batches = list(log.read(0))
        acknowledged = sorted(self.acknowledged, key=lambda each: each.position)
        lost = [each for each in acknowledged if each not in batches]
        assert not lost, "acknowledged and lost"
        twice = [each for each, times in Counter(batches).items() if times > 1 and each.text]
        assert not twice, "in the log twice"
        assert not self.unclear
        assert batches == acknowledged
        epochs = [each.epoch for each in batches]
        assert epochs == sorted(epochs)
        owners = {
            each.epoch: {one.made for one in batches if one.epoch == each.epoch} for each in batches
        }
        assert all(len(who) == 1 for who in owners.values()), "two leaders of one epoch"


def _until(ended: threading.Event, seed: int, *faults: Callable[[], None]) -> None:
    chosen = random.Random(seed)
    while not ended.wait(chosen.uniform(0, 0.15)):
        chosen.choice(faults)()


SEEDS = [pytest.param(seed, marks=pytest.mark.slow if seed else ()) for seed in range(10)]


@pytest.mark.parametrize("seed", SEEDS)
def test_P10_leaders_on_a_failing_store(in_store: Place, seed: int) -> None:
    server = in_store.watched
    in_store.created()
    appending = Appending(in_store.url, seed)

    def fail(error: str, times: int) -> Callable[[], None]:
        fault = Fault(error, "PUT|GET|LIST", rf"^{_path(in_store)}/", times=times)

        def injected() -> None:
            with server.fails(fault):
                time.sleep(0.05)

        return injected

    def disturb(ended: threading.Event) -> None:
        kinds = (("SlowDown", 2), ("InternalError", 2), ("lost", 1), ("lost", 3))
        _until(ended, seed, *(fail(*kind) for kind in kinds))

    appending.run(2, 12, disturb)
    appending.judge(in_store.open())


def _path(place: Place) -> str:
    """`/bucket/prefix`."""
    parts = urlsplit(place.url)
    return f"/{parts.username or parts.netloc}{parts.path}"


@pytest.mark.parametrize("seed", SEEDS)
def test_P10_leaders_on_a_failing_network(
    in_postgres: Place, postgres_server: PostgresServer, seed: int
) -> None:
    in_postgres.created()
    proxy = CuttingProxy(postgres_server.port, seed)
    proxy.chance = 0.04
    url = in_postgres.url.replace(f":{_port(in_postgres)}", f":{proxy.port}")
    appending = Appending(url, seed)
    appending.run(2, 30, lambda ended: None)
    assert proxy.cuts > 3
    proxy.close()
    appending.judge(in_postgres.open())


@pytest.mark.more
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_P10_leaders_in_a_directory(in_archive: Place, seed: int) -> None:
    in_archive.created()
    appending = Appending(in_archive.url, seed)
    appending.run(3, 20, lambda ended: None)
    appending.judge(in_archive.open())


@pytest.mark.more
@pytest.mark.parametrize("crashes", [2, pytest.param(15, marks=pytest.mark.slow)])
def test_P3_a_postgresql_that_crashes_loses_and_repeats_nothing(
    in_postgres: Place, postgres_server: PostgresServer, crashes: int
) -> None:
    in_postgres.created()
    appending = Appending(in_postgres.url, crashes)
    crashed = []

    def crash(ended: threading.Event) -> None:
        """Each time after some batches, in the middle of others."""
        for number in range(crashes):
            enough = len(appending.acknowledged) + 5
            while len(appending.acknowledged) < enough and not ended.wait(0.05):
                pass
            if ended.is_set():
                return
            crashed.append(number)
            if number % 3 == 2:
                _kill_a_session(postgres_server.url())  # then PostgreSQL ends all and recovers
                continue
            postgres_server.stop("immediate")
            postgres_server.start()

    appending.run(4, 30 * crashes, crash)
    appending.judge(in_postgres.open())
    assert len(crashed) == crashes


def _kill_a_session(url: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        sessions = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'acid metastore'"
        ).fetchall()
    if sessions:
        os.kill(random.choice(sessions)[0], signal.SIGKILL)
