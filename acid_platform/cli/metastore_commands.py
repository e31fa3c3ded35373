"""`acid metastore`: the metastore process of a warehouse, its backups and archives, and what
follows a restore."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from acid_platform.base.local_files import scratch_directory
from acid_platform.cli.console import (
    METRICS,
    WITHOUT_TLS,
    CommandSession,
    LocalPath,
    command,
    echo,
    main,
)
from acid_platform.display.progress_bar import progress
from acid_platform.errors import (
    BackupRefused,
    InvalidDefinition,
    MetastoreUnavailable,
    NoSuchWarehouse,
    RebuildRefused,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.target import start as start_process
from acid_platform.metastore.endpoint import TCP, Home
from acid_platform.metastore.messages import range_text
from acid_platform.metastore.pasts import utc_text
from acid_platform.tables import joining

if TYPE_CHECKING:
    from acid_platform.base.location import Location
    from acid_platform.metastore.log.contract import Log
    from acid_platform.metastore.server.restore import Rebuilt


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
        from acid_platform.base.ports import prometheus_text
        from acid_platform.metastore.server.metrics import families

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
        location = session.existing()
    except NoSuchWarehouse:
        return None
    if not location.made:
        return None
    try:
        # Also a metastore of another warehouse: its status can be read, and it can be stopped.
        return Metastore.connect(location.metastore, autostart=False)
    except MetastoreUnavailable:
        return None


def _not_running(session: CommandSession) -> None:
    session.say(
        {"running": False},
        f"no metastore runs for {session.place.warehouse} at {session.place.metastore}",
    )


@command(metastore)
@click.argument("file", type=LocalPath(dir_okay=False, path_type=Path))
def backup(session: CommandSession, file: Path) -> None:
    """Write everything that is committed to the new FILE, while others work."""
    from acid_platform.metastore.server.store import write_copy

    end = write_copy(_log(session.existing()), file)
    size = file.stat().st_size
    session.say(
        {"path": str(file), "bytes": size, **asdict(end)},
        f"{file}: {size} bytes, up to position {end.position} of {utc_text(end.made)}",
    )


@command(metastore)
@click.argument("archived", metavar="[ARCHIVE]", required=False)
def archive(session: CommandSession, archived: str | None) -> None:
    """Print what an archive can restore; without ARCHIVE, the one that the metastore writes to."""
    if archived is None:
        with session.metastore() as client:
            archived = client.settings().get("acid.metastore.archive", "")
        if not archived:
            raise InvalidDefinition(
                "this metastore writes to no archive; name one in the setting"
                " acid.metastore.archive, or as the argument"
            )
    from acid_platform.metastore.log.contract import archived_logs
    from acid_platform.metastore.server.restore import window_of

    rows: list[dict[str, Any]] = []
    for history, log in archived_logs(archived).items():
        window = window_of(log)
        rows.append(
            {
                "history": history,
                "from": utc_text(window.first.made),
                "until": utc_text(window.last.made),
                "positions": f"{window.first.position}-{window.last.position}",
                "snapshots": window.snapshots,
            }
        )
    session.show(rows, empty=f"{archived} holds no archive of a metastore")


@command(metastore)
@click.argument("file", type=LocalPath(exists=True, dir_okay=False), required=False)
@click.option(
    "--archive", "archived", metavar="DIR", help="Restore from this archive or log, not a FILE."
)
@click.option(
    "--until",
    metavar="WHEN",
    help="With --archive: a time (UTC, unless it has a zone), a position, or latest.",
)
@click.option("--history", default="", help="With --archive: which, if there are several.")
@click.option(
    "--to",
    "target",
    type=LocalPath(path_type=Path),
    metavar="FILE",
    help="With --archive: only write a backup as of then to the new FILE.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Move an existing metastore aside, or remove what an interrupted restore left.",
)
@click.option(
    "--keep-settings",
    is_flag=True,
    help="Of a backup that you trust: also settings that name places, code, patterns or jobs.",
)
def restore(
    session: CommandSession,
    file: str | None,
    archived: str | None,
    until: str | None,
    history: str,
    target: Path | None,
    replace: bool,
    keep_settings: bool,
) -> None:
    """Make the warehouse's metastore from a backup FILE, or from an archive as of a moment.

    The metastore must not run.

    The warehouse gets a new identity, and tables outside of its directory are read-only until
    `take-over`. Write ids above the backup's are in doubt: hidden, with their files kept, until
    `resolve`. Settings that name places, code, patterns or jobs, such as `acid.metastore.archive`,
    are left out and printed, unless --keep-settings is given.
    """
    from acid_platform.tables.adoption import restore as restore_file

    if bool(file) == bool(archived) or bool(archived) != bool(until):
        raise InvalidDefinition("name a backup FILE, or --archive PLACE and --until WHEN")
    if not archived and (history or target):
        raise InvalidDefinition("--history and --to belong to --archive PLACE")
    if target and archived and until:
        made_file = _rebuild(archived, until, target, history)
        session.say(asdict(made_file), _reached(made_file))
        return
    if session.place.metastore.startswith(TCP):
        require_own(session, "restore")
    if archived and until:
        with scratch_directory("restore") as scratch:
            draft = Path(scratch, "archived.duckdb")
            rebuilt = _rebuild(archived, until, draft, history)
            restored = restore_file(session.place, os.fspath(draft), replace, keep_settings)
        if not session.json:
            echo(_reached(rebuilt))
    else:
        restored = restore_file(session.place, os.fspath(file or ""), replace, keep_settings)
    if session.json:
        session.say_json(asdict(restored))
        return
    made = utc_text(restored.made)
    lines = [
        f"{restored.directory}: {restored.tables} tables as of {made}; the next transaction is"
        f" {restored.next_txn}"
    ]
    if restored.open_txns:
        lines.append(f"{restored.open_txns} transactions were open in the backup; they are gone")
    if restored.replaced:
        lines.append(f"the old files are now in {restored.replaced}")
    if restored.foreign:
        lines.append(
            f"read only, as another warehouse may use their directories, until `acid"
            f" metastore take-over`: {', '.join(restored.foreign)}"
        )
    for name, outside in restored.reads.items():
        lines.append(f"{name} reads files outside of the warehouse, at {outside}")
    if restored.settings:
        lines.append(f"settings of the backup that count: {_assigned(restored.settings)}")
    if restored.left_out:
        lines.append(
            f"settings of the backup that were left out, as it may be a stranger's (set them again,"
            f" or restore with --keep-settings): {_assigned(restored.left_out)}"
        )
    for name, ids in restored.doubtful.items():
        lines.append(
            f"{name}: write ids {range_text(ids)} are in doubt: hidden, and their files kept"
        )
    if restored.doubtful:
        lines.append(
            "say how they ended: acid metastore resolve TABLE --committed IDS --aborted IDS"
        )
    echo("\n".join(lines))


def _assigned(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in settings.items())


@command(metastore)
@click.argument("table", required=False)
@click.option("--committed", metavar="IDS", default="", help="Such as 7,9-12.")
@click.option("--aborted", metavar="IDS", default="", help="Such as 8.")
def resolve(session: CommandSession, table: str | None, committed: str, aborted: str) -> None:
    """Say how write ids ended that a restore left in doubt; without TABLE, list them."""
    with session.metastore() as client:
        if table:
            client.call(
                ops.ResolveDoubtful(
                    table, tuple(sorted(_ids(committed))), tuple(sorted(_ids(aborted)))
                )
            )
        left = client.call(ops.GetDoubtful())
    session.show(
        [{"table": name, "in doubt": range_text(ids)} for name, ids in left.items()],
        empty="no write id is in doubt",
    )


@command(metastore, "take-over")
@click.argument("table", required=False)
def take_over(session: CommandSession, table: str | None) -> None:
    """Allow writing to TABLE, or to all tables, outside of a copied warehouse's directory.

    In a copy of a warehouse these tables are read-only, since the original may use the same
    directories, and only one of the two may write there.
    """
    with session.metastore() as client:
        taken = client.call(ops.TakeOver(table))
    rows = [{"taken over": name} for name in taken]
    session.show(rows, empty="no table is read-only")


@command(metastore)
def rebuild(session: CommandSession) -> None:
    """Make a new metastore from the tables' directories, if there is no backup.

    Prints what the directories can't tell: aborted write ids, for example, count as committed.
    Refused if there is a metastore.
    """
    from acid_platform.cli.rebuild import UNKNOWN
    from acid_platform.cli.rebuild import rebuild as rebuild_from

    require_own(session, "rebuild")
    with progress():
        rebuilt_tables = rebuild_from(session.place)
    if session.json:
        session.say_json(
            {"tables": [asdict(rebuilt) for rebuilt in rebuilt_tables], "unknown": UNKNOWN}
        )
        return
    session.show([asdict(rebuilt) for rebuilt in rebuilt_tables], empty="no table was found")
    echo("\n".join(["what the directories can't tell:", *(f"- {fact}" for fact in UNKNOWN)]))


def _log(location: Location) -> Log:
    """The log of the warehouse's metastore. Raises InvalidDefinition if it can't be read here."""
    if location.metastore.startswith(TCP):
        raise InvalidDefinition(
            f"{location.metastore} is a service: back it up on its machine, with ACID_METASTORE set"
            " to its directory or its log"
        )
    if location.shared:
        from acid_platform.metastore.log.contract import open_log

        return open_log(location.metastore)
    from acid_platform.metastore.log.local import LocalLog

    return LocalLog(Path(location.metastore))


def _rebuild(archived: str, until: str, file: Path, history: str) -> Rebuilt:
    """Raises BackupRefused if there are several histories and none is named."""
    from acid_platform.metastore.log.contract import archived_logs
    from acid_platform.metastore.server.restore import Until
    from acid_platform.metastore.server.restore import rebuild as rebuild_from_log

    logs = archived_logs(archived)
    names = [history] if history else list(logs)
    if len(names) != 1 or names[0] not in logs:
        raise BackupRefused(
            f"{archived} has the histories {', '.join(logs) or '(none)'}; name one of them with"
            " --history (`acid metastore archive` shows what they have)"
        )
    return rebuild_from_log(logs[names[0]], Until.parse(until), file)


def _reached(rebuilt: Rebuilt) -> str:
    return (
        f"{rebuilt.path}: {rebuilt.log} up to position {rebuilt.position}, of"
        f" {utc_text(rebuilt.made)}, after {rebuilt.batches} batches"
    )


def _ids(text: str) -> list[int]:
    numbers: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        low, _, high = part.partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()):
            raise click.BadParameter(f"{part!r} is no write id and no range such as 9-12")
        numbers += range(int(low), int(high or low) + 1)
    return numbers
