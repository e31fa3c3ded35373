"""Every command and setting takes a path however it is spelt (P70)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from acid_platform import Warehouse
from acid_platform.base.location import Location
from acid_platform.base.paths import user_path
from acid_platform.cli.main import main
from acid_platform.cli.project import enter_project
from acid_platform.errors import InvalidDefinition
from acid_platform.orchestration.components import rows_of
from acid_platform.orchestration.resources import WarehouseResource
from tests.cli.small import Small

SPELLINGS: dict[str, Callable[[str], str]] = {
    "absolute": lambda path: path,
    "relative": os.path.relpath,
    "dots and slashes": lambda path: f"{os.path.dirname(path)}/.//{os.path.basename(path)}/",
    "from home": lambda path: f"~/{os.path.relpath(path, os.environ['HOME'])}",
    "uri": lambda path: f"file://{path}",
    "short uri": lambda path: f"FILE:{path}/",
    "link": lambda path: _by_link(path, ""),
    "up from a link": lambda path: _by_link(path, "x/.."),
}
FILES = {
    name: spell
    for name, spell in SPELLINGS.items()
    if name not in ("short uri", "dots and slashes")
}
"""Spellings of files, which don't end with a slash."""


def _by_link(path: str, behind: str) -> str:
    """A path by a link elsewhere to the directory above, or to one in it, from which `..` leads
    back."""
    above, name = os.path.split(path)
    target = os.path.join(above, behind.split("/")[0])
    os.makedirs(target, exist_ok=True)
    os.makedirs(f"{os.environ['HOME']}/links", exist_ok=True)
    link = f"{os.environ['HOME']}/links/{target.replace('/', '_')}"
    if not os.path.islink(link):
        os.symlink(target, link)
    return f"{link}/../{name}" if behind else f"{link}/{name}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, in another one than the warehouse, and the home above both."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ACID_ENGINE", "local")
    return tmp_path


COMMANDS = {
    "branch list": [],
    "cat": ["db.t"],
    "changes": ["db.t", "0"],
    "compact": ["db.t", "minor", "--explain"],
    "completion": ["bash"],
    "contract export": ["db.t"],
    "describe": ["db.t"],
    "diff": ["db.t", "1", "latest"],
    "doctor": ["--no-settings"],
    "erase": ["db.t", "--where", "id = 99"],
    "fsck": [],
    "head": ["db.t"],
    "init": [],
    "ls": ["db.t"],
    "metastore rebuild": [],
    "metastore resolve": [],
    "metastore sql": ["SELECT count(*) FROM tables"],
    "metastore start": [],
    "metastore status": [],
    "metastore stop": [],
    "metastore take-over": [],
    "export": ["iceberg", "db.t"],
    "register": ["thrift://127.0.0.1:1"],
    "adopt": ["thrift://127.0.0.1:1", "db"],
    "rollback": ["db.t", "1"],
    "run": ["cleaner", "--once"],
    "show": ["tables"],
    "sql": ["SELECT * FROM db.t"],
    "streams": [],
    "tag": ["db.t"],
    "ui": [],
}
OTHERS = {
    "branch create",
    "branch diff",
    "branch drop",
    "branch merge",
    "contract import",
    "gateway add-user",
    "import",
    "metastore archive",
    "metastore backup",
    "new",
    "orcdump",
    "test",
    "undrop",
}
OTHERS |= {"metastore certificate", "metastore restore", "metastore serve", "mcp", "serve"}
"""Commands with paths of their own, of branches or what was dropped, and those that do not end."""


def _commands(group: click.Group, above: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{above}{name} ")
        else:
            yield above + name


def test_P70_every_command_is_in_these_tables() -> None:
    assert {*COMMANDS} | OTHERS == {*_commands(main)}


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.more
def test_P70_a_command_says_the_same_of_each_spelling_of_its_warehouse(small: Small) -> None:
    def said(command: str, place: str) -> tuple[int, str]:
        result = run(*command.split(), *COMMANDS[command], "--warehouse", place)
        return result.exit_code, re.sub(r"[\d.]+|\s+|─+", "#", result.output)

    path, others = str(small.path), {}
    for command in COMMANDS:
        said(command, path)  # what the first one changes
        expected = said(command, path)
        for name, spell in SPELLINGS.items():
            if name != "absolute" and said(command, spell(path)) != expected:
                others[command, name] = expected
    assert not others


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_P70_python_dagster_and_settings_name_one_place(
    spelling: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, metastore = str(home / "wh"), str(home / "meta")
    where, own = SPELLINGS[spelling](path), SPELLINGS[spelling](metastore)
    expected = Location(path, metastore)
    assert (
        Location.of(where, own) == WarehouseResource(path=where, metastore=own).location == expected
    )
    monkeypatch.setenv("ACID_WAREHOUSE", where)
    monkeypatch.setenv("ACID_METASTORE", own)
    assert Location.of() == expected
    project = home / "here"
    (project / "workspace.yaml").touch()
    (project / ".env").write_text(f"ACID_WAREHOUSE={where}\nACID_METASTORE={own}\n")
    environment: dict[str, str] = {}
    enter_project(project, environment)
    assert Location.of(environment["ACID_WAREHOUSE"], environment["ACID_METASTORE"]) == expected


@pytest.mark.more
@pytest.mark.parametrize("spelling", FILES)
def test_P70_paths_of_a_warehouse_s_files(spelling: str, home: Path) -> None:
    spell = FILES[spelling]
    wh = Warehouse.open(home / "wh")
    data = home / "data"
    data.mkdir()
    (data / "rows.csv").write_text("id\n1\n")
    try:
        for table in ("db.elsewhere", "db.again"):
            if table == "db.again":
                with pytest.raises(InvalidDefinition, match=r"db\.elsewhere"):
                    wh.create_table(table, "id int", location=spell(str(home / "place")))
            else:
                wh.create_table(table, "id int", location=str(home / "place"))
        wh.sql(
            "CREATE EXTERNAL TABLE db.e (id int) ROW FORMAT DELIMITED STORED AS TEXTFILE LOCATION"
            f" '{spell(str(data))}' TBLPROPERTIES ('skip.header.line.count'='1')"
        )
        assert wh.sql("SELECT id FROM db.e").to_arrow().to_pylist() == [{"id": 1}]
        file = home / "rows.parquet"
        wh.sql("SELECT 7 AS id").to_pandas().to_parquet(file)
        wh.sql(f"LOAD DATA LOCAL INPATH '{spell(str(file))}' INTO TABLE db.elsewhere")
        assert wh.table("db.elsewhere").to_arrow().to_pylist() == [{"id": 7}]
        assert rows_of(user_path(spell(str(data / "rows.csv"))), ()).to_pylist() == [{"id": "1"}]  # type: ignore[union-attr]
        wh.metastore.set("acid.metastore.archive", spell(str(home / "archive")))
        archive = wh.metastore.settings()["acid.metastore.archive"]
        assert os.path.realpath(archive) == str(home / "archive") and archive.startswith("/")
    finally:
        wh.metastore.stop()
        wh.close()


@pytest.mark.more
@pytest.mark.parametrize("spelling", FILES)
def test_P70_commands_with_paths_of_their_own(spelling: str, small: Small, home: Path) -> None:
    def spelt(path: str) -> str:
        return FILES[spelling](str(home / path))

    def acid(*arguments: str) -> str:
        result = run(*arguments, "--warehouse", str(small.path))
        assert result.exit_code == 0, result.output
        return result.output

    (home / "csv").mkdir()
    (home / "csv" / "rows.csv").write_text("id,v\n1,a\n")
    (home / "script.sql").write_text("SELECT 6 * 7 AS answer")
    (home / "script.test.yaml").write_text("the answer: {expect: [{answer: 42}]}")
    assert "1 rows" in acid("import", "csv", spelt("csv"), "db.new", "--schema", "id int, v string")
    assert "42" in acid("sql", "-f", spelt("script.sql"))
    assert acid("test", spelt("script.test.yaml")) == "ok script: the answer\n"
    [bucket] = small.table.glob("*/bucket_00000")
    assert acid("orcdump", spelt(os.path.relpath(bucket, home))).count("\n") == 2
    acid("metastore", "backup", spelt("copy.duckdb"))
    assert (home / "copy.duckdb").stat().st_size
    acid("metastore", "certificate", "localhost", "--to", spelt("tls"))
    assert (home / "tls" / "ca.pem").is_file()
    small.metastore.set("acid.metastore.archive", str(home / "archive"))
    small.metastore.set("acid.metastore.archive.interval", "100ms")
    acid("new", spelt("shopping"))
    assert (home / "shopping" / "pyproject.toml").is_file()
    users = CliRunner().invoke(
        main, ["gateway", "add-user", spelt("users"), "ann", "--password-stdin"], "secret word\n"
    )
    assert users.exit_code == 0 and (home / "users").is_file()
    restored = ("metastore", "restore", spelt("copy.duckdb"), "--warehouse", str(home / "second"))
    assert "db.t" in run(*restored).output or run("show", "tables", *restored[3:]).exit_code == 0
    assert "has ended" in run("metastore", "stop", *restored[3:]).output


@pytest.mark.parametrize("text", ["file://host/x", "file:x", "file://u:pw@host/x"])
def test_P70_a_file_of_another_machine_is_refused(text: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        user_path(text)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [("~nosuch/wh", "no such user"), ("$HOME/wh", "replaced by a shell"), (" /tmp/wh", "a blank"),
     ("${HOME}/wh", "replaced by a shell"), ("wh ", "a blank"), ("wh\n", "a blank")],
)  # fmt: skip
def test_P70_a_directory_of_a_name_that_nobody_means_is_not_made(
    text: str, why: str, home: Path
) -> None:
    for door in (Location.of, user_path, Warehouse.open):
        with pytest.raises(InvalidDefinition, match=why):
            door(text)
    assert not list((home / "here").iterdir())
    os.makedirs(f"./{text}")
    assert user_path(text) == f"{home / 'here'}/{text}".replace("//", "/")
