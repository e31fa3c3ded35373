"""SET and RESET."""

from __future__ import annotations

import pytest

from acid_platform import SettingRefused, UnsupportedStatement, Warehouse
from acid_platform.metastore.operations.listings import Shown
from tests.conftest import a_warehouse

warehouse = a_warehouse("local", scope="function")


def answer(warehouse: Warehouse, text: str) -> str:
    [(_, outcome)] = warehouse.session.steps(text)
    if isinstance(outcome, Shown):
        return "\n".join(" | ".join(map(str, row.values())) for row in outcome.dicts())
    return str(outcome)


def test_P9_a_setting_of_hive_that_nothing_here_reads_is_ignored_with_one_note(
    warehouse: Warehouse,
) -> None:
    name = "hive.tez.java.opts"
    assert answer(warehouse, f"SET {name}") == f"{name} is undefined"
    assert answer(warehouse, f"SET {name}=-Xmx1g") == f"OK, but {name} is unknown here and ignored"
    assert answer(warehouse, f"SET {name}=-Xmx2g") == "OK"
    assert answer(warehouse, f"SET {name}") == f"{name}=-Xmx2g"
    assert f"{name}=-Xmx2g" in answer(warehouse, "SET -v").splitlines()
    assert name not in warehouse.metastore.settings()
    with Warehouse.open(warehouse.path) as other:
        assert answer(other, f"SET {name}") == f"{name} is undefined"


def test_P9_a_setting_that_would_change_an_answer_has_one_value(warehouse: Warehouse) -> None:
    assert answer(warehouse, "SET hive.support.concurrency=true") == "OK"
    assert answer(warehouse, "SET hive.default.fileformat=ORC") == "OK"
    for text in (
        "hive.support.concurrency=false",
        "hive.exec.dynamic.partition=false",
        "acid.nope=1",
        "spark.sql.ansi.enabled=false",
    ):
        with pytest.raises(SettingRefused, match=text.partition("=")[0].replace(".", r"\.")):
            warehouse.sql(f"SET {text}")
    with pytest.raises(UnsupportedStatement, match=r"wh\.sql\(statement, \{'day': …\}\)"):
        warehouse.sql("SET hivevar:day=2024-01-01")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hive.security.authorization.enabled", "true"),
        ("hive.exec.pre.hooks", "org.acme.Authorize"),
        ("hive.exec.driver.run.hooks", "org.acme.Authorize"),
        ("hive.exec.query.redactor.hooks", "org.acme.Mask"),
        ("hive.mapred.mode", "strict"),
        ("hive.strict.checks.no.partition.filter", "true"),
    ],
)
def test_P9_a_setting_that_promises_a_protection_is_no_note(
    warehouse: Warehouse, name: str, value: str
) -> None:
    with pytest.raises(SettingRefused, match=name):
        warehouse.sql(f"SET {name}={value}")
    assert name not in warehouse.session.settings


def test_reset(warehouse: Warehouse) -> None:
    warehouse.sql("SET hive.txn.timeout=200s; SET hive.compactor.worker.threads=2")
    warehouse.sql("SET hiveconf:acid.heartbeat.interval=150s; SET mapreduce.job.reduces=3")
    assert answer(warehouse, "RESET hive.txn.timeout") == "OK"
    assert answer(warehouse, "SET hive.txn.timeout") == "hive.txn.timeout=300s"
    with Warehouse.open(warehouse.path) as other:
        other.sql("SET hive.max.open.txns=7; RESET")
        other.sql("SET hive.max.open.txns=8")
        assert answer(other, "SET hive.compactor.worker.threads") == (
            "hive.compactor.worker.threads=2"
        )
    assert answer(warehouse, "RESET") == "OK"
    for text in (
        "hive.compactor.worker.threads=1",
        "acid.heartbeat.interval=0ms",
        "hive.max.open.txns=8",  # another session has SET it
    ):
        assert answer(warehouse, f"SET {text.partition('=')[0]}") == text
    assert answer(warehouse, "SET mapreduce.job.reduces") == "mapreduce.job.reduces is undefined"
    with pytest.raises(SettingRefused, match=r"there is no setting .acid\.nope"):
        warehouse.sql("RESET acid.nope")
