"""`acid register` and `acid adopt`: the tables of this warehouse in a Hive metastore, and the
tables of a Hive metastore in this warehouse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from acid_platform.cli.console import CommandSession, Failed, command, complete_tables, main
from acid_platform.display.progress import progress

if TYPE_CHECKING:
    from acid_platform.gateway.adopting import AdoptedTable
    from acid_platform.gateway.registering import Registered

Result = TypeVar("Result", "AdoptedTable", "Registered")
ReportProgress = Callable[[str, int, int], None]
_ADDRESS = "thrift://HOST:PORT"


def _entry(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options with which a client gets into a Hive metastore, fields of `Address`."""
    for option in (
        click.option(
            "--tls-ca", "ca", metavar="FILE", help="Use TLS; its authorities, or `system`."
        ),
        click.option(
            "--tls-certificate",
            "certificate",
            metavar="FILE",
            help="This client's certificate (PEM).",
        ),
        click.option("--tls-key", "key", metavar="FILE", help="Its key (PEM)."),
        click.option("--user", help="For SASL PLAIN, with the password in ACID_HIVE_PASSWORD."),
        click.option(
            "--wait",
            type=click.FloatRange(min=0),
            default=30.0,
            show_default=True,
            help="Seconds for the exclusive lock of each table there.",
        ),
    ):
        function = option(function)
    return function


def _shown(
    session: CommandSession, title: str, results: Callable[[ReportProgress], Iterator[Result]]
) -> list[Result]:
    """All results; if one fails, those before it are printed too."""
    rows: list[Result] = []
    try:
        with progress() as report_progress:
            rows.extend(results(report_progress))
    finally:
        session.show([asdict(row) for row in rows], title=title, empty="no tables")
    return rows


@command(main)
@click.option("--to", metavar=_ADDRESS, required=True, help="The Hive metastore.")
@click.argument("tables", nargs=-1, shell_complete=complete_tables)
@click.option("--again", is_flag=True, help="Drop tables there, without files, that differ.")
@_entry
def register(
    session: CommandSession, to: str, tables: Sequence[str], again: bool, wait: float, **entry: Any
) -> None:
    """Tell a Hive metastore of TABLES (default: all), so that its engines can read them.

    They must not write. Run it again after changes here: it brings tables, partitions and write ids
    there up to date. Exit code 1 if a table could not be registered.
    """
    from acid_platform.gateway.hive_client import Address, Hive
    from acid_platform.gateway.registering import register as run

    with session.metastore() as metastore, Hive(Address.of(to, **entry)) as hive:
        rows = _shown(session, to, partial(run, metastore, hive, tables, wait, again))
    refused = [row.table for row in rows if row.refused]
    if refused:
        raise Failed(f"not registered: {', '.join(refused)}")


@command(main)
@click.option("--from", "source", metavar=_ADDRESS, required=True, help="The Hive metastore.")
@click.argument("database")
@click.argument("tables", nargs=-1)
@_entry
def adopt(
    session: CommandSession,
    source: str,
    database: str,
    tables: Sequence[str],
    wait: float,
    **entry: Any,
) -> None:
    """Take over DATABASE of a Hive metastore, or its TABLES: their files stay where they are.

    Write ids that are aborted there stay aborted. Prints what was taken, and what can't be taken
    and why. Afterwards Hive must not write there, and a DROP TABLE there would remove the files.
    Exit code 1 if something was not taken; a second run goes on.
    """
    from acid_platform.gateway.adopting import adopt_database
    from acid_platform.gateway.hive_client import Address, Hive

    with session.metastore() as metastore, Hive(Address.of(source, **entry)) as hive:
        rows = _shown(
            session, source, partial(adopt_database, metastore, hive, database, tables, wait)
        )
    names = {name.lower() for name in tables}
    missing = sorted(names - {row.name.partition(".")[2] for row in rows})
    if missing:
        raise Failed(f"{database} has no table {', '.join(missing)} at {source}")
    refused = [row.name for row in rows if row.refused]
    if refused:
        raise Failed(f"not taken: {', '.join(refused)}")
