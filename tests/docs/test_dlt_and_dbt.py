"""What the page about loading says of dlt and dbt, where these packages are installed.

`uv pip install dlt dbt-duckdb`, into an environment of your own that has the platform's packages.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyarrow import parquet

from acid_platform import Transaction, Warehouse
from acid_platform.errors import WriteConflict
from acid_platform.orchestration import SparkResource, WarehouseResource
from tests.conftest import temporary_warehouse

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "load.md").read_text()
_, DLT, DBT, _ = re.split(r"^## dlt\n|^## dbt\n|^### dbt through Trino\n", PAGE, flags=re.MULTILINE)
WAREHOUSE = "var/warehouse"


def blocks(language: str, section: str) -> list[str]:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return found


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Those of a module in which somebody types what the page says."""
    module = types.ModuleType("typed_from_the_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__dict__


def typed(code: str, variables: dict[str, Any]) -> None:
    exec(compile(code, "page", "exec", dont_inherit=True), variables)


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACID_ENGINE", "local")
    monkeypatch.setenv("DBT_SEND_ANONYMOUS_USAGE_STATS", "false")
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    with temporary_warehouse(tmp_path / WAREHOUSE) as opened:
        yield opened


def rows_of(warehouse: Warehouse, table: str, *columns: str) -> list[tuple[Any, ...]]:
    rows = warehouse.table(table).to_arrow(list(columns) or None).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


# --- dlt ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_asset_reads_a_source_of_dlt_and_a_failed_check_loses_no_row(
    warehouse: Warehouse, variables: dict[str, Any]
) -> None:
    dlt = pytest.importorskip("dlt", reason="pip install dlt runs this test")
    typed(blocks("python", DLT)[0], variables)

    def run() -> bool:
        return dg.materialize(
            [variables["orders"]],
            resources={
                "warehouse": WarehouseResource(path=WAREHOUSE),
                "spark": SparkResource(),
            },
            raise_on_error=False,
        ).success

    assert run() and run()
    two = [(1, Decimal("12.50")), (2, Decimal("19.99"))]
    assert rows_of(warehouse, "shop.orders", "id", "amount") == two

    given = variables["shop_orders"]
    later = variables["datetime"].datetime(2024, 1, 4)
    amounts: list[str | None] = [None, "7.25"]

    @dlt.resource
    def shop_orders(changed: Any = None) -> Iterator[Any]:
        yield from given(changed)
        yield [{"id": 3, "amount": amounts[0], "changed": later}]

    variables["shop_orders"] = shop_orders
    assert not run()
    assert rows_of(warehouse, "shop.orders", "id", "amount") == two
    del amounts[0]
    assert run()
    assert rows_of(warehouse, "shop.orders", "id", "amount") == [*two, (3, Decimal("7.25"))]


@pytest.mark.slow
def test_a_file_of_a_load_has_its_effect_once(
    warehouse: Warehouse, variables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The destination fails after each of its first calls for a table, so dlt loads it again."""
    dlt = pytest.importorskip("dlt", reason="pip install dlt runs this test")
    real, died = dlt.destination, set[str]()

    def destination(**settings: Any) -> Callable[[Any], Any]:
        def decorator(function: Any) -> Any:
            @functools.wraps(function)
            def dies_once(path: str, table: Any, *arguments: Any, **named: Any) -> None:
                function(path, table, *arguments, **named)
                what = Path(path).name.split(".")[1]
                if what not in died:
                    died.add(what)
                    raise OSError("the process dies before dlt notes the load")

            return real(**settings)(dies_once)

        return decorator

    monkeypatch.setattr(dlt, "destination", destination)
    variables["dlt"] = dlt
    typed("".join(blocks("python", DLT)[1:3]), variables)
    assert died
    assert rows_of(warehouse, "raw.people", "id", "name") == [(1, "Ada"), (2, "Bob")]
    pipeline = variables["pipeline"]

    def load(rows: list[dict[str, Any]], disposition: str, table: str = "events") -> None:
        pipeline.run(rows, table_name=table, write_disposition=disposition)

    load([{"id": 1}, {"id": 1}], "append")
    load([{"id": 2, "note": "new"}], "append")
    assert rows_of(warehouse, "raw.events", "id") == [(1,), (1,), (2,)]
    assert [row["note"] for row in warehouse.table("raw.events").to_arrow().to_pylist()].count(
        "new"
    ) == 1
    load([{"id": 8}, {"id": 9}], "replace")
    assert rows_of(warehouse, "raw.events", "id") == [(8,), (9,)]
    commits = len(warehouse.table("raw.people").history())
    pipeline.run(variables["people"])  # nothing is newer than dlt's state
    assert len(warehouse.table("raw.people").history()) == commits


@pytest.fixture
def load_of(
    warehouse: Warehouse, variables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Hands a file of a load to the page's destination, as dlt does, which need not be there."""
    state: dict[str, str] = {}
    current = types.SimpleNamespace(load_package_state=lambda: state)
    dlt = types.SimpleNamespace(destination=lambda **_: lambda made: made, current=current)
    monkeypatch.setitem(sys.modules, "dlt", dlt)  # type: ignore[arg-type]
    typed(blocks("python", DLT)[1], variables)

    def load(number: int, disposition: str, ids: Sequence[int], tries: int = 3) -> None:
        state["load_id"] = load_id = f"1764000000.{number}"
        path = tmp_path / f"{number}-{ids[0]}.parquet"
        rows = [{"id": n, "_dlt_load_id": load_id, "_dlt_id": f"{number}-{n}"} for n in ids]
        parquet.write_table(pa.Table.from_pylist(rows), path)
        columns = {"id": {"name": "id", "primary_key": disposition == "merge"}}
        table = {"name": "events", "write_disposition": disposition, "columns": columns}
        try:
            variables["acid"](str(path), table)
        except WriteConflict:
            assert tries
            load(number, disposition, ids, tries - 1)

    return load


def events(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    return [
        (int(load.partition(".")[2]), id)
        for load, id in rows_of(warehouse, "raw.events", "_dlt_load_id", "id")
    ]


@pytest.mark.parametrize(
    "order", [[(1, 1), (2, 1), (1, 2), (2, 2)], [(2, 1), (1, 1), (2, 2), (1, 2)]], ids=str
)
def test_of_two_loads_that_replace_a_table_the_later_one_stays_whole(
    warehouse: Warehouse, load_of: Callable[..., None], order: list[tuple[int, int]]
) -> None:
    load_of(0, "replace", [7])
    for number, id in order:
        load_of(number, "replace", [id])
    assert events(warehouse) == [(2, 1), (2, 2)]


@pytest.mark.parametrize("disposition", ["merge", "append"])
def test_P51_two_loads_at_once_leave_what_one_after_the_other_leaves(
    warehouse: Warehouse,
    load_of: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    disposition: str,
) -> None:
    """The second load's file is committed while that of the first is about to be."""
    load_of(0, disposition, [7])
    commit, commits = Transaction.commit, list[Transaction]()

    def late(txn: Transaction) -> None:
        commits.append(txn)
        if len(commits) == 1:
            load_of(2, disposition, [1])
        commit(txn)

    monkeypatch.setattr(Transaction, "commit", late)
    load_of(1, disposition, [1])
    ids = [id for _, id in events(warehouse)]
    assert ids == {"merge": [7, 1], "append": [7, 1, 1]}[disposition]


# --- dbt ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_models_of_dbt_read_and_write_tables(warehouse: Warehouse, tmp_path: Path) -> None:
    pytest.importorskip("dbt.adapters.duckdb", reason="pip install dbt-duckdb runs this test")
    profiles, sources = blocks("yaml", DBT)
    [model] = blocks("jinja", DBT)
    files = {
        "acid_dbt.py": blocks("python", DBT)[0],
        "dbt_project.yml": "{name: shop, profile: shop, version: 1.0.0}\n",
        "profiles.yml": profiles,
        "models/sources.yml": f"version: 2\n{sources}",
        "models/totals.sql": model,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "target").mkdir()
    orders = warehouse.create_table("shop.orders", "customer string, amount decimal(9,2)")
    orders.insert([{"customer": name, "amount": amount} for name, amount in ("a1", "a2", "b4")])

    def built() -> list[tuple[Any, ...]]:
        done = subprocess.run(
            [sys.executable, "-m", "dbt.cli.main", "build", "--profiles-dir", "."],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return rows_of(warehouse, "shop.totals")

    assert built() == [("a", Decimal(3)), ("b", Decimal(4))]
    orders.delete("customer = 'a'")
    assert built() == [("b", Decimal(4))]
    orders.delete()
    assert built() == []
