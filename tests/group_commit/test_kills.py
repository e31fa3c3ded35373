"""A process that is killed while its threads insert in groups loses nothing that it acknowledged.

ACID_GROUP_KILLS chooses how often.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from acid_platform.services.fsck import Severity, examine
from tests.conftest import temporary_warehouse
from tests.group_commit import inserting_program

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("ACID_GROUP_KILLS", "8"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_P44_what_was_acknowledged_is_there_after_a_kill_and_no_insert_is_half_there(
    tmp_path: Path,
) -> None:
    chance = random.Random(44)
    log = tmp_path / "log"
    log.touch()
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        properties = {"acid.group.commit.interval": "20ms"}
        table = warehouse.create_table("db.t", "id bigint, part int", properties=properties)
        for number in range(KILLS):
            with open(tmp_path / "errors", "ab") as errors:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        inserting_program.__file__,
                        warehouse.path,
                        str(number),
                        str(log),
                    ],
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stderr=errors,
                )
            before = log.stat().st_size
            while log.stat().st_size == before and process.poll() is None:
                time.sleep(0.02)
            time.sleep(chance.random())
            process.kill()
            assert process.wait() == -9, (tmp_path / "errors").read_text()[-3000:]
            acknowledged = set(map(int, log.read_text().split()))
            found = Counter(table.to_arrow(["id"])["id"].to_pylist())
            assert acknowledged <= found.keys()
            assert set(found.values()) == {3}
        groups = len({row["txn"] for row in table.history()})
        print(f"{len(found)} inserts in {groups} transactions, {KILLS} kills")
        assert groups < len(found) / 2
        warehouse.release()
        # What killed processes were writing is a note until their transactions time out.
        found_wrong = [
            one
            for one in examine(warehouse.metastore).findings
            if one.severity is not Severity.NOTE
        ]
        assert found_wrong == []
