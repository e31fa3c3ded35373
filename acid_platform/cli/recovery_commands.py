"""`acid metastore`, continued: backups, archives, and what follows a restore."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from acid_platform.base.paths import as_uri, user_path
from acid_platform.base.private_places import scratch_directory
from acid_platform.cli.console import CommandSession, LocalPath, command, echo
from acid_platform.cli.metastore_commands import metastore, require_own
from acid_platform.display.looks import progress
from acid_platform.errors import BackupRefused, InvalidDefinition
from acid_platform.metastore import operations as ops
from acid_platform.metastore.codec import range_text
from acid_platform.metastore.endpoint import TCP
from acid_platform.metastore.pasts import utc_text

if TYPE_CHECKING:
    from acid_platform.base.location import Location
    from acid_platform.metastore.log.contract import Log
    from acid_platform.metastore.server.point_in_time import Rebuilt


@command(metastore)
@click.argument("file", type=LocalPath(dir_okay=False, path_type=Path))
def backup(session: CommandSession, file: Path) -> None:
    """Write everything that is committed to the new FILE, while others work."""
    from acid_platform.metastore.server.saving import write_copy

    end = write_copy(_log(session.existing()), file)
    size = file.stat().st_size
    session.say(
        {"path": str(file), "bytes": size, **asdict(end)},
        f"{file}: {size} bytes, up to position {end.position} of {utc_text(end.made)}",
    )


@command(metastore)
@click.argument("place", metavar="[ARCHIVE]", required=False)
def archive(session: CommandSession, place: str | None) -> None:
    """Print what an archive can restore; without ARCHIVE, the one that the metastore writes to."""
    if place is None:
        with session.metastore() as client:
            place = client.settings().get("acid.metastore.archive", "")
        if not place:
            raise InvalidDefinition(
                "this metastore writes to no archive; name one in the setting"
                " acid.metastore.archive, or as the argument"
            )
    from acid_platform.metastore.server.point_in_time import window_of

    rows: list[dict[str, Any]] = []
    for history, log in _archived(place).items():
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
    session.show(rows, empty=f"{place} holds no archive of a metastore")


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
def restore(
    session: CommandSession,
    file: str | None,
    archived: str | None,
    until: str | None,
    history: str,
    target: Path | None,
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
            restored = restore_file(session.place, os.fspath(draft), replace)
        if not session.json:
            echo(_reached(rebuilt))
    else:
        restored = restore_file(session.place, os.fspath(file or ""), replace)
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
    for name, ids in restored.doubtful.items():
        lines.append(
            f"{name}: write ids {range_text(ids)} are in doubt: hidden, and their files kept"
        )
    if restored.doubtful:
        lines.append(
            "say how they ended: acid metastore resolve TABLE --committed IDS --aborted IDS"
        )
    echo("\n".join(lines))


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
    with progress() as report_progress:
        rebuilt_tables = rebuild_from(session.place, report_progress)
    if session.json:
        session.say_json(
            {"tables": [asdict(rebuilt) for rebuilt in rebuilt_tables], "unknown": UNKNOWN}
        )
        return
    session.show([asdict(rebuilt) for rebuilt in rebuilt_tables], empty="no table was found")
    echo("\n".join(["what the directories can't tell:", *(f"- {fact}" for fact in UNKNOWN)]))


def _log(place: Location) -> Log:
    """The log of the warehouse's metastore. Raises InvalidDefinition if it can't be read here."""
    if place.metastore.startswith(TCP):
        raise InvalidDefinition(
            f"{place.metastore} is a service: back it up on its machine, with ACID_METASTORE set to"
            " its directory or its log"
        )
    if place.shared:
        from acid_platform.metastore.log.open_log import open_log

        return open_log(place.metastore)
    from acid_platform.metastore.log.local import LocalLog

    return LocalLog(Path(place.metastore))


def _archived(place: str) -> dict[str, Log]:
    """The histories of an archive, each a log; or the log at this place."""
    from acid_platform.metastore.log.open_log import open_log
    from acid_platform.metastore.log.store_access import logs_below

    where = as_uri(user_path(place))
    own: Log = open_log(where)
    if own.exists:
        return {own.history: own}
    return {history: open_log(f"{where}/{history}") for history in logs_below(where)}


def _rebuild(archived: str, until: str, file: Path, history: str) -> Rebuilt:
    """Raises BackupRefused if there are several histories and none is named."""
    from acid_platform.metastore.server.point_in_time import Until
    from acid_platform.metastore.server.point_in_time import rebuild as rebuild_from_log

    logs = _archived(archived)
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
