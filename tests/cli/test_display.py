"""Tables, snapshots and listings show themselves in a terminal and in a notebook; no Spark."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
from rich.console import Console

from acid_platform import Warehouse, display
from acid_platform.engine.interface import Result
from acid_platform.metastore.operations import listings
from tests.cli.small import Small, write_delta


@pytest.fixture
def warehouse(small: Small) -> Iterator[Warehouse]:
    with Warehouse.open(small.path) as opened:
        yield opened


def printed(what: object) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(what)
    return console.export_text()


@pytest.mark.more
def test_a_table_shows_its_directories_and_what_the_snapshot_reads(
    small: Small, warehouse: Warehouse
) -> None:
    with small.metastore.begin() as txn:
        txn.lock("db.t", "SHARED_WRITE")
        write_delta(small.table / "delta_0000002_0000002_0000", 2, ((3, "C"),))
        txn.abort()
    table = warehouse.table("db.t")
    for text in (printed(table), table._repr_html_()):
        assert "db.t" in text and "read: 1 directory" in text
        assert "delta_0000002_0000002_0000" in text and "aborted: write id 2 aborted" in text
    seen = table.snapshot()
    for text in (printed(seen), seen._repr_html_()):
        assert "db.t:2:9223372036854775807::2" in text
        assert "delta_0000001_0000001_0000" in text and "delta_0000002" not in text


@pytest.mark.more
def test_transactions_locks_and_history_are_listings(small: Small, warehouse: Warehouse) -> None:
    with small.metastore.begin() as txn:
        txn.lock("db.t", "EXCL_WRITE")
        for listing, word in (
            (display.transactions(warehouse), "OPEN"),
            (display.locks(warehouse), "EXCL_WRITE"),
            (display.history(warehouse, "db.t"), "insert"),
        ):
            assert word in printed(listing) and word in listing._repr_html_()
        txn.abort()
    assert display.compactions(warehouse).rows == ()


@pytest.mark.more
def test_C61_frames_have_times_and_json_has_hives_milliseconds(
    small: Small, warehouse: Warehouse
) -> None:
    number = small.metastore.request_compaction("db.t", None, "major")
    [row] = small.metastore.compactions()
    for text in ("SHOW COMPACTIONS", "SHOW TRANSACTIONS", "SHOW LOCKS"):
        frame = warehouse.sql(text)
        assert isinstance(frame, Result)
        for name in listings.TIMES & set(frame.columns):
            assert str(frame[name].dtype).endswith("UTC]")
    frame = warehouse.show_compactions()
    assert tuple(frame.columns) == listings.COMPACTIONS
    [enqueued] = frame["enqueuetime"]
    assert round(enqueued.timestamp() * 1000) == row["enqueuetime"]
    assert frame["committime"].isna().all() and frame["duration"].isna().all()
    [plain] = json.loads(small.acid("sql", "SHOW COMPACTIONS", "--json").stdout)
    assert (plain["compactionid"], plain["enqueuetime"]) == (number, row["enqueuetime"])
    assert plain["committime"] is None
    shown = small.acid("sql", "SHOW COMPACTIONS").stdout
    assert f"{enqueued:%Y-%m-%d}" in shown and "NaT" not in shown


def test_html_of_names_is_escaped() -> None:
    html = display.show_table([{"<b>": "<script>"}], title="a<b")._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html and "a&lt;b" in html


def test_brackets_of_names_are_no_markup_of_the_terminal() -> None:
    assert "[delete_]delta_A_B" in printed(display.show_table([{"name": "[delete_]delta_A_B"}]))


@pytest.mark.more
def test_the_read_cost_counts_what_a_read_opens(small: Small, warehouse: Warehouse) -> None:
    before = display.read_cost(warehouse, "db.t", repeats=1)
    small.insert((3, "C"))
    small.write(lambda w: [(2, 1, 536870912, 0, w, None)], deletes=True)
    after = display.read_cost(warehouse, "db.t", repeats=1)
    assert (before.directories, before.delete_deltas, before.files, before.rows) == (1, 0, 1, 2)
    assert (after.directories, after.delete_deltas, after.files, after.rows) == (3, 1, 3, 2)
    assert after.bytes > before.bytes and after.seconds > 0
    figure = display.chart({"before": before, "after": after})
    assert [axes.get_title() for axes in figure.axes] == [
        "directories",
        "kB on disk",
        "milliseconds",
    ]
    assert [bar.get_width() for bar in figure.axes[0].patches] == [1, 3]
