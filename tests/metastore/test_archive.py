"""Archived segments of the journal, and restoring to a moment (P40)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acid_platform import BackupRefused
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.server import archive as files
from acid_platform.metastore.server import archiver as module
from acid_platform.metastore.server import metastore_schema as schema
from acid_platform.metastore.server import state_rows
from acid_platform.metastore.server.archive import BASE, Archive, Item, digest, segment
from acid_platform.metastore.server.archiver import Archiver
from acid_platform.metastore.server.coverage import chains, covers, obsolete, windows
from acid_platform.metastore.server.journal import Log, Record
from acid_platform.metastore.server.membership import Membership
from acid_platform.metastore.server.point_in_time import Until, rebuild
from acid_platform.metastore.server.store import Store
from tests.metastore.test_replay import Chaos, picture, prepared, steps

Dump = dict[str, list[str]]


class Killed(BaseException):
    """SIGKILL at this point: nothing that follows in the process happens."""


POINTS: tuple[tuple[Any, str], ...] = (
    (module, "make_directory"),  # before a segment is written
    (module.os, "rename"),  # it is written, and has no name yet; or the archive's copy has none
    (Store, "fold"),  # it is sealed and not folded
    (Log, "rewind"),  # it is folded, and the log is not rewound
    (files.shutil, "copyfile"),  # it is not in the archive
    (Path, "unlink"),  # it is in the archive, and here too
)


class Primary:
    """A metastore's files and its archiver, without process and thread."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root / "metastore")
        self.home.path.mkdir()
        self.archive = Archive(str(root / "archive"))
        self.world = prepared()
        self.world.set("acid.metastore.archive", self.archive.where)
        self.term = 0
        self.written = 0
        self.ended: Dump = {name: [] for name in schema.KEPT}
        self.then: dict[int, tuple[dict[str, Any], Dump]] = {}
        """The state after each event, and what had ended by then."""
        self.open()

    def open(self) -> None:
        self.store = Store(self.home.database)
        self.store.next_epoch()
        clock: Any = SimpleNamespace(
            store=self.store,
            state=self.world.state,
            now_wall=self.world.clock.moment().wall,
        )
        part: Any = SimpleNamespace(membership=Membership(term=self.term), leads=True)
        with patch.object(Archiver, "_run", lambda _: None):
            self.archiver = Archiver(self.home, clock, part)

    def append(self) -> None:
        fresh = self.world.events[self.written :]
        if not fresh:
            return
        self.store.append(fresh)
        self.written = len(self.world.events)
        for name, rows in state_rows.ended_rows(self.world.state).items():
            known = set(self.ended[name])
            self.ended[name] += [text for text in map(_text, rows) if text not in known]
        ended = {name: sorted(rows) for name, rows in self.ended.items()}
        self.then[self.store.last] = picture(self.world.state, over=False), ended

    def fold(self) -> None:
        self.archiver.seal()
        self.store.fold(self.world.state, 0)
        state_rows.forget_ended(self.world.state)
        self.store.checkpoint()

    def ship(self) -> None:
        self.archiver._archive(self.archive, stopped=True)

    def base(self) -> None:
        """What the archiver asks its own metastore for."""
        self.fold()
        draft = self.home.path / "base.duckdb"
        shutil.copyfile(self.home.database, draft)
        moment = self.world.clock.moment().wall
        with duckdb.connect(str(draft)) as copy:
            copy.execute("DELETE FROM meta WHERE key = $1", [schema.LOG])
            copy.execute("INSERT INTO meta VALUES ($1, $2)", [schema.MADE, str(moment)])
        last, sums = self.store.last, digest([draft.read_bytes()])
        history = self.store.history_id
        self.archive.put(Item(BASE, history, self.term, 1, last, moment, sums), draft)

    def crash(self, point: tuple[Any, str], step: Any) -> None:
        """Kills the process at this point of the step, if it comes there, and starts it again."""
        with patch.object(*point, side_effect=Killed()):
            try:
                step()
            except Killed:
                pass
            else:
                return
        self.store._let_go()
        self.open()
        if not self.store.journal_length:
            # It was folded; a process that starts knows from memory only what is not.
            state_rows.forget_ended(self.world.state)


def _text(row: object) -> str:
    return json.dumps(row, sort_keys=True)


def contents(file: Path, directory: Path) -> tuple[dict[str, Any], Dump]:
    copy = directory / "looked.duckdb"
    shutil.copyfile(file, copy)
    store = Store(copy)
    state, events = store.load()
    kept = {
        name: sorted(map(_text, store._database.read(name, columns)))
        for name, columns in schema.KEPT.items()
    }
    store.close()
    copy.unlink()
    assert not events
    return picture(state, over=False), kept


def every_row(file: Path) -> Dump:
    with duckdb.connect(str(file), read_only=True) as opened:
        return {
            name: sorted(map(str, opened.execute(f'FROM "{name}"').fetchall()))
            for name in schema.EVERY
        }


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.lists(st.integers(0, 11), min_size=60, max_size=60), st.randoms())
def test_P40_restoring_to_an_event_gives_exactly_the_state_of_then(
    chosen: list[tuple[int, int, int]], works: list[int], chance: Any
) -> None:
    """Whatever the segments, backups, promotions and kills in between."""
    with TemporaryDirectory() as made:
        root = Path(made)
        primary = Primary(root)
        chaos = Chaos(primary.world)
        primary.append()
        primary.base()
        begin = primary.store.last
        for step, work in zip(chosen, works, strict=False):
            chaos.step(*step)
            primary.append()
            if work < 2:
                primary.archiver.seal()
            elif work < 4:
                primary.fold()
            elif work < 6:
                primary.ship()
            elif work == 6:
                primary.base()
            elif work == 7:
                primary.archiver.seal()
                primary.term += 1
                primary.archiver._leadership.membership = Membership(term=primary.term)
            elif work < 10:
                point = POINTS[(step[1] + step[2]) % len(POINTS)]
                primary.crash(point, chance.choice((primary.fold, primary.ship)))
        primary.fold()
        primary.ship()
        wanted = [number for number in primary.then if number >= begin]
        picked = {wanted[0], wanted[-1], *chance.sample(wanted, min(4, len(wanted)))}
        for number in sorted(picked):
            file = root / f"{number}.duckdb"
            done = rebuild(primary.archive, Until(event=number), file)
            assert done.last == number
            assert contents(file, root) == primary.then[number]
        primary.store.close()
        assert every_row(root / f"{wanted[-1]}.duckdb") == every_row(primary.home.database)


def test_P40_only_who_leads_says_that_nothing_else_happened_by_now(tmp_path: Path) -> None:
    """A standby may lack events of its primary that are older than its segment."""
    primary = Primary(tmp_path)
    primary.append()
    primary.archiver._leadership.leads = False  # type: ignore[misc]
    primary.archiver.seal()
    (item,) = primary.archiver._unarchived()
    assert item.made == primary.world.events[-1].at - 1
    primary.store.close()


# --- what is refused ----------------------------------------------------------------------------

MINE, OTHER = "a" * 16, "b" * 16


def batch(number: int, at: int, name: str = "") -> Record:
    name = name or f"d{number}"
    events = [
        ["database", at, {"name": name}],
        ["database", at, {"name": name + "x"}],
    ]
    return Record(2 * number - 1, 2 * number, json.dumps(events))


class Place:
    """An archive whose files a test writes; batch n has the events 2n-1 and 2n, at n seconds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.archive = Archive(str(root / "archive"))

    def segment(
        self, low: int, high: int, term: int = 0, history: str = MINE, name: str = ""
    ) -> Item:
        records = [batch(number, 1000 * number, name) for number in range(low, high + 1)]
        item, content = segment(history, term, 1000 * high + 500, records)
        draft = self.root / "draft"
        draft.write_bytes(content)
        self.archive.put(item, draft)
        return item

    def base(self, after: int = 0, term: int = 0, history: str = MINE) -> Item:
        """A backup with the first batches."""
        draft = self.root / "base.duckdb"
        store = Store(draft)
        from acid_platform.metastore.rules.machine import Machine

        state, _ = store.load()
        machine = Machine(state)
        for number in range(1, after + 1):
            record = batch(number, 1000 * number)
            machine.replay(store.append_batch(record))  # type: ignore[arg-type]
        store.fold(state, 0)
        store.made = 1000 * after + 1
        store.close()
        sums = digest([draft.read_bytes()])
        item = Item(BASE, history, term, 1, 2 * after, 1000 * after + 1, sums)
        self.archive.put(item, draft)
        draft.unlink()
        return item

    def path(self, item: Item) -> Path:
        return self.root / "archive" / item.history / item.name

    def databases(self, text: str, history: str = "") -> list[str]:
        """The databases after a restore to the moment, without the default one."""
        file = self.root / "restored.duckdb"
        file.unlink(missing_ok=True)
        rebuild(self.archive, Until.parse(text), file, history)
        with duckdb.connect(str(file), read_only=True) as opened:
            rows = opened.execute("SELECT name FROM databases ORDER BY created, name").fetchall()
        return [name for (name,) in rows if name != "default"]

    def why_not(self, text: str, history: str = "") -> str:
        with pytest.raises(BackupRefused) as refused:
            self.databases(text, history)
        assert not (self.root / "restored.duckdb").exists()
        assert not list(self.root.glob(".*"))
        return str(refused.value)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path)


def test_P40_a_time_includes_what_happened_by_then(place: Place) -> None:
    place.base()
    place.segment(1, 2)
    place.segment(3, 4)
    assert place.databases("1970-01-01 00:00:02.999") == ["d1", "d1x", "d2", "d2x"]
    assert place.databases("1970-01-01T01:00:03+01:00")[-1] == "d3x"
    assert place.databases("1970-01-01 00:00:04.5")[-1] == "d4x"
    assert place.databases("latest")[-1] == "d4x"
    # An event in the middle of a batch: the batch is left out, since nobody saw a part of it.
    assert place.databases("5") == place.databases("4") == ["d1", "d1x", "d2", "d2x"]
    assert place.databases("0") == []
    late = place.why_not("1970-01-01 00:00:04.501")
    assert "every event up to 1970-01-01 00:00:04.500 UTC, event 8, but not up to" in late
    assert "restore with --until 8" in late
    assert "but not up to event 9" in place.why_not("9")
    assert "no backup from 1969-12-31 23:00:00.000 UTC or before" in place.why_not(
        "1969-12-31 23:00"
    )
    assert "is no time such as" in place.why_not("yesterday")


def test_P40_a_backup_alone_does_not_tell_that_nothing_happened_since(place: Place) -> None:
    made = place.base(after=2)
    assert "every event up to event 4, but not up to" in place.why_not("1970-01-01 00:00:02.001")
    assert place.databases("latest") == place.databases("4") == ["d1", "d1x", "d2", "d2x"]
    place.segment(2, 2)  # sealed at 2.5 s, before anything else happened
    assert place.databases("1970-01-01 00:00:02.5")[-1] == "d2x"
    assert windows(place.archive.items())[0].begin == made.made


def test_P40_an_archive_may_be_in_an_object_store(place: Place) -> None:
    place.archive = Archive("mock:///bucket/prefix")  # Arrow's file system in memory
    assert place.archive.items() == []
    place.archive._system.create_dir(f"bucket/prefix/{MINE}")
    place.base()
    first = place.segment(1, 2)
    place.segment(3, 3)
    assert place.databases("latest")[-1] == "d3x"
    place.archive.remove(first)
    assert "events 1 to 4 are missing" in place.why_not("latest")
    with pytest.raises(BackupRefused, match="can't be used"):
        Archive("nothing://bucket/prefix")
    with pytest.raises(BackupRefused, match="must be an absolute path or a URI"):
        Archive("archive")


def test_P40_a_gap_is_refused_with_what_is_missing(place: Place) -> None:
    place.base()
    place.segment(1, 2)
    gone = place.segment(3, 3)
    place.segment(4, 5)
    kept = place.path(gone).read_bytes()
    place.path(gone).unlink()
    assert place.databases("4")[-1] == "d2x"
    for text in ("8", "latest", "1970-01-01 00:00:05"):
        why = place.why_not(text)
        assert "events 5 to 6 are missing" in why and "restore with --until 4" in why
    place.base(after=4)  # goes on after the gap
    assert place.databases("latest")[-1] == "d5x"
    assert "events 5 to 6 are missing" in place.why_not("7")
    first, second = windows(place.archive.items())
    assert (first.last, second.first, second.last) == (4, 8, 10)
    place.path(gone).write_bytes(kept)
    assert place.databases("6")[-1] == "d3x"


@pytest.mark.parametrize("damage", ["flip", "cut", "renamed", "replaced", "moved"])
def test_P40_a_damaged_segment_is_refused(place: Place, damage: str) -> None:
    place.base()
    item = place.segment(1, 2)
    path = place.path(item)
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(content[:-3])
    elif damage == "renamed":
        other = Item("segment", MINE, 0, 3, 4, item.made, item.digest)
        path.rename(place.path(other))
        place.segment(1, 1)
    elif damage == "replaced":  # by another segment of the same events
        records = [batch(number, 1000 * number, "other") for number in (1, 2)]
        path.write_bytes(segment(MINE, 0, item.made, records)[1])
    else:  # into the directory of another history
        place.base(history=OTHER)
        path.rename(path.parent.parent / OTHER / path.name)
    history = OTHER if damage == "moved" else MINE
    why = place.why_not("latest", history)
    assert f"the segment {history}/" in why and "damaged" in why


def test_P40_a_damaged_backup_is_refused_until_it_is_removed(place: Place) -> None:
    place.base()
    place.segment(1, 3)
    newer = place.base(after=2)
    content = bytearray(place.path(newer).read_bytes())
    content[5000] ^= 1
    place.path(newer).write_bytes(content)
    assert "is damaged: its checksum is wrong" in place.why_not("latest")
    place.path(newer).unlink()
    assert place.databases("latest")[-1] == "d3x"


def test_P40_two_versions_of_an_event_are_refused(place: Place) -> None:
    place.base()
    place.segment(1, 2)
    place.segment(1, 3)  # sealed again after a crash: the same events
    assert place.databases("latest")[-1] == "d3x"
    place.segment(2, 4, name="other")
    assert "two versions of event 3" in place.why_not("latest")
    assert place.databases("2") == ["d1", "d1x"]


def test_P40_after_a_promotion_the_events_of_the_new_term_count(place: Place) -> None:
    place.base()
    place.segment(1, 4, name="lost")
    place.segment(1, 2)
    with pytest.raises(BackupRefused, match="two versions"):
        place.databases("latest")
    shutil.rmtree(place.root / "archive")
    place.base()
    place.segment(1, 2)
    place.segment(3, 5, name="lost")  # acknowledged by nobody, or given up with --incomplete
    place.base(after=4)  # of lost events
    place.segment(3, 4, term=1)
    place.segment(5, 6, term=2)
    assert place.databases("latest")[4:] == ["d3", "d3x", "d4", "d4x", "d5", "d5x", "d6", "d6x"]
    assert place.databases("1970-01-01 00:00:03")[-1] == "d3x"


def test_P40_several_histories_are_not_guessed(place: Place) -> None:
    place.base()
    place.segment(1, 2)
    place.base(history=OTHER)
    place.segment(1, 1, history=OTHER, name="other")
    why = place.why_not("latest")
    assert MINE in why and OTHER in why and "--history" in why
    assert place.databases("latest", OTHER) == ["other", "otherx"]
    assert place.databases("4")[-1] == "d2x"  # only one has it
    assert f"has no history {'c' * 16}" in place.why_not("latest", "c" * 16)


def test_P40_the_retention_keeps_what_a_restore_needs(place: Place) -> None:
    old, middle, new = place.base(), place.base(after=4), place.base(after=8)
    parts = [place.segment(low, low + 1) for low in range(1, 10, 2)]
    items = place.archive.items()
    assert set(obsolete(items, 0)) == set()
    assert {item.name for item in obsolete(items, middle.made)} == {
        item.name for item in (old, *parts[:2])
    }
    assert {item.name for item in obsolete(items, new.made + 1)} == {
        item.name for item in (old, middle, *parts[:4])
    }
    for item in obsolete(items, middle.made):
        place.archive.remove(item)
    assert [chain.last for chain in chains(place.archive.items())] == [20, 20]
    assert place.databases("latest")[-1] == "d10x" and place.databases("10")[-1] == "d5x"
    assert covers(place.archive.items(), parts[2]) and not covers(place.archive.items(), parts[0])
