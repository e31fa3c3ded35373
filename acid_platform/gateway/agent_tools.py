"""What agents ask by MCP, as plain values: tables, columns, history, findings and rows of a SELECT.

Statements go the way of the port of PostgreSQL's protocol: DuckDB's SQL, SELECT alone, at one
snapshot that a lease holds, of the tables that the user may read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from acid_platform.errors import InvalidDefinition, InvalidExpression, NoSuchTable, NotAuthorized
from acid_platform.gateway import postgres_messages as wire
from acid_platform.gateway.authorization import Caller, Guard
from acid_platform.gateway.postgres_server import OpenReading, Reading
from acid_platform.gateway.postgres_text import in_duckdbs_words, statements_of
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import table_name
from acid_platform.layout.table_properties import COMMENT
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import TableRecord

MOST_ROWS, _MOST_BYTES = 1000, 256 << 10
"""Rows of an answer, and bytes of their texts."""
_PLAIN = {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT"}
"""Types of DuckDB whose values are told as they are; others as texts, so that no digit is lost."""
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentTools:
    """Answers calls of tools, from any thread."""

    metastore: Metastore
    open_reading: OpenReading
    history_of: Callable[[str], Sequence[Mapping[str, Any]]]
    findings_of: Callable[[], Answer]
    guard: Guard
    seconds: float = 300.0
    """How long a SELECT may take."""

    def call(self, tool: str, given: Mapping[str, Any], caller: Caller) -> Answer:
        """Raises AcidError; InvalidDefinition for a tool or arguments that are not there."""
        found = TOOLS.get(tool)
        if found is None:
            raise InvalidDefinition(f"there is no tool {tool!r}; there are {', '.join(TOOLS)}")
        for name, value in given.items():
            kind = found.arguments.get(name)
            if kind is None or not isinstance(value, int if kind == "integer" else str):
                raise InvalidDefinition(f"{tool}: {name}={value!r} is no argument of it")
        missing = [name for name in found.required if name not in given]
        if missing:
            raise InvalidDefinition(f"{tool}: give {missing[0]}")
        return found.answer(self, caller, **given)

    # --- what there is --------------------------------------------------------------------------

    def _readable(self, caller: Caller) -> list[TableRecord]:
        every = self.metastore.tables()
        return [record for record in every if self.guard.may_read(record.name, caller)]

    def _table(self, caller: Caller, name: str) -> TableRecord:
        full = table_name(name)
        for record in self._readable(caller):
            if record.name == full:
                return record
        raise NoSuchTable(
            f"there is no table {full}; the tool tables lists those that you may read"
        )

    def tables(self, caller: Caller, database: str = "") -> Answer:
        return {
            "tables": [
                {
                    "table": record.name,
                    "format": FileFormat.of(record.properties).name,
                    "comment": record.properties.get(COMMENT, ""),
                }
                for record in self._readable(caller)
                if not database or record.name.startswith(f"{database.lower()}.")
            ]
        }

    def columns(self, caller: Caller, table: str) -> Answer:
        record = self._table(caller, table)
        both = ((record.columns, False), (record.partition_columns, True))
        return {
            "columns": [
                {
                    "column": name,
                    "type": kind,
                    "comment": record.comments.get(name, ""),
                    "partition": partition,
                }
                for columns, partition in both
                for name, kind in columns
            ]
        }

    def history(self, caller: Caller, table: str, rows: int = 20) -> Answer:
        every = self.history_of(self._table(caller, table).name)
        newest = [*every][::-1][: _bounded(rows)]
        return {"history": [{k: _told(v) for k, v in row.items()} for row in newest]}

    def findings(self, caller: Caller) -> Answer:
        """What doctor finds: it names all tables, so only who may read all of them gets it."""
        if len(self._readable(caller)) < len(self.metastore.tables()):
            raise NotAuthorized(
                "findings name every table, and you may not read all of them: ask an administrator"
                " for `acid doctor`"
            )
        return self.findings_of()

    # --- rows -----------------------------------------------------------------------------------

    def query(self, caller: Caller, sql: str, as_of: str = "", rows: int = 100) -> Answer:
        most = _bounded(rows)
        statements = statements_of(sql)
        if len(statements) != 1:
            raise InvalidExpression("give one SELECT")
        query = in_duckdbs_words(statements[0])

        opened = self.open_reading(caller.user, lambda name: self.guard.may_read(name, caller))
        with closing(opened) as reading, self._in_time(reading):
            reading.place(["default"], as_of, {"acid.as_of": as_of})
            described, parameters = reading.describe(query)
            if parameters:
                raise InvalidExpression("write values into the SELECT: it takes no parameters")
            columns = [wire.ShownColumn(*column) for column in described]
            plain = [column.duckdb in _PLAIN for column in columns]
            selected = wire.selected(query, columns, plain)
            found, more = _first(reading.run(query, selected, ()), most)
        names = [{"column": column.name, "type": column.duckdb} for column in columns]
        return {"columns": names, "rows": found, "more": more}

    @contextmanager
    def _in_time(self, reading: Reading) -> Iterator[None]:
        """A block whose statement is interrupted after `seconds`, again and again: what begins
        afterwards does not notice an interrupt."""
        done, late = threading.Event(), threading.Event()

        def watch() -> None:
            if not done.wait(self.seconds):
                late.set()
                while not done.wait(0.1):
                    reading.interrupt()

        watching = threading.Thread(target=watch, daemon=True, name="time of a SELECT")
        watching.start()
        try:
            yield
        except Exception as error:
            if late.is_set():
                raise InvalidExpression(
                    f"the SELECT took longer than {self.seconds:g} s: choose fewer rows"
                ) from error
            raise
        finally:
            done.set()
            watching.join()


def _bounded(rows: int) -> int:
    if not 0 < rows <= MOST_ROWS:
        raise InvalidDefinition(f"rows={rows} is not from 1 to {MOST_ROWS}")
    return rows


def _told(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _first(parts: Iterator[list[list[Any]]], most: int) -> tuple[list[list[Any]], bool]:
    """The first rows, and whether there are more. Raises InvalidExpression for a longer row."""
    found, size = list[list[Any]](), 0
    for part in parts:
        for row in zip(*part, strict=True):
            size += sum(len(value.encode()) if isinstance(value, str) else 8 for value in row)
            if size > _MOST_BYTES and not found:
                raise InvalidExpression(
                    f"the first row has more than {_MOST_BYTES} bytes: select fewer or shorter"
                    " values"
                )
            if len(found) == most or size > _MOST_BYTES:
                return found, True
            found.append([*row])
    return found, False


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as it is listed."""

    about: str
    answer: Callable[..., Answer]
    arguments: Mapping[str, str]
    """Their types in JSON's schema."""
    required: tuple[str, ...] = ()


TOOLS = {
    "tables": Tool(
        "The tables that you may read (of one database), with format and comment.",
        AgentTools.tables,
        {"database": "string"},
    ),
    "columns": Tool(
        "The columns of a table with Hive's types and comments.",
        AgentTools.columns,
        {"table": "string"},
        ("table",),
    ),
    "history": Tool(
        "The newest commits of a table: write id, operation, rows, time. A write id is an as_of.",
        AgentTools.history,
        {"table": "string", "rows": "integer"},
        ("table",),
    ),
    "findings": Tool(
        "What `acid doctor` finds wrong or waiting in the warehouse.", AgentTools.findings, {}
    ),
    "query": Tool(
        "The rows of one SELECT in DuckDB's SQL, at one snapshot: the present, or as_of a time"
        " (UTC), a write id or a tag. Whole numbers and booleans are JSON's, other values texts;"
        f" `more` tells of further rows than `rows` (100, at most {MOST_ROWS}).",
        AgentTools.query,
        {"sql": "string", "as_of": "string", "rows": "integer"},
        ("sql",),
    ),
}
"""By their names."""
