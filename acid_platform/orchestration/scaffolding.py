"""What `dg scaffold defs` writes: a table in YAML with SQL or rows, or in Python with a test."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any

import click
import dagster as dg
from dagster.components import scaffold_component
from pydantic import BaseModel, Field, field_validator

from acid_platform.errors import InvalidDefinition
from acid_platform.layout.names import table_name

_EXPECTATION = {
    "name": "id_is_given",
    "kind": "ExpectColumnValuesToNotBeNull",
    "arguments": {"column": "id"},
}
_PYTHON = '''"""The table {table}."""

from __future__ import annotations

import pandas as pd

from acid_platform.orchestration import Expectation, TableDeclaration, acid_asset

TABLE = TableDeclaration("{table}", "id int, name string")

NAME_IS_GIVEN = Expectation("name_is_given", "ExpectColumnValuesToNotBeNull", {{"column": "name"}})

ROWS = pd.DataFrame({{"id": [1, 2], "name": ["first", "second"]}})
"""In place of what you read from a file, a database or a service."""


@acid_asset(table=TABLE, write_mode="upsert", key=["id"], expectations=[NAME_IS_GIVEN])
def {name}() -> pd.DataFrame:
    """Rows with a known id are updated, the others inserted; nothing if a name is missing."""
    return ROWS
'''
_TEST = '''"""The asset {table}."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest

from acid_platform import Warehouse
from acid_platform.orchestration import SparkResource, WarehouseResource
from {module} import TABLE, {name}


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with WarehouseResource(path=str(tmp_path / "warehouse")).open() as opened:
        yield opened
        opened.metastore.stop()


def materialize(warehouse: Warehouse) -> bool:
    resources = {{"warehouse": WarehouseResource(path=warehouse.path), "spark": SparkResource()}}
    return dg.materialize([{name}], resources=resources, raise_on_error=False).success


def ids(warehouse: Warehouse) -> list[int]:
    return sorted(warehouse.table(TABLE.name).to_arrow(["id"])["id"].to_pylist())


def test_each_row_is_there_once_and_none_without_a_name(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert materialize(warehouse) and materialize(warehouse)
    assert ids(warehouse) == [1, 2]
    bad = pd.DataFrame({{"id": [3, 4], "name": ["third", None]}})
    monkeypatch.setattr("{module}.ROWS", bad)
    assert not materialize(warehouse)  # the check has failed
    assert ids(warehouse) == [1, 2]
'''


class ScaffoldedTable(BaseModel):
    """What `dg scaffold defs` asks for. Raises ValidationError, before a file is written."""

    table: str = Field(description="The table, such as shop.orders.")

    @field_validator("table")
    @classmethod
    def _plain(cls, table: str) -> str:
        words = table_name(table).split(".")
        simple = all(re.fullmatch(r"[a-z][a-z0-9_]*", word) for word in words)
        if not simple or len(words) > 2 or keyword.iskeyword(words[-1]):
            raise ValueError(
                f"{table!r} is not a name for a table: write orders or shop.orders, in letters,"
                " digits and _"
            )
        return ".".join(words)

    @property
    def name(self) -> str:
        return self.table.partition(".")[2]


class _TableScaffolder(dg.Scaffolder[ScaffoldedTable]):
    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldedTable]:
        return ScaffoldedTable


class SqlAssetScaffolder(_TableScaffolder):
    """Writes defs.yaml, and a query beside it."""

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldedTable]) -> None:
        file = f"{request.params.name}.sql"
        _write_component(request, {"sql": file})
        (request.target_path / file).write_text(
            "-- One SELECT, or statements that change the table: Hive's SQL, one transaction.\n"
            "SELECT 1 AS id, 'first' AS name\n"
        )


class TableAssetScaffolder(_TableScaffolder):
    """Writes defs.yaml, and a CSV file beside it."""

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldedTable]) -> None:
        file = f"{request.params.name}.csv"
        _write_component(request, {"columns": "id int, name string", "source": file})
        (request.target_path / file).write_text("id,name\n1,first\n2,second\n")


class ScaffoldedNames(BaseModel):
    """What `dg scaffold defs ExternalAssetsComponent` asks for."""

    tables: str = Field(description="Tables and views, such as hr.*; separated by commas.")


class ExternalAssetsScaffolder(dg.Scaffolder[ScaffoldedNames]):
    """Writes defs.yaml."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldedNames]:
        return ScaffoldedNames

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldedNames]) -> None:
        names = [name.strip() for name in request.params.tables.split(",")]
        scaffold_component(request, {"tables": names})


def _write_component(
    request: dg.ScaffoldRequest[ScaffoldedTable], attributes: Mapping[str, Any]
) -> None:
    scaffold_component(
        request, {"table": request.params.table, **attributes, "expectations": [_EXPECTATION]}
    )


class PythonAssetScaffolder(_TableScaffolder):
    """Writes a module with an `acid_asset`, and its test into tests/assets/."""

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldedTable]) -> None:
        """Raises InvalidDefinition, and writes nothing then."""
        module, table, root = request.target_path, request.params.table, request.project_root
        module.rmdir()  # dg made an empty directory there
        if root is None or module.suffix != ".py":
            raise InvalidDefinition(f"{module} is no module of a project: end the path in .py")
        test = root / "tests" / "assets" / f"test_{table.replace('.', '_')}.py"
        if test.exists():
            raise InvalidDefinition(f"{test} exists already: choose another name, or move it")
        dotted = ".".join(module.relative_to(root).with_suffix("").parts).removeprefix("src.")
        test.parent.mkdir(parents=True, exist_ok=True)
        for path, text in ((module, _PYTHON), (test, _TEST)):
            path.write_text(text.format(table=table, name=request.params.name, module=dotted))
        click.echo(f"Its test is {test}.")
