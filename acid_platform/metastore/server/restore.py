"""A metastore made from a backup (P24, P31), or as of a moment from its log or an archive (P40).

A backup may be a stranger's (P67): its tables stay below the warehouse's directory and beside each
other, and its settings that name places, code or patterns are left out unless they are asked for.
"""

from __future__ import annotations

import dataclasses
import os
import re
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from acid_platform.base.clock import wall_ms
from acid_platform.base.config import Settings, setting
from acid_platform.base.local_files import scratch_directory, sync_path
from acid_platform.base.paths import leads_out, user_path
from acid_platform.errors import (
    BackupRefused,
    MetastoreDamaged,
    MetastoreIncompatible,
    SettingRefused,
)
from acid_platform.layout.names import is_hidden
from acid_platform.metastore.endpoint import Ground, Home, refuse_network_file_system, take_lock
from acid_platform.metastore.log.contract import Batch, Log, first_after, is_part
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.pasts import utc_text
from acid_platform.metastore.places import is_relative
from acid_platform.metastore.records import RecordedDirectory, TableRecord, WriteReport
from acid_platform.metastore.rules.identity import Found, MetastoreRestored, doubtful_write_ids
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.state import State, TableState
from acid_platform.metastore.rules.turn import Recorded
from acid_platform.metastore.server.state_tables import (
    Origin,
    StateFile,
    open_state,
    publish_state,
    write_state,
)
from acid_platform.metastore.server.store import events_of

LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Until:
    """How far to restore: to a moment in milliseconds UTC, to a position, or to the end."""

    moment: int | None = None
    position: int | None = None

    @classmethod
    def parse(cls, text: str) -> Until:
        """`latest`, the position of a batch, or a time in ISO form: UTC if it has no zone.

        Raises BackupRefused.
        """
        if text.strip().lower() == LATEST:
            return cls()
        if re.fullmatch(r"\d{1,18}", text.strip()):
            return cls(position=int(text))
        try:
            moment = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
        except ValueError as error:
            raise BackupRefused(
                f"--until {text!r} is no time such as '2026-11-23 17:05:09' (UTC, or with a zone),"
                f" no position of the log, and not {LATEST!r}"
            ) from error
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return cls(moment=round(zoned.timestamp() * 1000))

    def includes(self, end: Origin | Batch) -> bool:
        """Whether this batch, or the end of a snapshot, is not later."""
        if self.position is not None:
            return end.position <= self.position
        return self.moment is None or end.made <= self.moment

    def is_beyond(self, end: Origin) -> bool:
        """Whether a log that ends there does not reach so far."""
        if self.position is not None:
            return end.position < self.position
        return self.moment is not None and end.made < self.moment

    def __str__(self) -> str:
        if self.position is not None:
            return f"position {self.position}"
        return LATEST if self.moment is None else utc_text(self.moment)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    path: str
    log: str
    position: int
    """The batch after which it has the state."""
    made: int
    """The moment of that batch, in milliseconds UTC."""
    batches: int
    """How many batches were read after the snapshot before."""


def rebuild(log: Log, until: Until, file: Path) -> Rebuilt:
    """Writes the new snapshot `file` with the state as of `until`.

    Raises BackupRefused if the log does not reach from a snapshot or its beginning to there, and
    what reading the log raises.
    """
    if file.exists():
        raise BackupRefused(f"{file} exists; name a new file")
    with scratch_directory("restore") as scratch:
        begun = _snapshot_before(log, until, Path(scratch))
        end = begun.origin if begun else Origin(0, 0, 0, log.history)
        machine = Machine(begun.state(strange=True) if begun else State())
        batches, later = 0, False
        for batch in log.read(end.position):
            if not until.includes(batch):
                later = True
                break
            machine.replay(events_of(batch))
            end = Origin.of(batch, log.history)
            batches += 1
            if batch.position == until.position:
                break
        if until.is_beyond(end) and not later:
            raise BackupRefused(
                f"{log.place} has every batch up to position {end.position}, of"
                f" {utc_text(end.made)}, but does not reach {until}; restore with --until"
                f" {LATEST}"
            )
        try:
            publish_state(file, machine.state, end, begun.path if begun else None)
        finally:
            if begun is not None:
                begun.close()
    return Rebuilt(str(file), log.place, end.position, end.made, batches)


@dataclass(frozen=True, slots=True)
class Window:
    """What a log can restore: from its first state to its last."""

    first: Origin
    last: Origin
    snapshots: int


def window_of(log: Log) -> Window:
    """Raises what reading the log raises."""
    positions = log.snapshots()
    first = last = None
    with scratch_directory("restore") as scratch:
        for position in positions[:1]:
            file = open_state(log.get_snapshot(position, Path(scratch)), Path(scratch))
            first = last = file.origin
            file.close()
        for batch in log.read(first.position if first else 0):
            last = Origin.of(batch, log.history)
            first = first or last
    nothing = Origin(0, 0, 0, log.history)
    return Window(first or nothing, last or nothing, len(positions))


def _snapshot_before(log: Log, until: Until, scratch: Path) -> StateFile | None:
    """The newest snapshot that is not later; None if the log has every batch. Raises
    BackupRefused."""
    positions = log.snapshots()
    for position in reversed(positions):
        file = open_state(log.get_snapshot(position, scratch), scratch)
        if until.includes(file.origin):
            return file
        file.close()
    first = first_after(log, 0)
    if first is None or not until.includes(first):
        raise BackupRefused(
            f"{log.place} has nothing from {until} or before, with which a restore could begin;"
            " `acid metastore archive` shows what can be restored"
        )
    return None


@dataclass(frozen=True, slots=True)
class Present:
    """What is in an entity: the names of its directories, and the files of directories that the
    backup does not know (P26)."""

    partition: str | None
    names: tuple[str, ...]
    unknown: tuple[WriteReport, ...] = ()


Known = Callable[[str | None], Collection[str]]
"""Returns the names of an entity's directories that the backup knows."""


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest ids in the directories of a table, and what is there."""

    write_id: int = 0
    txn_id: int = 0
    present: tuple[Present, ...] = ()
    elsewhere: bool = False
    """Whether symbolic links lead out of the warehouse: others may use what is there."""


@dataclass(frozen=True, slots=True)
class Restored:
    directory: str
    made: int
    """The moment of the backup's data, in milliseconds UTC."""
    tables: int
    doubtful: dict[str, list[tuple[int, int]]]
    """By table, the ranges of write ids that no snapshot shows until they are resolved."""
    open_txns: int
    """Transactions that were open in the backup; they do not exist any more."""
    next_txn: int
    replaced: str
    """The directory to which the files of before were moved; empty if there were none."""
    identity: str
    """The warehouse's identity from now on."""
    foreign: tuple[str, ...]
    """Tables outside of the warehouse: read only until they are taken over (P31)."""
    settings: dict[str, str]
    """Those of the backup that count from now on."""
    left_out: dict[str, str]
    """The settings of the backup that name places, code, patterns or jobs, and were not asked
    for."""
    reads: dict[str, str]
    """External tables whose files are outside of the warehouse, with one of their places."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The warehouse that gets the restored metastore; its identity is new (P31)."""

    identity: str
    accept: Callable[[str | None], object] = lambda _identity: None
    """Called with the backup's identity before anything is changed; may raise."""
    settle: Callable[[], object] = lambda: None
    """Gives the root the new identity; until it is done, the restore counts as interrupted."""


def restore_metastore(
    log: Log,
    file: str | os.PathLike[str],
    highest: Callable[[TableRecord, Known], Highest],
    owner: Owner | None = None,
    keep_settings: bool = False,
) -> Restored:
    """Begins a new history in an empty log, from a backup; `highest` looks into the tables'
    directories. `keep_settings`: also those that name places, code, patterns or jobs.

    The result is another warehouse than the backup's: it has its own identity and does not touch
    anything outside its root (P31). Raises BackupRefused if the file is no backup, or has a newer
    schema.
    """
    path = Path(user_path(file))
    owner = owner or Owner(uuid.uuid4().hex)
    if not path.is_file():
        raise BackupRefused(f"{path} is not a file; name one that `acid metastore backup` wrote")
    with scratch_directory("restore", _scratch(log)) as scratch:
        begun = _opened(path, Path(scratch))
        try:
            machine = Machine(_state_of(begun, path), begun)
            _require_inside(machine.state, path)
            stored = _settings(machine.state, path)
            opened = _advance(machine, highest, owner)
            state, end = machine.state, begun.origin
            kept = {
                name: text
                for name, text in stored.items()
                if keep_settings or setting(name).bounded
            }
            state.settings = Settings(kept)
            log.create(end.position)
            log.open_to_append()
            # It goes on after the backup's position, so that no batch has one of the backup's.
            origin = Origin(end.position, end.epoch, end.made, log.history)
            draft = Path(scratch, "restored.duckdb")
            write_state(draft, state, origin, begun.path)
            log.put_snapshot(end.position, draft)
            owner.settle()
        finally:
            begun.close()
    return Restored(
        directory=log.where,
        made=begun.origin.made,
        tables=len(state.tables),
        doubtful=doubtful_write_ids(state),
        open_txns=opened,
        next_txn=state.next_txn,
        replaced="",
        identity=owner.identity,
        foreign=tuple(
            sorted(table.record.name for table in state.tables.values() if table.record.foreign)
        ),
        settings=kept,
        left_out={name: text for name, text in stored.items() if name not in kept},
        reads=_read_outside(state),
    )


def _settings(state: State, path: Path) -> dict[str, str]:
    """Raises BackupRefused for a value that nobody could have set."""
    try:
        return dict(Settings.of(state.settings.overrides).overrides)
    except SettingRefused as error:
        raise BackupRefused(f"{path} is no backup of a metastore: {error}") from error


def _read_outside(state: State) -> dict[str, str]:
    files = [(view.name, view.external) for view in state.views.values() if view.external]
    found = {
        name: location
        for name, external in files
        for location in (external.location, *external.partitions.values())
        if location and not is_relative(location)
    }
    return dict(sorted(found.items()))


def _opened(path: Path, scratch: Path) -> StateFile:
    try:
        return open_state(path, scratch)
    except (MetastoreIncompatible, MetastoreDamaged) as error:
        raise BackupRefused(f"{path} is no backup of a metastore: {error}") from error


def _state_of(file: StateFile, path: Path) -> State:
    try:
        return file.state(strange=True)
    except MetastoreDamaged as error:
        raise BackupRefused(f"{path} is no backup of a metastore: {error}") from error


def _require_inside(state: State, path: Path) -> None:
    """Raises BackupRefused for a place that leads out of where it stands (P67): relative ones are
    the warehouse's own, whose files are read, and removed without a question."""
    tables = [*state.tables.values(), *state.dropped_tables.values()]
    records = [record for table in tables for record in (table.record, *_earlier(table))]
    locations = {record.location for record in records} | {drop.location for drop in state.drops()}
    paths_below = {*filter(is_relative, locations), *filter(is_relative, state.locations)}
    for table in tables:
        paths_below |= {
            partition.name for partition in (*table.partitions.values(), *table.dropped_partitions)
        }
    entities = [*state.directories.items(), *state.dropped_directories.items()]
    paths_below |= {partition for (_, partition), _ in entities if partition is not None}
    paths_below |= {task.partition for task in state.queue.values() if task.partition is not None}
    for view in state.views.values():
        if view.external is not None:
            places = (view.external.location, *view.external.partitions.values())
            paths_below |= {location for location in places if location and is_relative(location)}
    names = {name for _, directories in entities for name in directories}
    outside = {below for below in paths_below if leads_out(below)}
    outside |= {name for name in names - {""} if "/" in name or leads_out(name)}
    if outside:
        raise BackupRefused(
            f"{path} is no backup of a metastore: its {min(outside)!r} is no place below the"
            " warehouse's directory; restore a backup that `acid metastore backup` wrote"
        )
    _require_apart(state, path)


def _require_apart(state: State, path: Path) -> None:
    """Raises BackupRefused for a table inside of another's directory or a hidden one, such as the
    metastore's, and for a drop there: the Cleaner would remove what is not the dropped one's."""
    live = {table.record.location: table.record for table in state.tables.values()}
    drops = {
        drop.location: drop.location.removesuffix(f"/{drop.partition}")
        if drop.partition is not None
        else drop.location
        for drop in state.drops()
    }
    gone = {table.record.location for table in state.dropped_tables.values()}
    for location in filter(is_relative, {*live, *drops, *drops.values(), *gone}):
        parts = location.split("/")
        above = {"/".join(parts[:end]) for end in range(1, len(parts))}
        around = above.intersection(live) - {drops.get(location, "")}
        if around or any(map(is_hidden, parts[: drops.get(location, location).count("/") + 1])):
            raise BackupRefused(
                f"{path} is no backup of a metastore: its {location!r} is in"
                f" {min(around, default='a hidden directory')!r}; restore a backup that `acid"
                " metastore backup` wrote"
            )
    if len(live) < len(state.tables):
        raise BackupRefused(
            f"{path} is no backup of a metastore: two of its tables have one location; restore a"
            " backup that `acid metastore backup` wrote"
        )


def _earlier(table: TableState) -> list[TableRecord]:
    return [earlier.record for earlier in table.earlier]


def restore_directory(
    home: Home,
    file: str | os.PathLike[str],
    highest: Callable[[TableRecord, Known], Highest],
    replace_it: bool = False,
    owner: Owner | None = None,
    keep_settings: bool = False,
) -> Restored:
    """`restore_metastore` into a directory; with `replace_it` its old files are put aside.

    Raises MetastoreInUse while a metastore runs there, and BackupRefused if there is one and
    `replace_it` is False.
    """
    home.prepare()
    refuse_network_file_system(home)
    with take_lock(home):
        log = LocalLog(home.path, lambda: str(Ground.of(home.path)))
        if (log.exists or home.unfinished.exists()) and not replace_it:
            raise BackupRefused(
                f"{home.path} holds a metastore already; restore into another directory, or replace"
                " it (--replace keeps the old files in a directory beside the new ones)"
            )
        # While this file exists no metastore starts here: half a restore must not be used.
        home.unfinished.touch(0o600)
        replaced = put_aside(home)
        try:
            restored = restore_metastore(log, file, highest, owner, keep_settings)
        except BaseException:
            _put_back(home, replaced)
            raise
        finally:
            log.close()
        home.unfinished.unlink()
        sync_path(home.path)
    return dataclasses.replace(restored, directory=str(home.path), replaced=replaced)


def _scratch(log: Log) -> str | None:
    return str(log.directory) if isinstance(log, LocalLog) else None


def _advance(
    machine: Machine, highest: Callable[[TableRecord, Known], Highest], owner: Owner
) -> int:
    """Sets the counters above everything in the tables' directories (P24); returns how many
    transactions were open."""
    state = machine.state
    owner.accept(state.identity.id if state.identity else None)
    opened = sum(1 for _ in state.open_txns())
    highest_of = {
        table_id: highest(table.record, partial(_known, state, table_id))
        for table_id, table in state.tables.items()
    }
    event = MetastoreRestored(
        tuple((table_id, listed.write_id) for table_id, listed in highest_of.items()),
        max((each.txn_id for each in highest_of.values()), default=0),
        owner.identity,
        tuple(
            Found(
                table_id,
                entity.partition,
                entity.names,
                tuple(RecordedDirectory.of(report, 0) for report in entity.unknown),
            )
            for table_id, listed in highest_of.items()
            for entity in listed.present
        ),
    )
    machine.replay([Recorded(wall_ms(), event)])
    for table_id, listed in highest_of.items():
        if listed.elsewhere:
            table = state.tables[table_id]
            table.record = dataclasses.replace(table.record, foreign=True)
    return opened


def _known(state: State, table_id: int, partition: str | None) -> Collection[str]:
    return state.directories.get((table_id, partition), {})


def put_aside(home: Home) -> str:
    """Moves the files of the log into a directory beside it; returns the directory, or "" if there
    are none."""
    paths = [path for path in home.path.iterdir() if is_part(path.name)]
    if not paths:
        return ""
    replaced = home.path / f"replaced-{wall_ms()}"
    replaced.mkdir(0o700)
    for path in paths:
        os.rename(path, replaced / path.name)
    sync_path(replaced)
    sync_path(home.path)
    return str(replaced)


def _put_back(home: Home, replaced: str) -> None:
    for path in [path for path in home.path.iterdir() if is_part(path.name)]:
        path.unlink()
    if replaced:
        for path in Path(replaced).iterdir():
            os.rename(path, home.path / path.name)
        os.rmdir(replaced)
    home.unfinished.unlink()
