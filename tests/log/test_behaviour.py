"""What every log does, wherever it lies."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from acid_platform.errors import MetastoreDamaged
from acid_platform.metastore.log.contract import (
    Batch,
    BatchesForgotten,
    Leader,
    PositionTaken,
    SharedLog,
    open_log,
)
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.log.objects import ObjectLog
from tests.log.conftest import CLOUDS, Place, batch, positions
from tests.runs import at_once

TEXTS = ("", "[]", "[\"ä 東 \\u0000 \\n 'quoted' %s %b {s} \\\\\"]", f'["{"x" * 3_000_000}"]')


def a_file(directory: Path, content: bytes = b"state") -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / "new.duckdb"
    path.write_bytes(content)
    return path


# --- appending and reading ------------------------------------------------------------------------


@pytest.mark.more
def test_P3_what_was_appended_is_read(place: Place) -> None:
    log = place.created()
    assert positions(log) == []
    appended = [Batch(n, 1 + n // 3, 10**13 + n, text) for n, text in enumerate(TEXTS, 1)]
    for each in appended:
        log.append(each)
        assert list(log.read(each.position - 1)) == [each]
    for opened in (log, place.open()):
        for after in range(len(appended) + 1):
            assert list(opened.read(after)) == appended[after:]


def test_P3_a_follower_reads_on(place: Place) -> None:
    log, follower = place.created(), place.open()
    read: list[int] = []
    for position in range(1, 8):
        log.append(batch(position))
        if position % 2:
            read += positions(follower, len(read))
            assert positions(follower, len(read)) == []
    assert read == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.more
def test_P3_many_batches_are_read_in_order(shared: Place) -> None:
    shared.created(60)
    assert positions(shared.open()) == list(range(1, 61))
    assert positions(shared.open(), 33) == list(range(34, 61))


def test_P3_a_history_may_begin_after_others(place: Place) -> None:
    log = place.created(3, after=7)
    assert positions(log, 7) == [8, 9, 10]
    assert positions(place.writer(), 9) == [10]
    with pytest.raises(MetastoreDamaged):
        list(log.read(0))
    with pytest.raises(PositionTaken):
        place.writer().append(batch(1))


def test_P3_only_the_next_position_is_appended(place: Place) -> None:
    log = place.created(3)
    for wrong in (1, 3, 5):
        with pytest.raises(PositionTaken):
            log.append(batch(wrong, 2, '["another"]'))
    log.append(batch(4))
    assert list(place.open().read(0)) == [batch(n) for n in (1, 2, 3, 4)]


def test_P3_a_log_is_created_once(place: Place) -> None:
    assert not place.open().exists
    log = place.created(1)
    assert place.open().exists
    assert len(log.history) == 16
    assert place.open().history == log.history
    assert place.open().place == log.place
    if place.remote:
        with pytest.raises(FileExistsError):
            place.open().create()
    assert place.open().history == log.history


def test_P31_what_is_not_a_log_is_refused(place: Place) -> None:
    with pytest.raises(MetastoreDamaged):
        list(place.open().read(0))
    with pytest.raises(MetastoreDamaged):
        place.open().open_to_append()


def test_P10_of_two_that_create_a_log_one_does(shared: Place) -> None:
    logs = [shared.open() for _ in range(4)]
    answers = at_once(*(log.create for log in logs))
    assert sorted(map(type, answers), key=str) == [FileExistsError] * 3 + [type(None)]
    (begun,) = {log.history for log in logs}
    assert shared.open().history == begun


def test_P3_a_batch_may_be_appended_again_after_an_error(shared: Place) -> None:
    log = shared.created(3)
    log.append(batch(3))  # as after an answer that was lost: it is the same
    log.append(batch(4))
    with pytest.raises(PositionTaken):
        shared.writer().append(batch(4))
    assert positions(log) == [1, 2, 3, 4]


def test_P3_two_logs_lie_side_by_side(
    shared: Place, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    one = shared.created(2)
    two = open_log(f"{shared.url}{'_' if shared.kind == 'postgresql' else '-'}2")
    two.create()
    two.append(batch(1, 5, '["other"]'))
    one.put_snapshot(2, a_file(tmp_path / "files"))
    assert two.set_leader(None, Leader(7, "h:1"))
    assert one.leader() is None
    assert positions(one, 1) == [2]
    assert list(two.read(0)) == [batch(1, 5, '["other"]')]
    assert two.snapshots() == []
    assert one.place != two.place
    assert one.history != two.history
    two.close()


# --- two that append ------------------------------------------------------------------------------


def test_P10_of_two_writers_one_goes_on(shared: Place) -> None:
    old = shared.created(3)
    new = shared.writer()
    new.append(batch(4, 2, ""))
    with pytest.raises(PositionTaken):
        old.append(batch(4, 1, '["lost"]'))
    new.append(batch(5, 2))
    with pytest.raises(PositionTaken):
        old.append(batch(5, 1, '["lost"]'))
    old.open_to_append()
    with pytest.raises(PositionTaken):
        old.append(batch(6, 1, '["lost"]'))  # an epoch never falls
    assert [each.epoch for each in shared.open().read(0)] == [1, 1, 1, 2, 2]


@pytest.mark.more
def test_P10_of_writers_at_one_moment_one_wins(shared: Place) -> None:
    shared.created()
    logs = [shared.writer() for _ in range(4)]
    won = []
    for position in range(1, 9):
        offered = [batch(position, 1, f'["{position} {n}"]') for n in range(len(logs))]
        calls = [
            lambda log=log, each=each: log.append(each)
            for log, each in zip(logs, offered, strict=True)
        ]
        answers = at_once(*calls)
        (winner,) = [n for n, answer in enumerate(answers) if answer is None]
        assert all(isinstance(each, PositionTaken) for each in answers if each is not None)
        won.append(offered[winner])
        for log in logs:
            log.open_to_append()
    assert list(shared.open().read(0)) == won


@pytest.mark.more
def test_P10_a_leader_that_slept_through_a_snapshot_appends_nothing(
    shared: Place, tmp_path: Path
) -> None:
    """What it would append next is forgotten by then, but not the first batch of the new epoch."""
    old = shared.created(3)
    new = shared.writer()
    for position in range(4, 9):
        new.append(batch(position, 2))
    new.put_snapshot(8, a_file(tmp_path / "files"))
    for position in (4, 5):
        with pytest.raises(PositionTaken):
            old.append(batch(position, 1, '["lost"]'))
    third = shared.writer()
    third.append(batch(9, 3))
    third.append(batch(10, 3))
    third.put_snapshot(10, a_file(tmp_path / "files"))
    with pytest.raises(PositionTaken):
        old.append(batch(4, 1, '["lost"]'))
    with pytest.raises(PositionTaken):
        new.append(batch(9, 2, '["lost"]'))
    assert positions(shared.open(), 10) == []


# --- the leader -----------------------------------------------------------------------------------


def test_P10_a_leader_is_replaced_by_who_knows_it(shared: Place) -> None:
    log, other = shared.created(), shared.open()
    first = Leader(1, "host:1", 0, 2000, "key", "-----BEGIN")
    assert log.leader() is None
    assert not log.set_leader(first, replace(first, epoch=2))
    assert log.set_leader(None, first)
    assert not other.set_leader(None, first)
    assert other.leader() == first
    for changed in (
        replace(first, epoch=2),
        replace(first, beat=1),
        replace(first, address=""),
        replace(first, key="k"),
        replace(first, lease=1),
        replace(first, authority=""),
    ):
        assert not other.set_leader(changed, first)
    renewed = replace(first, beat=1)
    assert log.set_leader(first, renewed)
    assert not other.set_leader(first, replace(first, epoch=2))
    assert other.set_leader(renewed, replace(renewed, epoch=2))
    assert log.leader() == replace(renewed, epoch=2)


@pytest.mark.more
def test_P10_every_epoch_has_one_leader(shared: Place) -> None:
    shared.created()
    logs = [shared.open() for _ in range(4)]
    guard, led = threading.Lock(), []

    def lead(number: int) -> None:
        for _ in range(5):
            before = logs[number].leader()
            mine = Leader((before.epoch if before else 0) + 1, f"host:{number}")
            if logs[number].set_leader(before, mine):
                with guard:
                    led.append(mine.epoch)

    assert at_once(*(lambda n=n: lead(n) for n in range(4))) == [None] * 4
    leader = logs[0].leader()
    assert leader is not None
    assert sorted(led) == list(range(1, leader.epoch + 1))


@pytest.mark.more
def test_P10_the_lease_is_renewed_while_batches_are_appended(shared: Place) -> None:
    log = shared.created()

    def renew() -> None:
        before = None
        for beat in range(20):
            after = Leader(1, "host:1", beat)
            assert log.set_leader(before, after)
            before = after

    def append() -> None:
        for position in range(1, 31):
            log.append(batch(position))

    assert at_once(renew, append) == [None, None]
    assert positions(log) == list(range(1, 31))


# --- snapshots ------------------------------------------------------------------------------------


@pytest.mark.more
def test_P3_a_snapshot_is_got_as_it_was_put(place: Place, tmp_path: Path) -> None:
    log = place.created(3)
    assert log.snapshots() == []
    content = os.urandom(9 << 20)
    put = a_file(tmp_path / "log", content)  # the local log moves it within its file system
    log.put_snapshot(2, put)
    assert not put.exists()
    (tmp_path / "got").mkdir()
    for opened in (log, place.open()):
        assert opened.snapshots() == [2]
        assert opened.get_snapshot(2, tmp_path / "got").read_bytes() == content
        with pytest.raises(FileNotFoundError):
            opened.get_snapshot(1, tmp_path / "got")
        assert positions(opened, 2) == [3]
    log.append(batch(4))
    log.put_snapshot(4, a_file(tmp_path / "log"))
    assert log.snapshots() == [4]
    assert positions(place.writer(), 4) == []
    writer = place.writer()
    writer.append(batch(5))
    assert positions(place.open(), 4) == [5]


def test_P3_a_snapshot_may_be_put_twice(shared: Place, tmp_path: Path) -> None:
    log = shared.created(3)
    log.put_snapshot(3, a_file(tmp_path / "files", os.urandom(5 << 20)))
    log.put_snapshot(3, a_file(tmp_path / "files", b"again"))
    assert log.get_snapshot(3, tmp_path).read_bytes() == b"again"
    assert log.snapshots() == [3]


@pytest.mark.more
def test_P24_what_an_interrupted_restore_left_is_removed(shared: Place, tmp_path: Path) -> None:
    for snapshot in (False, True):
        left = shared.created(after=7)
        if snapshot:
            left.put_snapshot(7, a_file(tmp_path / "files"))
        log = shared.open()
        assert isinstance(log, SharedLog) and log.remove_unused()
        assert not shared.open().exists
    log = shared.created(after=7)
    assert isinstance(log, SharedLog)
    log.put_snapshot(7, a_file(tmp_path / "files"))
    assert log.set_leader(None, Leader(1, "host:1"))
    assert not log.remove_unused()
    log.append(batch(8))
    assert not log.remove_unused()
    assert positions(shared.open(), 7) == [8]


def test_P24_an_empty_log_that_no_restore_made_is_kept(shared: Place) -> None:
    log = shared.created()
    assert isinstance(log, SharedLog)
    assert not log.remove_unused()
    assert shared.open().exists


@pytest.mark.more
def test_P3_what_a_snapshot_replaces_is_forgotten(shared: Place, tmp_path: Path) -> None:
    log = shared.created(6)
    follower = shared.open()
    assert positions(follower)[:2] == [1, 2]
    log.put_snapshot(4, a_file(tmp_path / "files"))
    for after in (0, 1, 2):
        with pytest.raises(BatchesForgotten, match=f"batch {max(2, after + 1)}.*snapshot at 4"):
            positions(follower, after)
    assert positions(follower, 4) == [5, 6]
    assert positions(shared.open(), 4) == [5, 6]


@pytest.mark.more
def test_P3_what_a_restore_to_a_moment_needs_is_kept(shared: Place, tmp_path: Path) -> None:
    log = shared.created()
    for position in range(1, 13):
        log.append(batch(position))  # made at 1000 * position
        if position % 3 == 0:
            log.put_snapshot(position, a_file(tmp_path / "files"), keep_since=0)
    assert log.snapshots() == [3, 6, 9, 12]
    assert positions(log) == list(range(1, 13)), "no snapshot is old enough to begin with"
    log.append(batch(13))
    log.append(batch(14))
    log.put_snapshot(13, a_file(tmp_path / "files"), keep_since=6999)
    assert log.snapshots() == [6, 9, 12, 13]
    assert positions(log, 6) == list(range(7, 15))
    with pytest.raises(BatchesForgotten):
        positions(log, 3)
    log.put_snapshot(14, a_file(tmp_path / "files"), keep_since=12_000)
    assert log.snapshots() == [12, 13, 14]
    assert positions(log, 12) == [13, 14]
    log.put_snapshot(14, a_file(tmp_path / "files"), keep_since=99_000)
    assert log.snapshots() == [14]
    log.append(batch(15))
    log.put_snapshot(15, a_file(tmp_path / "files"))
    assert log.snapshots() == [15]
    assert positions(log, 15) == []


@pytest.mark.more
def test_P3_a_reader_beside_snapshots_sees_no_gap(
    shared: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acid_platform.metastore.log.postgres._PART", 20)
    log = shared.created(1)
    log.put_snapshot(1, a_file(tmp_path / "files", b"1" * 100))
    ended = threading.Event()
    (tmp_path / "got").mkdir()

    def write() -> None:
        try:
            for position in range(2, 40):
                log.append(batch(position))
                if position % 3 == 0:
                    content = str(position).encode() * 100
                    log.put_snapshot(position, a_file(tmp_path / "files", content))
        finally:
            ended.set()

    def follow() -> int:
        reader, begun = shared.open(), 0
        while True:
            last = ended.is_set()
            newest = reader.snapshots()[-1]
            try:
                got = reader.get_snapshot(newest, tmp_path / "got").read_bytes()
                assert got == str(newest).encode() * 100
                read = positions(reader, newest)
            except (FileNotFoundError, BatchesForgotten):
                assert not last
                continue
            assert read == list(range(newest + 1, newest + 1 + len(read)))
            begun += 1
            if last:
                assert newest + len(read) == 39
                return begun

    written, followed = at_once(write, follow)
    assert written is None
    assert isinstance(followed, int), followed


# --- damage ---------------------------------------------------------------------------------------


def test_P3_a_changed_batch_is_refused(place: Place) -> None:
    log = place.created(3)
    log.close()
    place.change(2, b'["2"]', b'["7"]')
    with pytest.raises(MetastoreDamaged, match="batch 2"):
        list(place.open().read(0))


def test_P3_a_missing_batch_is_named(shared: Place) -> None:
    log = shared.created(5)
    shared.remove(3)
    read: list[Batch] = []
    with pytest.raises(MetastoreDamaged, match="lacks batch 3"):
        read.extend(log.read(0))
    with pytest.raises(MetastoreDamaged, match="lacks batch 3"):
        positions(shared.open(), 2)
    assert positions(shared.open(), 3) == [4, 5]


# --- archives -------------------------------------------------------------------------------------


@pytest.mark.more
@pytest.mark.parametrize("kind", ["in_archive", "in_bucket", *CLOUDS])
def test_P3_an_archive_takes_many_batches_at_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place: Place = request.getfixturevalue(kind)
    log = place.open()
    assert isinstance(log, ObjectLog)
    log.create()
    log.append_all([])
    log.append_all([batch(n) for n in range(1, 5)])
    log.append_all([batch(n, 2) for n in range(5, 8)])
    late = place.writer()
    assert isinstance(late, ObjectLog)
    log.append_all([batch(8, 2)])
    with pytest.raises(PositionTaken):
        late.append_all([batch(8, 2), batch(9, 2)])
    late.open_to_append()
    late.append_all([batch(9, 2), batch(10, 3)])
    for after in range(11):
        assert positions(place.open(), after) == list(range(after + 1, 11))
    follower = place.open()
    assert positions(follower, 8) == [9, 10]
    assert positions(follower, 10) == []
    log.put_snapshot(6, a_file(tmp_path / "files"))
    assert positions(follower, 6) == [7, 8, 9, 10]
    with pytest.raises(BatchesForgotten):
        positions(follower, 3)
    writer = place.writer()
    writer.append(batch(11, 3))
    assert positions(follower, 10) == [11]


def test_P3_an_archive_has_the_bytes_of_a_local_log(in_archive: Place, tmp_path: Path) -> None:
    log = in_archive.open()
    assert isinstance(log, ObjectLog)
    log.create()
    log.append_all([batch(1), batch(2)])
    log.append_all([batch(3)])
    local = LocalLog(tmp_path / "log")
    assert positions(local) == [1, 2, 3]
    local.open_to_append()
    local.append(batch(4))
    local.close()
    assert positions(in_archive.open()) == [1, 2, 3, 4]


def test_P3_a_leader_whose_last_batch_was_lost_appends_nothing(in_postgres: Place) -> None:
    """As after a failover to a replica that lags, which the leader does not notice."""
    log = in_postgres.created(3)
    in_postgres.remove(3)
    with pytest.raises(PositionTaken):
        log.append(batch(4))
    assert positions(log) == [1, 2]
    again = in_postgres.writer()
    again.append(batch(3, epoch=2))
    assert positions(log) == [1, 2, 3]
