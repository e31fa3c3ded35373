"""`acid metastore`: the metastore process of a warehouse."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from acid_platform.cli.console import Group, Session, command
from acid_platform.display.progress import progress
from acid_platform.errors import (
    InvalidDefinition,
    MetastoreUnavailable,
    NoSuchWarehouse,
    RebuildRefused,
)
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.start import start as start_process
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.pasts import utc_text
from acid_platform.metastore.server.metrics import prometheus
from acid_platform.metastore.wire import PRIMARY, STANDBY
from acid_platform.tables import joining

if TYPE_CHECKING:
    from acid_platform.metastore.server.point_in_time import Rebuilt


@click.group(cls=Group)
def metastore() -> None:
    """The process that keeps transactions, write ids and locks."""


@metastore.command()
@click.option(
    "--prometheus", "as_text", is_flag=True, help="Print counters in the format of Prometheus."
)
@command
def status(session: Session, as_text: bool) -> None:
    """Print whether it runs, and what it holds. Starts nothing."""
    running = _running(session)
    running_status = None
    if running is not None:
        with running:
            running_status = running.status()
    if as_text:
        click.echo(prometheus(running_status), nl=False)
    elif running_status is None:
        _not_running(session)
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


@metastore.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Also serve other machines; it then runs until it is stopped.",
)
@click.option(
    "--empty",
    is_flag=True,
    help="Make a new one although there are tables, which it will not know.",
)
@command
def start(session: Session, listen: str | None, empty: bool) -> None:
    """Start it if it does not run; make a warehouse's metastore if there is none."""
    if session.place.shared:
        raise InvalidDefinition(
            f"{session.place.metastore} is a service: start it on its machine, with ACID_METASTORE"
            " set to its directory there"
        )
    if empty and session.place.made:
        raise RebuildRefused(
            f"{session.place.metastore} has a metastore already; --empty makes one"
            " where there is none"
        )
    if not session.place.made and not empty:
        joining.require_new(session.place, joining.Mark.read(session.place.warehouse))
    if listen:
        start_process(Home(Path(session.place.metastore).resolve()), listen)
    with joining.join(session.place, empty=empty) as client:
        running = client.status()
    if listen and not running["listen"]:
        raise MetastoreUnavailable(
            f"process {running['pid']} runs already and does not listen on {listen}; stop it first:"
            " `acid metastore stop`"
        )
    at = f", listens on {running['listen']}" if running["listen"] else ""
    session.say(
        {"running": True, "pid": running["pid"], "listen": running["listen"]},
        f"runs as process {running['pid']}{at}",
    )


@metastore.command()
@command
def stop(session: Session) -> None:
    """Stop it and wait until it has ended.

    The next client starts it again, unless it is a service.
    """
    running = _running(session)
    if running is None:
        _not_running(session)
        return
    pid = running.stop()
    session.say({"running": False, "pid": pid}, f"process {pid} has ended")


@metastore.command()
@click.option("--of", "primary", metavar="ADDRESS", help="The primary, as tcp://HOST:PORT.")
@click.option("--listen", metavar="HOST:PORT", required=True, help="Where this standby listens.")
@click.option("--manual", is_flag=True, help="It never promotes itself.")
@click.option("--replace", is_flag=True, help="Move an existing metastore aside.")
@command
def standby(
    session: Session, primary: str | None, listen: str, manual: bool, replace: bool
) -> None:
    """Make ACID_METASTORE's directory a standby, or start it again without --of.

    It follows the primary's journal, and takes its place if that is gone. Both need the same key in
    ACID_METASTORE_KEY or ACID_METASTORE_KEY_FILE. Clients name both addresses:
    tcp://HOST:PORT,HOST:PORT.
    """
    from acid_platform.metastore.endpoint import take_lock
    from acid_platform.metastore.server.seeding import make_standby, require_made

    _require_own(session, "make a standby")
    home = Home(Path(session.place.metastore).resolve())
    kept = ""
    if primary:
        home.prepare()
        with take_lock(home):
            kept = make_standby(home, primary, not manual, replace)
    if require_made(home).role != STANDBY:
        raise InvalidDefinition(f"{home.path} is no standby; name its primary with --of ADDRESS")
    start_process(home, listen)
    with Metastore.connect(home.path, autostart=False) as client:
        running = client.status()
    session.say(
        {key: running[key] for key in ("pid", "listen", "role", "primary", "standby")},
        f"standby {running['standby']} of {running['primary']} runs as process {running['pid']},"
        f" listens on {running['listen']}" + (f"; the old file is now {kept}" if kept else ""),
    )


@metastore.command()
@click.option(
    "--incomplete", is_flag=True, help="Even if it may lack commits that were acknowledged."
)
@command
def promote(session: Session, incomplete: bool) -> None:
    """Make this standby the primary. The old primary must have stopped."""
    _require_own(session, "promote it")
    running = _running(session)
    if running is None:
        raise MetastoreUnavailable(
            f"no metastore runs in {session.place.metastore}; start it: acid metastore standby"
            " --listen HOST:PORT"
        )
    with running:
        term = running.promote(incomplete)
    session.say({"role": PRIMARY, "term": term}, f"this is the primary now, of term {term}")


@metastore.command("forget-standby")
@command
def forget_standby(session: Session) -> None:
    """Let the primary go on without its standby, which must have ended for good."""
    with session.metastore() as client:
        forgotten = client.forget_standby()
    session.say(
        {"forgotten": forgotten},
        f"{forgotten} is forgotten; remove its directory, so that nobody starts it again",
    )


@metastore.command()
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
    "--to", "directory", metavar="DIR", help="Another directory than tls in the metastore's."
)
@command
def certificate(
    session: Session, hosts: tuple[str, ...], renew: bool, days: int, directory: str | None
) -> None:
    """Make a certificate for each HOST by which clients connect, or print the one that is there.

    A service that listens with --listen uses it for TLS from its next start, and a renewed one from
    the next connection. Clients and standbys need the ca.pem beside it in ACID_METASTORE_TLS_CA.
    """
    from acid_platform.metastore.certificates import make_certificate, read_certificate

    if directory is None:
        _require_own(session, "make its certificate")
        home = Home(Path(session.place.metastore).resolve())
        home.prepare()
        where = home.tls
    else:
        where = Path(directory).absolute()
    made = make_certificate(where, hosts, days) if hosts or renew else read_certificate(where)
    fields = {**asdict(made), "hosts": ", ".join(made.hosts)}
    for key in ("expires", "ca_expires"):
        fields[key] = f"{fields[key]:%Y-%m-%d %H:%M:%S} UTC"
    if session.json:
        session.say_json(fields)
        return
    session.show([{"certificate": key, "value": value} for key, value in fields.items()])


@metastore.command("sql")
@click.argument("query")
@command
def metastore_sql(session: Session, query: str) -> None:
    """Run a SELECT over the metastore's own tables."""
    with session.metastore() as client:
        columns, rows = client.query(query)
    session.show([dict(zip(columns, row, strict=True)) for row in rows], columns, empty="no rows")


@metastore.command()
@click.argument("file", type=click.Path(dir_okay=False))
@command
def backup(session: Session, file: str) -> None:
    """Write everything that is committed to the new FILE, while others work."""
    with session.metastore() as client:
        made = client.backup(file)
    session.say(
        asdict(made),
        f"{made.path}: {made.rows} rows, {made.bytes} bytes, transactions up to {made.last_txn}",
    )


@metastore.command()
@click.argument("place", metavar="[ARCHIVE]", required=False)
@command
def archive(session: Session, place: str | None) -> None:
    """Print what an archive can restore; without ARCHIVE, the one that the metastore writes to."""
    from acid_platform.metastore.server.archive import Archive
    from acid_platform.metastore.server.coverage import windows

    if place is None:
        with session.metastore() as client:
            place = client.settings().get("acid.metastore.archive", "")
        if not place:
            raise InvalidDefinition(
                "this metastore writes to no archive; name one in the setting"
                " acid.metastore.archive, or as the argument"
            )
    items = Archive(_place(place)).items()
    rows: list[dict[str, Any]] = []
    for history in sorted({item.history for item in items}):
        own = [item for item in items if item.history == history]
        rows += [
            {
                "history": history,
                "from": utc_text(window.begin),
                "until": utc_text(window.until),
                "events": f"{window.first}-{window.last}",
                "backups": window.bases,
                "bytes": sum(item.size for item in own),
            }
            for window in windows(own)
        ]
    session.show(rows, empty=f"{place} holds no backup of a metastore")


@metastore.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False), required=False)
@click.option("--archive", "archived", metavar="DIR", help="Restore from this archive, not a FILE.")
@click.option(
    "--until",
    metavar="WHEN",
    help="With --archive: a time (UTC, unless it has a zone), the number of an event, or latest.",
)
@click.option("--history", default="", help="With --archive: which, if there are several.")
@click.option(
    "--to",
    "target",
    metavar="FILE",
    help="With --archive: only write a backup as of then to the new FILE.",
)
@click.option("--replace", is_flag=True, help="Move an existing metastore aside.")
@click.option(
    "--moved-from",
    metavar="ROOT",
    default="",
    help="Where the warehouse was, if the backup is of a version that recorded absolute paths.",
)
@command
def restore(
    session: Session,
    file: str | None,
    archived: str | None,
    until: str | None,
    history: str,
    target: str | None,
    replace: bool,
    moved_from: str,
) -> None:
    """Make the warehouse's metastore from a backup FILE, or from an archive as of a moment.

    The metastore must not run.

    The warehouse gets a new identity, and tables outside of its directory are read-only until
    `take-over`. Write ids above the backup's are in doubt: hidden, with their files kept, until
    `resolve`.
    """
    from acid_platform.tables.recovery import restore as restore_file

    if bool(file) == bool(archived) or bool(archived) != bool(until):
        raise InvalidDefinition("name a backup FILE, or --archive DIR and --until WHEN")
    if not archived and (history or target):
        raise InvalidDefinition("--history and --to belong to --archive DIR")
    if target and archived and until:
        made_file = _rebuild(archived, until, Path(target).absolute(), history)
        session.say(asdict(made_file), _reached(made_file))
        return
    _require_own(session, "restore")
    if archived and until:
        home = Home(Path(session.place.metastore).resolve())
        home.prepare()
        draft = home.path / f"archived.{os.getpid()}.duckdb"
        try:
            rebuilt = _rebuild(archived, until, draft, history)
            done = restore_file(session.place, os.fspath(draft), replace, moved_from)
        finally:
            draft.unlink(missing_ok=True)
        if not session.json:
            click.echo(_reached(rebuilt))
    else:
        done = restore_file(session.place, os.fspath(file or ""), replace, moved_from)
    if session.json:
        session.say_json(asdict(done))
        return
    made = utc_text(done.made)
    lines = [
        f"{done.directory}: {done.tables} tables as of {made}; the next transaction is"
        f" {done.next_txn}"
    ]
    if done.open_txns:
        lines.append(f"{done.open_txns} transactions were open in the backup; they are gone")
    if done.kept:
        lines.append(f"the old file is now {done.kept}")
    if done.foreign:
        lines.append(
            f"read only, as another warehouse may use their directories, until `acid"
            f" metastore take-over`: {', '.join(done.foreign)}"
        )
    for name, ids in done.doubtful.items():
        lines.append(f"{name}: write ids {_ranges(ids)} are in doubt: hidden, and their files kept")
    if done.doubtful:
        lines.append(
            "say how they ended: acid metastore resolve TABLE --committed IDS --aborted IDS"
        )
    click.echo("\n".join(lines))


@metastore.command()
@click.argument("table", required=False)
@click.option("--committed", metavar="IDS", default="", help="Such as 7,9-12.")
@click.option("--aborted", metavar="IDS", default="", help="Such as 8.")
@command
def resolve(session: Session, table: str | None, committed: str, aborted: str) -> None:
    """Say how write ids ended that a restore left in doubt; without TABLE, list them."""
    with session.metastore() as client:
        if table:
            client.resolve_doubtful(table, _ids(committed), _ids(aborted))
        left = client.doubtful()
    session.show(
        [{"table": name, "in doubt": _ranges(ids)} for name, ids in left.items()],
        empty="no write id is in doubt",
    )


@metastore.command("take-over")
@click.argument("table", required=False)
@click.option(
    "--moved-from",
    metavar="ROOT",
    default="",
    help="Where the warehouse was, if an older version recorded absolute paths.",
)
@command
def take_over(session: Session, table: str | None, moved_from: str) -> None:
    """Allow writing to TABLE, or to all tables, outside of a copied warehouse's directory.

    In a copy of a warehouse these tables are read-only, since the original may use the same
    directories, and only one of the two may write there.
    """
    with session.metastore() as client:
        moved = client.relocate(moved_from) if moved_from else []
        taken = client.take_over(table) if table or not moved_from else []
    rows = [{"taken over": name} for name in (*taken, *moved)]
    session.show(rows, empty="no table is read-only")


@metastore.command()
@command
def rebuild(session: Session) -> None:
    """Make a new metastore from the tables' directories, if there is no backup.

    Prints what the directories can't tell: aborted write ids, for example, count as committed.
    Refused if there is a metastore.
    """
    from acid_platform.cli.rebuild import UNKNOWN
    from acid_platform.cli.rebuild import rebuild as rebuild_from

    _require_own(session, "rebuild")
    with progress() as told:
        rebuilt_tables = rebuild_from(session.place, told)
    if session.json:
        session.say_json(
            {"tables": [asdict(rebuilt) for rebuilt in rebuilt_tables], "unknown": UNKNOWN}
        )
        return
    session.show([asdict(rebuilt) for rebuilt in rebuilt_tables], empty="no table was found")
    click.echo("\n".join(["what the directories can't tell:", *(f"- {fact}" for fact in UNKNOWN)]))


def _place(text: str) -> str:
    """An archive's URI or absolute path."""
    return text if "://" in text else str(Path(text).expanduser().absolute())


def _rebuild(archived: str, until: str, file: Path, history: str) -> Rebuilt:
    from acid_platform.metastore.server.archive import Archive
    from acid_platform.metastore.server.point_in_time import Until, rebuild

    return rebuild(Archive(_place(archived)), Until.parse(until), file, history)


def _reached(rebuilt: Rebuilt) -> str:
    return (
        f"{rebuilt.path}: history {rebuilt.history} up to event {rebuilt.last}, of"
        f" {utc_text(rebuilt.made)}; from {rebuilt.base} and {rebuilt.segments} segments"
    )


def _require_own(session: Session, what: str) -> None:
    if session.place.shared:
        raise InvalidDefinition(
            f"{session.place.metastore} is a service: {what} on its machine, with ACID_METASTORE"
            " set to its directory there"
        )


def _ids(text: str) -> list[int]:
    numbers: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        low, _, high = part.partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()):
            raise click.BadParameter(f"{part!r} is no write id and no range such as 9-12")
        numbers += range(int(low), int(high or low) + 1)
    return numbers


def _ranges(ids: list[tuple[int, int]]) -> str:
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ids)


def _running(session: Session) -> Metastore | None:
    try:
        # Also a metastore of another warehouse: its status can be read, and it can be stopped.
        return Metastore.connect(session.existing().metastore, autostart=False)
    except (MetastoreUnavailable, NoSuchWarehouse):
        return None


def _not_running(session: Session) -> None:
    session.say({"running": False}, f"no metastore runs for {session.place.warehouse}")
