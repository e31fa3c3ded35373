"""The judge finds the anomalies of the papers by name, and passes what their levels allow."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.judge.published_checkers import edn, sessions
from tests.judge.recorded import Attempt, MalformedHistory, load, save
from tests.judge.steps import add, append, get, reads, sees, txn, write
from tests.judge.verdict import LEVELS, PROMISED, judge

History = list[Attempt]

ADYA: dict[str, tuple[str, History]] = {
    "H_wcycle: writes interleave": (
        "G0",
        [
            txn(append("x", 1), append("y", 1)),
            txn(append("x", 2), append("y", 2)),
            txn(reads("x", 1, 2), reads("y", 2, 1)),
        ],
    ),
    "H_1a: a read of an aborted write": (
        "G1a",
        [txn(write("x", 1), outcome="fail"), txn(get("x", 1))],
    ),
    "H_1b: a read of a write that another one follows": (
        "G1b",
        [txn(write("x", 1), write("x", 2)), txn(get("x", 1))],
    ),
    "H_1c: two that read each other": (
        "G1c",
        [txn(write("x", 1), get("y", 2)), txn(write("y", 2), get("x", 1))],
    ),
    "H_2: one sees the balance before a transfer and one after it": (
        "fractured read",
        [
            txn(write("x", 5), write("y", 5)),
            txn(get("x", 5), get("y", 9)),
            txn(get("x", 5), write("x", 1), get("y", 5), write("y", 9)),
        ],
    ),
    "H_phantom: a sum without the row that was inserted": (
        "fractured read",
        [txn(add("employees", 3), append("sum", 3)), txn(sees("employees"), reads("sum", 3))],
    ),
}
"""Adya: Weak Consistency: A Generalized Theory and Optimistic Implementations (1999)."""

BERENSON: dict[str, tuple[str, History]] = {
    "H4: a lost update": (
        "lost update",
        [txn(get("x"), write("x", 120)), txn(get("x"), write("x", 130))],
    ),
    "A5A: read skew through a third": (
        "G-single",
        [
            txn(append("x", 1)),
            txn(reads("x", 1), append("y", 2)),
            txn(reads("y", 2), reads("x")),
            txn(reads("x", 1)),
        ],
    ),
    "H5: write skew": (
        "write skew",
        [
            txn(get("x"), get("y"), write("y", -40)),
            txn(get("x"), get("y"), write("x", -40)),
        ],
    ),
}
"""Berenson and others: A Critique of ANSI SQL Isolation Levels (1995)."""

ELLE: dict[str, tuple[str, History]] = {
    "an append between a read and an append": (
        "lost update",
        [
            txn(append("34", 2), append("34", 1)),
            txn(reads("34", 2, 1), append("36", 5), append("34", 4)),
            txn(append("34", 5)),
            txn(reads("34", 2, 1, 5, 4)),
        ],
    ),
    "an aborted element in a list": (
        "G1a",
        [txn(append("x", 1), outcome="fail"), txn(append("x", 2)), txn(reads("x", 1, 2))],
    ),
    "half of two appends": (
        "G1b",
        [txn(append("x", 1), append("x", 2)), txn(reads("x", 1)), txn(reads("x", 1, 2))],
    ),
    "an element that nobody appended": ("garbage read", [txn(reads("x", 7))]),
    "an element twice": ("duplicate element", [txn(append("x", 1)), txn(reads("x", 1, 1))]),
    "two orders": (
        "incompatible order",
        [
            txn(append("x", 1)),
            txn(append("x", 2)),
            txn(reads("x", 1, 2)),
            txn(reads("x", 2, 1)),
        ],
    ),
    "its own append is missing": ("internal", [txn(append("x", 1), reads("x"))]),
    "its own write is missing": ("internal", [txn(write("x", 1), get("x"))]),
    "a read that is not repeated": (
        "internal",
        [txn(append("x", 1)), txn(reads("x"), reads("x", 1))],
    ),
    "a stale read": (
        "G-single-realtime",
        [txn(append("x", 1), at=(1, 2)), txn(reads("x"), at=(3, 4))],
    ),
    "an append that was acknowledged and is lost": (
        "G-single-realtime",
        [
            txn(append("x", 1), at=(1, 2)),
            txn(append("x", 2), at=(3, 4)),
            txn(reads("x", 2), at=(5, 6)),
        ],
    ),
    "a read of what was sent later": (
        "G1c-realtime",
        [txn(reads("x", 1), at=(1, 2)), txn(append("x", 1), at=(3, 4))],
    ),
}
"""Kingsbury, Alvaro: Elle: Inferring Isolation Anomalies from Experimental Observations (2020)."""

LONG_FORK: History = [
    txn(append("x", 1)),
    txn(append("y", 1)),
    txn(reads("x", 1), reads("y")),
    txn(reads("x"), reads("y", 1)),
]
RAMP: History = [txn(write("x", 1), write("y", 1)), txn(get("x", 1), get("y"))]
OTHERS: dict[str, tuple[str, History]] = {
    "long fork (Sovran and others, Transactional Storage for Geo-replicated Systems, 2011)": (
        "long fork",
        LONG_FORK,
    ),
    "fractured reads (Bailis and others, Scalable Atomic Visibility with RAMP, 2014)": (
        "fractured read",
        RAMP,
    ),
    "three anti-dependencies, none beside another (Cerone and Gotsman, 2016)": (
        "G-nonadjacent",
        [
            *(txn(add(key, 1)) for key in "xyz"),
            txn(sees("x", 1), sees("y")),
            txn(sees("y", 1), sees("z")),
            txn(sees("z", 1), sees("x")),
        ],
    ),
    "an aborted transaction read no snapshot (opacity: Guerraoui and Kapalka, 2008)": (
        "fractured read",
        [
            txn(write("x", 1), write("y", 1)),
            txn(get("x", 1), get("y"), write("z", 1), outcome="fail"),
        ],
    ),
}
ALL = {**ADYA, **BERENSON, **ELLE, **OTHERS}


@pytest.mark.parametrize("what", ALL)
def test_a_published_anomaly_is_found(what: str) -> None:
    name, history = ALL[what]
    assert name in judge(history).counts(), judge(history)


@pytest.mark.parametrize("what", [what for what in ALL if ALL[what][0] not in ("write skew", "G2")])
def test_the_promised_level_excludes_it(what: str) -> None:
    assert judge(ALL[what][1]).against(PROMISED)


ALLOWED: dict[str, tuple[str, History]] = {
    "write skew": ("snapshot isolation", BERENSON["H5: write skew"][1]),
    "the read-only anomaly (Fekete, O'Neil and O'Neil, 2004)": (
        "snapshot isolation",
        [
            txn(get("y"), write("y", 20)),
            txn(get("x"), get("y"), write("x", -11)),
            txn(get("x"), get("y", 20)),
        ],
    ),
    "a fractured read": ("read committed", RAMP),
    "a read of an aborted write": ("read uncommitted", ADYA["H_1a: a read of an aborted write"][1]),
    "a stale read": ("serializable", ELLE["a stale read"][1]),
    "a lost update": ("read atomic", BERENSON["H4: a lost update"][1]),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_a_weaker_level_allows_it(what: str) -> None:
    level, history = ALLOWED[what]
    assert level in judge(history).levels() and "strict serializable" not in judge(history).levels()


def test_histories_without_an_anomaly_pass() -> None:
    history = [
        txn(append("x", 1), write("r", 1), add("s", 1), at=(1, 2)),
        txn(append("x", 2), outcome="fail", at=(3, 4)),
        txn(reads("x", 1), append("x", 3), reads("x", 1, 3), get("r", 1), write("r", 2), at=(5, 6)),
        txn(append("x", 4), add("s", 2), outcome="info"),
        txn(sees("s", 1, 2), reads("x", 1, 3, 4), get("r", 2), at=(7, 8)),
    ]
    assert judge(history).levels() == [*LEVELS] and judge([]).levels() == [*LEVELS]


def test_what_nobody_knows_counts_once_somebody_has_read_it() -> None:
    unknown = txn(append("x", 1), append("y", 1), outcome="info")
    assert judge([unknown, txn(reads("x"), reads("y"), at=(5, 6))]).anomalies == ()
    half = judge([unknown, txn(reads("x", 1), reads("y"))])
    assert "fractured read" in half.counts() and half.committed == 2


def test_a_snapshot_that_is_older_than_its_first_answer() -> None:
    """A commit that was sent after the first read's answer is in no read of that transaction."""
    reader = Attempt("r", (reads("y"), reads("x", 1)), "ok", began=1, first_read=2, ended=9)
    writer = Attempt("w", (append("x", 1),), "ok", began=1, sent=3, ended=4)
    assert "G1c-realtime" in judge([reader, writer]).counts()
    early = Attempt("w", (append("x", 1),), "ok", began=1, sent=2, ended=4)
    assert judge([reader, early]).anomalies == ()


def test_a_verdict_tells_why() -> None:
    text = str(judge(LONG_FORK))
    assert "long fork: 1" in text and "T3 (client) before T2 (client), rw, since T3" in text
    assert "consistent with: read uncommitted, read committed, read atomic" in text


def test_values_that_are_written_twice_and_keys_of_two_kinds_are_no_history() -> None:
    with pytest.raises(MalformedHistory, match="twice"):
        judge([txn(append("x", 1)), txn(append("x", 1))])
    with pytest.raises(MalformedHistory, match="a list and a set"):
        judge([txn(append("x", 1), sees("x"))])


def test_a_recorded_history_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    for _, history in ALL.values():
        save(path, history)
        assert load(path) == history
    with path.open("a") as file:
        file.write('{"process": "killed wh')
    assert load(path) == history


def test_the_forms_of_published_checkers() -> None:
    history = [
        txn(append("x", 1), add("s", 7), at=(1, 2)),
        txn(reads("x", 1), sees("s", 7), get("r"), at=(3, 4)),
        txn(write("r", 2), outcome="info"),
    ]
    lists = list(edn(history, "list-append"))
    assert lists[1].endswith(':type :ok, :process 0, :f :txn, :value [[:append "x" 1]]}')
    registers = "".join(edn(history, "rw-register"))
    assert '[:r "s/7" 1] [:r "r" nil]' in registers and ":type :info" in registers
    assert "{'Read': {'variable': 0, 'version': 1}}" in str(sessions(history)["data"])


def test_the_judge_knows_nothing_of_the_platform() -> None:
    for file in Path(__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            own = (*sys.stdlib_module_names, "tests.judge", "hypothesis", "pytest")
            assert all(name.startswith(own) for name in names), (file.name, names)


def test_the_page_has_every_level_and_every_anomaly() -> None:
    page = (Path(__file__).parents[2] / "docs" / "internal" / "isolation.md").read_text()
    for level, names in LEVELS.items():
        assert f"| {level} |" in page or f"| **{level}** |" in page
        assert all(f"`{name.removesuffix('-realtime')}`" in page for name in names)
