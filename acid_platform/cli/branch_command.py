"""`acid branch`: production's tables, yours to change."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from acid_platform.cli.console import CommandSession, OneOf, command, limit_option, main
from acid_platform.cli.table_commands import say_difference
from acid_platform.handles.warehouse_branches import BRANCH_AGE
from acid_platform.metastore.branches import BranchRow
from acid_platform.metastore.operations.listings import BRANCHES

_NAME = click.argument("name")
_COMPARED = (
    "table",
    "only_here",
    "only_there",
    "changed",
    "missing",
    *("columns_here", "columns_there"),
)


@main.group()
def branch() -> None:
    """Change all tables on a branch that nobody else sees; merge it, or drop it.

    `ACID_BRANCH=NAME acid sql …`, and any other program with ACID_BRANCH, works on the branch.
    """


def _row(made: BranchRow) -> dict[str, Any]:
    return {
        "branch": made.name,
        "created": made.created,
        "expires": made.until,
        "user": made.user,
        "commits": made.commits,
        "tables": ", ".join(made.write_ids),
        "refused": made.refused,
    }


@command(branch)
@_NAME
@click.option("--days", type=click.IntRange(min=1), help="Drop it by itself after so many days.")
@click.option(
    "--if-not-exists", is_flag=True, help="Keep the branch of this name, if there is one."
)
def create(session: CommandSession, name: str, days: int | None, if_not_exists: bool) -> None:
    """Make the branch NAME of what is committed now. It lives 7 days."""
    age = timedelta(days=days) if days else BRANCH_AGE
    with session.open(branch="") as warehouse:
        made = warehouse.branches.create(name, age, if_not_exists)
    session.show([_row(made)], BRANCHES)


@command(branch, "list")
def list_branches(session: CommandSession) -> None:
    """List the branches: when each ends, which tables it has written, why it can't be merged."""
    with session.open(branch="") as warehouse:
        rows = [_row(made) for made in warehouse.branches.list()]
    session.show(rows, BRANCHES, empty="no branches")


@command(branch)
@_NAME
@click.argument("table", required=False)
@click.option("--with", "other", metavar="OTHER", help="Compare with this branch.")
@click.option("--now", is_flag=True, help="Compare with what everybody sees now.")
@click.option(
    "--key", multiple=True, help="With --with or --now: a column by which rows are paired."
)
@limit_option("Rows to print; the counts are of all.")
@click.option("--format", "form", type=OneOf(["table", "json"]))
def diff(
    session: CommandSession,
    name: str,
    table: str | None,
    other: str | None,
    now: bool,
    key: tuple[str, ...],
    limit: int,
    form: str | None,
) -> None:
    """Show the rows that the branch NAME has removed and added; without TABLE, count them for each
    table.

    With --with or --now: the rows that only NAME shows (here) or only the other side (there), and
    in which columns rows of one key differ. The key is --key, or the declared primary key.
    """
    if other and now:
        raise click.UsageError("name --with or --now")
    if key and not (table and (other or now)):
        raise click.UsageError("--key needs TABLE, and --with or --now")
    session.json |= form == "json"
    with session.open(branch=name) as warehouse:
        branches = warehouse.branches
        if other or now:
            with session.open(branch=other or "") as there:
                if table is not None:
                    say_difference(session, branches.compare(there, table, key or None, limit))
                    return
                found = [asdict(each) for each in branches.compare_all(there)]
            against = f"branch {other}" if other else "what everybody sees"
            session.show(found, _COMPARED, empty=f"{name} shows the same as {against}")
            return
        if table is not None:
            say_difference(session, branches.diff(table, limit))
            return
        rows = []
        for each in branches.require(name).write_ids:
            difference = branches.diff(each, 0)
            rows.append({"table": each, "removed": difference.removed, "added": difference.added})
    session.show(rows, ("table", "removed", "added"), empty=f"{name} has written no table")


@command(branch)
@_NAME
def merge(session: CommandSession, name: str) -> None:
    """Commit everything of the branch NAME at one moment, and end it."""
    with session.open(branch="") as warehouse:
        tables = [*warehouse.branches.require(name).write_ids]
        warehouse.branches.merge(name)
    what = ", ".join(tables) or "it had written nothing"
    session.say({"merged": name, "tables": tables}, f"branch {name} is merged: {what}")


@command(branch)
@_NAME
def drop(session: CommandSession, name: str) -> None:
    """Drop the branch NAME with all that was written there."""
    with session.open(branch="") as warehouse:
        warehouse.branches.drop(name)
    session.say({"dropped": name}, f"branch {name} is dropped")
