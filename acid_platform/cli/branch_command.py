"""`acid branch`: production's tables, yours to change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from acid_platform.cli.console import CommandSession, command, limit_option, main
from acid_platform.cli.table_commands import say_difference
from acid_platform.handles.warehouse_branches import BRANCH_AGE
from acid_platform.metastore.branches import BranchRow
from acid_platform.metastore.operations.listings import BRANCHES

_NAME = click.argument("name")


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
@limit_option("Rows to print; the counts are of all.")
def diff(session: CommandSession, name: str, table: str | None, limit: int) -> None:
    """Show the rows that the branch NAME has removed and added; without TABLE, count them for each
    table."""
    with session.open(branch=name) as warehouse:
        branches = warehouse.branches
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
