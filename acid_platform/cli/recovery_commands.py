"""`acid metastore`, continued: backups, archives, and what follows a restore."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from acid_platform.cli.console import CommandSession, command, echo
from acid_platform.cli.metastore_commands import metastore, require_own
from acid_platform.display.progress import progress
from acid_platform.errors import InvalidDefinition
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.operations.tables import GetDoubtful, ResolveDoubtful, TakeOver
from acid_platform.metastore.pasts import utc_text

if TYPE_CHECKING:
    from acid_platform.metastore.server.point_in_time import Rebuilt

__all__ = ["metastore"]


@metastore.command()
@click.argument("file", type=click.Path(dir_okay=False))
@command
def backup(session: CommandSession, file: str) -> None:
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
def archive(session: CommandSession, place: str | None) -> None:
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
                "until": utc_text(window.until) if window.until >= window.begin else "",
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
@command
def restore(
    session: CommandSession,
    file: str | None,
    archived: str | None,
    until: str | None,
    history: str,
    target: str | None,
    replace: bool,
) -> None:
    """Make the warehouse's metastore from a backup FILE, or from an archive as of a moment.

    The metastore must not run.

    The warehouse gets a new identity, and tables outside of its directory are read-only until
    `take-over`. Write ids above the backup's are in doubt: hidden, with their files kept, until
    `resolve`.
    """
    from acid_platform.tables.restored_tables import restore as restore_file

    if bool(file) == bool(archived) or bool(archived) != bool(until):
        raise InvalidDefinition("name a backup FILE, or --archive DIR and --until WHEN")
    if not archived and (history or target):
        raise InvalidDefinition("--history and --to belong to --archive DIR")
    if target and archived and until:
        made_file = _rebuild(archived, until, Path(target).absolute(), history)
        session.say(asdict(made_file), _reached(made_file))
        return
    require_own(session, "restore")
    if archived and until:
        home = Home(Path(session.place.metastore).resolve())
        home.prepare()
        draft = home.path / f"archived.{os.getpid()}.duckdb"
        try:
            rebuilt = _rebuild(archived, until, draft, history)
            done = restore_file(session.place, os.fspath(draft), replace)
        finally:
            draft.unlink(missing_ok=True)
        if not session.json:
            echo(_reached(rebuilt))
    else:
        done = restore_file(session.place, os.fspath(file or ""), replace)
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
    echo("\n".join(lines))


@metastore.command()
@click.argument("table", required=False)
@click.option("--committed", metavar="IDS", default="", help="Such as 7,9-12.")
@click.option("--aborted", metavar="IDS", default="", help="Such as 8.")
@command
def resolve(session: CommandSession, table: str | None, committed: str, aborted: str) -> None:
    """Say how write ids ended that a restore left in doubt; without TABLE, list them."""
    with session.metastore() as client:
        if table:
            client.call(
                ResolveDoubtful(table, tuple(sorted(_ids(committed))), tuple(sorted(_ids(aborted))))
            )
        left = client.call(GetDoubtful())
    session.show(
        [{"table": name, "in doubt": _ranges(ids)} for name, ids in left.items()],
        empty="no write id is in doubt",
    )


@metastore.command("take-over")
@click.argument("table", required=False)
@command
def take_over(session: CommandSession, table: str | None) -> None:
    """Allow writing to TABLE, or to all tables, outside of a copied warehouse's directory.

    In a copy of a warehouse these tables are read-only, since the original may use the same
    directories, and only one of the two may write there.
    """
    with session.metastore() as client:
        taken = client.call(TakeOver(table))
    rows = [{"taken over": name} for name in taken]
    session.show(rows, empty="no table is read-only")


@metastore.command()
@command
def rebuild(session: CommandSession) -> None:
    """Make a new metastore from the tables' directories, if there is no backup.

    Prints what the directories can't tell: aborted write ids, for example, count as committed.
    Refused if there is a metastore.
    """
    from acid_platform.cli.rebuild import UNKNOWN
    from acid_platform.cli.rebuild import rebuild as rebuild_from

    require_own(session, "rebuild")
    with progress() as told:
        rebuilt_tables = rebuild_from(session.place, told)
    if session.json:
        session.say_json(
            {"tables": [asdict(rebuilt) for rebuilt in rebuilt_tables], "unknown": UNKNOWN}
        )
        return
    session.show([asdict(rebuilt) for rebuilt in rebuilt_tables], empty="no table was found")
    echo("\n".join(["what the directories can't tell:", *(f"- {fact}" for fact in UNKNOWN)]))


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
