"""A warehouse for all imports of a module, each into a table of its own."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner, Result

from acid_platform import Warehouse
from acid_platform.cli.main import main
from acid_platform.metastore.operations.tables import GetSinks
from tests.conftest import a_warehouse

_NUMBERS = count(1)


class Place:
    """A warehouse, and the name of a table that nobody else uses."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.table = f"db.t{next(_NUMBERS)}"

    def acid(self, *words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--warehouse", self.warehouse.path])

    def run(self, kind: str, source: object, *options: str) -> dict[str, Any]:
        """What `acid import` says in JSON."""
        done = self.acid("import", kind, str(source), self.table, *options, "--json")
        assert done.exit_code == 0, (done.output, done.exception)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def refused(self, kind: str, source: object, *options: str) -> str:
        """The error of `acid import`; the table is as it was."""
        before = self.state()
        done = self.acid("import", kind, str(source), self.table, *options)
        assert done.exit_code == 1, done.output
        assert self.state() == before
        return done.stderr

    def state(self) -> object:
        """The rows of the table and what it has got from sources; None if it is not there or is
        empty and new."""
        if self.table not in self.warehouse.tables():
            return None
        sinks = self.warehouse.metastore.call(GetSinks(self.table))
        return (sorted(map(str, self.rows())), sinks) if self.rows() or sinks else None

    def rows(self) -> list[dict[str, Any]]:
        rows = self.warehouse.table(self.table).to_arrow().to_pylist()
        return sorted(rows, key=lambda row: str(next(iter(row.values()))))

    def columns(self) -> str:
        columns = self.warehouse.table(self.table).all_columns
        return ", ".join(map(str, columns))


warehouse = a_warehouse("local")


@pytest.fixture
def place(warehouse: Warehouse) -> Place:
    return Place(warehouse)
