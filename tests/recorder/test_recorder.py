"""A recorded history is what the platform promises, and each switched-off rule shows in one."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from acid_platform import CorruptFile, MetastoreUnavailable, PublicationFailed, TxnAborted
from tests.conftest import slow_then_soak
from tests.judge.recorded import Step, Version
from tests.recorder.clients import version_of, version_of_copy
from tests.recorder.faults import WALL_CLOCK, Clocks, Running, fill_disk
from tests.recorder.recording import FULL, Journal, Recording, run
from tests.recorder.rounds import KINDS
from tests.recorder.switched_off import KINDS_OF_STREAMS, TEETH
from tests.recorder.workload import Plans, all_reads

ROOT = Path(__file__).resolve().parents[2]
PLAN = [Step("set", "sets/7", None), Step("add", "sets/7", 1)]


class Scripted:
    """A client whose reads see the element 5; `errors` are raised at each commit in turn."""

    def __init__(self, *errors: BaseException, checks: bool = True) -> None:
        self.checks = checks
        self.errors = [*errors]

    def begin(self) -> None: ...

    def read(self, _step: Step) -> Version:
        return frozenset({5})

    def write(self, _step: Step) -> None: ...

    def commit(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def abort(self) -> None: ...


def recorded(directory: Path, client: Scripted) -> Recording:
    run(client, Journal(directory, "1-1-python"), PLAN)
    return Recording.of(directory)


def test_a_transaction_is_recorded_with_what_it_read(tmp_path: Path) -> None:
    (attempt,) = recorded(tmp_path, Scripted()).history
    assert attempt.outcome == "ok"
    assert attempt.steps == (Step("set", "sets/7", frozenset({5})), Step("add", "sets/7", 1))
    assert attempt.first_read and attempt.sent and attempt.ended
    assert attempt.began <= attempt.first_read <= attempt.sent <= attempt.ended


def test_a_process_that_is_killed_leaves_its_writes_with_an_unknown_outcome(
    tmp_path: Path,
) -> None:
    with pytest.raises(SystemExit):
        run(Scripted(SystemExit()), Journal(tmp_path, "1-1-python"), PLAN)
    with (tmp_path / "1-1-python.jsonl").open("a") as file:
        file.write('{"attem')
    (attempt,) = Recording.of(tmp_path).history
    assert (attempt.outcome, attempt.steps) == ("info", (Step("add", "sets/7", 1),))


@pytest.mark.parametrize("successor", ["1-0-stream", "1-2-stream"])
def test_another_process_ends_what_a_killed_one_has_begun(tmp_path: Path, successor: str) -> None:
    with pytest.raises(SystemExit):
        run(Scripted(SystemExit()), Journal(tmp_path, "1-1-stream"), PLAN)
    (unknown,) = Recording.of(tmp_path).history
    known = replace(unknown, outcome="ok", sent=unknown.began, ended=unknown.began + 1)
    Journal(tmp_path, successor).attempt(known)
    assert Recording.of(tmp_path).history == [known]


def test_reads_of_an_aborted_transaction_count_if_the_client_made_sure(tmp_path: Path) -> None:
    aborted = recorded(tmp_path, Scripted(TxnAborted("reaped")))
    assert aborted.history[0].outcome == "fail"
    assert [step.do for step in aborted.history[0].steps] == ["set", "add"]
    assert aborted.errors == {"commit: TxnAborted": 1}


def test_without_a_check_they_count_once_the_transaction_is_committed(tmp_path: Path) -> None:
    reader = Scripted(TxnAborted("reaped"), checks=False)
    (attempt,) = recorded(tmp_path, reader).history
    assert [step.do for step in attempt.steps] == ["add"]
    assert attempt.first_read is None


@pytest.mark.more
@pytest.mark.parametrize(
    ("last", "outcome"),
    [(None, "ok"), (TxnAborted("reaped"), "fail"), (CorruptFile("damaged"), "info")],
)
def test_a_commit_that_was_not_decided_is_sent_again(
    tmp_path: Path, last: BaseException | None, outcome: str
) -> None:
    errors = [MetastoreUnavailable("gone"), *([last] if last else [])]
    (attempt,) = recorded(tmp_path, Scripted(*errors)).history
    assert attempt.outcome == outcome


def test_a_full_disk_explains_a_write_that_failed_and_leaves_the_record(tmp_path: Path) -> None:
    full = PublicationFailed(f"t can't be written: [Errno 27] {FULL}; nothing was published")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        fill_disk(0, 10)
        with pytest.raises(OSError, match=FULL):
            (tmp_path / "rows").write_bytes(b"x" * 11)
        recording = recorded(tmp_path, Scripted(full))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert recording.errors == {"commit: PublicationFailed": 1}
    assert [attempt.outcome for attempt in recording.history] == ["fail"]


def test_the_clocks_of_metastores_and_of_other_processes_are_set_apart(tmp_path: Path) -> None:
    program = "import time; print(round((time.time() - float(sys.argv[1])) / 3600))"
    environment = {**os.environ, "PYTHONPATH": str(WALL_CLOCK), "ACID_TEST_CLOCK": f"{tmp_path}/c"}
    clocks = Clocks(tmp_path / "c")
    clocks.path.write_bytes(bytes(16))
    clocks.set(0, 7_200_000)
    clocks.set(1, -3_600_000)

    def hours(*words: str) -> str:
        command = [sys.executable, "-c", f"import sys; {program}", str(time.time()), *words]
        return subprocess.check_output(command, env=environment, text=True).strip()

    assert hours("metastore") == "2"
    assert hours() == "-1"


@pytest.mark.parametrize(("errors", "works"), [((), True), ((TxnAborted("reaped"),), False)])
def test_a_client_works_once_it_has_had_a_commit(
    tmp_path: Path, errors: tuple[BaseException, ...], works: bool
) -> None:
    client = Running("stream", tmp_path / "1-1-python.jsonl")
    assert not client.works()
    recorded(tmp_path, Scripted(*errors))
    assert client.works() is works


def test_an_error_that_no_fault_explains_is_a_finding(tmp_path: Path) -> None:
    damaged = recorded(tmp_path, Scripted(CorruptFile("delta_1_1 is gone")))
    assert damaged.unexpected == ["1-1-python, commit: CorruptFile: delta_1_1 is gone"]
    assert not damaged.errors


@pytest.mark.parametrize(
    ("do", "values", "version"),
    [
        ("list", ["", ",3,1"], (3, 1)),
        ("set", [3, 1], {1, 3}),
        ("set", [3, 3], {3, -1}),
        ("register", [], None),
        ("register", [4], 4),
        ("register", [4, 4], -1),
    ],
)
def test_rows_that_are_there_twice_are_what_nobody_wrote(
    do: str, values: list[object], version: object
) -> None:
    assert version_of(Step(do, "any/1", None), values) == version  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("do", "rows", "version"),
    [
        ("list", {(7, "3,1"): 1}, (3, 1)),
        ("set", {(7, 3): 1, (7, 1): 1}, {1, 3}),
        ("register", {}, None),
        ("list", {(7, "3"): 2}, (-1,)),
        ("set", {(7, 3): 1, (7, 1): -1}, {-1}),
        ("register", {(7, 4): -1}, -1),
    ],
)
def test_a_copy_with_a_row_twice_or_less_than_once_is_what_nobody_wrote(
    do: str, rows: dict[tuple[int, object], int], version: object
) -> None:
    assert version_of_copy(Step(do, "any/7", None), rows) == version  # type: ignore[arg-type]


def test_no_value_is_written_twice_and_the_last_reads_read_each_key() -> None:
    plans = [Plans(Random(process), 3, process) for process in (1, 2)]
    steps = [
        step
        for second in range(300)
        for one in plans
        for step in one.transaction(second / 10)
        if step.writes
    ]
    assert len({step.value for step in steps}) == len(steps) > 300
    assert {step.key for step in steps} <= {step.key for step in all_reads(3, 30)}


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, since it forks."""
    run_so = [sys.executable, "-m", "tests.recorder", *arguments]
    return subprocess.run(run_so, cwd=ROOT, text=True, capture_output=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_T31_S4_T41_a_short_history_is_strong_snapshot_isolation(tmp_path: Path) -> None:
    ended = command("--minutes", "0.5", "--out", str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (path,) = tmp_path.glob("*-judge-local.json")
    counts = json.loads(path.read_text())["counts"]
    assert counts["committed"] > 100
    workers = {*KINDS} - {"keeper"}
    assert {f"transactions of {kind}" for kind in workers} <= {*counts}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_P42_a_history_of_streams_is_strong_snapshot_isolation(tmp_path: Path) -> None:
    clients = ("--clients", *KINDS_OF_STREAMS)
    ended = command("--minutes", "2", *clients, "--out", str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (path,) = tmp_path.glob("*-judge-local.json")
    assert json.loads(path.read_text())["counts"]["transactions of stream"] > 1


@pytest.mark.slow
def test_a_rule_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    ended = command("--teeth", "X", "--out", str(tmp_path))
    assert ended.returncode == 1 and "called 'X', such as T31" in ended.stdout


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "name", slow_then_soak([f"{one.rule}: {one.what}" for one in TEETH], slow=2)
)
def test_a_rule_that_is_switched_off_is_caught(name: str, tmp_path: Path) -> None:
    ended = command("--teeth", name, "--out", str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
