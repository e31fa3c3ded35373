"""`make new-table NAME=db.orders`: writes a working asset and its test for you to change.

Writes assets/orders.py and tests/assets/test_orders.py. Beside a table of that name in another
database, NAME=raw.orders writes assets/raw_orders.py. Dagster loads every module of assets/, in
subfolders too.
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

NAME_IS_GIVEN = Expectation("name_is_given", "ExpectColumnValuesToNotBeNull", {{"column": "name"}})

ROWS = pd.DataFrame({{"id": [1, 2], "name": ["first", "second"]}})
"""In place of what you read from a file, a database or a service."""


@acid_asset(table=TABLE, write_mode="upsert", key=["id"], expectations=[NAME_IS_GIVEN])
def {name}() -> pd.DataFrame:
    """Rows with a known id are updated, the others inserted; nothing if a name is missing."""
    return ROWS
'''

TEST = '''"""The asset {full}."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from acid_platform import Warehouse
from assets.{module} import TABLE, {name}
from resources import SparkResource, WarehouseResource
from tests.conftest import temporary_warehouse


def materialize(warehouse: Warehouse) -> bool:
    return dg.materialize([{name}], raise_on_error=False, resources={{
        "warehouse": WarehouseResource(path=warehouse.path), "spark": SparkResource()}}).success


def ids(warehouse: Warehouse) -> list[int]:
    return sorted(warehouse.table(TABLE.name).to_arrow(["id"])["id"].to_pylist())


@pytest.mark.spark
def test_{name}_twice_gives_each_row_once_and_none_without_a_name(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with temporary_warehouse(tmp_path / "wh", spark) as warehouse:
        assert materialize(warehouse) and materialize(warehouse)
        assert ids(warehouse) == [1, 2]
        bad = pd.DataFrame({{"id": [3, 4], "name": ["third", None]}})
        monkeypatch.setattr("assets.{module}.ROWS", bad)
        assert not materialize(warehouse)  # the check has failed
        assert ids(warehouse) == [1, 2]
'''

PACKAGE = '"""The assets of this project: Dagster loads every module of this package."""\n'


class NameRefused(Exception):
    """The text says why, and which name would do."""


def create(root: Path, full: str) -> list[Path]:
    """The files that it wrote. Raises NameRefused; then it wrote none."""
    database, _, name = full.rpartition(".")
    words = [database or "default", name]
    if not all(re.fullmatch(r"[a-z][a-z0-9_]*", word) for word in words) or keyword.iskeyword(name):
        raise NameRefused(
            f"{full!r} is not a name for a table: give NAME=orders or NAME=shop.orders,"
            " in lower case letters, digits and _"
        )
    table = ".".join(words)
    for path in sorted((root / "assets").rglob("*.py")):
        if f'TableDeclaration("{table}"' in path.read_text():
            raise NameRefused(f"{path.relative_to(root)} has {table} already: choose another name")
    module, texts = _free_module(root, name, "_".join(words))
    package = root / "assets" / "__init__.py"
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(full=table, name=name, module=module))
    if not package.exists():
        package.write_text(PACKAGE)
    return list(texts)


def _free_module(root: Path, *modules: str) -> tuple[str, dict[Path, str]]:
    """The first module of these that is not there, and its files. Raises NameRefused."""
    for module in modules:
        texts = {
            root / "assets" / f"{module}.py": ASSET,
            root / "tests" / "assets" / f"test_{module}.py": TEST,
        }
        taken = [path for path in texts if path.exists()]
        if not taken:
            return module, texts
    raise NameRefused(f"{taken[0].relative_to(root)} exists already: choose another name")


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
    print(f'next: change both, then make test ARGS="-k {written[0].stem}", make dev')
    return 0


if __name__ == "__main__":
    sys.exit(main())
