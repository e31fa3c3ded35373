"""A backup as of an earlier moment, made from an archive (P40).

It begins with the newest backup before that moment and applies the archived events one batch after
another, as a standby does. Batches are never divided, since nobody ever saw a part of one.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from acid_platform.base.disk import sync_path
from acid_platform.errors import BackupRefused
from acid_platform.metastore.operations.replication import Batch
from acid_platform.metastore.pasts import utc_text
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.server import blocks, journal, state_rows, wal
from acid_platform.metastore.server.archive import Archive, Item, batches, moment_of
from acid_platform.metastore.server.coverage import Chain, chains
from acid_platform.metastore.server.journal import Record
from acid_platform.metastore.server.store import Store

LATEST = "latest"
_FOLD_EVENTS = 20_000


@dataclass(frozen=True, slots=True)
class Until:
    """How far to restore: to a moment in milliseconds UTC, to an event, or to the end."""

    moment: int | None = None
    event: int | None = None

    @classmethod
    def parse(cls, text: str) -> Until:
        """`latest`, the number of an event, or a time in ISO form: UTC if it has no zone.

        Raises BackupRefused.
        """
        if text.strip().lower() == LATEST:
            return cls()
        if re.fullmatch(r"\d{1,18}", text.strip()):
            return cls(event=int(text))
        try:
            moment = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
        except ValueError as error:
            raise BackupRefused(
                f"--until {text!r} is no time such as '2026-11-23 17:05:09' (UTC, or with a zone),"
                f" no number of an event, and not {LATEST!r}"
            ) from error
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return cls(moment=round(zoned.timestamp() * 1000))

    def begins_with(self, base: Item) -> bool:
        """Whether nothing in the backup is later."""
        if self.event is not None:
            return base.last <= self.event
        return self.moment is None or base.made <= self.moment

    def reached_by(self, chain: Chain) -> bool:
        """Whether the chain has all events up to here."""
        if self.event is not None:
            return chain.last >= self.event
        return chain.missing is None if self.moment is None else chain.until >= self.moment

    def includes(self, last: int, at: int) -> bool:
        """Whether a batch whose last event has this number and moment is not later."""
        if self.event is not None:
            return last <= self.event
        return self.moment is None or at <= self.moment

    def __str__(self) -> str:
        if self.event is not None:
            return f"event {self.event}"
        return LATEST if self.moment is None else utc_text(self.moment)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A backup that was made from an archive."""

    path: str
    history: str
    base: str
    """The backup with which it began."""
    last: int
    """The number of its last event."""
    made: int
    """The moment of its last event, in milliseconds UTC."""
    segments: int


def rebuild(archive: Archive, until: Until, file: Path, history: str = "") -> Rebuilt:
    """Writes the new backup `file` with the state as of `until`.

    Raises BackupRefused if that can't be told exactly: the archive does not reach that far, lacks
    events, has two versions of one, or a damaged file; or if several histories have it and none is
    named. OSError.
    """
    if file.exists():
        raise BackupRefused(f"{file} exists; name a new file")
    chain = choose(archive, until, history)
    draft = file.with_name(f".{file.name}.{os.getpid()}.duckdb")
    try:
        archive.fetch(chain.base, draft)
        last, made = _advance(draft, archive, chain, until)
        os.link(draft, file)
        sync_path(file.parent)
    finally:
        for leftover in (draft, *(part.beside(draft) for part in (wal, journal, blocks))):
            leftover.unlink(missing_ok=True)
    return Rebuilt(str(file), chain.base.history, chain.base.name, last, made, len(chain.parts))


def choose(archive: Archive, until: Until, history: str = "") -> Chain:
    """What to restore from. Raises BackupRefused, OSError."""
    items = archive.items()
    known = sorted({item.history for item in items})
    if history and history not in known:
        raise BackupRefused(
            f"{archive.where} has no history {history}, but {', '.join(known) or 'none at all'}"
        )
    able: list[Chain] = []
    near: list[Chain] = []
    for each in [history] if history else known:
        begun = [
            chain
            for chain in chains([item for item in items if item.history == each])
            if until.begins_with(chain.base)
        ]
        # From the newest on: a gap before it does no harm.
        reached = [chain for chain in begun if until.reached_by(chain)]
        able += reached[-1:]
        near += begun[-1:]
    if len(able) == 1:
        return able[0]
    if able:
        raise BackupRefused(
            f"{archive.where} has {until} in several histories:"
            f" {', '.join(chain.base.history for chain in able)}; name the one with --history"
            " (`acid metastore archive` shows them)"
        )
    raise BackupRefused(_why_not(archive, until, near))


def _why_not(archive: Archive, until: Until, near: Sequence[Chain]) -> str:
    if not near:
        return (
            f"{archive.where} has no backup from {until} or before, with which a restore could"
            " begin; `acid metastore archive` shows what can be restored"
        )
    chain = near[-1]
    text = (
        f"{archive.where} has every event up to"
        f" {f'{utc_text(chain.until)}, ' if chain.until else ''}event {chain.last}, but not up to"
        f" {until}"
    )
    if chain.missing:
        low, high = chain.missing
        text += (
            f": events {low} to {high} are missing, and later ones are there; put back the files"
        )
    return f"{text}; or restore with --until {chain.last}"


def _advance(draft: Path, archive: Archive, chain: Chain, until: Until) -> tuple[int, int]:
    """Applies the events and returns the number and the moment of the last."""
    store = Store(draft)
    try:
        if store.last != chain.base.last:
            raise BackupRefused(
                f"the backup {chain.base.name} ends with event {store.last}, not with that of its"
                " name; remove it from the archive: an older one then serves"
            )
        state, recorded = store.load()
        machine = Machine(state, store)
        machine.replay(recorded)
        made, unfolded, done = chain.base.made, 0, False
        for records in _records(archive, chain):
            wanted = [
                record for record in records if until.includes(record.last, moment_of(record))
            ]
            done = len(wanted) < len(records)
            if wanted:
                joined = ",".join(record.text[1:-1] for record in wanted)
                batch = Batch(wanted[0].first, wanted[-1].last, f"[{joined}]")
                events = store.append_batch(batch)
                machine.replay(events)
                made, unfolded = events[-1].at, unfolded + len(events)
            if done:
                break
            if unfolded >= _FOLD_EVENTS:
                _fold(store, state)
                unfolded = 0
        _fold(store, state)
        last = store.last
        store.made = made
        store.checkpoint()
    finally:
        store.close()
    sync_path(draft)
    return last, made


def _records(archive: Archive, chain: Chain) -> Iterator[list[Record]]:
    """The batches after the backup, by segment. Raises BackupRefused, OSError."""
    seen: dict[int, tuple[int, str]] = {}
    last = chain.base.last
    for part in chain.parts:
        fresh = []
        for record in batches(part.item, archive.read(part.item)):
            if record.last > part.last or record.last <= chain.base.last:
                continue
            version = zlib.crc32(record.text.encode(), record.last)
            known, where = seen.setdefault(record.first, (version, part.item.name))
            if known != version or (record.first != last + 1 and record.last > last):
                raise BackupRefused(
                    f"{archive.where} holds two versions of event {record.first}, in {where} and in"
                    f" {part.item.name}: two metastores have archived one history, as after a copy"
                    f" of a disk; restore with --until {record.first - 1}, or remove the segments"
                    " of the wrong one"
                )
            if record.first == last + 1:
                fresh.append(record)
                last = record.last
        yield fresh


def _fold(store: Store, state: State) -> None:
    store.fold(state, 0)
    state_rows.forget_ended(state)
    store.checkpoint()
