"""Each process has its own databases in memory, and closes them when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from acid_platform.base.first_use import PerProcess
from acid_platform.compaction.profiles import ValueSums
from acid_platform.engine.local.shared_database import connect


class Thing:
    closed = 0

    def __del__(self) -> None:
        os.write(2, f"destroyed in {os.getpid()}".encode())

    def close(self) -> None:
        self.closed += 1


def in_child(work: Callable[[], bool]) -> bool:
    """Whether `work` returns true in a child of this process. The child runs nothing else."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_makes_its_own_and_leaves_that_of_its_parent_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    things = PerProcess(Thing)
    ours = things.get()

    def work() -> bool:
        own = things.get()
        things.close()
        return own is not ours and own.closed == 1 and ours.closed == 0

    with things._guard:  # as another thread may when the process forks
        assert in_child(work)
    assert things.get() is ours and not ours.closed
    assert capfd.readouterr().err.count("destroyed") == 1, "the child destroys only its own"
    things.close()
    assert ours.closed == 1 and things.get() is not ours


def test_a_child_computes_with_duckdb_although_its_parent_did() -> None:
    def computes() -> bool:
        sums = ValueSums(("v",))
        sums.add(pa.RecordBatch.from_arrays([pa.array(["a", None])], ["v"]))
        own = connect()
        return sums.profile().null_counts == {"v": 1} and own.execute("SELECT 42").fetchall() == [
            (42,)
        ]

    busy = threading.Thread(
        target=lambda: connect().execute("SELECT sum(hash(i)) FROM range(20_000_000) t(i)")
    )
    assert computes()
    busy.start()
    assert in_child(computes)
    busy.join()
    assert computes()


ENDS_EARLY = """
import sys, threading
from acid_platform import Warehouse
opened = Warehouse.open(sys.argv[1], engine="local")
table = opened.create_table("db.t", "id int, v string")
for number in range(2):
    table.insert([{"id": number, "v": "a"}])
table.compact("major")
assert opened.sql("SELECT max(v) AS v FROM db.t").collect() == [("a",)]
open_one = opened.transaction()
opened.metastore.stop()
sys.stdout.write(" ".join(t.name for t in threading.enumerate() if "heartbeat" in t.name))
import atexit
atexit._run_exitfuncs()
sys.stdout.write("|" + " ".join(t.name for t in threading.enumerate() if "heartbeat" in t.name))
"""


@pytest.mark.more
def test_no_thread_of_ours_lives_when_python_ends(tmp_path: object) -> None:
    """A thread that lives then keeps DuckDB's modules; Python ends with `nanobind: leaked`."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS_EARLY, f"{tmp_path}/wh"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    before, _, after = done.stdout.partition("|")
    assert "heartbeat" in before and not after and not done.stderr, done
