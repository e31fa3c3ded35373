"""The log in a directory: the batches that it returns, and the damage that it detects (P3)."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acid_platform import MetastoreDamaged
from acid_platform.metastore.log import local
from acid_platform.metastore.log.contract import Batch, PositionTaken, segment_name
from acid_platform.metastore.log.local import LocalLog

TEXTS = ['["a","b"]', '["' + "c" * 40 + '"]', '["d",1,2]', '["é"]', "[]"]
SAVED = 10
"""The position of the snapshot in a log whose segment was another one before."""


def batch(position: int, text: str = "[]", epoch: int = 1) -> Batch:
    return Batch(position, epoch, 1000 * position, text)


def opened(directory: Path) -> LocalLog:
    log = LocalLog(directory)
    log.open_to_append()
    return log


def created(directory: Path, after: int = 0) -> LocalLog:
    LocalLog(directory).create(after)
    return opened(directory)


def texts(log: LocalLog, after: int = 0) -> list[str]:
    return [each.text for each in log.read(after)]


def save(log: LocalLog, position: int) -> None:
    draft = log.directory / "snapshot-1.new"
    draft.write_bytes(b"the state")
    log.put_snapshot(position, draft)
    log.release()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def new_segment(log: LocalLog) -> None:
    """The next batch begins another segment."""
    log.note_place(copied=False)


def written(directory: Path, used_before: bool) -> tuple[Path, int, list[int]]:
    """A log with the batches: their segment, the position before them, and where each ends.

    If the file was used before, there are older batches behind them.
    """
    log, after = created(directory), 0
    if used_before:
        for position in range(1, SAVED):
            log.append(batch(position, f'["{position}","{"x" * 60}"]'))
        new_segment(log)
        save(log, SAVED - 1)
        log.append(batch(SAVED))
        new_segment(log)
        save(log, SAVED)
        after = SAVED
    ends = []
    for text in TEXTS:
        log.append(batch(after + len(ends) + 1, text))
        ends.append(log._end)
    log.close()
    path = directory / segment_name(after + 1)
    assert (path.stat().st_size > ends[-1]) == used_before
    return path, after, ends


def readable(path: Path, data: bytes, after: int) -> list[str] | None:
    """The batches of a segment with these bytes, which opening it again returns too; None if it is
    refused."""
    path.write_bytes(data)
    try:
        log = opened(path.parent)
        before = texts(log, after)
    except MetastoreDamaged as error:
        assert str(path) in str(error)
        assert "restore a backup" in str(error)
        assert path.read_bytes() == data
        return None
    log.append(batch(after + len(before) + 1, '["later"]'))
    log.close()
    again = opened(path.parent)
    assert texts(again, after) == [*before, '["later"]']
    again.close()
    return before


@pytest.fixture(params=[False, True], ids=["new", "used before"])
def segment(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, int, list[int], bytes]:
    path, after, ends = written(tmp_path, request.param)
    return path, after, ends, path.read_bytes()


Segment = tuple[Path, int, list[int], bytes]


@pytest.mark.more
def test_P3_a_log_that_was_cut_anywhere_gives_the_batches_before(segment: Segment) -> None:
    path, after, ends, data = segment
    header = data.index(b"\n") + 1
    assert readable(path, data, after) == TEXTS
    for at in range(len(data)):
        whole = sum(1 for end in ends if end <= at)
        assert readable(path, data[:at], after) == (None if at < header else TEXTS[:whole]), at


@pytest.mark.more
def test_P3_every_flipped_bit_before_the_last_batch_is_refused(segment: Segment) -> None:
    path, after, ends, data = segment
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            # In the last batch it looks like a torn write; behind it are batches that are over.
            expected = TEXTS[:-1] if at < ends[-1] else TEXTS
            assert readable(path, flipped, after) == (None if at < ends[-2] else expected), (
                at,
                bit,
            )
            if at > ends[-1]:
                break


def test_P3_every_changed_byte_of_an_earlier_segment_is_refused(tmp_path: Path) -> None:
    path, after, ends = written(tmp_path, used_before=True)
    data, log = path.read_bytes(), opened(tmp_path)
    new_segment(log)
    log.append(batch(after + len(TEXTS) + 1, '["next"]'))
    for at in range(ends[-1]):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        with pytest.raises(MetastoreDamaged, match="restore a backup"):
            texts(LocalLog(tmp_path), after)
    path.write_bytes(data)
    assert texts(LocalLog(tmp_path), after) == [*TEXTS, '["next"]']
    log.close()


@pytest.mark.more
@given(st.lists(st.integers(0, 200), min_size=1, max_size=30), st.data())
@settings(max_examples=100, deadline=None)
def test_P3_a_torn_write_over_older_batches_loses_only_itself(
    sizes: list[int], chosen: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        log, saved, since = created(directory), 0, list[str]()
        before = b""
        for position, size in enumerate(sizes, 1):
            if chosen.draw(st.integers(0, 5)) == 0 and position - 1 > saved:
                saved, since = position - 1, []
                new_segment(log)
                save(log, saved)
            path = directory / segment_name(saved + 1)
            before = path.read_bytes()
            since.append(f'["{position}{"y" * size}"]')
            log.append(batch(position, since[-1]))
        log.close()
        after = path.read_bytes()
        at = chosen.draw(st.integers(0, len(after)))
        # Sectors of a write reach the disk in any order.
        torn = after[:at] + before[at:], before.ljust(len(after), b"\0")[:at] + after[at:]
        path.write_bytes(torn[chosen.draw(st.integers(0, 1))])
        log = opened(directory)
        assert texts(log, saved) in (since, since[:-1])
        log.close()


def test_one_append_is_one_write_and_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = created(tmp_path)
    calls: list[str] = []

    def counting(name: str) -> None:
        real = getattr(os, name)

        def call(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        monkeypatch.setattr(os, name, call)

    for name in ("pwrite", "fdatasync", "fsync", "ftruncate"):
        counting(name)
    for position in (1, 2, 3):
        log.append(batch(position))
    assert calls == ["pwrite", "fdatasync"] * 3
    log.close()


# --- segments -----------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches fill a segment."""
    monkeypatch.setattr(local, "_SEGMENT_BYTES", 220)


@pytest.mark.usefixtures("small")
def test_P3_a_full_segment_is_followed_by_another(tmp_path: Path) -> None:
    log = created(tmp_path)
    for position in range(1, 8):
        log.append(batch(position, '["' + "x" * 20 + '"]'))
    firsts = [int(name[8:24]) for name in names(tmp_path)]
    assert firsts[0] == 1 and len(firsts) > 3
    for after in range(8):
        assert [each.position for each in log.read(after)] == [*range(after + 1, 8)]
    log.close()
    log = opened(tmp_path)
    with pytest.raises(PositionTaken):
        log.append(batch(7))
    log.append(batch(8))
    assert [each.position for each in log.read(6)] == [7, 8]
    log.close()


@pytest.mark.usefixtures("small")
def test_P3_every_missing_segment_is_refused_if_it_is_needed(tmp_path: Path) -> None:
    log = created(tmp_path)
    for position in range(1, 8):
        log.append(batch(position, '["' + "x" * 20 + '"]'))
    log.close()
    save(log, 3)
    *paths, last = sorted(tmp_path.glob("journal-*.log"))
    assert len(paths) > 1
    for lost in paths:
        lost.rename(tmp_path / "aside")
        with pytest.raises(MetastoreDamaged, match=r"(lacks batches|begins with batch) .*restore"):
            texts(LocalLog(tmp_path), 3)
        (tmp_path / "aside").rename(lost)
    assert len(texts(LocalLog(tmp_path), 3)) == 4
    # Without the last one it looks like a log that has not gone on, unless a snapshot knows better.
    last.rename(tmp_path / "aside")
    assert len(texts(opened(tmp_path), 3)) < 4
    (tmp_path / "snapshot-0000000000000003.duckdb").rename(
        tmp_path / "snapshot-0000000000000007.duckdb"
    )
    with pytest.raises(MetastoreDamaged, match="there is a snapshot of batch 7"):
        opened(tmp_path)
    for path in tmp_path.glob("journal*"):
        path.unlink()
    assert LocalLog(tmp_path).exists
    for opening in (opened, lambda directory: texts(LocalLog(directory), 7)):
        with pytest.raises(MetastoreDamaged, match=r"no journal.*restore a backup"):
            opening(tmp_path)


def test_P3_a_replaced_segment_is_used_again(tmp_path: Path) -> None:
    log = created(tmp_path)
    inode = (tmp_path / segment_name(1)).stat().st_ino
    for position in (1, 2, 3):
        log.append(batch(position))
    size = (tmp_path / segment_name(1)).stat().st_size
    new_segment(log)
    save(log, 3)
    assert names(tmp_path) == [segment_name(4), "journal.spare", "snapshot-0000000000000003.duckdb"]
    log.append(batch(4, "[4]"))
    new_segment(log)
    reused = (tmp_path / segment_name(5)).stat()
    assert (reused.st_ino, reused.st_size) == (inode, size)
    assert reused.st_mode & 0o777 == 0o600
    log.append(batch(5, "[5]"))
    assert texts(log, 3) == ["[4]", "[5]"]
    log.close()
    log = opened(tmp_path)
    assert texts(log, 3) == ["[4]", "[5]"]
    new_segment(log)
    save(log, 5)
    # One file is kept to be used again.
    assert names(tmp_path) == [segment_name(6), "journal.spare", "snapshot-0000000000000005.duckdb"]
    log.close()


def test_P40_batches_that_an_archive_lacks_are_kept(tmp_path: Path) -> None:
    log = created(tmp_path)
    for position in range(1, 7):
        log.append(batch(position, f"[{position}]"))
        if position % 2 == 0:
            new_segment(log)
    log.keep_after = 0
    save(log, 6)
    assert len(texts(log)) == 6
    log.keep_after = 3
    log.release()
    assert texts(log, 2) == ["[3]", "[4]", "[5]", "[6]"]
    with pytest.raises(MetastoreDamaged, match="begins with batch 3, but batch 2 is needed"):
        texts(log, 1)
    log.keep_after = 99  # an archive that is ahead changes nothing: the snapshot is at 6
    log.append(batch(7, "[7]"))
    new_segment(log)
    log.release()
    assert texts(log, 6) == ["[7]"]
    log.close()


def test_P3_batches_after_the_newest_snapshot_are_never_released(tmp_path: Path) -> None:
    log = created(tmp_path)
    for position in range(1, 7):
        log.append(batch(position, f"[{position}]"))
        new_segment(log)
        if position == 3:
            save(log, 3)
    log.release()
    assert texts(log, 3) == ["[4]", "[5]", "[6]"]
    log.close()


def test_P3_a_snapshot_replaces_older_ones(tmp_path: Path) -> None:
    log = created(tmp_path)
    for position in (1, 2):
        log.append(batch(position))
        save(log, position)
    assert log.snapshots() == [2]
    file = log.get_snapshot(2, Path("/unused"))
    assert file.read_bytes() == b"the state" and file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        log.get_snapshot(1, Path("/unused"))
    log.close()


# --- reading while another process appends ------------------------------------------------------


@pytest.mark.more
@pytest.mark.usefixtures("small")
def test_P3_who_reads_while_segments_are_replaced_gets_a_whole_prefix_or_an_error(
    tmp_path: Path,
) -> None:
    log, ended = created(tmp_path), threading.Event()
    acknowledged = 0

    def work() -> None:
        nonlocal acknowledged
        for position in range(1, 1500):
            log.append(batch(position, f'["{position}"]'))
            acknowledged = position
            if position % 7 == 0:
                save(log, position)
        ended.set()

    worker, whole = threading.Thread(target=work), 0
    worker.start()
    while not ended.is_set():
        with suppress(MetastoreDamaged, FileNotFoundError):
            reader = LocalLog(tmp_path)
            before, after = acknowledged, max(reader.snapshots(), default=0)
            read = list(reader.read(after))
            assert [each.position for each in read] == [*range(after + 1, after + 1 + len(read))]
            assert after + len(read) >= before
            assert all(each.text == f'["{each.position}"]' for each in read)
            whole += 1
    worker.join()
    assert whole > 20
    log.close()


def test_P3_a_segment_that_is_used_again_while_it_is_read_is_not_mistaken_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = created(tmp_path)
    for position in (1, 2, 3):
        log.append(batch(position))
    real = Path.read_bytes

    def slowly(path: Path) -> bytes:
        monkeypatch.undo()
        new_segment(log)
        save(log, 3)
        log.append(batch(4))
        new_segment(log)  # in the file of the first three
        return real(tmp_path / segment_name(5))

    monkeypatch.setattr(Path, "read_bytes", slowly)
    with pytest.raises(FileNotFoundError):
        texts(LocalLog(tmp_path))
    log.close()


def test_P3_a_batch_that_is_written_while_the_file_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader may see a later batch and not the one before."""
    log = created(tmp_path)
    ends = []
    for position in (1, 2, 3):
        log.append(batch(position, f"[{position}]"))
        ends.append(log._end)
    real = Path.read_bytes

    def early(path: Path) -> bytes:
        monkeypatch.undo()
        data = real(path)
        return data[: ends[0]] + bytes(ends[1] - ends[0]) + data[ends[1] :]

    monkeypatch.setattr(Path, "read_bytes", early)
    assert texts(LocalLog(tmp_path)) == ["[1]", "[2]", "[3]"]
    log.close()


# --- writes that fail ---------------------------------------------------------------------------


def fail(monkeypatch: pytest.MonkeyPatch, *failing: str) -> None:
    def error(*args: Any) -> Any:
        raise OSError(5, "Input/output error")

    for name in failing:
        monkeypatch.setattr(os, name, error)


@pytest.mark.parametrize("failing", ["pwrite", "half", "fdatasync"])
def test_P3_a_failed_append_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    log = created(tmp_path)
    path = tmp_path / segment_name(1)
    log.append(batch(1, "[0]"))
    size = path.stat().st_size
    if failing == "half":
        real, calls = os.pwrite, []

        def half(file: int, data: bytes, at: int) -> int:
            calls.append(at)
            if len(calls) > 1:
                raise OSError(28, "No space left on device")
            return real(file, data[:9], at)

        monkeypatch.setattr(os, "pwrite", half)
    elif failing == "fdatasync":  # of the write, not of taking it back
        good, synced = os.fdatasync, []

        def once(file: int) -> None:
            synced.append(file)
            if len(synced) == 1:
                raise OSError(5, "Input/output error")
            good(file)

        monkeypatch.setattr(os, "fdatasync", once)
    else:
        fail(monkeypatch, failing)
    with pytest.raises(OSError, match=r"Input/output error|No space left"):
        log.append(batch(2, "[1]"))
    monkeypatch.undo()
    assert path.stat().st_size == size
    log.append(batch(2, "[2]"))
    log.close()
    assert texts(opened(tmp_path)) == ["[0]", "[2]"]


def test_P3_a_failed_append_that_stays_is_found_by_opening_the_log_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = created(tmp_path)
    fail(monkeypatch, "fdatasync", "ftruncate")
    with pytest.raises(OSError, match="Input/output error"):
        log.append(batch(1, "[0]"))
    monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file descriptor"):
        log.append(batch(1, "[1]"))
    assert texts(LocalLog(tmp_path)) == ["[0]"]
    calls: list[str] = []
    real_write = os.pwrite

    def write(file: int, data: bytes, at: int) -> int:
        calls.append("write")
        return real_write(file, data, at)

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "fdatasync", lambda _: calls.append("sync"))
    log.open_to_append()
    # From now on the batch counts as durable; the page cache may be all that has it.
    assert calls == ["write", "sync"] and texts(log) == ["[0]"]
    log.append(batch(2, "[2]"))
    assert texts(log) == ["[0]", "[2]"]
    log.close()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("failing", ["open", "pwrite", "fdatasync", "rename", "sync_path"])
@pytest.mark.parametrize("spare", [False, True])
def test_P3_a_segment_that_can_not_be_begun_fails_its_batch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, spare: bool
) -> None:
    log = created(tmp_path)
    position = 0
    while log._end < 220 or len(names(tmp_path)) < 2:
        position += 1
        log.append(batch(position, f"[{position}]"))
    if spare:
        save(log, position - 1)
    assert (tmp_path / "journal.spare").exists() == spare
    after = max(log.snapshots(), default=0)
    whole = texts(log, after)
    if failing == "sync_path":
        monkeypatch.setattr(local, "sync_path", lambda _: 1 / 0)
    else:
        fail(monkeypatch, failing)
    with pytest.raises((OSError, ZeroDivisionError)):
        log.append(batch(position + 1, '["failed"]'))
    monkeypatch.undo()
    monkeypatch.setattr(local, "_SEGMENT_BYTES", 220)
    synced: list[str] = []
    sync = local.sync_path
    monkeypatch.setattr(local, "sync_path", lambda path: (synced.append(str(path)), sync(path)))
    log.open_to_append()
    # The name of a segment that was begun may not be durable yet.
    assert str(tmp_path) in synced
    assert texts(log, after) == whole
    log.append(batch(position + 1, '["again"]'))
    log.close()
    assert texts(opened(tmp_path), after) == [*whole, '["again"]']


# --- the wrong file -----------------------------------------------------------------------------


def filled(directory: Path, count: int = 3, after: int = 0) -> LocalLog:
    directory.mkdir()
    log = created(directory, after)
    for position in range(after + 1, after + 1 + count):
        log.append(batch(position, f"[{position}]"))
    return log


def test_P3_a_segment_of_another_log_is_refused_by_name(tmp_path: Path) -> None:
    log, other = filled(tmp_path / "a"), filled(tmp_path / "b", after=3)
    new_segment(log)
    assert texts(log) == ["[1]", "[2]", "[3]"]
    foreign = tmp_path / "a" / segment_name(4)
    shutil.copy(tmp_path / "b" / segment_name(4), foreign)
    with pytest.raises(MetastoreDamaged, match=r"0004.log belongs to another log.*restore"):
        texts(LocalLog(tmp_path / "a"))
    foreign.rename(tmp_path / "a" / segment_name(5))  # under a name that is not its own
    with pytest.raises(MetastoreDamaged, match=r"damaged at byte 0, its header"):
        opened(tmp_path / "a")
    log.close()
    other.close()


def test_P3_batches_of_another_log_are_ignored(tmp_path: Path) -> None:
    log, other = filled(tmp_path / "a"), filled(tmp_path / "b", 9)
    log.close()
    other.close()
    path = tmp_path / "a" / segment_name(1)
    rest = (tmp_path / "b" / segment_name(1)).read_bytes()
    path.write_bytes(path.read_bytes() + rest[rest.index(b"\n") + 1 :])
    assert texts(opened(tmp_path / "a")) == ["[1]", "[2]", "[3]"]


def test_P31_a_copy_goes_on_with_a_history_of_its_own(tmp_path: Path) -> None:
    log = filled(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = opened(tmp_path / "b")
    assert copy.history == log.history
    copy.append(batch(4, '["copy"]'))
    copy.note_place(copied=True)
    assert copy.history != log.history
    copy.append(batch(5, '["copy"]'))
    log.append(batch(4, '["original"]'))
    new_segment(log)
    log.append(batch(5, '["original"]'))
    assert texts(copy)[-2:] == ['["copy"]'] * 2
    # A segment of the original among those of the copy is noticed.
    new_segment(log)
    log.append(batch(6))
    shutil.copy(tmp_path / "a" / segment_name(6), tmp_path / "b" / segment_name(6))
    with pytest.raises(MetastoreDamaged, match=r"0006.log belongs to another log"):
        texts(LocalLog(tmp_path / "b"))
    for each in (log, copy):
        each.close()


def test_P3_a_change_by_another_program_is_refused_where_it_is_read(tmp_path: Path) -> None:
    log = filled(tmp_path / "a")
    path = tmp_path / "a" / segment_name(1)
    data = path.read_bytes()
    at = data.index(b"[2]")
    path.write_bytes(data[:at] + b"[7]" + data[at + 3 :])
    with pytest.raises(MetastoreDamaged, match="batch 2 can't be read, and batch 3 comes after it"):
        texts(log)
    log.close()


def test_P3_only_the_next_position_is_appended(tmp_path: Path) -> None:
    log = filled(tmp_path / "a")
    for position in (1, 3, 5):
        with pytest.raises(PositionTaken):
            log.append(batch(position))
    log.append(batch(4, "[4]"))
    assert len(texts(log)) == 4
    log.close()
