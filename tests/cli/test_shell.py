"""The prompt of `acid sql`, and the forms in which it writes rows."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result
from prompt_toolkit.application import create_app_session
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from acid_platform import Warehouse
from acid_platform.base.interrupts import heeding_signals
from acid_platform.cli.console import CommandSession
from acid_platform.cli.main import main
from acid_platform.cli.shell import NameCompleter, Shell, is_complete
from acid_platform.cli.sql_output import Output
from tests.conftest import temporary_warehouse


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("shell") / "wh", engine="local") as opened:
        opened.sql("CREATE DATABASE d; CREATE TABLE d.t (id int, name string, tags array<int>)")
        opened.sql("INSERT INTO d.t VALUES (1, 'a', array(1, 2)), (2, 'b|c', NULL), (3, '', NULL)")
        yield opened


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("\\d t", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; \n", True),
        ("SELECT 1; -- done", True),
        ("SELECT ';'", False),
        ("SELECT 'a;", False),
        ("SELECT `a;", False),
        ("SELECT 1 /* ; ", False),
        ("SELECT 1 -- ;", False),
    ],
)
def test_enter_ends_a_statement_with_its_semicolon(text: str, complete: bool) -> None:
    assert is_complete(text) == complete


def typed(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, home: Path, *lines: str) -> None:
    """A session of the prompt in which these lines are typed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    output = Output(CommandSession(None, as_json=False), None, 1000)
    with (
        create_pipe_input() as keys,
        create_app_session(input=keys, output=DummyOutput()),
    ):
        keys.send_text("".join(f"{line}\r" for line in lines))
        Shell(warehouse, output, "local").run()


def test_a_session(
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "script.sql"
    script.write_text("SELECT 40 + 2 AS n;")
    typed(
        warehouse,
        monkeypatch,
        tmp_path,
        "USE d;",
        "\\d",
        "\\d t",
        "SELECT id, name FROM t",
        "WHERE id < 3;",
        "SELEC 1;",
        f"\\i {script}",
        "\\format json",
        "SELECT count(*) AS n FROM t; SELECT 2 AS m;",
        "\\format xml",
        "\\timing",
        "\\nothing",
        " SELECT 'a secret' AS s;",
        "START TRANSACTION;",
        "\\q",
    )
    shown = capsys.readouterr()
    for text in ("tab_name", "tags       array<int>", "b|c", "42", '[{"n": 3}]', '[{"m": 2}]'):
        assert text in shown.out, text
    for text in (
        "error: SELEC is not supported; did you mean SELECT?",
        "(2 rows, ",
        ", local)",
        "takes table, markdown, json or csv, not xml",
        r"\nothing is no command",
        "the open transaction is rolled back",
    ):
        assert text in shown.err, text
    kept = tmp_path / "acid" / "sql_history"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "WHERE id < 3;" in kept.read_text()
    assert "secret" not in kept.read_text()
    warehouse.sql("ROLLBACK")


def completed(warehouse: Warehouse, text: str) -> list[str]:
    event: object = None
    return [each.text for each in NameCompleter(warehouse).get_completions(Document(text), event)]  # type: ignore[arg-type]


def test_names_are_completed(warehouse: Warehouse) -> None:
    warehouse.sql("USE d")
    assert completed(warehouse, "SELECT na") == ["name", "natural"][:1]
    assert completed(warehouse, "sel") == ["select"]
    assert "d.t" in completed(warehouse, "SELECT * FROM d.")
    assert completed(warehouse, "SELECT id, ta") == ["tags", "table", "tables"]


def test_ctrl_c_stops_what_duckdb_computes(warehouse: Warehouse) -> None:
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), heeding_signals():
        warehouse.sql(
            "SELECT sum(a.id * b.id) FROM range(9000000) a CROSS JOIN range(900000) b",
            engine="local",
        ).to_arrow()
    assert warehouse.sql("SELECT 1 AS n").to_arrow().to_pylist() == [{"n": 1}]


def acid(warehouse: Warehouse, *words: str) -> Result:
    return CliRunner().invoke(main, ["--warehouse", warehouse.path, "sql", *words])


def test_the_forms_of_rows(warehouse: Warehouse, tmp_path: Path) -> None:
    query = "SELECT * FROM d.t ORDER BY id"
    csv = acid(warehouse, query, "--format", "csv").stdout
    assert csv.splitlines() == [
        '"id","name","tags"',
        '1,"a","[1,2]"',
        '2,"b|c",',
        '3,"",',
    ]
    assert acid(warehouse, query, "--format", "markdown").stdout.splitlines()[3] == (
        "| 2 | b\\|c | NULL |"
    )
    file = tmp_path / "t.parquet"
    assert "3 rows in" in acid(warehouse, query, "-o", str(file)).stderr
    assert pyarrow.parquet.read_table(file)["tags"].to_pylist() == [[1, 2], None, None]
    file = tmp_path / "t.json"
    acid(warehouse, query, "-o", str(file))
    assert [row["id"] for row in json.loads(file.read_text())] == [1, 2, 3]
    acid(warehouse, query, "-o", str(file.with_suffix(".md")))
    assert file.with_suffix(".md").read_text().startswith("| id | name | tags |")
    acid(warehouse, "SELECT id FROM d.t WHERE id > 9", "-o", str(tmp_path / "none.csv"))
    assert (tmp_path / "none.csv").read_text() == '"id"\n'
    assert acid(warehouse, "SHOW TABLES IN d", "--format", "csv").stdout == '"tab_name"\n"t"\n'


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["SELECT 1", "--format", "parquet"], "needs -o FILE"),
        (["SELECT 1", "-o", "{tmp}/x.txt"], "-o writes csv, json, markdown or parquet"),
        (["SELECT 1", "--json", "--format", "csv"], "--json is --format json"),
        (["SELECT 1; SELECT 2", "-o", "{tmp}/x.csv"], "-o FILE holds one result"),
        (["SELECT 1", "-o", "{tmp}/no/x.csv"], "can't be written"),
        (["USE d", "-o", "{tmp}/x.csv"], "no statement of the script has rows"),
        (["SELECT 1 +", "-o", "{tmp}/y.csv"], "error"),
    ],
)
def test_what_can_t_be_written(
    warehouse: Warehouse, tmp_path: Path, words: list[str], error: str
) -> None:
    done = acid(warehouse, *(word.replace("{tmp}", str(tmp_path)) for word in words))
    assert done.exit_code
    assert error in done.stderr
    assert not [*tmp_path.iterdir()], "neither a draft nor the first of two results"
