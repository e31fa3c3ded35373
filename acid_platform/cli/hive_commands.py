"""`acid register` and `acid adopt`: the tables of this warehouse in a Hive metastore, and the
tables of a Hive metastore in this warehouse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from acid_platform.cli.console import CommandSession, Failed, command, complete_tables
from acid_platform.display.progress import progress

if TYPE_CHECKING:
    from acid_platform.gateway.hive_client import Address

_ADDRESS = "thrift://HOST:PORT"


def _entry(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options with which a client gets into a Hive metastore."""
    for option in (
        click.option("--tls-ca", metavar="FILE", help="Use TLS; its authorities, or `system`."),
        click.option("--tls-certificate", metavar="FILE", help="This client's certificate (PEM)."),
        click.option("--tls-key", metavar="FILE", help="Its key (PEM)."),
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


def _address(text: str, given: dict[str, Any]) -> Address:
    from acid_platform.gateway.hive_client import Address

    return Address.of(
        text,
        ca=given["tls_ca"],
        certificate=given["tls_certificate"],
        key=given["tls_key"],
        user=given["user"],
    )


@click.command()
@click.option("--to", metavar=_ADDRESS, required=True, help="The Hive metastore.")
@click.argument("tables", nargs=-1, shell_complete=complete_tables)
@click.option("--again", is_flag=True, help="Drop tables there, without files, that differ.")
@_entry
@command
def register(
    session: CommandSession, to: str, tables: Sequence[str], again: bool, wait: float, **given: Any
) -> None:
    """Tell a Hive metastore of TABLES (default: all), so that its engines can read them.

    They must not write. Run it again after changes here: it brings tables, partitions and write ids
    there up to date. Exit code 1 if a table could not be registered.
    """
    from acid_platform.gateway.hive_client import Hive
    from acid_platform.gateway.registering import Registered
    from acid_platform.gateway.registering import register as run

    rows: list[Registered] = []
    with session.metastore() as metastore, Hive(_address(to, given)) as hive:
        try:
            with progress() as told:
                rows += run(metastore, hive, tables, wait, again, told)
        finally:
            session.show([asdict(row) for row in rows], title=to, empty="no tables")
    refused = [row.table for row in rows if row.refused]
    if refused:
        raise Failed(f"not registered: {', '.join(refused)}")


@click.command()
@click.option("--from", "source", metavar=_ADDRESS, required=True, help="The Hive metastore.")
@click.argument("database")
@click.argument("tables", nargs=-1)
@_entry
@command
def adopt(
    session: CommandSession,
    source: str,
    database: str,
    tables: Sequence[str],
    wait: float,
    **given: Any,
) -> None:
    """Take over DATABASE of a Hive metastore, or its TABLES: their files stay where they are.

    Write ids that are aborted there stay aborted. Prints what was taken, and what can't be taken
    and why. Afterwards Hive must not write there, and a DROP TABLE there would remove the files.
    Exit code 1 if something was not taken; a second run goes on.
    """
    from acid_platform.gateway.adopting import AdoptedTable, adopt_database
    from acid_platform.gateway.hive_client import Hive

    rows: list[AdoptedTable] = []
    wanted = {name.lower() for name in tables}
    with session.metastore() as metastore, Hive(_address(source, given)) as hive:
        try:
            with progress() as told:
                for row in adopt_database(
                    metastore,
                    hive,
                    database,
                    (lambda name: name.lower() in wanted) if wanted else (lambda _name: True),
                    wait,
                    told,
                ):
                    rows.append(row)
        finally:
            session.show([asdict(row) for row in rows], title=source, empty="no tables")
    found = {row.name.partition(".")[2] for row in rows}
    missing = sorted(wanted - found)
    if missing:
        raise Failed(f"{database} has no table {', '.join(missing)} at {source}")
    refused = [row.name for row in rows if row.refused]
    if refused:
        raise Failed(f"not taken: {', '.join(refused)}")
