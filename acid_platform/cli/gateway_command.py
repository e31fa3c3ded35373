"""`acid gateway`: serves other engines in Hive's Metastore protocol until a signal.

`acid register` and `acid adopt`: the tables of this warehouse in a Hive metastore, and the tables
of a Hive metastore in this warehouse.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from acid_platform.base.logs import log_to
from acid_platform.base.paths import user_path
from acid_platform.cli.console import (
    METRICS,
    SESSION_OPTIONS,
    WITHOUT_TLS,
    CommandSession,
    Failed,
    LocalPath,
    command,
    complete_tables,
    main,
    with_session,
)
from acid_platform.display.progress_bar import progress
from acid_platform.errors import InvalidDefinition
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import parse_address, require_tls

if TYPE_CHECKING:
    from acid_platform.gateway.adopting import AdoptedTable
    from acid_platform.gateway.registering import Registered


_HERE = "127.0.0.1"
_PORT = 9083


def doors(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a port for clients with users and grants, which are settings as well."""
    for option in reversed(_DOORS):
        function = option(function)
    return function


_DOORS = (
    click.option("--connections", type=click.IntRange(min=1), help="How many may be open at once."),
    click.option(
        "--threads", type=click.IntRange(min=1), help="Calls that are answered at a time."
    ),
    click.option("--rate", type=click.IntRange(min=0), help="Calls per second of a user; 0: any."),
    click.option("--tls-certificate", metavar="FILE", help="The server's certificate (PEM)."),
    click.option("--tls-key", metavar="FILE", help="Its key (PEM)."),
    click.option("--tls-ca", metavar="FILE", help="Whose certificates clients log in with (PEM)."),
    WITHOUT_TLS,
    click.option("--users", metavar="FILE", help="Users and hashed passwords (add-user)."),
    click.option("--grants", metavar="FILE", help="Who may do what: lines USER VERBS TABLES."),
    click.option("--authorizer", metavar="MODULE:FUNCTION", help="A function instead of grants."),
)


@main.group(invoke_without_command=True)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=f"{_HERE}:{_PORT}",
    show_default=True,
    help="Where to listen; port 0 takes a free one.",
)
@doors
@click.option("--locations", metavar="PATHS", help="Where else clients may make tables.")
@METRICS
@with_session
def gateway(
    session: CommandSession,
    listen: str,
    without_tls: bool,
    metrics: str,
    **options: str | int | None,
) -> None:
    """Let Trino, Hive and Spark use the tables, in the protocol of Hive's Metastore.

    Runs until SIGINT or SIGTERM. Needs the extra `gateway`. Each option but --listen,
    --metrics and --without-tls is the setting acid.gateway.… of that name for this run.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    from acid_platform.gateway.gateway import Gateway
    from acid_platform.gateway.gateway_process import (
        GatewaySettings,
        GatewayStatus,
        keep_little_memory,
    )
    from acid_platform.gateway.gateway_server import GatewayServer

    try:
        host, port = parse_address(listen)
    except InvalidDefinition as error:
        raise InvalidDefinition(f"--listen HOST:PORT: {error}") from error
    log_to(logging.StreamHandler(), "%(asctime)s")
    keep_little_memory()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with session.metastore() as metastore:
        chosen = GatewaySettings.of(metastore.settings(), chosen_settings(options), host)
        require_tls(
            listen,
            tls=chosen.entry.tls is not None,
            without_tls=without_tls,
            certificate="give --tls-certificate and --tls-key",
        )
        status = GatewayStatus(session.place)
        calls = Gateway(metastore, authorizer=chosen.authorizer, locations=chosen.locations)
        server = GatewayServer(calls, host, port, chosen.bounds, chosen.entry, status.write)
        if metrics:
            from acid_platform.base.ports import serve_metrics
            from acid_platform.gateway.gateway_process import GatewayMetrics

            numbers = GatewayMetrics()
            calls.observe = numbers.observe
            page = serve_metrics(metrics, numbers.registry(server)).address
            session.say({"metrics": page}, f"serves {page}")
        # A thread that decodes a large call lets others go on after 0.5 ms, not after 5.
        sys.setswitchinterval(0.0005)
        thread = threading.Thread(target=server.serve, name="gateway")
        thread.start()
        where = "thrift://{}:{}".format(*server.address)
        session.say({"listens": where}, f"listens on {where}")
        while thread.is_alive() and not stop.wait(0.2):
            pass
        server.stop()
        thread.join()
        status.remove()
        session.say({"stopped": where}, "stopped")


gateway.params += SESSION_OPTIONS


def chosen_settings(options: dict[str, str | int | None]) -> dict[str, str]:
    """The settings that the command's options name; a file may be relative to this directory."""
    files = ("tls_certificate", "tls_key", "tls_ca", "users", "grants")
    return {
        name.replace("_", "."): user_path(str(value)) if name in files else str(value)
        for name, value in options.items()
        if value is not None
    }


@gateway.command("add-user")
@click.argument("file", type=LocalPath(dir_okay=False))
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
def add_user(file: str, name: str, password_stdin: bool) -> None:
    """Add user NAME to FILE, or change the password. Gateways that run read the file again."""
    from acid_platform.gateway.logins import add

    password = (
        sys.stdin.readline().rstrip("\n")
        if password_stdin
        else click.prompt("Password", hide_input=True, confirmation_prompt=True)
    )
    new = add(file, name, password)
    click.echo(f"{'added' if new else 'changed'} {name} in {file}")


def gateways(metastore: Metastore) -> Iterator[tuple[bool, str]]:
    """Whether each gateway that runs is safe and alive, and a line about it."""
    from acid_platform.gateway.gateway_process import examined, running

    return map(examined, running(metastore))


Result = TypeVar("Result", "AdoptedTable", "Registered")
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


def _shown(session: CommandSession, title: str, results: Iterator[Result]) -> list[Result]:
    """All results; if one fails, those before it are printed too."""
    rows: list[Result] = []
    try:
        with progress():
            rows.extend(results)
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
        rows = _shown(session, to, run(metastore, hive, tables, wait, again))
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
        rows = _shown(session, source, adopt_database(metastore, hive, database, tables, wait))
    names = {name.lower() for name in tables}
    missing = sorted(names - {row.name.partition(".")[2] for row in rows})
    if missing:
        raise Failed(f"{database} has no table {', '.join(missing)} at {source}")
    refused = [row.name for row in rows if row.refused]
    if refused:
        raise Failed(f"not taken: {', '.join(refused)}")
