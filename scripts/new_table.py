"""`make new-table NAME=db.orders`: an asset and its test, which work, for you to change.

Writes assets/orders.py and tests/assets/test_orders.py. Dagster loads every module of assets/.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

ASSET = '''"""The table {full}."""

from __future__ import annotations

import pandas as pd

from acid_platform.orchestration import Expectation, TableDeclaration, acid_asset

TABLE = TableDeclaration("{full}", "id int, name string")

ID_IS_GIVEN = Expectation("id_is_given", "ExpectColumnValuesToNotBeNull", {{"column": "id"}})


@acid_asset(table=TABLE, write_mode="upsert", key=["id"], expectations=[ID_IS_GIVEN])
def {name}() -> pd.DataFrame:
    """Rows with a known id are updated, the others inserted; nothing if an id is missing."""
    return pd.DataFrame({{"id": [1, 2], "name": ["first", "second"]}})
'''

TEST = '''"""The asset {full}."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from assets.{name} import TABLE, {name}
from resources import SparkResource, WarehouseResource
from tests.conftest import temporary_warehouse


@pytest.mark.spark
def test_{name}_twice_gives_each_row_once(tmp_path: Path, spark: SparkSession) -> None:
    with temporary_warehouse(tmp_path / "wh", spark) as warehouse:
        for _ in range(2):
            assert dg.materialize([{name}], resources={{
                "warehouse": WarehouseResource(path=warehouse.path),
                "spark": SparkResource()}}).success
        found = warehouse.table(TABLE.name).to_arrow().to_pylist()
    assert sorted(row["id"] for row in found) == [1, 2]
'''

PACKAGE = '"""The assets of this project: Dagster loads every module of this package."""\n'


class NameRefused(Exception):
    """The text says why, and which name would do."""


def create(root: Path, full: str) -> list[Path]:
    """The files that it wrote. Raises NameRefused; then it wrote none."""
    database, _, name = full.rpartition(".")
    words = [database or "default", name]
    if not all(re.fullmatch(r"[a-z][a-z0-9_]*", one) for one in words) or keyword.iskeyword(name):
        raise NameRefused(f"{full!r} is no name for a table: give NAME=orders or NAME=shop.orders,"
                          " in lower case letters, digits and _")
    texts = {root / "assets" / f"{name}.py": ASSET,
             root / "tests" / "assets" / f"test_{name}.py": TEST}
    for path in texts:
        if path.exists():
            raise NameRefused(f"{path.relative_to(root)} exists already: choose another name")
    package = root / "assets" / "__init__.py"
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(full=".".join(words), name=name))
    if not package.exists():
        package.write_text(PACKAGE)
    return list(texts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make new-table NAME=db.orders", description=__doc__)
    parser.add_argument("name")
    try:
        written = create(ROOT, parser.parse_args(arguments).name)
    except NameRefused as refused:
        print(f"new-table: {refused}", file=sys.stderr)
        return 1
    for path in written:
        print(f"wrote {path.relative_to(ROOT)}")
    print(f'next: change them, make test ARGS="-k {written[0].stem}", make dev')
    return 0


if __name__ == "__main__":
    sys.exit(main())
