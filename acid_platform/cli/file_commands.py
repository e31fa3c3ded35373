"""`acid ls`, `cat`, `orcdump` and `fsck`: what is in the directories of tables. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from acid_platform.base.paths import user_path
from acid_platform.cli.console import (
    A_TABLE_OR_ALL,
    ROWS,
    CommandSession,
    Failed,
    command,
    complete_tables,
    echo,
    limit_option,
    main,
)
from acid_platform.display.looks import progress
from acid_platform.errors import NoSuchTable
from acid_platform.layout.names import is_hidden
from acid_platform.layout.partition_names import parse_partition
from acid_platform.metastore.client.metastore import Metastore

if TYPE_CHECKING:
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
    directory or an ORC file (db.t/delta_0000001_0000001_0000/bucket_00000) every event; for a
    marker file its text.
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
    from acid_platform.values.arrow_lending import far_dates_as_text, far_dates_named

    with session.open() as warehouse:
        table = warehouse.table(record.name)
        where = partition_condition(below, table.partition_columns) if below else None
        rows = table.to_arrow(where=where)
    for batch in rows.to_batches(ROWS):
        with far_dates_named():
            dicts = far_dates_as_text(batch).to_pylist()
        yield from dicts


def _contents(record: TableRecord, below: str) -> Iterator[Any]:
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
            is_orc = bytes(stream.read(3)) == b"ORC"
        if is_orc:
            yield from dump.events(files, path)
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

    with session.metastore() as metastore, progress() as report_progress:
        report = check.examine(
            metastore,
            [table] if table else None,
            warehouse=session.place.warehouse,
            rows=rows,
            repair=repair,
            progress=report_progress,
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
