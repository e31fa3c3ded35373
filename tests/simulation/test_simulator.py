"""The metastore keeps its promises in every simulated run of clients, crashes and restarts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from acid_platform.metastore.rules import snapshots
from tests.conftest import quick_then_slow
from tests.simulation.mutations import MUTATIONS, Faulty
from tests.simulation.simulator import SETTINGS, Failure, Simulation
from tests.simulation.storage import InDirectory
from tests.simulation.travellers import Traveller
from tests.simulation.visitors import Admin

STEPS = 1500


@pytest.mark.parametrize("first", quick_then_slow((1, 11, 21, 31), 1))
def test_P3_every_invariant_holds_after_every_step(first: int) -> None:
    """Snapshots, commits, locks, write ids, cleaning and replay: see model.py and checks.py."""
    for seed in range(first, first + 10):
        Simulation(seed).run(STEPS)


def test_P10_a_process_that_could_not_follow_reads_the_log_anew_before_it_leads() -> None:
    Simulation(3091).run(STEPS)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(4))
def test_P3_a_million_steps(part: int) -> None:
    steps = 0
    for seed in range(1000 * (part + 1), 1000 * (part + 1) + 170):
        simulation = Simulation(seed)
        simulation.run(STEPS)
        steps += simulation.steps
    assert steps >= 250_000


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_P3_long_runs() -> None:
    """Long runs have more history: purges, forgotten write ids, many snapshots."""
    for seed in range(1, 6):
        Simulation(seed).run(12_000)


def _with_the_file(seed: int, steps: int) -> None:
    with TemporaryDirectory() as directory:
        place = InDirectory(Path(directory))
        try:
            Simulation(seed, lambda: place).run(steps)
        finally:
            place.close()


def test_P3_the_same_with_the_real_file() -> None:
    _with_the_file(1, 300)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(2, 8))
def test_P3_the_same_with_the_real_file_at_length(seed: int) -> None:
    _with_the_file(seed, STEPS)


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = Simulation(7), Simulation(7)
    one.run(600)
    other.run(600)
    assert one.trace == other.trace and one.counts == other.counts
    assert Simulation(8).settings is not one.settings


def test_a_failure_names_its_seed_and_step_and_is_reproducible() -> None:
    mutation = next(
        listed for listed in MUTATIONS if listed.what == "a commit without the conflict check"
    )
    with mutation.applied():
        failures = []
        for _ in range(2):
            for seed in range(1, 41):
                try:
                    Simulation(seed).run(STEPS)
                except Failure as failure:
                    failures.append(str(failure))
                    break
    first, second = failures
    assert first == second and "make lab-sim SEED=" in first and "last steps:" in first


@pytest.mark.slow
def test_everything_happens() -> None:
    """A simulator that never does something can't find a fault in it."""
    seen: Counter[str] = Counter()
    for seed in range(1, 41):
        simulation = Simulation(seed)
        simulation.run(700)
        seen += simulation.counts + simulation.model.row_conflicts
    for what in (
        "begin",
        "open_batch",
        "lock",
        "allocate_many",
        "valid_write_ids",
        "commit",
        "abort",
        "abort_many",
        "heartbeat",
        "heartbeat_one",
        "heartbeat_lock",
        "lock_alone",
        "unlock",
        "drop",
        "create_table",
        "add_partitions",
        "table",
        "partitions",
        "alter_table",
        "alter_table: DeclarationChanged",
        "lock: DeclarationChanged",
        "table: NoSuchTable",
        "begin_compaction",
        "commit_compaction",
        "fail_compaction",
        "revoke_workers",
        "cleaning compaction",
        "cleaning abort",
        "tag",
        "drop_tag",
        "past read",
        "past: read",
        "past: NotEnoughHistory",
        "past: NoSuchPast",
        "skewed",
        "not skewed",
        "cleaning drop",
        "mark_cleaned",
        "removed",
        "late",
        "read",
        "snapshot",
        "snapshot adopted",
        "lost",
        "outcome done",
        "outcome unseen",
        "outcome waiting",
        "before writing",
        "before answering",
        "failed write",
        "before a snapshot",
        "after a snapshot",
        "idle",
        "manifest",
        "manifest of an ended transaction",
        "manifest after a cleaning",
        "conflicts",
        "spared",
        "take-over",
        "misled",
        "refused",
        "replaced and away",
        "followed",
        "could not follow",
        "the log can't be reached: lost",
        "the log can't be reached: answer",
        "the log can't be reached: late",
        "arrived late",
    ):
        assert seen[what] >= 5, f"{what}: {seen[what]}"


@pytest.mark.slow
def test_P46_other_engines_and_compactions_meet() -> None:
    """Every fifth run has other engines; no output of a compaction comes into sight of theirs."""
    seen: Counter[str] = Counter()
    for seed in range(4, 84, 5):
        simulation = Simulation(seed)
        simulation.run(STEPS)
        seen += simulation.counts
    for what in (
        "request_publication",
        "request_publication: LockTimeout",
        "output removed",
        "end_publication",
        "other engines wait",
    ):
        assert seen[what] >= 5, f"{what}: {seen[what]}"


@pytest.mark.more
def test_P36_a_history_that_was_ended_is_that_of_its_partition_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Traveller, "ends", True)
    seen: Counter[str] = Counter()
    for seed in (6, 15, 18, 21):
        simulation = Simulation(seed)
        simulation.run(1500)
        seen += simulation.counts
    for what in ("history ended: True", "past ended", "past read"):
        assert seen[what] >= 3, f"{what}: {seen[what]}"


@pytest.mark.slow
def test_P36_a_history_that_ends_for_every_partition_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Traveller, "ends", True)
    what = "the history of one partition ends for all"
    everywhere = Faulty(
        "P36",
        what,
        snapshots.history_ended,
        lambda _real, table, _partition: max((end for end, _ in table.ended.values()), default=0),
    )
    with everywhere.applied(), pytest.raises(Failure):
        for seed in range(60):
            Simulation(seed).run(1500)


@pytest.mark.more
def test_P83_tables_come_back_as_they_were_in_every_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admin, "undrops", True)
    monkeypatch.setitem(SETTINGS, "acid.history.retention", "20s")
    seen: Counter[str] = Counter()
    for seed in (3, 6, 8, 9, 12, 18):
        simulation = Simulation(seed)
        simulation.run(1500)
        seen += simulation.counts
    for what in ("undrop: back", "undrop: InvalidDefinition", "undrop: TableExists"):
        assert seen[what] >= 5, f"{what}: {seen[what]}"


@pytest.mark.more
def test_P39_a_reader_of_changes_finds_what_each_commit_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Traveller, "follows", True)
    seen: Counter[str] = Counter()
    for seed in (6, 15, 18):
        simulation = Simulation(seed)
        simulation.run(1500)
        seen += simulation.counts
    for what in ("changes: read", "changes: NotEnoughHistory", "changes: NoSuchPast"):
        assert seen[what] >= 3, f"{what}: {seen[what]}"


@pytest.mark.slow
def test_P39_a_reader_of_changes_that_holds_nothing_in_between_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Traveller, "follows", True)
    what = "a reader of changes does not hold what lies between"
    broken = Faulty("P39", what, snapshots._onward, lambda _real, _state, _table, moment: moment)
    with broken.applied(), pytest.raises(Failure):
        for seed in range(27, 87):
            Simulation(seed).run(1500)
