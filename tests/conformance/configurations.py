"""What runs the cases of the files: an engine, and where the warehouse is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from acid_platform import Warehouse
from acid_platform.sql.answers import Done, hive_text, rows_of
from acid_platform.sql.sql_session import SqlSession
from tests.conformance.slt import Case, Rows, Run, Tables, check, shown


class Configuration:
    """Runs cases in one warehouse. Those of a file that makes tables share a database."""

    def __init__(self, name: str, warehouse: Warehouse) -> None:
        self.name, self.warehouse = name, warehouse
        self.engine = "spark" if name.startswith("spark") else "local"
        self._numbers = count(1)
        self._databases: dict[str, str] = {}

    def check(self, case: Case) -> None:
        """Raises AssertionError for the first record of the case that is answered otherwise."""
        if self.name in case.skips:
            pytest.skip(case.skips[self.name])
        with self.session(case) as (run, tables):
            check(case, run, tables, self.engine == "spark")

    @contextmanager
    def session(self, case: Case) -> Iterator[tuple[Run, Tables]]:
        """What runs the statements of a case in its database, and reads the tables there."""
        session, reader = SqlSession(self.warehouse), SqlSession(self.warehouse)
        rolled_back = case.tables and not all(record.error for record in case.records)

        def run(statement: str) -> Rows | int | None:
            if rolled_back and session.transaction is None:
                session.run("START TRANSACTION")
            return self._answer(session, statement)

        def tables() -> dict[str, list[str]]:
            """In the local engine, whatever runs the statements: its answers are the same (P33)."""
            named = self._answer(reader, "SHOW TABLES", "local")
            read = {
                name: self._answer(reader, f"SELECT * FROM `{name}`", "local")
                for [name, *_] in named or ()
            }
            return {name: sorted(shown(rows)) for name, rows in read.items()}

        if not case.tables:
            name = f"case_{next(self._numbers)}"
            session.run(f"CREATE DATABASE {name}; USE {name}")
            reader.run(f"USE {name}")
            yield run, tables
        else:
            if case.file not in self._databases:
                name = f"file_{next(self._numbers)}"
                session.run(f"CREATE DATABASE {name}; USE {name}")
                for record in case.tables:
                    if record.table:
                        given = [json.loads(line) for line in record.sql.splitlines()]
                        table = self.warehouse.table(f"{name}.{record.table}")
                        table.insert(given, coerce=True)
                    else:
                        self._answer(session, record.sql)
                self._databases[case.file] = name
            for each in (session, reader):
                each.run(f"USE {self._databases[case.file]}")
            yield run, tables
            if session.transaction is not None:
                session.run("ROLLBACK")
        session.close()
        reader.close()

    def _answer(self, session: SqlSession, statement: str, engine: str = "") -> Rows | int | None:
        [(_, outcome)] = session.steps(statement, engine or self.engine)
        if isinstance(outcome, Done):
            return outcome.rows
        result = rows_of(outcome)
        rows = result.rows if result else ()
        return [[str(hive_text("", value)) or "(empty)" for value in row.values()] for row in rows]
