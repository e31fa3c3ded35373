"""What Dagster finds in the folder of a project's assets, and what our components make of YAML."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import datetime
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyarrow import parquet

from acid_platform import UnsupportedStatement, WrongType
from acid_platform.errors import CorruptFile
from acid_platform.layout.types import parse_columns
from acid_platform.orchestration.components import SqlAssetComponent, TableAssetComponent, rows_of
from acid_platform.sql.scripts import tables_of_script
from tests.lineage_collector import collecting, columns_of, sent
from tests.orchestration.conftest import Place, run, stored

SQL = "acid_platform.orchestration.components.SqlAssetComponent"
TABLE = "acid_platform.orchestration.components.TableAssetComponent"
PROJECT = """
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "shop_assets"
defs_module = "shop_assets"
"""
ORDERS = """
import dagster as dg

@dg.asset
def orders() -> None: ...

@dg.asset_check(asset=orders)
def orders_are_there() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)

job = dg.define_asset_job("orders_job", [orders])
"""
NIGHTLY = """
import dagster as dg
from acid_platform.orchestration.service_jobs import cleaning_job
from shop_assets.sales.orders import job, orders

nightly = dg.ScheduleDefinition(job=job, cron_schedule="0 3 * * *")
weekly = dg.ScheduleDefinition(job=cleaning_job, cron_schedule="0 5 * * 0")

@dg.sensor(job=job)
def by_sensor(): ...

SEVERAL = [dg.define_asset_job("first", [orders]), dg.define_asset_job("second", [orders])]
"""
LANDING = """
import dagster as dg

class Landing(dg.ConfigurableResource):
    path: str

@dg.definitions
def resources() -> dg.Definitions:
    return dg.Definitions(resources={"landing": Landing(path="in")})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    root = tmp_path / "shop_assets"
    root.mkdir()
    (root / "__init__.py").write_text("")
    yield root
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop_assets"]:
        del sys.modules[name]


def load(folder: Path) -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=folder.parent)


def assets_of(definitions: dg.Definitions) -> dict[str, dg.AssetsDefinition]:
    assets = [asset for asset in definitions.assets or () if isinstance(asset, dg.AssetsDefinition)]
    return {asset.key.to_user_string(): asset for asset in assets}


def component(folder: Path, name: str, kind: str, attributes: str, **files: str) -> None:
    place = folder / name
    place.mkdir(parents=True)
    (place / "defs.yaml").write_text(
        f"type: {kind}\nattributes:\n{textwrap.indent(textwrap.dedent(attributes), '  ')}"
    )
    for file, text in files.items():
        (place / file.replace("_", ".")).write_text(text)


def materialize(
    place: Place, definitions: dg.Definitions, **arguments: Any
) -> dg.ExecuteInProcessResult:
    return run(place, *assets_of(definitions).values(), engine="local", **arguments)


# --- modules -------------------------------------------------------------------------------------


@pytest.mark.more
def test_everything_at_the_top_of_a_module_is_found_once(folder: Path) -> None:
    (folder / "sales").mkdir()
    (folder / "sales" / "orders.py").write_text(ORDERS)  # a subfolder without __init__.py
    (folder / "nightly.py").write_text(NIGHTLY)
    (folder / "landing.py").write_text(LANDING)
    (folder / "deep").mkdir()
    (folder / "deep" / "__init__.py").write_text("import dagster as dg\n@dg.asset\ndef d(): ...\n")
    from acid_platform.orchestration.service_jobs import cleaning_job

    services = dg.Definitions(
        jobs=[cleaning_job], resources={"warehouse": object(), "spark": object()}
    )
    repository = dg.Definitions.merge(services, load(folder)).get_repository_def()
    assert {schedule.name for schedule in repository.schedule_defs} == {
        "orders_job_schedule",
        "cleaning_job_schedule",
    }
    assert [sensor.name for sensor in repository.sensor_defs] == ["by_sensor"]
    jobs = {name for name in repository.job_names if not name.startswith("__")}
    assert jobs == {"orders_job", "first", "second", "cleaning_job"}
    keys = set(repository.asset_graph.get_all_asset_keys())
    assert keys == {dg.AssetKey("orders"), dg.AssetKey("d")}
    assert len(repository.asset_graph.asset_check_keys) == 1
    assert {"landing", "warehouse"} <= set(repository.get_top_level_resources())


def test_a_broken_module_is_told(folder: Path) -> None:
    (folder / "broken.py").write_text("import no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        load(folder)


# --- SQL -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_query_fills_its_table(folder: Path, place: Place) -> None:
    place.warehouse.create_table("shop.orders", "day date, amount decimal(9,2)").insert(
        [
            {"day": datetime.date(2024, 1, 1), "amount": Decimal("2.50")},
            {"day": datetime.date(2024, 1, 1), "amount": Decimal("1.00")},
        ]
    )
    component(
        folder,
        "totals",
        SQL,
        """
        table: shop.totals
        sql: totals.sql
        columns: day date, amount decimal(19,2)
        expectations:
          - name: amounts_are_given
            kind: ExpectColumnValuesToNotBeNull
            arguments: {column: day}
        asset: {group_name: sales, owners: ["team:sales"], code_version: v1}
        """,
        totals_sql="-- By day.\nSELECT day, sum(amount) AS amount FROM shop.orders GROUP BY day",
    )
    definitions = load(folder)
    [spec] = assets_of(definitions)["shop/totals"].specs
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["shop", "orders"])]
    assert (spec.group_name, spec.kinds, spec.code_version) == ("sales", {"orc", "sql"}, "v1")
    assert "sum(amount)" in spec.metadata["sql"].value
    result = materialize(place, definitions)
    assert result.success and stored(place, "shop.totals") == [
        (datetime.date(2024, 1, 1), Decimal("3.50"))
    ]
    [event] = result.get_asset_materialization_events()
    orders = dg.AssetKey(["shop", "orders"])
    assert event.materialization.metadata["dagster/column_lineage"].value == dg.TableColumnLineage(
        {name: [dg.TableColumnDep(orders, name)] for name in ("day", "amount")}
    )
    assert [check.check_name for check in result.get_asset_check_evaluations()] == [
        "amounts_are_given"
    ]


@pytest.mark.more
def test_a_collector_is_told_of_assets_with_their_keys_and_columns(
    folder: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openlineage.client")
    place.warehouse.create_table("shop.orders", "id int").insert([{"id": 1}])
    component(
        folder,
        "doubled",
        SQL,
        "table: shop.doubled\nsql: t.sql\ncolumns: twice int",
        t_sql="SELECT id + id AS twice FROM shop.orders",
    )
    with collecting(monkeypatch) as collector:
        result = materialize(place, load(folder))
        assert result.success
        (event,) = sent(collector)
    assert event["job"]["name"] == "shop/doubled"
    assert event["run"]["facets"]["parent"]["run"]["runId"] == result.run_id
    assert [one["name"] for one in event["inputs"]] == ["shop.orders"]
    assert columns_of(event["outputs"][0]) == {"twice": [("shop.orders", "id")]}
    assert "id + id" in event["job"]["facets"]["sql"]["query"]


def test_comments_in_yaml_are_shown_as_descriptions(folder: Path) -> None:
    component(
        folder,
        "t",
        SQL,
        "table: shop.t\nsql: t.sql\ncolumns: id int, v int\ncomment: some numbers\n"
        "comments: {id: a number}",
        t_sql="SELECT 1 AS id, 2 AS v",
    )
    [spec] = assets_of(load(folder))["shop/t"].specs
    schema = spec.metadata["dagster/column_schema"]
    assert [column.description for column in schema.columns] == ["a number", None]
    assert spec.description == "some numbers"


def test_a_suite_beside_the_yaml_is_the_checks_of_the_table(folder: Path) -> None:
    component(
        folder,
        "t",
        SQL,
        """
        table: shop.t
        sql: t.sql
        suites: [t.json]
        """,
        t_sql="SELECT 1 AS id",
        t_json='{"expectations": [{"type": "expect_column_to_exist", "kwargs": {"column": "id"}}]}',
    )
    [checked] = assets_of(load(folder))["shop/t"].check_specs
    assert checked.name == "column_to_exist_id"


@pytest.mark.more
@pytest.mark.parametrize(
    "query",
    [
        "SELECT b AS Amount FROM shop.u",
        "WITH x AS (SELECT amount FROM shop.u) SELECT amount FROM x UNION ALL SELECT 1",
        "SELECT * FROM shop.u",  # these tell no names
        "SELECT u.* FROM shop.u AS u",
        "SELECT sum(amount) FROM shop.u",
        "INSERT INTO shop.t SELECT b FROM shop.u",
    ],
)
def test_an_expectation_about_a_column_that_a_query_may_have_is_taken(
    folder: Path, query: str
) -> None:
    component(
        folder,
        "t",
        SQL,
        """
        table: shop.t
        sql: t.sql
        expectations:
          - {name: given, kind: ExpectColumnValuesToNotBeNull, arguments: {column: amount}}
        """,
        t_sql=query,
    )
    assert "shop/t" in assets_of(load(folder))


@pytest.mark.more
@pytest.mark.parametrize("mode", ["append", "upsert", "delete+insert"])
def test_an_expectation_may_be_about_a_column_that_only_the_table_has(
    folder: Path, place: Place, mode: str
) -> None:
    """Rows of others may have values there: only an overwrite leaves NULL in all rows."""
    place.warehouse.create_table("shop.t", "id int, note string").insert([{"id": 1, "note": "a"}])
    component(
        folder,
        "t",
        SQL,
        f"""
        table: shop.t
        sql: t.sql
        write_mode: {mode}
        {"" if mode == "append" else "key: [id]"}
        expectations:
          - {{name: noted, kind: ExpectColumnValuesToNotBeNull, arguments: {{column: note}}}}
        """,
        t_sql=f"SELECT {1 if mode == 'upsert' else 2} AS id",
    )
    assert materialize(place, load(folder)).success == (mode == "upsert")
    assert stored(place, "shop.t") == [(1, "a")]


def test_a_component_keeps_versions(folder: Path, place: Place) -> None:
    component(
        folder,
        "t",
        SQL,
        """
        table: shop.t
        sql: t.sql
        write_mode: history
        key: [id]
        history: {full: true, compare: [v]}
        """,
        t_sql="SELECT 1 AS id, 'a' AS v",
    )
    assert materialize(place, load(folder)).success
    [row] = place.warehouse.table("shop.t").to_arrow().to_pylist()
    assert (row["id"], row["v"], row["valid_to"], row["is_current"]) == (1, "a", None, True)


@pytest.mark.slow
def test_statements_are_one_transaction_and_a_failed_check_undoes_them(
    folder: Path, place: Place
) -> None:
    table = place.warehouse.create_table("shop.t", "id int")
    table.insert([{"id": 1}])
    component(
        folder,
        "t",
        SQL,
        """
        table: shop.t
        sql: t.sql
        expectations:
          - {name: ids_are_small, kind: ExpectColumnValuesToBeBetween,
             arguments: {column: id, max_value: 9}}
        """,
        t_sql="UPDATE shop.t SET id = id + 5;\nINSERT INTO shop.t VALUES (0);\n",
    )
    definitions = load(folder)
    assert materialize(place, definitions).success and stored(place, "shop.t") == [(0,), (6,)]
    assert not materialize(place, definitions).success
    assert stored(place, "shop.t") == [(0,), (6,)]
    assert len({row["txn"] for row in table.history()}) == 2


@pytest.mark.slow
def test_a_partition_is_a_parameter(folder: Path, place: Place) -> None:
    place.warehouse.create_table("shop.raw", "day date, n int").insert(
        [{"day": datetime.date(2024, 1, day), "n": day} for day in (1, 2, 3)]
    )
    component(
        folder,
        "daily",
        SQL,
        """
        table: shop.daily
        sql: daily.sql
        columns: n int
        partitioned_by: [day date]
        partition_expr: day
        asset: {partitions_def: {type: daily, start_date: "2024-01-01"}}
        """,
        daily_sql="SELECT n, day FROM shop.raw WHERE day = :partition_key",
    )
    definitions = load(folder)
    for day in ("2024-01-02", "2024-01-03"):
        assert materialize(place, definitions, partition_key=day).success
    assert [row[0] for row in stored(place, "shop.daily")] == [2, 3]


@pytest.mark.slow
def test_the_component_of_the_page_fills_its_partition(folder: Path, place: Place) -> None:
    page = (Path(__file__).parents[2] / "docs" / "assets.md").read_text()
    [_, written, _] = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (folder / "totals").mkdir()
    (folder / "totals" / "defs.yaml").write_text(written)
    (folder / "totals" / "totals.sql").write_text(
        "SELECT day, sum(amount) AS amount FROM shop.orders WHERE day = :partition_key GROUP BY day"
    )
    orders = place.warehouse.create_table(
        "shop.orders", "amount decimal(9,2)", partitioned_by=["day date"]
    )
    days = [datetime.date(2024, 1, day) for day in (2, 3)]
    orders.insert([{"amount": 5, "day": day} for day in days])
    assert materialize(place, load(folder), partition_key="2024-01-03").success
    assert stored(place, "shop.totals") == [(Decimal(5), days[1])]


@pytest.mark.parametrize(
    ("attributes", "sql", "message"),
    [
        ("table: shop.t\nsql: t.sql", "DELETE FROM shop.u", "changes shop.u"),
        ("table: shop.t\nsql: t.sql", "SELECT :partition_key AS k", "has no partitions"),
        (
            "table: shop.t\nsql: t.sql\npartitioned_by: [k string]\npartition_expr: k\n"
            "asset: {partitions_def: {type: static, partition_keys: [a]}}",
            "SELECT :key AS k",
            "the parameter key; there are partition_key",
        ),
        ("table: shop.t\nsql: t.sql", "-- later", "t.sql: there is no statement"),
        (
            "table: shop.t\nsql: t.sql\npartitioned_by: [day date]\nexpectations:\n"
            "  - {name: given, kind: ExpectColumnToExist, arguments: {column: amonut}}",
            "SELECT sum(a) AS amount, b, day FROM shop.u",
            "asset of shop.t: the expectation given names the column 'amonut'; the columns are"
            " amount, b, day (declare them if the table has more); did you mean amount?",
        ),
        ("table: shop.t.u\nsql: t.sql", "SELECT 1 AS a", "'shop.t.u' is not a name for a table"),
        ("table: shop.t\nsql: t.sql", "SELECT 1 AS a; SELECT 2 AS a", "write one SELECT"),
        ("table: shop.t\nsql: t.sql", "CREATE TABLE shop.t (id int)", "write one SELECT"),
        ("table: shop.t\nsql: t.sql", "SELEKT 1", "SELEKT"),
        (
            "table: shop.t\nsql: t.sql\n"
            "asset: {partitions_def: {type: static, partition_keys: [a]}}",
            "SELECT 1 AS a",
            "partition_expr must say",
        ),
    ],
)
def test_files_of_sql_that_mean_nothing_are_refused(
    folder: Path, attributes: str, sql: str, message: str
) -> None:
    component(folder, "t", SQL, attributes, t_sql=sql)
    with pytest.raises(Exception, match="t") as raised:
        load(folder)
    reasons = [raised.value, raised.value.__cause__]
    assert any(message in str(reason) for reason in reasons), reasons


def test_the_tables_of_a_script() -> None:
    tables = tables_of_script(
        "WITH c AS (SELECT * FROM shop.a) SELECT * FROM c JOIN b ON c.id = b.id"
        " WHERE c.id IN (SELECT id FROM Shop.D FOR SYSTEM_VERSION AS OF 3)"
    )
    assert tables.reads == {"shop.a", "default.b", "shop.d"} and not tables.changes
    tables = tables_of_script(
        "MERGE INTO shop.t USING (SELECT * FROM shop.s) s ON t.id = s.id"
        " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (s.id);"
        "UPDATE shop.t SET v = (SELECT max(v) FROM shop.u) WHERE id IN (SELECT id FROM w);"
        "FROM shop.x INSERT INTO shop.t SELECT id INSERT INTO shop.y SELECT id WHERE id > 1;"
        "INSERT INTO shop.t VALUES (1); TRUNCATE TABLE shop.z"
    )
    assert tables.reads == {"shop.s", "shop.u", "default.w", "shop.x"}
    assert tables.changes == {"shop.t", "shop.y", "shop.z"}
    with pytest.raises(UnsupportedStatement, match="write one SELECT"):
        tables_of_script("-- nothing")


# --- files and functions -------------------------------------------------------------------------

COLUMNS = parse_columns("id int, name string, amount decimal(9,2), day date, ok boolean")


@pytest.mark.more
def test_the_rows_of_files(tmp_path: Path, place: Place) -> None:
    (tmp_path / "rows.csv").write_text(
        'ID,name,amount,day,ok\n1,"a,\nb",12.10,2024-02-29,true\n2,"",,,\n'
        "3,NA,0.1,2024-03-01,false\n"
    )
    expected = [
        (1, "a,\nb", Decimal("12.10"), datetime.date(2024, 2, 29), True),
        (2, "", None, None, None),
        (3, "NA", Decimal("0.10"), datetime.date(2024, 3, 1), False),
    ]
    objects = [
        {"id": 1, "name": "a,\nb", "amount": 12.10, "day": "2024-02-29", "ok": True},
        {"id": 2, "name": ""},
        {"id": 3, "name": "NA", "amount": 0.1, "day": "2024-03-01", "ok": False},
    ]
    (tmp_path / "rows.json").write_text(json.dumps(objects, indent=2))
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, objects)))
    columns = "id int, name string, amount decimal(9,2), day date, ok boolean"
    for kind in ("csv", "json", "jsonl"):
        table = place.warehouse.create_table(f"shop.{kind}", columns)
        table.insert(rows_of(str(tmp_path / f"rows.{kind}"), COLUMNS))
        assert stored(place, f"shop.{kind}") == expected
    pa.parquet.write_table(table.to_arrow(), tmp_path / "rows.parquet")
    assert rows_of(str(tmp_path / "rows.parquet"), COLUMNS).num_rows == 3
    long = "\n".join(["a"] * 2**20)  # longer than what Arrow reads at a time
    (tmp_path / "long.csv").write_text(f'id,name\n1,"{long}"\n')
    assert rows_of(str(tmp_path / "long.csv"), COLUMNS).to_pylist() == [{"id": 1, "name": long}]
    (tmp_path / "bad.csv").write_text("id\n1\none\n")
    with pytest.raises(WrongType, match=r"bad\.csv: .*one"):
        rows_of(str(tmp_path / "bad.csv"), COLUMNS)
    (tmp_path / "large.json").write_text('{"x": 1e400}')
    table = place.warehouse.create_table("shop.large", "x double")
    with pytest.raises(WrongType, match="is no double"):
        table.insert(rows_of(str(tmp_path / "large.json"), parse_columns("x double")))


@pytest.mark.more
@pytest.mark.parametrize("kind", ["json", "jsonl", "parquet"])
def test_a_file_that_has_types_needs_no_columns(folder: Path, place: Place, kind: str) -> None:
    component(folder, "t", TABLE, f"table: shop.t\nsource: rows.{kind}")
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    if kind == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / "t" / "rows.parquet")
    else:
        lines = json.dumps(rows) if kind == "json" else "\n".join(map(json.dumps, rows))
        (folder / "t" / f"rows.{kind}").write_text(lines)
    assert materialize(place, load(folder)).success
    assert stored(place, "shop.t") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_lines_of_json_end_with_a_line_feed_only(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"rows.{kind}"
    names = ["a\u2028b", "a\u0085b", "a"]
    lines = [json.dumps({"name": name}, ensure_ascii=False) for name in names]
    expected = [{"name": name} for name in names]
    for text in ("\r\n".join([*lines, ""]), "\n\n".join(lines), f"[{','.join(lines)}]"):
        for mark in ("", "\ufeff"):
            file.write_bytes((mark + text).encode())
            assert rows_of(str(file), COLUMNS) == expected


@pytest.mark.more
def test_a_file_or_a_function_fills_a_table(folder: Path, place: Place) -> None:
    component(
        folder,
        "orders",
        TABLE,
        """
        table: shop.orders
        columns: id int, name string
        source: orders.csv
        write_mode: upsert
        key: [id]
        """,
        orders_csv="id,name\n1,first\n2,second\n",
    )
    component(
        folder,
        "counts",
        TABLE,
        """
        table: shop.counts
        columns: n bigint
        function: shop_assets.counting.counted
        """,
    )
    (folder / "counting.py").write_text(
        "import pyarrow as pa\n\n\ndef counted(orders: pa.Table) -> pa.Table:\n"
        '    """How many orders there are."""\n    return pa.table({"n": [orders.num_rows]})\n'
    )
    definitions = load(folder)
    assert materialize(place, definitions).success
    assert stored(place, "shop.orders") == [(1, "first"), (2, "second")]
    assert stored(place, "shop.counts") == [(2,)]
    counts = assets_of(definitions)["shop/counts"]
    assert list(counts.descriptions_by_key.values()) == ["How many orders there are."]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("table: a.t", "a source or a function"),
        ("table: a.t\nsource: t.csv\nfunction: os.getcwd", "a source or a function"),
        ("table: a.t\nsource: t.csv", "declare the columns"),
        ("table: a.t\nsource: t.xls", "a source is a .csv"),
        ("table: a.t\ncolumns: id int\nsource: t.csv\nwrite_mode: upsert", "needs key"),
        ("table: a.t\ncolumns: id int\nsource: '{partition_key}.csv'", "has no partitions"),
        (
            "table: a.t\ncolumns: id int\npartitioned_by: [k string]\npartition_expr: k\n"
            "source: '{k}.csv'\nasset: {partitions_def: {type: static, partition_keys: [a]}}",
            "the parameter k; there are partition_key",
        ),
        ("table: a.t\ncolums: id int\nsource: t.csv", "attributes.colums"),
    ],
)
def test_tables_that_contradict_themselves_are_refused(
    folder: Path, attributes: str, message: str
) -> None:
    component(folder, "t", TABLE, attributes)
    with pytest.raises(Exception, match="t") as raised:
        load(folder)
    reasons = [raised.value, raised.value.__cause__]
    assert any(message in str(reason) for reason in reasons), reasons


@pytest.mark.slow
def test_partitions_of_several_dimensions(folder: Path, place: Place) -> None:
    attributes = """
    columns: n int
    partitioned_by: [day date, region string]
    partition_expr: {date: day, region: region}
    asset: {partitions_def: "{{ both }}"}
    """
    component(folder, "raw", TABLE, f"{attributes}table: shop.raw\n    source: '{{region}}.csv'")
    (folder / "raw" / "eu.csv").write_text("n\n1\n2\n")
    component(
        folder,
        "own",
        SQL,
        f"{attributes}table: shop.own\n    sql: own.sql",
        own_sql="SELECT n FROM shop.raw WHERE day = :date AND region = :region AND n > 1",
    )
    for name in ("raw", "own"):
        with (folder / name / "defs.yaml").open("a") as file:
            file.write("\ntemplate_vars_module: shop_assets.dimensions\n")
    (folder / "dimensions.py").write_text(
        "import dagster as dg\n\n\n@dg.template_var\ndef both() -> dg.MultiPartitionsDefinition:\n"
        "    return dg.MultiPartitionsDefinition({\n"
        "        'date': dg.DailyPartitionsDefinition('2024-01-01'),\n"
        "        'region': dg.StaticPartitionsDefinition(['eu', 'us'])})\n"
    )
    key = dg.MultiPartitionKey({"date": "2024-01-02", "region": "eu"})
    assert materialize(place, load(folder), partition_key=key).success
    assert stored(place, "shop.own") == [(2, datetime.date(2024, 1, 2), "eu")]


@pytest.mark.slow
def test_what_dg_scaffolds_loads_and_runs(folder: Path, place: Place) -> None:
    from dagster.components.component_scaffolding import scaffold_object

    for kind, name in ((TABLE, "orders"), (SQL, "totals")):
        table = json.dumps({"table": f"shop.{name}"})
        scaffold_object(folder / name, kind, table, "yaml", folder.parent)
    definitions = load(folder)
    assert materialize(place, definitions).success
    assert place.warehouse.tables() == ["shop.orders", "shop.totals"]
    for registered in (SqlAssetComponent, TableAssetComponent):
        assert (registered.get_description() or "").startswith("A table ")


@pytest.mark.more
def test_P65_a_file_of_an_asset_is_bounded_too(tmp_path: Path) -> None:
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 9_000, pa.int32()), ["x" * (1 << 20)])
    for file, column in {small: texts[:3], large: texts}.items():
        parquet.write_table(
            pa.table({"v": column}), file, compression="zstd", dictionary_pagesize_limit=1 << 30
        )
    assert rows_of(str(small), ()).num_rows == 3
    with pytest.raises(CorruptFile, match=r"large\.parquet: row group 0 takes few bytes"):
        rows_of(str(large), ())
    for kind, make in {"csv": os.mkfifo, "json": lambda path: path.symlink_to("/dev/zero")}.items():
        make(tmp_path / f"a.{kind}")
        with pytest.raises(OSError, match="it is no file, and reading it may not end"):
            rows_of(str(tmp_path / f"a.{kind}"), ())
