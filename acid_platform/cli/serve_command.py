"""`acid serve`: ports on which others read the tables, until a signal."""

from __future__ import annotations

import logging
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

import click

from acid_platform.base.config import Settings
from acid_platform.base.logs import log_to
from acid_platform.cli.console import CommandSession, command, main
from acid_platform.cli.gateway_command import chosen_settings, doors
from acid_platform.cli.mcp_command import agent_tools
from acid_platform.errors import InvalidDefinition
from acid_platform.metastore.endpoint import parse_address, require_tls

if TYPE_CHECKING:
    from acid_platform.gateway.guarded_port import GuardedPort


@command(main)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8181",
    show_default=True,
    help="Where to listen; port 0 takes a free one.",
)
@click.option(
    "--postgres",
    metavar="HOST:PORT",
    help="Where psql, drivers and BI tools read, in PostgreSQL's protocol.",
)
@click.option(
    "--query-memory",
    type=click.IntRange(min=64),
    default=256,
    show_default=True,
    help="MiB that the statements of one session of --postgres, or a SELECT of --mcp, may take.",
)
@click.option(
    "--query-seconds",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="How long one of them may take, until its last row is computed.",
)
@click.option("--mcp", is_flag=True, help="Agents call tools by MCP, at /mcp of --listen.")
@doors
def serve(
    session: CommandSession,
    listen: str,
    without_tls: bool,
    postgres: str | None,
    mcp: bool,
    query_memory: int,
    query_seconds: int,
    **options: str | int | None,
) -> None:
    """Let others read the tables: readers of Iceberg, and with --postgres who speaks PostgreSQL.

    Readers of Iceberg find the tables in Parquet by a read-only REST catalog; one that they load is
    told as it is now, as by `acid export iceberg`. Clients of PostgreSQL read all tables by SELECT,
    in DuckDB's SQL; agents call the tools of `acid mcp` with --mcp, which needs the extra `mcp`.
    Runs until SIGINT or SIGTERM. Needs the extras `gateway` and `export`. Options
    that `acid gateway` has, too, are the setting acid.gateway.… of that name for this run: users
    and grants are those of the gateway.
    """
    from acid_platform.gateway.gateway_process import GatewaySettings
    from acid_platform.gateway.load_leases import LoadLeases
    from acid_platform.gateway.postgres_server import PostgresServer
    from acid_platform.gateway.rest_catalog import RestCatalog
    from acid_platform.gateway.rest_server import RestServer
    from acid_platform.handles.iceberg_export import told_metadata
    from acid_platform.handles.reading_sessions import ReadingSession

    places = {"--listen": listen, **({"--postgres": postgres} if postgres else {})}
    addresses = {name: _address(name, text) for name, text in places.items()}
    log_to(logging.StreamHandler(), "%(asctime)s")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with session.open(branch="") as warehouse:
        metastore = warehouse.metastore
        stored, given = metastore.settings(), chosen_settings(options)
        for name, listened in places.items():
            chosen = GatewaySettings.of(stored, given, addresses[name][0])
            require_tls(
                listened,
                tls=chosen.entry.tls is not None,
                without_tls=without_tls,
                certificate="give --tls-certificate and --tls-key",
            )

        def tell(table: str, branch: str) -> tuple[str, bytes]:
            if not branch:
                return told_metadata(warehouse, table)
            with session.open(branch=branch) as on_branch:
                return told_metadata(on_branch, table)

        seconds = Settings.of(stored).integer("acid.serve.lease") / 1000
        leases = LoadLeases(metastore, seconds)
        catalog = RestCatalog(metastore, tell, chosen.authorizer, leases)
        bounds, entry, agents = chosen.bounds, chosen.entry, None
        if mcp:
            from acid_platform.gateway.mcp_server import answer_http

            tools = agent_tools(
                warehouse, session.place, query_memory, query_seconds, chosen.authorizer
            )
            agents = partial(answer_http, tools)
        servers: list[GuardedPort] = [
            RestServer(catalog, *addresses["--listen"], bounds, entry, agents)
        ]
        if postgres:
            servers.append(
                PostgresServer(
                    metastore,
                    lambda user, may: ReadingSession(warehouse, user, may, query_memory),
                    *addresses["--postgres"],
                    bounds,
                    entry,
                    chosen.authorizer,
                    query_seconds,
                )
            )
        threads = [threading.Thread(target=server.serve, name="port") for server in servers]
        for thread, server in zip(threads, servers, strict=True):
            thread.start()
            session.say({"listens": server.address}, f"listens on {server.address}")
        while all(thread.is_alive() for thread in threads) and not stop.wait(0.2):
            pass
        for thread, server in zip(threads, servers, strict=True):
            where = server.address
            server.stop()
            thread.join()
            session.say({"stopped": where}, "stopped")


def _address(option: str, text: str) -> tuple[str, int]:
    try:
        return parse_address(text if ":" in text else f"127.0.0.1:{text}")
    except InvalidDefinition as error:
        raise InvalidDefinition(f"{option} HOST:PORT: {error}") from error
