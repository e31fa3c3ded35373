"""The report of the benchmark `peers`: what is divided by what, and how runs are merged."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from benchmarks.peers.__main__ import moment
from benchmarks.peers.contenders import BASELINES, CONTENDERS, peer_of
from benchmarks.peers.report import KINDS, Ratios, markdown, merged
from benchmarks.peers.versions import IN_SPARK, PEERS, jar_settings


def result(**seconds: dict[str, list[float]]) -> dict[str, Any]:
    """A result; in a name `__` stands for `@`."""
    return {
        "rows": 100,
        "date": "2026-11-23",
        "seconds": {
            name.replace("__", "@").replace("_", "-"): phases for name, phases in seconds.items()
        },
        "bytes": {"ours": {"loaded": 2_000_000}},
        "failures": [],
        "missing": {},
        "versions": {},
        "settings": {},
        "machine": {"cores": 2},
        "commit": "abc",
    }


TWICE_AS_FAST = result(
    ours={"load": [4.0], "update": [2.0], "wide, loaded": [3.0]},
    parquet__ours={"load": [2.0], "wide, loaded": [1.0]},
    delta={"load": [9.0], "update": [3.0], "wide, loaded": [2.0]},
    parquet__delta={"load": [1.5], "wide, loaded": [1.0]},
)


def test_each_contender_is_divided_by_plain_files_of_its_own_spark() -> None:
    ratios = Ratios(TWICE_AS_FAST)
    assert ratios.over_plain("ours", "wide, loaded", "parquet") == 3.0
    assert ratios.over_peer("ours", "delta", "wide, loaded", "parquet") == 3 / 2
    assert ratios.over_peer("ours", "delta", "load", None) == 4 / 9
    assert ratios.over_peer("ours", "delta", "load", "parquet") == 2 / 6


def test_a_change_is_divided_by_the_plain_load() -> None:
    ratios = Ratios(TWICE_AS_FAST)
    assert ratios.over_plain("ours", "update", "parquet") == 1.0
    assert ratios.over_plain("delta", "update", "parquet") == 2.0


def test_what_was_not_measured_is_no_ratio() -> None:
    ratios = Ratios(TWICE_AS_FAST)
    assert ratios.over_plain("ours", "wide, loaded", "orc") is None
    assert ratios.kind("ours", "delta", "MERGE") is None
    assert "| MERGE | - |" in markdown(TWICE_AS_FAST)
    assert "| ours is ahead in | 2 of 3 |" in markdown(TWICE_AS_FAST)


def test_in_the_same_spark_seconds_are_compared_as_they_are() -> None:
    versions = {"ours": {"pyspark": "4.1.4"}, "delta": {"pyspark": "4.1.4"}}
    assert Ratios(TWICE_AS_FAST).kind("ours", "delta", "bulk load") == pytest.approx(2 / 6)
    same = Ratios({**TWICE_AS_FAST, "versions": versions})
    assert same.kind("ours", "delta", "bulk load") == pytest.approx(4 / 9)
    assert same.kind("ours", "delta", "UPDATE") == pytest.approx(2 / 3)


def test_a_wrong_answer_is_in_the_report() -> None:
    wrong = {**TWICE_AS_FAST, "failures": ["ours, after merge: x"]}
    assert "- WRONG: ours, after merge: x" in markdown(wrong)
    assert "all are equal" not in markdown(wrong)


def test_runs_of_one_contender_each_become_one_result() -> None:
    first = result(ours={"load": [1.0, 5.0]})
    first["failures"], first["missing"] = ["one"], {"hudi": "absent", "delta": "absent"}
    second = {**result(ours={"load": [2.0]}, delta={"load": [3.0]}), "commit": "def"}
    both = merged(first, second)
    assert both["seconds"] == {"ours": {"load": [1.0, 5.0, 2.0]}, "delta": {"load": [3.0]}}
    assert both["failures"] == ["one"]
    assert both["missing"] == {"hudi": "absent"}
    assert both["commit"] == "abc, def"


def test_the_ten_kinds_of_work_name_statements_that_are_measured() -> None:
    named = {phase for phases in KINDS.values() for phase in phases}
    assert len(KINDS) == 10
    assert {phase.partition(", ")[0] for phase in named} >= {"load", "wide", "merge", "compaction"}


def test_every_peer_has_a_contender_and_pinned_versions(tmp_path: Any) -> None:
    assert {peer_of(name) for name in CONTENDERS} == {None, *PEERS}
    for peer in PEERS.values():
        assert peer.jar.count(":") == 2 and peer.spark.count(".") == 2
    settings = jar_settings("delta", tmp_path)
    assert settings["spark.jars.ivy"].startswith(str(tmp_path))
    assert settings["spark.jars.excludes"].count(":*") == len(IN_SPARK)
    assert set(BASELINES) < set(CONTENDERS)


@pytest.mark.parametrize("minutes", [-5, 5])
def test_until_is_the_next_time_the_clock_shows_it(minutes: int) -> None:
    now = datetime.datetime.now()
    wanted = moment(f"{now + datetime.timedelta(minutes=minutes):%H:%M}")
    assert 0 < wanted - now.timestamp() <= 86_400


def test_our_tables_are_compared_with_each_engine() -> None:
    told = markdown(
        result(
            ours={"load": [4.0]},
            ours_auto={"load": [4.0]},
            delta={"load": [4.0]},
            parquet__ours={"load": [2.0]},
            parquet__ours_auto={"load": [4.0]},
            parquet__delta={"load": [2.0]},
        )
    )
    assert "## Ours with the Spark engine, over the peer: kinds of work" in told
    _, chosen = told.split("## Ours with the engine that `engine=auto` chooses, over the peer: k")
    assert "| bulk load | 0.50 |" in chosen.split("##")[0]
