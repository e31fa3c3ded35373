"""The commands that need no Spark, their exit codes and their JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from acid_platform.base.config import REGISTRY
from acid_platform.cli.doctor import stuck
from acid_platform.cli.main import main
from acid_platform.metastore.operations.compaction import RequestErasure, TakeCompaction
from acid_platform.metastore.operations.tables import RegisterPartitions
from acid_platform.metastore.records import ClientInfo, WriteReport
from acid_platform.transactions import RowOperation
from tests.cli.small import BUCKET, Small, write_delta
from tests.contents import counts
from tests.declared import declare
from tests.metastore.processes import gone

ROOT = Path(__file__).resolve().parents[2]
DELTA = "delta_0000001_0000001_0000"


def test_show_tables(small: Small) -> None:
    [row] = json.loads(small.acid("show", "tables", "--json").stdout)
    assert row["table"] == "db.t"
    assert row["columns"] == "id int, v string"
    assert "db.t" in small.acid("show", "tables").stdout


@pytest.mark.more
def test_show_the_history_of_a_table(small: Small) -> None:
    row, *_ = json.loads(small.acid("show", "history", "db.t", "--json").stdout)
    assert (row["operation"], row["directory"]) == ("insert", "delta_0000001_0000001_0000")
    assert {"engine", "reason", "time"} <= row.keys()
    assert "delta_0000001_0000001_0000" in small.acid("show", "history", "db.t").stdout


@pytest.mark.more
def test_show_transactions_and_locks_of_an_open_writer(small: Small) -> None:
    assert small.acid("show", "locks").stdout == "no locks\n"
    with small.metastore.begin() as txn:
        txn.lock("db.t", "EXCL_WRITE")
        [lock] = json.loads(small.acid("show", "locks", "--json").stdout)
        assert (lock["lock_type"], lock["lock_state"]) == ("EXCL_WRITE", "ACQUIRED")
        assert lock["transaction_id"] == txn.id
        shown = json.loads(small.acid("show", "transactions", "--json").stdout)
        assert [(row["txnid"], row["state"]) for row in shown] == [(txn.id, "OPEN")]
        assert "OPEN" in small.acid("show", "transactions").stdout
        txn.abort()


@pytest.mark.more
def test_orcdump_prints_one_event_per_line(small: Small) -> None:
    file = f"{DELTA}/bucket_00000"
    lines = small.acid("orcdump", str(small.table / file)).stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "operation": 0,
            "originalTransaction": 1,
            "bucket": BUCKET,
            "rowId": number,
            "currentTransaction": 1,
            "row": {"id": number + 1, "v": value},
        }
        for number, value in enumerate("AB")
    ]
    assert list(json.loads(lines[0])) == [
        "operation",
        "originalTransaction",
        "bucket",
        "rowId",
        "currentTransaction",
        "row",
    ]
    assert small.acid("orcdump", f"db.t/{file}").stdout.splitlines() == lines
    meta = json.loads(small.acid("orcdump", f"db.t/{file}", "--meta").stdout)
    assert meta["user_metadata"]["hive.acid.key.index"] == f"1,{BUCKET},1;"
    assert meta["user_metadata"]["hive.acid.stats"] == "2,0,0"
    assert meta["rows"] == 2


@pytest.mark.more
def test_orcdump_needs_no_warehouse(small: Small) -> None:
    done = CliRunner().invoke(main, ["orcdump", str(small.table / DELTA / "bucket_00000")])
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 2


def test_cat_prints_live_rows_events_and_markers(small: Small) -> None:
    small.write(lambda w: [(2, 1, BUCKET, 0, w, None)], deletes=True)
    assert [json.loads(line) for line in small.acid("cat", "db.t").stdout.splitlines()] == [
        {"id": 2, "v": "B"}
    ]
    file = f"db.t/{DELTA}/bucket_00000"
    events = small.acid("orcdump", file).stdout
    assert small.acid("cat", file).stdout == small.acid("cat", f"db.t/{DELTA}").stdout == events
    assert small.acid("cat", f"db.t/{DELTA}/_orc_acid_version").stdout == '"2"\n'
    cut = small.acid("cat", file, "--limit", "1")
    assert len(cut.stdout.splitlines()) == 1
    assert "--limit 0 prints all" in cut.stderr


@pytest.mark.more
def test_timestamps_are_printed_alike_by_sql_and_cat(small: Small) -> None:
    script = (
        "CREATE TABLE db.moments (id int, t timestamp);"
        " INSERT INTO db.moments VALUES (1, '2024-02-29 12:30:00'), (2, NULL)"
    )
    assert small.acid("sql", script).exit_code == 0
    rows = json.loads(small.acid("sql", "SELECT * FROM db.moments", "--json").stdout)
    lines = small.acid("cat", "db.moments").stdout.splitlines()
    assert rows == [json.loads(line) for line in lines]
    assert rows == [{"id": 1, "t": "2024-02-29 12:30:00"}, {"id": 2, "t": None}]


@pytest.mark.more
@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("db.parts", [1, 2, 3]),
        ("db.parts/m=3", [1, 2]),
        ("db.parts/m=3/c=it%27s", [1]),
        ("db.parts/m=4/c=__HIVE_DEFAULT_PARTITION__", [3]),
    ],
)
def test_cat_prints_the_rows_of_a_partition(small: Small, path: str, found: list[int]) -> None:
    parts = replace(small, name="db.parts")
    declare(
        small.metastore,
        "db.parts",
        str(parts.table),
        [("id", "int"), ("v", "string")],
        [("m", "int"), ("c", "string")],
    )
    names = ["m=3/c=it%27s", "m=3/c=a", "m=4/c=__HIVE_DEFAULT_PARTITION__"]
    small.metastore.call(RegisterPartitions("db.parts", tuple(names)))
    for number, name in enumerate(names):
        parts.insert((number + 1, "x"), partition=name)
    lines = small.acid("cat", path).stdout.splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == found


@pytest.mark.more
@pytest.mark.parametrize("command", ["cat", "ls"])
def test_a_partition_that_is_not_there(small: Small, command: str) -> None:
    keys = [("year", "int"), ("month", "int")]
    declare(small.metastore, "db.parts", str(small.path / "parts"), [("id", "int")], keys)
    small.metastore.call(RegisterPartitions("db.parts", ("year=1/month=1",)))
    for path in ("year=2", "year=1/month=2", "year=zz", "month=1"):
        done = small.acid(command, f"db.parts/{path}")
        assert done.exit_code == 2 and f"{path} is not in db.parts" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert f"_ACID_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.more
def test_the_shell_completes_names_of_tables(small: Small) -> None:
    words = {
        "COMP_WORDS": "acid fsck d",
        "COMP_CWORD": "2",
        "_ACID_COMPLETE": "bash_complete",
        "ACID_WAREHOUSE": str(small.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from acid_platform.cli.main import main; main(prog_name='acid')"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **words},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "plain,db.t\n"


@pytest.mark.more
def test_ls_tells_what_the_snapshot_reads_and_what_it_does_not(small: Small) -> None:
    small.insert((3, "C"))
    with small.metastore.begin() as txn:
        txn.lock("db.t", "SHARED_WRITE")
        write_delta(small.table / "delta_0000003_0000003_0000", 3, ((4, "D"),))
        lines = json.loads(small.acid("ls", "db.t", "--json").stdout)
        assert [(line["directory"], line["sight"]) for line in lines] == [
            (DELTA, "read"),
            ("delta_0000002_0000002_0000", "read"),
            ("delta_0000003_0000003_0000", "not visible"),
        ]
        txn.abort()
    lines = json.loads(small.acid("ls", "db.t", "--json").stdout)
    assert [line["sight"] for line in lines] == ["read", "read", "aborted"]
    shown = small.acid("ls", "db.t").stdout
    assert "delta_0000003_0000003_0000" in shown
    assert "aborted: write id 3 aborted" in shown
    files = json.loads(small.acid("ls", f"db.t/{DELTA}", "--json").stdout)
    assert [file["name"] for file in files] == ["_orc_acid_version", "bucket_00000"]


@pytest.mark.more
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["ls", "db.nope"], 1, "error: there is no table db.nope"),
        (["cat", "db.tt"], 1, "error: there is no table db.tt; did you mean db.t?"),
        (["shwo"], 2, "Did you mean 'show'?"),
        (["tables"], 2, "Did you mean 'show tables'?"),
        (["histroy"], 2, "Did you mean 'show history'?"),
        (["clean"], 2, "Did you mean 'run cleaner'?"),
        (["show", "tabels"], 2, "did you mean tables?"),
        (["run", "clean"], 2, "did you mean cleaner?"),
        (["completion", "fsh"], 2, "did you mean fish?"),
        (["import", "cvs", "x", "db.t"], 2, "did you mean csv?"),
        (["sql", "--engine", "locl", "SELECT 1"], 2, "did you mean local?"),
        (["show", "xyzzy"], 2, "is not one of"),
        (["metastore", "bakcup"], 2, "Did you mean 'backup'?"),
        (["cat", "db.t/nope"], 2, "nope is not in db.t"),
        (["ls", "db.t/nope"], 2, "nope is not in db.t"),
        (["orcdump", "nope"], 2, "nope is not a file"),
        (["show", "nothing"], 2, "Usage:"),
        (["show", "history"], 2, "needs a TABLE"),
        (["show", "locks", "db.t"], 2, "needs a TABLE"),
        (["show", "history", "db.nope"], 1, "db.nope"),
        (["run", "nobody", "--explain"], 2, "Usage:"),
        (["metastore", "sql", "DROP TABLE txns"], 1, "error: "),
    ],
)
def test_failures_have_one_line_and_usage_its_own_code(
    small: Small, arguments: list[str], code: int, message: str
) -> None:
    done = small.acid(*arguments)
    assert done.exit_code == code
    assert message in done.stderr
    assert "Traceback" not in done.output
    if code == 1:
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.more
def test_a_torn_file_is_an_error_of_one_line(small: Small) -> None:
    torn = small.table / "torn"
    torn.write_bytes(b"ORC but no more")
    done = small.acid("orcdump", str(torn))
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: {torn} does not end in an ORC postscript")
    assert len(done.stderr.splitlines()) == 1


def test_a_misspelt_warehouse_is_not_made(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["show", "tables", "--warehouse", str(tmp_path / "x")])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: {tmp_path}/x has no metastore")
    assert not (tmp_path / "x").exists()


def test_no_warehouse_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACID_WAREHOUSE", raising=False)
    done = CliRunner().invoke(main, ["show", "tables"])
    assert (done.exit_code, done.stderr) == (
        1,
        "error: no warehouse is named: pass its path, set ACID_WAREHOUSE, or call `acid` in a"
        " project's directory, where it takes var/warehouse\n",
    )


def test_the_metastore_is_started_asked_and_stopped(small: Small) -> None:
    assert json.loads(small.acid("metastore", "status", "--json").stdout)["tables"] == 1
    [row] = json.loads(small.acid("metastore", "sql", "select 1 as one", "--json").stdout)
    assert row == {"one": 1}
    pid = json.loads(small.acid("metastore", "stop", "--json").stdout)["pid"]
    assert gone(pid)
    status = small.acid("metastore", "status", "--json")
    assert (status.exit_code, json.loads(status.stdout)) == (1, {"running": False})
    status = small.acid("metastore", "status")
    assert status.exit_code == 1 and status.stdout.startswith("no metastore runs for")
    status = small.acid("metastore", "status", "--prometheus")
    assert (status.exit_code, status.stdout[-22:]) == (0, "acid_metastore_up 0.0\n")
    assert small.acid("metastore", "stop").stdout.startswith("no metastore runs for")
    assert json.loads(small.acid("metastore", "start", "--json").stdout)["running"] is True
    assert small.acid("show", "tables").exit_code == 0


@pytest.mark.more
def test_P9_doctor_lists_every_setting_with_its_class(small: Small) -> None:
    small.metastore.set("hive.compactor.delta.num.threshold", "4")
    assert small.acid("doctor").stdout.startswith("all is well: ")
    done = small.acid("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == (0 if report["healthy"] else 1)
    found = {row["setting"]: row for row in report["settings"]}
    assert set(found) == set(REGISTRY)
    assert found["hive.compactor.delta.num.threshold"]["value"] == "4"
    assert {row["class"] for row in report["settings"]} == {
        "honoured",
        "refused",
    }
    [decision] = report["thresholds"]
    assert (decision["table"], decision["compaction"]) == ("db.t", "none")
    assert "not more than 4" in decision["reason"]


@pytest.mark.more
def test_C41_doctor_names_what_is_stuck_and_who_holds_it(small: Small) -> None:
    metastore = small.metastore
    lease = metastore.open_snapshot(["db.t"], ClientInfo(user="ada", host="desk", run_id="r1"))
    metastore.request_compaction("db.t", None, "major")
    task = metastore.call(TakeCompaction("w-1"))
    assert task is not None
    txn = metastore.begin_compaction(task, "w-1")
    base = f"base_0000001_v{txn.id:07d}"
    (small.table / base).mkdir()
    txn.commit_compaction([WriteReport("db.t", None, RowOperation.COMPACT, base, counts(2, 100))])
    [held] = json.loads(small.acid("doctor", "--json").stdout)["stuck"]
    assert held["what"] == "cleaning of db.t"
    assert "opened before its commit" in held["why"]
    assert held["who"] == f"transaction {lease.id} of ada@desk run r1"
    [waits] = explained(small, "run", "cleaner", "--explain")["cleaning"]
    assert (waits["path"], waits["fate"]) == (DELTA, "waits")
    assert waits["held by"] == held["who"]
    lease.commit()
    [goes] = explained(small, "run", "cleaner", "--explain")["cleaning"]
    assert (goes["path"], goes["fate"], goes["reason"]) == (DELTA, "removed", f"within {base}")
    assert (small.table / DELTA).exists()
    assert json.loads(small.acid("doctor", "--json").stdout)["stuck"] == []
    metastore.call(RequestErasure("db.t", "id = 1", "eve"))
    [asked] = json.loads(small.acid("doctor", "--json").stdout)["stuck"]
    assert (asked["what"], asked["who"]) == ("erasure 1 of db.t", "eve")
    assert "not tried yet" in asked["why"]
    removed = small.acid("run", "cleaner", "--once").stdout
    assert f"removed {small.table / DELTA} (within {base})" in removed
    assert not (small.table / DELTA).exists()


@pytest.mark.more
def test_doctor_names_a_compaction_that_no_worker_takes(small: Small) -> None:
    number = small.metastore.request_compaction("db.t", None, "major")
    asked = small.metastore.compactions()[0]["enqueuetime"]
    assert list(stuck(small.metastore, asked + 1)) == []
    [found] = stuck(small.metastore, asked + 300_001)
    assert found.what == f"compaction {number} of db.t"
    assert "acid run worker" in found.why


def test_doctor_fails_for_a_warehouse_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(main, ["doctor", "--warehouse", str(tmp_path / "file" / "wh")])
    assert done.exit_code == 1
    assert "error: warehouse: " in done.stderr


def explained(small: Small, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    done = small.acid(*arguments, "--json")
    assert done.exit_code == 0, done.output
    told: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return told


@pytest.mark.more
def test_a_compaction_is_explained_before_and_while_it_waits_and_nothing_changes(
    small: Small,
) -> None:
    small.insert((3, "C"))
    before = small.metastore.transactions(), sorted(small.table.rglob("*"))
    asked = explained(small, "compact", "db.t", "major", "--explain")
    [wish] = asked["compactions"]
    assert wish["result"] == "would run" and wish["pays back"] == "after 7 scans"
    assert [(directory["action"], directory["rows"]) for directory in asked["directories"]] == [
        ("read", 2),
        ("read", 1),
        ("write", 3),
    ]
    assert asked["directories"][-1]["directory"].startswith("base_0000002_v")
    refused = explained(small, "compact", "db.t", "minor", "--explain")["compactions"]
    assert refused[0]["result"] == "would run"
    assert (small.metastore.transactions(), sorted(small.table.rglob("*"))) == before
    assert explained(small, "run", "worker", "--explain") == {"compactions": [], "directories": []}
    small.metastore.request_compaction("db.t", None, "major")
    [waiting] = explained(small, "run", "worker", "--explain")["compactions"]
    assert waiting["asked by"] == "request 1" and waiting["bytes read"] == wish["bytes read"]
    assert small.metastore.compactions()[0]["state"] == "initiated"
    shown = small.acid("run", "worker", "--explain").stdout
    assert "pays back" in shown and "base_0000002_v" in shown


@pytest.mark.more
def test_C29_what_is_not_enough_is_explained_too(small: Small) -> None:
    [told] = explained(small, "compact", "db.t", "major", "--explain")["compactions"]
    assert told["result"].startswith("nothing to compact, refused: ")


@pytest.mark.more
def test_C17_initiator_explains_and_then_asks(small: Small) -> None:
    small.metastore.alter_table(
        "db.t", properties={"compactorthreshold.hive.compactor.delta.num.threshold": "1"}
    )
    small.insert((3, "C"))
    told = explained(small, "run", "initiator", "--once", "--explain")
    [decided] = told["decisions"]
    assert (decided["table"], decided["compaction"]) == ("db.t", "major")
    assert decided["reason"].endswith("and no base")
    [wish] = told["compactions"]
    assert (wish["rows read"], wish["rows written"]) == (3, 3)
    assert small.metastore.compactions() == []
    done = small.acid("run", "initiator", "--once")
    assert "db.t: " in done.stdout
    assert [row["state"] for row in small.metastore.compactions()] == ["initiated"]


@pytest.mark.more
def test_a_service_that_is_switched_off_does_not_run(small: Small) -> None:
    small.metastore.set("hive.compactor.cleaner.on", "false")
    done = small.acid("run", "cleaner", "--once")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: hive.compactor.cleaner.on is false")


def child(*arguments: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, *arguments],
        text=True,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.more
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_service_stops_cleanly_at_a_signal(small: Small, number: signal.Signals) -> None:
    small.metastore.set("hive.compactor.cleaner.run.interval", "100ms")
    process = child("-m", "acid_platform", "run", "cleaner", "--warehouse", str(small.path))
    assert process.stdout is not None
    assert process.stdout.readline() == "cleaner runs every 0.1 s\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "cleaner has stopped\n", "")
