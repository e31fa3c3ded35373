"""A real metastore process: start, end, kills, forks, waiting (P2, P3, P7)."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acid_platform import (
    InvalidDefinition,
    InvalidExpression,
    LockNotAcquired,
    LockTimeout,
    MetastoreIncompatible,
    MetastoreUnavailable,
    NoSuchLock,
    OutcomeUnknown,
    TxnAborted,
)
from acid_platform.metastore import wire
from acid_platform.metastore.client import link, target
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.open_transaction import Heartbeats, OpenTransaction
from acid_platform.metastore.endpoint import Endpoint, Home
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.operations.compaction import (
    DropCleaning,
    GetCleanings,
    GetErasures,
    MarkCleaned,
    StartCleaning,
    TakeCompaction,
)
from acid_platform.metastore.operations.listings import ShowCompaction
from acid_platform.metastore.operations.tables import GetRecorded
from acid_platform.metastore.operations.transactions import (
    Alive,
    AllocateMany,
    CommitContents,
    CommitTxn,
    GetTxnStates,
    GetValidWriteIds,
    Granted,
    Heartbeat,
    HeartbeatLock,
    LockAlone,
    OpenBatch,
    Unlock,
)
from acid_platform.metastore.records import ClientInfo, LockRequest, WriteReport
from acid_platform.metastore.server import querying
from acid_platform.metastore.wire import Channel
from acid_platform.transactions import RowOperation, TxnType, ValidTxnList
from acid_platform.transactions.concurrency import LockType
from tests.contents import counts
from tests.declared import declare
from tests.metastore.processes import gone, until

FORK = multiprocessing.get_context("fork")
WRITE = LockRequest("t", LockType.SHARED_WRITE, RowOperation.INSERT)
ALONE = LockRequest("t", LockType.EXCLUSIVE)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    home = Home(tmp_path / "metastore")
    yield home.path
    found = Endpoint.read(home)
    if found is not None:
        os.kill(found.pid, signal.SIGKILL)


@pytest.fixture
def metastore(directory: Path) -> Iterator[Metastore]:
    with Metastore.connect(directory) as handle:
        declare(handle, "t", "/w/t", [("id", "int")])
        yield handle


def kill(metastore: Metastore) -> int:
    pid: int = metastore.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))
    return pid


def report(txn: OpenTransaction) -> WriteReport:
    write_id = txn.write_ids["default.t"]
    name = f"delta_{write_id:07d}_{write_id:07d}_0000"
    return WriteReport("t", None, RowOperation.INSERT, name, counts(1, 10))


# --- start and end -------------------------------------------------------------------------------


def _pid(directory: Path, answers: Any) -> None:
    with Metastore.connect(directory) as handle:
        answers.put(handle.status()["pid"])


@pytest.mark.more
def test_twelve_clients_start_one_metastore_also_after_a_kill(directory: Path) -> None:
    answers = FORK.Queue()
    for killed in (False, True):
        if killed:
            with Metastore.connect(directory, autostart=False) as handle:
                kill(handle)  # leaves its endpoint, socket and lock file behind
        clients = [FORK.Process(target=_pid, args=(directory, answers)) for _ in range(12)]
        for client in clients:
            client.start()
        pids = {answers.get(timeout=60) for _ in clients}
        for client in clients:
            client.join()
        assert len(pids) == 1


def _come_and_go(directory: Path, number: int, together: Any, answers: Any) -> None:
    chance, done = random.Random(number), 0
    for _ in range(4):
        with Metastore.connect(directory) as handle:
            handle.begin().commit()
            done += 1
        # About as long as an idle metastore waits, so some clients arrive while it stops.
        together.wait()
        time.sleep(0.15 + chance.random() * 0.4)
    answers.put(done)


@pytest.mark.slow
def test_clients_that_reach_a_stopping_metastore_find_the_next(directory: Path) -> None:
    with Metastore.connect(directory) as handle:
        handle.set("acid.metastore.idle.exit", "0s")
    rounds = 0
    epoch = 1
    while epoch < 3 and rounds < 20:  # until at least two have left in the middle of it
        answers, together = FORK.Queue(), FORK.Barrier(2)
        clients = [
            FORK.Process(target=_come_and_go, args=(directory, index, together, answers))
            for index in range(2)
        ]
        for client in clients:
            client.start()
        assert [answers.get(timeout=60) for _ in clients] == [4] * 2
        for client in clients:
            client.join()
        rounds += 1
        with Metastore.connect(directory) as handle:
            epoch = handle.status()["epoch"]
            committed = handle.query("SELECT count(*) FROM txns WHERE state = 'c'")[1]
    assert epoch >= 3 and committed == [[8 * rounds]]
    with Metastore.connect(directory) as handle:
        handle.set("acid.metastore.idle.exit", "600s")


@pytest.mark.more
def test_a_start_lock_that_is_never_released_blocks_nobody(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(directory)
    home.prepare()
    with home.starting.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not target.start(home)
        assert not home.endpoint.exists()
        monkeypatch.setattr(target, "START_SECONDS", 10)
        monkeypatch.setattr(link, "START_SECONDS", 10)
        monkeypatch.setattr(time, "monotonic", lambda clock=time.monotonic: 40 * clock())
        with Metastore.connect(directory) as handle:
            monkeypatch.undo()
            assert handle.status()["epoch"] == 1


@pytest.mark.more
def test_a_second_metastore_is_refused_and_names_the_first(metastore: Metastore) -> None:
    status = metastore.status()
    command = [sys.executable, "-m", "acid_platform.metastore", "--dir", status["log"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"MetastoreInUse: {status['log']} is served by process" in (done.stderr)
    assert str(status["pid"]) in done.stderr


@pytest.mark.more
def test_files_are_for_the_owner_only(metastore: Metastore, directory: Path) -> None:
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for name in ("endpoint.json", "authkey", "server.lock"):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600, name
    socket = Path(metastore.status()["address"])
    assert len(str(socket)) < 108 and stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert (directory / "server.log").exists()


def test_without_autostart_nothing_is_started(directory: Path) -> None:
    with pytest.raises(MetastoreUnavailable, match=r"acid_platform\.metastore --dir"):
        Metastore.connect(directory, autostart=False)


def test_a_metastore_that_cant_start_says_why(directory: Path) -> None:
    directory.parent.mkdir(exist_ok=True)
    directory.write_text("in the way")
    with pytest.raises(MetastoreIncompatible, match="can't use"):
        Metastore.connect(directory)
    directory.unlink()


@pytest.mark.more
def test_SIGTERM_and_stop_write_a_snapshot_and_leave_no_socket(
    metastore: Metastore, directory: Path
) -> None:
    metastore.begin(locks=[WRITE])
    status = metastore.status()
    metastore.close()
    os.kill(status["pid"], signal.SIGTERM)
    until(lambda: gone(status["pid"]))
    assert not Path(status["address"]).exists() and not (directory / "endpoint.json").exists()
    with Metastore.connect(directory) as again:
        later = again.status()
        assert (later["open"], later["epoch"]) == (1, status["epoch"] + 1)
        # Since then the log has the first batch of the new epoch alone.
        assert later["snapshot"] == later["position"] - 1 >= status["position"]
        assert again.query("SELECT state FROM v_open_txns") == (["state"], [["o"]])
        assert again.stop() == later["pid"]
        until(lambda: gone(later["pid"]))


@pytest.mark.more
def test_idle_exit_waits_for_clients_and_open_transactions(
    metastore: Metastore, directory: Path
) -> None:
    txn = metastore.begin()
    pid = metastore.status()["pid"]
    metastore.set("acid.metastore.idle.exit", "0s")
    metastore.close()
    time.sleep(0.3)
    assert not gone(pid)
    with Metastore.connect(directory, autostart=False) as again:
        again.call(CommitTxn(txn.id))
    until(lambda: gone(pid))


# --- kills ---------------------------------------------------------------------------------------


def test_T16_L12_L15_a_lock_without_a_transaction_is_kept_by_its_owner(
    metastore: Metastore,
) -> None:
    held = metastore.call(LockAlone((ALONE,), 60.0)).ext
    metastore.call(HeartbeatLock(held))
    with pytest.raises(LockTimeout, match=r"EXCLUSIVE of default\.t"):
        metastore.call(LockAlone((ALONE,), 0))
    assert [row["transaction_id"] for row in metastore.locks()] == [0]
    metastore.call(Unlock(held))
    metastore.call(Unlock(held))  # an id that is gone is no error
    with pytest.raises(NoSuchLock, match="lock again"):
        metastore.call(HeartbeatLock(held))
    with metastore.begin(locks=[WRITE]):
        (row,) = metastore.locks()
        with pytest.raises(InvalidDefinition, match="not permitted"):
            metastore.call(Unlock(int(str(row["lockid"]).partition(".")[0])))


def test_T17_T18_T19_write_ids_of_several_transactions_in_one_call(metastore: Metastore) -> None:
    ids = metastore.call(OpenBatch(3, TxnType.DEFAULT.value, ClientInfo()))
    txns = [metastore.resume(txn_id) for txn_id in ids]
    assert dict(metastore.call(AllocateMany("t", (*reversed(ids),)))) == dict(
        zip(ids, (1, 2, 3), strict=True)
    )
    assert dict(metastore.call(AllocateMany("t", tuple(ids[:2])))) == {ids[0]: 1, ids[1]: 2}
    txns[0].abort()
    with pytest.raises(TxnAborted, match=f"transactions \\[{ids[0]}\\] are not open"):
        dict(metastore.call(AllocateMany("t", tuple(ids))))
    for txn in txns[1:]:
        txn.commit()


def test_P3_a_kill_between_two_calls_goes_unnoticed(metastore: Metastore) -> None:
    txn = metastore.begin(locks=[WRITE])
    lease = metastore.open_snapshot(["t"])
    before = str(lease.valid_write_ids("t"))
    kill(metastore)
    txn.heartbeat()
    txn.commit(CommitContents((report(txn),)))
    assert str(metastore.call(GetValidWriteIds(lease.id, "t"))) == before
    assert metastore.history("t")[0]["txn"] == txn.id
    assert metastore.outcome(txn.id)["state"] == "c"


@pytest.mark.more
def test_P3_a_waiting_request_survives_a_kill(metastore: Metastore, directory: Path) -> None:
    holder = metastore.begin(locks=[ALONE])
    granted: list[OpenTransaction] = []

    def wait_for_it() -> None:
        with Metastore.connect(directory) as other:
            granted.append(other.begin(locks=[WRITE], wait=30))

    thread = threading.Thread(target=wait_for_it)
    thread.start()
    until(lambda: metastore.status()["waiting"] == 1)
    kill(metastore)
    holder.commit()
    thread.join(20)
    assert [answer.write_ids for answer in granted] == [{"default.t": 1}]
    assert metastore.status()["waiting"] == 0


def test_P3_an_outcome_that_cannot_be_learnt_is_reported_as_unknown(
    metastore: Metastore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metastore dies between the client's check of the connection and its message."""
    with Metastore.connect(directory, autostart=False) as other:
        txn = other.begin(locks=[WRITE])
        connection = other._link._connection

        def dies_afterwards() -> Channel:
            found = connection()
            monkeypatch.undo()
            kill(metastore)
            return found

        monkeypatch.setattr(other._link, "_connection", dies_afterwards)
        with pytest.raises(OutcomeUnknown, match="not known"):
            txn.commit()
        with pytest.raises(MetastoreUnavailable):
            other.tables()
    assert metastore.outcome(txn.id)["state"] == "o"


@pytest.mark.more
@pytest.mark.parametrize(
    "read",
    [
        lambda metastore: metastore.call(GetErasures()),
        Metastore.views,
        lambda metastore: list(metastore.candidates()),
        lambda metastore: metastore.call(GetRecorded("t", (None,))),
    ],
    ids=["erasures", "views", "candidates", "recorded"],
)
def test_P3_the_outcome_of_a_read_is_never_unknown(
    metastore: Metastore,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Metastore], object],
) -> None:
    """The metastore dies before the answer: the read is repeated, and nothing is in doubt."""
    with Metastore.connect(directory, autostart=False) as other:
        connection = other._link._connection

        def dies_afterwards() -> Channel:
            found = connection()
            monkeypatch.undo()
            kill(metastore)
            return found

        monkeypatch.setattr(other._link, "_connection", dies_afterwards)
        with pytest.raises(MetastoreUnavailable):
            read(other)


# --- forks, threads ------------------------------------------------------------------------------


def _child(metastore: Metastore, txn: OpenTransaction, answers: Any) -> None:
    own = metastore.begin(locks=[WRITE])
    own.commit(CommitContents((report(own),)))
    answers.put((own.id, sum(len(share) for share in metastore.beats._shares.values())))


@pytest.mark.more
def test_fork_then_call(metastore: Metastore) -> None:
    txn = metastore.begin(locks=[WRITE])
    answers = FORK.Queue()
    child = FORK.Process(target=_child, args=(metastore, txn, answers))
    child.start()
    own, shares = answers.get(timeout=30)
    child.join()
    assert child.exitcode == 0 and shares == 0
    txn.commit(CommitContents((report(txn),)))
    assert sorted(row["txn"] for row in metastore.history("t")) == [txn.id, own]


@pytest.mark.more
def test_two_threads_one_lock(metastore: Metastore) -> None:
    holder = metastore.begin(locks=[ALONE])
    order: list[str] = []

    def second() -> None:
        with metastore.begin(locks=[ALONE]):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    until(lambda: metastore.status()["waiting"] == 1)
    order.append("first")
    holder.commit()
    thread.join(20)
    assert order == ["first", "second"]


@pytest.mark.more
def test_L10_L11_over_the_wire(metastore: Metastore) -> None:
    txn = metastore.begin()
    assert txn.lock("t", "EXCLUSIVE") is txn
    with pytest.raises(LockNotAcquired):
        metastore.begin(locks=[LockRequest("t", LockType.SHARED_READ)])
    with pytest.raises(LockTimeout):
        metastore.begin(locks=[WRITE], wait=0.3)
    other = metastore.begin()
    with pytest.raises(LockTimeout):
        other.lock("t", "shared_read", wait=0.1)
    assert metastore.outcome(other.id)["state"] == "o"


@pytest.mark.more
def test_the_context_manager_commits_or_aborts(metastore: Metastore) -> None:
    with metastore.begin(locks=[WRITE]) as good:
        assert good.write_ids
    with pytest.raises(ValueError, match="no"), metastore.begin(locks=[WRITE]) as bad:
        raise ValueError("no")
    with metastore.begin() as ended:
        ended.abort("enough")
    with pytest.raises(InvalidDefinition), metastore.begin() as wrong:
        wrong.write_ids |= {"default.t": metastore.call(AllocateMany("t", (wrong.id,)))[0][1]}
        wrong.commit(CommitContents((report(wrong),)))
    states = metastore.call(
        GetTxnStates(
            (
                good.id,
                bad.id,
                ended.id,
                wrong.id,
            )
        )
    )
    assert list(states.values()) == ["c", "a", "a", "a"]
    assert metastore.outcome(bad.id)["reason"] == "ValueError: no"
    with pytest.raises(TxnAborted):
        bad.commit()


@pytest.mark.more
def test_S2_a_writer_sees_its_own_write_id(metastore: Metastore) -> None:
    other = metastore.begin(locks=[WRITE])
    txn = metastore.begin(locks=[WRITE])
    assert txn.valid_write_ids("t").is_valid(2) and not txn.valid_write_ids("t").is_valid(1)
    later = metastore.begin()
    later.lock("T", "SHARED_WRITE")
    assert str(later.valid_write_ids("t")) == "default.t:3:1:1,2:"
    other.commit()
    assert not txn.valid_write_ids("t").is_valid(1)


@pytest.mark.more
def test_drop_and_compaction_over_the_wire(metastore: Metastore) -> None:
    with metastore.begin(locks=[WRITE]) as txn:
        txn.commit(CommitContents((report(txn),)))
    number = metastore.request_compaction("t", None, "major")
    task = metastore.call(TakeCompaction("host-1"))
    assert task is not None and task.id == number
    work = metastore.begin_compaction(task, "host-1")
    assert work.compactor_list.high_watermark == 1 and work.task.txn_id == work.id
    base = WriteReport(
        task.table, None, RowOperation.COMPACT, f"base_0000001_v{work.id:07d}", counts(1, 9)
    )
    work.commit_compaction([base])
    assert metastore.call(ShowCompaction(number)).ended
    assert metastore.wait_compaction(number)["state"] == "ready for cleaning"
    (cleaning,) = metastore.call(GetCleanings()).ready
    metastore.call(StartCleaning.of(cleaning))
    metastore.call(MarkCleaned.of(cleaning, cleaning.highest_write_id, None))
    metastore.drop("t")
    assert metastore.tables() == [] and metastore.call(GetCleanings()).blocked == []
    assert [type(task) for task in metastore.call(GetCleanings()).ready] == [DropCleaning]


# --- heartbeats ----------------------------------------------------------------------------------


class FakeLink:
    """Answers heartbeats: transaction 2 was aborted."""

    def __init__(self) -> None:
        self.beats: list[list[int]] = []
        self.fail = True

    def call(self, operation: Heartbeat) -> Alive:
        if self.fail:
            self.fail = False
            raise MetastoreUnavailable("down")
        self.beats.append(sorted(operation.txns))
        return Alive([txn_id for txn_id in operation.txns if txn_id == 2], [], 5)

    def close(self) -> None:
        pass


def _txn(link: Any, beats: Heartbeats, number: int) -> OpenTransaction:
    granted = Granted(number, ValidTxnList.parse("9:9::"), {}, {}, False, "", 5, {})
    metastore: Any = SimpleNamespace(call=link.call, beats=beats)
    return OpenTransaction(metastore, TxnType.DEFAULT, granted)


def test_T9_P7_heartbeats_of_the_transactions_that_somebody_holds() -> None:
    link: Any = FakeLink()
    beats = Heartbeats(link)
    beats.interval, beats.threads = 0.005, 2
    lost: list[str] = []
    one, two, four = (_txn(link, beats, number) for number in (1, 2, 4))
    two.when_lost(lost.append)
    until(lambda: lost)
    assert two.lost and two.ended and not one.ended and len(beats._shares) == 2
    assert lost == ["transaction 2 is no longer open in the metastore"]
    until(lambda: [4] in link.beats and [1] in link.beats)
    one.forget()
    del four
    seen = len(link.beats)
    time.sleep(0.05)
    assert link.beats[seen + 2 :] == []
    beats.close()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.more
def test_a_process_whose_directory_was_replaced_leaves_the_new_one_alone(tmp_path: Path) -> None:
    home = tmp_path / "metastore"
    first = Metastore.connect(home)
    old = int(first.status()["pid"])
    first.close()
    shutil.rmtree(home)
    with Metastore.connect(home) as second:
        assert second.status()["pid"] != old
        deadline = time.monotonic() + 20
        while _alive(old) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _alive(old)
        assert (home / "endpoint.json").exists()
        with Metastore.connect(home, autostart=False) as third:
            assert third.status()["pid"] == second.status()["pid"]
            third.stop()


@pytest.mark.slow
def test_P3_a_metastore_that_never_answers_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Metastore.connect(tmp_path / "m") as client:
        pid = int(client.status()["pid"])
        monkeypatch.setattr(link, "ANSWER_SECONDS", 0.2)
        monkeypatch.setattr(target, "START_SECONDS", 0.5)
        monkeypatch.setattr(link, "START_SECONDS", 0.5)
        monkeypatch.setattr(wire, "GREETING_SECONDS", 1.0)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises((MetastoreUnavailable, OutcomeUnknown)):
                client.create_database("late")
        finally:
            os.kill(pid, signal.SIGCONT)
        monkeypatch.undo()
        client.stop()


@pytest.mark.more
def test_P78_a_query_that_takes_long_is_ended_and_nobody_waits_for_it(tmp_path: Path) -> None:
    endless = "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))"
    hungry = "SELECT len(list(i)) FROM range(3000000000) t(i)"
    told: list[BaseException] = []

    def ask(sql: str) -> None:
        with Metastore.connect(tmp_path / "m") as other, pytest.raises(InvalidExpression) as error:
            other.query(sql)
        told.append(error.value)

    with Metastore.connect(tmp_path / "m") as metastore:
        assert metastore.query("SELECT 1 AS one") == (["one"], [[1]])
        for sql in (endless, hungry):
            began = time.monotonic()
            thread = threading.Thread(target=ask, args=(sql,))
            thread.start()
            while thread.is_alive():
                before = time.monotonic()
                metastore.begin().commit()
                assert time.monotonic() - before < 5
                time.sleep(0.1)
            thread.join()
            assert time.monotonic() - began < 60
        assert len(told) == 2 and "10 s" in str(told[0])
        metastore.begin().commit()
        assert metastore.query("SELECT count(*) > 1 AS many FROM txns") == (["many"], [[True]])
        metastore.stop()


@pytest.mark.more
def test_P78_a_query_leaves_nothing_and_answers_no_more_than_may_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is killed removes nothing, and the leader reads the whole answer."""
    monkeypatch.setattr(querying, "SECONDS", 0.5)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", f"{tmp_path}/tmp")
    tempfile.tempdir = None
    endless = "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))"
    queries, replies = querying.Queries(LocalLog(tmp_path / "m"), lambda: None), list[Any]()

    def asked(sql: str) -> str:
        queries.ask("q", sql, 0, 0)
        while not replies:
            replies.extend(queries.replies())
            time.sleep(0.02)
        return str(replies.pop().value)

    with Metastore.connect(tmp_path / "m") as metastore:
        metastore.stop()
    try:
        assert "was ended after" in asked(endless)
        assert not [*(tmp_path / "tmp").rglob("*duckdb*")]
        monkeypatch.setattr(querying, "SECONDS", 60.0)
        assert "and at most" in asked("SELECT repeat('x', 40000000)")
        assert "is too long" in asked("SELECT '" + "x" * (1 << 20) + "'")
        assert "1" in asked("SELECT 1 AS one")
    finally:
        queries.end()
        tempfile.tempdir = None
    assert not [*(tmp_path / "tmp").glob("acid-queries-*")]
