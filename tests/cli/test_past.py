"""`acid tag`, `acid diff`, `acid rollback` and `acid show retained` (P36)."""

from __future__ import annotations

import json

import pytest

from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.pasts import SinkBatch
from tests.cli.small import Small


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACID_ENGINE", "local")


@pytest.mark.more
def test_P36_the_past_on_the_command_line(small: Small) -> None:
    assert small.acid("tag", "db.t").stdout == "no tags\n"
    [made] = json.loads(small.acid("tag", "db.t", "A b", "--days", "3", "--json").stdout)
    assert (made["tag"], made["write_id"]) == ("A b", 1)
    assert made["expires"] > made["created"]
    assert small.acid("sql", "DELETE FROM db.t WHERE id = 2").exit_code == 0
    found = json.loads(small.acid("diff", "db.t", "A b", "--json").stdout)
    assert (found["added"], found["removed"]) == (0, 1)
    assert found["rows"] == [{"change": "-", "id": 2, "v": "B", "times": 1}]
    shown = small.acid("diff", "db.t", "1", "now").stdout
    assert "0 rows added, 1 removed" in shown and "B" in shown
    [kept] = json.loads(small.acid("show", "retained", "--json").stdout)
    assert (kept["table"], kept["tags"], kept["write_id"]) == ("db.t", ["A b"], 0)
    told = small.acid("rollback", "db.t", "A b").stdout
    assert told == "db.t is as of A b again: 2 rows were written\n"
    assert small.acid("diff", "db.t", "1").stdout == "db.t: 0 rows added, 0 removed\n"
    assert small.acid("tag", "db.t", "A b", "--drop").stdout == "tag A b of db.t is dropped\n"


def test_P36_wrong_words_on_the_command_line(small: Small) -> None:
    for arguments, code, error in (
        (("tag", "db.t", "--days", "3"), 2, "name the tag"),
        (("diff", "db.t", "x"), 1, "db.t has no tag 'x'; its tags: none"),
        (("rollback", "db.t", "7"), 1, "db.t has no write id 7; the last that was given is 1"),
        (("rollback", "db.t", "2999-01-01"), 1, "2999-01-01 00:00:00.000 UTC is in the future"),
    ):
        done = small.acid(*arguments)
        assert done.exit_code == code and error in done.stderr, done.stderr


@pytest.mark.more
def test_P39_changes_on_the_command_line(small: Small) -> None:
    assert small.acid("changes", "db.t").stdout == "nobody consumes db.t\n"
    assert small.acid("sql", "UPDATE db.t SET v = 'x' WHERE id = 2").exit_code == 0
    assert small.acid("sql", "DELETE FROM db.t WHERE id = 1").exit_code == 0
    found = json.loads(small.acid("changes", "db.t", "1", "--json").stdout)
    assert (found["inserted"], found["updated"], found["deleted"]) == (0, 1, 1)
    assert [row["_write_id"] for row in found["rows"] if row["id"] == 2] == [2, 2]
    shown = small.acid("changes", "db.t", "1", "now").stdout
    assert "0 rows inserted, 1 updated, 1 deleted" in shown and "update_preimage" in shown
    assert small.acid("changes", "db.t", "0", "1", "--count").stdout == (
        "db.t: 2 rows inserted, 0 updated, 0 deleted\n"
    )
    for arguments, code, error in (
        (("db.t", "9"), 1, "db.t has no write id 9; the last that was given is 3"),
        (("db.t", "3", "1"), 1, "write id 3 of db.t is after write id 1"),
        (("db.t", "now"), 2, "SINCE has to be a snapshot of the past"),
        (("db.t", "--count"), 2, "name the snapshot since when to count"),
        (("db.t", "1", "--forget", "x"), 2, "--forget takes no snapshot"),
        (("db.t", "--forget", "x"), 1, "x does not consume the changes of db.t"),
    ):
        done = small.acid("changes", *arguments)
        assert done.exit_code == code and error in done.stderr, done.stderr


@pytest.mark.more
def test_P42_streams_on_the_command_line(small: Small) -> None:
    assert small.acid("streams").stdout == "no streaming query or import has written\n"
    batch = SinkBatch("s", "db.t", "q", 3, 0)
    small.metastore.begin().commit(CommitContents(sinks=(batch,)))
    (shown,) = json.loads(small.acid("streams", "db.t", "--json").stdout)
    assert (shown["table"], shown["sink"], shown["query"], shown["batch"]) == ("db.t", "s", "q", 3)
    for arguments, code, error in (
        (("db.none",), 1, "db.none"),
        (("--forget", "s"), 2, "name the table"),
        (("db.t", "--forget", "x"), 1, "no query writes db.t as x; sinks: s"),
    ):
        done = small.acid("streams", *arguments)
        assert done.exit_code == code and error in done.stderr, done.stderr
    told = small.acid("streams", "db.t", "--forget", "s").stdout
    assert told == "a new query may write db.t as s, from batch 0 on\n"
    assert small.acid("streams", "db.t").stdout == "no streaming query or import has written\n"
