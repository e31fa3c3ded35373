"""Processes that share a log: the leader is killed, suspended and stopped under writers (P10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from acid_platform import MetastoreUnavailable
from acid_platform.metastore import Metastore, address
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
    with serving(log) as where:
        outcome = run(where, tmp_path, kills=3, stops=2)
    assert outcome.acknowledged > 50 and not outcome.wrong, outcome
    assert max(outcome.pauses) < 15, outcome  # on a busy machine


def test_P10_a_leader_that_is_stopped_hands_over_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients find the next one by the log, or by a list of addresses and a key."""
    monkeypatch.setenv(address.KEY, "0123456789abcdef-the-key")
    with serving("s3") as where, Members(where, tmp_path, 2) as members:
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
