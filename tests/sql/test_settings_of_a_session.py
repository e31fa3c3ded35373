"""SET, RESET and SHOW CONF."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import SettingRefused, UnsupportedStatement, Warehouse
from acid_platform.metastore.show_columns import Shown
from tests.conftest import temporary_warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", engine="local") as opened:
        yield opened


def answer(warehouse: Warehouse, text: str) -> str:
    [(_, outcome)] = warehouse.session.steps(text)
    if isinstance(outcome, Shown):
        return "\n".join(" | ".join(map(str, row.values())) for row in outcome.dicts())
    return str(outcome)


def test_a_setting_without_meaning_is_remembered_by_the_session(warehouse: Warehouse) -> None:
    name = "hive.exec.dynamic.partition"
    assert answer(warehouse, f"SET {name}=true").startswith("OK, but without effect: rows may")
    assert answer(warehouse, f"SET {name}") == f"{name}=true"
    assert answer(warehouse, "SET tez.queue.name") == "tez.queue.name is undefined"
    assert answer(warehouse, "SET tez.queue.name=etl") == (
        "OK, but without effect: no such job runs here"
    )
    assert "tez.queue.name=etl" in answer(warehouse, "SET -v").splitlines()
    assert name not in warehouse.metastore.settings()
    with Warehouse.open(warehouse.path) as other:
        assert answer(other, "SET tez.queue.name") == "tez.queue.name is undefined"


def test_the_one_value_of_a_setting_is_accepted_with_its_reason(warehouse: Warehouse) -> None:
    for text, reason in (
        ("hive.support.concurrency=true", "transactions need it"),
        ("hive.exec.dynamic.partition.mode=nonstrict", "rows choose their partitions"),
    ):
        assert answer(warehouse, f"SET {text}") == f"OK, but without effect: {reason}"
    for text in (
        "hive.support.concurrency=false",
        "hive.exec.dynamic.partition=false",
        "hive.exec.dynamic.partiton=true",
        "hive.nope",
    ):
        with pytest.raises(SettingRefused, match=text.partition("=")[0].replace(".", r"\.")):
            warehouse.sql(f"SET {text}")
    with pytest.raises(UnsupportedStatement, match=r"wh\.sql\(statement, \{'day': …\}\)"):
        warehouse.sql("SET hivevar:day=2024-01-01")


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
    with pytest.raises(SettingRefused, match=r"did you mean hive\.txn\.timeout"):
        warehouse.sql("RESET hive.txn.timeot")


def test_show_conf(warehouse: Warehouse) -> None:
    assert answer(warehouse, "SHOW CONF 'hive.txn.timeout'") == (
        "300s | time | honoured: allowed is a time (ms, s, min, h, d) from 1 to 604800 s"
    )
    assert answer(warehouse, "SHOW CONF 'hive.lock.manager'").endswith(
        "| text | accepted without effect: not used with DbTxnManager"
    )
    assert answer(warehouse, "SHOW CONF 'hive.exec.dynamic.partition'").startswith(
        "true | bool | refused: allowed is only 'true'"
    )
    assert answer(warehouse, "SHOW CONF 'tez.queue.name'") == (
        " |  | accepted without effect: no such job runs here"
    )
    with pytest.raises(SettingRefused, match="no setting 'nope'"):
        warehouse.sql("SHOW CONF 'nope'")
