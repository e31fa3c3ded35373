"""`acid mcp`: tools for agents over stdin and stdout."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import click

from acid_platform.base.logs import log_to
from acid_platform.cli.console import CommandSession, command, main

if TYPE_CHECKING:
    from acid_platform.base.location import Location
    from acid_platform.gateway.agent_tools import AgentTools
    from acid_platform.gateway.authorization import Authorizer
    from acid_platform.handles.warehouse import Warehouse


@command(main)
@click.option(
    "--query-memory",
    type=click.IntRange(min=64),
    default=256,
    show_default=True,
    help="MiB that a SELECT may take.",
)
@click.option(
    "--query-seconds",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    help="How long one may take.",
)
def mcp(session: CommandSession, query_memory: int, query_seconds: int) -> None:
    """Let an agent read the tables by MCP, over stdin and stdout.

    The agent starts this command, and reads what whoever runs it may read: tables, columns,
    history, findings, and rows by SELECT. It changes nothing. For others, over HTTP with users and
    grants: `acid serve --mcp`. Needs the extras `gateway` and `mcp`.
    """
    from acid_platform.gateway.mcp_server import serve_stdio

    log_to(logging.StreamHandler(sys.stderr), "%(asctime)s")
    with session.open() as warehouse:
        serve_stdio(agent_tools(warehouse, session.place, query_memory, query_seconds))


def agent_tools(
    warehouse: Warehouse,
    location: Location,
    memory: int,
    seconds: float,
    authorizer: Authorizer | None = None,
) -> AgentTools:
    """The tools of a warehouse at its location. `memory` of a SELECT in MiB, `authorizer` None
    allows everything."""
    from acid_platform.gateway.agent_tools import AgentTools
    from acid_platform.gateway.authorization import Guard
    from acid_platform.handles.reading_sessions import ReadingSession

    def findings() -> dict[str, object]:
        from acid_platform.cli.doctor import examine

        report = examine(location)
        told = report.as_json()
        return {"verdict": report.verdict, "checks": told["checks"], "stuck": told["stuck"]}

    return AgentTools(
        warehouse.metastore,
        lambda user, may: ReadingSession(warehouse, user, may, memory),
        lambda name: warehouse.table(name).history(),
        findings,
        Guard(warehouse.metastore, authorizer),
        seconds,
    )
