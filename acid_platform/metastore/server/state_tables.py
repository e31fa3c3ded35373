"""A state as tables of a DuckDB in memory, for queries and for a new snapshot (P8).

Rows that have left memory are read from the snapshot before, which is attached.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb

from acid_platform.base import databases
from acid_platform.base.local_files import scratch_directory, sync_path
from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.metastore.codec import json_text
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.server import stored_kinds as schema
from acid_platform.metastore.server.state_file import Origin, require_state
from acid_platform.metastore.server.stored_kinds import Columns

_CONFIG: dict[str, str | int] = {"threads": 1, "memory_limit": "2GB"}
_QUERY_ROWS = 100_000

_KEPT = {
    "txns": """SELECT * FROM before.txns b WHERE ended >= {since}
        AND NOT EXISTS (FROM recent.txns r WHERE r.txn_id = b.txn_id)""",
    "outcomes": """SELECT * FROM before.outcomes b WHERE "at" >= {since}
        AND NOT EXISTS (FROM recent.outcomes r WHERE r.request_id = b.request_id)""",
    "writes": """SELECT * FROM before.writes b
        WHERE NOT EXISTS (FROM recent.writes r
            WHERE r.table_id = b.table_id AND r.write_id = b.write_id
            AND r."partition" IS NOT DISTINCT FROM b."partition" AND r.directory = b.directory)""",
    "manifests": """SELECT * FROM before.manifests b
        WHERE EXISTS (FROM every_directory d WHERE d.table_id = b.table_id
            AND d."partition" IS NOT DISTINCT FROM b."partition" AND d.name = b.directory)
        AND NOT EXISTS (FROM recent.manifests r WHERE r.table_id = b.table_id
            AND r."partition" IS NOT DISTINCT FROM b."partition" AND r.directory = b.directory)""",
}
"""The rows of the snapshot before that still count: memory may have some of them too."""
_DIRECTORIES = """CREATE VIEW every_directory AS
    SELECT table_id, "partition", name FROM directories
    UNION ALL SELECT table_id, "partition", name FROM dropped_directories"""
_WORDS = re.compile(r"\w+")
VIEWS = (
    """CREATE VIEW v_txns AS
    SELECT txn_id, state, kind, started, ended, commit_id, "user", host, agent, run_id, description,
        reason FROM txns
    UNION ALL
    SELECT txn_id, state, kind, started, ended, 0, "user", host, agent, run_id, description, reason
    FROM open_txns WHERE state = 'o'""",
    "CREATE VIEW v_open_txns AS SELECT * FROM open_txns WHERE state = 'o'",
    """CREATE VIEW v_write_ids AS
    SELECT t.name AS "table", w.write_id, w.txn_id, coalesce(o.state, 'c') AS state
    FROM txn_to_write_id w JOIN tables t USING (table_id) LEFT JOIN open_txns o USING (txn_id)""",
    """CREATE VIEW v_locks AS
    SELECT ext, txn_id, acquired, c->>'$.db' AS db, c->>'$.table' AS "table",
        c->>'$.partition' AS "partition", c->>'$.lock' AS lock, c->>'$.operation' AS operation
    FROM (SELECT ext, txn_id, acquired, unnest(from_json(components, '["JSON"]')) AS c
        FROM locks)""",
    """CREATE VIEW v_files AS
    SELECT t.name AS "table", f."partition", f.directory, file->>'$[0]' AS file,
        (file->>'$[1]')::BIGINT AS bytes, (file->>'$[2]')::BIGINT AS "rows"
    FROM (SELECT table_id, "partition", directory,
        unnest(from_json(contents, '["JSON"]')) AS file FROM manifests) f
    JOIN tables t USING (table_id)""",
)
_BEHIND = {
    **{view.split()[2]: view for view in VIEWS},
    "manifests": _DIRECTORIES,
    "query": " ".join(schema.LIVE),  # functions that read tables whose names may be computed
    "query_table": " ".join(schema.LIVE),
}
"""By a word of a query: a text that names what it reads besides."""


class StateTables:
    """The tables of one state. A live table is copied from memory once a query names it.

    Raises duckdb.Error, and FileNotFoundError if the snapshot before is gone.
    """

    def __init__(
        self, state: State, origin: Origin, before: Path | None, forget_before: int = 0
    ) -> None:
        """`before` is the snapshot whose kept rows go on; `state` has what came since.

        Ended transactions and outcomes older than `forget_before` (milliseconds UTC) are left out
        (P3).
        """
        self._connection = databases.not_yet_closed(**_CONFIG)
        self._locked = False
        self._state, self._uncopied = state, set(schema.LIVE)
        try:
            self._fill(state, origin, before, forget_before)
        except BaseException:
            self._connection.close()
            raise

    def _fill(self, state: State, origin: Origin, before: Path | None, forget_before: int) -> None:
        run = self._connection.execute
        if before is None:
            run("CREATE SCHEMA before")
            for name, columns in schema.PAST.items():
                run(schema.create(f'before."{name}"', columns))
        else:
            self._attach(before)
        run("CREATE SCHEMA recent")
        for name, columns in schema.LIVE.items():
            run(schema.create(f'"{name}"', columns))
        run(_DIRECTORIES)
        recent = schema.ended_rows(state) | {"manifests": schema.recorded_rows(state)}
        for name, columns in schema.PAST.items():
            run("USE recent")  # an appender takes no qualified name
            run(schema.create(f'"{name}"', columns))
            self._write(name, columns, recent[name])
            run("USE main")
            earlier = _KEPT[name].format(since=int(forget_before))
            run(f'CREATE VIEW "{name}" AS {earlier} UNION ALL BY NAME FROM recent."{name}"')
        run(schema.create("meta", schema.META))
        numbers = {key: str(number) for key, number in schema.counters(state).items()}
        version = {"schema_version": str(schema.VERSION), "duckdb_version": duckdb.__version__}
        meta = {**numbers, **origin.as_meta(), **version}
        run("INSERT INTO meta SELECT unnest($1), unnest($2)", [[*meta], [*meta.values()]])
        for view in VIEWS:
            run(view)

    def _copy(self, names: Iterable[str]) -> None:
        """Copies these live tables from memory. All of them take 5 s if there are 100,000 tables,
        during which nobody is answered."""
        rows = schema.live_rows(self._state, self._uncopied.intersection(names))
        for name, listed in rows.items():
            self._write(name, schema.LIVE[name], listed)
            self._uncopied.remove(name)

    def _attach(self, before: Path) -> None:
        databases.attach(self._connection, before, "before")
        require_state(self._connection, "before", before)

    def _write(self, name: str, columns: Columns, rows: list[schema.Row]) -> None:
        """Writes rows with an appender: a third of the CPU of an INSERT with lists."""
        if not rows:
            return
        texts = [number for number, kind in enumerate(columns.values()) if kind == "JSON"]
        values = [[row[key] for key in columns] for row in rows]
        for value in values:
            for number in texts:
                value[number] = json_text(value[number])
        appender = self._connection.appender(name, columns=list(columns))
        appender.append_rows(values)
        appender.flush()

    def save(self, path: Path) -> None:
        """Writes the tables to a new file, for its owner only, and does not sync it.

        Raises OSError.
        """
        self._copy(schema.LIVE)
        run = self._connection.execute
        for leftover in (path, Path(f"{path}.wal")):
            leftover.unlink(missing_ok=True)
        databases.attach(self._connection, path, "saved", write=True)
        path.chmod(0o600)
        for name in ("meta", *schema.EVERY):
            run(f'CREATE TABLE saved."{name}" AS FROM memory."{name}"')
        run("USE saved")
        for view in VIEWS:
            run(view)
        run("USE memory")
        run("DETACH saved")

    def query(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        """Column names and rows of one SELECT, at most 100,000 rows.

        Raises UnsupportedStatement for anything but one SELECT, InvalidExpression if it fails.
        """
        connection = self._connection
        if not self._locked:
            databases.close_off(connection)
            self._locked = True
        try:
            statements = connection.extract_statements(sql)
        except duckdb.Error as error:
            raise InvalidExpression(f"the metastore can't parse {sql!r}: {error}") from error
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise UnsupportedStatement(f"the metastore answers one SELECT at a time, not {sql!r}")
        self._copy(_names_in(sql))
        try:
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            return names, [list(row) for row in cursor.fetchmany(_QUERY_ROWS)]
        except duckdb.Error as error:
            raise InvalidExpression(f"{sql!r} failed: {error}") from error

    def close(self) -> None:
        self._connection.close()


def _names_in(sql: str) -> set[str]:
    """The words of a query, and of the views that they may name: all tables that it reads are among
    them."""
    names: set[str] = set()
    words = {*_WORDS.findall(sql.lower())}
    while words:
        names |= words
        texts = " ".join(_BEHIND.get(word, "") for word in words)
        words = {*_WORDS.findall(texts.lower())} - names
    return names


def write_state(
    path: Path, state: State, origin: Origin, before: Path | None, forget_before: int = 0
) -> None:
    """Writes a snapshot of the state to a new file. Raises OSError, and what StateTables raises."""
    tables = StateTables(state, origin, before, forget_before)
    try:
        tables.save(path)
    finally:
        tables.close()


def publish_state(path: Path, state: State, origin: Origin, before: Path | None) -> None:
    """As `write_state`, but the file appears once it is complete and synced (P69).

    Raises FileExistsError.
    """
    with scratch_directory("draft", path.parent) as private:
        draft = Path(private, "draft.duckdb")
        write_state(draft, state, origin, before)
        sync_path(draft)
        os.link(draft, path)
    sync_path(path.parent)
