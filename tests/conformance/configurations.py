"""What runs the cases of the files: an engine, and where the warehouse is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from acid_platform import AcidError, Warehouse
from acid_platform.sql.answers import Done, hive_text, rows_of
from acid_platform.sql.sql_session import SqlSession
from tests.conformance.slt import Case, Rows, Run, Tables, check, shown
from tests.gateway import stranger_reads


class Configuration:
    """Runs cases in one warehouse. Those of a file that makes tables share a database.

    With a client of a gateway the statements are committed, in tables of each case alone. That
    client inserts the rows that a file gives, and reads every table after every statement: it must
    find what we find (P34).
    """

    def __init__(self, name: str, warehouse: Warehouse, client: Any = None) -> None:
        self.name, self.warehouse, self.client = name, warehouse, client
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
        all_refused = all(record.error for record in case.records)
        shared = case.tables and (all_refused or self.client is None)
        database = self._databases.get(case.file, "") if shared else ""
        if not database:
            database = self._made(case, session)
            if shared:
                self._databases[case.file] = database

        def run(statement: str) -> Rows | int | None:
            if shared and not all_refused and session.transaction is None:
                session.run("START TRANSACTION")
            answer = self._answer(session, statement)
            if self.client is not None:
                tables()
            return answer

        def tables() -> dict[str, list[str]]:
            """In the local engine, whatever runs the statements: its answers are the same (P33).

            Of a view that lost a table or a column its error.
            """
            reader.run(f"USE {session.current_database}")
            read = {}
            for [name, *_] in self._answer(reader, "SHOW TABLES", "local") or ():
                try:
                    found = self._answer(reader, f"SELECT * FROM `{name}`", "local")
                    read[name] = sorted(shown(found))
                except AcidError as error:
                    read[name] = [f"{type(error).__name__}: {error}"]
            if self.client is not None:
                self._compare(session.current_database, read)
            return read

        session.run(f"USE {database}")
        yield run, tables
        if shared and session.transaction is not None:
            session.run("ROLLBACK")
        session.close()
        reader.close()

    def _made(self, case: Case, session: SqlSession) -> str:
        """A new database with the tables that the file of the case gives it."""
        name = f"case_{next(self._numbers)}"
        session.run(f"CREATE DATABASE {name}; USE {name}")
        for record in case.tables:
            if record.table:
                table = f"{name}.{record.table}"
                given = [json.loads(line) for line in record.sql.splitlines()]
                if self.client is None:
                    self.warehouse.table(table).insert(given, coerce=True)
                else:
                    stranger_reads.insert(self.client, table, given)
            else:
                self._answer(session, record.sql)
        return name

    def _compare(self, database: str, ours: dict[str, list[str]]) -> None:
        """Raises AssertionError for a table of which another engine reads other rows."""
        for name in stranger_reads.tables_of(self.client, database):
            rows = stranger_reads.rows_of(self.client, f"{database}.{name}")
            assert sorted(shown(_texts(rows))) == ours[name], f"read through the gateway: {name}"

    def _answer(self, session: SqlSession, statement: str, engine: str = "") -> Rows | int | None:
        [(_, outcome)] = session.steps(statement, engine or self.engine)
        if isinstance(outcome, Done):
            return outcome.rows
        result = rows_of(outcome)
        rows = result.rows if result else ()
        return _texts([[*row.values()] for row in rows])


def _texts(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    return [[str(hive_text("", value)) or "(empty)" for value in row] for row in rows]
