"""Files of somebody else: external tables, listed when a statement reads them, and the files of no
table that LOAD DATA inserts.

An external table has no snapshot and no history. Of one, the platform keeps nothing but its
declaration, in the name space of views, so that no service that cleans, compacts or checks tables
sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, starmap

import pyarrow as pa
from pyarrow import fs

from acid_platform.base.config import Settings
from acid_platform.base.paths import user_path
from acid_platform.engine.choice import Engines
from acid_platform.engine.interface import Result, TableRead
from acid_platform.errors import (
    InvalidDefinition,
    NoSuchPartition,
    UnsupportedLayout,
    UnsupportedStatement,
    WrongType,
)
from acid_platform.formats.data_file import FilePath
from acid_platform.formats.file_access import (
    format_of,
    matching_parts,
    open_file,
    reading,
    require_exact_decimals,
    stored_types,
)
from acid_platform.formats.parquet_files import open_parquet
from acid_platform.layout.formats import FileFormat, readable_columns
from acid_platform.layout.names import is_hidden, parse_partition, partition_segment
from acid_platform.layout.types import (
    LOCAL_ZONE,
    TIMESTAMPS,
    Column,
    HiveType,
    parse_columns,
    parse_type,
)
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.tables import GetDropped
from acid_platform.metastore.records import ExternalFiles, TableRecord, ViewRecord
from acid_platform.scan.result_columns import refuse_same_names
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import EntitySources, RowIdentity, SourceFile, read_footer
from acid_platform.storage.files import Files, asking, in_threads
from acid_platform.tables.declaration import check_columns, comments_of
from acid_platform.tables.locations import require_place
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_types import (
    arrow_type,
    declared_columns,
    has_text_as_bytes,
    widens_to_decimal,
)
from acid_platform.values.partition_texts import partition_value
from acid_platform.values.stored_values import as_declared


def external_table(
    metastore: Metastore,
    table: str,
    columns: str,
    partitioned_by: Sequence[str],
    location: str,
    stored: FileFormat,
    properties: Mapping[str, str] | None = None,
    comments: Mapping[str, str] | None = None,
) -> ViewRecord:
    """The checked declaration of an external table; its directory is not made.

    `columns`, `partitioned_by`: in Hive's notation. Raises InvalidDefinition, UnknownColumn,
    UnsupportedStatement.
    """
    keys = parse_columns(", ".join(partitioned_by)) if partitioned_by else ()
    every = dict(properties or {})
    own = readable_columns(table, stored, parse_columns(columns))
    check_columns(table, own, keys, written_before=True)
    where = readable_place(metastore, table, location)
    external = ExternalFiles(
        metastore.places.inward(where),
        stored.name,
        dict(stored.options),
        tuple(key.name for key in keys),
    )
    return ViewRecord(
        table,
        "",
        tuple((column.name, str(column.type)) for column in (*own, *keys)),
        properties={name: text for name, text in every.items() if name.upper() != "EXTERNAL"},
        comments=comments_of(table, (*own, *keys), comments or {}),
        external=external,
    )


def readable_place(metastore: Metastore, table: str, address: str) -> str:
    """The path or URI of a directory whose files belong to no table of this warehouse.

    Raises InvalidDefinition as `require_place`, for a file, and for a place at or below which a
    dropped table still has files, which the Cleaner is going to remove.
    """
    where = require_place(metastore, table, address, only_read=True)
    files, path = Files.of(where)
    if files.exists(path) and not files.is_directory(path):
        raise InvalidDefinition(f"{table}: {where} is a file; name the directory that it is in")
    above = where
    while len(os.path.dirname(above)) < len(above) and not above.endswith("://"):
        if metastore.call(GetDropped(metastore.places.inward(above))) is not None:
            raise InvalidDefinition(
                f"{table}: a table that was dropped still has files at {above}, which the Cleaner"
                " removes; run `acid clean`, or name another directory"
            )
        above = os.path.dirname(above)
    return where


def as_table(view: ViewRecord) -> TableRecord:
    """The declaration of an external table in the form in which tables have theirs."""
    external = files_of(view)
    own, keys = _divided(view)
    return TableRecord(
        0,
        view.name,
        external.location,
        tuple((column.name, str(column.type)) for column in own),
        tuple((column.name, str(column.type)) for column in keys),
        dict(view.properties),
        created=view.created,
        version=view.version,
        comments=dict(view.comments),
    )


def files_of(view: ViewRecord) -> ExternalFiles:
    """Where the files of an external table are, and what they are like."""
    assert view.external is not None, "only external tables have files"
    return view.external


def _divided(view: ViewRecord) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """The columns of the files, and the partition columns."""
    columns = tuple(Column(name, parse_type(kind)) for name, kind in view.columns)
    count = len(columns) - len(files_of(view).partition_columns)
    return columns[:count], columns[count:]


# --- reading --------------------------------------------------------------------------------------


def open_external(view: ViewRecord, where: str | None = None) -> Scan:
    """The files that are there now, of the partitions that can have rows that `where` accepts.

    A partition without a directory has no rows, as in Hive. Raises UnsupportedLayout if the table
    has none, for a directory where a file should be, and for files of a transactional table;
    CorruptFile, StoreRefused, StoreUnavailable.
    """
    external = files_of(view)
    own, keys = _divided(view)
    files, path = Files.of(external.location)
    inside = not keys or "" in external.partitions.values()
    if inside and files.local and not files.is_directory(path):
        raise UnsupportedLayout(
            f"{view.name} reads the files of {path}, and there is no such directory; make it if"
            " there are no files yet, or mount the disk that it is on"
        )
    names = sorted(external.partitions) if keys else [""]
    values = [parse_partition(name, external.partition_columns) or () for name in names]
    if where is not None and keys:
        from acid_platform.predicates.arrow_predicates import may_match

        kept = may_match(where, keys, values)
        names, values = [*compress(names, kept)], [*compress(values, kept)]
    places = [_place(external, path, name) for name in names]
    listed = in_threads(lambda directory: _sources(files, directory, external.format, own), places)
    entities = tuple(
        EntityScan(EntitySources(directory, sources, ()), partition=name, values=texts)
        for name, texts, directory, sources in zip(names, values, places, listed, strict=True)
    )
    return Scan(
        files,
        path,
        own,
        keys,
        entities,
        ValidWriteIdList.of(view.name, 0),
        FileFormat(external.format, dict(external.options)),
    )


def _place(external: ExternalFiles, path: str, partition: str) -> str:
    where = external.partitions.get(partition)
    return Files.of(where)[1] if where else f"{path}/{partition}".rstrip("/")


def _sources(
    files: Files, place: str, stored: str, columns: Sequence[Column]
) -> tuple[SourceFile, ...]:
    """The files directly in a directory, sorted; hidden and empty ones hold no rows."""
    sources = []
    for info in sorted(files.children(place), key=lambda info: info.path):
        if is_hidden(info.base_name):
            continue
        if info.type != fs.FileType.File:
            raise UnsupportedLayout(
                f"{info.path} is a directory, and the files of an external table are directly in"
                " its location, or in those of its partitions; move it away, or partition by it"
            )
        if not info.size:
            continue
        identity, positional = RowIdentity.NONE, False
        if FileFormat(stored).has_declared_types:
            footer = read_footer(files, info.path)
            if footer.acid:
                raise UnsupportedLayout(
                    f"{info.path} is a file of a transactional table, which says by itself nothing"
                    " of what counts; make its directory a table by `acid adopt`"
                )
            positional = footer.positional
            if not _require_types(files, info.path, columns, positional):
                identity = RowIdentity.RUN
        sources.append(
            SourceFile(
                info.path,
                identity,
                int(info.size),
                "",
                0,
                0,
                positional=positional,
                format=stored,
                by_arrow=identity is RowIdentity.NONE,
            )
        )
    return tuple(sources)


def _require_types(files: Files, path: str, columns: Sequence[Column], positional: bool) -> bool:
    """Whether a column of an ORC file has times, whose nanoseconds Spark's reader would cut.

    Raises UnsupportedLayout for a column whose type is not read exactly: ORC's library for Java
    would convert it by rules of its own."""
    _, fields = stored_types(files, path)
    names = (
        [column.name for column in columns]
        if positional
        else [field.lower() for field, _ in fields]
    )
    inside = dict(zip(names, (kind for _, kind in fields), strict=False))
    exact = require_exact_decimals(files, path, columns)
    for column in columns:
        kind = inside.get(column.name, column.type)
        if kind == column.type:
            continue
        where = f"{path}, column {column.name}"
        as_declared(pa.nulls(0, arrow_type(kind)), column.type, where, external=True)
        own, other = (
            [part for part in kind_of_either.walk() if part.kind in _SAME]
            for kind_of_either in (kind, column.type)
        )
        if own != other or (
            not exact and any(starmap(_narrows, matching_parts(kind, column.type)))
        ):
            raise UnsupportedLayout(
                f"{path}, column {column.name}, holds {kind}, but the table declares {column.type};"
                " declare the column as it is stored"
            )
    return any(
        part.kind in TIMESTAMPS
        for column in columns
        for part in inside.get(column.name, column.type).walk()
    )


def _narrows(stored: HiveType, declared: HiveType) -> bool:
    """Whether a decimal has fewer digits on one side of its point than the stored one."""
    return {stored.kind, declared.kind} == {"decimal"} and not widens_to_decimal(
        arrow_type(stored), declared
    )


_SAME = ("char", LOCAL_ZONE)
"""Types of values that mean something else as those of another type."""


# --- partitions -----------------------------------------------------------------------------------


def partition_location(metastore: Metastore, view: ViewRecord, address: str) -> str:
    """The location of a partition that is elsewhere; empty for no address.

    Raises InvalidDefinition, also for another file system than that of the table.
    """
    if not address:
        return ""
    where = readable_place(metastore, view.name, address)
    (listed, _), (other, _) = Files.of(where), Files.of(files_of(view).location)
    if (listed.scheme, listed.host, listed.local) != (other.scheme, other.host, other.local):
        raise InvalidDefinition(
            f"{view.name}: {where} is in another file system than {files_of(view).location}; a"
            " table has one"
        )
    return where


def refuse_values(view: ViewRecord, partition: str) -> None:
    """Raises NoSuchPartition for a text that is no value of its partition column."""
    _, keys = _divided(view)
    texts = parse_partition(partition, [key.name for key in keys])
    if texts is None:
        raise NoSuchPartition(
            f"{view.name}: {partition} does not name the partition columns"
            f" {', '.join(key.name for key in keys)}, in this order"
        )
    for key, text in zip(keys, texts, strict=True):
        if text is not None and partition_value(text, key.type) is None:
            raise NoSuchPartition(f"{view.name}: {text!r} in {partition} is no {key.type}")


def partitions_there(view: ViewRecord) -> tuple[str, ...]:
    """The partitions whose directories are below the table's location, sorted.

    Raises UnsupportedStatement without partition columns, NoSuchPartition for a directory that
    names no partition.
    """
    external = files_of(view)
    if not external.partition_columns:
        raise UnsupportedStatement(
            f"{view.name} is not partitioned: each statement lists the files that are there"
        )
    files, path = Files.of(external.location)
    names = [""]
    for column in external.partition_columns:
        names = [
            f"{name}/{segment}".lstrip("/")
            for name in names
            for segment in _segments(files, f"{path}/{name}".rstrip("/"), view.name, column)
        ]
    for name in names:
        refuse_values(view, name)
    return tuple(sorted(names))


def _segments(files: Files, place: str, table: str, column: str) -> Iterator[str]:
    """The names of the directories, each `column=value`."""
    for info in files.children(place):
        if info.type != fs.FileType.Directory or is_hidden(info.base_name):
            continue
        segment = partition_segment(info.base_name)
        if segment is None or segment[0].lower() != column:
            raise NoSuchPartition(
                f"{table}: {info.path} is not named {column}=…, as a partition is; move it away"
            )
        yield info.base_name


_FILES = "acid_files"
"""The name of the files in the query that reads them."""


def rows_of_files(
    engines: Engines, settings: Settings, source: str, target: Sequence[Column]
) -> Result:
    """The rows of the file at a path or URI, or of all files of a directory.

    Hidden and empty files are left out. All have the same format and columns; columns without
    names, as Hive 1 wrote them, get those of `target`, the table's columns, in order. Raises
    InvalidDefinition if there is no file, CorruptFile, WrongType for files whose columns differ,
    UnsupportedLayout, UnsupportedStatement for other formats and files of a transactional table.
    """
    files, found = _files_at(source)
    shapes = {path: _shape(files, path, target) for path, _ in found}
    (first, (format_name, columns)), *others = shapes.items()
    for path, shape in others:
        if shape != (format_name, columns):
            raise WrongType(f"{path} has other columns or another format than {first}")
    # Arrow reads Parquet for both engines: Spark's own reader refuses what Polars and Arrow write.
    by_arrow = not FileFormat(format_name).has_declared_types
    identity = RowIdentity.NONE if by_arrow else RowIdentity.RUN
    sources = tuple(
        SourceFile(path, identity, size, "", 0, 0, format=format_name, by_arrow=by_arrow)
        for path, size in found
    )
    entity = EntityScan(EntitySources("", sources, ()), paths=tuple(shapes))
    scan = Scan(
        files=files,
        location=os.path.dirname(first),
        columns=columns,
        partition_columns=(),
        entities=(entity,),
        write_ids=ValidWriteIdList.of(source, 0),
        format=FileFormat(format_name),
    )
    own = tuple(column.name for column in columns)
    rows = engines.select(f"SELECT * FROM {_FILES}", {_FILES: TableRead(scan, own)}, settings)
    names = [column.name for column in target]
    unnamed = all(name.startswith("_col") for name in own)
    if unnamed and len(own) != len(names):
        raise WrongType(
            f"{first} has {len(own)} columns without names, and {len(names)} are needed:"
            f" {', '.join(names)}"
        )
    return rows.renamed(names) if unnamed else rows


def _files_at(source: str) -> tuple[Files, list[tuple[str, int]]]:
    """The paths and sizes, sorted. Raises InvalidDefinition."""
    files, path = Files.of(user_path(source))
    if not files.is_directory(path):
        if not files.exists(path):
            raise InvalidDefinition(f"there is no file {source}")
        with asking(path):
            found_file = files.system.get_file_info(path)
        if not found_file.is_file:
            raise InvalidDefinition(f"{source} is a pipe or a device, and no file")
        return files, [(path, int(found_file.size))]
    children = [each for each in files.children(path) if not is_hidden(each.base_name)]
    for child in children:
        if not child.is_file:
            kind = "a directory" if child.type.name == "Directory" else "no file"
            raise InvalidDefinition(f"{child.path} is {kind}; load a directory by itself")
    found = sorted((child.path, int(child.size)) for child in children if child.size)
    if not found:
        raise InvalidDefinition(f"there is no file in {source}")
    return files, found


def _shape(files: Files, path: str, target: Sequence[Column]) -> tuple[str, tuple[Column, ...]]:
    """The format and columns of a file. Raises CorruptFile, UnsupportedStatement, WrongType."""
    with reading(path):
        name = format_of(files, path)
    if name is None:
        raise UnsupportedStatement(
            f"{path} is neither an ORC nor a Parquet file; text is read by CREATE EXTERNAL TABLE …"
            " LOCATION, and INSERT … SELECT from it"
        )
    if name == "parquet":
        with reading(path), files.open(path) as stream:
            columns = _columns_of_parquet(open_parquet(stream, path).schema_arrow, path, target)
        _refuse_nanoseconds(files, path, name)
        return name, columns
    open_file(files, FilePath(path), strange=True)  # before its types are read by another library
    require_exact_decimals(files, path, ())
    keyed, fields = stored_types(files, path)
    if keyed:
        raise UnsupportedStatement(
            f"{path} is a file of a transactional table; make its directory a table by `acid adopt`"
        )
    _refuse_nanoseconds(files, path, name)
    return name, tuple(Column(field.lower(), kind) for field, kind in fields)


def _refuse_nanoseconds(files: Files, path: str, stored: str) -> None:
    """Raises WrongType for a time that a table would store otherwise."""
    with reading(path):
        if open_file(files, FilePath(path, stored), strange=True).has_fine_times():
            raise WrongType(
                f"{path} holds timestamps with nanoseconds, and a table's have microseconds; round"
                " them where they are written, or declare an external table with the type string"
                " in place of timestamp, and INSERT … SELECT CAST(left(column, 26) AS timestamp)"
            )


def _columns_of_parquet(
    schema: pa.Schema, path: str, target: Sequence[Column]
) -> tuple[Column, ...]:
    """The columns as they are read: what has no type but NULL, and bytes that are not said to be a
    text, are as the table declares them. Raises WrongType, UnsupportedLayout."""
    declared = {column.name: column for column in target}
    columns = []
    refuse_same_names(schema.names, schema.names, path)
    for field in schema:
        own = declared.get(field.name.lower())
        if own and (pa.types.is_null(field.type) or has_text_as_bytes(field.type, own.type)):
            columns.append(own)
            continue
        try:
            columns += declared_columns(pa.schema([field]))
        except InvalidDefinition as error:
            raise WrongType(f"{path}: {error}") from error
    return tuple(columns)
