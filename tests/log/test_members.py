"""Processes that share a log: the leader is killed, suspended and stopped under writers (P10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from acid_platform import MetastoreDamaged, MetastoreRefused, MetastoreUnavailable
from acid_platform.metastore import endpoint
from acid_platform.metastore.certificates import make_certificate
from acid_platform.metastore.client.link import Link
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.target import Elected, Remote
from acid_platform.metastore.log.contract import Batch, Leader, snapshot_name
from acid_platform.metastore.log.objects import ObjectLog
from acid_platform.metastore.rules.turn import Recorded
from acid_platform.metastore.server.store import Store, machine_at
from acid_platform.metastore.wire import LEADER, Channel
from tests.log.leaders import run
from tests.log.members import Members
from tests.log.postgres_server import missing
from tests.log.servers import serving
from tests.metastore.processes import listens, until

LOGS = [
    pytest.param("postgres", marks=pytest.mark.skipif(bool(missing()), reason=missing() or "-")),
    "s3",
]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("log", LOGS)
def test_P10_no_commit_is_lost_or_made_twice_when_leaders_change(log: str, tmp_path: Path) -> None:
    with serving(log) as (where, server):
        outcome = run(where, tmp_path, server, kills=3, stops=2, faults=3)
    assert outcome.acknowledged > 50 and not outcome.wrong, outcome
    assert max(outcome.every_pause) < 15, outcome  # on a busy machine


@pytest.mark.more
def test_P10_a_leader_that_is_stopped_hands_over_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients find the next one by the log, or by a list of addresses and a key."""
    monkeypatch.setenv(endpoint.KEY, "0123456789abcdef-the-key")
    with serving("s3") as (where, _), Members(where, tmp_path, 2) as members:
        members.start()
        addresses = "tcp://" + ",".join(member.address for member in members.all)
        with Metastore.connect(where) as client, Metastore.connect(addresses) as other:
            client.create_database("before")
            first = members.leading()
            epoch = other.status()["epoch"]
            first.stop()
            until(lambda: members.leader() is not None and members.leading() is not first, 20)
            for each in (client, other):
                assert each.databases() == ["before", "default"]
                assert each.status()["epoch"] > epoch
                names = [name for (name,) in each.query("SELECT name FROM databases")[1]]
                assert sorted(names) == ["before", "default"]
        first.start()
        until(lambda: listens("127.0.0.1", first.port), 20)
        with pytest.raises(MetastoreUnavailable, match="stands by"):
            Metastore.connect(f"tcp://{first.address}")


def test_P10_a_start_begins_anew_if_a_snapshot_replaces_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"file://{tmp_path}/log"
    log = ObjectLog(where)
    log.create()
    log.open_to_append()
    for name in ("leader", "starting"):
        (tmp_path / name).mkdir()
    leader = Store(log, tmp_path / "leader")
    leader.load()
    leader.begin_epoch(1, 0)

    def commit(name: str) -> None:
        leader.append([Recorded.parse("database", 7, {"name": name})])

    def save() -> None:
        leader.save(machine_at(leader).state, 0)

    commit("a")
    save()
    commit("b")
    real = ObjectLog.read

    def read(log: ObjectLog, after: int) -> Iterator[Batch]:
        """The leader goes on before the first look at the batches."""
        monkeypatch.undo()
        commit("c")
        save()
        commit("d")
        return real(log, after)

    monkeypatch.setattr(ObjectLog, "read", read)
    starting = Store(ObjectLog(where), tmp_path / "starting")
    assert [*machine_at(starting).state.databases] == ["default", "a", "b", "c", "d"]
    assert starting.end.position == leader.end.position
    starting.close()
    leader.close()


def test_P10_a_client_whose_log_is_away_still_asks_for_the_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error of the log would say that nothing was done, although the leader may have done it."""

    def away(_log: ObjectLog) -> Leader | None:
        raise MetastoreUnavailable("the log can't be reached")

    target = Elected("s3://bucket/log")
    target._log = ObjectLog("file:///nowhere")
    monkeypatch.setattr(ObjectLog, "leader", away)
    assert target.replaced(1) is False


@pytest.mark.parametrize("configured", ["", "0123456789abcdef"])
def test_P10_a_leader_that_is_started_again_with_another_key_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, configured: str
) -> None:
    """Until another one leads, the log still names the address with the key of before."""
    keys = iter(["before", "before", "after"])
    monkeypatch.setenv("ACID_METASTORE_KEY", configured)
    monkeypatch.setattr(
        ObjectLog, "leader", lambda _log: Leader(1, "127.0.0.1:7433", key=next(keys))
    )
    monkeypatch.setattr(ObjectLog, "exists", property(lambda _log: True))
    leading = cast(Channel, SimpleNamespace(role=LEADER, epoch=2))

    def dial(target: Remote, _host: str, _port: int) -> Channel:
        if target.key == b"after":
            return leading
        raise MetastoreRefused("the key is wrong")

    monkeypatch.setattr(Remote, "_dial", dial)
    link = Link(Elected(f"file://{tmp_path}/log"))
    if configured:
        with pytest.raises(MetastoreRefused):
            link._connect()
    else:
        assert link._connect() is leading


def test_P10_a_new_leader_is_trusted_by_its_own_authority(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authorities = []
    for number in range(2):
        make_certificate(tmp_path / str(number), ["localhost"])
        authorities.append((tmp_path / str(number) / "ca.pem").read_text())
    leaders = [Leader(1, "127.0.0.1:7433", key="k", authority=one) for one in authorities]
    target = Elected(f"file://{tmp_path}/log")
    monkeypatch.setattr(ObjectLog, "exists", property(lambda _log: True))
    trusted = []
    for leader in leaders:
        monkeypatch.setattr(ObjectLog, "leader", lambda _log, leader=leader: leader)
        target._look()
        assert target.tls is not None
        trusted.append(target.tls.get_ca_certs(binary_form=True))
    assert trusted[0] != trusted[1]


def test_P3_a_snapshot_that_is_listed_and_gone_is_named(tmp_path: Path) -> None:
    log = ObjectLog(f"file://{tmp_path}/log")
    log.create()
    (tmp_path / "log" / snapshot_name(7)).symlink_to(tmp_path / "nothing")
    with pytest.raises(MetastoreDamaged, match="lists a snapshot at 7"):
        Store(log, tmp_path).open_newest()
