"""The code of the pages runs, block after block, as a reader of the page would type it.

A page's blocks share their variables. Commands of `acid` run as typed, in a directory with the
warehouse `var/warehouse`; SQL runs in the same warehouse.
"""

from __future__ import annotations

import datetime
import logging
import re
import shlex
import sys
import types
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from acid_platform import Warehouse
from acid_platform.cli.main import main
from acid_platform.orchestration.resources import SparkResource, WarehouseResource
from acid_platform.services import fsck
from acid_platform.values.coercion import ValuesCoerced
from tests.conftest import temporary_warehouse

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(python|sql|sh|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)

RUN = {
    "AGENTS.md": ["(whole)"],
    "README.md": ["(whole)"],
    "docs/index.md": [
        "Set up",
        "A table, a row, a snapshot",
        "Several statements, one commit",
        "Compact and clean",
    ],
    "docs/assets.md": [
        "# Assets",
        "What the function returns",
        "Checks",
        "Partitions",
        "Schedules, sensors and resources",
        "A run on a branch",
        "Use a Dagster project that you have",
    ],
    "docs/load.md": [
        "Rows of Python",
        "Import from files, databases and other formats",
        "By Spark",
        "Files in SQL",
        "dlt",
        "dbt",
    ],
    "docs/query.md": [
        "Transactions and conflicts",
        "Branches",
        "The past",
        "Follow the changes",
        "Plain Spark code and streams",
    ],
    "docs/run.md": ["Dagster in production", "Services", "Erase a person", "Watch it"],
    "docs/internal/isolation.md": ["(whole)"],
    "docs/internal/metastore.md": ["(whole)"],
    "docs/internal/hive-statements.md": ["(whole)"],
    "docs/internal/measuring.md": ["(whole)"],
    "docs/internal/object-stores.md": ["(whole)"],
}
"""The sections whose code is run: by the tests below, by test_docs.py (the README, Dagster in
production), test_dlt_and_dbt.py, test_hive_statements.py; measuring and the lifecycle rule of a
bucket are for their readers."""


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def section(name: str, *titles: str) -> str:
    """The sections of a page that have these titles, in the order of the page."""
    parts = re.split(r"^## (?=\S)", page(name), flags=re.MULTILINE)[1:]
    found = [part for part in parts if part.partition("\n")[0] in titles]
    assert len(found) == len(titles), titles
    return "".join(found)


def test_every_section_with_code_is_run() -> None:
    with_code = {}
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        name = str(path.relative_to(ROOT))
        parts = re.split(r"^## (?=\S)", path.read_text(), flags=re.MULTILINE)
        if titles := [part.partition("\n")[0] for part in parts if BLOCK.search(part)]:
            with_code[name] = ["(whole)"] if RUN.get(name) == ["(whole)"] else titles
    assert {name: with_code[name] for name in with_code if name != "CONTRIBUTING.md"} == RUN


class Reader:
    """Somebody who types what a page says, in `directory`."""

    def __init__(self, warehouse: Warehouse, directory: Path) -> None:
        self.warehouse = warehouse
        self.directory = directory
        self.variables: dict[str, Any] = {"wh": warehouse}

    def types(
        self, text: str, *, instead: dict[str, str] | None = None, without: str | None = None
    ) -> list[str]:
        """Runs all blocks in their order, but for those that contain `without`.

        `instead` replaces what a reader would replace.

        Returns: what each command of `acid` printed.
        """
        for written, meant in (instead or {}).items():
            assert written in text, written
            text = text.replace(written, meant)
        printed = []
        for language, code in BLOCK.findall(text):
            if without is not None and without in code:
                continue
            if language == "python":
                exec(compile(code, "page", "exec", dont_inherit=True), self.variables)
            elif language == "sql":
                self.warehouse.sql(code)
            else:
                printed += [self.command(line) for line in code.splitlines() if line.strip()]
        return printed

    def command(self, line: str) -> str:
        name, *arguments = shlex.split(line, comments=True)
        variables = {}
        while "=" in name:
            variables |= [name.split("=", 1)]
            name, *arguments = arguments
        assert name == "acid", line
        done = CliRunner().invoke(main, arguments, env=variables)
        assert done.exit_code == 0, (line, done.output, done.exception)
        return done.output


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    for setting in ("ACID_WAREHOUSE", "ACID_METASTORE", "DAGSTER_HOME"):
        monkeypatch.delenv(setting, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACID_WAREHOUSE", "var/warehouse")
    with temporary_warehouse(tmp_path / "var" / "warehouse") as warehouse:
        yield Reader(warehouse, tmp_path)


def rows_of(warehouse: Warehouse, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in warehouse.table(table).to_arrow().to_pylist())


def materialize(
    assets: dg.AssetsDefinition | list[dg.AssetsDefinition],
    resources: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    dg.materialize(
        assets if isinstance(assets, list) else [assets],
        resources={
            "warehouse": WarehouseResource(path="var/warehouse"),
            "spark": SparkResource(),
            **(resources or {}),
        },
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        **options,
    )


@pytest.mark.more
def test_the_page_about_assets(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page("assets.md").partition("\n## Use a Dagster project that you have")[0]
    name, lines = re.findall(r"`(landing/\S+\.csv)`:\n\n```text\n(.*?)```", text, re.DOTALL)[0]
    (reader.directory / "landing").mkdir()
    (reader.directory / name).write_text(lines)
    module = types.ModuleType("assets.orders")
    reader.variables = module.__dict__
    monkeypatch.setitem(sys.modules, "assets.orders", module)
    reader.types(text, without="acid branch")
    day = datetime.date(2024, 1, 2)
    materialize(module.orders, partition_key=day.isoformat())
    materialize(module.totals)
    assert rows_of(reader.warehouse, "shop.orders") == [
        (1, Decimal("12.50"), day),
        (2, Decimal("19.99"), day),
    ]
    assert rows_of(reader.warehouse, "shop.totals") == [(day, Decimal("32.49"))]
    deliveries = {"2024-03-01": "1,3,2024-03-01", "2024-03-02": "2,5,2024-03-01\n3,1,2024-03-02"}
    for delivered in ("2024-03-01", "2024-03-02", "2024-03-02"):  # the last one is sent again
        file = reader.directory / "landing" / f"visits-{delivered}.csv"
        file.write_text(f"id,pages,day\n{deliveries[delivered]}\n")
        materialize(module.visits, partition_key=delivered)
    march = [datetime.date(2024, 3, number) for number in (1, 1, 2)]
    assert [row[2] for row in rows_of(reader.warehouse, "shop.visits")] == march
    definitions = dg.Definitions(
        assets=[module.orders, module.totals],
        schedules=[module.daily_orders],
        resources={"warehouse": WarehouseResource(), "spark": SparkResource()},
    )
    [daily] = definitions.get_repository_def().schedule_defs
    assert daily.cron_schedule == "30 2 * * *"


@pytest.mark.more
def test_P81_a_bad_day_is_mended_on_the_branch_of_its_run(reader: Reader) -> None:
    """Production never sees it, and has all of it at one moment."""
    before, _, walk = page("assets.md").partition("\n## A run on a branch")
    walk = walk.partition("\n## ")[0]
    landing = reader.directory / "landing"
    landing.mkdir()
    for day, line in (("2024-01-02", "1,12.50"), ("2024-01-03", "3,199900")):
        (landing / f"{day}.csv").write_text(f"id,amount,day\n{line},{day}\n")
    reader.types(before, without="from assets.orders")
    reader.types(walk, without="acid branch")
    names = ("orders", "totals", "no_day_is_too_good", "nightly")
    orders, totals, check, nightly = (reader.variables[name] for name in names)
    materialize([orders, totals], partition_key="2024-01-02")
    seen = rows_of(reader.warehouse, "shop.totals")
    job = dg.Definitions(
        assets=[orders, totals],
        asset_checks=[check],
        jobs=[nightly],
        resources={"warehouse": WarehouseResource(), "spark": SparkResource()},
    ).resolve_job_def("nightly")
    config = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    done = job.execute_in_process(config, partition_key="2024-01-03")
    assert [evaluation.passed for evaluation in done.get_asset_check_evaluations()][-1] is False
    name = f"run/{done.run_id}"
    commands = walk.replace("run/0c6e44ba-…", name)
    assert commands != walk
    listed, _, difference, *_ = reader.types(commands.replace("```python", "```text"))
    assert "shop.orders, shop.totals" in " ".join(listed.split()) and "199900" in difference
    third = datetime.date(2024, 1, 3)
    assert seen == [(datetime.date(2024, 1, 2), Decimal("12.50"))]
    assert rows_of(reader.warehouse, "shop.totals") == [*seen, (third, Decimal("1999.00"))]
    assert rows_of(reader.warehouse, "shop.orders")[-1] == (3, Decimal("1999.00"), third)
    assert len({row["time"] for row in reader.warehouse.table("shop.totals").history()}) == 2


def test_the_page_for_agents(reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    reader.types((ROOT / "AGENTS.md").read_text())
    assert capsys.readouterr().out.splitlines() == [
        "[{'id': 1, 'amount': Decimal('13.50')}, {'id': 2, 'amount': Decimal('1.00')}]",
        "[{'orders': 2}]",
    ]


def test_the_section_about_projects_of_dagster(reader: Reader) -> None:
    text = section("assets.md", "Use a Dagster project that you have")
    (reader.directory / "landing").mkdir()
    (reader.directory / "landing" / "2024-01-02.csv").write_text("id,name\n1,a\n2,b\n")
    reader.types(text, instead={'"data/warehouse"': '"var/warehouse", engine="local"'})
    orders, customers = (reader.variables[name] for name in ("orders", "customers"))
    materialize(orders, reader.variables["resources"], partition_key="2024-01-02")
    materialize([orders, customers], reader.variables["resources"], selection=[customers])
    assert rows_of(reader.warehouse, "shop.orders") == [
        (1, "a", "2024-01-02"),
        (2, "b", "2024-01-02"),
    ]
    assert rows_of(reader.warehouse, "shop.customers") == [(1, "a"), (2, "b")]


@pytest.mark.more
def test_the_section_about_changes(reader: Reader) -> None:
    orders = reader.warehouse.create_table("shop.orders", "id int, v string")
    reader.warehouse.create_table("shop.copy", "id int, v string")
    orders.insert([{"id": i, "v": "a"} for i in range(5)])
    reader.types(section("query.md", "Follow the changes"))
    reader.variables["follow"]()
    orders.delete("id = 0")
    orders.update({"v": "'b'"}, "id < 3")
    orders.insert([{"id": 9, "v": "c"}])
    reader.variables["follow"]()
    reader.variables["follow"]()
    assert rows_of(reader.warehouse, "shop.copy") == rows_of(reader.warehouse, "shop.orders")
    materialize(reader.variables["orders_per_value"])
    orders.update({"v": "'c'"}, "id = 1")
    orders.insert([{"id": 10, "v": None}])
    materialize(reader.variables["orders_per_value"])
    counts = reader.warehouse.table("shop.orders_per_value").to_arrow().to_pylist()
    assert {row["v"]: row["orders"] for row in counts} == {"a": 2, "b": 1, "c": 2, None: 1}


def test_the_section_about_the_past(reader: Reader) -> None:
    table = reader.warehouse.create_table("db.t", "id int")
    reader.types(section("query.md", "The past"))
    assert table.properties["acid.history.retention"] == "7d"


@pytest.mark.more
def test_the_page_about_running_it(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [*logging.getLogger().handlers])
    orders = reader.warehouse.create_table("shop.orders", "id int, customer int")
    orders.insert([{"id": 1, "customer": 3}, {"id": 2, "customer": 4}])
    reader.types(
        section("run.md", "Services", "Erase a person", "Watch it"),
        instead={
            "acid run initiator ": "acid run initiator --once ",
            "acid run worker ": "acid run worker --once ",
            "acid run cleaner ": "acid run cleaner --once ",
        },
    )
    assert rows_of(reader.warehouse, "shop.orders") == [(2, 4)]


def test_the_section_about_conflicts(reader: Reader) -> None:
    accounts = reader.warehouse.create_table("bank.accounts", "id int, euros decimal(9,2)")
    accounts.insert([{"id": 1, "euros": 100}, {"id": 2, "euros": 7}])
    reader.types(section("query.md", "Transactions and conflicts"))
    assert rows_of(reader.warehouse, "bank.accounts") == [(1, Decimal(70)), (2, Decimal(7))]


@pytest.mark.more
def test_the_section_about_branches(reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    orders = reader.warehouse.create_table("shop.orders", "id int, amount int")
    orders.insert([{"id": 1, "amount": 7}])
    reader.variables["Warehouse"] = Warehouse
    reader.types(section("query.md", "Branches"))
    assert "1 rows added, 1 removed" in capsys.readouterr().out
    assert rows_of(reader.warehouse, "shop.orders") == [(1, 14)]


def test_the_page_about_the_metastore(reader: Reader) -> None:
    reader.warehouse.create_table("db.t", "id int")
    status, counters, tables, _ = reader.types(page("internal/metastore.md"))
    assert "leader" in status
    assert "acid_" in counters and "db" in tables


def test_the_first_page(reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    text = page("index.md")
    reader.types(text, without="make demo")
    now, before = capsys.readouterr().out.splitlines()[:2]
    assert "BO" in now and "Bo" in before
    assert str(reader.variables["before"]) in text
    assert rows_of(reader.warehouse, "db.people") == [(2, "BO"), (3, "Cy")]
    assert fsck.examine(reader.warehouse.metastore).healthy
    reader.variables["wh"].close()


@pytest.mark.spark
@pytest.mark.slow
def test_the_page_about_loading(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    day, all_days = tmp_path / "in" / "2024-01-02", tmp_path / "all.parquet"
    day.mkdir(parents=True)
    (exported := tmp_path / "in" / "orders" / "day=2024-01-04").mkdir(parents=True)
    (exported / "000000_0").write_text("id,status\n3,paid\n")
    (tmp_path / "2013-01.csv").write_text("id,carrier,month\n1,UA,1\n2,AA,1\n")
    ordered = pa.table({"id": pa.array([1, 2], pa.int32()), "status": ["new", "sent"]})
    pa.orc.write_table(ordered, day / "orders.orc")
    dated = ordered.append_column("day", pa.array(["2024-01-03"] * 2))
    pa.parquet.write_table(dated, all_days)
    monkeypatch.setenv("ACID_WAREHOUSE", str(tmp_path / "wh"))
    with temporary_warehouse(tmp_path / "wh", spark) as warehouse:
        warehouse.create_table("shop.orders", "id int, amount decimal(9,2), day date")
        warehouse.create_table("db.flights", "id int, carrier string, month int")
        warehouse.create_table("db.orders", "id int, status string", partitioned_by=["day string"])
        warehouse.create_table("db.large", "id bigint, name string, points int")
        with duckdb.connect("shop.duckdb") as shop:
            shop.execute("CREATE TABLE customers AS SELECT 1::bigint id, 'a' AS name, 5 AS points")
            shop.execute("INSERT INTO customers VALUES (2, NULL, 7)")
        reader = Reader(warehouse, tmp_path)
        reader.variables["table"] = warehouse.create_table("db.copied", "id int, status string")
        pa.parquet.write_table(ordered, tmp_path / "in" / "orders.parquet")
        with pytest.warns(ValuesCoerced, match="amount: 1 changed; day: 1 became NULL"):
            reader.types(
                page("load.md").partition("\n## dlt\n")[0],
                instead={
                    "'/in/2024-01-02'": f"'{day}'",
                    "'/in/orders'": f"'{exported.parent}'",
                    "'s3://in/all.parquet'": f"'{all_days}'",
                    '"in/2013-*.csv"': f'"{tmp_path}/2013-*.csv"',
                    '"in/"': f'"{tmp_path}/in/orders.parquet"',
                },
                without="jdbc",
            )
        assert rows_of(warehouse, "shop.orders") == [(1, Decimal("12.35"), None)]
        for _ in range(2):
            materialize(
                reader.variables["customers"], {"warehouse": WarehouseResource(path=warehouse.path)}
            )
            assert rows_of(warehouse, "shop.customers") == [(1, "a", 5), (2, None, 7)]
        for name in ("db.large", "shop.buyers"):
            assert rows_of(warehouse, name) == [(1, "a", 5), (2, None, 7)]
        assert rows_of(warehouse, "db.bought") == [(1,), (2,)]
        assert rows_of(warehouse, "db.flights") == [(1, "UA", 1), (2, "AA", 1)]
        assert rows_of(warehouse, "db.copied") == [(1, "new"), (2, "sent")]
        days = ("2024-01-02", "2024-01-03")  # OVERWRITE replaces the partitions that it writes
        right = [(1, "new", each) for each in days] + [(2, "sent", each) for each in days]
        assert rows_of(warehouse, "db.orders") == [*right, (3, "paid", "2024-01-04")]


@pytest.mark.spark
@pytest.mark.slow
def test_the_section_about_streams(tmp_path: Path, spark: SparkSession) -> None:
    incoming = tmp_path / "data" / "incoming"
    incoming.mkdir(parents=True)
    (incoming / "a.json").write_text('{"id": 1, "name": "Ada"}\n')
    with temporary_warehouse(tmp_path / "data" / "warehouse", spark) as warehouse:
        orders = warehouse.create_table(
            "shop.orders", "id int, amount double", partitioned_by=["month int"]
        )
        warehouse.create_table("shop.big", "id int, amount double, month int")
        warehouse.create_table("shop.events", "id bigint, name string")
        orders.insert(
            [
                {"id": i, "amount": a, "month": m}
                for i, a, m in [(1, 5e3, 3), (2, 1.0, 3), (3, 5e3, 4)]
            ]
        )
        reader = Reader(warehouse, tmp_path)
        reader.variables["spark"] = spark
        text = section("query.md", "Plain Spark code and streams")
        reader.types(text, instead={'"/data/': f'"{tmp_path}/data/'})
        reader.variables["big_orders"](spark)
        assert rows_of(warehouse, "shop.big") == [(1, 5e3, 3)]
        queries = [reader.variables[name](spark) for name in ("follow", "ingest")]
        try:
            queries[0].processAllAvailable()
            orders.delete("id = 2")
            for query in queries:
                query.processAllAvailable()
        finally:
            for query in queries:
                query.stop()
        [deleted] = spark.read.parquet(str(tmp_path / "data" / "deleted")).collect()
        assert (deleted["id"], deleted["_change_type"]) == (2, "delete")
        assert rows_of(warehouse, "shop.events") == [(1, "Ada")]


def test_the_page_about_isolation(reader: Reader) -> None:
    shifts = reader.warehouse.create_table("shop.shifts", "name string, on_call int, day string")
    rows = [{"name": name, "on_call": 1, "day": "2024-01-02"} for name in ("Ann", "Bob")]
    shifts.insert(rows)
    reader.types(page("internal/isolation.md"))
    assert rows_of(reader.warehouse, "shop.shifts") == [
        ("Ann", 0, "2024-01-02"),
        ("Bob", 1, "2024-01-02"),
    ]
    assert reader.warehouse.metastore.in_force.text("acid.isolation") == "serializable"
