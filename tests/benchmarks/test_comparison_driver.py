"""The driver of comparisons: wrong answers, processes that end, and time that is over."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from benchmarks.comparison.driver import SHORT_READS, OutOfTime, Run, Worker


class Answers:
    """A worker that answers every query with `row`, or whose process has ended."""

    def __init__(self, row: list[str] | None) -> None:
        self.row, self.calls = row, list[tuple[str, str]]()

    def call(self, contender: str, call: str, **named: Any) -> dict[str, Any]:
        self.calls.append((contender, call))
        if self.row is None:
            raise RuntimeError(f"the process of {contender} ended with -9")
        return {"seconds": 1.0, "bytes": 7, **({"row": self.row} if call == "query" else {})}


PHASES = ("load", "update", "delete_one", "delete_5pct", "merge", "inserts", "compact")
READS = ("sums", "wide", "narrow", "count", "selective")
EXPECTED = {phase: {read: ["1"] for read in READS} for phase in PHASES}


def run(until: float = float("inf"), **workers: Answers) -> Run:
    named = cast(dict[str, Worker], {n.replace("__", "@"): w for n, w in workers.items()})
    return Run(named, 100, EXPECTED, [n for n in named if "@" in n], until=until)


def test_every_statement_goes_to_every_contender_and_is_timed() -> None:
    one, other = Answers(["1"]), Answers(["1"])
    measured = run(one=one, other=other)
    measured.all_phases("t", 2, changed="merge", cleaned=True)
    assert measured.failures == []
    assert measured.seconds["one"] == measured.seconds["other"]
    assert len(measured.seconds["one"]["insert of 1,000 rows"]) == 20
    assert len(measured.seconds["one"]["wide, changed"]) == 2
    assert measured.bytes["one"] == {"loaded": 7, "changed": 7, "cleaned": 7}


def test_a_wrong_answer_is_a_failure_and_has_no_seconds() -> None:
    measured = run(one=Answers(["1"]), wrong=Answers(["2"]))
    measured.reads("load", "loaded", "t", 1)
    assert len(measured.failures) == 1 + 3 * SHORT_READS
    assert all(failure.startswith("wrong, loaded") for failure in measured.failures)
    assert measured.seconds["wrong"] == {}


def test_a_baseline_neither_changes_nor_is_expected_to_have_changed() -> None:
    base = Answers(["1"])
    changed = {**EXPECTED, "merge": {read: ["3"] for read in READS}}
    measured = run(one=Answers(["3"]), orc__one=base)
    measured.expected = changed
    measured.step("merge", "merge", table="t", source="merge")
    measured.check("merge", "t")
    measured.reads("merge", "changed", "t", 1)
    assert measured.failures == []
    assert {call for _, call in base.calls} == {"query"}
    assert "merge" not in measured.seconds["orc@one"]


def test_a_process_that_ends_is_one_failure_and_the_others_go_on() -> None:
    gone = Answers(None)
    measured = run(one=Answers(["1"]), gone=gone, orc__gone=gone)
    measured.all_phases("t", 1)
    assert measured.failures == ["gone, load: the process of gone ended with -9"]
    assert len(gone.calls) == 1
    assert "compaction" in measured.seconds["one"]


def test_no_statement_starts_when_the_time_is_over() -> None:
    one = Answers(["1"])
    with pytest.raises(OutOfTime):
        run(one=one, until=time.time() - 1).all_phases("t", 1)
    assert one.calls == []
