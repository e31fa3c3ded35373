"""A state in the tables of a DuckDB: the file of a snapshot (P8), and in memory for queries.

A snapshot is the state at a position of the log. People may open its file with any DuckDB of the
same version; it is only read. It has one table for each kind of record (stored_kinds.py), what has
ended, and the files of each directory.

The table `manifests` has the files of each directory of an entity (P26). It may have millions of
rows and has no index, so recent results stay in memory, up to a limit.

In memory, rows that have left the state are read from the snapshot before, which is attached.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

from acid_platform.base import databases
from acid_platform.base.file_bounds import LARGEST_PIECE, MOST_UNPACKED
from acid_platform.base.first_use import Recent
from acid_platform.base.local_files import scratch_directory, sync_path
from acid_platform.errors import (
    InvalidExpression,
    MetastoreDamaged,
    MetastoreIncompatible,
    UnsupportedStatement,
)
from acid_platform.metastore.log.contract import Batch
from acid_platform.metastore.messages import decode, json_text
from acid_platform.metastore.records import HistoryRow
from acid_platform.metastore.rules.state import Ended, Outcome, State
from acid_platform.metastore.server import stored_kinds as schema
from acid_platform.metastore.server.stored_kinds import Columns

Entity = tuple[int, str | None]
Read = Callable[[str, Columns, str, Sequence[Any]], list[dict[str, Any]]]
"""Reads rows of a table: its name, its columns, a WHERE clause and the clause's values."""

MOST_CHARACTERS = 64 << 20
"""The most characters that stay in memory, which are about as many bytes."""
_ENTRY = 200
"""Approximate bytes of a directory besides its text."""
_FEW = 100
"""The most partitions in one query; for more, the whole table is read at once."""


class RecordedCache:
    """The recorded files of entities; the least recently used entities are evicted first."""

    def __init__(self, read: Read, most: int = MOST_CHARACTERS) -> None:
        self._read = read
        self._entities: Recent[Entity, dict[str, str]] = Recent(sys.maxsize, most)

    def of(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> dict[tuple[str | None, str], str]:
        """The recorded text of each directory, by partition and name. Raises what `read` raises."""
        recorded: dict[str | None, dict[str, str]] = {}
        for partition in partitions:
            if (contents := self._entities.get((table_id, partition))) is not None:
                recorded[partition] = contents
        lacking = [partition for partition in partitions if partition not in recorded]
        if lacking:
            for partition, contents in self._look_up(table_id, lacking).items():
                recorded[partition] = contents
                self._entities.put((table_id, partition), contents, _size(contents))
        return {
            (partition, name): text
            for partition, contents in recorded.items()
            for name, text in contents.items()
        }

    def _look_up(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> dict[str | None, dict[str, str]]:
        where, values = "WHERE table_id = $1", list[Any]([table_id])
        if len(partitions) == 1:
            where += ' AND "partition" IS NOT DISTINCT FROM $2'
            values.append(partitions[0])
        elif len(partitions) <= _FEW:
            where += ' AND "partition" IN (SELECT unnest($2::VARCHAR[]))'
            values.append([*partitions])
        files: dict[str | None, dict[str, str]] = {partition: {} for partition in partitions}
        for row in self._read("manifests", schema.RECORDED["manifests"], where, values):
            if row["partition"] in files:
                files[row["partition"]][row["directory"]] = row["contents"]
        return files


def _size(contents: Mapping[str, str]) -> int:
    return _ENTRY + sum(_ENTRY + len(name) + len(text) for name, text in contents.items())


_CONFIG: dict[str, str | int] = {"threads": 1, "memory_limit": "128MB"}
_FILE = "snapshot"
"""The name under which a snapshot is attached."""


def _number(text: str) -> int:
    """Raises ValueError for a number that no BIGINT of ours can count on from."""
    number = int(text)
    if abs(number) > _MOST:
        raise ValueError(f"the number {text} is too large")
    return number


_MOST = 10**18


@dataclass(frozen=True, slots=True)
class Origin:
    """Which state a file holds."""

    position: int
    """The batch after which it is the state; 0 for none."""
    epoch: int
    made: int
    """The moment of that batch, in milliseconds UTC."""
    history: str

    @classmethod
    def of(cls, batch: Batch, history: str) -> Origin:
        return cls(batch.position, batch.epoch, batch.made, history)

    @classmethod
    def parse(cls, meta: Mapping[str, str]) -> Origin:
        """Raises KeyError, ValueError."""
        position, epoch, made = (_number(meta[key]) for key in ("position", "epoch", "made"))
        return cls(position, epoch, made, meta["history"])

    def as_meta(self) -> dict[str, str]:
        return {key: str(value) for key, value in asdict(self).items()}


def open_state(path: Path, directory: Path) -> StateFile:
    """Opens a snapshot, or a copy of it below `directory` with today's tables if it is older.

    Raises MetastoreIncompatible, MetastoreDamaged, OSError.
    """
    file = StateFile(path)
    if file.version == schema.VERSION:
        return file
    file.close()
    copy = directory / f"{path.stem}.{os.getpid()}.migrated"  # others make one too
    shutil.copyfile(path, copy)
    with _whole(path), databases.not_yet_closed(**_CONFIG) as connection:
        databases.attach(connection, copy, _FILE, write=True)
        _require_only_tables(connection, path)
        connection.execute(f"USE {_FILE}")
        for statements in schema.MIGRATIONS[file.version - 1 :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(
            "UPDATE meta SET value = $1 WHERE key = 'schema_version'", [str(schema.VERSION)]
        )
        connection.execute("USE memory")
        connection.execute(f"DETACH {_FILE}")
    return StateFile(copy)


_TABLES = {"meta": schema.META, **schema.EVERY}


def require_state(
    connection: duckdb.DuckDBPyConnection, name: str, path: Path, tables: Iterable[str] = _TABLES
) -> None:
    """Raises MetastoreDamaged unless an attached file has the tables of a state as we make them:
    a view in place of one would read other files, or compute (P67)."""
    stored = databases.stored_tables(connection, name)
    for table in tables:
        expected = {
            databases.TableColumn(column, schema.sql_type(kind), False, None)
            for column, kind in _TABLES[table].items()
        }
        if {*stored.get(("main", table), ())} != expected:
            raise MetastoreDamaged(
                f"{path} is no snapshot of a metastore: its {table!r} is not the table that this"
                " program makes; restore a backup that `acid metastore backup` wrote"
            )


def _require_only_tables(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raises MetastoreDamaged for what statements of a migration would run or find by a name."""
    kinds = {
        "functions": "FROM duckdb_functions() WHERE database_name = $1 AND NOT internal",
        "triggers": "FROM duckdb_triggers() WHERE database_name = $1",
        "types": "FROM duckdb_types() WHERE database_name = $1 AND NOT internal",
        "computed columns": "FROM duckdb_columns() WHERE database_name = $1"
        " AND (is_generated OR column_default IS NOT NULL)",
    }
    for kind, query in kinds.items():
        if connection.execute(query, [_FILE]).fetchall():
            raise MetastoreDamaged(
                f"{path} is no snapshot of a metastore: it has {kind}; restore a backup that `acid"
                " metastore backup` wrote"
            )


def _connected(path: Path) -> duckdb.DuckDBPyConnection:
    try:
        return databases.in_memory({_FILE: path}, **_CONFIG)
    except duckdb.Error as error:
        raise MetastoreIncompatible(f"{path} can't be opened: {error}") from error


_NO_RECORDS = (
    *(duckdb.Error, ArithmeticError, AttributeError, LookupError, RecursionError),
    *(TypeError, ValueError),
)
"""What reading rows raises that somebody else has written."""


def _meta(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    require_state(connection, _FILE, path, ["meta"])
    try:
        meta = dict(connection.execute(f"SELECT key, value FROM {_FILE}.main.meta").fetchall())
        if int(meta["schema_version"]) < 1:
            raise ValueError(f"schema version {meta['schema_version']}")
        Origin.parse(meta)
    except _NO_RECORDS as error:
        raise MetastoreDamaged(
            f"{path} is no snapshot of a metastore: {error}; restore a backup"
        ) from error
    return meta


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Raises MetastoreDamaged for what DuckDB can't read, and for rows that are no records."""
    try:
        yield
    except _NO_RECORDS as error:
        raise MetastoreDamaged(
            f"{path} can't be read as a snapshot: {type(error).__name__}: {error}; restore a backup"
        ) from error


class StateFile:
    """An open snapshot, for one thread.

    Raises MetastoreIncompatible, MetastoreDamaged, FileNotFoundError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = _connected(path)
        try:
            self.meta = _meta(self._connection, path)
            self.version = int(self.meta["schema_version"])
            if self.version > schema.VERSION:
                raise MetastoreIncompatible(
                    f"{path} has schema version {self.version}, this program knows"
                    f" {schema.VERSION}; use the newer program that wrote it"
                )
            if self.version == schema.VERSION:
                require_state(self._connection, _FILE, path)
        except BaseException:
            self._connection.close()
            raise
        self.origin = Origin.parse(self.meta)
        self.size = path.stat().st_size
        self._recorded = RecordedCache(self._read)

    def state(self, strange: bool = False) -> State:
        """`strange`: somebody else may have written it, and it is bounded (P65)."""
        with _whole(self.path):
            if strange:
                query = f"SELECT sum(size)::DOUBLE FROM ({schema.sizes(f'{_FILE}.main')})"
                size = sum(each or 0 for (each,) in self._connection.execute(query).fetchall())
                if size > max(LARGEST_PIECE, MOST_UNPACKED * self.size):
                    raise ValueError(f"its {self.size:,} bytes would take {int(size) >> 20:,} MB")
            rows = {name: self._read(name, columns) for name, columns in schema.LIVE.items()}
            numbers = {key: _number(self.meta[key]) for key in schema.COUNTERS if key in self.meta}
            return schema.restore(rows, numbers)

    # --- what memory no longer holds ------------------------------------------------------------

    def past_txn(self, txn_id: int) -> Ended | None:
        with _whole(self.path):
            rows = self._read("txns", schema.KEPT["txns"], "WHERE txn_id = $1", [txn_id])
            return decode(Ended, rows[-1]) if rows else None

    def past_outcome(self, request_id: str) -> Outcome | None:
        where = "WHERE request_id = $1"
        with _whole(self.path):
            rows = self._read("outcomes", schema.KEPT["outcomes"], where, [request_id])
            return decode(Outcome, rows[-1]) if rows else None

    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]:
        with _whole(self.path):
            return self._recorded.of(table_id, partitions)

    def history(self, table_id: int) -> list[HistoryRow]:
        where = "WHERE table_id = $1 ORDER BY write_id, directory"
        with _whole(self.path):
            rows = self._read("writes", schema.KEPT["writes"], where, [table_id])
            return [decode(HistoryRow, row) for row in rows]

    def close(self) -> None:
        self._connection.close()

    def _read(
        self, name: str, columns: Columns, where: str = "", values: Sequence[Any] = ()
    ) -> list[schema.Row]:
        listed = ", ".join(f'"{key}"' for key in columns)
        result = self._connection.execute(
            f'SELECT {listed} FROM {_FILE}.main."{name}" {where}', list(values)
        )
        keys, json_keys = list(columns), [key for key, kind in columns.items() if kind == "JSON"]
        rows = [dict(zip(keys, row, strict=True)) for row in result.fetchall()]
        for row in rows:
            for key in json_keys:
                row[key] = json.loads(row[key])
        return rows


_LARGER: dict[str, str | int] = {"threads": 1, "memory_limit": "2GB"}
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
_BEHIND = {
    **{view.split()[2]: view for view in schema.VIEWS},
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
        self._connection = databases.not_yet_closed(**_LARGER)
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
        for view in schema.VIEWS:
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
        for view in schema.VIEWS:
            run(view)
        run("USE memory")
        run("DETACH saved")

    def query(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        """Column names and rows of one SELECT, at most 100,000 rows.

        Raises UnsupportedStatement for anything but one SELECT, InvalidExpression if it fails.
        """
        connection = self._connection
        if not self._locked:
            connection.execute("SET max_temp_directory_size = '4GB'")
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
