"""`acid fsck`: checks that files, names and metastore agree. Starts no Spark.

Each table under a read lease, each entity compared with the metastore.

The order matters. First the lease, so that the Cleaner removes nothing that the snapshot needs.
Then what the metastore has recorded, then the directories, so that everything recorded must be
there. Last the highest write id that was allocated, so that no listed directory can be newer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from acid_platform.base.progress import tell
from acid_platform.errors import AcidError, NoSuchTable
from acid_platform.layout.file_entries import EntityListing
from acid_platform.layout.names import (
    claims_to_be_acid,
    is_hidden,
    parse_partition,
    span,
    temporary_owner,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore, OpenTransaction
from acid_platform.metastore.messages import range_text, ranges
from acid_platform.metastore.operations.compaction import BlockedCleaning, DropCleaning
from acid_platform.metastore.records import TableRecord
from acid_platform.services.fsck.entity import EntityLook, acid_name
from acid_platform.services.fsck.findings import (
    MOVE,
    Check,
    Findings,
    FsckFinding,
    FsckReport,
    Severity,
    remove_temporary,
    resolve_aborted,
    sorted_findings,
)
from acid_platform.storage.files import Files

__all__ = ["Check", "FsckFinding", "FsckReport", "Severity", "examine"]


def examine(
    metastore: Metastore,
    tables: Iterable[str] | None = None,
    *,
    warehouse: str | None = None,
    rows: bool = True,
    repair: bool = False,
) -> FsckReport:
    """Checks these tables, or all tables. Changes nothing unless `repair` is set.

    `warehouse`: also looks there for directories that belong to no table. `rows` False skips row
    keys, which is quick. `repair` does what is provably safe, see the classes in findings.py, and
    nothing in foreign tables (P31). Writers may go on in the meantime: open write ids are not
    judged. Raises NoSuchTable.
    """
    records = (
        [metastore.table(name) for name in tables]
        if tables is not None
        else sorted(metastore.tables(), key=lambda table: table.name)
    )
    every: list[Findings] = []
    doubtful = metastore.call(ops.GetDoubtful())
    for record in records:
        try:
            opened = metastore.open_snapshot([record.name])
        except NoSuchTable:
            if tables is None:  # dropped in the meantime
                continue
            raise
        with opened as lease:
            in_doubt, root = record.name in doubtful, Files.of(record.location)
            look = _TableLook(metastore, record, lease, rows, in_doubt, *root)
            for out in look.findings():
                if repair and not record.foreign:
                    out.apply(metastore)
                every.append(out)
    if warehouse is not None and tables is None:
        every.append(_strangers(metastore, warehouse))
    return FsckReport(
        sorted_findings(finding for out in every for finding in out.findings),
        len(records),
        *(sum(getattr(out, name) for out in every) for name in ("directories", "files", "rows")),
    )


@dataclass(frozen=True, slots=True)
class _TableLook:
    """Checks one table under its lease."""

    _metastore: Metastore
    _record: TableRecord
    _lease: OpenTransaction
    _rows: bool
    _has_doubts: bool
    _files: Files
    _root: str

    def findings(self) -> Iterator[Findings]:
        """The findings of each entity, then those of the whole table."""
        table = Findings(self._record.name)
        yield from self._entities(table)
        yield table

    def _entities(self, table: Findings) -> Iterator[Findings]:
        record = self._record
        floors = (
            {
                partition.name: partition.floors
                for partition in self._metastore.call(ops.GetPartitions(record.name))
            }
            if record.partitioned
            else {"": ()}
        )
        manifests = self._lease.manifest(record.name, [partition or None for partition in floors])
        recorded = dict(zip(floors, manifests, strict=True))
        if not self._files.is_directory(self._root):
            if any(recorded.values()):
                what = f"its directory {record.location} is gone"
                step = "restore it from a copy of the warehouse, or drop the table"
                table.error(Check.MISSING, "", what, step)
            return
        self._temporaries(table, self._root)
        places = [*floors, *self._unregistered(table, floors)]
        listings = dict(self._listings(places))
        last_write_id = self._metastore.call(ops.GetLastWriteId(record.table_id))
        self._in_doubt(table, listings)
        for number, (partition, listing) in enumerate(listings.items()):
            tell(f"{record.name}/{partition}".rstrip("/"), number, len(listings))
            out = Findings(f"{record.name}/{partition}".rstrip("/"))
            if partition:
                self._temporaries(out, f"{self._root}/{partition}")
            if isinstance(listing, AcidError):
                step = "until then the entity can't be read, and it was not checked"
                out.error(Check.MARKER, "", str(listing), step)
            else:
                self._lease.heartbeat(read=True)
                EntityLook(
                    out,
                    self._metastore,
                    self._files,
                    record,
                    self._lease,
                    recorded.get(partition, []),
                    last_write_id,
                    floors.get(partition, ()),
                    self._rows,
                ).look(listing, registered=partition in floors)
            yield out

    def _listings(self, places: Iterable[str]) -> Iterator[tuple[str, EntityListing | AcidError]]:
        for partition in places:
            try:
                yield partition, self._files.entity(f"{self._root}/{partition}".rstrip("/"))
            except AcidError as error:  # the marker of another version
                yield partition, error

    def _unregistered(self, out: Findings, floors: Iterable[str]) -> list[str]:
        """Partition directories that are not registered. Reports files beside the partitions."""
        record = self._record
        if not record.partitioned:
            return []
        for info in self._files.children(self._root):
            name = info.base_name
            if claims_to_be_acid(name) or (info.is_file and not is_hidden(name)):
                what = "is beside the partitions: nobody reads it"
                step = "move it out of the table, or into the partition that it belongs to"
                out.warning(Check.PARTITION, name, what, step)
        keys = [name for name, _ in record.partition_columns]
        unknown = []
        for partition in self._files.partition_directories(self._root, len(keys)):
            if parse_partition(partition, keys) is None:
                what = f"no partition of {', '.join(keys)}: nobody reads it"
                out.warning(Check.PARTITION, partition, what, MOVE)
            elif partition not in floors:
                unknown.append(partition)
        if not unknown:
            return []
        # Asked after the listing: what the Cleaner has removed since then is no longer there.
        dropping = _awaiting_removal(self._metastore)
        return [
            partition
            for partition in unknown
            if (record.name, partition) not in dropping
            and self._files.is_directory(f"{self._root}/{partition}")
        ]

    def _temporaries(self, out: Findings, location: str) -> None:
        """Who owns each `_tmp_` directory, and whether its transaction is still open (P19)."""
        owner_of = {name: temporary_owner(name) for name in self._files.temporaries(location)}
        states = self._metastore.call(
            ops.GetTxnStates(tuple(sorted({txn_id for txn_id in owner_of.values() if txn_id})))
        )
        for name, owner in owner_of.items():
            match states.get(owner or 0):
                case None:
                    what = "the name does not tell which transaction owns it"
                    step = "remove it once its writer, such as Hive, has ended"
                    out.note(Check.TEMPORARY, name, what, step)
                case "o":
                    what = f"transaction {owner} is writing there"
                    step = "nothing to do: `acid show transactions` says whose it is"
                    out.note(Check.TEMPORARY, name, what, step)
                case state:
                    ended = {"c": "has committed", "a": "was aborted"}.get(state, "has ended")
                    what = f"transaction {owner} {ended} and left it"
                    step = (
                        "the Cleaner removes it after the next compaction; --repair removes it now"
                    )
                    out.warning(
                        Check.TEMPORARY,
                        name,
                        what,
                        step,
                        remove_temporary(self._files, location, name),
                    )

    def _in_doubt(self, out: Findings, listings: dict[str, EntityListing | AcidError]) -> None:
        """Write ids that a restore left in doubt, with the directories that they wrote (P24)."""
        if not self._has_doubts:
            return
        name = self._record.name
        doubtful = {
            write_id
            for low, high in self._metastore.call(ops.GetDoubtful()).get(name, [])
            for write_id in range(low, high + 1)
        }
        if not doubtful:
            return
        wrote: dict[int, list[str]] = defaultdict(list)
        whole = True
        for partition, listing in listings.items():
            if isinstance(listing, AcidError):
                whole = False
                continue
            for directory in listing.directories:
                parsed = acid_name(directory)
                low, high = span(parsed) if parsed else (1, 0)
                for number in doubtful.intersection(range(low, high + 1)):
                    wrote[number].append(f"{partition}/{directory}".lstrip("/"))
        resolve = f"acid metastore resolve {name}"
        for write_id, directories in sorted(wrote.items()):
            what = (
                f"write id {write_id} is in doubt since a restore; it wrote"
                f" {', '.join(directories)}"
            )
            step = f"say how it ended: `{resolve} --committed {write_id}`, or --aborted"
            out.warning(Check.IN_DOUBT, "", what, step)
        left = tuple(sorted(doubtful - set(wrote)))
        if left and whole:
            ids = range_text(ranges(left))
            what = (
                f"write ids {ids} are in doubt since a restore, and"
                " no directory is named after them"
            )
            step = f"`{resolve} --aborted {ids}`, or --repair"
            out.warning(Check.IN_DOUBT, "", what, step, resolve_aborted(name, left))


def _awaiting_removal(metastore: Metastore) -> frozenset[tuple[str, str]]:
    """(table, partition or '') of dropped tables and partitions that wait for the Cleaner."""
    cleanings = metastore.call(ops.GetCleanings())
    drops = [task for task in cleanings.ready if isinstance(task, DropCleaning)]
    waiting: list[BlockedCleaning | DropCleaning] = [*cleanings.blocked, *drops]
    return frozenset((each.table, each.partition or "") for each in waiting)


def _strangers(metastore: Metastore, warehouse: str) -> Findings:
    """Directories of a database that belong to no table."""
    out = Findings("")
    files, root = Files.of(warehouse)
    claimed = {Files.of(record.location)[1] for record in metastore.tables()}
    dropping = _awaiting_removal(metastore)
    for database in metastore.databases():
        for info in files.children(f"{root}/{database}.db"):
            name = f"{database}.{info.base_name}"
            if info.path in claimed or is_hidden(info.base_name) or (name, "") in dropping:
                continue
            what = "no table is registered there"
            step = (
                "adopt it (`Warehouse.adopt_table`) or remove it; a dropped table's directory goes"
                " by itself"
            )
            out.warning(Check.UNKNOWN, info.path.removeprefix("/"), what, step)
    return out
