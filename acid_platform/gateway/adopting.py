"""Taking over the tables of a Hive metastore: their files stay, and this warehouse owns them (P24).

A table is taken whole or not at all. Its snapshot is Hive's: write ids that Hive counts as aborted
stay aborted, and compactions that Hive does not see are left out. While a table is taken, an
exclusive lock in Hive keeps everybody out. A second run goes on where the first one ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from acid_platform.base import progress
from acid_platform.errors import AcidError, InvalidDefinition, NoSuchTable, TableExists
from acid_platform.gateway import protocol
from acid_platform.gateway.definition_calls import (
    clustering_of,
    columns_of,
    comments_of,
    format_property,
    own_parameters,
)
from acid_platform.gateway.hive_client import Hive, HiveRefused
from acid_platform.gateway.protocol import load
from acid_platform.gateway.registering import ABORTED, FROM, QUIET
from acid_platform.layout.names import parse_partition, table_name
from acid_platform.layout.table_properties import (
    BUCKETING_VERSION,
    FIELD_DELIMITER,
    FILE_FORMAT,
    NULL_TEXT,
    TRANSACTIONAL,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.storage.files import Files
from acid_platform.tables.adoption import Adopted, adopt
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

AGENT = "acid adopt"
_HEARTBEAT = 60.0
_VIEWS = {"VIRTUAL_VIEW": "view", "MATERIALIZED_VIEW": "materialized view"}
_ADOPTED, _THERE, _REFUSED = "adopted", "there already", "not taken"
_CONSTRAINTS = (
    ("get_primary_keys", "PrimaryKeysRequest", "primaryKeys"),
    ("get_not_null_constraints", "NotNullConstraintsRequest", "notNullConstraints"),
    ("get_unique_constraints", "UniqueConstraintsRequest", "uniqueConstraints"),
    ("get_default_constraints", "DefaultConstraintsRequest", "defaultConstraints"),
    ("get_check_constraints", "CheckConstraintsRequest", "checkConstraints"),
)


@dataclass(frozen=True, slots=True)
class AdoptedTable:
    name: str
    kind: str
    result: str
    """`adopted`, `there already` (by an earlier run), or `not taken`."""
    partitions: int = 0
    write_id: int = 0
    """The highest write id."""
    aborted: int = 0
    rows: str = ""
    """Hive's own count, if it has one; row counts here come from the files' footers."""
    note: str = ""
    """Why it was not taken, or what of it was not."""

    @property
    def refused(self) -> bool:
        return self.result == _REFUSED


def databases(hive: Hive) -> list[str]:
    return sorted(hive.call("get_all_databases"))


def adopt_database(
    metastore: Metastore,
    hive: Hive,
    database: str,
    tables: Collection[str] = (),
    wait: float = 30.0,
    registered: bool = False,
) -> Iterator[AdoptedTable]:
    """Takes the tables of a database, one after the other, and tells about each.

    `tables`: only those of these names, in any case; `wait`: seconds for the lock of a table in
    Hive; `registered`: also what a warehouse of this platform registered there. A table that can't
    be taken is reported, and the others are taken nevertheless. Raises InvalidDefinition if there
    is no such database, MetastoreUnavailable.
    """
    if database.lower() not in databases(hive):
        raise InvalidDefinition(
            f"{hive.address} has no database {database}; it has {', '.join(databases(hive))}"
        )
    chosen = {name.lower() for name in tables}
    names = sorted(hive.call("get_all_tables", database))
    names = [name for name in names if not chosen or name.lower() in chosen]
    for number, name in enumerate(names):
        full = f"{database}.{name}".lower()
        progress.tell(full, number, len(names))
        try:
            yield _taken(metastore, hive, database, name, wait, registered)
        except HiveRefused as error:
            note = str(error)
            if error.kind == "TApplicationException" and "method name" in note.lower():
                note = f"this metastore lacks a call of Hive 3 and newer: {note}"
            yield AdoptedTable(full, "table", _REFUSED, note=note)
        except AcidError as error:
            if not hive.answers:
                raise
            yield AdoptedTable(full, "table", _REFUSED, note=str(error))
    for name in sorted(hive.call("get_functions", database, "*") or ()):
        note = "functions are not kept; make it in Hive and Spark"
        yield AdoptedTable(f"{database}.{name}", "function", _REFUSED, note=note)


def _taken(
    metastore: Metastore,
    hive: Hive,
    database: str,
    name: str,
    wait: float,
    registered: bool,
) -> AdoptedTable:
    """Raises AcidError for what can't be taken."""
    full = table_name(f"{database}.{name}")
    shown = hive.table(database, name)
    if shown is None:
        raise NoSuchTable("it was dropped meanwhile")
    kind = _VIEWS.get(shown.tableType, "table")
    if kind != "table":
        text = " ".join((shown.viewExpandedText or shown.viewOriginalText or "").split())
        note = f'its SQL is Hive\'s; make it with acid sql "CREATE VIEW {full} AS {text}"'
        return AdoptedTable(full, kind, _REFUSED, note=note)
    _require_adoptable(shown)
    location = protocol.path(shown.sd.location)
    there = {record.name: record for record in metastore.tables()}.get(full)
    if there is not None and protocol.path(there.location) == location:
        partition_count = len(metastore.partitions(full))
        last = metastore.call(ops.GetLastWriteId(there.table_id))
        return AdoptedTable(full, "table", _THERE, partition_count, last)
    if there is not None or any(view.name == full for view in metastore.views()):
        what = f"at {there.location}" if there else "as a view"
        raise TableExists(f"the name exists here already, {what}; rename or drop it first")
    if FROM in shown.parameters and not registered:
        raise InvalidDefinition(
            f"a warehouse of this platform owns it and goes on writing it ({shown.parameters[FROM]}"
            "); only one may"
        )
    adopted: Adopted | None = None
    ended = ""
    try:
        with hive.locked(database, name, wait, f"{AGENT} {full}") as txn:
            shown = hive.table(database, name) or shown  # as it is under the lock
            txns = hive.transactions()
            write_ids = hive.write_ids(database, name, txns)
            if write_ids.open:
                raise InvalidDefinition(
                    f"write id {write_ids.open[0]} is open in Hive: wait for that transaction or"
                    " abort it there (ABORT TRANSACTIONS), and run this again"
                )
            partitions = _partitions(hive, shown, database, name)
            beat = _Beat(hive, txn)
            with progress.shown(beat):
                adopted = _adopt(metastore, full, shown, partitions, write_ids, txns, beat.now)
    except HiveRefused as error:
        if adopted is None:
            raise
        ended = f"its lock in Hive could not be released ({error}); it ends by itself"
    reported = _report(hive, full, shown, adopted, write_ids)
    return replace(reported, note="; ".join(filter(None, (reported.note, ended))))


def _adopt(
    metastore: Metastore,
    full: str,
    shown: Any,
    partitions: list[str],
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    confirm: Callable[[], None],
) -> Adopted:
    parameters = own_parameters(shown.parameters)
    if FROM in parameters:
        added = {FROM, ABORTED, *QUIET}
        parameters = {name: text for name, text in parameters.items() if name not in added}
    clustered = clustering_of(shown.sd)
    if clustered:
        parameters.setdefault(BUCKETING_VERSION.name, "1")  # as Hive takes it
    return adopt(
        metastore,
        full,
        protocol.path(shown.sd.location),
        columns_of(shown.sd),
        [f"`{key.name}` {key.type}" for key in shown.partitionKeys or ()],
        clustered,
        write_ids,
        {**parameters, **format_property(full, shown.sd, parameters), **_text(shown.sd)},
        # Hive's list ends at the last transaction; what compacts later is not seen.
        txns,
        partitions if shown.partitionKeys else None,
        confirm,
        comments_of(shown),
    )


class _Beat:
    """Keeps the lock's transaction alive while an adoption tells how far it is."""

    def __init__(self, hive: Hive, txn: int) -> None:
        self._hive, self._txn = hive, txn
        self._next = time.monotonic() + _HEARTBEAT

    def __call__(self, *_: object) -> None:
        if time.monotonic() >= self._next:
            self.now()
            self._next = time.monotonic() + _HEARTBEAT

    def now(self) -> None:
        """Raises HiveRefused if the lock was lost, so that somebody may have written meanwhile."""
        self._hive.keep_alive(self._txn)


def _require_adoptable(shown: Any) -> None:
    """Raises InvalidDefinition unless the table can be taken, as far as its declaration says."""
    parameters = {name.lower(): text for name, text in (shown.parameters or {}).items()}
    location = shown.sd.location or ""
    is_external = parameters.get("external", "").lower() == "true"
    advice = f'make a table of them with Warehouse.adopt_table("…", "{location}")'
    if "storage_handler" in parameters:
        raise InvalidDefinition(
            f"its rows are kept by {parameters['storage_handler']}, not in files of its own"
        )
    if shown.tableType == "EXTERNAL_TABLE" or is_external:
        raise InvalidDefinition(
            "it is external: others may write its files; if nobody does, and they are ORC,"
            f" {advice}"
        )
    if parameters.get(TRANSACTIONAL.name, "").lower() != "true":
        raise InvalidDefinition(
            "it is not transactional: whoever writes it is not seen here; if nobody does, and its"
            f" files are ORC, {advice}"
        )
    if shown.sd.skewedInfo and shown.sd.skewedInfo.skewedColNames:
        raise InvalidDefinition("it is SKEWED BY, which is not kept")
    if shown.sd.sortCols:
        raise InvalidDefinition("it is SORTED BY, which is not kept")
    if not _answers(location):
        raise InvalidDefinition(
            f"{location} is on HDFS, which this Python reads only with libhdfs and CLASSPATH set;"
            " copy the files to a place that all machines see, and set the location there in Hive"
            if location.startswith("hdfs:")
            else f"{location} can't be read from this machine"
        )


def _answers(location: str) -> bool:
    try:
        files, path = Files.of(location)
        return files.is_directory(path)
    except (OSError, ValueError, AcidError):
        return False


def _partitions(hive: Hive, shown: Any, database: str, name: str) -> list[str]:
    """The names of the partitions, as their directories spell them.

    Raises InvalidDefinition for a partition that is elsewhere or is stored in another way.
    """
    if not shown.partitionKeys:
        return []
    keys = [key.name.lower() for key in shown.partitionKeys]
    root = protocol.path(shown.sd.location)
    columns = [(column.name.lower(), column.type) for column in shown.sd.cols]
    names = []
    for partition in hive.partitions(database, name):
        where = protocol.path(partition.sd.location or "")
        relative = where.removeprefix(f"{root}/") if where.startswith(f"{root}/") else None
        if relative is None or parse_partition(relative, keys) is None:
            raise InvalidDefinition(
                f"partition {'/'.join(partition.values)} is in {where}, not in {root}/{keys[0]}=…:"
                " a partition can't have a location of its own here"
            )
        if partition.sd.serdeInfo.serializationLib != shown.sd.serdeInfo.serializationLib:
            raise InvalidDefinition(
                f"partition {relative} is stored with {partition.sd.serdeInfo.serializationLib},"
                f" the table with {shown.sd.serdeInfo.serializationLib}"
            )
        own = [(column.name.lower(), column.type) for column in partition.sd.cols or ()]
        if own != columns[: len(own)]:
            raise InvalidDefinition(
                f"partition {relative} has the columns {own}, the table {columns}: Hive reads it by"
                " its own; ALTER TABLE … CASCADE makes them equal"
            )
        names.append(relative)
    return names


def _text(descriptor: Any) -> dict[str, str]:
    """The separators of a text table, which are parameters of its SerDe in Hive."""
    if format_property("", descriptor, {}).get(FILE_FORMAT.name) != "text":
        return {}
    parameters = descriptor.serdeInfo.parameters or {}
    names = (FIELD_DELIMITER.name, NULL_TEXT.name)
    others = sorted(
        name
        for name in parameters
        if name not in (*names, "serialization.format") and not name.startswith("line.")
    )
    if others:
        raise InvalidDefinition(f"its text files need the parameter {others[0]}, which is not kept")
    return {name: parameters[name] for name in names if name in parameters}


def _report(
    hive: Hive, full: str, shown: Any, adopted: Adopted, write_ids: ValidWriteIdList
) -> AdoptedTable:
    notes = []
    constraints = _constraints(hive, full)
    if constraints:
        notes.append(f"{', '.join(constraints)} are not kept")
    if adopted.left_out:
        notes.append(f"left out {', '.join(adopted.left_out)}: a compaction that Hive does not see")
    return AdoptedTable(
        full,
        "table",
        _ADOPTED,
        len(shown.partitionKeys or ()) and len(adopted.survey.partitions),
        max(write_ids.high_watermark, adopted.survey.write_id),
        len(write_ids.aborted),
        (shown.parameters or {}).get("numRows", ""),
        "; ".join(notes),
    )


def _constraints(hive: Hive, full: str) -> list[str]:
    """The kinds of constraints that the table has, as far as the metastore tells."""
    database, name = protocol.split(full)
    kinds = []
    for call, request, field in _CONSTRAINTS:
        kind = getattr(load(), request)
        table = {"db_name": database, "tbl_name": name, "catName": protocol.CATALOG}
        fields = {field[1] for field in kind.thrift_spec.values()}
        try:
            answer = hive.call(call, kind(**{k: v for k, v in table.items() if k in fields}))
        except HiveRefused:
            continue
        if getattr(answer, field):
            kinds.append(field)
    return kinds
