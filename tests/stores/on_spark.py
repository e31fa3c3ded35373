"""Statements and compactions with Spark on the warehouse of the environment, in a store.

python -m tests.stores.on_spark URL     # of the server that counts the requests
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from typing import Any
from urllib.request import Request, urlopen

from acid_platform import Table, Warehouse
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from tests.conftest import compact_with
from tests.stores.server import CONTROL

Rows = list[tuple[int, str, int]]


def main() -> None:
    with Warehouse.open(engine="spark") as warehouse:
        compact_with(warehouse, "spark")
        told: dict[str, dict[str, int]] = {}
        table = warehouse.create_table("db.t", "id bigint, v string", partitioned_by=["p int"])
        spark = warehouse.spark
        wide = spark.range(0, 1000, 1, 4).selectExpr(
            "id", "concat('v', id) AS v", "CAST(id % 3 AS int) AS p"
        )
        wide.count()  # Python's workers run, and the connector is loaded
        requests()
        table.insert(wide)
        told["insert"] = requests()
        assert table.read().count() == 1000
        told["read"] = requests()
        expected = {id: (f"v{id}", id % 3) for id in range(1000)}
        require(table, expected)
        table.update({"v": "concat(v, '!')"}, "id % 10 = 0")
        expected |= {id: (f"v{id}!", id % 3) for id in range(0, 1000, 10)}
        table.delete("id % 10 = 1")
        expected = {id: row for id, row in expected.items() if id % 10 != 1}
        source = spark.createDataFrame(
            [(5, "five", 2), (5000, "new", 1)], "id long, v string, p int"
        )
        table.merge(
            source, "t.id = s.id", when_matched_update={"v": "s.v"}, when_not_matched_insert="*"
        )
        expected |= {5: ("five", 2), 5000: ("new", 1)}
        require(table, expected)
        for partition in table.partitions():
            table.compact("minor", partition)
        require(table, expected)
        table.insert(spark.createDataFrame([(7000, "last", 1)], "id long, v string, p int"))
        expected[7000] = ("last", 1)
        requests()
        table.compact("major", {"p": 1})
        told["compaction"] = requests()
        for partition in (0, 2):
            table.compact("major", {"p": partition})
        require(table, expected)
        plain = warehouse.create_table(
            "db.plain", "id bigint", properties={"transactional_properties": "insert_only"}
        )
        for number in range(3):
            plain.insert(spark.range(number, number + 1))
        plain.compact("major")
        assert sorted(row["id"] for row in plain.read().collect()) == [0, 1, 2]
        warehouse.release()
        for _ in range(3):
            cleaner.run(warehouse.metastore)
        require(table, expected)
        warehouse.release()
        found = examine(warehouse.metastore, warehouse=os.environ["ACID_WAREHOUSE"]).findings
        print(json.dumps({"requests": told, "findings": [str(one) for one in found]}))
        warehouse.metastore.stop()


def requests() -> dict[str, int]:
    """The requests that the server got since the last call, by operation."""
    log: Any = control("log")
    return dict(sorted(Counter(operation for operation, _ in log).items()))


def control(what: str, content: object = None) -> object:
    """Asks the server for something, see `server.Watched`."""
    url = f"{sys.argv[1]}{CONTROL}{what}"
    with urlopen(Request(url, json.dumps(content).encode(), method="POST")) as answer:
        return json.load(answer)


def require(table: Table, expected: dict[int, tuple[str, int]]) -> None:
    """The rows, as Spark and as Arrow read them."""
    wanted = sorted((id, *row) for id, row in expected.items())
    assert sorted(tuple(row) for row in table.read().collect()) == wanted
    assert sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == wanted


if __name__ == "__main__":
    main()
