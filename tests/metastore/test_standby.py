"""A standby follows the journal and takes the primary's place (P10): real processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from acid_platform import (
    MetastoreIncompatible,
    MetastoreUnavailable,
    OutcomeUnknown,
    StandbyRefused,
)
from acid_platform.cli.main import main
from acid_platform.metastore import Metastore, address
from acid_platform.metastore.client import start
from acid_platform.metastore.endpoint import Home, take_lock
from acid_platform.metastore.operations.replication import ForgetStandby, Promote
from acid_platform.metastore.operations.tables import GetDatabases
from acid_platform.metastore.rules.turn import Reply
from acid_platform.metastore.server import seeding
from acid_platform.metastore.server.group_commit import Request
from acid_platform.metastore.server.membership import Membership
from acid_platform.metastore.server.seeding import make_standby, require_made
from acid_platform.metastore.server.server import Server
from tests.metastore.processes import until
from tests.metastore.replicated import KEY, LEASE, Member, both


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Member]]:
    """A running primary, and a second one that is not made yet."""
    monkeypatch.setenv(address.KEY, KEY)
    made = [Member(tmp_path / name) for name in ("first", "second")]
    made[0].start()
    with made[0].local() as client:
        client.set("acid.metastore.standby.lease", LEASE)
    yield made
    for member in made:
        member.kill()


@pytest.fixture
def pair(members: list[Member]) -> tuple[Member, Member]:
    """A primary and its synchronous standby."""
    first, second = members
    second.follow(first)
    until(second.is_synchronous)
    return first, second


def _commit(client: Metastore) -> int:
    with client.begin() as transaction:
        return transaction.id


def test_P10_a_standby_takes_over_with_every_acknowledged_commit(
    pair: tuple[Member, Member],
) -> None:
    first, second = pair
    with Metastore.connect(both(first, second)) as client:
        done = [_commit(client) for _ in range(5)]
        client.create_database("kept")
        first.kill()
        after = _commit(client)
        assert after == done[-1] + 1
        assert "kept" in client.databases()
        assert all(client.outcome(txn)["state"] == "c" for txn in done)
    status = second.status()
    assert (status["role"], status["term"], status["synchronous"]) == ("primary", 1, False)


@pytest.mark.slow
def test_P10_an_open_transaction_goes_on_at_the_standby(pair: tuple[Member, Member]) -> None:
    first, second = pair
    with Metastore.connect(both(first, second)) as client:
        with client.begin() as transaction:
            first.kill()
            until(second.is_primary)
        assert client.outcome(transaction.id)["state"] == "c"


@pytest.mark.slow
def test_P10_an_old_primary_answers_nothing_after_its_standby_was_promoted(
    pair: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "START_SECONDS", 2)
    first, second = pair
    with Metastore.connect(first.uri) as client, first.local() as local:
        first.pause()
        until(second.is_primary)
        first.resume()
        with pytest.raises(MetastoreUnavailable, match="waits for its standby"):
            client.databases()
        with pytest.raises(MetastoreUnavailable, match=r"acid metastore standby --of ADDRESS"):
            local.create_database("lost")
    with pytest.raises(MetastoreUnavailable, match="waits for its standby"):
        Metastore.connect(first.uri)
    first.kill()
    first.start()  # it remembers that it may not go on alone
    with first.local() as local, pytest.raises(MetastoreUnavailable, match="standby"):
        local.create_database("lost")
    first.kill()
    with take_lock(first.home), pytest.raises(StandbyRefused, match="--replace"):
        make_standby(first.home, second.uri)
    first.follow(second, replace=True)
    until(first.is_synchronous)
    assert list(first.home.path.glob("replaced-*.duckdb"))
    with Metastore.connect(both(first, second)) as client:
        assert client.databases() == ["default"]
        second.kill()
        _commit(client)
    assert first.status()["term"] == 2


def test_P10_a_commit_that_the_standby_lacks_is_not_acknowledged(
    pair: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "START_SECONDS", 2)
    first, second = pair
    with Metastore.connect(first.uri) as client:
        second.pause()
        with pytest.raises((OutcomeUnknown, MetastoreUnavailable)):
            client.create_database("unsaid")
        second.resume()
        until(lambda: _answers(first))
        assert "unsaid" in client.databases()


def test_P10_a_standby_that_was_away_catches_up(pair: tuple[Member, Member]) -> None:
    first, second = pair
    second.kill()
    second.start()
    until(lambda: second.status()["standby_lacks"] == 0 and first.is_synchronous())
    with Metastore.connect(both(first, second)) as client:
        _commit(client)
        first.kill()
        _commit(client)


@pytest.mark.slow
def test_P10_a_standby_that_lacks_too_much_is_made_anew(
    members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = members
    with Metastore.connect(first.uri) as client:
        client.set("acid.metastore.standby.synchronous", "false")
        second.follow(first)
        until(lambda: first.status()["standby"])
        second.kill()
        client.create_database("meanwhile")
        client.query("SELECT 1")  # folds
        client.stop()
        first.start()
        second.start()
        client.set("acid.metastore.standby.synchronous", "true")
        until(second.is_synchronous)
        first.kill()
        until(second.is_primary)
    with Metastore.connect(second.uri) as client:
        assert "meanwhile" in client.databases()
    assert not list(second.home.path.glob("replaced-*"))


@pytest.mark.slow
def test_P10_an_asynchronous_standby_is_promoted_only_by_command(members: list[Member]) -> None:
    first, second = members
    with first.local() as client:
        client.set("acid.metastore.standby.synchronous", "false")
    second.follow(first)
    until(lambda: first.status()["standby"])
    with second.local() as standby:
        with pytest.raises(StandbyRefused, match="asynchronous"):
            standby.call(Promote(False))
        with pytest.raises(StandbyRefused, match="stop it first"):
            standby.call(Promote(True))
        with pytest.raises(MetastoreUnavailable, match="this is the standby of"):
            standby.databases()
        first.kill()
        time.sleep(4)
        assert not second.is_primary()
        with pytest.raises(StandbyRefused, match="--incomplete"):
            standby.call(Promote(False))
        assert standby.call(Promote(True)) == 1
        _commit(standby)
        with pytest.raises(StandbyRefused, match="already"):
            standby.call(Promote(False))


def test_P10_a_change_to_asynchronous_ends_the_wait_for_the_standby(
    pair: tuple[Member, Member],
) -> None:
    first, second = pair
    with first.local() as client:
        client.set("acid.metastore.standby.synchronous", "false")
        until(lambda: not first.is_synchronous())
        assert not Membership.read(second.home).synchronous
        second.kill()
        _commit(client)
        first.kill()
        first.start()
        _commit(client)


@pytest.mark.slow
def test_P10_a_manual_standby_waits_for_the_command(members: list[Member]) -> None:
    first, second = members
    second.follow(first, automatic=False)
    until(second.is_synchronous)
    first.kill()
    time.sleep(4)
    assert not second.is_primary()
    with second.local() as standby:
        assert standby.call(Promote(False)) == 1
        _commit(standby)


@pytest.mark.slow
def test_P10_a_primary_goes_on_without_a_standby_that_is_forgotten(
    pair: tuple[Member, Member], tmp_path: Path
) -> None:
    first, second = pair
    third = Member(tmp_path / "third")
    third.follow(first)
    time.sleep(1)
    assert not third.is_synchronous()  # there is one already
    third.kill()
    with first.local() as client:
        with pytest.raises(StandbyRefused, match="is connected; stop it first"):
            client.call(ForgetStandby())
        second.kill()
        until(lambda: _forgotten(client))
        _commit(client)
        with pytest.raises(StandbyRefused, match="has no standby"):
            client.call(ForgetStandby())
    third.start()
    until(third.is_synchronous)
    third.kill()


def _answers(member: Member) -> bool:
    try:
        Metastore.connect(member.uri).close()
    except MetastoreUnavailable:
        return False
    return True


def _forgotten(client: Metastore) -> bool:
    try:
        return bool(client.call(ForgetStandby()))
    except StandbyRefused:
        return False


def test_P10_a_primary_that_was_suspended_in_a_round_sends_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, sent, leads = Home(tmp_path / "metastore"), list[Reply](), iter([True])
    home.prepare()
    with take_lock(home):
        server = Server(home)
        part = server.leadership
        monkeypatch.setattr(part._replication, "leads", lambda: next(leads, False))
        monkeypatch.setattr(server.reception, "send", sent.extend)
        part.round([Request("asked", GetDatabases())], due=False)
        server._close()
    assert not sent and [reply.request_id for reply in part._unsent] == ["asked"]


@pytest.mark.slow
def test_P10_members_of_a_replication_must_listen(pair: tuple[Member, Member]) -> None:
    for member in pair:
        member.kill()
        with (
            take_lock(member.home),
            pytest.raises(MetastoreIncompatible, match="start --listen HOST:PORT"),
        ):
            Server(member.home)


def test_P10_clients_refuse_an_address_that_is_no_primary(pair: tuple[Member, Member]) -> None:
    _, second = pair
    with pytest.raises(MetastoreUnavailable, match="is a standby"):
        Metastore.connect(second.uri)


def test_P10_an_interrupted_making_of_a_standby_is_not_served(
    pair: tuple[Member, Member], tmp_path: Path
) -> None:
    first, _ = pair
    home = Home(tmp_path / "third")
    home.prepare()
    Membership("standby", 0, first.uri, "third").write(home)
    with pytest.raises(MetastoreUnavailable, match="was interrupted; run `acid metastore standby"):
        require_made(home)


def test_P10_the_commands_make_promote_and_restart_a_standby(
    members: list[Member], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = members
    monkeypatch.setenv("ACID_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("ACID_METASTORE", str(second.home.path))

    def acid(*command: str) -> Result:
        return CliRunner().invoke(main, ["metastore", *command])

    nothing = acid("standby", "--listen", second.address)
    assert "is no standby; name its primary with --of" in nothing.stderr
    made = acid("standby", "--of", first.uri, "--listen", second.address, "--manual")
    assert made.exit_code == 0 and f"of {first.uri} runs as process" in made.stdout
    try:
        until(second.is_synchronous)
        assert acid("stop").exit_code == 0
        assert "is a standby" not in acid("standby", "--listen", second.address).stderr
        assert "stop it first" in acid("promote").stderr
        first.kill()
        until(lambda: acid("promote").exit_code == 0)
        status = acid("status").stdout
        assert "primary" in status and "term" in status
    finally:
        acid("stop")


@pytest.mark.parametrize("at", ["write", "put_aside"])
def test_P10_an_old_primary_that_became_a_standby_in_part_is_not_served(
    members: list[Member], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: str
) -> None:
    """Its own events may differ from the new primary's under the same numbers."""
    first, _ = members
    home = Home(tmp_path / "old")
    home.prepare()

    def crash(*_: object) -> str:
        raise OSError("killed")

    with take_lock(home):
        Server(home)._close()
        with monkeypatch.context() as killed, pytest.raises(OSError, match="killed"):
            place = Membership if at == "write" else seeding
            killed.setattr(place, at, crash)
            make_standby(home, first.uri, replace_it=True)
        with pytest.raises((MetastoreUnavailable, MetastoreIncompatible), match="interrupted"):
            require_made(home)
            Server(home)
        make_standby(home, first.uri, replace_it=True)
        assert require_made(home).role == "standby"
