"""What fsck reports: findings, each with its next step, and repairs that are provably safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from acid_platform.layout.names import VERSION, VERSION_FILE
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.messages import range_text, ranges
from acid_platform.storage.durability import Ours, remove, sync
from acid_platform.storage.files import Files

MOVE = "move it out of the table"
COPY = "restore it from a copy of the warehouse"
RESTORE = "restore the file from a copy of the warehouse, or abort what needs it"
REWRITE = "a major compaction rewrites it: `acid compact TABLE major`"
"""Next steps of several findings."""


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    """Rows are wrong, missing or unreadable, here or in Hive."""
    WARNING = "warning"
    """Readers get correct rows, but somebody has to decide or to clean up."""
    NOTE = "note"
    """Correct, but worth knowing."""


class Check(Enum):
    NAME = "name"
    MARKER = "marker"
    CONTENT = "content"
    SCHEMA = "schema"
    OPERATION = "operation"
    ORDER = "order"
    UNIQUENESS = "uniqueness"
    KEY_INDEX = "key index"
    BUCKET = "bucket"
    WRITE_IDS = "write ids"
    DELETES = "delete events"
    COUNTS = "counts"
    MISSING = "missing"
    UNKNOWN = "unknown"
    NEVER_GIVEN = "never given out"
    ABORTED = "aborted"
    TEMPORARY = "temporary"
    IN_DOUBT = "in doubt"
    PARTITION = "partition"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Repair:
    """A change that is safe while others read and write."""

    text: str
    apply: Callable[[Metastore], object]

    def __str__(self) -> str:
        return self.text


def remove_temporary(files: Files, location: str, name: str) -> Repair:
    """Removes a `_tmp_` directory whose transaction has ended and can't publish it (P2, P19)."""
    return Repair(f"remove {location}/{name}", lambda _: remove(files, location, name, Ours()))


def write_version_file(files: Files, directory: str) -> Repair:
    """Writes the version file of a directory whose files all have ACID columns: readers see the
    same rows with it."""
    path = f"{directory}/{VERSION_FILE}"

    def write(_metastore: Metastore) -> None:
        if files.is_directory(directory):
            files.write(path, VERSION)
            sync(files, [path, directory])

    return Repair(f"write {path}", write)


def resolve_aborted(table: str, write_ids: tuple[int, ...]) -> Repair:
    """Marks write ids in doubt as aborted if they have no directory: no row can be lost."""
    resolve = ops.ResolveDoubtful(table, (), write_ids)
    text = f"{table}: mark write ids {range_text(ranges(write_ids))} as aborted"
    return Repair(text, lambda metastore: metastore.call(resolve))


@dataclass(frozen=True, slots=True)
class FsckFinding:
    """Something that is not as it should be, why that matters, and what to do next."""

    severity: Severity
    check: Check
    thing: str
    """`db.t/partition/directory/file` or a prefix of it, as `acid ls` takes it."""
    text: str
    next_step: str
    repair: Repair | None = None
    repaired: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "severity": self.severity.value,
            "check": self.check.value,
            "thing": self.thing,
            "text": self.text,
            "next_step": self.next_step,
            "repair": str(self.repair) if self.repair else "",
            "repaired": self.repaired,
        }

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.thing}: {self.text}; {self.next_step}"


@dataclass(frozen=True, slots=True)
class FsckReport:
    """All findings, the worst first, and how much was checked."""

    findings: tuple[FsckFinding, ...]
    tables: int = 0
    directories: int = 0
    files: int = 0
    rows: int = 0
    """The number of row keys that were compared."""

    @property
    def healthy(self) -> bool:
        """Whether only notes and repaired findings are left."""
        return all(
            finding.repaired or finding.severity is Severity.NOTE for finding in self.findings
        )

    def summary(self) -> str:
        """`2 errors, 1 warning, 0 notes in 3 tables: 12 directories, 30 files, 4000 row keys`"""
        open_findings = [finding.severity for finding in self.findings if not finding.repaired]
        severities = [_count(open_findings.count(kind), kind.value) for kind in Severity]
        checked = [
            _count(self.directories, "directory"),
            _count(self.files, "file"),
            _count(self.rows, "row key"),
        ]
        return f"{', '.join(severities)} in {_count(self.tables, 'table')}: {', '.join(checked)}"

    def as_json(self) -> dict[str, Any]:
        return {
            "healthy": self.healthy,
            "tables": self.tables,
            "directories": self.directories,
            "files": self.files,
            "rows": self.rows,
            "findings": [finding.as_json() for finding in self.findings],
        }


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {'directories' if noun == 'directory' else f'{noun}s'}"


@dataclass(slots=True)
class Findings:
    """Collects the findings of one entity; `place` begins the path of each."""

    place: str
    findings: list[FsckFinding] = field(default_factory=list)
    directories: int = 0
    files: int = 0
    rows: int = 0

    def error(self, check: Check, path: str, text: str, next_step: str) -> None:
        self._add(Severity.ERROR, check, path, text, next_step, None)

    def warning(
        self, check: Check, path: str, text: str, next_step: str, repair: Repair | None = None
    ) -> None:
        self._add(Severity.WARNING, check, path, text, next_step, repair)

    def note(self, check: Check, path: str, text: str, next_step: str) -> None:
        self._add(Severity.NOTE, check, path, text, next_step, None)

    def _add(
        self,
        severity: Severity,
        check: Check,
        path: str,
        text: str,
        next_step: str,
        repair: Repair | None,
    ) -> None:
        thing = f"{self.place}/{path}".rstrip("/")
        self.findings.append(FsckFinding(severity, check, thing, text, next_step, repair))

    def apply(self, metastore: Metastore) -> None:
        """Applies the repairs of the findings."""
        for number, finding in enumerate(self.findings):
            if finding.repair is not None:
                finding.repair.apply(metastore)
                self.findings[number] = replace(finding, repaired=True)


def sorted_findings(every: Iterable[FsckFinding]) -> tuple[FsckFinding, ...]:
    rank = list(Severity)
    return tuple(sorted(every, key=lambda finding: (rank.index(finding.severity), finding.thing)))
