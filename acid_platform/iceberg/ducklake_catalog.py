"""A catalog of DuckLake: a file of DuckDB with rows for our files, the rows that they hide, and
columns, from one snapshot to another.

A catalog is made anew from the one before, of which only the rows of known tables are taken. Its
snapshots are the metastore's moments. Positions of deleted rows stand in the catalog itself.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from acid_platform.base import databases
from acid_platform.iceberg.ducklake_rows import ColumnRow, LakeFile, LastTold, Mapped
from acid_platform.values.arrow_types import from_numpy

_VERSION = "1.0"
"""The version of the specification of DuckLake."""
_FILE = "lake"
_SPAN = "begin_snapshot BIGINT, end_snapshot BIGINT"
_VALUES = (
    "column_size_bytes BIGINT, value_count BIGINT, null_count BIGINT, min_value VARCHAR,"
    " max_value VARCHAR, contains_nan BOOLEAN, extra_stats VARCHAR"
)
_PLACE = "path VARCHAR, path_is_relative BOOLEAN"
_TABLES = {
    "ducklake_column": f"column_id BIGINT, {_SPAN}, table_id BIGINT, column_order BIGINT,"
    " column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, default_value VARCHAR,"
    " nulls_allowed BOOLEAN, parent_column BIGINT, default_value_type VARCHAR,"
    " default_value_dialect VARCHAR",
    "ducklake_column_mapping": "mapping_id BIGINT, table_id BIGINT, type VARCHAR",
    "ducklake_column_tag": f"table_id BIGINT, column_id BIGINT, {_SPAN}, key VARCHAR,"
    " value VARCHAR",
    "ducklake_data_file": f"data_file_id BIGINT PRIMARY KEY, table_id BIGINT, {_SPAN},"
    f" file_order BIGINT, {_PLACE}, file_format VARCHAR, record_count BIGINT,"
    " file_size_bytes BIGINT, footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT,"
    " encryption_key VARCHAR, mapping_id BIGINT, partial_max BIGINT",
    "ducklake_delete_file": f"delete_file_id BIGINT PRIMARY KEY, table_id BIGINT, {_SPAN},"
    f" data_file_id BIGINT, {_PLACE}, format VARCHAR, delete_count BIGINT,"
    " file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR, partial_max BIGINT",
    "ducklake_file_column_stats": "data_file_id BIGINT, table_id BIGINT, column_id BIGINT,"
    f" {_VALUES}",
    "ducklake_file_partition_value": "data_file_id BIGINT, table_id BIGINT,"
    " partition_key_index BIGINT, partition_value VARCHAR",
    "ducklake_file_variant_stats": "data_file_id BIGINT, table_id BIGINT, column_id BIGINT,"
    f" variant_path VARCHAR, shredded_type VARCHAR, {_VALUES}",
    "ducklake_files_scheduled_for_deletion": f"data_file_id BIGINT, {_PLACE},"
    " schedule_start TIMESTAMP WITH TIME ZONE",
    "ducklake_inlined_data_tables": "table_id BIGINT, table_name VARCHAR, schema_version BIGINT",
    "ducklake_macro": f"schema_id BIGINT, macro_id BIGINT, macro_name VARCHAR, {_SPAN}",
    "ducklake_macro_impl": "macro_id BIGINT, impl_id BIGINT, dialect VARCHAR, sql VARCHAR,"
    " type VARCHAR",
    "ducklake_macro_parameters": "macro_id BIGINT, impl_id BIGINT, column_id BIGINT,"
    " parameter_name VARCHAR, parameter_type VARCHAR, default_value VARCHAR,"
    " default_value_type VARCHAR",
    "ducklake_metadata": "key VARCHAR NOT NULL, value VARCHAR NOT NULL, scope VARCHAR,"
    " scope_id BIGINT",
    "ducklake_name_mapping": "mapping_id BIGINT, column_id BIGINT, source_name VARCHAR,"
    " target_field_id BIGINT, parent_column BIGINT, is_partition BOOLEAN",
    "ducklake_partition_column": "partition_id BIGINT, table_id BIGINT,"
    " partition_key_index BIGINT, column_id BIGINT, transform VARCHAR",
    "ducklake_partition_info": f"partition_id BIGINT, table_id BIGINT, {_SPAN}",
    "ducklake_schema": f"schema_id BIGINT PRIMARY KEY, schema_uuid UUID, {_SPAN},"
    f" schema_name VARCHAR, {_PLACE}",
    "ducklake_schema_versions": "begin_snapshot BIGINT, schema_version BIGINT, table_id BIGINT",
    "ducklake_snapshot": "snapshot_id BIGINT PRIMARY KEY, snapshot_time TIMESTAMP WITH TIME ZONE,"
    " schema_version BIGINT, next_catalog_id BIGINT, next_file_id BIGINT",
    "ducklake_snapshot_changes": "snapshot_id BIGINT PRIMARY KEY, changes_made VARCHAR,"
    " author VARCHAR, commit_message VARCHAR, commit_extra_info VARCHAR",
    "ducklake_sort_expression": "sort_id BIGINT, table_id BIGINT, sort_key_index BIGINT,"
    " expression VARCHAR, dialect VARCHAR, sort_direction VARCHAR, null_order VARCHAR",
    "ducklake_sort_info": f"sort_id BIGINT, table_id BIGINT, {_SPAN}",
    "ducklake_table": f"table_id BIGINT, table_uuid UUID, {_SPAN}, schema_id BIGINT,"
    f" table_name VARCHAR, {_PLACE}",
    "ducklake_table_column_stats": "table_id BIGINT, column_id BIGINT, contains_null BOOLEAN,"
    " contains_nan BOOLEAN, min_value VARCHAR, max_value VARCHAR, extra_stats VARCHAR",
    "ducklake_table_stats": "table_id BIGINT, record_count BIGINT, next_row_id BIGINT,"
    " file_size_bytes BIGINT",
    "ducklake_tag": f"object_id BIGINT, {_SPAN}, key VARCHAR, value VARCHAR",
    "ducklake_view": f"view_id BIGINT, view_uuid UUID, {_SPAN}, schema_id BIGINT,"
    " view_name VARCHAR, dialect VARCHAR, sql VARCHAR, column_aliases VARCHAR",
    "acid_told": "table_id BIGINT, name VARCHAR, first BIGINT, moment BIGINT, told_at BIGINT",
}
"""The tables of a catalog with their columns; DuckLake knows all but the last, which says of each
table of ours the first and the last commit that were told."""
_KEPT = (
    "ducklake_column",
    "ducklake_column_mapping",
    "ducklake_data_file",
    "ducklake_file_column_stats",
    "ducklake_name_mapping",
    "acid_told",
)
"""What is taken from the catalog before, beside positions of deleted rows."""
_OF_FILES = ("ducklake_data_file", "ducklake_file_column_stats")
_DELETED = "ducklake_inlined_delete_{}"
_DELETED_COLUMNS = "file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT"


@dataclass(slots=True)
class Lake:
    """A new catalog, which has all of the catalog before. Close it, or use `with`."""

    path: Path
    _run: databases.Connection
    _next_file: int = 0
    _next_mapping: int = 0

    @classmethod
    def begin(cls, path: Path, before: Path | None, identity: str, data: str) -> Lake:
        """Makes the new file. `before`: a catalog whose rows it has, unless it is of another
        metastore or can't be read. `data`: the directory that the tables are in."""
        connection = databases.not_yet_closed(threads=1)
        lake = cls(path, connection)
        try:
            databases.attach(connection, path, _FILE, write=True, more=_READ_BY_ALL)
            for name, columns in _TABLES.items():
                connection.execute(f"CREATE TABLE {_FILE}.{name} ({columns})")
            if before is not None:
                lake._take(before, identity)
            rows = [("version", _VERSION), ("created_by", "acid export ducklake")]
            rows += [("data_path", f"{data}/"), ("encrypted", "false"), ("acid_identity", identity)]
            connection.executemany(
                f"INSERT INTO {_FILE}.ducklake_metadata (key, value) VALUES (?, ?)", rows
            )
        except BaseException:
            connection.close()
            raise
        lake._next_file = 1 + lake._highest("ducklake_data_file", "data_file_id")
        lake._next_mapping = 1 + lake._highest("ducklake_column_mapping", "mapping_id")
        return lake

    def _take(self, before: Path, identity: str) -> None:
        """Nothing of a file that is no catalog of ours: it is told from the beginning then."""
        run, own = self._run.execute, {**_TABLES}
        try:
            databases.attach(self._run, before, "before")
            found = databases.stored_tables(self._run, "before")
            own |= {
                name: _DELETED_COLUMNS
                for _, name in found
                if re.fullmatch(_DELETED.format(r"\d{1,18}"), name)
            }
            for name in own.keys() - _TABLES.keys():
                run(f"CREATE TABLE {_FILE}.{name} ({_DELETED_COLUMNS})")
            made = databases.stored_tables(self._run, _FILE)
            told = "FROM before.ducklake_metadata WHERE key = 'acid_identity'"
            alike = all(found.get(("main", name)) == made["main", name] for name in own)
            if alike and run(f"SELECT value {told}").fetchall() == [(identity,)]:
                for name in (*_KEPT, *own.keys() - _TABLES.keys()):
                    run(f"INSERT INTO {_FILE}.{name} SELECT * FROM before.{name}")
            run("DETACH before")
        except databases.Error:
            for name in own:
                run(f"DROP TABLE IF EXISTS {_FILE}.{name}")
            for name, columns in _TABLES.items():
                run(f"CREATE TABLE {_FILE}.{name} ({columns})")

    def _highest(self, table: str, column: str) -> int:
        return int(self._value(f"SELECT coalesce(max({column}), 0) FROM {_FILE}.{table}"))

    def _value(self, sql: str) -> Any:
        (row,) = self._run.execute(sql).fetchall()
        return row[0]

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, *_: object) -> None:
        self._run.close()

    # --- what was told -------------------------------------------------------------------------

    def told(self) -> dict[int, LastTold]:
        """By the ids of tables."""
        rows = self._run.execute(
            f"SELECT table_id, name, first, moment, told_at FROM {_FILE}.acid_told"
        )
        return {number: LastTold(*rest) for number, *rest in rows.fetchall()}

    def files(self, table: int) -> dict[str, LakeFile]:
        """Those of the last commit that was told, by their paths."""
        rows = self._run.execute(
            "SELECT data_file_id, path, file_size_bytes, record_count, begin_snapshot,"
            f" row_id_start, mapping_id FROM {_FILE}.ducklake_data_file"
            " WHERE table_id = $1 AND end_snapshot IS NULL",
            [table],
        )
        files = [LakeFile(*row) for row in rows.fetchall()]
        for file in files:
            file.fresh = False
        return {file.path: file for file in files}

    def columns(self, table: int) -> list[ColumnRow]:
        """Those of the last commit that was told."""
        rows = self._run.execute(
            "SELECT column_id, column_order, column_name, column_type, parent_column"
            f" FROM {_FILE}.ducklake_column WHERE table_id = $1 AND end_snapshot IS NULL"
            " ORDER BY column_order",
            [table],
        )
        return [tuple(row) for row in rows.fetchall()]

    def mappings(self, table: int) -> dict[Mapped, int]:
        rows = self._run.execute(
            "SELECT mapping_id, column_id, source_name, target_field_id, parent_column,"
            f" is_partition FROM {_FILE}.ducklake_name_mapping JOIN"
            f" {_FILE}.ducklake_column_mapping USING (mapping_id) WHERE table_id = $1"
            " ORDER BY mapping_id, column_id",
            [table],
        )
        found: dict[int, list[Any]] = {}
        for number, *rest in rows.fetchall():
            found.setdefault(number, []).append(tuple(rest))
        return {tuple(parts): number for number, parts in found.items()}

    def positions(self, table: int, file: int) -> np.ndarray:
        """The deleted positions of a file, ascending: int64 (n,)."""
        if not self._deletes(table):
            return np.zeros(0, np.int64)
        rows = self._run.execute(
            f"SELECT row_id FROM {_FILE}.{_DELETED.format(table)} WHERE file_id = $1 ORDER BY ALL",
            [file],
        )
        return np.asarray(rows.fetchnumpy()["row_id"], np.int64)

    def next_row(self, table: int) -> int:
        """The first row number that no file of the table has."""
        return int(
            self._value(
                "SELECT coalesce(max(row_id_start + record_count), 0) FROM"
                f" {_FILE}.ducklake_data_file WHERE table_id = {table}"
            )
        )

    def _deletes(self, table: int) -> bool:
        """Whether the table has positions of deleted rows."""
        return (_DELETED.format(table),) in self._run.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = $1", [_FILE]
        ).fetchall()

    # --- what is told --------------------------------------------------------------------------

    def new_file(self) -> int:
        self._next_file += 1
        return self._next_file - 1

    def map(self, table: int, rows: Mapped) -> int:
        """The number of a new mapping."""
        number, self._next_mapping = self._next_mapping, self._next_mapping + 1
        self._add("ducklake_column_mapping", [(number, table, "map_by_name")])
        self._add("ducklake_name_mapping", [(number, *row) for row in rows])
        return number

    def declare(self, table: int, moment: int, rows: Sequence[ColumnRow]) -> None:
        """The columns from this moment on."""
        before = self.columns(table)
        gone = [row[0] for row in before if row not in rows]
        self._run.execute(
            f"UPDATE {_FILE}.ducklake_column SET end_snapshot = $1 WHERE table_id = $2"
            " AND end_snapshot IS NULL AND column_id IN (SELECT unnest($3))",
            [moment, table, gone],
        )
        self._add(
            "ducklake_column",
            [
                (number, moment, None, table, order, *of, None, "NULL", True, inside, *_LITERAL)
                for number, order, *of, inside in rows
                if (number, order, *of, inside) not in before
            ],
        )

    def tell(
        self,
        table: int,
        files: Sequence[LakeFile],
        deleted: Sequence[tuple[int, int, np.ndarray]],
    ) -> None:
        """Adds files, ends others, and hides rows: of a file, from a moment on, at positions."""
        fresh = [each for each in files if each.fresh]
        self._add(
            "ducklake_data_file",
            [
                (
                    *(each.number, table, each.begin, each.end, None, each.path, False, "parquet"),
                    *(each.rows, each.size, None, each.first_row, None, None, each.mapping, None),
                )
                for each in fresh
            ],
        )
        self._add(
            "ducklake_file_column_stats",
            [
                (each.number, table, column, None, values, nulls, low, high, None, None)
                for each in fresh
                for column, values, nulls, low, high in each.stats
            ],
        )
        ended = [(each.number, each.end) for each in files if each.end and not each.fresh]
        if ended:
            self._run.execute(
                f"UPDATE {_FILE}.ducklake_data_file SET end_snapshot = ends.moment FROM"
                " (SELECT unnest($1) AS number, unnest($2) AS moment) AS ends"
                " WHERE data_file_id = ends.number",
                [[number for number, _ in ended], [moment for _, moment in ended]],
            )
        if not deleted:
            return
        counts = [len(rows) for _, _, rows in deleted]
        name = _DELETED.format(table)
        self._run.execute(f"CREATE TABLE IF NOT EXISTS {_FILE}.{name} ({_DELETED_COLUMNS})")
        numbers = np.repeat(np.array([each[0] for each in deleted], np.int64), counts)
        moments = np.repeat(np.array([each[1] for each in deleted], np.int64), counts)
        rows = np.concatenate([each[2] for each in deleted]).astype(np.int64)
        columns = ("file_id", "row_id", "begin_snapshot")
        arrays = [from_numpy(each) for each in (numbers, rows, moments)]
        self._insert(name, pa.table(dict(zip(columns, arrays, strict=True))))

    def _add(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            appender = self._run.appender(f"{_FILE}.{table}")
            appender.append_rows([[*row] for row in rows])
            appender.flush()

    def _insert(self, table: str, rows: pa.Table) -> None:
        self._run.register("given", rows)
        self._run.execute(f"INSERT INTO {_FILE}.{table} SELECT * FROM given")
        self._run.unregister("given")

    def reached(self, table: int, told: LastTold) -> None:
        """From now on readers find this; what only earlier snapshots need is forgotten."""
        run, first = self._run.execute, told.first
        run(f"DELETE FROM {_FILE}.acid_told WHERE table_id = $1", [table])
        self._add("acid_told", [(table, told.name, first, told.moment, told.at)])
        gone = f"SELECT data_file_id FROM {_FILE}.ducklake_data_file WHERE end_snapshot <= $1"
        if self._deletes(table):
            run(
                f"DELETE FROM {_FILE}.{_DELETED.format(table)} WHERE file_id IN"
                f" ({gone} AND table_id = $2)",
                [first, table],
            )
        for each in reversed(_OF_FILES):
            run(
                f"DELETE FROM {_FILE}.{each} WHERE data_file_id IN ({gone} AND table_id = $2)",
                [first, table],
            )
        run(
            f"DELETE FROM {_FILE}.ducklake_column WHERE table_id = $1 AND end_snapshot <= $2",
            [table, first],
        )

    def forget(self, table: int) -> None:
        """Readers find nothing of the table any more."""
        mappings = f"SELECT mapping_id FROM {_FILE}.ducklake_column_mapping WHERE table_id = $1"
        self._run.execute(
            f"DELETE FROM {_FILE}.ducklake_name_mapping WHERE mapping_id IN ({mappings})", [table]
        )
        for each in ("acid_told", "ducklake_column", "ducklake_column_mapping", *_OF_FILES):
            self._run.execute(f"DELETE FROM {_FILE}.{each} WHERE table_id = $1", [table])
        self._run.execute(f"DROP TABLE IF EXISTS {_FILE}.{_DELETED.format(table)}")

    # --- making it whole -----------------------------------------------------------------------

    def finish(self, snapshots: Mapping[int, int]) -> None:
        """Writes what follows from the rest, and closes the file; `snapshots`: the time of each
        moment, in milliseconds UTC. The one before all shows no table."""
        run = self._run.execute
        names = run(f"SELECT name, table_id, first FROM {_FILE}.acid_told ORDER BY name").fetchall()
        last = 1 + max([0, *(number for _, number, _ in names)])
        schemas = {"main": 0}
        for name, _, _ in names:
            schemas.setdefault(name.partition(".")[0], last + len(schemas))
        self._add(
            "ducklake_schema",
            [
                (number, _uuid(name), 0, None, name, f"{name}/", True)
                for name, number in schemas.items()
            ],
        )
        tables = [(number, first, *name.partition(".")[::2]) for name, number, first in names]
        self._add(
            "ducklake_table",
            [
                (number, _uuid(number), first, None, schemas[schema], name, f"{name}/", True)
                for number, first, schema, name in tables
            ],
        )
        run(
            f"INSERT INTO {_FILE}.ducklake_table_stats SELECT table_id,"
            " coalesce(sum(record_count) FILTER (end_snapshot IS NULL), 0),"
            " max(row_id_start + record_count),"
            " coalesce(sum(file_size_bytes) FILTER (end_snapshot IS NULL), 0)"
            f" FROM {_FILE}.ducklake_data_file GROUP BY table_id"
        )
        moments = {0: 0, **snapshots}
        run(
            f"INSERT INTO {_FILE}.ducklake_snapshot SELECT moment, make_timestamptz(time * 1000),"
            " moment, $1, $2 FROM (SELECT unnest($3) AS moment, unnest($4) AS time) ORDER BY ALL",
            [last + len(schemas) + 1, self._next_file, [*moments], [*moments.values()]],
        )
        run(
            f"INSERT INTO {_FILE}.ducklake_schema_versions SELECT first, first, table_id"
            f" FROM {_FILE}.acid_told"
        )
        run(f"DETACH {_FILE}")


def _uuid(name: object) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{name}")


_LITERAL = ("literal", "duckdb")
"""That no expression is the default of a column."""
_READ_BY_ALL = ", STORAGE_VERSION 'v1.0.0', BLOCK_SIZE 16384"
"""A file that DuckDB reads since its first release, and a small one."""
