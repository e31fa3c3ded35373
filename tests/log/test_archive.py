"""An archive of the log, and restoring to a moment (P40)."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import duckdb
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acid_platform import BackupRefused, MetastoreDamaged
from acid_platform.cli.main import main
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.log.contract import Batch, PositionTaken
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.log.objects import ObjectLog, logs_below
from acid_platform.metastore.server import stored_kinds as schema
from acid_platform.metastore.server.leading import Archiver
from acid_platform.metastore.server.restore import Until, rebuild, window_of
from acid_platform.metastore.server.state_tables import StateFile
from acid_platform.metastore.server.store import Store, write_copy
from tests.metastore.processes import until
from tests.metastore.test_replay import Chaos, picture, prepared, steps

Dump = dict[str, list[str]]


class Killed(BaseException):
    """SIGKILL at this point: nothing that follows in the process happens."""


POINTS: tuple[tuple[Any, str], ...] = (
    (ObjectLog, "create"),
    (ObjectLog, "append_all"),
    (ObjectLog, "put_snapshot"),
    (ObjectLog, "snapshots"),
)


class Leading:
    """A local log and its archiver, without process and thread."""

    def __init__(self, root: Path) -> None:
        directory = root / "metastore"
        directory.mkdir()
        self.log = LocalLog(directory)
        self.log.create()
        self.log.open_to_append()
        self.where = f"{root}/archive/{self.log.history}"
        self.world = prepared()
        self.world.set("acid.metastore.archive", str(root / "archive"))
        self.store = Store(self.log, directory)
        self.store.load()
        self.written = 0
        self.ended: Dump = {name: [] for name in schema.KEPT}
        self.then: dict[int, tuple[dict[str, Any], Dump]] = {}
        """The state after each position, and what had ended by then."""
        self._open_archiver()

    def _open_archiver(self) -> None:
        commits: Any = SimpleNamespace(store=self.store, state=self.world.state)
        self.archiver = Archiver(commits)

    @property
    def archive(self) -> ObjectLog:
        return ObjectLog(f"file://{self.where}")

    def append(self) -> None:
        fresh = self.world.events[self.written :]
        if not fresh:
            return
        self.store.append(fresh)
        self.written = len(self.world.events)
        for name, rows in schema.ended_rows(self.world.state).items():
            earlier = set(self.ended[name])
            self.ended[name] += [text for text in map(_text, rows) if text not in earlier]
        ended = {name: sorted(rows) for name, rows in self.ended.items()}
        self.then[self.store.end.position] = picture(self.world.state, over=False), ended

    def save(self) -> None:
        self.store.save(self.world.state, 0)
        self.log.keep_after = self.archiver.archived
        self.log.release()

    def copy(self) -> None:
        self.archiver._copy(self.where, self.store.end.position)

    def crash(self, point: tuple[Any, str]) -> None:
        """Kills the archiver at this point, if it comes there, and starts it again."""
        with patch.object(*point, side_effect=Killed()):
            try:
                self.copy()
            except Killed:
                self._open_archiver()


def _text(row: object) -> str:
    return json.dumps(row, sort_keys=True)


def contents(file: Path) -> tuple[dict[str, Any], Dump]:
    opened = StateFile(file)
    ended = {
        name: sorted(map(_text, opened._read(name, columns)))
        for name, columns in schema.KEPT.items()
    }
    state = opened.state()
    opened.close()
    return picture(state, over=False), ended


def every_row(file: Path) -> Dump:
    with duckdb.connect(str(file), read_only=True) as opened:
        return {
            name: sorted(map(str, opened.execute(f'FROM "{name}"').fetchall()))
            for name in schema.EVERY
        }


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.lists(st.integers(0, 11), min_size=60, max_size=60), st.randoms())
def test_P40_restoring_to_a_position_gives_exactly_the_state_of_then(
    chosen: list[tuple[int, int, int]], works: list[int], chance: Any
) -> None:
    """Whatever the snapshots, copies and kills in between."""
    with TemporaryDirectory() as made:
        root = Path(made)
        leading = Leading(root)
        chaos = Chaos(leading.world)
        leading.append()
        for step, work in zip(chosen, works, strict=False):
            chaos.step(*step)
            leading.append()
            if work < 3:
                leading.save()
            elif work < 6:
                leading.copy()
            elif work < 10:
                leading.crash(POINTS[(step[1] + step[2]) % len(POINTS)])
        leading.copy()
        positions = sorted(leading.then)
        for position in sorted(
            {positions[0], positions[-1], *chance.sample(positions, min(4, len(positions)))}
        ):
            file = root / f"{position}.duckdb"
            try:
                rebuilt = rebuild(leading.archive, Until(position=position), file)
            except BackupRefused:
                # Saved before the archive began: it begins with that snapshot.
                assert position < window_of(leading.archive).first.position
                continue
            assert rebuilt.position == position
            assert contents(file) == leading.then[position]
        write_copy(leading.log, root / "now.duckdb")
        assert every_row(root / f"{positions[-1]}.duckdb") == every_row(root / "now.duckdb")
        leading.store.close()


# --- what is refused ------------------------------------------------------------------------------


def batch(number: int, name: str = "") -> Batch:
    """At as many seconds as its position."""
    at, name = 1000 * number, name or f"d{number}"
    events = [["database", at, {"name": name}], ["database", at, {"name": name + "x"}]]
    return Batch(number, 1, at, json.dumps(events))


class Place:
    """An archive whose batches a test chooses."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = ObjectLog(f"file://{root}/archive/{'a' * 16}")
        self.log.create()

    def put(self, low: int, high: int) -> None:
        self.log.append_all([batch(number) for number in range(low, high + 1)])

    def databases(self, text: str) -> list[str]:
        """The databases after a restore to the moment, without the default one."""
        file = self.root / "restored.duckdb"
        file.unlink(missing_ok=True)
        rebuild(self.log, Until.parse(text), file)
        with duckdb.connect(str(file), read_only=True) as opened:
            rows = opened.execute("SELECT name FROM databases ORDER BY created, name").fetchall()
        return [name for (name,) in rows if name != "default"]

    def why_not(self, text: str, kind: type[Exception] = BackupRefused) -> str:
        with pytest.raises(kind) as refused:
            self.databases(text)
        assert not (self.root / "restored.duckdb").exists()
        assert not list(self.root.glob(".*"))
        return str(refused.value)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_P40_a_time_includes_what_happened_by_then(place: Place) -> None:
    place.put(1, 2)
    place.put(3, 4)
    assert place.databases("1970-01-01 00:00:02.999") == ["d1", "d1x", "d2", "d2x"]
    assert place.databases("1970-01-01T01:00:03+01:00")[-1] == "d3x"
    assert place.databases("1970-01-01 00:00:04")[-1] == "d4x"
    assert place.databases("latest")[-1] == "d4x"
    assert place.databases("2") == ["d1", "d1x", "d2", "d2x"]
    late = place.why_not("1970-01-01 00:00:04.001")
    assert "every batch up to position 4, of 1970-01-01 00:00:04.000 UTC" in late
    assert "does not reach 1970-01-01 00:00:04.001 UTC; restore with --until latest" in late
    assert "does not reach position 5" in place.why_not("5")
    assert "nothing from 1970-01-01 00:00:00.999 UTC or before" in place.why_not(
        "1970-01-01 00:00:00.999"
    )
    assert "is no time such as" in place.why_not("yesterday")


def test_P40_a_gap_and_damage_are_refused(place: Place) -> None:
    place.put(1, 2)
    place.put(3, 3)
    place.put(4, 4)
    (segment,) = place.root.glob("archive/*/journal-*03.log")
    content = segment.read_bytes()
    segment.unlink()
    assert "lacks batch 3" in place.why_not("4", MetastoreDamaged)
    assert place.databases("2")[-1] == "d2x"
    segment.write_bytes(content.replace(b"d3x", b"d9x"))
    assert "is damaged" in place.why_not("latest", MetastoreDamaged)
    segment.write_bytes(content)
    assert place.databases("latest")[-1] == "d4x"


def test_P40_what_two_metastores_have_archived_is_not_mixed(place: Place) -> None:
    """As after a copy of a disk whose metastores have the same history."""
    place.put(1, 2)
    other = ObjectLog(place.log.where)
    place.put(3, 3)
    with pytest.raises(PositionTaken, match="another process has appended batch 3"):
        other._last, other._epoch = 2, 1
        other.append_all([batch(3, "e3"), batch(4, "e4")])


# --- real processes -------------------------------------------------------------------------------


def archiving(client: Metastore, where: str) -> None:
    for name, value in (
        ("acid.metastore.archive", where),
        ("acid.metastore.archive.interval", "0.1s"),
        ("acid.metastore.snapshot.bytes", "20000"),
    ):
        client.set(name, value)


def archived(client: Metastore) -> bool:
    status = client.status()
    assert not status["archive_error"], status["archive_error"]
    return bool(status["archived"] == status["position"])


def _only(where: str) -> ObjectLog:
    (history,) = logs_below(where)
    return ObjectLog(f"{where}/{history}")


def _same(where: str, home: Path, directory: Path) -> None:
    """What the archive restores is what the metastore has."""
    write_copy(LocalLog(home), directory / "now.duckdb")
    rebuild(_only(where), Until(), directory / "restored.duckdb")
    assert every_row(directory / "restored.duckdb") == every_row(directory / "now.duckdb")


def _kill(client: Metastore) -> None:
    os.kill(client.status()["pid"], signal.SIGKILL)


@pytest.mark.more
@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_P40_no_batch_is_missing_after_kills(tmp_path: Path, kills: int) -> None:
    home, where = tmp_path / "m", f"file://{tmp_path}/archive"
    with Metastore.connect(home) as client:
        archiving(client, where)
        until(lambda: archived(client))
        for _ in range(kills):
            began = time.monotonic()
            while time.monotonic() - began < 0.3:
                with client.begin():
                    pass
            _kill(client)
        client.create_database("last")
        until(lambda: archived(client), 20)
        _same(where, home, tmp_path)
        client.stop()


@pytest.mark.more
def test_P40_an_archive_that_is_away_loses_nothing_and_says_so(tmp_path: Path) -> None:
    home, mount = tmp_path / "m", tmp_path / "mount"
    mount.write_text("not mounted")
    where = f"file://{mount}/archive"
    with Metastore.connect(home) as client:
        archiving(client, where)
        until(lambda: client.status()["archive_error"])
        for number in range(200):
            client.create_database(f"d{number}")
        until(lambda: client.status()["snapshot"] > 0, 20)
        assert client.status()["unarchived"] > 0
        mount.unlink()
        until(lambda: not client.status()["archive_error"], 40)
        until(lambda: archived(client))
        _same(where, home, tmp_path)
        client.stop()


@pytest.mark.slow
def test_P40_the_commands_show_an_archive_and_restore_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, where = tmp_path / "warehouse", tmp_path / "archive"
    monkeypatch.setenv("ACID_WAREHOUSE", str(warehouse))
    monkeypatch.delenv("ACID_METASTORE", raising=False)

    def acid(*command: str) -> Result:
        return CliRunner().invoke(main, ["metastore", *command])

    assert acid("start").exit_code == 0
    home = Home(warehouse / "_metastore")
    assert "writes to no archive" in acid("archive").stderr
    with Metastore.connect(home.path, autostart=False) as client:
        archiving(client, str(where))
        client.create_database("early")
        until(lambda: archived(client))
        early = client.status()["archived"]
        client.create_database("late")
        until(lambda: archived(client))
    (shown,) = json.loads(acid("archive", "--json").stdout)
    assert int(shown["positions"].split("-")[1]) > early
    assert acid("stop").exit_code == 0
    assert "name a backup FILE, or --archive PLACE and --until" in acid("restore").stderr
    assert "--until" in acid("restore", "--archive", str(where)).stderr
    both_given = ("restore", "--archive", str(where), "--until", str(early))
    file = tmp_path / "then.duckdb"
    assert acid(*both_given, "--to", str(file)).exit_code == 0 and file.exists()
    assert "holds a metastore already" in acid(*both_given).stderr
    monkeypatch.chdir(tmp_path)
    restored = acid("restore", "--archive", "archive", "--until", str(early), "--replace")
    assert restored.exit_code == 0 and f"up to position {early}," in restored.stdout, (
        restored.stderr
    )
    with Metastore.connect(home.path) as client:
        assert client.databases() == ["default", "early"]
        # The batches differ from here on, so they are archived apart from those of before.
        until(lambda: archived(client), 20)
        assert len(logs_below(f"file://{where}")) == 2
        client.stop()
    again = acid("restore", "--archive", str(where), "--until", "latest", "--replace")
    assert "name one of them with --history" in again.stderr
