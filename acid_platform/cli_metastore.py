"""`acid metastore`: the process behind a warehouse."""

from __future__ import annotations

import click

from acid_platform.console import Session, command
from acid_platform.errors import MetastoreUnavailable, NoSuchWarehouse
from acid_platform.metastore.client import Metastore


@click.group()
def metastore() -> None:
    """The process that keeps transactions, write ids and locks."""


@metastore.command()
@command
def status(session: Session) -> None:
    """Whether it runs, and what it holds. Starts nothing."""
    running = _running(session)
    if running is None:
        _not_running(session)
        return
    with running:
        found = running.status()
    if session.json:
        session.say_json({"running": True, **found})
    else:
        session.show([{"metastore": key, "value": str(value)} for key, value in found.items()])


@metastore.command()
@command
def start(session: Session) -> None:
    """Start it if it does not run; makes a warehouse's metastore if there is none."""
    with Metastore.connect(session.place.metastore) as client:
        found = client.status()
    session.say({"running": True, "pid": found["pid"]}, f"runs as process {found['pid']}")


@metastore.command()
@command
def stop(session: Session) -> None:
    """Stop it and wait for its end. The next client starts it again."""
    import psutil

    running = _running(session)
    if running is None:
        _not_running(session)
        return
    pid = running.stop()
    try:
        psutil.Process(pid).wait(30)
    except psutil.NoSuchProcess:
        pass
    except psutil.TimeoutExpired as error:
        raise MetastoreUnavailable(
            f"process {pid} was told to stop and still runs after 30 s; see server.log in"
            f" {session.place.metastore}") from error
    session.say({"running": False, "pid": pid}, f"process {pid} has ended")


@metastore.command("sql")
@click.argument("query")
@command
def metastore_sql(session: Session, query: str) -> None:
    """Run one SELECT over the metastore's own tables."""
    with session.metastore() as client:
        columns, rows = client.query(query)
    session.show([dict(zip(columns, row, strict=True)) for row in rows], columns, empty="no rows")


def _running(session: Session) -> Metastore | None:
    try:
        return Metastore.connect(session.existing().metastore, autostart=False)
    except (MetastoreUnavailable, NoSuchWarehouse):
        return None


def _not_running(session: Session) -> None:
    session.say({"running": False}, f"no metastore runs for {session.place.warehouse}")
