"""What a fresh process imports: nothing heavy that its command does not need.

pyspark and py4j can't even be imported in these processes.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from re import findall

import pytest

from tests.cli.small import Small

AFTER = "after:"
RUN = f"""
import os, sys

sys.modules["pyspark"] = sys.modules["py4j"] = None
{{program}}
print({AFTER!r}, *sorted(name for name, module in sys.modules.items() if module), file=sys.stderr)
"""
COMMAND = """
import contextlib
from acid_platform.__main__ import run

sys.argv = {arguments!r}
with contextlib.suppress(SystemExit):
    run()
"""
SERVICES = {"acid_platform.metastore.operations.compaction"}
"""Declares what only services ask the metastore."""
NEVER = (
    "pandas",
    "great_expectations",
    "dagster",
    "prometheus_client",
    "psutil",
    "asyncio",
    "opentelemetry.trace",
)


def process(program: str) -> tuple[str, set[str]]:
    """What a fresh process prints, and the modules that it has loaded in the end."""
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(program=program)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = next(line for line in done.stderr.splitlines() if line.startswith(AFTER))
    return done.stdout, set(told.removeprefix(AFTER).split())


def acid(*arguments: str) -> tuple[str, set[str]]:
    return process(COMMAND.format(arguments=["acid", *arguments]))


def test_help_prints_without_what_the_commands_need() -> None:
    printed, loaded = acid("--help")
    assert "Commands:" in printed
    assert not loaded & {*NEVER, "rich", "numpy", "pyarrow", "duckdb", "sqlglot"}


@pytest.mark.more
def test_a_command_that_cant_print_has_failed_and_says_why(small: Small) -> None:
    with open("/dev/full", "w") as full:
        for words in (["--help"], ["--warehouse", str(small.path), "show", "tables"]):
            told = subprocess.run(
                [sys.executable, "-m", "acid_platform", *words],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
            )
            assert told.returncode == 1
            assert told.stderr == "error: [Errno 28] No space left on device\n"


@pytest.mark.more
def test_acid_show_tables_asks_the_metastore_and_prints(small: Small) -> None:
    printed, loaded = acid("show", "tables", "--warehouse", str(small.path))
    assert "db.t" in printed
    assert not loaded & {
        *NEVER,
        "numpy",
        "pyarrow",
        "duckdb",
        "sqlglot",
        "acid_platform.handles.warehouse",
        "acid_platform.metastore.operations.transactions",
        "acid_platform.scan.acid_directory",
        *SERVICES,
    }


@pytest.mark.more
def test_a_read_loads_neither_pandas_nor_a_parser(small: Small) -> None:
    small.write(lambda w: [(2, 1, 536870912, 0, w, None)], deletes=True)
    printed, loaded = process(f"""
from acid_platform import Warehouse

with Warehouse.open({str(small.path)!r}) as warehouse:
    table = warehouse.table("db.t")
    print(table.count(), table.to_arrow().to_pylist(), table.to_arrow(row_id=True).num_rows)
""")
    assert printed == "1 [{'id': 2, 'v': 'B'}] 1\n"
    assert not loaded & {*NEVER, "duckdb", "sqlglot", "pyarrow.dataset"}


@pytest.mark.more
@pytest.mark.parametrize("where", ["id > 1", "v = 'B'", "id IN (2, 3) AND v IS NOT NULL"])
def test_a_predicate_needs_the_parser_alone(small: Small, where: str) -> None:
    printed, loaded = process(f"""
from acid_platform import Warehouse

with Warehouse.open({str(small.path)!r}) as warehouse:
    print(warehouse.table("db.t").to_arrow(where={where!r}).to_pylist())
""")
    assert printed == "[{'id': 2, 'v': 'B'}]\n"
    assert not loaded & {*NEVER, "duckdb", "pyarrow.dataset"}


@pytest.mark.more
def test_a_count_by_acid_sql_starts_no_engine(small: Small) -> None:
    printed, loaded = acid(
        "sql", "SELECT count(*) AS n FROM db.t", "--warehouse", str(small.path), "--json"
    )
    assert printed == '[{"n": 2}]\n'
    assert not loaded & {*NEVER, "duckdb", "pyarrow.compute", "acid_platform.engine.local.engine"}
    assert not loaded & {*SERVICES, "acid_platform.scan.change_scan"}


@pytest.mark.more
def test_an_insert_loads_neither_pandas_nor_duckdb(small: Small) -> None:
    printed, loaded = process(f"""
import pyarrow as pa

rows = pa.Table.from_arrays([pa.nulls(3, pa.int32()), pa.nulls(3, pa.string())], ["id", "v"])
from acid_platform import Warehouse

with Warehouse.open({str(small.path)!r}, engine="local") as warehouse:
    print(warehouse.table("db.t").insert(rows), warehouse.table("db.t").count())
    made = warehouse.create_table("db.p", "id int, d date, t timestamp", ["v string"])
    print(made.insert(rows), made.partitions())
""")
    assert printed == "3 5\n3 ['v=__HIVE_DEFAULT_PARTITION__']\n"
    assert not loaded & {*NEVER, "duckdb", "sqlglot", "pyarrow.dataset"}


@pytest.mark.more
def test_changes_load_no_pandas(small: Small) -> None:
    printed, loaded = process(f"""
from acid_platform import Warehouse

with Warehouse.open({str(small.path)!r}, engine="local") as warehouse:
    table = warehouse.table("db.t")
    print(table.delete("id = 99"), table.delete("id = 1"))
    print(table.update({{"v": "concat(v, 'x')"}}, "id = 2"))
    print(table.to_arrow().to_pylist())
""")
    assert printed == "0 1\n1\n[{'id': 2, 'v': 'Bx'}]\n"
    assert not loaded & {"pandas", "great_expectations", "dagster", "pyarrow.dataset"}


@pytest.mark.more
def test_sql_loads_duckdb_and_the_parser_but_no_pandas(small: Small) -> None:
    script = (
        "INSERT INTO db.t VALUES (3, 'C');"
        "SELECT v, sum(id) AS s FROM db.t WHERE id > 1 GROUP BY v ORDER BY v;"
        "SHOW TABLES IN db; DESCRIBE db.t; SHOW LOCKS; SET acid.local.max.bytes; DESC HISTORY db.t"
    )
    printed, loaded = acid(
        "sql", script, "--engine", "local", "--warehouse", str(small.path), "--json"
    )
    _, selected, tables, *_ = printed.splitlines()
    assert selected == '[{"v": "B", "s": 2}, {"v": "C", "s": 3}]'
    assert tables == '[{"tab_name": "t"}]'
    assert "duckdb" in loaded
    assert not loaded & {*NEVER, "pyarrow.dataset"}


@pytest.mark.more
def test_the_code_location_of_the_services_loads_no_engine() -> None:
    _, loaded = process("""
import definitions
import acid_platform.orchestration
""")
    engines = ("acid_platform.engine.spark.spark_engine", "acid_platform.engine.local.engine")
    assert not loaded & {"pandas", "great_expectations", "duckdb", "sqlglot", *engines}


def test_an_engine_without_its_package_names_the_extra() -> None:
    printed, _ = process("""
from acid_platform import UnsupportedStatement

try:
    import acid_platform.engine.spark.session
except UnsupportedStatement as error:
    print(error)
""")
    assert "pip install 'acid-platform[spark]'" in printed


def test_trust_in_a_metastore_loads_nothing_that_makes_certificates() -> None:
    _, loaded = process("""
from acid_platform.metastore.tls import trusting

trusting("system")
""")
    assert "acid_platform.metastore.tls" in loaded
    assert "cryptography" not in loaded


NAMED = sorted(set(findall(r'"(acid_platform\.[a-z_.]+)"', Path(__file__).read_text())))


@pytest.mark.parametrize("name", NAMED)
def test_modules_that_are_named_here_are_there(name: str) -> None:
    assert find_spec(name), (
        f"{name} has another name now: a test that it is not loaded says nothing"
    )
