"""`acid gateway`: serves other engines in Hive's Metastore protocol until a signal."""

from __future__ import annotations

import logging
import signal
import threading

import click

from acid_platform.cli.console import Session, command
from acid_platform.errors import InvalidDefinition

_HERE = "127.0.0.1"
_PORT = 9083


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=f"{_HERE}:{_PORT}",
    show_default=True,
    help="Where to listen; port 0 takes a free one. Whoever reaches it may do everything.",
)
@click.option(
    "--connections",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="How many connections may be open at once.",
)
@command
def gateway(session: Session, listen: str, connections: int) -> None:
    """Let Trino, Hive and Spark use the tables, in the protocol of Hive's Metastore.

    Runs until SIGINT or SIGTERM. Needs the extra `gateway`.
    """
    from acid_platform.gateway.gateway import Gateway
    from acid_platform.gateway.server import Bounds

    host, port = _address(listen)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with session.metastore() as metastore:
        server = Gateway(metastore).listen(host, port, Bounds(connections=connections))
        thread = threading.Thread(target=server.serve, name="gateway")
        thread.start()
        where = "thrift://{}:{}".format(*server.address)
        session.say({"listens": where}, f"listens on {where}")
        while thread.is_alive() and not stop.wait(0.2):
            pass
        server.stop()
        thread.join()
        session.say({"stopped": where}, "stopped")


def _address(text: str) -> tuple[str, int]:
    """Host and port. Raises InvalidDefinition."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise InvalidDefinition(f"--listen {text!r} is not HOST:PORT, such as {_HERE}:{_PORT}")
    return host.strip("[]"), int(port)
