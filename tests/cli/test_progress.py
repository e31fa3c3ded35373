"""Long work tells how far it is, on a terminal or in the log of a run."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest

from acid_platform import Warehouse
from acid_platform.base.progress import is_shown, shown, tell
from acid_platform.display import progress_bar
from acid_platform.orchestration import SparkResource, WarehouseResource, acid_asset, resources
from acid_platform.services import fsck
from tests.conftest import temporary_warehouse

Told = list[tuple[str, int, int | None]]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("told") / "wh", engine="local") as opened:
        table = opened.create_table("db.t", "id bigint, s string")
        for _ in range(3):
            texts = np.random.default_rng(1).bytes(120_000 * 32).hex()
            starts = range(0, len(texts), 64)
            rows = {"id": range(120_000), "s": [texts[at : at + 64] for at in starts]}
            table.insert(pa.table(rows))
        table.delete("id % 7 = 3")
        yield opened


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT sum(id) FROM db.t",
        "SELECT max(s) FROM db.t WHERE id > 9",
        "DELETE FROM db.t WHERE s LIKE '%-%'",
    ],
)
def test_a_statement_tells_how_much_it_has_read(warehouse: Warehouse, statement: str) -> None:
    told: Told = []
    with shown(lambda *what: told.append(what)):
        answer = warehouse.sql(statement)
        if hasattr(answer, "to_arrow"):
            answer.to_arrow()
    counts = [count for what, count, _ in told if what == "MB read"]
    assert len(counts) >= 3 and counts == sorted(counts)
    _, count, total = told[-1]
    assert total is not None and 1 <= count <= total, "nothing is read twice, or left"
    before = len(told)
    warehouse.sql("SELECT count(*) FROM db.t WHERE s = 'x'")
    assert len(told) == before and not is_shown()


def test_compactions_and_fsck_tell(warehouse: Warehouse) -> None:
    told: Told = []
    with shown(lambda *what: told.append(what)):
        fsck.examine(warehouse.metastore)
        warehouse.table("db.t").compact("major")
    assert {what for what, _, _ in told} == {"db.t", "MB read"}


def _all_of(terminal: int) -> str:
    """What was drawn until the other end was closed, which Linux tells as an error."""
    parts: list[bytes] = []
    with suppress(OSError):
        while part := os.read(terminal, 10_000):
            parts.append(part)
    return b"".join(parts).decode()


def test_a_terminal_shows_a_bar_from_the_first_second_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pty.openpty()
    now = [100.0]
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr("acid_platform.display.progress_bar.time.monotonic", lambda: now[0])
        monkeypatch.setenv("TERM", "xterm")
        with progress_bar.progress():
            tell("rows", 1, 10)
            assert progress_bar._bar is None
            now[0] += 1.1
            tell("rows", 4, 10)
            assert progress_bar._bar is not None
            progress_bar.hide_progress()
        assert progress_bar._bar is None and not is_shown()
    drawn = _all_of(ours)
    os.close(ours)
    assert "rows" in drawn and "4/10" in drawn


def test_a_pipe_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar.progress():
        assert not is_shown()


@pytest.mark.more
def test_the_log_of_a_run_shows_it(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "PROGRESS_SECONDS", 0)

    @acid_asset(table="db.copy")
    def copy(t: pa.Table) -> pa.Table:
        return t

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        result = dg.materialize(
            [copy],
            instance=instance,
            resources={
                "warehouse": WarehouseResource(path=warehouse.path, engine="local"),
                "spark": SparkResource(),
            },
        )
        said = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert [text for text in said if text.startswith("MB read: ")]
