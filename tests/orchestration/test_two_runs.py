"""Two runs at once that bring one new key leave its rows once, by each write mode with a key and
each door to it (P51): the run whose commit comes second begins again."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from acid_platform import Transaction
from acid_platform.orchestration import TableDeclaration, acid_asset
from acid_platform.orchestration.components import SqlAssetComponent, TableAssetComponent
from acid_platform.orchestration.outputs import WriteMode
from tests.conftest import few_then_more
from tests.orchestration.conftest import Place, run, stored, succeeded

ROWS = [{"file": "f1", "id": 1}, {"file": "f1", "id": 2}]
COLUMNS = "file string, id int"
Door = Callable[[Path, WriteMode, list[str]], Any]


def by_decorator(_: Path, mode: WriteMode, key: list[str]) -> Any:
    @acid_asset(table=TableDeclaration("db.files", COLUMNS), write_mode=mode, key=key)
    def files() -> object:
        return ROWS

    return files


def by_io_manager(_: Path, mode: WriteMode, key: list[str]) -> Any:
    options = {"write_mode": mode, "upsert_options": {"join_cols": key}}

    @dg.asset(key=["db", "files"], io_manager_key="io_manager", metadata=options)
    def files() -> list[dict[str, object]]:
        return ROWS

    return files


def _declared(mode: WriteMode, key: list[str]) -> dict[str, Any]:
    return {"table": "db.files", "columns": COLUMNS, "write_mode": mode, "key": key}


def _built(component: Any, path: Path) -> Any:
    context = dg.ComponentTree.for_test().load_context.for_path(path)
    [asset] = component.build_defs(context).assets
    return asset


def by_component_of_a_file(path: Path, mode: WriteMode, key: list[str]) -> Any:
    (path / "rows.csv").write_text("file,id\nf1,1\nf1,2\n")
    return _built(TableAssetComponent(source="rows.csv", **_declared(mode, key)), path)


def by_component_of_sql(path: Path, mode: WriteMode, key: list[str]) -> Any:
    (path / "rows.sql").write_text("SELECT 'f1' AS file, id FROM (VALUES (1), (2)) AS v(id)")
    return _built(SqlAssetComponent(sql="rows.sql", **_declared(mode, key)), path)


DOORS: list[Door] = [by_component_of_sql, by_component_of_a_file, by_decorator, by_io_manager]
MODES: list[tuple[WriteMode, list[str]]] = [("delete+insert", ["file"]), ("upsert", ["file", "id"])]


@pytest.mark.parametrize(
    "case",
    few_then_more([*product([False, True], MODES, DOORS)], 1),
    ids=lambda case: f"{'there' if case[0] else 'new'}-{case[1][0]}-{case[2].__name__}",
)
def test_P51_two_runs_that_bring_one_key_leave_it_once(
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[bool, tuple[WriteMode, list[str]], Door],
) -> None:
    """The second run ends while the first one is about to commit."""
    there, written, door = case
    table = place.warehouse.create_table("db.files", COLUMNS)
    table.insert([{"file": "f0", "id": 9}, *(ROWS if there else [])])
    asset, commit, runs = door(tmp_path, *written), Transaction.commit, 0

    def late(txn: Transaction) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            succeeded(run(place, asset, engine="local"))
        commit(txn)

    monkeypatch.setattr(Transaction, "commit", late)
    succeeded(run(place, asset, engine="local"))
    nothing_to_do = there and written[0] == "upsert"
    assert runs == (2 if nothing_to_do else 3), "the first begins again"
    assert stored(place, "db.files") == [("f0", 9), ("f1", 1), ("f1", 2)]
