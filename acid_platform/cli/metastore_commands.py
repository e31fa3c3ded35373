"""`acid metastore`: the metastore process of a warehouse."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from acid_platform.base.metrics_page import prometheus_text
from acid_platform.cli.console import METRICS, WITHOUT_TLS, CommandSession, LocalPath, command, main
from acid_platform.errors import (
    InvalidDefinition,
    MetastoreUnavailable,
    NoSuchWarehouse,
    RebuildRefused,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.start import start as start_process
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.pasts import utc_text
from acid_platform.metastore.server.metrics import families
from acid_platform.tables import joining


@main.group()
def metastore() -> None:
    """The process that keeps transactions, write ids and locks."""


@command(metastore)
@click.option(
    "--prometheus", "as_text", is_flag=True, help="Print counters in the format of Prometheus."
)
def status(session: CommandSession, as_text: bool) -> None:
    """Print whether it runs, and what it holds. Starts nothing.

    The exit code is 1 if it does not run; with --prometheus it is 0, and acid_metastore_up tells.
    """
    running = _running(session)
    running_status = None
    if running is not None:
        with running:
            running_status = running.status()
    if as_text:
        click.echo(prometheus_text(lambda: families(running_status)), nl=False)
    elif running_status is None:
        _not_running(session)
        raise SystemExit(1)
    elif session.json:
        session.say_json({"running": True, **running_status})
    else:
        session.show(
            [{"metastore": key, "value": _short(value)} for key, value in running_status.items()]
        )


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return (
            f"{value['count']} times, p50 {value['p50_ms']:g} ms, p95 {value['p95_ms']:g} ms,"
            f" p99 {value['p99_ms']:g} ms"
        )
    return str(value)


@command(metastore)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Also serve other machines; it then runs until it is stopped.",
)
@WITHOUT_TLS
@METRICS
@click.option(
    "--empty",
    is_flag=True,
    help="Make a new one although there are tables, which it will not know.",
)
def start(
    session: CommandSession, listen: str | None, without_tls: bool, metrics: str, empty: bool
) -> None:
    """Start it if it does not run; make a warehouse's metastore if there is none."""
    if session.place.shared:
        raise InvalidDefinition(
            f"{session.place.metastore} is a service: start it on its machine (`acid metastore"
            " serve`)"
        )
    if empty and session.place.made:
        raise RebuildRefused(
            f"{session.place.metastore} has a metastore already; --empty makes one"
            " where there is none"
        )
    if not session.place.made and not empty:
        joining.require_new(session.place, joining.IdentityFile.read(session.place.warehouse))
    if listen or metrics:
        home = Home(Path(session.place.metastore))
        start_process(home, listen, without_tls=without_tls, metrics=metrics)
    with joining.join(session.place, empty=empty) as client:
        running = client.status()
    if listen and not running["listen"]:
        raise MetastoreUnavailable(
            f"process {running['pid']} runs already and does not listen on {listen}; stop it first:"
            " `acid metastore stop`"
        )
    if metrics and not running["metrics"]:
        raise MetastoreUnavailable(
            f"process {running['pid']} runs already and serves no metrics; stop it first:"
            " `acid metastore stop`"
        )
    at = f", listens on {running['listen']}" if running["listen"] else ""
    at += f", serves {running['metrics']}" if running["metrics"] else ""
    session.say(
        {"running": True, "pid": running["pid"], "listen": running["listen"]},
        f"runs as process {running['pid']}{at}",
    )


@command(metastore)
def stop(session: CommandSession) -> None:
    """Stop it and wait until it has ended.

    The next client starts it again, unless it is a service.
    """
    running = _running(session)
    if running is None:
        _not_running(session)
        return
    pid = running.stop()
    session.say({"running": False, "pid": pid}, f"process {pid} has ended")


@command(metastore)
@click.option("--listen", metavar="HOST:PORT", required=True, help="Where clients connect.")
@click.option(
    "--advertise", metavar="HOST:PORT", default="", help="The address for clients, if another."
)
@WITHOUT_TLS
@METRICS
def serve(
    session: CommandSession, listen: str, advertise: str, without_tls: bool, metrics: str
) -> None:
    """Serve ACID_METASTORE until it is stopped: a directory, or a log that others serve too.

    Any number of processes may serve one log in PostgreSQL or in a bucket: one leads, the others
    stand by and take over if it is gone.
    """
    from acid_platform.metastore.__main__ import serve as serve_directory
    from acid_platform.metastore.__main__ import serve_log

    if not session.place.shared:
        home = Home(Path(session.place.metastore))
        raise SystemExit(serve_directory(home, listen, without_tls=without_tls, metrics=metrics))
    serve_log(session.place.metastore, listen, advertise, without_tls=without_tls, metrics=metrics)


@command(metastore)
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@click.option("--renew", is_flag=True, help="Make it anew for the same hosts.")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=397,
    show_default=True,
    help="How long it lasts.",
)
@click.option(
    "--to",
    "directory",
    type=LocalPath(path_type=Path),
    metavar="DIR",
    help="Another directory than tls in the metastore's.",
)
def certificate(
    session: CommandSession, hosts: tuple[str, ...], renew: bool, days: int, directory: Path | None
) -> None:
    """Make a certificate for each HOST by which clients connect, or print the one that is there.

    A service that listens with --listen uses it for TLS from its next start, and a renewed one from
    the next connection. Clients need the ca.pem beside it in ACID_METASTORE_TLS_CA.
    """
    from acid_platform.metastore.certificates import make_certificate, read_certificate

    if directory is None:
        require_own(session, "make its certificate")
        home = Home(Path(session.place.metastore))
        home.prepare()
        where = home.tls
    else:
        where = directory
    made = make_certificate(where, hosts, days) if hosts or renew else read_certificate(where)
    fields = {**asdict(made), "hosts": ", ".join(made.hosts)}
    for key in ("expires", "ca_expires"):
        fields[key] = f"{fields[key]:%Y-%m-%d %H:%M:%S} UTC"
    if session.json:
        session.say_json(fields)
        return
    session.show([{"certificate": key, "value": value} for key, value in fields.items()])


@command(metastore, "sql")
@click.argument("query")
def metastore_sql(session: CommandSession, query: str) -> None:
    """Run a SELECT over the metastore's own tables."""
    with session.metastore() as client:
        result = client.call(ops.RunQuery(query))
    rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    session.show(rows, result.columns, empty="no rows")
    click.echo(f"as of {utc_text(result.as_of)}, position {result.position}", err=True)


def require_own(session: CommandSession, what: str) -> None:
    if session.place.shared:
        raise InvalidDefinition(
            f"{session.place.metastore} is a service: {what} on its machine, with ACID_METASTORE"
            " set to its directory there"
        )


def _running(session: CommandSession) -> Metastore | None:
    try:
        place = session.existing()
    except NoSuchWarehouse:
        return None
    if not place.made:
        return None
    try:
        # Also a metastore of another warehouse: its status can be read, and it can be stopped.
        return Metastore.connect(place.metastore, autostart=False)
    except MetastoreUnavailable:
        return None


def _not_running(session: CommandSession) -> None:
    session.say(
        {"running": False},
        f"no metastore runs for {session.place.warehouse} at {session.place.metastore}",
    )
