"""Where `acid sql` takes its script from, and where --warehouse may stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from acid_platform.cli.main import main
from tests.cli.small import Small

pytestmark = pytest.mark.more

SCRIPT = "USE db;\n-- größte\nSELECT max(id) AS n FROM t\n"


def test_a_script_from_a_file_and_from_standard_input(small: Small, tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    for encoding in ("utf-8", "utf-8-sig"):
        file.write_text(SCRIPT, encoding=encoding)
        done = small.acid("sql", "-f", str(file), "--json")
        assert json.loads(done.stdout.splitlines()[1]) == [{"n": 2}]
    options = ["--engine", "local", "--json", "--warehouse", str(small.path)]
    for source in (["-"], ["-f", "-"]):
        done = CliRunner().invoke(main, ["sql", *source, *options], input=SCRIPT)
        assert json.loads(done.stdout.splitlines()[1]) == [{"n": 2}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a SCRIPT, or -f FILE"),
        (["SELECT 1", "-f", "{file}"], "give a SCRIPT, or -f FILE"),
        (["-f", "nope.sql"], "nope.sql"),
        (["-f", "{file}"], "the script is not in UTF-8"),
    ],
)
def test_wrong_usage(small: Small, tmp_path: Path, arguments: list[str], message: str) -> None:
    file = tmp_path / "latin.sql"
    file.write_bytes("SELECT 'ö'".encode("latin-1"))
    done = small.acid("sql", *(one.format(file=file) for one in arguments))
    assert done.exit_code == 2
    assert message in done.stderr and "Traceback" not in done.output


def test_options_before_the_command(small: Small) -> None:
    place = str(small.path)
    for arguments in (
        ["--warehouse", place, "--json", "show", "tables"],
        ["--warehouse", place, "show", "tables", "--json"],
        ["--warehouse", place, "show", "--warehouse", place, "tables", "--json"],
    ):
        done = CliRunner().invoke(main, arguments)
        assert json.loads(done.stdout)[0]["table"] == "db.t"
    done = CliRunner().invoke(main, ["--warehouse", "/x", "show", "tables", "--warehouse", place])
    assert done.exit_code == 2
    assert f"--warehouse is /x and {place}; name one" in done.stderr


def test_an_error_says_which_statement_of_the_script_it_is_of(small: Small) -> None:
    for text, message in (
        ("USE db; SELECT max(idd) FROM t; SHOW TABLES", "statement 2 of 3: SELECT max(idd) FROM t"),
        ("USE db; SELECT 1 FROM; SHOW TABLES", "statement 2 of 3: SELECT 1 FROM"),
    ):
        assert message in small.acid("sql", text, "--engine", "local").stderr
    assert "statement" not in small.acid("sql", "SELECT idd FROM db.t").stderr
