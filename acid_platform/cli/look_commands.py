"""`acid init`, `acid head`, `acid describe` and `acid ui`: a new warehouse, and a first look."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click

from acid_platform.base.paths import user_path
from acid_platform.cli.console import (
    TABLE,
    CommandSession,
    Failed,
    LocalPath,
    OneOf,
    command,
    main,
    told,
)
from acid_platform.cli.sql_command import engine_option
from acid_platform.cli.sql_output import FORMATS, Output
from acid_platform.display.warehouse_page import facts_of, warehouse_page
from acid_platform.errors import AcidError
from acid_platform.layout.names import table_name
from acid_platform.layout.sql_text import quoted
from acid_platform.tables.joining import IdentityFile, join, require_new


@command(main)
@click.argument("path", required=False)
def init(session: CommandSession, path: str | None) -> None:
    """Make a warehouse at PATH, or where the others look for it, and say what comes next."""
    if path is not None:
        if session.named and user_path(path) != session.place.warehouse:
            raise click.UsageError(f"PATH is {path}, and another warehouse is named beside it")
        session = CommandSession(path, session.json)
    location = session.place
    made = not location.made
    if made:
        require_new(location, IdentityFile.read(location.warehouse))
        with join(location):
            pass
    lines = [f"{location.warehouse} is {'made' if made else 'there already'}; next:"]
    if os.environ.get("ACID_WAREHOUSE") != location.warehouse:
        lines.append(f"  export ACID_WAREHOUSE={shlex.quote(location.warehouse)}")
    lines.append('  acid sql "CREATE DATABASE shop; CREATE TABLE shop.orders (id int, day date)"')
    session.say({"warehouse": location.warehouse, "made": made}, "\n".join(lines))


@command(main)
@TABLE
@click.option("-n", "rows", type=click.IntRange(min=1), default=10, show_default=True)
@engine_option
@click.option("--format", "form", type=OneOf([each for each in FORMATS if each != "parquet"]))
def head(
    session: CommandSession, table: str, rows: int, engine: str | None, form: str | None
) -> None:
    """Print some rows of TABLE, a table or a view."""
    named = ".".join(map(quoted, table_name(table).split(".")))
    output = Output(session, form, rows)
    with session.open() as warehouse:
        try:
            answers = warehouse.session.steps(f"SELECT * FROM {named} LIMIT {rows}", engine)
            for _, answer in answers:
                output.show(answer)
        except AcidError as error:
            raise Failed(told(error)) from error


@command(main)
@TABLE
def describe(session: CommandSession, table: str) -> None:
    """Print what is known of TABLE: its columns, size, properties and last commit."""
    with session.metastore() as metastore:
        record = metastore.table(table)
        facts = facts_of(metastore, record)
    keys = {name for name, _ in record.partition_columns}
    columns: list[dict[str, Any]] = [
        {
            "column": name,
            "type": kind,
            "partition": "yes" if name in keys else "",
            "comment": record.comments.get(name, ""),
        }
        for name, kind in (*record.columns, *record.partition_columns)
    ]
    if session.json:
        session.say_json({**facts, "columns": columns})
        return
    shown = [name for name in columns[0] if any(each[name] for each in columns)]
    session.show(columns, shown)
    session.show([{"fact": name, "value": value} for name, value in facts.items() if value != ""])


@command(main)
@click.option(
    "-o",
    "--output",
    type=LocalPath(dir_okay=False),
    default="warehouse.html",
    show_default=True,
    metavar="FILE",
)
def ui(session: CommandSession, output: str) -> None:
    """Write a page for a browser: tables, columns, sizes, histories, compactions and locks of the
    warehouse, as they are now. The pages of assets and runs are Dagster's."""
    warehouse = session.place.warehouse
    with session.metastore() as metastore:
        text = warehouse_page(metastore, warehouse)
    draft = Path(f"{output}.{os.getpid()}.part")
    draft.write_text(text, "utf-8")
    os.replace(draft, output)
    session.say({"page": os.path.abspath(output)}, f"{output} shows {warehouse}")
