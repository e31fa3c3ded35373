"""What a primary tells its standby, and when it relies on it (P10), without processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from acid_platform.base.config import Settings
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.operations import read_answer
from acid_platform.metastore.operations.replication import Follow, Followed
from acid_platform.metastore.server import journal_shipping as module
from acid_platform.metastore.server.journal import Record
from acid_platform.metastore.server.journal_shipping import Replication
from acid_platform.metastore.server.membership import Membership


class Pair:
    """A primary's replication, and what its standby has."""

    def __init__(self, directory: Path) -> None:
        home = Home(directory)
        home.prepare()
        self.primary = Replication(home, Membership(), lambda: Settings({}), [])
        self.last = self.after = self.number = 0
        self.synchronous = False

    def commit(self, text: str = "[]") -> None:
        self.last += 1
        self.primary.written(Record(self.last, self.last, text))

    def ask(self) -> None:
        """The standby's request arrives; everything that it had been sent is durable there."""
        asked = Follow("second", "host:1", 0, self.after, self.synchronous, self.number)
        assert self.primary.follow("request", asked, self.last) is None

    def answer(self) -> Followed:
        """The primary answers, and the standby makes it durable."""
        [reply] = self.primary.answers(self.last)
        answer = read_answer(Follow, reply.value["value"])
        assert isinstance(answer, Followed)
        if answer.batches:
            assert answer.batches[0].first == self.after + 1
            self.after = answer.batches[-1].last
        self.synchronous, self.number = answer.synchronous, answer.number
        return answer


def test_P10_a_standby_becomes_synchronous_although_commits_never_pause(tmp_path: Path) -> None:
    """Whenever its request arrives, there is one more commit that it lacks."""
    pair = Pair(tmp_path)
    for _ in range(4):
        pair.commit()
        pair.ask()
        assert pair.after < pair.last
        pair.commit()
        pair.answer()
    assert pair.synchronous
    assert pair.primary.membership.synchronous
    pair.commit()
    assert not pair.primary.has(pair.last), "it is acknowledged once the standby has it"
    pair.ask()
    pair.answer()
    pair.ask()
    assert pair.primary.has(pair.last)
    assert pair.primary.leads()


def test_P10_a_standby_that_lacks_much_does_not_stop_the_commits(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.commit(" " * (module._SOON_BYTES + 1))
    pair.ask()
    assert not pair.primary.membership.synchronous
    assert pair.primary.has(pair.last)
    pair.answer()
    pair.ask()
    assert pair.primary.membership.synchronous


def test_P10_a_standby_is_told_to_be_synchronous_only_with_everything_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it could be promoted without it."""
    monkeypatch.setattr(module, "_MOST_BYTES", 10)
    pair = Pair(tmp_path)
    for _ in range(3):
        pair.commit(" " * 10)
    pair.ask()
    assert pair.primary.membership.synchronous
    for lacks in (2, 1):
        assert not pair.answer().synchronous
        assert pair.last - pair.after == lacks
        pair.ask()
        assert not pair.primary.has(pair.last)
    assert pair.answer().synchronous
    assert pair.after == pair.last
    pair.commit()  # it stays so, whatever it lacks later
    pair.commit()
    pair.ask()
    monkeypatch.setattr(module, "_MOST_BYTES", 1)
    assert pair.answer().synchronous
