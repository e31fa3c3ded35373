"""The command line `acid`. Spark starts only if `sql`, `head`, `compact`, `erase`,
`rollback`, `diff` or `run worker` need it.

Exit codes: 0; 1 if a command failed (a line on stderr says why); 2 for wrong usage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from acid_platform.cli import (
    branch_command,
    contract_command,
    gateway_command,
    look_commands,
    mcp_command,
    metastore_commands,
    project,
    serve_command,
    sql_command,
    table_commands,
)
from acid_platform.cli.console import (
    METRICS,
    TABLE,
    CommandSession,
    Failed,
    OneOf,
    command,
    echo,
    main,
)
from acid_platform.display import SHOWN, retained_row
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.messages import encode
from acid_platform.metastore.operations.listings import dropped_rows

if TYPE_CHECKING:
    from acid_platform.cli.doctor import DoctorReport
    from acid_platform.metastore.records import TableRecord
    from acid_platform.services.explain_services import Section


__all__ = ["main"]
COMMANDS = (
    sql_command,
    look_commands,
    table_commands,
    branch_command,
    contract_command,
    gateway_command,
    serve_command,
    mcp_command,
    project,
    metastore_commands,
)
"""Modules that add their commands to `main` when they are imported."""


# --- showing ------------------------------------------------------------------------------------


@command(main)
@TABLE
@click.option("--as", "other", metavar="NAME", help="Give it another name.")
@click.option("--id", "number", type=int, default=0, help="Of several with the name: this table.")
def undrop(session: CommandSession, table: str, other: str | None, number: int) -> None:
    """Bring TABLE back, which was dropped; `acid show dropped` lists what can come back."""
    with session.open() as warehouse:
        name = warehouse.undrop(table, other, number).name
    session.say({"table": name}, f"{name} is back")


@command(main)
@click.argument("what", type=OneOf([*SHOWN]))
@click.argument("table", required=False)
def show(session: CommandSession, what: str, table: str | None) -> None:
    """List transactions, locks, compactions, erasures, tables, dropped tables that can come back,
    what histories cost, or the history of a TABLE."""
    if (what == "history") != (table is not None):
        raise click.UsageError(
            "acid show history needs a TABLE, the other listings take none; such as: acid show"
            " history db.t"
        )
    with session.metastore() as metastore:
        rows = metastore.history(table) if table else _LISTED[what](metastore)
    session.show(rows, SHOWN[what], empty=f"no {what}")


def _table_rows(metastore: Metastore) -> list[dict[str, Any]]:
    records = sorted(metastore.tables(), key=lambda record: record.name)
    return [_table_row(metastore, record) for record in records]


def _table_row(metastore: Metastore, record: TableRecord) -> dict[str, Any]:
    columns = [f"{column} {kind}" for column, kind in record.columns]
    keys = [f"{column} {kind}" for column, kind in record.partition_columns]
    partitions = metastore.partitions(record.name) if record.partitioned else []
    return {
        "table": record.name,
        "columns": ", ".join(columns),
        "partitioned_by": ", ".join(keys),
        "partitions": f"{len(partitions)} by {', '.join(keys)}" if keys else "",
        "location": record.location,
        "properties": record.properties,
    }


_LISTED: dict[str, Callable[[Metastore], list[dict[str, Any]]]] = {
    "transactions": Metastore.transactions,
    "locks": Metastore.locks,
    "compactions": Metastore.compactions,
    "erasures": lambda metastore: [
        encode(erasure) for erasure in metastore.call(ops.GetErasures())
    ],
    "tables": _table_rows,
    "dropped": lambda metastore: dropped_rows(metastore.call(ops.GetDroppedTables())),
    "retained": lambda metastore: [
        retained_row(kept) for kept in metastore.call(ops.GetKept(None))
    ],
}


@command(main)
@click.option("--settings/--no-settings", "with_settings", default=True, help="List all settings.")
def doctor(session: CommandSession, with_settings: bool) -> None:
    """Check Java, the warehouse and its metastore; list settings, thresholds and what is stuck.

    Exit code 1 if a check failed.
    """
    from acid_platform.cli.doctor import examine

    report = examine(session.place)
    if session.json:
        session.say_json(report.as_json())
    else:
        _print_report(session, report, with_settings)
    if not report.healthy:
        raise Failed(
            "; ".join(f"{check.check}: {check.text}" for check in report.checks if not check.ok)
        )


def _print_report(session: CommandSession, report: DoctorReport, with_settings: bool) -> None:
    echo(report.verdict)
    session.show(
        [
            {"check": check.check, "result": "ok" if check.ok else "BAD", "text": check.text}
            for check in report.checks
        ],
        title="checks",
    )
    session.show([asdict(thing) for thing in report.stuck], title="stuck")
    if report.thresholds:
        session.show(report.thresholds, title="what the Initiator decides now")
    if with_settings and report.settings:
        session.show(report.settings, ("setting", "value", "class", "allowed"), "settings")


# --- working ------------------------------------------------------------------------------------


@command(main)
@TABLE
@click.argument("kind", type=OneOf(["major", "minor"]))
@click.option("--partition", metavar="NAME", help="Such as month=3; default: each partition.")
@click.option(
    "--wait/--no-wait",
    default=False,
    help="Compact here and wait, or (default) leave it to a Worker.",
)
@click.option("--explain", is_flag=True, help="Only print what it would read, write and save.")
def compact(
    session: CommandSession, table: str, kind: str, partition: str | None, wait: bool, explain: bool
) -> None:
    """Request a major or minor compaction of TABLE."""
    with session.open() as warehouse:
        if explain:
            _print_sections(session, warehouse.table(table).explain_compaction(kind, partition))
            return
        with session.working(f"compacting {table}" if wait else ""):
            rows = warehouse.table(table).compact(kind, partition, wait)
    session.show(rows, SHOWN["compactions"])
    if not (wait or session.json):
        echo("queued; a Worker will take it: `acid run worker`, or Dagster's compaction job")


@command(main)
@TABLE
@click.option("--where", metavar="PREDICATE", required=True, help='Such as "person_id = 42".')
@click.option("--partition", metavar="NAME", help="Such as month=3; default: the whole table.")
@click.option("--later", is_flag=True, help="Only record the request for Dagster's sensor.")
@click.option(
    "--end-history",
    is_flag=True,
    help="End the history of the partitions that had such rows, if a retention or a tag keeps it.",
)
def erase(
    session: CommandSession,
    table: str,
    where: str,
    partition: str | None,
    later: bool,
    end_history: bool,
) -> None:
    """Delete rows of TABLE from every file, also from files of old snapshots.

    Deletes, compacts, cleans, then reads every file. Exit code 1 if some files still hold such
    rows: it prints which, and the transactions that need them; run it again when they have ended.
    """
    if later and end_history:
        raise click.UsageError("--end-history can't be recorded for later; leave one of both out")
    if later:
        with session.open() as warehouse:
            number = warehouse.table(table).request_erasure(where, partition)
        session.say(
            {"erasure": number},
            f"request {number}: Dagster's erasure_sensor will do it;"
            " acid show erasures prints its state",
        )
        return
    with session.open() as warehouse, session.working(f"erasing rows of {table}"):
        result = warehouse.table(table).erase(where, partition, end_history, report=True)
    if session.json:
        session.say_json(result.as_json())
    if not result.erased:
        raise Failed(str(result))
    if not session.json:
        echo(str(result))


@command(main)
@click.argument("service", type=OneOf(["initiator", "worker", "cleaner"]))
@click.option("--once", is_flag=True, help="Run one cycle; a Worker runs until the queue is empty.")
@click.option("--explain", is_flag=True, help="Only print what a cycle would do.")
@METRICS
def run(session: CommandSession, service: str, once: bool, explain: bool, metrics: str) -> None:
    """Run the initiator, a worker or the cleaner without Dagster.

    Runs cycles at the intervals of the settings until SIGINT or SIGTERM, and then finishes the
    current cycle.
    """
    from acid_platform.cli.runner import Runner

    with session.open(branch="") as warehouse:
        runner = Runner(warehouse, service, session.say_json if session.json else None)
        if explain:
            _print_sections(session, runner.explain())
        elif once:
            runner.once()
        else:
            runner.forever(metrics)


def _print_sections(session: CommandSession, sections: Sequence[Section]) -> None:
    if session.json:
        session.say_json({section.title: section.rows for section in sections})
        return
    for section in sections:
        session.show(section.rows, title=section.title, empty=section.empty)


# --- the shell ----------------------------------------------------------------------------------


@command(main)
@click.argument("shell", type=OneOf(["bash", "zsh", "fish"]))
def completion(session: CommandSession, shell: str) -> None:
    """Print a script that lets SHELL complete commands, options and table names.

    For example: `acid completion bash > ~/.local/share/bash-completion/completions/acid`.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(main, {}, "acid", "_ACID_COMPLETE").source()
    session.say({"shell": shell, "script": script}, script)
