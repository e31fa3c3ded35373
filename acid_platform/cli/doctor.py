"""Checks of an installation and a warehouse, as plain rows. Starts no Spark."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acid_platform.base.clock import wall_ms
from acid_platform.base.config import REGISTRY, Settings
from acid_platform.base.location import Location
from acid_platform.cli.gateway_command import gateways
from acid_platform.compaction.states import CompactionState
from acid_platform.errors import AcidError, WarehouseNotWritable
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.compaction import DropTask
from acid_platform.storage.files import Files
from acid_platform.tables.joining import join

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check. If `ok` is False, the text says what has to be done."""

    check: str
    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """Something that waits, why, and the transactions that it waits for."""

    what: str
    why: str
    who: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """`thresholds`: the Initiator's current decision about each entity, with its reason."""

    checks: tuple[CheckResult, ...]
    settings: tuple[Row, ...] = ()
    thresholds: tuple[Row, ...] = ()
    stuck: tuple[Stuck, ...] = ()

    @property
    def healthy(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def verdict(self) -> str:
        failed = [check.check for check in self.checks if not check.ok]
        if failed:
            return f"something is wrong: {', '.join(failed)}"
        if self.stuck:
            return (
                f"all checks are ok, and something waits: {', '.join(s.what for s in self.stuck)}"
            )
        return "all is well: all checks are ok, and nothing is stuck"

    def as_json(self) -> Row:
        return {
            "healthy": self.healthy,
            "checks": [asdict(check) for check in self.checks],
            "stuck": [asdict(thing) for thing in self.stuck],
            "thresholds": list(self.thresholds),
            "settings": list(self.settings),
        }


def examine(location: Location) -> DoctorReport:
    """Checks Java, Python, the warehouse, its metastore and what waits there. Changes nothing.

    An existing metastore that does not run is started, as by any client.
    """
    checks = [
        CheckResult("python", True, f"{platform.python_version()} on {platform.system()}"),
        _checked("java", _java),
        _checked("warehouse", lambda: _warehouse(location)),
    ]
    if not location.made:
        text = f"none in {location.metastore} yet; the first Warehouse.open makes it"
        return DoctorReport((*checks, CheckResult("metastore", True, text)))
    try:
        metastore = join(location)
    except AcidError as error:
        return DoctorReport((*checks, CheckResult("metastore", False, str(error))))
    with metastore:
        return DoctorReport(
            (
                *checks,
                _metastore(metastore),
                *(CheckResult("gateway", ok, text) for ok, text in gateways(metastore)),
            ),
            tuple(settings_rows(metastore)),
            tuple(_thresholds(metastore)),
            tuple(stuck(metastore, wall_ms())),
        )


def _checked(name: str, check: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(name, True, check())
    except AcidError as error:
        return CheckResult(name, False, str(error))


def _java() -> str:
    from acid_platform.engine.spark.session import java_version, require_java

    java = require_java()
    return f"{java} is Java {java_version(java)}"


def _warehouse(location: Location) -> str:
    from acid_platform.handles.warehouse import require_writable

    files, path = Files.of(location.warehouse)
    if not files.object_store and not files.exists(path):
        above = next((parent for parent in Path(path).parents if parent.exists()), Path("/"))
        if files.local and not (above.is_dir() and os.access(above, os.W_OK)):
            raise WarehouseNotWritable(
                f"{location.warehouse} can't be made below {above}; choose another ACID_WAREHOUSE"
            )
        return f"{location.warehouse} does not exist yet; the first Warehouse.open makes it"
    require_writable(files, path)
    return f"{location.warehouse} can be written"


def _metastore(metastore: Metastore) -> CheckResult:
    status = metastore.status()
    text = (
        f"process {status['pid']} serves {status['log']}: {status['tables']} tables,"
        f" {status['open']} open and {status['aborted']} aborted transactions,"
        f" {status['waiting']} waiting locks, {status['commit_ms']} ms per commit"
    )
    failed = status["failed_writes"]
    if failed:
        text += f"; {failed} writes of its journal failed, see server.log there"
    # A process that an earlier version started does not say.
    if status.get("tls_until"):
        text += f"; its certificate is valid until {status['tls_until']}"
    late = bool(status.get("archive_error"))
    if late:
        text += (
            f"; {status['unarchived']} batches of its log can't be archived in"
            f" {status['archive']}: {status['archive_error']}"
        )
    return CheckResult("metastore", not failed and not late, text)


def settings_rows(metastore: Metastore) -> Iterator[Row]:
    """Every setting with its value, class and, unless it is honoured, the reason (P9)."""
    values = metastore.settings()
    for name, entry in REGISTRY.items():
        yield {
            "setting": name,
            "value": values.get(name, entry.default),
            "default": entry.default,
            "class": entry.treatment.value,
            "allowed": entry.allowed,
            "reason": entry.reason,
        }


def _thresholds(metastore: Metastore) -> Iterator[Row]:
    from acid_platform.services import initiator
    from acid_platform.services.explain_services import decision_row

    return map(decision_row, initiator.explain(metastore, wall_ms()))


def stuck(metastore: Metastore, now_ms: int) -> Iterator[Stuck]:
    """Cleanings, locks, compactions, erasures, foreign tables and consumers of changes that wait,
    with the reason."""
    for cleaning in metastore.call(ops.GetCleanings()).blocked:
        where = f"{cleaning.table} {cleaning.partition or ''}".rstrip()
        yield Stuck(f"cleaning of {where}", cleaning.reason, ", ".join(map(str, cleaning.holders)))
    for row in metastore.call(ops.GetCursors(None)):
        if row.refused:
            yield Stuck(f"consumer {row.cursor.consumer} of {row.table}", row.refused)
    for record in metastore.tables():
        if record.foreign:
            yield Stuck(
                f"table {record.name}",
                f"read only: {record.location} may belong to the"
                " warehouse that this one is a copy of: `acid metastore take-over`",
            )
    for lock in metastore.call(ops.GetLocks()):
        if not lock.acquired:
            resource = "/".join(filter(None, (lock.database, lock.table, lock.partition)))
            owner = f"transaction {lock.txn} of {lock.user}@{lock.host}"
            why = lock.blocked_by or "about to be granted"
            yield Stuck(f"{lock.lock.name} of {resource}", why, owner)
    interval = Settings.of(metastore.settings()).integer("hive.compactor.check.interval")
    for task in (*metastore.call(ops.GetQueue()), *metastore.call(ops.GetPastCompactions())):
        name = f"compaction {task.id} of {task.table}"
        if task.state is CompactionState.INITIATED and now_ms - task.enqueued > interval:
            yield Stuck(
                name,
                "no Worker has taken it: run `acid run worker`, or switch on the compaction job",
            )
        elif task.state is CompactionState.FAILED:
            host = "" if isinstance(task, DropTask) else task.worker.rpartition("-")[0]
            yield Stuck(name, f"failed: {task.error}", host)
        elif task.state is CompactionState.SUCCEEDED and task.error:
            where = f"{task.table} {task.partition or ''}".rstrip()
            yield Stuck(f"files beside those of {where}", f"the Cleaner {task.error}")

    for erasure in metastore.call(ops.GetErasures()):
        if erasure.state.open:
            yield Stuck(
                f"erasure {erasure.id} of {erasure.table}",
                erasure.answer or "not tried yet: switch on erasure_sensor, or run `acid erase`",
                erasure.user,
            )
