"""The walk of fsck: each table under a read lease, each entity against the metastore's word.

Order matters: the lease first, so that the Cleaner removes nothing that the snapshot needs; then
what the metastore knows; the directories after that, so that whatever it knows has to be there;
which write ids were given out last of all, so that no directory is newer than the answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from acid_platform.errors import AcidError, NoSuchTable
from acid_platform.layout.names import claims_to_be_acid, is_hidden, temporary_owner
from acid_platform.layout.partitions import parse_partition
from acid_platform.metastore.client.metastore import Metastore, Transaction
from acid_platform.metastore.records import RecordedDirectory, TableRecord
from acid_platform.services.fsck.entity import EntityLook, acid_name, span
from acid_platform.services.fsck.findings import (
    Check,
    Findings,
    RemoveTemporary,
    Report,
    ResolveAborted,
    ranges,
    sorted_findings,
)
from acid_platform.snapshot.listing import EntityListing
from acid_platform.storage.files import Files
from acid_platform.tables.manifests import record_entity

Progress = Callable[[str, int, int], None]
"""Told before each entity: its name, how many are done, how many its table has."""


def examine(
    metastore: Metastore,
    tables: Iterable[str] | None = None,
    *,
    warehouse: str | None = None,
    rows: bool = True,
    repair: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Looks through these tables, or all of them; changes nothing unless `repair`.

    `warehouse`: its databases' directories are searched for what belongs to no table. `rows` False
    leaves row keys alone, which is quick. `repair` does what is provably safe: see the classes in
    findings.py; in foreign tables nothing (P31). Writers may go on meanwhile: what is open is not
    judged. Raises NoSuchTable.
    """
    records = (
        [metastore.table(name) for name in tables]
        if tables is not None
        else sorted(metastore.tables(), key=lambda one: one.name)
    )
    every: list[Findings] = []
    for record in records:
        try:
            opened = metastore.open_snapshot([record.name])
        except NoSuchTable:
            if tables is None:  # dropped meanwhile
                continue
            raise
        with opened as lease:
            for out in _TableLook(metastore, record, lease, rows).findings(
                progress or (lambda *_: None)
            ):
                if repair and not record.foreign:
                    out.apply(metastore)
                every.append(out)
    if warehouse is not None and tables is None:
        every.append(_strangers(metastore, warehouse))
    return Report(
        sorted_findings(finding for out in every for finding in out.found),
        len(records),
        *(sum(getattr(out, name) for out in every) for name in ("directories", "files", "rows")),
    )


class _TableLook:
    """One table, under its lease."""

    def __init__(
        self, metastore: Metastore, record: TableRecord, lease: Transaction, rows: bool
    ) -> None:
        self._metastore, self._record, self._lease, self._rows = metastore, record, lease, rows
        self._files, self._root = Files.of(record.location)

    def findings(self, progress: Progress) -> Iterator[Findings]:
        """Of each entity, then of the table as a whole."""
        table = Findings(self._record.name)
        yield from self._entities(table, progress)
        yield table

    def _entities(self, table: Findings, progress: Progress) -> Iterator[Findings]:
        record = self._record
        floors = (
            {one.name: one.floors for one in self._metastore.partition_records(record.name)}
            if record.partitioned
            else {"": ()}
        )
        recorded = self._recorded(table, list(floors))
        if not self._files.is_directory(self._root):
            if any(recorded.values()):
                table.error(
                    Check.MISSING,
                    "",
                    f"its directory {record.location} is gone",
                    "restore it from a copy of the warehouse, or drop the table",
                )
            return
        self._temporaries(table, self._root)
        places = [*floors, *self._unregistered(table, floors)]
        listings = dict(self._listings(places))
        given = self._given_out()
        self._in_doubt(table, listings)
        for number, (place, listing) in enumerate(listings.items()):
            progress(f"{record.name}/{place}".rstrip("/"), number, len(listings))
            out = Findings(f"{record.name}/{place}".rstrip("/"))
            if place:
                self._temporaries(out, f"{self._root}/{place}")
            if isinstance(listing, AcidError):
                out.error(
                    Check.MARKER,
                    "",
                    str(listing),
                    "until then the entity can't be read, and was not looked through",
                )
            else:
                self._lease.heartbeat(read=True)
                EntityLook(
                    out,
                    self._metastore,
                    self._files,
                    record,
                    self._lease,
                    recorded.get(place, []),
                    given,
                    floors.get(place, ()),
                    self._rows,
                ).look(listing, registered=place in floors)
            yield out

    def _recorded(self, out: Findings, places: list[str]) -> dict[str, list[RecordedDirectory]]:
        """The files of each entity as readers get them; those that an older version did not record
        are recorded first."""
        record, names = self._record, [place or None for place in places]
        found = self._lease.manifest(record.name, names)
        lacking = [
            name
            for name, known in zip(names, found, strict=True)
            if not all(one.directory.recorded for one in known)
        ]
        for name in lacking:
            try:
                record_entity(self._metastore, record, name)
            except AcidError as error:
                out.error(Check.HISTORY, name or "", str(error), "until then it can't be read")
        if lacking:
            found = self._lease.manifest(record.name, names)
        return dict(zip(places, found, strict=True))

    def _listings(self, places: Iterable[str]) -> Iterator[tuple[str, EntityListing | AcidError]]:
        for place in places:
            try:
                yield place, self._files.entity(f"{self._root}/{place}".rstrip("/"))
            except AcidError as error:  # a marker that tells of another version
                yield place, error

    def _unregistered(self, out: Findings, floors: Iterable[str]) -> list[str]:
        """Partition directories that the metastore does not know, and what lies beside them."""
        record = self._record
        if not record.partitioned:
            return []
        for info in self._files.children(self._root):
            name = info.base_name
            if claims_to_be_acid(name) or (info.is_file and not is_hidden(name)):
                out.warning(
                    Check.PARTITION,
                    name,
                    "lies beside the partitions: nobody reads it",
                    "move it out of the table, or into the partition that it belongs to",
                )
        keys = [name for name, _ in record.partition_columns]
        found, dropping = [], _dropping(self._metastore)
        for place in self._files.partition_directories(self._root, len(keys)):
            if parse_partition(place, keys) is None:
                out.warning(
                    Check.PARTITION,
                    place,
                    f"no partition of {', '.join(keys)}: nobody reads it",
                    "move it out of the table",
                )
            elif place not in floors and (record.name, place) not in dropping:
                found.append(place)
        return found

    def _given_out(self) -> int:
        """The highest write id of the table that any transaction has got."""
        _, rows = self._metastore.query("SELECT table_id, next_write_id FROM tables")
        return int({table_id: number for table_id, number in rows}[self._record.table_id]) - 1

    def _temporaries(self, out: Findings, location: str) -> None:
        """P19: who owns a `_tmp_` directory, and whether it is still at work."""
        found = {name: temporary_owner(name) for name in self._files.temporaries(location)}
        states = self._metastore.txn_states(sorted({one for one in found.values() if one}))
        for name, owner in found.items():
            path = f"{location}/{name}"
            match states.get(owner or 0):
                case None:
                    out.note(
                        Check.TEMPORARY,
                        name,
                        "the name tells no owning transaction",
                        "remove it once its writer, such as Hive, has ended",
                    )
                case "o":
                    out.note(
                        Check.TEMPORARY,
                        name,
                        f"transaction {owner} is at work in it",
                        "nothing to do: `acid show transactions` tells whose it is",
                    )
                case state:
                    ended = {"c": "has committed", "a": "was aborted"}.get(state, "has ended")
                    out.warning(
                        Check.TEMPORARY,
                        name,
                        f"transaction {owner} {ended} and left it",
                        "the Cleaner removes it after the next compaction, --repair now",
                        RemoveTemporary(self._files, path),
                    )

    def _in_doubt(self, out: Findings, listings: dict[str, EntityListing | AcidError]) -> None:
        """P24: write ids that a restore left in doubt, with the directories that they wrote."""
        name = self._record.name
        doubtful = {
            one
            for low, high in self._metastore.doubtful().get(name, [])
            for one in range(low, high + 1)
        }
        if not doubtful:
            return
        wrote: dict[int, list[str]] = defaultdict(list)
        whole = True
        for place, listing in listings.items():
            if isinstance(listing, AcidError):
                whole = False
                continue
            for directory in listing.directories:
                parsed = acid_name(directory)
                low, high = span(parsed) if parsed else (1, 0)
                for one in doubtful.intersection(range(low, high + 1)):
                    wrote[one].append(f"{place}/{directory}".lstrip("/"))
        resolve = f"acid metastore resolve {name}"
        for one, directories in sorted(wrote.items()):
            out.warning(
                Check.IN_DOUBT,
                "",
                f"write id {one} is in doubt since a restore; it wrote {', '.join(directories)}",
                f"say what became of it: `{resolve} --committed {one}`, or --aborted",
            )
        left = tuple(sorted(doubtful - set(wrote)))
        if left and whole:
            out.warning(
                Check.IN_DOUBT,
                "",
                f"write ids {ranges(left)} are in doubt since a restore, and"
                " no directory is named after them",
                f"`{resolve} --aborted {ranges(left)}`, or --repair",
                ResolveAborted(name, left),
            )


def _dropping(metastore: Metastore) -> frozenset[tuple[str, str]]:
    """(table, partition or '') whose files wait for the Cleaner after a drop."""
    waiting = {(one.table, one.partition or "") for one in metastore.cleaning_blocked()}
    ready = {
        (one.table, one.partition or "") for one in metastore.ready_to_clean() if one.kind == "drop"
    }
    return frozenset(waiting | ready)


def _strangers(metastore: Metastore, warehouse: str) -> Findings:
    """Directories of a database that are no table's."""
    out = Findings("")
    files, root = Files.of(warehouse)
    claimed = {Files.of(one.location)[1] for one in metastore.tables()}
    dropping = _dropping(metastore)
    for database in metastore.databases():
        for info in files.children(f"{root}/{database}.db"):
            name = f"{database}.{info.base_name}"
            if info.path in claimed or is_hidden(info.base_name) or (name, "") in dropping:
                continue
            out.warning(
                Check.UNKNOWN,
                info.path.removeprefix("/"),
                "the metastore knows no table there",
                "adopt it (`Warehouse.adopt_table`) or remove it; a dropped table's directory goes"
                " by itself",
            )
    return out
