"""What runs the cases of the files: an engine, and where the warehouse is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from acid_platform import Warehouse
from acid_platform.sql.answers import Done
from acid_platform.sql.present import hive_text, rows_of
from acid_platform.sql.sql_session import SqlSession
from tests.conformance.slt import Case, Rows, Run, check


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
        with self.session(case) as run:
            check(case, run, self.engine == "spark")

    @contextmanager
    def session(self, case: Case) -> Iterator[Run]:
        """What runs the statements of a case, in its database."""
        session = SqlSession(self.warehouse)

        def run(statement: str) -> Rows | int | None:
            if case.tables and session.transaction is None:
                session.run("START TRANSACTION")
            return self._answer(session, statement)

        if not case.tables:
            name = f"case_{next(self._numbers)}"
            session.run(f"CREATE DATABASE {name}; USE {name}")
            yield run
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
            session.run(f"USE {self._databases[case.file]}")
            yield run
            if session.transaction is not None:
                session.run("ROLLBACK")
        session.close()

    def _answer(self, session: SqlSession, statement: str) -> Rows | int | None:
        [(_, outcome)] = session.steps(statement, self.engine)
        if isinstance(outcome, Done):
            return outcome.rows
        result = rows_of(outcome)
        rows = result.rows if result else ()
        return [[str(hive_text("", value)) or "(empty)" for value in row.values()] for row in rows]
