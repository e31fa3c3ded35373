"""Tests of SQL files: the rows of the tables that a file reads, and the rows that it then gives.

`totals.test.yaml` beside `totals.sql`:

    an order without an amount counts as nothing:
      given:
        shop.orders:
          - {id: 1, day: 2024-03-01, amount: 2.5}
          - {id: 2, day: 2024-03-01, amount: null}
      parameters: {partition_key: 2024-03-01}
      expect:
        - {day: 2024-03-01, amount: 2.5}

Types of columns follow from the rows, unless a table has `columns: id int, amount decimal(9,2)` and
`rows`. The columns that `expect` names are compared, in any order of the rows. A file that changes
a table gives the rows that this table then has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from acid_platform.base.local_files import scratch_directory
from acid_platform.errors import InvalidDefinition
from acid_platform.layout.names import table_name
from acid_platform.sql.scripts import ScriptTables, bound, parameters_of, tables_of_script

if TYPE_CHECKING:
    from acid_platform.engine.interface import Result
    from acid_platform.handles.warehouse import Warehouse

SUFFIX = ".test.yaml"
_PARTS = ("given", "parameters", "expect")
_EXPECTED = "acid_expected.rows"
Rows = list[dict[str, Any]]


class WrongRows(AssertionError):
    """A SQL file gives other rows than its test expects."""


@dataclass(frozen=True, slots=True)
class SqlTest:
    """A test of a SQL file. `given`: for each table its columns as text, or none, and its rows."""

    file: Path
    name: str
    given: Mapping[str, tuple[str, Rows]]
    parameters: Mapping[str, object]
    expect: Rows

    def __str__(self) -> str:
        return f"{self.file.name.removesuffix(SUFFIX)}: {self.name}"

    def check(self, warehouse: Warehouse, engine: str | None = None) -> None:
        """Runs the file in a warehouse, in which the tables of this name are replaced.

        Raises WrongRows; InvalidDefinition for a test that does not fit its file; what the
        statements raise.
        """
        sql = self.file.with_name(self.file.name.removesuffix(SUFFIX) + ".sql")
        if not sql.is_file():
            raise InvalidDefinition(f"{self.file} tests {sql.name}, which is not beside it")
        script = sql.read_text()
        tables = tables_of_script(bound(script, dict.fromkeys(parameters_of(script), "")))
        self._require_all(tables, sql.name)
        for name, (columns, rows) in self.given.items():
            self._fill(warehouse, name, columns, rows)
        answer: Any = warehouse.sql(script, dict(self.parameters) or None, engine)
        if tables.query is None:
            [changed] = tables.changes
            answer = warehouse.sql(f"SELECT * FROM {changed}", engine=engine)
        self._compare(warehouse, answer)

    def _require_all(self, tables: ScriptTables, script: str) -> None:
        needed = tables.reads | tables.changes
        if missing := sorted(needed - {*self.given}):
            raise InvalidDefinition(f"{self}: {script} uses {missing[0]}, which given: has not")
        if unused := sorted({*self.given} - needed):
            raise InvalidDefinition(
                f"{self}: given: has {unused[0]}, and {script} uses {', '.join(sorted(needed))}"
            )
        if len(tables.changes) > 1:
            raise InvalidDefinition(f"{self}: {script} changes {len(tables.changes)} tables")

    def _fill(self, warehouse: Warehouse, name: str, columns: str, rows: Rows) -> None:
        if not columns and not rows:
            raise InvalidDefinition(f"{self}: {name} has no rows; say its columns: too")
        try:
            inferred = pa.Table.from_pylist(rows).schema
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidDefinition(f"{self}: the rows of {name}: {error}") from error
        _replaced(warehouse, name, columns or inferred, rows)

    def _compare(self, warehouse: Warehouse, answer: Result) -> None:
        kinds = {column.name: column.type for column in answer.declared()}
        names = list(dict.fromkeys(name.lower() for row in self.expect for name in row))
        if unknown := [name for name in names if name not in kinds]:
            raise InvalidDefinition(
                f"{self}: expect: names {unknown[0]}, and the rows have {', '.join(kinds)}"
            )
        compared = names or list(kinds)
        declared = ", ".join(f"`{name}` {kinds[name]}" for name in compared)
        expected = _replaced(warehouse, _EXPECTED, declared, self.expect)
        wanted, given = (
            Counter(_texts(rows, compared)) for rows in (expected.to_arrow(), answer.to_arrow())
        )
        if wanted != given:
            lines = [f"{self}: other rows than expected", f"    {' | '.join(compared)}"]
            lines += [f"  - {' | '.join(row)}" for row in (wanted - given).elements()]
            lines += [f"  + {' | '.join(row)}" for row in (given - wanted).elements()]
            raise WrongRows("\n".join(lines))


def sql_tests(*places: str | Path) -> list[SqlTest]:
    """The tests in these files, and in the files below these folders whose names end in
    `.test.yaml`.

    Raises InvalidDefinition for a file that is no such test, and names its place; OSError.
    """
    found: list[SqlTest] = []
    for given in map(Path, places):
        for file in sorted(given.rglob(f"*{SUFFIX}")) if given.is_dir() else [given]:
            found.extend(_read(file))
    return found


@contextmanager
def warehouse_of_tests(engine: str | None = None) -> Iterator[Warehouse]:
    """An empty warehouse for the block, in a directory of its own."""
    from acid_platform.handles.warehouse import Warehouse

    with scratch_directory("sql-tests") as directory:
        warehouse = Warehouse.open(Path(directory, "warehouse"), engine=engine)
        try:
            yield warehouse
        finally:
            warehouse.release()
            warehouse.metastore.stop()
            warehouse.close()


def _read(file: Path) -> Iterator[SqlTest]:
    try:
        import yaml
    except ImportError as error:
        raise InvalidDefinition(
            f"{file} needs the package PyYAML; install it, or the extra dagster"
        ) from error
    try:
        every = yaml.safe_load(file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidDefinition(f"{file} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(every, dict) or not every:
        raise InvalidDefinition(f"{file} has no tests; write NAME: {{given: …, expect: …}}")
    for name, parts in every.items():
        where = f"{file}: {name}"
        if not isinstance(parts, dict) or "expect" not in parts:
            raise InvalidDefinition(f"{where} has no expect:")
        if unknown := [part for part in parts if part not in _PARTS]:
            raise InvalidDefinition(f"{where} has {unknown[0]}:; there are {', '.join(_PARTS)}")
        given, parameters = parts.get("given") or {}, parts.get("parameters") or {}
        if not isinstance(given, dict) or not isinstance(parameters, dict):
            raise InvalidDefinition(f"{where}: given: and parameters: have a value for each name")
        yield SqlTest(
            file,
            str(name),
            {table_name(str(table)): _table(told, where, table) for table, told in given.items()},
            {str(key): value for key, value in parameters.items()},
            _rows(parts["expect"], f"{where}: expect:"),
        )


def _table(told: object, test: str, table: object) -> tuple[str, Rows]:
    where = f"{test}: {table}"
    if not isinstance(told, dict):
        return "", _rows(told, where)
    if not {*told} <= {"columns", "rows"} or not isinstance(told.get("columns"), str):
        raise InvalidDefinition(f"{where} has rows, or columns: as text and rows:")
    return told["columns"], _rows(told.get("rows"), where)


def _rows(told: object, where: str) -> Rows:
    rows = told or []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidDefinition(f"{where} is no list of rows; write - {{id: 1, name: a}}")
    return rows


def _replaced(warehouse: Warehouse, name: str, columns: str | pa.Schema, rows: Rows) -> Any:
    if name in warehouse.tables():
        warehouse.drop_table(name)
    table = warehouse.create_table(name, columns)
    if rows:
        table.insert(rows)
    return table


def _texts(rows: pa.Table, columns: list[str]) -> list[tuple[str, ...]]:
    """The rows as texts, which are equal if their values are; NULL apart from each text."""
    by_name = rows.rename_columns([name.lower() for name in rows.column_names]).to_pydict()
    return list(zip(*(map(_text, by_name[name]) for name in columns), strict=True))


def _text(value: object) -> str:
    return "NULL" if value is None else repr(value) if isinstance(value, str) else str(value)


__all__ = ["SqlTest", "WrongRows", "sql_tests", "warehouse_of_tests"]
