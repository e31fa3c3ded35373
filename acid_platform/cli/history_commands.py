"""`acid tag`, `acid rollback`, `acid diff`, `acid changes` and `acid streams`: the pasts of tables,
and who follows or writes them (P36, P39, P42)."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from acid_platform.cli.console import (
    A_TABLE_OR_ALL,
    TABLE,
    CommandSession,
    command,
    echo,
    limit_option,
    main,
)
from acid_platform.display.looks import cursor_rows, sink_rows, tag_rows
from acid_platform.metastore import operations as ops
from acid_platform.metastore import show_columns
from acid_platform.metastore.pasts import NOW
from acid_platform.metastore.pasts import past_named as as_of

if TYPE_CHECKING:
    from acid_platform.handles.snapshot_comparison import ChangeCounts, RowDifference

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
    session.show(rows, show_columns.TAGS, empty="no tags")


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
    _say(session, difference)


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
            session.show(rows, show_columns.CURSORS, empty=f"nobody consumes {handle.name}")
            return
        from acid_platform.handles.snapshot_comparison import (
            change_counts,  # Arrow takes long to import
        )

        with session.working(f"reading the changes of {table}"):
            first, last = (None if text == NOW else as_of(text) for text in (since, until))
            if since == NOW:
                raise click.UsageError("SINCE has to be a snapshot of the past")
            counts = change_counts(handle, first, last, 0 if only_count else limit)
    _say(session, counts)


def _say(session: CommandSession, compared: RowDifference | ChangeCounts) -> None:
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
    session.show(rows, show_columns.SINKS, empty="no streaming query or import has written")
