"""The journal's file: the batches that it returns, and the damage that it detects (P3)."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acid_platform import MetastoreDamaged
from acid_platform.metastore.server import journal
from acid_platform.metastore.server.journal import Log, Record

HEADER = journal._HEADER_SIZE
BATCHES = [(2, '["a","b"]'), (1, '["' + "c" * 40 + '"]'), (3, '["d",1,2]'), (1, '["é"]'), (1, "[]")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metastore.log"


def texts(found: Log) -> list[str]:
    return [record.text for record in found.records()]


def written(path: Path, folds: int) -> tuple[bytes, str, int, list[int]]:
    """The bytes of a log with the batches, its identity, the last number that was folded before
    them, and where each of them ends. After folds there are older records behind them."""
    identity = journal.create(path)
    made = Log(path, identity, 0)
    for number in range(folds):
        for _ in range(9):
            made.append(4, f'["{number}","{"x" * 20 * number}"]')
        made.rewind()
    folded, ends = made.last, []
    for count, text in BATCHES:
        made.append(count, text)
        ends.append(made._end)
    made.close()
    data = path.read_bytes()
    assert (len(data) > ends[-1]) == (folds > 0)
    return data, identity, folded, ends


def opened(path: Path, data: bytes, identity: str, folded: int) -> list[str] | None:
    """The batches of such a log, which opening it again returns too; None if it is refused."""
    path.write_bytes(data)
    try:
        found = Log(path, identity, folded)
    except MetastoreDamaged as error:
        assert str(path) in str(error) and "restore a backup" in str(error)
        return None
    before = texts(found)
    found.append(1, '["later"]')
    found.close()
    again = Log(path, identity, folded)
    assert texts(again) == [*before, '["later"]'] and again.length == again.last - folded
    again.close()
    return before


BATCH_TEXTS = [text for _, text in BATCHES]


@pytest.mark.parametrize("folds", [0, 3])
def test_P3_a_log_that_was_cut_anywhere_gives_the_batches_before(path: Path, folds: int) -> None:
    data, identity, folded, ends = written(path, folds)
    assert opened(path, data, identity, folded) == BATCH_TEXTS
    for at in range(len(data)):
        whole = sum(1 for end in ends if end <= at)
        expected = None if at < HEADER else BATCH_TEXTS[:whole]
        assert opened(path, data[:at], identity, folded) == expected, at


@pytest.mark.parametrize("folds", [0, 3])
def test_P3_every_flipped_bit_before_the_last_batch_is_refused(path: Path, folds: int) -> None:
    data, identity, folded, ends = written(path, folds)
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            # In the last batch it looks like a torn write; behind it are records that are over.
            expected = BATCH_TEXTS[:-1] if at < ends[-1] else BATCH_TEXTS
            assert opened(path, flipped, identity, folded) == (
                None if at < ends[-2] else expected
            ), (at, bit)
            if at > ends[-1]:
                break


@given(st.lists(st.integers(0, 200), min_size=1, max_size=30), st.data())
@settings(max_examples=100, deadline=None)
def test_P3_a_torn_write_over_older_records_loses_only_itself(
    sizes: list[int], chosen: st.DataObject
) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "metastore.log"
        identity, folded, kept = journal.create(path), 0, list[str]()
        made = Log(path, identity, folded)
        for number, size in enumerate(sizes):
            if chosen.draw(st.integers(0, 5)) == 0:
                made.rewind()
                folded, kept = made.last, []
            before = path.read_bytes()
            text = f'["{number}{"y" * size}"]'
            made.append(1 + size % 3, text)
            kept.append(text)
        made.close()
        after = path.read_bytes()
        at = chosen.draw(st.integers(0, len(after)))
        # Sectors of a write reach the disk in any order.
        torn = after[:at] + before[at:], before.ljust(len(after), b"\0")[:at] + after[at:]
        path.write_bytes(torn[chosen.draw(st.integers(0, 1))])
        found = Log(path, identity, folded)
        assert texts(found) in (kept, kept[:-1])
        found.close()


def test_one_append_is_one_write_and_one_sync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Log(path, journal.create(path), 0)
    calls: list[str] = []

    def counting(name: str) -> None:
        real = getattr(os, name)

        def call(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        monkeypatch.setattr(os, name, call)

    for name in ("pwrite", "fdatasync", "fsync", "ftruncate"):
        counting(name)
    for number in range(3):
        made.append(1, f"[{number}]")
    assert calls == ["pwrite", "fdatasync"] * 3
    made.rewind()
    made.append(1, "[3]")
    assert calls == ["pwrite", "fdatasync"] * 4
    made.close()


def test_P3_after_a_fold_the_next_record_is_written_over_the_first(path: Path) -> None:
    identity = journal.create(path)
    made = Log(path, identity, 0)
    for number in range(5):
        made.append(2, f"[{number}]")
    assert (made.last, made.length) == (10, 10)
    size = path.stat().st_size
    made.rewind()
    assert (made.last, made.length, texts(made)) == (10, 0, [])
    made.append(1, "[5]")
    made.close()
    assert path.stat().st_size == size
    made = Log(path, identity, 10)
    assert made.records() == [Record(11, 11, "[5]")]
    made.close()


def test_P3_records_that_the_tables_have_are_skipped(path: Path) -> None:
    """Even if a fold that seemed to fail was durable, so that the journal went on."""
    identity = journal.create(path)
    made = Log(path, identity, 0)
    for number in range(4):
        made.append(2, f"[{number}]")
    made.close()
    for folded, left in ((0, 4), (4, 2), (8, 0)):
        found = Log(path, identity, folded)
        assert texts(found) == [f"[{number}]" for number in range(4 - left, 4)]
        assert (found.last, found.length) == (8, 2 * left)
        found.close()
    found = Log(path, identity, 8)
    found.append(1, "[4]")
    found.close()
    with pytest.raises(MetastoreDamaged, match=r"begins with event 9, but the tables .* event 4:"):
        Log(path, identity, 4)


def test_P3_a_long_log_is_truncated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_KEPT_SIZE", 1000)
    made = Log(path, journal.create(path), 0)
    made.append(1, '["' + "x" * 2000 + '"]')
    made.shrink()
    assert texts(made) != []
    made.rewind()
    long = path.stat().st_size
    assert long > 2000, "the records stand in for a torn log of DuckDB until its checkpoint"
    made.shrink()
    assert path.stat().st_size == HEADER
    made.append(1, "[1]")
    assert texts(made) == ["[1]"]
    made.close()


# --- writes that fail ---------------------------------------------------------------------------


def fail(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    def failing(*args: Any) -> Any:
        raise OSError(5, "Input/output error")

    for name in names:
        monkeypatch.setattr(os, name, failing)


@pytest.mark.parametrize("failing", ["pwrite", "half", "fdatasync"])
def test_P3_a_failed_append_is_undone(
    path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    identity = journal.create(path)
    made = Log(path, identity, 0)
    made.append(1, "[0]")
    size = path.stat().st_size
    if failing == "half":
        real, calls = os.pwrite, []

        def half(file: int, data: bytes, at: int) -> int:
            calls.append(at)
            if len(calls) > 1:
                raise OSError(28, "No space left on device")
            return real(file, data[:9], at)

        monkeypatch.setattr(os, "pwrite", half)
    else:
        fail(monkeypatch, failing)
        if failing == "fdatasync":  # of the write, not of taking it back
            broken, synced = os.fdatasync, []
            monkeypatch.undo()
            good = os.fdatasync

            def once(file: int) -> None:
                synced.append(file)
                (broken if len(synced) == 1 else good)(file)

            monkeypatch.setattr(os, "fdatasync", once)
    with pytest.raises(OSError, match=r"Input/output error|No space left"):
        made.append(1, "[1]")
    monkeypatch.undo()
    assert path.stat().st_size == size and made.last == 1
    made.append(1, "[2]")
    made.close()
    made = Log(path, identity, 0)
    assert texts(made) == ["[0]", "[2]"]
    made.close()


def test_P3_a_failed_append_that_stays_is_found_by_reopening_the_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = journal.create(path)
    made = Log(path, identity, 0)
    fail(monkeypatch, "fdatasync", "ftruncate")
    with pytest.raises(OSError, match="Input/output error"):
        made.append(1, "[0]")
    monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file descriptor"):
        made.append(1, "[1]")
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    made = Log(path, identity, 0)
    assert texts(made) == ["[0]"] and len(synced) == 1  # from now on the batch counts as durable
    made.close()


# --- the wrong file -----------------------------------------------------------------------------


def test_a_log_of_another_metastore_is_refused_by_name(path: Path, tmp_path: Path) -> None:
    identity = journal.create(path)
    other = tmp_path / "other.log"
    journal.create(other)
    with pytest.raises(MetastoreDamaged, match=r"other.log is the log of another metastore file"):
        Log(other, identity, 0)


def test_records_of_another_log_are_ignored(path: Path, tmp_path: Path) -> None:
    made = journal.create(path)
    other = journal.create(tmp_path / "other.log", [Record(1, 1, "[1]")])
    foreign = Log(tmp_path / "other.log", other, 0)
    assert texts(foreign) == ["[1]"]
    foreign.close()
    path.write_bytes(path.read_bytes() + (tmp_path / "other.log").read_bytes()[HEADER:])
    found = Log(path, made, 0)
    assert texts(found) == []
    found.close()


def test_a_change_by_another_program_is_refused_where_it_is_read(path: Path) -> None:
    made = Log(path, journal.create(path), 0)
    made.append(1, "[0]")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(MetastoreDamaged, match="was changed at byte 63 by another program"):
        made.records()
    made.close()
