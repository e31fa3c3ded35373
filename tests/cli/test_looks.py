"""`acid init`, `head`, `describe` and `ui`: a new warehouse, and a first look at it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from acid_platform.cli.main import main
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.more

TEXT = "<b>x</b>"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("looks") / "wh"
    with temporary_warehouse(path, engine="local") as warehouse:
        warehouse.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id int COMMENT 'a <number>', name string)"
            " PARTITIONED BY (p int); CREATE VIEW d.v AS SELECT id FROM d.t"
        )
        with warehouse.transaction(message="why & when") as txn:
            rows = [{"id": one, "name": TEXT, "p": one % 2} for one in range(12)]
            txn.table("d.t").insert(rows)
        warehouse.table("d.t").delete("id = 11")
        yield warehouse.path


def acid(place: str, *arguments: str) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--warehouse", place])
    assert result.exit_code == 0, result.output
    return result


def test_head_shows_some_rows(place: str) -> None:
    assert len(json.loads(acid(place, "head", "d.t", "-n", "3", "--json").output)) == 3
    assert acid(place, "head", "d.v", "--format", "csv").output.count("\n") == 11


def test_describe_tells_columns_and_the_last_commit(place: str) -> None:
    told = json.loads(acid(place, "describe", "d.t", "--json").output)
    assert [each["column"] for each in told["columns"]] == ["id", "name", "p"]
    assert (told["rows"], told["partitions"], told["last write id"]) == (11, 2, 2)
    assert told["format"] == "orc" and told["size"].endswith("kB")
    assert "a <number>" in acid(place, "describe", "d.t").output
    missing = CliRunner().invoke(main, ["describe", "d.u", "--warehouse", place])
    assert missing.exit_code == 1 and "did you mean d.t?" in missing.output


def test_ui_writes_a_page_in_which_texts_are_texts(place: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    acid(place, "ui", "-o", str(file))
    page = file.read_text("utf-8")
    assert "<b>d.t</b>11 rows" in page and "why &amp; when" in page
    assert "a &lt;number&gt;" in page and "<number>" not in page
    assert "<script" not in page and "http" not in page
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_init_makes_a_warehouse_and_says_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACID_WAREHOUSE", raising=False)
    path = str(tmp_path / "new wh")
    try:
        for state in ("made", "there already"):
            said = CliRunner().invoke(main, ["init", path]).output
            assert said.startswith(f"{path} is {state}; next:\n  export ACID_WAREHOUSE='{path}'\n")
        assert acid(path, "sql", "SHOW DATABASES").output
        other = CliRunner().invoke(main, ["init", path, "--warehouse", str(tmp_path / "other")])
        assert other.exit_code == 2 and not (tmp_path / "other").exists()
    finally:
        acid(path, "metastore", "stop")
