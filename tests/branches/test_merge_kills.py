"""A merge whose metastore or client is killed at any step is whole or was never there (P80)."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from acid_platform import Warehouse
from acid_platform.errors import (
    MetastoreUnavailable,
    MetastoreWriteFailed,
    NoSuchBranch,
    OutcomeUnknown,
)
from acid_platform.metastore import wire
from acid_platform.metastore.endpoint import Endpoint, Home
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.server.store import Store, machine_at
from tests.metastore.processes import gone, until
from tests.metastore.test_kills import ends

TABLES = {"db.flat": "", "db.parts": "p int", "db.fresh": ""}
"""Each with the column by which it is partitioned; the last one was made on the branch."""

Rows = dict[str, list[tuple[object, ...]]]

_DYING = """
import os, signal, sys
from acid_platform.metastore.log import local

step = sys.argv.pop(1)
append, write, sync = local.LocalLog.append, local._write, local.sync_data
merging = False

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def dying_append(log, batch):
    global merging
    merging = "branch_ended" in batch.text
    if merging and step == "decided":
        die()
    append(log, batch)
    if merging:
        die()  # step "durable": nobody has been answered

def dying_write(file, data, at):
    if not merging:
        return write(file, data, at)
    part = {"one byte": 1, "half": len(data) // 2, "all but one byte": len(data) - 1}
    write(file, data[: part.get(step, len(data))], at)
    if step in part or step == "written":
        die()

local.LocalLog.append, local._write = dying_append, dying_write
from acid_platform.metastore.__main__ import main
main()
"""
STEPS = ("decided", "one byte", "half", "all but one byte", "written", "durable")


def told(warehouse: Warehouse) -> Rows:
    return {
        name: sorted(tuple(row.values()) for row in warehouse.table(name).to_arrow().to_pylist())
        for name in TABLES
    }


def kill(place: Path) -> None:
    endpoint = Endpoint.read(Home(place / "_metastore"))
    assert endpoint is not None
    os.kill(endpoint.pid, signal.SIGKILL)
    until(lambda: gone(endpoint.pid))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows, Rows]:
    """A warehouse with a branch, its metastore killed; its rows before the merge, and after."""
    place = tmp_path_factory.mktemp("merges") / "made"
    parent = Warehouse.open(place, engine="local", branch="")
    for name, partitioned in [*TABLES.items()][:2]:
        parent.create_table(name, "id int, v string", [partitioned] if partitioned else [])
        parent.table(name).insert(
            [{"id": key, "v": "a", **({"p": key % 2} if partitioned else {})} for key in range(4)]
        )
    parent.branches.create("dev")
    with Warehouse.open(place, engine="local", branch="dev") as branch:
        branch.sql("CREATE TABLE db.fresh AS SELECT * FROM db.flat")
        with branch.transaction() as txn:
            txn.sql("UPDATE db.flat SET v = 'b' WHERE id = 1")
            txn.sql("DELETE FROM db.parts WHERE id = 2")
        branch.sql("INSERT INTO db.parts VALUES (9, 'n', 7)")
        branch.sql("INSERT OVERWRITE db.flat SELECT id + 10, v FROM db.flat WHERE id < 3")
        after = told(branch)
    parent.sql("INSERT INTO db.parts VALUES (5, 'p', 1)")
    after["db.parts"] = sorted([*after["db.parts"], (5, "p", 1)])
    before = told(parent)
    assert all(before[name] != after[name] for name in TABLES)
    parent.close()
    kill(place)
    return place, before, after


def copied(made: Path, tmp_path: Path) -> Path:
    place = tmp_path / "wh"
    shutil.copytree(made, place, ignore=shutil.ignore_patterns("*.sock", "endpoint*"))
    return place


def asked_again(place: Path, before: Rows, after: Rows) -> bool:
    """Whether it was merged when a new handle looks; then asks until it is."""
    with Warehouse.open(place, engine="local", branch="") as parent:
        merged = not parent.branches.list()
        assert told(parent) == (after if merged else before)
        if merged:
            with pytest.raises(NoSuchBranch):
                parent.branches.merge("dev")
        else:
            parent.branches.merge("dev")
        assert told(parent) == after
        parent.metastore.stop()
        assert told(parent) == after
        parent.metastore.stop()
    return merged


@contextmanager
def dying(place: Path, step: str) -> Iterator[None]:
    """A metastore that is killed at a step of the merge."""
    home = Home(place / "_metastore")
    words = [sys.executable, "-c", _DYING, step, "--dir", str(home.path)]
    with subprocess.Popen(words) as process:
        until(lambda: (found := Endpoint.read(home)) and found.pid == process.pid, 60)
        try:
            yield
        finally:
            assert process.wait(60) == -signal.SIGKILL


@pytest.mark.more
@pytest.mark.parametrize("step", STEPS)
def test_P80_a_metastore_that_is_killed_while_it_merges(
    made: tuple[Path, Rows, Rows], tmp_path: Path, step: str
) -> None:
    template, before, after = made
    place, answered = copied(template, tmp_path), False
    with dying(place, step), Warehouse.open(place, engine="local", branch="") as parent:
        assert told(parent) == before
        try:
            parent.branches.merge("dev")
            answered = True
        except (OutcomeUnknown, MetastoreUnavailable, MetastoreWriteFailed):
            pass
        if answered:  # by the next process, which was asked for the outcome
            assert told(parent) == after
    merged = asked_again(place, before, after)
    assert merged or not answered
    assert merged or step not in ("written", "durable")


@pytest.mark.more
@pytest.mark.parametrize("step", ["sendall", "_receive"])
def test_P80_a_client_that_is_killed_while_it_asks_for_a_merge(
    made: tuple[Path, Rows, Rows], tmp_path: Path, step: str
) -> None:
    template, before, after = made
    place = copied(template, tmp_path)

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def ask() -> None:
        with Warehouse.open(place, engine="local", branch="") as parent:
            parent.branches.require("dev")
            if step == "_receive":
                mock.patch.object(wire.Channel, "_receive", die).start()
            else:
                mock.patch.object(wire, "frame", die).start()
            parent.branches.merge("dev")

    with Warehouse.open(place, engine="local", branch="") as parent:
        assert told(parent) == before
        client = multiprocessing.get_context("fork").Process(target=ask)
        client.start()
        client.join(60)
        assert client.exitcode == -signal.SIGKILL
        if step == "_receive":
            until(lambda: not parent.branches.list(), 60)
    assert asked_again(place, before, after) == (step == "_receive")


@pytest.mark.more
def test_P80_a_log_that_ends_within_a_merge_has_none_of_it(
    made: tuple[Path, Rows, Rows], tmp_path: Path
) -> None:
    """Wherever it was cut: at each byte of the record of the merge."""
    template, _, after = made
    place = copied(template, tmp_path)
    home = place / "_metastore"

    def journal() -> Path:
        return max(home.glob("journal-*"))

    def end_of(data: bytes) -> int:
        return [data.index(b"\n") + 1, *ends(data)][-1]

    with Warehouse.open(place, engine="local", branch="") as parent:
        parent.branches.list()
        begin = end_of(journal().read_bytes())
        parent.branches.merge("dev")
        end = end_of(journal().read_bytes())
        assert told(parent) == after
        kill(place)
    whole = journal().read_bytes()

    def state_of(data: bytes) -> tuple[bool, int, int]:
        cut = tmp_path / "cut"
        shutil.rmtree(cut, ignore_errors=True)
        shutil.copytree(home, cut, ignore=shutil.ignore_patterns("*.sock", "endpoint*"))
        (cut / journal().name).write_bytes(data)
        log = LocalLog(cut)
        store = Store(log, cut)
        try:
            log.open_to_append()
            state = machine_at(store).state
        finally:
            store.close()
        commits = sum(len(own) for own in state.branch_commits.values())
        return "dev" in state.branches, commits, len(state.directories)

    unmerged, merged = state_of(whole[:begin]), state_of(whole[:end])
    assert unmerged[:2] == (True, 4) and merged[:2] == (False, 0) and merged[2] > unmerged[2]
    for at in range(begin, end, max(1, (end - begin) // 300)):
        assert state_of(whole[:at]) == unmerged, at
