"""The temporary tables of a session: ORC files in a directory of this process, nowhere declared.

A file never changes: INSERT adds one, and INSERT OVERWRITE and TRUNCATE go on in another directory,
so that results which were not computed yet keep their rows.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from acid_platform.base.private_places import ScratchDirectory, scratch_directory
from acid_platform.base.table_properties import refuse_promises
from acid_platform.errors import TableExists, UnsupportedStatement
from acid_platform.formats.file_access import new_file, to_be_stored
from acid_platform.formats.keyed import Keyed
from acid_platform.layout.declarable import refuse_names
from acid_platform.layout.formats import ACID_FORMAT
from acid_platform.layout.types import Column, parse_columns
from acid_platform.metastore.records import ExternalFiles, ViewRecord
from acid_platform.sql.answers import Done
from acid_platform.sql.statements import Insert, Truncate
from acid_platform.storage.files import Files
from acid_platform.tables.declaration import check_columns, comments_of
from acid_platform.tables.external_tables import as_table, files_of
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.values.arrow_types import arrow_type
from acid_platform.values.local_rows import local_table

if TYPE_CHECKING:
    from acid_platform.engine.results import Result
    from acid_platform.sql.catalog import Catalog
    from acid_platform.sql.sql_session import SqlSession
    from acid_platform.sql.statements import CreateTable


@dataclass(slots=True)
class TemporaryTables:
    """By their full names. Their files go with `close`, or when this process ends."""

    declared: dict[str, ViewRecord] = field(default_factory=dict)
    _directory: ScratchDirectory | None = None

    def place(self) -> str:
        """A new directory."""
        if self._directory is None:
            self._directory = scratch_directory("temporary")
        directory = Path(self._directory.name, uuid.uuid4().hex)
        directory.mkdir()
        return str(directory)

    def drop(self, full: str) -> None:
        """Its files stay until the session ends, for results that are computed later."""
        del self.declared[full]

    def close(self) -> None:
        self.declared.clear()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


def create_temporary(
    session: SqlSession, full: str, declared: CreateTable, rows: Result | None
) -> Done | None:
    """Raises TableExists, InvalidDefinition, UnsupportedStatement for what such a table can't
    have."""
    if full in session.temporary.declared:
        if declared.if_not_exists:
            return None
        raise TableExists(f"temporary table {full} exists; use IF NOT EXISTS, or another name")
    refuse_promises(full, declared.properties)
    without = {
        "PARTITIONED BY": bool(declared.keys) and not declared.like,
        "CLUSTERED BY": declared.clustered_by is not None and not declared.like,
        "LOCATION": declared.location is not None,
        "constraints": bool(declared.constraints),
    }
    if refused := [name for name, stated in without.items() if stated]:
        raise UnsupportedStatement(
            f"CREATE TEMPORARY TABLE with {refused[0]} is not supported; leave that part out"
        )
    refuse_names(full)
    text = ", ".join(filter(None, (declared.columns, *declared.keys)))
    columns = parse_columns(text) if rows is None else rows.declared()
    check_columns(full, columns, (), written_before=True)
    view = ViewRecord(
        full,
        "",
        tuple((column.name, str(column.type)) for column in columns),
        properties=dict(declared.properties),
        comments=comments_of(full, columns, declared.comments),
        external=ExternalFiles(session.temporary.place(), "orc"),
    )
    count = 0 if rows is None else _written(view, columns, rows)
    session.temporary.declared[full] = view
    return None if rows is None else Done.changed("CREATE TABLE", count)


def change_temporary(
    session: SqlSession, catalog: Catalog, full: str, statement: Insert | Truncate
) -> Done:
    """INSERT INTO or OVERWRITE, or TRUNCATE. Raises UnsupportedStatement in a transaction, which
    could not take it back, and WrongType."""
    from acid_platform.sql.run_changes import inserted_rows  # not for a SELECT

    if session.in_transaction:
        raise UnsupportedStatement(
            f"{full} is a temporary table, which can't be changed in a transaction; COMMIT first"
        )
    view = session.temporary.declared[full]
    if isinstance(statement, Truncate):
        session.temporary.declared[full] = _emptied(session, view)
        return Done("TRUNCATE")
    record = as_table(view)
    reads = statement.read_rows(record)
    with session.reading(catalog, [] if reads is None else [reads]) as at_snapshot:
        _, rows = inserted_rows(session.warehouse, at_snapshot, statement, record)
        columns, _ = columns_of_record(record)
        changed = _emptied(session, view) if statement.overwrite else view
        count = _written(changed, columns, rows)
    session.temporary.declared[full] = changed
    return Done.changed("INSERT", count)


def _emptied(session: SqlSession, view: ViewRecord) -> ViewRecord:
    return replace(view, external=replace(files_of(view), location=session.temporary.place()))


def _written(view: ViewRecord, columns: tuple[Column, ...], rows: Result) -> int:
    """Adds a file with the rows; columns that they lack are NULL. Returns their number."""
    kinds = {column.name: arrow_type(column.type) for column in columns}

    def conformed(batch: pa.RecordBatch) -> pa.RecordBatch:
        table = local_table(pa.Table.from_batches([batch]), columns, view.name)
        arrays = [
            table.column(name).combine_chunks()
            if name in table.column_names
            else pa.nulls(batch.num_rows, kind)
            for name, kind in kinds.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(kinds))

    batches = (conformed(batch) for batch in rows.batches() if batch.num_rows)
    files, directory = Files.of(files_of(view).location)
    path = f"{directory}/{uuid.uuid4().hex}"
    writer = new_file(files, path, columns, ACID_FORMAT, "zlib")
    try:
        for batch in batches:
            stored = [*map(to_be_stored, batch.columns)]
            values = pa.RecordBatch.from_arrays(stored, names=batch.schema.names)
            writer.put(Keyed(None, 0, values))
        return writer.close()
    except BaseException:
        writer.give_up()
        raise
