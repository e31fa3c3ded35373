"""A column with a dot in its name beside a struct that has a field of that path (F18)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from acid_platform import Warehouse
from acid_platform.errors import UnsupportedLayout
from tests.conftest import few_then_more

COLUMNS = {
    "a.b": "`a.b` bigint",
    "a": "a struct<b:bigint,c:struct<d:bigint>>",
    "a.c.d": "`a.c.d` bigint",
}
VALUES = {"a.b": 5, "a": {"b": 1, "c": {"d": 2}}, "a.c.d": 6}
WRITERS: dict[str, Callable[..., Any]] = {"orc": orc.write_table, "parquet": parquet.write_table}
ORDERS = [("a", "a.b"), ("a.b", "a"), ("a", "a.c.d"), ("a.c.d", "a")]


def ours(warehouse: Warehouse, order: tuple[str, ...], kind: str, _path: Path) -> str:
    insert_only = kind.startswith("insert-only")
    columns = ", ".join(COLUMNS[name] for name in order)
    stored = kind.rpartition(" ")[2]
    told = "TBLPROPERTIES ('transactional_properties'='insert_only')" if insert_only else ""
    warehouse.sql(f"CREATE TABLE t ({columns}) STORED AS {stored} {told}")
    warehouse.table("t").insert([{name: VALUES[name] for name in order}])
    return "t"


def external(warehouse: Warehouse, order: tuple[str, ...], kind: str, path: Path) -> str:
    stored = kind.rpartition(" ")[2]
    path.mkdir()
    rows = pa.Table.from_pylist([{name: VALUES[name] for name in order}])
    WRITERS[stored](rows, str(path / "file"))
    columns = ", ".join(COLUMNS[name] for name in order)
    warehouse.sql(f"CREATE EXTERNAL TABLE t ({columns}) STORED AS {stored} LOCATION '{path}'")
    return "t"


@pytest.mark.parametrize("order", few_then_more(ORDERS, 1), ids=" ".join)
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (ours, "orc"),
        (ours, "insert-only orc"),
        (ours, "insert-only parquet"),
        (external, "external orc"),
        (external, "external parquet"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_F18_a_dotted_name_is_the_columns_or_refused(
    tmp_path: Path, make: Callable[..., str], kind: str, order: tuple[str, ...]
) -> None:
    refused = kind.endswith("orc") and order[0] != "a"
    dotted = next(name for name in order if "." in name)
    with Warehouse.open(tmp_path / "wh") as warehouse:

        def read() -> list[list[dict[str, Any]]]:
            table = make(warehouse, order, kind, tmp_path / "in")
            return [
                warehouse.sql(text, engine="local").to_arrow().to_pylist()  # type: ignore[union-attr]
                for text in (
                    f"SELECT `{dotted}` FROM {table}",
                    f"SELECT * FROM {table} WHERE `{dotted}` > 4",
                )
            ]

        if refused:
            with pytest.raises(UnsupportedLayout, match=f"column `{dotted}` .*rename one of them"):
                read()
        else:
            whole = {name: VALUES[name] for name in order}
            assert read() == [[{dotted: VALUES[dotted]}], [whole]]
