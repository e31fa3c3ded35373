"""A metastore that archives its journal (P40): real processes, kills, fail-overs, commands."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from acid_platform.cli.main import main
from acid_platform.metastore import Metastore, address
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.server.archive import Archive, batches
from acid_platform.metastore.server.coverage import Part, chains
from acid_platform.metastore.server.journal import Record
from acid_platform.metastore.server.point_in_time import Until, rebuild
from tests.metastore.processes import until
from tests.metastore.replicated import KEY, Member, both
from tests.metastore.test_archive import every_row


def _archiving(client: Metastore, where: Path) -> None:
    for name, value in (
        ("acid.metastore.archive", str(where)),
        ("acid.metastore.archive.interval", "0.1s"),
        ("acid.metastore.fold.transactions", "5"),
        ("acid.metastore.fold.interval", "0.3s"),
    ):
        client.set(name, value)


def _archived(client: Metastore) -> bool:
    status = client.status()
    assert not status["archive_error"]
    last = client.query("SELECT value FROM meta WHERE key = 'log_seq'")[1][0][0]
    return bool(status["archived_event"] == int(last) and not status["unarchived_segments"])


def _commit(client: Metastore) -> None:
    with client.begin():
        pass


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_P40_no_event_is_missing_after_kills(
    tmp_path: Path, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(address.KEY, KEY)
    member, where = Member(tmp_path / "m").start(), tmp_path / "archive"
    try:
        with member.local() as client:
            _archiving(client, where)
            until(lambda: _archived(client))
        for _ in range(kills):
            with Metastore.connect(member.uri) as client:
                began = time.monotonic()
                while time.monotonic() - began < 0.3:
                    _commit(client)
            member.kill()
            member.start()
        with member.local() as client:
            client.create_database("last")
            until(lambda: _archived(client))
            client.backup(tmp_path / "now.duckdb")
        (_chain,) = chains(Archive(str(where)).items())  # a gap would have made a second backup
        rebuild(Archive(str(where)), Until(), tmp_path / "restored.duckdb")
        assert every_row(tmp_path / "restored.duckdb") == every_row(tmp_path / "now.duckdb")
    finally:
        member.kill()


def test_P40_an_archive_that_is_away_loses_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(address.KEY, KEY)
    where, held = tmp_path / "mount" / "archive", tmp_path / "mount"
    held.write_text("not mounted")
    member = Member(tmp_path / "m").start()
    try:
        with member.local() as client:
            _archiving(client, where)
            until(lambda: client.status()["archive_error"])
            for _ in range(12):
                _commit(client)
            client.query("SELECT 1")  # folds
            assert client.status()["unarchived_segments"] > 0
            held.unlink()
            until(lambda: not client.status()["archive_error"], 20)
            until(lambda: _archived(client))
            client.backup(tmp_path / "now.duckdb")
        (_chain,) = chains(Archive(str(where)).items())
        rebuild(Archive(str(where)), Until(), tmp_path / "restored.duckdb")
        assert every_row(tmp_path / "restored.duckdb") == every_row(tmp_path / "now.duckdb")
    finally:
        member.kill()


def _read(where: Path, part: Part) -> list[Record]:
    return batches(part.item, Archive(str(where)).read(part.item))


@pytest.mark.slow
def test_P40_a_promoted_standby_goes_on_with_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with what its primary had not archived before it died."""
    monkeypatch.setenv(address.KEY, KEY)
    first, second = Member(tmp_path / "first").start(), Member(tmp_path / "second")
    where = tmp_path / "archive"
    try:
        with first.local() as client:
            _archiving(client, where)
            until(lambda: _archived(client))
        second.follow(first)
        until(second.is_synchronous)
        with first.local() as client:  # nothing is sealed before the promotion
            for name in ("archive.interval", "fold.interval"):
                client.set(f"acid.metastore.{name}", "1h")
            client.set("acid.metastore.fold.transactions", "1000000")
        (path,) = where.iterdir()
        path.rename(tmp_path / "away")  # the primary can't archive any more
        path.write_text("")
        with Metastore.connect(both(first, second)) as client:
            for number in range(12):
                client.create_database(f"d{number}")
                _commit(client)
            time.sleep(0.5)
            first.kill()
            path.unlink()
            (tmp_path / "away").rename(path)
            client.create_database("after")
        with second.local() as local:
            _archiving(local, where)
            until(lambda: _archived(local), 20)
            local.backup(tmp_path / "now.duckdb")
        (chain,) = chains(Archive(str(where)).items())
        assert {part.item.term for part in chain.parts} == {0, 1}
        old = [
            record for part in chain.parts if not part.item.term for record in _read(where, part)
        ]
        assert any('"d11"' in record.text for record in old), "it belongs to the old term"
        rebuild(Archive(str(where)), Until(), tmp_path / "restored.duckdb")
        assert every_row(tmp_path / "restored.duckdb") == every_row(tmp_path / "now.duckdb")
    finally:
        for member in (first, second):
            member.kill()


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
        _archiving(client, where)
        client.create_database("early")
        until(lambda: _archived(client))
        early = client.status()["archived_event"]
        client.create_database("late")
        until(lambda: _archived(client))
    (shown,) = json.loads(acid("archive", "--json").stdout)
    assert shown["events"].endswith(f"-{early + 1}") or int(shown["events"].split("-")[1]) > early
    assert acid("stop").exit_code == 0
    assert "name a backup FILE, or --archive DIR and --until" in acid("restore").stderr
    assert "--until" in acid("restore", "--archive", str(where)).stderr
    both_given = ("restore", "--archive", str(where), "--until", str(early))
    file = tmp_path / "then.duckdb"
    assert acid(*both_given, "--to", str(file)).exit_code == 0 and file.exists()
    assert "holds a metastore already" in acid(*both_given).stderr
    monkeypatch.chdir(tmp_path)
    done = acid("restore", "--archive", "archive", "--until", str(early), "--replace")
    assert done.exit_code == 0 and f"up to event {early}," in done.stdout, done.stderr
    with Metastore.connect(home.path) as client:
        assert client.databases() == ["default", "early"]
        # The events differ from here on, so they are archived apart from those of before.
        until(lambda: _archived(client), 20)
        assert len({item.history for item in Archive(str(where)).items()}) == 2
        client.stop()
