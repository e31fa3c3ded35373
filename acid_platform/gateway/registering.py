"""Telling a Hive metastore of our tables, so that engines that have it can read them.

The tables there get our partitions, and write ids that are committed or aborted as ours are. Only
decided write ids are registered: the list there ends below the lowest one that is open here. A
second run goes on where the first one ended, and brings the tables there up to date.

The write ids are registered before the table where the metastore allows it, so that nobody reads
a table of which only some are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from acid_platform.base.progress import tell
from acid_platform.errors import AcidError, InvalidDefinition, MalformedName
from acid_platform.gateway import protocol
from acid_platform.gateway.hive_client import Hive, HiveRefused
from acid_platform.layout.names import AcidName, BaseName, is_hidden, parse_directory
from acid_platform.layout.table_properties import (
    NO_AUTO_COMPACTION,
    NO_CLEANUP,
    REGISTERED_ABORTED,
    REGISTERED_FROM,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import TableRecord
from acid_platform.storage.files import Files
from acid_platform.transactions.concurrency import LockType
from acid_platform.transactions.ids import RangeResponse, ValidWriteIdList

FROM, ABORTED = REGISTERED_FROM.name, REGISTERED_ABORTED.name
"""The parameters of a table in another metastore."""
_BATCH = 200
_INSERT = 2
_OPEN = 3
QUIET = {NO_AUTO_COMPACTION.name: "true", NO_CLEANUP.name: "true"}
"""Hive must not compact or clean what is ours."""


@dataclass(frozen=True, slots=True)
class Registered:
    table: str
    result: str
    """`registered`, `up to date`, or `not registered`."""
    partitions: int = 0
    write_id: int = 0
    """The highest write id that is known there now."""
    aborted: int = 0
    note: str = ""

    @property
    def refused(self) -> bool:
        return self.result == "not registered"


def register(
    metastore: Metastore,
    hive: Hive,
    names: Sequence[str] = (),
    wait: float = 30.0,
    again: bool = False,
) -> Iterator[Registered]:
    """Registers the tables of these names, or all, and tells about each.

    `wait`: seconds for the exclusive lock of a table there. `again`: a table that can't be brought
    up to date is dropped there, without its files, and registered anew. Raises NoSuchTable,
    MetastoreUnavailable.
    """
    records = [metastore.table(name) for name in names] or sorted(
        metastore.tables(), key=lambda record: record.name
    )
    identity = metastore.call(ops.GetIdentity()).id
    for number, record in enumerate(records):
        tell(record.name, number, len(records))
        try:
            yield _Table(metastore, hive, record, identity, again).register(wait)
        except AcidError as error:
            if not hive.answers:
                raise
            yield Registered(record.name, "not registered", note=str(error))


@dataclass
class _Table:
    metastore: Metastore
    hive: Hive
    record: TableRecord
    identity: str
    again: bool
    changed: bool = field(default=False, init=False)
    remembered: set[int] = field(default_factory=set, init=False)
    """Write ids that are or were aborted here."""

    def __post_init__(self) -> None:
        self.database, self.name = protocol.split(self.record.name)
        self.mark = f"{self.identity}/{self.record.table_id}"
        self.agent = f"acid register {self.mark}"

    def register(self, wait: float) -> Registered:
        """Raises AcidError for what can't be registered; then a second run is possible."""
        declared = protocol.table(self.record)
        del declared.parameters[protocol.VERSION]
        declared.parameters |= {**QUIET, FROM: self.mark}
        (ids,) = self.metastore.call(
            ops.GetWriteIdsUnder((self.record.name,), self.metastore.call(ops.GetTxnList()))
        )
        decided = ids.for_compactor()
        ours = ValidWriteIdList.of(
            self.record.name, decided.high_watermark, aborted=decided.aborted
        )
        partitions = self.metastore.partitions(self.record.name) if self.record.partitioned else []
        compactions = self._compactions(partitions, ours)
        self._make_database()
        there = self._own(self.hive.table(self.database, self.name), declared)
        text = (there.parameters or {}).get(ABORTED, "") if there is not None else ""
        self.remembered = {int(part) for part in text.split(",") if part} | set(ours.aborted)
        if self.remembered:
            declared.parameters[ABORTED] = ",".join(map(str, sorted(self.remembered)))
        if there is None and self._ids_first(ours):
            self._pass_transactions(compactions)
            self._create(declared)
            self._partitions(partitions)
        else:
            if there is None:
                self._create(declared)
            with self.hive.locked(self.database, self.name, wait, "acid register"):
                self._write_ids(ours)
                self._pass_transactions(compactions)
                if there is not None:
                    self._alter(there, declared)
                self._partitions(partitions)
        self._verify(ours, compactions)
        note = ""
        if ids.open:
            note = (
                f"write id {ids.open[0]} is open here: what follows is not readable there yet; run"
                " this again when it ended"
            )
        return Registered(
            self.record.name,
            "registered" if self.changed else "up to date",
            len(partitions),
            ours.high_watermark,
            len(ours.aborted),
            note,
        )

    # --- what is there --------------------------------------------------------------------------

    def _own(self, there: Any | None, declared: Any) -> Any | None:
        """The table there, if it is ours; None if it has to be made. Raises InvalidDefinition."""
        if there is None:
            if self.again:  # write ids of an earlier run may be there, and go with the table only
                self._create(declared)
                self.hive.call("drop_table", self.database, self.name, False)
            return None
        parameters, where = there.parameters or {}, there.sd.location if there.sd else None
        mark = parameters.get(FROM, "")
        if mark.partition("/")[0] != self.identity or not mark:
            raise InvalidDefinition(
                f"{self.record.name} exists there already, at {where}, and this warehouse did not"
                " register it; rename or drop it there"
            )
        fits = mark == self.mark and protocol.path(where or "") == protocol.path(
            self.record.location
        )
        if fits and not self.again:
            return there
        if not self.again:
            raise InvalidDefinition(
                f"{self.record.name} was registered from another place or declaration ({mark},"
                f" {where}); with --again it is dropped there, without its files, and made anew"
            )
        self.hive.call("drop_table", self.database, self.name, False)
        return None

    def _make_database(self) -> None:
        if self.database in self.hive.call("get_all_databases"):
            return
        record = self.metastore.call(ops.GetDatabase(self.database))
        made = protocol.database(record, self.metastore.places.root)
        with_place = made.locationUri
        try:
            self.hive.call("create_database", made)
        except HiveRefused as error:
            if error.kind == "AlreadyExistsException":
                return
            made.locationUri = None  # a metastore that has only places of its own
            try:
                self.hive.call("create_database", made)
            except HiveRefused:
                raise InvalidDefinition(
                    f"database {self.database} can't be made there at {with_place}: {error}"
                ) from error

    # --- write ids ------------------------------------------------------------------------------

    def _ids_first(self, ours: ValidWriteIdList) -> bool:
        """Registers the write ids before the table is there; False if that is not possible."""
        try:
            self._write_ids(ours)
        except HiveRefused as error:
            if error.kind in ("NoSuchObjectException", "MetaException", "TApplicationException"):
                return False
            raise
        return True

    def _listed(self) -> ValidWriteIdList:
        return self.hive.write_ids(self.database, self.name, self.hive.transactions())

    def _write_ids(self, ours: ValidWriteIdList) -> None:
        """Write ids up to ours exist there, and are committed or aborted as here.

        Raises InvalidDefinition if those that are there differ from ours.
        """
        there = self._listed()
        if there.open:
            there = self._finish(there, ours)
        last, ours_aborted = there.high_watermark, set(ours.aborted)
        if last > ours.high_watermark:
            raise self._differs(f"write ids up to {last} were given out there")
        self._compare(there, ours)
        while last < ours.high_watermark:
            count = min(_BATCH, ours.high_watermark - last)
            txns = self.hive.open(count, self.agent)
            try:
                allocated = self.hive.allocate(self.database, self.name, txns)
            except HiveRefused:
                self.hive.abort(txns)
                raise
            if sorted(allocated.values()) != list(range(last + 1, last + 1 + count)):
                self.hive.abort(txns)
                raise self._differs("somebody else got write ids meanwhile")
            self._decide(allocated, ours_aborted)
            last += count
            self.changed = True

    def _compare(self, there: ValidWriteIdList, ours: ValidWriteIdList) -> None:
        """Raises InvalidDefinition if what is known there is aborted on one side only."""
        aborted_here = {
            aborted_id for aborted_id in ours.aborted if aborted_id <= there.high_watermark
        }
        aborted_there = set(there.aborted)
        wrong = (aborted_here - aborted_there) | (aborted_there - self.remembered)
        if wrong:
            raise self._differs(f"write id {min(wrong)} is aborted on one side only")

    def _finish(self, there: ValidWriteIdList, ours: ValidWriteIdList) -> ValidWriteIdList:
        """Decides what an earlier run left open. Raises InvalidDefinition if others are open."""
        rows = self.hive.call("get_open_txns_info").open_txns
        mine = [row.id for row in rows if row.state == _OPEN and row.agentInfo == self.agent]
        if len(mine) != len(there.open):
            raise self._differs(f"write id {there.open[0]} is open there, and not by this command")
        self._decide(self.hive.allocate(self.database, self.name, mine), set(ours.aborted))
        return self._listed()

    def _decide(self, allocated: dict[int, int], aborted: set[int]) -> None:
        """Commits or aborts, in the order of the write ids."""
        for txn, write_id in sorted(allocated.items(), key=lambda pair: pair[1]):
            if write_id in aborted:
                # Without a lock, Hive's housekeeping would forget that it was aborted.
                self.hive.lock(txn, self.database, self.name, LockType.SHARED_READ, _INSERT)
                self.hive.abort([txn])
            else:
                self.hive.commit(txn)

    def _differs(self, what: str) -> InvalidDefinition:
        advice = "with --again it is dropped there, without its files, and made anew"
        if self.again:
            advice = (
                "it was dropped there, but that metastore keeps the write ids of a table that is"
                " dropped without its files, as Hive's does: rename the table here, or delete its"
                " rows of TXN_TO_WRITE_ID and NEXT_WRITE_ID in that metastore's database, and run"
                " this again"
            )
        return InvalidDefinition(
            f"{self.record.name}: {what}, so rows would be missing or come back there; {advice}"
        )

    # --- compactions ----------------------------------------------------------------------------

    def _compactions(self, partitions: Sequence[str], ours: ValidWriteIdList) -> set[int]:
        """The transactions in the names of compacted directories (`_v`).

        A reader with another metastore goes by what it finds in the directories. Raises
        InvalidDefinition for one that it would read and that is not committed here: of a compaction
        that died, or of a dropped table that had this place.
        """
        files, root = Files.of(self.record.location)
        names = [*partitions] if self.record.partitioned else [None]
        txns = set()
        recorded = self.metastore.call(ops.GetRecorded(self.record.name, tuple(names)))
        for partition, directories in zip(names, recorded, strict=True):
            committed = {directory.directory.name for directory in directories}
            where = f"{root}/{partition or ''}".rstrip("/")
            for name, parsed in _acid_directories(files, where):
                if name in committed:
                    txns.add(parsed.visibility)
                elif _readable(parsed, ours):
                    raise InvalidDefinition(
                        f"{where}/{name} is not committed here, but would be read there; run the"
                        " Cleaner (`acid run cleaner --once`), and this again"
                    )
        return txns - {0}

    def _pass_transactions(self, needed: set[int]) -> None:
        """The transactions of compactions are committed there; those between them are aborted."""
        while needed and (high := self.hive.transactions().high_watermark) < max(needed):
            txns = self.hive.open(min(_BATCH, max(needed) - high), "acid register")
            for txn in txns:
                if txn in needed:
                    self.hive.commit(txn)
            self.hive.abort([txn for txn in txns if txn not in needed])
            self.changed = True

    # --- declaration ----------------------------------------------------------------------------

    def _create(self, declared: Any) -> None:
        if self.hive.table(self.database, self.name) is None:
            self.hive.call("create_table", declared)
            self.changed = True

    def _alter(self, there: Any, declared: Any) -> None:
        def columns(table: Any) -> list[tuple[str, str]]:
            return [(column.name, column.type) for column in table.sd.cols]

        lacking = {
            name: text
            for name, text in declared.parameters.items()
            if name != "transient_lastDdlTime" and (there.parameters or {}).get(name) != text
        }
        if not lacking and columns(there) == columns(declared):
            return
        there.sd.cols = declared.sd.cols
        there.parameters = {**there.parameters, **lacking}
        self.hive.call("alter_table", self.database, self.name, there)
        self.changed = True

    def _partitions(self, partitions: Sequence[str]) -> None:
        """Adds what is missing there, and drops what is not here any more, without its files."""
        if not self.record.partitioned:
            return
        there = {
            tuple(partition.values): partition
            for partition in self.hive.partitions(self.database, self.name)
        }
        here = {tuple(protocol.values_of(self.record, name)): name for name in partitions}
        new = [name for values, name in sorted(here.items()) if values not in there]
        for at in range(0, len(new), _BATCH):
            self.hive.call(
                "add_partitions",
                [protocol.partition(self.record, name) for name in new[at : at + _BATCH]],
            )
            self.changed = True
        for values in there.keys() - here.keys():
            self.hive.call("drop_partition", self.database, self.name, list(values), False)
            self.changed = True

    def _verify(self, ours: ValidWriteIdList, compactions: set[int]) -> None:
        """Raises InvalidDefinition unless readers there see our write ids and compactions."""
        txns = self.hive.transactions()
        there = self.hive.write_ids(self.database, self.name, txns)
        if (there.high_watermark, there.open) != (ours.high_watermark, ()):
            raise self._differs(f"its write ids are {there} there and {ours} here")
        self._compare(there, ours)
        hidden = sorted(compaction for compaction in compactions if not txns.is_valid(compaction))
        if hidden:
            raise InvalidDefinition(
                f"{self.record.name}: transaction {hidden[0]} is open or aborted there, so readers"
                f" would not see the compacted directories _v{hidden[0]:07d}: run this again later,"
                " or compact the table once more; or set its property acid.layout to hive3 first"
            )


def _acid_directories(files: Files, where: str) -> Iterator[tuple[str, AcidName]]:
    for child in files.children(where):
        if child.is_file or is_hidden(child.base_name):
            continue
        with suppress(MalformedName):
            parsed = parse_directory(child.base_name)
            if parsed is not None:
                yield child.base_name, parsed


def _readable(name: AcidName, ours: ValidWriteIdList) -> bool:
    """Whether a reader that goes by the write ids would open the directory."""
    if isinstance(name, BaseName):
        return name.write_id <= ours.high_watermark
    return ours.range_valid(name.low, name.high) is not RangeResponse.NONE
