"""Commands about one table, without Spark unless its rows are changed: its files (`acid ls`, `cat`,
`orcdump`, `fsck`), its pasts and who follows or writes them (`tag`, `rollback`, `diff`, `changes`,
`streams`; P36, P39, P42), rows from tables of others (`import`), and for readers of others
(`export`)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from acid_platform.base.paths import user_path
from acid_platform.cli.console import (
    A_TABLE_OR_ALL,
    ROWS,
    TABLE,
    CommandSession,
    Failed,
    OneOf,
    command,
    complete_tables,
    echo,
    limit_option,
    main,
)
from acid_platform.display.listing import cursor_rows, sink_rows, tag_rows
from acid_platform.display.progress_bar import progress
from acid_platform.errors import NoSuchTable
from acid_platform.layout.names import is_hidden, parse_partition
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations import listings
from acid_platform.metastore.pasts import NOW
from acid_platform.metastore.pasts import past_named as as_of

if TYPE_CHECKING:
    import pyarrow as pa

    from acid_platform.handles.branch_differences import BranchDifference
    from acid_platform.handles.import_sources import ImportSource
    from acid_platform.handles.past_rows import ChangeCounts, RowDifference
    from acid_platform.metastore.records import TableRecord
    from acid_platform.storage.files import Files


@command(main)
@click.argument("path", shell_complete=complete_tables)
def ls(session: CommandSession, path: str) -> None:
    """List PATH, such as db.t, db.t/month=3 or db.t/delta_0000001_0000001_0000.

    Directories are listed by write id, with what the current snapshot reads and what is obsolete.
    For a directory its files are listed.
    """
    from acid_platform.display.timeline_chart import Timeline
    from acid_platform.tables.record_layout import directories

    with session.metastore() as metastore:
        record, below = _in_table(metastore, path)
        lines = directories(metastore, record.name, below)
        if not below or any(line.partition for line in lines):
            if session.json:
                session.say_json(
                    [
                        {**asdict(line), "kind": line.kind.value, "sight": line.sight.value}
                        for line in lines
                    ]
                )
            else:
                session.render(Timeline(record.name, tuple(lines)))
            return
        files, where = _existing(record, below)
        infos = sorted(files.children(where), key=lambda child: str(child.base_name))
        session.show(
            [{"name": info.base_name, "bytes": info.size} for info in infos],
            title=path,
            empty="no files",
        )


@command(main)
@click.argument("path", shell_complete=complete_tables)
@limit_option("Lines to print; 0 for all.")
def cat(session: CommandSession, path: str, limit: int) -> None:
    """Print what is at PATH, as lines of JSON.

    For a table or partition (db.t, db.t/month=3) the rows that the current snapshot reads; for a
    directory or a file (db.t/delta_0000001_0000001_0000/bucket_00000) every event; for a marker
    file its text.
    """
    with session.metastore() as metastore:
        record, below = _in_table(metastore, path)
        entity = _is_entity(metastore, record, below)
    lines = _live_rows(session, record, below) if entity else _contents(record, below)
    for number, line in enumerate(lines):
        if limit and number == limit:
            echo(f"the first {limit} lines; --limit 0 prints all", err=True)
            return
        session.say_json(line)


def _is_entity(metastore: Metastore, record: TableRecord, below: str) -> bool:
    """Whether that is the table, or the first values of one of its partitions."""
    if not below:
        return True
    keys = [name for name, _ in record.partition_columns]
    depth = below.count("/") + 1
    values = parse_partition(below, keys[:depth])
    present = (parse_partition(name, keys) or () for name in metastore.partitions(record.name))
    return values is not None and any(values == each[:depth] for each in present)


def _live_rows(
    session: CommandSession, record: TableRecord, below: str
) -> Iterator[dict[str, Any]]:
    from acid_platform.predicates.analysis import partition_condition

    with session.open() as warehouse:
        table = warehouse.table(record.name)
        where = partition_condition(below, table.partition_columns) if below else None
        rows = table.to_arrow(where=where)
    yield from _as_dicts(rows.to_batches(ROWS))


def _as_dicts(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    from acid_platform.values.row_streams import far_dates_as_text, far_dates_named

    for batch in batches:
        with far_dates_named():
            dicts = far_dates_as_text(batch).to_pylist()
        yield from dicts


def _contents(record: TableRecord, below: str) -> Iterator[Any]:
    from acid_platform.formats.keyed_parquet import shown_batches
    from acid_platform.formats.orc import dump

    files, where = _existing(record, below)
    paths = [where]
    if files.is_directory(where):
        paths = sorted(
            info.path
            for info in files.children(where)
            if info.is_file and not is_hidden(info.base_name)
        )
    for path in paths:
        with files.system.open_input_file(path) as stream:
            magic = bytes(stream.read(3))
        if magic == b"ORC":
            yield from dump.events(files, path)
        elif magic == b"PAR":
            yield from _as_dicts(shown_batches(files, path))
        else:
            yield files.read(path).decode("utf-8", "replace")


@command(main)
@click.argument("file")
@click.option("--meta", is_flag=True, help="Schema, stripes and user metadata instead of events.")
def orcdump(session: CommandSession, file: str, meta: bool) -> None:
    """Print each event of an ORC FILE as a line of JSON.

    FILE is a path or URI, or a path in a table as `acid ls` shows it.
    """
    from acid_platform.formats.orc import dump
    from acid_platform.storage.files import Files

    files, path = Files.of(user_path(file))
    if not files.exists(path) and session.named:
        with session.metastore() as metastore:
            try:
                record, below = _in_table(metastore, file)
                files, path = Files.of(f"{record.location}/{below}")
            except NoSuchTable:
                pass
    if not files.exists(path) or files.is_directory(path):
        raise click.BadParameter(f"{file} is not a file", param_hint="FILE")
    for event in [dump.metadata(files, path)] if meta else dump.events(files, path):
        session.say_json(event)


@command(main)
@A_TABLE_OR_ALL
@click.option(
    "--rows/--no-rows",
    default=True,
    help="Also compare all row keys, or (quick) only names, footers and the metastore.",
)
@click.option(
    "--repair",
    is_flag=True,
    help="Make the repairs that are safe while others read and write.",
)
def fsck(session: CommandSession, table: str | None, rows: bool, repair: bool) -> None:
    """Compare files, names and metastore of TABLE, or of all tables.

    Each finding says why it matters and what to do next. Writers may go on in the meantime. Exit
    code 1 if anything but notes is left.
    """
    from acid_platform.services import fsck as check

    with session.metastore() as metastore, progress():
        report = check.examine(
            metastore,
            [table] if table else None,
            warehouse=session.place.warehouse,
            rows=rows,
            repair=repair,
        )
    if session.json:
        session.say_json(report.as_json())
    elif report.findings:
        session.show(
            [finding.as_json() for finding in report.findings],
            ("severity", "thing", "text", "next_step"),
            "findings",
        )
        for finding in report.findings:
            if finding.repaired:
                echo(f"repaired: {finding.repair}")
    if not report.healthy:
        raise Failed(report.summary())
    if not session.json:
        echo(f"healthy: {report.summary()}")


def _in_table(metastore: Metastore, path: str) -> tuple[TableRecord, str]:
    """Splits `db.t/a/b` into the table's record and `a/b`."""
    name, _, below = path.strip("/").partition("/")
    return metastore.table(name if "." in name else f"default.{name}"), below


def _existing(record: TableRecord, below: str) -> tuple[Files, str]:
    from acid_platform.storage.files import Files

    files, root = Files.of(record.location)
    if not files.exists(f"{root}/{below}"):
        raise click.BadParameter(
            f"{below} is not in {record.name}: `acid ls {record.name}` lists what is",
            param_hint="PATH",
        )
    return files, f"{root}/{below}"


_AS_OF = "A write id, a time such as '2026-11-23 17:05' (UTC), or a tag."
_limit = limit_option("Rows to print; the counts are of all.")


@command(main)
@TABLE
@click.argument("name", required=False)
@click.option("--as-of", "past", metavar="WHEN", help=f"{_AS_OF} Default: now.")
@click.option("--days", type=click.IntRange(min=1), help="Drop it by itself after so many days.")
@click.option("--drop", is_flag=True, help="Drop the tag; the Cleaner removes what it kept.")
def tag(
    session: CommandSession,
    table: str,
    name: str | None,
    past: str | None,
    days: int | None,
    drop: bool,
) -> None:
    """List the tags of TABLE, or make the tag NAME, which keeps a snapshot's files."""
    if name is None and (past is not None or days is not None or drop):
        raise click.UsageError("name the tag")
    with session.open() as warehouse:
        handle = warehouse.table(table)
        if name is not None and drop:
            handle.drop_tag(name)
            session.say({"dropped": name}, f"tag {name} of {handle.name} is dropped")
            return
        if name is not None:
            duration = datetime.timedelta(days=days) if days else None
            handle.tag(name, None if past is None else as_of(past), duration)
        rows = tag_rows(handle.retained())
    session.show(rows, listings.TAGS, empty="no tags")


@command(main)
@TABLE
@click.argument("when")
def rollback(session: CommandSession, table: str, when: str) -> None:
    """Make the rows of TABLE those of WHEN: a write id, a time in UTC, or a tag."""
    with session.open() as warehouse, session.working(f"rolling back {table}"):
        rows = warehouse.table(table).rollback_to(as_of(when))
    session.say(
        {"table": table, "rows": rows}, f"{table} is as of {when} again: {rows} rows were written"
    )


@command(main)
@TABLE
@click.argument("before")
@click.argument("after", default=NOW)
@_limit
def diff(session: CommandSession, table: str, before: str, after: str, limit: int) -> None:
    """Count and show the rows of TABLE that differ between BEFORE and AFTER.

    Each is a write id, a time in UTC, a tag, or now.
    """
    with session.open() as warehouse, session.working(f"comparing {table}"):
        then, later = (None if text == NOW else as_of(text) for text in (before, after))
        difference = warehouse.table(table).diff(then, later, limit)
    say_difference(session, difference)


@command(main)
@TABLE
@click.argument("since", required=False)
@click.argument("until", default=NOW)
@click.option("--count", "only_count", is_flag=True, help="Count the changes; print no rows.")
@_limit
@click.option("--forget", metavar="CONSUMER", help="Let it begin again with all rows of TABLE.")
def changes(
    session: CommandSession,
    table: str,
    since: str | None,
    until: str,
    only_count: bool,
    limit: int,
    forget: str | None,
) -> None:
    """Count and show the rows of TABLE that changed after SINCE, up to UNTIL.

    Each is a write id, a time in UTC, a tag, or now. Without SINCE, list how far the consumers of
    its changes have come.
    """
    if since is None and only_count:
        raise click.UsageError("name the snapshot since when to count")
    if since is not None and forget:
        raise click.UsageError("--forget takes no snapshot")
    with session.open() as warehouse:
        handle = warehouse.table(table)
        if forget:
            warehouse.metastore.call(ops.ForgetCursor(handle.name, forget))
            session.say({"forgotten": forget}, f"{forget} begins again with all rows of {table}")
            return
        if since is None:
            rows = cursor_rows(warehouse.metastore.call(ops.GetCursors(handle.name)))
            session.show(rows, listings.CURSORS, empty=f"nobody consumes {handle.name}")
            return
        from acid_platform.handles.past_rows import change_counts

        with session.working(f"reading the changes of {table}"):
            first, last = (None if text == NOW else as_of(text) for text in (since, until))
            if since == NOW:
                raise click.UsageError("SINCE has to be a snapshot of the past")
            counts = change_counts(handle, first, last, 0 if only_count else limit)
    say_difference(session, counts)


def say_difference(
    session: CommandSession, compared: RowDifference | ChangeCounts | BranchDifference
) -> None:
    if session.json:
        session.say_json(asdict(compared))
        return
    echo(str(compared))
    if compared.rows:
        session.show(compared.rows)


@command(main)
@A_TABLE_OR_ALL
@click.option("--forget", metavar="SINK", help="Let a new query write under this name.")
def streams(session: CommandSession, table: str | None, forget: str | None) -> None:
    """List how far streaming queries and imports have written TABLE, or every table."""
    if forget and table is None:
        raise click.UsageError("name the table that the sink writes")
    with session.open() as warehouse:
        name = warehouse.table(table).name if table else None
        if forget and name:
            warehouse.metastore.call(ops.ForgetSink(name, forget))
            session.say(
                {"forgotten": forget}, f"a new query may write {name} as {forget}, from batch 0 on"
            )
            return
        rows = sink_rows(warehouse.metastore.call(ops.GetSinks(name)))
    session.show(rows, listings.SINKS, empty="no streaming query or import has written")


_OPTIONS = {
    "iceberg": ("snapshot", "catalog", "files_in"),
    "delta": ("snapshot", "files_in"),
    "parquet": ("files_in",),
    "csv": ("delimiter", "encoding", "decimal_comma", "all_strings", "files_in"),
    "json": ("all_strings", "files_in"),
    "duckdb": ("source_table",),
    "postgres": ("source_table",),
}
"""The options that only some kinds of sources have."""


@command(main, "import")
@click.argument("kind", type=OneOf([*_OPTIONS]))
@click.argument("source")
@TABLE
@click.option("--source-table", metavar="NAME", help="The table in DuckDB or PostgreSQL.")
@click.option(
    "--catalog", metavar="NAME", help="pyiceberg's catalog of the table; default: default."
)
@click.option(
    "--snapshot", type=int, metavar="N", help="A snapshot of Iceberg or version of Delta."
)
@click.option("--delimiter", metavar="LETTER", help="What separates the values in CSV; default: ,")
@click.option(
    "--encoding", metavar="NAME", help="Of the letters in CSV, such as latin-1; default: UTF-8."
)
@click.option(
    "--files-in",
    metavar="PLACE",
    multiple=True,
    help="Where the source's files may lie, too; otherwise only below its own place.",
)
@click.option(
    "--decimal-comma", is_flag=True, default=None, help="Numbers in CSV are written as 1,5."
)
@click.option(
    "--all-strings",
    is_flag=True,
    default=None,
    help="A new table of CSV or JSON has strings only, no types that hold all values.",
)
@click.option("--columns", metavar="NAMES", help="Import only these, such as id,name.")
@click.option(
    "--schema", metavar="COLUMNS", help='For a table to be made, such as "id int, v string".'
)
@click.option("--overwrite", is_flag=True, help="Replace all rows of TABLE.")
def import_(
    session: CommandSession,
    kind: str,
    source: str,
    table: str,
    columns: str | None,
    schema: str | None,
    overwrite: bool,
    **only: Any,
) -> None:
    """Import SOURCE into TABLE in one commit, and compare counts and sums of both before it.

    SOURCE is a table of an Iceberg catalog or a metadata file, the path of a Delta table, a folder
    of files, a file of DuckDB, or the URI of a PostgreSQL database. A TABLE that is not there is
    made. Without --overwrite no row is replaced: TABLE has to be empty, or it gets the rows that
    Iceberg or Delta have added since the last import.
    """
    given = {name: value for name, value in only.items() if value not in (None, ())}
    for name in given.keys() - {*_OPTIONS[kind]}:
        raise click.UsageError(f"--{name.replace('_', '-')} is no option of {kind}; leave it out")
    if "source_table" in _OPTIONS[kind] and "source_table" not in given:
        raise click.UsageError(f"say which table of {kind}: --source-table NAME")
    from acid_platform.handles.imports import import_table

    chosen = [name.strip() for name in columns.split(",")] if columns else None
    with (
        session.open() as warehouse,
        _source(kind, source, chosen, given) as rows,
        progress(),
    ):
        imported = import_table(warehouse, table, rows, overwrite, schema)
    session.say(asdict(imported), str(imported))


def _source(
    kind: str, place: str, columns: list[str] | None, given: dict[str, Any]
) -> ImportSource:
    from acid_platform import (
        DeltaSource,
        DuckDBSource,
        FolderSource,
        IcebergSource,
        PostgresSource,
    )

    match kind:
        case "iceberg":
            return IcebergSource(place, columns=columns, **given)
        case "delta":
            version = given.pop("snapshot", None)
            return DeltaSource(place, version, columns, **given)
        case "duckdb":
            return DuckDBSource(place, given["source_table"], columns)
        case "postgres":
            return PostgresSource(place, given["source_table"], columns)
    return FolderSource(place, kind, columns, **given)


@command(main)
@click.argument("kind", type=OneOf(["iceberg", "ducklake"]))
@click.argument("tables", nargs=-1, shell_complete=complete_tables)
@click.option(
    "--into",
    metavar="PLACE",
    help="A path or URI; default: _iceberg or _ducklake in the warehouse.",
)
def export(session: CommandSession, kind: str, tables: Sequence[str], into: str | None) -> None:
    """Tell readers of Iceberg, or of DuckLake, the commits of TABLES that they don't know yet.

    TABLES have to be in Parquet. No row is copied: readers find the files in place, at each
    snapshot whose history is kept. Run it again after commits. `iceberg` needs the extra `export`;
    `ducklake` makes one catalog of the tables, without TABLES of all that are in Parquet.
    """
    if kind == "iceberg" and not tables:
        raise click.UsageError("acid export iceberg TABLE...: name at least one table")
    with session.open() as warehouse:
        for table in tables if kind == "iceberg" else ():
            with session.working(f"telling the commits of {table}"):
                exported = warehouse.export_iceberg(table, into)
            session.say(asdict(exported), str(exported))
        if kind == "ducklake":
            with session.working("telling commits to DuckDB"):
                catalog = warehouse.export_ducklake(*tables, into=into)
            session.say(asdict(catalog), str(catalog))
