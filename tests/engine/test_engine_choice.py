"""P33: which engine runs a statement can be chosen for a handle, a block, a call and a process."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from acid_platform import InvalidDefinition, NeedsSpark, Warehouse, WrongType
from acid_platform.base.config import Settings
from acid_platform.engine.choice import LOCAL_BYTES, Choice, Engines, Preference, has_cluster
from acid_platform.orchestration.resources import SparkResource, WarehouseResource
from acid_platform.sql.answers import ShownResult, engine_and_name
from tests.conftest import temporary_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONLY_SPARK = "SELECT hex(aes_encrypt(string(id), '0123456789abcdef')) AS a FROM db.t"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("choice") / "wh") as opened:
        opened.create_table("db.t", "id int")
        yield opened


def tried(warehouse: Warehouse) -> list[str]:
    """The engines that a small statement would be tried with, in order."""
    names: list[str] = []

    def work(choice: Choice) -> None:
        names.append(choice.engine.name)
        raise NeedsSpark("neither")

    with pytest.raises(NeedsSpark):
        warehouse.engines.run(work, warehouse.metastore.in_force)
    return names


def test_P33_auto_tries_the_local_engine_first(warehouse: Warehouse) -> None:
    assert tried(warehouse) == ["local", "spark"]


@pytest.mark.parametrize("name", ["spark", "local", " Spark "])
def test_P33_a_block_has_one_engine(warehouse: Warehouse, name: str) -> None:
    with warehouse.using(name):
        assert tried(warehouse) == [name.strip().lower()]
        with warehouse.using(None):
            assert tried(warehouse) == [name.strip().lower()]
        with warehouse.using("auto"):
            assert tried(warehouse) == ["local", "spark"]
        assert tried(warehouse) == [name.strip().lower()]
    assert tried(warehouse) == ["local", "spark"]


def test_P33_a_block_ends_with_its_error_and_is_of_one_thread(warehouse: Warehouse) -> None:
    seen: list[list[str]] = []
    with pytest.raises(ZeroDivisionError), warehouse.using("local"):
        other = threading.Thread(target=lambda: seen.append(tried(warehouse)))
        other.start()
        other.join()
        raise ZeroDivisionError
    assert seen == [["local", "spark"]]
    assert tried(warehouse) == ["local", "spark"]


def test_P33_a_handle_and_a_process_have_an_engine(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Warehouse.open(warehouse.path, engine="local") as opened:
        assert tried(opened) == ["local"]
    monkeypatch.setenv("ACID_ENGINE", "spark")
    with Warehouse.open(warehouse.path) as opened:
        assert tried(opened) == ["spark"]
    with Warehouse.open(warehouse.path, engine="auto") as opened:
        assert tried(opened) == ["local", "spark"]


def test_P33_an_unknown_engine_is_refused_before_anything_is_made(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table("db.t")
    for refused in (
        lambda: Warehouse.open(tmp_path / "new", engine="duckdb"),
        lambda: warehouse.sql("SELECT 1", engine="duckdb"),
        lambda: table.insert([{"id": 1}], engine="duckdb"),
        lambda: table.overwrite([{"id": 1}], engine="duckdb"),
        lambda: table.update({"id": "1"}, engine="duckdb"),
        lambda: table.delete(engine="duckdb"),
        lambda: table.merge([{"id": 1}], "t.id = s.id", engine="duckdb"),
    ):
        with pytest.raises(InvalidDefinition, match="'duckdb' is no engine; choose 'auto'"):
            refused()
    monkeypatch.setenv("ACID_ENGINE", "duckdb")
    with pytest.raises(InvalidDefinition, match="is no engine"):
        Warehouse.open(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert table.history() == []


def test_P33_local_alone_refuses_what_only_spark_can(warehouse: Warehouse) -> None:
    with pytest.raises(NeedsSpark):
        warehouse.sql(ONLY_SPARK, engine="local")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", (None, "")),
        ("wh", (None, "wh")),
        ("--engine=local", ("local", "")),
        (" --engine local wh ", ("local", "wh")),
        ("--engine = spark a path/with blanks", ("spark", "a path/with blanks")),
        ("--engines wh", (None, "--engines wh")),
    ],
)
def test_a_cell_may_name_its_engine(line: str, expected: tuple[str | None, str]) -> None:
    assert engine_and_name(line) == expected


def test_P33_a_transaction_tells_the_engine_of_each_statement(warehouse: Warehouse) -> None:
    warehouse.create_table("db.told", "id int")
    with warehouse.using("local"), warehouse.transaction() as txn:
        txn.table("db.told").insert([{"id": 1}, {"id": 2}])
        txn.table("db.told").delete("id = 1")
        assert txn.engines == (("local", "engine=local"),) * 2
    with warehouse.transaction() as txn:
        txn.table("db.told").insert([{"id": 3}])
        [(engine, reason)] = txn.engines
    assert engine == "local" and "bytes" in reason
    assert warehouse.table("db.told").count() == 2
    told = [(row["engine"], row["reason"]) for row in warehouse.table("db.told").history()]
    assert told == [("local", "engine=local")] * 2 + [("local", reason)]


@pytest.mark.spark
def test_P33_the_history_tells_the_engine_of_each_statement(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Also beside a TRUNCATE, which needs no engine, in the same transaction."""
    with temporary_warehouse(tmp_path / "wh", spark) as warehouse:
        table = warehouse.create_table("db.kept", "id int, v string")
        warehouse.create_table("db.emptied", "id int")
        with warehouse.using("local"), warehouse.transaction() as txn:
            txn.table("db.kept").insert([{"id": 1, "v": "a"}])
            txn.table("db.emptied").truncate()
        table.insert(spark.createDataFrame([(2, "b")], "id int, v string"))
        with warehouse.using("spark"):
            table.update({"v": "'c'"}, "id = 1")
        told = [(row["engine"], row["reason"]) for row in table.history()]
        assert told == [
            ("local", "engine=local"),
            ("spark", "the rows come from Spark"),
            *[("spark", "engine=spark")] * 2,
        ]
        [emptied] = warehouse.table("db.emptied").history()
        assert (emptied["engine"], emptied["reason"]) == ("", "")
        shown = warehouse.sql("DESCRIBE HISTORY db.kept")
        assert isinstance(shown, ShownResult)
        frame = shown.to_pandas()
        assert list(zip(frame["engine"], frame["reason"], strict=True)) == told
        assert str(frame["time"].dtype).endswith("UTC]")


def test_P33_a_resource_of_dagster_has_an_engine(warehouse: Warehouse) -> None:
    with WarehouseResource(path=warehouse.path, engine="local").open() as opened:
        assert tried(opened) == ["local"]
    with (
        pytest.raises(InvalidDefinition, match="'duckdb' is no engine"),
        WarehouseResource(path=warehouse.path, engine="duckdb").open(),
    ):
        pass


@pytest.mark.parametrize("engine", ["auto", "local"])
def test_P59_rows_of_this_process_don_t_count_towards_the_limit(
    warehouse: Warehouse, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [warehouse.create_table(f"db.{name}_{engine}", "id bigint, v string") for name in "ab"]
    rows = pa.table({"id": range(100), "v": ["x" * 100] * 100})
    monkeypatch.setattr(warehouse.engines, "on_cluster", lambda: True)
    warehouse.metastore.set(LOCAL_BYTES, "10")
    try:
        with warehouse.using(engine), warehouse.transaction() as txn:
            inserted, merged = (txn.table(table.name) for table in tables)
            inserted.insert(rows)
            merged.merge(rows, "t.id = s.id", when_not_matched_insert="*")
            assert [name for name, _ in txn.engines] == ["local", "local"]
    finally:
        warehouse.metastore.set(LOCAL_BYTES, str(256 << 20))
    assert [table.count() for table in tables] == [100, 100]


@pytest.mark.parametrize(
    ("preference", "master", "remote", "chosen"),
    [
        ("auto", None, None, "local"),
        ("auto", "local[8]", None, "local"),
        ("auto", "spark://host:7077", None, "spark"),
        ("auto", "yarn", None, "spark"),
        ("auto", "local[2]", "sc://host:15002", "spark"),
        ("local", "yarn", None, "local"),
        ("spark", None, None, "spark"),
    ],
)
def test_P33_size_counts_only_where_there_is_a_cluster(
    monkeypatch: pytest.MonkeyPatch,
    preference: Preference,
    master: str | None,
    remote: str | None,
    chosen: str,
) -> None:
    for name, value in (("ACID_SPARK_MASTER", master), ("ACID_SPARK_REMOTE", remote)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    engines = Engines(lambda: pytest.fail("starts Spark"), preference)
    settings = Settings({LOCAL_BYTES: "1000"})
    for read_bytes in (1000, 1001):
        name, reason = engines.run(
            lambda choice: (choice.engine.name, choice.reason), settings, None, read_bytes
        )
        assert name == (chosen if read_bytes > 1000 or preference == "spark" else "local")
        assert engines.reads_here(settings, read_bytes) == (name == "local")
    if preference == "auto" and chosen == "spark":
        assert reason == "1,001 bytes to read are more than acid.local.max.bytes = 1,000"
    given = SparkResource(master=master, remote=remote)
    monkeypatch.delenv("ACID_SPARK_MASTER", raising=False)
    monkeypatch.delenv("ACID_SPARK_REMOTE", raising=False)
    assert given.on_cluster() == bool(remote or not (master or "local").startswith("local"))
    assert SparkResource(conf={"spark.master": "k8s://host"}).on_cluster()


def test_P33_a_session_of_the_caller_tells_whether_it_has_a_cluster() -> None:
    classic = SimpleNamespace(_jsparkSession=None, sparkContext=SimpleNamespace(master="local[2]"))
    far = SimpleNamespace(_jsparkSession=None, sparkContext=SimpleNamespace(master="spark://a:1"))
    sessions: list[Any] = [classic, far, SimpleNamespace()]  # the last is one of Spark Connect
    assert list(map(has_cluster, sessions)) == [False, True, True]


def test_what_needs_spark_names_the_construct_and_the_next_step(warehouse: Warehouse) -> None:
    next_step = r"engine='auto' or engine='spark' does it in Spark$"
    for text, named in (
        ("SELECT input_file_name() AS t", r"INPUT_FILE_NAME\(\)"),
        ("SELECT uper('a') AS v", r"UPER\('a'\); did you mean upper\?"),
    ):
        with pytest.raises(NeedsSpark, match=f"^the local engine can't do this: {named}") as told:
            warehouse.sql(text, engine="local")
        assert re.search(next_step, str(told.value))


def test_P33_without_pyspark_an_error_of_a_value_stays_itself(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acid_platform.engine.choice.find_spec", lambda package: None)
    with pytest.raises(WrongType, match="'x1' is no int"):
        warehouse.sql("SELECT CAST(concat('x', v) AS int) AS n FROM VALUES (1) AS t(v)").to_arrow()


def test_P33_who_starts_spark_is_told_what_for(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session is started: a stand-in fails with the first statement that it gets."""
    from acid_platform.engine.spark import failures, jvm, session

    told: list[str] = []
    monkeypatch.setattr(warehouse, "notice", told.append)
    monkeypatch.setattr(warehouse, "_spark", None)
    monkeypatch.setattr(session, "start_session", SimpleNamespace)
    monkeypatch.setattr(failures, "install_expiry", lambda _: None)
    there = iter((False, True, True, True))
    monkeypatch.setattr(jvm, "is_there", lambda: next(there))
    with pytest.raises(AttributeError):
        warehouse.sql(ONLY_SPARK)
    assert len(told) == 1 and re.fullmatch(
        r"Spark started in \d\.\d s: (?i:.*aes_encrypt.*)", told[0]
    )
    monkeypatch.setattr(warehouse, "_spark", None)
    with pytest.raises(AttributeError):  # a JVM was there: nobody waited for a start
        warehouse.sql(ONLY_SPARK)
    assert len(told) == 1
