"""P33: CURRENT_TIMESTAMP is one moment in all of a statement, and another in the next."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from acid_platform import Warehouse
from tests.conftest import temporary_warehouse

SELECT = "SELECT current_timestamp() AS a, now() AS b, CURRENT_TIMESTAMP AS c, current_date() AS d"


def now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def test_P33_a_query_has_one_moment_and_the_next_a_later_one(warehouse: Warehouse) -> None:
    moments = []
    for _ in range(2):
        before = now()
        (row,) = warehouse.sql(SELECT).to_arrow().to_pylist()
        moments.append(row["a"].replace(tzinfo=None))
        assert row["a"] == row["b"] == row["c"]
        assert before <= moments[-1] <= now()
        assert row["d"] == moments[-1].date()
    assert moments[0] < moments[1]


def test_P33_a_result_that_is_read_twice_keeps_its_moment(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path, engine="local") as local:
        result = local.sql("SELECT current_timestamp() AS t")
        assert result.collect() == result.collect()


def test_P33_a_change_has_one_moment(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE t (id int, a timestamp, b timestamp DEFAULT CURRENT_TIMESTAMP)")
    rows = warehouse.table("default.t")

    def moments(where: str) -> set[datetime]:
        found = rows.to_arrow(["a", "b"], where=where).to_pylist()
        return {moment for row in found for moment in row.values()}

    start = now()
    warehouse.sql(
        "INSERT INTO t VALUES (1, current_timestamp(), now()), (2, CURRENT_TIMESTAMP, DEFAULT)"
    )
    (inserted,) = moments("true")
    assert start <= inserted <= now()
    warehouse.sql("UPDATE t SET a = current_timestamp(), b = now() WHERE a <= now() AND id = 1")
    (updated,) = moments("id = 1")
    assert inserted < updated
    # Spark computes the source of a MERGE before the rest, at a moment of its own.
    local = warehouse.engines.preferred_here == "local"
    value = "s.s" if local else "current_timestamp()"
    warehouse.sql(
        "MERGE INTO t USING (SELECT 2 AS id, now() AS s UNION ALL SELECT 3, now()) s"
        f" ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = current_timestamp(), b = {value}"
        f" WHEN NOT MATCHED THEN INSERT VALUES (s.id, {value}, now())"
    )
    (merged,) = moments("id > 1")
    assert updated < merged <= now()
    rows.update({"a": "current_timestamp()", "b": "now()"}, where="a <= now()")
    (verb,) = moments("true")
    assert merged < verb
