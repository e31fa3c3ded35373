"""The commands about the location and the owner of a warehouse (P31)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acid_platform.metastore.log.contract import is_part
from tests.cli.small import Small, write_delta
from tests.declared import declare
from tests.metastore.processes import gone, until


def stop(small: Small) -> None:
    pid = json.loads(small.acid("metastore", "stop", "--json").stdout)["pid"]
    until(lambda: gone(pid), 20)


@pytest.mark.slow
def test_P31_restore_take_over_and_rebuild_as_commands(small: Small, tmp_path: Path) -> None:
    far, file = tmp_path / "far", str(tmp_path / "copy.duckdb")
    write_delta(far / "delta_0000001_0000001_0000", 1, ((1, "A"),))
    declare(small.metastore, "db.far", str(far), [("id", "int"), ("v", "string")])
    assert small.acid("metastore", "backup", file).exit_code == 0
    assert "holds a metastore" in small.acid("metastore", "rebuild").stderr
    assert "has a metastore already" in small.acid("metastore", "start", "--empty").stderr
    stop(small)
    said = small.acid("metastore", "restore", file, "--replace").stdout
    assert "until `acid metastore take-over`: db.far" in said
    [waits] = [
        thing
        for thing in json.loads(small.acid("doctor", "--json").stdout)["stuck"]
        if thing["what"] == "table db.far"
    ]
    assert "take-over" in waits["why"]
    assert json.loads(small.acid("metastore", "take-over", "db.far", "--json").stdout) == [
        {"taken over": "db.far"}
    ]
    assert small.acid("metastore", "take-over").stdout == "no table is read-only\n"
    stop(small)
    for path in (small.path / "_metastore").iterdir():
        if is_part(path.name):
            path.unlink()
    refused = small.acid("metastore", "start")
    assert refused.exit_code == 1 and "acid metastore rebuild" in refused.stderr
    rebuilt = json.loads(small.acid("metastore", "rebuild", "--json").stdout)
    assert [(table["table"], table["note"]) for table in rebuilt["tables"]] == [("db.t", "")]
    assert any("aborted" in fact for fact in rebuilt["unknown"])
    assert json.loads(small.acid("cat", "db.t").stdout.splitlines()[0]) == {"id": 1, "v": "A"}
