"""`acid gateway`: serves other engines in Hive's Metastore protocol until a signal."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click

from acid_platform.base.visible import log_to
from acid_platform.cli.console import (
    SESSION_OPTIONS,
    WITHOUT_TLS,
    CommandSession,
    main,
    with_session,
)
from acid_platform.errors import InvalidDefinition
from acid_platform.metastore.address import parse_address, require_tls
from acid_platform.metastore.client.metastore import Metastore

_HERE = "127.0.0.1"
_PORT = 9083


@main.group(invoke_without_command=True)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=f"{_HERE}:{_PORT}",
    show_default=True,
    help="Where to listen; port 0 takes a free one.",
)
@click.option("--connections", type=click.IntRange(min=1), help="How many may be open at once.")
@click.option("--threads", type=click.IntRange(min=1), help="Calls that are answered at a time.")
@click.option("--rate", type=click.IntRange(min=0), help="Calls per second of a user; 0: any.")
@click.option("--tls-certificate", metavar="FILE", help="The server's certificate (PEM).")
@click.option("--tls-key", metavar="FILE", help="Its key (PEM).")
@click.option("--tls-ca", metavar="FILE", help="Whose certificates clients log in with (PEM).")
@WITHOUT_TLS
@click.option("--users", metavar="FILE", help="Users and hashed passwords, for SASL PLAIN.")
@click.option("--grants", metavar="FILE", help="Who may do what: lines USER VERBS TABLES.")
@click.option("--locations", metavar="PATHS", help="Where else clients may make tables.")
@click.option("--authorizer", metavar="MODULE:FUNCTION", help="A function instead of grants.")
@with_session
def gateway(
    session: CommandSession, listen: str, without_tls: bool, **options: str | int | None
) -> None:
    """Let Trino, Hive and Spark use the tables, in the protocol of Hive's Metastore.

    Runs until SIGINT or SIGTERM. Needs the extra `gateway`. Each option but --listen and
    --without-tls is the setting acid.gateway.… of that name for this run.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    from acid_platform.gateway.gateway import Gateway
    from acid_platform.gateway.gateway_server import GatewayServer
    from acid_platform.gateway.settings import GatewaySettings
    from acid_platform.gateway.status import GatewayStatus

    try:
        host, port = parse_address(listen)
    except InvalidDefinition as error:
        raise InvalidDefinition(f"--listen HOST:PORT: {error}") from error
    log_to(logging.StreamHandler(), "%(asctime)s")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with session.metastore() as metastore:
        chosen = GatewaySettings.of(metastore.settings(), _settings(options), host)
        require_tls(
            listen,
            tls=chosen.entry.tls is not None,
            without_tls=without_tls,
            certificate="give --tls-certificate and --tls-key",
        )
        status = GatewayStatus(session.place)
        calls = Gateway(metastore, authorizer=chosen.authorizer, locations=chosen.locations)
        server = GatewayServer(calls, host, port, chosen.bounds, chosen.entry, status.write)
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


def _settings(options: dict[str, str | int | None]) -> dict[str, str]:
    """The settings that the command's options name; a file may be relative to this directory."""
    files = ("tls_certificate", "tls_key", "tls_ca", "users", "grants")
    return {
        name.replace("_", "."): str(Path(str(value)).absolute() if name in files else value)
        for name, value in options.items()
        if value is not None
    }


@gateway.command("add-user")
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
def add_user(file: str, name: str, password_stdin: bool) -> None:
    """Add user NAME to FILE, or change the password. Gateways that run read the file again."""
    from acid_platform.gateway.users import add

    password = (
        sys.stdin.readline().rstrip("\n")
        if password_stdin
        else click.prompt("Password", hide_input=True, confirmation_prompt=True)
    )
    new = add(file, name, password)
    click.echo(f"{'added' if new else 'changed'} {name} in {file}")


def gateways(metastore: Metastore) -> Iterator[tuple[bool, str]]:
    """Whether each gateway that runs is safe and alive, and a line about it."""
    from acid_platform.gateway.status import examined, running

    return map(examined, running(metastore))
