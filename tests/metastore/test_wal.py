"""P27: a write to DuckDB's own log that a power cut tears is given up; nothing durable is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from acid_platform import MetastoreDamaged
from acid_platform.metastore.rules.events import Recorded
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.server import wal
from acid_platform.metastore.server.store import Store
from tests.metastore.test_blocks import databases

Tear = Callable[[bytes], bytes]
TEARS: dict[str, Tear] = {
    "zeros": lambda data: bytes(len(data)),
    "a hole": lambda data: data[: (n := len(data) // 3)] + bytes(n) + data[2 * n :],
    "a late page": lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
    "a bit": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
}


class Metastore:
    """A store whose folds are not followed by a checkpoint, so that DuckDB's log has them."""

    def __init__(self, path: Path) -> None:
        self.path, self.wal = path, wal.beside(path)
        self.store = Store(path)
        self.machine = Machine(self.store.load()[0])
        self.count = 0

    def commit(self) -> None:
        event = Recorded.parse("database", self.count, {"name": f"d{self.count}"})
        self.count += 1
        self.machine.replay([event])
        self.store.append([event])

    def fold(self) -> int:
        """The bytes of DuckDB's log before."""
        before = self.wal.stat().st_size if self.wal.exists() else 0
        self.store.fold(self.machine.state, 0)
        return before

    def tear(self, start: int, how: Tear) -> None:
        self.store._let_go()
        data = self.wal.read_bytes()
        self.wal.write_bytes(data[:start] + how(data[start:]))


@pytest.fixture
def metastore(tmp_path: Path) -> Metastore:
    made = Metastore(tmp_path / "metastore.duckdb")
    made.commit()
    made.fold()
    return made


@pytest.mark.parametrize("how", TEARS.values(), ids=TEARS.keys())
def test_P27_a_torn_fold_is_made_again_from_the_journal(metastore: Metastore, how: Tear) -> None:
    metastore.commit()
    metastore.commit()
    metastore.tear(metastore.fold(), how)
    assert databases(metastore.path) == ["d0", "d1", "d2", "default"]
    assert databases(metastore.path) == ["d0", "d1", "d2", "default"]
    again = Metastore(metastore.path)
    again.machine.replay(again.store.load()[1])
    again.count = 3
    again.commit()
    again.fold()
    again.store.checkpoint()
    again.store._let_go()
    assert databases(metastore.path) == ["d0", "d1", "d2", "d3", "default"]


@pytest.mark.parametrize("how", TEARS.values(), ids=TEARS.keys())
def test_P3_damage_to_a_fold_that_the_journal_no_longer_holds_is_refused(
    metastore: Metastore, how: Tear
) -> None:
    metastore.commit()
    start = metastore.fold()
    metastore.commit()  # overwrites the record of the event that was folded
    metastore.tear(start, how)
    with pytest.raises(MetastoreDamaged, match=r"begins with event 3, but the tables .* event 1"):
        Store(metastore.path)


def test_a_refusal_after_a_cut_names_the_file_with_what_was_cut_off(metastore: Metastore) -> None:
    metastore.commit()
    start = metastore.fold()
    metastore.commit()  # overwrites the record of the event that was folded
    metastore.tear(start, TEARS["a bit"])
    for _ in range(2):
        with pytest.raises(MetastoreDamaged, match=r"event 1.* \(metastore\.duckdb\.wal\.torn has"):
            Store(metastore.path)


def test_what_was_cut_off_is_put_aside(metastore: Metastore) -> None:
    metastore.commit()
    start = metastore.fold()
    metastore.tear(start, TEARS["a bit"])
    before = metastore.wal.read_bytes()
    assert databases(metastore.path) == ["d0", "d1", "default"]
    torn = wal.aside(metastore.path).read_bytes()
    assert len(torn) <= len(before) - start
    assert before.endswith(torn)


def test_another_refusal_of_duckdb_cuts_nothing(tmp_path: Path) -> None:
    assert not wal.cut(tmp_path / "metastore.duckdb", "IO Error: no space left on device")
