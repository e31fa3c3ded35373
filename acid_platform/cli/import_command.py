"""`acid import`: rows from tables of others and from folders of files. No Spark."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from acid_platform.cli.console import TABLE, CommandSession, OneOf, command, main
from acid_platform.display.looks import progress

if TYPE_CHECKING:
    from acid_platform.handles.import_sources import ImportSource

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
        progress() as report,
    ):
        imported = import_table(warehouse, table, rows, overwrite, schema, report)
    session.say(asdict(imported), str(imported))


def _source(
    kind: str, place: str, columns: list[str] | None, given: dict[str, Any]
) -> ImportSource:
    import acid_platform as sources  # which loads what is asked for

    match kind:
        case "iceberg":
            return sources.IcebergSource(place, columns=columns, **given)
        case "delta":
            return sources.DeltaSource(place, given.pop("snapshot", None), columns, **given)
        case "duckdb":
            return sources.DuckDBSource(place, given["source_table"], columns)
        case "postgres":
            return sources.PostgresSource(place, given["source_table"], columns)
    return sources.FolderSource(place, kind, columns, **given)
