"""A streaming query whose process is killed again and again writes each row exactly once (P42).

ACID_STREAM_BATCHES and ACID_STREAM_KILLS choose the size.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from acid_platform.metastore.operations.tables import GetSinks
from tests.spark_source import streaming_program
from tests.spark_source.places import KEPT, Place, place

ROOT = Path(__file__).resolve().parents[2]
BATCHES = int(os.environ.get("ACID_STREAM_BATCHES", "40"))
KILLS = int(os.environ.get("ACID_STREAM_KILLS", "4"))
ROWS = 5


def start(here: Place) -> subprocess.Popen[bytes]:
    with open(here.directory / "log", "ab") as log:
        return subprocess.Popen(
            [
                sys.executable,
                streaming_program.__file__,
                here.warehouse.path,
                str(here.directory / "checkpoint"),
                str(here.directory / "files"),
            ],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            cwd=here.directory,
            stdout=log,
            stderr=log,
        )


def written(here: Place) -> int:
    """How many batches are committed."""
    return max(
        (row.sink.batch + 1 for row in here.warehouse.metastore.call(GetSinks("db.copy"))),
        default=0,
    )


def kill(process: subprocess.Popen[bytes], with_keeper: bool) -> None:
    """Kills the program, its JVM and Python workers, and perhaps the keeper of its transactions."""
    program = psutil.Process(process.pid)
    for child in [program, *program.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it has ended, or is a zombie
            keeps = "acid_platform.spark_source.keeper" in child.cmdline()
            if with_keeper or not keeps:
                child.kill()
    process.wait()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_P42_a_killed_query_writes_each_row_exactly_once(tmp_path: Path) -> None:
    chance = random.Random(21)
    with place(tmp_path) as here:
        wh = here.warehouse
        wh.create_table("db.t", "id int", properties=KEPT)
        wh.create_table("db.copy", "id int")
        (here.directory / "files").mkdir()
        for batch in range(BATCHES):
            ids = pa.array(range(ROWS * batch, ROWS * (batch + 1)), pa.int32())
            rows = pa.table({"id": ids})
            wh.table("db.t").insert(rows)
            pq.write_table(rows, here.directory / "files" / f"{batch}.parquet")
        kills = 0
        while True:
            process = start(here)
            if kills == KILLS:
                assert process.wait(3600) == 0, (here.directory / "log").read_text()[-5000:]
                break
            goal = written(here) + chance.randint(1, max(1, 2 * BATCHES // (KILLS + 1) - 1))
            goal = min(goal, BATCHES - (KILLS - kills))
            while written(here) < goal and process.poll() is None:
                time.sleep(0.02)
            assert process.poll() is None, (here.directory / "log").read_text()[-5000:]
            time.sleep(chance.random() * 0.8)
            kill(process, with_keeper=chance.random() < 0.5)
            kills += 1
        found = Counter(id for (id,) in here.rows("db.copy"))
        assert set(found) == set(range(ROWS * BATCHES))
        assert set(found.values()) == {1}
        assert written(here) == BATCHES
        history = [row for row in wh.table("db.copy").history() if row["rows"]]
        assert len(history) == BATCHES
