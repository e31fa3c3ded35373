"""What a statement of the local engine asks the metastore for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from acid_platform.errors import NeedsSpark
from acid_platform.metastore.client.link import Link
from acid_platform.warehouse import Warehouse
from tests.conftest import temporary_warehouse


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("trips") / "wh") as opened:
        opened.engines.wanted = "local"
        opened.create_table("db.t", "id int, v string").insert([{"id": 1, "v": "a"}])
        yield opened


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The operations that were sent, by name."""
    counted: Counter[str] = Counter()
    call = Link.call

    def counting(link: Link, operation: Any) -> Any:
        counted[operation.op] += 1
        return call(link, operation)

    monkeypatch.setattr(Link, "call", counting)
    return counted


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(id) AS s FROM db.t",
        "INSERT INTO db.t VALUES (2, 'b')",
        "INSERT INTO db.t SELECT id + 10, v FROM db.t",
        "UPDATE db.t SET v = 'c' WHERE id = 2",
        "DELETE FROM db.t WHERE id = 2",
        "MERGE INTO db.t USING db.t AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ],
)
def test_a_statement_gets_the_settings_with_its_transaction(
    warehouse: Warehouse, asked: Counter[str], text: str
) -> None:
    warehouse.sql(text)
    assert asked["begin"] and not asked["settings"]


def test_a_setting_that_a_session_changes_counts_in_its_transaction(warehouse: Warehouse) -> None:
    name = "acid.local.max.bytes"
    warehouse.sql("START TRANSACTION")
    try:
        warehouse.sql(f"SET {name}=1048576")
        with pytest.raises(NeedsSpark, match="1,048,576"):
            warehouse.table("db.t").insert([{"id": 1, "v": "x" * 2_000_000}])
        with pytest.raises(NeedsSpark, match="1,048,576"):
            warehouse.session._txn.table("db.t").insert(  # type: ignore[union-attr]
                [{"id": 1, "v": "x" * 2_000_000}]
            )
    finally:
        warehouse.sql("ROLLBACK")
        warehouse.metastore.set(name, str(256 << 20))
