"""Every held snapshot keeps its rows and row ids through any history of one table."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from acid_platform import AcidError, CompactionMismatch, TxnAborted
from acid_platform.compaction import execution as compaction
from acid_platform.compaction import rewrite
from acid_platform.metastore.operations.compaction import RevokeWorkers
from acid_platform.metastore.rules import cleaning
from acid_platform.scan.open import select_entities
from acid_platform.services.worker import CompactionRun
from tests.compaction.histories import TABLE, History, Local, Reader, play
from tests.conftest import quick_then_slow, slow_then_soak
from tests.hive import hive_rows_with_ids, link_farm


def test_C41_C46_every_held_snapshot_of_two_random_histories_keeps_its_rows() -> None:
    assert all(play(seed, 60).removed for seed in (0, 1))


@pytest.mark.more
@pytest.mark.parametrize("first", quick_then_slow(range(0, 40, 10), 1))
def test_C41_C46_every_held_snapshot_of_a_random_history_keeps_its_rows(first: int) -> None:
    done = [play(seed, 60) for seed in range(first, first + 10)]
    assert sum(line.published for line in done) > 3
    assert sum(line.removed for line in done) > 30


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", slow_then_soak(range(1000, 1400, 100), 2))
def test_C41_C46_hundreds_of_histories(first: int) -> None:
    """`make lab-soak` plays thousands."""
    for seed in range(first, first + 100):
        play(seed, 80)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(6))
def test_C41_C46_P33_histories_whose_compactions_spark_executes(
    spark: SparkSession, seed: int
) -> None:
    """The same seeds run above with the local engine."""
    by_spark, here = play(seed, 40, spark), play(seed, 40)
    assert (by_spark.published, by_spark.removed) == (here.published, here.removed)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(8))
def test_P23_hive_reads_each_held_snapshot_and_the_final_table_alike(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Through all that writers, a crash, compactions and the Cleaner left; batches too. Hive 2.3
    gives rows of files without keys the bucket 0, where Hive 3 and later give 536870912."""
    history = History(tmp_path / "t", Random(seed), converted=False)
    try:
        history.act(60)
        history.readers.append(history.hold())
        for number, reader in enumerate(history.readers):
            assert hive_keys(spark, history, reader, tmp_path / f"held{number}") == reader.expected
        history.finish()
        last = history.hold()
        assert hive_keys(spark, history, last, tmp_path / "final") == last.expected
    finally:
        history.metastore.close()


def hive_keys(
    spark: SparkSession, history: History, reader: Reader, farm: Path
) -> list[tuple[int, int, int]]:
    """The keys of the rows that Hive's own reader returns, each with its value."""
    layout, files = history.layout_of(reader.lease), history.listings_of(reader.lease)
    seen = select_entities(layout, files, reader.write_ids, reader.txns)
    found: list[tuple[int, int, int]] = []
    for directory in seen.values():
        link_farm(directory, farm)
        if farm.is_dir():
            for key, row in hive_rows_with_ids(spark, farm, [("v", "string")], reader.write_ids):
                assert row == f"{{{key}}}"
                found.append(key)
    return sorted(found)


def test_P21_an_attempt_whose_staged_output_was_taken_away_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Revoked after its last look at the metastore, and cleaned up after before its renames."""
    history = History(tmp_path / "t", Random(2))
    for _ in range(3):
        history.do_begin()
        history.do_commit()
    history.metastore.request_compaction(TABLE, None, "major")
    run = CompactionRun.take(Local(history.metastore), "worker-1")
    assert run
    run.prepare()
    run.merge()
    publish = compaction.publish

    def late(staged: compaction.StagedCompaction) -> object:
        history.metastore.call(RevokeWorkers("worker"))
        shutil.rmtree(staged.compaction.staging)
        return publish(staged)

    monkeypatch.setattr(compaction, "publish", late)
    with pytest.raises(TxnAborted, match="was taken from worker"):
        run.commit()
    monkeypatch.undo()
    history.finish()
    history.metastore.close()


def test_a_cleaner_that_waits_for_nobody_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """C41 broken on purpose: the histories are long enough to show it."""
    monkeypatch.setattr(cleaning, "holders", lambda *_: [])
    with pytest.raises((AssertionError, AcidError), match=r".") as found:
        for seed in range(100):
            play(seed, 80)
    assert any("history" in note for note in found.value.__notes__)


def test_a_merge_that_forgets_deletes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    load = rewrite.load_keys
    monkeypatch.setattr(
        rewrite,
        "load_keys",
        lambda files, sources, *more, **named: load(files, sources[:1], *more, **named),
    )
    with pytest.raises(CompactionMismatch, match="would change the data: rows: expected"):
        for seed in range(100):
            play(seed, 80)
    monkeypatch.setattr(CompactionRun, "check", lambda _: None)
    with pytest.raises(AssertionError, match="sees"):
        for seed in range(100):
            play(seed, 80)
