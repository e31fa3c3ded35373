"""P27: a checkpoint that a power cut tears is undone when the metastore starts again."""

from __future__ import annotations

from pathlib import Path

import pytest

from acid_platform import MetastoreIncompatible
from acid_platform.metastore.rules.events import Recorded
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.server import blocks
from acid_platform.metastore.server.store import Store

BLOCK = 3 * 4096
"""The offset of the first block, which holds metadata and has room."""


def databases(path: Path) -> list[str]:
    store = Store(path)
    try:
        state, events = store.load()
        machine = Machine(state)
        machine.replay(events)
        return sorted(machine.state.databases)
    finally:
        store._let_go()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The file of a metastore that was killed at the beginning of a checkpoint after a fold."""
    path = tmp_path / "metastore.duckdb"
    store = Store(path)
    state, _ = store.load()
    machine = Machine(state)
    for number in range(3):
        event = Recorded.parse("database", number, {"name": f"d{number}"})
        machine.replay([event])
        store.append([event])
    store.fold(machine.state, 0)
    blocks.keep(store._database.file, blocks.beside(path), [0], 1 << 18)
    store._let_go()
    return path


def tear(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(BLOCK + 512)
        file.write(b"\xff" * 512)


def test_P27_a_torn_block_is_put_back(database: Path) -> None:
    tear(database)
    assert databases(database) == ["d0", "d1", "d2", "default"]


def test_P27_duckdb_refuses_a_torn_block(database: Path) -> None:
    """The copied blocks are needed, and a torn copy is not used."""
    tear(database)
    aside = blocks.beside(database)
    aside.write_bytes(aside.read_bytes()[:-1])
    with pytest.raises(MetastoreIncompatible, match="can't be opened"):
        databases(database)


def test_P27_blocks_of_another_header_are_left_alone(database: Path) -> None:
    kept = blocks.beside(database).read_bytes()
    store = Store(database)
    store.checkpoint()
    store._let_go()
    blocks.beside(database).write_bytes(kept)
    whole = database.read_bytes()
    assert not blocks.put_back(database) and database.read_bytes() == whole
    assert databases(database) == ["d0", "d1", "d2", "default"]
