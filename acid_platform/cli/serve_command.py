"""`acid serve`: a read-only REST catalog for readers of Iceberg, until a signal."""

from __future__ import annotations

import logging
import signal
import threading

import click

from acid_platform.base.logs import log_to
from acid_platform.cli.console import CommandSession, command, main
from acid_platform.cli.gateway_command import chosen_settings, doors
from acid_platform.errors import InvalidDefinition
from acid_platform.metastore.endpoint import parse_address, require_tls


@command(main)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8181",
    show_default=True,
    help="Where to listen; port 0 takes a free one.",
)
@doors
def serve(
    session: CommandSession, listen: str, without_tls: bool, **options: str | int | None
) -> None:
    """Let readers of Iceberg find the tables in Parquet by a read-only REST catalog.

    A table that they load is told as it is now, as by `acid export iceberg`. Runs until SIGINT or
    SIGTERM. Needs the extras `gateway` and `export`. Each option but --listen and --without-tls is
    the setting acid.gateway.… of that name for this run: users and grants are those of the gateway.
    """
    from acid_platform.gateway.gateway_process import GatewaySettings
    from acid_platform.gateway.rest_catalog import RestCatalog
    from acid_platform.gateway.rest_server import RestServer
    from acid_platform.handles.iceberg_export import told_metadata

    try:
        host, port = parse_address(listen)
    except InvalidDefinition as error:
        raise InvalidDefinition(f"--listen HOST:PORT: {error}") from error
    log_to(logging.StreamHandler(), "%(asctime)s")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with session.open(branch="") as warehouse:
        metastore = warehouse.metastore
        chosen = GatewaySettings.of(metastore.settings(), chosen_settings(options), host)
        require_tls(
            listen,
            tls=chosen.entry.tls is not None,
            without_tls=without_tls,
            certificate="give --tls-certificate and --tls-key",
        )
        catalog = RestCatalog(
            metastore, lambda table: told_metadata(warehouse, table), chosen.authorizer
        )
        server = RestServer(catalog, host, port, chosen.bounds, chosen.entry)
        thread = threading.Thread(target=server.serve, name="catalog")
        thread.start()
        session.say({"listens": server.address}, f"listens on {server.address}")
        while thread.is_alive() and not stop.wait(0.2):
            pass
        where = server.address
        server.stop()
        thread.join()
        session.say({"stopped": where}, "stopped")
